//! `--bigkeys` and `--memkeys`: the largest key of each type. The report is redis-cli's, line by
//! line.

use std::process::ExitCode;

use super::{
    keys::Types,
    server::{self, KeyScan},
};
use crate::{format::quoted, interrupt, session::Session};

/// What makes a key big.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    Length,
    Memory,
}

pub fn run(session: &mut Session, measure: Measure) -> ExitCode {
    let hold = interrupt::hold();
    let samples = session.options.modes.memory_samples;
    let mut scan = KeyScan::new(session, 0, CYCLES_BETWEEN_PAUSES);
    let client = session.connect_or_exit();
    let total = server::count_keys(client);
    out!("{INTRODUCTION}");
    let progress = server::keys_progress(total);
    let mut types = Types::known();
    let mut report = Report::new(measure, total);
    while let Some(keys) = scan.next(client) {
        let kinds = types.of(client, &keys);
        let sizes = match measure {
            Measure::Length => types.lengths(client, &keys, &kinds),
            Measure::Memory => Types::memory(client, &keys, &kinds, samples),
        };
        report.percent = report.percent_now();
        for ((key, kind), size) in keys.iter().zip(kinds).zip(sizes) {
            if let Some(kind) = kind
                && let Some(line) = report.add(&types, kind, key, size)
            {
                progress.print(&line);
            }
        }
        progress.set(report.sampled);
        if hold.is_pressed() {
            report.is_cut = true;
            break;
        }
    }
    progress.finish();
    out!("{}", report.summary(&types));
    ExitCode::SUCCESS
}

struct Report {
    measure: Measure,
    /// Keys there were at the start.
    total: u64,
    sampled: u64,
    /// How far the cycle before this one came.
    percent: f64,
    names_len: u64,
    is_cut: bool,
    kinds: Vec<Kind>,
}

#[derive(Clone, Default)]
struct Kind {
    count: u64,
    size: u64,
    biggest: u64,
    /// In quotes.
    biggest_key: Option<String>,
}

impl Report {
    fn new(measure: Measure, total: u64) -> Self {
        Self {
            measure,
            total,
            sampled: 0,
            percent: 0.0,
            names_len: 0,
            is_cut: false,
            kinds: Vec::new(),
        }
    }

    /// Counts a key, and gives the lines to print about it, if any.
    fn add(&mut self, types: &Types, kind: usize, key: &[u8], size: u64) -> Option<String> {
        self.kinds.resize(self.kinds.len().max(types.len()), Kind::default());
        let unit = self.unit(types, kind);
        let percent = self.percent;
        self.sampled += 1;
        self.names_len += key.len() as u64;
        let counts = &mut self.kinds[kind];
        counts.count += 1;
        counts.size += size;
        let mut lines = String::new();
        if size > counts.biggest {
            counts.biggest = size;
            let key = quoted(key);
            lines = format!(
                "[{percent:05.2}%] Biggest {:<6} found so far '{key}' with {size} {unit}\n",
                types.get(kind).name
            );
            counts.biggest_key = Some(key);
        }
        if self.sampled.is_multiple_of(KEYS_BETWEEN_LINES) {
            lines.push_str(&format!("[{percent:05.2}%] Sampled {} keys so far\n", self.sampled));
        }
        (!lines.is_empty()).then_some(lines)
    }

    fn summary(&self, types: &Types) -> String {
        let mut text = String::from("\n-------- Summary --------\n\n");
        if self.is_cut {
            text.push_str(&format!("[{:05.2}%] ", self.percent));
        }
        let mean = self.names_len as f64 / self.sampled.max(1) as f64;
        text.push_str(&format!(
            "Sampled {} keys in the keyspace!\nTotal key length in bytes is {} (avg len \
             {mean:.2})\n\n",
            self.sampled, self.names_len
        ));
        let kinds = || (0..types.len()).map(|kind| (kind, self.kinds.get(kind).cloned()));
        for (kind, counts) in kinds() {
            let counts = counts.unwrap_or_default();
            if let Some(key) = &counts.biggest_key {
                text.push_str(&format!(
                    "Biggest {:>6} found '{key}' has {} {}\n",
                    types.get(kind).name,
                    counts.biggest,
                    self.unit(types, kind)
                ));
            }
        }
        text.push('\n');
        for (kind, counts) in kinds() {
            let counts = counts.unwrap_or_default();
            text.push_str(&format!(
                "{} {}s with {} {} ({:05.2}% of keys, avg size {:.2})\n",
                counts.count,
                types.get(kind).name,
                counts.size,
                self.unit(types, kind),
                counts.count as f64 * 100.0 / self.sampled.max(1) as f64,
                counts.size as f64 / counts.count.max(1) as f64
            ));
        }
        text
    }

    fn unit(&self, types: &Types, kind: usize) -> &'static str {
        match self.measure {
            Measure::Length => types.get(kind).unit(),
            Measure::Memory => "bytes",
        }
    }

    fn percent_now(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.sampled as f64 * 100.0 / self.total as f64 }
    }
}

pub const CYCLES_BETWEEN_PAUSES: u64 = 100;
const KEYS_BETWEEN_LINES: u64 = 1_000_000;

const INTRODUCTION: &str = "
# Looking at all keys for the biggest of each type, and the mean sizes.
# With -i 0.1 it rests 0.1 seconds after every 100 SCANs.

";
