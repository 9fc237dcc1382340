//! Measures how long it takes to merge the lanes of many threads: nanoseconds for each record, by
//! the number of lanes. Usage: `merge [ROUNDS]`. The best round counts.

use std::time::{Duration, Instant};

use bobbin_store::log::{Log, Merger};

fn main() {
    let rounds = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(20);
    println!("lanes  ns/record");
    for count in [1, 2, 4, 16, 64, 128] {
        let (log, mut merger) = (Log::default(), Merger::default());
        let lanes: Vec<_> = (0..count).map(|_| log.lane()).collect();
        let (mut best, mut random) = (Duration::MAX, 1_u64);
        for _ in 0..rounds {
            for _ in 0..RECORDS {
                // A linear congruential generator. Its upper bits are good enough.
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                lanes[(random >> 33) as usize % count].append(&RECORD);
            }
            let start = Instant::now();
            merger.collect(&log);
            let mut bytes = 0;
            while let Some(record) = merger.take_next(u64::MAX) {
                bytes += record.len();
            }
            best = best.min(start.elapsed());
            assert_eq!(bytes, RECORDS * RECORD.len());
        }
        println!("{count:5} {:10.1}", best.as_nanos() as f64 / RECORDS as f64);
    }
}

const RECORDS: usize = 10_000;
/// As long as the record of a SET.
const RECORD: [u8; 60] = [b'x'; 60];
