//! XCLAIM and XAUTOCLAIM take over entries that other consumers do not acknowledge.

use bobbin_resp::{Protocol, Reply, parse_i64};
use bobbin_store::value::StreamId;
use bobbin_store::value::stream::{ConsumerGroup, ConsumerNumber, StreamEntry, StreamLog};

use super::super::repeats::Repeats;
use super::draft::GroupDraft;
use super::range::append_entry;
use super::read::stream_at;
use super::{consumer, group, id, propagate};
use crate::engine::buffers::pieces::Pieces;
use crate::engine::command::{Call, Data, Failure, Key, Outcome};
use crate::engine::execution::slices::{SLICE, SLICED_MIN, SlicedChange, change_in_slices};

/// How entries are taken over.
#[derive(Clone, Copy)]
struct Claim {
    idle_ms_min: i64,
    /// The time of delivery to set (Unix ms).
    delivered_ms: i64,
    /// The number of deliveries to set, if it is given.
    deliveries: Option<u64>,
    /// Takes over entries that were not pending too.
    force: bool,
    /// Replies only with IDs, and counts no delivery.
    ids_only: bool,
    now_ms: i64,
    /// The group's last ID becomes at least this one.
    last_id: StreamId,
}

/// The outcome for an entry.
#[derive(PartialEq, Eq)]
enum ClaimOutcome {
    Yes,
    /// The entry is not pending, or was not idle long enough.
    No,
    /// The entry was deleted, and is not pending any more.
    Deleted,
}

pub(super) fn xclaim(call: &mut Call<'_>) -> Outcome {
    let (key, args) = (call.key(1)?, call.args);
    let no_group = || group::nothing_found(args[1], args[2]);
    if group::find(call.data, key, args[2])?.is_none() {
        // This counts as a read of the key.
        call.data.look(key);
        return Err(no_group());
    }
    call.data.counters.hits += 1;
    call.data.count_no_more_use();
    let idle_ms_min =
        milliseconds(args[4], "ERR Invalid min-idle-time argument for XCLAIM")?.max(0);
    let ids: Vec<_> = args[5..].iter().map_while(|arg| id::parse(arg, 0).ok()).collect();
    let mut claim = Claim::new(idle_ms_min, call.data.conditions.now_ms);
    claim.parse_options(call, 5 + ids.len())?;
    let names = &args[5..5 + ids.len()];
    // Repeated values are shown by references, which only a reply that is made at once can have.
    let is_long = ids.len() > SLICED_MIN && ids.is_sorted_by(|one, next| one < next);
    let candidates = Candidates::Given { ids, at: 0 };
    if is_long && call.may_leave_job {
        return claim_in_slices(call, key, Claiming::new(claim, candidates, true));
    }
    let mut claiming = Claiming::new(claim, candidates, call.data.is_logged());
    let moved = match group::find(call.data, key, args[2])? {
        Some((_, group)) => claim.move_on(group),
        None => false,
    };
    let number = consumer::seen(call.data, key, args[2], args[3], no_group)?;
    let (log, group) = group::find(call.data, key, args[2])?.ok_or_else(no_group)?;
    let header = call.reply.defer();
    let (reply, mut repeats) = (&mut call.reply, Repeats::default());
    claiming.step(log, group, number, usize::MAX, &mut |at, entry| {
        repeats.whole(reply, names[at], |reply| claim.answer(reply, entry));
    });
    call.reply.finish_array(header, claiming.claimed);
    let entries_read = group.entries_read;
    claiming.note(call.data, key, args[2], moved.then_some(entries_read));
    Ok(())
}

pub(super) fn xautoclaim(call: &mut Call<'_>) -> Outcome {
    let (key, args) = (call.key(1)?, call.args);
    let now_ms = call.data.conditions.now_ms;
    let idle_ms_min =
        milliseconds(args[4], "ERR Invalid min-idle-time argument for XAUTOCLAIM")?.max(0);
    let start = id::parse_start(args[5])?;
    let mut claim = Claim { delivered_ms: now_ms, ..Claim::new(idle_ms_min, now_ms) };
    let mut count = COUNT_DEFAULT;
    let mut at = 6;
    while at < args.len() {
        if call.word_is(at, "count") && at + 1 < args.len() {
            let given = parse_i64(args[at + 1]).and_then(|count| usize::try_from(count).ok());
            let fits = |count: &usize| (1..=COUNT_MAX).contains(count);
            count = given.filter(fits).ok_or("ERR COUNT must be > 0")?;
            at += 1;
        } else if call.word_is(at, "justid") {
            claim.ids_only = true;
        } else {
            return Err(Failure::SYNTAX);
        }
        at += 1;
    }
    let looks = count.saturating_mul(LOOKS_PER_ENTRY);
    let candidates =
        Candidates::Pending { start, next: Some(start), count, looks, looks_left: looks };
    let no_group = || group::nothing_found(args[1], args[2]);
    let stream = stream_at(call.data, key).ok().flatten();
    let group = stream.and_then(|stream| stream.groups().get(args[2]));
    let pending = group.map_or(0, |group| group.pending().len());
    if looks.min(pending) > SLICED_MIN && call.may_leave_job {
        call.data.counters.hits += 1;
        return claim_in_slices(call, key, Claiming::new(claim, candidates, true));
    }
    let number = consumer::seen(call.data, key, args[2], args[3], no_group);
    // This counts as a read of the key.
    if number.is_err() {
        call.data.look(key);
    }
    let number = number?;
    call.data.counters.hits += 1;
    call.data.count_no_more_use();
    let mut claiming = Claiming::new(claim, candidates, call.data.is_logged());
    let (log, group) = group::find(call.data, key, args[2])?.ok_or_else(no_group)?;

    // The entries follow the cursor, which is known only once they are found.
    let mut entries = Vec::new();
    let mut reply = Reply::new(&mut entries, call.reply.protocol());
    let answer = &mut |_, entry: &StreamEntry<'_>| claim.answer(&mut reply, entry);
    claiming.step(log, group, number, usize::MAX, answer);
    claiming.answer_cursor(group, &mut call.reply);
    call.reply.raw(&entries);
    claiming.answer_deleted(&mut call.reply);
    claiming.note(call.data, key, args[2], None);
    Ok(())
}

/// Which entries may be taken over.
enum Candidates {
    /// The IDs of XCLAIM. Those from the index `at` on were not examined yet.
    Given { ids: Vec<StreamId>, at: usize },
    /// The pending entries of XAUTOCLAIM, from `start` on, until `count` were found or the allowed
    /// number was examined.
    Pending {
        start: StreamId,
        /// The next entry to examine.
        next: Option<StreamId>,
        count: usize,
        looks: usize,
        looks_left: usize,
    },
}

/// A claim in progress.
struct Claiming {
    claim: Claim,
    candidates: Candidates,
    /// How many entries the consumer got.
    claimed: usize,
    /// Entries that turned out to be deleted.
    deleted: Vec<StreamId>,
    logged: Claims,
}

impl Claiming {
    const fn new(claim: Claim, candidates: Candidates, logs: bool) -> Self {
        Self { claim, candidates, claimed: 0, deleted: Vec::new(), logged: Claims::new(logs) }
    }

    /// Starts over.
    fn begin(&mut self) {
        match &mut self.candidates {
            Candidates::Given { at, .. } => *at = 0,
            Candidates::Pending { start, next, looks, looks_left, .. } => {
                (*next, *looks_left) = (Some(*start), *looks);
            }
        }
        self.claimed = 0;
        self.deleted.clear();
        self.logged.claimed.clear();
    }

    /// Takes over some entries, after examining at most `most`. Returns whether there may be more.
    /// `answer` gets the number of the examined entry and the entry.
    fn step(
        &mut self,
        log: &StreamLog,
        group: &mut ConsumerGroup,
        number: ConsumerNumber,
        most: usize,
        answer: &mut dyn FnMut(usize, &StreamEntry<'_>),
    ) -> bool {
        for _ in 0..most {
            let Some((at, id)) = self.next(group) else { return false };
            let answer = |entry: &StreamEntry<'_>| answer(at, entry);
            match self.claim.claim(id, log, group, number, &mut self.logged, answer) {
                ClaimOutcome::Yes => self.claimed += 1,
                ClaimOutcome::No => {}
                ClaimOutcome::Deleted => self.deleted.push(id),
            }
        }
        true
    }

    /// The next entry to examine, and how many were examined before.
    fn next(&mut self, group: &ConsumerGroup) -> Option<(usize, StreamId)> {
        match &mut self.candidates {
            Candidates::Given { ids, at } => {
                let id = *ids.get(*at)?;
                *at += 1;
                Some((*at - 1, id))
            }
            Candidates::Pending { next, count, looks, looks_left, .. } => {
                if *looks_left == 0 || self.claimed + self.deleted.len() >= *count {
                    return None;
                }
                let id = following(group, *next)?;
                *next = id.next();
                *looks_left -= 1;
                Some((*looks - *looks_left - 1, id))
            }
        }
    }

    /// Begins the reply of XAUTOCLAIM: the next cursor, and how many entries follow.
    fn answer_cursor(&self, group: &ConsumerGroup, reply: &mut Reply<'_>) {
        let next = match self.candidates {
            Candidates::Pending { next, .. } => next,
            Candidates::Given { .. } => None,
        };
        reply.array(3);
        id::reply(reply, following(group, next).unwrap_or_default());
        reply.array(self.claimed);
    }

    fn answer_deleted(&self, reply: &mut Reply<'_>) {
        reply.array(self.deleted.len());
        self.deleted.iter().for_each(|&id| id::reply(reply, id));
    }

    /// Counts and logs the claims. `moved` is set if the group's last ID was moved on, with how
    /// many entries were read.
    fn note(&mut self, data: &mut Data, key: Key<'_>, group: &[u8], moved: Option<Option<u64>>) {
        if moved.is_some() {
            data.changed_inside(key);
        }
        data.counters.dirty += (self.claimed + self.deleted.len()) as u64;
        data.propagate_nothing();
        if let Some(entries_read) = moved
            && self.logged.claimed.is_empty()
        {
            propagate::position(data, key, group, self.claim.last_id, entries_read);
        }
        propagate::claimed(data, key, group, std::mem::take(&mut self.logged.claimed).into_iter());
    }
}

/// Takes over many entries in slices. The group must exist.
fn claim_in_slices(call: &mut Call<'_>, key: Key<'_>, claiming: Claiming) -> Outcome {
    let args = call.args;
    let draft = stream_at(call.data, key)?
        .and_then(|stream| GroupDraft::new(key.bytes, args[2], stream))
        .ok_or_else(|| group::nothing_found(args[1], args[2]))?;
    let protocol = call.reply.protocol();
    let mut change = ClaimInSlices {
        draft,
        consumer: args[3].into(),
        joined: None,
        moved: false,
        claiming,
        answer: Pieces::default(),
        protocol,
    };
    change.begin();
    change_in_slices(call, [1].into_iter(), change)
}

/// XCLAIM or XAUTOCLAIM of many entries.
struct ClaimInSlices {
    draft: GroupDraft,
    consumer: Box<[u8]>,
    /// The consumer in the draft, and whether it is new.
    joined: Option<(ConsumerNumber, bool)>,
    /// The group's last ID was moved on.
    moved: bool,
    claiming: Claiming,
    /// The entries in the reply.
    answer: Pieces,
    protocol: Protocol,
}

impl ClaimInSlices {
    /// Begins, or starts over with the group's current state.
    fn begin(&mut self) {
        let (claim, group) = (self.claiming.claim, &mut self.draft.group);
        self.moved = claim.move_on(group);
        self.joined = Some(consumer::seen_in(group, &self.consumer, claim.now_ms));
        self.claiming.begin();
        self.answer = Pieces::default();
    }
}

impl SlicedChange for ClaimInSlices {
    fn step(&mut self, _: &mut Data) -> bool {
        let Some((number, _)) = self.joined else { return false };
        let mut reply = Reply::new(self.answer.open(), self.protocol);
        let claim = self.claiming.claim;
        let answer = &mut |_, entry: &StreamEntry<'_>| claim.answer(&mut reply, entry);
        let GroupDraft { pinned, group, .. } = &mut self.draft;
        self.claiming.step(pinned.log(), group, number, SLICE, answer)
    }

    fn is_current(&mut self, data: &mut Data) -> Result<bool, Failure> {
        let is_current = self.draft.is_current(data)?;
        let no_group = || group::nothing_found(&self.draft.key, &self.draft.name);
        let is_current = is_current.ok_or_else(no_group)?;
        if !is_current {
            self.begin();
        }
        Ok(is_current)
    }

    fn finish(&mut self, data: &mut Data, args: &[&[u8]], reply: &mut Reply<'_>) -> Outcome {
        let key = data.key(args[1]);
        if self.joined.is_some_and(|(_, is_new)| is_new) {
            consumer::created(data, key, args[2], args[3]);
        }
        let group = &self.draft.group;
        match self.claiming.candidates {
            Candidates::Given { .. } => reply.array(self.claiming.claimed),
            Candidates::Pending { .. } => {
                self.claiming.answer_cursor(group, reply);
                let mut reply = Reply::new(self.answer.open(), self.protocol);
                self.claiming.answer_deleted(&mut reply);
            }
        }
        let moved = self.moved.then_some(group.entries_read);
        self.claiming.note(data, key, args[2], moved);
        self.draft.put(data, key)
    }

    fn rest(&mut self) -> Option<Pieces> {
        Some(std::mem::take(&mut self.answer))
    }

    fn rest_bytes(&self) -> usize {
        self.answer.byte_len()
    }
}

/// The first pending entry from an ID on.
fn following(group: &ConsumerGroup, start: Option<StreamId>) -> Option<StreamId> {
    group.pending_from(start?, None).next().map(|pending| pending.id)
}

impl Claim {
    const fn new(idle_ms_min: i64, now_ms: i64) -> Self {
        let (delivered_ms, deliveries, last_id) = (-1, None, StreamId::ZERO);
        let (force, ids_only) = (false, false);
        Self { idle_ms_min, delivered_ms, deliveries, force, ids_only, now_ms, last_id }
    }

    /// Moves the group's last ID on. Returns whether it was lower before.
    fn move_on(&self, group: &mut ConsumerGroup) -> bool {
        let moves = group.last_id < self.last_id;
        if moves {
            group.last_id = self.last_id;
        }
        moves
    }

    /// Parses the options of XCLAIM behind the IDs.
    fn parse_options(&mut self, call: &Call<'_>, mut at: usize) -> Outcome {
        while at < call.args.len() {
            let value = call.args.get(at + 1);
            if call.word_is(at, "force") {
                self.force = true;
            } else if call.word_is(at, "justid") {
                self.ids_only = true;
            } else if call.word_is(at, "idle")
                && let Some(value) = value
            {
                let idle_ms = milliseconds(value, "ERR Invalid IDLE option argument for XCLAIM")?;
                self.delivered_ms = self.now_ms.wrapping_sub(idle_ms);
                at += 1;
            } else if call.word_is(at, "time")
                && let Some(value) = value
            {
                self.delivered_ms =
                    milliseconds(value, "ERR Invalid TIME option argument for XCLAIM")?;
                at += 1;
            } else if call.word_is(at, "retrycount")
                && let Some(value) = value
            {
                let count =
                    milliseconds(value, "ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
                self.deliveries = u64::try_from(count).ok();
                at += 1;
            } else if call.word_is(at, "lastid")
                && let Some(value) = value
            {
                self.last_id = id::parse(value, 0)?;
                at += 1;
            } else {
                return Err(unrecognized(call.args[at]));
            }
            at += 1;
        }
        // Clients use their own clocks, so an impossible time is not an error.
        if !(0..=self.now_ms).contains(&self.delivered_ms) {
            self.delivered_ms = self.now_ms;
        }
        Ok(())
    }

    /// Makes an entry pending for the consumer if the conditions hold, and calls `answer` with it.
    fn claim(
        &self,
        id: StreamId,
        log: &StreamLog,
        group: &mut ConsumerGroup,
        number: ConsumerNumber,
        logged: &mut Claims,
        answer: impl FnOnce(&StreamEntry<'_>),
    ) -> ClaimOutcome {
        let pending = group.pending().get(id).copied();
        let Some(entry) = log.entry(id) else {
            // A replica that executes the same finds the entry deleted too.
            logged.add(group, id);
            return if group.acknowledge(id) { ClaimOutcome::Deleted } else { ClaimOutcome::No };
        };
        let deliveries = match pending {
            Some(pending) => {
                let idle_ms = self.now_ms.saturating_sub(pending.delivered_ms);
                if self.idle_ms_min > 0 && idle_ms < self.idle_ms_min {
                    return ClaimOutcome::No;
                }
                pending.deliveries
            }
            None if self.force => 1,
            None => return ClaimOutcome::No,
        };
        let deliveries = match self.deliveries {
            Some(given) => given,
            None => deliveries.wrapping_add(u64::from(!self.ids_only)),
        };
        group.assign(id, number, self.delivered_ms, deliveries);
        if let Some(consumer) = group.consumer_mut(number) {
            consumer.active_ms = Some(self.now_ms);
        }
        logged.add(group, id);
        answer(&entry);
        ClaimOutcome::Yes
    }

    /// Appends what is shown of an entry.
    fn answer(&self, reply: &mut Reply<'_>, entry: &StreamEntry<'_>) {
        if self.ids_only {
            id::reply(reply, entry.id);
        } else {
            append_entry(reply, entry);
        }
    }
}

/// The claims to log.
struct Claims {
    logs: bool,
    claimed: Vec<propagate::ClaimedEntry>,
}

impl Claims {
    const fn new(logs: bool) -> Self {
        Self { logs, claimed: Vec::new() }
    }

    fn add(&mut self, group: &ConsumerGroup, id: StreamId) {
        if self.logs {
            self.claimed.extend(propagate::ClaimedEntry::of(group, id));
        }
    }
}

fn milliseconds(text: &[u8], error: &'static str) -> Result<i64, Failure> {
    parse_i64(text).ok_or_else(|| Failure::from(error))
}

#[cold]
fn unrecognized(option: &[u8]) -> Failure {
    let option = String::from_utf8_lossy(option);
    Failure::format(format!("ERR Unrecognized XCLAIM option '{option}'"))
}

/// How many entries XAUTOCLAIM takes over by default.
const COUNT_DEFAULT: usize = 100;
/// Redis's limit: more IDs would not fit into its address space.
const COUNT_MAX: usize = i64::MAX as usize / 16;
/// How many entries XAUTOCLAIM examines for each that it may take over.
const LOOKS_PER_ENTRY: usize = 10;
