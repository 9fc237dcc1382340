//! Sets: SPOP and SRANDMEMBER.

use bobbin_resp::{Protocol, Reply};
use bobbin_store::Hasher;
use bobbin_store::value::Set;
use bobbin_store::value::set::Walk;

use super::super::choice::{below, distinct_below};
use super::super::elements::{TOO_LOW, bulk};
use super::ended;
use crate::base::random::Random;
use crate::engine::command::slices::{
    Draft, Pieces, SLICE, SLICED_MIN, SlicedChange, change_in_slices, repeat_in_slices,
    reply_in_slices,
};
use crate::engine::command::{Call, Classes, Data, Failure, Key, Outcome};

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
    if popped > SLICED_MIN && call.may_leave_job {
        let draft = Draft::new(key.bytes, set, Set::is_same);
        let protocol = call.reply.protocol();
        let wanted = count.unwrap_or(1);
        let popping = SetPopping::new(draft, wanted, random, hasher, protocol);
        return change_in_slices(call, [1].into_iter(), popping);
    }
    if count.is_some() {
        call.reply.set(popped);
    }
    let mut gone = logs.then(Vec::new);
    if count.is_some() && popped == set.len() {
        set.iter().for_each(|member| bulk(&mut call.reply, member));
        *set = Set::default();
    } else {
        pop_some(set, popped, &mut random, hasher, &mut call.reply, &mut gone);
    }
    note_popped(call.data, key, popped, gone);
    Ok(())
}

/// Members that were popped, as long as the log wants to know.
type Gone = Option<Vec<Vec<u8>>>;

/// Removes `count` members and answers them.
fn pop_some(
    set: &mut Set,
    count: usize,
    random: &mut Random,
    hasher: &Hasher,
    reply: &mut Reply<'_>,
    gone: &mut Gone,
) {
    for _ in 0..count {
        let Some(spot) = set.nth(below(random, set.len())) else { break };
        bulk(reply, set.member(spot));
        if let Some(gone) = gone {
            gone.push(set.member(spot).to_vec());
        }
        set.remove_at(spot, hasher);
    }
}

fn note_popped(data: &mut Data, key: Key<'_>, popped: usize, gone: Gone) {
    propagate_popped(data, key, &gone.unwrap_or_default());
    data.changed_by(key, popped);
    data.event(Classes::SET, "spop", key);
    ended(data, key);
}

/// SPOP of many members.
struct SetPopping {
    draft: Draft<Set>,
    wanted: usize,
    popped: usize,
    /// When all members go they need not be picked.
    walk: Option<Walk>,
    random: Random,
    hasher: &'static Hasher,
    members: Pieces,
    gone: Gone,
    protocol: Protocol,
}

impl SetPopping {
    fn new(
        draft: Draft<Set>,
        wanted: usize,
        random: Random,
        hasher: &'static Hasher,
        protocol: Protocol,
    ) -> Self {
        let walk = (wanted >= draft.value.len()).then(Walk::default);
        Self {
            draft,
            wanted,
            popped: 0,
            walk,
            random,
            hasher,
            members: Pieces::default(),
            // The log may be turned on before it is done.
            gone: Some(Vec::new()),
            protocol,
        }
    }
}

impl SlicedChange for SetPopping {
    fn step(&mut self, _: &mut Data) -> bool {
        let set = &mut self.draft.value;
        let mut reply = Reply::new(self.members.open(), self.protocol);
        if let Some(walk) = self.walk {
            let popped = &mut self.popped;
            self.walk = set.walk(walk, SLICE, |member| {
                bulk(&mut reply, member);
                *popped += 1;
            });
            if self.walk.is_none() {
                *set = Set::default();
            }
            return self.walk.is_some();
        }
        let count = SLICE.min(self.wanted - self.popped).min(set.len());
        pop_some(set, count, &mut self.random, self.hasher, &mut reply, &mut self.gone);
        self.popped += count;
        self.popped < self.wanted && !set.is_empty()
    }

    fn is_current(&mut self, data: &mut Data) -> Result<bool, Failure> {
        let current = self.draft.is_current(data)?;
        if !current {
            self.popped = 0;
            self.members = Pieces::default();
            self.gone.iter_mut().for_each(Vec::clear);
            self.walk = (self.wanted >= self.draft.value.len()).then(Walk::default);
        }
        Ok(current)
    }

    fn finish(&mut self, data: &mut Data, reply: &mut Reply<'_>) -> Outcome {
        let key = self.draft.put(data)?;
        reply.set(self.popped);
        if self.popped > 0 {
            note_popped(data, key, self.popped, self.gone.take());
        }
        Ok(())
    }

    fn rest(&mut self) -> Option<Pieces> {
        Some(std::mem::take(&mut self.members))
    }
}

/// Logs which members were popped; without any of them it was all, and the key with them.
fn propagate_popped(data: &mut Data, key: Key<'_>, members: &[Vec<u8>]) {
    if !data.is_logged() {
        return;
    }
    if members.is_empty() {
        let command = data.turn.deletes.emptied;
        data.propagate(&[command, key.bytes]);
    }
    for members in members.chunks(REMOVED_MAX) {
        let mut args = vec![&b"SREM"[..], key.bytes];
        args.extend(members.iter().map(Vec::as_slice));
        data.propagate(&args);
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
        let set = set.clone();
        return repeat_in_slices(
            call,
            wanted,
            move |reply| reply.array(wanted),
            move |reply| reply_member(reply, &set, below(&mut random, set.len())),
        );
    }
    if wanted > SLICED_MIN && set.len() > SLICED_MIN && call.may_leave_job {
        let pinned = set.clone();
        in_slices(call, pinned, wanted, random);
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

fn in_slices(call: &mut Call<'_>, set: Set, wanted: usize, mut random: Random) {
    let total = wanted.min(set.len());
    let (mut chosen, mut at) = (None, 0);
    reply_in_slices(call, move |reply| {
        let chosen = chosen.get_or_insert_with(|| {
            reply.array(total);
            distinct_below(set.len(), wanted, &mut random)
        });
        let end = total.min(at + SLICE);
        chosen[at..end].iter().for_each(|&index| reply_member(reply, &set, index));
        at = end;
        at < total
    });
}

fn reply_member(reply: &mut Reply<'_>, set: &Set, index: usize) {
    if let Some(spot) = set.nth(index) {
        bulk(reply, set.member(spot));
    }
}

const NOT_POSITIVE: Failure = Failure::new("ERR value is out of range, must be positive");
