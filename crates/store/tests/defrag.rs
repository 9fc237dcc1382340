//! Active defragmentation does not change the content of what it moves, and leaves out little.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::RefCell;
use std::collections::HashMap;

use bobbin_store::hash::Hasher;
use bobbin_store::shard::Database;
use bobbin_store::value::hash::FieldExpiry;
use bobbin_store::value::pages::Given;
use bobbin_store::value::stream::ConsumerGroup;
use bobbin_store::value::{
    AnyCollection, Collection, CollectionRef, End, Hash, HashLimits, Item, List, ListLimits,
    Listpack, Set, SetLimits, SortedSet, SortedSetLimits, Stream, StreamId, StreamLimits,
};
use bobbin_store::{DefragCursor, Defragmenter, NewValue, OwnedEntry, ValueRef};

/// The number of elements in large values. Even the smaller number, for Miri, is large enough that
/// no value is packed.
const MANY: usize = if cfg!(miri) { 700 } else { 3000 };

/// A database with a value of each type and encoding.
fn filled(hasher: &Hasher) -> Database {
    let mut database = Database::default();
    let mut insert = |key: String, value: NewValue<'_>, expire_ms: Option<i64>| {
        let entry = OwnedEntry::new(key.as_bytes(), value, expire_ms, 7);
        database.insert(hasher.hash(key.as_bytes()), entry, hasher);
    };
    for number in 0..50 {
        insert(format!("string{number}"), NewValue::Inline(&[b'x'; 40]), Some(number));
    }
    insert("long".into(), NewValue::string(&[b'y'; 5000]), None);
    insert("k".repeat(300), NewValue::InlineRaw(b"12"), None);
    for count in [3, MANY] {
        let texts: Vec<String> = (0..count).map(|number| format!("element {number}")).collect();
        let (mut list, mut set, mut sorted) = (List::new(), None::<Set>, SortedSet::new());
        let (mut hash, mut stream) = (Hash::Packed(Listpack::new()), Stream::new());
        for (number, text) in texts.iter().enumerate() {
            let bytes = text.as_bytes();
            list.prepare(bytes.len(), 1, ListLimits::default());
            list.push(Item::from(bytes), End::Back, ListLimits::default());
            let limits = SetLimits::default();
            set.get_or_insert_with(|| Set::for_members(bytes, 1, &limits))
                .insert(bytes, &limits, hasher);
            sorted.insert(bytes, number as f64, SortedSetLimits::default(), hasher);
            let limits = HashLimits::default();
            hash.set(bytes, Given::Bytes(bytes), FieldExpiry::Clear, 0, &limits, hasher);
            let id = StreamId { ms: number as u64 + 1, seq: 0 };
            let items = [bytes, bytes].map(Item::from);
            let limits = StreamLimits { node_bytes_max: 4096, node_entries_max: 100 };
            stream.log_mut().append(id, items.into_iter(), 2 * bytes.len(), limits);
        }
        let values = [
            list.into_any(),
            set.expect("there are members").into_any(),
            sorted.into_any(),
            hash.into_any(),
            stream.into_any(),
        ];
        for value in values {
            insert(
                format!("{:?} of {count}", value.value_type()),
                NewValue::Collection(value),
                None,
            );
        }
    }
    let mut integers = Set::for_members(b"1", 1, &SetLimits::default());
    integers.insert(b"1", &SetLimits::default(), hasher);
    insert("integers".into(), NewValue::Collection(integers.into_any()), None);
    database
}

/// Everything that can be seen of each key.
fn shown(database: &Database) -> Vec<String> {
    let entries = database.table().iter().map(|entry| {
        let (key, value) = (entry.key(), entry.value());
        let entries = match value {
            ValueRef::Collection(CollectionRef::Stream(stream)) => {
                let max = StreamId { ms: u64::MAX, seq: 0 };
                let entries = stream.log().range(StreamId::default(), max);
                format!("{:?}", entries.collect::<Vec<_>>())
            }
            _ => String::new(),
        };
        let (expiry, access) = (entry.expire_ms(), entry.access());
        format!("{key:?} {value:?} {entries} {expiry:?} {access} {:?}", entry.encoding())
    });
    entries.collect()
}

/// Moves everything in steps. Returns how many steps there were and how many blocks were moved. No
/// step goes on for long.
fn move_all(database: &mut Database, looks_max: usize) -> (usize, usize) {
    let (mut cursor, mut steps, mut moved) = (DefragCursor::default(), 0, 0);
    loop {
        let mut is_sparse = |_| true;
        let mut defragmenter = Defragmenter::new(looks_max, &mut is_sparse);
        let goes_on = database.defragment(&mut cursor, &mut defragmenter);
        steps += 1;
        moved += defragmenter.moved();
        assert_eq!(defragmenter.looked(), defragmenter.moved());
        let extra = defragmenter.looked().saturating_sub(looks_max);
        assert!(extra < EXTRA_LOOKS, "step {steps} looked at {extra} blocks more");
        if !goes_on {
            return (steps, moved);
        }
    }
}

#[test]
fn values_stay_as_they_were_wherever_they_are_moved() {
    let hasher = Hasher::new(3);
    let mut database = filled(&hasher);
    let before = shown(&database);
    let (_, all) = move_all(&mut database, usize::MAX);
    assert_eq!(shown(&database), before);
    // At least the entries, and for each collection one more block. The collections with many
    // elements have some dozens of blocks each.
    assert!(all > before.len() + 12 + 5 * MANY / 300, "{all} blocks were moved");
    let (steps, moved) = move_all(&mut database, 1);
    assert_eq!(shown(&database), before);
    assert_eq!(moved, all);
    assert!(steps > before.len() + 5 * 2, "{steps} steps");
}

#[test]
fn what_a_clone_shares_is_not_moved() {
    let hasher = Hasher::new(3);
    let mut database = filled(&hasher);
    let before = shown(&database);
    let (_, all) = move_all(&mut database, usize::MAX);
    let clones: Vec<NewValue<'static>> = database
        .table()
        .iter()
        .filter_map(|entry| match entry.value() {
            ValueRef::Collection(collection) => Some(NewValue::Collection(collection.cloned())),
            ValueRef::Shared(shared) => Some(NewValue::Shared(shared.clone())),
            _ => None,
        })
        .collect();
    let cloned = format!("{clones:?}");
    let (_, moved) = move_all(&mut database, 1);
    // The entries, and the values that are packed, since each clone has its own copy of them.
    assert!(moved >= before.len() && moved < all / 2, "{moved} of {all} blocks were moved");
    assert_eq!(shown(&database), before);
    assert_eq!(format!("{clones:?}"), cloned);
}

/// The kinds of values that have several blocks.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    List,
    Hash,
    /// A hash of long fields and values.
    LongHash,
    Set,
    /// A sorted set.
    Ranked,
    /// A sorted set of equal scores.
    Equal,
    Stream,
    ShortStream,
    GroupedStream,
}

/// How many blocks a step may look at beside those that it should: those of a last record or leaf,
/// and those in which it lies.
const EXTRA_LOOKS: usize = 8;
/// The number of elements in values of long elements. The smaller one makes several blocks, too.
const LARGE: usize = if cfg!(miri) { 150 } else { 3000 };

/// A large value.
fn large(kind: Kind, hasher: &Hasher) -> AnyCollection {
    let texts = (0..LARGE).map(|number| format!("element {number:05} {}", "y".repeat(100)));
    match kind {
        Kind::List => {
            let mut list = List::new();
            for text in texts {
                list.prepare(text.len(), 1, ListLimits::default());
                list.push(Item::from(text.as_bytes()), End::Back, ListLimits::default());
            }
            list.into_any()
        }
        Kind::Hash | Kind::LongHash => {
            let (mut hash, limits) = (Hash::Packed(Listpack::new()), HashLimits::default());
            for (number, text) in texts.enumerate() {
                // Some lie outside of their pages.
                let is_long = kind == Kind::LongHash || number % 50 == 0;
                let text = if is_long { text.repeat(6) } else { text };
                let value = Given::Bytes(text.as_bytes());
                hash.set(text.as_bytes(), value, FieldExpiry::Clear, 0, &limits, hasher);
            }
            hash.into_any()
        }
        Kind::Set => {
            let limits = SetLimits::default();
            let mut set = Set::for_members(b"", LARGE, &limits);
            texts.for_each(|text| _ = set.insert(text.as_bytes(), &limits, hasher));
            set.into_any()
        }
        Kind::Ranked | Kind::Equal => {
            let mut set = SortedSet::new();
            for (number, text) in texts.enumerate() {
                let score = if kind == Kind::Equal { 1.0 } else { number as f64 };
                set.insert(text.as_bytes(), score, SortedSetLimits::default(), hasher);
            }
            set.into_any()
        }
        Kind::Stream | Kind::ShortStream | Kind::GroupedStream => {
            let limits = StreamLimits { node_bytes_max: 4096, node_entries_max: 100 };
            let count = if kind == Kind::ShortStream { 1 } else { LARGE };
            let mut stream = Stream::new();
            let mut readers = ConsumerGroup::default();
            let reader = readers.add_consumer(b"reader", 0);
            for (number, text) in texts.take(count).enumerate() {
                let id = StreamId { ms: number as u64 + 1, seq: 0 };
                let items = [text.as_bytes(); 2].map(Item::from);
                stream.log_mut().append(id, items.into_iter(), 2 * text.len(), limits);
                readers.assign(id, reader, 0, 1);
            }
            if kind == Kind::GroupedStream {
                stream.groups_mut().add(b"readers", readers);
                stream.groups_mut().add(b"others", ConsumerGroup::default());
            }
            stream.into_any()
        }
    }
}

/// The numbers of blocks that stay and that move if everything should move, for a database with
/// one key.
fn stayed_and_moved(value: impl FnOnce(&Hasher) -> NewValue<'static>) -> (usize, usize) {
    let hasher = Hasher::new(3);
    Recorder::with(|| {
        let mut database = Database::default();
        let entry = OwnedEntry::new(b"key", value(&hasher), None, 7);
        database.insert(hasher.hash(b"key"), entry, &hasher);
        let before = Recorder::live();
        let (_, moved) = move_all(&mut database, 10);
        let after = Recorder::live();
        (before.iter().filter(|(at, number)| after.get(at) == Some(number)).count(), moved)
    })
}

/// Each block that stays where it is could keep a run of pages in use.
#[test]
fn no_block_of_a_value_stays() {
    let kinds = [
        Kind::List,
        Kind::Hash,
        Kind::LongHash,
        Kind::Set,
        Kind::Ranked,
        Kind::Equal,
        Kind::Stream,
        Kind::ShortStream,
        Kind::GroupedStream,
    ];
    for kind in kinds {
        let (stayed, moved) = stayed_and_moved(|hasher| NewValue::Collection(large(kind, hasher)));
        // The buckets of the database's table stay, and the shared name of a consumer.
        let expected = if kind == Kind::GroupedStream { 2 } else { 1 };
        assert_eq!(stayed, expected, "{kind:?}: {moved} blocks were moved");
    }
    // The entry, the string's bytes, and the block with its counters.
    assert_eq!(stayed_and_moved(|_| NewValue::string(&[b'x'; 5000])), (1, 3));
}

/// The number of each block that is in use, by its address.
type Blocks = HashMap<usize, usize>;

#[derive(Default)]
struct Record {
    live: Blocks,
    /// How many blocks there were.
    count: usize,
}

thread_local! {
    static RECORD: RefCell<Option<Record>> = const { RefCell::new(None) };
}

/// The system's allocator, which can record the blocks of a thread.
struct Recorder;

#[global_allocator]
static RECORDER: Recorder = Recorder;

impl Recorder {
    /// Records the calling thread's blocks while `f` runs.
    fn with<T>(f: impl FnOnce() -> T) -> T {
        RECORD.set(Some(Record::default()));
        let outcome = f();
        drop(RECORD.take());
        outcome
    }

    fn live() -> Blocks {
        RECORD
            .with_borrow(|record| record.as_ref().map(|record| record.live.clone()))
            .unwrap_or_default()
    }

    /// Does nothing while the record is in use, since it takes memory itself.
    fn note(change: impl FnOnce(&mut Record)) {
        let _ = RECORD.try_with(|record| {
            if let Ok(mut record) = record.try_borrow_mut()
                && let Some(record) = &mut *record
            {
                change(record);
            }
        });
    }
}

// SAFETY: all work is the system's allocator's. The default `realloc` calls the other two.
unsafe impl GlobalAlloc for Recorder {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps to the conditions of this function, which are the system's.
        let block = unsafe { System.alloc(layout) };
        Self::note(|record| {
            record.count += 1;
            record.live.insert(block.addr(), record.count);
        });
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        Self::note(|record| _ = record.live.remove(&block.addr()));
        // SAFETY: the caller keeps to the conditions of this function. The system gave the block.
        unsafe { System.dealloc(block, layout) };
    }
}
