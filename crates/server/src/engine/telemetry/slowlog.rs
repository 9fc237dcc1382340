//! The command log: commands that were slow, or that had a large request or reply.
//!
//! On the path of a request there is one test against [`SlowlogLimits`], which a worker loads once
//! for many commands. Only commands over a limit come here and take a lock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bobbin_sync::Mutex;

use crate::config::{self, Config};
use crate::engine::row::Facts;

/// The measurements of a command.
#[derive(Clone, Copy, Default)]
pub struct Measured {
    pub ticks: u64,
    pub request_bytes: usize,
    pub reply_bytes: usize,
}

/// The limits from which on a command is looked at.
#[derive(Clone, Copy)]
pub struct SlowlogLimits {
    ticks: u64,
    request_bytes: usize,
    reply_bytes: usize,
}

/// The three kinds of logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlowlogClass {
    Slow,
    LargeRequest,
    LargeReply,
}

/// The three lists of the command log.
pub struct CommandLog {
    /// The lower one of the limits of the slow log and of the latency monitor.
    ticks: AtomicU64,
    slow_us: AtomicU64,
    request_bytes: AtomicUsize,
    reply_bytes: AtomicUsize,
    /// Indexed by `SlowlogClass`.
    logs: [Mutex<SlowlogRing>; 3],
}

#[derive(Default)]
struct SlowlogRing {
    /// The newest entry is first.
    entries: VecDeque<SlowlogEntry>,
    next_id: u64,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowlogEntry {
    pub id: u64,
    /// Unix time in seconds.
    pub time_s: i64,
    /// Microseconds, or bytes.
    pub value: u64,
    /// The words of the command. Long words and long commands are cut short.
    pub words: Vec<Vec<u8>>,
    pub peer: Box<str>,
    /// The client's name, cut short as well.
    pub name: Box<[u8]>,
}

impl SlowlogLimits {
    #[inline(always)]
    pub const fn exceeded_by(&self, measured: &Measured) -> bool {
        (measured.ticks >= self.ticks)
            | (measured.request_bytes >= self.request_bytes)
            | (measured.reply_bytes >= self.reply_bytes)
    }
}

impl SlowlogClass {
    /// Finds a class by its name in COMMANDLOG.
    pub fn find(name: &[u8]) -> Option<Self> {
        let named = [
            (Self::Slow, "slow"),
            (Self::LargeRequest, "large-request"),
            (Self::LargeReply, "large-reply"),
        ];
        named.iter().find(|(_, n)| n.as_bytes().eq_ignore_ascii_case(name)).map(|(class, _)| *class)
    }
}

impl Default for CommandLog {
    fn default() -> Self {
        Self {
            ticks: AtomicU64::new(u64::MAX),
            slow_us: AtomicU64::new(u64::MAX),
            request_bytes: AtomicUsize::new(usize::MAX),
            reply_bytes: AtomicUsize::new(usize::MAX),
            logs: Default::default(),
        }
    }
}

impl CommandLog {
    /// Applies the limits of the configuration. `ticks_of` converts microseconds to ticks. With
    /// `all`, every command is looked at.
    pub fn follow(&self, config: &Config, ticks_of: impl Fn(u64) -> u64, all: bool) {
        let slow_us = u64::try_from(config.commandlog_execution_slower_than()).unwrap_or(u64::MAX);
        let monitor_us = match config.latency_monitor_threshold() {
            0 => u64::MAX,
            ms => (ms as u64).saturating_mul(1000),
        };
        self.slow_us.store(slow_us, Ordering::Relaxed);
        let ticks = if all { 0 } else { ticks_of(slow_us.min(monitor_us)) };
        self.ticks.store(ticks, Ordering::Relaxed);
        let bytes = |limit: i64| usize::try_from(limit).unwrap_or(usize::MAX);
        self.request_bytes.store(bytes(config.commandlog_request_larger_than()), Ordering::Relaxed);
        self.reply_bytes.store(bytes(config.commandlog_reply_larger_than()), Ordering::Relaxed);
        for (log, keep) in self.logs.iter().zip(lengths(config)) {
            log.lock().entries.truncate(keep);
        }
    }

    #[inline]
    pub fn limits(&self) -> SlowlogLimits {
        SlowlogLimits {
            ticks: self.ticks.load(Ordering::Relaxed),
            request_bytes: self.request_bytes.load(Ordering::Relaxed),
            reply_bytes: self.reply_bytes.load(Ordering::Relaxed),
        }
    }

    /// The newest entries, at most `count_max` of them.
    pub fn entries(&self, class: SlowlogClass, count_max: usize) -> Vec<SlowlogEntry> {
        self.logs[class as usize].lock().entries.iter().take(count_max).cloned().collect()
    }

    pub fn len(&self, class: SlowlogClass) -> usize {
        self.logs[class as usize].lock().entries.len()
    }

    pub fn is_empty(&self, class: SlowlogClass) -> bool {
        self.len(class) == 0
    }

    pub fn reset(&self, class: SlowlogClass) {
        self.logs[class as usize].lock().entries.clear();
    }

    /// Adds a command to the lists whose limits it reached. `us`: the time that it took; `entry`
    /// makes the entry without its value.
    pub fn note(
        &self,
        config: &Config,
        measured: &Measured,
        us: u64,
        entry: impl Fn() -> SlowlogEntry,
    ) {
        let (request_bytes, reply_bytes) = (measured.request_bytes, measured.reply_bytes);
        let over = [
            (us >= self.slow_us.load(Ordering::Relaxed), SlowlogClass::Slow, us),
            (
                request_bytes >= self.request_bytes.load(Ordering::Relaxed),
                SlowlogClass::LargeRequest,
                request_bytes as u64,
            ),
            (
                reply_bytes >= self.reply_bytes.load(Ordering::Relaxed),
                SlowlogClass::LargeReply,
                reply_bytes as u64,
            ),
        ];
        for ((over, class, value), keep) in over.into_iter().zip(lengths(config)) {
            if over && keep > 0 {
                self.add(class, keep, SlowlogEntry { value, ..entry() });
            }
        }
    }

    fn add(&self, class: SlowlogClass, keep: usize, mut entry: SlowlogEntry) {
        let mut log = self.logs[class as usize].lock();
        entry.id = log.next_id;
        log.next_id += 1;
        log.entries.push_front(entry);
        log.entries.truncate(keep);
    }
}

/// The number of entries to keep, by `SlowlogClass`.
fn lengths(config: &Config) -> [usize; 3] {
    [
        config.commandlog_slow_execution_max_len(),
        config.commandlog_large_request_max_len(),
        config.commandlog_large_reply_max_len(),
    ]
    .map(|len| usize::try_from(len).unwrap_or(0))
}

/// The words as the log keeps them: without secrets, with long words and long commands cut short.
pub fn shortened(command: &Facts, args: &[&[u8]]) -> Vec<Vec<u8>> {
    let shown = if args.len() > WORDS_MAX { WORDS_MAX - 1 } else { args.len() };
    let secret = secrets(command, args);
    let mut words: Vec<Vec<u8>> = (0..shown)
        .map(|at| match args[at] {
            _ if secret(at) => REDACTED.to_vec(),
            word => cut(word),
        })
        .collect();
    if shown < args.len() {
        words.push(format!("... ({} more arguments)", args.len() - shown).into_bytes());
    }
    words
}

/// A word, cut short as the log keeps it.
pub fn cut(word: &[u8]) -> Vec<u8> {
    match word.split_at_checked(WORD_BYTES_MAX) {
        Some((start, rest)) if !rest.is_empty() => {
            [start, format!("... ({} more bytes)", rest.len()).as_bytes()].concat()
        }
        _ => word.to_vec(),
    }
}

/// Tells which words of a command are secret: passwords, and the rules of users. For everything
/// that shows commands to others than their sender.
pub fn secrets<'a>(command: &'a Facts, args: &'a [&'a [u8]]) -> impl Fn(usize) -> bool + 'a {
    let is = |at: usize, word: &str| args[at].eq_ignore_ascii_case(word.as_bytes());
    let after = move |at: usize, word: &str, words: usize| {
        (1..=words).any(|back| at > back && is(at - back, word))
    };
    move |at| match &*command.full_name {
        "auth" => at >= 1,
        "hello" => after(at, "auth", 2),
        "acl|setuser" | "acl|getuser" | "acl|deluser" => at >= 2,
        "migrate" => at > 5 && (after(at, "auth", 1) || after(at, "auth2", 2)),
        "config|set" => {
            at >= 3
                && at % 2 == 1
                && config::find(args[at - 1]).is_some_and(|(row, _)| row.is_sensitive())
        }
        _ => false,
    }
}

/// What is shown in place of a secret.
pub const REDACTED: &[u8] = b"(redacted)";
/// The most words of a command that are kept. If there are more, the last one is their number.
const WORDS_MAX: usize = 32;
/// The most bytes of a word that are kept.
const WORD_BYTES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::command::Registry;

    fn words(line: &str) -> String {
        let registry = Registry::new(&crate::process::families(), &[]).unwrap();
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let command = registry.find(args[0]).unwrap();
        let command = command.of_words(&args).unwrap_or(command);
        let words = shortened(command, &args);
        words.iter().map(|w| String::from_utf8_lossy(w)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn long_words_and_commands_are_cut() {
        let many = vec!["x"; 32].join(" ");
        assert_eq!(words(&format!("echo {}", &many[2..])), format!("echo {}", &many[2..]));
        let cut = format!("echo {} ... (2 more arguments)", &many[4..]);
        assert_eq!(words(&format!("echo {many}")), cut);
        let cut = format!("echo {}... (1 more bytes)", "A".repeat(128));
        assert_eq!(words(&format!("echo {}", "A".repeat(129))), cut);
    }

    #[test]
    fn secrets_are_left_out() {
        assert_eq!(
            words("config set requirepass a hz 3 masterauth b"),
            "config set requirepass (redacted) hz 3 masterauth (redacted)"
        );
    }

    #[test]
    fn the_newest_entries_are_kept() {
        let log = CommandLog::default();
        let entry = |value| SlowlogEntry {
            id: 0,
            time_s: 1,
            value,
            words: vec![],
            peer: "".into(),
            name: b"".to_vec().into(),
        };
        (0..5).for_each(|value| log.add(SlowlogClass::Slow, 3, entry(value)));
        let kept: Vec<_> =
            log.entries(SlowlogClass::Slow, 9).iter().map(|e| (e.id, e.value)).collect();
        assert_eq!(kept, [(4, 4), (3, 3), (2, 2)]);
        assert_eq!(log.len(SlowlogClass::LargeReply), 0);
        assert!(!log.limits().exceeded_by(&Measured {
            ticks: 1 << 60,
            request_bytes: 1 << 60,
            reply_bytes: 1 << 60
        }));
    }
}
