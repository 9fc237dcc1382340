//! LCS: the longest common subsequence of two strings.

use std::sync::Arc;

use bobbin_resp::{Aggregate, Reply};
use bobbin_store::ValueRef;
use bobbin_store::entry::SharedString;

use super::edit::len_max;
use crate::engine::command::data::string;
use crate::engine::command::{Call, Failure, Outcome};
use crate::engine::execution::slices::reply_in_slices;

/// The options.
#[derive(Clone, Copy, Default)]
struct LcsOptions {
    len: bool,
    matches: bool,
    match_lens: bool,
    match_len_min: i64,
}

pub(super) fn lcs(call: &mut Call<'_>) -> Outcome {
    let (a, b) = (own(call, 1)?, own(call, 2)?);
    let wanted = LcsOptions::parse(call)?;
    // Each cell of the table takes four bytes, and the table may not be larger than the longest
    // string.
    let cells = (a.len() as u128 + 1) * (b.len() as u128 + 1);
    if cells * 4 > len_max(call) as u128 {
        return Err(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len".into()
        );
    }
    // The work may be long, and the strings are kept, so no other client needs to wait.
    call.end_reading();
    let rows = Rows::new(wanted.keeps_table().then_some(a.len()), b.len());
    let mut work = LcsWork { wanted, rows, a, b };
    if cells <= AT_ONCE_MAX || !call.may_leave_job {
        while work.step() {}
        work.answer(&mut call.reply);
        return Ok(());
    }
    reply_in_slices(call, move |reply| {
        let more = work.step();
        if !more {
            work.answer(reply);
        }
        more
    });
    Ok(())
}

/// A comparison in progress.
struct LcsWork {
    a: SharedString,
    b: SharedString,
    wanted: LcsOptions,
    rows: Rows,
}

impl LcsWork {
    /// Fills some rows. Returns whether there are more.
    fn step(&mut self) -> bool {
        let rows = (CELLS / self.rows.width).max(1);
        let from = self.rows.filled;
        self.a[from..].iter().take(rows).for_each(|&byte| self.rows.fill(byte, &self.b));
        self.rows.filled < self.a.len()
    }

    fn answer(&self, reply: &mut Reply<'_>) {
        let Self { a, b, wanted, rows } = self;
        if !wanted.keeps_table() {
            reply.integer(i64::from(rows.at(a.len(), b.len())));
            return;
        }
        if !wanted.matches {
            reply.bulk(&rows.subsequence(a, b));
            return;
        }
        reply.map(2);
        reply.bulk(b"matches");
        let matches = reply.defer();
        let mut count = 0;
        rows.runs(a, b, |run| {
            if (run.len as i64) < wanted.match_len_min {
                return;
            }
            count += 1;
            reply.array(2 + usize::from(wanted.match_lens));
            for start in [run.a, run.b] {
                reply.array(2);
                reply.integer(start as i64);
                reply.integer((start + run.len - 1) as i64);
            }
            if wanted.match_lens {
                reply.integer(run.len as i64);
            }
        });
        reply.finish(matches, Aggregate::Array, count);
        reply.bulk(b"len");
        reply.integer(i64::from(rows.at(a.len(), b.len())));
    }
}

impl LcsOptions {
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

    /// Whether the whole table is needed. Otherwise its last row is enough.
    const fn keeps_table(self) -> bool {
        !self.len || self.matches
    }
}

/// The string at a key, kept after the unlock.
fn own(call: &mut Call<'_>, index: usize) -> Result<SharedString, Failure> {
    let key = call.key(index)?;
    let Some(entry) = call.data.read(key) else { return Ok(SharedString::default()) };
    if string(entry).is_err() {
        return Err("ERR The specified keys must contain string values".into());
    }
    Ok(match entry.value() {
        ValueRef::Shared(shared) => Arc::clone(shared),
        _ => Arc::new(entry.string().joined().into_owned()),
    })
}

/// A run of equal bytes: where it starts in both strings, and its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct EqualRun {
    a: usize,
    b: usize,
    len: usize,
}

/// The length of the longest common subsequence of every two prefixes. There is a row for each
/// prefix of the first string.
struct Rows {
    /// All rows, or the last two of them in turn.
    lens: Vec<u32>,
    width: usize,
    /// How many rows there are behind the first, which is for the empty prefix.
    filled: usize,
    keeps_all: bool,
}

impl Rows {
    /// `a_len` is set if all rows are kept.
    fn new(a_len: Option<usize>, b_len: usize) -> Self {
        let width = b_len + 1;
        let rows = a_len.map_or(2, |a_len| a_len + 1);
        Self { lens: vec![0; rows * width], width, filled: 0, keeps_all: a_len.is_some() }
    }

    /// Adds the row for one more byte of the first string.
    fn fill(&mut self, byte: u8, b: &[u8]) {
        self.filled += 1;
        let start = self.start(self.filled);
        let (before, after) = self.lens.split_at_mut(self.width.max(start));
        match start {
            0 => fill(before, after, byte, b),
            _ => fill(after, &before[start - self.width..], byte, b),
        }
    }

    /// The beginning of a row.
    const fn start(&self, row: usize) -> usize {
        self.width * if self.keeps_all { row } else { row % 2 }
    }

    /// A cell of a row that is kept.
    fn at(&self, a_len: usize, b_len: usize) -> u32 {
        self.lens[self.start(a_len) + b_len]
    }

    /// Walks back from the ends of both strings to a beginning, over the matched pairs of
    /// positions. If both ways are equally good, the second string is shortened, as in Redis.
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

    /// The runs of the subsequence, the last one first.
    fn runs(&self, a: &[u8], b: &[u8], mut emit: impl FnMut(EqualRun)) {
        let mut open: Option<EqualRun> = None;
        self.walk(a, b, |i, j| {
            open = Some(match open {
                Some(run) if run.a == i + 1 && run.b == j + 1 => {
                    EqualRun { a: i, b: j, len: run.len + 1 }
                }
                before => {
                    before.into_iter().for_each(&mut emit);
                    EqualRun { a: i, b: j, len: 1 }
                }
            });
        });
        open.into_iter().for_each(emit);
    }
}

/// Fills the row for one more byte from the row above.
fn fill(row: &mut [u32], above: &[u32], byte: u8, b: &[u8]) {
    let mut left = 0;
    for (((cell, &other), up_left), &up) in row[1..].iter_mut().zip(b).zip(above).zip(&above[1..]) {
        left = if byte == other { up_left + 1 } else { up.max(left) };
        *cell = left;
    }
}

/// A table with at most this many cells is filled at once.
const AT_ONCE_MAX: u128 = 64 * 1024;
/// How many cells are filled between two looks at the clock.
const CELLS: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(a: &[u8], b: &[u8], keeps_all: bool) -> Rows {
        let mut rows = Rows::new(keeps_all.then_some(a.len()), b.len());
        a.iter().for_each(|&byte| rows.fill(byte, b));
        rows
    }

    fn runs(a: &str, b: &str) -> Vec<(usize, usize, usize)> {
        let (a, b) = (a.as_bytes(), b.as_bytes());
        let mut runs = Vec::new();
        rows(a, b, true).runs(a, b, |run| runs.push((run.a, run.b, run.len)));
        runs
    }

    fn subsequence(a: &str, b: &str) -> String {
        let (a, b) = (a.as_bytes(), b.as_bytes());
        let table = rows(a, b, true);
        let common = table.subsequence(a, b);
        assert_eq!(common.len(), table.at(a.len(), b.len()) as usize);
        assert_eq!(common.len(), rows(a, b, false).at(a.len(), b.len()) as usize);
        String::from_utf8(common).unwrap()
    }

    // The results of valkey-server 9.1.2.
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

    #[test]
    fn a_large_table_is_filled_in_slices() {
        let strings = || (SharedString::new(vec![b'a'; 1000]), SharedString::new(vec![b'a'; 2000]));
        for len in [false, true] {
            let ((a, b), wanted) = (strings(), LcsOptions { len, ..LcsOptions::default() });
            let rows = Rows::new(wanted.keeps_table().then_some(a.len()), b.len());
            let mut work = LcsWork { a, b, wanted, rows };
            let mut steps = 1;
            while work.step() {
                steps += 1;
            }
            assert!(steps > 100, "{steps}");
            let mut bytes = Vec::new();
            work.answer(&mut Reply::new(&mut bytes, bobbin_resp::Protocol::Resp2));
            assert!(bytes.starts_with(if len { b":1000\r\n" } else { b"$1000\r" }));
        }
    }
}
