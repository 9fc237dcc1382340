//! SORT and SORT_RO.
//!
//! BY and GET name keys that depend on the elements: with such a pattern the command holds the gate, without one
//! only the shards of its source and its destination. Large sorts without patterns are done in slices of a pinned
//! value, for which nothing is held.

mod elements;
mod options;
mod pattern;
mod sliced;

use bobbin_store::value::ListLimits;

use self::elements::{Elements, Source};
use self::options::Options;
use self::pattern::Pattern;
use self::sliced::{Output, Stored};
use crate::command::keys::{Begin, Find, KeySpec, KeyUse};
use crate::command::slices::{SLICED_MIN, change_in_slices, reply_in_slices};
use crate::command::{Call, Categories, Command, Data, Failure, Flags, Outcome};

fn sort(call: &mut Call<'_>) -> Outcome {
    run(call, true)
}

fn sort_ro(call: &mut Call<'_>) -> Outcome {
    run(call, false)
}

fn run(call: &mut Call<'_>, may_store: bool) -> Outcome {
    let mut options = Options::parse(call.args, may_store)?;
    let key = call.key(1);
    let source = Source::of(call.data.read(key))?;
    if options.unsorted && options.store.is_some() && matches!(source, Source::Set(_)) {
        // What is stored is to be the same everywhere, and a set has no order of its own.
        options.unsorted = false;
        options.alpha = true;
        options.by = None;
    }
    let range = options.range(source.len());
    let is_large = source.len() > SLICED_MIN && !call.in_transaction;
    if is_large && !options.needs_other_keys() && options.get.is_empty() {
        let hasher = call.data.keyspace().hasher();
        let Some(at) = options.store else {
            let mut sorting = sliced::Sorting::new(source, hasher, &options, range);
            reply_in_slices(call, move |reply| sorting.step(reply));
            return Ok(());
        };
        let storing = sliced::Storing {
            sorting: sliced::Sorting::new(source.clone(), hasher, &options, range),
            options: options.without_patterns(),
            source,
            key: key.bytes.into(),
            destination: call.args[at].into(),
            result: Stored::new(limits(call)),
        };
        return change_in_slices(call, [1, at].into_iter(), storing);
    }
    let (elements, range) = if options.unsorted && !matches!(source, Source::Set(_)) {
        let mut elements = Elements::with_capacity(range.len());
        source.load_range(range.clone(), options.descending, &mut elements);
        (elements, 0..range.len())
    } else {
        (load_sorted(call.data, &source, &options)?, range)
    };
    match options.store {
        None => {
            answer(call, &options, &elements, range.clone());
            Ok(())
        }
        Some(at) => store(call, &options, &elements, range.clone(), at),
    }
}

/// All elements of a source, in the order asked for.
fn load_sorted(
    data: &mut Data,
    source: &Source,
    options: &Options<'_>,
) -> Result<Elements, Failure> {
    let mut elements = Elements::with_capacity(source.len());
    let mut cursor = Some(0);
    let hasher = data.keyspace().hasher();
    while let Some(from) = cursor {
        cursor = source.load(from, usize::MAX, hasher, &mut elements);
    }
    if options.unsorted {
        return Ok(elements);
    }
    match options.by.map(Pattern::new) {
        None if options.alpha => {}
        None => elements.weigh_all().ok_or(NOT_NUMBERS)?,
        Some(pattern) => {
            let mut failed = false;
            for at in 0..elements.len() {
                let element = elements.get(at).to_vec();
                pattern.look_up(data, &element, |value| match value {
                    None => {}
                    Some(value) if options.alpha => elements.set_text_weight(at, value),
                    Some(value) => failed |= elements.set_weight(at, value).is_none(),
                });
            }
            if failed {
                return Err(NOT_NUMBERS);
            }
        }
    }
    elements.sort(options.ordering());
    Ok(elements)
}

fn answer(
    call: &mut Call<'_>,
    options: &Options<'_>,
    elements: &Elements,
    range: std::ops::Range<usize>,
) {
    let patterns: Vec<_> = options.get.iter().map(|&pattern| Pattern::new(pattern)).collect();
    call.reply.array(range.len() * patterns.len().max(1));
    for at in range {
        let element = elements.get(at);
        if patterns.is_empty() {
            call.reply.bulk(element);
        }
        for pattern in &patterns {
            pattern.look_up(call.data, element, |value| call.reply.bulk_or_null(value));
        }
    }
}

fn store(
    call: &mut Call<'_>,
    options: &Options<'_>,
    elements: &Elements,
    range: std::ops::Range<usize>,
    at: usize,
) -> Outcome {
    let patterns: Vec<_> = options.get.iter().map(|&pattern| Pattern::new(pattern)).collect();
    let mut result = Stored::new(limits(call));
    for at in range {
        let element = elements.get(at);
        if patterns.is_empty() {
            result.element(element);
        }
        for pattern in &patterns {
            pattern.look_up(call.data, element, |value| result.element(value.unwrap_or_default()));
        }
    }
    let key = call.key(at);
    result.put(call.data, &mut call.reply, key)
}

fn limits(call: &Call<'_>) -> ListLimits {
    ListLimits::new(call.server.config.list_max_listpack_size())
}

fn find_keys(args: &[&[u8]], found: &mut dyn FnMut(usize, KeyUse)) {
    found(1, READ);
    if let Ok(Options { store: Some(at), .. }) = Options::parse(args, true) {
        found(at, STORE);
    }
}

fn find_keys_ro(_: &[&[u8]], found: &mut dyn FnMut(usize, KeyUse)) {
    found(1, READ);
}

fn needs_gate(args: &[&[u8]]) -> bool {
    Options::parse(args, true).is_ok_and(|options| options.needs_other_keys())
}

const NOT_NUMBERS: Failure = Failure::new("ERR One or more scores can't be converted into double");

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
            "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [<ASC | DESC>] \
             [ALPHA] [STORE destination]",
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
            "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [<ASC | DESC>] \
             [ALPHA]",
        ),
];
