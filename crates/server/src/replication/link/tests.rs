//! What a link may do to the server once the server's role has changed.

use std::io::ErrorKind::WouldBlock;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::machine::{GiveUp, LinkEvent};
use super::session::LinkSession;
use super::wire::{LinkWire, READ_WAIT};
use super::{Helpers, Link, LinkState, RETRY};
use crate::config::{Config, OptionId};
use crate::engine::server::{Server, Switch, background};
use crate::engine::telemetry::slowlog::SlowlogClass;
use crate::persistence::aof::replay::Replay;
use crate::replication::Replication;
use crate::simulation::process::SimulatedProcess;
use crate::simulation::tasks;

/// A server, and a link to a primary that nobody runs.
fn server_and_link() -> (&'static Server, Arc<Link>) {
    tasks::begin();
    let server = crate::process::create(Config::new(), &[]).expect("a server can be made");
    let link = Link::start(server, ("primary".into(), 1), None, channel().1).expect("it starts");
    (server, link)
}

/// A session, and the primary's end of its connection.
fn session<'a>(
    server: &'static Server,
    link: &'a Link,
    at_hand: (&'a mut Replay, &'a mut Helpers),
) -> (LinkSession<'a>, TcpStream) {
    let (wire, primary) = connection();
    (LinkSession::new(server, link, at_hand, wire, false), primary)
}

/// A connection to a primary, and the primary's end of it.
fn connection() -> (LinkWire, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let address = listener.local_addr().expect("it has an address");
    let socket = TcpStream::connect(address).expect("it listens");
    socket.set_read_timeout(Some(READ_WAIT)).expect("a socket has a time limit");
    let wire = LinkWire::Plain(socket);
    (wire, listener.accept().expect("it was connected to").0)
}

/// Has a session receive these bytes from its primary.
fn hear(session: &mut LinkSession<'_>, said: &[u8]) {
    session.machine.room(said.len())[..said.len()].copy_from_slice(said);
    session.machine.received(said.len(), 0);
}

/// The primary's answer has come, but the server is promoted before it handles the answer.
#[test]
fn a_server_that_leads_gets_no_name_of_a_primary() {
    let (server, link) = server_and_link();
    let mut replay = Replay::following(server).expect("there are threads for all");
    let mut helpers = Helpers::start(server);
    server.feed.begin(0);
    server.feed.relay(true);
    let id = server.feed.id();
    for is_over in [true, false] {
        link.is_over.store(is_over, Ordering::SeqCst);
        let (mut session, primary) = session(server, &link, (&mut replay, &mut helpers));
        let answers = format!("{GREETING}+CONTINUE {}\r\n", "a".repeat(40));
        hear(&mut session, answers.as_bytes());
        drop(primary);
        assert!(session.follow().is_err(), "it comes to an end");
        assert_eq!(server.feed.id() == id, is_over, "{}", server.feed.id());
    }
}

/// After a failed copy the old data is gone, so nobody may continue from it at the same offset.
#[test]
fn after_a_copy_that_broke_nobody_goes_on_with_what_was_there() {
    let (server, link) = server_and_link();
    let mut replay = Replay::following(server).expect("there are threads for all");
    let mut helpers = Helpers::start(server);
    *Replication::of(server).link.lock() = Some(Arc::clone(&link));
    server.config.set_internally(OptionId::repl_diskless_load, "flush-before-load").unwrap();
    server.feed.begin(100);
    server.feed.relay(true);
    let id = server.feed.id();
    let (mut session, primary) = session(server, &link, (&mut replay, &mut helpers));
    let copy = b"REDIS0011\xfe\x00\x99, which is no key";
    let head = format!("+FULLRESYNC {} 5000\r\n${}\r\n", "a".repeat(40), copy.len());
    hear(&mut session, &[GREETING.as_bytes(), head.as_bytes(), copy].concat());
    assert!(session.follow().is_err(), "it is no copy");
    assert!(!server.feed.is_on());
    drop(primary);
    Replication::of(server).lead(server);
    let offset = server.feed.published();
    assert!(!server.feed.history().holds(id.as_str().as_bytes(), offset));
}

/// Else they would wait on for what is there, or for a group that is gone.
#[test]
fn clients_that_wait_for_keys_look_at_them_when_a_copy_is_loaded() {
    for mode in ["disabled", "flush-before-load", "swapdb"] {
        let mut process = SimulatedProcess::new(1);
        let server = process.server;
        let (popper, reader, other) = (process.connect(0), process.connect(0), process.connect(0));
        process.ask(&other, "XGROUP CREATE stream group $ MKSTREAM");
        let link =
            Link::start(server, ("primary".into(), 1), None, channel().1).expect("it starts");
        let mut replay = Replay::following(server).expect("there are threads for all");
        let mut helpers = Helpers::start(server);
        *Replication::of(server).link.lock() = Some(Arc::clone(&link));
        server.config.set_internally(OptionId::repl_diskless_load, mode).unwrap();
        assert_eq!(process.ask(&popper, "BLPOP list 0"), "");
        let read = "XREADGROUP GROUP group me BLOCK 0 STREAMS stream >";
        assert_eq!(process.ask(&reader, read), "");
        let (mut session, primary) = session(server, &link, (&mut replay, &mut helpers));
        let copy = b"REDIS0011\xfe\x00\x01\x04list\x01\x01v\xff\0\0\0\0\0\0\0\0";
        let head = format!("+FULLRESYNC {} 5000\r\n${}\r\n", "a".repeat(40), copy.len());
        hear(&mut session, &[GREETING.as_bytes(), head.as_bytes(), copy].concat());
        drop(primary);
        assert!(session.follow().is_err(), "it comes to an end");
        assert_eq!(server.feed.published(), 5000, "the copy is loaded");
        process.turns(2);
        assert_eq!(process.heard(&popper), "*2\r\n$4\r\nlist\r\n$1\r\nv\r\n", "{mode}");
        assert!(process.heard(&reader).starts_with("-NOGROUP "), "{mode}");
        assert_eq!(process.ask(&other, "EXISTS list"), ":0\r\n");
    }
}

/// A newer primary may send what an older replica cannot read.
#[test]
fn nothing_is_deleted_for_a_copy_of_an_unknown_version() {
    let (server, link) = server_and_link();
    let mut replay = Replay::following(server).expect("there are threads for all");
    let mut helpers = Helpers::start(server);
    *Replication::of(server).link.lock() = Some(Arc::clone(&link));
    server.feed.begin(100);
    server.feed.relay(true);
    let id = server.feed.id();
    for mode in ["flush-before-load", "disabled"] {
        server.config.set_internally(OptionId::repl_diskless_load, mode).unwrap();
        let (mut session, _primary) = session(server, &link, (&mut replay, &mut helpers));
        let copy = b"REDIS0987\xff\0\0\0\0\0\0\0\0";
        let head = format!("+FULLRESYNC {} 5000\r\n${}\r\n", "a".repeat(40), copy.len());
        hear(&mut session, &[GREETING.as_bytes(), head.as_bytes(), copy].concat());
        let ended = session.follow().expect_err("it cannot be read");
        assert!(ended.why.contains("Can't handle RDB format version 987"), "{}", ended.why);
        assert!(server.feed.is_on() && server.feed.id() == id, "{mode}");
        assert!(!server.switches.has(Switch::LOADING));
    }
}

/// A primary closes the connection of a copy as soon as it has sent all of it.
#[test]
fn a_copy_may_be_over_before_the_stream_is_sure_to_come() {
    let (server, link) = server_and_link();
    let mut replay = Replay::following(server).expect("there are threads for all");
    let mut helpers = Helpers::start(server);
    server.config.set_internally(OptionId::dual_channel_replication_enabled, "yes").unwrap();
    let copy = format!("+OK\r\n$ENDOFF:12 {} 0 7\r\n$4\r\nkeys", "a".repeat(40));
    for len in [copy.len() - 1, copy.len()] {
        let (mut session, mut primary) = session(server, &link, (&mut replay, &mut helpers));
        hear(&mut session, format!("{GREETING}+DUALCHANNELSYNC\r\n").as_bytes());
        assert_eq!(session.machine.next_event(), Ok(LinkEvent::WantsChannel));
        let (wire, mut channel) = connection();
        session.fetch_by(wire);
        channel.write_all(&copy.as_bytes()[..len]).expect("it is connected");
        channel.shutdown(Shutdown::Write).expect("it is connected");
        let mut next = || {
            let event = session.machine.next_event();
            if event == Ok(LinkEvent::Nothing) {
                session.receive()?;
                return Ok(None);
            }
            event.map(|event| Some(format!("{event:?}")))
        };
        let events: Result<Vec<_>, GiveUp> = (0..10).map(|_| next()).collect();
        let is_whole = len == copy.len();
        assert_eq!(events.is_ok(), is_whole, "{events:?}");
        if is_whole {
            primary.write_all(b"+OK\r\n+CONTINUE\r\n").expect("it is connected");
            while next() != Ok(Some("CopyEnds".to_owned())) {}
        }
    }
}

/// A link's state counts only while the link is the server's current one.
#[test]
fn a_server_is_not_up_by_a_link_of_before() {
    let (server, link) = server_and_link();
    server.switches.set(Switch::LINK_DOWN, true);
    link.set_state(server, LinkState::Connected);
    assert!(server.switches.has(Switch::LINK_DOWN));
}

/// A server that is a replica of a stream from its beginning, and what it follows with.
fn follower() -> (&'static Server, Arc<Link>, Replay, Helpers) {
    let (server, link) = server_and_link();
    let replay = Replay::following(server).expect("there are threads for all");
    let helpers = Helpers::start(server);
    *Replication::of(server).link.lock() = Some(Arc::clone(&link));
    server.switches.set(Switch::REPLICA, true);
    server.feed.begin(0);
    server.feed.relay(true);
    (server, link, replay, helpers)
}

/// The bytes of a command.
fn command(line: &str) -> String {
    let words = line.split(' ').map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", line.split(' ').count(), words.collect::<String>())
}

/// Waits until a replica acknowledges its offset, and returns that.
fn acknowledged(primary: &mut TcpStream) -> u64 {
    let (mut said, mut byte) = (Vec::new(), [0]);
    let offset = loop {
        primary.read_exact(&mut byte).expect("it says something");
        said.push(byte[0]);
        let text = String::from_utf8_lossy(&said);
        if let Some((_, offset)) = text.split_once("$3\r\nACK\r\n$")
            && let [_, offset, ""] = offset.split("\r\n").collect::<Vec<_>>()[..]
        {
            break offset.parse();
        }
    };
    offset.expect("an offset")
}

/// Otherwise memory would fill with what the log's thread has not written.
#[test]
fn while_the_log_is_behind_the_stream_waits_in_the_primary() {
    let (server, link, mut replay, mut helpers) = follower();
    let (mut session, mut primary) = session(server, &link, (&mut replay, &mut helpers));
    hear(&mut session, format!("{GREETING}+CONTINUE\r\n").as_bytes());
    let goes_on = OptionId::replica_ignore_disk_write_errors;
    server.config.set_internally(goes_on, "yes").unwrap();
    server.put_off_writers_for_log();
    let received = || server.services.replication_traffic.received();
    let set = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n";
    std::thread::scope(|scope| {
        scope.spawn(|| {
            primary.write_all(set).expect("it is connected");
            // It goes on acknowledging, so that the primary keeps it.
            for _ in 0..2 {
                assert_eq!(acknowledged(&mut primary), 0);
            }
            assert_eq!(received(), 0);
            // While the disk fails, nobody waits for it.
            server.switches.set(Switch::LOG_FAILED, true);
            while acknowledged(&mut primary) != set.len() as u64 {}
            server.switches.set(Switch::LOG_FAILED, false);
            primary.write_all(set).expect("it is connected");
            server.let_writers_go();
            while acknowledged(&mut primary) != 2 * set.len() as u64 {}
            // It ends though it waits.
            server.put_off_writers_for_log();
            link.is_over.store(true, Ordering::SeqCst);
        });
        assert!(session.follow().is_err(), "it comes to an end");
    });
}

/// The log says why a connection was lost in the system's words, without their number.
#[test]
fn a_lost_connection_is_told_in_the_systems_words() {
    let refused = std::io::Error::from_raw_os_error(rustix::io::Errno::CONNREFUSED.raw_os_error());
    assert_eq!(super::session::lost(&refused).why, "Connection refused");
}

/// Nobody else would give up the snapshot, for which all that is overwritten is kept.
#[test]
fn a_stream_waits_for_a_snapshot_and_then_ends_it() {
    let (server, link, mut replay, mut helpers) = follower();
    let (mut session, mut primary) = session(server, &link, (&mut replay, &mut helpers));
    hear(&mut session, format!("{GREETING}+CONTINUE\r\n").as_bytes());
    std::thread::scope(|scope| {
        let primary = scope.spawn(move || {
            let mut data = background::data(server).expect("there are threads for all");
            let (mut cut, mut sent) = (None, 0);
            for content in [b'a', b'b'] {
                for key in 10..90 {
                    let head = format!("*3\r\n$3\r\nSET\r\n$2\r\n{key}\r\n${}\r\n", 1 << 10);
                    let set = [head.as_bytes(), &[content; 1 << 10], b"\r\n"].concat();
                    primary.write_all(&set).expect("it follows");
                    sent += set.len() as u64;
                }
                while acknowledged(&mut primary) != sent {}
                cut.get_or_insert_with(|| {
                    data.enter();
                    data.hold_gate_anyway();
                    let cut = server.begin_cut(&mut data, "snapshot");
                    server.keep_nothing_for_cut();
                    data.release();
                    data.leave();
                    cut
                });
            }
            assert!(cut.is_some_and(|cut| cut.handle().is_aborted()));
        });
        assert!(session.follow().is_err(), "it comes to an end");
        primary.join().expect("it is content");
    });
}

/// It would have too many keys for as long as the stream is faster than the workers' timers.
#[test]
fn a_replica_that_minds_maxmemory_keeps_to_it_while_it_follows() {
    for minds in [true, false] {
        let (server, link, mut replay, mut helpers) = follower();
        server.config.set_internally(OptionId::maxmemory, "1").unwrap();
        server.config.set_internally(OptionId::maxmemory_policy, "allkeys-random").unwrap();
        let ignores = if minds { "no" } else { "yes" };
        server.config.set_internally(OptionId::replica_ignore_maxmemory, ignores).unwrap();
        server.switches.set(Switch::MAXMEMORY, true);
        let (mut session, mut primary) = session(server, &link, (&mut replay, &mut helpers));
        hear(&mut session, format!("{GREETING}+CONTINUE\r\n").as_bytes());
        let set = |key| format!("*3\r\n$3\r\nSET\r\n$4\r\n{key}\r\n$1\r\nv\r\n");
        let stream: String = (1000..3000).map(set).collect();
        primary.write_all(stream.as_bytes()).expect("it is connected");
        drop(primary);
        assert!(session.follow().is_err(), "it comes to an end");
        assert_eq!(server.feed.published(), stream.len() as u64);
        let keys = server.keyspace.len_of_first();
        assert!(if minds { keys <= 512 } else { keys == 2000 }, "{keys}");
    }
}

/// They would be invisible, whatever they cost the replica.
#[test]
fn what_a_primary_sends_is_seen_in_the_command_log() {
    let (server, link, mut replay, mut helpers) = follower();
    server.config.set_internally(OptionId::commandlog_execution_slower_than, "0").unwrap();
    server.config.set_internally(OptionId::commandlog_request_larger_than, "5").unwrap();
    server.config.set_internally(OptionId::commandlog_reply_larger_than, "1").unwrap();
    server.services.follow(&server.config, &server.clock);
    let (mut session, mut primary) = session(server, &link, (&mut replay, &mut helpers));
    hear(&mut session, format!("{GREETING}+CONTINUE\r\n").as_bytes());
    for line in ["SET k v", "MULTI", "INCR n", "EXEC", "GET k"] {
        primary.write_all(command(line).as_bytes()).expect("it is connected");
    }
    drop(primary);
    assert!(session.follow().is_err(), "it comes to an end");
    let words = |class| -> Vec<String> {
        let entries = server.services.command_log.entries(class, usize::MAX);
        let words = entries.iter().rev().map(|entry| String::from_utf8_lossy(&entry.words[0]));
        words.map(|word| word.into_owned()).collect()
    };
    assert_eq!(words(SlowlogClass::Slow), ["SET", "MULTI", "INCR", "GET"]);
    assert_eq!(words(SlowlogClass::LargeRequest), ["SET", "MULTI", "INCR"]);
    assert!(words(SlowlogClass::LargeReply).is_empty());
}

/// A replica that sleeps (DEBUG SLEEP) would go on from where it was, and not fall behind.
#[test]
fn a_link_is_not_made_while_somebody_has_the_server_alone() {
    tasks::begin();
    let server = crate::process::create(Config::new(), &[]).expect("a server can be made");
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let port = listener.local_addr().expect("it has an address").port();
    let (merged, is_merged) = channel();
    let link = Link::start(server, ("127.0.0.1".into(), port), None, channel().1);
    let link = link.expect("it starts");
    std::thread::scope(|scope| {
        let followed = &link;
        let replica = scope.spawn(move || followed.run(server, &is_merged));
        merged.send(()).expect("it waits for this");
        let first = listener.accept().expect("the replica comes");
        let mut data = background::data(server).expect("there are threads for all");
        data.enter();
        data.hold_gate_anyway();
        drop(first);
        listener.set_nonblocking(true).expect("a listener can be so");
        // The link would be made again after a second.
        std::thread::sleep(RETRY + Duration::from_millis(500));
        assert_eq!(listener.accept().map_err(|error| error.kind()).err(), Some(WouldBlock));
        data.release();
        data.leave();
        listener.set_nonblocking(false).expect("a listener can be so");
        let again = listener.accept().expect("the replica comes again");
        link.end();
        drop(again);
        replica.join().expect("it is content");
    });
}

/// What a primary answers before it is asked for the stream.
const GREETING: &str = "+PONG\r\n+OK\r\n+OK\r\n+OK\r\n";

/// Else what the primary has in that database would be changed in another one.
#[test]
fn a_link_ends_at_a_database_that_there_is_not() {
    for lines in [&["SELECT 16"][..], &["MULTI", "SET l w", "SELECT 16"], &["SWAPDB 16 0"]] {
        let (server, link, mut replay, mut helpers) = follower();
        let (mut session, primary) = session(server, &link, (&mut replay, &mut helpers));
        let before = ["SELECT 15", "SET k v"].map(command).concat();
        let rest: String = lines.iter().chain(&["SET k w"]).map(|line| command(line)).collect();
        hear(&mut session, format!("{GREETING}+CONTINUE\r\n{before}{rest}").as_bytes());
        drop(primary);
        let end = session.follow().expect_err("it comes to an end");
        assert!(end.why.contains("no database 16") && end.why.contains("'databases' is 16"));
        assert!(!end.is_damage);
        let position = (server.feed.end_offset(), server.feed.relayed_database());
        assert_eq!(position, (before.len() as u64, 15), "{lines:?}");
        replay.data.enter();
        assert_eq!([0, 15].map(|database| replay.data.total(database)), [0, 1]);
        replay.data.leave();
    }
    // A server that had more databases until it was started again gets a copy.
    let (server, link, mut replay, mut helpers) = follower();
    server.feed.set_relayed_database(16);
    let (mut session, primary) = session(server, &link, (&mut replay, &mut helpers));
    hear(&mut session, format!("{GREETING}+CONTINUE\r\n{}", command("SET k v")).as_bytes());
    drop(primary);
    assert!(session.follow().is_err_and(|end| end.is_damage));
}
