//! Scripts, functions and transactions on a disk that is full, or becomes so while they are at
//! work.

use std::time::{Duration, Instant};

use bobbin_testkit::disk::SmallDisk;
use bobbin_testkit::{ReceiveOutcome, TestConnection, TestServer};

const LIMIT: Duration = Duration::from_secs(60);

fn arguments<'a>(disk: &'a SmallDisk, policy: &'a str) -> Vec<&'a str> {
    vec!["--dir", disk.text(), "--appendonly", "yes", "--appendfsync", policy, "--io-threads", "2"]
}

fn ask(client: &mut TestConnection, words: &[&str]) -> String {
    client.call(words).expect("answers").text()
}

/// Writes until that is refused.
fn fill(client: &mut TestConnection) {
    let (value, deadline) = ("x".repeat(50_000), Instant::now() + LIMIT);
    while !ask(client, &["SET", "filler", &value]).starts_with("MISCONF") {
        assert!(Instant::now() < deadline, "the disk does not become full");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Asks until a write is taken again.
fn wait_for_room(client: &mut TestConnection) {
    let deadline = Instant::now() + LIMIT;
    while ask(client, &["SET", "again", "1"]) != "OK" {
        assert!(Instant::now() < deadline, "no recovery");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whatever would write is refused before it has done anything, in the words of Valkey, and what
/// only reads goes on.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_would_write_is_refused() {
    let steps: &[&[&str]] = &[
        &["EVAL", "return redis.call('get', KEYS[1])", "1", "old"],
        &["EVAL", "return redis.call('set', KEYS[1], 'new')", "1", "old"],
        &["EVAL", "return redis.pcall('set', KEYS[1], 'new').err", "1", "old"],
        &["EVAL", "redis.call('get', KEYS[1]) return redis.call('del', KEYS[1])", "1", "old"],
        &["EVAL", "#!lua\nreturn redis.call('get', KEYS[1])", "1", "old"],
        &["EVAL", "#!lua flags=no-writes\nreturn redis.call('get', KEYS[1])", "1", "old"],
        &["EVAL_RO", "return redis.call('get', KEYS[1])", "1", "old"],
        &["FCALL", "put", "1", "old", "new"],
        &["FCALL", "take", "1", "old"],
        &["FCALL_RO", "take", "1", "old"],
        &["FUNCTION", "LOAD", "#!lua name=more\nredis.register_function('more', function() end)"],
        &["FUNCTION", "FLUSH"],
        &["SCRIPT", "LOAD", "return 1"],
        &["MULTI"],
        &["GET", "old"],
        &["EXEC"],
        &["MULTI"],
        &["SET", "old", "new"],
        &["EXEC"],
        &["MULTI"],
        &["EVAL", "return redis.call('set', KEYS[1], 'new')", "1", "old"],
        &["EXEC"],
        &["PING"],
        &["PUBLISH", "c", "m"],
        &["GET", "old"],
    ];
    type Start = fn(&[&str]) -> TestServer;
    let mut told: Vec<Vec<String>> = Vec::new();
    for start in [TestServer::valkey as Start, TestServer::bobbin] {
        let Some(disk) = SmallDisk::new("1m") else { return };
        let server = start(&arguments(&disk, "everysec"));
        let mut client = server.connect();
        let library = "#!lua name=l
            redis.register_function('put', function(k, a) return redis.call('set', k[1], a[1]) end)
            redis.register_function{function_name='take', flags={'no-writes'},
                callback=function(k) return redis.call('get', k[1]) end}";
        assert_eq!(ask(&mut client, &["FUNCTION", "LOAD", library]), "l");
        assert_eq!(ask(&mut client, &["SET", "old", "1"]), "OK");
        fill(&mut client);
        let show = |reply: bobbin_testkit::ReplyFrame| match reply.items() {
            [] => reply.text(),
            items => {
                items.iter().map(bobbin_testkit::ReplyFrame::text).collect::<Vec<_>>().join(", ")
            }
        };
        told.push(steps.iter().map(|words| show(client.call(words).expect("answers"))).collect());
        disk.remount("size=64m");
        wait_for_room(&mut client);
        assert_eq!(ask(&mut client, steps[1]), "OK");
    }
    for (at, words) in steps.iter().enumerate() {
        assert_eq!(told[0][at], told[1][at], "{words:?}");
    }
    assert!(told[0][1].contains("MISCONF"), "{}", told[0][1]);
}

/// The disk becomes full in the midst of what a script has written: the script goes on to its end,
/// as it cannot be undone, and what it did is in the log as one, once there is room.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_script_that_has_written_goes_on() {
    // The first key is written, then time passes, then the others follow.
    let script = "
        redis.call('set', KEYS[1], ARGV[1])
        local deadline = os.clock() + tonumber(ARGV[2]) / 1000
        while os.clock() < deadline do end
        for at = 2, #KEYS do redis.call('set', KEYS[at], ARGV[1]) end
        return redis.status_reply('done')";
    for policy in ["everysec", "always"] {
        let Some(disk) = SmallDisk::new("1m") else { return };
        let arguments =
            [&arguments(&disk, policy)[..], &["--busy-reply-threshold", "60000"]].concat();
        let mut server = TestServer::bobbin(&arguments);
        let (mut client, mut other) = (server.connect(), server.connect());
        let run = |value: &'static str, ms: &'static str| {
            ["EVAL", script, "4", "{s}a", "{s}b", "{s}c", "{s}d", value, ms]
        };
        // So that it is known to keep to its keys, and others run beside it.
        for _ in 0..2 {
            assert_eq!(ask(&mut client, &run("first", "0")), "done");
        }
        client.send(&run("second", "3000")).expect("is sent");
        if policy == "always" {
            // Replies are kept back, so no client can be told.
            let value = "x".repeat(400_000);
            for number in 0..4 {
                other.send(&["SET", &format!("filler:{number}"), &value]).expect("is sent");
            }
        } else {
            fill(&mut other);
        }
        if policy == "always" {
            let waits = client.receive_within(Duration::from_secs(5)).expect("it lives");
            assert_eq!(waits, ReceiveOutcome::Nothing, "the disk is full");
        } else {
            assert_eq!(client.receive().expect("it ends").text(), "done");
            let refused = ask(&mut client, &run("third", "0"));
            assert!(refused.starts_with("MISCONF"), "{refused}");
        }
        disk.remount("size=64m");
        if policy == "always" {
            assert_eq!(client.receive().expect("at last").text(), "done");
            for _ in 0..4 {
                let told = other.receive().expect("at last").text();
                assert!(told == "OK" || told.starts_with("MISCONF"), "{told}");
            }
        }
        wait_for_room(&mut other);
        assert_eq!(ask(&mut other, &["CONFIG", "SET", "appendfsync", "everysec"]), "OK");
        other.call(&["WAITAOF", "1", "0", "0"]).expect("answers");
        assert!(server.kill(), "it dies");
        let server = TestServer::bobbin(&arguments);
        let mut client = server.connect();
        for key in ["{s}a", "{s}b", "{s}c", "{s}d"] {
            assert_eq!(ask(&mut client, &["GET", key]), "second", "{policy}: {key}");
        }
    }
}

/// The server dies while the disk has a beginning of what a script did: it is not there.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_script_of_which_the_disk_has_a_beginning_is_absent() {
    let Some(disk) = SmallDisk::new("1m") else { return };
    let arguments = arguments(&disk, "always");
    let mut server = TestServer::bobbin(&arguments);
    let mut client = server.connect();
    let script = "for at = 1, #KEYS do redis.call('set', KEYS[at], ARGV[1]) end return 1";
    let value = |round: usize| format!("round{round}").repeat(1000);
    let mut run = |round: usize| {
        let mut words = vec!["EVAL".to_owned(), script.to_owned(), "40".to_owned()];
        words.extend((0..40).map(|number| format!("{{s}}{number}")));
        words.push(value(round));
        client.send(&words).expect("is sent");
        client.receive_within(Duration::from_secs(2)).expect("it lives")
    };
    let mut rounds = 0;
    while matches!(run(rounds), ReceiveOutcome::Reply(_)) {
        rounds += 1;
        assert!(rounds < 9, "so much does not fit the disk");
    }
    assert!(rounds > 0 && server.kill(), "it dies");
    disk.remount("size=64m");
    let server = TestServer::bobbin(&arguments);
    let mut client = server.connect();
    for number in 0..40 {
        let there = ask(&mut client, &["GET", &format!("{{s}}{number}")]);
        assert!(there == value(rounds - 1), "{number}: {}", &there[..6]);
    }
    assert!(server.log().contains("Revert incomplete MULTI/EXEC transaction"), "{}", server.log());
}
