//! Entries return what was put into them, and have the encodings that Redis names.

use super::*;

fn bytes(entry: &OwnedEntry) -> Vec<u8> {
    match entry.as_ref().value() {
        ValueRef::Bytes(bytes) => bytes.to_vec(),
        ValueRef::Shared(shared) => shared.to_vec(),
        ValueRef::Chunked(chunked) => chunked.to_vec(),
        ValueRef::Collection(_) => unreachable!(),
    }
}

#[test]
fn every_form_reads_back_for_every_key_length() {
    for key_len in [0, 1, 7, 8, 16, 255, 256, 70_000] {
        let key = vec![b'k'; key_len];
        for expire_ms in [None, Some(-1), Some(i64::MAX)] {
            for value in [
                NewValue::Inline(b""),
                NewValue::Inline(&[7; INLINE_MAX]),
                NewValue::InlineRaw(b"raw"),
                NewValue::InlineText(b"text"),
                NewValue::Shared(Arc::new(vec![9; 5000])),
                NewValue::Chunked(ChunkedString::from_bytes(b"chunks", 300_000)),
            ] {
                let entry = OwnedEntry::new(&key, value.clone(), expire_ms, 0x0abc_def1);
                let look = entry.as_ref();
                assert_eq!(look.key(), key);
                assert_eq!(look.expire_ms(), expire_ms);
                assert_eq!(look.access(), 0x0abc_def1);
                match value {
                    NewValue::Inline(b) | NewValue::InlineRaw(b) | NewValue::InlineText(b) => {
                        assert_eq!(bytes(&entry), b);
                    }
                    NewValue::Shared(b) => assert_eq!(bytes(&entry), *b),
                    NewValue::Chunked(b) => assert_eq!(bytes(&entry), b.to_vec()),
                    NewValue::Collection(_) => unreachable!(),
                }
            }
        }
    }
}

#[test]
fn sixteen_and_thirty_two_bytes_take_fifty_six() {
    let entry = OwnedEntry::new(&[1; 16], NewValue::Inline(&[2; 32]), None, 0);
    assert_eq!(entry.as_ref().memory(), 56);
    let entry = OwnedEntry::new(&[1; 16], NewValue::Inline(&[2; 32]), Some(1), 0);
    assert_eq!(entry.as_ref().memory(), 64);
}

// The limits were obtained from valkey-server 9.1.2 with SET and SETEX.
#[test]
fn encodings_are_those_that_redis_names() {
    let encoding = |key_len: usize, value: NewValue<'_>, expire_ms| {
        OwnedEntry::new(&vec![b'k'; key_len], value, expire_ms, 0).as_ref().encoding()
    };
    for (key_len, raw_from) in [(1, 113), (10, 104), (31, 83), (32, 80), (60, 52), (90, 22)] {
        let value = vec![b'v'; raw_from];
        let inline = |len| NewValue::Inline(&value[..len]);
        assert_eq!(encoding(key_len, inline(raw_from), None), Encoding::Raw);
        assert_eq!(encoding(key_len, inline(raw_from - 1), None), Encoding::Embstr);
        assert_eq!(encoding(key_len, inline(raw_from - 8), Some(1)), Encoding::Raw);
        assert_eq!(encoding(key_len, inline(raw_from - 9), Some(1)), Encoding::Embstr);
    }
    assert_eq!(encoding(200, NewValue::Inline(b"123"), None), Encoding::Int);
    assert_eq!(encoding(1, NewValue::InlineRaw(b"123"), None), Encoding::Raw);
    assert_eq!(encoding(1, NewValue::InlineText(b"123"), None), Encoding::Embstr);
    for (text, is) in [
        ("0", true),
        ("-1", true),
        ("9223372036854775807", true),
        ("-9223372036854775808", true),
        ("9223372036854775808", false),
        ("-0", false),
        ("01", false),
        ("+1", false),
        ("", false),
        ("-", false),
        ("1 ", false),
    ] {
        assert_eq!(is_integer(text.as_bytes()), is, "{text}");
    }
}

#[test]
fn raw_stays_raw_under_another_name() {
    let entry = OwnedEntry::new(&[b'k'; 60], NewValue::Inline(&[b'v'; 60]), None, 0);
    assert_eq!(entry.as_ref().encoding(), Encoding::Raw);
    let moved = OwnedEntry::new(b"k", entry.as_ref().to_new_value(), None, 0);
    assert_eq!(moved.as_ref().encoding(), Encoding::Raw);
}

#[test]
fn a_collection_takes_nine_bytes_behind_its_key() {
    for key_len in 0..40 {
        let list = List::new();
        let (pack, block) = (list.memory(), (HEADER + key_len + 9).next_multiple_of(8));
        let value = NewValue::Collection(list.into_any());
        let entry = OwnedEntry::new(&vec![b'k'; key_len], value, None, 0);
        assert_eq!(entry.as_ref().memory(), block + pack);
    }
}

#[test]
fn replacing_in_place_keeps_the_block() {
    let mut entry = OwnedEntry::new(b"key", NewValue::Inline(b"12345"), None, 0);
    let mut hold = entry.as_mut();
    assert!(hold.replace(NewValue::Inline(b"1234")).is_ok());
    assert!(hold.replace(NewValue::Inline(b"123456")).is_err());
    hold.string_mut(0).unwrap()[0] = b'9';
    assert!(hold.as_ref().is_raw());
    assert_eq!(hold.as_ref().string().flat(), Some(&b"9234"[..]));
    assert_eq!(hold.string_mut(5).unwrap(), b"9234\0");
    assert!(hold.string_mut(6).is_none());
    assert_eq!(bytes(&entry), b"9234\0");
}

#[test]
fn a_shared_value_outlives_its_entry_and_is_copied_before_a_change() {
    let shared = Arc::new(vec![1; 5000]);
    let mut entry = OwnedEntry::new(b"key", NewValue::Shared(shared.clone()), None, 0);
    let mut hold = entry.as_mut();
    hold.string_mut(5001).unwrap()[5000] = 2;
    assert_eq!(shared.len(), 5000);
    assert_eq!(bytes(&entry).len(), 5001);
    drop(entry);
    assert_eq!(Arc::strong_count(&shared), 1);
}

#[test]
fn padding_keeps_the_string_and_bounds_the_room() {
    // Miri is slow for each byte.
    let much = if cfg!(miri) { 9000 } else { CHUNKED_LEN_MIN };
    for (old_len, len) in [(5000, 4000), (5000, 5001), (much / 100, much / 100 + 1), (5000, much)] {
        let mut string = vec![7; old_len];
        pad(&mut string, len);
        assert_eq!(string.len(), len.max(old_len));
        assert!(string[..old_len].iter().all(|&byte| byte == 7));
        assert!(string[old_len..].iter().all(|&byte| byte == 0));
        assert!(string.capacity() <= string.len() * 2);
    }
}

#[test]
fn a_long_string_becomes_chunks_when_it_grows_or_changes_while_it_is_shared() {
    let shared = Arc::new(vec![1; CHUNKED_LEN_MIN]);
    let buffer = shared.as_ptr();
    let mut entry = OwnedEntry::new(b"key", NewValue::Shared(shared), None, 0);
    let mut hold = entry.as_mut();
    assert_eq!(hold.string_mut(5).unwrap().as_ptr(), buffer);
    assert!(hold.string_mut(CHUNKED_LEN_MIN + 1).is_none());
    let pinned = OwnedEntry::new(b"copy", hold.as_ref().to_new_value(), None, 0);
    assert!(hold.string_mut(5).is_none());
    hold.chunked_mut(5).unwrap().write(5, b"x");
    assert!(hold.string_mut(5).is_none());
    let at = |at| hold.as_ref().string().slice_at(at).as_ptr();
    // Only the changed part was copied.
    assert!(at(5) != buffer.wrapping_add(5));
    let unchanged = CHUNKED_LEN_MIN / 2;
    assert_eq!(at(unchanged), buffer.wrapping_add(unchanged));
    assert_eq!(bytes(&pinned), [1; CHUNKED_LEN_MIN]);
    assert_eq!(hold.as_ref().encoding(), Encoding::Raw);
    let copy = OwnedEntry::new(b"again", hold.as_ref().to_new_value(), Some(1), 0);
    assert_eq!(hold.chunked_mut(CHUNKED_LEN_MIN + 9).unwrap().len(), CHUNKED_LEN_MIN + 9);
    let entry = entry.renamed(b"a longer name than before", Some(7), 0);
    assert_eq!(entry.as_ref().string().len(), CHUNKED_LEN_MIN + 9);
    assert_eq!(copy.as_ref().string().len(), CHUNKED_LEN_MIN);
    assert!(copy.as_ref().string().get(5) == Some(b'x') && !copy.as_ref().is_light());
}

/// The value has one owner, even if no entry could be made for it.
#[test]
#[cfg_attr(miri, ignore = "a key of four gigabytes")]
fn renaming_that_fails_drops_the_value_once() {
    let shared = Arc::new(vec![1; 5000]);
    let entry = OwnedEntry::new(b"key", NewValue::Shared(shared.clone()), None, 0);
    // Nothing reads its bytes, so they use no memory.
    let key = vec![0; KEY_LEN_MAX + 1];
    assert!(std::panic::catch_unwind(move || entry.renamed(&key, None, 0)).is_err());
    assert_eq!(Arc::strong_count(&shared), 1);
}
