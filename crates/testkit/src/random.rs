//! A small generator of pseudo-random numbers: tests print its seed and can be repeated.

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Debug, Clone)]
pub struct TestRandom(u64);

impl TestRandom {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which must not be zero.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.number() % limit as u64) as usize
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.number() as u8).collect()
    }
}

/// `$BOBBIN_SEED`, else 1: tests draw the same each time. `clock` is another seed each time. It is
/// written to stderr, which a test shows when it fails: any failure can be run again with it.
pub fn seed() -> u64 {
    let seed = match std::env::var("BOBBIN_SEED").as_deref() {
        Ok("clock") => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(1, |elapsed| elapsed.as_nanos() as u64)
        }
        Ok(text) => text.parse().expect("BOBBIN_SEED is a number, or `clock`"),
        Err(_) => 1,
    };
    eprintln!("BOBBIN_SEED={seed}");
    seed
}
