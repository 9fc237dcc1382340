//! Estimates the cardinality from the registers, with the estimator of Otmar Ertl's "New
//! cardinality estimation algorithms for HyperLogLog sketches" (arXiv:1702.01284), as Redis does.
//! It needs only how many registers have each value.

use super::{RANK_MAX, REGISTER_MAX, REGISTERS, Registers};

/// How many registers have each value.
pub(super) struct Histogram(Counts);

type Counts = [u32; REGISTER_MAX as usize + 1];

impl Default for Histogram {
    fn default() -> Self {
        Self([0; REGISTER_MAX as usize + 1])
    }
}

impl Histogram {
    /// Counts these registers. Neighbours are counted in different arrays: most are equal or nearly
    /// so, and each addition to one counter would wait for the previous one. After a few elements
    /// most are zero; eight of these are counted at once.
    pub(super) fn of(registers: &Registers) -> Self {
        let mut parts = [Self::default().0; 8];
        for neighbours in registers.as_chunks::<8>().0 {
            if *neighbours == [0; 8] {
                parts[0][0] += 8;
                continue;
            }
            for (part, &value) in parts.iter_mut().zip(neighbours) {
                part[usize::from(value & REGISTER_MAX)] += 1;
            }
        }
        Self(std::array::from_fn(|value| parts.iter().map(|part| part[value]).sum()))
    }

    /// Counts registers of a value of at most `REGISTER_MAX`.
    #[inline(always)]
    pub(super) fn add(&mut self, value: u8, registers: usize) {
        self.0[usize::from(value & REGISTER_MAX)] += registers as u32;
    }

    pub(super) fn cardinality(&self) -> u64 {
        let m = REGISTERS as f64;
        let registers = |value: u32| f64::from(self.0[value as usize]);
        let mut sum = m * tau((m - registers(RANK_MAX)) / m);
        for value in (1..RANK_MAX).rev() {
            sum = (sum + registers(value)) * 0.5;
        }
        sum += m * sigma(registers(0) / m);
        let estimate = (ALPHA * m * m / sum).round();
        // Only registers that no elements can produce give more. C's conversion then gives this
        // value.
        if estimate < i64::MAX as f64 { estimate as u64 } else { 1 << 63 }
    }
}

/// The correction for registers that are zero; `x` is their fraction.
fn sigma(x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut weight, mut sum) = (x, 1.0, x);
    loop {
        power *= power;
        let before = sum;
        sum += power * weight;
        weight += weight;
        if sum == before {
            return sum;
        }
    }
}

/// The correction for registers at the highest rank; `x` is the fraction of the others.
fn tau(x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut root, mut weight, mut sum) = (x, 1.0, 1.0 - x);
    loop {
        root = root.sqrt();
        let before = sum;
        weight *= 0.5;
        sum -= (1.0 - root) * (1.0 - root) * weight;
        if sum == before {
            return sum / 3.0;
        }
    }
}

/// 1 / (2 ln 2)
const ALPHA: f64 = 0.721_347_520_444_481_7;
