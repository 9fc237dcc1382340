//! What can be done with a value: every way of reading it, and of changing its ends and its middle.

use bobbin_resp::Value;

use super::PayloadBench;

/// Uses the value at `k`. No command fails, and what two of them say agrees.
pub fn all(bench: &mut PayloadBench) {
    let Value::Simple(kind) = bench.say_words("TYPE k") else { panic!("TYPE answers a text") };
    match kind.as_slice() {
        b"string" => string(bench),
        b"list" => list(bench),
        b"set" => set(bench),
        b"zset" => sorted_set(bench),
        b"hash" => hash(bench),
        b"stream" => stream(bench),
        other => panic!("a value of type {}", other.escape_ascii()),
    }
    bench.say_words("OBJECT ENCODING k");
    bench.say_words("MEMORY USAGE k SAMPLES 0");
}

fn string(bench: &mut PayloadBench) {
    let value = read(bench, "GET k");
    let len = value.as_bytes().map_or(0, <[u8]>::len);
    assert_eq!(read(bench, "STRLEN k"), Value::Integer(len as i64));
    // It may pretend to be a HyperLogLog.
    for command in ["PFCOUNT k", "PFADD k x y z", "PFMERGE pf k", "PFCOUNT k", "PFDEBUG GETREG k"] {
        bench.say_words(command);
    }
    bench.say_words("DEL pf");
    run(bench, &["BITCOUNT k", "APPEND k tail", "SETRANGE k 3 abc", "GETRANGE k 1 -2"]);
}

fn list(bench: &mut PayloadBench) {
    let items = elements(read(bench, "LRANGE k 0 -1"));
    assert_eq!(read(bench, "LLEN k"), Value::Integer(items.len() as i64));
    for at in [0, items.len() / 2, items.len() - 1] {
        assert_eq!(read(bench, &format!("LINDEX k {at}")).as_bytes(), Some(&items[at][..]));
        bench.say(&[b"LPOS", b"k", &items[at], b"COUNT", b"0"]);
    }
    let (first, middle) = (&items[0], &items[items.len() / 2]);
    for (place, new) in [(&b"BEFORE"[..], &[b'n'; 200][..]), (b"AFTER", b"17")] {
        let reply = bench.say(&[b"LINSERT", b"k", place, middle, new]);
        assert!(reply.as_integer() > Some(0), "{reply:?}");
    }
    bench.say(&[b"LREM", b"k", b"0", first]);
    run(
        bench,
        &[
            "RPUSH k end 1000000 3",
            "LPUSH k front -5",
            "LSET k 0 other",
            "LSET k -1 99999999999",
            "SORT k ALPHA LIMIT 0 5",
            "LMOVE k k LEFT RIGHT",
            "LTRIM k 1 -2",
            "LPOP k 2",
            "RPOP k",
        ],
    );
    let left = elements(read(bench, "LRANGE k 0 -1"));
    assert_eq!(read(bench, "LLEN k"), Value::Integer(left.len() as i64));
}

fn set(bench: &mut PayloadBench) {
    let mut members = elements(read(bench, "SMEMBERS k"));
    assert_eq!(read(bench, "SCARD k"), Value::Integer(members.len() as i64));
    assert_eq!(elements(read(bench, "SINTER k clone")).len(), members.len());
    for member in members.iter().take(SOME) {
        assert_eq!(bench.say(&[b"SISMEMBER", b"k", member]), Value::Integer(1));
    }
    members.sort();
    members.dedup();
    assert_eq!(read(bench, "SCARD k"), Value::Integer(members.len() as i64));
    run(
        bench,
        &[
            "SRANDMEMBER k -5",
            "SRANDMEMBER k 5",
            "SSCAN k 0 COUNT 1000",
            "SADD k 7 another 123456789012",
            "SREM k another",
            "SPOP k",
            "SDIFFSTORE to clone k",
            "SUNIONSTORE to clone k",
            "DEL to",
            "SORT k ALPHA LIMIT 0 5",
        ],
    );
    for member in members.iter().rev().take(SOME) {
        bench.say(&[b"SREM", b"k", member]);
    }
    let left = elements(read(bench, "SMEMBERS k"));
    assert_eq!(read(bench, "SCARD k"), Value::Integer(left.len() as i64));
}

fn sorted_set(bench: &mut PayloadBench) {
    let pairs = elements(read(bench, "ZRANGE k 0 -1 WITHSCORES"));
    let count = pairs.len() / 2;
    assert_eq!(read(bench, "ZCARD k"), Value::Integer(count as i64));
    assert_eq!(read(bench, "ZCOUNT k -inf +inf"), Value::Integer(count as i64));
    let scores: Vec<f64> = pairs.iter().skip(1).step_by(2).map(|score| number(score)).collect();
    assert!(scores.is_sorted(), "{scores:?}");
    for (rank, pair) in pairs.chunks(2).enumerate().take(SOME) {
        assert_eq!(bench.say(&[b"ZSCORE", b"k", &pair[0]]).as_bytes(), Some(&pair[1][..]));
        assert_eq!(bench.say(&[b"ZRANK", b"k", &pair[0]]), Value::Integer(rank as i64));
    }
    run(
        bench,
        &[
            "ZREVRANGE k 0 -1",
            "ZRANGEBYSCORE k (1 +inf WITHSCORES",
            "ZRANGEBYLEX k - +",
            "ZSCAN k 0 COUNT 1000",
            "ZRANDMEMBER k -5 WITHSCORES",
            "GEOPOS k a b",
            "GEOSEARCH k FROMLONLAT 15 37 BYRADIUS 20000 km ASC COUNT 10",
            "ZADD k 1.5 new 3 12 -1 7",
            "ZINCRBY k 4 new",
            "ZADD k GT 1 12",
            "ZUNIONSTORE to 2 clone k AGGREGATE MAX",
            "ZDIFFSTORE to 2 clone k",
            "ZRANGESTORE to k 0 -1",
            "DEL to",
            "ZREM k 12",
            "ZPOPMIN k",
            "ZPOPMAX k 2",
            "ZREMRANGEBYRANK k 0 0",
        ],
    );
    for pair in pairs.chunks(2).rev().take(SOME) {
        bench.say(&[b"ZINCRBY", b"k", b"0", &pair[0]]);
        bench.say(&[b"ZREM", b"k", &pair[0]]);
    }
    let left = elements(read(bench, "ZRANGE k 0 -1"));
    assert_eq!(read(bench, "ZCARD k"), Value::Integer(left.len() as i64));
}

fn hash(bench: &mut PayloadBench) {
    let pairs = elements(read(bench, "HGETALL k"));
    // Fields that have expired may still be counted.
    assert!(read(bench, "HLEN k").as_integer() >= Some(pairs.len() as i64 / 2));
    for pair in pairs.chunks(2).take(SOME) {
        assert_eq!(bench.say(&[b"HGET", b"k", &pair[0]]).as_bytes(), Some(&pair[1][..]));
        bench.say(&[b"HPTTL", b"k", b"FIELDS", b"1", &pair[0]]);
        bench.say(&[b"HPEXPIRE", b"k", b"500", b"FIELDS", b"1", &pair[0]]);
    }
    run(
        bench,
        &[
            "HRANDFIELD k -5 WITHVALUES",
            "HSCAN k 0 COUNT 1000",
            "HSET k new field 17 18",
            "HSET k long {}",
            "HINCRBY k 17 5",
            "HPEXPIRE k 100000 FIELDS 2 new 17",
            "HPERSIST k FIELDS 1 new",
            "HGETDEL k FIELDS 1 17",
            "HDEL k new",
            "HKEYS k",
            "HVALS k",
        ],
    );
    for pair in pairs.chunks(2).rev().take(SOME) {
        bench.say(&[b"HSET", b"k", &pair[0], b"other"]);
        bench.say(&[b"HDEL", b"k", &pair[0]]);
    }
    let left = elements(read(bench, "HGETALL k"));
    assert!(read(bench, "HLEN k").as_integer() >= Some(left.len() as i64 / 2));
}

fn stream(bench: &mut PayloadBench) {
    let Value::Array(entries) = read(bench, "XRANGE k - +") else { panic!("XRANGE is an array") };
    assert_eq!(read(bench, "XLEN k"), Value::Integer(entries.len() as i64));
    let Value::Array(mut back) = read(bench, "XREVRANGE k + -") else { panic!("an array") };
    back.reverse();
    assert_eq!(entries, back);
    read(bench, "XINFO STREAM k FULL COUNT 0");
    read(bench, "XREAD COUNT 10 STREAMS k 0");
    let Value::Array(groups) = read(bench, "XINFO GROUPS k") else { panic!("an array") };
    for group in groups.iter().take(SOME) {
        let name = group.as_elements().and_then(|pairs| pairs.get(1)?.as_bytes());
        let name = name.unwrap_or_else(|| panic!("{group:?}"));
        let commands: &[&[&[u8]]] = &[
            &[b"XINFO", b"CONSUMERS", b"k", name],
            &[b"XPENDING", b"k", name],
            &[b"XPENDING", b"k", name, b"-", b"+", b"10"],
            &[b"XREADGROUP", b"GROUP", name, b"reader", b"COUNT", b"2", b"STREAMS", b"k", b">"],
            &[b"XREADGROUP", b"GROUP", name, b"reader", b"STREAMS", b"k", b"0"],
            &[b"XAUTOCLAIM", b"k", name, b"other", b"0", b"0"],
            &[b"XCLAIM", b"k", name, b"third", b"0", b"1-1", b"5-3", b"FORCE"],
            &[b"XACK", b"k", name, b"5-3", b"7-0"],
            &[b"XGROUP", b"DELCONSUMER", b"k", name, b"other"],
        ];
        for command in commands {
            let reply = bench.say(command);
            assert!(!reply.is_error(), "{command:?}: {reply:?}");
        }
    }
    for entry in entries.iter().take(SOME) {
        let id = entry.as_elements().and_then(|parts| parts[0].as_bytes());
        let id = id.unwrap_or_else(|| panic!("{entry:?}"));
        assert_eq!(bench.say(&[b"XDEL", b"k", id]), Value::Integer(1));
    }
    // There may be no ID left to give, and the group may be there.
    for command in ["XADD k * f v", "XADD k * other fields f v", "XGROUP CREATE k more 0"] {
        bench.say_words(command);
    }
    run(bench, &["XTRIM k MAXLEN ~ 10", "XTRIM k MAXLEN = 1", "XINFO STREAM k"]);
    let entries = read(bench, "XRANGE k - +").as_elements().map(<[Value]>::len);
    assert_eq!(read(bench, "XLEN k").as_integer(), entries.map(|count| count as i64));
}

fn run(bench: &mut PayloadBench, commands: &[&str]) {
    let long = "long".repeat(50);
    for command in commands {
        read(bench, &command.replace("{}", &long));
    }
}

/// A reply that is no error.
fn read(bench: &mut PayloadBench, command: &str) -> Value {
    let reply = bench.say_words(command);
    assert!(!reply.is_error(), "{command}: {reply:?}");
    reply
}

/// The strings of an array.
fn elements(reply: Value) -> Vec<Vec<u8>> {
    let elements = reply.as_elements().unwrap_or_else(|| panic!("{reply:?} is no array"));
    let bytes = |element: &Value| element.as_bytes().map(<[u8]>::to_vec);
    let all: Option<Vec<_>> = elements.iter().map(bytes).collect();
    all.unwrap_or_else(|| panic!("not all are strings: {reply:?}"))
}

fn number(text: &[u8]) -> f64 {
    let text = std::str::from_utf8(text).expect("a score is text");
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Elements that are looked at one by one.
const SOME: usize = 8;
