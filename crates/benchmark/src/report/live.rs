//! The line that shows how a run is going. It is written over and over, so only on a terminal.

use std::io::{IsTerminal, Write};

use super::quantile_ms;
use crate::engine::LoadProgress;

/// A line at the end of the screen; it is wiped when this is dropped.
#[derive(Debug)]
pub struct Live {
    title: String,
    shown: bool,
}

impl Live {
    /// Nothing when the output is no terminal.
    pub fn new(title: &str, hidden: bool) -> Option<Self> {
        let title = title.chars().take(TITLE_LEN_MAX).collect();
        (!hidden && std::io::stdout().is_terminal()).then_some(Self { title, shown: false })
    }

    pub fn show(&mut self, progress: &LoadProgress) {
        let width = rustix::termios::tcgetwinsize(std::io::stdout())
            .map_or(WIDTH_DEFAULT, |size| usize::from(size.ws_col).max(1));
        let mut line = line(&self.title, progress);
        line.truncate(width - 1);
        say!("\r{line:<width$}", width = width - 1);
        let _ = std::io::stdout().flush();
        self.shown = true;
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.shown {
            say!("\r\x1b[K");
            let _ = std::io::stdout().flush();
        }
    }
}

/// ASCII, so that it can be cut anywhere.
fn line(title: &str, progress: &LoadProgress) -> String {
    let quantile = |quantile| quantile_ms(&progress.latencies, quantile);
    let full = (progress.done * BAR_LEN as f64) as usize;
    format!(
        "{}: [{}{}] {:3.0}%  {:.0}/s (overall {:.0}/s)  p50={:.3} p99={:.3} p99.9={:.3} msec",
        title.escape_default(),
        "#".repeat(full),
        ".".repeat(BAR_LEN - full),
        progress.done * 100.0,
        progress.rate_now,
        progress.rate,
        quantile(0.5),
        quantile(0.99),
        quantile(0.999)
    )
}

const BAR_LEN: usize = 20;
const TITLE_LEN_MAX: usize = 30;
const WIDTH_DEFAULT: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::latencies;
    use std::time::Duration;

    #[test]
    fn the_line_has_rate_percentiles_and_bar() {
        let mut seen = latencies();
        seen.record_n(1_000_000, 99).unwrap();
        seen.record(5_000_000).unwrap();
        let progress = LoadProgress {
            elapsed: Duration::from_secs(1),
            done: 0.5,
            requests: 100,
            rate: 100.0,
            rate_now: 120.0,
            latencies: seen,
        };
        let line = line("GET", &progress);
        assert!(line.starts_with("GET: [##########..........]  50%  120/s (overall 100/s)"));
        assert!(line.contains("p50=1.0") && line.contains("p99.9=5.0"), "{line}");
    }
}
