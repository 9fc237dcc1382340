//! The forms of popping and moving that wait until there is something.

use bobbin_resp::Reply;
use bobbin_store::Kind;
use bobbin_store::value::{End, ListLimits};

use super::super::elements;
use super::transfer::{self, Transfer};
use super::{end, ends, limits};
use crate::blocking::{self, Wait};
use crate::command::{Call, Data, Failure, Key, Outcome};

pub(super) fn blpop(call: &mut Call<'_>) -> Outcome {
    pop(call, End::Front)
}

pub(super) fn brpop(call: &mut Call<'_>) -> Outcome {
    pop(call, End::Back)
}

fn pop(call: &mut Call<'_>, end: End) -> Outcome {
    let last = call.args.len() - 1;
    let deadline_ms = blocking::deadline_ms(call, last)?;
    let pop = Pop { count: None, end, limits: limits(call.server) };
    blocking::serve_or_block(call, pop, 1..last, deadline_ms)
}

pub(super) fn blmpop(call: &mut Call<'_>) -> Outcome {
    let (popping, end) = elements::popping(call, 2, end)?;
    let deadline_ms = blocking::deadline_ms(call, 1)?;
    let pop = Pop { count: Some(popping.count), end, limits: limits(call.server) };
    blocking::serve_or_block(call, pop, popping.keys, deadline_ms)
}

pub(super) fn blmove(call: &mut Call<'_>) -> Outcome {
    let (from, to) = (end(call.args[3])?, end(call.args[4])?);
    transfer(call, Transfer { from, to, limits: limits(call.server) }, 5)
}

pub(super) fn brpoplpush(call: &mut Call<'_>) -> Outcome {
    transfer(call, Transfer { from: End::Back, to: End::Front, limits: limits(call.server) }, 3)
}

fn transfer(call: &mut Call<'_>, transfer: Transfer, timeout_at: usize) -> Outcome {
    let deadline_ms = blocking::deadline_ms(call, timeout_at)?;
    if call.in_transaction {
        // There nobody waits, and the answer is another null than when the time is over.
        return transfer::transfer(call, transfer);
    }
    let transfer = Move { transfer, destination: call.args[2].into() };
    blocking::serve_or_block(call, transfer, 1..2, deadline_ms)
}

/// BLPOP, BRPOP and BLMPOP.
struct Pop {
    /// `None`: one, without a list of them.
    count: Option<usize>,
    end: End,
    limits: ListLimits,
}

impl Wait for Pop {
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

    fn kind(&self) -> Option<Kind> {
        Some(Kind::List)
    }
}

/// BLMOVE and BRPOPLPUSH.
struct Move {
    transfer: Transfer,
    destination: Box<[u8]>,
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
            Some(&(_, source)) => self.transfer.run(data, source, destination, reply),
            None => Ok(false),
        }
    }

    fn kind(&self) -> Option<Kind> {
        Some(Kind::List)
    }

    fn destination(&self) -> Option<&[u8]> {
        Some(&self.destination)
    }
}
