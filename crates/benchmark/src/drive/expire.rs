//! `bobbin-benchmark expire`: what expiry costs. Eight measurements over one connection, after an
//! article that took them with Jedis on Redis 3.0.7, and beside them the longest time that another
//! client had to wait meanwhile.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use bobbin_client::RespClient;
use serde_json::json;

use super::DriveFailure;
use crate::{
    interrupt::{self, INTERRUPT, TOO_EARLY},
    options::{Common, redis::RedisSettings},
    output::OutputFile,
    provenance::Provenance,
    report::json::{document, round},
    server,
};

/// Does the eight measurements with the connection, `-n` (default 300000) and the output of the
/// settings.
pub fn run(settings: &RedisSettings, rest: &[String]) -> Result<(), DriveFailure> {
    if let Some(word) = rest.first() {
        return Err(DriveFailure(format!(
            "Unexpected argument '{word}'; --help lists the options"
        )));
    }
    let count = settings.requests.unwrap_or(OPERATIONS);
    let mut file = settings.common.json.as_deref().map(OutputFile::open).transpose()?;
    let provenance = Provenance::now();
    let mut client = server::connect(&settings.common)?;
    // A server that wants a password says so here. Of the long commands that follow it would say
    // that they are too long for a client that has not authenticated.
    server::call(&mut client, &["PING"])?;
    if settings.csv {
        say_line!("\"test\",\"seconds\",\"rps\",\"other_client_max_ms\"");
    } else {
        say_line!("{count} operations over one connection to {}", server::place(&settings.common));
        say_line!("{:<34} {:>9} {:>12} {:>16}", "", "seconds", "per second", "others waited");
    }
    let mut results = Vec::new();
    interrupt::watch_signals()?;
    for measurement in MEASUREMENTS {
        let (time, waited) = match measurement.run(&settings.common, &mut client, count) {
            Err(_) if INTERRUPT.is_raised() && !results.is_empty() => break,
            measured => measured?,
        };
        let (seconds, waited_ms) = (time.as_secs_f64(), waited.as_secs_f64() * 1e3);
        let rate = count as f64 / seconds;
        if settings.csv {
            say_line!(
                "\"{}\",\"{seconds:.3}\",\"{rate:.2}\",\"{waited_ms:.3}\"",
                measurement.title
            );
        } else {
            say_line!("{:<34} {seconds:9.3} {rate:12.0} {waited_ms:13.3} ms", measurement.title);
        }
        results.push(json!({
            "test": measurement.title,
            "requests": count,
            "seconds": round(seconds),
            "rate": round(rate),
            "rates": [round(rate)],
            "other_client_max_ms": round(waited_ms),
        }));
    }
    if let Some(file) = &mut file {
        let configuration =
            json!({ "server": server::place(&settings.common), "operations": count });
        let document = document(&provenance, configuration, results, INTERRUPT.is_raised());
        file.write(format!("{document:#}\n"))?;
    }
    if INTERRUPT.is_raised() {
        complain!("Interrupted before its end");
    }
    Ok(())
}

pub(super) struct Measurement {
    pub(super) title: &'static str,
    /// Commands sent before a reply is waited for.
    batch: u64,
    in_transaction: bool,
    keys: Keys,
    /// The commands of one operation; `%` stands for the key.
    commands: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// Every operation has a key of its own.
    Own,
    /// They take turns with a hundred keys that exist.
    Hundred,
}

pub(super) const MEASUREMENTS: &[Measurement] = &[
    Measurement::new("SET, one by one", 1, false, Keys::Own, &["SET % value"]),
    Measurement::new("SET, as redis-cli --pipe", BATCH, false, Keys::Own, &["SET % value"]),
    Measurement::new("SET in MULTI", BATCH, true, Keys::Own, &["SET % value"]),
    Measurement::new("SET NX EX 100 in MULTI", BATCH, true, Keys::Own, &["SET % value NX EX 100"]),
    Measurement::new(
        "SET and EXPIRE in MULTI",
        BATCH,
        true,
        Keys::Own,
        &["SET % value", "EXPIRE % 100"],
    ),
    Measurement::new("SET NX PX 1 in MULTI", BATCH, true, Keys::Own, &["SET % value NX PX 1"]),
    Measurement::new("GET of 100 keys in MULTI", BATCH, true, Keys::Hundred, &["GET %"]),
    Measurement::new(
        "GET and EXPIRE of 100 keys in MULTI",
        BATCH,
        true,
        Keys::Hundred,
        &["GET %", "EXPIRE % 100"],
    ),
];

impl Measurement {
    const fn new(
        title: &'static str,
        batch: u64,
        in_transaction: bool,
        keys: Keys,
        commands: &'static [&'static str],
    ) -> Self {
        Self { title, batch, in_transaction, keys, commands }
    }

    /// How long it took, and the longest that another client waited then and in the second after,
    /// in which what was to expire does.
    pub(super) fn run(
        &self,
        common: &Common,
        client: &mut RespClient,
        count: u64,
    ) -> Result<(Duration, Duration), DriveFailure> {
        self.remove(client, count)?;
        if self.keys == Keys::Hundred {
            for key in 0..HUNDRED {
                server::call(client, &["SET", &self.key(key), "value"])?;
            }
        }
        let is_over = AtomicBool::new(false);
        let mut other = server::connect(common)?;
        let result = std::thread::scope(|scope| {
            let waited = scope.spawn(|| longest_wait(&mut other, &is_over));
            let time = self.measure(client, count);
            if time.is_ok() {
                std::thread::sleep(AFTERMATH);
            }
            is_over.store(true, Relaxed);
            let waited = waited.join().unwrap_or_else(|_| Err("the other client failed".into()));
            Ok::<_, String>((time?, waited?))
        });
        if INTERRUPT.is_raised() && self.in_transaction {
            // It fails where the transaction is over.
            let _ = server::call(client, &["DISCARD"]);
        }
        if result.is_ok() || INTERRUPT.is_raised() {
            self.remove(client, count)?;
        }
        Ok(result?)
    }

    fn measure(&self, client: &mut RespClient, count: u64) -> Result<Duration, String> {
        let lost = |error| format!("Error: {error}");
        let commands: Vec<Vec<&str>> =
            self.commands.iter().map(|command| command.split(' ').collect()).collect();
        let started = Instant::now();
        if self.in_transaction {
            server::call(client, &["MULTI"])?;
        }
        let mut sent = 0;
        while sent < count {
            if INTERRUPT.is_raised() {
                return Err(TOO_EARLY.into());
            }
            let batch = self.batch.min(count - sent);
            for number in sent..sent + batch {
                let key = self.key(number);
                for command in &commands {
                    let words = command.iter().map(|&word| if word == "%" { &key } else { word });
                    client.send(&words.collect::<Vec<_>>());
                }
            }
            for _ in 0..batch * commands.len() as u64 {
                let reply = client.receive().map_err(lost)?;
                if let Some(error) = reply.as_error() {
                    return Err(format!("Error from server: {}", String::from_utf8_lossy(error)));
                }
            }
            sent += batch;
        }
        if self.in_transaction {
            server::call(client, &["EXEC"])?;
        }
        Ok(started.elapsed())
    }

    fn remove(&self, client: &mut RespClient, count: u64) -> Result<(), String> {
        let keys = if self.keys == Keys::Own { count } else { HUNDRED };
        for start in (0..keys).step_by(BATCH as usize) {
            let end = keys.min(start + BATCH);
            let mut command = vec!["UNLINK".to_owned()];
            command.extend((start..end).map(|number| self.key(number)));
            server::call(client, &command)?;
        }
        Ok(())
    }

    fn key(&self, number: u64) -> String {
        let number = if self.keys == Keys::Own { number } else { number % HUNDRED };
        format!("bobbin-benchmark:expire:{number}")
    }
}

fn longest_wait(client: &mut RespClient, is_over: &AtomicBool) -> Result<Duration, String> {
    let mut longest = Duration::ZERO;
    while !is_over.load(Relaxed) {
        let started = Instant::now();
        server::call(client, &["PING"])?;
        longest = longest.max(started.elapsed());
        std::thread::sleep(PING_EVERY);
    }
    Ok(longest)
}

pub(super) const OPERATIONS: u64 = 300_000;
const BATCH: u64 = 1000;
const HUNDRED: u64 = 100;
const AFTERMATH: Duration = Duration::from_secs(1);
const PING_EVERY: Duration = Duration::from_millis(1);
