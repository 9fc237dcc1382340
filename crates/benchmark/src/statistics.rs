//! What a few rounds say about a rate: the mean, an interval for it, whether the rounds agree, and
//! how many rounds a smaller difference would need.
//!
//! All intervals are two-sided and have 95% confidence. They are Student's, which is exact where
//! rounds are independent and normally distributed. Ratios are taken of logarithms, so that "twice
//! as fast" and "half as fast" weigh the same.

/// A range that holds the value with 95% confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConfidenceInterval {
    pub low: f64,
    pub high: f64,
}

impl ConfidenceInterval {
    fn around(middle: f64, half: f64) -> Self {
        Self { low: middle - half, high: middle + half }
    }

    /// Half its width, as a share of its middle; 0 where it has none.
    pub fn relative_half(&self) -> f64 {
        let width = self.high - self.low;
        if width == 0.0 { 0.0 } else { width / (self.high + self.low) }
    }

    fn exp(self) -> Self {
        Self { low: self.low.exp(), high: self.high.exp() }
    }
}

/// 0 where there are no samples.
pub fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len().max(1) as f64
}

/// The mean of the logarithms' antilogarithm; `None` where a sample is not above 0.
pub fn geometric_mean(samples: &[f64]) -> Option<f64> {
    let logs = logarithms(samples).filter(|logs| !logs.is_empty())?;
    Some(mean(&logs).exp())
}

/// The interval of the mean, by Student's distribution; `None` of fewer than two samples.
pub fn interval(samples: &[f64]) -> Option<ConfidenceInterval> {
    let count = samples.len() as f64;
    let error = (variance(samples)? / count).sqrt();
    Some(ConfidenceInterval::around(mean(samples), student(count - 1.0) * error))
}

/// The interval of the ratio of two geometric means, by Welch's test on the logarithms: the
/// samples may differ in number and in how far they scatter.
pub fn ratio(before: &[f64], after: &[f64]) -> Option<ConfidenceInterval> {
    let (before, after) = (logarithms(before)?, logarithms(after)?);
    let (count_before, count_after) = (before.len() as f64, after.len() as f64);
    let error_before = variance(&before)? / count_before;
    let error_after = variance(&after)? / count_after;
    let error = error_before + error_after;
    let freedom = if error > 0.0 {
        error.powi(2)
            / (error_before.powi(2) / (count_before - 1.0)
                + error_after.powi(2) / (count_after - 1.0))
    } else {
        count_before + count_after - 2.0
    };
    Some(
        ConfidenceInterval::around(mean(&after) - mean(&before), student(freedom) * error.sqrt())
            .exp(),
    )
}

/// How many rounds of each side [`ratio`] would need until its interval reaches no further than
/// `difference` (0.05 is 5%) from its middle, if more rounds scatter as these do. `None` where the
/// scatter is not known, or where they would be more than [`ROUNDS_MAX`].
pub fn rounds_needed(before: &[f64], after: &[f64], difference: f64) -> Option<usize> {
    let variances = variance(&logarithms(before)?)? + variance(&logarithms(after)?)?;
    let allowed = difference.ln_1p();
    (2..=ROUNDS_MAX).find(|&rounds| {
        let rounds = rounds as f64;
        student(2.0 * (rounds - 1.0)) * (variances / rounds).sqrt() <= allowed
    })
}

/// How far the largest sample is from the smallest, as a share of the median.
pub fn spread(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(low), Some(high)) = (sorted.first(), sorted.last()) else { return 0.0 };
    if low == high {
        return 0.0;
    }
    let middle = (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0;
    if middle > 0.0 { (high - low) / middle } else { f64::INFINITY }
}

/// Whether rounds disagree: whether they are spread by more than [`SPREAD_MAX`].
pub fn disagree(samples: &[f64]) -> bool {
    spread(samples) > SPREAD_MAX
}

/// Rounds whose fastest and slowest are further apart than this share of the median disagree.
pub const SPREAD_MAX: f64 = 0.1;
/// More rounds than this are advised to nobody.
pub const ROUNDS_MAX: usize = 1000;

/// The estimate from a sample, with one less than its size below the line.
fn variance(samples: &[f64]) -> Option<f64> {
    let middle = mean(samples);
    let squares: f64 = samples.iter().map(|sample| (sample - middle).powi(2)).sum();
    (samples.len() > 1).then(|| squares / (samples.len() - 1) as f64)
}

fn logarithms(samples: &[f64]) -> Option<Vec<f64>> {
    samples.iter().map(|&sample| (sample > 0.0).then(|| sample.ln())).collect()
}

/// The 97.5% quantile of Student's distribution. Between whole degrees of freedom it is that of
/// the lower one, which errs on the wide side.
fn student(freedom: f64) -> f64 {
    let whole = freedom.floor().max(1.0);
    if let Some(quantile) = STUDENT.get(whole as usize - 1) {
        return *quantile;
    }
    // Cornish and Fisher's expansion around the normal quantile, right to three decimals here.
    let z = NORMAL;
    z + (z.powi(3) + z) / (4.0 * whole)
        + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * whole.powi(2))
}

const NORMAL: f64 = 1.959_964;
const STUDENT: [f64; 15] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-3 * b.abs().max(1.0), "{a} is not {b}");
    }

    #[test]
    fn intervals_of_means() {
        // Mean 100, deviation 2, error 2 / sqrt(3) = 1.1547; 4.303 times that is 4.969.
        let found = interval(&[98.0, 100.0, 102.0]).unwrap();
        close(found.low, 95.031);
        close(found.high, 104.969);
        close(found.relative_half(), 0.04969);
        // Squares 4 + 1 + 0 + 1 + 4 = 10, variance 2.5, error sqrt(0.5) = 0.7071; 2.776 times.
        let found = interval(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        close(found.low, 1.0371);
        close(found.high, 4.9629);
        // Nothing was answered in any round.
        close(interval(&[0.0, 0.0]).unwrap().relative_half(), 0.0);
        assert_eq!(interval(&[5.0]), None);
        assert_eq!(interval(&[]), None);
    }

    #[test]
    fn quantiles_of_students_distribution() {
        // From the printed tables.
        let known = [(1.0, 12.706), (10.0, 2.228), (20.0, 2.086), (30.0, 2.042), (60.0, 2.0)];
        for (freedom, quantile) in known {
            assert!((student(freedom) - quantile).abs() < 0.001, "{freedom}");
        }
        assert_eq!(student(2.9), 4.303);
        assert_eq!(student(0.5), 12.706);
    }

    #[test]
    fn ratios() {
        let powers = |exponents: &[f64]| exponents.iter().map(|e| f64::exp(*e)).collect::<Vec<_>>();
        // Both variances are 0.01, so the error is sqrt(0.01 / 3 * 2) = 0.081650 with 4 degrees of
        // freedom; 2.776 times that is 0.22666.
        let before = powers(&[0.9, 1.0, 1.1]);
        let found = ratio(&before, &powers(&[1.4, 1.5, 1.6])).unwrap();
        close(found.low, f64::exp(0.5 - 0.22666));
        close(found.high, f64::exp(0.5 + 0.22666));
        // Variances 0.02 and 0 of two each: error 0.1, and the one degree of the first.
        let found = ratio(&powers(&[0.9, 1.1]), &powers(&[1.0, 1.0])).unwrap();
        close(found.high, f64::exp(1.2706));
        let same = ratio(&[5.0, 5.0], &[10.0, 10.0]).unwrap();
        close(same.low, 2.0);
        close(same.high, 2.0);
        assert_eq!(ratio(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(ratio(&[1.0, 0.0], &[1.0, 2.0]), None);
        close(geometric_mean(&[1.0, 4.0]).unwrap(), 2.0);
        assert_eq!(geometric_mean(&[]), None);
    }

    #[test]
    fn rounds_that_a_difference_needs() {
        let scattered = [1.0, f64::exp(0.1)];
        let difference = f64::exp(0.05) - 1.0;
        // Both variances are 0.005: t / sqrt(n) must be at most 0.5. For 16 rounds it is
        // 2.042 / 4 = 0.5105, for 17 it is 2.037 / 4.1231 = 0.4940.
        assert_eq!(rounds_needed(&scattered, &scattered, difference), Some(17));
        assert_eq!(rounds_needed(&[7.0, 7.0], &[8.0, 8.0], difference), Some(2));
        assert_eq!(rounds_needed(&[7.0], &[8.0, 8.0], difference), None);
        assert_eq!(rounds_needed(&[1.0, 1000.0], &[1.0, 1000.0], difference), None);
    }

    #[test]
    fn rounds_that_disagree() {
        close(spread(&[100.0, 95.0, 104.0]), 0.09);
        assert!(!disagree(&[100.0, 95.0, 104.0]));
        assert!(disagree(&[100.0, 95.0, 106.0]));
        // The median of four is between the two in the middle: 20 / 100.
        close(spread(&[90.0, 99.0, 101.0, 110.0]), 0.2);
        assert!(!disagree(&[5.0]) && !disagree(&[]) && !disagree(&[0.0, 0.0]));
        assert!(disagree(&[0.0, 0.0, 9.0]));
    }
}
