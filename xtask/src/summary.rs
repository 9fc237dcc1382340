//! The steps of a run, how long each took, and what came of it.

use std::time::{Duration, Instant};

use crate::shell::TaskResult;

#[derive(Default)]
pub(crate) struct Summary {
    lines: Vec<String>,
    failed: usize,
    total: Duration,
}

impl Summary {
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce() -> TaskResult) {
        println!("\n=== {name}");
        let start = Instant::now();
        let outcome = work();
        let took = start.elapsed();
        self.total += took;
        let word = match outcome {
            Ok(()) => "ok",
            Err(error) => {
                println!("{error}");
                self.failed += 1;
                "FAILED"
            }
        };
        let seconds = took.as_secs_f64();
        println!("=== {name}: {word}, {seconds:.1} s");
        self.lines.push(format!("{word:8} {seconds:7.1} s  {name}"));
    }

    pub(crate) fn skip(&mut self, name: &str, reason: &str) {
        println!("\n=== {name}: SKIPPED, {reason}");
        self.lines.push(format!("{:8} {:>9}  {name}: {reason}", "SKIPPED", ""));
    }

    /// Adds a line that fails nothing.
    pub(crate) fn note(&mut self, line: &str) {
        println!("{line}");
        self.lines.push(line.to_owned());
    }

    pub(crate) fn finish(self) -> TaskResult {
        println!("\n=== summary");
        for line in &self.lines {
            println!("{line}");
        }
        println!("{:8} {:7.1} s", "all", self.total.as_secs_f64());
        match self.failed {
            0 => Ok(()),
            count => Err(format!("{count} steps failed")),
        }
    }
}
