//! Copies of all keys that come by a connection of their own, while the stream behind them comes by
//! the main one: between servers of both makes, and when either connection breaks.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::spawn;

use bobbin_testkit::{ReplyFrame, TestConnection, TestServer, until};

const ARGUMENTS: [&str; 8] = [
    "--repl-diskless-sync-delay",
    "0",
    "--enable-debug-command",
    "yes",
    "--dual-channel-replication-enabled",
    "yes",
    "--rdbcompression",
    "no",
];

fn start(begin: fn(&[&str]) -> TestServer) -> TestServer {
    begin(&ARGUMENTS)
}

/// The way from a replica to its primary. A copy is held up on it after its first bytes, until it
/// is let go.
struct Way {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    primary: SocketAddr,
    state: Mutex<State>,
    changes: Condvar,
}

#[derive(Default)]
struct State {
    connections: Vec<Arc<Hop>>,
    is_open: bool,
    is_over: bool,
}

/// A connection on the way: the replica's end, and the primary's.
struct Hop {
    ends: [TcpStream; 2],
    is_copy: AtomicBool,
}

/// So many bytes of a copy pass in any case.
const HELD_FROM: usize = 1000;

impl Way {
    fn to(primary: &TestServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let shared =
            Shared { primary: primary.address(), state: Mutex::default(), changes: Condvar::new() };
        let shared = Arc::new(shared);
        let accepting = Arc::clone(&shared);
        spawn(move || {
            for socket in listener.incoming().flatten() {
                if accepting.state.lock().expect("nobody panics").is_over {
                    break;
                }
                accepting.pass(socket);
            }
        });
        Self { port, shared }
    }

    /// Copies pass from now on.
    fn let_go(&self) {
        self.shared.change(|state| state.is_open = true);
    }

    /// How many copies have begun.
    fn copies(&self) -> usize {
        self.hops(true).len()
    }

    /// Breaks all connections for copies, or all others.
    fn cut(&self, copies: bool) {
        for hop in self.hops(copies) {
            hop.end();
        }
        self.shared.changes.notify_all();
    }

    fn hops(&self, copies: bool) -> Vec<Arc<Hop>> {
        let state = self.shared.state.lock().expect("nobody panics");
        let is_meant = |hop: &&Arc<Hop>| hop.is_copy.load(Ordering::SeqCst) == copies;
        state.connections.iter().filter(is_meant).cloned().collect()
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.shared.change(|state| state.is_over = true);
        self.cut(true);
        self.cut(false);
        // So that the thread that accepts looks.
        TcpStream::connect(("127.0.0.1", self.port)).ok();
    }
}

impl Shared {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().expect("nobody panics"));
        self.changes.notify_all();
    }

    fn pass(self: &Arc<Self>, replica: TcpStream) {
        let Ok(primary) = TcpStream::connect(self.primary) else { return };
        let hop = Arc::new(Hop { ends: [replica, primary], is_copy: AtomicBool::new(false) });
        self.change(|state| state.connections.push(Arc::clone(&hop)));
        for from in [0, 1] {
            let (shared, hop) = (Arc::clone(self), Arc::clone(&hop));
            spawn(move || {
                shared.carry(&hop, from);
                hop.end();
            });
        }
    }

    /// Carries what comes from an end to the other one.
    fn carry(&self, hop: &Hop, from: usize) {
        let (mut bytes, mut carried) = ([0; 4096], 0);
        while let Ok(count) = (&hop.ends[from]).read(&mut bytes)
            && count > 0
        {
            let bytes = &bytes[..count];
            if from == 0 && bytes.windows(8).any(|part| part == b"rdb-only") {
                hop.is_copy.store(true, Ordering::SeqCst);
            }
            let is_copy = from == 1 && hop.is_copy.load(Ordering::SeqCst);
            let free = if is_copy { HELD_FROM.saturating_sub(carried).min(count) } else { count };
            let (at_once, held) = bytes.split_at(free);
            carried += count;
            let mut sent = (&hop.ends[1 - from]).write_all(at_once);
            if !held.is_empty() {
                let state = self.state.lock().expect("nobody panics");
                let is_held = |state: &mut State| !state.is_open && !state.is_over;
                drop(self.changes.wait_while(state, is_held).expect("nobody panics"));
                sent = (&hop.ends[1 - from]).write_all(held);
            }
            if sent.is_err() {
                break;
            }
        }
    }
}

impl Hop {
    fn end(&self) {
        for end in &self.ends {
            // It may have ended already.
            end.shutdown(Shutdown::Both).ok();
        }
    }
}

/// More than the sockets on the way hold.
fn fill(primary: &TestServer) {
    let mut client = primary.connect();
    client.say("SELECT 3");
    client.say("SET other 1");
    client.say("SELECT 0");
    assert_eq!(client.say("DEBUG POPULATE 64 large 65536"), ReplyFrame::simple("OK"));
}

/// Writes to several databases, with transactions.
fn write(primary: &TestServer, name: &str) {
    let mut client = primary.connect();
    for n in 0..50 {
        client.say(&format!("SELECT {}", n % 3));
        client.say(&format!("SET {name}:{n} value"));
        client.say("MULTI");
        client.say(&format!("INCR {name}"));
        client.say(&format!("RPUSH {name}:list {n}"));
        client.say("EXEC");
        client.say(&format!("DEL large:{n}"));
    }
}

/// The states and kinds of connections that a primary tells of.
fn channels(primary: &TestServer) -> String {
    let info = primary.connect().say("INFO replication").text();
    let part = |line: &str, name: &str| {
        line.split(',').find_map(|part| part.strip_prefix(name)).unwrap_or_default().to_owned()
    };
    let lines = info.lines().filter(|line| line.contains(",type="));
    let shown = lines.map(|line| format!("{} {}", part(line, "type="), part(line, "state=")));
    shown.collect::<Vec<_>>().join(", ")
}

const COPYING: &str = "rdb-channel wait_bgsave, main-channel bg_transfer";

fn same(primary: &TestServer, replica: &TestServer) {
    primary.settle(&[replica]);
    until(|| channels(primary) == "replica online");
    assert_eq!(primary.digest(), replica.digest());
}

/// Has a replica follow by two connections, with writes meanwhile; `disturb` may break them.
fn copies_by_two(
    primary: &TestServer,
    replica: &TestServer,
    disturb: impl Fn(&Way, &TestServer),
) -> Way {
    fill(primary);
    let way = Way::to(primary);
    replica.follow(way.port);
    until(|| channels(primary) == COPYING);
    write(primary, "first");
    let number = |field| replica.info(field).parse::<u64>().expect("it is a number");
    until(|| number("replicas_repl_buffer_size") > 0);
    assert_eq!(replica.info("master_sync_in_progress"), "1");
    assert_eq!(primary.info("replicas_waiting_psync"), "0");
    disturb(&way, replica);
    write(primary, "second");
    way.let_go();
    same(primary, replica);
    assert_eq!(number("replicas_repl_buffer_size"), 0);
    // They go on as ever.
    write(primary, "third");
    same(primary, replica);
    way
}

fn copies_undisturbed(primary: fn(&[&str]) -> TestServer, replica: &TestServer) {
    let primary = start(primary);
    let way = copies_by_two(&primary, replica, |_, _| {});
    assert_eq!((primary.info("sync_full"), primary.info("sync_partial_ok")), one_each());
    assert_ne!(replica.info("replicas_repl_buffer_peak"), "0");
    // A broken connection is mended without a copy.
    way.cut(false);
    write(&primary, "fourth");
    same(&primary, replica);
    assert_eq!((primary.info("sync_full"), way.copies()), ("1".to_owned(), 1));
}

fn one_each() -> (String, String) {
    ("1".to_owned(), "1".to_owned())
}

fn copies_again(
    primary: fn(&[&str]) -> TestServer,
    replica: fn(&[&str]) -> TestServer,
    cut: fn(&Way, &TestServer),
) {
    let (primary, replica) = (start(primary), start(replica));
    let way = copies_by_two(&primary, &replica, cut);
    assert!(way.copies() >= 2);
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_copy_goes_by_a_connection_of_its_own() {
    std::thread::scope(|scope| {
        for mode in ["disabled", "on-empty-db", "swapdb", "flush-before-load"] {
            scope.spawn(move || {
                let mode = ["--repl-diskless-load", mode];
                let replica = TestServer::bobbin(&[&ARGUMENTS[..], &mode].concat());
                copies_undisturbed(TestServer::bobbin, &replica);
            });
        }
    });
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn valkey_takes_a_copy_by_a_connection_of_its_own() {
    copies_undisturbed(TestServer::bobbin, &start(TestServer::valkey));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_copy_of_valkey_comes_by_a_connection_of_its_own() {
    copies_undisturbed(TestServer::valkey, &start(TestServer::bobbin));
}

/// Has a replica follow by two connections, where one of the two servers is Redis. `buffer`: where
/// the replica tells how much of the stream it keeps.
fn copies_with_redis(primary: &TestServer, replica: &TestServer, buffer: &str) {
    fill(primary);
    let way = Way::to(primary);
    replica.follow(way.port);
    until(|| way.copies() == 1);
    write(primary, "first");
    until(|| replica.info(buffer) != "0");
    write(primary, "second");
    way.let_go();
    for name in ["third", "fourth"] {
        primary.settle(&[replica]);
        assert_eq!(primary.digest(), replica.digest());
        write(primary, name);
    }
    primary.settle(&[replica]);
    assert_eq!((primary.info("sync_full"), way.copies()), ("1".to_owned(), 1));
    // A broken connection is mended without a copy.
    way.cut(false);
    write(primary, "fifth");
    primary.settle(&[replica]);
    assert_eq!(primary.digest(), replica.digest());
    assert_eq!((primary.info("sync_full"), way.copies()), ("1".to_owned(), 1));
}

fn redis() -> TestServer {
    let [_, _, _, _, _, _, rest @ ..] = &ARGUMENTS;
    TestServer::redis(&[&ARGUMENTS[..4], &["--repl-rdb-channel", "yes"], rest].concat())
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn redis_takes_a_copy_by_a_connection_of_its_own() {
    let (primary, replica) = (start(TestServer::bobbin), redis());
    copies_with_redis(&primary, &replica, "replica_full_sync_buffer_size");
    assert_ne!(replica.info("replica_full_sync_buffer_peak"), "0");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_copy_of_redis_comes_by_a_connection_of_its_own() {
    let (primary, replica) = (redis(), start(TestServer::bobbin));
    copies_with_redis(&primary, &replica, "replicas_repl_buffer_size");
    assert_ne!(replica.info("replicas_repl_buffer_peak"), "0");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_copy_names_its_main_connection_as_with_redis() {
    // Redis does not tell which of a replica's connections it is.
    for (primary, waiting) in
        [(start(TestServer::bobbin), "main-channel wait_bgsave"), (redis(), "")]
    {
        let (mut main, mut copy) = (primary.connect(), primary.connect());
        let unknown = ReplyFrame::error("ERR Unrecognized RDB client id: 1000000");
        assert_eq!(copy.say("REPLCONF main-ch-client-id 1000000"), unknown);
        assert!(copy.say("REPLCONF main-ch-client-id x").is_error());
        let capable = "REPLCONF capa eof capa psync2 capa rdb-channel-repl";
        assert_eq!(main.say(capable), ReplyFrame::simple("OK"));
        let answer = main.say("PSYNC ? -1").text();
        let id = answer.strip_prefix("RDBCHANNELSYNC ").unwrap_or_else(|| panic!("{answer}"));
        let introduction =
            format!("REPLCONF capa eof rdb-only 1 rdb-channel 1 main-ch-client-id {id}");
        assert_eq!(copy.say(&introduction), ReplyFrame::simple("OK"));
        assert_eq!(channels(&primary), waiting);
        let answer = copy.say("PSYNC ? -1").text();
        assert!(answer.starts_with("FULLRESYNC "), "{answer}");
        primary.connect().say("SET key value");
        assert_eq!(main.receive().expect("it comes").items()[0].text(), "SELECT");
        assert_eq!(main.receive().expect("it comes").items()[1].text(), "key");
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn the_connection_of_a_copy_is_awaited_for_a_while() {
    let primary = start(TestServer::bobbin);
    primary.connect().say("CONFIG SET repl-timeout 1");
    let mut main = primary.connect();
    main.say("REPLCONF capa eof capa psync2 capa rdb-channel-repl");
    assert!(main.say("PSYNC ? -1").text().starts_with("RDBCHANNELSYNC "));
    assert_eq!(channels(&primary), "main-channel wait_bgsave");
    assert!(main.receive().is_err(), "the primary gives it up");
    assert_eq!(channels(&primary), "");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_copy_begins_anew_when_its_connection_breaks() {
    let cut = |way: &Way, _: &TestServer| {
        way.cut(true);
        until(|| way.copies() >= 2);
    };
    std::thread::scope(|scope| {
        scope.spawn(move || copies_again(TestServer::bobbin, TestServer::bobbin, cut));
        scope.spawn(move || copies_again(TestServer::bobbin, TestServer::valkey, cut));
        scope.spawn(move || copies_again(TestServer::valkey, TestServer::bobbin, cut));
    });
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_copy_begins_anew_when_the_main_connection_breaks() {
    let cut = |way: &Way, _: &TestServer| {
        way.cut(false);
        until(|| way.copies() >= 2);
    };
    // Valkey waits for the copy to go on before it gives it up.
    let cut_and_let_go = |way: &Way, replica: &TestServer| {
        way.cut(false);
        until(|| replica.log().contains("Provisional primary closed connection"));
        way.let_go();
        until(|| way.copies() >= 2);
    };
    std::thread::scope(|scope| {
        scope.spawn(move || copies_again(TestServer::bobbin, TestServer::bobbin, cut));
        scope.spawn(move || copies_again(TestServer::valkey, TestServer::bobbin, cut));
        scope.spawn(move || copies_again(TestServer::bobbin, TestServer::valkey, cut_and_let_go));
    });
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_was_gathered_is_used_when_the_main_connection_breaks_while_the_copy_is_loaded() {
    let (primary, replica) = (start(TestServer::bobbin), start(TestServer::bobbin));
    // It takes a while to load, during which more comes.
    replica.connect().say("CONFIG SET key-load-delay 3000");
    let cut = |way: &Way, replica: &TestServer| {
        way.let_go();
        until(|| replica.info("loading") == "1");
        way.cut(false);
    };
    let way = copies_by_two(&primary, &replica, cut);
    let syncs = (primary.info("sync_full"), way.copies());
    assert_eq!((syncs, primary.info("sync_partial_ok")), (("1".to_owned(), 1), "2".to_owned()));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_is_gathered_has_a_limit() {
    let (primary, replica) = (start(TestServer::bobbin), start(TestServer::bobbin));
    let limit = ["CONFIG", "SET", "client-output-buffer-limit", "replica 100000 0 0"];
    assert_eq!(replica.connect().call(&limit).expect("it answers"), ReplyFrame::simple("OK"));
    fill(&primary);
    let way = Way::to(&primary);
    replica.follow(way.port);
    until(|| channels(&primary) == COPYING);
    let mut client = primary.connect();
    for n in 0..100 {
        client.call(&["SET", &format!("key:{n}"), &"x".repeat(30_000)]).expect("it answers");
    }
    let full = "Replication buffer limit reached (100000 bytes), stopping buffering";
    until(|| replica.log().contains(full));
    assert_eq!(replica.info("replicas_repl_buffer_peak"), "100000");
    way.let_go();
    same(&primary, &replica);
    write(&primary, "last");
    same(&primary, &replica);
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn replicas_of_replicas_take_copies_in_the_same_way() {
    let servers = [start(TestServer::bobbin), start(TestServer::bobbin), start(TestServer::bobbin)];
    let [first, second, third] = &servers;
    first.connect().say("SET zero 0");
    second.follow(first.address().port());
    first.settle(&[second]);
    let mut client = first.connect();
    client.say("SELECT 2");
    client.say("SET one 1");
    first.settle(&[second]);
    // It goes on in the middle of a stream, in a database that this does not say again.
    third.follow(second.address().port());
    until(|| channels(second) == "replica online");
    client.say("SET two 2");
    first.settle(&[second, third]);
    assert_eq!(first.digest(), third.digest());
    assert_eq!(second.info("sync_full"), "1");
    assert_eq!((second.info("sync_partial_ok"), channels(second)), online());
}

fn online() -> (String, String) {
    ("1".to_owned(), "replica online".to_owned())
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn one_connection_does_where_either_side_does_not_want_two() {
    for (at_primary, at_replica) in [
        ("CONFIG SET dual-channel-replication-enabled no", "PING"),
        ("CONFIG SET repl-diskless-sync no", "PING"),
        ("PING", "CONFIG SET dual-channel-replication-enabled no"),
    ] {
        let (primary, replica) = (start(TestServer::bobbin), start(TestServer::bobbin));
        primary.connect().say(at_primary);
        replica.connect().say(at_replica);
        primary.connect().say("SET key value");
        replica.follow(primary.address().port());
        same(&primary, &replica);
        let syncs = (primary.info("sync_full"), primary.info("sync_partial_ok"));
        assert_eq!(syncs, ("1".to_owned(), "0".to_owned()), "{at_primary} {at_replica}");
    }
}

/// A copy's connection that the test plays: the answers to PSYNC and SYNC are read.
fn ask_for_copy(primary: &TestServer) -> (TestConnection, TestConnection, Vec<String>) {
    let (mut main, mut copy) = (primary.connect(), primary.connect());
    let capable = "REPLCONF capa eof capa psync2 capa dual-channel version 9.1.2";
    assert_eq!(main.say(capable), ReplyFrame::simple("OK"));
    assert_eq!(main.say("PSYNC ? -1"), ReplyFrame::simple("DUALCHANNELSYNC"));
    let introduction = "REPLCONF capa eof rdb-only 1 rdb-channel 1 version 9.1.2";
    assert_eq!(copy.say(introduction), ReplyFrame::simple("OK"));
    copy.send(&["SYNC"]).expect("it is sent");
    let (mut line, mut byte) = (String::new(), [0]);
    while !line.ends_with("\r\n") {
        copy.stream().read_exact(&mut byte).expect("a line comes");
        line.push(char::from(byte[0]));
    }
    let line = line.trim().strip_prefix("$ENDOFF:").unwrap_or_else(|| panic!("{line}"));
    let parts: Vec<_> = line.split(' ').map(str::to_owned).collect();
    assert_eq!((parts.len(), &*parts[2]), (4, "-1"));
    (main, copy, parts)
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_main_connection_is_awaited_for_a_while() {
    let primary = start(TestServer::bobbin);
    primary.connect().say("CONFIG SET repl-backlog-size 1");
    let write = |name: &str| {
        let mut client = primary.connect();
        client.call(&["SET", name, &"x".repeat(200_000)]).expect("it answers");
        client.say("WAITAOF 0 0 0");
    };
    let (mut main, copy, parts) = ask_for_copy(&primary);
    let unknown = main.say("REPLCONF set-rdb-client-id 1000000");
    assert_eq!(unknown, ReplyFrame::error("ERR Unrecognized RDB client id 1000000"));
    assert_eq!(primary.info("replicas_waiting_psync"), "1");
    // Far more than the backlog holds.
    drop(copy);
    (0..10).for_each(|n| write(&format!("key:{n}")));
    let next = parts[0].parse::<u64>().expect("an offset") + 1;
    let named = main.say(&format!("REPLCONF set-rdb-client-id {}", parts[3]));
    assert_eq!(named, ReplyFrame::simple("OK"));
    let going_on = main.say(&format!("PSYNC {} {next}", parts[1]));
    assert_eq!(going_on, ReplyFrame::simple(&format!("CONTINUE {}", parts[1])));
    assert_eq!(main.receive().expect("it comes").items().len(), 2, "SELECT");
    assert_eq!(main.receive().expect("it comes").items()[1].text(), "key:0");
    assert_eq!(primary.info("replicas_waiting_psync"), "0");
    assert_eq!(channels(&primary), "main-channel bg_transfer");
    drop(main);

    let (mut main, copy, parts) = ask_for_copy(&primary);
    let mut client = primary.connect();
    assert_eq!(client.say("DEBUG DELAY-RDB-CLIENT-FREE-SECONDS 0"), ReplyFrame::simple("OK"));
    assert_eq!(primary.info("replicas_waiting_psync"), "1");
    drop(copy);
    until(|| primary.info("replicas_waiting_psync") == "0");
    assert!(primary.log().contains("failed to establish PSYNC within the grace period"));
    assert!(main.say(&format!("REPLCONF set-rdb-client-id {}", parts[3])).is_error());
    (0..10).for_each(|n| write(&format!("more:{n}")));
    let next = parts[0].parse::<u64>().expect("an offset") + 1;
    let answer = main.say(&format!("PSYNC {} {next}", parts[1]));
    assert_eq!(answer, ReplyFrame::simple("DUALCHANNELSYNC"));

    // More waits for it than a replica may leave unread.
    client.say("DEBUG DELAY-RDB-CLIENT-FREE-SECONDS 1000");
    let limit = ["CONFIG", "SET", "client-output-buffer-limit", "replica 100000 0 0"];
    client.call(&limit).expect("it answers");
    let (_main, copy, _) = ask_for_copy(&primary);
    drop(copy);
    write("last");
    until(|| primary.info("replicas_waiting_psync") == "0");
}
