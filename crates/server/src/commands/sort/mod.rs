//! SORT and SORT_RO.
//!
//! BY and GET name keys that depend on the elements. With such a pattern the command takes the
//! gate; otherwise it needs only the shards of its source and its destination. A large sort works
//! in slices on a pinned value, with nothing locked. All of its lookups are of one moment
//! ([`lookups`]).

mod elements;
mod lookups;
mod options;
mod output;
mod pattern;
mod sliced;
mod sorting;

use bobbin_store::value::ListLimits;

use self::elements::SortSource;
use self::options::SortOptions;
use self::output::Stored;
use self::sliced::SlicedSort;
use self::sorting::Sorting;
use crate::engine::command::{Call, Categories, Command, Failure, Flags, Outcome};
use crate::engine::execution::rights::may_read_all;
use crate::engine::execution::slices::{SLICED_MIN, change_in_slices};
use crate::engine::row::keys::{Begin, Find, KeySpec, KeyUse};

fn sort(call: &mut Call<'_>) -> Outcome {
    run(call, true)
}

fn sort_ro(call: &mut Call<'_>) -> Outcome {
    run(call, false)
}

fn run(call: &mut Call<'_>, may_store: bool) -> Outcome {
    let mut options = SortOptions::parse(call.args, may_store)?;
    check_lookups(call, &options)?;
    let key = call.key(1)?;
    let source = SortSource::of(call.data.read(key))?;
    let in_script = call.client.caller != 0;
    if options.unsorted
        && (options.store.is_some() || in_script)
        && matches!(source, SortSource::Set(_))
    {
        // A result that is stored, or that a script gets, must be the same on every server. A set
        // has no order of its own, so it is sorted.
        options.unsorted = false;
        options.alpha = true;
        options.by = None;
    }
    options.collate(&call.server.config);
    let wanted = options.range(source.len()).len();
    let answered = wanted.saturating_mul(options.get.len());
    let loaded = if options.copies(&source) { wanted } else { source.len() };
    if loaded.max(answered) > SLICED_MIN && call.may_leave_job {
        let keys = [1].into_iter().chain(options.store);
        let sliced = SlicedSort::new(call, key, source, &options);
        return change_in_slices(call, keys, sliced);
    }
    let mut sorting = Sorting::new(source, &options, call.data.keyspace().hasher());
    let Some(at) = options.store else {
        let start = call.reply.output().len();
        loop {
            match sorting.step(call.data, None, &mut call.reply) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(failure) => {
                    call.reply.truncate(start);
                    return Err(failure);
                }
            }
        }
    };
    let mut result = Stored::new(limits(call), options.needs_other_keys());
    while sorting.step(call.data, None, &mut result)? {}
    let destination = call.key(at)?;
    result.put(call.data, &mut call.reply, destination);
    Ok(())
}

/// A client that may not read all keys may not look up keys that elements name.
fn check_lookups(call: &Call<'_>, options: &SortOptions<'_>) -> Outcome {
    let looks_up_weights = options.by.is_some_and(|pattern| pattern.contains(&b'*'));
    let looks_up = looks_up_weights || !options.get.is_empty();
    if !looks_up || may_read_all(call) {
        return Ok(());
    }
    let option = if looks_up_weights { "BY" } else { "GET" };
    Err(Failure::format(format!(
        "ERR {option} option of SORT denied due to insufficient ACL permissions."
    )))
}

fn limits(call: &Call<'_>) -> ListLimits {
    ListLimits::new(call.server.config.list_max_listpack_size())
}

fn find_keys(args: &[&[u8]], found: &mut dyn FnMut(usize, KeyUse)) {
    found(1, READ);
    if let Ok(SortOptions { store: Some(at), .. }) = SortOptions::parse(args, true) {
        found(at, STORE);
    }
}

fn find_keys_ro(_: &[&[u8]], found: &mut dyn FnMut(usize, KeyUse)) {
    found(1, READ);
}

fn needs_gate(args: &[&[u8]]) -> bool {
    SortOptions::parse(args, true).is_ok_and(|options| options.needs_other_keys())
}

const NOT_NUMBERS: Failure = Failure::new(&"ERR One or more scores can't be converted into double");

const READ: KeyUse = KeyUse::READ_ONLY.with(KeyUse::ACCESS);
const STORE: KeyUse = KeyUse::OVERWRITE.with(KeyUse::UPDATE);
const CATEGORIES: Categories =
    Categories::SET.with(Categories::SORTEDSET).with(Categories::LIST).with(Categories::DANGEROUS);
const COMPLEXITY: &str =
    "O(N+M*log(M)), N: elements, M: elements answered; O(N) where nothing is sorted";

const fn unknown(usage: KeyUse, notes: &'static str) -> KeySpec {
    KeySpec { begin: Begin::Unknown, find: Find::Unknown, usage, notes }
}

const DERIVED: KeySpec = unknown(READ, "BY and GET name keys after the elements that are sorted.");
const STORED: KeySpec = unknown(STORE, "STORE may be anywhere among the options.");

pub(super) const COMMANDS: &[Command] = &[
    Command::new("sort", -2, sort)
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::MOVABLE_KEYS))
        .categories(CATEGORIES)
        .keys(&[KeySpec::at(1, READ), DERIVED, STORED])
        .keys_by(find_keys)
        .gate_when(needs_gate)
        .doc(
            "generic",
            "1.0.0",
            COMPLEXITY,
            "Answers or stores the elements of a list, a set or a sorted set in another order.",
        )
        .syntax(
            "key [BY pattern :by-pattern #1] [LIMIT offset:int count:int] [GET pattern [GET \
             pattern ...] :get-pattern #1] [<ASC | DESC>] [ALPHA :sorting] [STORE destination:key \
             #2]",
        ),
    Command::new("sort_ro", -2, sort_ro)
        .flags(Flags::READONLY.with(Flags::MOVABLE_KEYS))
        .categories(CATEGORIES)
        .keys(&[KeySpec::at(1, READ), DERIVED])
        .keys_by(find_keys_ro)
        .gate_when(needs_gate)
        .doc(
            "generic",
            "7.0.0",
            COMPLEXITY,
            "Answers the elements of a list, a set or a sorted set in another order.",
        )
        .syntax(
            "key [BY pattern :by-pattern #1] [LIMIT offset:int count:int] [GET pattern [GET \
             pattern ...] :get-pattern #1] [<ASC | DESC>] [ALPHA :sorting]",
        ),
];
