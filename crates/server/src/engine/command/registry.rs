//! All commands by name.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use bobbin_resp::{Protocol, Reply};

use super::keys::{Begin, Find};
use super::{Categories, Command, DatabaseUse, Flags, KeySpec, KeyUse};

/// A command that the server knows, with what is worked out once at start.
pub struct Registered {
    pub row: &'static Command,
    /// `get`, `client|list`.
    pub full_name: String,
    /// Counts from 0 over commands and subcommands; indexes statistics.
    pub id: usize,
    pub shape: KeyShape,
    /// Argument 1 is a key.
    pub first_is_key: bool,
    /// Whether it works on the selected database.
    pub uses_selected_database: bool,
    /// Of a container, by name.
    pub subcommands: Vec<&'static Self>,
    pub parent: Option<usize>,
    /// What COMMAND INFO answers about it, ...
    pub info: Described,
    /// ... and COMMAND DOCS.
    pub docs: Described,
}

/// A reply that is always the same: made when it is first asked for, in each protocol, and shared
/// by all that ask again. A command may ask a million times.
#[derive(Default)]
pub struct Described([OnceLock<Arc<Vec<u8>>>; 2]);

impl Described {
    /// Appends the reply, which `make` makes.
    pub fn append(&self, reply: &mut Reply<'_>, make: impl FnOnce(&mut Reply<'_>)) {
        let protocol = reply.protocol();
        let whole = self.0[usize::from(protocol == Protocol::Resp3)].get_or_init(|| {
            let mut bytes = Vec::new();
            make(&mut Reply::new(&mut bytes, protocol));
            Arc::new(bytes)
        });
        reply.whole_shared(whole);
    }
}

/// The keys of the common commands, without reading specifications.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyShape {
    None,
    /// One key, at argument 1.
    First,
    /// Whatever the specifications say.
    Specified,
}

/// A command under the name that it is called by.
type NamedCommand = (Box<[u8]>, &'static Registered);

/// All commands, by name.
pub struct Registry {
    commands: Vec<&'static Registered>,
    /// Power of two; twice as large as there are names, at least.
    slots: Vec<Option<NamedCommand>>,
    /// What COMMAND answers about all of them, and COMMAND DOCS. Boxed: with atomics in the
    /// registry itself the compiler would read `slots` again and again.
    pub info: Box<Described>,
    pub docs: Box<Described>,
}

impl Registry {
    /// Registers every family, under other names where `renamed` says so (an empty new name removes
    /// the command). Lives as long as the process.
    pub fn new(
        families: &[&'static [Command]],
        renamed: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<Self, String> {
        let (info, docs) = Default::default();
        let mut registry = Self { commands: Vec::new(), slots: Vec::new(), info, docs };
        let mut names: HashMap<Vec<u8>, &'static Registered> = HashMap::new();
        for row in families.iter().flat_map(|family| family.iter()) {
            let registered = registry.register(row);
            let double = names.insert(row.name.as_bytes().to_vec(), registered);
            assert!(double.is_none(), "two rows for {}", row.name);
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

    fn register(&mut self, row: &'static Command) -> &'static Registered {
        // The container's id comes first, its subcommands' follow.
        let id = self.commands.len();
        let mut container = Registered::new(row, row.name.into(), id, None);
        let mut registered = Vec::new();
        for (i, sub) in row.subcommands.iter().enumerate() {
            let name = format!("{}|{}", row.name, sub.name);
            let sub: &'static _ =
                Box::leak(Box::new(Registered::new(sub, name, id + 1 + i, Some(id))));
            registered.push(sub);
        }
        container.subcommands.clone_from(&registered);
        let container: &'static _ = Box::leak(Box::new(container));
        self.commands.push(container);
        self.commands.extend(registered);
        container
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

    /// Finds a command by its words, as COMMAND INFO names it: `get`, `client|list`. None that is
    /// absent.
    pub fn find_full(&self, name: &[u8]) -> Option<&'static Registered> {
        let found = match name.iter().position(|&byte| byte == b'|') {
            None => self.find(name),
            Some(bar) => self.find(&name[..bar])?.subcommand(&name[bar + 1..]),
        };
        found.filter(|command| !command.row.is_absent)
    }

    /// All commands and subcommands, by id, the absent ones as well.
    pub fn all(&self) -> &[&'static Registered] {
        &self.commands
    }

    /// The commands that have a name and are there, without subcommands.
    pub fn top(&self) -> impl Iterator<Item = (&[u8], &'static Registered)> {
        let named = self.slots.iter().flatten().map(|(name, command)| (&**name, *command));
        named.filter(|(_, command)| !command.row.is_absent)
    }
}

/// Commands that find out themselves what they hold, or wait for something.
const NOT_AT_ONCE: Flags = Flags::GATE
    .with(Flags::WALKS)
    .with(Flags::RUNS)
    .with(Flags::EXECUTES)
    .with(Flags::NOT_QUEUED)
    .with(Flags::BLOCKING)
    .with(Flags::MAY_REPLICATE);

/// There is one of each command.
impl PartialEq for Registered {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Registered {}

impl Registered {
    fn new(row: &'static Command, full_name: String, id: usize, parent: Option<usize>) -> Self {
        let shape = match row.keys {
            [] => KeyShape::None,
            keys if keys.iter().all(|spec| spec.usage.has(KeyUse::NOT_KEY)) => KeyShape::None,
            [KeySpec { begin: Begin::Index(1), find: Find::Range { last: 0, .. }, .. }] => {
                KeyShape::First
            }
            _ => KeyShape::Specified,
        };
        let first_is_key = row.keys.iter().any(|spec| {
            let begins_there = matches!(spec.begin, Begin::Index(1));
            begins_there && matches!(spec.find, Find::Range { .. }) && shape != KeyShape::None
        });
        let has_keys = row.keys.iter().any(|spec| !spec.usage.has(KeyUse::NOT_KEY));
        let about_keys = Categories::KEYSPACE.with(Categories::READ).with(Categories::WRITE);
        let uses_selected_database = has_keys
            || matches!(row.databases, DatabaseUse::Selected)
                && row.categories.complete(row.flags).has(about_keys);
        let subcommands = Vec::new();
        let (info, docs) = Default::default();
        Self {
            row,
            full_name,
            id,
            shape,
            first_is_key,
            uses_selected_database,
            subcommands,
            parent,
            info,
            docs,
        }
    }

    pub fn subcommand(&self, name: &[u8]) -> Option<&'static Self> {
        self.subcommands.iter().copied().find(|s| s.row.name.as_bytes().eq_ignore_ascii_case(name))
    }

    #[inline(always)]
    pub fn has(&self, flags: Flags) -> bool {
        self.row.flags.has(flags)
    }

    /// Whether this many words can be the command.
    #[inline(always)]
    pub fn accepts(&self, words: usize) -> bool {
        let words = words as i64;
        let arity = i64::from(self.row.arity);
        if arity >= 0 { words == arity } else { words >= -arity }
    }

    /// Whether the command changes one key, its first argument, and is done with that at once.
    pub fn changes_one_key_at_once(&self, args: &[&[u8]]) -> bool {
        self.has(Flags::WRITE)
            && self.has(Flags::FAST.with(Flags::BRIEF))
            && !self.has(NOT_AT_ONCE)
            && !(self.has(Flags::COUNTED) && args.len() > 2)
            && self.row.gate_when.is_none()
            && self.subcommands.is_empty()
            && self.accepts(args.len())
            && (self.shape == KeyShape::First || self.has_lone_key(args))
    }

    fn has_lone_key(&self, args: &[&[u8]]) -> bool {
        let (mut keys, mut is_first) = (0, false);
        let fits = self.key_positions(args, |at| {
            keys += 1;
            is_first = at == 1;
        });
        fits && keys == 1 && is_first
    }

    /// Calls `f` with the index of each key, and what the command does with it. Arguments that are
    /// not of the command's form have the keys that they have: the handler answers with the error
    /// before it looks at one.
    pub fn key_uses(&self, args: &[&[u8]], mut f: impl FnMut(usize, KeyUse)) {
        if let Some(finder) = self.row.key_finder {
            finder(args, &mut f);
            return;
        }
        for spec in self.row.keys.iter().filter(|spec| !spec.usage.has(KeyUse::NOT_KEY)) {
            spec.positions(args, |at| f(at, spec.usage));
        }
    }

    /// Whether it may read keys that its arguments do not name, as SORT's BY does.
    pub fn reads_undeclared_keys(&self) -> bool {
        let is_incomplete =
            |spec: &KeySpec| spec.begin == Begin::Unknown || spec.usage.has(KeyUse::INCOMPLETE);
        self.row.keys.iter().any(is_incomplete)
    }

    /// Calls `f` with the index of each key; `false` when the arguments are not of the command's
    /// form.
    #[inline(always)]
    pub fn key_positions(&self, args: &[&[u8]], mut f: impl FnMut(usize)) -> bool {
        match self.shape {
            KeyShape::None => true,
            KeyShape::First => {
                f(1);
                true
            }
            KeyShape::Specified => {
                if let Some(finder) = self.row.key_finder {
                    finder(args, &mut |at, _| f(at));
                    return true;
                }
                let mut fits = true;
                for spec in self.row.keys.iter().filter(|s| !s.usage.has(KeyUse::NOT_KEY)) {
                    fits &= spec.positions(args, &mut f);
                }
                fits
            }
        }
    }
}

/// A hash of a name that upper and lower case share.
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

    /// A wrong one would be seen by nobody but a profiler: what it says is hashed as a key.
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

    /// All that takes the gate, and so stops every other thread for a moment.
    ///
    /// Beside these commands it is taken by: a transaction that has one of them, or a script, or a
    /// walk over all keys (`Flags::WALKS`); a script of which it is not known that it keeps to its
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
