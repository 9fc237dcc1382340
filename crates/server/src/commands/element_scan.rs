//! HSCAN, SSCAN and ZSCAN: their options and their replies.

use bobbin_resp::Reply;
use bobbin_store::value::{Item, integer};

use crate::base::glob;
use crate::engine::command::slices::{SLICE, reply_in_slices};
use crate::engine::command::{Call, Failure};

/// The options of HSCAN, SSCAN and ZSCAN.
pub(super) struct ScanOptions {
    pattern: Option<Box<[u8]>>,
    /// Elements to look at.
    pub(super) count: usize,
    /// NOVALUES of HSCAN or NOSCORES of ZSCAN.
    pub(super) names_only: bool,
}

/// Which command a word is the privilege of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scanned {
    Hash,
    Set,
    SortedSet,
}

impl ScanOptions {
    /// Reads the words behind the cursor.
    pub(super) fn parse(call: &Call<'_>, scanned: Scanned) -> Result<Self, Failure> {
        let mut options = Self { pattern: None, count: COUNT_DEFAULT, names_only: false };
        let mut at = 3;
        while at < call.args.len() {
            let value = call.args.get(at + 1).copied();
            match value {
                Some(_) if call.word_is(at, "count") => {
                    let count = call.integer(at + 1)?;
                    let count = usize::try_from(count).ok().filter(|&count| count > 0);
                    options.count = count.ok_or(Failure::SYNTAX)?;
                }
                Some(pattern) if call.word_is(at, "match") => {
                    options.pattern = (pattern != b"*").then(|| pattern.into());
                }
                _ if call.word_is(at, "novalues") => {
                    if scanned != Scanned::Hash {
                        return Err("ERR NOVALUES option can only be used in HSCAN".into());
                    }
                    options.names_only = true;
                    at += 1;
                    continue;
                }
                _ if call.word_is(at, "noscores") => {
                    if scanned != Scanned::SortedSet {
                        return Err("ERR NOSCORES option can only be used in ZSCAN".into());
                    }
                    options.names_only = true;
                    at += 1;
                    continue;
                }
                _ => return Err(Failure::SYNTAX),
            }
            at += 2;
        }
        Ok(options)
    }

    pub(super) fn matches(&self, element: Item<'_>) -> bool {
        let Some(pattern) = &self.pattern else { return true };
        let mut room = integer::Text::new(0);
        glob::matches_text(pattern, element.text(&mut room))
    }
}

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

/// Elements that are looked at unless told otherwise.
const COUNT_DEFAULT: usize = 10;
