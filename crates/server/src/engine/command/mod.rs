//! What a command is: its row and its handler.
//!
//! A family file in `commands/` holds its handlers and ends in its rows.

pub mod call;
pub mod counting;
pub mod data;
pub mod help;
pub mod job;
pub mod key_set;
pub mod plan;
pub mod registry;
pub mod transaction;
pub mod walk;

pub use call::Call;
pub use data::{Data, Key};
pub use key_set::KeySet;
pub use registry::{Registered, Registry};
pub use walk::KeyWalk;

pub use crate::engine::pubsub::notify::Classes;
pub use crate::engine::row::{
    Categories, ChannelArguments, DatabaseUse, Failure, Flags, KeyShape, KeySpec, KeyUse, Outcome,
};
use crate::engine::row::{Condition, KeyFinder, Row, Values};

/// Executes a command. The shards of its keys are held.
pub type Handler = fn(&mut Call<'_>) -> Outcome;

/// A command as its family's file defines it.
pub struct Command {
    pub row: Row,
    pub handler: Handler,
    /// The subcommands of a container. The container's own handler only reports that a subcommand
    /// is missing.
    pub subcommands: &'static [Self],
}

/// The facts that all rows of one data type share.
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
    /// A row with the facts that every command has. The methods below add the others.
    pub const fn new(name: &'static str, arity: i32, handler: Handler) -> Self {
        Self { row: Row::new(name, arity), handler, subcommands: &[] }
    }

    pub const fn flags(mut self, flags: Flags) -> Self {
        self.row.flags = flags;
        self
    }

    /// Categories beyond those that follow from the flags (READ, WRITE, FAST, SLOW, ADMIN ...).
    pub const fn categories(mut self, categories: Categories) -> Self {
        self.row.categories = categories;
        self
    }

    pub const fn keys(mut self, keys: &'static [KeySpec]) -> Self {
        self.row.keys = keys;
        self
    }

    /// A function that finds the keys. The key specifications are then only shown.
    pub const fn keys_by(mut self, finder: KeyFinder) -> Self {
        self.row.key_finder = Some(finder);
        self
    }

    pub const fn gate_when(mut self, condition: Condition) -> Self {
        self.row.gate_when = Some(condition);
        self
    }

    /// The argument at `first` becomes a value. With a `step`, so does every `step`th argument
    /// after it.
    pub const fn values(mut self, first: usize, step: usize) -> Self {
        self.row.values = Some(Values { first, step });
        self
    }

    pub const fn channels(mut self, channels: ChannelArguments) -> Self {
        self.row.channels = channels;
        self
    }

    pub const fn databases(mut self, databases: DatabaseUse) -> Self {
        self.row.databases = databases;
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
        self.row.group = group;
        self.row.since = since;
        self.row.complexity = complexity;
        self.row.summary = summary;
        self
    }

    /// The first version that had this command, if it is not the one that `doc` names.
    pub const fn since(mut self, version: &'static str) -> Self {
        self.row.since = version;
        self
    }

    pub const fn syntax(mut self, syntax: &'static str) -> Self {
        self.row.syntax = syntax;
        self
    }

    pub const fn history(mut self, history: &'static [(&'static str, &'static str)]) -> Self {
        self.row.history = history;
        self
    }

    pub const fn tips(mut self, tips: &'static [&'static str]) -> Self {
        self.row.tips = tips;
        self
    }

    pub const fn deprecated(mut self, since: &'static str, replacement: &'static str) -> Self {
        self.row.deprecated = Some((since, replacement));
        self
    }

    pub const fn subcommands(mut self, subcommands: &'static [Self]) -> Self {
        self.subcommands = subcommands;
        self
    }

    /// See [`Row::is_absent`].
    pub const fn absent(mut self) -> Self {
        self.row.is_absent = true;
        self
    }
}
