//! Which servers can read a file.

use bobbin_store::value::CollectionRef;

use crate::kind::ValueKind;
use crate::options::{RDB_VERSION, RDB_VERSION_SHARED_MAX, REDIS_VERSION_MAX};
use crate::value::form;

/// Which servers can read a file. Later ones can read what earlier ones can, but for the last two,
/// which have each their own form of hashes with fields that expire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Format {
    /// Version 9: Redis from 5 on. Streams lose what they count, but for their entries.
    Oldest,
    /// Version 10: Redis from 7.0 on. Streams lose when consumers last read something.
    Redis7,
    /// Version 11: Redis from 7.2 on, and Valkey.
    Shared,
    /// Version 12: Redis from 7.4 on.
    Redis8,
    /// Valkey from 9 on.
    Valkey,
}

impl Format {
    /// The version of RDB.
    pub(crate) const fn version(self) -> u16 {
        match self {
            Self::Oldest => 9,
            Self::Redis7 => 10,
            Self::Shared => RDB_VERSION_SHARED_MAX,
            Self::Redis8 => REDIS_VERSION_MAX,
            Self::Valkey => RDB_VERSION,
        }
    }

    /// The bytes a file begins with.
    pub(crate) const fn header(self) -> &'static [u8; 9] {
        match self {
            Self::Oldest => b"REDIS0009",
            Self::Redis7 => b"REDIS0010",
            Self::Shared => b"REDIS0011",
            Self::Redis8 => b"REDIS0012",
            Self::Valkey => b"VALKEY080",
        }
    }

    /// Whether hashes may have fields that expire.
    pub const fn has_field_expiry(self) -> bool {
        matches!(self, Self::Redis8 | Self::Valkey)
    }

    /// Whether there may be libraries of functions.
    pub const fn has_functions(self) -> bool {
        !matches!(self, Self::Oldest)
    }

    /// The form that a collection is written in.
    pub(crate) fn form(self, collection: CollectionRef<'_>) -> ValueKind {
        let kind = form(collection);
        match (self, kind) {
            (Self::Oldest, ValueKind::ListQuicklist2) => ValueKind::List,
            (Self::Oldest, ValueKind::SortedSetListpack) => ValueKind::SortedSet2,
            (Self::Oldest, ValueKind::HashListpack) => ValueKind::Hash,
            (Self::Oldest, ValueKind::Stream3) => ValueKind::Stream,
            (Self::Redis7, ValueKind::Stream3) => ValueKind::Stream2,
            (Self::Oldest | Self::Redis7, ValueKind::SetListpack) => ValueKind::Set,
            (Self::Redis8, ValueKind::HashExpiring) => ValueKind::HashMetadata,
            // A caller that asks for it knows that there are none.
            (Self::Oldest | Self::Redis7 | Self::Shared, ValueKind::HashExpiring) => {
                ValueKind::Hash
            }
            _ => kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use bobbin_store::Hasher;
    use bobbin_store::value::hash::FieldExpiry;
    use bobbin_store::value::pages::Given;
    use bobbin_store::value::{AnyCollection, End, Hash, Item, List, Set, SortedSet};

    use super::*;
    use crate::options::DumpOptions;
    use crate::value::{CollectionTarget, SerializedCollection, append_collection};

    const ALL: [Format; 5] =
        [Format::Oldest, Format::Redis7, Format::Shared, Format::Redis8, Format::Valkey];

    /// A small collection of each kind, and a hash with fields that expire.
    fn samples(target: &CollectionTarget<'_>) -> Vec<AnyCollection> {
        let (mut list, mut set, mut sorted) =
            (List::default(), Set::default(), SortedSet::default());
        let (mut hash, mut expiring) = (Hash::default(), Hash::default());
        for (index, text) in ["1", "-77", "three", ""].into_iter().enumerate() {
            let bytes = text.as_bytes();
            list.push(Item::Bytes(bytes), End::Back, target.list);
            set.insert(bytes, &target.set, target.hasher);
            sorted.insert(bytes, index as f64 - 1.5, target.sorted_set, target.hasher);
            let expiry =
                if index == 1 { FieldExpiry::Clear } else { FieldExpiry::At(5000 + index as i64) };
            for (hash, expiry) in [(&mut hash, FieldExpiry::Clear), (&mut expiring, expiry)] {
                hash.set(bytes, Given::Bytes(bytes), expiry, 0, &target.hash, target.hasher);
            }
        }
        vec![
            AnyCollection::List(list),
            AnyCollection::Set(set),
            AnyCollection::SortedSet(sorted),
            AnyCollection::Hash(hash),
            AnyCollection::Hash(expiring),
        ]
    }

    fn text(collection: &AnyCollection) -> String {
        match collection {
            AnyCollection::List(list) => format!("{:?}", list.iter().collect::<Vec<_>>()),
            AnyCollection::Set(set) => {
                let mut members: Vec<_> = set.iter().map(|item| format!("{item:?}")).collect();
                members.sort();
                format!("{members:?}")
            }
            AnyCollection::SortedSet(set) => format!("{:?}", set.iter().collect::<Vec<_>>()),
            AnyCollection::Hash(hash) => {
                let field = |field: bobbin_store::value::hash::HashField<'_>| {
                    format!("{:?} {:?} {:?}", field.name, field.value.item(), field.expire_ms)
                };
                let mut fields: Vec<_> = hash.iter().map(field).collect();
                fields.sort();
                format!("{fields:?}")
            }
            AnyCollection::Stream(_) => unreachable!("there is none"),
        }
    }

    #[test]
    fn each_format_is_read_back() {
        let hasher = Hasher::new(1);
        let target = CollectionTarget::new(&hasher);
        for format in ALL {
            for sample in samples(&target) {
                let kind = format.form(sample.as_ref());
                let expires = kind == ValueKind::HashExpiring || kind == ValueKind::HashMetadata;
                let is_expiring = form(sample.as_ref()) == ValueKind::HashExpiring;
                if is_expiring && !format.has_field_expiry() {
                    continue;
                }
                assert_eq!(is_expiring, expires, "{format:?}");
                let mut bytes = Vec::new();
                append_collection(sample.as_ref(), kind, true, &mut bytes);
                let serialized = SerializedCollection { kind, bytes: &bytes };
                let read = serialized.read(&DumpOptions::default(), target).expect("it is whole");
                assert_eq!(text(&read), text(&sample), "{format:?} {kind:?}");
            }
        }
    }
}
