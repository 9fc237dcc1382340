//! One look at the server: its replies as plain data. Every text in it may be shown, and every list
//! has a limit, whatever the server sends.

mod clients;
mod commands;
mod keys;
mod slow;
mod threads;

use std::time::Duration;

use bobbin_client::Value;

use super::text;
use crate::modes::info::Info;

pub use clients::ClientSample;
pub use commands::CommandSample;
pub use keys::{DatabaseSample, Hot, LargestKey};
pub use slow::{Slow, SlowEvent};
pub use threads::Thread;

/// What is asked in one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    Info,
    SlowLog,
    Latency,
    Clients,
    HotKeys,
}

impl Question {
    pub const ALL: [Self; 5] =
        [Self::Info, Self::SlowLog, Self::Latency, Self::Clients, Self::HotKeys];

    pub fn words(self) -> &'static [&'static str] {
        match self {
            Self::Info => &["INFO", "everything"],
            Self::SlowLog => &["SLOWLOG", "GET", "32"],
            Self::Latency => &["LATENCY", "LATEST"],
            Self::Clients => &["CLIENT", "LIST"],
            Self::HotKeys => &["HOTKEYS", "GET"],
        }
    }

    /// What the user is told it is about.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "INFO",
            Self::SlowLog => "SLOWLOG",
            Self::Latency => "LATENCY",
            Self::Clients => "CLIENT LIST",
            Self::HotKeys => "HOTKEYS",
        }
    }
}

/// What the server said at one time.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Since the start of this program.
    pub at: Duration,
    /// From a PING to its reply.
    pub round_trip: Duration,
    pub info: Info,
    pub commands: Vec<CommandSample>,
    pub threads: Vec<Thread>,
    pub databases: Vec<DatabaseSample>,
    pub clients: Answer<Vec<ClientSample>>,
    pub slow: Answer<Vec<Slow>>,
    pub events: Answer<Vec<SlowEvent>>,
    pub hot: Answer<Hot>,
    /// What all of this was read from, where that is recorded.
    pub replies: Vec<(Question, Value)>,
}

/// What came of a question.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Answer<T> {
    #[default]
    NotAsked,
    Given(T),
    /// The server does not know the command, or does not allow it: its words.
    Refused(String),
}

impl<T> Answer<T> {
    fn read(reply: &Value, read: fn(&Value) -> T) -> Self {
        match reply.as_error() {
            Some(error) => Self::Refused(text::safe(error, ERROR_LEN_MAX)),
            None => Self::Given(read(reply)),
        }
    }

    pub fn given(&self) -> Option<&T> {
        match self {
            Self::Given(answer) => Some(answer),
            Self::NotAsked | Self::Refused(_) => None,
        }
    }

    /// Why there is nothing to show of it, if so.
    pub fn why_missing(&self, question: Question) -> Option<String> {
        match self {
            Self::Given(_) => None,
            Self::NotAsked => Some(format!("{}: not asked yet", question.name())),
            Self::Refused(error) if error.to_lowercase().starts_with("err unknown") => {
                Some(format!("{}: this server does not have it", question.name()))
            }
            Self::Refused(error) => Some(format!("{}: {error}", question.name())),
        }
    }
}

impl Sample {
    pub fn new(at: Duration, round_trip: Duration) -> Self {
        Self { at, round_trip, ..Self::default() }
    }

    /// Takes in a reply.
    pub fn read(&mut self, question: Question, reply: &Value) {
        match question {
            Question::Info => {
                self.info = Info::read(reply);
                self.commands = commands::read(&self.info);
                self.threads = threads::read(&self.info);
                self.databases = keys::databases(&self.info);
            }
            Question::SlowLog => self.slow = Answer::read(reply, slow::read),
            Question::Latency => self.events = Answer::read(reply, slow::events),
            Question::Clients => self.clients = Answer::read(reply, clients::read),
            Question::HotKeys => self.hot = Answer::read(reply, keys::hot),
        }
    }

    /// The time of the server, by its own clock.
    pub fn unix_seconds(&self) -> Option<u64> {
        let us = self.info.number("server_time_usec").filter(|us| *us > 0.0)?;
        Some((us / 1e6) as u64)
    }

    /// Whether both are of the same process: its counters only grow then.
    pub fn is_of_same_process(&self, other: &Self) -> bool {
        let process = |sample: &Self| sample.info.text("run_id").map(str::to_owned);
        process(self) == process(other)
    }
}

/// A number that a reply has as an integer or as text.
fn number(value: &Value) -> Option<u64> {
    match value.as_integer() {
        Some(number) => u64::try_from(number).ok(),
        None => std::str::from_utf8(value.as_bytes()?).ok()?.parse().ok(),
    }
}

/// Names of all kinds: of clients, users, keys, events.
const NAME_LEN_MAX: usize = 128;
const ERROR_LEN_MAX: usize = 200;

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A sample of INFO's text alone.
    pub fn of_info(at_seconds: u64, text: &str) -> Sample {
        let mut sample = Sample::new(Duration::from_secs(at_seconds), Duration::from_micros(150));
        sample.read(Question::Info, &Value::Bulk(text.as_bytes().to_vec()));
        sample
    }

    #[test]
    fn refusals_are_told() {
        let mut sample = Sample::default();
        let error = Value::Error(b"NOPERM \x1b[2J no".to_vec());
        for question in [Question::SlowLog, Question::Latency, Question::Clients, Question::Info] {
            sample.read(question, &error);
        }
        let reason = sample.slow.why_missing(Question::SlowLog);
        assert_eq!(reason.as_deref(), Some(r"SLOWLOG: NOPERM \x1b[2J no"));
        assert_eq!(sample.clients.given(), None);
        sample.read(Question::HotKeys, &Value::Error(b"ERR unknown command 'HOTKEYS'".to_vec()));
        let reason = sample.hot.why_missing(Question::HotKeys);
        assert_eq!(reason.as_deref(), Some("HOTKEYS: this server does not have it"));
        sample.hot = Answer::NotAsked;
        assert!(sample.hot.why_missing(Question::HotKeys).unwrap().contains("not asked"));
    }

    #[test]
    fn replies_of_a_wrong_kind_are_no_harm() {
        let nested = Value::Array(vec![Value::Array(vec![]), Value::Null, Value::Integer(-1)]);
        let replies = [Value::Null, Value::Integer(-5), Value::Bulk(vec![0xff; 9]), nested];
        for reply in &replies {
            let mut sample = Sample::default();
            for question in Question::ALL {
                sample.read(question, reply);
            }
            assert_eq!(sample.slow.given().map(Vec::len), Some(0), "{reply:?}");
            assert_eq!(sample.clients.given().map(Vec::len), Some(0), "{reply:?}");
        }
    }

    #[test]
    fn the_servers_clock() {
        assert_eq!(
            of_info(0, "server_time_usec:1795655300884475").unix_seconds(),
            Some(1795655300)
        );
        assert_eq!(of_info(0, "server_time_usec:-3").unix_seconds(), None);
        assert_eq!(of_info(0, "").unix_seconds(), None);
    }
}
