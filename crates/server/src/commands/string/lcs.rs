//! LCS: the longest common subsequence of two strings.

use std::sync::Arc;

use bobbin_resp::Aggregate;
use bobbin_store::ValueRef;
use bobbin_store::entry::Shared;

use super::edit::len_max;
use crate::command::data::string;
use crate::command::{Call, Failure, Outcome};

/// What the options ask for.
#[derive(Default)]
struct Wanted {
    len: bool,
    matches: bool,
    match_lens: bool,
    match_len_min: i64,
}

pub(super) fn lcs(call: &mut Call<'_>) -> Outcome {
    let (a, b) = (own(call, 1)?, own(call, 2)?);
    let wanted = Wanted::parse(call)?;
    // Each cell of the table takes four bytes, and the table no more than the longest string.
    let cells = (a.len() as u128 + 1) * (b.len() as u128 + 1);
    if cells * 4 > len_max(call) as u128 {
        return Err(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len".into()
        );
    }
    // The work may be long, and we have the strings: nobody needs to wait for it.
    call.end_reading();
    if wanted.len && !wanted.matches {
        call.reply.integer(common_len(&a, &b) as i64);
        return Ok(());
    }
    let table = Table::new(&a, &b);
    if !wanted.matches {
        call.reply.bulk(&table.subsequence(&a, &b));
        return Ok(());
    }
    call.reply.map(2);
    call.reply.bulk(b"matches");
    let matches = call.reply.defer();
    let mut count = 0;
    table.runs(&a, &b, |run| {
        if (run.len as i64) < wanted.match_len_min {
            return;
        }
        count += 1;
        call.reply.array(2 + usize::from(wanted.match_lens));
        for start in [run.a, run.b] {
            call.reply.array(2);
            call.reply.integer(start as i64);
            call.reply.integer((start + run.len - 1) as i64);
        }
        if wanted.match_lens {
            call.reply.integer(run.len as i64);
        }
    });
    call.reply.finish(matches, Aggregate::Array, count);
    call.reply.bulk(b"len");
    call.reply.integer(i64::from(table.at(a.len(), b.len())));
    Ok(())
}

impl Wanted {
    fn parse(call: &Call<'_>) -> Result<Self, Failure> {
        let mut wanted = Self::default();
        let mut index = 3;
        while index < call.args.len() {
            if call.word_is(index, "LEN") {
                wanted.len = true;
            } else if call.word_is(index, "IDX") {
                wanted.matches = true;
            } else if call.word_is(index, "WITHMATCHLEN") {
                wanted.match_lens = true;
            } else if call.word_is(index, "MINMATCHLEN") && index + 1 < call.args.len() {
                index += 1;
                wanted.match_len_min = call.integer(index)?;
            } else {
                return Err(Failure::SYNTAX);
            }
            index += 1;
        }
        if wanted.len && wanted.matches {
            return Err("ERR If you want both the length and indexes, please just use IDX.".into());
        }
        Ok(wanted)
    }
}

/// The string at a key, kept beyond the lock.
fn own(call: &mut Call<'_>, index: usize) -> Result<Shared, Failure> {
    let key = call.key(index)?;
    let Some(entry) = call.data.read(key) else { return Ok(Shared::default()) };
    if string(entry).is_err() {
        return Err("ERR The specified keys must contain string values".into());
    }
    Ok(match entry.value() {
        ValueRef::Shared(shared) => Arc::clone(shared),
        _ => Arc::new(entry.string().joined().into_owned()),
    })
}

/// A run of equal bytes: where it starts in both strings, and how long it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    a: usize,
    b: usize,
    len: usize,
}

/// The length of the longest common subsequence of every two prefixes.
struct Table {
    lens: Vec<u32>,
    width: usize,
}

impl Table {
    fn new(a: &[u8], b: &[u8]) -> Self {
        let width = b.len() + 1;
        let mut lens = vec![0; (a.len() + 1) * width];
        let mut rows = lens.chunks_exact_mut(width);
        let mut above = rows.next().unwrap_or_default();
        for (&byte, row) in a.iter().zip(rows) {
            fill(row, above, byte, b);
            above = row;
        }
        Self { lens, width }
    }

    fn at(&self, a_len: usize, b_len: usize) -> u32 {
        self.lens[a_len * self.width + b_len]
    }

    /// Walks back from the ends to a beginning, over the pairs of positions that were matched. Where
    /// both ways are as good the second string is shortened, as Redis does.
    fn walk(&self, a: &[u8], b: &[u8], mut matched: impl FnMut(usize, usize)) {
        let (mut i, mut j) = (a.len(), b.len());
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                (i, j) = (i - 1, j - 1);
                matched(i, j);
            } else if self.at(i - 1, j) > self.at(i, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
    }

    fn subsequence(&self, a: &[u8], b: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.at(a.len(), b.len()) as usize);
        self.walk(a, b, |i, _| bytes.push(a[i]));
        bytes.reverse();
        bytes
    }

    /// The runs of the subsequence, last first.
    fn runs(&self, a: &[u8], b: &[u8], mut emit: impl FnMut(Run)) {
        let mut open: Option<Run> = None;
        self.walk(a, b, |i, j| {
            open = Some(match open {
                Some(run) if run.a == i + 1 && run.b == j + 1 => {
                    Run { a: i, b: j, len: run.len + 1 }
                }
                before => {
                    before.into_iter().for_each(&mut emit);
                    Run { a: i, b: j, len: 1 }
                }
            });
        });
        open.into_iter().for_each(emit);
    }
}

/// The length alone, with two rows of the table.
fn common_len(a: &[u8], b: &[u8]) -> usize {
    let mut above = vec![0; b.len() + 1];
    let mut row = above.clone();
    for &byte in a {
        fill(&mut row, &above, byte, b);
        std::mem::swap(&mut row, &mut above);
    }
    above[b.len()] as usize
}

/// The table's row for one more byte, from the row above.
fn fill(row: &mut [u32], above: &[u32], byte: u8, b: &[u8]) {
    let mut left = 0;
    for (((cell, &other), up_left), &up) in row[1..].iter_mut().zip(b).zip(above).zip(&above[1..]) {
        left = if byte == other { up_left + 1 } else { up.max(left) };
        *cell = left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(a: &str, b: &str) -> Vec<(usize, usize, usize)> {
        let (a, b) = (a.as_bytes(), b.as_bytes());
        let mut runs = Vec::new();
        Table::new(a, b).runs(a, b, |run| runs.push((run.a, run.b, run.len)));
        runs
    }

    fn subsequence(a: &str, b: &str) -> String {
        let (a, b) = (a.as_bytes(), b.as_bytes());
        let table = Table::new(a, b);
        let common = table.subsequence(a, b);
        assert_eq!(common.len(), table.at(a.len(), b.len()) as usize);
        assert_eq!(common.len(), common_len(a, b));
        String::from_utf8(common).unwrap()
    }

    // The answers are those of valkey-server 9.1.2.
    #[test]
    fn subsequences_and_runs() {
        assert_eq!(subsequence("ohmytext", "mynewtext"), "mytext");
        assert_eq!(runs("ohmytext", "mynewtext"), [(4, 5, 4), (2, 0, 2)]);
        assert_eq!(subsequence("", "abc"), "");
        assert_eq!(runs("abc", ""), []);
        assert_eq!(subsequence("abc", "abc"), "abc");
        assert_eq!(runs("abc", "abc"), [(0, 0, 3)]);
        assert_eq!(subsequence("ab", "ba"), "b");
        assert_eq!(runs("abcabc", "cab"), [(2, 0, 3)]);
    }
}
