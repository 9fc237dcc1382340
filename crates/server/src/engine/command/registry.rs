//! All commands by name.

use std::collections::HashMap;
use std::ops::Deref;

use super::{Command, Handler};
use crate::engine::row::{Described, Facts, Flags};

/// A command that the server knows.
pub struct Registered {
    pub facts: Facts,
    pub handler: Handler,
    /// The subcommands of a container, by name.
    pub subcommands: Vec<&'static Self>,
}

impl Deref for Registered {
    type Target = Facts;

    #[inline(always)]
    fn deref(&self) -> &Facts {
        &self.facts
    }
}

/// All commands, by name.
pub struct Registry {
    commands: Vec<&'static Registered>,
    /// The facts of all commands, for code that executes none.
    facts: Vec<&'static Facts>,
    /// The names that clients call commands by.
    names: Names,
    /// The names that commands have in the log and in a primary's stream.
    logged_names: Names,
    /// The replies of COMMAND and COMMAND DOCS about all commands. They are boxed because the
    /// compiler would read `names` again and again if the registry itself held atomics.
    pub info: Box<Described>,
    pub docs: Box<Described>,
}

/// Commands by name: a hash table, whose size is a power of two and at least twice the number of
/// names.
#[derive(Default)]
struct Names(Vec<Option<NamedCommand>>);

/// A name and the command that it stands for.
type NamedCommand = (Box<[u8]>, &'static Registered);

impl Registry {
    /// Registers every family. `renamed` gives commands other names; an empty new name removes the
    /// command. The commands live as long as the process.
    pub fn new(
        families: &[&'static [Command]],
        renamed: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<Self, String> {
        let (info, docs, commands, facts) = Default::default();
        let (names, logged_names) = Default::default();
        let mut registry = Self { commands, facts, names, logged_names, info, docs };
        let mut names: HashMap<Vec<u8>, &'static Registered> = HashMap::new();
        for command in families.iter().flat_map(|family| family.iter()) {
            let registered = registry.register(command);
            let double = names.insert(command.row.name.as_bytes().to_vec(), registered);
            assert!(double.is_none(), "two rows for {}", command.row.name);
        }
        for (old, new) in renamed {
            let command = names
                .remove(&old.to_ascii_lowercase())
                .ok_or("No such command in rename-command")?;
            if !new.is_empty() && names.insert(new.to_ascii_lowercase(), command).is_some() {
                return Err("Target command name already exists".into());
            }
        }
        registry.names = Names::new(&names);
        for command in registry.commands.iter().filter(|command| command.parent.is_none()) {
            let taker = *names.entry(command.row.name.into()).or_insert(command);
            if taker != *command && command.is_written_by_the_server() {
                let (name, taker) = (command.row.name.to_uppercase(), &taker.full_name);
                return Err(format!(
                    "rename-command: {} cannot be called {name}, because the server itself writes \
                     {name} into its log and to replicas, and means the command of that name",
                    taker.to_uppercase()
                ));
            }
        }
        registry.logged_names = Names::new(&names);
        Ok(registry)
    }

    /// Whether there is a command called `name` once `renamed` holds, whose lines count in their
    /// order: a name that one gives away may be given to another command, or be taken again.
    pub fn has(families: &[&[Command]], renamed: &[(Vec<u8>, Vec<u8>)], name: &[u8]) -> bool {
        let is_name = |other: &[u8]| other.eq_ignore_ascii_case(name);
        let mut rows = families.iter().flat_map(|family| family.iter());
        let first = rows.any(|command| is_name(command.row.name.as_bytes()));
        renamed.iter().fold(first, |known, (old, new)| is_name(new) || known && !is_name(old))
    }

    fn register(&mut self, command: &'static Command) -> &'static Registered {
        // The id of the container comes first, the ids of its subcommands follow.
        let (id, first) = (self.commands.len(), self.commands.len() + 1);
        let mut subcommands = Vec::new();
        for (number, sub) in (first..).zip(command.subcommands) {
            let name = format!("{}|{}", command.row.name, sub.row.name);
            let facts = Facts::new(&sub.row, name, number, number..number, Some(id));
            subcommands.push(Registered::leak(sub, facts, Vec::new()));
        }
        let ids = first..first + subcommands.len();
        let facts = Facts::new(&command.row, command.row.name.into(), id, ids, None);
        self.commands.push(Registered::leak(command, facts, subcommands.clone()));
        self.commands.extend(subcommands);
        self.facts.extend(self.commands[id..].iter().map(|command| &command.facts));
        self.commands[id]
    }

    /// Finds a command of a client by its first word.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<&'static Registered> {
        self.names.find(name)
    }

    /// Finds a command of the log, or of a primary's stream, by its first word. As in Valkey, what
    /// a client sent stands there under the name that the client used. What the server itself wrote
    /// stands there under the command's own name, also if clients call it otherwise or not at all.
    #[inline]
    pub fn find_logged(&self, name: &[u8]) -> Option<&'static Registered> {
        self.logged_names.find(name)
    }

    /// Finds a command by its full name, as COMMAND INFO takes it: `get`, `client|list`. Absent
    /// commands are not found.
    pub fn find_full(&self, name: &[u8]) -> Option<&'static Registered> {
        let found = match name.iter().position(|&byte| byte == b'|') {
            None => self.find(name),
            Some(bar) => self.find(&name[..bar])?.subcommand(&name[bar + 1..]),
        };
        found.filter(|command| !command.row.is_absent)
    }

    /// All commands and subcommands by id, absent ones included.
    pub fn all(&self) -> &[&'static Registered] {
        &self.commands
    }

    /// The facts of all commands and subcommands, by id.
    pub fn facts(&self) -> &[&'static Facts] {
        &self.facts
    }

    /// The commands that clients can call, without subcommands.
    pub fn top(&self) -> impl Iterator<Item = (&[u8], &'static Registered)> {
        let named = self.names.0.iter().flatten().map(|(name, command)| (&**name, *command));
        named.filter(|(_, command)| !command.row.is_absent)
    }
}

impl Names {
    fn new(names: &HashMap<Vec<u8>, &'static Registered>) -> Self {
        let len = (names.len() * 4).next_power_of_two();
        let mut slots = vec![None; len];
        for (name, command) in names {
            let mut at = fold(name) as usize & (len - 1);
            while slots[at].is_some() {
                at = (at + 1) & (len - 1);
            }
            slots[at] = Some((name.as_slice().into(), *command));
        }
        Self(slots)
    }

    #[inline]
    fn find(&self, name: &[u8]) -> Option<&'static Registered> {
        let mask = self.0.len() - 1;
        let mut at = fold(name) as usize & mask;
        while let Some((known, command)) = &self.0[at] {
            if known.eq_ignore_ascii_case(name) {
                return Some(command);
            }
            at = (at + 1) & mask;
        }
        None
    }
}

/// Each command is registered once, so its id identifies it.
impl PartialEq for Registered {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Registered {}

impl Registered {
    /// Registers a command for the life of the process.
    fn leak(command: &Command, facts: Facts, subcommands: Vec<&'static Self>) -> &'static Self {
        Box::leak(Box::new(Self { facts, handler: command.handler, subcommands }))
    }

    /// The command that these words call. `args[0]` is the name of this command; if it is a
    /// container, `args[1]` names a subcommand. Returns `None` if there is no such subcommand.
    #[inline(always)]
    pub fn of_words(&'static self, args: &[&[u8]]) -> Option<&'static Self> {
        match args.get(1).filter(|_| !self.subcommands.is_empty()) {
            Some(name) => self.subcommand(name),
            None => Some(self),
        }
    }

    /// Whether the server itself may write this command into the log or to replicas: what changes
    /// data, and what holds the log and the stream together.
    fn is_written_by_the_server(&self) -> bool {
        let changes = |command: &Self| command.has(Flags::WRITE);
        let frames = ["select", "multi", "exec", "ping", "replconf"];
        changes(self)
            || self.subcommands.iter().any(|command| changes(command))
            || frames.contains(&self.row.name)
    }

    pub fn subcommand(&self, name: &[u8]) -> Option<&'static Self> {
        self.subcommands.iter().copied().find(|s| s.row.name.as_bytes().eq_ignore_ascii_case(name))
    }
}

/// A hash of a name that does not depend on upper and lower case.
#[inline(always)]
fn fold(name: &[u8]) -> u32 {
    let len = name.len();
    let mut word = [0; 8];
    if len >= 8 {
        word.copy_from_slice(&name[..8]);
        word[7] ^= name[len - 1];
    } else {
        for (to, from) in word.iter_mut().zip(name) {
            *to = *from;
        }
    }
    let folded = (u64::from_le_bytes(word) | 0x2020_2020_2020_2020) ^ len as u64;
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this were wrong, only a profiler would show it: the first argument would be hashed as a
    /// key.
    #[test]
    fn the_first_argument_is_known_to_be_a_key() {
        let registry = Registry::new(&crate::process::families(), &[]).expect("the rows are right");
        for (name, is_key) in [
            ("get", true),
            ("mset", true),
            ("sort", true),
            ("zunionstore", true),
            ("bitop", false),
            ("echo", false),
            ("eval", false),
            ("lmpop", false),
            ("object|encoding", false),
            ("publish", false),
            ("spublish", false),
            ("xread", false),
        ] {
            let command = registry.find_full(name.as_bytes()).expect("there is such a command");
            assert_eq!(command.first_is_key, is_key, "{name}");
        }
    }

    /// Else a server could not read its own log, and a replica not its primary's stream.
    #[test]
    fn what_the_server_writes_is_known_by_its_own_name() {
        let line = |line: &str| {
            let (old, new) = line.split_once(' ').expect("two names");
            (old.as_bytes().to_vec(), new.as_bytes().to_vec())
        };
        let renamed = |lines: &[&str]| -> Result<Registry, String> {
            let lines: Vec<_> = lines.iter().map(|text| line(text)).collect();
            Registry::new(&crate::process::families(), &lines)
        };
        let lines = ["SET mine", "RESTORE ", "EXEC Go", "KEYS ", "GET keys"];
        let registry = renamed(&lines).expect("the names are free");
        let name = |found: Option<&'static Registered>| found.map(|command| command.row.name);
        for (word, of_client, logged) in [
            ("mine", Some("set"), Some("set")),
            ("set", None, Some("set")),
            ("RESTORE", None, Some("restore")),
            ("GO", Some("exec"), Some("exec")),
            ("exec", None, Some("exec")),
            ("KEYS", Some("get"), Some("get")),
            ("GET", None, Some("get")),
            ("DEL", Some("del"), Some("del")),
            ("nothing", None, None),
        ] {
            assert_eq!(name(registry.find(word.as_bytes())), of_client, "{word}");
            assert_eq!(name(registry.find_logged(word.as_bytes())), logged, "{word}");
        }
        // `SET x 1.5` is the change of INCRBYFLOAT. It would delete the key.
        let refused = renamed(&["SET mine", "DEL set"]).err().expect("the name is not free");
        assert!(refused.contains("DEL cannot be called SET"), "{refused}");
        for lines in [["FUNCTION ", "GET function"], ["MULTI ", "GET multi"]] {
            assert!(renamed(&lines).is_err(), "{lines:?}");
        }
        // The name is given back.
        assert!(renamed(&["SET mine", "DEL ours", "mine set", "ours del"]).is_ok());
    }

    /// The commands that take the gate, and so stop every other thread for a moment.
    ///
    /// The gate is also taken by: a transaction or a script with one of these commands or with a
    /// walk over all keys (`Flags::WALKS`); a script that is not known to use only its declared
    /// keys (ADR 11); the beginning of a cut, for a snapshot or a base of the log
    /// (`Data::begin_cut`); PSYNC with FAILOVER; the final save at the end.
    const GATED: &[(&str, &[&str])] = &[
        ("all keys of a database", &["flushall", "flushdb", "swapdb"]),
        ("keys that depend on values: with patterns of keys", &["sort", "sort_ro"]),
        ("where a cut begins", &["bgrewriteaof", "bgsave", "save"]),
        ("what every command is checked by", &["acl|deluser", "acl|load", "acl|setuser"]),
        ("what every command may depend on", &["config|resetstat", "config|set", "debug"]),
        ("what no command may be in the midst of", &["client|pause", "client|unpause"]),
        ("what every worker tells of from then on", &["client|tracking", "monitor"]),
        ("whose keys there are", &["failover", "replicaof", "slaveof"]),
        (
            "the functions of all workers",
            &["function|delete", "function|flush", "function|load", "function|restore"],
        ),
        (
            "one session of HOTKEYS ends before the next begins, wherever that is noted",
            &["hotkeys|start", "hotkeys|stop"],
        ),
    ];

    #[test]
    fn the_gate_is_for_what_concerns_everything() {
        let registry = Registry::new(&crate::process::families(), &[]).expect("the rows are right");
        let gated = registry
            .all()
            .iter()
            .filter(|command| command.has(Flags::GATE) || command.row.gate_when.is_some());
        let mut names: Vec<&str> = gated.map(|command| &*command.full_name).collect();
        names.sort_unstable();
        let mut listed: Vec<&str> = GATED.iter().flat_map(|(_, names)| *names).copied().collect();
        listed.sort_unstable();
        assert_eq!(names, listed);
    }
}
