//! The order of the log.
//!
//! Clients on several threads write to keys of many shards and note in each value what they know:
//! of every client the last write that was acknowledged to it or whose value they have read. In
//! every beginning of the log a write then stands behind all that its writer knew of.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bobbin_testkit::disk::Folder;
use bobbin_testkit::random::{TestRandom, seed};
use bobbin_testkit::{ReplyFrame, TestConnection, TestServer};

const CLIENTS: usize = 6;
/// Keys that all clients write to and read.
const KEYS: usize = 24;

/// How many writes of each client one client knows of.
type Known = [u64; CLIENTS];

fn start(folder: &Folder, policy: &str, arguments: &[&str]) -> TestServer {
    let own = ["--dir", folder.text(), "--appendonly", "yes", "--appendfsync", policy];
    // As many as number the log by the clock.
    let threads = ["--io-threads", "8", "--enable-debug-command", "yes"];
    TestServer::bobbin(&[&own[..], &threads, arguments].concat())
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn no_beginning_of_the_log_lacks_what_a_write_in_it_knew_of() {
    let (seed, folder) = (seed(), Folder::new());
    for policy in ["no", "everysec", "always"] {
        let mut server = start(&folder, policy, &["--auto-aof-rewrite-percentage", "0"]);
        let stop = AtomicBool::new(false);
        let acknowledged: [AtomicU64; CLIENTS] = Default::default();
        let written: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let (client, stop, acknowledged) = (server.connect(), &stop, &acknowledged);
                    let random = TestRandom::new(seed.wrapping_add(number as u64));
                    scope.spawn(move || write(client, number, random, acknowledged, stop))
                })
                .collect();
            std::thread::sleep(Duration::from_millis(600));
            let mut client = server.connect();
            client.say("BGREWRITEAOF");
            std::thread::sleep(Duration::from_millis(400));
            assert!(server.kill());
            stop.store(true, Ordering::Relaxed);
            threads.into_iter().map(|thread| thread.join().expect("it ends")).sum()
        });
        let seen = check_log(&folder.log());
        assert!(seen > 0 && written > 100, "{policy}: {seen} of {written} writes are in the log");
        drop(server);
        fs::remove_dir_all(folder.log()).expect("ours");
    }
}

/// Writes until the server is gone; returns how often.
fn write(
    mut client: TestConnection,
    number: usize,
    mut random: TestRandom,
    acknowledged: &[AtomicU64; CLIENTS],
    stop: &AtomicBool,
) -> u64 {
    let mut known = Known::default();
    while !stop.load(Ordering::Relaxed) {
        for (at, count) in acknowledged.iter().enumerate() {
            known[at] = known[at].max(count.load(Ordering::SeqCst));
        }
        let read = client.call(&["GET", &key(random.below(KEYS))]);
        let Ok(read) = read else { break };
        if let Some((_, theirs)) = read.bytes().and_then(parse) {
            known.iter_mut().zip(theirs).for_each(|(ours, theirs)| *ours = (*ours).max(theirs));
        }
        known[number] += 1;
        let value = format!("w{number} {}", known.map(|count| count.to_string()).join(" "));
        let keys = [0; 3].map(|_| key(random.below(KEYS)));
        let outcome = match random.below(4) {
            0 => client.call(&["SET", &keys[0], &value]).map(|_| ()),
            1 => client.call(&["MSET", &keys[0], &value, &keys[1], &value]).map(|_| ()),
            2 => client.call(&["GETSET", &keys[0], &value]).map(|_| ()),
            _ => transaction(&mut client, &keys, &value),
        };
        if outcome.is_err() {
            break;
        }
        acknowledged[number].store(known[number], Ordering::SeqCst);
    }
    known[number]
}

fn transaction(client: &mut TestConnection, keys: &[String], value: &str) -> std::io::Result<()> {
    client.send(&["MULTI"])?;
    for key in keys {
        client.send(&["SET", key, value])?;
    }
    client.send(&["EXEC"])?;
    (0..keys.len() + 2).try_for_each(|_| client.receive().map(|_| ()))
}

fn key(number: usize) -> String {
    format!("shared:{number}")
}

/// Which client wrote a value, and what it knew, its own write included.
fn parse(value: &[u8]) -> Option<(usize, Known)> {
    let mut words = str::from_utf8(value).ok()?.strip_prefix('w')?.split(' ');
    let number = words.next()?.parse().ok()?;
    let mut known = Known::default();
    for count in &mut known {
        *count = words.next()?.parse().ok()?;
    }
    Some((number, known))
}

/// Goes through all increments in their order; how many writes there are. What was before a rewrite
/// is in its base.
fn check_log(folder: &Path) -> u64 {
    let mut names: Vec<_> = fs::read_dir(folder)
        .expect("it is there")
        .map(|entry| entry.expect("ours").path())
        .filter(|path| path.to_string_lossy().ends_with(".incr.aof"))
        .collect();
    names.sort();
    let (mut logged, mut writes) = ([None; CLIENTS], 0);
    for path in names {
        let bytes = fs::read(&path).expect("ours");
        let mut rest = &bytes[..];
        // The last one may be cut short by the kill.
        while let Ok(Some((command, len))) = ReplyFrame::parse(rest) {
            rest = &rest[len..];
            let mut values = command.items().iter().filter_map(|word| word.bytes().and_then(parse));
            let Some((writer, known)) = values.next_back() else { continue };
            for (at, &count) in known.iter().enumerate() {
                // Before the first write of a client that is here there may be others, in the base.
                let last = logged[at].unwrap_or(count);
                let needed = if at == writer { count - 1 } else { count };
                assert!(
                    logged[at].is_none() || last >= needed,
                    "{}: write {} of {writer} knew of write {needed} of {at}, and {last} is the last before it",
                    path.display(),
                    known[writer],
                );
            }
            writes += u64::from(logged[writer] != Some(known[writer]));
            logged[writer] = Some(known[writer]);
        }
    }
    writes
}
