//! Sets: SPOP and SRANDMEMBER.

use bobbin_store::value::Set;

use super::super::choice::{below, distinct_below};
use super::super::elements::TOO_LOW;
use super::super::elements::bulk;
use super::{changed, ended};
use crate::command::slices::{SLICE, SLICED_MIN, reply_in_slices};
use crate::command::{Call, Classes, Failure, Key, Outcome};
use crate::random::Random;

pub(super) fn spop(call: &mut Call<'_>) -> Outcome {
    let count = match call.args.len() {
        2 => None,
        3 => {
            let count = usize::try_from(call.integer(2).map_err(|_| NOT_POSITIVE)?);
            Some(count.map_err(|_| NOT_POSITIVE)?)
        }
        _ => return Err(Failure::SYNTAX),
    };
    let key = call.key(1);
    let hasher = call.data.keyspace().hasher();
    let mut random = Random::new(call.data.random.next_u64());
    let logs = call.data.effects.is_on();
    let set = match call.data.write_as::<Set>(key)? {
        Some(set) if count != Some(0) => set,
        _ => {
            match count {
                Some(_) => call.reply.set(0),
                None => call.reply.null(),
            }
            return Ok(());
        }
    };
    let popped = count.unwrap_or(1).min(set.len());
    if count.is_some() {
        call.reply.set(popped);
    }
    let mut gone = Vec::new();
    if count.is_some() && popped == set.len() {
        set.iter().for_each(|member| bulk(&mut call.reply, member));
        *set = Set::default();
    } else {
        for _ in 0..popped {
            let Some(spot) = set.nth(below(&mut random, set.len())) else { break };
            bulk(&mut call.reply, set.member(spot));
            if logs {
                gone.push(set.member(spot).to_vec());
            }
            set.remove_at(spot, hasher);
        }
    }
    propagate_popped(call, key, &gone);
    changed(call, key, popped);
    call.data.event(Classes::SET, "spop", key);
    ended(call, key);
    Ok(())
}

/// Logs which members were popped; without any of them it was all, and the key with them.
fn propagate_popped(call: &mut Call<'_>, key: Key<'_>, members: &[Vec<u8>]) {
    if !call.data.effects.is_on() {
        return;
    }
    if members.is_empty() {
        let command = call.data.deletes.emptied;
        call.data.propagate(&[command, key.bytes]);
    }
    for members in members.chunks(REMOVED_MAX) {
        let mut args = vec![&b"SREM"[..], key.bytes];
        args.extend(members.iter().map(Vec::as_slice));
        call.data.propagate(&args);
    }
}

/// Members that one command in the log removes, at most.
const REMOVED_MAX: usize = 1024;

pub(super) fn srandmember(call: &mut Call<'_>) -> Outcome {
    let count = match call.args.len() {
        2 => None,
        3 => Some(call.integer(2)?),
        _ => return Err(Failure::SYNTAX),
    };
    if count == Some(i64::MIN) {
        return Err(TOO_LOW);
    }
    let key = call.key(1);
    let mut random = Random::new(call.data.random.next_u64());
    let Some(set) = call.data.read_as::<Set>(key)? else {
        match count {
            Some(_) => call.reply.empty_array(),
            None => call.reply.null(),
        }
        return Ok(());
    };
    let Some(count) = count else {
        match set.nth(below(&mut random, set.len())) {
            Some(spot) => bulk(&mut call.reply, set.member(spot)),
            None => call.reply.null(),
        }
        return Ok(());
    };
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if wanted > SLICED_MIN && (count < 0 || set.len() > SLICED_MIN) && !call.in_transaction {
        let pinned = set.clone();
        in_slices(call, pinned, count < 0, wanted, random);
        return Ok(());
    }
    if count < 0 {
        call.reply.array(wanted);
        for _ in 0..wanted {
            reply_member(&mut call.reply, set, below(&mut random, set.len()));
        }
        return Ok(());
    }
    let chosen = distinct_below(set.len(), wanted, &mut random);
    call.reply.array(chosen.len());
    if chosen.len() == set.len() {
        set.iter().for_each(|member| bulk(&mut call.reply, member));
    } else {
        chosen.into_iter().for_each(|index| reply_member(&mut call.reply, set, index));
    }
    Ok(())
}

fn in_slices(call: &mut Call<'_>, set: Set, repeats: bool, wanted: usize, mut random: Random) {
    let total = if repeats { wanted } else { wanted.min(set.len()) };
    let (mut chosen, mut at) = (None, 0);
    reply_in_slices(call, move |reply| {
        let chosen = chosen.get_or_insert_with(|| {
            reply.array(total);
            if repeats { Vec::new() } else { distinct_below(set.len(), wanted, &mut random) }
        });
        let end = total.min(at + SLICE);
        if repeats {
            (at..end).for_each(|_| reply_member(reply, &set, below(&mut random, set.len())));
        } else {
            chosen[at..end].iter().for_each(|&index| reply_member(reply, &set, index));
        }
        at = end;
        at < total
    });
}

fn reply_member(reply: &mut bobbin_resp::Reply<'_>, set: &Set, index: usize) {
    if let Some(spot) = set.nth(index) {
        bulk(reply, set.member(spot));
    }
}

const NOT_POSITIVE: Failure = Failure::new("ERR value is out of range, must be positive");
