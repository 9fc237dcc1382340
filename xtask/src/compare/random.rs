//! Random commands on the same few keys of both servers: replies must be the same, what subscribers
//! are told of keys, and the keys after some of them. A server of the other make follows each, and
//! must have the same keys as well.
//!
//! Batches differ in how they are carried out: with RESP2 or RESP3, one by one, in a transaction or
//! from a script, on small values or on such as are past every limit of the compact encodings.

use std::collections::{BTreeMap, BTreeSet};

use bobbin_testkit::ReplyFrame;
use bobbin_testkit::random::TestRandom;

use super::grammar::{self, ComparedCommand};
use super::{Difference, Pair, Wanted, shown, text};

/// Sends as many commands as are wanted.
pub(super) fn compare(pair: &mut Pair, wanted: &Wanted) -> Result<Vec<Difference>, String> {
    let [docs, _] = pair.say("COMMAND DOCS")?;
    let is_asked = |row: &ComparedCommand| {
        let container = row.name.split(' ').next().unwrap_or_default();
        wanted.has(&row.name)
            || !wanted.names.is_empty() && wanted.has(container)
            || wanted.names.iter().any(|name| name.eq_ignore_ascii_case(&row.group))
    };
    let rows: Vec<_> = grammar::rows(&docs)
        .into_iter()
        .filter(|row| is_asked(row) && !is_excluded(&row.name))
        .collect();
    pair.follow();
    let mut random = TestRandom::new(wanted.seed);
    let mut found: Vec<Difference> = Vec::new();
    let mut seen: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    let mut sent = 0;
    while sent < wanted.commands && !rows.is_empty() {
        let batch = Batch::new(&rows, &mut random);
        sent += batch.commands.len();
        let Some(mut difference) = play(pair, &batch)? else { continue };
        // What time had a hand in does not come again.
        match play(pair, &batch)? {
            Some(again) if again.what == difference.what => difference = again,
            _ => continue,
        }
        let class = |text: &str| {
            let digits = |letter: char| if letter.is_ascii_digit() { '0' } else { letter };
            text.chars().take(60).map(digits).collect::<String>()
        };
        let key = (difference.what.clone(), class(&difference.valkey), class(&difference.bobbin));
        let times = seen.entry(key).or_insert(0);
        *times += 1;
        if *times == 1 {
            found.push(difference);
        }
    }
    Ok(found)
}

/// A command that both can carry out in the same way.
fn command(row: &ComparedCommand, random: &mut TestRandom) -> Vec<Vec<u8>> {
    let mut words = row.command(random);
    for word in words.iter_mut().skip(1) {
        // A time that both servers have.
        if row.name == "XADD" && word == b"*" {
            *word = b"5-*".to_vec();
        }
        // Indexes of which Valkey takes the low half.
        if row.name == "LSET" && word.len() >= "4294967296".len() {
            *word = b"-100000".to_vec();
        }
        // The user that both connections are.
        if row.name.starts_with("ACL ") && word == b"default" {
            *word = b"x".to_vec();
        }
    }
    // A time that is over before the next command.
    if row.name.contains("PEX") || row.name.starts_with("PSET") || words.contains(&b"PX".to_vec()) {
        let is_short = |word: &&mut Vec<u8>| word.len() < 3 && word.first() != Some(&b'-');
        let times = words.iter_mut().skip(2).filter(is_short);
        times.filter(|word| word.iter().all(u8::is_ascii_digit)).for_each(|word| {
            *word = b"100000".to_vec();
        });
    }
    // A cursor of its own making finds what the table's layout decides.
    let cursor = if row.name == "SCAN" { 1 } else { 2 };
    if row.name.ends_with("SCAN") && words.len() > cursor && words[cursor].len() > 1 {
        words[cursor] = b"0".to_vec();
    }
    // Valkey takes a key of such a name for the word.
    let is_word =
        |word: &Vec<u8>| [&b"FIELDS"[..], b"FNX", b"FXX", b"NX", b"XX"].contains(&&**word);
    if row.name.starts_with('H') && words.get(1).is_some_and(is_word) {
        words[1] = b"hash".to_vec();
    }
    // A key that is not there and will not be has changed for Valkey.
    if row.name == "MSETEX" {
        let is_past = |word: &&mut Vec<u8>| matches!(&word[..], b"1" | b"1900000000");
        words.iter_mut().skip(4).filter(is_past).for_each(|word| {
            *word = b"1900000000000".to_vec();
        });
    }
    words
}

/// A few commands, and how they are carried out.
struct Batch {
    commands: Vec<Vec<Vec<u8>>>,
    manner: Manner,
    /// 2 or 3, of RESP.
    protocol: usize,
    /// No value is in a compact encoding.
    is_spread: bool,
    /// Each server takes over the values of the other in the end, by DUMP and RESTORE.
    exchanges: bool,
}

#[derive(Clone, Copy)]
enum Manner {
    OneByOne,
    Transaction,
    Script,
}

impl Batch {
    fn new(rows: &[ComparedCommand], random: &mut TestRandom) -> Self {
        let count = 1 + random.below(BATCH_MAX);
        let mut command = || command(&rows[random.below(rows.len())], random);
        let commands = (0..count).map(|_| command()).collect();
        let manner = match random.below(4) {
            0 => Manner::Script,
            1 => Manner::Transaction,
            _ => Manner::OneByOne,
        };
        let protocol = 2 + random.below(2);
        let is_spread = random.below(2) == 0;
        Self { commands, manner, protocol, is_spread, exchanges: random.below(4) == 0 }
    }

    /// What comes before its first command.
    fn preparation(&self) -> Vec<String> {
        let protocol = format!("HELLO {}", self.protocol);
        let lines = ["RESET", &protocol, self.limits()].into_iter().chain(FILL);
        lines.map(str::to_owned).collect()
    }

    fn limits(&self) -> &'static str {
        if self.is_spread { SPREAD } else { COMPACT }
    }

    /// What shows a difference at a command.
    fn script(&self, at: usize) -> String {
        let manner = match self.manner {
            Manner::OneByOne => "one by one",
            Manner::Transaction => "in MULTI",
            Manner::Script => "by EVAL",
        };
        let values = if self.is_spread { "spread" } else { "compact" };
        let head = format!("RESP{}, {values}, {manner}:", self.protocol);
        let commands = self.commands[..=at].iter().map(|command| shown(command));
        std::iter::once(head).chain(commands).collect::<Vec<_>>().join("\n  ")
    }
}

/// Plays the commands on the same keys; the first difference.
fn play(pair: &mut Pair, batch: &Batch) -> Result<Option<Difference>, String> {
    pair.say_to_replicas(batch.limits())?;
    pair.fill(&batch.preparation())?;
    pair.events()?;
    // COMPAT.md names the lookups that count differently.
    let mut counts_keys = !batch.commands.iter().any(|command| names_something_twice(command));
    for (at, command) in batch.commands.iter().enumerate() {
        let name = String::from_utf8_lossy(&command[0]).into_owned();
        let replies = match batch.manner {
            _ if BLOCKING.contains(&name.as_str()) => in_transaction(pair, command)?,
            Manner::OneByOne => pair.call(command)?,
            Manner::Transaction => in_transaction(pair, command)?,
            Manner::Script => pair.call(&by_script(command, batch.protocol))?,
        };
        counts_keys &= !replies.iter().any(has_error);
        // How much a step of a scan finds is the server's choice.
        let is_part = |reply: &ReplyFrame| {
            name.ends_with("SCAN") && reply.items().first().is_some_and(|next| next.text() != "0")
        };
        if replies.iter().any(is_part) {
            continue;
        }
        let is_unordered = UNORDERED.contains(&name.as_str())
            // What weighs the same comes in the order of the table, or in any.
            || name.starts_with("SORT") && command.contains(&b"BY".to_vec())
            // Lua's tables have an order of their own.
            || matches!(batch.manner, Manner::Script) && name == "LCS";
        let [valkey, bobbin] = replies.map(|reply| comparable(&name, is_unordered, reply));
        if valkey != bobbin {
            let what = format!("random {}", shown(&command[..named(command)]));
            return Ok(Some(Difference { what, how: batch.script(at), valkey, bobbin }));
        }
    }
    let [valkey, bobbin] = pair.events()?.map(|events| events.join(", "));
    if valkey != bobbin {
        let how = batch.script(batch.commands.len() - 1);
        return Ok(Some(Difference { what: "random events".to_owned(), how, valkey, bobbin }));
    }
    let [valkey, bobbin] = counted(pair, counts_keys)?;
    if valkey != bobbin {
        let how = batch.script(batch.commands.len() - 1);
        return Ok(Some(Difference { what: "random counters".to_owned(), how, valkey, bobbin }));
    }
    let (what, [valkey, bobbin]) = pair.data()?;
    if valkey != bobbin {
        let how = batch.script(batch.commands.len() - 1);
        return Ok(Some(Difference { what: format!("random {what}"), how, valkey, bobbin }));
    }
    let mut digests = [valkey, bobbin];
    if batch.exchanges {
        exchange(pair)?;
        let exchanged = pair.say("DEBUG DIGEST")?.map(|reply| text(&reply));
        if exchanged.iter().any(|digest| *digest != digests[0]) {
            digests = exchanged.map(|digest| format!("{digest}, before {}", digests[0]));
            digests[0].push_str(" with values of the other");
        }
    }
    let [valkey, bobbin] = digests;
    let what = "random DIGEST".to_owned();
    let how = batch.script(batch.commands.len() - 1);
    Ok((valkey != bobbin).then_some(Difference { what, how, valkey, bobbin }))
}

/// Whether it is an error, or the reply of EXEC to a command that failed.
fn has_error(reply: &ReplyFrame) -> bool {
    reply.is_error() || reply.items().iter().any(ReplyFrame::is_error)
}

fn names_something_twice(command: &[Vec<u8>]) -> bool {
    (1..command.len()).any(|at| command[at + 1..].contains(&command[at]))
}

/// What INFO counts since the batch began, if that differs: calls, errors, changes and, if it
/// `counts_keys`, keys that were found or not.
fn counted(pair: &mut Pair, counts_keys: bool) -> Result<[String; 2], String> {
    let replies = pair.say("INFO stats persistence commandstats errorstats")?;
    let [valkey, bobbin] = replies.map(|reply| {
        let text = reply.text();
        let starts = |line: &str, starts: &[&str]| starts.iter().any(|it| line.starts_with(it));
        let is_counted = |line: &&str| {
            let keys = counts_keys && line.starts_with("keyspace_");
            (keys || starts(line, &COUNTED)) && !starts(line, &NOT_COUNTED)
        };
        let without_times = |line: &str| {
            let is_time = |field: &&str| field.contains("usec");
            line.split(',').filter(|field| !is_time(field)).collect::<Vec<_>>().join(",")
        };
        text.lines().filter(is_counted).map(without_times).collect::<BTreeSet<_>>()
    });
    let only = |one: &BTreeSet<String>, other| {
        one.difference(other).cloned().collect::<Vec<_>>().join(" ")
    };
    Ok([only(&valkey, &bobbin), only(&bobbin, &valkey)])
}

/// What a command answers in a transaction of its own.
fn in_transaction(pair: &mut Pair, command: &[Vec<u8>]) -> Result<[ReplyFrame; 2], String> {
    pair.say("MULTI")?;
    let queued = pair.call(command)?;
    let replies = pair.say("EXEC")?;
    Ok(if queued.iter().any(ReplyFrame::is_error) { queued } else { replies })
}

/// The command as one that a script calls.
fn by_script(command: &[Vec<u8>], protocol: usize) -> Vec<Vec<u8>> {
    let text = format!("redis.setresp({protocol}) return redis.call(unpack(ARGV))");
    let head = [b"EVAL".to_vec(), text.into_bytes(), b"0".to_vec()];
    head.into_iter().chain(command.iter().cloned()).collect()
}

/// Gives each server the values of the other.
fn exchange(pair: &mut Pair) -> Result<(), String> {
    for key in grammar::KEYS {
        let [expires, _] = pair.say(&format!("PTTL {key}"))?;
        let time_ms: &[u8] = match expires.as_integer() {
            Some(1..) => b"100000000",
            _ => b"0",
        };
        let payloads = pair.say(&format!("DUMP {key}"))?;
        let [Some(valkey), Some(bobbin)] = [0, 1].map(|side| payloads[side].bytes()) else {
            continue;
        };
        let restore = |payload: &[u8]| {
            [b"RESTORE", key.as_bytes(), time_ms, payload, b"REPLACE"].map(<[u8]>::to_vec)
        };
        let replies = pair.call_each([&restore(bobbin), &restore(valkey)])?;
        if let Some(refused) = replies.iter().find(|reply| reply.is_error()) {
            return Err(format!("RESTORE of {key} with the other's payload: {}", text(refused)));
        }
    }
    Ok(())
}

/// How many words name a command.
fn named(command: &[Vec<u8>]) -> usize {
    let is_container = |name: &[u8]| CONTAINERS.iter().any(|it| it.as_bytes() == name);
    if command.len() > 1 && is_container(&command[0]) { 2 } else { 1 }
}

/// What of a reply is the same on both.
fn comparable(name: &str, is_unordered: bool, mut reply: ReplyFrame) -> String {
    if reply.is_error() {
        return text(&reply);
    }
    if ANY_ANSWER.contains(&name) {
        return "(an answer)".to_owned();
    }
    if is_unordered {
        reply.sort_unordered();
    }
    text(&reply)
}

fn is_excluded(name: &str) -> bool {
    let container = name.split(' ').next().unwrap_or_default();
    name.ends_with(" HELP") || EXCLUDED.contains(&name) || EXCLUDED.contains(&container)
}

const COUNTED: [&str; 5] = [
    "cmdstat_",
    "errorstat_",
    "total_error_replies:",
    "unexpected_error_replies:",
    "rdb_changes_since_last_save:",
];
/// Replicas send the one; Valkey's scripts the other, when all are forgotten.
const NOT_COUNTED: [&str; 2] = ["cmdstat_replconf:", "cmdstat_config|get:"];
const BATCH_MAX: usize = 6;
const FILL: [&str; 23] = [
    "ACL DELUSER x v 7 a f -1 1.5 string nosuch",
    "CONFIG RESETSTAT",
    "FLUSHALL",
    "FUNCTION FLUSH",
    "SET string value",
    "SET number 42",
    "RPUSH list a b c 12 a",
    "SADD set a b c",
    "SADD numbers 1 2 3 12",
    "HSET hash f 1 g x h 2.5",
    "HPEXPIRE hash 100000000 FIELDS 1 h",
    "GEOADD sorted 13.361389 38.115556 a 15.087269 37.502669 b 2.35 48.85 c",
    "XADD stream 1-1 f v",
    "XADD stream 2-1 f v g w",
    "XADD stream 3-1 x y",
    "XGROUP CREATE stream g 0",
    "XGROUP CREATE stream g2 $",
    "XREADGROUP GROUP g c COUNT 2 STREAMS stream >",
    "SETBIT bits 7 1",
    "SETBIT bits 100 1",
    "PFADD hll a b c",
    "SET other x EX 100000",
    "SCRIPT FLUSH",
];
const COMPACT: &str = "CONFIG SET hash-max-listpack-entries 512 set-max-listpack-entries 128 \
    set-max-intset-entries 512 zset-max-listpack-entries 128 list-max-listpack-size -2 \
    stream-node-max-entries 100 hll-sparse-max-bytes 3000 notify-keyspace-events KEA";
const SPREAD: &str = "CONFIG SET hash-max-listpack-entries 0 set-max-listpack-entries 0 \
    set-max-intset-entries 0 zset-max-listpack-entries 0 list-max-listpack-size 1 \
    stream-node-max-entries 1 hll-sparse-max-bytes 1 notify-keyspace-events KEA";
const BLOCKING: [&str; 14] = [
    "BLPOP",
    "BRPOP",
    "BLMOVE",
    "BLMPOP",
    "BRPOPLPUSH",
    "BZPOPMIN",
    "BZPOPMAX",
    "BZMPOP",
    "XREAD",
    "XREADGROUP",
    "WAIT",
    "WAITAOF",
    "CLIENT",
    "CLUSTERSCAN",
];
const CONTAINERS: [&str; 18] = [
    "XGROUP",
    "XINFO",
    "OBJECT",
    "MEMORY",
    "ACL",
    "CLIENT",
    "CONFIG",
    "COMMAND",
    "SCRIPT",
    "FUNCTION",
    "LATENCY",
    "SLOWLOG",
    "COMMANDLOG",
    "PUBSUB",
    "CLUSTER",
    "MODULE",
    "DEBUG",
    "SENTINEL",
];
/// Their order is the server's choice.
const UNORDERED: [&str; 16] = [
    "SMEMBERS", "SINTER", "SUNION", "SDIFF", "HGETALL", "HKEYS", "HVALS", "KEYS", "SCAN", "SSCAN",
    "HSCAN", "ZSCAN", "ACL", "COMMAND", "CONFIG", "PUBSUB",
];
/// Chance, the clock or memory decides.
const ANY_ANSWER: [&str; 30] = [
    "EXPIRETIME",
    "PEXPIRETIME",
    "HEXPIRETIME",
    "HPEXPIRETIME",
    "SRANDMEMBER",
    "SPOP",
    "HRANDFIELD",
    "ZRANDMEMBER",
    "RANDOMKEY",
    "TTL",
    "PTTL",
    "HTTL",
    "HPTTL",
    "TIME",
    "OBJECT",
    "MEMORY",
    "INFO",
    "LATENCY",
    "SLOWLOG",
    "COMMANDLOG",
    "CLIENT",
    "LASTSAVE",
    "LOLWUT",
    "ROLE",
    "XPENDING",
    "XINFO",
    "COMMAND",
    "SCAN",
    "DUMP",
    "ACL",
];
/// They end the conversation or what others do, answer with none or several replies, need files, or
/// take seconds.
const EXCLUDED: [&str; 44] = [
    "PFSELFTEST",
    "SCRIPT DEBUG",
    "SHUTDOWN",
    "MONITOR",
    "SYNC",
    "PSYNC",
    "REPLCONF",
    "REPLICAOF",
    "SLAVEOF",
    "FAILOVER",
    "QUIT",
    "SUBSCRIBE",
    "PSUBSCRIBE",
    "SSUBSCRIBE",
    "UNSUBSCRIBE",
    "PUNSUBSCRIBE",
    "SUNSUBSCRIBE",
    "SPOP",
    "HELLO",
    "AUTH",
    "MIGRATE",
    "BGSAVE",
    "BGREWRITEAOF",
    "SAVE",
    "CONFIG SET",
    "CONFIG REWRITE",
    "CONFIG RESETSTAT",
    "CLIENT PAUSE",
    "CLIENT KILL",
    "CLIENT REPLY",
    "CLIENT NO-EVICT",
    "CLIENT TRACKING",
    "DEBUG",
    "MODULE",
    "ACL SAVE",
    "ACL LOAD",
    "MULTI",
    "EXEC",
    "DISCARD",
    "WATCH",
    "CLUSTER",
    "SENTINEL",
    "SWAPDB",
    "CLUSTERSCAN",
];
