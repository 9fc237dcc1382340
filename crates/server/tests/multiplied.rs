//! Commands whose cost or answer is a product of what a client sends and of what is there: they are
//! bounded or done in slices, and what they answer is the same as without that.

#[allow(dead_code, reason = "what is drawn at random is of no use here")]
mod payloads;

use bobbin_resp::Value;
use payloads::PayloadBench;

fn words<'a>(command: &[&'a [u8]], repeated: &[&'a [u8]], times: usize) -> Vec<&'a [u8]> {
    [command, &repeated.repeat(times)].concat()
}

/// The reply of a command in a transaction, which is done at once.
fn at_once(bench: &mut PayloadBench, command: &[&[u8]]) -> Value {
    bench.say(&[b"MULTI"]);
    bench.say(command);
    match bench.say(&[b"EXEC"]) {
        Value::Array(mut replies) if replies.len() == 1 => replies.remove(0),
        other => panic!("{other:?}"),
    }
}

/// GET answers an element as often as it is named.
#[test]
fn sort_with_many_gets() {
    let mut bench = PayloadBench::new();
    let numbers: Vec<String> = (0..300).map(|number| format!("{}", number * 7 % 300)).collect();
    let numbers: Vec<&[u8]> = numbers.iter().map(String::as_bytes).collect();
    bench.say(&[&[&b"RPUSH"[..], b"l"][..], &numbers].concat());
    bench.say(&[b"SET", b"w_5", b"five"]);
    for get in [[&b"GET"[..], b"#"], [b"GET", b"w_*"]] {
        for by in [&[&b"BY"[..], b"nosort"][..], &[]] {
            let command = words(&[&[&b"SORT"[..], b"l"][..], by].concat(), &get, 50);
            let reply = bench.say(&command);
            assert_eq!(reply.as_elements().map(<[Value]>::len), Some(15_000));
            assert_eq!(reply, at_once(&mut bench, &command));
        }
    }
    let long = vec![b'x'; 8 << 20];
    bench.say(&[b"RPUSH", b"long", &long]);
    let sort = [&b"SORT"[..], b"long", b"BY", b"nosort"];
    let command = words(&sort, &[b"GET", b"#"], 200);
    let error = Some(&b"ERR value is out of range"[..]);
    assert_eq!(bench.say(&command).as_error(), error);
    assert_eq!(at_once(&mut bench, &command).as_error(), error);
    let stored = [&command[..], &[b"STORE", b"to"]].concat();
    assert_eq!(bench.say(&stored).as_error(), error);
    assert_eq!(bench.say(&[b"EXISTS", b"to"]), Value::Integer(0));
}

/// A sparse HyperLogLog is walked for each element; merging one costs more than naming it.
#[test]
fn hyperloglogs_with_many_elements_and_keys() {
    let mut bench = PayloadBench::new();
    let elements: Vec<String> = (0..700).map(|number| format!("element {number}")).collect();
    let elements: Vec<&[u8]> = elements.iter().map(String::as_bytes).collect();
    for chunk in elements.chunks(200) {
        let many = bench.say(&[&[&b"PFADD"[..], b"many"][..], chunk].concat());
        let changed = chunk
            .iter()
            .map(|element| bench.say(&[b"PFADD", b"single", element]))
            .filter(|reply| *reply == Value::Integer(1));
        assert_eq!(many, Value::Integer(i64::from(changed.count() > 0)));
        assert_eq!(bench.say(&[b"GET", b"many"]), bench.say(&[b"GET", b"single"]));
        let again = bench.say(&[&[&b"PFADD"[..], b"many"][..], chunk].concat());
        assert_eq!(again, Value::Integer(0));
    }
    bench.say(&[b"PFADD", b"other", b"one more"]);
    let count = bench.say(&[b"PFCOUNT", b"many", b"other"]);
    assert_eq!(bench.say(&words(&[b"PFCOUNT"], &[b"many", b"other"], 100)), count);
    bench.say(&words(&[b"PFMERGE", b"merged"], &[b"many", b"other"], 100));
    assert_eq!(bench.say(&[b"PFCOUNT", b"merged"]), count);
    // Every register is a run of its own: longer than the dense form, which it becomes.
    let header = [&b"HYLL\x01"[..], &[0; 10], &[0x80]].concat();
    bench.say(&[b"SET", b"long", &[&header[..], &[0x80; 16384]].concat()]);
    let raised: Vec<&[u8]> = elements[..300].to_vec();
    assert_eq!(bench.say(&[&[&b"PFADD"[..], b"long"][..], &raised].concat()), Value::Integer(1));
    let encoding = bench.say(&[b"PFDEBUG", b"ENCODING", b"long"]);
    assert_eq!(encoding, Value::Simple(b"dense".to_vec()));
}

/// Small HyperLogLogs are merged at once, too many of them in slices.
#[test]
fn many_small_hyperloglogs() {
    let mut bench = PayloadBench::new();
    for count in [100, 1500] {
        let keys: Vec<String> = (0..count).map(|number| format!("small {number}")).collect();
        let keys: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
        for key in &keys {
            bench.say(&[b"PFADD", key, key]);
        }
        bench.say(&[b"DEL", b"one", b"merged"]);
        bench.say(&[&[&b"PFADD"[..], b"one"][..], &keys].concat());
        let expected = bench.say(&[b"PFCOUNT", b"one"]);
        assert!(matches!(expected, Value::Integer(number) if number > count * 9 / 10));
        let named_twice = words(&[b"PFCOUNT", b"missing"], &keys, 2);
        assert_eq!(bench.say(&named_twice), expected);
        bench.say(&words(&[b"PFMERGE", b"merged"], &keys, 1));
        assert_eq!(bench.say(&[b"PFCOUNT", b"merged"]), expected);

        // Each key is looked at once, also if their values turn out to be too large for that.
        for key in &keys[..count as usize / 4 * 3] {
            bench.say(&[b"PFDEBUG", b"TODENSE", key]);
        }
        bench.say(&[b"CONFIG", b"RESETSTAT"]);
        assert_eq!(bench.say(&named_twice), expected);
        let info = bench.say(&[b"INFO", b"stats"]);
        let info = String::from_utf8_lossy(info.as_bytes().expect("a text")).into_owned();
        let looks = format!("keyspace_hits:{count}\r\nkeyspace_misses:1\r\n");
        assert!(info.contains(&looks), "{info}");

        bench.say(&[b"SET", b"text", b"value"]);
        let wrong = [&named_twice[..], &[b"text"]].concat();
        assert!(bench.say(&wrong).as_error().is_some_and(|error| error.starts_with(b"WRONGTYPE")));
    }
}

/// Each random element of a small value would be a walk.
#[test]
fn many_random_elements_of_small_values() {
    let mut bench = PayloadBench::new();
    let numbers: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    let names: Vec<String> = numbers.iter().map(|number| format!("element {number}")).collect();
    let all = numbers.iter().zip(&names);
    let pairs: Vec<_> =
        all.flat_map(|(number, name)| [number.as_bytes(), name.as_bytes()]).collect();
    let backwards: Vec<_> = pairs.iter().rev().copied().collect();
    let only_names: Vec<_> = names.iter().map(String::as_bytes).collect();
    bench.say(&words(&[b"ZADD", b"sorted"], &pairs, 1));
    bench.say(&words(&[b"HSET", b"hash"], &backwards, 1));
    bench.say(&words(&[b"SADD", b"set"], &only_names, 1));
    let reads: [(&str, &str, &str, usize); 3] = [
        ("ZRANDMEMBER", "sorted", "WITHSCORES", 2),
        ("HRANDFIELD", "hash", "WITHVALUES", 2),
        ("SRANDMEMBER", "set", "", 1),
    ];
    for (command, key, option, width) in reads {
        let encoding = bench.say(&[b"OBJECT", b"ENCODING", key.as_bytes()]);
        assert_eq!(encoding, Value::Bulk(b"listpack".to_vec()));
        for count in [1, 3, 4, 30, 70, 99, 100, 200, -3, -4, -50, -300] {
            let count: i64 = count;
            let text = count.to_string();
            let mut line = vec![command.as_bytes(), key.as_bytes(), text.as_bytes()];
            line.extend((!option.is_empty()).then_some(option.as_bytes()));
            let reply = bench.say(&line);
            let elements = reply.as_elements().expect("an array").chunks(width);
            let chosen: Vec<&[u8]> = elements
                .map(|element| {
                    let [name, number @ ..] = element else { panic!("{element:?}") };
                    let name = name.as_bytes().expect("a name");
                    if let [number] = number {
                        let number = number.as_bytes().expect("a number");
                        assert_eq!(name, [b"element ", number].concat());
                    }
                    assert!(only_names.contains(&name));
                    name
                })
                .collect();
            if count < 0 {
                assert_eq!(chosen.len() as i64, -count, "{command}");
                continue;
            }
            let mut distinct = chosen.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), chosen.len());
            assert_eq!(chosen.len() as i64, count.min(100), "{command}");
        }
        // Each may come first.
        let one = [command, key, "-4000"].map(str::as_bytes);
        let reply = bench.say(&one);
        let chosen = reply.as_elements().expect("an array");
        let is_chosen = |name: &[u8]| chosen.iter().any(|it| it.as_bytes() == Some(name));
        assert!(only_names.iter().all(|name| is_chosen(name)), "{command}");
    }
}

/// Each member is compared with each edge.
#[test]
fn geosearch_in_a_polygon_of_many_edges() {
    const MEMBERS: usize = 3000;
    const EDGES: usize = 1000;
    let mut bench = PayloadBench::new();
    let places: Vec<[String; 3]> = (0..MEMBERS)
        .map(|at| {
            let x = at * 7919 % MEMBERS;
            [x, at].map(|place| format!("{:.4}", place as f64 / 100.0 - 15.0))
        })
        .enumerate()
        .map(|(at, [x, y])| [x, y, format!("member {at}")])
        .collect();
    let places = places.iter().flatten().map(String::as_bytes);
    bench.say(&[&b"GEOADD"[..], b"g"].into_iter().chain(places).collect::<Vec<_>>());
    let edges: Vec<[String; 2]> = (0..EDGES)
        .map(|at| [format!("{:.3}", at as f64 / 25.0 - 20.0), format!("{}", at % 2 * 20)])
        .collect();
    let count = EDGES.to_string();
    let polygon: Vec<&[u8]> = [&b"BYPOLYGON"[..], count.as_bytes()]
        .into_iter()
        .chain(edges.iter().flatten().map(String::as_bytes))
        .collect();
    for options in [
        &[][..],
        &[&b"ASC"[..], b"WITHDIST", b"WITHCOORD", b"WITHHASH"],
        &[b"DESC", b"COUNT", b"7"],
        &[b"COUNT", b"9", b"ANY"],
    ] {
        let command = [&[&b"GEOSEARCH"[..], b"g"][..], &polygon, options].concat();
        let reply = bench.say(&command);
        assert!(reply.as_elements().is_some_and(|found| found.len() > 6), "{reply:?}");
        assert_eq!(reply, at_once(&mut bench, &command));
    }
    for option in [&[][..], &[&b"STOREDIST"[..]]] {
        let store = |to: &'static [u8]| {
            [&[&b"GEOSEARCHSTORE"[..], to, b"g"][..], &polygon, option].concat()
        };
        let stored = bench.say(&store(b"to"));
        assert!(matches!(stored, Value::Integer(100..)), "{stored:?}");
        assert_eq!(stored, at_once(&mut bench, &store(b"other")));
        let [to, other] = [b"to".as_slice(), b"other"]
            .map(|key| bench.say(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]));
        assert_eq!(to, other);
    }
    bench.say(&[b"SET", b"text", b"x"]);
    let onto = [&[&b"GEOSEARCHSTORE"[..], b"text", b"none"][..], &polygon].concat();
    assert_eq!(bench.say(&onto), Value::Integer(0));
    assert_eq!(bench.say(&[b"EXISTS", b"text"]), Value::Integer(0));
}

/// The log keeps a copy of the name for each command.
#[test]
fn long_names_of_clients_in_the_slow_log() {
    let mut bench = PayloadBench::new();
    bench.say(&[b"CONFIG", b"SET", b"slowlog-log-slower-than", b"0"]);
    bench.say(&[b"CLIENT", b"SETNAME", &[b'n'; 1000]]);
    bench.say(&[b"PING"]);
    let entries = bench.say(&[b"SLOWLOG", b"GET", b"1"]);
    let name = entries.as_elements().and_then(|entries| entries.first()?.as_elements()?.last());
    let name = name.and_then(Value::as_bytes).expect("an entry has a name");
    assert_eq!(name, [&[b'n'; 128][..], b"... (872 more bytes)"].concat());
}

/// A value that is named again is answered again, from wherever it lies; so is what is not there.
#[test]
fn many_answers_of_the_same_values() {
    let mut bench = PayloadBench::new();
    let values = [10, 127, 128, 4000, 20_000, 300_000].map(|len| vec![b'v'; len]);
    for (number, value) in values.iter().enumerate() {
        let name = format!("k{number}");
        bench.say(&[b"SET", name.as_bytes(), value]);
        bench.say(&[b"HSET", b"h", name.as_bytes(), value]);
    }
    // In chunks.
    bench.say(&[b"APPEND", b"k5", b"!"]);
    bench.say(&[b"SADD", b"set", b"no string"]);
    let names = [&b"k0"[..], b"k1", b"none", b"k2", b"k3", b"k4", b"set", b"k5"];
    for get in [&[&b"MGET"[..]][..], &[b"HMGET", b"h"]] {
        let once = bench.say(&[get, &names].concat());
        let once = once.as_elements().expect("an array");
        assert_eq!(once.iter().filter(|value| value.is_null()).count(), 2);
        let command = words(get, &names, 200);
        let again = bench.say(&command);
        let again_each = again.as_elements().expect("an array").iter();
        assert!(again_each.eq(once.iter().cycle().take(200 * once.len())));
        assert!(at_once(&mut bench, &command) == again);
    }
}
