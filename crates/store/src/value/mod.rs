//! Values with elements: lists, sets, sorted sets, hashes and streams; and large strings.
//!
//! Each is a Rust value of at most 9 bytes that lies in its key's entry and points to the rest. A
//! small one is one block in Redis's packed form. A large one consists of chunks, which clones
//! share until one changes.

use std::ptr::NonNull;
use std::sync::Arc;

/// Lists the collections, and makes the enums through which an entry holds one.
macro_rules! collections {
    ($($kind:ident => $type:ty,)*) => {
        /// An owned collection, outside of an entry.
        #[derive(Clone, Debug)]
        pub enum AnyCollection {
            $($kind($type),)*
        }

        /// A reference to the collection in an entry.
        #[derive(Clone, Copy, Debug)]
        pub enum CollectionRef<'a> {
            $($kind(&'a $type),)*
        }

        impl AnyCollection {
            pub const fn value_type(&self) -> ValueType {
                match *self {
                    $(Self::$kind(_) => ValueType::$kind,)*
                }
            }

            /// A reference to it.
            pub const fn as_ref(&self) -> CollectionRef<'_> {
                match *self {
                    $(Self::$kind(ref collection) => CollectionRef::$kind(collection),)*
                }
            }

            /// Writes the collection to its place.
            ///
            /// # Safety
            /// `at` is memory of `SLOT` bytes that the caller may write.
            pub(crate) unsafe fn write(self, at: NonNull<u8>) {
                match self {
                    // SAFETY: the assertion below says that the type fits the caller's memory, and
                    // that it may lie at any address.
                    $(Self::$kind(collection) => unsafe { at.cast::<$type>().write(collection) },)*
                }
            }

            /// Reads a collection from its place.
            ///
            /// # Safety
            /// `at` holds a collection of this kind, which nothing uses afterwards.
            pub(crate) unsafe fn read(kind: ValueType, at: NonNull<u8>) -> Self {
                match kind {
                    // SAFETY: the caller says that this kind's type lies there, and gives it to us.
                    $(ValueType::$kind => Self::$kind(unsafe { at.cast::<$type>().read() }),)*
                    _ => unreachable!("no collection of kind {kind:?}"),
                }
            }
        }

        impl<'a> CollectionRef<'a> {
            /// A reference to the collection at a place.
            ///
            /// # Safety
            /// `at` holds a collection of this kind, which lives and does not change for 'a.
            pub(crate) unsafe fn new(kind: ValueType, at: NonNull<u8>) -> Self {
                match kind {
                    // SAFETY: the caller says that this kind's type lies there for 'a.
                    $(ValueType::$kind => Self::$kind(unsafe { at.cast::<$type>().as_ref() }),)*
                    _ => unreachable!("no collection of kind {kind:?}"),
                }
            }

            /// Copies the elements for another entry. The chunks of a large collection are shared
            /// until they change.
            pub fn cloned(self) -> AnyCollection {
                match self {
                    $(Self::$kind(collection) => AnyCollection::$kind(collection.clone()),)*
                }
            }

            /// How many elements it has.
            pub fn len(self) -> usize {
                match self {
                    $(Self::$kind(collection) => collection.len(),)*
                }
            }

            pub fn is_empty(self) -> bool {
                self.len() == 0
            }

            pub fn encoding(self) -> Encoding {
                match self {
                    $(Self::$kind(collection) => collection.encoding(),)*
                }
            }

            /// Bytes of memory beyond the entry. For a large collection this is an estimate.
            pub fn memory(self) -> usize {
                match self {
                    $(Self::$kind(collection) => collection.memory(),)*
                }
            }

            /// How many blocks of memory must be freed.
            pub fn free_effort(self) -> usize {
                match self {
                    $(Self::$kind(collection) => collection.free_effort(),)*
                }
            }
        }

        $(
            // SAFETY: the list gives each type its own kind, and an entry of that kind is made from
            // the variant with this type.
            unsafe impl Collection for $type {
                const VALUE_TYPE: ValueType = ValueType::$kind;

                fn into_any(self) -> AnyCollection {
                    AnyCollection::$kind(self)
                }

                fn defragment(
                    &mut self,
                    from: usize,
                    defragmenter: &mut Defragmenter<'_>,
                ) -> usize {
                    self.defragment(from, defragmenter)
                }
            }

            const _: () = {
                assert!(size_of::<$type>() <= SLOT && align_of::<$type>() == 1);
                const fn is_send<T: Send>() {}
                is_send::<$type>();
            };
        )*
    };
}

/// A type of collection.
///
/// # Safety
/// Only this type has this `VALUE_TYPE`, and no string has it: an entry with that type of value
/// holds this Rust type.
pub unsafe trait Collection: Clone + Send {
    const VALUE_TYPE: ValueType;

    fn into_any(self) -> AnyCollection;

    /// Moves blocks out of sparsely used memory, from one part on. Returns the part to continue
    /// with; 0 at the end.
    fn defragment(&mut self, from: usize, defragmenter: &mut Defragmenter<'_>) -> usize;
}

impl CollectionRef<'_> {
    /// Its address if it is one block, for prefetching.
    pub(crate) fn block_address(self) -> Option<*const u8> {
        match self {
            Self::Hash(Hash::Packed(pack))
            | Self::Set(Set::Packed(pack))
            | Self::SortedSet(SortedSet::Packed(pack))
            | Self::List(List::Packed(pack)) => Some(pack.address()),
            Self::Set(Set::Integers(integers)) => Some(integers.address()),
            _ => None,
        }
    }
}

/// A collection of whose elements its database keeps no account. Only hashes are not such: they are
/// changed by [`Database::change_hash`](crate::shard::Database::change_hash).
pub trait PlainCollection: Collection {}

impl PlainCollection for List {}
impl PlainCollection for Set {}
impl PlainCollection for SortedSet {}
impl PlainCollection for Stream {}

/// A collection that long commands change by way of a draft.
pub trait Drafted: PlainCollection + Default {
    /// Whether one is a clone of the other, and neither has changed since. Small collections may be
    /// compared instead.
    fn is_same(&self, other: &Self) -> bool;

    fn is_empty(&self) -> bool;
}

macro_rules! drafted {
    ($($type:ty),*) => {
        $(impl Drafted for $type {
            fn is_same(&self, other: &Self) -> bool {
                self.is_same(other)
            }

            fn is_empty(&self) -> bool {
                self.is_empty()
            }
        })*
    };
}

drafted!(List, Set, SortedSet);

/// How many bytes a collection takes in its entry: a pointer, and which form of the collection it
/// points to. The pointer may lie at any address, so nothing is lost to alignment.
pub(crate) const SLOT: usize = 9;

mod block;
mod chunked;
mod cow;
mod defrag;
mod directory;
pub mod hash;
pub mod integer;
pub mod intset;
pub mod list;
pub mod listpack;
mod owners;
pub mod pages;
pub(crate) mod prefetch;
pub mod set;
mod shared_block;
pub mod sorted_set;
pub mod stream;
mod tags;
mod tree;
mod unaligned_box;
mod value_type;

pub use chunked::{CHUNK_LEN, CHUNKED_LEN_MIN, ChunkedString, StringRef};
pub use defrag::{DefragCursor, Defragmenter};
pub use hash::{Hash, HashLimits};
pub use intset::Intset;
pub use list::{End, List, ListIter, ListLimits};
pub use listpack::{Item, Listpack};
pub use set::{Set, SetLimits};
pub use sorted_set::{SortedSet, SortedSetIter, SortedSetLimits};
pub use stream::{Stream, StreamId, StreamLimits};
pub use value_type::{Encoding, ValueType};

/// A string that replies can refer to.
pub type SharedString = Arc<Vec<u8>>;

collections! {
    List => List,
    Set => Set,
    SortedSet => SortedSet,
    Hash => Hash,
    Stream => Stream,
}
