//! Several clients of both servers that block, watch and queue commands on the same few keys: after
//! each command the same clients must wait, and the others must have been told the same.
//!
//! What a client is told depends on what the others did before. So the next command is sent only
//! when each client either has its reply or is blocked by what CLIENT LIST says.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bobbin_testkit::random::TestRandom;
use bobbin_testkit::{ReceiveOutcome, ReplyFrame, TestConnection};

use super::{Difference, Pair, Wanted, text, words};

/// Plays batches until as many commands were sent as are wanted.
pub(super) fn compare(pair: &mut Pair, wanted: &Wanted) -> Result<Vec<Difference>, String> {
    pair.follow();
    let mut random = TestRandom::new(wanted.seed);
    let mut found: Vec<Difference> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut sent = 0;
    while sent < wanted.commands {
        let tracks = random.below(2) == 0;
        let batch: Vec<_> = (0..BATCH).map(|_| ClientStep::new(&mut random, tracks)).collect();
        sent += batch.len();
        let Some(difference) = play(pair, &batch)? else { continue };
        if seen.insert(difference.what.clone()) {
            found.push(shorten(pair, batch, difference)?);
        }
    }
    Ok(found)
}

/// A command of one of the clients.
#[derive(Clone)]
struct ClientStep {
    client: usize,
    command: String,
    /// Commands that write are paused until the client waits.
    is_paused: bool,
}

impl ClientStep {
    fn new(random: &mut TestRandom, tracks: bool) -> Self {
        let client = random.below(CLIENTS);
        let of: &[&str] = match random.below(10) {
            0..=2 => &BLOCKING,
            3..=5 => &SERVING,
            6..=7 => &CHANGING,
            8 if tracks => &TRACKING,
            // Of this Valkey tells no client that keeps copies.
            8 => &["SWAPDB 0 1"],
            _ => &OF_CLIENTS,
        };
        let mut command = String::new();
        for (at, word) in of[random.below(of.len())].split(' ').enumerate() {
            let word = match word {
                "L" => one_of(&["list", "other", "none"], random),
                "Z" => one_of(&["sorted", "scores", "none"], random),
                "S" => one_of(&["stream", "events", "none"], random),
                "K" => one_of(&KEYS, random),
                "SIDE" => one_of(&["LEFT", "RIGHT"], random),
                "MINMAX" => one_of(&["MIN", "MAX"], random),
                "N" => one_of(&["1", "2", "3"], random),
                "DB" => one_of(&["0", "1"], random),
                "ID" => one_of(&["@0", "@1", "@2", "@3"], random),
                word => word,
            };
            command.push_str(if at == 0 { "" } else { " " });
            command.push_str(word);
        }
        Self { client, command, is_paused: random.below(12) == 0 }
    }
}

fn one_of(words: &[&'static str], random: &mut TestRandom) -> &'static str {
    words[random.below(words.len())]
}

/// Leaves out what the difference does not need.
fn shorten(
    pair: &mut Pair,
    mut batch: Vec<ClientStep>,
    mut difference: Difference,
) -> Result<Difference, String> {
    let mut at = batch.len();
    while at > 0 {
        at -= 1;
        let mut without = batch.clone();
        without.remove(at);
        if let Some(shorter) = play(pair, &without)? {
            (batch, difference) = (without, shorter);
        }
    }
    Ok(difference)
}

/// Plays a batch on new connections; the first difference.
fn play(pair: &mut Pair, batch: &[ClientStep]) -> Result<Option<Difference>, String> {
    pair.fill(&FILL.map(str::to_owned))?;
    let mut scene = Scene::open(pair)?;
    for (at, step) in batch.iter().enumerate() {
        if scene.waits(step.client) {
            continue;
        }
        if let Some([valkey, bobbin]) = scene.play(step, at)? {
            let name = step.command.split(' ').next().unwrap_or_default();
            let what = format!("clients {name}");
            let difference = Difference { what, how: shown(&batch[..=at]), valkey, bobbin };
            return Ok((!scene.is_meant(step)).then_some(difference));
        }
    }
    let (what, [valkey, bobbin]) = match scene.end()? {
        None => pair.data()?,
        Some(told) => ("end", told),
    };
    let what = format!("clients {what}");
    Ok((valkey != bobbin).then_some(Difference { what, how: shown(batch), valkey, bobbin }))
}

fn shown(steps: &[ClientStep]) -> String {
    let line = |step: &ClientStep| {
        let pause = if step.is_paused { " (begun in a pause)" } else { "" };
        format!("{}: {}{pause}", step.client, step.command)
    };
    let lines = steps.iter().map(line);
    lines.collect::<Vec<_>>().join("\n  ")
}

/// The clients of both servers during a batch.
struct Scene<'a> {
    pair: &'a mut Pair,
    sides: [SceneSide; 2],
    /// How many commands each client sent.
    sent: [usize; CLIENTS],
}

struct SceneSide {
    clients: Vec<TestConnection>,
    /// What CLIENT ID answered each.
    ids: Vec<String>,
    told: [ClientLog; CLIENTS],
}

/// What one client was told.
#[derive(Default, PartialEq)]
struct ClientLog {
    replies: Vec<String>,
    /// Keys of which its copies are not right any more.
    invalid: Vec<String>,
}

impl<'a> Scene<'a> {
    fn open(pair: &'a mut Pair) -> Result<Self, String> {
        let sides = [SceneSide::open(&pair.valkey)?, SceneSide::open(&pair.bobbin)?];
        Ok(Self { pair, sides, sent: [0; CLIENTS] })
    }

    /// Whether a client has no reply yet to its last command.
    fn waits(&self, client: usize) -> bool {
        self.sides[0].told[client].replies.len() < self.sent[client]
    }

    /// Sends a command, and waits until the clients without a reply are blocked; what differs.
    fn play(&mut self, step: &ClientStep, at: usize) -> Result<Option<[String; 2]>, String> {
        if step.is_paused {
            self.pair.say("CLIENT PAUSE 100000 WRITE")?;
        }
        for side in &mut self.sides {
            let command = side.command(&step.command, at);
            side.clients[step.client].send(&command).map_err(|error| error.to_string())?;
        }
        self.sent[step.client] += 1;
        let told = self.settle()?;
        if told.is_some() || !step.is_paused {
            return Ok(told);
        }
        self.pair.say("CLIENT UNPAUSE")?;
        self.settle()
    }

    /// Waits until the clients of both servers were told the same, and those without a reply are
    /// blocked; what differs if that takes too long.
    fn settle(&mut self) -> Result<Option<[String; 2]>, String> {
        let deadline = Instant::now() + SETTLED_WITHIN;
        let mut was_settled = false;
        loop {
            let lists = self.pair.say("CLIENT LIST")?;
            let mut is_settled = true;
            for (side, list) in self.sides.iter_mut().zip(&lists) {
                side.receive()?;
                let blocked = blocked(&list.text());
                is_settled &= (0..CLIENTS).all(|client| {
                    side.told[client].replies.len() == self.sent[client]
                        || blocked.contains(&side.ids[client])
                });
            }
            let [valkey, bobbin] = &self.sides;
            is_settled &= valkey.told == bobbin.told;
            if is_settled && was_settled {
                return Ok(None);
            }
            if Instant::now() > deadline {
                return Ok(Some([valkey.last_told(bobbin), bobbin.last_told(valkey)]));
            }
            // Another thread may be on its way to a client.
            was_settled = is_settled;
            std::thread::sleep(LOOK);
        }
    }

    /// Whether COMPAT.md has the reason why they differ at a step.
    fn is_meant(&self, step: &ClientStep) -> bool {
        let [valkey, bobbin] = &self.sides;
        let is_served = |client: &usize| {
            *client != step.client && valkey.told[*client].replies != bobbin.told[*client].replies
        };
        (0..CLIENTS).filter(is_served).any(|client| {
            let [valkey, bobbin] = [valkey, bobbin].map(|side| &side.told[client].replies);
            // It waits for several keys, and one has a value of the wrong type.
            valkey.last().is_some_and(|text| text.starts_with("-WRONGTYPE"))
                // Valkey does not look for clients that wait for what such a command puts in the
                // place of a value of another type.
                || valkey.len() < bobbin.len()
                    && ["SORT", "ZUNIONSTORE", "ZRANGESTORE"]
                        .iter()
                        .any(|name| step.command.starts_with(name))
        })
    }

    /// Ends whatever clients wait for; what differs.
    fn end(mut self) -> Result<Option<[String; 2]>, String> {
        while let Some(client) = (0..CLIENTS).find(|client| self.waits(*client)) {
            let line = format!("CLIENT UNBLOCK @{client}");
            let [valkey, bobbin] = &self.sides;
            self.pair.call_each([&valkey.command(&line, 0), &bobbin.command(&line, 0)])?;
            let told = self.settle()?;
            if told.is_some() {
                return Ok(told);
            }
        }
        Ok(None)
    }
}

impl SceneSide {
    fn open(side: &super::Side) -> Result<Self, String> {
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| side.server.connect()).collect();
        clients.iter_mut().skip(OF_RESP2).for_each(|client| drop(client.say("HELLO 3")));
        let ids = clients.iter_mut().map(|client| client.say("CLIENT ID").text()).collect();
        for client in &mut clients {
            client.stream().set_nonblocking(true).map_err(|error| error.to_string())?;
        }
        Ok(Self { clients, ids, told: Default::default() })
    }

    /// The words of a command: `@1` is the ID of a client, `#` a number that no command had before.
    fn command(&self, line: &str, at: usize) -> Vec<Vec<u8>> {
        let mut command = words(line);
        for word in &mut command {
            match &word[..] {
                [b'@', digit] => *word = self.ids[usize::from(digit - b'0')].clone().into_bytes(),
                b"#" => *word = at.to_string().into_bytes(),
                b"#-1" => *word = format!("{}-1", at + 1).into_bytes(),
                _ => {}
            }
        }
        command
    }

    /// Reads what has come.
    fn receive(&mut self) -> Result<(), String> {
        for (client, told) in self.clients.iter_mut().zip(&mut self.told) {
            loop {
                match client.receive_within(LOOK).map_err(|error| error.to_string())? {
                    ReceiveOutcome::Reply(ReplyFrame::Aggregate { kind: b'>', items }) => {
                        let keys = items.get(1).map_or(&[][..], ReplyFrame::items);
                        match keys {
                            [] => told.invalid.push("all".to_owned()),
                            keys => told.invalid.extend(keys.iter().map(text)),
                        }
                    }
                    ReceiveOutcome::Reply(reply) => told.replies.push(text(&reply)),
                    ReceiveOutcome::Nothing => break,
                    ReceiveOutcome::Closed => return Err("a connection was closed".to_owned()),
                }
            }
        }
        Ok(())
    }

    /// The end of what was told to the clients that the other server told something else.
    fn last_told(&self, other: &Self) -> String {
        let mut text = String::new();
        let both = self.told.iter().zip(&other.told).enumerate();
        for (client, (told, _)) in both.filter(|(_, (told, other))| told != other) {
            let last = |told: &[String]| told[told.len().saturating_sub(3)..].join(" | ");
            let (replies, invalid) = (last(&told.replies), last(&told.invalid));
            text.push_str(&format!("[{client}: ... {replies}; invalid: ... {invalid}] "));
        }
        if text.is_empty() { "a client waits and is not blocked".to_owned() } else { text }
    }
}

/// IDs of the clients that CLIENT LIST calls blocked.
fn blocked(list: &str) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for line in list.lines() {
        let field = |name| line.split(' ').find_map(|field| field.strip_prefix(name));
        if field("flags=").is_some_and(|flags| flags.contains('b')) {
            ids.extend(field("id=").map(str::to_owned));
        }
    }
    ids
}

const CLIENTS: usize = 4;
const BATCH: usize = 24;
/// The others speak RESP3.
const OF_RESP2: usize = 2;
/// How long a connection is looked at.
const LOOK: Duration = Duration::from_micros(20);
/// How long both servers may take until the same clients wait.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);
const KEYS: [&str; 7] = ["list", "other", "sorted", "scores", "stream", "events", "none"];
const FILL: [&str; 7] = [
    "CLIENT UNPAUSE",
    "FLUSHALL",
    "SELECT 0",
    "SCRIPT FLUSH",
    "XGROUP CREATE stream g 0 MKSTREAM",
    "XGROUP CREATE events g $ MKSTREAM",
    "SET string value",
];
/// Commands that wait for a key.
const BLOCKING: [&str; 20] = [
    "BLPOP L L 0",
    "BLPOP L 0",
    "BRPOP L L 0",
    "BRPOP L K 0",
    "BLMOVE L L SIDE SIDE 0",
    "BLMOVE L L SIDE SIDE 0",
    "BRPOPLPUSH L L 0",
    "BLMPOP 0 2 L L SIDE COUNT N",
    "BLMPOP 0 1 L SIDE",
    "BZPOPMIN Z Z 0",
    "BZPOPMAX Z 0",
    "BZMPOP 0 2 Z Z MINMAX COUNT N",
    "XREAD BLOCK 0 STREAMS S $",
    "XREAD COUNT N BLOCK 0 STREAMS S S 0 $",
    "XREAD BLOCK 0 STREAMS S S 9-1 +",
    "XREADGROUP GROUP g c BLOCK 0 STREAMS S >",
    "XREADGROUP GROUP g d COUNT 1 BLOCK 0 STREAMS S >",
    "XREADGROUP GROUP g d COUNT N BLOCK 0 NOACK STREAMS S S > >",
    "XREADGROUP GROUP g c BLOCK 0 STREAMS S 0",
    "XREADGROUP GROUP g c BLOCK 0 CLAIM 0 STREAMS S >",
];
/// Commands that give the waiting clients something.
const SERVING: [&str; 23] = [
    "RPUSH L #",
    "LPUSH L # x",
    "RPUSH L # y z",
    "ZADD Z # m",
    "ZADD Z 1 a 2 b",
    "ZINCRBY Z N a",
    "XADD S #-1 f #",
    "XADD S #-1 f #",
    "XADD S MAXLEN 1 #-1 f #",
    "LMOVE L L SIDE SIDE",
    "RPOPLPUSH L L",
    "LINSERT L BEFORE x #",
    "SORT L ALPHA STORE L",
    "ZUNIONSTORE Z 2 Z Z",
    "ZRANGESTORE Z Z 0 -1",
    "RENAME K K",
    "COPY K K REPLACE",
    "MOVE K DB",
    "GEOADD Z 13.4 52.5 place",
    "EVAL return{redis.call('RPUSH',KEYS[1],'#',1),redis.call('LPOP',KEYS[1])} 1 L",
    "EVAL redis.call('RPUSH',KEYS[1],'e')return(redis.call('ZADD',KEYS[2],1,'e')) 2 L Z",
    "EVAL return(redis.call('BLPOP',KEYS[1],0)) 1 L",
    "EVAL redis.call('DEL',KEYS[1])return(redis.call('RPUSH',KEYS[1],1,2,3)) 1 K",
];
/// Commands that change or take what others wait for.
const CHANGING: [&str; 27] = [
    "DEL K",
    "UNLINK K K",
    "SET K v",
    "EXPIRE K -1",
    "PERSIST K",
    "FLUSHDB",
    "FLUSHALL",
    "LPOP L N",
    "LTRIM L 0 1",
    "LREM L 0 x",
    "ZPOPMIN Z",
    "ZREM Z a",
    "XDEL S 1-1",
    "XTRIM S MAXLEN 1",
    "XSETID S 100-1",
    "XGROUP CREATE S g $ MKSTREAM",
    "XGROUP CREATE S g 0",
    "XGROUP DESTROY S g",
    "XGROUP SETID S g 0",
    "XGROUP SETID S g $",
    "XGROUP DELCONSUMER S g c",
    "XACK S g 3-1",
    "XCLAIM S g d 0 3-1",
    "XAUTOCLAIM S g d 0 0",
    "LLEN L",
    "TYPE K",
    "XLEN S",
];
/// Commands about the clients, their transactions and databases.
const OF_CLIENTS: [&str; 16] = [
    "MULTI",
    "MULTI",
    "EXEC",
    "EXEC",
    "EXEC",
    "DISCARD",
    "WATCH K",
    "WATCH K K",
    "UNWATCH",
    "SELECT DB",
    "SELECT 0",
    "CLIENT UNBLOCK ID",
    "CLIENT UNBLOCK ID ERROR",
    "CLIENT UNBLOCK ID TIMEOUT",
    "RESET",
    "PING",
];
/// Commands that let clients keep copies.
const TRACKING: [&str; 12] = [
    "CLIENT TRACKING ON",
    "CLIENT TRACKING ON NOLOOP",
    "CLIENT TRACKING ON BCAST",
    "CLIENT TRACKING ON OPTIN",
    "CLIENT TRACKING ON OPTOUT",
    "CLIENT TRACKING OFF",
    "CLIENT CACHING YES",
    "CLIENT CACHING NO",
    "TYPE K",
    "EXISTS K K",
    "LRANGE L 0 -1",
    "ZRANGE Z 0 -1",
];
