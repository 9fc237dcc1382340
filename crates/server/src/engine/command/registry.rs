//! All commands by name.

use std::collections::HashMap;
use std::ops::Deref;

use super::{Command, Handler};
use crate::engine::row::{Described, Facts};

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

/// A command and the name that clients call it by.
type NamedCommand = (Box<[u8]>, &'static Registered);

/// All commands, by name.
pub struct Registry {
    commands: Vec<&'static Registered>,
    /// The facts of all commands, for code that executes none.
    facts: Vec<&'static Facts>,
    /// A hash table, whose size is a power of two and at least twice the number of names.
    slots: Vec<Option<NamedCommand>>,
    /// The replies of COMMAND and COMMAND DOCS about all commands. They are boxed because the
    /// compiler would read `slots` again and again if the registry itself held atomics.
    pub info: Box<Described>,
    pub docs: Box<Described>,
}

impl Registry {
    /// Registers every family. `renamed` gives commands other names; an empty new name removes the
    /// command. The commands live as long as the process.
    pub fn new(
        families: &[&'static [Command]],
        renamed: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<Self, String> {
        let (info, docs) = Default::default();
        let (commands, facts, slots) = Default::default();
        let mut registry = Self { commands, facts, slots, info, docs };
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
        let slots = (names.len() * 4).next_power_of_two();
        registry.slots = vec![None; slots];
        for (name, command) in names {
            let mut at = fold(&name) as usize & (slots - 1);
            while registry.slots[at].is_some() {
                at = (at + 1) & (slots - 1);
            }
            registry.slots[at] = Some((name.into(), command));
        }
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

    /// Finds a command by its first word.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<&'static Registered> {
        let mask = self.slots.len() - 1;
        let mut at = fold(name) as usize & mask;
        while let Some((known, command)) = &self.slots[at] {
            if known.eq_ignore_ascii_case(name) {
                return Some(command);
            }
            at = (at + 1) & mask;
        }
        None
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
        let named = self.slots.iter().flatten().map(|(name, command)| (&**name, *command));
        named.filter(|(_, command)| !command.row.is_absent)
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
    use crate::engine::row::Flags;

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
