//! The commands that wait until there is an element to pop or move.

use bobbin_resp::Reply;
use bobbin_store::ValueType;
use bobbin_store::value::{End, ListLimits};

use super::super::elements;
use super::transfer::{self, ListMove};
use super::{end, ends, limits};
use crate::engine::blocking::{self, Wait};
use crate::engine::command::{Call, Data, Failure, Key, Outcome};

pub(super) fn blpop(call: &mut Call<'_>) -> Outcome {
    pop(call, End::Front)
}

pub(super) fn brpop(call: &mut Call<'_>) -> Outcome {
    pop(call, End::Back)
}

fn pop(call: &mut Call<'_>, end: End) -> Outcome {
    let last = call.args.len() - 1;
    let deadline_ms = blocking::deadline_ms(call, last)?;
    let pop = ListPop { count: None, end, limits: limits(call.server) };
    blocking::serve_or_block(call, pop, 1..last, deadline_ms)
}

pub(super) fn blmpop(call: &mut Call<'_>) -> Outcome {
    let (popping, end) = elements::popping(call, 2, end)?;
    let deadline_ms = blocking::deadline_ms(call, 1)?;
    let pop = ListPop { count: Some(popping.count), end, limits: limits(call.server) };
    blocking::serve_or_block(call, pop, popping.keys, deadline_ms)
}

pub(super) fn blmove(call: &mut Call<'_>) -> Outcome {
    let (from, to) = (end(call.args[3])?, end(call.args[4])?);
    transfer(call, ListMove { from, to, limits: limits(call.server) }, 5)
}

pub(super) fn brpoplpush(call: &mut Call<'_>) -> Outcome {
    transfer(call, ListMove { from: End::Back, to: End::Front, limits: limits(call.server) }, 3)
}

fn transfer(call: &mut Call<'_>, transfer: ListMove, timeout_at: usize) -> Outcome {
    let deadline_ms = blocking::deadline_ms(call, timeout_at)?;
    if call.in_transaction {
        // Within a transaction no client waits, and the null reply differs from that of a timeout.
        return move_now(call, transfer, timeout_at);
    }
    let words = (timeout_at == 5).then(|| [call.args[3].into(), call.args[4].into()]);
    let transfer = Move { transfer, destination: call.args[2].into(), words };
    blocking::serve_or_block(call, transfer, 1..2, deadline_ms)
}

/// Executes the command within a transaction, where no client waits.
fn move_now(call: &mut Call<'_>, transfer: ListMove, timeout_at: usize) -> Outcome {
    let dirty = call.data.counters.dirty;
    transfer::transfer(call, transfer)?;
    if call.data.counters.dirty != dirty {
        let name: &[u8] = if timeout_at == 5 { b"LMOVE" } else { b"RPOPLPUSH" };
        let args = [&[name], &call.args[1..timeout_at]].concat();
        call.data.propagate(&args);
    }
    Ok(())
}

/// BLPOP, BRPOP and BLMPOP.
struct ListPop {
    /// `None`: pop one element, and reply without a list.
    count: Option<usize>,
    end: End,
    limits: ListLimits,
}

impl Wait for ListPop {
    fn serve(
        &self,
        data: &mut Data,
        keys: &[(usize, Key<'_>)],
        reply: &mut Reply<'_>,
    ) -> Result<bool, Failure> {
        for &(_, key) in keys {
            let served = match self.count {
                Some(count) => ends::pop_from(data, key, count, self.end, self.limits, reply)?,
                None => ends::pop_one_from(data, key, self.end, self.limits, reply)?,
            };
            if served {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn value_type(&self) -> Option<ValueType> {
        Some(ValueType::List)
    }
}

/// BLMOVE and BRPOPLPUSH.
struct Move {
    transfer: ListMove,
    destination: Box<[u8]>,
    /// BLMOVE's ends as they were given.
    words: Option<[Box<[u8]>; 2]>,
}

impl Move {
    /// Logs the form of the command that does not wait.
    fn propagate(&self, data: &mut Data, source: Key<'_>, destination: Key<'_>) {
        match &self.words {
            Some([from, to]) => {
                data.propagate(&[b"LMOVE", source.bytes, destination.bytes, from, to]);
            }
            None => data.propagate(&[b"RPOPLPUSH", source.bytes, destination.bytes]),
        }
    }
}

impl Wait for Move {
    fn serve(
        &self,
        data: &mut Data,
        keys: &[(usize, Key<'_>)],
        reply: &mut Reply<'_>,
    ) -> Result<bool, Failure> {
        let destination = data.key(&self.destination);
        match keys.first() {
            Some(&(_, source)) => {
                // As in Valkey, to see whether the source has an element counts as a use of it.
                data.write(source);
                let moved = self.transfer.run(data, source, destination, reply)?;
                if moved {
                    self.propagate(data, source, destination);
                }
                Ok(moved)
            }
            None => Ok(false),
        }
    }

    fn value_type(&self) -> Option<ValueType> {
        Some(ValueType::List)
    }

    fn destination(&self) -> Option<&[u8]> {
        Some(&self.destination)
    }
}
