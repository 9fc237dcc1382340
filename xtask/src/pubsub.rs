//! Delivered messages a second, and what each costs the server: ours and valkey's by turns.
//!
//! One publisher waits for the answers to a pipeline's PUBLISHes before it sends the next; one
//! thread reads what all subscribers get. A message counts when its last byte is read.

use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bobbin_testkit::connection::encode_command;
use bobbin_testkit::{TestConnection, TestServer, peers};
use rustix::event::epoll;

use crate::options::{number, pairs};
use crate::shell::TaskResult;

/// Measures publish and subscribe; `arguments` as [`USAGE`] has them.
pub(crate) fn run(arguments: &[&str]) -> TaskResult {
    let (mut binary, mut rounds, mut window) = (peers::bobbin(), 3, Duration::from_secs(2));
    pairs(arguments, USAGE, |name, value| {
        match name {
            "--server" => binary = value.into(),
            "--rounds" => rounds = number::<usize>(value)?.max(1),
            "--seconds" => window = Duration::from_secs(number(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let valkey = peers::peer("valkey-server");
    println!("{HEADER}");
    for scenario in SCENARIOS {
        let servers: [(&str, &Path, &[&str]); 3] = [
            ("valkey", &valkey, &["--io-threads", "1"]),
            ("bobbin, 1 worker", &binary, &["--io-threads", "1"]),
            ("bobbin, 2 workers", &binary, &["--io-threads", "2"]),
        ];
        let mut results = vec![Vec::new(); servers.len()];
        for _ in 0..rounds {
            for ((_, binary, options), results) in servers.iter().zip(&mut results) {
                results.push(measure(&TestServer::start(binary, options)?, scenario, window)?);
            }
        }
        let base = median(&results[0], |result| result.per_second);
        for ((name, ..), results) in servers.iter().zip(&results) {
            let per_second = median(results, |result| result.per_second);
            let cpu_us = median(results, |result| result.cpu_us);
            println!(
                "{:>8} {:>11} {:>8}  {name:18} {per_second:>11.0} {:>9.2} {cpu_us:>14.2}",
                scenario.channels,
                scenario.subscribers,
                scenario.pipeline,
                per_second / base
            );
        }
    }
    Ok(())
}

struct Scenario {
    channels: usize,
    /// Of each channel.
    subscribers: usize,
    pipeline: usize,
}

const SCENARIOS: &[Scenario] = &[
    Scenario { channels: 1, subscribers: 1000, pipeline: 1 },
    Scenario { channels: 1, subscribers: 1000, pipeline: 16 },
    Scenario { channels: 1000, subscribers: 1, pipeline: 1 },
    Scenario { channels: 1000, subscribers: 1, pipeline: 50 },
];

#[derive(Clone, Copy)]
struct Measured {
    per_second: f64,
    /// Of the server's processor time for a delivered message.
    cpu_us: f64,
}

fn measure(server: &TestServer, scenario: &Scenario, window: Duration) -> Result<Measured, String> {
    let channel = |number: usize| format!("channel:{number:06}");
    let mut subscribers = Vec::new();
    for number in 0..scenario.channels {
        for _ in 0..scenario.subscribers {
            let mut connection = server.connect();
            let reply = connection.call(&["SUBSCRIBE", &channel(number)]);
            reply.map_err(|error| format!("SUBSCRIBE: {error}"))?;
            subscribers.push(connection);
        }
    }
    let mut message = Vec::new();
    encode_command(&["message", &channel(0), PAYLOAD], &mut message);
    let (read_bytes, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_all(&mut subscribers, &read_bytes, &stop));
        let mut publisher = server.connect();
        let mut next = 0;
        let mut publish_for = |time: Duration| -> Result<u64, String> {
            let (from, mut sent) = (Instant::now(), 0);
            while from.elapsed() < time {
                let mut bytes = Vec::new();
                for _ in 0..scenario.pipeline {
                    let channel = channel(next % scenario.channels);
                    encode_command(&["PUBLISH", &channel, PAYLOAD], &mut bytes);
                    next += 1;
                }
                publisher.send_raw(&bytes).map_err(|error| format!("PUBLISH: {error}"))?;
                for _ in 0..scenario.pipeline {
                    sent += receive_count(&mut publisher)?;
                }
            }
            Ok(sent)
        };
        let all_read = |messages: u64| {
            let limit = Instant::now() + PATIENCE;
            while read_bytes.load(Ordering::Relaxed) < messages * message.len() as u64 {
                if Instant::now() > limit {
                    return Err("not all that was published arrives".to_owned());
                }
                std::thread::yield_now();
            }
            Ok(())
        };
        let outcome = (|| {
            let before = publish_for(WARM_UP)?;
            all_read(before)?;
            let (from, cpu_from) = (Instant::now(), cpu_us(server)?);
            let sent = publish_for(window)?;
            all_read(before + sent)?;
            let (took, cpu) = (from.elapsed(), cpu_us(server)? - cpu_from);
            let sent = sent as f64;
            Ok(Measured { per_second: sent / took.as_secs_f64(), cpu_us: cpu / sent })
        })();
        stop.store(true, Ordering::Relaxed);
        reader.join().map_err(|_| "the reader panicked".to_owned())??;
        outcome
    })
}

/// How many got what was published.
fn receive_count(publisher: &mut TestConnection) -> Result<u64, String> {
    let reply = publisher.receive().map_err(|error| format!("PUBLISH: {error}"))?;
    let count = reply.as_integer().and_then(|count| u64::try_from(count).ok());
    count.ok_or_else(|| format!("PUBLISH: {}", reply.text()))
}

/// Reads what arrives, and counts its bytes, until it is to stop.
fn read_all(
    subscribers: &mut [TestConnection],
    read_bytes: &AtomicU64,
    stop: &AtomicBool,
) -> Result<(), String> {
    let text = |error: rustix::io::Errno| format!("epoll: {error}");
    let ready = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(text)?;
    let mut streams: Vec<&mut TcpStream> = Vec::new();
    for (connection, number) in subscribers.iter_mut().zip(0..) {
        let stream = connection.stream();
        stream.set_nonblocking(true).map_err(|error| error.to_string())?;
        let data = epoll::EventData::new_u64(number);
        epoll::add(&ready, &*stream, data, epoll::EventFlags::IN).map_err(text)?;
        streams.push(stream);
    }
    let (mut events, mut buffer) = (Vec::with_capacity(streams.len()), vec![0; 64 * 1024]);
    let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
    while !stop.load(Ordering::Relaxed) {
        let spare = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(&ready, spare, Some(&timeout)).map_err(text)?;
        let mut bytes = 0;
        for event in events.drain(..) {
            let number = event.data.u64() as usize;
            match streams[number].read(&mut buffer) {
                Ok(0) => return Err("the server has closed a subscriber".to_owned()),
                Ok(count) => bytes += count as u64,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(format!("a subscriber: {error}")),
            }
        }
        read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    Ok(())
}

/// Processor time of the server until now.
fn cpu_us(server: &TestServer) -> Result<f64, String> {
    let mut total_ns = 0.0;
    let folder = format!("/proc/{}/task", server.id());
    for task in std::fs::read_dir(&folder).map_err(|error| format!("{folder}: {error}"))?.flatten()
    {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let spent = text.split(' ').next().and_then(|word| word.parse::<f64>().ok());
        total_ns += spent.unwrap_or(0.0);
    }
    Ok(total_ns / 1e3)
}

fn median(results: &[Measured], value: impl Fn(&Measured) -> f64) -> f64 {
    let mut values: Vec<f64> = results.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

const HEADER: &str =
    "channels subscribers pipeline  server             delivered/s  x valkey  server us each";
pub(crate) const USAGE: &str = "\
usage: cargo xtask pubsub [--server PATH] [--rounds N] [--seconds N]
  3 rounds of 2 seconds by default, of which medians are shown";
const PAYLOAD: &str = "0123456789abcdef";
const WARM_UP: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(20);
