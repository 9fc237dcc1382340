//! ZSCAN.

use bobbin_resp::{Reply, format_f64};
use bobbin_store::Encoding;
use bobbin_store::value::{Item, SortedSet};

use super::super::element_scan::{reply_scan, scan_in_slices};
use super::super::elements::bulk;
use super::super::scan::parse_cursor;
use super::super::scan_options::{ScanOptions, Scanned};
use crate::engine::command::{Call, Outcome};
use crate::engine::execution::slices::SLICED_MIN;

pub(super) fn zscan(call: &mut Call<'_>) -> Outcome {
    let cursor = parse_cursor(call.args[2]).ok_or("ERR invalid cursor")?;
    let (key, hasher) = (call.key(1)?, call.data.keyspace().hasher());
    if call.data.read_as::<SortedSet>(key)?.is_none() {
        reply_scan(&mut call.reply, 0, 0, &[]);
        return Ok(());
    }
    let options = ScanOptions::parse(call, 3, Scanned::SortedSet)?;
    // The read was counted already.
    let Some(set) = call.data.peek(key).and_then(|entry| entry.collection::<SortedSet>()) else {
        return Ok(());
    };
    let is_large = set.encoding() == Encoding::Skiplist;
    let show = move |reply: &mut Reply<'_>, member: Item<'_>, score: f64, options: &ScanOptions| {
        if !options.matches(member) {
            return 0;
        }
        bulk(reply, member);
        if options.names_only {
            return 1;
        }
        match is_large {
            true => reply.bulk(in_seventeen_digits(score).as_bytes()),
            false => reply.bulk(&format_f64(score)),
        }
        2
    };
    if options.count > SLICED_MIN && set.len() > SLICED_MIN && call.may_leave_job {
        let pinned = set.clone();
        scan_in_slices(call, options, cursor, move |cursor, count, options, reply| {
            let mut shown = 0;
            let next = pinned.scan(cursor, count, hasher, |member, score| {
                shown += show(reply, member, score, options);
            });
            (next, shown)
        });
        return Ok(());
    }
    let (mut found, mut shown) = (Vec::new(), 0);
    let mut elements = Reply::new(&mut found, call.client.protocol);
    let next = set.scan(cursor, options.count, hasher, |member, score| {
        shown += show(&mut elements, member, score, &options);
    });
    reply_scan(&mut call.reply, next, shown, &found);
    Ok(())
}

/// Formats a number as C's printf does for `%.17g`. Redis formats scores this way only here, in a
/// large set.
fn in_seventeen_digits(score: f64) -> String {
    // For a number with few digits, the shortest text is the number itself.
    if score.abs() < 1e9 && (score * 64.0).fract() == 0.0 {
        return String::from_utf8_lossy(&format_f64(score)).into_owned();
    }
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
            (-123_456_789.015625, "-123456789.015625"),
            (0.0078125, "0.0078125"),
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
