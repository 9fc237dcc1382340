//! `--intrinsic-latency`: how long the system keeps a process waiting that only computes. No server
//! can be quicker than that.

use std::{
    hint::black_box,
    process::ExitCode,
    time::{Duration, Instant},
};

use crate::{interrupt, session::Session};

/// Computes for the wanted time and reports the longest gaps.
pub fn run(session: &mut Session) -> ExitCode {
    let wanted = Duration::from_secs(session.options.modes.intrinsic_seconds);
    let hold = interrupt::hold();
    let start = Instant::now();
    let (mut longest, mut runs, mut elapsed) = (Duration::ZERO, 0_u64, Duration::ZERO);
    while elapsed < wanted && !hold.is_pressed() {
        black_box(compute());
        let now = start.elapsed();
        let took = now - elapsed;
        elapsed = now;
        runs += 1;
        if took.as_micros() > longest.as_micros() {
            longest = took;
            out!("Max latency so far: {} microseconds.\n", took.as_micros());
        }
    }
    let mean_us = elapsed.as_secs_f64() * 1e6 / runs.max(1) as f64;
    out!(
        "\n{runs} total runs (avg latency: {mean_us:.4} microseconds / {:.2} nanoseconds per \
         run).\n",
        mean_us * 1e3
    );
    let times = longest.as_secs_f64() * 1e6 / mean_us.max(f64::MIN_POSITIVE);
    out!("Worst run took {times:.0}x longer than the average latency.\n");
    ExitCode::SUCCESS
}

/// A few microseconds of work that needs nothing from the system.
fn compute() -> u64 {
    (0..ROUNDS).fold(SEED, |state, round| {
        let mixed = state.rotate_left(5) ^ black_box(round);
        mixed.wrapping_mul(SEED)
    })
}

const ROUNDS: u64 = 1000;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
