//! A distribution of latencies as a small chart of text, on a logarithmic scale: the many requests
//! that were quick and the few that were not are both there to see.

use crate::engine::LatencyHistogram;

/// Three rows of columns, the scale in milliseconds, and where two percentiles are. Empty where
/// nothing was measured.
pub fn chart(latencies: &LatencyHistogram) -> String {
    if latencies.is_empty() {
        return String::new();
    }
    let scale = Scale::new(latencies.min().max(1) as f64, latencies.max().max(1) as f64);
    let mut counts = [0_u64; WIDTH];
    for step in latencies.iter_recorded() {
        counts[scale.column(step.value_iterated_to() as f64)] += step.count_since_last_iteration();
    }
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    let mut text = String::new();
    for row in (0..HEIGHT).rev() {
        let line: String = counts.iter().map(|&count| block(count, most, row)).collect();
        text += &format!("{INDENT}{}", line.trim_end());
        if row == HEIGHT - 1 {
            let share = most as f64 / latencies.len() as f64 * 100.0;
            let gap = WIDTH.saturating_sub(line.trim_end().chars().count()) + 2;
            text += &format!("{:gap$}{share:.0}%", "");
        }
        text.push('\n');
    }
    text += &format!("{INDENT}{}  ms\n", labels(scale.ticks()));
    let at = |quantile| scale.column(latencies.value_at_quantile(quantile) as f64);
    let percentiles = [(0.5, "^p50"), (0.99, "^p99")];
    let marks = percentiles.map(|(quantile, name)| (at(quantile), name.to_owned()));
    text + &format!("{INDENT}{}\n", labels(marks.into()).trim_end())
}

/// From nanoseconds to columns.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn new(low: f64, high: f64) -> Self {
        // Where all took as long, they stand in the middle.
        if high / low < NARROW {
            Self { low: low / 2.0, high: high * 2.0 }
        } else {
            Self { low, high }
        }
    }

    fn column(&self, value: f64) -> usize {
        let share = (value / self.low).ln() / (self.high / self.low).ln();
        // A bucket's end may be beyond the highest value.
        ((share * WIDTH as f64).max(0.0) as usize).min(WIDTH - 1)
    }

    /// Columns of 1, 2, 5, 10, ... and what stands there, in milliseconds.
    fn ticks(&self) -> Vec<(usize, String)> {
        let mut ticks = Vec::new();
        let mut power = 10_f64.powf(self.low.log10().floor());
        while power <= self.high {
            for factor in [1.0, 2.0, 5.0] {
                let value = power * factor;
                if (self.low..=self.high).contains(&value) {
                    ticks.push((self.column(value), milliseconds(value)));
                }
            }
            power *= 10.0;
        }
        ticks
    }
}

/// Words at their columns, as far as there is room for them.
fn labels(words: Vec<(usize, String)>) -> String {
    let mut line = String::new();
    for (column, word) in words {
        let has_room = line.is_empty() || line.len() + 2 <= column;
        if has_room && column + word.len() <= WIDTH + 4 {
            line = format!("{line:column$}{word}");
        }
    }
    format!("{line:WIDTH$}")
}

/// What one row shows of a column. A column that is not empty is seen.
fn block(count: u64, most: u64, row: usize) -> char {
    let eighths = (count as f64 / most as f64 * (HEIGHT * 8) as f64).round() as usize;
    let eighths = if count > 0 { eighths.max(1) } else { 0 };
    BLOCKS[eighths.saturating_sub(row * 8).min(8)]
}

fn milliseconds(nanoseconds: f64) -> String {
    let ms = nanoseconds / 1e6;
    // 0.0001 is a tenth of a microsecond.
    let text = format!("{ms:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

const INDENT: &str = "  ";
const WIDTH: usize = 60;
const HEIGHT: usize = 3;
/// A scale that spans less than this is widened.
const NARROW: f64 = 1.01;
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::latencies;

    #[test]
    fn most_requests_and_the_slow_few() {
        let mut seen = latencies();
        seen.record_n(100_000, 980).unwrap();
        seen.record_n(1_000_000, 19).unwrap();
        seen.record(10_000_000).unwrap();
        let text = chart(&seen);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), HEIGHT + 2, "{text}");
        assert_eq!(lines[0].trim_end(), format!("  █{:61}98%", ""), "{text}");
        // Two decades on 60 columns: 1 ms is at the 30th, 10 ms at the last.
        assert_eq!(lines[2], format!("  █{:29}▁{:28}▁", "", ""), "{text}");
        assert!(lines[3].contains("0.1") && lines[3].ends_with("ms"), "{text}");
        assert_eq!(lines[3].find(" 1 "), Some(31), "{text}");
        assert_eq!(lines[4].find("^p50"), Some(2), "{text}");
        assert_eq!(lines[4].find("^p99"), Some(32), "{text}");
    }

    #[test]
    fn nothing_and_all_the_same() {
        assert_eq!(chart(&latencies()), "");
        let mut seen = latencies();
        seen.record_n(1, 5).unwrap();
        assert!(chart(&seen).contains("100%"));
        let mut seen = latencies();
        seen.record_n(50_000, 7).unwrap();
        let text = chart(&seen);
        assert_eq!(text.matches('█').count(), HEIGHT, "{text}");
    }
}
