//! A small generator of random numbers. Each worker has one. Not for secrets.

/// xorshift64*: good enough for sampling, and only a few instructions.
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Uniform over all of u32.
    #[inline]
    pub const fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    #[inline]
    pub const fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Uniform below `bound`, which is not 0.
    #[inline]
    pub const fn below(&mut self, bound: u32) -> u32 {
        ((self.next_u32() as u64 * bound as u64) >> 32) as u32
    }
}

/// A bound that the number of keys in a shard hardly ever exceeds, by the mean over all shards:
/// four standard deviations above it, and some more for small means. Hashes spread keys evenly.
pub fn likely_max(mean: f32) -> f32 {
    mean + 4.0 * mean.sqrt() + 5.0
}

/// Bytes from the kernel's generator. If it fails, the process ends, as nothing derived from the
/// bytes would be secret. That happens at start, which needs some bytes.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                log::error!("The system has no random bytes for us ({error}). Exiting.");
                std::process::exit(1);
            }
        }
    }
    bytes
}
