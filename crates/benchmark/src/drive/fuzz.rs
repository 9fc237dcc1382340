//! `--fuzz`: random commands, of which most are right. It is about the server living on and
//! answering each with a reply, not about speed.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use bobbin_client::{ClientError, RespClient, Value};

use super::{DriveFailure, redis::seed};
use crate::{
    interrupt::{self, INTERRUPT},
    options::redis::{FuzzLog, RedisSettings},
    server,
    workload::{Fuzz, ServerOptions, WorkloadRandom},
};

/// Sends `-n` commands over `-c` connections, a thread for each.
pub fn run(settings: &RedisSettings) -> Result<(), DriveFailure> {
    let mut client = server::connect(&settings.common)?;
    let docs = server::call(&mut client, &["COMMAND", "DOCS"])?;
    let options = if settings.fuzz.sets_options { options(&mut client)? } else { Vec::new() };
    let fuzz = Fuzz::read(&docs, options)?;
    let total = settings.requests.unwrap_or(REQUESTS);
    let each = (total / settings.clients as u64).max(1);
    let seed = seed(&settings.common);
    say_line!(
        "Running fuzzer with {} clients, {each} commands per client ({total} total commands), seed \
         {seed}",
        settings.clients
    );
    interrupt::watch_signals()?;
    let counts = Counts::default();
    let results: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..settings.clients as u64)
            .map(|number| {
                let (fuzz, counts) = (&fuzz, &counts);
                let random = WorkloadRandom::new(seed.wrapping_add(number));
                scope.spawn(move || {
                    let result = converse(settings, fuzz, random, each, counts);
                    // One loss is enough: the others only make its trace older.
                    counts.is_over.fetch_or(result.is_err(), Relaxed);
                    result
                })
            })
            .collect();
        let lost = || Err("a thread panicked".to_owned());
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| lost())).collect()
    });
    let failed = results.iter().filter(|result| result.is_err()).count();
    if settings.fuzz.log > FuzzLog::Error {
        let (sent, errors) = (counts.sent.load(Relaxed), counts.errors.load(Relaxed));
        let good = counts.good.load(Relaxed);
        say_line!("{} succeeded, {failed} failed.", results.len() - failed);
        say_line!("=== FINAL STATISTICS ===");
        say_line!("Total commands sent: {sent}");
        say_line!("Success replies: {good}");
        say_line!("Error replies: {errors}");
        say_line!("Success rate: {:.2}%", good as f64 / sent.max(1) as f64 * 100.0);
    }
    if let Some(Err(error)) = results.into_iter().find(Result::is_err) {
        return Err(DriveFailure(error));
    }
    // It must be there for new clients too.
    server::call(&mut server::connect(&settings.common)?, &["PING"])?;
    Ok(())
}

#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    good: AtomicU64,
    errors: AtomicU64,
    is_over: AtomicBool,
}

/// One connection's commands. The error says what was sent last.
fn converse(
    settings: &RedisSettings,
    fuzz: &Fuzz,
    mut random: WorkloadRandom,
    count: u64,
    counts: &Counts,
) -> Result<(), String> {
    let mut client = server::connect(&settings.common)?;
    client.set_read_timeout(Some(REPLY_TIME_MAX)).map_err(|error| error.to_string())?;
    let mut last = VecDeque::new();
    let started = Instant::now();
    for _ in 0..count {
        let is_late = settings.duration.is_some_and(|duration| started.elapsed() > duration);
        if is_late || counts.is_over.load(Relaxed) || INTERRUPT.is_raised() {
            break;
        }
        let is_malformed = settings.fuzz.is_malformed && random.below(MALFORMED_ONE_IN) == 0;
        let words = fuzz.draw(&mut random, is_malformed);
        last.push_back(shown(&words));
        if last.len() > TRACE_LEN {
            last.pop_front();
        }
        let reply = client.command(&words).map_err(|error| trace(&error, &last))?;
        counts.sent.fetch_add(1, Relaxed);
        match reply.as_error() {
            Some(text) => {
                counts.errors.fetch_add(1, Relaxed);
                if settings.fuzz.log >= FuzzLog::Debug {
                    say_line!("{} -> {}", shown(&words), String::from_utf8_lossy(text));
                }
            }
            None => {
                counts.good.fetch_add(1, Relaxed);
            }
        }
    }
    Ok(())
}

fn trace(error: &ClientError, last: &VecDeque<String>) -> String {
    let commands: Vec<_> = last.iter().map(String::as_str).collect();
    format!("Error: {error}, after these commands: {}", commands.join("; "))
}

/// A command as it could be typed into a shell.
fn shown(words: &[Vec<u8>]) -> String {
    let words: Vec<_> = words
        .iter()
        .map(|word| match word.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'"') {
            true if !word.is_empty() => String::from_utf8_lossy(word).into_owned(),
            _ => format!("\"{}\"", word.escape_ascii()),
        })
        .collect();
    words.join(" ")
}

/// What the server is set to, as far as it can be set.
fn options(client: &mut RespClient) -> Result<ServerOptions, DriveFailure> {
    let reply = server::call(client, &["CONFIG", "GET", "*"])?;
    let bytes = |value: &Value| value.as_bytes().unwrap_or_default().to_vec();
    let pairs: Vec<_> = match &reply {
        Value::Map(pairs) => {
            pairs.iter().map(|(name, value)| (bytes(name), bytes(value))).collect()
        }
        other => other
            .as_elements()
            .unwrap_or_default()
            .chunks_exact(2)
            .map(|pair| (bytes(&pair[0]), bytes(&pair[1])))
            .collect(),
    };
    Ok(pairs)
}

const REQUESTS: u64 = 100_000;
const MALFORMED_ONE_IN: u64 = 3;
/// Commands that are shown when the server is lost.
const TRACE_LEN: usize = 5;
/// No command that is sent waits for anything.
const REPLY_TIME_MAX: Duration = Duration::from_secs(60);
