//! What is written is read back, in any pieces; files of real servers are read.

use std::convert::Infallible;

use bobbin_store::value::{AnyCollection, Set, SetLimits};
use bobbin_store::{Hasher, ValueRef};
use proptest::prelude::*;

use super::*;
use crate::options::{DumpOptions, VersionCheck};
use crate::value::CollectionTarget;

/// All items of a file, with the reader shown `step` bytes more at a time.
fn read_all(file: &[u8], step: usize) -> Result<Vec<String>, RdbError> {
    let hasher = Hasher::new(1);
    let options = DumpOptions::default();
    let mut reader = RdbReader::new(VersionCheck::Strict, true);
    let (mut from, mut to, mut items) = (0, 0, Vec::new());
    loop {
        match reader.next(&file[from..to])? {
            Some((item, used)) => {
                from += used;
                items.push(match item {
                    RdbItem::Key(bytes) => {
                        let record = RdbRecord::parse(bytes, &options)?;
                        let value = match record.value(&options, CollectionTarget::new(&hasher)) {
                            Ok(RdbValue::String(string)) => string.escape_ascii().to_string(),
                            Ok(RdbValue::Collection(any)) => {
                                format!("{} of it", any.as_ref().len())
                            }
                            Ok(RdbValue::Empty) => "nothing".into(),
                            Err(error) => error.to_string(),
                        };
                        let key = record.key.escape_ascii();
                        format!("{key} {:?} {value}", record.expire_ms)
                    }
                    item => format!("{item:?}"),
                });
            }
            None if to == file.len() => break,
            None => to = (to + step).min(file.len()),
        }
    }
    reader.finish().map(|()| items)
}

fn written(format: Format, write: impl FnOnce(&mut RdbWriter)) -> Vec<u8> {
    let mut writer = RdbWriter::new(format, true, true);
    write(&mut writer);
    writer.finish();
    let mut file = Vec::new();
    let flushed: Result<(), Infallible> = writer.flush(|bytes| {
        file.extend_from_slice(bytes);
        Ok(())
    });
    flushed.unwrap();
    file
}

fn sample() -> Vec<u8> {
    let hasher = Hasher::new(1);
    let limits = SetLimits::default();
    let mut set = Set::default();
    for member in ["1", "2", "three"] {
        set.insert(member.as_bytes(), &limits, &hasher);
    }
    let set = AnyCollection::Set(set);
    written(Format::Shared, |writer| {
        writer.aux("redis-bits", b"64");
        writer.function(b"#!lua name=mylib");
        writer.database(0);
        writer.sizes(3, 1);
        writer.key(b"a", ValueRef::Bytes(b"1"), None, Usage::Unknown);
        writer.key(b"b", ValueRef::Bytes(b"hello"), Some(5), Usage::IdleSeconds(70));
        writer.key(b"set", ValueRef::Collection(set.as_ref()), None, Usage::Frequency(9));
    })
}

#[test]
fn reads_what_it_writes_in_any_pieces() {
    let file = sample();
    let expected = [
        "Version { number: 11, is_valkey: false }",
        "Aux { name: [114, 101, 100, 105, 115, 45, 98, 105, 116, 115], value: [54, 52] }",
        "Function([35, 33, 108, 117, 97, 32, 110, 97, 109, 101, 61, 109, 121, 108, 105, 98])",
        "Database(0)",
        "Sizes { keys: 3, expiring: 1 }",
        "a None 1",
        "b Some(5) hello",
        "set None 3 of it",
        "End { checked: true }",
    ];
    for step in [1, 2, 7, 64, file.len()] {
        assert_eq!(read_all(&file, step).unwrap(), expected, "{step} bytes at a time");
    }
}

/// As valkey-server 9.1.2 saved it: two strings, a hash with a field that expires, a list in
/// database 3.
#[test]
fn reads_a_file_of_valkey() {
    let file =
        b"VALKEY080\xfa\nvalkey-ver\x059.1.2\xfa\nredis-bits\xc0@\xfa\x05ctime\xc2<\xb7\x01k\
        \xfa\x08used-mem\xc2\xe0?\x10\0\xfa\x08aof-base\xc0\0\xfe\0\xfb\x03\x01\0\x01a\xc0\x01\
        \xfc\xd2\x06\xc3\xfe\xa1\x01\0\0\0\x01b\x05hello\x16\x01h\x02\x01f\x01v\xde\x06\xc3\xfe\
        \xa1\x01\0\0\x01g\x01w\xff\xff\xff\xff\xff\xff\xff\xff\xfe\x03\xfb\x01\0\x12\x01l\x01\x02\
        \x0b\x0b\0\0\0\x02\0\x01\x01\x02\x01\xff\xff\xd9<K\x80F\"\x111";
    let items = read_all(file, 16).unwrap();
    assert_eq!(items[0], "Version { number: 80, is_valkey: true }");
    assert_eq!(items[8], "a None 1");
    assert_eq!(items[9], "b Some(1795275556562) hello");
    assert_eq!(items[10], "h None 2 of it");
    assert_eq!(items[13], "l None 2 of it");
    assert_eq!(items.len(), 15);
}

/// As an active replica of KeyDB writes them: with a fact about the key behind its expiry, and the
/// expiry of a member behind its set.
#[test]
fn reads_facts_about_keys() {
    let file =
        b"REDIS0009\xfe\0\xfc\x05\0\0\0\0\0\0\0\xf8\x07\xfa\x0bmvcc-tstamp\x0217\0\x01a\x011\
        \xfa\x0bmvcc-tstamp\x0218\x02\x01s\x01\x01m\xfa\x13keydb-subexpire-key\x01m\
        \xfa\x14keydb-subexpire-when\x019\xff\0\0\0\0\0\0\0\0";
    for step in [1, 7, file.len()] {
        let items = read_all(file, step).unwrap();
        assert_eq!([&items[2], &items[4]], ["a Some(5) 1", "s None 1 of it"], "{step}");
        assert_eq!(items.len(), 8);
    }
}

#[test]
fn every_cut_is_noticed_and_every_flip_is_an_error() {
    let file = sample();
    for end in 0..file.len() {
        let truncated = matches!(read_all(&file[..end], 8), Err(RdbError::Truncated { .. }));
        assert!(truncated, "{end}");
    }
    // Another version in the header may have no checksum.
    for at in (0..5).chain(9..file.len()) {
        for bit in 0..8 {
            let mut damaged = file.clone();
            damaged[at] ^= 1 << bit;
            let all_zero = damaged[damaged.len() - 8..] == [0; 8];
            assert!(read_all(&damaged, 512).is_err() || all_zero, "byte {at} bit {bit}");
        }
    }
}

#[test]
fn says_what_is_wrong() {
    let error = |bytes: &[u8]| read_all(bytes, 512).unwrap_err();
    assert_eq!(error(b"NOTREDIS0"), RdbError::Signature);
    assert_eq!(error(b"X"), RdbError::Signature);
    assert_eq!(error(b"REDIS9999"), RdbError::Version(9999));
    assert_eq!(error(b"VALKEY011"), RdbError::Version(11));
    assert_eq!(error(b"REDIS0011\x1f\x01a\x01b"), RdbError::Unknown { byte: 31, offset: 9 });
    assert_eq!(
        error(b"REDIS0011\xfa\x01a\xc5"),
        RdbError::Damaged { what: "a string in an unknown encoding", offset: 13 }
    );
    assert_eq!(
        error(b"REDIS0011\x07\x03key\x81\0\0\0\0\0\0\0\0\0").to_string(),
        "The RDB file holds a value of type module at key 'key' (offset 9), which is not supported"
    );
    // Before version 5 there is no checksum, and one of zero is none.
    assert_eq!(read_all(b"REDIS0004\xff", 3).unwrap().last().unwrap(), "End { checked: false }");
    let none = read_all(b"REDIS0011\xff\0\0\0\0\0\0\0\0", 3).unwrap();
    assert_eq!(none.last().unwrap(), "End { checked: false }");
}

proptest! {
    #[test]
    fn any_bytes_are_safe(bytes: Vec<u8>) {
        let _ = read_all(&[&b"VALKEY080"[..], &bytes].concat(), 16);
    }

    #[test]
    fn strings_of_any_size(values in proptest::collection::vec((any::<Vec<u8>>(), 0..2000usize), 0..8)) {
        let file = written(Format::Valkey, |writer| {
            for (key, times) in &values {
                let value = key.repeat(*times);
                writer.key(key, ValueRef::Bytes(&value), None, Usage::Unknown);
            }
        });
        let items = read_all(&file, 1000).unwrap();
        prop_assert_eq!(items.len(), values.len() + 2);
        for ((key, times), item) in values.iter().zip(&items[1..]) {
            let value = key.repeat(*times);
            prop_assert_eq!(item, &format!("{} None {}", key.escape_ascii(), value.escape_ascii()));
        }
    }
}
