//! Asking the server, for tools that have no use for less than an answer.

use std::{process, thread, time::Duration};

use bobbin_client::{ClientError, RespClient, Value};

use super::progress::Progress;
use crate::{
    interrupt,
    session::{Session, explain},
    terminal,
};

/// The reply to a command, which may be an error. A lost connection ends the program.
pub fn ask(client: &mut RespClient, words: &[impl AsRef<[u8]>]) -> Value {
    received(client.command(words))
}

/// The reply to a command that was sent before.
pub fn receive(client: &mut RespClient) -> Value {
    received(client.receive())
}

/// The reply to a command. An error reply ends the program with a message.
pub fn demand(client: &mut RespClient, words: &[impl AsRef<[u8]>]) -> Value {
    let reply = ask(client, words);
    if let Some(text) = reply.as_error() {
        let command = String::from_utf8_lossy(words[0].as_ref()).into_owned();
        complain!("{command} failed: {}", String::from_utf8_lossy(text));
        process::exit(1);
    }
    reply
}

/// The reply to a command, connecting again for as long as that takes.
pub fn ask_persistently(session: &mut Session, words: &[&str]) -> Value {
    let mut attempts = 0;
    loop {
        let reply = match session.client() {
            Some(client) => client.command(words),
            None => Err(ClientError::Closed),
        };
        match reply {
            Ok(reply) => {
                if attempts > 0 {
                    terminal::command(terminal::CLEAR_LINE);
                }
                return reply;
            }
            Err(ClientError::Io(_) | ClientError::Closed) => {
                attempts += 1;
                terminal::command(terminal::CLEAR_LINE);
                out!("Reconnecting... {attempts}");
                terminal::command("\r");
                // A server that was started anew is there at once. One that takes connections and
                // closes them must not be stormed.
                if attempts > 1 {
                    thread::sleep(RECONNECT_PAUSE);
                }
                let _ = session.connect_quietly();
            }
            Err(error) => {
                complain!("Error: {}", explain(&error));
                process::exit(1);
            }
        }
    }
}

/// The keys of the database, some at a time, with a bar towards their number.
pub struct KeyScan {
    cursor: Vec<u8>,
    pattern: Option<Vec<u8>>,
    count: u64,
    interval: Option<Duration>,
    cycles: u64,
    /// How many cycles there are between two pauses.
    cycles_between: u64,
    is_over: bool,
}

impl KeyScan {
    /// Scans from `cursor` on. Pauses for the options' interval after every `cycles_between`
    /// cycles.
    pub fn new(session: &Session, cursor: u64, cycles_between: u64) -> Self {
        let options = &session.options;
        Self {
            cursor: cursor.to_string().into_bytes(),
            pattern: options.modes.pattern.clone(),
            count: options.modes.count,
            interval: options.interval,
            cycles: 0,
            cycles_between,
            is_over: false,
        }
    }

    /// The next keys, perhaps none; `None` when there are no more.
    pub fn next(&mut self, client: &mut RespClient) -> Option<Vec<Vec<u8>>> {
        if self.is_over {
            return None;
        }
        if self.cycles > 0
            && self.cycles.is_multiple_of(self.cycles_between)
            && let Some(interval) = self.interval
        {
            interrupt::sleep(interval);
        }
        self.cycles += 1;
        let count = self.count.to_string();
        let mut words: Vec<&[u8]> = vec![b"SCAN", &self.cursor];
        if let Some(pattern) = &self.pattern {
            words.extend([&b"MATCH"[..], pattern]);
        }
        words.extend([&b"COUNT"[..], count.as_bytes()]);
        let reply = demand(client, &words);
        let Some((cursor, keys)) = read_scan(reply) else {
            complain!("SCAN's reply is none.");
            process::exit(1);
        };
        self.is_over = cursor == b"0";
        self.cursor = cursor;
        Some(keys)
    }

    /// Where the next cycle goes on.
    pub fn cursor(&self) -> String {
        String::from_utf8_lossy(&self.cursor).into_owned()
    }
}

/// What tools that look at all keys begin with: how many there are, and reading from a replica of a
/// cluster where we are at one.
pub fn count_keys(client: &mut RespClient) -> u64 {
    let count = demand(client, &["DBSIZE"]).as_integer();
    // A server without a cluster refuses; that is no error.
    ask(client, &["READONLY"]);
    count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0)
}

pub fn keys_progress(total: u64) -> Progress {
    Progress::towards(total, "keys")
}

fn read_scan(reply: Value) -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    let Value::Array(elements) = reply else { return None };
    let [cursor, keys] = <[Value; 2]>::try_from(elements).ok()?;
    let Value::Array(keys) = keys else { return None };
    let keys = keys.into_iter().filter_map(|key| match key {
        Value::Bulk(key) => Some(key),
        _ => None,
    });
    Some((cursor.as_bytes()?.to_vec(), keys.collect()))
}

fn received(reply: Result<Value, ClientError>) -> Value {
    reply.unwrap_or_else(|error| {
        complain!("Error: {}", explain(&error));
        process::exit(1);
    })
}

const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
