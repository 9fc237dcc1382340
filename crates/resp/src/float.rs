//! Floating point numbers as Redis replies with them.
//!
//! The digits come from Grisu2 (Florian Loitsch, "Printing Floating-Point Numbers Quickly and
//! Accurately with Integers", PLDI 2010), because that is what the reference servers use: it always
//! parses back to the same number, but in about one case of a thousand it is not the shortest or
//! not the nearest text (1e23 becomes 99999999999999990000000), and a score must read the same here.

use std::ops::Deref;

/// Formats `value` as a score or a RESP3 double: `3`, `0.1`, `1e+20`, `inf`, `-inf`, `nan`, `-0`.
pub fn format_f64(value: f64) -> FloatText {
    let mut text = FloatText { bytes: [0; FLOAT_TEXT_LEN_MAX], len: 0 };
    if value.is_nan() {
        text.push_all(b"nan");
    } else if value.is_infinite() {
        text.push_all(if value > 0.0 { b"inf" } else { b"-inf" });
    } else if value == 0.0 {
        text.push_all(if value.is_sign_negative() { b"-0" } else { b"0" });
    } else if value.abs() <= INTEGER_MAX && value.trunc() == value {
        text.push_all(itoa::Buffer::new().format(value as i64).as_bytes());
    } else {
        if value < 0.0 {
            text.push(b'-');
        }
        Digits::of(value.abs()).write(&mut text, value < 0.0);
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
    fn push(&mut self, byte: u8) {
        self.bytes[usize::from(self.len)] = byte;
        self.len += 1;
    }

    fn push_all(&mut self, bytes: &[u8]) {
        let start = usize::from(self.len);
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len() as u8;
    }

    fn push_zeros(&mut self, count: usize) {
        for _ in 0..count {
            self.push(b'0');
        }
    }
}

impl Deref for FloatText {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A positive number in decimal: `digits * 10^exponent`.
struct Digits {
    digits: [u8; DIGITS_LEN_MAX],
    len: usize,
    exponent: i32,
}

impl Digits {
    /// Grisu2: scales the number and the bounds of what rounds to it by a power of ten such that
    /// the integer part fits 32 bits, then takes digits off the upper bound until what is left is
    /// within the bounds.
    fn of(value: f64) -> Self {
        let number = Scaled::of(value);
        let (lower, upper) = number.bounds();
        let (power, power_exponent) = cached_power(upper.exponent);
        let number = number.normalized().times(power);
        let mut upper = upper.times(power);
        let mut lower = lower.times(power);
        // The products are off by up to one unit: stay inside.
        lower.significand += 1;
        upper.significand -= 1;

        let mut digits = Self { digits: [0; DIGITS_LEN_MAX], len: 0, exponent: -power_exponent };
        digits.generate(number, lower, upper);
        digits
    }

    fn generate(&mut self, number: Scaled, lower: Scaled, upper: Scaled) {
        let shift = -upper.exponent as u32;
        let one = 1u64 << shift;
        let mut delta = upper.significand - lower.significand;
        let mut distance = upper.significand - number.significand;
        let mut integer = upper.significand >> shift;
        let mut fraction = upper.significand & (one - 1);

        let mut unit = 1_000_000_000u64;
        for kappa in (0..INTEGER_DIGITS_MAX).rev() {
            self.push_digit((integer / unit) as u8);
            integer %= unit;
            let rest = (integer << shift) + fraction;
            if rest <= delta {
                self.exponent += kappa;
                return self.round(delta, rest, unit << shift, distance);
            }
            unit /= 10;
        }
        let mut kappa = 0;
        loop {
            fraction *= 10;
            delta *= 10;
            distance = distance.wrapping_mul(10);
            kappa -= 1;
            self.push_digit((fraction >> shift) as u8);
            fraction &= one - 1;
            if fraction < delta {
                self.exponent += kappa;
                return self.round(delta, fraction, one, distance);
            }
        }
    }

    fn push_digit(&mut self, digit: u8) {
        if digit != 0 || self.len != 0 {
            self.digits[self.len] = b'0' + digit;
            self.len += 1;
        }
    }

    /// Lowers the last digit while that brings the text nearer to the number and keeps it within
    /// the bounds. `rest` is the text's distance from the upper bound, `unit` the last digit's
    /// weight, `distance` the number's distance from the upper bound.
    fn round(&mut self, delta: u64, mut rest: u64, unit: u64, distance: u64) {
        let last = &mut self.digits[self.len - 1];
        while rest < distance
            && delta - rest >= unit
            && (rest + unit < distance || distance - rest > rest + unit - distance)
        {
            *last -= 1;
            rest += unit;
        }
    }

    /// Writes the digits with or without an exponent, by the reference's rules for which.
    fn write(&self, text: &mut FloatText, negative: bool) {
        let digits = &self.digits[..self.len];
        let len = self.len as i32;
        let scientific = self.exponent + len - 1;
        if self.exponent >= 0 && scientific.abs() < len + 7 {
            text.push_all(digits);
            return text.push_zeros(self.exponent as usize);
        }
        if self.exponent < 0 && (self.exponent > -7 || scientific.abs() < 4) {
            let point = len + self.exponent;
            if point <= 0 {
                text.push_all(b"0.");
                text.push_zeros(-point as usize);
                return text.push_all(digits);
            }
            let (integer, fraction) = digits.split_at(point as usize);
            text.push_all(integer);
            text.push(b'.');
            return text.push_all(fraction);
        }
        let digits = &digits[..digits.len().min(DIGITS_LEN_MAX - usize::from(negative))];
        text.push(digits[0]);
        if digits.len() > 1 {
            text.push(b'.');
            text.push_all(&digits[1..]);
        }
        text.push_all(if scientific < 0 { b"e-" } else { b"e+" });
        text.push_all(itoa::Buffer::new().format(scientific.unsigned_abs()).as_bytes());
    }
}

/// `significand * 2^exponent`.
#[derive(Clone, Copy)]
struct Scaled {
    significand: u64,
    exponent: i32,
}

impl Scaled {
    fn of(value: f64) -> Self {
        let bits = value.to_bits();
        let fraction = bits & (HIDDEN_BIT - 1);
        match (bits >> FRACTION_BITS) as i32 & 0x7ff {
            0 => Self { significand: fraction, exponent: 1 - EXPONENT_BIAS },
            biased => Self { significand: fraction | HIDDEN_BIT, exponent: biased - EXPONENT_BIAS },
        }
    }

    fn normalized(self) -> Self {
        let shift = self.significand.leading_zeros();
        Self { significand: self.significand << shift, exponent: self.exponent - shift as i32 }
    }

    /// Half way to the number below and to that above, with one exponent, the upper normalized.
    fn bounds(self) -> (Self, Self) {
        let upper = Self { significand: self.significand * 2 + 1, exponent: self.exponent - 1 }
            .normalized();
        // Below a power of two the numbers are twice as dense.
        let shift = if self.significand == HIDDEN_BIT { 2 } else { 1 };
        let lower = (self.significand << shift) - 1;
        let lower = lower << (self.exponent - shift - upper.exponent);
        (Self { significand: lower, exponent: upper.exponent }, upper)
    }

    fn times(self, other: Self) -> Self {
        let product = u128::from(self.significand) * u128::from(other.significand);
        let rounded = product + (1 << 63);
        Self { significand: (rounded >> 64) as u64, exponent: self.exponent + other.exponent + 64 }
    }
}

/// A power of ten that brings a number with `exponent` into the range the digit loop needs, and
/// that power's own decimal exponent. Two neighbours may both do; where the search starts decides
/// which is taken, and so is part of what the digits depend on.
fn cached_power(exponent: i32) -> (Scaled, i32) {
    const LOG10_OF_2: f64 = 0.30102999566398114;
    let estimate = (-f64::from(exponent + POWERS.len() as i32) * LOG10_OF_2) as i32;
    let mut index = ((estimate - POWER_FIRST) / POWER_STEP) as usize;
    loop {
        let (significand, power_exponent) = POWERS[index];
        match exponent + i32::from(power_exponent) + 64 {
            ..SCALED_EXPONENT_MIN => index += 1,
            SCALED_EXPONENT_MIN..=SCALED_EXPONENT_MAX => {
                let power = Scaled { significand, exponent: i32::from(power_exponent) };
                return (power, POWER_FIRST + index as i32 * POWER_STEP);
            }
            _ => index -= 1,
        }
    }
}

/// Sign, 17 digits, point, `e-308`, or zeros instead of the exponent: always less than this.
const FLOAT_TEXT_LEN_MAX: usize = 40;
/// Grisu2 makes at most 17 digits; the reference has room for 18.
const DIGITS_LEN_MAX: usize = 18;
/// Up to here, half of the range of `i64`, integers are written as such.
const INTEGER_MAX: f64 = (1u64 << 62) as f64;
/// Digits of the largest 32-bit number.
const INTEGER_DIGITS_MAX: i32 = 10;

const FRACTION_BITS: u32 = 52;
const HIDDEN_BIT: u64 = 1 << FRACTION_BITS;
const EXPONENT_BIAS: i32 = 1023 + FRACTION_BITS as i32;

const SCALED_EXPONENT_MIN: i32 = -60;
const SCALED_EXPONENT_MAX: i32 = -32;

const POWER_FIRST: i32 = -348;
const POWER_STEP: i32 = 8;
/// 10^-348, 10^-340 ... 10^340, each the nearest `significand * 2^exponent` with 64 bits.
#[rustfmt::skip]
const POWERS: [(u64, i16); 87] = [
    (0xfa8fd5a0081c0288, -1220),  (0xbaaee17fa23ebf76, -1193),  (0x8b16fb203055ac76, -1166),
    (0xcf42894a5dce35ea, -1140),  (0x9a6bb0aa55653b2d, -1113),  (0xe61acf033d1a45df, -1087),
    (0xab70fe17c79ac6ca, -1060),  (0xff77b1fcbebcdc4f, -1034),  (0xbe5691ef416bd60c, -1007),
    (0x8dd01fad907ffc3c, -980),  (0xd3515c2831559a83, -954),  (0x9d71ac8fada6c9b5, -927),
    (0xea9c227723ee8bcb, -901),  (0xaecc49914078536d, -874),  (0x823c12795db6ce57, -847),
    (0xc21094364dfb5637, -821),  (0x9096ea6f3848984f, -794),  (0xd77485cb25823ac7, -768),
    (0xa086cfcd97bf97f4, -741),  (0xef340a98172aace5, -715),  (0xb23867fb2a35b28e, -688),
    (0x84c8d4dfd2c63f3b, -661),  (0xc5dd44271ad3cdba, -635),  (0x936b9fcebb25c996, -608),
    (0xdbac6c247d62a584, -582),  (0xa3ab66580d5fdaf6, -555),  (0xf3e2f893dec3f126, -529),
    (0xb5b5ada8aaff80b8, -502),  (0x87625f056c7c4a8b, -475),  (0xc9bcff6034c13053, -449),
    (0x964e858c91ba2655, -422),  (0xdff9772470297ebd, -396),  (0xa6dfbd9fb8e5b88f, -369),
    (0xf8a95fcf88747d94, -343),  (0xb94470938fa89bcf, -316),  (0x8a08f0f8bf0f156b, -289),
    (0xcdb02555653131b6, -263),  (0x993fe2c6d07b7fac, -236),  (0xe45c10c42a2b3b06, -210),
    (0xaa242499697392d3, -183),  (0xfd87b5f28300ca0e, -157),  (0xbce5086492111aeb, -130),
    (0x8cbccc096f5088cc, -103),  (0xd1b71758e219652c, -77),  (0x9c40000000000000, -50),
    (0xe8d4a51000000000, -24),  (0xad78ebc5ac620000, 3),  (0x813f3978f8940984, 30),
    (0xc097ce7bc90715b3, 56),  (0x8f7e32ce7bea5c70, 83),  (0xd5d238a4abe98068, 109),
    (0x9f4f2726179a2245, 136),  (0xed63a231d4c4fb27, 162),  (0xb0de65388cc8ada8, 189),
    (0x83c7088e1aab65db, 216),  (0xc45d1df942711d9a, 242),  (0x924d692ca61be758, 269),
    (0xda01ee641a708dea, 295),  (0xa26da3999aef774a, 322),  (0xf209787bb47d6b85, 348),
    (0xb454e4a179dd1877, 375),  (0x865b86925b9bc5c2, 402),  (0xc83553c5c8965d3d, 428),
    (0x952ab45cfa97a0b3, 455),  (0xde469fbd99a05fe3, 481),  (0xa59bc234db398c25, 508),
    (0xf6c69a72a3989f5c, 534),  (0xb7dcbf5354e9bece, 561),  (0x88fcf317f22241e2, 588),
    (0xcc20ce9bd35c78a5, 614),  (0x98165af37b2153df, 641),  (0xe2a0b5dc971f303a, 667),
    (0xa8d9d1535ce3b396, 694),  (0xfb9b7cd9a4a7443c, 720),  (0xbb764c4ca7a44410, 747),
    (0x8bab8eefb6409c1a, 774),  (0xd01fef10a657842c, 800),  (0x9b10a4e5e9913129, 827),
    (0xe7109bfba19c0c9d, 853),  (0xac2820d9623bf429, 880),  (0x80444b5e7aa7cf85, 907),
    (0xbf21e44003acdd2d, 933),  (0x8e679c2f5e44ff8f, 960),  (0xd433179d9c8cb841, 986),
    (0x9e19db92b4e31ba9, 1013),  (0xeb96bf6ebadf77d9, 1039),  (0xaf87023b9bf0ee6b, 1066),
];

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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn every_text_parses_back(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(!value.is_nan());
            prop_assert_eq!(parse_f64(&format_f64(value)).map(f64::to_bits), Some(bits));
        }
    }
}
