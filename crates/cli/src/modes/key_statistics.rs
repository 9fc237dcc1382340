//! `--keystats`: memory and length of all keys: the largest, and how sizes are distributed.

use std::{collections::BTreeMap, process::ExitCode};

use super::{
    big_keys::CYCLES_BETWEEN_PAUSES,
    keys::Types,
    server::{self, KeyScan},
    statistics::human,
};
use crate::{format::quoted, interrupt, session::Session};

pub fn run(session: &mut Session) -> ExitCode {
    let hold = interrupt::hold();
    let modes = &session.options.modes;
    let samples = modes.memory_samples;
    let mut statistics = Statistics { wanted: modes.top, ..Statistics::default() };
    let mut scan = KeyScan::new(session, modes.cursor, CYCLES_BETWEEN_PAUSES);
    let client = session.connect_or_exit();
    let total = server::count_keys(client);
    out!("{INTRODUCTION}");
    let progress = server::keys_progress(total);
    let mut types = Types::known();
    let mut is_cut = false;
    while let Some(keys) = scan.next(client) {
        let kinds = types.of(client, &keys);
        let lengths = types.lengths(client, &keys, &kinds);
        let memory = Types::memory(client, &keys, &kinds, samples);
        let sizes = lengths.into_iter().zip(memory);
        for ((key, kind), (length, memory)) in keys.iter().zip(kinds).zip(sizes) {
            if let Some(kind) = kind {
                statistics.add(kind, key, length, memory);
            }
        }
        progress.set(statistics.count);
        if hold.is_pressed() {
            is_cut = true;
            break;
        }
    }
    progress.finish();
    if is_cut {
        out!("Interrupted: --cursor {} goes on from here.\n\n", scan.cursor());
    }
    out!("{}", statistics.show(&types, total));
    ExitCode::SUCCESS
}

#[derive(Default)]
struct Statistics {
    /// How many of the largest to keep.
    wanted: usize,
    count: u64,
    /// The largest first: bytes, type, key.
    top: Vec<(u64, usize, String)>,
    kinds: BTreeMap<usize, Kind>,
    sizes: Distribution,
    name_lengths: Distribution,
}

#[derive(Default)]
struct Kind {
    count: u64,
    memory: u64,
    length: u64,
    largest: Option<(u64, String)>,
    longest: Option<(u64, String)>,
}

impl Statistics {
    fn add(&mut self, kind: usize, key: &[u8], length: u64, memory: u64) {
        self.count += 1;
        self.sizes.add(memory);
        self.name_lengths.add(key.len() as u64);
        let place = self.top.partition_point(|(other, ..)| *other >= memory);
        if place < self.wanted {
            self.top.insert(place, (memory, kind, quoted(key)));
            self.top.truncate(self.wanted);
        }
        let of_kind = self.kinds.entry(kind).or_default();
        of_kind.count += 1;
        of_kind.memory += memory;
        of_kind.length += length;
        if of_kind.largest.as_ref().is_none_or(|(largest, _)| memory > *largest) {
            of_kind.largest = Some((memory, quoted(key)));
        }
        if of_kind.longest.as_ref().is_none_or(|(longest, _)| length > *longest) {
            of_kind.longest = Some((length, quoted(key)));
        }
    }

    fn show(&self, types: &Types, total: u64) -> String {
        let percent =
            if total == 0 { 100.0 } else { (self.count as f64 * 100.0 / total as f64).min(100.0) };
        let mut text = format!(
            "{percent:.2}% keys scanned\nKeys sampled: {}\nKeys size:    {}\n\n",
            self.count,
            bytes(self.sizes.sum)
        );
        text.push_str(&format!("--- Top {} key sizes ---\n", self.wanted));
        for (place, (memory, kind, key)) in self.top.iter().enumerate() {
            let name = &types.get(*kind).name;
            text.push_str(&format!("{:>3} {:>8} {name:<10} {key}\n", place + 1, bytes(*memory)));
        }
        self.show_kinds(types, &mut text);
        self.sizes.show("Key size", 8, &mut text);
        text.push_str(&format!(
            "Note: 1% size precision, Mean: {}, StdDeviation: {}\n",
            bytes(self.sizes.mean() as u64),
            bytes(self.sizes.deviation() as u64)
        ));
        self.name_lengths.show("Key name length", 15, &mut text);
        text.push_str(&format!(
            "Total key length is {} ({} avg)\n",
            bytes(self.name_lengths.sum),
            bytes(self.name_lengths.mean() as u64)
        ));
        self.show_table(types, &mut text);
        text
    }

    fn show_kinds(&self, types: &Types, text: &mut String) {
        text.push_str("\n--- Top size per type ---\n");
        for (kind, counts) in &self.kinds {
            if let Some((size, key)) = &counts.largest {
                text.push_str(&format!(
                    "{:<10} {key} is {}\n",
                    types.get(*kind).name,
                    bytes(*size)
                ));
            }
        }
        text.push_str("\n--- Top length and cardinality per type ---\n");
        for (kind, counts) in &self.kinds {
            if let Some((length, key)) = &counts.longest {
                let kind = types.get(*kind);
                text.push_str(&format!(
                    "{:<10} {key} has {}\n",
                    kind.name,
                    counted(*length, kind.unit())
                ));
            }
        }
    }

    fn show_table(&self, types: &Types, text: &mut String) {
        text.push_str(TABLE_TITLES);
        for (kind, counts) in &self.kinds {
            let kind = types.get(*kind);
            let mean = counts.length as f64 / counts.count.max(1) as f64;
            let mean = match kind.unit() {
                "bytes" => bytes(mean as u64),
                _ => format!("{mean:.2}"),
            };
            text.push_str(&format!(
                "{:<9} {:>12} {:>6.2}% {:>8} {:>8} {:>18} {mean:>11}\n",
                kind.name,
                counts.count,
                counts.count as f64 * 100.0 / self.count.max(1) as f64,
                bytes(counts.memory),
                bytes(counts.memory / counts.count.max(1)),
                counted(counts.length, kind.unit())
            ));
        }
    }
}

/// Numbers, kept to one percent: a bucket for each power of 1.01.
#[derive(Default)]
struct Distribution {
    /// How many, and the largest, by bucket.
    buckets: BTreeMap<i32, (u64, u64)>,
    count: u64,
    sum: u64,
    sum_of_squares: f64,
}

impl Distribution {
    fn add(&mut self, value: u64) {
        let bucket = if value == 0 { -1 } else { ((value as f64).ln() / PRECISION.ln()) as i32 };
        let (count, largest) = self.buckets.entry(bucket).or_default();
        *count += 1;
        *largest = value.max(*largest);
        self.count += 1;
        self.sum += value;
        self.sum_of_squares += (value as f64).powi(2);
    }

    fn mean(&self) -> f64 {
        self.sum as f64 / self.count.max(1) as f64
    }

    fn deviation(&self) -> f64 {
        let variance = self.sum_of_squares / self.count.max(1) as f64 - self.mean().powi(2);
        variance.max(0.0).sqrt()
    }

    /// A line where each further half of what is left has been passed: 50, 75, 87.5 percent.
    fn show(&self, title: &str, width: usize, text: &mut String) {
        text.push_str(&format!("\n{title:<width$} Percentile Total keys\n"));
        text.push_str(&format!("{} ---------- -----------\n", "-".repeat(width)));
        let mut line = |value: u64, percent: f64, count: u64| {
            let value = bytes(value);
            text.push_str(&format!("{value:>width$} {percent:>9.4}% {count:>11}\n"));
        };
        let (mut passed, mut next) = (0, 0.0);
        let mut shown = 0;
        for (count, largest) in self.buckets.values() {
            passed += count;
            let percent = passed as f64 * 100.0 / self.count as f64;
            if percent >= next || passed == self.count {
                line(*largest, percent, passed);
                shown += 1;
                while next <= percent && next < PERCENT_MAX {
                    next += (100.0 - next) / 2.0;
                }
            }
        }
        if shown == 0 {
            line(0, 100.0, 0);
        }
    }
}

fn bytes(number: u64) -> String {
    human(i64::try_from(number).unwrap_or(i64::MAX))
}

fn counted(number: u64, unit: &str) -> String {
    if unit == "bytes" { bytes(number) } else { format!("{number} {unit}") }
}

const PRECISION: f64 = 1.01;
/// Steps towards 100 percent end here.
const PERCENT_MAX: f64 = 99.9999;

const TABLE_TITLES: &str = "
Type        Total keys  Keys % Tot size Avg size  Total length/card Avg ln/card
--------- ------------ ------- -------- -------- ------------------ -----------
";

const INTRODUCTION: &str = "
# Looking at the size and the length of all keys.
# With -i 0.1 it rests 0.1 seconds after every 100 SCANs. Ctrl-C shows what was seen so far.

";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions() {
        let mut distribution = Distribution::default();
        for value in 1..=100 {
            distribution.add(value);
        }
        distribution.add(0);
        assert_eq!((distribution.count, distribution.sum), (101, 5050));
        assert_eq!(distribution.deviation().round(), 29.0);
        let mut text = String::new();
        distribution.show("Size", 8, &mut text);
        assert!(text.contains("      0B    0.9901%           1\n"), "{text}");
        assert!(text.contains("     50B   50.4950%          51\n"), "{text}");
        assert!(text.ends_with("    100B  100.0000%         101\n"), "{text}");
    }

    #[test]
    fn the_largest_keys() {
        let mut statistics = Statistics { wanted: 2, ..Statistics::default() };
        for (key, memory) in [(b"a", 10), (b"b", 30), (b"c", 20)] {
            statistics.add(0, key, memory / 10, memory);
        }
        let text = statistics.show(&Types::known(), 3);
        assert!(
            text.contains("--- Top 2 key sizes ---\n  1      30B list       \"b\"\n"),
            "{text}"
        );
        assert!(text.contains("list       \"b\" has 3 items\n"), "{text}");
        assert!(text.contains("list                 3 100.00%      60B      20B"), "{text}");
    }
}
