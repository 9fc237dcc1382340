//! Damaged DUMP payloads: the short and repeatable form of the fuzz target `dump_payload`.

mod payloads;

use payloads::{PayloadBench, PayloadOutcome};

#[test]
fn sound_payloads_are_restored_and_can_be_used() {
    let mut bench = PayloadBench::new();
    for seed in bench.seeds().to_vec() {
        assert_eq!(bench.restore(&seed), PayloadOutcome::Restored, "{}", seed.escape_ascii());
    }
}

/// Every byte of the shorter ones: gone with all that follows, and changed in several ways.
#[test]
fn each_byte_matters() {
    let mut bench = PayloadBench::new();
    for seed in bench.seeds().to_vec().iter().filter(|seed| seed.len() <= SHORT) {
        for at in 0..seed.len() {
            let cut = bench.restore(&seed[..at]);
            assert_eq!(cut, PayloadOutcome::Refused, "{} of {}", at, seed.escape_ascii());
            for value in [0, 1, 0x7f, 0x80, 0xff, seed[at] ^ 1, seed[at].wrapping_add(1)] {
                let mut damaged = seed.clone();
                damaged[at] = value;
                bench.restore(&damaged);
            }
        }
    }
}

/// Some changes at once, drawn from a generator that always draws the same.
#[test]
fn whatever_is_changed_nothing_breaks() {
    let mut bench = PayloadBench::new();
    let seeds = bench.seeds().len() as u64;
    let mut random = Random(0x0b0b_b1e5);
    let mut restored = 0;
    for _ in 0..DRAWS {
        let mut bytes = vec![(random.next() % (seeds + 1)) as u8];
        for _ in 0..=random.next() % CHANGES_MAX {
            bytes.extend_from_slice(&random.next().to_le_bytes()[..4]);
        }
        restored += usize::from(bench.run(&bytes) == PayloadOutcome::Restored);
    }
    // Both happen often.
    assert!((DRAWS / 50..DRAWS / 2).contains(&restored), "{restored} of {DRAWS} are sound");
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

const SHORT: usize = 120;
const DRAWS: usize = 20_000;
const CHANGES_MAX: u64 = 4;
