//! LPOS.

use bobbin_resp::{Aggregate, Reply};
use bobbin_store::value::{End, List};

use super::super::elements::TOO_LOW;
use crate::engine::command::{Call, Failure, Outcome};
use crate::engine::execution::slices::{SLICE, SLICED_MIN, elements_in_slices, reply_in_slices};

/// A search for elements that equal a value, from one end of a list to the other.
pub(super) struct PositionSearch {
    /// How many matches to skip.
    skip: usize,
    backwards: bool,
    /// How many matches to find.
    left: usize,
    /// The most elements to examine.
    looks: usize,
    /// How many elements were examined.
    looked: usize,
}

pub(super) fn lpos(call: &mut Call<'_>) -> Outcome {
    let (mut search, is_array) = PositionSearch::read(call)?;
    let value = call.args[2];
    let Some(list) = call.data.read_as::<List>(call.key(1)?)? else {
        if is_array {
            call.reply.empty_array();
        } else {
            call.reply.null();
        }
        return Ok(());
    };
    let is_long = list.len().min(search.looks) > SLICED_MIN && call.may_leave_job;
    let most = if is_long { LOOKS } else { usize::MAX };
    let mut found = Vec::new();
    if search.step(list, value, most, |index| found.push(index)) {
        let (list, value) = (list.clone(), value.to_vec());
        if is_array {
            elements_in_slices(call, Aggregate::Array, move |reply, count| {
                for index in found.drain(..) {
                    reply.integer(index as i64);
                    *count += 1;
                }
                search.step(&list, &value, LOOKS, |index| {
                    reply.integer(index as i64);
                    *count += 1;
                })
            });
        } else {
            reply_in_slices(call, move |reply| {
                let mut found = None;
                let more = search.step(&list, &value, LOOKS, |index| found = Some(index));
                if !more {
                    append_index(reply, found);
                }
                more
            });
        }
        return Ok(());
    }
    if is_array {
        call.reply.array(found.len());
        found.iter().for_each(|&index| call.reply.integer(index as i64));
    } else {
        append_index(&mut call.reply, found.first().copied());
    }
    Ok(())
}

fn append_index(reply: &mut Reply<'_>, index: Option<usize>) {
    match index {
        Some(index) => reply.integer(index as i64),
        None => reply.null(),
    }
}

impl PositionSearch {
    /// A search for the first match.
    pub(super) const fn first() -> Self {
        Self::some(1, End::Front)
    }

    /// A search for `count` matches from an end on.
    pub(super) const fn some(count: usize, from: End) -> Self {
        let backwards = matches!(from, End::Back);
        Self { skip: 0, backwards, left: count, looks: usize::MAX, looked: 0 }
    }

    /// Parses LPOS's options. Also returns whether the reply is an array.
    fn read(call: &Call<'_>) -> Result<(Self, bool), Failure> {
        let (mut search, mut is_array) = (Self::first(), false);
        let mut at = 3;
        while at < call.args.len() {
            let has_value = at + 1 < call.args.len();
            if call.word_is(at, "rank") && has_value {
                let rank = call.integer(at + 1)?;
                if rank == i64::MIN {
                    return Err(TOO_LOW);
                }
                search.backwards = rank < 0;
                search.skip = usize::try_from(rank.abs() - 1).or(Err(RANK_ZERO))?;
            } else if call.word_is(at, "count") && has_value {
                let count = non_negative(call, at + 1, "ERR COUNT can't be negative")?;
                search.left = if count == 0 { usize::MAX } else { count };
                is_array = true;
            } else if call.word_is(at, "maxlen") && has_value {
                let looks = non_negative(call, at + 1, "ERR MAXLEN can't be negative")?;
                search.looks = if looks == 0 { usize::MAX } else { looks };
            } else {
                return Err(Failure::SYNTAX);
            }
            at += 2;
        }
        Ok((search, is_array))
    }

    /// Examines up to `most` elements, and calls `found` with the index of each match. Returns
    /// whether there are more elements to examine.
    pub(super) fn step(
        &mut self,
        list: &List,
        value: &[u8],
        most: usize,
        mut found: impl FnMut(usize),
    ) -> bool {
        let (len, start) = (list.len(), self.looked);
        let end = len.min(self.looks);
        self.looked = end.min(start.saturating_add(most));
        let range =
            if self.backwards { len - self.looked..len - start } else { start..self.looked };
        let mut elements = list.range(range);
        for look in start..self.looked {
            let next = if self.backwards { elements.next_back() } else { elements.next() };
            if next.is_none_or(|element| element != value) {
                continue;
            }
            if self.skip > 0 {
                self.skip -= 1;
                continue;
            }
            found(if self.backwards { len - 1 - look } else { look });
            self.left -= 1;
            if self.left == 0 {
                return false;
            }
        }
        self.looked < end
    }
}

fn non_negative(call: &Call<'_>, index: usize, error: &'static str) -> Result<usize, Failure> {
    let number = bobbin_resp::parse_i64(call.args[index]);
    number.and_then(|number| usize::try_from(number).ok()).ok_or_else(|| Failure::from(error))
}

/// How many elements are examined between two looks at the clock, and before a search becomes a
/// job. Each takes some nanoseconds.
pub(super) const LOOKS: usize = 16 * SLICE;

const RANK_ZERO: Failure = Failure::new(
    &"ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
     or use negative to start from the end of the list",
);
