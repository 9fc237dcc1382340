//! Hashes as RDB has them: their fields one by one, with or without expiries, or packed in one of
//! three ways, of which servers now write the listpack only.

use std::borrow::Cow;

use bobbin_store::value::hash::FieldExpiry;
use bobbin_store::value::pages::Given;
use bobbin_store::value::{Hash, Listpack};

use super::CollectionTarget;
use super::set::append_item;
use super::string::{append_string, read_string};
use super::{ziplist, zipmap};
use crate::input::Input;
use crate::kind::ValueKind;
use crate::length::{Length, append_length};
use crate::options::DumpOptions;

/// `None` when the bytes are no such hash, or an empty one.
pub(crate) fn read_hash(
    kind: ValueKind,
    mut input: Input<'_>,
    options: &DumpOptions,
    target: CollectionTarget<'_>,
) -> Option<Hash> {
    let (limits, hasher) = (&target.hash, target.hasher);
    let hash = match kind {
        ValueKind::HashListpack | ValueKind::HashZiplist | ValueKind::HashZipmap => {
            let bytes = read_string(&mut input, options.element_len_max())?;
            let pack = match kind {
                ValueKind::HashListpack => Listpack::from_bytes(&bytes)?,
                ValueKind::HashZiplist => ziplist::read(&bytes)?,
                _ => zipmap::read(&bytes)?,
            };
            Hash::from_listpack(pack, limits, hasher)?
        }
        ValueKind::HashMetadata => read_metadata(&mut input, options, target)?,
        ValueKind::HashListpackExpiring => read_triples(&mut input, options, target)?,
        _ => {
            let expires = kind == ValueKind::HashExpiring;
            let len = Length::read_plain(&mut input)?;
            let fields = (0..len).map(|_| read_field(&mut input, expires, options));
            let mut hash = Hash::default();
            if expires || len > limits.packed_entries {
                hash.make_table(hasher);
                for field in fields {
                    let ReadField { name, value, expiry } = field?;
                    add(&mut hash, &name, &value, expiry, target)?;
                }
            } else {
                // A small hash would be looked through from its start for each field.
                let fields = fields.collect::<Option<Vec<_>>>()?;
                let pairs = fields.iter().map(|field| (&*field.name, Given::Bytes(&field.value)));
                let added = hash.set_all(pairs, FieldExpiry::Clear, i64::MIN, limits, hasher);
                if added < len {
                    return None;
                }
            }
            hash
        }
    };
    (!hash.is_empty()).then_some(hash)
}

/// A field that is not in the hash yet.
struct ReadField<'a> {
    name: Cow<'a, [u8]>,
    value: Cow<'a, [u8]>,
    expiry: FieldExpiry,
}

/// Reads a field: its name and value, and behind them when it expires, if fields do.
fn read_field<'a>(
    input: &mut Input<'a>,
    expires: bool,
    options: &DumpOptions,
) -> Option<ReadField<'a>> {
    let name = read_string(input, options.element_len_max())?;
    let value = read_string(input, options.element_len_max())?;
    let expiry = match expires.then(|| input.array().map(i64::from_le_bytes)) {
        None | Some(Some(NO_EXPIRY)) => FieldExpiry::Clear,
        Some(expire_ms) => expiry_at(expire_ms?)?,
    };
    Some(ReadField { name, value, expiry })
}

/// Redis's form of a large hash whose fields expire: the earliest time (Unix ms), the number of
/// fields, and each with how much later than one before that time it expires; 0: never.
fn read_metadata(
    input: &mut Input<'_>,
    options: &DumpOptions,
    target: CollectionTarget<'_>,
) -> Option<Hash> {
    let earliest_ms = i64::from_le_bytes(input.array()?);
    let len = Length::read_plain(input)?;
    let mut hash = Hash::default();
    if len > target.hash.packed_entries {
        hash.make_table(target.hasher);
    }
    for _ in 0..len {
        let later_ms = i64::try_from(Length::read_plain(input)?).ok()?;
        let expiry = match later_ms {
            0 => FieldExpiry::Clear,
            _ => expiry_at(earliest_ms.checked_add(later_ms - 1)?)?,
        };
        let name = read_string(input, options.element_len_max())?;
        let value = read_string(input, options.element_len_max())?;
        add(&mut hash, &name, &value, expiry, target)?;
    }
    Some(hash)
}

/// Redis's form of a small one: the earliest time, and a listpack of field, value, time (0: never).
fn read_triples(
    input: &mut Input<'_>,
    options: &DumpOptions,
    target: CollectionTarget<'_>,
) -> Option<Hash> {
    input.array::<8>()?;
    let pack = Listpack::from_bytes(&read_string(input, options.element_len_max())?)?;
    let mut hash = Hash::default();
    let mut items = pack.iter();
    while let Some(name) = items.next() {
        let (value, time) = (items.next()?, items.next()?);
        let expiry = match time.as_integer()? {
            0 => FieldExpiry::Clear,
            expire_ms => expiry_at(expire_ms)?,
        };
        add(&mut hash, &name.to_vec(), &value.to_vec(), expiry, target)?;
    }
    Some(hash)
}

fn expiry_at(expire_ms: i64) -> Option<FieldExpiry> {
    (expire_ms >= 0).then_some(FieldExpiry::At(expire_ms))
}

/// Adds a field, which must be new. Whether it has expired is for the readers of the hash.
fn add(
    hash: &mut Hash,
    name: &[u8],
    value: &[u8],
    expiry: FieldExpiry,
    target: CollectionTarget<'_>,
) -> Option<()> {
    let value = Given::Bytes(value);
    hash.set(name, value, expiry, i64::MIN, &target.hash, target.hasher).then_some(())
}

/// The form that it is written in.
pub(crate) fn form(hash: &Hash) -> ValueKind {
    match hash {
        Hash::Packed(_) => ValueKind::HashListpack,
        _ if hash.has_expiring() => ValueKind::HashExpiring,
        _ => ValueKind::Hash,
    }
}

/// Appends the hash in its form.
pub(crate) fn append_hash(hash: &Hash, form: ValueKind, compress: bool, output: &mut Vec<u8>) {
    if let Hash::Packed(pack) = hash
        && form == ValueKind::HashListpack
    {
        append_string(&pack.to_bytes(), compress, output);
        return;
    }
    let expires = form == ValueKind::HashExpiring;
    let earliest_ms = hash.earliest_ms().filter(|_| form == ValueKind::HashMetadata);
    if let Some(earliest_ms) = earliest_ms {
        output.extend_from_slice(&earliest_ms.to_le_bytes());
    }
    append_length(hash.len(), output);
    for field in hash.iter() {
        if let Some(earliest_ms) = earliest_ms {
            // None is earlier than the earliest.
            let later_ms =
                |expire_ms: i64| expire_ms.saturating_sub(earliest_ms).max(0) as usize + 1;
            append_length(field.expire_ms.map_or(0, later_ms), output);
        }
        append_item(field.name, compress, output);
        append_item(field.value.item(), compress, output);
        if expires {
            let expire_ms = field.expire_ms.unwrap_or(NO_EXPIRY);
            output.extend_from_slice(&expire_ms.to_le_bytes());
        }
    }
}

/// What is written for a field that does not expire.
const NO_EXPIRY: i64 = -1;

#[cfg(test)]
mod tests {
    use bobbin_store::Hasher;
    use bobbin_store::value::AnyCollection;
    use bobbin_store::value::hash::HashField;

    use super::*;
    use crate::{Payload, VersionCheck, parse_payload_with};

    type Fields = Vec<(Vec<u8>, Vec<u8>, Option<i64>)>;

    fn restore(payload: &[u8]) -> Option<Fields> {
        let hasher = Hasher::new(1);
        let target = CollectionTarget::new(&hasher);
        let options =
            DumpOptions { version_check: VersionCheck::Relaxed, ..DumpOptions::default() };
        let Ok(Payload::Collection(serialized)) = parse_payload_with(payload, &options) else {
            return None;
        };
        let Ok(AnyCollection::Hash(hash)) = serialized.read(&options, target) else { return None };
        let parts = |field: HashField<'_>| {
            (field.name.to_vec(), field.value.item().to_vec(), field.expire_ms)
        };
        let mut fields: Vec<_> = hash.iter().map(parts).collect();
        fields.sort();
        Some(fields)
    }

    fn fields(expected: &[(&str, &str, Option<i64>)]) -> Option<Fields> {
        let owned = |&(name, value, at): &(&str, &str, _)| (name.into(), value.into(), at);
        Some(expected.iter().map(owned).collect())
    }

    const AT: Option<i64> = Some(2_000_000_000_000);

    // As redis-server 8.0.6 dumps `HSET h a 1 b 2` after HEXPIREAT, packed and not.
    #[test]
    fn fields_of_redis_keep_their_expiry() {
        let packed = b"\x19\0 J\xa9\xd1\x01\0\0\x1d\x1d\0\0\0\x06\0\x81a\x02\x01\x01\xf4\0 J\xa9\xd1\x01\0\0\t\x81b\x02\x02\x01\0\x01\xff\x0c\0\x99\xf45\x8b\xafl\xe1=";
        assert_eq!(restore(packed), fields(&[("a", "1", AT), ("b", "2", None)]));
        let large = b"\x18\0 J\xa9\xd1\x01\0\0\x05\0\x01c\xc0\x03\0\x01d\xc0\x04\0\x01e\xc0\x05\x01\x01a\xc0\x01\x01\x01b\xc0\x02\x0c\0i\xdd\xf4\xd8\xeb\xec\xf5w";
        let expected =
            [("a", "1", AT), ("b", "2", AT), ("c", "3", None), ("d", "4", None), ("e", "5", None)];
        assert_eq!(restore(large), fields(&expected));
    }

    // As valkey-server 9.1.2 dumps it.
    #[test]
    fn fields_of_valkey_keep_their_expiry() {
        let payload = b"\x16\x02\x01a\xc0\x01\0 J\xa9\xd1\x01\0\0\x01b\xc0\x02\xff\xff\xff\xff\xff\xff\xff\xffP\0y\xf7\x1a\x04N\x8c\xf9\xec";
        assert_eq!(restore(payload), fields(&[("a", "1", AT), ("b", "2", None)]));
    }

    #[test]
    fn fields_one_by_one_make_the_form_that_their_number_asks_for() {
        let hasher = Hasher::new(1);
        let read = |len: usize, last: usize| {
            let mut bytes = Vec::new();
            append_length(len, &mut bytes);
            for number in (0..len - 1).chain([last]) {
                append_string(format!("field-{number}").as_bytes(), false, &mut bytes);
                append_string(b"value", false, &mut bytes);
            }
            let target = CollectionTarget::new(&hasher);
            read_hash(ValueKind::Hash, Input(&bytes), &DumpOptions::default(), target)
        };
        for (len, encoding) in
            [(1, "listpack"), (512, "listpack"), (513, "hashtable"), (2000, "hashtable")]
        {
            let hash = read(len, len - 1).expect("all fields differ");
            assert_eq!((hash.len(), hash.encoding().name()), (len, encoding));
            assert!(len == 1 || read(len, 0).is_none(), "{len}: a field is there twice");
        }
    }
}
