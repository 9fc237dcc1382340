//! Taking over what others do not acknowledge: XCLAIM and XAUTOCLAIM.

use bobbin_resp::{Reply, parse_i64};
use bobbin_store::value::StreamId;
use bobbin_store::value::stream::{ConsumerNumber, Entry, Group, Log};

use super::super::repeats::Repeats;
use super::range::append_entry;
use super::{consumer, group, id, propagate};
use crate::engine::command::{Call, Failure, Outcome};

/// How entries are taken over.
struct Claim {
    idle_ms_min: i64,
    /// The Unix ms to be noted as that of their delivery.
    delivered_ms: i64,
    /// The number of deliveries to be noted, if it is given.
    deliveries: Option<u64>,
    /// Takes entries that were not pending as well.
    force: bool,
    /// Answers the IDs only, and counts no delivery.
    ids_only: bool,
    now_ms: i64,
}

/// What became of an entry.
#[derive(PartialEq, Eq)]
enum ClaimOutcome {
    Yes,
    /// It is not pending, or not idle for long enough.
    No,
    /// It was deleted, and is pending no longer.
    Deleted,
}

pub(super) fn xclaim(call: &mut Call<'_>) -> Outcome {
    let (key, args) = (call.key(1)?, call.args);
    let no_group = || group::nothing_found(args[1], args[2]);
    let Some((_, found)) = group::find(call.data, key, args[2])? else {
        // It is a reader's look at the key.
        call.data.look(key);
        return Err(no_group());
    };
    let last_id_before = found.last_id;
    call.data.counters.hits += 1;
    let idle_ms_min =
        milliseconds(args[4], "ERR Invalid min-idle-time argument for XCLAIM")?.max(0);
    let ids = args[5..].iter().take_while(|arg| id::parse(arg, 0).is_ok()).count();
    let now_ms = call.data.turn.now_ms;
    let mut claim = Claim {
        idle_ms_min,
        delivered_ms: -1,
        deliveries: None,
        force: false,
        ids_only: false,
        now_ms,
    };
    let last_id = claim.parse_options(call, 5 + ids)?;

    if last_id > last_id_before
        && let Some((_, found)) = group::find(call.data, key, args[2])?
    {
        found.last_id = last_id;
        call.data.changed_inside(key);
    }
    let number = consumer::seen(call.data, key, args[2], args[3], no_group)?;
    let logs = call.data.is_logged();
    let (log, found) = group::find(call.data, key, args[2])?.ok_or_else(no_group)?;
    let header = call.reply.defer();
    let (mut written, mut changed) = (0, 0);
    let entries_read = found.entries_read;
    let mut logged = Claims::new(logs);
    let mut repeats = Repeats::default();
    for arg in &args[5..5 + ids] {
        let id = id::parse(arg, 0)?;
        let reply = &mut call.reply;
        let claimed = claim.claim(id, log, found, number, &mut logged, |entry| {
            repeats.whole(reply, arg, |reply| claim.answer(reply, entry));
        });
        written += usize::from(claimed == ClaimOutcome::Yes);
        changed += u64::from(claimed != ClaimOutcome::No);
    }
    call.reply.finish_array(header, written);
    call.data.counters.dirty += changed;
    call.data.propagate_nothing();
    if logged.is_empty() && last_id > last_id_before {
        propagate::position(call.data, key, args[2], last_id, entries_read);
    }
    logged.iter().for_each(|claimed| claimed.propagate(call.data, key, args[2]));
    Ok(())
}

pub(super) fn xautoclaim(call: &mut Call<'_>) -> Outcome {
    let (key, args) = (call.key(1)?, call.args);
    let now_ms = call.data.turn.now_ms;
    let idle_ms_min =
        milliseconds(args[4], "ERR Invalid min-idle-time argument for XAUTOCLAIM")?.max(0);
    let start = id::parse_start(args[5])?;
    let mut claim = Claim {
        idle_ms_min,
        delivered_ms: now_ms,
        deliveries: None,
        force: false,
        ids_only: false,
        now_ms,
    };
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
    let no_group = || group::nothing_found(args[1], args[2]);
    let number = consumer::seen(call.data, key, args[2], args[3], no_group);
    // It is a reader's look at the key.
    if number.is_err() {
        call.data.look(key);
    }
    let number = number?;
    call.data.counters.hits += 1;
    let mut logged = Claims::new(call.data.is_logged());
    let (log, found) = group::find(call.data, key, args[2])?.ok_or_else(no_group)?;

    // The entries come behind the cursor, which is known only when they have been found.
    let mut entries = Vec::new();
    let mut reply = Reply::new(&mut entries, call.reply.protocol());
    let header = reply.defer();
    let (mut claimed, mut deleted) = (0, Vec::new());
    let mut next = Some(start);
    let mut attempts = count.saturating_mul(ATTEMPTS_PER_ENTRY);
    let mut cursor = following(found, next);
    while let Some(id) = cursor
        && attempts > 0
        && claimed + deleted.len() < count
    {
        attempts -= 1;
        let answer = |entry: &Entry<'_>| claim.answer(&mut reply, entry);
        match claim.claim(id, log, found, number, &mut logged, answer) {
            ClaimOutcome::Yes => claimed += 1,
            ClaimOutcome::No => {}
            ClaimOutcome::Deleted => deleted.push(id),
        }
        next = id.next();
        cursor = following(found, next);
    }
    reply.finish_array(header, claimed);
    call.reply.array(3);
    id::reply(&mut call.reply, cursor.unwrap_or_default());
    call.reply.raw(&entries);
    call.reply.array(deleted.len());
    deleted.iter().for_each(|&id| id::reply(&mut call.reply, id));
    call.data.counters.dirty += (claimed + deleted.len()) as u64;
    call.data.propagate_nothing();
    logged.iter().for_each(|claimed| claimed.propagate(call.data, key, args[2]));
    Ok(())
}

/// The first pending entry from an ID on.
fn following(group: &Group, start: Option<StreamId>) -> Option<StreamId> {
    group.pending_from(start?, None).next().map(|pending| pending.id)
}

impl Claim {
    /// Parses the options of XCLAIM after the IDs. Returns the ID that the group's last ID must
    /// reach at least.
    fn parse_options(&mut self, call: &Call<'_>, mut at: usize) -> Result<StreamId, Failure> {
        let mut last_id = StreamId::ZERO;
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
                last_id = id::parse(value, 0)?;
                at += 1;
            } else {
                return Err(unrecognized(call.args[at]));
            }
            at += 1;
        }
        // Clients reckon with clocks of their own: a time that cannot be is no error.
        if !(0..=self.now_ms).contains(&self.delivered_ms) {
            self.delivered_ms = self.now_ms;
        }
        Ok(last_id)
    }

    /// Makes an entry pending with the consumer, if the conditions hold, and has it answered.
    fn claim(
        &self,
        id: StreamId,
        log: &Log,
        group: &mut Group,
        number: ConsumerNumber,
        logged: &mut Claims,
        answer: impl FnOnce(&Entry<'_>),
    ) -> ClaimOutcome {
        let pending = group.pending().get(id).copied();
        let Some(entry) = log.entry(id) else {
            // Whoever does the same finds it deleted as well.
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

    /// What is answered of an entry.
    fn answer(&self, reply: &mut Reply<'_>, entry: &Entry<'_>) {
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

    fn add(&mut self, group: &Group, id: StreamId) {
        if self.logs {
            self.claimed.extend(propagate::ClaimedEntry::of(group, id));
        }
    }

    const fn is_empty(&self) -> bool {
        self.claimed.is_empty()
    }

    fn iter(&self) -> impl Iterator<Item = &propagate::ClaimedEntry> {
        self.claimed.iter()
    }
}

fn milliseconds(text: &[u8], error: &'static str) -> Result<i64, Failure> {
    parse_i64(text).ok_or_else(|| Failure::new(error))
}

#[cold]
fn unrecognized(option: &[u8]) -> Failure {
    let option = String::from_utf8_lossy(option);
    Failure::format(format!("ERR Unrecognized XCLAIM option '{option}'"))
}

/// Entries that XAUTOCLAIM takes over at once, unless it is told.
const COUNT_DEFAULT: usize = 100;
/// Redis's limit: that many IDs would just fit into its address space.
const COUNT_MAX: usize = i64::MAX as usize / 16;
/// Entries that XAUTOCLAIM looks at, for each that it may take over.
const ATTEMPTS_PER_ENTRY: usize = 10;
