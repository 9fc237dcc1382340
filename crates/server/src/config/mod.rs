//! The configuration: one table of options, and everything that is derived from it.
//!
//! [`options`] defines each option once. From the table come the readers (`config.maxmemory()`,
//! which is one relaxed load for numbers, choices and yes/no), the grammar of files and of the
//! command line ([`load`]), CONFIG GET and SET ([`change`]), CONFIG REWRITE ([`rewrite`]),
//! `bobbin.conf` and COMPAT.md ([`document`]). Nothing here knows of sockets, workers or commands.

use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use bobbin_sync::{Mutex, RwLock};

mod change;
mod check;
mod choice;
mod classes;
pub mod document;
mod foreign;
mod hints;
mod kind;
mod load;
mod memory;
mod options;
mod rewrite;
mod special;
mod table;
pub mod words;

use crate::base::cores::{CoreList, CoreWork, cores};
use options::COUNT;

pub use change::{Apply, Barred, ConfigError, Selection};
pub use choice::*;
pub use classes::Classes;
pub use hints::without_mark;
pub use kind::{OptionKind, OptionValue};
#[cfg(test)]
pub(crate) use load::NoDirectives;
pub use load::{CommandLine, Directives, LoadError};
pub use options::{IO_THREADS_MAX, OPTIONS, OptionId};
pub use special::OutputLimit;
pub use table::{Effect, Flags, OptionRow, Support};
pub use words::{quote, split, word};

/// The version of Valkey whose commands, options and formats Bobbin follows.
pub const VALKEY_VERSION: &str = "9.1.2";

/// The values of all options. All threads share them; readers of numbers never wait.
pub struct Config {
    /// Indexed by `OptionId`, and inline: reading a number is one load, without a check of bounds.
    numbers: [AtomicI64; COUNT],
    texts: [RwLock<Arc<[u8]>>; COUNT],
    output_limits: [HotOutputLimit; 3],
    /// The configuration file, for CONFIG REWRITE and INFO.
    file: RwLock<Option<Arc<std::path::Path>>>,
    /// The directives that were skipped when the configuration was loaded, one line each.
    passed_over: RwLock<Vec<String>>,
    /// Held while options change, so that only one change is made at a time.
    change: Mutex<()>,
}

/// The classes of `client-output-buffer-limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientClass {
    Normal,
    Replica,
    Pubsub,
}

#[derive(Default)]
struct HotOutputLimit {
    hard_bytes: AtomicU64,
    soft_bytes: AtomicU64,
    soft_s: AtomicI64,
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

impl Config {
    /// A configuration with every option at its default.
    pub fn new() -> Self {
        let config = Self {
            numbers: std::array::from_fn(|_| AtomicI64::new(0)),
            texts: std::array::from_fn(|_| RwLock::new(Arc::from(&b""[..]))),
            output_limits: Default::default(),
            file: RwLock::new(None),
            passed_over: RwLock::default(),
            change: Mutex::new(()),
        };
        for row in OPTIONS {
            config.keep(row, &row.kind.default());
        }
        config
    }

    /// The limits of the output of one class of clients. Three relaxed loads.
    #[inline]
    pub fn output_limit(&self, class: ClientClass) -> OutputLimit {
        let hot = &self.output_limits[class as usize];
        OutputLimit {
            hard_bytes: hot.hard_bytes.load(Ordering::Relaxed),
            soft_bytes: hot.soft_bytes.load(Ordering::Relaxed),
            soft_s: hot.soft_s.load(Ordering::Relaxed),
        }
    }

    /// The most bytes of the stream that may wait for a replica. It is never less than the backlog,
    /// which a replica may ask for again.
    pub fn replica_bytes_max(&self) -> u64 {
        match self.output_limit(ClientClass::Replica).hard_bytes {
            0 => u64::MAX,
            hard => hard.max(self.repl_backlog_size()),
        }
    }

    /// The number of workers that `io-threads` asks for; `auto` becomes a number.
    pub fn worker_count(&self) -> usize {
        match self.io_threads() {
            0 => cores().min(IO_THREADS_MAX as usize),
            threads => threads as usize,
        }
    }

    /// The cores for each kind of work.
    pub fn core_lists(&self) -> [(CoreWork, CoreList); 4] {
        [
            (CoreWork::Serving, self.server_cpulist()),
            (CoreWork::Background, self.bio_cpulist()),
            (CoreWork::Rewriting, self.aof_rewrite_cpulist()),
            (CoreWork::Saving, self.bgsave_cpulist()),
        ]
        .map(|(work, text)| (work, CoreList::parse(&text).unwrap_or_default()))
    }

    /// The words of an option of several words, such as `bind`.
    pub fn words_of(&self, id: OptionId) -> Vec<String> {
        let text = self.text(id);
        let text = String::from_utf8_lossy(&text);
        text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    /// Whether `replicaof` names a primary, so that the server is a replica.
    pub fn names_primary(&self) -> bool {
        self.words_of(OptionId::replicaof).len() == 2
    }

    /// The percentiles of `latency-tracking-info-percentiles`.
    pub fn percentiles(&self) -> Vec<f64> {
        let words = self.words_of(OptionId::latency_tracking_info_percentiles);
        words.iter().filter_map(|word| word.parse().ok()).collect()
    }

    /// The absolute path of the configuration file, if there is one.
    pub fn file(&self) -> Option<Arc<std::path::Path>> {
        self.file.read().clone()
    }

    /// The directives that were skipped at start (`unsupported-directives`), each with its place
    /// and the reason.
    pub fn passed_over(&self) -> Vec<String> {
        self.passed_over.read().clone()
    }

    /// The value of an option, as it is stored.
    pub fn value(&self, row: &OptionRow) -> OptionValue {
        match row.kind {
            OptionKind::Directory => OptionValue::Text(working_directory()),
            OptionKind::Text { .. } | OptionKind::Words { .. } => {
                OptionValue::Text(self.text(row.id))
            }
            _ => OptionValue::Number(self.number(row.id)),
        }
    }

    /// The value of an option as CONFIG GET shows it.
    pub fn shown(&self, row: &OptionRow) -> Vec<u8> {
        match row.id {
            // Clients and tools expect a number, even for `auto`.
            OptionId::io_threads => self.worker_count().to_string().into(),
            _ => row.kind.format(&self.value(row)),
        }
    }

    /// The options that are not at their defaults, with their values. Secrets are left out.
    pub fn changed(&self) -> impl Iterator<Item = (&'static str, Vec<u8>)> {
        let rows = OPTIONS
            .iter()
            .filter(|row| !row.is_sensitive() && self.value(row) != row.kind.default());
        rows.map(|row| (row.name, self.shown(row)))
    }

    /// The name of the server in errors and other messages.
    pub fn name(&self) -> &'static str {
        if self.extended_redis_compatibility() { "Redis" } else { "Bobbin" }
    }

    /// The three numbers of `redis-version`.
    pub fn redis_version_numbers(&self) -> [u8; 3] {
        let text = self.redis_version();
        let text = String::from_utf8_lossy(&text);
        let mut numbers = text.split('.').map(|number| number.parse().unwrap_or(0));
        std::array::from_fn(|_| numbers.next().unwrap_or(0))
    }

    /// The server's name and version for HELLO.
    pub fn hello(&self) -> (&'static str, Arc<[u8]>) {
        match self.hello_server() {
            HelloServer::Valkey if !self.extended_redis_compatibility() => {
                ("valkey", VALKEY_VERSION.as_bytes().into())
            }
            _ => ("redis", self.redis_version()),
        }
    }

    #[inline]
    fn number(&self, id: OptionId) -> i64 {
        self.numbers[id as usize].load(Ordering::Relaxed)
    }

    fn text(&self, id: OptionId) -> Arc<[u8]> {
        self.texts[id as usize].read().clone()
    }

    /// Stores a value. A directory is not stored here: callers change the working directory.
    fn keep(&self, row: &OptionRow, value: &OptionValue) {
        match value {
            OptionValue::Number(number) => {
                self.numbers[row.id as usize].store(*number, Ordering::Relaxed);
            }
            OptionValue::Text(text) => {
                let slot = &self.texts[row.id as usize];
                *slot.write() = text.clone();
                if row.id == OptionId::client_output_buffer_limit {
                    self.keep_output_limits(text);
                }
            }
        }
    }

    fn keep_output_limits(&self, text: &[u8]) {
        for (hot, limit) in self.output_limits.iter().zip(special::output_limits(text)) {
            hot.hard_bytes.store(limit.hard_bytes, Ordering::Relaxed);
            hot.soft_bytes.store(limit.soft_bytes, Ordering::Relaxed);
            hot.soft_s.store(limit.soft_s, Ordering::Relaxed);
        }
    }
}

/// Finds an option by its name or an alias, in upper or lower case. Also returns the name as the
/// table writes it.
pub fn find(name: &[u8]) -> Option<(&'static OptionRow, &'static str)> {
    for row in OPTIONS {
        let mut names = std::iter::once(&row.name).chain(row.aliases);
        if let Some(name) = names.find(|known| known.as_bytes().eq_ignore_ascii_case(name)) {
            return Some((row, name));
        }
    }
    None
}

/// The row of an option.
pub fn row(id: OptionId) -> &'static OptionRow {
    &OPTIONS[id as usize]
}

fn working_directory() -> Arc<[u8]> {
    let path = std::env::current_dir().map(|path| path.into_os_string().into_vec());
    Arc::from(path.unwrap_or_default())
}
