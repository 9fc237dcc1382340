//! Payloads in any bytes: no panic, no allocation that the bytes do not account for, and what is
//! dumped comes back.

#![no_main]

use bobbin_dump::{
    Payload, RDB_VERSION, append_string_payload, crc64, lzf_decompress, parse_payload,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = parse_payload(data);

    // With a right footer the body is reached.
    let mut payload = [data, &RDB_VERSION.to_le_bytes()].concat();
    payload.extend_from_slice(&crc64(0, &payload).to_le_bytes());
    if let Ok(Payload::String(value)) = parse_payload(&payload) {
        dumps(&value);
    }

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
        append_string_payload(value, compress, &mut payload);
        let Ok(Payload::String(restored)) = parse_payload(&payload) else {
            panic!("a dump that is not a string's");
        };
        assert_eq!(restored, value);
    }
}
