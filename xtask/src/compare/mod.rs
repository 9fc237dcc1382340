//! Bobbin beside a real Valkey, by program: what both tell of themselves (`walk`), and what they
//! answer to random commands (`random`), to odd values of options (`options`), and to clients that
//! wait for each other (`clients`).
//!
//! Transcripts show what somebody thought of. This finds the rest: a difference becomes a mended
//! reply with a step in a transcript, or a row of COMPAT.md and a line in `tests/differences.txt`.

mod clients;
mod grammar;
mod options;
mod random;
mod walk;

use std::collections::BTreeSet;

use bobbin_testkit::transcript::render;
use bobbin_testkit::{ReplyFrame, TestConnection, TestServer, encode_command, peers, until};

use crate::shell::TaskResult;

/// Compares in each way; any difference that is not listed is an error.
pub(crate) fn run(words: &[&str]) -> TaskResult {
    let mut wanted = Wanted::default();
    let mut rest = words.iter();
    while let Some(&word) = rest.next() {
        let mut number = || {
            rest.next().and_then(|text| text.parse::<u64>().ok()).ok_or_else(|| USAGE.to_owned())
        };
        match word {
            "--seed" => wanted.seed = number()?,
            "--commands" => wanted.commands = number()? as usize,
            "walk" | "random" | "options" | "clients" => wanted.ways.push(word.to_owned()),
            name => wanted.names.push(name.to_uppercase()),
        }
    }
    let known = Known::load()?;
    let mut pair = Pair::start();
    let mut failed = 0;
    for (name, compare) in WAYS {
        if !wanted.ways.is_empty() && !wanted.ways.iter().any(|way| way == name) {
            continue;
        }
        let found = compare(&mut pair, &wanted)?;
        let new: Vec<_> = found.iter().filter(|difference| !known.has(difference)).collect();
        new.iter().for_each(|difference| println!("{}", difference.shown()));
        println!("{name}: {} differences, {} of them listed", found.len(), found.len() - new.len());
        failed += new.len();
    }
    if failed == 0 { Ok(()) } else { Err(format!("{failed} differences")) }
}

/// What to compare.
pub(crate) struct Wanted {
    seed: u64,
    /// Random commands.
    commands: usize,
    /// Names of `WAYS`; empty: all.
    ways: Vec<String>,
    /// Commands, groups of them, or options; empty: all.
    names: Vec<String>,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { seed: 1, commands: 20_000, ways: Vec::new(), names: Vec::new() }
    }
}

impl Wanted {
    fn has(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| name.eq_ignore_ascii_case(wanted))
    }
}

/// Something that the two servers do differently.
struct Difference {
    /// What is compared: `command get`, `config port`.
    what: String,
    /// How to see it; empty: it shows by itself.
    how: String,
    valkey: String,
    bobbin: String,
}

impl Difference {
    fn shown(&self) -> String {
        let Self { what, how, valkey, bobbin } = self;
        let how = if how.is_empty() { String::new() } else { format!("\n  {how}") };
        format!("{what}{how}\n  valkey: {valkey}\n  bobbin: {bobbin}")
    }
}

/// `tests/differences.txt`: a line for each, with a `*` for any text.
struct Known(Vec<String>);

impl Known {
    fn load() -> Result<Self, String> {
        let path = peers::repository().join("tests/differences.txt");
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        Ok(Self(lines.map(str::to_owned).collect()))
    }

    fn has(&self, difference: &Difference) -> bool {
        let matches = |line: &String| match line.strip_suffix('*') {
            Some(start) => difference.what.starts_with(start),
            None => difference.what == *line,
        };
        self.0.iter().any(matches)
    }
}

/// Both servers, with a connection to each.
struct Pair {
    valkey: Side,
    bobbin: Side,
}

struct Side {
    server: TestServer,
    client: TestConnection,
    /// It is told of what happens to keys.
    listener: TestConnection,
    /// The other make's server, which follows this one; only once it is needed.
    replica: Option<(TestServer, TestConnection)>,
}

impl Pair {
    fn start() -> Self {
        let sides = [TestServer::valkey(FLAGS), TestServer::bobbin(FLAGS)].map(|server| {
            let (mut client, mut listener) = (server.connect(), server.connect());
            // A server that was asked while it started has counted that as an error.
            client.say("CONFIG RESETSTAT");
            for line in
                ["HELLO 3", "CLIENT TRACKING ON BCAST", "PSUBSCRIBE __key*", "SUBSCRIBE mark"]
            {
                listener.say(line);
            }
            Side { server, client, listener, replica: None }
        });
        let [valkey, bobbin] = sides;
        Self { valkey, bobbin }
    }

    /// What each answers.
    fn call(&mut self, words: &[Vec<u8>]) -> Result<[ReplyFrame; 2], String> {
        self.call_each([words, words])
    }

    /// What Valkey answers to the first command, and Bobbin to the second.
    fn call_each(&mut self, [first, second]: [&[Vec<u8>]; 2]) -> Result<[ReplyFrame; 2], String> {
        let failed = |error| format!("{}: {error}", shown(first));
        self.valkey.client.send(first).map_err(failed)?;
        self.bobbin.client.send(second).map_err(failed)?;
        let valkey = self.valkey.client.receive().map_err(failed)?;
        let bobbin = self.bobbin.client.receive().map_err(failed)?;
        Ok([valkey, bobbin])
    }

    fn say(&mut self, line: &str) -> Result<[ReplyFrame; 2], String> {
        self.call(&words(line))
    }

    /// Has both carry out commands that must succeed, at once.
    fn fill(&mut self, lines: &[impl AsRef<str>]) -> Result<(), String> {
        let mut bytes = Vec::new();
        lines.iter().for_each(|line| encode_command(&words(line.as_ref()), &mut bytes));
        for side in [&mut self.valkey, &mut self.bobbin] {
            side.client.send_raw(&bytes).map_err(|error| error.to_string())?;
        }
        for side in [&mut self.valkey, &mut self.bobbin] {
            for line in lines.iter().map(AsRef::as_ref) {
                let reply = side.client.receive().map_err(|error| format!("{line}: {error}"))?;
                if reply.is_error() {
                    return Err(format!("{line}: {}", text(&reply)));
                }
            }
        }
        Ok(())
    }

    /// What happened to keys since this was asked last: events in their order, and then the names
    /// of keys that clients would have to forget.
    fn events(&mut self) -> Result<[Vec<String>; 2], String> {
        self.say("PUBLISH mark .")?;
        let mut both = [Vec::new(), Vec::new()];
        for (side, events) in [&mut self.valkey, &mut self.bobbin].into_iter().zip(&mut both) {
            let mut forgotten = BTreeSet::new();
            loop {
                let message = side.listener.receive().map_err(|error| error.to_string())?;
                match message.items() {
                    [kind, keys] if kind.text() == "invalidate" => {
                        forgotten.extend(keys.items().iter().map(ReplyFrame::text));
                    }
                    [_, channel, _] if channel.text() == "mark" => break,
                    [_, _, channel, event] => {
                        events.push(format!("{} {}", channel.text(), event.text()));
                    }
                    _ => return Err(format!("no message: {}", text(&message))),
                }
            }
            events.extend(forgotten);
        }
        Ok(both)
    }

    /// Has a Bobbin follow Valkey, and a Valkey follow Bobbin.
    fn follow(&mut self) {
        let sides = [&mut self.valkey, &mut self.bobbin].into_iter();
        for (side, start) in sides.zip([TestServer::bobbin, TestServer::valkey]) {
            if side.replica.is_some() {
                continue;
            }
            let replica = start(FLAGS);
            replica.follow(side.server.address().port());
            until(|| replica.info("master_link_status") == "up");
            let client = replica.connect();
            side.replica = Some((replica, client));
        }
    }

    /// Has the replicas carry out a command that is not in the stream.
    fn say_to_replicas(&mut self, line: &str) -> Result<(), String> {
        for side in [&mut self.valkey, &mut self.bobbin] {
            if let Some((_, replica)) = &mut side.replica {
                replica.call(&words(line)).map_err(|error| format!("{line}: {error}"))?;
            }
        }
        Ok(())
    }

    /// The digests of two servers that should have the same keys, and what they are: a primary and
    /// its replica if these differ, else the two primaries.
    fn data(&mut self) -> Result<(&'static str, [String; 2]), String> {
        let failed = |error: std::io::Error| format!("DEBUG DIGEST: {error}");
        // Valkey counts keys that were given a time long past until a command looks at them.
        self.say("KEYS *")?;
        self.say("WAIT 1 10000")?;
        let mut own = Vec::new();
        for (side, name) in
            [(&mut self.valkey, "replica: Bobbin"), (&mut self.bobbin, "replica: Valkey")]
        {
            let (_, replica) = side.replica.as_mut().ok_or("nothing follows")?;
            let primary = side.client.call(&["DEBUG", "DIGEST"]).map_err(failed)?;
            let replica = replica.call(&["DEBUG", "DIGEST"]).map_err(failed)?;
            if primary != replica {
                return Ok((name, [text(&primary), text(&replica)]));
            }
            own.push(text(&primary));
        }
        let [valkey, bobbin] = <[_; 2]>::try_from(own).expect("two sides");
        Ok(("DIGEST", [valkey, bobbin]))
    }

    /// Opens new connections.
    fn reconnect(&mut self) {
        for side in [&mut self.valkey, &mut self.bobbin] {
            side.client = side.server.connect();
        }
    }
}

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// A command as one types it.
fn shown(words: &[Vec<u8>]) -> String {
    let quoted = |word: &Vec<u8>| {
        let text = word.escape_ascii().to_string();
        let is_plain = !text.is_empty() && !text.contains([' ', '"', '\'']);
        if is_plain { text } else { format!("\"{text}\"") }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// A reply in one line, with Bobbin's name in errors as Valkey's.
fn text(reply: &ReplyFrame) -> String {
    let text = render(reply).join(" ");
    if text.starts_with('-') { text.replace("Bobbin", "Valkey") } else { text }
}

type Compare = fn(&mut Pair, &Wanted) -> Result<Vec<Difference>, String>;

const WAYS: [(&str, Compare); 4] = [
    ("walk", walk::compare),
    ("options", options::compare),
    ("random", random::compare),
    ("clients", clients::compare),
];
const FLAGS: &[&str] = &[
    "--enable-debug-command",
    "yes",
    "--enable-protected-configs",
    "yes",
    "--enable-module-command",
    "yes",
];
const USAGE: &str =
    "usage: cargo xtask compare [walk|options|random|clients] [--seed N] [--commands N] [NAME...]";
