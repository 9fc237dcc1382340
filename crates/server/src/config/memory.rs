//! Amounts of bytes with units, as Redis writes them: `1k` is 1000, `1kb` is 1024.

const UNITS: [(&str, u64); 8] = [
    ("", 1),
    ("b", 1),
    ("k", 1000),
    ("kb", 1 << 10),
    ("m", 1_000_000),
    ("mb", 1 << 20),
    ("g", 1_000_000_000),
    ("gb", 1 << 30),
];
/// The most digits that Redis reads.
const DIGITS_MAX: usize = 127;

/// Parses bytes such as `512`, `1gb` or `2k`. As in Redis, the product wraps around, and no digits
/// mean 0.
pub(super) fn parse(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, unit) = text.split_at(digits);
    let (_, factor) = UNITS.iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(unit))?;
    if digits.len() > DIGITS_MAX {
        return None;
    }
    if digits.is_empty() {
        return Some(0);
    }
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(number.wrapping_mul(*factor))
}

/// The shortest exact form with a binary unit: `1gb`, `1536mb`, `1000`.
pub(super) fn format(bytes: u64) -> String {
    for (unit, shift) in [("gb", 30), ("mb", 20), ("kb", 10)] {
        if bytes != 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for bytes in [0, 1, 1000, 1 << 10, 1536 << 20, 1 << 63, i64::MAX as u64, u64::MAX] {
            assert_eq!(parse(format(bytes).as_bytes()), Some(bytes), "{bytes}");
        }
    }
}
