//! What values of many shapes take of memory, ours and valkey's: bytes per key, by what INFO's
//! `used_memory` grows.

use std::path::PathBuf;
use std::time::Duration;

use bobbin_testkit::random::TestRandom;
use bobbin_testkit::{TestServer, peers};

use crate::options::{both_servers, number, pairs};
use crate::pipeline::Pipeline;
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
        servers.push((name, TestServer::start(&binary, &["--io-threads", threads])?));
    }
    println!("{HEADER}");
    for shape in shapes().filter(|shape| shape.name().contains(only)) {
        let mut bytes = Vec::new();
        for (name, server) in &servers {
            let each = shape.measure(server);
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
    fn measure(self, server: &TestServer) -> Result<f64, String> {
        let mut control = server.connect();
        control.say("FLUSHALL SYNC");
        let before = used_bytes(server)?;
        let mut pipeline = Pipeline::new(&mut control);
        for number in 0..self.keys() {
            self.add(number, &mut pipeline)?;
        }
        pipeline.finish()?;
        let grown = used_bytes(server)?.saturating_sub(before);
        Ok(grown as f64 / self.keys() as f64)
    }

    /// Makes the value with this number. Lists and streams grow one by one.
    fn add(self, number: usize, pipeline: &mut Pipeline<'_>) -> TaskResult {
        let key = format!("key:{number:08}");
        let mut random = TestRandom::new(number as u64);
        let mut text = || -> String {
            let letters = random.bytes(self.len).into_iter();
            letters.map(|byte| char::from(b'a' + byte % 26)).collect()
        };
        let mut send = |head: &[&str], element: &mut dyn FnMut(usize) -> Vec<String>, count| {
            let head = head.iter().map(|word| (*word).to_owned());
            pipeline.send(&head.chain((0..count).flat_map(element)).collect::<Vec<_>>())
        };
        let field = |at: usize| format!("field:{at:05}");
        let all = self.elements;
        match self.kind {
            Kind::String => send(&["SET", &key], &mut |_| vec![text()], all),
            Kind::Set => send(&["SADD", &key], &mut |_| vec![text()], all),
            Kind::SetOfIntegers => {
                send(&["SADD", &key], &mut |at| vec![(number * 1000 + at * 3).to_string()], all)
            }
            Kind::SortedSet => {
                let mut element = |at| vec![(at as f64 * 1.5).to_string(), text()];
                send(&["ZADD", &key], &mut element, all)
            }
            Kind::Hash => send(&["HSET", &key], &mut |at| vec![field(at), text()], all),
            Kind::HashExpiring => {
                send(&["HSET", &key], &mut |at| vec![field(at), text()], all)?;
                let expire = ["HEXPIRE", &key, "100000", "FIELDS", &all.to_string()];
                send(&expire, &mut |at| vec![field(at)], all)
            }
            Kind::List => {
                (0..all).try_for_each(|_| send(&["RPUSH", &key], &mut |_| vec![text()], 1))
            }
            Kind::Stream => {
                let entry = ["XADD", &key, "*", "field"];
                (0..all).try_for_each(|_| send(&entry, &mut |_| vec![text()], 1))
            }
        }
    }
}

/// INFO's `used_memory`, as soon as it stands still.
fn used_bytes(server: &TestServer) -> Result<usize, String> {
    let mut last = 0;
    loop {
        let used = number::<usize>(server.info("used_memory").trim())?;
        if used.abs_diff(last) < STILL_BYTES {
            return Ok(used);
        }
        last = used;
        std::thread::sleep(POLL);
    }
}

const HEADER: &str = "\
bytes per key               bobbin    valkey  ratio";
const USAGE: &str = "\
usage: cargo xtask memory [--only WORDS] [--server PATH]
  values of many shapes; WORDS: those with these words in their names";
/// Bytes of values of one shape, about.
const BYTES: usize = 16 << 20;
const KEYS_MAX: usize = 100_000;
/// Memory that changes by less stands still.
const STILL_BYTES: usize = 4096;
const POLL: Duration = Duration::from_millis(150);
