//! What is known of a command, beside what executes it: its row and what follows from that, its
//! words, and why it failed.
//!
//! Dispatch, arity errors, the lock plan, the memory check, COMMAND INFO, DOCS and GETKEYS, rights
//! and the log all read the same row.

pub mod distinct;
mod facts;
pub mod failure;
pub mod flags;
pub mod keys;
pub mod syntax;
pub mod words;

pub use facts::{Described, Facts, KeyShape};
pub use failure::{Failure, Outcome};
pub use flags::{Categories, Flags, WRITERS};
pub use keys::{ChannelArguments, DatabaseUse, KeySpec, KeyUse};

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
pub struct Row {
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
    /// Only a name: rules of users may have it, and its handler says that the command is not there.
    pub is_absent: bool,
}

impl Row {
    /// With the facts that every command has.
    pub const fn new(name: &'static str, arity: i32) -> Self {
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
            since: "1.0.0",
            group: "generic",
            complexity: "",
            summary: "",
            syntax: "",
            history: &[],
            tips: &[],
            deprecated: None,
            is_absent: false,
        }
    }
}
