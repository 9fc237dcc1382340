//! What is left after a kill: under a load of all types, as transactions, scripts and functions,
//! with snapshots and rewrites going on, the server is killed at any moment and started again.
//!
//! With `always` whatever was acknowledged, or seen by others, is there; with `everysec` whatever
//! was more than a second before the last of it, however slow the disk is. Units are whole or
//! absent, and what is there is a state that existed: nothing of what a unit knew of is missing
//! beside it.
//!
//! `BOBBIN_KILLS` says how often each policy is tried, `BOBBIN_KILL_POLICY` which one alone.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bobbin_testkit::disk::Folder;
use bobbin_testkit::random::{TestRandom, seed};
use bobbin_testkit::{TestConnection, TestServer};

const CLIENTS: usize = 6;
const ACCOUNTS: usize = 20;
/// Kills after which a server begins with nothing again: what there is shall not take long to load.
const KILLS_MAX: usize = 25;
/// What `everysec` may lose: a second, and what it takes to see that the disk takes longer.
const LOSS_MAX: Duration = Duration::from_millis(1_500);

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_was_acknowledged_survives_being_killed() {
    let variable = |name| std::env::var(name).ok();
    let kills = variable("BOBBIN_KILLS").and_then(|text| text.parse().ok()).unwrap_or(8);
    let (seed, only) = (seed(), variable("BOBBIN_KILL_POLICY"));
    for policy in ["always", "everysec"] {
        if only.as_ref().is_some_and(|only| only != policy) {
            continue;
        }
        let (mut random, mut done, mut units) = (TestRandom::new(seed), 0, 0);
        while done < kills {
            let threads = ["1", "4"][random.below(2)];
            let mut life = Life::new(policy, threads, format!("seed {seed}"));
            for _ in 0..KILLS_MAX.min(kills - done) {
                units += life.round(&mut random);
                done += 1;
            }
        }
        println!("{policy}: killed {done} times, {units} units were acknowledged");
    }
}

/// A data set from its beginning on, over all kills.
struct Life {
    policy: &'static str,
    threads: &'static str,
    folder: Folder,
    ledgers: Vec<Ledger>,
    kills: usize,
    what: String,
}

impl Life {
    fn new(policy: &'static str, threads: &'static str, what: String) -> Self {
        let what = format!("{what}, {policy}, {threads} threads");
        let ledgers = (0..CLIENTS).map(Ledger::new).collect();
        Self { policy, threads, folder: Folder::new(), ledgers, kills: 0, what }
    }

    /// Starts the server, looks at what is there, works and kills; how many units were
    /// acknowledged.
    fn round(&mut self, random: &mut TestRandom) -> usize {
        let mut server = self.start();
        let mut client = server.connect();
        self.check(&mut client);
        self.prepare(&mut client);
        let stop = AtomicBool::new(false);
        let after_ms = match self.policy {
            "everysec" if random.below(3) == 0 => 1_600 + random.below(400),
            _ => 10 + random.below(150),
        };
        let deadline = Instant::now() + Duration::from_millis(after_ms as u64);
        std::thread::scope(|scope| {
            for ledger in &mut self.ledgers {
                let (client, stop) = (server.connect(), &stop);
                let random = TestRandom::new(random.number());
                scope.spawn(move || ledger.write(client, random, stop));
            }
            while Instant::now() < deadline {
                let command = ["BGREWRITEAOF", "BGSAVE", "PING"][random.below(3)];
                let _ = client.call(&[command]);
                std::thread::sleep(Duration::from_millis(random.below(40) as u64));
            }
            assert!(server.kill());
            stop.store(true, Ordering::Relaxed);
        });
        self.killed()
    }

    fn start(&self) -> TestServer {
        let folder = ["--dir", self.folder.text(), "--io-threads", self.threads];
        let log = ["--appendonly", "yes", "--appendfsync", self.policy];
        let base = ["--aof-use-rdb-preamble", ["yes", "no"][self.kills % 2]];
        TestServer::bobbin(&[&folder[..], &log, &base].concat())
    }

    fn prepare(&self, client: &mut TestConnection) {
        // With `always` it was acknowledged, and is there.
        if self.kills == 0 || self.policy != "always" {
            let loaded =
                client.call(&["FUNCTION", "LOAD", "REPLACE", &library()]).expect("answers");
            assert_eq!(loaded.text(), "kills", "{}", self.what);
            for ledger in &self.ledgers {
                // It may be there.
                client.say(&format!("XGROUP CREATE {} group 0 MKSTREAM", ledger.key("stream")));
            }
        }
    }

    fn check(&mut self, client: &mut TestConnection) {
        let what = format!("{}, after {} kills", self.what, self.kills);
        let counts: Vec<u64> =
            self.ledgers.iter_mut().map(|ledger| ledger.check(client, &what)).collect();
        for ledger in &self.ledgers {
            let saw = client.say(&format!("GET {}", ledger.key("saw"))).text();
            let words: Vec<u64> = saw.split(' ').filter_map(|word| word.parse().ok()).collect();
            if let [writer, count] = words[..] {
                let there = counts[writer as usize];
                let number = ledger.number;
                assert!(
                    count <= there,
                    "{what}: {number} saw unit {count} of {writer}, and {there} are there"
                );
            }
        }
        let accounts = (0..ACCOUNTS).map(|number| {
            let balance = client.say(&format!("GET account:{number}"));
            balance.text().parse::<i64>().unwrap_or(0)
        });
        assert_eq!(accounts.sum::<i64>(), 0, "{what}: the accounts");
    }

    /// Notes what has to be there after a kill; how many units were acknowledged.
    fn killed(&mut self) -> usize {
        self.kills += 1;
        let always = self.policy == "always";
        let all = self.ledgers.iter().flat_map(|ledger| ledger.told.iter().chain(&ledger.seen));
        let last = all.map(|&(when, ..)| when).max();
        let is_safe = |when| always || last.is_some_and(|last| last - when > LOSS_MAX);
        let mut least = [0; CLIENTS];
        let mut units = 0;
        for ledger in &mut self.ledgers {
            units += ledger.told.len();
            for (when, writer, count) in ledger.told.drain(..).chain(ledger.seen.drain(..)) {
                if is_safe(when) {
                    least[writer] = least[writer].max(count);
                }
            }
        }
        for (ledger, least) in self.ledgers.iter_mut().zip(least) {
            ledger.least = ledger.least.max(least);
        }
        units
    }
}

/// What a client did and was told. Its n-th unit adds one thing to each of its keys.
struct Ledger {
    number: usize,
    sent: u64,
    /// When each unit of this round was acknowledged, with its client and number.
    told: Vec<(Instant, usize, u64)>,
    /// When each unit of another client was seen in this round, with its client and number.
    seen: Vec<(Instant, usize, u64)>,
    /// How many have to be there.
    least: u64,
}

/// How a unit's commands become one.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Transaction,
    Script,
    Function,
    /// The first ones by a script within a transaction.
    ScriptWithin,
}

impl Ledger {
    const fn new(number: usize) -> Self {
        Self { number, sent: 0, told: Vec::new(), seen: Vec::new(), least: 0 }
    }

    fn key(&self, kind: &str) -> String {
        format!("{kind}:{}", self.number)
    }

    /// Works until the server is gone.
    fn write(&mut self, mut client: TestConnection, mut random: TestRandom, stop: &AtomicBool) {
        let mut last_seen = String::new();
        while !stop.load(Ordering::Relaxed) {
            if random.below(4) == 0 {
                let writer = random.below(CLIENTS);
                let Ok(reply) = client.call(&["GET", &format!("counter:{writer}")]) else { return };
                let count = reply.text().parse().unwrap_or(0);
                self.seen.push((Instant::now(), writer, count));
                last_seen = format!("{writer} {count}");
            }
            let n = self.sent + 1;
            let form = [Form::Transaction, Form::Script, Form::Function, Form::ScriptWithin]
                [random.below(4)];
            let commands = self.unit(n, &last_seen, &mut random);
            let replies = requests(form, &commands);
            self.sent = n;
            if replies.iter().try_for_each(|words| client.send(words)).is_err() {
                return;
            }
            let mut last = None;
            for _ in &replies {
                let Ok(reply) = client.receive() else { return };
                assert!(!reply.is_error(), "{}", reply.text());
                last = Some(reply);
            }
            if matches!(form, Form::Transaction | Form::ScriptWithin) {
                let last = last.expect("there were some");
                let failed = last.items().iter().find(|reply| reply.is_error());
                assert!(!last.items().is_empty() && failed.is_none(), "{failed:?}");
            }
            self.told.push((Instant::now(), self.number, n));
        }
    }

    /// The commands of the n-th unit, each with its key as its second word, or that and its third.
    fn unit(&self, n: u64, saw: &str, random: &mut TestRandom) -> Vec<Vec<String>> {
        let (other, amount) = (random.below(ACCOUNTS), random.below(100));
        let from = format!("account:{}", random.below(ACCOUNTS));
        let line = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let me = self.number;
        let mut commands: Vec<Vec<String>> = [
            format!("INCR counter:{me}"),
            format!("RPUSH list:{me} {n}"),
            format!("SADD set:{me} {n}"),
            format!("HSET hash:{me} {n} value"),
            format!("ZADD zset:{me} {n} {n}"),
            format!("XADD stream:{me} {n}-1 field value"),
            format!("XREADGROUP GROUP group me COUNT 1 STREAMS stream:{me} >"),
            format!("SETBIT bits:{me} {n} 1"),
            format!("SET last:{me} {n} EX 100000"),
            format!("PFADD hll:{me} {n}"),
            format!("APPEND text:{me} x"),
            format!("GEOADD geo:{me} {} 10 {n}", n % 170),
            // Which one it takes is for the server to choose.
            format!("SADD pool:{me} {n} more:{n}"),
            format!("SPOP pool:{me}"),
            format!("RPUSH left:{me} {n}"),
            format!("LMOVE left:{me} right:{me} LEFT RIGHT"),
            format!("HSET fields:{me} {n} value"),
            format!("HPEXPIRE fields:{me} 100000000 FIELDS 1 {n}"),
            format!("SET soon:{me} {n} PX {}", 1 + random.below(20)),
            format!("HSET fleeting:{me} {n} value"),
            format!("HPEXPIRE fleeting:{me} {} FIELDS 1 {n}", 1 + random.below(20)),
            format!("DECRBY {from} {amount}"),
            format!("INCRBY account:{other} {amount}"),
        ]
        .map(line)
        .into();
        commands.push(vec!["SET".into(), self.key("saw"), saw.into()]);
        if n.is_multiple_of(50) {
            commands.push(line(format!("SET large:{me} {}", "x".repeat(80_000))));
        }
        commands
    }

    /// All keys tell of the same units, and of as many as they have to; how many.
    fn check(&mut self, client: &mut TestConnection, what: &str) -> u64 {
        let mut ask = |line: String| client.say(&line);
        let me = self.number;
        let count = ask(format!("GET counter:{me}")).text().parse::<u64>().unwrap_or(0);
        assert!(
            (self.least..=self.sent).contains(&count),
            "{what}: {count} are there of {} to {}",
            self.least,
            self.sent
        );
        for (command, kind) in [
            ("LLEN", "list"),
            ("SCARD", "set"),
            ("HLEN", "hash"),
            ("ZCARD", "zset"),
            ("XLEN", "stream"),
            ("BITCOUNT", "bits"),
            ("STRLEN", "text"),
            ("ZCARD", "geo"),
            ("SCARD", "pool"),
            ("LLEN", "right"),
            ("HLEN", "fields"),
        ] {
            let there = ask(format!("{command} {kind}:{me}")).text();
            assert_eq!(there, count.to_string(), "{what}: {kind}:{me}");
        }
        assert_eq!(ask(format!("EXISTS left:{me}")).text(), "0", "{what}");
        if count > 0 {
            assert_eq!(ask(format!("GET last:{me}")).text(), count.to_string(), "{what}");
            assert_eq!(ask(format!("LINDEX list:{me} -1")).text(), count.to_string(), "{what}");
            let pending = ask(format!("XPENDING stream:{me} group"));
            assert_eq!(pending.items()[0].as_integer(), Some(count as i64), "{what}");
            let large = if count < 50 { "0" } else { "80000" };
            assert_eq!(ask(format!("STRLEN large:{me}")).text(), large, "{what}");
        }
        (self.sent, self.least) = (count, count);
        count
    }
}

/// What is sent to have these commands carried out as one.
fn requests(form: Form, commands: &[Vec<String>]) -> Vec<Vec<String>> {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let by_script = |begin: &[&str], range: Range<usize>| {
        let (mut keys, mut rest) = (Vec::new(), Vec::new());
        for command in &commands[range] {
            keys.extend(command.iter().filter(|word| is_key(word)).cloned());
            rest.push(command.len().to_string());
            rest.extend_from_slice(command);
        }
        let mut request = words(begin);
        request.push(keys.len().to_string());
        request.extend(keys);
        request.extend(rest);
        request
    };
    let all = 0..commands.len();
    match form {
        Form::Script => vec![by_script(&["EVAL", BODY], all)],
        Form::Function => vec![by_script(&["FCALL", "unit"], all)],
        Form::Transaction | Form::ScriptWithin => {
            let mut requests = vec![words(&["MULTI"])];
            let mut alone = all.clone();
            if form == Form::ScriptWithin {
                alone.start = all.len() / 2;
                requests.push(by_script(&["EVAL", BODY], 0..alone.start));
            }
            requests.extend_from_slice(&commands[alone]);
            requests.push(words(&["EXEC"]));
            requests
        }
    }
}

fn is_key(word: &str) -> bool {
    let is_number = |number: &str| number.parse::<usize>().is_ok();
    word.split_once(':').is_some_and(|(kind, number)| kind != "more" && is_number(number))
}

/// Carries out the commands that `ARGV` holds, each behind the number of its words.
const BODY: &str = "
local at = 1
while at <= #ARGV do
    local count = tonumber(ARGV[at])
    redis.call(unpack(ARGV, at + 1, at + count))
    at = at + count + 1
end
return 'done'";

/// The same as a function.
fn library() -> String {
    format!("#!lua name=kills\nredis.register_function('unit', function(KEYS, ARGV) {BODY}\nend)")
}
