//! Hashes of any keys: the same wherever a key lies, and nothing beside it is read (which the
//! address sanitizer sees). The first bytes are the secret, and how a copy is aligned.

#![no_main]

use bobbin_store::hash::{Hasher, KEY_LEN};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((secret, rest)) = data.split_first_chunk::<KEY_LEN>() else { return };
    let [shift, key @ ..] = rest else { return };
    let hasher = Hasher::with_key(secret);
    // Blocks of their own, which end with the key.
    let alone: Box<[u8]> = key.into();
    let shift = usize::from(*shift % 16);
    let shifted: Box<[u8]> = [&vec![0x5a; shift][..], key].concat().into();
    assert_eq!(hasher.hash(&alone), hasher.hash(&shifted[shift..]));
});
