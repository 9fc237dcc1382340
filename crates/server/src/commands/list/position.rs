//! LPOS.

use bobbin_store::value::List;

use super::super::elements::TOO_LOW;
use crate::engine::command::{Call, Failure, Outcome};

/// What is looked for.
struct PositionSearch<'a> {
    value: &'a [u8],
    /// Matches to pass over.
    skip: usize,
    backwards: bool,
    /// Matches to find; `None` where one is asked for, without a list of them.
    count: Option<usize>,
    /// Elements to look at.
    looks: usize,
}

pub(super) fn lpos(call: &mut Call<'_>) -> Outcome {
    let search = PositionSearch::read(call)?;
    let list = call.data.read_as::<List>(call.key(1)?)?;
    let Some(count) = search.count else {
        match list.and_then(|list| search.matches(list).next()) {
            Some(index) => call.reply.integer(index as i64),
            None => call.reply.null(),
        }
        return Ok(());
    };
    let found: Vec<usize> = match list {
        Some(list) => search.matches(list).take(count).collect(),
        None => Vec::new(),
    };
    call.reply.array(found.len());
    found.iter().for_each(|&index| call.reply.integer(index as i64));
    Ok(())
}

impl<'a> PositionSearch<'a> {
    fn read(call: &Call<'a>) -> Result<Self, Failure> {
        let mut search =
            Self { value: call.args[2], skip: 0, backwards: false, count: None, looks: usize::MAX };
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
                search.count = Some(if count == 0 { usize::MAX } else { count });
            } else if call.word_is(at, "maxlen") && has_value {
                let looks = non_negative(call, at + 1, "ERR MAXLEN can't be negative")?;
                search.looks = if looks == 0 { usize::MAX } else { looks };
            } else {
                return Err(Failure::SYNTAX);
            }
            at += 2;
        }
        Ok(search)
    }

    /// The indices of what is looked for, in the order in which they are found.
    fn matches(&self, list: &List) -> impl Iterator<Item = usize> {
        let (len, backwards, value) = (list.len(), self.backwards, self.value);
        let mut elements = list.iter();
        (0..len.min(self.looks))
            .filter_map(move |look| {
                let item = if backwards { elements.next_back() } else { elements.next() }?;
                let index = if backwards { len - 1 - look } else { look };
                (item == value).then_some(index)
            })
            .skip(self.skip)
    }
}

fn non_negative(call: &Call<'_>, index: usize, error: &'static str) -> Result<usize, Failure> {
    let number = bobbin_resp::parse_i64(call.args[index]);
    number.and_then(|number| usize::try_from(number).ok()).ok_or_else(|| Failure::new(error))
}

const RANK_ZERO: Failure = Failure::new(
    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
     or use negative to start from the end of the list",
);
