//! HSCAN, SSCAN and ZSCAN: their replies.

use bobbin_resp::Reply;

use super::scan_options::ScanOptions;
use crate::engine::command::Call;
use crate::engine::execution::slices::{SLICE, reply_in_slices};

/// Answers a scan: the cursor, and `count` elements, whose encoded bytes are given.
pub(super) fn reply_scan(reply: &mut Reply<'_>, cursor: u64, count: usize, elements: &[u8]) {
    let mut digits = itoa::Buffer::new();
    reply.array(2);
    reply.bulk(digits.format(cursor).as_bytes());
    reply.array(count);
    reply.raw(elements);
}

/// A scan of many elements of a pinned value. `step` shows elements from a cursor on, about as many
/// as it is told; it returns the next cursor, and how many replies it has appended.
pub(super) fn scan_in_slices(
    call: &mut Call<'_>,
    options: ScanOptions,
    mut cursor: u64,
    step: impl Fn(u64, usize, &ScanOptions, &mut Reply<'_>) -> (u64, usize) + Send + 'static,
) {
    let protocol = call.client.protocol;
    let (mut elements, mut count, mut left) = (Vec::new(), 0, options.count);
    reply_in_slices(call, move |reply| {
        let slice = left.min(SLICE);
        let (next, shown) = step(cursor, slice, &options, &mut Reply::new(&mut elements, protocol));
        (cursor, count, left) = (next, count + shown, left - slice);
        let done = cursor == 0 || left == 0;
        if done {
            reply_scan(reply, cursor, count, &elements);
        }
        !done
    });
}
