//! Small commands at a fixed rate, and how long each took.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use bobbin_testkit::random::{TestRandom, seed};
use bobbin_testkit::{ReceiveOutcome, TestConnection};

/// When a GET was due, and how much later its answer was there.
#[derive(Clone, Copy)]
struct Sample {
    asked: ProbeCommand,
    due: Instant,
    latency: Duration,
}

/// What a client asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeCommand {
    Get,
    Set,
}

/// Of what keys.
#[derive(Clone, Copy)]
pub(crate) enum ProbeKeys {
    /// Only GETs, of [`KEY`].
    One,
    /// A GET and a SET in turn, each of any of this many keys that [`numbered_key`] names.
    Numbered(usize),
}

/// Clients that ask at a fixed rate whatever the server does, until they are stopped.
///
/// A client that still waits when its next command is due is late by no fault of its own: that
/// command counts from when it was due. Else it counts from when it was sent, so that how exactly
/// the clients' clock wakes them has no part in it.
pub(crate) struct Probe {
    keys: ProbeKeys,
    stop: AtomicBool,
    samples: Mutex<Vec<Sample>>,
}

impl Probe {
    pub fn new(keys: ProbeKeys) -> Self {
        Self { keys, stop: AtomicBool::new(false), samples: Mutex::default() }
    }

    pub fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        connections: Vec<TestConnection>,
    ) -> Vec<ScopedJoinHandle<'scope, ()>> {
        let interval = Duration::from_secs(1) * connections.len() as u32 / RATE;
        let start = Instant::now();
        let spread = interval / connections.len() as u32;
        connections
            .into_iter()
            .zip(0..)
            .map(|(connection, number)| {
                scope.spawn(move || self.ask(connection, start + spread * number, interval))
            })
            .collect()
    }

    /// All samples so far of what was due at some time between these, in ascending order.
    pub fn between(&self, asked: ProbeCommand, windows: &[(Instant, Instant)]) -> Latencies {
        let samples = self.samples.lock().expect("no client panics with it");
        let within = |sample: &&Sample| {
            sample.asked == asked
                && windows.iter().any(|(from, to)| (*from..*to).contains(&sample.due))
        };
        let mut latencies: Vec<_> =
            samples.iter().filter(within).map(|sample| sample.latency).collect();
        latencies.sort_unstable();
        Latencies(latencies)
    }

    /// Stops the clients when it is dropped.
    pub fn stopped(&self) -> impl Drop {
        Stopped(self)
    }

    fn ask(&self, mut connection: TestConnection, mut due: Instant, interval: Duration) {
        let (mut answered, mut asked, mut random) =
            (due, ProbeCommand::Get, TestRandom::new(seed()));
        while !self.stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            if due > now {
                std::thread::sleep(due - now);
            }
            let from = if answered > due { due } else { Instant::now() };
            let (key, value) = match self.keys {
                ProbeKeys::One => (KEY.to_owned(), VALUE),
                ProbeKeys::Numbered(count) => (numbered_key(random.below(count)), NUMBERED_VALUE),
            };
            let sent = match asked {
                ProbeCommand::Get => connection.send(&["GET", &key]),
                ProbeCommand::Set => connection.send(&["SET", &key, value]),
            };
            sent.expect("a command is sent");
            // A server that does one command at a time may take minutes.
            match connection.receive_within(PATIENCE).expect("a command is answered") {
                ReceiveOutcome::Reply(reply) if asked == ProbeCommand::Get => {
                    assert_eq!(reply.text(), value);
                }
                ReceiveOutcome::Reply(reply) => assert_eq!(reply.text(), "OK"),
                nothing => panic!("instead of an answer: {nothing:?}"),
            }
            answered = Instant::now();
            let sample = Sample { asked, due: from, latency: answered - from };
            if let (ProbeKeys::Numbered(_), ProbeCommand::Get) = (self.keys, asked) {
                asked = ProbeCommand::Set;
            } else {
                asked = ProbeCommand::Get;
            }
            self.samples.lock().expect("no client panics with it").push(sample);
            due += interval;
        }
    }
}

struct Stopped<'a>(&'a Probe);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// In ascending order.
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Of `permille` thousandths of all none took longer. In microseconds; 0 if there is none at
    /// all.
    pub fn microseconds(&self, permille: usize) -> f64 {
        let at = (self.0.len() * permille / 1000).min(self.0.len().saturating_sub(1));
        self.0.get(at).map_or(0.0, |latency| latency.as_secs_f64() * 1e6)
    }
}

/// A key of 16 bytes.
pub(crate) fn numbered_key(number: usize) -> String {
    format!("key:{number:012}")
}

/// What is asked for; it must be there.
pub(crate) const KEY: &str = "probe";
pub(crate) const VALUE: &str = "some small value";
/// What numbered keys hold: 32 bytes.
pub(crate) const NUMBERED_VALUE: &str = "0123456789abcdef0123456789abcdef";
/// A second, over all clients.
const RATE: u32 = 2000;
const PATIENCE: Duration = Duration::from_secs(300);
