//! Clients that come, order anything in any state, and go at any moment, on workers that take
//! turns.
//!
//! Whatever they do, two things must hold once all restrictions are lifted. Each client that is
//! still there is answered. And when all have gone, nothing of them is left: no subscription, no
//! key that is watched, tracked or waited for, nothing that is reserved, no client.
//!
//! What is not checked: what they are answered (transcripts and histories do that), and what is on
//! disk ([`super::promises`]).

use bobbin_io::Peer;

use super::process::SimulatedProcess;
use super::{tasks, ticks};
use crate::base::random::Random;
use crate::persistence::aof;

const CLIENTS: usize = 6;
const STEPS: usize = 300;
/// How the counter of ticks jumps: one read of 20 moves it on by up to 2 ms.
const JUMPS: (u32, u32) = (20, 2_000);
/// Elements of a collection: commands on all of them go on in slices.
const ELEMENTS: usize = 4_500;
/// Looks at whether all is quiet, until it is too late.
const LOOKS: usize = 4_000;

/// Commands that take long, or read.
const LONG: &[&str] = &[
    "SMEMBERS one",
    "SUNION one two",
    "SORT one ALPHA LIMIT 0 10",
    "SORT one BY nosort GET weight_*",
    "LRANGE list 0 -1",
    "KEYS *",
    "SCAN 0 COUNT 10000",
    "HGETALL hash",
    "SSCAN one 0 COUNT 5000",
    "ZRANGE sorted 0 -1 WITHSCORES",
    "SRANDMEMBER one 4400",
    "SUNIONSTORE made one two",
    "SORT one ALPHA STORE made",
    "SORT list BY weight_* ALPHA STORE queue",
    "LPOP list 4400",
    "SPOP two 4400",
    "ZUNIONSTORE made 2 one sorted",
    "ZRANGESTORE made sorted 0 -1",
    "LMPOP 2 none list LEFT COUNT 4400",
    "ZPOPMIN sorted 4400",
    "SINTERSTORE made one two",
    "COPY one made REPLACE",
    "GET text",
    "MGET text none one",
    "LRANGE queue 0 -1",
];

/// Commands that change little, often what others wait for.
const SHORT: &[&str] = &[
    "RPUSH queue v",
    "LPUSH other v w",
    "SET text value",
    "SET text value PX 3",
    "DEL made",
    "DEL queue other",
    "UNLINK one",
    "ZADD ranked 1 v",
    "XADD jobs * f v",
    "RENAME made two",
    "PEXPIRE queue 5",
    "SWAPDB 0 1",
    "FLUSHDB",
    "MSET text 1 weight_one:7 2",
    "INCR number",
    "XGROUP DESTROY jobs group",
    "XGROUP CREATE jobs group 0 MKSTREAM",
];

/// Commands that wait.
const WAITING: &[&str] = &[
    "BLPOP queue 0",
    "BRPOP other queue 0.05",
    "BLMOVE queue other LEFT RIGHT 0",
    "BLMOVE other queue LEFT RIGHT 0.02",
    "BLMPOP 0 2 queue other LEFT COUNT 3",
    "BZPOPMIN ranked 0",
    "XREAD BLOCK 0 STREAMS jobs $",
    "XREADGROUP GROUP group me BLOCK 0 STREAMS jobs >",
    "WAIT 1 50",
    "WAITAOF 0 1 50",
];

/// What a client is to the server, and what it listens to.
const STATE: &[&str] = &[
    "MULTI",
    "MULTI",
    "MULTI",
    "EXEC",
    "EXEC",
    "EXEC",
    "DISCARD",
    "WATCH one queue",
    "UNWATCH",
    "SUBSCRIBE channel",
    "PSUBSCRIBE c* __key*",
    "SSUBSCRIBE shard",
    "UNSUBSCRIBE",
    "PUNSUBSCRIBE",
    "CLIENT TRACKING ON",
    "CLIENT TRACKING ON NOLOOP",
    "CLIENT TRACKING ON BCAST PREFIX q",
    "CLIENT TRACKING ON OPTIN",
    "CLIENT CACHING YES",
    "CLIENT TRACKING OFF",
    "CLIENT REPLY OFF",
    "CLIENT REPLY SKIP",
    "CLIENT REPLY ON",
    "HELLO 3",
    "HELLO 3",
    "HELLO 2",
    "SELECT 1",
    "SELECT 0",
    "RESET",
    "CLIENT NO-TOUCH ON",
    "MONITOR",
    "QUIT",
    "AUTH nobody nothing",
];

/// What concerns others. `ID` is some client's number.
const OTHERS: &[&str] = &[
    "PUBLISH channel message",
    "SPUBLISH shard message",
    "CLIENT KILL ID {ID}",
    "CLIENT KILL ID {ID}",
    "CLIENT KILL ID {ID}",
    "CLIENT KILL TYPE pubsub",
    "CLIENT UNBLOCK {ID}",
    "CLIENT UNBLOCK {ID} ERROR",
    "CLIENT PAUSE 20 WRITE",
    "CLIENT PAUSE 10 ALL",
    "CLIENT UNPAUSE",
    "SCRIPT KILL",
    "FUNCTION KILL",
    "SCRIPT FLUSH",
    "CLIENT LIST",
    "INFO",
    "PUBSUB CHANNELS",
    "EXISTS made",
];

/// Scripts: the last word is how often they look at a key. One never ends by itself.
const SCRIPTS: &[&str] = &[
    "redis.call('rpush', KEYS[1], 'v') for i = 1, ARGV[1] do redis.call('exists', KEYS[2]) end \
     return redis.call('rpush', KEYS[1], 'w')",
    "for i = 1, ARGV[1] do redis.call('exists', KEYS[2]) end return redis.call('llen', KEYS[1])",
    "for i = 1, ARGV[1] do redis.call('exists', KEYS[2]) end return redis.call('get', 'te' .. 'xt')",
    "redis.call('publish', 'channel', 'script') return redis.call('sunionstore', 'made', 'one', KEYS[2])",
    "redis.call('rpush', KEYS[1], 'v') local at = ARGV[1] % 4 \
     for i = 1, ARGV[1] do redis.call('exists', KEYS[2]) end \
     if at == 0 then return redis.call('dbsize') end \
     if at == 1 then return redis.call('incr', 'number') end return 1",
    "while true do end",
];

/// What an administrator changes, ...
const CHANGES: &[&str] = &[
    "CONFIG SET maxmemory-clients 200kb",
    "CONFIG SET client-output-buffer-limit \"normal 40000 0 0 pubsub 2000 0 0\"",
    "CONFIG SET busy-reply-threshold 1",
    "CONFIG SET timeout 1",
    "CONFIG SET tracking-table-max-keys 2",
    "CONFIG SET maxmemory 1",
    "CONFIG SET notify-keyspace-events KEA",
    "REPLICAOF 127.0.0.1 1",
    "REPLICAOF NO ONE",
    "ACL SETUSER default -sunionstore -blpop",
    "ACL SETUSER default resetchannels &c*",
];
/// ... and how that is undone.
const LIFTED: &[&str] = &[
    "ACL SETUSER default allchannels allkeys allcommands",
    "CLIENT UNPAUSE",
    "REPLICAOF NO ONE",
    "CONFIG SET maxmemory 0 maxmemory-clients 0 timeout 0 busy-reply-threshold 1 \
     tracking-table-max-keys 1000000 notify-keyspace-events \"\" \
     client-output-buffer-limit \"normal 0 0 0 pubsub 0 0 0\"",
];

struct Visitor {
    peer: Peer,
    id: u64,
    /// What it has not sent of a command that it began to send.
    unsent: Vec<u8>,
    /// The end of what it has heard.
    heard: String,
}

struct Visits {
    process: SimulatedProcess,
    random: Random,
    workers: usize,
    admin: Visitor,
    visitors: Vec<Visitor>,
    story: Vec<String>,
}

impl Visits {
    fn new(workers: usize) -> Self {
        let process = SimulatedProcess::new(workers);
        let admin = Visitor::new(&process, 0);
        Self {
            process,
            random: Random::new(1),
            workers,
            admin,
            visitors: Vec::new(),
            story: Vec::new(),
        }
    }

    /// Plays a seed. What is wrong, if something is.
    fn play(&mut self, seed: u64) -> Result<(), String> {
        self.random = Random::new(seed.wrapping_mul(2).wrapping_add(1));
        self.story.clear();
        self.admin.peer.close();
        self.admin = Visitor::new(&self.process, 0);
        self.fill()?;
        ticks::jump(Some((Random::new(seed ^ 0x5eed), JUMPS.0, JUMPS.1)));
        for number in 0..CLIENTS {
            self.connect(number);
        }
        for _ in 0..STEPS {
            self.step();
        }
        self.note("(the end)");
        self.lift()?;
        self.hear_all()?;
        // What the administrator had ordered may have been carried out only now.
        self.lift()?;
        self.see_nothing_left()
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random.below(limit as u32) as usize
    }

    fn one_of<'a>(&mut self, some: &[&'a str]) -> &'a str {
        some[self.below(some.len())]
    }

    fn note(&mut self, what: &str) {
        self.story.push(what.replace("\r\n", " | "));
    }

    /// Makes what commands work on.
    fn fill(&mut self) -> Result<(), String> {
        self.order("FLUSHALL SYNC")?;
        let each = |command: &str, words: &dyn Fn(usize) -> Vec<String>| {
            let mut all: Vec<String> = command.split(' ').map(str::to_owned).collect();
            all.extend((0..ELEMENTS).flat_map(words));
            let words = all.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
            format!("*{}\r\n{}", all.len(), words.collect::<String>())
        };
        for bytes in [
            each("SADD one", &|at| vec![format!("one:{at}")]),
            each("SADD two", &|at| vec![format!("two:{at}")]),
            each("RPUSH list", &|at| vec![format!("item:{at}")]),
            each("HSET hash", &|at| vec![format!("field:{at}"), at.to_string()]),
            each("ZADD sorted", &|at| vec![at.to_string(), format!("member:{at}")]),
            "XGROUP CREATE jobs group 0 MKSTREAM\r\n".to_owned(),
        ] {
            self.admin.peer.send(bytes.as_bytes());
            self.until("the collections are there", |visits| {
                !visits.admin.peer.received().is_empty()
            })?;
        }
        Ok(())
    }

    fn connect(&mut self, number: usize) {
        let worker = self.below(self.workers);
        let visitor = Visitor::new(&self.process, worker);
        self.note(&format!("({number} is client {} of worker {worker})", visitor.id));
        match self.visitors.get_mut(number) {
            Some(before) => *before = visitor,
            None => self.visitors.push(visitor),
        }
    }

    fn step(&mut self) {
        let number = self.below(CLIENTS);
        if self.visitors[number].peer.is_ended() {
            self.connect(number);
        }
        match self.below(100) {
            0..55 => self.request(number),
            55..85 => {
                let worker = self.below(self.workers);
                self.process.turn(worker);
            }
            85..90 => {
                let ms = [1, 5, 30, 1_100][self.below(4)];
                self.note(&format!("({ms} ms)"));
                self.process.pass(ms);
            }
            90..93 => {
                self.note(&format!("({number} goes)"));
                self.visitors[number].peer.close();
                self.connect(number);
            }
            93..95 => {
                let room = self.random.below(2) == 0;
                let room = room.then(|| self.below(200));
                self.visitors[number].peer.set_room(room);
            }
            95..98 => {
                let line = self.one_of(CHANGES);
                self.note(&format!("admin> {line}"));
                self.admin.peer.send(format!("{line}\r\n").as_bytes());
            }
            _ => aof::step_log(self.process.server),
        }
    }

    /// A client sends some commands, or more of one.
    fn request(&mut self, number: usize) {
        if self.visitors[number].unsent.is_empty() {
            let mut bytes = String::new();
            for _ in 0..1 + self.below(3) {
                bytes += &self.command();
                bytes += "\r\n";
            }
            if self.below(20) == 0 {
                let large = "\r\nSUBSCRIBE torn".repeat(1_000 + self.below(4_000));
                bytes += &format!("*2\r\n$6\r\nEXISTS\r\n${}\r\n{large}\r\n", large.len());
            }
            let shown: String = bytes.chars().take(400).collect();
            self.note(&format!("{number}> {shown}"));
            self.visitors[number].unsent = bytes.into_bytes();
        }
        let all = self.visitors[number].unsent.len();
        let some = if self.below(8) == 0 { self.below(all) } else { all };
        let visitor = &mut self.visitors[number];
        visitor.peer.send(&visitor.unsent[..some]);
        visitor.unsent.drain(..some);
        // What was sent is heard by nobody before the end.
        drop(visitor.peer.received());
    }

    fn command(&mut self) -> String {
        match self.below(22) {
            0 | 1 => {
                let queued: String = (0..2 + self.below(4))
                    .map(|_| match self.below(3) {
                        0 => format!("{}\r\n", self.one_of(LONG)),
                        1 => format!("{}\r\n", self.one_of(SHORT)),
                        _ => format!("{}\r\n", self.one_of(STATE)),
                    })
                    .collect();
                format!("MULTI\r\n{queued}EXEC")
            }
            2..5 => self.one_of(LONG).to_owned(),
            5..8 => self.one_of(SHORT).to_owned(),
            8..10 => self.one_of(WAITING).to_owned(),
            10..16 => self.one_of(STATE).to_owned(),
            16 | 17 => {
                let script = self.one_of(SCRIPTS);
                let looks = self.below(300);
                format!("EVAL \"{script}\" 2 queue one {looks}")
            }
            _ => {
                let at = self.below(CLIENTS);
                let id = self.visitors.get(at).map_or(0, |visitor| visitor.id);
                self.one_of(OTHERS).replace("{ID}", &id.to_string())
            }
        }
    }

    /// Takes turns, and has time go by, until something holds.
    fn until(
        &mut self,
        what: &str,
        mut holds: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), String> {
        for _ in 0..LOOKS {
            self.process.turns(3);
            if holds(self) {
                return Ok(());
            }
            self.process.pass(1);
        }
        Err(format!("not in time: {what}"))
    }

    /// Another client has an order carried out; what is answered.
    fn order(&mut self, line: &str) -> Result<String, String> {
        let mut answer = String::new();
        for _ in 0..LOOKS {
            let client = Visitor::new(&self.process, 0);
            client.peer.send(format!("{line}\r\n").as_bytes());
            answer.clear();
            self.until(line, |visits| {
                answer += &visits.process.heard(&client.peer);
                answer.ends_with("\r\n") || client.peer.is_ended()
            })?;
            client.peer.close();
            if !answer.starts_with("-BUSY") && !answer.is_empty() {
                return Ok(answer);
            }
            // A script that has written ends by itself.
            let killer = Visitor::new(&self.process, 0);
            killer.peer.send(b"SCRIPT KILL\r\n");
            self.process.turns(20);
            killer.peer.close();
            self.process.pass(1);
        }
        Err(format!("{line}: {answer}"))
    }

    /// Lifts all restrictions.
    fn lift(&mut self) -> Result<(), String> {
        self.visitors.iter().for_each(|visitor| visitor.peer.set_room(None));
        self.process.turns(10);
        self.process.pass(100);
        self.process.turns(10);
        for line in LIFTED {
            let answer = self.order(line)?;
            if answer != "+OK\r\n" {
                return Err(format!("{line}: {answer}"));
            }
        }
        tasks::forget();
        Ok(())
    }

    /// Sees that each client that is there is answered.
    fn hear_all(&mut self) -> Result<(), String> {
        for visitor in &mut self.visitors {
            let mut bytes = std::mem::take(&mut visitor.unsent);
            // CLIENT REPLY SKIP may be its last command.
            bytes.extend_from_slice(b"RESET\r\nPING\r\n");
            visitor.peer.send(&bytes);
        }
        for _ in 0..LOOKS {
            self.process.turns(5);
            self.process.pass(1);
            aof::step_log(self.process.server);
            self.visitors.iter_mut().for_each(Visitor::listen);
            let waits = |visitor: &&Visitor| !visitor.is_done();
            let waiting: Vec<u64> = self.visitors.iter().filter(waits).map(|it| it.id).collect();
            if waiting.is_empty() {
                return Ok(());
            }
            for id in waiting {
                self.order(&format!("CLIENT UNBLOCK {id}"))?;
            }
            self.order("SCRIPT KILL")?;
        }
        let left = self.visitors.iter().find(|visitor| !visitor.is_done());
        let (id, heard) = left.map_or((0, ""), |visitor| (visitor.id, &*visitor.heard));
        let fault = format!("client {id} is not answered, but {heard:?}");
        let kept = self.process.server.gate.reservations();
        let fault = format!("{fault}; {kept} reservations; {}", self.order("SCRIPT KILL")?);
        Err(format!("{fault}: {}", self.order("CLIENT LIST")?))
    }

    /// All clients go. Sees that nothing is left of them.
    fn see_nothing_left(&mut self) -> Result<(), String> {
        let all = self.visitors.iter().chain([&self.admin]);
        all.for_each(|visitor| visitor.peer.close());
        self.visitors.clear();
        let server = self.process.server;
        self.until("all clients have gone", |_| server.clients.is_empty())?;
        self.until("nothing is reserved", |_| !server.gate.is_reserved())?;
        for (order, expected) in [
            ("PUBSUB CHANNELS", "*0\r\n"),
            ("PUBSUB SHARDCHANNELS", "*0\r\n"),
            ("PUBSUB NUMPAT", ":0\r\n"),
            ("PUBLISH channel message", ":0\r\n"),
            ("SPUBLISH shard message", ":0\r\n"),
        ] {
            let answer = self.order(order)?;
            if answer != expected {
                return Err(format!("{order}: {answer}"));
            }
        }
        let info = self.order("INFO clients")?;
        for field in [
            "connected_clients:1",
            "blocked_clients:0",
            "tracking_clients:0",
            "pubsub_clients:0",
            "watching_clients:0",
            "total_watched_keys:0",
            "total_blocking_keys:0",
            "total_blocking_keys_on_nokey:0",
            "clients_in_timeout_table:0",
        ] {
            if !info.contains(&format!("{field}\r\n")) {
                return Err(format!("no {field}: {info}"));
            }
        }
        Ok(())
    }
}

impl Visitor {
    fn new(process: &SimulatedProcess, worker: usize) -> Self {
        let peer = process.connect(worker);
        let id = process.server.clients.last_id();
        Self { peer, id, unsent: Vec::new(), heard: String::new() }
    }

    fn listen(&mut self) {
        self.heard += &String::from_utf8_lossy(&self.peer.received());
        if self.heard.ends_with("SHUTDOWN NOSAVE.\r\n") {
            // A script was slow. It is killed, or ends by itself.
            self.peer.send(b"PING\r\n");
        }
        let cut = self.heard.len().saturating_sub(PONG.len());
        self.heard.drain(..cut);
    }

    fn is_done(&self) -> bool {
        self.peer.is_ended() || self.heard == PONG
    }
}

const PONG: &str = "+PONG\r\n";

/// Seeds in the tests. `BOBBIN_VISITS` says how many others, from `BOBBIN_SEED` on.
const SEEDS: u64 = 60;

#[test]
fn all_that_stay_are_answered_and_nothing_is_left_of_those_that_go() {
    let variable = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let first = variable("BOBBIN_SEED").unwrap_or(0);
    let count = variable("BOBBIN_VISITS").unwrap_or(SEEDS);
    let mut stages: Vec<Option<Visits>> = (0..3).map(|_| None).collect();
    let mut failed = Vec::new();
    for seed in first..first + count {
        let workers = 1 + seed as usize % stages.len();
        let stage = &mut stages[workers - 1];
        let visits = stage.get_or_insert_with(|| Visits::new(workers));
        if let Err(fault) = visits.play(seed) {
            println!("{}\n{fault}\nfailed: BOBBIN_SEED={seed}", visits.story.join("\n"));
            failed.push(seed);
            // It may have what is left of this seed.
            *stage = None;
        }
        ticks::jump(None);
    }
    assert!(failed.is_empty(), "BOBBIN_SEED= one of {failed:?}");
}
