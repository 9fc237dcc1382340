//! The rounds of a sweep, and what they measure.

use std::time::Duration;

use super::SweepSettings;
use crate::{
    drive::{
        DriveFailure, expire,
        process::{self, ServerProcess},
        redis::{Bench, loads},
    },
    engine::LoadOutcome,
    interrupt::INTERRUPT,
    options::redis,
    provenance, server, statistics,
    workload::Test,
};

/// Everything that was measured.
pub(super) struct Results {
    pub(super) servers: Vec<SweepServer>,
    /// By server, threads, shape and test, in this order.
    pub(super) cells: Vec<SweepCell>,
    /// By server and measurement.
    pub(super) expiry: Vec<ExpiryMeasurement>,
    /// Of a sweep that was interrupted: how many measurements were made, and how many were asked
    /// for.
    pub(super) interrupted: Option<(usize, usize)>,
}

/// A server program that takes part.
pub(super) struct SweepServer {
    /// As it was asked for.
    pub(super) asked: String,
    /// Its program's name.
    pub(super) name: String,
    /// As it says itself, once it has run.
    pub(super) version: Option<String>,
    /// How it was started, for each number of threads.
    pub(super) commands: Vec<String>,
}

/// One place in the matrix, measured in each round.
pub(super) struct SweepCell {
    pub(super) server: usize,
    pub(super) io_threads: usize,
    pub(super) shape: LoadShape,
    /// As it is named by the option.
    pub(super) test: String,
    /// All rounds in one.
    pub(super) outcome: Option<LoadOutcome>,
    /// Error replies of all rounds, also to what was sent before the measurement so that it finds
    /// something.
    pub(super) errors: u64,
    /// Requests a second, by round.
    pub(super) rates: Vec<f64>,
    /// The server's processor time for a request, in microseconds, by round.
    pub(super) server_cpu_us: Vec<f64>,
    pub(super) resident_bytes: Vec<f64>,
}

/// One of the measurements of expiry.
pub(super) struct ExpiryMeasurement {
    pub(super) server: usize,
    pub(super) title: &'static str,
    pub(super) seconds: Vec<f64>,
    /// The longest that another client waited, in milliseconds.
    pub(super) waited_ms: Vec<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoadShape {
    pub(super) data_size: usize,
    pub(super) pipeline: usize,
    pub(super) clients: usize,
}

impl Results {
    pub(super) fn new(settings: &SweepSettings) -> Self {
        let servers = settings.servers.iter().map(|asked| SweepServer {
            asked: asked.clone(),
            name: asked.rsplit('/').next().unwrap_or(asked).to_owned(),
            version: None,
            commands: Vec::new(),
        });
        let mut results = Self {
            servers: servers.collect(),
            cells: Vec::new(),
            expiry: Vec::new(),
            interrupted: None,
        };
        for server in 0..results.servers.len() {
            for &io_threads in &settings.io_threads {
                for shape in shapes(settings) {
                    let cell = |test: &String| SweepCell::new(server, io_threads, shape, test);
                    results.cells.extend(settings.tests.iter().map(cell));
                }
            }
            if settings.expiry_operations > 0 {
                let expiry = |measurement: &expire::Measurement| ExpiryMeasurement {
                    server,
                    title: measurement.title,
                    seconds: Vec::new(),
                    waited_ms: Vec::new(),
                };
                results.expiry.extend(expire::MEASUREMENTS.iter().map(expiry));
            }
        }
        results
    }

    /// Measures everything in rounds. An interruption ends that; what it cut short does not count.
    pub(super) fn measure(&mut self, settings: &SweepSettings) -> Result<(), DriveFailure> {
        for round in 0..settings.rounds {
            match self.measure_round(settings, round) {
                Err(failure) if !INTERRUPT.is_raised() => return Err(failure),
                _ if INTERRUPT.is_raised() => break,
                _ => {}
            }
        }
        let numbers = self.numbers().count();
        let asked = numbers * settings.rounds as usize;
        let made = self.numbers().map(Vec::len).sum();
        self.interrupted = INTERRUPT.is_raised().then_some((made, asked));
        Ok(())
    }

    /// The rounds that were begun.
    pub(super) fn rounds(&self) -> usize {
        self.numbers().map(Vec::len).max().unwrap_or(0)
    }

    /// What was measured at all.
    pub(super) fn measured(&self) -> impl Iterator<Item = &SweepCell> {
        self.cells.iter().filter(|cell| cell.is_measured())
    }

    /// Of each measurement a number for each round.
    fn numbers(&self) -> impl Iterator<Item = &Vec<f64>> {
        let cells = self.cells.iter().map(|cell| &cell.rates);
        cells.chain(self.expiry.iter().map(|expiry| &expiry.seconds))
    }

    /// Measures everything once. Each round begins with another server.
    fn measure_round(&mut self, settings: &SweepSettings, round: u32) -> Result<(), DriveFailure> {
        let threads = settings.io_threads.iter().copied();
        let mut turns: Vec<(usize, usize)> = threads
            .flat_map(|threads| (0..self.servers.len()).map(move |server| (server, threads)))
            .collect();
        if settings.tests.is_empty() {
            // One connection keeps one thread busy.
            turns.truncate(self.servers.len());
        }
        let count = turns.len().max(1);
        turns.rotate_left(round as usize % count);
        for (server, io_threads) in turns {
            complain!(
                "Round {} of {}: {}, {}",
                round + 1,
                settings.rounds,
                self.servers[server].name,
                threads_title(io_threads)
            );
            self.measure_server(settings, server, io_threads)?;
            if INTERRUPT.is_raised() {
                break;
            }
        }
        Ok(())
    }

    fn measure_server(
        &mut self,
        settings: &SweepSettings,
        server: usize,
        io_threads: usize,
    ) -> Result<(), DriveFailure> {
        let asked = &self.servers[server].asked;
        let mut arguments = vec!["--io-threads".to_owned(), io_threads.to_string()];
        if asked.contains("redis") {
            arguments.extend(["--io-threads-do-reads".to_owned(), "yes".to_owned()]);
        }
        let process = ServerProcess::start(&process::program(asked), &arguments, &settings.common)?;
        let mut client = server::connect(&settings.common)?;
        let known = &mut self.servers[server];
        if !known.commands.iter().any(|command| command == process.command()) {
            known.commands.push(process.command().to_owned());
        }
        if known.version.is_none() {
            known.version = provenance::version(&mut client);
        }
        let mut shape = None;
        let here = |cell: &&mut SweepCell| cell.server == server && cell.io_threads == io_threads;
        for cell in self.cells.iter_mut().filter(here) {
            if shape.replace(cell.shape) != Some(cell.shape) {
                server::call(&mut client, &["FLUSHALL"])?;
            }
            cell.measure(settings, &process)?;
            if INTERRUPT.is_raised() {
                return Ok(());
            }
        }
        if Some(&io_threads) != settings.io_threads.first() {
            return Ok(());
        }
        let measurements = expire::MEASUREMENTS.iter();
        let here = self.expiry.iter_mut().filter(|expiry| expiry.server == server);
        for (expiry, measurement) in here.zip(measurements) {
            let operations = settings.expiry_operations;
            let (time, waited) = measurement.run(&settings.common, &mut client, operations)?;
            expiry.seconds.push(time.as_secs_f64());
            expiry.waited_ms.push(waited.as_secs_f64() * 1e3);
            if INTERRUPT.is_raised() {
                break;
            }
        }
        Ok(())
    }

    /// What readers call a server: its product and version, where that is of one server only.
    pub(super) fn title(&self, server: usize) -> &str {
        let SweepServer { name, version, .. } = &self.servers[server];
        let Some(version) = version else { return name };
        let same = self.servers.iter().filter(|other| other.version.as_ref() == Some(version));
        if same.count() == 1 {
            return version;
        }
        let same_name = self.servers.iter().filter(|other| &other.name == name).count() > 1;
        if same_name { &self.servers[server].asked } else { name }
    }

    /// All numbers whose rounds disagree, and of how many.
    pub(super) fn doubts(&self) -> (usize, usize) {
        let doubtful = self.numbers().filter(|samples| statistics::disagree(samples)).count();
        (doubtful, self.numbers().count())
    }
}

impl ExpiryMeasurement {
    pub(super) fn is_measured(&self) -> bool {
        !self.seconds.is_empty()
    }
}

impl SweepCell {
    pub(super) fn new(server: usize, io_threads: usize, shape: LoadShape, test: &str) -> Self {
        Self {
            server,
            io_threads,
            shape,
            test: test.to_owned(),
            outcome: None,
            errors: 0,
            rates: Vec::new(),
            server_cpu_us: Vec::new(),
            resident_bytes: Vec::new(),
        }
    }

    /// Whether there is a round in which it was measured.
    pub(super) fn is_measured(&self) -> bool {
        !self.rates.is_empty()
    }

    /// The test's name as readers know it.
    pub(super) fn title(&self) -> String {
        self.test.to_uppercase()
    }

    /// The title with the shape.
    pub(super) fn full_title(&self) -> String {
        format!("{} ({})", self.title(), self.shape.title())
    }

    fn measure(
        &mut self,
        settings: &SweepSettings,
        process: &ServerProcess,
    ) -> Result<(), DriveFailure> {
        let mut bench_settings = redis::RedisSettings {
            common: settings.common.clone(),
            clients: self.shape.clients,
            threads: settings.threads,
            data_size: self.shape.data_size,
            keyspace: Some(settings.keyspace),
            pipeline: self.shape.pipeline,
            tests: Some(self.test.clone()),
            runs: 1,
            ..redis::RedisSettings::default()
        };
        if reads_keys(&self.test) {
            let keys = settings.keyspace.min(FILLED_KEYS_MAX);
            bench_settings.keyspace = Some(keys);
            self.errors += fill(&bench_settings, keys)?;
        }
        let mut loads = loads(&bench_settings, &[])?;
        let load =
            loads.pop().ok_or_else(|| DriveFailure(format!("there is no test '{}'", self.test)))?;
        // What the test needs to find is sent before it, and not measured.
        bench_settings.requests = Some(PREPARING_REQUESTS);
        for preparing in &loads {
            self.errors += errors(&Bench::new(&bench_settings)?.measure(preparing)?);
        }
        bench_settings.requests = None;
        bench_settings.duration = Some(Duration::from_secs_f64(settings.seconds));
        bench_settings.warm_up = Duration::from_secs_f64(settings.seconds * WARM_UP_SHARE);
        let cpu = |process: &ServerProcess| process::cpu_time(process.id()).unwrap_or_default();
        let bench = Bench::new(&bench_settings)?;
        let before = cpu(process);
        let mut outcomes = bench.measure(&load)?;
        let used = cpu(process).saturating_sub(before);
        let outcome = outcomes.pop().ok_or_else(|| DriveFailure("nothing was measured".into()))?;
        if outcome.is_interrupted {
            return Ok(());
        }
        // What was sent to warm up took time too.
        let requests = (outcome.requests() + outcome.warm_up_requests) as f64;
        self.errors += outcome.errors();
        self.rates.push(outcome.rate());
        self.server_cpu_us.push(used.as_secs_f64() * 1e6 / requests.max(1.0));
        self.resident_bytes.push(process::resident_bytes(process.id()).unwrap_or(0) as f64);
        match &mut self.outcome {
            Some(sum) => sum.add(&outcome),
            none => *none = Some(outcome),
        }
        Ok(())
    }
}

/// Whether a test of this name finds what was written before it.
pub(super) fn reads_keys(name: &str) -> bool {
    Test::select(Some(name)).is_ok_and(|tests| tests.iter().any(|test| test.request.reads_keys()))
}

/// Writes all keys that a test draws from: of a key that is missing less is measured than of one
/// that is there. How many replies were errors.
fn fill(settings: &redis::RedisSettings, keys: u64) -> Result<u64, DriveFailure> {
    let mut settings = redis::RedisSettings {
        tests: Some("set".into()),
        requests: Some(keys),
        sequential: true,
        pipeline: FILLING_PIPELINE,
        ..settings.clone()
    };
    settings.common.open_loop = None;
    let bench = Bench::new(&settings)?;
    let mut sum = 0;
    for load in &loads(&settings, &[])? {
        sum += errors(&bench.measure(load)?);
    }
    Ok(sum)
}

fn errors(outcomes: &[LoadOutcome]) -> u64 {
    outcomes.iter().map(LoadOutcome::errors).sum()
}

impl LoadShape {
    pub(super) fn title(self) -> String {
        let Self { data_size, pipeline, clients } = self;
        format!("{data_size} bytes, pipeline {pipeline}, {clients} clients")
    }
}

pub(super) fn shapes(settings: &SweepSettings) -> impl Iterator<Item = LoadShape> + '_ {
    settings.data_sizes.iter().flat_map(move |&data_size| {
        settings.pipelines.iter().flat_map(move |&pipeline| {
            let shape = move |&clients: &usize| LoadShape { data_size, pipeline, clients };
            settings.clients.iter().map(shape)
        })
    })
}

pub(super) fn threads_title(count: usize) -> String {
    format!("{count} I/O thread{}", if count == 1 { "" } else { "s" })
}

const PREPARING_REQUESTS: u64 = 10_000;
/// Tests that read draw from no more keys, as each round writes them all.
pub(super) const FILLED_KEYS_MAX: u64 = 1_000_000;
const FILLING_PIPELINE: usize = 64;
/// The part of each measurement that comes before it without being counted.
const WARM_UP_SHARE: f64 = 0.1;
