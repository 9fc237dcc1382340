//! `--latency-dist`: the distribution of latencies as one line of coloured characters after the
//! other.

use std::{process::ExitCode, thread, time::Instant};

use super::latency::{PAUSE, ping};
use crate::session::Session;

/// Draws until it is interrupted.
pub fn run(session: &mut Session) -> ExitCode {
    let palette: &[u8] = if session.options.modes.monochrome { &GREYS } else { &COLOURS };
    let interval = session.options.interval.unwrap_or(INTERVAL);
    session.connect_or_exit();
    let mut counts = [0_u64; BUCKETS.len()];
    let mut start = Instant::now();
    let mut lines = 0;
    loop {
        counts[bucket(ping(session).as_micros())] += 1;
        if start.elapsed() > interval {
            if lines % LINES_BETWEEN_LEGENDS == 0 {
                out!("{}", legend(palette));
            }
            lines += 1;
            out!("{}", spectrum(&counts, palette));
            counts = [0; BUCKETS.len()];
            start = Instant::now();
        }
        thread::sleep(PAUSE);
    }
}

/// Latencies up to a limit, in microseconds, and the character that stands for them. The scale is
/// redis-cli's: roughly logarithmic, finer from 1 to 10 milliseconds.
const BUCKETS: [(u128, char); 31] = [
    (10, '.'),
    (125, '-'),
    (250, '*'),
    (500, '#'),
    (1_000, '1'),
    (2_000, '2'),
    (3_000, '3'),
    (4_000, '4'),
    (5_000, '5'),
    (6_000, '6'),
    (7_000, '7'),
    (8_000, '8'),
    (9_000, '9'),
    (10_000, 'A'),
    (20_000, 'B'),
    (30_000, 'C'),
    (40_000, 'D'),
    (50_000, 'E'),
    (100_000, 'F'),
    (200_000, 'G'),
    (300_000, 'H'),
    (400_000, 'I'),
    (500_000, 'J'),
    (1_000_000, 'K'),
    (2_000_000, 'L'),
    (4_000_000, 'M'),
    (8_000_000, 'N'),
    (16_000_000, 'O'),
    (30_000_000, 'P'),
    (60_000_000, 'Q'),
    (u128::MAX, '?'),
];

fn bucket(micros: u128) -> usize {
    BUCKETS.iter().position(|(max, _)| micros <= *max).unwrap_or(BUCKETS.len() - 1)
}

/// Each character on the colour that its share of all samples has.
fn spectrum(counts: &[u64; BUCKETS.len()], palette: &[u8]) -> String {
    let total = counts.iter().sum::<u64>().max(1) as f64;
    let mut line = String::from("\x1b[38;5;0m");
    for ((_, character), count) in BUCKETS.iter().zip(counts) {
        let share = *count as f64 / total;
        let colour = palette[(share * (palette.len() - 1) as f64).ceil() as usize];
        line.push_str(&format!("\x1b[48;5;{colour}m{character}"));
    }
    line.push_str("\x1b[0m\n");
    line
}

fn legend(palette: &[u8]) -> String {
    let colours: String = palette.iter().map(|colour| format!("\x1b[48;5;{colour}m ")).collect();
    format!("{LEGEND}From 0 to 100%: {colours}\x1b[0m\n{RULE}")
}

const RULE: &str = "---------------------------------------------\n";
const LEGEND: &str = "\
---------------------------------------------
. - * #          up to 10, 125, 250, 500   us
1 2 3 ... 9      up to 1 to 9              ms
A B C D E        up to 10, 20, 30, 40, 50  ms
F G H I J        up to .1, .2, .3, .4, .5  s
K L M N O P Q ?  up to 1 2 4 8 16 30 60, more
";

const INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);
const LINES_BETWEEN_LEGENDS: u64 = 20;

/// Numbers of xterm's 256 colours, from few to many.
const COLOURS: [u8; 19] =
    [0, 233, 234, 235, 237, 239, 241, 243, 245, 247, 144, 143, 142, 184, 226, 214, 208, 202, 196];
const GREYS: [u8; 13] = [0, 233, 234, 235, 237, 239, 241, 243, 245, 247, 249, 251, 253];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_end_at_their_limit() {
        for (micros, character) in [(0, '.'), (10, '.'), (11, '-'), (1_001, '2'), (60_000_001, '?')]
        {
            assert_eq!(BUCKETS[bucket(micros)].1, character, "{micros}");
        }
    }

    #[test]
    fn colours_follow_the_share() {
        let mut counts = [0; BUCKETS.len()];
        counts[0] = 1;
        let line = spectrum(&counts, &COLOURS);
        assert!(line.starts_with("\x1b[38;5;0m\x1b[48;5;196m.\x1b[48;5;0m-"), "{line:?}");
    }
}
