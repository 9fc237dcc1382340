//! Commands that take long do the same alone, in a script and in a transaction, though these pause
//! in their midst.

use crate::config::Config;
use crate::embedded::{Embedded, EmbeddedSession};

use super::process::SimulatedProcess;
use super::ticks;
use crate::base::random::Random;

struct Keys {
    embedded: Embedded,
    session: EmbeddedSession,
    /// How often a long command was left and gone on with.
    pauses: usize,
}

impl Keys {
    fn new() -> Self {
        ticks::begin();
        let mut embedded = Embedded::new(Config::new(), 1).expect("it starts");
        // What is answered of idle times must not depend on how long the test takes.
        embedded.set_time(1_000_000);
        embedded.log();
        let session = embedded.connect();
        Self { embedded, session, pauses: 0 }
    }

    /// Puts collections into a database whose commands take long.
    fn fill(&mut self, database: &str) {
        self.ask(&["SELECT", database]);
        for at in 0..6000 {
            let member = format!("member:{at}");
            let score = (at * 7919 % 6007).to_string();
            self.ask(&["SADD", "set", &member]);
            self.ask(&["SADD", "numbers", &score]);
            self.ask(&["RPUSH", "list", &member]);
            self.ask(&["HSET", "hash", &member, &score]);
            self.ask(&["ZADD", "sorted", &score, &member]);
            self.ask(&["XADD", "stream", &format!("1-{}", at + 1), "f", &member]);
            self.ask(&["SET", &format!("weight_{score}"), &member]);
            let (longitude, latitude) = ((at % 340 - 170).to_string(), (at % 160 - 80).to_string());
            self.ask(&["GEOADD", "geo", &longitude, &latitude, &member]);
        }
        for (key, byte) in [("bits", "5"), ("more_bits", "x")] {
            self.ask(&["SETRANGE", key, "0", &byte.repeat(700_000)]);
            self.ask(&["SETRANGE", key, "2200000", byte]);
        }
        for at in 0..100 {
            for dense in ["", "dense"] {
                let key = format!("counted{at}{dense}");
                self.ask(&["PFADD", &key, &at.to_string(), dense]);
                if !dense.is_empty() {
                    self.ask(&["PFDEBUG", "TODENSE", &key]);
                }
            }
        }
        self.ask(&["SETRANGE", "zeros", "2000000", "x"]);
        self.ask(&["XGROUP", "CREATE", "stream", "group", "0"]);
    }

    fn ask(&mut self, words: &[&str]) -> Vec<u8> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        let mut replies = self.embedded.feed(&mut self.session, request.as_bytes()).to_vec();
        while self.session.is_working() {
            self.pauses += 1;
            replies.extend(self.embedded.step(&mut self.session));
        }
        replies
    }

    fn dump(&mut self, database: &str) -> Vec<Vec<u8>> {
        self.ask(&["SELECT", database]);
        VALUES.iter().map(|key| self.ask(&["DUMP", key])).collect()
    }
}

const VALUES: &[&str] = &[
    "set",
    "list",
    "other",
    "sorted",
    "stored",
    "sorted_numbers",
    "ranged",
    "summed",
    "near",
    "bits",
    "joined",
    "stream",
    "merged",
    "appended",
];

/// Commands that take long: what they reply and what they leave.
const LONG: &[&str] = &[
    "SMEMBERS set",
    "SUNION set numbers",
    "SINTERCARD 2 set numbers",
    "SUNIONSTORE stored set numbers",
    "SDIFFSTORE stored set numbers",
    "SORT numbers",
    "SORT set ALPHA DESC LIMIT 10 5000",
    "SORT numbers BY weight_* ALPHA STORE sorted_numbers",
    "SORT list GET weight_* GET # BY nosort",
    "LRANGE list 0 -1",
    "LPOS list member:5990",
    "LPOS list member:5990 RANK -1 COUNT 0",
    "LPOS list none COUNT 2 MAXLEN 5500",
    "LINSERT list AFTER member:5990 member:5990",
    "LINSERT list BEFORE none member",
    "LPOS list member:5990 RANK -2",
    "LREM list 0 member:5999",
    "LTRIM list 500 -1",
    "SORT numbers STORE other",
    "LMPOP 2 nothing other LEFT COUNT 5000",
    "RPOP list 5000",
    "HGETALL hash",
    "HVALS hash",
    "HSCAN hash 0 COUNT 5000",
    "ZRANGE sorted 0 -1 WITHSCORES",
    "ZRANGESTORE ranged sorted 0 -1",
    "ZUNIONSTORE summed 2 sorted set WEIGHTS 2 1",
    "ZRANDMEMBER sorted 6000",
    "ZRANDMEMBER sorted 6000 WITHSCORES",
    "ZREMRANGEBYRANK sorted 0 999",
    "ZPOPMAX sorted 4500",
    "GEOSEARCH geo FROMLONLAT 1 1 BYRADIUS 21000 km WITHDIST WITHCOORD DESC",
    "GEOSEARCHSTORE near geo FROMLONLAT 1 1 BYBOX 9000 9000 km STOREDIST",
    "GEORADIUS geo 1 1 21000 km COUNT 5000 STORE near",
    "ZMPOP 2 nothing summed MIN COUNT 5000",
    "ZPOPMIN ranged 4500",
    "XRANGE stream - +",
    "XREADGROUP GROUP group consumer COUNT 5000 STREAMS stream >",
    "XPENDING stream group",
    "XPENDING stream group - + 5000",
    "XPENDING stream group IDLE 0 1-7 + 5000 consumer",
    "XPENDING stream group IDLE 9999999 - + 1",
    "XINFO STREAM stream FULL COUNT 0",
    "XINFO STREAM stream FULL COUNT 70",
    "XINFO STREAM stream FULL",
    "XREAD COUNT 5000 STREAMS stream 0",
    "XDEL stream 1-10 1-20",
    "XAUTOCLAIM stream group second 0 0 COUNT 6000",
    "XAUTOCLAIM stream group third 0 1-7 COUNT 5000 JUSTID",
    "XCLAIM stream group fourth 0 IDS RETRYCOUNT 3 LASTID 1-5500",
    "XCLAIM stream group fifth 0 IDS FORCE JUSTID IDLE 1000",
    "XACK stream group IDS",
    "XGROUP SETID stream group 0",
    "XREADGROUP GROUP group sixth COUNT 5000 STREAMS stream >",
    "XGROUP DELCONSUMER stream group sixth",
    "SPOP set 6000",
    "SMISMEMBER set MEMBERS",
    "ZMSCORE sorted MEMBERS",
    "GEOPOS geo MEMBERS",
    "GEOHASH geo MEMBERS",
    "PFCOUNT COUNTED",
    "PFMERGE merged COUNTED",
    "BITCOUNT bits",
    "BITCOUNT bits 7 -9 BIT",
    "BITPOS zeros 1",
    "BITPOS zeros 1 9 -1 BIT",
    "BITOP XOR bits bits more_bits",
    "BITOP NOT joined bits",
    "BITOP ANDOR joined bits more_bits joined",
    "DUMP bits",
    "KEYS *",
    "SCAN 0 COUNT 5000",
    "SETRANGE bits 600000 LONG",
    "APPEND bits LONG",
    "APPEND appended x",
    "APPEND appended LONG",
    // What is no number cannot be sorted as one.
    "SORT hash",
    "SORT numbers BY weight_*",
];

/// Those of them that are done at once all the same, or in so few slices that none need be late.
const AT_ONCE: &[&str] = &[
    "LTRIM list 500 -1",
    "LPOS list member:5990 RANK -2",
    "ZREMRANGEBYRANK sorted 0 999",
    "GEOSEARCH geo FROMLONLAT 1 1 BYRADIUS 21000 km WITHDIST WITHCOORD DESC",
    "GEOSEARCHSTORE near geo FROMLONLAT 1 1 BYBOX 9000 9000 km STOREDIST",
    "GEORADIUS geo 1 1 21000 km COUNT 5000 STORE near",
    "XPENDING stream group",
    "XINFO STREAM stream FULL COUNT 70",
    "XINFO STREAM stream FULL",
    "XDEL stream 1-10 1-20",
    "XGROUP SETID stream group 0",
    "APPEND appended x",
    "SORT hash",
    // Another thread does it, or none if all such threads are busy; that is not simulated.
    "DUMP bits",
];

/// How a unit of several commands runs one of them; the reply of that one.
type Form = fn(&mut Keys, &[&str]) -> Vec<u8>;

fn in_script(keys: &mut Keys, words: &[&str]) -> Vec<u8> {
    let mut script = vec!["EVAL", "return redis.pcall(unpack(ARGV))", "0"];
    script.extend(words);
    keys.ask(&script)
}

fn in_transaction(keys: &mut Keys, words: &[&str]) -> Vec<u8> {
    keys.ask(&["MULTI"]);
    keys.ask(words);
    keys.ask(&["PING"]);
    let reply = keys.ask(&["EXEC"]);
    let inside = reply.strip_prefix(b"*2\r\n").and_then(|rest| rest.strip_suffix(b"+PONG\r\n"));
    inside.expect("two replies").to_vec()
}

#[test]
fn long_commands_do_in_a_script_or_a_transaction_what_they_do_alone() {
    let mut keys = Keys::new();
    for database in ["0", "1", "2"] {
        keys.fill(database);
    }
    // From now on half of what looks at the counter finds that it is late.
    ticks::jump(Some((Random::new(7), 2, 1_000)));
    keys.embedded.work_in_slices();
    let ids: Vec<String> = (1..=4500).map(|at| format!("1-{at}")).collect();
    let members: Vec<String> = (1500..6000).map(|at| format!("member:{at}")).collect();
    let counted: Vec<String> = (0..110).map(|at| format!("counted{at}")).collect();
    let counted: Vec<String> =
        counted.iter().flat_map(|key| [key.clone(), format!("{key}dense")]).collect();
    let long = vec!["long".repeat(150_000)];
    let mut at_once = Vec::new();
    for command in LONG {
        let mut words: Vec<&str> = command.split(' ').collect();
        for (name, many) in
            [("IDS", &ids), ("MEMBERS", &members), ("COUNTED", &counted), ("LONG", &long)]
        {
            if let Some(at) = words.iter().position(|word| *word == name) {
                words.splice(at..=at, many.iter().map(String::as_str));
            }
        }
        keys.ask(&["SELECT", "0"]);
        let pauses = keys.pauses;
        let alone = keys.ask(&words);
        assert!(!alone.is_empty(), "{command}");
        if keys.pauses == pauses {
            at_once.push(*command);
        }
        for (database, form) in [("1", in_script as Form), ("2", in_transaction)] {
            keys.ask(&["SELECT", database]);
            let inside = form(&mut keys, &words);
            assert!(inside == alone, "{command}: {} bytes, {}", inside.len(), alone.len());
            let is_same = keys.dump("0") == keys.dump(database);
            assert!(is_same, "{command} leaves something else in {database}");
        }
    }
    assert!(keys.pauses > LONG.len(), "only {} pauses", keys.pauses);
    at_once.retain(|command| !AT_ONCE.contains(command));
    assert_eq!(at_once, [""; 0], "done at once");
}

/// Of very many keys some are prefetched at a time, which must change nothing: a key twice, one
/// that is not there, one of another type, in any database, alone or in a transaction.
#[test]
fn commands_with_very_many_keys_do_what_those_with_few_do() {
    let mut keys = Keys::new();
    for (database, form) in [("0", Keys::ask as Form), ("5", Keys::ask), ("0", in_transaction)] {
        keys.ask(&["FLUSHALL"]);
        keys.ask(&["SELECT", database]);
        let names: Vec<String> = (0..4000).map(|at| format!("key:{}", at % 3900)).collect();
        let values: Vec<String> = (0..4000).map(|at| format!("{at:06}")).collect();
        let mut set = vec!["MSET"];
        for (name, value) in names.iter().zip(&values) {
            set.extend([&**name, value]);
        }
        assert_eq!(form(&mut keys, &set), b"+OK\r\n");
        keys.ask(&["DEL", "key:7", "key:8"]);
        keys.ask(&["SADD", "key:8", "member"]);
        let all = |command| {
            let mut words = vec![command];
            words.extend(names.iter().map(String::as_str));
            words
        };
        let mut wanted = b"*4000\r\n".to_vec();
        for at in 0..4000 {
            let (key, last) = (at % 3900, if at < 100 { at + 3900 } else { at });
            match key {
                7 | 8 => wanted.extend(b"$-1\r\n"),
                _ => wanted.extend(format!("$6\r\n{last:06}\r\n").bytes()),
            }
        }
        assert!(form(&mut keys, &all("MGET")) == wanted, "MGET in {database}");
        for (command, count) in
            [("EXISTS", 3998), ("TOUCH", 3998), ("UNLINK", 3899), ("DEL", 0), ("EXISTS", 0)]
        {
            let reply = String::from_utf8(form(&mut keys, &all(command))).expect("text");
            assert_eq!(reply, format!(":{count}\r\n"), "{command} in {database}");
        }
    }
}

/// The packed form has no -0, so the set must not go through it.
#[test]
fn a_long_range_is_stored_with_a_score_of_minus_zero() {
    let mut process = SimulatedProcess::new(1);
    let client = process.connect(0);
    let members: Vec<_> = (1..=5000).map(|member| format!("{member} {member}")).collect();
    process.ask(&client, &format!("ZADD set {}", members.join(" ")));
    process.ask(&client, "ZADD set -0 first");
    assert_eq!(process.ask(&client, "ZSCORE set first"), "$2\r\n-0\r\n");
    client.send(b"ZRANGESTORE copy set 0 -1\r\n");
    process.turns(300);
    assert_eq!(process.heard(&client), ":5001\r\n");
    assert_eq!(process.ask(&client, "ZSCORE copy first"), "$2\r\n-0\r\n");
}
