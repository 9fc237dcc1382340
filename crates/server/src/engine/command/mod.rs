//! What a command is: one row, from which everything that depends on the command is read.
//!
//! A family file in `commands/` holds its handlers and ends in its rows. Dispatch, arity errors,
//! the lock plan, the memory check, COMMAND INFO, DOCS and GETKEYS, and later ACL and the log, all
//! come from here.

pub mod admission;
pub mod call;
pub mod data;
pub mod distinct;
pub mod elsewhere;
pub mod execute;
pub mod failure;
pub mod flags;
pub mod help;
pub mod job;
pub mod keys;
pub mod plan;
pub mod registry;
pub mod slices;
pub mod syntax;
pub mod transaction;
pub mod walk;
pub mod words;

pub use call::Call;
pub use data::{Data, Key};
pub use failure::Failure;
pub use flags::{Categories, Flags};
pub use keys::{ChannelArguments, DatabaseUse, KeySpec, KeyUse};
pub use registry::{KeyShape, Registered, Registry};
pub use walk::KeyWalk;

pub use crate::engine::pubsub::notify::Classes;

/// What a handler returns: it has appended its reply, or the caller appends the error.
pub type Outcome = Result<(), Failure>;
/// Executes a command. The shards of its keys are held.
pub type Handler = fn(&mut Call<'_>) -> Outcome;

/// Calls a function with the index of each key among the words of a command, and its use.
pub type KeyFinder = fn(&[&[u8]], &mut dyn FnMut(usize, KeyUse));

/// Something about the words of a command.
pub type Condition = fn(&[&[u8]]) -> bool;

/// Arguments that are stored as they are. Large ones are copied before any shard is locked.
#[derive(Clone, Copy)]
pub struct Values {
    pub first: usize,
    /// Distance to the next; 0: there is one.
    pub step: usize,
}

/// A command's row.
///
/// It has many fields, as everything that is known of a command stands here.
pub struct Command {
    /// Lower case; of a subcommand the second word alone.
    pub name: &'static str,
    /// Number of words, the name's included; negative: at least that many.
    pub arity: i32,
    pub flags: Flags,
    pub categories: Categories,
    pub keys: &'static [KeySpec],
    /// Finds the keys where the specifications cannot say where they are: among options.
    pub key_finder: Option<KeyFinder>,
    /// Whether these arguments make the command run with the gate: they do not tell which keys it
    /// will read.
    pub gate_when: Option<Condition>,
    /// Which arguments become values of keys.
    pub values: Option<Values>,
    pub channels: ChannelArguments,
    pub databases: DatabaseUse,
    pub handler: Handler,
    /// The first version of Redis or Valkey that had it.
    pub since: &'static str,
    /// The group of the documentation it belongs to: `string`, `generic`, ...
    pub group: &'static str,
    pub complexity: &'static str,
    pub summary: &'static str,
    /// The arguments' grammar, as in the title of the command's page: `key value [NX | XX]`.
    pub syntax: &'static str,
    /// Changes of later versions: (version, what changed).
    pub history: &'static [(&'static str, &'static str)],
    /// COMMAND INFO's tips.
    pub tips: &'static [&'static str],
    /// Since when and in favour of what the command is deprecated.
    pub deprecated: Option<(&'static str, &'static str)>,
    /// A container has these and its own handler only says what is missing.
    pub subcommands: &'static [Self],
    /// Only a name: rules of users may have it, and its handler says that the command is not there.
    pub is_absent: bool,
}

/// What the rows of one data type have in common.
pub struct Family {
    categories: Categories,
}

impl Family {
    pub const fn new(categories: Categories) -> Self {
        Self { categories }
    }

    pub const fn row(
        &self,
        name: &'static str,
        arity: i32,
        flags: Flags,
        handler: Handler,
    ) -> Command {
        Command::new(name, arity, handler).flags(flags).categories(self.categories)
    }
}

impl Command {
    /// A row with the facts that every command has; the rest is added by the methods below.
    pub const fn new(name: &'static str, arity: i32, handler: Handler) -> Self {
        Self {
            name,
            arity,
            flags: Flags::NONE,
            categories: Categories::NONE,
            keys: &[],
            key_finder: None,
            gate_when: None,
            values: None,
            channels: ChannelArguments::None,
            databases: DatabaseUse::Selected,
            handler,
            since: "1.0.0",
            group: "generic",
            complexity: "",
            summary: "",
            syntax: "",
            history: &[],
            tips: &[],
            deprecated: None,
            subcommands: &[],
            is_absent: false,
        }
    }

    pub const fn flags(mut self, flags: Flags) -> Self {
        self.flags = flags;
        self
    }

    /// Categories beyond those that follow from the flags (READ, WRITE, FAST, SLOW, ADMIN ...).
    pub const fn categories(mut self, categories: Categories) -> Self {
        self.categories = categories;
        self
    }

    pub const fn keys(mut self, keys: &'static [KeySpec]) -> Self {
        self.keys = keys;
        self
    }

    /// Where the keys are, instead of the specifications, which are then only shown.
    pub const fn keys_by(mut self, finder: KeyFinder) -> Self {
        self.key_finder = Some(finder);
        self
    }

    pub const fn gate_when(mut self, condition: Condition) -> Self {
        self.gate_when = Some(condition);
        self
    }

    /// The argument at `first` becomes a value, and with a `step` every `step`th from there on.
    pub const fn values(mut self, first: usize, step: usize) -> Self {
        self.values = Some(Values { first, step });
        self
    }

    pub const fn channels(mut self, channels: ChannelArguments) -> Self {
        self.channels = channels;
        self
    }

    pub const fn databases(mut self, databases: DatabaseUse) -> Self {
        self.databases = databases;
        self
    }

    /// Documentation: group, first version, complexity and one sentence.
    pub const fn doc(
        mut self,
        group: &'static str,
        since: &'static str,
        complexity: &'static str,
        summary: &'static str,
    ) -> Self {
        self.group = group;
        self.since = since;
        self.complexity = complexity;
        self.summary = summary;
        self
    }

    pub const fn syntax(mut self, syntax: &'static str) -> Self {
        self.syntax = syntax;
        self
    }

    pub const fn history(mut self, history: &'static [(&'static str, &'static str)]) -> Self {
        self.history = history;
        self
    }

    pub const fn tips(mut self, tips: &'static [&'static str]) -> Self {
        self.tips = tips;
        self
    }

    pub const fn deprecated(mut self, since: &'static str, replacement: &'static str) -> Self {
        self.deprecated = Some((since, replacement));
        self
    }

    pub const fn subcommands(mut self, subcommands: &'static [Self]) -> Self {
        self.subcommands = subcommands;
        self
    }

    /// See [`Self::is_absent`].
    pub const fn absent(mut self) -> Self {
        self.is_absent = true;
        self
    }
}
