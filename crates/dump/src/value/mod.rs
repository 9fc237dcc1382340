//! The serialised forms of values. That of a collection is a byte that says which, and the value.

use bobbin_store::Hasher;
use bobbin_store::value::{
    AnyCollection, CollectionRef, HashLimits, ListLimits, SetLimits, SortedSetLimits,
};

use crate::error::PayloadError;
use crate::input::Input;
use crate::kind::ValueKind;
use crate::options::DumpOptions;
use hash::{append_hash, read_hash};
use set::{append_set, read_set};
use stream::{append_stream, read_stream};

mod hash;
mod list;
mod set;
mod sorted_set;
mod stream;
pub(crate) mod string;
mod ziplist;
mod zipmap;

/// A collection as it lies in a payload or a file, not looked at yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SerializedCollection<'a> {
    pub kind: ValueKind,
    pub bytes: &'a [u8],
}

/// What a collection is made for.
#[derive(Clone, Copy)]
pub struct CollectionTarget<'a> {
    /// The keyspace's.
    pub hasher: &'a Hasher,
    pub list: ListLimits,
    pub hash: HashLimits,
    pub set: SetLimits,
    pub sorted_set: SortedSetLimits,
}

impl<'a> CollectionTarget<'a> {
    /// With the limits that are the options' defaults.
    pub fn new(hasher: &'a Hasher) -> Self {
        Self {
            hasher,
            list: ListLimits::default(),
            hash: HashLimits::default(),
            set: SetLimits::default(),
            sorted_set: SortedSetLimits::default(),
        }
    }
}

impl SerializedCollection<'_> {
    /// Makes the collection. Whatever the bytes, the result is sound, and not empty unless it is a
    /// stream.
    pub fn read(
        &self,
        options: &DumpOptions,
        target: CollectionTarget<'_>,
    ) -> Result<AnyCollection, PayloadError> {
        let mut input = Input(self.bytes);
        let read = match self.kind {
            ValueKind::List
            | ValueKind::ListZiplist
            | ValueKind::ListQuicklist
            | ValueKind::ListQuicklist2 => list::read(self.kind, &mut input, options, target.list),
            ValueKind::Set | ValueKind::SetIntset | ValueKind::SetListpack => {
                read_set(self.kind, input, options, target).map(AnyCollection::Set)
            }
            ValueKind::SortedSet
            | ValueKind::SortedSet2
            | ValueKind::SortedSetZiplist
            | ValueKind::SortedSetListpack => {
                sorted_set::read(self.kind, &mut input, options, target)
            }
            ValueKind::Hash
            | ValueKind::HashListpack
            | ValueKind::HashZiplist
            | ValueKind::HashZipmap
            | ValueKind::HashExpiring
            | ValueKind::HashMetadata
            | ValueKind::HashListpackExpiring => {
                read_hash(self.kind, input, options, target).map(AnyCollection::Hash)
            }
            ValueKind::Stream | ValueKind::Stream2 | ValueKind::Stream3 => {
                read_stream(self.kind, input, options).map(AnyCollection::Stream)
            }
            kind => return Err(PayloadError::Unsupported(kind)),
        };
        read.ok_or(PayloadError::BadFormat)
    }
}

/// The form that a collection is written in.
pub(crate) fn form(collection: CollectionRef<'_>) -> ValueKind {
    match collection {
        CollectionRef::List(_) => ValueKind::ListQuicklist2,
        CollectionRef::Set(set) => set::form(set),
        CollectionRef::SortedSet(set) => sorted_set::form(set),
        CollectionRef::Hash(hash) => hash::form(hash),
        CollectionRef::Stream(_) => ValueKind::Stream3,
    }
}

/// Appends a collection in a form that it may have.
pub(crate) fn append_collection(
    collection: CollectionRef<'_>,
    form: ValueKind,
    compress: bool,
    output: &mut Vec<u8>,
) {
    match collection {
        CollectionRef::List(list) => list::append(list, form, compress, output),
        CollectionRef::Set(set) => append_set(set, form, compress, output),
        CollectionRef::SortedSet(set) => sorted_set::append(set, form, compress, output),
        CollectionRef::Hash(hash) => append_hash(hash, form, compress, output),
        CollectionRef::Stream(stream) => append_stream(stream, form, compress, output),
    }
}
