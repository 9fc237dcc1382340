//! Random numbers of a load: xoshiro256** (Blackman and Vigna), seeded by SplitMix64. A seed gives
//! the same numbers everywhere, so that a run can be repeated.

/// A generator; every connection has one.
#[derive(Clone, Debug)]
pub struct WorkloadRandom {
    state: [u64; 4],
}

impl WorkloadRandom {
    pub fn new(seed: u64) -> Self {
        let mut at = seed;
        let mut next = || {
            at = at.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (at ^ (at >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        };
        Self { state: [next(), next(), next(), next()] }
    }

    #[inline]
    pub fn bits(&mut self) -> u64 {
        let [s0, s1, s2, s3] = self.state;
        let result = s1.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let s2 = s2 ^ s0;
        let s3 = s3 ^ s1;
        self.state = [s0 ^ s3, s1 ^ s2, s2 ^ (s1 << 17), s3.rotate_left(45)];
        result
    }

    /// A number below `count`, each as likely as the others (but for 2^-64); 0 when `count` is 0.
    #[inline]
    pub fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(count)) >> 64) as u64
    }

    /// A number from 0 to below 1.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A number of the normal distribution with mean 0 and deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Time until the next event of those that come once a unit of time on average.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_numbers_stay_below() {
        let (mut a, mut b) = (WorkloadRandom::new(7), WorkloadRandom::new(7));
        let mut seen = [false; 10];
        for _ in 0..1000 {
            let number = a.below(10);
            assert_eq!(number, b.below(10));
            seen[number as usize] = true;
        }
        assert_eq!(seen, [true; 10]);
        assert_eq!(a.below(0), 0);
        assert_ne!(WorkloadRandom::new(7).bits(), WorkloadRandom::new(8).bits());
    }

    #[test]
    fn distributions_have_their_means() {
        let mut random = WorkloadRandom::new(1);
        let count = 20_000;
        let mean = |draw: &mut dyn FnMut() -> f64| {
            (0..count).map(|_| draw()).sum::<f64>() / f64::from(count)
        };
        assert!((mean(&mut || random.unit()) - 0.5).abs() < 0.02);
        assert!(mean(&mut || random.normal()).abs() < 0.04);
        assert!((mean(&mut || random.exponential()) - 1.0).abs() < 0.04);
    }
}
