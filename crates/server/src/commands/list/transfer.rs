//! Moves of elements between lists.

use bobbin_resp::Reply;
use bobbin_store::value::{End, List, ListLimits};

use super::super::elements::bulk;
use super::{end, limits, pop_event, push_event, shrunk};
use crate::engine::command::{Call, Classes, Data, Failure, Key, Outcome};

pub(super) fn lmove(call: &mut Call<'_>) -> Outcome {
    let (from, to) = (end(call.args[3])?, end(call.args[4])?);
    transfer(call, ListMove { from, to, limits: limits(call.server) })
}

pub(super) fn rpoplpush(call: &mut Call<'_>) -> Outcome {
    transfer(call, ListMove { from: End::Back, to: End::Front, limits: limits(call.server) })
}

pub(super) fn transfer(call: &mut Call<'_>, transfer: ListMove) -> Outcome {
    let (source, destination) = (call.key(1)?, call.key(2)?);
    if !transfer.run(call.data, source, destination, &mut call.reply)? {
        call.reply.null();
    }
    Ok(())
}

/// The ends between which an element moves.
#[derive(Clone, Copy)]
pub(super) struct ListMove {
    pub from: End,
    pub to: End,
    pub limits: ListLimits,
}

impl ListMove {
    /// Moves an element, if there is any, and appends it to the reply.
    pub(super) fn run(
        self,
        data: &mut Data,
        source: Key<'_>,
        destination: Key<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<bool, Failure> {
        if data.write_as::<List>(source)?.is_none() {
            return Ok(false);
        }
        // A destination of the wrong type must leave the source unchanged.
        data.write_as::<List>(destination)?;
        data.count_no_more_use();
        let Some(list) = data.write_as::<List>(source)? else { return Ok(false) };
        let moved = list.pop(self.from, self.limits, |item| {
            bulk(reply, item);
            item.to_vec()
        });
        let Some(moved) = moved else { return Ok(false) };
        let list = data.write_or_create::<List>(destination)?;
        list.prepare(moved.len(), 1, self.limits);
        list.push(moved.as_slice().into(), self.to, self.limits);
        // Redis counts a move as one change.
        data.changed_by(destination, 0);
        data.event(Classes::LIST, push_event(self.to), destination);
        shrunk(data, source, 1, pop_event(self.from));
        Ok(true)
    }
}
