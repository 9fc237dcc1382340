//! Numbers as Redis reads them: stricter than the standard library in some places, laxer in none.

/// A decimal integer in the one form Redis accepts: no plus sign, no blanks, no leading zeros, not
/// `-0`, within 64 bits. So a text that parses is exactly the text that formatting would give.
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let (&first, rest) = digits.split_first()?;
    if first == b'0' {
        return (rest.is_empty() && !negative).then_some(0);
    }
    if digits.len() > I64_DIGITS_MAX {
        return None;
    }
    // Nineteen digits are below 10^19 < 2^64: the sum cannot overflow.
    let mut magnitude = 0u64;
    for &digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        magnitude = magnitude * 10 + u64::from(digit);
    }
    if negative {
        (magnitude <= i64::MIN.unsigned_abs()).then(|| (magnitude as i64).wrapping_neg())
    } else {
        i64::try_from(magnitude).ok()
    }
}

/// A floating point number as scores and increments are given: an optional sign, then decimal
/// digits with optional point and exponent, or `inf` or `infinity` in any case. Refused are NaN,
/// blanks, hexadecimal, and what only overflow or underflow would make infinite or zero.
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    // Integers are by far the most common scores.
    if text.len() <= EXACT_DIGITS_MAX
        && let Some(integer) = parse_i64(text)
    {
        return Some(integer as f64);
    }
    let value = str::from_utf8(text).ok()?.parse::<f64>().ok()?;
    if value.is_nan() {
        return None;
    }
    if value.is_infinite() {
        // The word has no digits; a number too large has.
        return text.iter().all(|byte| !byte.is_ascii_digit()).then_some(value);
    }
    if value == 0.0 {
        let mut mantissa = text.iter().take_while(|byte| !matches!(byte, b'e' | b'E'));
        return mantissa.all(|byte| !matches!(byte, b'1'..=b'9')).then_some(value);
    }
    Some(value)
}

/// Digits of `i64::MAX` and `i64::MIN`.
const I64_DIGITS_MAX: usize = 19;

/// Any integer of at most this many digits is exact in an `f64`.
const EXACT_DIGITS_MAX: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn integers() {
        for (text, value) in [
            ("0", 0),
            ("7", 7),
            ("-1", -1),
            ("10", 10),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(parse_i64(text.as_bytes()), Some(value), "{text}");
        }
        for text in [
            "",
            "-",
            "+1",
            "-0",
            "00",
            "01",
            "-01",
            " 1",
            "1 ",
            "1a",
            "a",
            "0x1",
            "1.0",
            "--1",
            "/",
            ":",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
            "18446744073709551617",
        ] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text}");
        }
    }

    // Each was asked of valkey-server 9.1.2 with ZADD.
    #[test]
    fn floats() {
        for (text, value) in [
            ("1", 1.0),
            ("+1", 1.0),
            ("1e5", 1e5),
            ("1E5", 1e5),
            ("1e+5", 1e5),
            ("1.", 1.0),
            (".5", 0.5),
            ("-.5e-1", -0.05),
            ("1.e2", 100.0),
            ("000", 0.0),
            ("00012", 12.0),
            ("0e-500", 0.0),
            ("3e-324", 5e-324),
            ("1e-310", 1e-310),
            ("inf", f64::INFINITY),
            ("+inf", f64::INFINITY),
            ("INF", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
        ] {
            assert_eq!(parse_f64(text.as_bytes()), Some(value), "{text}");
        }
        for text in [
            "", ".", "+", "-", "e5", ".e5", "1e", "1e+", "nan", "-NaN", "nan(1)", " 1", "1 ",
            "\t1", "1\0", "0x10", "0x1p4", "1_0", "1e400", "-1e400", "1e-400", "2e-324", "infinit",
            "infx", "i", "--1", "+-1", "1d5", "1f",
        ] {
            assert_eq!(parse_f64(text.as_bytes()), None, "{text}");
        }
        assert!(parse_f64(b"-0").is_some_and(|zero| zero == 0.0 && zero.is_sign_negative()));
        assert_eq!(parse_f64(b"\xff"), None);
    }

    proptest! {
        #[test]
        fn an_integer_parses_only_from_its_own_text(value: i64) {
            prop_assert_eq!(parse_i64(value.to_string().as_bytes()), Some(value));
        }

        #[test]
        fn integers_agree_with_the_standard_library(text in "[-+0-9]{0,21}") {
            let model = text.parse::<i64>().ok().filter(|value| value.to_string() == text);
            prop_assert_eq!(parse_i64(text.as_bytes()), model);
        }

        #[test]
        fn any_bytes(text: Vec<u8>) {
            if let Some(value) = parse_i64(&text) {
                prop_assert_eq!(value.to_string().into_bytes(), text.clone());
            }
            prop_assert!(parse_f64(&text).is_none_or(|value| !value.is_nan()));
        }

        #[test]
        fn every_float_parses_back(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(!value.is_nan());
            prop_assert_eq!(parse_f64(format!("{value:e}").as_bytes()).map(f64::to_bits), Some(bits));
        }
    }
}
