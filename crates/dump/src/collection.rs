//! The serialised forms of collections: a byte that says which, and the value.

use bobbin_store::Hasher;
use bobbin_store::value::{AnyCollection, CollectionRef, ListLimits, SortedSetLimits};

use crate::input::Input;
use crate::{Options, PayloadError, ValueKind, list, sorted_set};

/// A collection as it lies in a payload or a file, not looked at yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SerializedCollection<'a> {
    pub kind: ValueKind,
    pub bytes: &'a [u8],
}

/// What a collection is made for.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// The keyspace's.
    pub hasher: &'a Hasher,
    pub list: ListLimits,
    pub sorted_set: SortedSetLimits,
}

impl SerializedCollection<'_> {
    /// Makes the collection. Whatever the bytes, the result is sound and not empty.
    pub fn read(
        &self,
        options: &Options,
        target: Target<'_>,
    ) -> Result<AnyCollection, PayloadError> {
        let mut input = Input(self.bytes);
        let read = match self.kind {
            ValueKind::List
            | ValueKind::ListZiplist
            | ValueKind::ListQuicklist
            | ValueKind::ListQuicklist2 => list::read(self.kind, &mut input, options, target.list),
            ValueKind::SortedSet
            | ValueKind::SortedSet2
            | ValueKind::SortedSetZiplist
            | ValueKind::SortedSetListpack => {
                sorted_set::read(self.kind, &mut input, options, target)
            }
            kind => return Err(PayloadError::Unsupported(kind)),
        };
        read.ok_or(PayloadError::BadFormat)
    }
}

/// Appends a collection: the byte of its form, and that.
pub fn append_collection(collection: CollectionRef<'_>, compress: bool, output: &mut Vec<u8>) {
    match collection {
        CollectionRef::List(list) => list::append(list, compress, output),
        CollectionRef::SortedSet(set) => sorted_set::append(set, compress, output),
        _ => {}
    }
}
