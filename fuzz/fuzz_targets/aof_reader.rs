#![no_main]
//! The reader of logs: any bytes, and what it calls whole must be so when the rest is cut off.

use bobbin_server::persistence::aof::{AofItem, AofReader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut reader = AofReader::new(bytes, 0);
    let mut whole = 0;
    while let Ok(item) = reader.read() {
        if item == AofItem::End {
            assert_eq!(whole, bytes.len() as u64);
            return;
        }
        assert!(reader.offset() > whole && reader.offset() <= bytes.len() as u64);
        whole = reader.offset();
        assert!(item != AofItem::Command || reader.args().count() > 0);
    }
    let mut again = AofReader::new(&bytes[..whole as usize], 0);
    while again.read().expect("it was whole") != AofItem::End {}
});
