//! What a replica may say to its primary: in any order, of any history and offset, with other
//! commands between. The primary never panics, a copy that it has begun ends, and when all replicas
//! have gone it keeps no more than its backlog.

#![no_main]

use std::cell::RefCell;
use std::time::{Duration, Instant};

use bobbin_server::config::Config;
use bobbin_server::embedded::{Embedded, EmbeddedSession};
use libfuzzer_sys::fuzz_target;

thread_local! {
    static PRIMARY: RefCell<Primary> = RefCell::new(Primary::new());
}

fuzz_target!(|data: &[u8]| PRIMARY.with_borrow_mut(|primary| primary.play(data)));

struct Primary {
    embedded: Embedded,
    /// It may do everything.
    admin: EmbeddedSession,
    now_ms: i64,
    runs: u32,
}

/// What is left of an input.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = usize::from(self.byte()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        bytes.to_vec()
    }

    /// One of some words, or any bytes.
    fn word(&mut self, words: &[&str]) -> Vec<u8> {
        let index = usize::from(self.byte());
        words.get(index).map_or_else(|| self.bytes(), |word| word.as_bytes().to_vec())
    }

    /// A number near one that matters, or no number.
    fn number(&mut self, here: i64) -> Vec<u8> {
        let base = match self.byte() {
            0 => 0,
            1 => i64::MIN,
            2 => i64::MAX,
            3 => return self.bytes(),
            _ => here,
        };
        base.saturating_add(i64::from(self.byte() as i8)).to_string().into_bytes()
    }
}

impl Primary {
    fn new() -> Self {
        let config = Config::new();
        let mut embedded = Embedded::new(config, 1).expect("it can be made");
        let mut admin = embedded.connect();
        // Others are not to end the process, to follow another server, or to need much memory.
        for line in [
            "ACL SETUSER admin on nopass ~* &* +@all",
            "AUTH admin x",
            "ACL SETUSER default -@all +psync +sync +replconf +wait +waitaof +role +info +ping \
             +set +get +del +incr +lpush +multi +exec +discard +watch +select +hello +reset +quit \
             +subscribe +unsubscribe +publish +client|reply +client|id +client|list +blpop +auth",
            "CONFIG SET repl-backlog-size 16kb",
        ] {
            let reply = embedded.feed(&mut admin, format!("{line}\r\n").as_bytes());
            assert_eq!(reply, b"+OK\r\n", "{line}: {}", String::from_utf8_lossy(reply));
        }
        Self { embedded, admin, now_ms: 1_000_000, runs: 0 }
    }

    fn play(&mut self, data: &[u8]) {
        let input = &mut Input(data);
        self.runs += 1;
        if self.runs % 1000 == 0 {
            self.say("FLUSHALL");
        }
        let mut sessions: Vec<_> = (0..SESSIONS).map(|_| self.embedded.connect()).collect();
        while !input.0.is_empty() {
            let action = input.byte();
            let at = usize::from(action >> 4) % SESSIONS;
            let session = &mut sessions[at];
            let bytes = match action & 15 {
                0 => self.replconf(input),
                1 => self.psync(input),
                2 => command(&[b"SYNC".to_vec()]),
                3 => self.ack(input),
                4 => wait(input),
                5 => input.bytes(),
                6 => command(&[b"SET".to_vec(), input.word(&["a", "b", "c"]), input.bytes()]),
                7 => command(&[input.word(&COMMANDS)]),
                8 => {
                    self.pass(i64::from(input.byte()) * 10);
                    continue;
                }
                9 => {
                    self.pass(i64::from(input.byte()) * 1000);
                    continue;
                }
                10 => {
                    self.configure(input);
                    continue;
                }
                11 => {
                    self.settle(&mut sessions);
                    continue;
                }
                12 => {
                    let left = std::mem::replace(session, self.embedded.connect());
                    self.embedded.disconnect(left);
                    continue;
                }
                13 if input.0.first() == Some(&255) => {
                    self.embedded.await_stream();
                    continue;
                }
                13 => {
                    self.say(SHOWN[usize::from(input.byte()) % SHOWN.len()]);
                    continue;
                }
                _ => {
                    self.take(session, usize::from(input.byte()) * 100);
                    continue;
                }
            };
            self.embedded.feed(session, &bytes);
            self.embedded.end_wait(session);
            if session.is_closed() {
                let left = std::mem::replace(session, self.embedded.connect());
                self.embedded.disconnect(left);
            }
        }
        self.settle(&mut sessions);
        for session in sessions {
            self.embedded.disconnect(session);
        }
        self.pass(100);
        let (replicas, stream_bytes) = self.embedded.replicas();
        assert_eq!(replicas, 0);
        assert!(stream_bytes <= STREAM_BYTES_MAX, "{stream_bytes}");
    }

    fn say(&mut self, line: &str) -> String {
        let line = format!("{line}\r\n");
        String::from_utf8_lossy(self.embedded.feed(&mut self.admin, line.as_bytes())).into_owned()
    }

    /// A field of INFO.
    fn info(&mut self, field: &str) -> String {
        let info = self.say("INFO replication");
        let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.unwrap_or_default().to_owned()
    }

    fn offset(&mut self) -> i64 {
        self.info("master_repl_offset").parse().expect("it is a number")
    }

    fn pass(&mut self, ms: i64) {
        self.now_ms += ms;
        self.embedded.set_time(self.now_ms);
        self.embedded.look_at_replicas();
    }

    /// Takes what a replica gets; whether that was anything.
    fn take(&mut self, session: &mut EmbeddedSession, bytes_max: usize) -> bool {
        match self.embedded.take_fed(session, bytes_max) {
            Some(bytes) => !bytes.is_empty(),
            None => {
                let left = std::mem::replace(session, self.embedded.connect());
                self.embedded.disconnect(left);
                false
            }
        }
    }

    /// Has all replicas take what there is for them, until no copy is under way.
    fn settle(&mut self, sessions: &mut [EmbeddedSession]) {
        // A thread makes the copy: it comes in time, not in turns.
        let begun = Instant::now();
        loop {
            self.embedded.look_at_replicas();
            let mut takes = false;
            for session in &mut *sessions {
                takes |= self.take(session, usize::MAX);
            }
            if !takes && !self.embedded.is_copying() {
                return;
            }
            assert!(begun.elapsed().as_secs() < 300, "it hangs");
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn replconf(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let mut words = vec![b"REPLCONF".to_vec()];
        for _ in 0..input.byte() % 6 {
            words.push(input.word(&OPTIONS));
            words.push(input.word(&VALUES));
        }
        command(&words)
    }

    fn psync(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let id = match input.byte() {
            0 => self.info("master_replid").into_bytes(),
            1 => self.info("master_replid2").into_bytes(),
            2 => b"?".to_vec(),
            _ => input.bytes(),
        };
        let here = self.offset();
        let mut words = vec![b"PSYNC".to_vec(), id, input.number(here)];
        if input.byte() == 1 {
            words.push(input.word(&["FAILOVER"]));
        }
        command(&words)
    }

    fn ack(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let here = self.offset();
        let mut words = vec![b"REPLCONF".to_vec(), b"ACK".to_vec(), input.number(here)];
        if input.byte() & 1 == 1 {
            words.extend([b"FACK".to_vec(), input.number(here)]);
        }
        command(&words)
    }

    fn configure(&mut self, input: &mut Input<'_>) {
        let options = [
            "repl-diskless-sync yes",
            "repl-diskless-sync no",
            "repl-diskless-sync-delay 0",
            "repl-diskless-sync-delay 5",
            "repl-diskless-sync-max-replicas 2",
            "repl-backlog-ttl 1",
            "repl-backlog-ttl 3600",
            "repl-ping-replica-period 1",
            "repl-timeout 1",
            "repl-timeout 60",
            "min-replicas-to-write 1",
            "min-replicas-to-write 0",
        ];
        let option = options[usize::from(input.byte()) % options.len()];
        self.say(&format!("CONFIG SET {option}"));
    }
}

fn wait(input: &mut Input<'_>) -> Vec<u8> {
    if input.byte() & 1 == 0 {
        return command(&[b"WAIT".to_vec(), input.number(1), input.number(100)]);
    }
    let words = [b"WAITAOF".to_vec(), input.number(0), input.number(1), input.number(100)];
    command(&words)
}

fn command(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

const SESSIONS: usize = 4;
/// The backlog, a chunk more than that, and what its last chunk keeps room for.
const STREAM_BYTES_MAX: usize = 256 * 1024;
const OPTIONS: [&str; 12] = [
    "listening-port",
    "ip-address",
    "capa",
    "version",
    "rdb-only",
    "rdb-filter-only",
    "ack",
    "fack",
    "getack",
    "rdb-channel",
    "set-rdb-client-id",
    "main-ch-client-id",
];
const VALUES: [&str; 14] = [
    "eof",
    "psync2",
    "rdb-channel-repl",
    "dual-channel",
    "9.1.0",
    "7.0.0",
    "255.255.255",
    "1",
    "0",
    "6379",
    "-1",
    "",
    "functions",
    "9223372036854775807",
];
const COMMANDS: [&str; 9] =
    ["PING", "MULTI", "EXEC", "DISCARD", "ROLE", "RESET", "INFO", "QUIT", "SYNC"];
const SHOWN: [&str; 5] =
    ["ROLE", "INFO everything", "CLIENT LIST", "CLIENT KILL TYPE replica", "SET a 1"];
