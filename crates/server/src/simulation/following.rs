//! What the stream for replicas has, as the server changes its part, or its disk fails.

use std::sync::mpsc::channel;

use bobbin_io::Peer;

use super::disk::{Disk, Faults};
use super::process::SimulatedProcess;
use super::{tasks, waits};
use crate::config::OptionId;
use crate::engine::log::feed::FeedReader;
use crate::engine::server::Server;
use crate::persistence::{Persistence, aof, load};

/// A process with a log on an empty disk and a stream, a client, and a reader of the stream.
fn process() -> (SimulatedProcess, Disk, Peer, FeedReader) {
    let mut process = SimulatedProcess::new(1);
    let disk = Disk::default();
    Disk::put_in(Some(disk.clone()));
    let (client, server) = (process.connect(0), process.server);
    process.ask(&client, "CONFIG SET appendonly yes");
    aof::step_log(server);
    tasks::run_next();
    aof::step_log(server);
    server.feed.begin(0);
    server.feed.lead_from(server.log.last());
    let reader = server.feed.reader(0, None).expect("it is kept from there on");
    (process, disk, client, reader)
}

/// What the stream has behind what was read of it before.
fn read(server: &Server, reader: &FeedReader) -> String {
    let mut bytes = Vec::new();
    server.feed.read(reader, u64::MAX, |slice| bytes.extend_from_slice(&slice));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A replica that goes on with the stream from its end.
fn replica(process: &mut SimulatedProcess) -> Peer {
    let (replica, feed) = (process.connect(0), &process.server.feed);
    let asks = format!("PSYNC {} {}", feed.id(), feed.published() + 1);
    assert_eq!(process.ask(&replica, &asks), "+CONTINUE\r\n");
    replica
}

/// No time goes by after which a clock would show it.
#[test]
fn writes_are_refused_as_soon_as_too_few_replicas_are_left() {
    let (mut process, _, client, _) = process();
    process.ask(&client, "CONFIG SET min-replicas-to-write 1");
    assert!(process.ask(&client, "SET k v").starts_with("-NOREPLICAS"));
    let replica = replica(&mut process);
    process.turns(2);
    assert_eq!(process.ask(&client, "SET k v"), "+OK\r\n");
    replica.close();
    process.turns(2);
    assert!(process.ask(&client, "SET k v").starts_with("-NOREPLICAS"));
    Disk::put_in(None);
}

/// Valkey and older Redis know four operations, and would be without the result.
#[test]
fn replicas_get_the_result_of_bit_operations_that_they_may_not_know() {
    let (mut process, _, client, reader) = process();
    process.ask(&client, "MSET a ab b b");
    for operation in ["DIFF", "DIFF1", "ANDOR", "ONE"] {
        process.ask(&client, &format!("BITOP {operation} to:{operation} a b"));
        // Without sources there is no result, and what was there goes.
        process.ask(&client, &format!("BITOP {operation} to:{operation} none nothing"));
    }
    aof::step_log(process.server);
    let stream = read(process.server, &reader);
    assert!(!stream.contains("BITOP"), "{stream}");
    assert_eq!(["SET\r\n$", "DEL\r\n$"].map(|name| stream.matches(name).count()), [5, 4]);
    Disk::put_in(None);
}

/// It is found out by what is written, and not by the clock.
#[test]
fn a_replica_that_does_not_read_keeps_no_more_than_its_limit() {
    let (mut process, _, client, reader) = process();
    let server = process.server;
    drop(reader);
    let limits = "client-output-buffer-limit \"replica 2mb 0 0\" repl-backlog-size 100000";
    assert_eq!(process.ask(&client, &format!("CONFIG SET {limits}")), "+OK\r\n");
    replica(&mut process).set_room(Some(0));
    let set = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\n{}", "v".repeat(100_000));
    for _ in 0..100 {
        assert_eq!(process.ask(&client, &set), "+OK\r\n");
        aof::step_log(server);
        assert!(server.feed.memory() < 3 << 20, "{}", server.feed.memory());
    }
    assert!(process.ask(&client, "INFO replication").contains("connected_slaves:0\r\n"));
    let stats = process.ask(&client, "INFO stats");
    assert!(stats.contains("client_output_buffer_limit_disconnections:1\r\n"), "{stats}");
    Disk::put_in(None);
}

/// A worker may sleep after it has sent all that it had, but not while there is more for a replica.
#[test]
fn a_replica_that_is_behind_gets_all_without_a_pause() {
    let (mut process, _, client, reader) = process();
    drop(reader);
    let replica = replica(&mut process);
    replica.set_room(Some(0));
    let set = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\n{}", "v".repeat(100_000));
    for _ in 0..40 {
        assert_eq!(process.ask(&client, &set), "+OK\r\n");
        aof::step_log(process.server);
    }
    replica.set_room(None);
    process.turns(2);
    // As it is the only one to be served, it may be sent more at once.
    process.pass(20);
    let mut received = 0;
    let sleeps = process.sleeps();
    while process.sleeps() == sleeps {
        process.turns(1);
        received += replica.received().len();
    }
    assert!(received > 40 * 100_000, "{received}");
    Disk::put_in(None);
}

/// What it says beyond that would count for WAIT for ever.
#[test]
fn a_replica_has_no_more_of_the_stream_than_there_is() {
    let (mut process, _, client, _) = process();
    let replica = replica(&mut process);
    let most = i64::MAX;
    process.ask(&replica, &format!("REPLCONF ACK {most} FACK {most}"));
    let info = process.ask(&client, "INFO replication");
    let end = format!(",offset={},", process.server.feed.end_offset());
    assert!(info.contains(&end), "{info}");
    Disk::put_in(None);
}

/// The stream would have a reply in it. That it was an error is counted.
#[test]
fn a_replica_that_would_get_a_reply_is_disconnected() {
    let (mut process, _, client, _) = process();
    for (line, count) in [("PING", 0), ("GET k", 1), ("NOSUCH", 2)] {
        let replica = replica(&mut process);
        process.turns(2);
        assert_eq!(process.ask(&replica, line), "", "{line}");
        process.turns(1);
        assert!(process.ask(&client, "INFO replication").contains("connected_slaves:0\r\n"));
        let stats = process.ask(&client, "INFO stats");
        assert!(stats.contains(&format!("\r\nunexpected_error_replies:{count}\r\n")), "{stats}");
    }
    Disk::put_in(None);
}

#[test]
fn a_replica_that_hangs_is_noticed_after_the_clock_was_set_back() {
    let (mut process, _, _client, _) = process();
    let replica = replica(&mut process);
    process.turns(2);
    process.be_at(process.now_ms() - 3_600_000);
    for second in 0..64 {
        assert!(second > 50 || !replica.is_ended(), "after {second} seconds");
        process.pass(1000);
        process.turns(1);
    }
    assert!(replica.is_ended());
    Disk::put_in(None);
}

/// Else it would depend on how far the log's thread is.
#[test]
fn what_was_written_counts_for_a_replica_that_asks() {
    let (mut process, _, client, reader) = process();
    drop(reader);
    process.ask(&client, "CONFIG SET repl-backlog-size 16384");
    let (replica, feed) = (process.connect(0), &process.server.feed);
    let asks = format!("PSYNC {} {}", feed.id(), feed.published() + 1);
    let set = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$16384\r\n{}", "v".repeat(16_384));
    for _ in 0..10 {
        assert_eq!(process.ask(&client, &set), "+OK\r\n");
    }
    process.ask(&replica, &asks);
    let stats = process.ask(&client, "INFO stats");
    assert!(stats.contains("\r\nsync_partial_ok:0\r\nsync_partial_err:1\r\n"), "{stats}");
    Disk::put_in(None);
}

/// A client that sees that the replica is gone sees that its memory is free.
#[test]
fn what_is_kept_for_a_replica_goes_with_it() {
    let (mut process, _, client, reader) = process();
    let server = process.server;
    drop(reader);
    assert_eq!(process.ask(&client, "CONFIG SET repl-backlog-size 100000"), "+OK\r\n");
    let slow = replica(&mut process);
    slow.set_room(Some(0));
    let set = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\n{}", "v".repeat(100_000));
    for _ in 0..20 {
        assert_eq!(process.ask(&client, &set), "+OK\r\n");
        aof::step_log(server);
    }
    assert!(server.feed.memory() > 1 << 20, "{}", server.feed.memory());
    slow.close();
    process.turns(1);
    assert!(process.ask(&client, "INFO replication").contains("connected_slaves:0\r\n"));
    assert!(server.feed.memory() < 1 << 20, "{}", server.feed.memory());
    Disk::put_in(None);
}

/// As Redis 8 does it: the connection of the copy names the one that the stream comes by.
#[test]
fn a_stream_that_comes_unasked_comes_at_once() {
    let (mut process, _, client, _) = process();
    let server = process.server;
    process
        .ask(&client, "CONFIG SET dual-channel-replication-enabled yes repl-diskless-sync-delay 0");
    let [main, copy] = [process.connect(0), process.connect(0)];
    let says = "REPLCONF capa eof capa psync2 capa rdb-channel-repl";
    assert_eq!(process.ask(&main, says), "+OK\r\n");
    let answer = process.ask(&main, "PSYNC ? -1");
    let id = answer.trim_end().strip_prefix("+RDBCHANNELSYNC ").expect("it wants a channel");
    let says = format!("REPLCONF capa eof rdb-only 1 rdb-channel 1 main-ch-client-id {id}");
    assert_eq!(process.ask(&copy, &says), "+OK\r\n");
    let mut copied = process.ask(&copy, "PSYNC ? -1");
    process.pass(1000);
    for _ in 0..3 {
        process.turns(2);
        aof::step_log(server);
        tasks::run_next();
        copied += &process.heard(&copy);
    }
    assert!(copied.starts_with("+FULLRESYNC ") && copied.contains("$EOF:"), "{copied}");
    copy.close();
    process.turns(2);
    process.ask(&main, &format!("REPLCONF ACK {}", server.feed.published()));
    for key in ["first", "second"] {
        process.ask(&client, &format!("SET {key} v"));
        aof::step_log(server);
        process.turns(2);
        let stream = process.heard(&main);
        assert!(stream.contains(key), "{stream}");
    }
    Disk::put_in(None);
}

/// The log's thread does nothing between the beginning and the end of following a primary.
#[test]
fn the_stream_goes_on_if_a_server_leads_again_at_once() {
    for within in [false, true] {
        let (mut process, _, client, reader) = process();
        let server = process.server;
        let (begin, end) = if within { ("MULTI\r\n", "EXEC\r\n") } else { ("", "") };
        let parts = "REPLICAOF 127.0.0.1 1\r\nREPLICAOF NO ONE";
        process.ask(&client, &format!("SET first 1\r\n{begin}{parts}\r\n{end}SET second 2"));
        for _ in 0..2 {
            aof::step_log(server);
        }
        process.ask(&client, "SET third 3");
        aof::step_log(server);
        let stream = read(server, &reader);
        let found = ["first", "second", "third"].map(|key| stream.matches(key).count());
        assert_eq!(found, [1, 1, 1], "{stream}");
        assert_eq!(server.feed.published(), server.feed.end_offset());
        tasks::forget();
    }
    Disk::put_in(None);
}

/// More is logged than is merged at once, and the disk takes nothing of it.
#[test]
fn what_waits_for_the_stream_does_not_go_before_it_on_a_full_disk() {
    let (mut process, disk, client, reader) = process();
    let server = process.server;
    disk.set_faults(Faults { room: Some(0), ..Faults::default() });
    let value = "v".repeat(600_000);
    for key in 0..5 {
        client.send(format!("*3\r\n$3\r\nSET\r\n$1\r\n{key}\r\n$600000\r\n{value}\r\n").as_bytes());
        process.turns(20);
        assert_eq!(process.heard(&client), "+OK\r\n");
    }
    aof::step_log(server);
    assert!(process.ask(&client, "SET k v").starts_with("-MISCONF"));
    let (tell, told) = channel();
    let last = server.log.last();
    let note = || {
        let tell = tell.clone();
        move |offset| tell.send(offset).expect("it is listened to")
    };
    aof::reach_in_feed(server, last, note()).expect("there is a thread");
    aof::splice_feed(server, note()).expect("there is a thread");
    aof::step_log(server);
    let offsets: Vec<_> = told.try_iter().collect();
    assert_eq!(offsets, [server.feed.end_offset(); 2]);
    assert_eq!(server.feed.offset_behind(last), Some(offsets[0]));
    let stream = read(server, &reader);
    assert!((0..5).all(|key| stream.contains(&format!("\r\n{key}\r\n$600000"))));
    // Nothing is lost on the disk either, once it takes it.
    disk.set_faults(Faults::default());
    aof::step_log(server);
    assert_eq!(process.ask(&client, "SET k v"), "+OK\r\n");
    aof::step_log(server);
    let mut other = SimulatedProcess::new(1);
    Disk::put_in(Some(disk.after_kill()));
    aof::load_log(other.server).expect("it can be loaded");
    let peer = other.connect(0);
    assert_eq!(other.ask(&peer, "DBSIZE"), ":6\r\n");
    assert_eq!(other.ask(&peer, "STRLEN 4"), ":600000\r\n");
    Disk::put_in(None);
}

/// Else each INFO would wait while the disk works, and would not know of what was written.
#[test]
fn what_was_written_counts_while_the_log_is_forced_to_disk() {
    let (mut process, disk, client, _) = process();
    let server = process.server;
    let _replica = replica(&mut process);
    process.pass(2_000);
    for key in ["first", "second"] {
        assert_eq!(process.ask(&client, &format!("SET {key} v")), "+OK\r\n");
        let (published, written) = (server.feed.published(), disk.list());
        let info = process.ask(&client, "INFO replication");
        let offset = server.feed.end_offset();
        assert!(offset > published, "{key}");
        assert!(info.contains(&format!("\r\nmaster_repl_offset:{offset}\r\n")), "{key}: {info}");
        assert_eq!(disk.list(), written, "INFO does not wait for the disk");
        // With the first one a sync in the background begins, which lasts until the next step.
        aof::step_log(server);
        assert_ne!(disk.list(), written, "what was merged is written");
    }
    Disk::put_in(None);
}

/// FLUSHALL is not in the stream yet when its snapshot is written. A position before it would have
/// a server that starts with the file take replicas for equal that still have all keys; to wait for
/// one would hold up all clients for as long as the disk hangs.
#[test]
fn the_snapshot_of_flushall_is_at_no_position_of_the_stream() {
    let (mut process, _, client, _) = process();
    let server = process.server;
    server.config.set_internally(OptionId::enable_debug_command, "yes").expect("it is one");
    process.ask(&client, "CONFIG SET save \"3600 1000000\"");
    process.ask(&client, "SET k v");
    // A transaction has no number yet either.
    for line in ["FLUSHALL", "MULTI\r\nSET k v\r\nDEBUG RELOAD\r\nEXEC"] {
        // The first wait is the one for the gate, the second would be the one for the log.
        waits::meanwhile(move || waits::meanwhile(move || aof::step_log(server)));
        assert!(process.ask(&client, line).ends_with("+OK\r\n"), "{line}");
        assert!(!waits::is_over(), "{line} waited for the log");
        assert_eq!(position_in_snapshot(), None, "{line}");
    }
    let offset = server.feed.published();
    assert_eq!(process.ask(&client, "BGSAVE"), "+Background saving started\r\n");
    aof::step_log(server);
    tasks::run_next();
    assert!(server.feed.published() > offset);
    assert_eq!(position_in_snapshot(), Some(server.feed.published()));
    Disk::put_in(None);
}

/// The offset that the snapshot on disk gives.
fn position_in_snapshot() -> Option<u64> {
    let mut reader = SimulatedProcess::new(1);
    let peer = reader.connect(0);
    load::load_at_start(reader.server).expect("it is whole");
    load::end_loading(reader.server);
    assert!(reader.ask(&peer, "DBSIZE").starts_with(':'));
    Persistence::of(reader.server).loading.position().map(|position| position.offset)
}
