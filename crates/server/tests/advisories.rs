//! The known exploits of Redis and Valkey that are commands or DUMP payloads about values, each
//! under the number of its advisory: none ends, hangs or swells the server, and what is damaged is
//! refused.
//!
//! Those that are scripts, files or connections are tested where these are.

#[allow(dead_code, reason = "what is drawn at random is of no use here")]
mod payloads;

use bobbin_resp::Value;
use payloads::{PayloadBench, PayloadOutcome};

/// A number, as serialised values have it.
fn number(number: u64) -> Vec<u8> {
    match number {
        0..64 => vec![number as u8],
        _ => [&[0x81][..], &number.to_be_bytes()].concat(),
    }
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [number(bytes.len() as u64), bytes.to_vec()].concat()
}

/// A value of this kind whose serialised form is one string.
fn packed(kind: u8, bytes: &[u8]) -> Vec<u8> {
    [vec![kind], string(bytes)].concat()
}

fn listpack(claimed_len: u32, claimed_count: u16, entries: &[u8]) -> Vec<u8> {
    [&claimed_len.to_le_bytes()[..], &claimed_count.to_le_bytes(), entries, &[0xff]].concat()
}

/// The shortest sound listpack of these entries, which are `count`.
fn sound_listpack(count: u16, entries: &[u8]) -> Vec<u8> {
    listpack(entries.len() as u32 + 7, count, entries)
}

fn ziplist(claimed_len: u32, claimed_last: u32, claimed_count: u16, entries: &[u8]) -> Vec<u8> {
    let header = [claimed_len.to_le_bytes(), claimed_last.to_le_bytes()].concat();
    [&header[..], &claimed_count.to_le_bytes(), entries, &[0xff]].concat()
}

#[track_caller]
fn refused(bench: &mut PayloadBench, body: &[u8]) {
    assert_eq!(bench.restore(body), PayloadOutcome::Refused, "{}", body.escape_ascii());
}

#[track_caller]
fn error(reply: &Value) -> String {
    reply
        .as_error()
        .map(|text| text.escape_ascii().to_string())
        .unwrap_or_else(|| panic!("{reply:?}"))
}

fn len(reply: &Value) -> usize {
    match reply {
        Value::Array(elements) => elements.len(),
        other => panic!("{other:?}"),
    }
}

const LIST_ZIPLIST: u8 = 10;
const SET_INTSET: u8 = 11;
const ZSET_ZIPLIST: u8 = 12;
const HASH_ZIPMAP: u8 = 9;
const HASH_ZIPLIST: u8 = 13;
const HASH_LISTPACK: u8 = 16;
const ZSET_LISTPACK: u8 = 17;
const LIST_QUICKLIST_2: u8 = 18;
const SET_LISTPACK: u8 = 20;
const STREAM_3: u8 = 21;

/// An intset's length was a product of 32 bits.
#[test]
fn cve_2021_32687_and_29478_intsets_that_claim_more_than_they_have() {
    let mut bench = PayloadBench::new();
    for (width, count) in
        [(8u32, 0x2000_0001u32), (4, 0x4000_0001), (8, u32::MAX), (2, 2), (0, 1), (3, 1)]
    {
        let intset =
            [&width.to_le_bytes()[..], &count.to_le_bytes(), &[1, 0, 0, 0, 0, 0, 0, 0]].concat();
        refused(&mut bench, &packed(SET_INTSET, &intset));
    }
    // Unsorted, and the same twice.
    for integers in [[2u8, 0, 1, 0], [1, 0, 1, 0]] {
        let intset = [&2u32.to_le_bytes()[..], &2u32.to_le_bytes(), &integers].concat();
        refused(&mut bench, &packed(SET_INTSET, &intset));
    }
}

/// Lengths of ziplists and listpacks, of entries and as a whole, beyond 32 bits when added to.
#[test]
fn cve_2021_32627_and_32628_packed_lengths_that_overflow() {
    let mut bench = PayloadBench::new();
    // A string of nearly 4 GiB.
    let huge_string = [0xf0, 0xff, 0xff, 0xff, 0xff, b'a', 0x01];
    for kind in [HASH_LISTPACK, ZSET_LISTPACK, SET_LISTPACK] {
        for (len, count) in [(14, 1), (u32::MAX, 1), (6, 1), (0, 0), (7, u16::MAX)] {
            refused(&mut bench, &packed(kind, &listpack(len, count, &huge_string)));
        }
    }
    let node = [vec![LIST_QUICKLIST_2], number(1), number(2)].concat();
    refused(&mut bench, &[node.clone(), string(&listpack(u32::MAX, 1, &huge_string))].concat());
    refused(&mut bench, &[vec![LIST_QUICKLIST_2], number(u64::MAX), number(1)].concat());
    let huge_entry = [0x00, 0x80, 0xff, 0xff, 0xff, 0xff, b'a'];
    let huge_previous = [0xfe, 0xff, 0xff, 0xff, 0xff, 0x01, b'a'];
    for kind in [LIST_ZIPLIST, ZSET_ZIPLIST, HASH_ZIPLIST] {
        for entries in [huge_entry, huge_previous] {
            for (len, last) in [(18, 10), (u32::MAX, 10), (18, u32::MAX), (0, 0)] {
                refused(&mut bench, &packed(kind, &ziplist(len, last, 1, &entries)));
            }
        }
    }
}

/// Values that claim a huge number of elements: nothing is allocated for it.
#[test]
fn cve_2021_32625_and_21309_sizes_that_are_products() {
    let mut bench = PayloadBench::new();
    for kind in [1, 2, 3, 4, 5, 14, 15, 19, 21, 22] {
        for count in [u64::MAX, u64::MAX / 2, 1 << 61, 1 << 32] {
            refused(&mut bench, &[vec![kind], number(count), string(b"a")].concat());
        }
    }
    // A string said to be longer than what it is compressed from can describe.
    for len in [u64::MAX, 1 << 40, 0xffff_ffff, 200] {
        refused(&mut bench, &[vec![0, 0xc3], number(2), number(len), vec![0, b'a']].concat());
    }
}

/// The table of LCS (once STRALGO) has the product of both lengths.
#[test]
fn cve_2021_29477_the_table_of_lcs() {
    let mut bench = PayloadBench::new();
    for key in ["a", "b"] {
        assert_eq!(bench.say_words(&format!("SETRANGE {key} 131071 x")), Value::Integer(131_072));
    }
    for options in ["", " LEN", " IDX", " IDX MINMATCHLEN -9223372036854775808 WITHMATCHLEN"] {
        let reply = bench.say_words(&format!("LCS a b{options}"));
        assert!(error(&reply).contains("Insufficient memory"), "{reply:?}");
    }
}

/// Strings near the limit of their length, and offsets beyond any.
#[test]
fn cve_2021_41099_and_2022_35977_offsets_of_strings() {
    let mut bench = PayloadBench::new();
    for offset in [536_870_912, i64::MAX - 1, i64::MAX] {
        let reply = bench.say_words(&format!("SETRANGE s {offset} xy"));
        assert!(error(&reply).contains("exceeds maximum"), "{reply:?}");
    }
    for offset in [i64::MIN, -1] {
        error(&bench.say_words(&format!("SETRANGE s {offset} xy")));
    }
    for offset in [4_294_967_296, i64::MAX] {
        error(&bench.say_words(&format!("SETBIT s {offset} 1")));
        error(&bench.say_words(&format!("GETBIT s {offset}")));
        error(&bench.say_words(&format!("BITFIELD s SET u63 {offset} 1")));
        error(&bench.say_words(&format!("BITFIELD s SET i64 #{offset} 1")));
        error(&bench.say_words(&format!("BITFIELD s INCRBY i64 #{} 1", offset / 64 + 1)));
    }
    assert_eq!(bench.say_words("EXISTS s"), Value::Integer(0));
    assert_eq!(
        bench.say_words("GETRANGE s -9223372036854775808 9223372036854775807"),
        Value::Bulk(vec![])
    );
    assert_eq!(bench.say_words("RPUSH l 3 1 2"), Value::Integer(3));
    for (limit, count) in
        [("0 9223372036854775807", 3), ("9223372036854775807 9223372036854775807", 0)]
    {
        assert_eq!(len(&bench.say_words(&format!("SORT l LIMIT {limit}"))), count);
        assert_eq!(len(&bench.say_words(&format!("SORT_RO l BY nosort LIMIT {limit}"))), count);
    }
    assert_eq!(len(&bench.say_words("SORT l LIMIT -9223372036854775808 9223372036854775807")), 3);
    assert_eq!(len(&bench.say_words("LRANGE l -9223372036854775808 9223372036854775807")), 3);
    error(&bench.say_words("LPOS l 1 RANK -9223372036854775808"));
}

/// XAUTOCLAIM over entries that were deleted, with counts whose size in bytes would overflow.
#[test]
fn cve_2022_31144_and_35951_xautoclaim_of_deleted_entries() {
    let mut bench = PayloadBench::new();
    for id in 1..=3 {
        bench.say_words(&format!("XADD s {id} f v"));
    }
    bench.say_words("XGROUP CREATE s g 0");
    bench.say_words("XREADGROUP GROUP g one STREAMS s >");
    assert_eq!(bench.say_words("XDEL s 1 2 3"), Value::Integer(3));
    for count in ["0", "-1", "9223372036854775807", "1152921504606846976", "576460752303423488"] {
        error(&bench.say_words(&format!("XAUTOCLAIM s g two 0 0 COUNT {count}")));
    }
    let reply = bench.say_words("XAUTOCLAIM s g two 0 0 COUNT 576460752303423487");
    let Value::Array(parts) = reply else { panic!("{reply:?}") };
    assert_eq!((len(&parts[1]), len(&parts[2])), (0, 3));
    assert_eq!(
        bench
            .say_words("XAUTOCLAIM s g two 0 18446744073709551615-18446744073709551615")
            .as_error(),
        None
    );
}

/// Patterns of many stars against a text that nearly matches.
#[test]
fn cve_2022_36021_patterns_that_are_tried_over_and_over() {
    let mut bench = PayloadBench::new();
    let text = "a".repeat(2000);
    bench.say(&[b"SET", text.as_bytes(), b"1"]);
    bench.say(&[b"HSET", b"h", text.as_bytes(), b"1"]);
    for pattern in ["a*".repeat(900) + "b", "*a?".repeat(600) + "b", "*[a-z]".repeat(900) + "b"] {
        let pattern = pattern.as_bytes();
        assert_eq!(len(&bench.say(&[b"KEYS", pattern])), 0);
        assert_eq!(len(&bench.say(&[b"SCAN", b"0", b"MATCH", pattern])), 2);
        assert_eq!(len(&bench.say(&[b"HSCAN", b"h", b"0", b"MATCH", pattern])), 2);
        let matched = bench.say(&[b"DEBUG", b"STRINGMATCH-LEN", pattern, text.as_bytes()]);
        assert_eq!(matched, Value::Integer(0));
    }
}

/// Counts of random elements without an opposite, or of which there is no double, or no memory for
/// what they ask for.
#[test]
fn cve_2023_22458_and_25155_counts_of_random_elements() {
    let mut bench = PayloadBench::new();
    let commands = ["SRANDMEMBER s", "HRANDFIELD h", "ZRANDMEMBER z"];
    bench.say_words("SADD s a");
    bench.say_words("HSET h a 1");
    bench.say_words("ZADD z 1 a");
    for count in [i64::MIN, i64::MIN + 1, -(1 << 62), -(1 << 40), -200_000_000] {
        for command in commands {
            error(&bench.say_words(&format!("{command} {count}")));
            // Where it is not done in slices.
            bench.say_words("MULTI");
            bench.say_words(&format!("{command} {count}"));
            let Value::Array(replies) = bench.say_words("EXEC") else { panic!("{command}") };
            error(&replies[0]);
        }
        for command in ["HRANDFIELD h WITHVALUES", "ZRANDMEMBER z WITHSCORES"] {
            let (command, option) = command.rsplit_once(' ').unwrap();
            error(&bench.say_words(&format!("{command} {count} {option}")));
        }
    }
    for command in commands {
        assert_eq!(len(&bench.say_words(&format!("{command} {}", i64::MAX))), 1);
        assert_eq!(len(&bench.say_words(&format!("{command} -5000"))), 5000);
        assert_eq!(len(&bench.say_words(&format!("{command} -5"))), 5);
    }
}

/// The same count of elements may be more than there is memory for, if they are long.
#[test]
fn random_elements_that_repeat_are_bounded_in_bytes() {
    let mut bench = PayloadBench::new();
    let long = vec![b'x'; 8 << 20];
    bench.say(&[b"SADD", b"s", &long]);
    bench.say(&[b"HSET", b"h", b"f", &long]);
    bench.say(&[b"ZADD", b"z", b"1", &long]);
    for command in ["SRANDMEMBER s -200", "HRANDFIELD h -200 WITHVALUES", "ZRANDMEMBER z -200"] {
        assert_eq!(error(&bench.say_words(command)), "ERR value is out of range", "{command}");
    }
}

/// MSETNX with a key twice, and MSETEX with it.
#[test]
fn cve_2023_28425_msetnx_with_a_key_twice() {
    let mut bench = PayloadBench::new();
    assert_eq!(bench.say_words("MSETNX k 1 k 2"), Value::Integer(1));
    assert_eq!(bench.say_words("MSETNX k 3 k 4"), Value::Integer(0));
    assert_eq!(bench.say_words("MSETEX 2 k 5 k 6 XX"), Value::Integer(1));
    assert_eq!(bench.say_words("GET k"), Value::Bulk(b"6".to_vec()));
    error(&bench.say_words("MSETEX 9223372036854775807 k 5"));
    error(&bench.say_words("MSETEX 2147483647 k 5"));
}

/// HINCRBYFLOAT that is refused must leave nothing that ends the server when it is read.
#[test]
fn cve_2023_28856_hincrbyfloat_that_is_refused() {
    let mut bench = PayloadBench::new();
    for increment in ["inf", "-inf", "nan", "1e5000", "-1e5000", "0x1p99999"] {
        error(&bench.say_words(&format!("HINCRBYFLOAT h f {increment}")));
        error(&bench.say_words(&format!("INCRBYFLOAT s {increment}")));
    }
    assert_eq!(bench.say_words("EXISTS h s"), Value::Integer(0));
    bench.say_words("HINCRBYFLOAT h f 1e4932");
    error(&bench.say_words("HINCRBYFLOAT h f 1e4932"));
    bench.say_words("HINCRBYFLOAT h f 0.1");
    assert_eq!(len(&bench.say_words("HGETALL h")), 2);
}

/// Keys of commands with many words.
#[test]
fn cve_2023_36824_keys_of_commands_with_many_words() {
    let mut bench = PayloadBench::new();
    let keys: Vec<String> = (0..3000).map(|key| key.to_string()).collect();
    for command in
        [&["MGET"][..], &["SORT", "k"], &["EVAL", "", "3000"], &["ZUNIONSTORE", "d", "3000"]]
    {
        for asked in ["GETKEYS", "GETKEYSANDFLAGS"] {
            let words = ["COMMAND", asked].into_iter().chain(command.iter().copied());
            let words: Vec<&[u8]> =
                words.chain(keys.iter().map(String::as_str)).map(str::as_bytes).collect();
            let reply = bench.say(&words);
            assert!(reply.as_error().is_some() || len(&reply) >= 1, "{command:?}");
        }
    }
    for count in ["-1", "9223372036854775807", "4294967297"] {
        bench.say_words(&format!("COMMAND GETKEYS EVAL x {count} a b"));
        error(&bench.say_words(&format!("ZUNION {count} a b")));
        error(&bench.say_words(&format!("LMPOP {count} a LEFT")));
    }
}

/// Patterns so long that each star was a call within a call.
#[test]
fn cve_2024_31228_long_patterns() {
    let mut bench = PayloadBench::new();
    let text = "ab".repeat(20_000);
    bench.say(&[b"SET", text.as_bytes(), b"1"]);
    for pattern in
        ["*?".repeat(50_000), "*".repeat(100_000) + "%", "[".repeat(100_000), "\\".repeat(99_999)]
    {
        let (bytes, rule) = (pattern.as_bytes(), format!("~{pattern}"));
        assert_eq!(len(&bench.say(&[b"KEYS", bytes])), 0);
        assert_eq!(len(&bench.say(&[b"COMMAND", b"LIST", b"FILTERBY", b"PATTERN", bytes])), 0);
        assert_eq!(len(&bench.say(&[b"FUNCTION", b"LIST", b"LIBRARYNAME", bytes])), 0);
        assert_eq!(len(&bench.say(&[b"CONFIG", b"GET", bytes])), 0);
        assert_eq!(len(&bench.say(&[b"PUBSUB", b"CHANNELS", bytes])), 0);
        bench.say(&[b"ACL", b"SETUSER", b"someone", b"on", b"+get", rule.as_bytes()]);
        let asked = bench.say(&[b"ACL", b"DRYRUN", b"someone", b"GET", text.as_bytes()]);
        assert!(!matches!(asked, Value::Simple(_)), "{asked:?}");
        bench.say_words("ACL DELUSER someone");
    }
}

/// Selectors of ACL that end in the middle.
#[test]
fn cve_2024_31227_and_51741_selectors_that_are_none() {
    let mut bench = PayloadBench::new();
    for rule in [
        "%",
        "%~",
        "%R",
        "%~k",
        "(%~",
        "(%R~k",
        "(+get ~k",
        "(",
        ")",
        "()",
        "(~k (~l))",
        "%RW",
        "(%)",
        "%RX~k",
    ] {
        let reply = bench.say(&[b"ACL", b"SETUSER", b"someone", rule.as_bytes()]);
        if reply.as_error().is_none() {
            bench.say_words("ACL LIST");
            bench.say_words("ACL GETUSER someone");
            bench.say_words("ACL DRYRUN someone GET k");
        }
    }
}

/// Runs of a sparse HyperLogLog that add up to more registers than there are, or than 31 bits can
/// count.
#[test]
fn cve_2025_32023_runs_of_a_hyperloglog_that_add_up_to_too_many() {
    let mut bench = PayloadBench::new();
    bench.say_words("PFADD sound a b c");
    let header = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80";
    let zeros = b"\x7f\xff";
    let bodies: [Vec<u8>; 7] = [
        [&zeros.repeat(0x2_0001)[..], b"\x8b"].concat(),
        [&zeros[..], b"\xff"].concat(),
        b"\x7f\xfe\xff".to_vec(),
        b"\x7f".to_vec(),
        b"\xff".repeat(100_000),
        Vec::new(),
        [&b"\x40".repeat(40_000)[..], b"\x7f\xff\xff"].concat(),
    ];
    for body in bodies {
        for cached in [0x80, 0] {
            let mut value = [&header[..], &body].concat();
            value[15] = cached;
            bench.say(&[b"SET", b"k", &value]);
            for command in [
                "PFADD k a b c d e f g h i j",
                "PFCOUNT k sound",
                "PFCOUNT k",
                "PFMERGE sound k",
                "PFMERGE k sound",
                "PFDEBUG GETREG k",
                "PFDEBUG DECODE k",
                "PFDEBUG TODENSE k",
                "PFADD k x y z",
            ] {
                bench.say_words(command);
            }
        }
    }
    assert_eq!(bench.say_words("PFCOUNT sound").as_error(), None);
    // A dense one that is too short, or too long.
    for len in [0, 1, 12287, 12289] {
        let value = [b"HYLL\0\0\0\0\0\0\0\0\0\0\0\x80", &vec![0xff; len][..]].concat();
        bench.say(&[b"SET", b"k", &value]);
        error(&bench.say_words("PFCOUNT k"));
        error(&bench.say_words("PFADD k a"));
    }
}

/// A zipmap with a length in a longer form than it needs, and with one to which nothing can be
/// added.
#[test]
fn cve_2026_25243_zipmaps_with_lengths_in_the_wrong_form() {
    let mut bench = PayloadBench::new();
    assert_eq!(
        bench.restore(&packed(HASH_ZIPMAP, b"\x01\x01f\x01\0v\xff")),
        PayloadOutcome::Restored
    );
    for zipmap in [
        &b"\x01\xfe\x01\0\0\0f\x01\0v\xff"[..],
        b"\x01\x01f\xfe\x01\0\0\0\0v\xff",
        b"\x02\xfe\x03\0\0\0abc\x01\0v\x01g\x01\0w\xff",
        b"\x01\x01f\xfe\xff\xff\xff\xff\x01v\xff",
        b"\x01\xfe\xff\xff\xff\xfff\x01\0v\xff",
        b"\x01\x01f\x01\xffv\xff",
        b"\x02\x01f\x01\0v\x01f\x01\0w\xff",
    ] {
        refused(&mut bench, &packed(HASH_ZIPMAP, zipmap));
    }
}

/// An odd number of entries where fields and values, or members and scores, come in pairs.
#[test]
fn packed_pairs_of_which_one_half_is_missing() {
    let mut bench = PayloadBench::new();
    for kind in [HASH_LISTPACK, ZSET_LISTPACK] {
        refused(&mut bench, &packed(kind, &sound_listpack(1, b"\x81a\x02")));
        refused(&mut bench, &packed(kind, &sound_listpack(3, b"\x81a\x02\x01\x01\x81b\x02")));
    }
    // A score that is none.
    for score in [&b"\x83nan\x04"[..], b"\x80\x01", b"\x81x\x02"] {
        let entries = [&b"\x81a\x02"[..], score].concat();
        refused(&mut bench, &packed(ZSET_LISTPACK, &sound_listpack(2, &entries)));
    }
    let score = [&[5][..], &number(1), &string(b"a"), &f64::NAN.to_le_bytes()].concat();
    refused(&mut bench, &score);
}

/// The serialised form of a stream of one entry, 1-1, of a field and a value; the groups follow.
fn stream(last_ms: u64, groups: &[u8]) -> Vec<u8> {
    let entries = b"\x01\x01\0\x01\x01\x01\x81f\x02\0\x01\x02\x01\0\x01\0\x01\x81v\x02\x04\x01";
    let master = [1u64.to_be_bytes(), 1u64.to_be_bytes()].concat();
    let node = [string(&master), string(&sound_listpack(10, entries))].concat();
    let facts = [1, last_ms, 1, 1, 1, 0, 0, 1].map(number).concat();
    [vec![STREAM_3], number(1), node, facts, groups.to_vec()].concat()
}

/// An entry that is pending with two consumers at once, with no consumer, or with a consumer though
/// it is not pending in the group.
#[test]
fn cve_2026_63639_an_entry_that_is_pending_with_two_consumers() {
    let mut bench = PayloadBench::new();
    let id = [1u64.to_be_bytes(), 1u64.to_be_bytes()].concat();
    let pending = [&id[..], &0u64.to_le_bytes(), &[1]].concat();
    let consumer = |name: &[u8], ids: &[&[u8]]| {
        [&string(name)[..], &[0; 16], &number(ids.len() as u64), &ids.concat()].concat()
    };
    let group = |pending: &[&[u8]], consumers: &[Vec<u8>]| {
        let head =
            [string(b"g"), [1, 1, 1].map(number).concat(), number(pending.len() as u64)].concat();
        [&[1][..], &head, &pending.concat(), &number(consumers.len() as u64), &consumers.concat()]
            .concat()
    };
    let (one, two) = (consumer(b"a", &[&id]), consumer(b"b", &[&id]));
    let sound = group(&[&pending], &[one.clone(), consumer(b"b", &[])]);
    assert_eq!(bench.restore(&stream(1, &sound)), PayloadOutcome::Restored);
    refused(&mut bench, &stream(1, &group(&[&pending], &[one.clone(), two.clone()])));
    refused(&mut bench, &stream(1, &group(&[&pending], &[consumer(b"a", &[&id, &id])])));
    refused(&mut bench, &stream(1, &group(&[&pending], &[consumer(b"a", &[])])));
    refused(&mut bench, &stream(1, &group(&[], std::slice::from_ref(&one))));
    refused(&mut bench, &stream(1, &group(&[&pending, &pending], &[one.clone(), two])));
    refused(&mut bench, &stream(1, &group(&[&pending], &[one.clone(), one])));
    // An entry above what the stream says its last one is.
    refused(&mut bench, &stream(0, &[0]));
}

/// What comes behind an empty request is a request of its own, of either form.
#[test]
fn cve_2026_27623_requests_behind_empty_ones() {
    let mut bench = PayloadBench::new();
    for empty in ["\r\n", "*0\r\n", "*-1\r\n", "\n", " \r\n"] {
        for request in ["PING\r\n", "*1\r\n$4\r\nPING\r\n"] {
            assert_eq!(
                bench.feed(format!("{empty}{request}{empty}{request}").as_bytes()),
                b"+PONG\r\n+PONG\r\n"
            );
        }
    }
}

/// A back length with a mark too many, by which a walk from the end left the listpack: RPOP ended
/// the server.
#[test]
fn listpacks_that_cannot_be_walked_from_their_end() {
    let mut bench = PayloadBench::new();
    let entries = b"\x02\x01\x80\x81";
    for kind in [HASH_LISTPACK, ZSET_LISTPACK, SET_LISTPACK] {
        refused(&mut bench, &packed(kind, &sound_listpack(2, entries)));
    }
    refused(
        &mut bench,
        &[vec![LIST_QUICKLIST_2, 1, 2], string(&sound_listpack(2, entries))].concat(),
    );
}

/// A stream whose last entry is deleted, which it says nothing of: its last ID cannot be set below
/// that, or what is added then could never be loaded again.
#[test]
fn the_last_id_stays_above_deleted_entries() {
    let mut bench = PayloadBench::new();
    let entries = b"\x01\x01\x01\x01\x01\x01\x81f\x02\0\x01\x02\x01\0\x01\0\x01\x81v\x02\x04\x01\x03\x01\x0a\x01\0\x01\x81w\x02\x04\x01";
    let master = [1u64.to_be_bytes(), 1u64.to_be_bytes()].concat();
    let node = [string(&master), string(&sound_listpack(15, entries))].concat();
    let facts = [1, 11, 1, 1, 1, 0, 0, 2].map(number).concat();
    let body = [vec![STREAM_3], number(1), node, facts, vec![0]].concat();
    let reply = bench.say(&[b"RESTORE", b"s", b"0", &payloads::payload(&body)]);
    assert_eq!(reply.as_error(), None, "{reply:?}");
    error(&bench.say_words("XSETID s 6-1"));
    assert_eq!(bench.say_words("XSETID s 12-1").as_error(), None);
    bench.say_words("XADD s 13-1 a b");
    let Value::Bulk(payload) = bench.say_words("DUMP s") else { panic!("no payload") };
    let reply = bench.say(&[b"RESTORE", b"again", b"0", &payload]);
    assert_eq!(reply.as_error(), None, "{reply:?}");
}
