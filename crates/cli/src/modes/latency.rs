//! `--latency` and `--latency-history`: how long PING takes.

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use super::server;
use crate::{format::ReplyForm, session::Session, terminal};

/// Measures until it is interrupted, or, where nobody watches, for one interval.
pub fn run(session: &mut Session) -> ExitCode {
    let form = session.options.style.form;
    let history = session.options.modes.latency_history;
    let interval = session.options.interval;
    let line_interval = interval.unwrap_or(HISTORY_INTERVAL);
    session.connect_or_exit();
    let mut start = Instant::now();
    let mut samples = Samples::default();
    loop {
        samples.add(ping(session));
        match form {
            ReplyForm::Tty => {
                terminal::command("\x1b[0G\x1b[2K");
                out!("{}", samples.show(form));
            }
            _ if history => out!("{}", samples.show(form)),
            _ if start.elapsed() > interval.unwrap_or(SINGLE_INTERVAL) => {
                out!("{}", samples.show(form));
                return ExitCode::SUCCESS;
            }
            _ => {}
        }
        if history && start.elapsed() > line_interval {
            out!(" -- {:.2} seconds range\n", start.elapsed().as_secs_f32());
            start = Instant::now();
            samples = Samples::default();
        }
        thread::sleep(PAUSE);
    }
}

/// The time of one PING.
pub fn ping(session: &mut Session) -> Duration {
    let start = Instant::now();
    server::ask_persistently(session, &["PING"]);
    start.elapsed()
}

/// In whole milliseconds, as redis-cli has it; `--latency-dist` looks closer.
#[derive(Default)]
struct Samples {
    min_ms: u128,
    max_ms: u128,
    sum_ms: u128,
    count: u64,
}

impl Samples {
    fn add(&mut self, latency: Duration) {
        let ms = latency.as_millis();
        self.min_ms = if self.count == 0 { ms } else { self.min_ms.min(ms) };
        self.max_ms = self.max_ms.max(ms);
        self.sum_ms += ms;
        self.count += 1;
    }

    fn show(&self, form: ReplyForm) -> String {
        let Self { min_ms: min, max_ms: max, count, .. } = self;
        let mean = self.sum_ms as f64 / (*count).max(1) as f64;
        match form {
            ReplyForm::Tty => format!("min: {min}, max: {max}, avg: {mean:.2} ({count} samples)"),
            ReplyForm::Csv => format!("{min},{max},{mean:.2},{count}\n"),
            ReplyForm::Raw => format!("{min} {max} {mean:.2} {count}\n"),
            ReplyForm::Json | ReplyForm::QuotedJson => {
                format!(
                    "{{\"min\": {min}, \"max\": {max}, \"avg\": {mean:.2}, \"count\": {count}}}\n"
                )
            }
        }
    }
}

/// Between two PINGs.
pub const PAUSE: Duration = Duration::from_millis(10);
const SINGLE_INTERVAL: Duration = Duration::from_secs(1);
const HISTORY_INTERVAL: Duration = Duration::from_secs(15);
