//! The timeout of a blocking command: an argument that says how long the client waits.

use crate::engine::command::{Call, Failure};

/// The deadline (Unix ms) that follows from a timeout in seconds; `None` for no deadline.
pub fn deadline_ms(call: &Call<'_>, index: usize) -> Result<Option<i64>, Failure> {
    let text = call.args[index];
    let seconds = match bobbin_resp::parse_f64(text) {
        Some(seconds) => seconds,
        // A number that is too large for a double, or has base 16, is out of range and not an error
        // of syntax.
        None if is_large(text) => return Err(TIMEOUT_OUT_OF_RANGE),
        None => return Err(NOT_A_TIMEOUT),
    };
    deadline_of(call, seconds * 1000.0, NOT_A_TIMEOUT)
}

/// Whether a text is a number that is too large for a timeout.
fn is_large(text: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(text) else { return false };
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).is_ok_and(|number| number >= 1 << 53),
        None => text.parse().is_ok_and(f64::is_infinite),
    }
}

/// The deadline (Unix ms) that follows from a timeout in whole milliseconds; `None` for no
/// deadline.
pub fn deadline_of_ms(call: &Call<'_>, index: usize) -> Result<Option<i64>, Failure> {
    let ms = bobbin_resp::parse_i64(call.args[index]).ok_or(NOT_AN_INTEGER_TIMEOUT)?;
    if ms < 0 {
        return Err(NEGATIVE_TIMEOUT);
    }
    deadline_after(call, ms)
}

fn deadline_of(call: &Call<'_>, ms: f64, invalid: Failure) -> Result<Option<i64>, Failure> {
    if ms.is_nan() {
        return Err(invalid);
    }
    if ms < 0.0 {
        return Err(NEGATIVE_TIMEOUT);
    }
    let ms = ms.ceil();
    if ms >= i64::MAX as f64 {
        return Err(TIMEOUT_OUT_OF_RANGE);
    }
    deadline_after(call, ms as i64)
}

/// The deadline of a wait of `ms`. The current millisecond has begun already, so it does not count:
/// no wait ends early.
fn deadline_after(call: &Call<'_>, ms: i64) -> Result<Option<i64>, Failure> {
    let deadline = ms.checked_add(call.data.conditions.now_ms).ok_or(TIMEOUT_OUT_OF_RANGE)?;
    Ok((ms > 0).then_some(deadline.saturating_add(1)))
}

const NOT_A_TIMEOUT: Failure = Failure::new(&"ERR timeout is not a float or out of range");
const NOT_AN_INTEGER_TIMEOUT: Failure =
    Failure::new(&"ERR timeout is not an integer or out of range");
const NEGATIVE_TIMEOUT: Failure = Failure::new(&"ERR timeout is negative");
const TIMEOUT_OUT_OF_RANGE: Failure = Failure::new(&"ERR timeout is out of range");
