//! RESTORE of any bytes: a payload is refused with Redis's error, or gives a value that every
//! command can use. Shared by `tests/restore.rs` and the fuzz target `dump_payload`.

mod edit;
mod seeds;
mod uses;

use bobbin_dump::{RDB_VERSION, crc64};
use bobbin_resp::{Value, read_reply};
use bobbin_server::config::{Config, OptionId};
use bobbin_server::embedded::{Embedded, EmbeddedSession};

/// A server to restore payloads at, one after the other.
pub struct PayloadBench {
    embedded: Embedded,
    session: EmbeddedSession,
    now_ms: i64,
    /// Sound payloads of every type and form, without what follows the value: see [`seeds`].
    seeds: Vec<Vec<u8>>,
}

/// What became of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadOutcome {
    Refused,
    Restored,
}

impl PayloadBench {
    pub fn new() -> Self {
        let config = Config::new();
        config.set_internally(OptionId::io_driver, "epoll").expect("it is an option");
        config.set_internally(OptionId::enable_debug_command, "yes").expect("it is an option");
        let mut embedded = Embedded::new(config, 1).expect("a server can be made");
        let session = embedded.connect();
        let mut bench = Self { embedded, session, now_ms: 1_000_000, seeds: Vec::new() };
        bench.embedded.set_time(bench.now_ms);
        bench.seeds = seeds::all(&mut bench);
        bench
    }

    pub fn seeds(&self) -> &[Vec<u8>] {
        &self.seeds
    }

    /// Restores what the bytes stand for: a seed with changes, or themselves.
    pub fn run(&mut self, bytes: &[u8]) -> PayloadOutcome {
        let body = edit::body(bytes, &self.seeds);
        self.restore(&body)
    }

    /// Restores a value (its kind, and the rest) under a right footer, and uses what comes of it.
    pub fn restore(&mut self, body: &[u8]) -> PayloadOutcome {
        let payload = payload(body);
        let reply = self.say(&[b"RESTORE", b"k", b"0", &payload]);
        if let Some(error) = reply.as_error() {
            assert_eq!(error.escape_ascii().to_string(), BAD_FORMAT, "{}", body.escape_ascii());
            return PayloadOutcome::Refused;
        }
        assert_eq!(reply, ok(), "{}", body.escape_ascii());
        let restored = self.digest("k");
        // A clone: whatever is done to the other, it stays as it is.
        assert_eq!(self.say_words("COPY k clone"), Value::Integer(1));
        self.assert_dumps();
        uses::all(self);
        self.assert_dumps();
        assert_eq!(self.digest("clone"), restored, "{}", body.escape_ascii());
        // Fields may expire.
        self.now_ms += 1000;
        self.embedded.set_time(self.now_ms);
        self.embedded.expire();
        self.say_words("DEL k clone");
        assert_eq!(self.say_words("DBSIZE"), Value::Integer(0));
        PayloadOutcome::Restored
    }

    /// What is dumped now is restored as the same value.
    fn assert_dumps(&mut self) {
        let payload = self.say_words("DUMP k");
        let Some(payload) = payload.as_bytes() else {
            assert_eq!(self.say_words("EXISTS k"), Value::Integer(0));
            return;
        };
        let reply = self.say(&[b"RESTORE", b"again", b"0", payload]);
        assert_eq!(reply, ok(), "{}", payload.escape_ascii());
        assert_eq!(self.digest("k"), self.digest("again"), "{}", payload.escape_ascii());
        assert_eq!(self.say_words("DEL again"), Value::Integer(1));
    }

    fn digest(&mut self, key: &str) -> Value {
        self.say_words(&format!("DEBUG DIGEST-VALUE {key}"))
    }

    /// A command of words without spaces; its reply.
    pub fn say_words(&mut self, command: &str) -> Value {
        let words: Vec<_> = command.split(' ').map(str::as_bytes).collect();
        self.say(&words)
    }

    /// Sends bytes as they are; what is answered.
    #[allow(dead_code, reason = "others who share this have no use for it")]
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.embedded.feed(&mut self.session, bytes).to_vec()
    }

    pub fn say(&mut self, words: &[&[u8]]) -> Value {
        let mut sent = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            sent.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            sent.extend_from_slice(word);
            sent.extend_from_slice(b"\r\n");
        }
        let bytes = self.embedded.feed(&mut self.session, &sent);
        match read_reply(bytes) {
            Ok(Some((value, len))) if len == bytes.len() => value,
            other => panic!("{}: {other:?}", sent.escape_ascii()),
        }
    }
}

/// A value with the footer that makes it a payload of this version.
pub fn payload(body: &[u8]) -> Vec<u8> {
    // Redis has forms of its own, in its own version.
    let is_redis = matches!(body.first(), Some(24 | 25));
    let version = if is_redis { REDIS_VERSION } else { RDB_VERSION };
    let mut payload = [body, &version.to_le_bytes()].concat();
    payload.extend_from_slice(&crc64(0, &payload).to_le_bytes());
    payload
}

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

const BAD_FORMAT: &str = "ERR Bad data format";
const REDIS_VERSION: u16 = 12;
