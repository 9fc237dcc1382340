//! Which number comes next: the patterns in which a load walks over its keys.

use super::WorkloadRandom;

/// A pattern over the numbers from `low` to `low + count - 1`. What changes as it goes lies in a
/// [`PatternCursor`], of which every connection has its own.
#[derive(Clone, Debug)]
pub enum Numbers {
    Uniform {
        low: u64,
        count: u64,
    },
    /// One sequence for the whole load: the request with index i (over all connections) takes
    /// `i * stride + offset`, so that n requests touch n numbers, each once.
    Sequence {
        low: u64,
        count: u64,
        stride: u64,
        offset: u64,
    },
    /// Every connection goes through all numbers from the first to the last, and round again.
    EachConnection {
        low: u64,
        count: u64,
    },
    /// Every connection goes round and round as well, but through its own part of the numbers.
    Parts {
        low: u64,
        count: u64,
    },
    Normal {
        low: u64,
        count: u64,
        median: f64,
        deviation: f64,
    },
    Zipf(Zipf),
    /// A `share` (0 to 1) of the requests goes to the first `hot` numbers, the others to the rest.
    Hot {
        low: u64,
        count: u64,
        hot: u64,
        share: f64,
    },
}

/// Where a connection is in a pattern.
#[derive(Clone, Debug, Default)]
pub struct PatternCursor {
    low: u64,
    count: u64,
    position: u64,
}

impl Numbers {
    /// The cursor of the connection `index` of `connections`.
    pub fn cursor(&self, index: usize, connections: usize) -> PatternCursor {
        match *self {
            Self::EachConnection { low, count } => PatternCursor { low, count, position: 0 },
            Self::Parts { low, count } => {
                let (index, connections) = (index as u128, connections.max(1) as u128);
                let start = |part: u128| (u128::from(count) * part / connections) as u64;
                let (from, to) = (start(index), start(index + 1));
                PatternCursor { low: low + from, count: to - from, position: 0 }
            }
            _ => PatternCursor::default(),
        }
    }

    /// The next number; `request` is the request's index over the whole load.
    #[inline]
    pub fn draw(
        &self,
        cursor: &mut PatternCursor,
        request: u64,
        random: &mut WorkloadRandom,
    ) -> u64 {
        match *self {
            Self::Uniform { low, count } => low + random.below(count),
            Self::Sequence { low, count, stride, offset } => {
                low + request.wrapping_mul(stride).wrapping_add(offset) % count.max(1)
            }
            Self::EachConnection { .. } | Self::Parts { .. } => {
                let number = cursor.low + cursor.position;
                cursor.position += 1;
                if cursor.position >= cursor.count {
                    cursor.position = 0;
                }
                number
            }
            Self::Normal { low, count, median, deviation } => {
                let high = (low + count.max(1) - 1) as f64;
                for _ in 0..NORMAL_ATTEMPTS {
                    let number = median + deviation * random.normal();
                    if number >= low as f64 && number <= high {
                        return number as u64;
                    }
                }
                (median.clamp(low as f64, high)) as u64
            }
            Self::Zipf(ref zipf) => zipf.draw(random),
            Self::Hot { low, count, hot, share } => {
                let hot = hot.min(count);
                // Without a rest all are hot.
                if random.unit() < share || hot == count {
                    low + random.below(hot)
                } else {
                    low + hot + random.below(count - hot)
                }
            }
        }
    }

    /// How many numbers there are.
    pub fn count(&self) -> u64 {
        match *self {
            Self::Uniform { count, .. }
            | Self::Sequence { count, .. }
            | Self::EachConnection { count, .. }
            | Self::Parts { count, .. }
            | Self::Normal { count, .. }
            | Self::Hot { count, .. } => count,
            Self::Zipf(ref zipf) => zipf.count as u64,
        }
    }
}

/// Zipf's law: the i-th number is drawn in proportion to 1 / i^exponent. By rejection-inversion
/// (Hörmann and Derflinger, 1996), which needs neither tables nor loops over the numbers.
#[derive(Clone, Debug)]
pub struct Zipf {
    low: u64,
    count: f64,
    exponent: f64,
    area_first: f64,
    area_last: f64,
    shortcut: f64,
}

impl Zipf {
    /// `exponent` is above 0.
    pub fn new(low: u64, count: u64, exponent: f64) -> Self {
        let count = count.max(1) as f64;
        let mut zipf =
            Self { low, count, exponent, area_first: 0.0, area_last: 0.0, shortcut: 0.0 };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.area_last = zipf.area(count + 0.5);
        zipf.shortcut = 2.0 - zipf.area_inverse(zipf.area(2.5) - zipf.height(2.0));
        zipf
    }

    #[inline]
    fn draw(&self, random: &mut WorkloadRandom) -> u64 {
        loop {
            let area = self.area_last + random.unit() * (self.area_first - self.area_last);
            let x = self.area_inverse(area);
            let rank = (x + 0.5).floor().clamp(1.0, self.count);
            if rank - x <= self.shortcut || area >= self.area(rank + 0.5) - self.height(rank) {
                return self.low + rank as u64 - 1;
            }
        }
    }

    fn height(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The integral of `height` from 1 to `x`.
    fn area(&self, x: f64) -> f64 {
        let log = x.ln();
        let power = (1.0 - self.exponent) * log;
        // exp(p) - 1 over p, which is 1 where the exponent is 1.
        let ratio = if power.abs() > 1e-8 { power.exp_m1() / power } else { 1.0 + power / 2.0 };
        ratio * log
    }

    fn area_inverse(&self, area: f64) -> f64 {
        let scaled = (area * (1.0 - self.exponent)).max(-1.0);
        let ratio = if scaled.abs() > 1e-8 { scaled.ln_1p() / scaled } else { 1.0 - scaled / 2.0 };
        (ratio * area).exp()
    }
}

/// Numbers outside the range are drawn again; past this many the median is taken.
const NORMAL_ATTEMPTS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(numbers: &Numbers, count: u64) -> Vec<u64> {
        let mut cursor = numbers.cursor(0, 1);
        let mut random = WorkloadRandom::new(3);
        (0..count).map(|request| numbers.draw(&mut cursor, request, &mut random)).collect()
    }

    #[test]
    fn sequences() {
        let sequence = Numbers::Sequence { low: 0, count: 5, stride: 2, offset: 1 };
        assert_eq!(draws(&sequence, 4), [1, 3, 0, 2]);
        let each = Numbers::EachConnection { low: 10, count: 3 };
        assert_eq!(draws(&each, 5), [10, 11, 12, 10, 11]);
    }

    #[test]
    fn parts_cover_everything_once() {
        let parts = Numbers::Parts { low: 1, count: 10 };
        let mut all = Vec::new();
        for connection in 0..3 {
            let mut cursor = parts.cursor(connection, 3);
            for _ in 0..cursor.count {
                all.push(parts.draw(&mut cursor, 0, &mut WorkloadRandom::new(0)));
            }
        }
        assert_eq!(all, (1..=10).collect::<Vec<_>>());
    }

    #[test]
    fn zipf_follows_its_law() {
        for exponent in [0.5, 0.99, 1.0, 2.0] {
            let zipf = Numbers::Zipf(Zipf::new(100, 50, exponent));
            let mut counts = [0u32; 50];
            let total = 200_000;
            for number in draws(&zipf, total) {
                counts[number as usize - 100] += 1;
            }
            let weights: f64 = (1..=50).map(|rank| f64::from(rank).powf(-exponent)).sum();
            for rank in [1usize, 2, 10, 50] {
                let expected = (rank as f64).powf(-exponent) / weights * total as f64;
                let seen = f64::from(counts[rank - 1]);
                assert!(
                    (seen - expected).abs() < 6.0 * expected.sqrt() + 1.0,
                    "exponent {exponent}, rank {rank}: {seen} instead of {expected}"
                );
            }
        }
    }

    #[test]
    fn normal_and_hot_stay_inside() {
        let normal = Numbers::Normal { low: 5, count: 11, median: 10.0, deviation: 20.0 };
        assert!(draws(&normal, 1000).iter().all(|number| (5..=15).contains(number)));
        let hot = Numbers::Hot { low: 0, count: 1000, hot: 10, share: 0.9 };
        let numbers = draws(&hot, 10_000);
        let hits = numbers.iter().filter(|&&number| number < 10).count();
        assert!((8_700..9_300).contains(&hits), "{hits}");
        // Of half the numbers as many as were asked for, and not half of the others as well.
        let half = Numbers::Hot { low: 7, count: 100, hot: 50, share: 0.5 };
        let numbers = draws(&half, 10_000);
        assert!(numbers.iter().all(|number| (7..107).contains(number)));
        let hits = numbers.iter().filter(|&&number| number < 57).count();
        assert!((4_700..5_300).contains(&hits), "{hits}");
        let all = Numbers::Hot { low: 0, count: 10, hot: 20, share: 0.0 };
        assert!(draws(&all, 100).iter().all(|&number| number < 10));
    }
}
