//! Sets: SPOP and SRANDMEMBER.

use bobbin_resp::Reply;
use bobbin_store::Hasher;
use bobbin_store::value::Set;
use bobbin_store::value::set::{MemberPlace, Walk};

use super::super::choice::{DistinctNumbers, Places, below};
use super::super::elements::{TOO_LOW, bulk};
use super::super::popping::{self, Pops, pop_in_slices};
use super::ended;
use crate::base::random::Random;
use crate::engine::command::{Call, Classes, Data, Failure, Key, Outcome};
use crate::engine::execution::slices::{SLICE, SLICED_MIN, repeat_in_slices, reply_in_slices};

pub(super) fn spop(call: &mut Call<'_>) -> Outcome {
    let count = match call.args.len() {
        2 => None,
        3 => {
            let count = usize::try_from(call.integer(2).map_err(|_| NOT_POSITIVE)?);
            Some(count.map_err(|_| NOT_POSITIVE)?)
        }
        _ => return Err(Failure::SYNTAX),
    };
    let key = call.key(1)?;
    let hasher = call.data.keyspace().hasher();
    let mut random = Random::new(call.data.random.next_u64());
    let logs = call.data.is_logged();
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
    // Popping the whole set counts as reading it.
    let takes_all = count.is_some() && popped == set.len();
    let hits = u64::from(takes_all);
    if let Some(count) = count
        && popping::is_long(count.min(set.len()))
        && call.may_leave_job
    {
        let members = Members { walk: None, random, hasher, gone: Vec::new() };
        call.data.counters.hits += hits;
        return pop_in_slices(call, 1..2, 1, count, members);
    }
    if count.is_some() {
        call.reply.set(popped);
    }
    let mut gone = Vec::new();
    if takes_all {
        set.iter().for_each(|member| bulk(&mut call.reply, member));
        *set = Set::default();
    } else {
        let gone = logs.then_some(&mut gone);
        pop_some(set, popped, &mut random, hasher, &mut call.reply, gone);
    }
    call.data.counters.hits += hits;
    note_popped(call.data, key, popped, &gone);
    Ok(())
}

/// Removes `count` members, appends them to the reply, and adds them to `gone`. Returns how many
/// there were.
fn pop_some(
    set: &mut Set,
    count: usize,
    random: &mut Random,
    hasher: &Hasher,
    reply: &mut Reply<'_>,
    mut gone: Option<&mut Vec<Vec<u8>>>,
) -> usize {
    for taken in 0..count {
        let Some(spot) = set.nth(below(random, set.len())) else { return taken };
        bulk(reply, set.member(spot));
        if let Some(gone) = &mut gone {
            gone.push(set.member(spot).to_vec());
        }
        set.remove_at(spot, hasher);
    }
    count
}

fn note_popped(data: &mut Data, key: Key<'_>, popped: usize, gone: &[Vec<u8>]) {
    propagate_popped(data, key, gone);
    data.changed_by(key, popped);
    data.event(Classes::SET, "spop", key);
    ended(data, key);
}

/// SPOP of many members.
struct Members {
    /// Set if all members are popped, so that none need be chosen: how far the walk is, and how
    /// many are left.
    walk: Option<(Walk, usize)>,
    random: Random,
    hasher: &'static Hasher,
    gone: Vec<Vec<u8>>,
}

impl Pops for Members {
    type From = Set;

    fn begin(&mut self, from: &Set, wanted: usize) {
        self.gone.clear();
        self.walk = (wanted >= from.len()).then(|| (Walk::default(), from.len()));
    }

    fn take(&mut self, from: &mut Set, most: usize, reply: &mut Reply<'_>) -> usize {
        let Some((walk, left)) = self.walk else {
            // The log may be turned on before this is done.
            let gone = Some(&mut self.gone);
            return pop_some(from, most, &mut self.random, self.hasher, reply, gone);
        };
        let mut taken = 0;
        let next = from.walk(walk, most, |member| {
            bulk(reply, member);
            taken += 1;
        });
        let left = left.saturating_sub(taken);
        self.walk = next.filter(|_| left > 0).map(|walk| (walk, left));
        if self.walk.is_none() {
            *from = Set::default();
        }
        taken
    }

    fn finish(&mut self, data: &mut Data, key: Key<'_>, popped: usize, reply: &mut Reply<'_>) {
        reply.set(popped);
        if popped > 0 {
            note_popped(data, key, popped, &self.gone);
        }
    }
}

/// Logs the popped members. No members means all of them, so the key was deleted.
fn propagate_popped(data: &mut Data, key: Key<'_>, members: &[Vec<u8>]) {
    if !data.is_logged() {
        return;
    }
    if members.is_empty() {
        let command = data.conditions.deletes.emptied;
        data.propagate(&[command, key.bytes]);
    }
    for members in members.chunks(REMOVED_MAX) {
        let mut args = vec![&b"SREM"[..], key.bytes];
        args.extend(members.iter().map(Vec::as_slice));
        data.propagate(&args);
    }
}

/// The most members that one command in the log removes.
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
    let key = call.key(1)?;
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
    if count < 0 {
        let (set, places) = (set.clone(), Places::new(wanted, || set.places()));
        return repeat_in_slices(
            call,
            wanted,
            move |reply| reply.array(wanted),
            move |reply| reply_member(reply, &set, &places, below(&mut random, set.len())),
        );
    }
    if wanted > SLICED_MIN && set.len() > SLICED_MIN && call.may_leave_job {
        let pinned = set.clone();
        in_slices(call, pinned, wanted, random);
        return Ok(());
    }
    let chosen = DistinctNumbers::below(set.len(), wanted, random);
    call.reply.array(chosen.len());
    if chosen.len() == set.len() {
        set.iter().for_each(|member| bulk(&mut call.reply, member));
    } else {
        let places = Places::new(wanted, || set.places());
        chosen.for_each(|index| reply_member(&mut call.reply, set, &places, index));
    }
    Ok(())
}

fn in_slices(call: &mut Call<'_>, set: Set, wanted: usize, random: Random) {
    let places = Places::new(wanted, || set.places());
    let mut chosen = DistinctNumbers::below(set.len(), wanted, random);
    let mut is_begun = false;
    reply_in_slices(call, move |reply| {
        if !std::mem::replace(&mut is_begun, true) {
            reply.array(chosen.len());
        }
        let some = chosen.by_ref().take(SLICE);
        some.for_each(|index| reply_member(reply, &set, &places, index));
        chosen.len() > 0
    });
}

fn reply_member(reply: &mut Reply<'_>, set: &Set, places: &Places<MemberPlace>, index: usize) {
    if let Some(spot) = places.get(index).or_else(|| set.nth(index)) {
        bulk(reply, set.member(spot));
    }
}

const NOT_POSITIVE: Failure = Failure::new(&"ERR value is out of range, must be positive");
