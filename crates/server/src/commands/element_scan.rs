//! The replies of HSCAN, SSCAN and ZSCAN.

use bobbin_resp::Reply;

use super::scan_options::ScanOptions;
use crate::engine::command::Call;
use crate::engine::execution::slices::{SLICE, reply_behind_header};

/// Replies to a scan: the cursor, and `count` elements whose encoded bytes are given.
pub(super) fn reply_scan(reply: &mut Reply<'_>, cursor: u64, count: usize, elements: &[u8]) {
    begin_scan(reply, &(cursor, count));
    reply.raw(elements);
}

/// Appends what precedes the elements: the cursor, and how many elements there are.
fn begin_scan(reply: &mut Reply<'_>, &(cursor, count): &(u64, usize)) {
    let mut digits = itoa::Buffer::new();
    reply.array(2);
    reply.bulk(digits.format(cursor).as_bytes());
    reply.array(count);
}

/// Scans many elements of a pinned value. `step` shows about as many elements from a cursor on as
/// it is told. It returns the next cursor, and how many replies it has appended.
pub(super) fn scan_in_slices(
    call: &mut Call<'_>,
    options: ScanOptions,
    cursor: u64,
    step: impl Fn(u64, usize, &ScanOptions, &mut Reply<'_>) -> (u64, usize) + Send + 'static,
) {
    let mut left = options.count;
    reply_behind_header(call, (cursor, 0), begin_scan, move |reply, (cursor, count)| {
        let slice = left.min(SLICE);
        let (next, shown) = step(*cursor, slice, &options, reply);
        (*cursor, *count, left) = (next, *count + shown, left - slice);
        *cursor != 0 && left != 0
    });
}
