//! What values of many shapes take of memory, ours and valkey's: bytes per key, by what INFO's
//! `used_memory` grows.

use std::path::PathBuf;
use std::time::Duration;

use bobbin_testkit::connection::encode_command;
use bobbin_testkit::random::TestRandom;
use bobbin_testkit::{TestConnection, TestServer, peers};

use crate::options::{both_servers, pairs};
use crate::shell::TaskResult;

/// Measures memory; `arguments` as [`USAGE`] has them.
pub(crate) fn run(arguments: &[&str]) -> TaskResult {
    let (mut binary, mut only): (PathBuf, _) = (peers::bobbin(), "");
    pairs(arguments, USAGE, |name, value| {
        match name {
            "--server" => binary = value.into(),
            "--only" => only = value,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let mut servers = Vec::new();
    for (name, binary, threads) in both_servers(&binary) {
        let server = TestServer::start(&binary, &["--io-threads", threads])?;
        let connection = server.connect();
        servers.push((name, server, connection));
    }
    println!("{HEADER}");
    for shape in shapes().filter(|shape| shape.name().contains(only)) {
        let mut bytes = Vec::new();
        for (name, _, connection) in &mut servers {
            let each = shape.measure(connection);
            bytes.push(each.map_err(|error| format!("{} in {name}: {error}", shape.name()))?);
        }
        let [ours, theirs] = bytes[..] else { unreachable!("two servers") };
        println!("{:24} {ours:>9.0} {theirs:>9.0} {:>6.2}", shape.name(), ours / theirs);
    }
    Ok(())
}

/// Values that are alike.
#[derive(Clone, Copy)]
struct Shape {
    kind: Kind,
    /// Elements of each value.
    elements: usize,
    /// The length of each element, without the name of a hash's field.
    len: usize,
}

#[derive(Clone, Copy)]
enum Kind {
    String,
    Hash,
    /// Its fields expire.
    HashExpiring,
    Set,
    SetOfIntegers,
    SortedSet,
    List,
    Stream,
}

fn shapes() -> impl Iterator<Item = Shape> {
    let strings = [8, 32, 64, 100, 200, 500, 1000, 5000].map(|len| (Kind::String, 1, len));
    let small = [(1, 8), (5, 8), (10, 20), (50, 20), (100, 20), (2, 300), (10, 100)];
    let large = [(50, 300), (50, 1000), (50, 5000), (500, 20), (1000, 20), (10_000, 20)];
    let collections = [Kind::Hash, Kind::Set, Kind::SortedSet, Kind::List, Kind::Stream];
    let collections = collections.into_iter().flat_map(move |kind| {
        small.into_iter().chain(large).map(move |(elements, len)| (kind, elements, len))
    });
    let integers = [5, 100, 1000].map(|elements| (Kind::SetOfIntegers, elements, 4));
    let expiring = [10, 1000].map(|elements| (Kind::HashExpiring, elements, 20));
    let all = strings.into_iter().chain(collections).chain(integers).chain(expiring);
    all.map(|(kind, elements, len)| Shape { kind, elements, len })
}

impl Shape {
    fn name(self) -> String {
        let Self { elements, len, .. } = self;
        match self.kind {
            Kind::String => format!("string of {len}"),
            Kind::Hash => format!("hash of {elements} x {len}"),
            Kind::HashExpiring => format!("hash, TTL, {elements} x {len}"),
            Kind::Set => format!("set of {elements} x {len}"),
            Kind::SetOfIntegers => format!("set of {elements} integers"),
            Kind::SortedSet => format!("sorted set of {elements} x {len}"),
            Kind::List => format!("list of {elements} x {len}"),
            Kind::Stream => format!("stream of {elements} x {len}"),
        }
    }

    /// Enough that what a key takes in tables is about what it takes among many.
    fn keys(self) -> usize {
        (BYTES / (self.elements * (self.len + 16))).clamp(20, KEYS_MAX)
    }

    /// The bytes that each key takes.
    fn measure(self, connection: &mut TestConnection) -> Result<f64, String> {
        connection.say("FLUSHALL SYNC");
        let before = used_bytes(connection);
        let mut commands = Vec::new();
        for number in 0..self.keys() {
            self.add_commands(number, &mut commands);
            if commands.len() >= PIPELINED {
                send(connection, &commands)?;
                commands.clear();
            }
        }
        send(connection, &commands)?;
        let grown = used_bytes(connection).saturating_sub(before);
        Ok(grown as f64 / self.keys() as f64)
    }

    /// The commands that make the value with this number. Lists and streams grow one by one.
    fn add_commands(self, number: usize, commands: &mut Vec<Vec<Vec<u8>>>) {
        let key = format!("key:{number:08}").into_bytes();
        let mut random = TestRandom::new(number as u64);
        let mut text = || -> Vec<u8> {
            let letters = random.bytes(self.len).into_iter();
            letters.map(|byte| b'a' + byte % 26).collect()
        };
        let first = |name: &str| vec![name.as_bytes().to_vec(), key.clone()];
        let word = |text: String| text.into_bytes();
        let mut whole = |name: &str, element: &mut dyn FnMut(usize) -> Vec<Vec<u8>>| {
            let mut command = first(name);
            (0..self.elements).for_each(|at| command.extend(element(at)));
            commands.push(command);
        };
        let field = |at: usize| word(format!("field:{at:05}"));
        match self.kind {
            Kind::String => whole("SET", &mut |_| vec![text()]),
            Kind::Set => whole("SADD", &mut |_| vec![text()]),
            Kind::SetOfIntegers => {
                whole("SADD", &mut |at| vec![word((number * 1000 + at * 3).to_string())]);
            }
            Kind::SortedSet => {
                whole("ZADD", &mut |at| vec![word((at as f64 * 1.5).to_string()), text()]);
            }
            Kind::Hash => whole("HSET", &mut |at| vec![field(at), text()]),
            Kind::HashExpiring => {
                whole("HSET", &mut |at| vec![field(at), text()]);
                let mut expire = first("HEXPIRE");
                expire.extend(["100000", "FIELDS"].map(|word| word.as_bytes().to_vec()));
                expire.push(word(self.elements.to_string()));
                expire.extend((0..self.elements).map(field));
                commands.push(expire);
            }
            Kind::List => commands.extend((0..self.elements).map(|_| {
                let mut command = first("RPUSH");
                command.push(text());
                command
            })),
            Kind::Stream => commands.extend((0..self.elements).map(|_| {
                let mut command = first("XADD");
                command.extend([b"*".to_vec(), b"field".to_vec(), text()]);
                command
            })),
        }
    }
}

fn send(connection: &mut TestConnection, commands: &[Vec<Vec<u8>>]) -> TaskResult {
    let text = |error: std::io::Error| error.to_string();
    let mut bytes = Vec::new();
    commands.iter().for_each(|command| encode_command(command, &mut bytes));
    connection.send_raw(&bytes).map_err(text)?;
    for _ in commands {
        let reply = connection.receive().map_err(text)?;
        if reply.is_error() {
            return Err(reply.text());
        }
    }
    Ok(())
}

/// INFO's `used_memory`, as soon as it stands still.
fn used_bytes(connection: &mut TestConnection) -> usize {
    let mut last = 0;
    loop {
        let info = connection.say("INFO memory").text();
        let used = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
        let used: usize = used.and_then(|used| used.trim().parse().ok()).expect("a number");
        if used.abs_diff(last) < STILL_BYTES {
            return used;
        }
        last = used;
        std::thread::sleep(POLL);
    }
}

const HEADER: &str = "\
bytes per key               bobbin    valkey  ratio";
pub(crate) const USAGE: &str = "\
usage: cargo xtask memory [--only WORDS] [--server PATH]
  values of many shapes; WORDS: those with these words in their names";
/// Bytes of values of one shape, about.
const BYTES: usize = 16 << 20;
const KEYS_MAX: usize = 100_000;
/// Commands sent at once.
const PIPELINED: usize = 500;
/// Memory that changes by less stands still.
const STILL_BYTES: usize = 4096;
const POLL: Duration = Duration::from_millis(150);
