//! Blocked clients on real workers: served, timed out, unblocked, gone, and served once a reserved
//! shard is free.

use super::process::SimulatedProcess;
use crate::engine::log::append_command;
use crate::persistence::load::{self, LoadRules};

#[test]
fn a_waiter_is_served_by_another_worker() {
    let mut process = SimulatedProcess::new(2);
    let (waiter, other) = (process.connect(0), process.connect(1));
    assert_eq!(process.ask(&waiter, "BLPOP list 0"), "");
    // What it sends meanwhile waits as well.
    assert_eq!(process.ask(&waiter, "PING"), "");
    other.send(b"RPUSH list a b\r\n");
    process.turn(1);
    assert_eq!(process.heard(&other), ":2\r\n");
    assert_eq!(process.heard(&waiter), "", "its worker was not there yet");
    process.turn(0);
    assert_eq!(process.heard(&waiter), "*2\r\n$4\r\nlist\r\n$1\r\na\r\n+PONG\r\n");
    assert_eq!(process.ask(&other, "LRANGE list 0 -1"), "*1\r\n$1\r\nb\r\n");
}

#[test]
fn who_came_first_is_served_first_whatever_the_worker() {
    let mut process = SimulatedProcess::new(2);
    let waiters: Vec<_> = (0..4).map(|number| process.connect(number % 2)).collect();
    for waiter in &waiters {
        assert_eq!(process.ask(waiter, "BLPOP list 0"), "");
    }
    let other = process.connect(1);
    assert_eq!(process.ask(&other, "RPUSH list 0 1 2"), ":3\r\n");
    process.turns(1);
    for (number, waiter) in waiters.iter().enumerate() {
        let wanted = format!("*2\r\n$4\r\nlist\r\n$1\r\n{number}\r\n");
        assert_eq!(process.heard(waiter), if number < 3 { wanted } else { String::new() });
    }
}

/// The group or the stream of another key may have gone since the client began to wait. An error is
/// then all that happens: an entry that was delivered with it would never come to anybody.
#[test]
fn a_reader_of_several_streams_that_gets_an_error_gets_no_entry() {
    let mut process = SimulatedProcess::new(2);
    let (waiter, other) = (process.connect(0), process.connect(1));
    let gone = [
        ("DEL a", ":1\r\n", "-NOGROUP No such key 'a'"),
        ("XGROUP DESTROY a g", ":1\r\n", "-NOGROUP No such key 'a'"),
        ("SET a x", "+OK\r\n", "-WRONGTYPE "),
    ];
    for (change, answer, error) in gone {
        process.ask(&other, "FLUSHALL");
        for stream in ["a", "b"] {
            process.ask(&other, &format!("XGROUP CREATE {stream} g $ MKSTREAM"));
        }
        let read = "XREADGROUP GROUP g c NOACK BLOCK 0 STREAMS b a > >";
        assert_eq!(process.ask(&waiter, read), "");
        process.ask(&other, "MULTI");
        process.ask(&other, "XADD b 1-1 f v");
        process.ask(&other, change);
        assert_eq!(process.ask(&other, "EXEC"), format!("*2\r\n$3\r\n1-1\r\n{answer}"));
        process.turns(1);
        let heard = process.heard(&waiter);
        assert!(heard.starts_with(error), "{change}: {heard}");
        let entry = "*1\r\n*2\r\n$1\r\nb\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n";
        assert_eq!(process.ask(&waiter, "XREADGROUP GROUP g c STREAMS b >"), entry, "{change}");
    }
}

#[test]
fn a_waiter_whose_time_is_over_takes_nothing_more() {
    let mut process = SimulatedProcess::new(2);
    let (waiter, other) = (process.connect(0), process.connect(1));
    assert_eq!(process.ask(&waiter, "BLPOP list 0.5"), "");
    // It began within a millisecond, which does not count.
    process.pass(500);
    process.turns(2);
    assert_eq!(process.heard(&waiter), "");
    process.pass(1);
    // Whichever comes first: the time, or what it waits for.
    process.turn(0);
    assert_eq!(process.heard(&waiter), "*-1\r\n");
    assert_eq!(process.ask(&other, "RPUSH list a"), ":1\r\n");
    assert_eq!(process.ask(&waiter, "LLEN list"), ":1\r\n");
    assert_eq!(process.server.waiters.clients(), 0);
}

#[test]
fn one_that_is_served_when_its_time_is_over_has_what_it_was_served_with() {
    let mut process = SimulatedProcess::new(2);
    let (waiter, other) = (process.connect(0), process.connect(1));
    assert_eq!(process.ask(&waiter, "BLPOP list 0.5"), "");
    process.pass(1_000);
    other.send(b"RPUSH list a\r\n");
    process.turn(1);
    process.turn(0);
    assert_eq!(process.heard(&waiter), "*2\r\n$4\r\nlist\r\n$1\r\na\r\n");
    assert_eq!(process.ask(&other, "LLEN list"), ":1\r\n:0\r\n");
}

#[test]
fn a_waiter_that_is_killed_or_goes_takes_nothing() {
    let mut process = SimulatedProcess::new(2);
    let other = process.connect(1);
    for goes in [true, false] {
        let waiter = process.connect(0);
        process.ask(&waiter, "CLIENT SETNAME waiter");
        let id = process.ask(&waiter, "CLIENT ID").trim_matches(&[':', '\r', '\n'][..]).to_owned();
        assert_eq!(process.ask(&waiter, "BLMOVE list other LEFT LEFT 0"), "");
        assert_eq!(process.server.waiters.clients(), 1);
        if goes {
            waiter.close();
            process.turns(1);
        } else {
            assert_eq!(process.ask(&other, &format!("CLIENT KILL ID {id}")), ":1\r\n");
        }
        assert!(waiter.is_ended());
        assert_eq!(process.server.waiters.clients(), 0);
        assert_eq!(process.ask(&other, "RPUSH list a"), ":1\r\n");
        assert_eq!(process.ask(&other, "DEL list"), ":1\r\n");
    }
}

/// What is pushed in the transaction that kills a waiter goes to the next one: the killed client's
/// worker may not have closed it yet.
#[test]
fn a_waiter_that_was_killed_a_moment_ago_takes_nothing() {
    let mut process = SimulatedProcess::new(2);
    let (waiter, next, other) = (process.connect(0), process.connect(0), process.connect(1));
    let id = process.ask(&waiter, "CLIENT ID").trim_matches(&[':', '\r', '\n'][..]).to_owned();
    for client in [&waiter, &next] {
        assert_eq!(process.ask(client, "BLPOP list 0"), "");
    }
    process.ask(&other, "MULTI");
    process.ask(&other, &format!("CLIENT KILL ID {id}"));
    process.ask(&other, "RPUSH list a b");
    assert_eq!(process.ask(&other, "EXEC"), "*2\r\n:1\r\n:2\r\n");
    process.turns(1);
    assert!(waiter.is_ended());
    assert_eq!(process.heard(&next), "*2\r\n$4\r\nlist\r\n$1\r\na\r\n");
    assert_eq!(process.ask(&other, "LRANGE list 0 -1"), "*1\r\n$1\r\nb\r\n");
}

#[test]
fn a_waiter_can_be_unblocked() {
    let mut process = SimulatedProcess::new(2);
    let (waiter, other) = (process.connect(0), process.connect(1));
    let id = process.ask(&waiter, "CLIENT ID").trim_matches(&[':', '\r', '\n'][..]).to_owned();
    for (word, answer) in
        [("TIMEOUT", "*-1\r\n"), ("ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n")]
    {
        assert_eq!(process.ask(&waiter, "BLPOP list 0"), "");
        assert_eq!(process.ask(&other, &format!("CLIENT UNBLOCK {id} {word}")), ":1\r\n");
        process.turns(1);
        assert_eq!(process.heard(&waiter), answer);
        assert_eq!(process.ask(&other, &format!("CLIENT UNBLOCK {id}")), ":0\r\n");
    }
}

/// A slow script keeps the shard that serving needs. A client that pushes does not wait for it, and
/// one that is blocked is served behind it.
#[test]
fn a_waiter_whose_shard_is_reserved_is_served_once_it_is_free() {
    let mut process = SimulatedProcess::new(2);
    let server = process.server;
    let (waiter, other) = (process.connect(0), process.connect(1));
    let shard = |key: &str| server.keyspace.hash(key.as_bytes()).shard();
    let target = (0..).map(|n| format!("to:{n}")).find(|key| shard(key) != shard("list"));
    let target = target.expect("there are other shards");
    assert_eq!(process.ask(&waiter, &format!("BLMOVE list {target} LEFT RIGHT 0")), "");
    let reservation = process.reserve(&target);
    assert_eq!(process.ask(&other, "RPUSH list a"), ":1\r\n");
    process.turns(3);
    assert_eq!(process.heard(&waiter), "");
    assert_eq!(process.ask(&other, "LLEN list"), ":1\r\n");
    reservation.end();
    server.scripts.serve_waiters(server);
    // Whichever worker hears of it first does it.
    process.turn(1);
    process.turn(0);
    assert_eq!(process.heard(&waiter), "$1\r\na\r\n");
    assert_eq!(process.ask(&other, &format!("LRANGE {target} 0 -1")), "*1\r\n$1\r\na\r\n");
}

/// What serving changes is a change of the client that is served, and not of the one that pushed,
/// also if that one goes on with the same shard.
#[test]
fn serving_a_client_is_its_own_change() {
    let mut process = SimulatedProcess::new(2);
    let server = process.server;
    let (waiter, other) = (process.connect(0), process.connect(1));
    let shard = |key: &str| server.keyspace.hash(key.as_bytes()).shard();
    let mut keys = (0..).map(|n| format!("key:{n}")).filter(|key| shard(key) == shard("from"));
    let (to, also) = (keys.next().expect("a key"), keys.next().expect("a key"));
    for client in [&waiter, &other] {
        process.ask(client, "HELLO 3");
        process.ask(client, "CLIENT TRACKING ON NOLOOP");
        assert_eq!(process.ask(client, &format!("LRANGE {to} 0 -1")), "*0\r\n");
    }
    assert_eq!(process.ask(&waiter, &format!("BLMOVE from {to} LEFT LEFT 0")), "");
    other.send(format!("RPUSH from a\r\nSET {also} value\r\n").as_bytes());
    process.turns(2);
    let invalid = format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n${}\r\n{to}\r\n", to.len());
    let heard = process.heard(&other);
    assert!(heard.contains(&invalid), "{heard}");
    assert_eq!(process.heard(&waiter), "$1\r\na\r\n");
}

/// A command that blocks is answered later, if at all. CLIENT REPLY SKIP means that answer.
#[test]
fn the_reply_of_a_command_that_blocks_is_skipped() {
    let mut process = SimulatedProcess::new(2);
    let (waiter, other) = (process.connect(0), process.connect(1));
    assert_eq!(process.ask(&waiter, "CLIENT REPLY SKIP"), "");
    assert_eq!(process.ask(&waiter, "BLPOP list 0"), "");
    assert_eq!(process.ask(&other, "RPUSH list a"), ":1\r\n");
    process.turns(2);
    assert_eq!(process.heard(&waiter), "");
    assert_eq!(process.ask(&waiter, "PING"), "+PONG\r\n");
}

/// The keys that a client waits for are its memory, until it has them.
#[test]
fn keys_that_a_client_waits_for_count_as_its_memory() {
    let mut process = SimulatedProcess::new(1);
    let (waiter, admin) = (process.connect(0), process.connect(0));
    let memory = |process: &mut SimulatedProcess| -> u64 {
        let line = process.ask(&admin, "CLIENT LIST ID 1");
        let (_, rest) = line.split_once("tot-mem=").expect("it is there");
        rest.split(' ').next().and_then(|bytes| bytes.parse().ok()).expect("a number")
    };
    let before = memory(&mut process);
    let keys: String = (0..4_000).map(|key| format!(" key:{key:010}")).collect();
    let words: Vec<String> =
        keys.split_whitespace().map(|key| format!("${}\r\n{key}\r\n", key.len())).collect();
    let wait = format!("*4002\r\n$5\r\nBLPOP\r\n{}$1\r\n0\r\n", words.concat());
    waiter.send(wait.as_bytes());
    process.turns(2);
    assert_eq!(process.server.waiters.clients(), 1);
    assert!(memory(&mut process) > before + 1_000_000);
    assert_eq!(process.ask(&admin, "RPUSH key:0000000007 v"), ":1\r\n");
    process.turns(2);
    assert!(process.heard(&waiter).starts_with("*2\r\n"));
    assert!(memory(&mut process) < before + 200_000, "its buffer is left");
    assert_eq!(process.ask(&admin, "CONFIG SET maxmemory-clients 1mb"), "+OK\r\n");
    waiter.send(wait.as_bytes());
    process.turns(3);
    assert!(waiter.is_ended());
    assert_eq!(process.server.waiters.clients(), 0);
}

#[test]
fn the_memory_of_keys_that_were_waited_for_is_given_back() {
    const KEYS: usize = 50_000;
    let mut process = SimulatedProcess::new(1);
    let (waiter, other) = (process.connect(0), process.connect(0));
    assert_eq!(process.ask(&other, "BLPOP list 0"), "");
    let keys: Vec<String> = (0..KEYS).map(|key| format!("key:{key}")).collect();
    let mut words = vec![&b"BLPOP"[..]];
    words.extend(keys.iter().map(String::as_bytes));
    words.push(b"0");
    let mut request = Vec::new();
    append_command(&mut request, &words);
    waiter.send(&request);
    process.turns(20);
    assert!(process.server.waiters.capacity() >= KEYS);
    waiter.close();
    process.turns(2);
    assert_eq!(process.server.waiters.keys(), (1, 0));
    let kept = process.server.waiters.capacity();
    assert!(kept < KEYS / 4, "{kept}");
}

/// As in Valkey, which refuses such a command before it would be executed again.
#[test]
fn the_log_of_large_requests_has_none_that_was_refused_after_its_wait() {
    let mut process = SimulatedProcess::new(1);
    let (admin, waiter) = (process.connect(0), process.connect(0));
    process.ask(&admin, "CONFIG SET commandlog-request-larger-than 1");
    process.ask(&admin, "ACL SETUSER lister on nopass ~* +@all");
    process.ask(&waiter, "AUTH lister x");
    assert_eq!(process.ask(&waiter, "BLPOP list 0"), "");
    process.ask(&admin, "ACL SETUSER lister -blpop");
    assert_eq!(process.ask(&admin, "RPUSH list 1"), ":1\r\n");
    process.turns(1);
    let refused = process.heard(&waiter);
    assert!(refused.starts_with("-NOPERM"), "{refused}");
    let noted = process.ask(&admin, "COMMANDLOG GET -1 large-request");
    assert!(noted.contains("RPUSH") && !noted.contains("BLPOP"), "{noted}");
}

/// As in Valkey.
#[test]
fn the_log_of_large_requests_has_those_that_blocked_and_none_of_scripts() {
    let mut process = SimulatedProcess::new(1);
    let client = process.connect(0);
    process.ask(&client, "CONFIG SET commandlog-request-larger-than 1");
    process.ask(&client, "COMMANDLOG RESET large-request");
    assert_eq!(process.ask(&client, "BLPOP list 0.5"), "");
    process.pass(501);
    process.turns(1);
    assert_eq!(process.heard(&client), "*-1\r\n");
    assert_eq!(process.ask(&client, "EVAL \"return redis.call('incr', KEYS[1])\" 1 k"), ":1\r\n");
    let noted = process.ask(&client, "COMMANDLOG GET -1 large-request");
    let blocked = ":16\r\n*3\r\n$5\r\nBLPOP\r\n$4\r\nlist\r\n";
    assert!(noted.contains(blocked), "{noted}");
    assert!(noted.contains("EVAL") && !noted.contains("$4\r\nincr"), "{noted}");
}

/// As DEBUG RELOAD NOFLUSH loads one, with the gate held.
#[test]
fn a_waiter_is_served_by_a_snapshot_that_is_loaded() {
    let mut process = SimulatedProcess::new(2);
    let waiter = process.connect(0);
    assert_eq!(process.ask(&waiter, "BLPOP list 0"), "");
    let file = b"REDIS0011\xfe\x00\x01\x04list\x01\x01v\xff\0\0\0\0\0\0\0\0";
    let mut observer = process.observer();
    let data = observer.data();
    data.enter();
    data.hold_gate_anyway();
    load::load_held(process.server, data, &file[..], LoadRules::default()).expect("it is whole");
    data.release();
    data.leave();
    process.turns(2);
    assert_eq!(process.heard(&waiter), "*2\r\n$4\r\nlist\r\n$1\r\nv\r\n");
}
