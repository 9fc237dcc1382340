//! `--lru-test`: a cache's workload, where a fifth of the keys gets four fifths of the requests.
//! With a `maxmemory` the share of hits shows what eviction keeps.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    process::ExitCode,
    time::{Duration, Instant},
};

use bobbin_client::RespClient;

use super::server;
use crate::session::Session;

/// Writes and reads until it is interrupted, with a line for each second.
pub fn run(session: &mut Session) -> ExitCode {
    let keys = session.options.modes.lru_keys;
    let client = session.connect_or_exit();
    let mut random = Random::new();
    loop {
        let start = Instant::now();
        let (mut hits, mut misses) = (0_u64, 0_u64);
        while start.elapsed() < CYCLE {
            write(client, keys, &mut random);
            read(client, keys, &mut random, &mut hits, &mut misses);
        }
        let total = hits + misses;
        let share = |count: u64| count as f64 * 100.0 / total.max(1) as f64;
        out!(
            "{total} Gets/sec | Hits: {hits} ({:.2}%) | Misses: {misses} ({:.2}%)\n",
            share(hits),
            share(misses)
        );
    }
}

fn write(client: &mut RespClient, keys: u64, random: &mut Random) {
    for _ in 0..PIPELINE {
        let value: String = (0..VALUE_LEN).map(|_| random.letter()).collect();
        client.send(&["SET", &key(keys, random), &value]);
    }
    // Out of memory is what one may want to see here: it is no reason to end.
    for _ in 0..PIPELINE {
        server::receive(client);
    }
}

fn read(client: &mut RespClient, keys: u64, random: &mut Random, hits: &mut u64, misses: &mut u64) {
    for _ in 0..PIPELINE {
        client.send(&["GET", &key(keys, random)]);
    }
    for _ in 0..PIPELINE {
        let reply = server::receive(client);
        if let Some(text) = reply.as_error() {
            complain!("{}", String::from_utf8_lossy(text));
        } else if reply.is_null() {
            *misses += 1;
        } else {
            *hits += 1;
        }
    }
}

fn key(keys: u64, random: &mut Random) -> String {
    format!("lru:{}", power_law(keys, random.unit()))
}

/// From 1 to `max`, small numbers more often, by a power law: with this exponent a fifth of the
/// numbers gets four fifths of the draws. `unit` is from 0 to 1.
fn power_law(max: u64, unit: f64) -> u64 {
    let top = (max as f64 + 1.0).powf(EXPONENT + 1.0);
    let drawn = ((top - 1.0) * unit + 1.0).powf(1.0 / (EXPONENT + 1.0));
    max - (drawn as u64 - 1).min(max - 1)
}

/// SplitMix64: good enough for a workload.
struct Random(u64);

impl Random {
    fn new() -> Self {
        Self(RandomState::new().build_hasher().finish())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn letter(&mut self) -> char {
        char::from(b'A' + (self.next() % 26) as u8)
    }
}

const EXPONENT: f64 = 6.2;
const CYCLE: Duration = Duration::from_secs(1);
const PIPELINE: usize = 250;
const VALUE_LEN: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_keys_gets_most() {
        let mut random = Random(1);
        let draws: Vec<u64> = (0..10_000).map(|_| power_law(1000, random.unit())).collect();
        assert!(draws.iter().all(|draw| (1..=1000).contains(draw)));
        let popular = draws.iter().filter(|&&draw| draw <= 200).count();
        assert!((7_500..8_500).contains(&popular), "{popular}");
        assert_eq!(power_law(1, 0.999_999), 1);
    }
}
