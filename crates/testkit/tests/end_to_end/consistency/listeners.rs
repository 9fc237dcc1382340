//! Clients that listen stay with their worker while the number of workers changes: they miss
//! nothing, and a worker that is too many lives on for them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bobbin_testkit::random::TestRandom;
use bobbin_testkit::{ReplyFrame, TestConnection, TestServer};

use crate::common::on_both;

/// Has every thread get connections, also beyond the machine's cores.
const SPREAD: [&str; 2] = ["--connections-per-io-thread", "0"];
const DRIVERS: [&str; 2] = ["epoll", "io_uring"];
const SEED: u64 = 17;
const WRITERS: usize = 3;
const WRITES: usize = 500;
/// Far above what anything here takes.
const LIMIT: Duration = Duration::from_secs(30);

/// How a client listens.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    Channel,
    Pattern,
    Shard,
    Monitor,
    /// It is told of all changes itself.
    Tracking,
    /// It is told of another client's copies, and listens to nothing by itself.
    Redirected,
}

const WAYS: [Way; 6] =
    [Way::Channel, Way::Pattern, Way::Shard, Way::Monitor, Way::Tracking, Way::Redirected];

/// Whatever is said while the number of threads changes reaches all clients that listen, each
/// writer's words in their order.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn listeners_miss_nothing_while_the_number_of_threads_changes() {
    on_both(&["--io-threads", "3"], |name, server| disturb(name, server));
    for driver in DRIVERS {
        let arguments = [&["--io-threads", "3", "--io-driver", driver], &SPREAD[..]].concat();
        disturb(driver, &TestServer::bobbin(&arguments));
    }
}

fn disturb(name: &str, server: &TestServer) {
    let mut trackers = Vec::new();
    let mut listeners: Vec<(Way, TestConnection)> = Vec::new();
    for way in WAYS.into_iter().chain(WAYS) {
        listeners.push((way, begin(server, way, &mut trackers)));
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = &done;
        let _end = Ends(done);
        let mover = scope.spawn(move || change_threads(server, done));
        let guest = scope.spawn(move || come_and_go(name, server));
        let writing: Vec<_> = (0..WRITERS).map(|w| scope.spawn(move || write(server, w))).collect();
        let listening = listeners.iter_mut().map(|(way, listener)| {
            let way = *way;
            scope.spawn(move || listen(name, way, listener))
        });
        let listening: Vec<_> = listening.collect();
        writing.into_iter().for_each(|writer| writer.join().expect("a writer"));
        listening.into_iter().for_each(|listener| listener.join().expect("a listener"));
        guest.join().expect("the guest");
        done.store(true, Ordering::Relaxed);
        mover.join().expect("the mover");
    });
}

/// Has the mover end, whatever happened to the others.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn change_threads(server: &TestServer, done: &AtomicBool) {
    let mut control = server.connect();
    let mut random = TestRandom::new(SEED);
    while !done.load(Ordering::Relaxed) {
        let threads = 1 + random.below(4);
        assert_eq!(control.say(&format!("CONFIG SET io-threads {threads}")).text(), "OK");
        std::thread::sleep(Duration::from_millis(random.below(8) as u64));
    }
}

/// A connection that listens; whose copies it is told of is put into `trackers`.
fn begin(server: &TestServer, way: Way, trackers: &mut Vec<TestConnection>) -> TestConnection {
    let mut listener = server.connect();
    match way {
        Way::Channel => drop(listener.say("SUBSCRIBE c")),
        Way::Pattern => drop(listener.say("PSUBSCRIBE c*")),
        Way::Shard => drop(listener.say("SSUBSCRIBE c")),
        Way::Monitor => assert_eq!(listener.say("MONITOR").text(), "OK"),
        Way::Tracking => {
            listener.say("HELLO 3");
            let reply = listener.say("CLIENT TRACKING ON BCAST PREFIX k:");
            assert_eq!(reply.text(), "OK");
        }
        Way::Redirected => {
            listener.say("HELLO 3");
            let id = listener.say("CLIENT ID").as_integer().expect("a number");
            let mut tracker = server.connect();
            let on = format!("CLIENT TRACKING ON REDIRECT {id} BCAST PREFIX k:");
            assert_eq!(tracker.say(&on).text(), "OK");
            trackers.push(tracker);
        }
    }
    listener
}

/// With each write there are a message, a shard's message and a key.
fn write(server: &TestServer, writer: usize) {
    let mut connection = server.connect();
    let mut number = 0;
    while number < WRITES {
        let lot = number..WRITES.min(number + 1 + number % 7);
        for number in lot.clone() {
            let (text, key) = (format!("{writer}:{number}"), format!("k:{writer}:{number}"));
            connection.send(&["PUBLISH", "c", &text]).expect("sent");
            connection.send(&["SPUBLISH", "c", &text]).expect("sent");
            connection.send(&["SET", &key, "v"]).expect("sent");
        }
        for _ in lot.clone() {
            assert_eq!(connection.receive().expect("a reply").as_integer(), Some(4));
            assert_eq!(connection.receive().expect("a reply").as_integer(), Some(2));
            assert_eq!(connection.receive().expect("a reply").text(), "OK");
        }
        number = lot.end;
    }
}

/// Reads until all that the writers say has come: in each writer's order, but for keys that are
/// told together.
fn listen(name: &str, way: Way, listener: &mut TestConnection) {
    let mut next = [0; WRITERS];
    let mut keys: BTreeSet<(usize, usize)> = BTreeSet::new();
    while next.iter().sum::<usize>() + keys.len() < WRITERS * WRITES {
        let reply = listener.receive().unwrap_or_else(|error| {
            panic!("{name}: {way:?}: {error} after {next:?} and {} keys", keys.len())
        });
        let words = match way {
            Way::Monitor => match monitored(&reply) {
                Some(word) => vec![word],
                None => continue,
            },
            Way::Tracking | Way::Redirected => {
                assert_eq!(reply.items()[0].text(), "invalidate", "{name}: {way:?}");
                reply.items()[1].items().iter().map(ReplyFrame::text).collect()
            }
            _ => vec![reply.items().last().expect("a message").text()],
        };
        for word in words {
            let (writer, number) = written(&word);
            if matches!(way, Way::Tracking | Way::Redirected) {
                assert!(keys.insert((writer, number)), "{name}: {way:?} is told of {word} twice");
            } else {
                assert_eq!(number, next[writer], "{name}: {way:?}: {word}");
                next[writer] += 1;
            }
        }
    }
}

/// The key of a SET that a monitor was shown.
fn monitored(line: &ReplyFrame) -> Option<String> {
    let line = line.text();
    let mut words = line.split('"').skip(1).step_by(2);
    (words.next()? == "SET").then(|| words.next().expect("a key").to_owned())
}

/// The writer and the number of `0:7`, or of `k:0:7`.
fn written(word: &str) -> (usize, usize) {
    let number = |digits: &str| digits.parse().expect("a number");
    let (rest, last) = word.rsplit_once(':').expect("two numbers");
    (number(rest.trim_start_matches("k:")), number(last))
}

/// Listens to a channel and ends that, over and over: in between it may go to another thread. It
/// hears what was counted while it listened, and nothing else.
fn come_and_go(name: &str, server: &TestServer) {
    let (mut guest, mut publisher) = (server.connect(), server.connect());
    for round in 0..200 {
        let counted = |publisher: &mut TestConnection| {
            publisher.say(&format!("PUBLISH guests {round}")).as_integer()
        };
        assert_eq!(guest.say("SUBSCRIBE guests").items()[0].text(), "subscribe", "{name}");
        for _ in 0..round % 4 {
            assert_eq!(counted(&mut publisher), Some(1), "{name}: round {round}");
        }
        guest.send(&["UNSUBSCRIBE"]).expect("sent");
        for _ in 0..round % 4 {
            let message = guest.receive().expect("a message");
            let words = [message.items()[0].text(), message.items()[2].text()];
            assert_eq!(words, ["message".to_owned(), round.to_string()], "{name}");
        }
        assert_eq!(guest.receive().expect("a reply").items()[0].text(), "unsubscribe", "{name}");
        assert_eq!(counted(&mut publisher), Some(0), "{name}: round {round}");
    }
}

/// A thread that is too many keeps the clients that listen and gives all others away. It is the
/// next to serve again, is gone once no client listens there, and does not keep the process from
/// ending.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_thread_that_is_too_many_lives_on_for_those_who_listen() {
    for driver in DRIVERS {
        let arguments = [&["--io-threads", "4", "--io-driver", driver], &SPREAD[..]].concat();
        let mut server = TestServer::bobbin(&arguments);
        let mut control = server.connect();
        let mut listeners: Vec<TestConnection> = (0..8).map(|_| server.connect()).collect();
        for listener in &mut listeners {
            listener.say("SUBSCRIBE news");
        }
        // The connection that looked whether the server is there is gone by then.
        let all = eventually(&mut control, |threads| threads.by_id.values().sum::<usize>() == 9);
        assert_eq!(all.by_id.len(), 4, "{driver}");
        let mut others: Vec<TestConnection> = (0..8).map(|_| server.connect()).collect();

        let set = |control: &mut TestConnection, threads: usize| {
            let reply = control.say(&format!("CONFIG SET io-threads {threads}"));
            assert_eq!(reply.text(), "OK", "{driver}");
        };
        set(&mut control, 1);
        let alone = eventually(&mut control, |threads| {
            let mut retired = threads.by_id.iter().skip(1);
            retired.all(|(id, count)| *count <= all.by_id[id])
        });
        assert!(alone.by_id.keys().eq(all.by_id.keys()), "{driver}: {alone:?}");
        let gone: usize = all.by_id.iter().skip(1).map(|(id, count)| count - alone.by_id[id]).sum();
        assert!(gone <= 1, "{driver}: more than who changes the number left: {all:?}, {alone:?}");
        assert_eq!(alone.serving, 1, "{driver}");
        assert_eq!(control.say("PUBLISH news now").as_integer(), Some(8), "{driver}");
        for listener in &mut listeners {
            assert_eq!(listener.receive().expect("a message").items()[2].text(), "now");
        }

        set(&mut control, 3);
        let again = Threads::of(&mut control);
        assert!(again.by_id.keys().eq(all.by_id.keys()), "{driver}: {again:?}");
        assert_eq!(again.serving, 3, "{driver}");
        let spread = eventually(&mut control, |threads| {
            threads.by_id.values().take(3).all(|&count| count >= 4)
        });
        let last = |threads: &Threads| threads.by_id.values().last().copied();
        assert_eq!(last(&spread), last(&alone), "{driver}: {spread:?}");

        set(&mut control, 1);
        for listener in &mut listeners {
            assert_eq!(listener.say("UNSUBSCRIBE").items()[0].text(), "unsubscribe");
        }
        eventually(&mut control, |threads| threads.by_id.len() == 1);
        set(&mut control, 2);
        let new = Threads::of(&mut control);
        assert_eq!((new.by_id.len(), new.serving), (2, 2), "{driver}");
        assert!(new.by_id.keys().last() > all.by_id.keys().last(), "{driver}: {new:?}");
        for client in others.iter_mut().chain(&mut listeners) {
            assert_eq!(client.say("PING").text(), "PONG", "{driver}");
        }

        for listener in &mut listeners {
            listener.say("SUBSCRIBE news");
        }
        set(&mut control, 1);
        server.signal("TERM");
        let status = server.wait(LIMIT);
        assert!(status.is_some_and(|status| status.success()), "{driver}: {status:?}");
    }
}

/// The threads that there are, with the connections of each, and how many of them serve all.
#[derive(Debug)]
struct Threads {
    by_id: BTreeMap<usize, usize>,
    serving: usize,
}

impl Threads {
    fn of(control: &mut TestConnection) -> Self {
        let number = |digits: &str| digits.parse().expect("a number");
        let text = control.say("INFO threads").text();
        let workers = text.lines().filter_map(|line| line.split_once(":id="));
        let by_id = workers.map(|(_, line)| {
            let fields: HashMap<_, _> =
                line.split(',').filter_map(|it| it.split_once('=')).collect();
            (number(line.split(',').next().unwrap_or_default()), number(fields["connections"]))
        });
        let by_id = by_id.collect();
        let server = control.say("INFO server").text();
        let serving = server.lines().find_map(|line| line.strip_prefix("io_threads_active:"));
        Self { by_id, serving: number(serving.expect("it is told")) }
    }
}

/// Waits until the threads are as they should be.
fn eventually(control: &mut TestConnection, is_so: impl Fn(&Threads) -> bool) -> Threads {
    let deadline = Instant::now() + LIMIT;
    loop {
        let threads = Threads::of(control);
        if is_so(&threads) {
            return threads;
        }
        assert!(Instant::now() < deadline, "{threads:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Nothing of what others did follows the answer to RESET.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_monitor_is_shown_nothing_behind_its_end() {
    on_both(&["--io-threads", "3"], |name, server| {
        let server = &*server;
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let done = &done;
            let _end = Ends(done);
            for writer in 0..2 {
                scope.spawn(move || {
                    let mut connection = server.connect();
                    while !done.load(Ordering::Relaxed) {
                        for _ in 0..100 {
                            connection.send(&["INCR", &format!("k{writer}")]).expect("sent");
                        }
                        for _ in 0..100 {
                            connection.receive().expect("a reply");
                        }
                    }
                });
            }
            let mut monitor = server.connect();
            for round in 0..200 {
                assert_eq!(monitor.say("MONITOR").text(), "OK", "{name}");
                assert!(monitor.receive().expect("a line").text().contains("INCR"), "{name}");
                monitor.send(&["RESET"]).expect("sent");
                while monitor.receive().expect("a line").text() != "RESET" {}
                let word = format!("round {round}");
                let echo = monitor.call(&["ECHO", &word]).expect("a reply").text();
                assert_eq!(echo, word, "{name}");
            }
        });
    });
}
