//! What is known of a command apart from its handler: its row and what follows from the row, its
//! words, and its errors.
//!
//! Dispatch, arity errors, the lock plan, the memory check, COMMAND INFO, DOCS and GETKEYS, ACL
//! rights and the log all read the same row.

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

/// Calls a function with the index of each key among the words of a command, and the key's use.
pub type KeyFinder = fn(&[&[u8]], &mut dyn FnMut(usize, KeyUse));

/// A test of the words of a command.
pub type Condition = fn(&[&[u8]]) -> bool;

/// Arguments that are stored as they are. Large ones are copied before any shard is locked.
#[derive(Clone, Copy)]
pub struct Values {
    pub first: usize,
    /// The distance to the next one; 0 if there is only one.
    pub step: usize,
}

/// A command's row.
///
/// It has many fields because everything that is known of a command is here.
pub struct Row {
    /// In lower case; for a subcommand only the second word.
    pub name: &'static str,
    /// The number of words, including the name; if negative, the least number.
    pub arity: i32,
    pub flags: Flags,
    pub categories: Categories,
    pub keys: &'static [KeySpec],
    /// Finds the keys if the specifications cannot: for keys among options.
    pub key_finder: Option<KeyFinder>,
    /// Whether a command with these arguments needs the gate, because they do not tell which keys
    /// it reads.
    pub gate_when: Option<Condition>,
    /// The arguments that become values of keys.
    pub values: Option<Values>,
    pub channels: ChannelArguments,
    pub databases: DatabaseUse,
    /// The first version of Redis or Valkey that had the command.
    pub since: &'static str,
    /// The command's group in the documentation: `string`, `generic`, ...
    pub group: &'static str,
    pub complexity: &'static str,
    pub summary: &'static str,
    /// The grammar of the arguments, as in the title of the command's page: `key value [NX | XX]`.
    pub syntax: &'static str,
    /// Changes of later versions: (version, change).
    pub history: &'static [(&'static str, &'static str)],
    /// COMMAND INFO's tips.
    pub tips: &'static [&'static str],
    /// The version that deprecated the command, and what replaces it.
    pub deprecated: Option<(&'static str, &'static str)>,
    /// Whether there is only a name: ACL rules may have it, and its handler says that the command
    /// is not there.
    pub is_absent: bool,
}

impl Row {
    /// A row with the facts that every command has.
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
