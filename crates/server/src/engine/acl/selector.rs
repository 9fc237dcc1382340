//! A selector: a set of rights that allows a command as a whole, or not at all.

use super::pattern::Pattern;
use crate::engine::row::{Facts, KeyUse};

/// A set of rights. A user has a root selector, and may have further ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    pub(super) commands: CommandSet,
    /// The first arguments that commands are allowed with, if not with all; by command id.
    pub(super) first_args: Vec<(usize, Box<[u8]>)>,
    /// The rules that made `commands`, in order, without those that later rules replaced.
    pub(super) rules: Vec<Box<[u8]>>,
    /// Whether these rules begin with all commands or with none.
    pub(super) begins_with_all: bool,
    pub(super) keys: KeyRules,
    pub(super) channels: ChannelRules,
    pub(super) databases: Databases,
}

/// A set of commands and subcommands, by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandSet(Box<[u64]>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyRules {
    All,
    These(Vec<KeyPattern>),
}

/// A pattern of keys that may be read, written, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPattern {
    pub reads: bool,
    pub writes: bool,
    pub pattern: Pattern,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelRules {
    All,
    These(Vec<Pattern>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Databases {
    All,
    /// Ascending.
    These(Vec<u32>),
}

impl CommandSet {
    pub fn none(commands: &[&Facts]) -> Self {
        Self(vec![0; commands.len().div_ceil(u64::BITS as usize)].into())
    }

    pub fn set(&mut self, id: usize, allowed: bool) {
        let (word, bit) = place(id);
        if allowed {
            self.0[word] |= bit;
        } else {
            self.0[word] &= !bit;
        }
    }

    pub fn set_all(&mut self, commands: &[&Facts], allowed: bool) {
        commands.iter().for_each(|command| self.set(command.id, allowed));
    }

    #[inline]
    pub fn has(&self, command: &Facts) -> bool {
        let (word, bit) = place(command.id);
        self.0[word] & bit != 0
    }
}

fn place(id: usize) -> (usize, u64) {
    (id / u64::BITS as usize, 1 << (id % u64::BITS as usize))
}

impl KeyRules {
    pub fn allow(&self, key: &[u8], usage: KeyUse) -> bool {
        let Self::These(patterns) = self else { return true };
        patterns.iter().any(|pattern| pattern.allows(usage) && pattern.pattern.matches(key))
    }

    /// Whether every key may be read.
    pub fn allow_reading_all(&self) -> bool {
        let Self::These(patterns) = self else { return true };
        patterns.iter().any(|pattern| pattern.reads && pattern.pattern.text() == b"*")
    }
}

impl KeyPattern {
    fn allows(&self, usage: KeyUse) -> bool {
        let reads = usage.has(KeyUse::ACCESS);
        let writes = usage.has(KeyUse::INSERT.with(KeyUse::DELETE).with(KeyUse::UPDATE));
        (self.reads || !reads) && (self.writes || !writes)
    }

    fn describe(&self, text: &mut Vec<u8>) {
        text.extend_from_slice(match (self.reads, self.writes) {
            // `~*` means all keys, and no pattern may follow it.
            (true, true) if self.pattern.text() == b"*" => b"%RW~",
            (true, true) => b"~",
            (true, false) => b"%R~",
            _ => b"%W~",
        });
        text.extend_from_slice(self.pattern.text());
    }
}

impl ChannelRules {
    /// Whether a channel is allowed. With `is_pattern`, the name is a pattern to subscribe to,
    /// which must itself be among the allowed patterns.
    pub fn allow(&self, name: &[u8], is_pattern: bool) -> bool {
        let Self::These(patterns) = self else { return true };
        patterns.iter().any(|pattern| match is_pattern {
            true => pattern.text() == name,
            false => pattern.matches(name),
        })
    }
}

impl Databases {
    pub fn allow(&self, database: u32) -> bool {
        match self {
            Self::All => true,
            Self::These(numbers) => numbers.binary_search(&database).is_ok(),
        }
    }
}

impl Selector {
    /// A selector that allows nothing, except for the channels that `acl-pubsub-default` allows.
    pub fn new(commands: &[&Facts], all_channels: bool) -> Self {
        Self {
            commands: CommandSet::none(commands),
            first_args: Vec::new(),
            rules: Vec::new(),
            begins_with_all: false,
            keys: KeyRules::These(Vec::new()),
            channels: if all_channels {
                ChannelRules::All
            } else {
                ChannelRules::These(Vec::new())
            },
            databases: Databases::All,
        }
    }

    /// Whether the selector allows everything.
    pub fn is_unlimited(&self, commands: &[&Facts]) -> bool {
        self.keys == KeyRules::All
            && self.channels == ChannelRules::All
            && self.databases == Databases::All
            && commands.iter().all(|command| self.commands.has(command))
    }

    /// The rules of commands that make the same set again.
    pub fn describe_commands(&self) -> Vec<u8> {
        let all: &[u8] = if self.begins_with_all { b"+@all" } else { b"-@all" };
        let rules = self.rules.iter().map(|rule| &**rule);
        std::iter::once(all).chain(rules).collect::<Vec<_>>().join(&b' ')
    }

    pub fn describe_keys(&self) -> Vec<u8> {
        let KeyRules::These(patterns) = &self.keys else { return b"~*".to_vec() };
        let described = patterns.iter().map(|pattern| {
            let mut text = Vec::new();
            pattern.describe(&mut text);
            text
        });
        described.collect::<Vec<_>>().join(&b' ')
    }

    pub fn describe_channels(&self) -> Vec<u8> {
        let ChannelRules::These(patterns) = &self.channels else { return b"&*".to_vec() };
        let described = patterns.iter().map(|pattern| [b"&", pattern.text()].concat());
        described.collect::<Vec<_>>().join(&b' ')
    }

    /// `alldbs`, `db=0,1`, or nothing.
    pub fn describe_databases(&self) -> Vec<u8> {
        match &self.databases {
            Databases::All => b"alldbs".to_vec(),
            Databases::These(numbers) if numbers.is_empty() => Vec::new(),
            Databases::These(numbers) => {
                let numbers: Vec<_> = numbers.iter().map(u32::to_string).collect();
                format!("db={}", numbers.join(",")).into_bytes()
            }
        }
    }

    /// All rules that make the same selector from a new one.
    pub fn describe(&self) -> Vec<u8> {
        let mut parts = vec![self.describe_keys()];
        if let ChannelRules::These(_) = self.channels {
            parts.push(b"resetchannels".to_vec());
        }
        parts.push(self.describe_channels());
        match &self.databases {
            Databases::All => {}
            Databases::These(numbers) if numbers.is_empty() => parts.push(b"resetdbs".to_vec()),
            Databases::These(_) => parts.push(self.describe_databases()),
        }
        parts.push(self.describe_commands());
        parts.retain(|part| !part.is_empty());
        parts.join(&b' ')
    }
}
