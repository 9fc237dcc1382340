//! The errors of commands, as clients get them.

use std::borrow::Cow;

use super::Facts;
use crate::config::{Config, OptionId};

/// What a handler returns: it has appended its reply, or the caller appends the error.
pub type Outcome = Result<(), Failure>;

/// Why a command has done nothing, or not all of its work.
///
/// Two words: nearly every function on a request's way may return one, and what is longer is
/// returned through memory. So the texts are behind a reference.
#[derive(Clone, Debug, Eq)]
pub enum Failure {
    /// An error reply: its code and text, without the leading `-`.
    Fixed(&'static &'static str),
    /// An error reply with a text that is made for it, or chosen from several.
    Made(Box<Cow<'static, str>>),
    /// Not an error: the command has done nothing. `execute` has its client wait, and the command
    /// is executed anew after that.
    Postponed,
}

impl Failure {
    pub const SYNTAX: Self = Self::new(&"ERR syntax error");
    pub const NOT_AN_INTEGER: Self = Self::new(&"ERR value is not an integer or out of range");
    pub const NOT_A_FLOAT: Self = Self::new(&"ERR value is not a valid float");
    pub const NO_SUCH_KEY: Self = Self::new(&"ERR no such key");
    pub const WRONG_TYPE: Self =
        Self::new(&"WRONGTYPE Operation against a key holding the wrong kind of value");
    pub const OUT_OF_MEMORY: Self =
        Self::new(&"OOM command not allowed when used memory > 'maxmemory'.");
    pub const OUT_OF_RANGE: Self = Self::new(&"ERR index out of range");
    pub const NO_DATABASE: Self = Self::new(&"ERR DB index is out of range");
    pub const NOT_AUTHENTICATED: Self = Self::new(&"NOAUTH Authentication required.");
    pub const STRING_TOO_LONG: Self =
        Self::new(&"ERR string exceeds maximum allowed size (proto-max-bulk-len)");

    /// A fault of the server; see `Call::key`.
    pub const UNPLANNED: Self = Self::new(
        &"ERR internal error: the command names a key that was not planned; nothing of it was read. Please report this",
    );

    pub const NOREPLICAS: Self = Self::new(&"NOREPLICAS Not enough good replicas to write.");
    pub const READONLY: Self = Self::new(&"READONLY You can't write against a read only replica.");
    pub const MASTERDOWN: Self = Self::new(
        &"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    );

    pub const fn new(text: &'static &'static str) -> Self {
        Self::Fixed(text)
    }

    /// An error with a text of its own.
    #[cold]
    pub fn format(text: impl Into<String>) -> Self {
        Self::Made(Box::new(Cow::Owned(text.into())))
    }

    /// The error while a file is loaded.
    #[cold]
    pub fn loading(config: &Config) -> Self {
        Self::format(format!("LOADING {} is loading the dataset in memory", config.name()))
    }

    /// The error of writes after a snapshot failed.
    #[cold]
    pub fn snapshot_failed(config: &Config) -> Self {
        let name = config.name();
        Self::format(format!(
            "MISCONF {name} is configured to save RDB snapshots, but it's currently unable to persist \
             to disk. Commands that may modify the data set are disabled, because this instance is \
             configured to report errors during writes if RDB snapshotting fails \
             (stop-writes-on-bgsave-error option). Please check the {name} logs for details about the \
             RDB error."
        ))
    }

    /// Sends a client that understands it (CLIENT CAPA REDIRECT) to the primary.
    #[cold]
    pub fn redirect(config: &Config) -> Self {
        Self::format(format!("REDIRECT {}", config.words_of(OptionId::replicaof).join(":")))
    }

    /// Whether the error names the server that the command should go to.
    pub fn is_redirect(&self) -> bool {
        self.code() == "REDIRECT"
    }

    /// The error for a wrong number of arguments.
    #[cold]
    pub fn wrong_arity(command: &Facts) -> Self {
        let name = &command.full_name;
        Self::format(format!("ERR wrong number of arguments for '{name}' command"))
    }

    /// The error of a container for a subcommand with options that it does not take. `name` is the
    /// subcommand as the client wrote it.
    #[cold]
    pub fn wrong_subcommand(container: &str, name: &[u8]) -> Self {
        let name = String::from_utf8_lossy(name);
        let container = container.to_ascii_uppercase();
        Self::format(format!(
            "ERR unknown subcommand or wrong number of arguments for '{name}'. Try {container} HELP."
        ))
    }

    /// The text of the error; empty if the command is only postponed.
    pub fn text(&self) -> &str {
        match self {
            Self::Fixed(text) => text,
            Self::Made(text) => text,
            Self::Postponed => "",
        }
    }

    /// The code of the error: its first word.
    fn code(&self) -> &str {
        self.text().split(' ').next().unwrap_or_default()
    }
}

/// Failures are equal if clients cannot tell them apart.
impl PartialEq for Failure {
    fn eq(&self, other: &Self) -> bool {
        let is_postponed = |failure: &Self| matches!(failure, Self::Postponed);
        is_postponed(self) == is_postponed(other) && self.text() == other.text()
    }
}

impl From<&'static str> for Failure {
    #[cold]
    fn from(text: &'static str) -> Self {
        Self::Made(Box::new(Cow::Borrowed(text)))
    }
}

const _: () = assert!(size_of::<Outcome>() <= 2 * size_of::<usize>());
