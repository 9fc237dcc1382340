//! The commands that wait until there is a member to pop.

use bobbin_resp::Reply;
use bobbin_store::ValueType;

use super::super::elements;
use super::pop::{Extreme, pop_from, pop_one_from};
use crate::engine::blocking::{self, Wait};
use crate::engine::command::{Call, Data, Failure, Key, Outcome};

pub(super) fn bzpopmin(call: &mut Call<'_>) -> Outcome {
    pop(call, Extreme::Lowest)
}

pub(super) fn bzpopmax(call: &mut Call<'_>) -> Outcome {
    pop(call, Extreme::Highest)
}

fn pop(call: &mut Call<'_>, extreme: Extreme) -> Outcome {
    let last = call.args.len() - 1;
    let deadline_ms = blocking::deadline_ms(call, last)?;
    blocking::serve_or_block(call, SortedSetPop { extreme, count: None }, 1..last, deadline_ms)
}

pub(super) fn bzmpop(call: &mut Call<'_>) -> Outcome {
    let (popping, extreme) = elements::popping(call, 2, Extreme::read)?;
    let deadline_ms = blocking::deadline_ms(call, 1)?;
    let pop = SortedSetPop { extreme, count: Some(popping.count) };
    blocking::serve_or_block(call, pop, popping.keys, deadline_ms)
}

struct SortedSetPop {
    extreme: Extreme,
    /// `None`: pop one member, and reply without a list.
    count: Option<usize>,
}

impl Wait for SortedSetPop {
    fn serve(
        &self,
        data: &mut Data,
        keys: &[(usize, Key<'_>)],
        reply: &mut Reply<'_>,
    ) -> Result<bool, Failure> {
        for &(_, key) in keys {
            let served = match self.count {
                Some(count) => pop_from(data, key, self.extreme, count, reply)?,
                None => pop_one_from(data, key, self.extreme, reply)?,
            };
            if served {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn value_type(&self) -> Option<ValueType> {
        Some(ValueType::SortedSet)
    }
}
