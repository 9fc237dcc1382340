//! Payloads in any bytes: no panic, no allocation that the bytes do not account for. What is
//! restored can be used by every command of its type, and comes back when it is dumped.

#![no_main]

use std::cell::RefCell;

use bobbin_dump::rdb::Format;
use bobbin_dump::{Payload, append_string_payload, lzf_decompress, parse_payload};
use bobbin_store::value::StringRef;
use libfuzzer_sys::fuzz_target;
use payloads::PayloadBench;

// The tests use more of it.
#[allow(dead_code)]
#[path = "../../crates/server/tests/payloads/mod.rs"]
mod payloads;

thread_local! {
    static BENCH: RefCell<PayloadBench> = RefCell::new(PayloadBench::new());
}

fuzz_target!(|data: &[u8]| {
    BENCH.with_borrow_mut(|bench| bench.run(data));
    let _ = parse_payload(data);
    if let [high, low, stream @ ..] = data {
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        let output = lzf_decompress(stream, len);
        assert!(output.is_none_or(|output| output.len() == len));
    }
    dumps(data);
});

/// Dumps a value with and without compression and reads it back.
fn dumps(value: &[u8]) {
    for compress in [false, true] {
        let mut payload = Vec::new();
        append_string_payload(StringRef::Flat(value), Format::Valkey, compress, &mut payload);
        let Ok(Payload::String(restored)) = parse_payload(&payload) else {
            panic!("a dump that is not a string's");
        };
        assert_eq!(restored, value);
    }
}
