//! The numbers of INCRBYFLOAT: 80-bit extended floating point, as Redis uses on x86.
//!
//! With 64 bits of significand, 0.1 + 0.2 is 0.3 to the 17 places that are shown. With the 53 bits
//! of an `f64` it is 0.30000000000000004. So parsing, adding and formatting are done here with
//! integers. Each is rounded once, to the nearest number and on a tie to the even one, as the C
//! library and the processor do.

use std::ops::Deref;

use super::decimal::Big;

/// `significand * 2^exponent`, or an infinity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::commands) struct Extended {
    negative: bool,
    infinite: bool,
    /// The top bit is set, unless the number is zero or subnormal.
    significand: u64,
    exponent: i32,
}

/// The longest text of a number, as in Redis.
const TEXT_LEN_MAX: usize = 5 * 1024 - 1;
/// The exponents of the largest and of the smallest number.
const EXPONENT_MAX: i32 = 16383 - 63;
const EXPONENT_MIN: i32 = -16382 - 63;
/// How many places are shown behind the point.
const PLACES: usize = 17;
const PLACES_POWER: u128 = 10u128.pow(PLACES as u32);
/// 5 to this power fits 64 bits.
const POWER_OF_5_MAX: u32 = 27;
/// A number is too large if its first digit is further left of the point, and too small if it is
/// further right.
const MAGNITUDE_MAX: i64 = 4940;
/// The bits of a quotient: enough for the significand and for rounding.
const QUOTIENT_BITS: usize = 68;

impl Extended {
    pub(in crate::commands) const ZERO: Self =
        Self { negative: false, infinite: false, significand: 0, exponent: 0 };

    /// Parses what C's `strtold` accepts as a whole text: decimal or hexadecimal with an optional
    /// exponent, or an infinity. Refuses NaN, blanks, and numbers that would overflow to infinity
    /// or underflow to zero.
    pub(in crate::commands) fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > TEXT_LEN_MAX {
            return None;
        }
        let (negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, text),
        };
        let magnitude = match text {
            [b'0', b'x' | b'X', rest @ ..] => hexadecimal(rest)?,
            [b'0'..=b'9' | b'.', ..] => decimal(text)?,
            _ => {
                let infinite = [&b"inf"[..], b"infinity"];
                if !infinite.iter().any(|word| text.eq_ignore_ascii_case(word)) {
                    return None;
                }
                Self { infinite: true, ..Self::ZERO }
            }
        };
        Some(Self { negative, ..magnitude })
    }

    /// The sum. `None`: it is not finite.
    pub(in crate::commands) fn plus(self, other: Self) -> Option<Self> {
        if self.infinite || other.infinite {
            return None;
        }
        if self.significand == 0 || other.significand == 0 {
            return Some(if self.significand == 0 { other } else { self });
        }
        let (a, b) = (self.normalized(), other.normalized());
        let (a, b) = if a.exponent >= b.exponent { (a, b) } else { (b, a) };
        // Both have room for a carry above and for rounding below.
        let above = u128::from(a.significand) << 62;
        let below = u128::from(b.significand) << 62;
        let distance = (a.exponent - b.exponent) as u32;
        let kept = below.checked_shr(distance).unwrap_or(0);
        let lost = kept.checked_shl(distance) != Some(below);
        // The lost bits set the lowest bit: it only has to break a tie, or to prevent one.
        let kept = kept | u128::from(lost);
        let (negative, sum) = if a.negative == b.negative {
            (a.negative, above + kept)
        } else if above >= kept {
            (a.negative, above - kept)
        } else {
            (b.negative, kept - above)
        };
        let rounded = Self::rounded(sum, a.exponent - 62, false)?;
        Some(Self { negative: negative && sum != 0, ..rounded })
    }

    fn normalized(self) -> Self {
        let shift = self.significand.leading_zeros();
        Self {
            significand: self.significand << shift,
            exponent: self.exponent - shift as i32,
            ..self
        }
    }

    /// The number nearest to `value * 2^exponent`. With `more`, the exact number is greater by less
    /// than one unit of `value`, which then has more than 64 bits. `None`: too large.
    fn rounded(value: u128, exponent: i32, more: bool) -> Option<Self> {
        let bits = (u128::BITS - value.leading_zeros()) as i32;
        let shift = (bits - 64).max(EXPONENT_MIN - exponent);
        if shift <= 0 {
            let significand = (value as u64) << (64 - bits).clamp(0, 63);
            let exponent = exponent - (64 - bits).clamp(0, 63);
            let zero = value == 0;
            return match exponent {
                _ if zero => Some(Self::ZERO),
                ..=EXPONENT_MAX => Some(Self { significand, exponent, ..Self::ZERO }),
                _ => None,
            };
        }
        let shift_by = shift as u32;
        let kept = value.checked_shr(shift_by).unwrap_or(0);
        let rest = value - kept.checked_shl(shift_by).unwrap_or(0);
        let half = 1u128.checked_shl(shift_by - 1).unwrap_or(0);
        let up = match rest.cmp(&half) {
            _ if half == 0 => false,
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Equal => more || kept & 1 == 1,
            std::cmp::Ordering::Less => false,
        };
        let mut significand = kept + u128::from(up);
        let mut exponent = exponent + shift;
        if significand >> 64 != 0 {
            significand >>= 1;
            exponent += 1;
        }
        (exponent <= EXPONENT_MAX).then_some(Self {
            significand: significand as u64,
            exponent,
            ..Self::ZERO
        })
    }

    /// The number with at most 17 places, without trailing zeros and without an exponent.
    pub(in crate::commands) fn text(self) -> NumberText {
        let mut text = NumberText { short: [0; SHORT_LEN_MAX], len: 0, long: Vec::new() };
        let (whole, places) = if self.exponent >= 0 {
            if self.exponent as u32 > self.significand.leading_zeros() + 64 {
                let mut digits = if self.negative { vec![b'-'] } else { Vec::new() };
                let mut whole = Big::from_u64(self.significand);
                whole.shift_left(self.exponent as usize);
                whole.append_digits(&mut digits);
                text.long = digits;
                return text;
            }
            (u128::from(self.significand) << self.exponent, 0)
        } else {
            self.split()
        };
        if self.negative && (whole, places) != (0, 0) {
            text.push(b"-");
        }
        text.push(itoa::Buffer::new().format(whole).as_bytes());
        if places != 0 {
            // The leading one keeps the zeros behind the point.
            let mut digits = itoa::Buffer::new();
            let digits = digits.format(PLACES_POWER + places).as_bytes();
            let end = digits.iter().rposition(|&digit| digit != b'0').unwrap_or(0);
            text.push(b".");
            text.push(&digits[1..=end]);
        }
        text
    }

    /// The part before the point, and the places behind it as a number. The exponent must be
    /// negative.
    fn split(self) -> (u128, u128) {
        let below = self.exponent.unsigned_abs();
        let whole = self.significand.checked_shr(below).unwrap_or(0);
        let fraction = self.significand - whole.checked_shl(below).unwrap_or(0);
        // Below 2^64 * 10^17 < 2^121.
        let scaled = u128::from(fraction) * PLACES_POWER;
        let places = scaled.checked_shr(below).unwrap_or(0);
        let rest = scaled - places.checked_shl(below).unwrap_or(0);
        let up = match 1u128.checked_shl(below - 1) {
            Some(half) => rest > half || rest == half && places & 1 == 1,
            None => false,
        };
        let places = places + u128::from(up);
        if places == PLACES_POWER {
            (u128::from(whole) + 1, 0)
        } else {
            (u128::from(whole), places)
        }
    }
}

/// A sign, the 39 digits of a `u128`, a point and the places.
const SHORT_LEN_MAX: usize = 1 + 39 + 1 + PLACES;

/// The text of a number. Only a very large one needs an allocation.
pub(in crate::commands) struct NumberText {
    short: [u8; SHORT_LEN_MAX],
    len: usize,
    long: Vec<u8>,
}

impl NumberText {
    fn push(&mut self, part: &[u8]) {
        self.short[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
    }
}

impl Deref for NumberText {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.long.is_empty() { &self.short[..self.len] } else { &self.long }
    }
}

/// Parses digits with an optional point and exponent.
fn decimal(text: &[u8]) -> Option<Extended> {
    let (mantissa, exponent) = split_exponent(text, b'e')?;
    let mut digits = Vec::new();
    let mut short = 0u64;
    let mut count = 0;
    let mut places = 0;
    for digit in mantissa_digits(mantissa)? {
        let (digit, is_place) = digit;
        places += i64::from(is_place);
        if count == 0 && digit == 0 {
            continue;
        }
        count += 1;
        if count <= 19 {
            short = short * 10 + u64::from(digit);
        } else {
            digits.push(digit);
        }
    }
    let exponent = exponent - places;
    if count == 0 {
        return Some(Extended::ZERO);
    }
    if digits.is_empty() && exponent.unsigned_abs() <= u64::from(POWER_OF_5_MAX) {
        return scaled(short, exponent as i32);
    }
    if !(-MAGNITUDE_MAX - 20..=MAGNITUDE_MAX).contains(&(count + exponent)) {
        return None;
    }
    let mut number = Big::from_u64(short);
    digits.iter().for_each(|&digit| number.multiply_add(10, u32::from(digit)));
    if exponent >= 0 {
        number.multiply_by_power_of_10(exponent as u32);
        let (top, below, more) = number.top();
        return Extended::rounded(top, below, more);
    }
    let mut divisor = Big::from_u64(1);
    divisor.multiply_by_power_of_10(exponent.unsigned_abs() as u32);
    let shift = divisor.bits() as i64 - number.bits() as i64 + QUOTIENT_BITS as i64 - 1;
    if shift >= 0 {
        number.shift_left(shift as usize);
    } else {
        divisor.shift_left(shift.unsigned_abs() as usize);
    }
    let (quotient, more) = number.divide(&divisor, QUOTIENT_BITS);
    let rounded = Extended::rounded(quotient, -shift as i32, more)?;
    // A number that is not zero must not become zero.
    (rounded.significand != 0).then_some(rounded)
}

/// `number * 10^exponent` for a small exponent.
fn scaled(number: u64, exponent: i32) -> Option<Extended> {
    let power = u128::from(5u64.pow(exponent.unsigned_abs()));
    let number = u128::from(number);
    if exponent >= 0 {
        return Extended::rounded(number * power, exponent, false);
    }
    // The numerator has 127 or 128 bits and the power at most 63, so the quotient has more than 64.
    let shift = number.leading_zeros();
    let numerator = number << shift;
    let (quotient, rest) = (numerator / power, numerator % power);
    Extended::rounded(quotient, exponent - shift as i32, rest != 0)
}

/// Parses what follows `0x`: hexadecimal digits with an optional point and a binary exponent.
fn hexadecimal(text: &[u8]) -> Option<Extended> {
    let (mantissa, mut exponent) = split_exponent(text, b'p')?;
    let mut value = 0u128;
    let mut more = false;
    for (digit, is_place) in hexadecimal_digits(mantissa)? {
        exponent -= 4 * i64::from(is_place);
        if value >> 124 == 0 {
            value = value << 4 | u128::from(digit);
        } else {
            more |= digit != 0;
            exponent += 4;
        }
    }
    if value == 0 {
        return Some(Extended::ZERO);
    }
    let rounded = Extended::rounded(value, i32::try_from(exponent).ok()?, more)?;
    (rounded.significand != 0).then_some(rounded)
}

/// Splits the exponent off. It is 0 if there is none, and bounded if it is absurd.
fn split_exponent(text: &[u8], letter: u8) -> Option<(&[u8], i64)> {
    const BOUND: i64 = 1 << 24;
    let Some(at) = text.iter().position(|byte| byte.eq_ignore_ascii_case(&letter)) else {
        return Some((text, 0));
    };
    let (negative, digits) = match &text[at + 1..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits
        .iter()
        .fold(0, |value: i64, digit| (value * 10 + i64::from(digit - b'0')).min(BOUND));
    Some((&text[..at], if negative { -value } else { value }))
}

fn mantissa_digits(text: &[u8]) -> Option<impl Iterator<Item = (u8, bool)>> {
    digits(text, |byte| byte.is_ascii_digit().then(|| byte - b'0'))
}

fn hexadecimal_digits(text: &[u8]) -> Option<impl Iterator<Item = (u8, bool)>> {
    digits(text, |byte| (byte as char).to_digit(16).map(|digit| digit as u8))
}

/// The digits of a mantissa, at least one, each with whether it is behind the point. `None`: there
/// is something else among them.
fn digits(
    text: &[u8],
    digit: impl Fn(u8) -> Option<u8> + Copy,
) -> Option<impl Iterator<Item = (u8, bool)>> {
    let point = text.iter().position(|&byte| byte == b'.');
    let (whole, places) = match point {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[][..]),
    };
    let valid = |part: &[u8]| part.iter().all(|&byte| digit(byte).is_some());
    if whole.len() + places.len() == 0 || !valid(whole) || !valid(places) {
        return None;
    }
    let whole = whole.iter().map(move |&byte| (digit(byte).unwrap_or(0), false));
    let places = places.iter().map(move |&byte| (digit(byte).unwrap_or(0), true));
    Some(whole.chain(places))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(number: &str) -> Option<String> {
        let number = Extended::parse(number.as_bytes())?;
        Some(String::from_utf8(number.text().to_vec()).unwrap())
    }

    fn sum(a: &str, b: &str) -> Option<String> {
        let sum = Extended::parse(a.as_bytes())?.plus(Extended::parse(b.as_bytes())?)?;
        Some(String::from_utf8(sum.text().to_vec()).unwrap())
    }

    // The results of valkey-server 9.1.2.
    #[test]
    fn texts_and_sums_are_those_of_valkey() {
        for (a, b, expected) in [
            ("0.1", "0.2", "0.3"),
            ("5.0e3", "200", "5200"),
            ("1.5", "-1.5", "0"),
            ("0", "-0", "0"),
            ("1", "0.000000000000000005", "1"),
            ("0", "0.0000000000000000050000001", "0.00000000000000001"),
            ("0", "0.000000000000000005", "0"),
            ("0", "0x10", "16"),
            ("0", "0x.8p1", "1"),
            ("1", "+5", "6"),
            ("0", "18446744073709551616.5", "18446744073709551616"),
        ] {
            assert_eq!(sum(a, b).as_deref(), Some(expected), "{a} + {b}");
        }
        for refused in [
            "", ".", "+", "-", " 1", "1 ", "1e", "1e+", "0x", "0x.", "0x1p", "nan", "1e5000",
            "1e-4960", "1e-5000", "1_0", "1\0", "infi", "--1",
        ] {
            assert_eq!(text(refused), None, "{refused:?}");
        }
        assert!(text("1e-4950").is_some_and(|text| text == "0"));
        assert_eq!(text("1e4000").map(|text| text.len()), Some(4000));
        assert_eq!(sum("inf", "1"), None);
        assert_eq!(sum("1", "-Infinity"), None);
        assert_eq!(sum("1.18e4932", "1.18e4932"), None);
    }

    proptest::proptest! {
        #[test]
        fn integers_add_exactly(a in -1i64 << 62..1 << 62, b in -1i64 << 62..1 << 62) {
            proptest::prop_assert_eq!(sum(&a.to_string(), &b.to_string()), Some((a + b).to_string()));
        }

        #[test]
        fn nothing_panics(a in "[-+]?[0-9]{0,30}[.]?[0-9]{0,30}(e[-+]?[0-9]{1,5})?", b in "[-+0-9a-fxpe.]{0,12}") {
            sum(&a, &b);
        }
    }
}
