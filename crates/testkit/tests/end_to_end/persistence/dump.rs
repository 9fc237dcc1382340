//! Values dumped by one server are restored by the others.

use bobbin_testkit::random::{TestRandom, seed};
use bobbin_testkit::{ReplyFrame, TestConnection, TestServer};

/// Redis's and Valkey's newest formats have versions that the other refuses; Bobbin reads both.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn values_move_between_servers() {
    let valkey = TestServer::valkey(&[]);
    let redis = TestServer::redis(&[]);
    assert_moves("valkey to valkey", &valkey, &valkey);
    let bobbin = TestServer::bobbin(&[]);
    assert_moves("valkey to bobbin", &valkey, &bobbin);
    assert_moves("redis to bobbin", &redis, &bobbin);
    assert_moves("bobbin to valkey", &bobbin, &valkey);
    assert_moves("bobbin to bobbin", &bobbin, &bobbin);
}

fn assert_moves(way: &str, from: &TestServer, to: &TestServer) {
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
    let mut random = TestRandom::new(seed);
    for length in [0, 1, 19, 20, 21, 62, 63, 64, 65, 100, 255, 256, 8000, 16383, 16384, 100_000] {
        values.push(vec![b'a'; length]);
        values.push(b"abcdefg".iter().copied().cycle().take(length).collect());
        values.push(random.bytes(length));
        values.push((0..length).map(|_| b"abcd"[random.below(4)]).collect());
    }
    values
}

/// The payload of a large value is read by a thread of its own. What is answered and logged is the
/// same wherever the command stands.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn large_payloads_are_restored_like_small_ones() {
    let server =
        TestServer::bobbin(&["--appendonly", "yes", "--enable-debug-command", "yes", "--save", ""]);
    let mut client = server.connect();
    for start in (0..100_000).step_by(1000) {
        let member = |at: u64| format!("{:016x}", at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let members: Vec<String> = (start..start + 1000).map(member).collect();
        for key in [["SADD", "set"], ["RPUSH", "list"]] {
            let words = key.into_iter().chain(members.iter().map(String::as_str));
            client.call(&words.collect::<Vec<_>>()).expect("it answers");
        }
    }
    let long = TestRandom::new(1).bytes(3_000_000);
    client.call(&[b"SET".as_slice(), b"string", &long]).expect("it answers");
    for key in ["set", "list", "string"] {
        let dump = client.call(&["DUMP", key]).expect("it answers");
        let payload = dump.bytes().expect("a payload");
        assert!(payload.len() > 600_000, "it is large");
        let same = |client: &mut TestConnection, copy: &str| {
            client.say(&format!("PERSIST {copy}"));
            let digests = client.say(&format!("DEBUG DIGEST-VALUE {key} {copy}"));
            let digests: Vec<String> = digests.items().iter().map(ReplyFrame::text).collect();
            assert_eq!(digests[0], digests[1], "{copy} of {key}");
            client.say(&format!("DEL {copy}"));
        };
        let mut restore = |options: &[&str], payload: &[u8]| {
            let words = [b"RESTORE".as_slice(), b"copy", options[0].as_bytes(), payload];
            let options = options[1..].iter().map(|option| option.as_bytes());
            client.call(&words.into_iter().chain(options).collect::<Vec<_>>()).expect("answers")
        };
        assert_eq!(restore(&["0"], payload).text(), "OK");
        assert_eq!(restore(&["0"], payload).text(), "BUSYKEY Target key name already exists.");
        assert_eq!(restore(&["100000", "REPLACE"], payload).text(), "OK");
        let mut damaged = payload.to_vec();
        damaged[100_000] ^= 1;
        let refused = restore(&["0", "REPLACE"], &damaged).text();
        assert_eq!(refused, "ERR DUMP payload version or checksum are wrong");
        // It was refused, so the key stays.
        let left_ms = client.say("PTTL copy").text().parse::<i64>().expect("a number");
        assert!((1..=100_000).contains(&left_ms), "{left_ms}");
        same(&mut client, "copy");
        // In a transaction, in a script, and for a client that leaves before the answer.
        client.say("MULTI");
        let words = [b"RESTORE".as_slice(), b"queued", b"0", payload];
        assert_eq!(client.call(&words).expect("it answers").text(), "QUEUED");
        client.say("EXISTS queued");
        let replies = client.say("EXEC");
        let replies: Vec<String> = replies.items().iter().map(ReplyFrame::text).collect();
        assert_eq!(replies, ["OK", "1"]);
        same(&mut client, "queued");
        let script =
            b"redis.call('RESTORE', KEYS[1], 0, ARGV[1]) return redis.call('EXISTS', KEYS[1])";
        let words = [b"EVAL".as_slice(), script, b"1", b"scripted", payload];
        assert_eq!(client.call(&words).expect("it answers"), ReplyFrame::integer(1));
        same(&mut client, "scripted");
        let mut leaving = server.connect();
        leaving.send(&[b"RESTORE".as_slice(), b"left", b"0", payload]).expect("is sent");
        drop(leaving);
        // A key that comes meanwhile is not overwritten.
        let mut other = server.connect();
        other.send(&[b"RESTORE".as_slice(), b"contended", b"0", payload]).expect("is sent");
        let set = client.say("SET contended 1 NX").text();
        let restored = other.receive().expect("it answers").text();
        let is_fair = (set == "OK") == restored.starts_with("BUSYKEY");
        assert!(is_fair, "{set}, {restored}");
        client.say("DEL contended");
        // What a client that left sent is executed all the same, when it is read.
        bobbin_testkit::until(|| client.say("DEL left").text() == "1");
        client
            .call(&[b"RESTORE".as_slice(), key.as_bytes(), b"0", payload, b"REPLACE"])
            .expect("answers");
    }
    let digest = client.say("DEBUG DIGEST").text();
    assert_eq!(client.say("DEBUG LOADAOF").text(), "OK");
    assert_eq!(client.say("DEBUG DIGEST").text(), digest);
}
