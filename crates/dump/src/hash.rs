//! Hashes as RDB has them: their fields one by one, with or without expiries, or packed in one of
//! three ways, of which servers now write the listpack only.

use bobbin_store::value::hash::Expiry;
use bobbin_store::value::pages::Given;
use bobbin_store::value::{Hash, Listpack};

use crate::collection::Target;
use crate::input::Input;
use crate::length::{Length, append_length};
use crate::set::append_item;
use crate::string::read_string;
use crate::{Options, ValueKind, ziplist, zipmap};

/// `None` when the bytes are no such hash, or an empty one.
pub(crate) fn read_hash(
    kind: ValueKind,
    mut input: Input<'_>,
    options: &Options,
    target: Target<'_>,
) -> Option<Hash> {
    let (limits, hasher) = (&target.hash, target.hasher);
    let hash = match kind {
        ValueKind::HashListpack | ValueKind::HashZiplist | ValueKind::HashZipmap => {
            let bytes = read_string(&mut input, options.string_len_max)?;
            let pack = match kind {
                ValueKind::HashListpack => Listpack::from_bytes(&bytes)?,
                ValueKind::HashZiplist => ziplist::read(&bytes)?,
                _ => zipmap::read(&bytes)?,
            };
            Hash::from_listpack(pack, limits, hasher)?
        }
        _ => {
            let expires = kind == ValueKind::HashExpiring;
            let len = Length::read_plain(&mut input)?;
            let mut hash = Hash::default();
            if expires {
                hash.make_table(hasher);
            }
            for _ in 0..len {
                let name = read_string(&mut input, options.string_len_max)?;
                let value = read_string(&mut input, options.string_len_max)?;
                let expiry = match expires.then(|| input.array().map(i64::from_le_bytes)) {
                    None | Some(Some(NO_EXPIRY)) => Expiry::Clear,
                    Some(Some(expire_ms)) if expire_ms >= 0 => Expiry::At(expire_ms),
                    Some(_) => return None,
                };
                // Whether a field has expired is for whoever looks at the hash.
                if !hash.set(&name, Given::Bytes(&value), expiry, i64::MIN, limits, hasher) {
                    return None;
                }
            }
            hash
        }
    };
    (!hash.is_empty()).then_some(hash)
}

/// Appends a hash: the byte of its form, and that.
pub(crate) fn append_hash(hash: &Hash, compress: bool, output: &mut Vec<u8>) {
    if let Hash::Packed(pack) = hash {
        output.push(ValueKind::HashListpack as u8);
        crate::append_string(pack.as_bytes(), compress, output);
        return;
    }
    let expires = hash.expiring() > 0;
    output.push(if expires { ValueKind::HashExpiring } else { ValueKind::Hash } as u8);
    append_length(hash.len(), output);
    for field in hash.iter() {
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
