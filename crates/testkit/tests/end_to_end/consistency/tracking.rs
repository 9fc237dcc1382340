//! Client-side caching: after everything has come to rest no client holds a copy that differs from
//! what the server holds, whatever way it tracks, whichever client changed the keys and however,
//! and while connections move between threads.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bobbin_testkit::{ReceiveOutcome, ReplyFrame, TestConnection, TestServer};

use crate::common::on_both;

const KEYS: usize = 40;
const WRITERS: usize = 3;
const WRITES: usize = 3000;
/// After this much silence nothing more is expected.
const SILENCE: Duration = Duration::from_millis(300);

/// Copies of keys, as a client keeps them: a missing key is kept too.
type Copies = HashMap<String, Option<String>>;

/// How a reader tracks.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    Default,
    NoLoop,
    Broadcast,
    OptIn,
    Transactions,
    Scripts,
}

const WAYS: [Way; 6] =
    [Way::Default, Way::NoLoop, Way::Broadcast, Way::OptIn, Way::Transactions, Way::Scripts];

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn no_copy_is_stale_at_rest() {
    on_both(&["--io-threads", "3"], |name, server| disturb(name, server));
    for driver in ["epoll", "io_uring"] {
        let arguments = ["--io-threads", "3", "--io-driver", driver];
        disturb(driver, &TestServer::bobbin(&arguments));
    }
    let always = ["--io-threads", "2", "--appendonly", "yes", "--appendfsync", "always"];
    disturb("always", &TestServer::bobbin(&always));
    // A table that is too small gives copies up all the time.
    let small = ["--io-threads", "3", "--tracking-table-max-keys", "5"];
    disturb("small table", &TestServer::bobbin(&small));
}

fn disturb(name: &str, server: &TestServer) {
    let done = AtomicBool::new(false);
    let readers: Vec<(Way, TestConnection, Copies)> = std::thread::scope(|scope| {
        let _end = Ends(&done);
        let done = &done;
        let reading: Vec<_> = WAYS
            .iter()
            .enumerate()
            .map(|(seed, way)| scope.spawn(move || read(server, *way, seed as u64, done)))
            .collect();
        let writing: Vec<_> =
            (0..WRITERS).map(|seed| scope.spawn(move || write(server, seed as u64))).collect();
        let mover = scope.spawn(move || {
            let mut control = server.connect();
            for threads in [1, 4, 2, 3].iter().cycle() {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                control.say(&format!("CONFIG SET io-threads {threads}"));
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        writing.into_iter().for_each(|writer| writer.join().expect("a writer"));
        done.store(true, Ordering::Relaxed);
        let readers = reading.into_iter().map(|r| r.join().expect("a reader")).collect();
        mover.join().expect("the mover");
        readers
    });
    let mut control = server.connect();
    for (way, mut connection, mut copies) in readers {
        while let ReceiveOutcome::Reply(reply) = connection.receive_within(SILENCE).expect("bytes")
        {
            assert!(take_push(&reply, &mut copies), "{name}: {way:?} got {reply:?}");
        }
        for (key, copy) in copies {
            let held = value(&control.say(&format!("GET {key}")));
            assert_eq!(copy, held, "{name}: {way:?} keeps a stale copy of {key}");
        }
    }
}

/// Has the others end, whatever happened.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Drops what a push says is no longer right; whether it was one.
fn take_push(reply: &ReplyFrame, copies: &mut Copies) -> bool {
    let ReplyFrame::Aggregate { kind: b'>', items } = reply else { return false };
    let [word, keys] = &items[..] else { return false };
    if word.bytes() != Some(b"invalidate") {
        return false;
    }
    if keys.is_null() {
        copies.clear();
    }
    for key in keys.items() {
        copies.remove(&key.text());
    }
    true
}

fn value(reply: &ReplyFrame) -> Option<String> {
    (!reply.is_null()).then(|| reply.text())
}

/// Reads and keeps what it read until the writers are done.
fn read(
    server: &TestServer,
    way: Way,
    seed: u64,
    done: &AtomicBool,
) -> (Way, TestConnection, Copies) {
    let mut connection = server.connect();
    connection.say("HELLO 3");
    let tracking = match way {
        Way::NoLoop => "CLIENT TRACKING ON NOLOOP",
        Way::Broadcast => "CLIENT TRACKING ON BCAST PREFIX k PREFIX x",
        Way::OptIn => "CLIENT TRACKING ON OPTIN",
        _ => "CLIENT TRACKING ON",
    };
    assert_eq!(connection.say(tracking).text(), "OK");
    let mut copies = Copies::new();
    let mut random = seed + 100;
    while !done.load(Ordering::Relaxed) {
        let keys: Vec<String> =
            (0..1 + next(&mut random) % 8).map(|_| key(next(&mut random))).collect();
        match way {
            Way::Transactions => {
                connection.send(&["MULTI"]).expect("sent");
                keys.iter().for_each(|key| connection.send(&["GET", key]).expect("sent"));
                connection.send(&["EXEC"]).expect("sent");
                for _ in 0..=keys.len() {
                    answer(&mut connection, &mut copies);
                }
                let reply = answer(&mut connection, &mut copies);
                for (key, item) in keys.into_iter().zip(reply.items()) {
                    copies.insert(key, value(item));
                }
            }
            Way::Scripts => {
                for key in keys {
                    let script = "return redis.call('get', KEYS[1])";
                    connection.send(&["EVAL", script, "1", &key]).expect("sent");
                    let reply = answer(&mut connection, &mut copies);
                    copies.insert(key, value(&reply));
                }
            }
            _ => {
                for key in &keys {
                    if way == Way::OptIn {
                        connection.send(&["CLIENT", "CACHING", "YES"]).expect("sent");
                    }
                    connection.send(&["GET", key]).expect("sent");
                }
                for key in keys {
                    if way == Way::OptIn {
                        answer(&mut connection, &mut copies);
                    }
                    let reply = answer(&mut connection, &mut copies);
                    copies.insert(key, value(&reply));
                }
            }
        }
    }
    (way, connection, copies)
}

/// The next reply; pushes before it are seen to.
fn answer(connection: &mut TestConnection, copies: &mut Copies) -> ReplyFrame {
    loop {
        let reply = connection.receive().expect("a reply");
        if !take_push(&reply, copies) {
            assert!(!reply.is_error(), "{reply:?}");
            return reply;
        }
    }
}

/// Changes keys in all manners.
fn write(server: &TestServer, seed: u64) {
    let mut connection = server.connect();
    let mut random = seed;
    for number in 0..WRITES {
        let (key, other) = (key(next(&mut random)), key(next(&mut random)));
        let text = format!("{seed}-{number}");
        let command = match next(&mut random) % 12 {
            0 => format!("DEL {key}"),
            1 => format!("SET {key} {text} PX 3"),
            2 => format!("MSET {key} {text} {other} {text}"),
            3 => format!("APPEND {key} x"),
            4 => format!("RENAME {key} {other}"),
            5 => format!("GETDEL {key}"),
            6 => format!("EVAL redis.call('set',KEYS[1],ARGV[1]) 1 {key} {text}"),
            7 if number % 40 == 0 => "FLUSHDB".to_owned(),
            8 if number % 40 == 0 => "FLUSHALL ASYNC".to_owned(),
            _ => format!("SET {key} {text}"),
        };
        let words: Vec<&str> = command.split(' ').collect();
        let _ = connection.call(&words).expect("a reply");
    }
}

fn key(random: u64) -> String {
    format!("k{}", random as usize % KEYS)
}

/// A sequence of numbers that is the same for the same seed.
fn next(random: &mut u64) -> u64 {
    *random =
        random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *random >> 33
}

/// A client that gets the messages of another one sees a key's message no matter which thread
/// either is with, also once it speaks the newer protocol.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn redirected_messages_arrive() {
    on_both(&["--io-threads", "3"], |name, server| {
        for protocol in [2, 3] {
            let (mut reader, mut listener, mut writer) =
                (server.connect(), server.connect(), server.connect());
            let id = listener.say("CLIENT ID").as_integer().expect("a number");
            if protocol == 3 {
                listener.say("HELLO 3");
            } else {
                listener.say("SUBSCRIBE __redis__:invalidate");
            }
            assert_eq!(reader.say(&format!("CLIENT TRACKING ON REDIRECT {id}")).text(), "OK");
            for round in 0..500 {
                let key = format!("r{round}");
                reader.say(&format!("GET {key}"));
                writer.say(&format!("SET {key} v"));
                if round % 50 == 0 {
                    writer.say(&format!("CONFIG SET io-threads {}", 1 + round / 50 % 4));
                }
                let message = listener.receive().expect("a message");
                let keys = message.items().last().expect("keys").items();
                assert_eq!(keys[0].text(), key, "{name}: protocol {protocol}");
            }
            drop(listener);
        }
    });
}

/// What a reply that is made in slices holds is revoked behind it, not before.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn long_replies_are_revoked_behind_them() {
    let server = TestServer::bobbin(&["--io-threads", "2"]);
    let (mut reader, mut writer) = (server.connect(), server.connect());
    for lot in 0..60 {
        let members: Vec<String> = (0..1000).map(|i| format!("m{}", lot * 1000 + i)).collect();
        let words = ["SADD".to_owned(), "s".to_owned()].into_iter().chain(members);
        writer.call(&words.collect::<Vec<_>>()).expect("a reply");
    }
    reader.say("HELLO 3");
    reader.say("CLIENT TRACKING ON");
    let stop = Mutex::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !*stop.lock().expect("not poisoned") {
                writer.say("SADD s new");
                writer.say("SREM s new");
            }
        });
        for _ in 0..10 {
            reader.send(&["SMEMBERS", "s"]).expect("sent");
            let first = reader.receive().expect("a reply");
            assert!(first.items().len() >= 60_000, "a push came before the reply");
            let push = reader.receive().expect("a push");
            assert_eq!(push.items()[0].text(), "invalidate");
        }
        *stop.lock().expect("not poisoned") = true;
    });
}

/// Messages about evicted keys take memory, too. They must not make the server evict all the rest.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn eviction_does_not_feed_itself() {
    const STORED: usize = 300;
    const EXCESS: u64 = 4_000;
    let server = TestServer::bobbin(&["--io-threads", "1", "--maxmemory-policy", "allkeys-lru"]);
    let mut writer = server.connect();
    for key in 0..STORED {
        writer.say(&format!("SET key:{key} value"));
    }
    let mut readers: Vec<_> = (0..10).map(|_| server.connect()).collect();
    for reader in &mut readers {
        reader.say("HELLO 3");
        reader.say("CLIENT TRACKING ON NOLOOP");
        for key in 0..STORED {
            reader.say(&format!("GET key:{key}"));
        }
    }
    let memory = writer.say("INFO memory").text();
    let used = memory.lines().find_map(|line| line.strip_prefix("used_memory:"));
    let used: u64 = used.and_then(|used| used.trim().parse().ok()).expect("INFO has used_memory");
    assert_eq!(writer.say(&format!("CONFIG SET maxmemory {}", used - EXCESS)).text(), "OK");
    for _ in 0..5 {
        assert_eq!(writer.say("SET other value").text(), "OK");
    }
    let left = writer.say("DBSIZE").as_integer().expect("a number") as usize;
    assert!((STORED / 3..STORED).contains(&left), "{left} keys are left");
}
