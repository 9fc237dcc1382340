//! RDB files of any bytes, in any pieces: no panic, and the same items however the bytes come.

#![no_main]

use bobbin_dump::rdb::{RdbItem, RdbReader, RdbRecord};
use bobbin_dump::{CollectionTarget, DumpOptions, VersionCheck};
use bobbin_store::Hasher;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for header in [&b"REDIS0011"[..], b"VALKEY080", b""] {
        let file = [header, data].concat();
        let whole = items(&file, file.len().max(1));
        assert_eq!(whole, items(&file, 7));
    }
});

/// How many items there are before the end or an error, shown `step` bytes more at a time.
fn items(file: &[u8], step: usize) -> (usize, u64) {
    let hasher = Hasher::new(1);
    let target = CollectionTarget::new(&hasher);
    let options = DumpOptions::default();
    let mut reader = RdbReader::new(VersionCheck::Relaxed, false);
    let (mut from, mut to, mut count) = (0, 0, 0);
    loop {
        match reader.next(&file[from..to]) {
            Ok(Some((item, used))) => {
                if let RdbItem::Key(bytes) = item
                    && let Ok(record) = RdbRecord::parse(bytes, &options)
                {
                    let _ = record.value(&options, target);
                }
                from += used;
                count += 1;
            }
            Ok(None) if to < file.len() => to = (to + step).min(file.len()),
            _ => return (count, reader.offset()),
        }
    }
}
