//! HyperLogLog: estimates of cardinalities. The values are strings in the format of
//! `bobbin_store::hyperloglog`.

use std::sync::Arc;

use bobbin_resp::Reply;
use bobbin_store::entry::INLINE_MAX;
use bobbin_store::hyperloglog::{
    self, Corrupt, HyperLogLog, HyperLogLogView, REGISTERS, RegisterEncoding, RegisterRank,
    Registers, SelfTest,
};
use bobbin_store::shard::Expire;
use bobbin_store::value::StringRef;
use bobbin_store::{EntryRef, NewValue};

use super::string::PinnedStrings;
use crate::engine::command::data::string;
use crate::engine::command::{
    Call, Categories, Command, Data, Failure, Family, Flags, Key, Outcome,
};
use crate::engine::execution::slices::{SlicedChange, change_in_slices, reply_in_slices};
use crate::engine::pubsub::notify::Classes;
use crate::engine::row::keys::{KeySpec, KeyUse};

fn pfadd(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1)?;
    let sparse_len_max = sparse_len_max(call);
    let elements = call.args[2..].iter().map(|bytes| RegisterRank::of(bytes));
    let Some(mut entry) = call.data.write(key) else {
        let mut value = HyperLogLog::default();
        let mut changes = 1;
        for element in elements {
            changes += u64::from(value.add(element, sparse_len_max).map_err(corrupt)?);
        }
        // Redis does so even without an element.
        value.mark_stale();
        store(call.data, key, value, Expire::Clear);
        return added(call, key, changes);
    };
    let view = view(entry.as_ref())?;
    let mut changes = 0;
    if view.encoding() == RegisterEncoding::Dense {
        if !elements.clone().any(|element| view.is_raised_by(element) == Ok(true)) {
            return added(call, key, 0);
        }
        // The value keeps its length, so no new entry is needed.
        if let Some(bytes) = entry.string_mut(0) {
            for element in elements {
                changes += u64::from(hyperloglog::raise_dense(bytes, element));
            }
            call.data.changed(key);
        }
        return added(call, key, changes);
    }
    // Each lookup in a sparse value is a walk over its runs.
    let mut decoded = None;
    if elements.len() > WALKS_MAX {
        let mut registers = [0; REGISTERS];
        view.merge_into(&mut registers).map_err(corrupt)?;
        decoded = Some(registers);
    }
    let mut value = None;
    for element in elements {
        let is_raised = match &mut decoded {
            Some(registers) => {
                let before = &mut registers[element.register];
                let is_raised = *before < element.rank;
                *before = element.rank.max(*before);
                is_raised
            }
            None => value.is_some() || view.is_raised_by(element).map_err(corrupt)?,
        };
        if !is_raised {
            continue;
        }
        let value = value.get_or_insert_with(|| view.to_owned());
        changes += u64::from(value.add(element, sparse_len_max).map_err(corrupt)?);
    }
    if let Some(value) = value {
        store(call.data, key, value, Expire::Keep);
    }
    added(call, key, changes)
}

/// The reply of PFADD after `changes` changes, one of which was counted already.
fn added(call: &mut Call<'_>, key: Key<'_>, changes: u64) -> Outcome {
    if changes > 0 {
        call.data.counters.dirty += changes - 1;
        call.data.event(Classes::STRING, "pfadd", key);
    }
    call.reply.integer(i64::from(changes > 0));
    Ok(())
}

fn pfcount(call: &mut Call<'_>) -> Outcome {
    if call.args.len() == 2 {
        return pfcount_of_one(call);
    }
    let keys = call.distinct_keys(1..call.args.len())?;
    let mut merged = Merged::default();
    let Some(looked_at) = merged.merge(call, &keys)? else {
        call.reply.integer(hyperloglog::cardinality(&merged.registers) as i64);
        return Ok(());
    };
    let mut merging = Merging::new(call.data, names_of(&keys), looked_at)?;
    reply_in_slices(call, move |reply| {
        let more = merging.step();
        match &merging.failure {
            _ if more => {}
            Some(failure) => reply.error(failure.text().as_bytes()),
            None => reply.integer(hyperloglog::cardinality(&merging.merged.registers) as i64),
        }
        more
    });
    Ok(())
}

/// PFCOUNT of one key, whose value keeps its cardinality.
fn pfcount_of_one(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1)?;
    // `write` deletes an expired key, which a replica must not do by itself.
    let entry = if call.data.exists(key) { call.data.write(key) } else { None };
    let Some(mut entry) = entry else {
        call.data.missed(key);
        call.reply.integer(0);
        return Ok(());
    };
    let view = view(entry.as_ref())?;
    let count = match view.cached() {
        Some(count) => count,
        None => {
            let count = view.count().map_err(corrupt)?;
            // The string keeps its length, so no new entry is needed.
            if let Some(bytes) = entry.string_mut(0) {
                hyperloglog::set_cached(bytes, count);
            }
            call.data.changed(key);
            count
        }
    };
    call.data.counters.hits += 1;
    call.reply.integer(count as i64);
    Ok(())
}

fn pfmerge(call: &mut Call<'_>) -> Outcome {
    let keys = call.distinct_keys(1..call.args.len())?;
    let mut merged = Merged::default();
    let sparse_len_max = sparse_len_max(call);
    let Some(looked_at) = merged.merge(call, &keys)? else {
        let key = call.key(1)?;
        merge_into(call.data, key, &merged, sparse_len_max)?;
        call.reply.ok();
        return Ok(());
    };
    let mut merging = Merging::new(call.data, names_of(&keys), looked_at)?;
    merging.sparse_len_max = sparse_len_max;
    change_in_slices(call, 1..call.args.len(), merging)
}

/// Some values, merged.
struct Merged {
    registers: Registers,
    /// One of them is dense.
    dense: bool,
}

impl Default for Merged {
    fn default() -> Self {
        Self { registers: [0; REGISTERS], dense: false }
    }
}

impl Merged {
    /// Merges the values of these keys. If that takes so long that others must be served meanwhile,
    /// it is given up, and the result is how many keys have been looked at.
    fn merge(&mut self, call: &mut Call<'_>, keys: &[Key<'_>]) -> Result<Option<usize>, Failure> {
        let (small_max, large_max) = match call.may_leave_job {
            true => (SMALL_MAX, WALKS_MAX),
            false => (usize::MAX, usize::MAX),
        };
        if keys.len() > small_max {
            return Ok(Some(0));
        }
        let mut large = 0;
        for (at, &key) in keys.iter().enumerate() {
            let Some(entry) = call.data.read(key) else { continue };
            let string = string(entry)?;
            let view = view_of(string)?;
            large += usize::from(string.len() > SMALL_LEN);
            if large > large_max {
                return Ok(Some(at + 1));
            }
            self.add(view)?;
        }
        Ok(None)
    }

    fn add(&mut self, view: HyperLogLogView<'_>) -> Outcome {
        self.dense |= view.encoding() == RegisterEncoding::Dense;
        view.merge_into(&mut self.registers).map_err(corrupt)
    }
}

/// Merges other values into the HyperLogLog at a key. It is one of the merged ones itself.
fn merge_into(data: &mut Data, key: Key<'_>, merged: &Merged, sparse_len_max: usize) -> Outcome {
    let mut value = HyperLogLog::default();
    let mut is_raised = false;
    if let Some(mut entry) = data.write(key) {
        let view = view(entry.as_ref())?;
        if view.encoding() == RegisterEncoding::Sparse {
            value = view.to_owned();
        } else if let Some(bytes) = entry.string_mut(0) {
            // The value keeps its length, so no new entry is needed.
            hyperloglog::raise_all_dense(bytes, &merged.registers);
            is_raised = true;
        }
    }
    if is_raised {
        data.changed(key);
    } else {
        value.raise_all(&merged.registers, merged.dense, sparse_len_max).map_err(corrupt)?;
        store(data, key, value, Expire::Keep);
    }
    data.event(Classes::STRING, "pfadd", key);
    Ok(())
}

/// PFCOUNT or PFMERGE of many keys.
struct Merging {
    /// The keys.
    names: Vec<Box<[u8]>>,
    pinned: PinnedStrings,
    /// How many of the strings are merged.
    done: usize,
    merged: Box<Merged>,
    /// One of the strings is damaged.
    failure: Option<Failure>,
    sparse_len_max: usize,
}

impl Merging {
    /// The first `looked_at` keys are not looked at again: they count already.
    fn new(data: &mut Data, names: Vec<Box<[u8]>>, looked_at: usize) -> Result<Self, Failure> {
        for (at, name) in names.iter().enumerate() {
            let look = if at < looked_at { Data::peek } else { Data::read };
            if let Some(entry) = look(data, data.key(name)) {
                view(entry)?;
            }
        }
        let keys: Vec<Key<'_>> = names.iter().map(|name| data.key(name)).collect();
        let pinned = PinnedStrings::gather(data, keys.into_iter(), Data::peek)?;
        let (done, merged, failure, sparse_len_max) = (0, Box::default(), None, 0);
        Ok(Self { names, pinned, done, merged, failure, sparse_len_max })
    }

    /// Merges some of the strings. Returns whether there are more.
    fn step(&mut self) -> bool {
        for _ in 0..MERGED {
            let Some(string) = self.pinned.get(self.done) else { return false };
            self.done += 1;
            // The key does not exist.
            if string.is_empty() {
                continue;
            }
            if let Err(failure) = view_of(string).and_then(|view| self.merged.add(view)) {
                self.failure = Some(failure);
                return false;
            }
        }
        true
    }
}

/// The last step of PFMERGE.
impl SlicedChange for Merging {
    fn step(&mut self, _: &mut Data) -> bool {
        self.step()
    }

    fn is_current(&mut self, data: &mut Data) -> Result<bool, Failure> {
        let names = std::mem::take(&mut self.names);
        let looked_at = names.len();
        let mut now = Self::new(data, names, looked_at)?;
        let is_current = now.pinned.are_same(&self.pinned);
        if is_current {
            self.names = now.names;
        } else {
            now.sparse_len_max = self.sparse_len_max;
            *self = now;
        }
        Ok(is_current)
    }

    fn finish(&mut self, data: &mut Data, args: &[&[u8]], reply: &mut Reply<'_>) -> Outcome {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let key = data.key(args[1]);
        merge_into(data, key, &self.merged, self.sparse_len_max)?;
        reply.ok();
        Ok(())
    }
}

fn pfdebug(call: &mut Call<'_>) -> Outcome {
    if call.word_is(1, "simd") {
        return simd(call);
    }
    let (subcommand, key) = (call.args[1], call.key(2)?);
    let Some(entry) = call.data.write(key) else {
        return Err("ERR The specified key does not exist".into());
    };
    let view = view(entry.as_ref())?;
    let is = |word: &str| subcommand.eq_ignore_ascii_case(word.as_bytes());
    if is("encoding") {
        call.reply.simple(match view.encoding() {
            RegisterEncoding::Dense => "dense",
            RegisterEncoding::Sparse => "sparse",
        });
    } else if is("decode") {
        if view.encoding() != RegisterEncoding::Sparse {
            return Err("ERR HLL encoding is not sparse".into());
        }
        call.reply.bulk(view.describe_runs().as_bytes());
    } else if is("todense") {
        let sparse = view.encoding() == RegisterEncoding::Sparse;
        let value = view.to_owned();
        make_dense(call, key, value)?;
        call.reply.integer(i64::from(sparse));
    } else if is("getreg") {
        let mut registers = [0; REGISTERS];
        view.merge_into(&mut registers).map_err(corrupt)?;
        let value = view.to_owned();
        make_dense(call, key, value)?;
        call.reply.array(REGISTERS);
        registers.iter().for_each(|&value| call.reply.integer(i64::from(value)));
    } else {
        let name = String::from_utf8_lossy(subcommand);
        return Err(Failure::format(format!("ERR Unknown PFDEBUG subcommand '{name}'")));
    }
    Ok(())
}

/// PFDEBUG SIMD has no effect: vectors are used if the processor has them, and the results are the
/// same.
fn simd(call: &mut Call<'_>) -> Outcome {
    if !call.word_is(2, "on") && !call.word_is(2, "off") {
        return Err("ERR Argument must be ON or OFF".into());
    }
    call.reply.simple("disabled");
    Ok(())
}

/// Makes the value of a key dense. `value` is a copy of it.
fn make_dense(call: &mut Call<'_>, key: Key<'_>, mut value: HyperLogLog) -> Outcome {
    if value.view().encoding() == RegisterEncoding::Sparse {
        value.make_dense().map_err(corrupt)?;
        store(call.data, key, value, Expire::Keep);
    }
    Ok(())
}

fn pfselftest(call: &mut Call<'_>) -> Outcome {
    let seed =
        u64::from(call.data.random.next_u32()) << 32 | u64::from(call.data.random.next_u32());
    let mut test = SelfTest::new(seed, sparse_len_max(call));
    reply_in_slices(call, move |reply| match test.step() {
        Ok(true) => true,
        Ok(false) => {
            reply.ok();
            false
        }
        Err(reason) => {
            reply.error(format!("TESTFAILED {reason}").as_bytes());
            false
        }
    });
    Ok(())
}

fn names_of(keys: &[Key<'_>]) -> Vec<Box<[u8]>> {
    keys.iter().map(|key| key.bytes.into()).collect()
}

/// The HyperLogLog in an entry.
fn view(entry: EntryRef<'_>) -> Result<HyperLogLogView<'_>, Failure> {
    view_of(string(entry)?)
}

fn view_of(string: StringRef<'_>) -> Result<HyperLogLogView<'_>, Failure> {
    let view = HyperLogLogView::new(string.slice_at(0)).ok_or(NOT_A_HYPERLOGLOG)?;
    // A string in chunks is longer than any valid value.
    string.flat().map(|_| view).ok_or_else(|| corrupt(Corrupt))
}

/// Stores a value at a key that was looked at to be written.
fn store(data: &mut Data, key: Key<'_>, value: HyperLogLog, expire: Expire) {
    let bytes = value.into_bytes();
    if bytes.len() <= INLINE_MAX {
        data.set_used(key, NewValue::InlineRaw(&bytes), expire);
    } else {
        data.set_used(key, NewValue::Shared(Arc::new(bytes)), expire);
    }
}

fn sparse_len_max(call: &Call<'_>) -> usize {
    call.server.config.hll_sparse_max_bytes() as usize
}

fn corrupt(_: Corrupt) -> Failure {
    Failure::new(&"INVALIDOBJ Corrupted HLL object detected")
}

/// More elements than these are not looked up in a sparse value one by one, and more large values
/// than these are not merged at once.
const WALKS_MAX: usize = 64;
/// More values than these are not merged at once, however small they are.
const SMALL_MAX: usize = 1024;
/// Values of at most this many bytes are small.
const SMALL_LEN: usize = 256;
/// How many HyperLogLogs are merged between two looks at the clock. Each takes some microseconds.
const MERGED: usize = 4;

const NOT_A_HYPERLOGLOG: Failure =
    Failure::new(&"WRONGTYPE Key is not a valid HyperLogLog string value.");

const GROW: Flags = Flags::WRITE.with(Flags::DENYOOM);
const READ_WRITE: KeyUse = KeyUse::READ_WRITE;

const FAMILY: Family = Family::new(Categories::HYPERLOGLOG);

pub(super) const COMMANDS: &[Command] = &[
    FAMILY
        .row("pfadd", -2, GROW.with(Flags::FAST), pfadd)
        .keys(&[KeySpec::at(1, READ_WRITE.with(KeyUse::INSERT))])
        .doc(
            "hyperloglog",
            "2.8.9",
            "O(1) for each element",
            "Counts elements in a HyperLogLog, which is made if there is none.",
        )
        .syntax("key [element [element ...]]"),
    FAMILY
        .row("pfcount", -2, Flags::READONLY.with(Flags::MAY_REPLICATE), pfcount)
        .keys(&[KeySpec::range(1, -1, 1, READ_WRITE.with(KeyUse::ACCESS)).notes(
            "RW since it keeps the cardinality in the value, and propagates that to replicas",
        )])
        .doc(
            "hyperloglog",
            "2.8.9",
            "O(1) for one key, in the mean; O(N) for several, N: keys, at a higher cost each",
            "Answers about how many different elements HyperLogLogs have seen together.",
        )
        .syntax("key [key ...]"),
    FAMILY
        .row("pfmerge", -2, GROW, pfmerge)
        .keys(&[
            KeySpec::at(1, READ_WRITE.with(KeyUse::ACCESS).with(KeyUse::INSERT)),
            KeySpec::range(2, -1, 1, KeyUse::READ_ONLY.with(KeyUse::ACCESS)),
        ])
        .doc(
            "hyperloglog",
            "2.8.9",
            "O(N), N: HyperLogLogs, at a high cost each",
            "Adds what HyperLogLogs have seen to another.",
        )
        .syntax("destkey:key [sourcekey:key [sourcekey ...]]"),
    FAMILY
        .row("pfdebug", 3, GROW.with(Flags::ADMIN), pfdebug)
        .keys(&[KeySpec::at(2, READ_WRITE.with(KeyUse::ACCESS))])
        .doc("hyperloglog", "2.8.9", "N/A", "Shows how a HyperLogLog is encoded, or changes it.")
        .syntax("subcommand key"),
    FAMILY
        .row("pfselftest", 1, Flags::ADMIN, pfselftest)
        .doc("hyperloglog", "2.8.9", "N/A", "Tests the HyperLogLogs of this server.")
        .syntax(""),
];
