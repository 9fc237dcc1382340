//! Which replies may leave although the disk accepts no writes, with `appendfsync always`.
//!
//! A reply must not tell of changes that are not on disk. While the disk is full there are few such
//! changes: those made before the server knew, because it refuses writes from then on. The log's
//! thread notes all words of their commands as possible keys. So a command that only reads other
//! keys is answered at once. A reply that concerns no key never waits.

use std::collections::HashSet;

use bobbin_store::Keyspace;
use bobbin_sync::Mutex;

use super::Aof;
use crate::engine::client::Client;
use crate::engine::command::{Categories, Flags, KeyShape, Registered};
use crate::engine::server::{Server, Switch};

/// The changes that are not on disk and cannot be written at the moment.
#[derive(Default)]
pub(super) struct Unkept(Mutex<Noted>);

#[derive(Default)]
struct Noted {
    /// Every record up to this one is on disk or noted.
    up_to: u64,
    /// Hashes of all words of the noted commands, which include their keys.
    words: HashSet<u64>,
    /// The changes may concern any key.
    is_anything: bool,
}

/// With more words than this, the changes count as concerning any key.
const WORDS_MAX: usize = 1 << 16;
/// Commands that concern keys which they do not name.
const NAMELESS: [&[u8]; 3] = [b"FLUSHALL", b"FLUSHDB", b"SWAPDB"];

impl Unkept {
    /// Notes bytes of the log that cannot be written: complete commands, the last of which belong
    /// to the record `up_to`. `durable` is the last record on disk. `written` is the last one that
    /// was written and may still be lost.
    pub(super) fn note(
        &self,
        keyspace: &Keyspace,
        commands: &[u8],
        up_to: u64,
        durable: u64,
        written: u64,
    ) {
        let mut noted = self.0.lock();
        if noted.up_to <= durable {
            *noted = Noted::default();
        }
        // Records that were written but neither noted nor synced are unknown.
        noted.is_anything |= written > durable.max(noted.up_to);
        let mut left = commands;
        while !left.is_empty() && !noted.is_anything {
            let mut is_first = true;
            let rest = split_command(left, |word| {
                noted.is_anything |= is_first && NAMELESS.contains(&word);
                is_first = false;
                noted.words.insert(keyspace.hash(word).0);
            });
            noted.is_anything |= rest.is_none() || noted.words.len() > WORDS_MAX;
            left = rest.unwrap_or_default();
        }
        if noted.is_anything {
            noted.words = HashSet::new();
        }
        noted.up_to = up_to;
    }

    /// Whether a change that is not on disk, up to the record `last`, may concern one of these
    /// keys.
    fn concerns(&self, keyspace: &Keyspace, last: u64, keys: &[&[u8]]) -> bool {
        let noted = self.0.lock();
        let is_noted = |key: &&[u8]| noted.words.contains(&keyspace.hash(key).0);
        noted.is_anything || noted.up_to < last || keys.iter().any(is_noted)
    }
}

/// Calls `f` with the words of the first command of a log, and returns what follows. `None`: it is
/// no command.
fn split_command<'a>(log: &'a [u8], mut f: impl FnMut(&'a [u8])) -> Option<&'a [u8]> {
    let line = |bytes: &'a [u8]| {
        let end = bytes.iter().position(|&byte| byte == b'\n')?;
        Some((bytes[..end].strip_suffix(b"\r")?, &bytes[end + 1..]))
    };
    let number = |bytes: &[u8]| bobbin_resp::parse_i64(bytes).and_then(|n| usize::try_from(n).ok());
    let (first, mut rest) = line(log)?;
    if first.starts_with(b"#") {
        return Some(rest);
    }
    for _ in 0..number(first.strip_prefix(b"*")?)? {
        let (length, behind) = line(rest)?;
        let (word, behind) = behind.split_at_checked(number(length.strip_prefix(b"$")?)?)?;
        f(word);
        rest = behind.strip_prefix(b"\r\n")?;
    }
    Some(rest)
}

/// Whether the reply to a command that ran may tell of changes that are not on disk.
pub fn may_tell_of_unkept(
    server: &Server,
    aof: &Aof,
    client: &Client,
    command: &Registered,
    args: &[&[u8]],
) -> bool {
    // A client that listens may get messages behind the reply.
    if client.subscriptions.is_some()
        || command.has(Flags::RUNS_SCRIPT.with(Flags::RUNS_TRANSACTION))
    {
        return true;
    }
    if command.shape == KeyShape::None {
        let is_about_data = Categories::SCRIPTING.with(Categories::KEYSPACE);
        return command.has(Flags::READONLY.with(Flags::WRITE))
            || command.row.categories.has(is_about_data)
            || command.full_name.starts_with("debug");
    }
    let is_failing = server.switches.has(Switch::LOG_FAILED);
    if !is_failing || !command.has(Flags::READONLY) || command.reads_undeclared_keys() {
        return true;
    }
    let mut keys = Vec::new();
    let fits = command.key_positions(args, |at| keys.extend(args.get(at).copied()));
    !fits || aof.concerns_unkept(&server.keyspace, server.log.last(), &keys)
}

impl Aof {
    fn concerns_unkept(&self, keyspace: &Keyspace, last: u64, keys: &[&[u8]]) -> bool {
        self.durable() < last && self.unkept.concerns(keyspace, last, keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in lines {
            let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
            crate::engine::log::append_command(&mut bytes, &words);
        }
        bytes
    }

    #[test]
    fn keys_of_what_cannot_be_written_are_known() {
        let (keyspace, unkept) = (Keyspace::new(1), Unkept::default());
        let concerns = |last, keys: &[&str]| {
            let keys: Vec<_> = keys.iter().map(|key| key.as_bytes()).collect();
            unkept.concerns(&keyspace, last, &keys)
        };
        assert!(concerns(1, &["a"]), "nothing is noted yet");
        let mut bytes = b"#TS:1\r\n".to_vec();
        bytes.extend(log(&["SELECT 0", "SET a 1", "MSET b 2 c 3"]));
        unkept.note(&keyspace, &bytes, 8, 5, 5);
        assert!(concerns(8, &["a"]) && concerns(8, &["x", "c"]));
        assert!(!concerns(8, &["x"]) && !concerns(7, &["x", "y"]));
        assert!(concerns(9, &["x"]), "there may be more by now");
        unkept.note(&keyspace, &log(&["DEL x"]), 9, 5, 5);
        assert!(concerns(9, &["x"]) && concerns(9, &["a"]) && !concerns(9, &["y"]));
        // All of that is on disk by now.
        unkept.note(&keyspace, &log(&["DEL z"]), 12, 9, 9);
        assert!(concerns(12, &["z"]) && !concerns(12, &["x"]));
        unkept.note(&keyspace, &log(&["FLUSHALL"]), 13, 9, 9);
        assert!(concerns(13, &["x"]));
        unkept.note(&keyspace, &log(&["SET a 1"]), 20, 18, 19);
        assert!(concerns(20, &["x"]), "something else was not noted");
        for wrong in
            [&b"*2\r\n$3\r\nDEL\r\n"[..], b"*1\r\n$9\r\nx\r\n", b"abc\r\n", b"*-1\r\n", b"*"]
        {
            unkept.note(&keyspace, wrong, 30, 29, 29);
            assert!(concerns(30, &["x"]), "{}", wrong.escape_ascii());
        }
        // The disk accepted some bytes for a while, and they were not synced.
        unkept.note(&keyspace, &log(&["SET a 1"]), 40, 35, 35);
        unkept.note(&keyspace, &log(&["SET b 1"]), 42, 35, 40);
        assert!(concerns(42, &["a"]) && concerns(42, &["b"]) && !concerns(42, &["x"]));
        unkept.note(&keyspace, &log(&["SET c 1"]), 50, 35, 45);
        assert!(concerns(50, &["x"]), "it may be what was written from 42 to 45");
    }
}
