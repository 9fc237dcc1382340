//! Sound payloads of every type and form, those that are only read included.

use bobbin_resp::Value;

use super::PayloadBench;

/// Kind and value of each; first those that the server makes itself.
pub fn all(bench: &mut PayloadBench) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for commands in MADE {
        for command in *commands {
            let reply = bench.say_words(&repeated(command));
            assert!(!reply.is_error(), "{command}: {reply:?}");
        }
        let Value::Bulk(payload) = bench.say_words("DUMP k") else { panic!("{commands:?}") };
        seeds.push(payload[..payload.len() - FOOTER_LEN].to_vec());
        bench.say_words("DEL k");
    }
    seeds.extend(READ_ONLY.iter().map(|body| body.to_vec()));
    seeds
}

/// `{N: ...}` at the end is there for each number below N, in the place of each `#`.
fn repeated(command: &str) -> String {
    let Some((head, rest)) = command.split_once('{') else { return command.to_owned() };
    let (count, what) = rest.trim_end_matches('}').split_once(": ").expect("a count and words");
    let count: usize = count.parse().expect("a count");
    let all: Vec<_> = (0..count).map(|i| what.replace('#', &i.to_string())).collect();
    format!("{head}{}", all.join(" "))
}

/// How values come to be: packed ones, large ones, and whatever has parts that are optional.
const MADE: &[&[&str]] = &[
    &["SET k hello"],
    &["SET k abcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabc"],
    &["SET k -32769"],
    &["PFADD k a b c d"],
    &["PFADD k {3000: #}"],
    &["RPUSH k a 1 -70000 4294967296 {1: ####################################}"],
    &["RPUSH k {40: some-words-of-item-#-that-go-on-and-on-and-fill-a-node-of-its-own}"],
    &["CONFIG SET list-max-listpack-size 3", "RPUSH k {10: #} {10: #}"],
    &["CONFIG SET list-max-listpack-size -2", "SADD k 1 2 3"],
    &["SADD k 1 70000 8589934592"],
    &["SADD k a b 12 {1: #}"],
    &["SADD k {140: member-#}"],
    &["SADD k {600: #}"],
    &["ZADD k 1 a 2.5 b -inf c 1e300 d 2 12"],
    &["ZADD k {140: # m#}"],
    &["HSET k f v 1 2 name value"],
    &["HSET k {520: f# #}"],
    &["HSET k f v g w h x", "HPEXPIREAT k 1000500 FIELDS 1 f", "HPEXPIREAT k 9000000 FIELDS 1 g"],
    &["XADD k 1-1 f v g w"],
    &[
        "XADD k 5-3 a 1 b 2",
        "XADD k 5-4 a 3 b two",
        "XADD k 7-0 other field",
        "XADD k 900-1 a 5 b 6",
        "XDEL k 5-4",
        "XGROUP CREATE k g 0",
        "XREADGROUP GROUP g one COUNT 2 STREAMS k >",
        "XREADGROUP GROUP g two COUNT 1 STREAMS k >",
        "XACK k g 5-3",
        "XGROUP CREATE k idle $",
        "XGROUP CREATECONSUMER k idle nobody",
    ],
    &["XADD k 1-0 f v", "XGROUP CREATE k g 0", "XREADGROUP GROUP g c STREAMS k >", "XDEL k 1-0"],
    &["XGROUP CREATE k g $ MKSTREAM", "XSETID k 7-7 ENTRIESADDED 9 MAXDELETEDID 3-0"],
    &["GEOADD k 13.36 38.11 Palermo 15.08 37.50 Catania"],
];

/// The forms of other versions. The kind's byte is the first; the forms are described in
/// `crates/dump`.
const READ_ONLY: &[&[u8]] = &[
    // A list, a set, a sorted set with scores as text, one with binary scores, a hash: element by
    // element.
    b"\x01\x03\x01a\x02bb\xc0\x07",
    b"\x02\x03\x01a\x02bb\xc0\x07",
    b"\x03\x04\x01a\x011\x02bb\x032.5\x01c\xfe\x01d\xff",
    b"\x05\x02\x01a\0\0\0\0\0\0\xf0\x3f\x02bb\0\0\0\0\0\0\x04\x40",
    b"\x04\x02\x01f\x01v\x02gg\xc0\x07",
    // The same as a zipmap and as ziplists.
    b"\x09\x1a\x02\x03foo\x03\0bar\x05hello\x05\x02world..\xff",
    b"\x0a\x12\x12\0\0\0\x0d\0\0\0\x02\0\0\x01a\x03\x02bb\xff",
    b"\x0c\x10\x10\0\0\0\x0d\0\0\0\x02\0\0\x01a\x03\xf2\xff",
    b"\x0d\x10\x10\0\0\0\x0d\0\0\0\x02\0\0\x01f\x03\xf2\xff",
    // A list of ziplists.
    b"\x0e\x02\x12\x12\0\0\0\x0d\0\0\0\x02\0\0\x01a\x03\x02bb\xff\x0e\x0e\0\0\0\x0a\0\0\0\x01\0\0\x01c\xff",
    // Hashes with expiries: Valkey's, and Redis's two.
    b"\x16\x02\x01f\x01v\xff\xff\xff\xff\xff\xff\xff\xff\x01g\x01w\x40\x42\x0f\0\0\x01\0\0",
    b"\x18\x40\x42\x0f\0\0\x01\0\0\x02\0\x01f\x01v\x05\x01g\x01w",
    b"\x19\x40\x42\x0f\0\0\x01\0\0\x17\x17\0\0\0\x06\0\x81f\x02\x81v\x02\0\x01\x81g\x02\x81w\x02\x07\x01\xff",
];

/// A version and a checksum.
const FOOTER_LEN: usize = 10;
