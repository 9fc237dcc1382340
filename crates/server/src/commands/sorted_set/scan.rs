//! ZSCAN.

use bobbin_resp::{Aggregate, format_f64};
use bobbin_store::Encoding;
use bobbin_store::value::{SortedSet, integer};

use super::super::elements::bulk;
use super::super::scan::parse_cursor;
use crate::command::{Call, Failure, Outcome};
use crate::glob;

pub(super) fn zscan(call: &mut Call<'_>) -> Outcome {
    let cursor = parse_cursor(call.args[2]).ok_or("ERR invalid cursor")?;
    let hasher = call.data.keyspace().hasher();
    let Some(set) = call.data.read_as::<SortedSet>(call.key(1)?)? else {
        call.reply.array(2);
        call.reply.bulk(b"0");
        call.reply.array(0);
        return Ok(());
    };
    let (mut pattern, mut count, mut with_scores) = (None, COUNT_DEFAULT, true);
    let mut at = 3;
    while at < call.args.len() {
        let word = call.args[at];
        let value = call.args.get(at + 1).copied();
        match value {
            Some(value) if word.eq_ignore_ascii_case(b"count") => {
                let number = bobbin_resp::parse_i64(value).ok_or(Failure::NOT_AN_INTEGER)?;
                let number = usize::try_from(number).ok().filter(|&number| number > 0);
                count = number.ok_or(Failure::SYNTAX)?;
                at += 1;
            }
            Some(value) if word.eq_ignore_ascii_case(b"match") => {
                pattern = (value != b"*").then_some(value);
                at += 1;
            }
            _ if word.eq_ignore_ascii_case(b"noscores") => with_scores = false,
            _ if word.eq_ignore_ascii_case(b"novalues") => {
                return Err("ERR NOVALUES option can only be used in HSCAN".into());
            }
            _ => return Err(Failure::SYNTAX),
        }
        at += 1;
    }
    let encoding = set.encoding();
    let start = call.reply.output().len();
    let array = call.reply.defer();
    let (mut found, mut room) = (0, integer::Text::new(0));
    let next = set.scan(cursor, count, hasher, |member, score| {
        if pattern.is_none_or(|pattern| glob::matches_text(pattern, member.text(&mut room))) {
            bulk(&mut call.reply, member);
            found += 1;
            if with_scores {
                match encoding {
                    Encoding::Skiplist => call.reply.bulk(in_seventeen_digits(score).as_bytes()),
                    _ => call.reply.bulk(&format_f64(score)),
                }
                found += 1;
            }
        }
    });
    call.reply.finish(array, Aggregate::Array, found);
    let next = next.to_string();
    let header = format!("*2\r\n${}\r\n{next}\r\n", next.len());
    call.reply.output().splice(start..start, header.into_bytes());
    Ok(())
}

/// What C's printf makes of a number for `%.17g`. It is how the reference formats scores here, and here only,
/// where the set is large.
fn in_seventeen_digits(score: f64) -> String {
    if score.is_infinite() {
        return if score > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{score:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| text.trim_end_matches('0').trim_end_matches('.').to_owned();
    if (-4..17).contains(&exponent) {
        let text = format!("{score:.*}", (16 - exponent) as usize);
        return if exponent < 16 { trimmed(&text) } else { text };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.unsigned_abs())
}

/// Members that are looked at unless told otherwise.
const COUNT_DEFAULT: usize = 10;

#[cfg(test)]
mod tests {
    use super::in_seventeen_digits;

    #[test]
    fn numbers_are_as_printf_has_them() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (100.0, "100"),
            (39.3, "39.299999999999997"),
            (0.1, "0.10000000000000001"),
            (1e-5, "1.0000000000000001e-05"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (-1e300, "-1.0000000000000001e+300"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(in_seventeen_digits(number), text);
        }
    }
}
