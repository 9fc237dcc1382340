//! `--keystats`: memory and length of all keys: the largest, and how sizes are distributed.

use std::{collections::BTreeMap, process::ExitCode};

use super::{
    big_keys::CYCLES_BETWEEN_PAUSES,
    keys::{Types, plain},
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
    name_lengths: NameLengths,
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
        if memory > of_kind.largest.as_ref().map_or(0, |(largest, _)| *largest) {
            of_kind.largest = Some((memory, named(key)));
        }
        if length > of_kind.longest.as_ref().map_or(0, |(longest, _)| *longest) {
            of_kind.longest = Some((length, named(key)));
        }
    }

    fn show(&self, types: &Types, total: u64) -> String {
        let percent =
            if total == 0 { 0.0 } else { (self.count as f64 * 100.0 / total as f64).min(100.0) };
        let mut text = format!(
            "{percent:>6.2}% keys scanned\nKeys sampled: {}\nKeys size:    {}\n\n",
            self.count,
            bytes(self.sizes.sum)
        );
        text.push_str(&format!("--- Top {} key sizes ---\n", self.wanted));
        for (place, (memory, kind, key)) in self.top.iter().enumerate() {
            let name = &types.get(*kind).name;
            text.push_str(&format!("{:>3} {:>8} {name:<10} {key}\n", place + 1, bytes(*memory)));
        }
        self.show_kinds(types, &mut text);
        self.sizes.show(&mut text);
        text.push_str(&format!(
            "Note: 0.01% size precision, Mean: {}, StdDeviation: {}\n",
            bytes(self.sizes.mean() as u64),
            bytes(self.sizes.deviation() as u64)
        ));
        self.name_lengths.show(&mut text);
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
            let (length, mean) = match kind.unit() {
                // With the blank that redis-cli has there.
                _ if !kind.has_length() => ("- ".to_owned(), "- ".to_owned()),
                "bytes" => (bytes(counts.length), bytes(mean.round() as u64)),
                unit => (counted(counts.length, unit), format!("{mean:.2}")),
            };
            text.push_str(&format!(
                "{:<9} {:>12} {:>6.2}% {:>8} {:>8} {length:>18} {mean:>11}\n",
                kind.name,
                counts.count,
                counts.count as f64 * 100.0 / self.count.max(1) as f64,
                bytes(counts.memory),
                bytes(counts.memory / counts.count.max(1)),
            ));
        }
    }
}

/// Numbers, kept to 0.01 percent as redis-cli's histogram keeps them: below 32,768 as they are,
/// above that by the first fifteen of their binary digits.
#[derive(Default)]
struct Distribution {
    /// How many there are, by the least number that is kept as this one.
    counts: BTreeMap<u64, u64>,
    count: u64,
    sum: u64,
}

impl Distribution {
    fn add(&mut self, value: u64) {
        *self.counts.entry(value - value % step(value)).or_default() += 1;
        self.count += 1;
        self.sum += value;
    }

    /// Of the numbers as they are kept, like the deviation.
    fn mean(&self) -> f64 {
        let sums = self.counts.iter().map(|(least, count)| u128::from(middle(*least) * count));
        sums.sum::<u128>() as f64 / self.count.max(1) as f64
    }

    fn deviation(&self) -> f64 {
        let mean = self.mean();
        let square = |least: u64| (middle(least) as f64 - mean).powi(2);
        let squares = self.counts.iter().map(|(least, count)| square(*least) * *count as f64);
        (squares.sum::<f64>() / self.count.max(1) as f64).sqrt()
    }

    /// A line where each further half of what is left has been passed: 0, 50, 75, 87.5 percent.
    /// The line tells the first of those that its number has passed, the last one 100.
    fn show(&self, text: &mut String) {
        text.push_str("\nKey size Percentile Total keys\n");
        text.push_str("-------- ---------- -----------\n");
        let (mut passed, mut next) = (0, 0.0);
        for (least, count) in &self.counts {
            passed += count;
            let percent = passed as f64 * 100.0 / self.count as f64;
            if percent < next {
                continue;
            }
            let is_last = passed == self.count;
            let shown = if is_last { 100.0 } else { next };
            let largest = bytes(least + step(*least) - 1);
            text.push_str(&format!("{largest:>8} {shown:>9.4}% {passed:>11}\n"));
            while next <= percent && !is_last {
                next += (100.0 - next) / 2.0;
            }
        }
    }
}

/// How many numbers are kept as one where this number is among them.
fn step(value: u64) -> u64 {
    1 << (u64::BITS - value.leading_zeros()).saturating_sub(DIGITS_KEPT)
}

fn middle(least: u64) -> u64 {
    least + step(least) / 2
}

/// How long the names of keys are, in redis-cli's few classes.
#[derive(Default)]
struct NameLengths {
    counts: [u64; NAME_LENGTHS.len()],
    count: u64,
    sum: u64,
    longest: u64,
}

impl NameLengths {
    fn add(&mut self, len: u64) {
        // No name is longer than the last class allows.
        let class = NAME_LENGTHS.iter().position(|longest| len <= *longest);
        self.counts[class.unwrap_or(NAME_LENGTHS.len() - 1)] += 1;
        self.count += 1;
        self.sum += len;
        self.longest = self.longest.max(len);
    }

    fn show(&self, text: &mut String) {
        text.push_str("\nKey name length Percentile Total keys\n");
        text.push_str("--------------- ---------- -----------\n");
        let mut passed = 0;
        for (longest, count) in NAME_LENGTHS.iter().zip(self.counts) {
            passed += count;
            if count > 0 {
                let longest = bytes(self.longest.min(*longest));
                let percent = passed as f64 * 100.0 / self.count as f64;
                text.push_str(&format!("{longest:>15} {percent:>9.4}% {passed:>11}\n"));
            }
        }
        let mean = self.sum.checked_div(self.count).map_or_else(|| "0".to_owned(), bytes);
        text.push_str(&format!("Total key length is {} ({mean} avg)\n", bytes(self.sum)));
    }
}

/// A key in a sentence: without quotes, unless that would not be a text in one line.
fn named(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) if !text.contains(char::is_control) => text.to_owned(),
        _ => plain(key),
    }
}

fn bytes(number: u64) -> String {
    human(i64::try_from(number).unwrap_or(i64::MAX))
}

fn counted(number: u64, unit: &str) -> String {
    if unit == "bytes" { bytes(number) } else { format!("{number} {unit}") }
}

const DIGITS_KEPT: u32 = 15;
/// The longest names of each class.
const NAME_LENGTHS: [u64; 4] = [32, 256, 64 << 10, 4 << 30];

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
        distribution.show(&mut text);
        let lines = "\
      0B    0.0000%           1
     50B   50.0000%          51
     75B   75.0000%          76
     88B   87.5000%          89
     94B   93.7500%          95
     97B   96.8750%          98
     99B   98.4375%         100
    100B  100.0000%         101
";
        assert!(text.ends_with(lines), "{text}");
    }

    #[test]
    fn many_of_one_size_have_one_line() {
        let mut distribution = Distribution::default();
        for value in [64, 64, 64, 64, 64, 64, 64, 64, 64, 40_000_001] {
            distribution.add(value);
        }
        let mut text = String::new();
        distribution.show(&mut text);
        let lines = "      64B    0.0000%           9\n  38.15M  100.0000%          10\n";
        assert!(text.ends_with(&lines[1..]), "{text}");
        // Of 26 binary digits 15 are kept: numbers are the same within steps of 2048.
        assert_eq!(step(40_000_001), 2048);
        assert_eq!(distribution.counts.keys().copied().last(), Some(39_999_488));
        assert_eq!((step(0), step(32_767), step(32_768), step(u64::MAX)), (1, 1, 2, 1 << 49));
    }

    #[test]
    fn lengths_of_names() {
        let mut lengths = NameLengths::default();
        for len in [0, 1, 32, 33, 256, 257, 300] {
            lengths.add(len);
        }
        let mut text = String::new();
        lengths.show(&mut text);
        let lines = "\
            32B   42.8571%           3
           256B   71.4286%           5
           300B  100.0000%           7
Total key length is 879B (125B avg)
";
        assert!(text.ends_with(lines), "{text}");
    }

    #[test]
    fn nothing_to_tell_of() {
        let text = Statistics::default().show(&Types::known(), 0);
        assert!(text.starts_with("  0.00% keys scanned\nKeys sampled: 0\n"), "{text}");
        assert!(text.contains("Mean: 0B, StdDeviation: 0B\n"), "{text}");
        assert!(text.contains("Total key length is 0B (0 avg)\n"), "{text}");
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
        assert!(text.contains("list       b is 30B\n"), "{text}");
        assert!(text.contains("list       b has 3 items\n"), "{text}");
        assert!(text.contains("list                 3 100.00%      60B      20B"), "{text}");
    }

    #[test]
    fn keys_in_sentences_take_no_lines() {
        for (key, shown) in [
            (&b"a b\"\\"[..], "a b\"\\"),
            ("\u{e4}".as_bytes(), "\u{e4}"),
            (b"a\nlist       b is 1B", r"a\nlist       b is 1B"),
            (b"\x1b[2J\"", r#"\x1b[2J\""#),
            (b"\xff", r"\xff"),
        ] {
            assert_eq!(named(key), shown);
        }
    }
}
