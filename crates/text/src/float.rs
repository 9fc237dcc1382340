//! Floating point numbers as Redis replies with them.
//!
//! The digits come from Grisu2 (Florian Loitsch, "Printing Floating-Point Numbers Quickly and
//! Accurately with Integers", PLDI 2010), because that is what the reference servers use: it always
//! parses back to the same number, but in about one case of a thousand it is not the shortest or
//! not the nearest text (1e23 becomes 99999999999999990000000), and a score must read the same
//! here. What std and the crates for shortest digits give differs in those cases.

use std::ops::Deref;

/// Formats `value` as a score or a RESP3 double: `3`, `0.1`, `1e+20`, `inf`, `-inf`, `nan`, `-0`.
pub fn format_f64(value: f64) -> FloatText {
    if value.abs() <= INTEGER_MAX && value.trunc() == value && value != 0.0 {
        let mut text = FloatText { bytes: [0; FLOAT_TEXT_LEN_MAX], len: 0 };
        text.push(itoa::Buffer::new().format(value as i64).as_bytes());
        return text;
    }
    format_f64_as_digits(value)
}

/// Formats `value` as `format_f64` does, but does not write large integers in full: `1e+17`.
/// Digests contain scores in this form.
pub fn format_f64_as_digits(value: f64) -> FloatText {
    let mut text = FloatText { bytes: [0; FLOAT_TEXT_LEN_MAX], len: 0 };
    if value.is_nan() {
        text.push(b"nan");
        return text;
    }
    if value.is_sign_negative() {
        text.push(b"-");
    }
    match value.abs() {
        0.0 => text.push(b"0"),
        f64::INFINITY => text.push(b"inf"),
        magnitude => Decimal::nearly_shortest(magnitude).write(&mut text),
    }
    text
}

/// Appends what [`format_f64`] gives.
pub fn append_f64(value: f64, output: &mut Vec<u8>) {
    output.extend_from_slice(&format_f64(value));
}

/// The text of a number, without an allocation.
#[derive(Clone, Copy)]
pub struct FloatText {
    bytes: [u8; FLOAT_TEXT_LEN_MAX],
    len: u8,
}

impl FloatText {
    fn push(&mut self, bytes: &[u8]) {
        let start = usize::from(self.len);
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len() as u8;
    }
}

impl Deref for FloatText {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// `digits * 10^exponent`; the digits are at most seventeen and do not end in 0.
struct Decimal {
    digits: u64,
    exponent: i32,
}

impl Decimal {
    /// Whatever lies between the middles to the two neighbours of `value`, a positive number,
    /// parses back to it. With the three scaled by a power of ten into fixed point, the digits of
    /// the upper middle are cut off as early as what is cut leaves them above the lower one.
    fn nearly_shortest(value: f64) -> Self {
        let Interval { lower, value, upper } = Interval::around(value);
        let (power, power_exponent) = power_for(upper.exponent);
        // Each product may be off by one: the interval is made smaller by as much.
        let upper = upper.times(power);
        let top = upper.significand - 1;
        let room = top - (lower.times(power).significand + 1);
        let target = top - value.times(power).significand;

        let point = -upper.exponent as u32;
        let (whole, fraction) = (top >> point, top & low_bits(point));
        let cut = if fraction <= room {
            Cut::in_whole(whole, fraction, point, room, target)
        } else {
            Cut::in_fraction(whole, fraction, point, room, target)
        };
        Self { digits: cut.nearest(), exponent: cut.exponent - power_exponent }
    }

    /// Writes at most seven zeros behind the digits, at most six digits behind the point or three
    /// zeros in front of them; what would take more has an exponent.
    fn write(&self, text: &mut FloatText) {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(self.digits).as_bytes();
        let exponent_of_first = self.exponent + digits.len() as i32 - 1;
        match self.exponent {
            0..=7 => {
                text.push(digits);
                text.push(&ZEROS[..self.exponent as usize]);
            }
            ..0 if self.exponent >= -6 || (-3..=3).contains(&exponent_of_first) => {
                if exponent_of_first < 0 {
                    text.push(b"0.");
                    text.push(&ZEROS[..-exponent_of_first as usize - 1]);
                    text.push(digits);
                } else {
                    let (whole, fraction) = digits.split_at(exponent_of_first as usize + 1);
                    text.push(whole);
                    text.push(b".");
                    text.push(fraction);
                }
            }
            _ => {
                let (first, others) = digits.split_at(1);
                text.push(first);
                if !others.is_empty() {
                    text.push(b".");
                    text.push(others);
                }
                text.push(if exponent_of_first < 0 { b"e-" } else { b"e+" });
                let magnitude = exponent_of_first.unsigned_abs();
                text.push(itoa::Buffer::new().format(magnitude).as_bytes());
            }
        }
    }
}

/// Digits of the interval's top and what was cut off behind them. The last four are in the same
/// unit, of which `step` make one of the last digit.
struct Cut {
    digits: u64,
    exponent: i32,
    step: u64,
    /// From the top down to the digits.
    rest: u64,
    /// From the top down to the lower end: no rest may be larger.
    room: u64,
    /// From the top down to the number.
    target: u64,
}

impl Cut {
    /// Cuts as many whole digits as there is room for.
    fn in_whole(whole: u64, fraction: u64, point: u32, room: u64, target: u64) -> Self {
        let rest_of = |power: u64| ((whole % power) << point) + fraction;
        let (mut exponent, mut power) = (0, 1);
        // The interval does not reach down to 0, so the first digit never goes.
        while rest_of(power * 10) <= room {
            power *= 10;
            exponent += 1;
        }
        let rest = rest_of(power);
        Self { digits: whole / power, exponent, step: power << point, rest, room, target }
    }

    /// Takes digits behind the point until what is left of it fits the room.
    fn in_fraction(whole: u64, fraction: u64, point: u32, mut room: u64, mut target: u64) -> Self {
        let (mut digits, mut exponent, mut rest) = (whole, 0, fraction);
        // No overflow: the point leaves four bits above it, and room, which is more than target,
        // is less than the rest when the loop goes on.
        while rest >= room {
            rest *= 10;
            room *= 10;
            target *= 10;
            digits = digits * 10 + (rest >> point);
            rest &= low_bits(point);
            exponent -= 1;
        }
        Self { digits, exponent, step: 1 << point, rest, room, target }
    }

    /// Lowers the last digit to where the text is nearest to the number; of two as near, the upper.
    fn nearest(&self) -> u64 {
        let above = self.target.saturating_sub(self.rest);
        let over = above % self.step;
        let steps = above / self.step + u64::from(over > self.step - over);
        self.digits - steps.min((self.room - self.rest) / self.step)
    }
}

/// A number and the middles to its neighbours.
struct Interval {
    lower: Float,
    value: Float,
    upper: Float,
}

impl Interval {
    /// With one exponent for the three, and the upper's highest bit set.
    fn around(value: f64) -> Self {
        let bits = value.to_bits();
        let (biased, fraction) = (bits >> FRACTION_BITS, bits & low_bits(FRACTION_BITS));
        let significand = if biased == 0 { fraction } else { fraction | 1 << FRACTION_BITS };
        // In quarters of the last bit; below a power of two the numbers are twice as dense.
        let (lower, value, upper) = if fraction == 0 && biased != 0 {
            (4 * significand - 1, 4 * significand, 4 * significand + 2)
        } else {
            (4 * significand - 2, 4 * significand, 4 * significand + 2)
        };
        let shift = upper.leading_zeros();
        let exponent = biased.max(1) as i32 - EXPONENT_BIAS - 2 - shift as i32;
        let scaled = |quarters: u64| Float { significand: quarters << shift, exponent };
        Self { lower: scaled(lower), value: scaled(value), upper: scaled(upper) }
    }
}

/// `significand * 2^exponent`.
#[derive(Clone, Copy)]
struct Float {
    significand: u64,
    exponent: i32,
}

impl Float {
    /// The product, rounded to the upper 64 bits.
    fn times(self, other: Self) -> Self {
        let product = u128::from(self.significand) * u128::from(other.significand);
        let significand = ((product + (1 << 63)) >> 64) as u64;
        Self { significand, exponent: self.exponent + other.exponent + 64 }
    }
}

const fn low_bits(count: u32) -> u64 {
    (1 << count) - 1
}

/// The smallest of [`POWERS`] that leaves at most [`POINT_MAX`] bits behind the point of a number
/// with its highest bit set and this exponent, and the power's own decimal exponent. (Another may
/// leave fewer bits: the digits depend on the choice.)
fn power_for(exponent: i32) -> (Float, i32) {
    // The power's exponent must be this, and its significand is at least 2^63.
    let wanted = -POINT_MAX - 64 - exponent + 63;
    // log10(2) in 2^-18, exact enough for four digits.
    let decimal = -((-wanted * 78_913) >> 18);
    let index = (decimal - POWER_FIRST + POWER_STEP - 1) / POWER_STEP;
    (POWERS[index as usize], POWER_FIRST + index * POWER_STEP)
}

/// 10^-348, 10^-340 ... 10^340, each the nearest with 64 bits.
static POWERS: [Float; POWERS_LEN] = powers();

/// Goes up and down from 10^4, which is exact, with 128 bits.
const fn powers() -> [Float; POWERS_LEN] {
    let mut powers = [Float { significand: 0, exponent: 0 }; POWERS_LEN];
    let origin = ((4 - POWER_FIRST) / POWER_STEP) as usize;
    let start = Wide { significand: 10_000, exponent: 0 }.normalized();
    let (mut index, mut power) = (origin, start);
    while index < POWERS_LEN {
        powers[index] = power.rounded();
        power = power.times_step();
        index += 1;
    }
    power = start;
    index = origin;
    while index > 0 {
        index -= 1;
        power = power.over_step();
        powers[index] = power.rounded();
    }
    powers
}

/// `significand * 2^exponent` with the highest bit set, as good as 120 bits.
#[derive(Clone, Copy)]
struct Wide {
    significand: u128,
    exponent: i32,
}

impl Wide {
    const fn normalized(self) -> Self {
        let shift = self.significand.leading_zeros();
        Self { significand: self.significand << shift, exponent: self.exponent - shift as i32 }
    }

    const fn times_step(self) -> Self {
        let high = (self.significand >> 64) * STEP_POWER;
        let low = (self.significand & u64::MAX as u128) * STEP_POWER;
        // Of 155 bits the upper ones: `high` has 91 and is worth 2^64.
        let shift = (high + (low >> 64)).leading_zeros();
        let significand = (high << shift) + (low >> (64 - shift));
        Self { significand, exponent: self.exponent + 64 - shift as i32 }
    }

    const fn over_step(self) -> Self {
        let quotient = self.significand / STEP_POWER;
        let shift = quotient.leading_zeros();
        let fraction = ((self.significand % STEP_POWER) << shift) / STEP_POWER;
        let significand = (quotient << shift) + fraction;
        Self { significand, exponent: self.exponent - shift as i32 }
    }

    const fn rounded(self) -> Float {
        let (high, low) = ((self.significand >> 64) as u64, self.significand as u64);
        let half = 1 << 63;
        // Each of the at most 44 steps loses less than two units of the last of 128 bits.
        assert!(low == 0 || low.abs_diff(half) > 1 << 8, "rounding is not certain");
        Float { significand: high + (low >= half) as u64, exponent: self.exponent + 64 }
    }
}

/// Sign, `0.`, zeros, seventeen digits, `e-308`: always less than this.
const FLOAT_TEXT_LEN_MAX: usize = 40;
/// Up to here, half of the range of `i64`, integers are written as such.
const INTEGER_MAX: f64 = (1u64 << 62) as f64;
const ZEROS: &[u8] = b"0000000000000000";

const FRACTION_BITS: u32 = 52;
const EXPONENT_BIAS: i32 = 1023 + FRACTION_BITS as i32;

/// The paper's alpha, negated. This and the distance of the powers are free to choose within
/// bounds, and some digits depend on them: the values are the reference's.
const POINT_MAX: i32 = 60;
const POWER_STEP: i32 = 8;
const POWER_FIRST: i32 = -348;
const POWERS_LEN: usize = 87;
const STEP_POWER: u128 = 100_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_f64;
    use proptest::prelude::*;

    fn text(value: f64) -> String {
        String::from_utf8(format_f64(value).to_vec()).unwrap()
    }

    // Each was asked of valkey-server 9.1.2.
    #[test]
    fn formats_as_valkey_does() {
        for (value, expected) in [
            (3.0, "3"),
            (0.1, "0.1"),
            (-1.5, "-1.5"),
            (0.0, "0"),
            (-0.0, "-0"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
            (1e17, "100000000000000000"),
            (1e18, "1000000000000000000"),
            (1e19, "1e+19"),
            (1e20, "1e+20"),
            (1e23, "99999999999999990000000"),
            (123456789012345678.0, "123456789012345680"),
            (1234567890123456789.0, "1234567890123456768"),
            (4611686018427387904.0, "4611686018427387904"),
            (9223372036854775807.0, "9223372036854776000"),
            (5e18, "5e+18"),
            (-5e18, "-5e+18"),
            (1.5e300, "1.5e+300"),
            (1e-5, "0.00001"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
            (0.0000012, "1.2e-6"),
            (0.0000000123456, "1.23456e-8"),
            (123456.789, "123456.789"),
            (123456789.12345679, "1.2345678912345679e+8"),
            (3.0000000000000004, "3.0000000000000004"),
            (0.30000000000000004, "0.30000000000000004"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (5e-324, "5e-324"),
            (1.2345678901234567e25, "1.2345678901234566e+25"),
            (1.2345678901234567e22, "12345678901234568000000"),
            (-1.2345678901234567e-250, "-1.2345678901234568e-250"),
            (12345678901234567890.0, "12345678901234567000"),
            (1234567890123456e8, "1.234567890123456e+23"),
        ] {
            assert_eq!(text(value), expected);
        }
    }

    #[test]
    fn what_takes_more_zeros_or_decimals_than_these_has_an_exponent() {
        for (value, expected) in [
            (1.25e25, "1.25e+25"),
            (1.25e9, "1250000000"),
            (12345678.5e18, "1.23456785e+25"),
            (12345678.5e19, "1.23456785e+26"),
            (1.234567890123456e22, "12345678901234560000000"),
            (1.234567890123456e23, "1.234567890123456e+23"),
            (0.000012, "0.000012"),
            (0.0000125, "1.25e-5"),
            (0.00123456789, "0.00123456789"),
            (0.000123456789, "1.23456789e-4"),
            (1234.56789012, "1234.56789012"),
            (12345.6789012, "1.23456789012e+4"),
            (12345.678901, "12345.678901"),
        ] {
            assert_eq!(text(value), expected);
        }
    }

    /// Around powers of two the neighbours are not equally far, around zero not of one scale.
    #[test]
    fn the_edges_of_every_binary_exponent_parse_back() {
        for biased in 0..2047u64 {
            for fraction in [0, 1, 2, low_bits(51), 1 << 51, low_bits(52) - 1, low_bits(52)] {
                let value = f64::from_bits(biased << 52 | fraction);
                assert_eq!(text(value).parse(), Ok(value));
                assert_eq!(text(-value).parse(), Ok(-value));
            }
        }
    }

    #[test]
    fn few_decimals_come_back_as_they_were() {
        for hundredths in -250_000..250_000 {
            let value = f64::from(hundredths) / 100.0;
            assert_eq!(text(value), value.to_string());
        }
    }

    /// The paper promises it of 99.9 in a hundred doubles.
    #[test]
    fn nearly_all_have_the_fewest_digits() {
        let (mut state, mut longer) = (1u64, 0);
        for _ in 0..10_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let value = f64::from_bits(state & low_bits(63));
            if !value.is_finite() {
                continue;
            }
            let shortest = format!("{value:e}");
            let mantissa = shortest.split('e').next().unwrap_or_default().replace('.', "");
            let digits = Decimal::nearly_shortest(value).digits.to_string();
            longer += usize::from(digits.len() > mantissa.len());
        }
        assert!(longer < 20, "{longer} of 10,000 have more digits than they need");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn every_text_parses_back(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(!value.is_nan());
            prop_assert_eq!(parse_f64(&format_f64(value)).map(f64::to_bits), Some(bits));
        }

        #[test]
        fn digits_are_at_most_seventeen(bits: u64) {
            let value = f64::from_bits(bits).abs();
            prop_assume!(value.is_finite() && value > 0.0);
            let digits = Decimal::nearly_shortest(value).digits.to_string();
            prop_assert!(digits.len() <= 17 && !digits.ends_with('0'), "{digits}");
        }
    }
}
