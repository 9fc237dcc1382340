//! Values dumped by one server are restored by the others.

use bobbin_testkit::Server;
use bobbin_testkit::random::{Random, seed};

/// Redis's and Valkey's newest formats have versions that the other refuses; Bobbin reads both.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn values_move_between_servers() {
    let valkey = Server::valkey(&[]);
    let redis = Server::redis(&[]);
    assert_moves("valkey to valkey", &valkey, &valkey);
    let bobbin = Server::bobbin(&[]);
    assert_moves("valkey to bobbin", &valkey, &bobbin);
    assert_moves("redis to bobbin", &redis, &bobbin);
    assert_moves("bobbin to valkey", &bobbin, &valkey);
    assert_moves("bobbin to bobbin", &bobbin, &bobbin);
}

fn assert_moves(way: &str, from: &Server, to: &Server) {
    let seed = seed();
    let (mut source, mut target) = (from.connect(), to.connect());
    for value in values(seed) {
        let shown = || format!("{way}: seed {seed}: {} bytes", value.len());
        let reply = source.call(&[b"SET".as_slice(), b"k", &value]).expect("is stored");
        assert_eq!(reply.text(), "OK", "{}", shown());
        let payload = source.call(&["DUMP", "k"]).expect("is dumped");
        let payload = payload.bytes().unwrap_or_else(|| panic!("no payload: {}", shown()));
        let restore = [b"RESTORE".as_slice(), b"copy", b"0", payload, b"REPLACE"];
        let reply = target.call(&restore).expect("is restored");
        assert_eq!(reply.text(), "OK", "{}", shown());
        let copy = target.call(&["GET", "copy"]).expect("is read");
        assert!(copy.bytes() == Some(value.as_slice()), "another value: {}", shown());
    }
}

/// Numbers around each width, and strings of all lengths that compress well, a little or not.
fn values(seed: u64) -> Vec<Vec<u8>> {
    let mut values: Vec<Vec<u8>> = Vec::new();
    for bits in [0, 7, 8, 15, 16, 31, 32, 62] {
        for near in -1..=1 {
            let number = (1_i64 << bits) + near;
            values.push(number.to_string().into_bytes());
            values.push((-number).to_string().into_bytes());
        }
    }
    values.push(i64::MAX.to_string().into_bytes());
    values.push(i64::MIN.to_string().into_bytes());
    let mut random = Random::new(seed);
    for length in [0, 1, 19, 20, 21, 62, 63, 64, 65, 100, 255, 256, 8000, 16383, 16384, 100_000] {
        values.push(vec![b'a'; length]);
        values.push(b"abcdefg".iter().copied().cycle().take(length).collect());
        values.push(random.bytes(length));
        values.push((0..length).map(|_| b"abcd"[random.below(4)]).collect());
    }
    values
}
