//! Random commands on the same few keys of both servers: replies must be the same, and the keys
//! after some of them.

use std::collections::BTreeMap;

use bobbin_testkit::Reply;
use bobbin_testkit::random::Random;

use super::grammar::{self, Row};
use super::{Difference, Pair, Wanted, shown, text};

/// Sends as many commands as are wanted.
pub(super) fn compare(pair: &mut Pair, wanted: &Wanted) -> Result<Vec<Difference>, String> {
    let [docs, _] = pair.say("COMMAND DOCS")?;
    let is_asked = |row: &Row| {
        let container = row.name.split(' ').next().unwrap_or_default();
        wanted.has(&row.name)
            || !wanted.names.is_empty() && wanted.has(container)
            || wanted.names.iter().any(|name| name.eq_ignore_ascii_case(&row.group))
    };
    let rows: Vec<_> = grammar::rows(&docs)
        .into_iter()
        .filter(|row| is_asked(row) && !is_excluded(&row.name))
        .collect();
    let mut random = Random::new(wanted.seed);
    let mut found: Vec<Difference> = Vec::new();
    let mut seen: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    let mut sent = 0;
    while sent < wanted.commands && !rows.is_empty() {
        let count = 1 + random.below(BATCH_MAX);
        let batch: Vec<_> =
            (0..count).map(|_| command(&rows[random.below(rows.len())], &mut random)).collect();
        sent += count;
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
fn command(row: &Row, random: &mut Random) -> Vec<Vec<u8>> {
    let mut words = row.command(random);
    for word in words.iter_mut().skip(1) {
        // A time that both servers have.
        if row.name == "XADD" && word == b"*" {
            *word = b"5-*".to_vec();
        }
        // The user that both connections are.
        if row.name.starts_with("ACL ") && word == b"default" {
            *word = b"x".to_vec();
        }
    }
    words
}

/// Plays the commands on the same keys; the first difference.
fn play(pair: &mut Pair, batch: &[Vec<Vec<u8>>]) -> Result<Option<Difference>, String> {
    pair.fill(&FILL)?;
    for (at, command) in batch.iter().enumerate() {
        let name = String::from_utf8_lossy(&command[0]).into_owned();
        let is_blocking = BLOCKING.contains(&name.as_str());
        if is_blocking {
            pair.say("MULTI")?;
        }
        let mut replies = pair.call(command)?;
        if is_blocking {
            let before = replies;
            replies = pair.say("EXEC")?;
            if before.iter().any(Reply::is_error) {
                replies = before;
            }
        }
        let [valkey, bobbin] = replies.map(|reply| comparable(&name, reply));
        if valkey != bobbin {
            let what = format!("random {}", shown(&command[..named(command)]));
            let how = script(&batch[..=at]);
            return Ok(Some(Difference { what, how, valkey, bobbin }));
        }
    }
    // Valkey counts keys that were given a time long past until a command looks at them.
    pair.say(&format!("EXISTS {}", grammar::KEYS.join(" ")))?;
    let [valkey, bobbin] = pair.say("DEBUG DIGEST")?.map(|reply| text(&reply));
    let (what, how) = ("random DIGEST".to_owned(), script(batch));
    Ok((valkey != bobbin).then_some(Difference { what, how, valkey, bobbin }))
}

fn script(commands: &[Vec<Vec<u8>>]) -> String {
    commands.iter().map(|command| shown(command)).collect::<Vec<_>>().join("\n  ")
}

/// How many words name a command.
fn named(command: &[Vec<u8>]) -> usize {
    let is_container = |name: &[u8]| CONTAINERS.iter().any(|it| it.as_bytes() == name);
    if command.len() > 1 && is_container(&command[0]) { 2 } else { 1 }
}

/// What of a reply is the same on both.
fn comparable(name: &str, mut reply: Reply) -> String {
    if reply.is_error() {
        return text(&reply);
    }
    if ANY_ANSWER.contains(&name) {
        return "(an answer)".to_owned();
    }
    if UNORDERED.contains(&name) {
        reply.sort_unordered();
    }
    text(&reply)
}

fn is_excluded(name: &str) -> bool {
    let container = name.split(' ').next().unwrap_or_default();
    name.ends_with(" HELP") || EXCLUDED.contains(&name) || EXCLUDED.contains(&container)
}

const BATCH_MAX: usize = 6;
const FILL: [&str; 24] = [
    "RESET",
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
    "HSCAN", "ACL", "COMMAND", "CONFIG", "PUBSUB", "SORT",
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
