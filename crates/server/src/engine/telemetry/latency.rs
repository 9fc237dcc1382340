//! The latency monitor: for each kind of event, when it last took long and how long.

use std::collections::{BTreeMap, VecDeque};

use bobbin_sync::Mutex;

use crate::base::clock::system_ms;
use crate::config::Config;

/// The last slow events of each kind. Its lock is taken only for events that reach the limit.
#[derive(Default)]
pub struct LatencyMonitor {
    series: Mutex<BTreeMap<&'static str, Series>>,
}

/// The kinds of events. They have Redis's names where Redis has the event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LatencyEvent {
    ActiveDefragCycle,
    AofFsyncAlways,
    AofRename,
    AofWrite,
    AofWriteActiveChild,
    AofWriteAlone,
    AofWritePendingFsync,
    Command,
    Cut,
    EvictionCycle,
    ExpireCycle,
    FastCommand,
    RdbUnlinkTempFile,
}

/// The samples of one kind of event.
#[derive(Default, Clone, Debug)]
pub struct Series {
    /// At most one sample for each second, the oldest first.
    pub samples: VecDeque<LatencySample>,
    /// Milliseconds of the longest event since the last reset, and of all events together.
    pub max_ms: u64,
    pub sum_ms: u64,
    /// The number of events since the last reset.
    pub count: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LatencySample {
    /// Unix time in seconds.
    pub time_s: i64,
    pub latency_ms: u64,
}

impl LatencyMonitor {
    /// Notes an event that took `us` microseconds, if that reaches `latency-monitor-threshold`.
    #[cold]
    pub fn sample(&self, config: &Config, event: LatencyEvent, us: u64) {
        let (threshold_ms, latency_ms) = (config.latency_monitor_threshold() as u64, us / 1000);
        if threshold_ms == 0 || latency_ms < threshold_ms {
            return;
        }
        let sample = LatencySample { time_s: system_ms() / 1000, latency_ms };
        self.series.lock().entry(event.name()).or_default().add(sample);
    }

    pub fn all(&self) -> Vec<(&'static str, Series)> {
        self.series.lock().iter().map(|(event, series)| (*event, series.clone())).collect()
    }

    /// The series of an event, by its exact name.
    pub fn find(&self, event: &[u8]) -> Option<Series> {
        let series = self.series.lock();
        let event = std::str::from_utf8(event).ok()?;
        series.get(event).cloned()
    }

    /// Forgets everything; returns the number of series.
    pub fn reset_all(&self) -> usize {
        std::mem::take(&mut *self.series.lock()).len()
    }

    /// Forgets a series; returns whether there was one.
    pub fn reset(&self, event: &[u8]) -> bool {
        let Ok(event) = std::str::from_utf8(event) else { return false };
        self.series.lock().remove(event).is_some()
    }
}

impl LatencyEvent {
    /// All kinds, ordered by name.
    pub const ALL: [Self; 13] = [
        Self::ActiveDefragCycle,
        Self::AofFsyncAlways,
        Self::AofRename,
        Self::AofWrite,
        Self::AofWriteActiveChild,
        Self::AofWriteAlone,
        Self::AofWritePendingFsync,
        Self::Command,
        Self::Cut,
        Self::EvictionCycle,
        Self::ExpireCycle,
        Self::FastCommand,
        Self::RdbUnlinkTempFile,
    ];

    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// A sentence that says what took long.
    pub const fn help(self) -> &'static str {
        self.row().1
    }

    const fn row(self) -> (&'static str, &'static str) {
        match self {
            Self::ActiveDefragCycle => {
                ("active-defrag-cycle", "A shard held to move blocks of memory together.")
            }
            Self::AofFsyncAlways => {
                ("aof-fsync-always", "An fsync of the log with `appendfsync always`.")
            }
            Self::AofRename => {
                ("aof-rename", "Giving a new base of the log its name, after a rewrite.")
            }
            Self::AofWrite => ("aof-write", "Any write to the log; one of the next three as well."),
            Self::AofWriteActiveChild => (
                "aof-write-active-child",
                "A write to the log while a snapshot or a new base was written.",
            ),
            Self::AofWriteAlone => {
                ("aof-write-alone", "A write to the log while nothing else used the disk.")
            }
            Self::AofWritePendingFsync => {
                ("aof-write-pending-fsync", "A write to the log while an fsync of it went on.")
            }
            Self::Command => {
                ("command", "A command, or a script, that does not have the flag `fast`.")
            }
            Self::Cut => ("cut", "Beginning a snapshot: all threads stand still for it."),
            Self::EvictionCycle => ("eviction-cycle", "A round of evictions."),
            Self::ExpireCycle => ("expire-cycle", "A slice of taking out expired keys."),
            Self::FastCommand => ("fast-command", "A command with the flag `fast`."),
            Self::RdbUnlinkTempFile => {
                ("rdb-unlink-temp-file", "Removing the file of a snapshot that was not finished.")
            }
        }
    }
}

impl Series {
    fn add(&mut self, sample: LatencySample) {
        self.max_ms = self.max_ms.max(sample.latency_ms);
        self.sum_ms += sample.latency_ms;
        self.count += 1;
        match self.samples.back_mut() {
            Some(last) if last.time_s == sample.time_s => {
                last.latency_ms = last.latency_ms.max(sample.latency_ms);
            }
            _ => {
                if self.samples.len() == SAMPLES_MAX {
                    self.samples.pop_front();
                }
                self.samples.push_back(sample);
            }
        }
    }

    /// Milliseconds of the shortest and of the longest kept sample.
    pub fn range_ms(&self) -> (u64, u64) {
        let latencies = || self.samples.iter().map(|sample| sample.latency_ms);
        (latencies().min().unwrap_or(0), latencies().max().unwrap_or(0))
    }

    /// The mean of the samples, and their mean distance from it, in milliseconds.
    pub fn mean_ms(&self) -> (f64, f64) {
        let count = self.samples.len().max(1) as f64;
        let mean = self.samples.iter().map(|s| s.latency_ms as f64).sum::<f64>() / count;
        let distance = self.samples.iter().map(|s| (s.latency_ms as f64 - mean).abs());
        (mean, distance.sum::<f64>() / count)
    }

    /// A drawing of the samples: a column for each, with its age below, written from top to bottom.
    pub fn graph(&self, event: &str, now_s: i64) -> String {
        let (low, high) = self.range_ms();
        let all_time = self.max_ms;
        let mut graph = format!(
            "{event} - high {high} ms, low {low} ms (all time high {all_time} ms)\n{}\n",
            "-".repeat(80)
        );
        let shown = self.samples.iter().skip(self.samples.len().saturating_sub(GRAPH_COLUMNS));
        let columns: Vec<(usize, Vec<char>)> = shown
            .map(|sample| {
                let above = (sample.latency_ms - low) as usize;
                let height = above * (GRAPH_STEPS - 1) / ((high - low).max(1) as usize);
                (height, age(now_s - sample.time_s).chars().collect())
            })
            .collect();
        for row in (0..GRAPH_ROWS).rev() {
            let cell = |height: usize| match (height + 1).saturating_sub(row * MARKS.len()) {
                0 => ' ',
                steps => MARKS[steps.min(MARKS.len()) - 1],
            };
            line(&mut graph, columns.iter().map(|(height, _)| cell(*height)));
        }
        graph.push('\n');
        let depth = columns.iter().map(|(_, age)| age.len()).max().unwrap_or(0);
        for row in 0..depth {
            let cell = |age: &Vec<char>| age.get(row).copied().unwrap_or(' ');
            line(&mut graph, columns.iter().map(|(_, age)| cell(age)));
        }
        graph
    }
}

fn line(text: &mut String, cells: impl Iterator<Item = char>) {
    let cells: String = cells.collect();
    text.push_str(cells.trim_end());
    text.push('\n');
}

/// `5s`, `3m`, `2h`, `1d`.
fn age(seconds: i64) -> String {
    match seconds {
        s if s < 60 => format!("{s}s"),
        s if s < 3600 => format!("{}m", s / 60),
        s if s < 86_400 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

/// The most samples that are kept of each kind of event.
const SAMPLES_MAX: usize = 160;
const GRAPH_COLUMNS: usize = 80;
const GRAPH_ROWS: usize = 4;
/// The marks of a row: filled by a third, two thirds, or wholly.
const MARKS: [char; 3] = ['_', 'o', '#'];
const GRAPH_STEPS: usize = GRAPH_ROWS * MARKS.len();

#[cfg(test)]
mod tests {
    use super::*;

    fn series(samples: &[(i64, u64)]) -> Series {
        let mut series = Series::default();
        for &(time_s, latency_ms) in samples {
            series.add(LatencySample { time_s, latency_ms });
        }
        series
    }

    #[test]
    fn one_sample_for_each_second_and_the_newest_of_them() {
        let kept = series(&[(1, 5), (1, 9), (1, 7), (2, 3)]);
        let expected =
            [(1, 9), (2, 3)].map(|(time_s, latency_ms)| LatencySample { time_s, latency_ms });
        assert_eq!(kept.samples, expected);
        assert_eq!((kept.max_ms, kept.range_ms()), (9, (3, 9)));
        assert_eq!((kept.sum_ms, kept.count), (24, 4));
        let many: Vec<_> = (0..500).map(|at| (at, 1)).collect();
        assert_eq!(series(&many).samples.len(), SAMPLES_MAX);
    }

    #[test]
    fn a_graph_shows_the_highest_at_the_top() {
        let graph = series(&[(0, 300), (30, 400), (90, 500)]).graph("command", 100);
        let lines: Vec<_> = graph.lines().collect();
        assert_eq!(lines[0], "command - high 500 ms, low 300 ms (all time high 500 ms)");
        assert_eq!(&lines[2..], ["  #", "  #", " ##", "_##", "", "111", "mm0", "  s"]);
    }
}
