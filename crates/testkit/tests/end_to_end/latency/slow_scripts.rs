//! Scripts that take long, or for ever: whatever they hold, others are told, and a client that may
//! end them can.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bobbin_testkit::{ReceiveOutcome, ReplyFrame, TestConnection, TestServer};

use crate::common::on_both;

/// How a script is brought to loop.
struct Case {
    name: &'static str,
    /// Run before, with other arguments: so that it is known which keys it uses.
    before: &'static [&'static [&'static str]],
    /// The last of these loops.
    looping: &'static [&'static [&'static str]],
    /// It wrote nothing, and can be ended.
    is_killable: bool,
    is_function: bool,
}

/// Loops if it is told to; after a write, or without.
const READER: &str =
    "redis.call('get', KEYS[1]) if ARGV[1] == 'loop' then while true do end end return 1";
const WRITER: &str =
    "redis.call('set', KEYS[1], 1) if ARGV[1] == 'loop' then while true do end end return 1";
const CATCHER: &str = "redis.call('set', KEYS[1], 1) while ARGV[1] == 'loop' do pcall(function() while true do \
                       redis.call('incr', KEYS[1]) end end) end return 1";
const LIBRARY: &str = "#!lua name=slow\n\
    local function read(keys, args) while args[1] == 'loop' do pcall(server.call, 'ping') end return 1 end\n\
    local function write(keys, args) server.call('set', keys[1], 1) while args[1] == 'loop' do end return 1 end\n\
    server.register_function('read', read)\nserver.register_function('write', write)";
const PATTERN: &str =
    "local a = string.rep('a', 40) return string.find(a, string.rep('a?', 40) .. a .. 'b')";

const ENCODER: &str =
    "local t = {1} for i = 1, 60 do t = {t, t} end while true do pcall(cjson.encode, t) end";
const PACKER: &str = "local t = {1} for i = 1, 15 do t = {t, t, t, t, t, t, t, t} end while true do pcall(cmsgpack.pack, t) end";
const MOVER: &str = "while true do pcall(table.insert, {}, -1048576, 1) end";

const CASES: &[Case] = &[
    Case {
        name: "within one call, an encoder of shared tables",
        before: &[],
        looping: &[&["EVAL", ENCODER, "0"]],
        is_killable: true,
        is_function: false,
    },
    Case {
        name: "within one call, another encoder of them, in a transaction",
        before: &[],
        looping: &[&["MULTI"], &["EVAL", PACKER, "0"], &["EXEC"]],
        is_killable: true,
        is_function: false,
    },
    Case {
        name: "within one call, elements that are moved",
        before: &[],
        looping: &[&["EVAL", MOVER, "0"]],
        is_killable: true,
        is_function: false,
    },
    Case {
        name: "a script of which nothing is known",
        before: &[],
        looping: &[&["EVAL", READER, "1", "k", "loop"]],
        is_killable: true,
        is_function: false,
    },
    Case {
        name: "a script under its shards",
        before: &[&["EVAL", READER, "1", "k", "x"], &["EVAL", READER, "1", "k", "x"]],
        looping: &[&["EVAL", READER, "1", "k", "loop"]],
        is_killable: true,
        is_function: false,
    },
    Case {
        name: "a pattern that tries for ever",
        before: &[],
        looping: &[&["EVAL", PATTERN, "0"]],
        is_killable: true,
        is_function: false,
    },
    Case {
        name: "a script in a transaction that wrote",
        before: &[],
        looping: &[
            &["MULTI"],
            &["SET", "before", "1"],
            &["EVAL", READER, "1", "k", "loop"],
            &["INCR", "before"],
            &["EXEC"],
        ],
        is_killable: true,
        is_function: false,
    },
    Case {
        name: "a function",
        before: &[&["FUNCTION", "LOAD", "REPLACE", LIBRARY], &["FCALL", "read", "1", "k", "x"]],
        looping: &[&["FCALL", "read", "1", "k", "loop"]],
        is_killable: true,
        is_function: true,
    },
    Case {
        name: "a function in a transaction",
        before: &[&["FUNCTION", "LOAD", "REPLACE", LIBRARY], &["FCALL", "read", "1", "k", "x"]],
        looping: &[&["MULTI"], &["FCALL", "read", "1", "k", "loop"], &["EXEC"]],
        is_killable: true,
        is_function: true,
    },
    Case {
        name: "a script that wrote with everything held",
        before: &[],
        looping: &[&["EVAL", WRITER, "1", "k", "loop"]],
        is_killable: false,
        is_function: false,
    },
    Case {
        name: "a script that wrote under its shards",
        before: &[&["EVAL", WRITER, "1", "k", "x"], &["EVAL", WRITER, "1", "k", "x"]],
        looping: &[&["EVAL", WRITER, "1", "k", "loop"]],
        is_killable: false,
        is_function: false,
    },
    Case {
        name: "a script that writes on and on and catches all",
        before: &[&["EVAL", CATCHER, "1", "k", "x"], &["EVAL", CATCHER, "1", "k", "x"]],
        looping: &[&["EVAL", CATCHER, "1", "k", "loop"]],
        is_killable: false,
        is_function: false,
    },
    Case {
        name: "a script in a transaction, which wrote",
        before: &[&["EVAL", WRITER, "1", "k", "x"]],
        looping: &[&["MULTI"], &["EVAL", WRITER, "1", "k", "loop"], &["EXEC"]],
        is_killable: false,
        is_function: false,
    },
    Case {
        name: "a function that wrote",
        before: &[&["FUNCTION", "LOAD", LIBRARY], &["FCALL", "write", "1", "k", "x"]],
        looping: &[&["FCALL", "write", "1", "k", "loop"]],
        is_killable: false,
        is_function: true,
    },
];

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn whatever_loops_others_are_told_and_it_can_be_ended() {
    // Valkey's own pattern matching cannot be interrupted, nor its encoders.
    let cases = || {
        let alone =
            |case: &&Case| ["pattern", "within one call"].iter().all(|w| !case.name.contains(w));
        CASES.iter().filter(alone)
    };
    check(&|| TestServer::valkey(&[]), &mut cases());
    for threads in ["1", "4"] {
        check(&|| TestServer::bobbin(&["--io-threads", threads]), &mut CASES.iter());
    }
}

/// What can be ended is on one server; the others end theirs.
fn check(start: &dyn Fn() -> TestServer, cases: &mut dyn Iterator<Item = &Case>) {
    let mut shared = None;
    for case in cases {
        let started = Instant::now();
        if case.is_killable {
            check_case(case, shared.get_or_insert_with(start));
        } else {
            check_case(case, &mut start());
        }
        println!("{}: {:?}", case.name, started.elapsed());
    }
}

fn check_case(case: &Case, server: &mut TestServer) {
    let name = case.name;
    let mut slow = server.connect();
    slow.say("CONFIG SET busy-reply-threshold 50");
    let mut others: Vec<TestConnection> = (0..8).map(|_| server.connect()).collect();
    let mut waiting = server.connect();
    for command in case.before {
        assert!(!slow.call(command).expect("it answers").is_error(), "{name}: {command:?}");
    }
    let (last, queued) = case.looping.split_last().expect("there is a command");
    for command in queued {
        slow.call(command).expect("it is queued");
    }
    slow.send(last).expect("is sent");
    // Perhaps before the threshold, so that it waits for what the script holds.
    waiting.send(&["GET", "k"]).expect("is sent");
    for other in &mut others {
        let told = until(|| other.say("GET k"), ReplyFrame::is_error);
        assert!(told.text().starts_with("BUSY "), "{name}: {}", told.text());
        assert!(other.say("SET elsewhere 1").text().starts_with("BUSY "), "{name}");
    }
    waiting.receive().expect("it answers");
    let (kill, wrong) = match case.is_function {
        true => ("FUNCTION KILL", "SCRIPT KILL"),
        false => ("SCRIPT KILL", "FUNCTION KILL"),
    };
    let refused = if case.is_killable { "BUSY " } else { "UNKILLABLE " };
    assert!(others[1].say(wrong).text().starts_with(refused), "{name}");
    let killed = others[2].say(kill).text();
    if !case.is_killable {
        assert!(killed.starts_with("UNKILLABLE"), "{name}: {killed}");
        assert!(others[3].say("SHUTDOWN").text().starts_with("BUSY "), "{name}");
        others[4].send(&["SHUTDOWN", "NOSAVE"]).expect("is sent");
        assert!(server.wait(Duration::from_secs(20)).is_some(), "{name}: it does not end");
        return;
    }
    assert_eq!(killed, "OK", "{name}");
    let ended = slow.receive().expect("it answers");
    if case.looping.len() == 1 {
        assert!(ended.text().contains(kill), "{name}: {}", ended.text());
    } else {
        let replies = ended.items();
        assert_eq!(replies.len(), case.looping.len() - 2, "{name}");
        assert!(replies.iter().any(|reply| reply.text().contains(kill)), "{name}");
        // What came after the script has run too.
        assert!(replies.len() == 1 || replies[2].text() == "2", "{name}");
    }
    for other in &mut others {
        assert_eq!(until(|| other.say("PING"), |reply| !reply.is_error()).text(), "PONG", "{name}");
        assert!(!other.say("GET k").is_error());
    }
}

/// Adds one before and after it took its time.
const LONG: &str = "redis.call('incr', KEYS[1]) local n = 0 for i = 1, ARGV[1] do n = n + 1 end \
                    redis.call('incr', KEYS[1]) return redis.call('get', KEYS[1])";
const LONG_COUNT: &str = "30000000";
const LONGER_COUNT: &str = "100000000";

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn slow_scripts_are_one_step_whatever_they_hold() {
    on_both(&[], |_, server| check_steps(server));
    check_steps(&mut TestServer::bobbin(&["--io-threads", "4"]));
}

fn check_steps(server: &mut TestServer) {
    let mut other = server.connect();
    other.say("CONFIG SET busy-reply-threshold 20");
    // Known, or not, to keep to its keys.
    for round in 0..2 {
        other.say("FLUSHALL");
        let mut slow: Vec<TestConnection> = (0..3).map(|_| server.connect()).collect();
        slow[0].send(&["EVAL", LONG, "1", "a", LONG_COUNT]).expect("is sent");
        slow[1].say("MULTI");
        slow[1].say("INCR b");
        slow[1].call(&["EVAL", LONG, "1", "b", LONG_COUNT]).expect("it is queued");
        slow[1].say("INCR b");
        slow[1].send(&["EXEC"]).expect("is sent");
        slow[2].send(&["EVAL", LONG, "1", "c", LONG_COUNT]).expect("is sent");
        let mut watchers: Vec<TestConnection> = (0..4).map(|_| server.connect()).collect();
        std::thread::scope(|scope| {
            for watcher in &mut watchers {
                scope.spawn(move || {
                    let started = Instant::now();
                    while started.elapsed() < Duration::from_secs(1) {
                        let seen = watcher.say("MGET a b c");
                        if seen.is_error() {
                            assert!(seen.text().starts_with("BUSY "), "{}", seen.text());
                            continue;
                        }
                        let seen: Vec<String> = seen.items().iter().map(ReplyFrame::text).collect();
                        for (at, value) in seen.iter().enumerate() {
                            let whole = if at == 1 { "4" } else { "2" };
                            assert!(value.is_empty() || value == whole, "{at}: {value}");
                        }
                    }
                });
            }
        });
        for (at, slow) in slow.iter_mut().enumerate() {
            let reply = slow.receive().expect("it answers");
            if reply.is_error() {
                assert!(reply.text().contains("BUSY "), "{}", reply.text());
                continue;
            }
            match at {
                1 => {
                    let replies: Vec<String> = reply.items().iter().map(ReplyFrame::text).collect();
                    assert_eq!(replies, ["1", "3", "4"], "round {round}");
                }
                _ => assert_eq!(reply.text(), "2", "round {round}"),
            }
        }
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_wrote_is_done_to_its_end_though_its_client_leaves() {
    on_both(&[], |_, server| check_leaving(server));
}

fn check_leaving(server: &mut TestServer) {
    let mut other = server.connect();
    other.say("CONFIG SET busy-reply-threshold 20");
    for round in 0..3 {
        other.say("FLUSHALL");
        let mut slow = server.connect();
        if round == 2 {
            slow.say("MULTI");
            slow.call(&["EVAL", LONG, "1", "k", LONG_COUNT]).expect("it is queued");
            slow.send(&["EXEC"]).expect("is sent");
        } else {
            slow.send(&["EVAL", LONG, "1", "k", LONG_COUNT]).expect("is sent");
        }
        until(|| other.say("GET k"), |reply| reply.is_error() || reply.text() == "2");
        drop(slow);
        let seen = until(|| other.say("GET k"), |reply| !reply.is_error());
        assert_eq!(seen.text(), "2", "round {round}");
    }
}

fn until(mut ask: impl FnMut() -> ReplyFrame, fits: impl Fn(&ReplyFrame) -> bool) -> ReplyFrame {
    let started = Instant::now();
    loop {
        let reply = ask();
        if fits(&reply) || started.elapsed() > Duration::from_secs(20) {
            return reply;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What waits for a script that holds `k`: commands before it, which do not, and the reply.
const WAITING: &[(&[&str], &str, &str)] = &[
    (&[], "GET k", "1"),
    (&[], "MSET k 5 other 5", "OK"),
    (&["MULTI", "GET k", "SET other 1"], "EXEC", "1 OK"),
    (&[], "WATCH k", "OK"),
    (&[], "EVALSHA sha 1 k x", "1"),
    (&[], "RENAME k other", "OK"),
    (&[], "KEYS k", "k"),
    (&[], "FLUSHALL", "OK"),
];

/// While a script takes its time, and is not slow yet, only what needs its keys waits; also if it
/// runs for the first time.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_long_script_holds_up_only_what_needs_its_keys() {
    for threads in ["1", "3"] {
        let options = ["--io-threads", threads, "--busy-reply-threshold", "600000"];
        for is_known in [true, false] {
            check_beside(&TestServer::bobbin(&options), is_known);
        }
    }
}

fn check_beside(server: &TestServer, is_known: bool) {
    let mut other = server.connect();
    for (number, (before, last, expected)) in WAITING.iter().enumerate() {
        let source = format!("{READER} -- {number}");
        let sha = other.call(&["SCRIPT", "LOAD", &source]).expect("it answers").text();
        if is_known {
            // That it keeps to its keys.
            other.say(&format!("EVALSHA {sha} 1 k x"));
        }
        other.say("FLUSHALL");
        other.say("SET k 1");
        other.say("CONFIG RESETSTAT");
        let mut script = server.connect();
        script.send(&["EVALSHA", &sha, "1", "k", "loop"]).expect("is sent");
        bobbin_testkit::until(|| other.say("INFO commandstats").text().contains("cmdstat_get:"));
        let mut waiting = server.connect();
        for command in *before {
            assert!(!waiting.say(command).is_error(), "{command}");
        }
        let last = last.replace("sha", &sha);
        waiting.send(&last.split(' ').collect::<Vec<_>>()).expect("is sent");
        for at in 0..100 {
            assert_eq!(other.say("PING").text(), "PONG");
            assert_eq!(other.say(&format!("SET beside:{at} 1")).text(), "OK");
        }
        std::thread::sleep(Duration::from_millis(20));
        let nothing = matches!(waiting.receive_within(MOMENT), Ok(ReceiveOutcome::Nothing));
        assert!(nothing, "{last} should wait");
        assert_eq!(other.say("SCRIPT KILL").text(), "OK");
        assert!(script.receive().expect("it answers").text().contains("SCRIPT KILL"));
        assert_eq!(words(&waiting.receive().expect("it answers")), *expected, "{last}");
        // It counts with the time of its slices, too.
        let all = other.say("INFO commandstats").text();
        let us = all.split("cmdstat_evalsha:calls=").nth(1).and_then(|rest| {
            let (_, us) = rest.split_once("usec=")?;
            us.split(',').next()?.parse::<u64>().ok()
        });
        assert!(us.is_some_and(|us| us > 2_000), "{us:?}");
    }
}

/// Scripts that overlap keep some keys at all times. What needs every key has its turn all the
/// same.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_needs_every_key_has_its_turn_between_scripts() {
    let server = TestServer::bobbin(&["--io-threads", "2"]);
    let source =
        "local n = 0 for i = 1, 100000 do n = n + i end return redis.call('INCR', KEYS[1])";
    let sha = server.connect().call(&["SCRIPT", "LOAD", source]).expect("it answers").text();
    let (runs, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (mut connection, line) =
                (server.connect(), format!("EVALSHA {sha} 1 key:{client}"));
            let (runs, is_over) = (&runs, &is_over);
            scope.spawn(move || {
                for run in 0..RUNS_MAX {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    assert_eq!(connection.say(&line), ReplyFrame::integer(run + 1));
                    runs.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut admin = server.connect();
        bobbin_testkit::until(|| runs.load(Ordering::Relaxed) >= 100);
        let set = admin.say("CONFIG SET maxmemory-samples 6");
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(set.text(), "OK");
        let all = runs.load(Ordering::Relaxed);
        assert!(all < CLIENTS * RUNS_MAX as usize, "it waited for the last of {all} scripts");
    });
}

const CLIENTS: usize = 6;
/// Scripts of each client: some seconds.
const RUNS_MAX: i64 = 3000;

/// Commands of a script that take long each.
const LONG_COMMANDS: &[&str] = &[
    "'SINTERCARD', 2, 'set', 'other'",
    "'SORT_RO', 'set', 'ALPHA', 'LIMIT', 0, 1",
    "'ZUNION', 1, 'sorted'",
    "'SMEMBERS', 'set'",
];

/// A script pauses in the midst of its commands: its worker serves many others while one goes on.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_long_command_of_a_script_holds_up_nobody() {
    let server = TestServer::bobbin(&["--io-threads", "1", "--busy-reply-threshold", "600000"]);
    let mut other = server.connect();
    for start in (0..100_000).step_by(1000) {
        let members: Vec<String> = (start..start + 1000).map(|at| format!("member:{at}")).collect();
        for key in ["set", "other"] {
            let words = ["SADD", key].into_iter().chain(members.iter().map(String::as_str));
            other.call(&words.collect::<Vec<_>>()).expect("it answers");
        }
    }
    other.say("ZUNIONSTORE sorted 1 set");
    for command in LONG_COMMANDS {
        other.say("CONFIG RESETSTAT");
        let mut script = server.connect();
        let source = format!("redis.call('GET', 'k') while true do redis.call({command}) end");
        script.send(&["EVAL", &source, "0"]).expect("is sent");
        bobbin_testkit::until(|| other.say("INFO commandstats").text().contains("cmdstat_get:"));
        for _ in 0..PINGS {
            assert_eq!(other.say("PING").text(), "PONG");
        }
        let name = command.split('\'').nth(1).expect("it has a name").to_lowercase();
        let all = other.say("INFO commandstats").text();
        let calls = all.split(&format!("cmdstat_{name}:calls=")).nth(1).map_or(0, |rest| {
            let digits = rest.split(',').next().unwrap_or_default();
            digits.parse::<usize>().expect("a number")
        });
        assert!(calls * 5 < PINGS, "{calls} times {command} while others had {PINGS} replies");
        assert_eq!(other.say("SCRIPT KILL").text(), "OK");
        assert!(script.receive().expect("it answers").text().contains("SCRIPT KILL"));
    }
}

const PINGS: usize = 200;

/// What long commands of a script change is in the log, each after what the script did before.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn long_changes_of_a_script_are_logged() {
    let server = TestServer::bobbin(&["--appendonly", "yes", "--enable-debug-command", "yes"]);
    let mut client = server.connect();
    for start in (0..20_000).step_by(1000) {
        let members: Vec<String> = (start..start + 1000).map(|at| at.to_string()).collect();
        for key in [["SADD", "set"], ["RPUSH", "list"]] {
            let words = key.into_iter().chain(members.iter().map(String::as_str));
            client.call(&words.collect::<Vec<_>>()).expect("it answers");
        }
    }
    let script = "redis.call('SADD', 'set', 'one more') redis.call('SUNIONSTORE', 'union', 'set') \
                  redis.call('SREM', 'set', 'one more') redis.call('ZUNIONSTORE', 'sorted', 1, 'set') \
                  redis.call('SPOP', 'set', 7000) redis.call('LTRIM', 'list', 6000, -1) \
                  return redis.call('SORT', 'list', 'DESC', 'STORE', 'descending')";
    assert_eq!(
        client.call(&["EVAL", script, "0"]).expect("it answers"),
        ReplyFrame::integer(14_000)
    );
    let digest = client.say("DEBUG DIGEST").text();
    assert_eq!(client.say("DEBUG LOADAOF").text(), "OK");
    assert_eq!(client.say("DEBUG DIGEST").text(), digest);
    assert_eq!(client.say("SCARD union"), ReplyFrame::integer(20_001));
    assert_eq!(client.say("SCARD set"), ReplyFrame::integer(13_000));
}

/// Memory is over its limit while a script holds all keys: nothing can be evicted until it ends.
/// Writing waits for that, and no worker looks for keys for ever.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn eviction_waits_for_a_script_that_holds_everything() {
    const FILLING: &str = "for i = 1, 300 do redis.call('set', 'e' .. i, string.rep('v', 10000)) end \
        local n = 0 for i = 1, ARGV[1] do n = n + i end return redis.call('exists', 'e1', 'e300')";
    for threads in ["1", "2"] {
        let server = TestServer::bobbin(&[
            "--io-threads",
            threads,
            "--maxmemory-policy",
            "allkeys-random",
            "--busy-reply-threshold",
            "600000",
        ]);
        let mut other = server.connect();
        let used = other.say("INFO memory").text();
        let used = used.split("used_memory:").nth(1).and_then(|rest| rest.split('\r').next());
        let used: usize = used.and_then(|used| used.parse().ok()).expect("a number");
        other.say(&format!("CONFIG SET maxmemory {}", used + 1_500_000));
        let mut script = server.connect();
        script.send(&["EVAL", FILLING, "0", LONGER_COUNT]).expect("is sent");
        bobbin_testkit::until(|| other.say("INFO commandstats").text().contains("cmdstat_set:"));
        let mut waiting = server.connect();
        waiting.send(&["SET", "beside", "1"]).expect("is sent");
        for _ in 0..100 {
            assert_eq!(other.say("PING").text(), "PONG");
        }
        assert!(matches!(waiting.receive_within(MOMENT), Ok(ReceiveOutcome::Nothing)));
        // It saw all that it wrote.
        assert_eq!(script.receive().expect("it answers").text(), "2");
        assert_eq!(waiting.receive().expect("it answers").text(), "OK");
        let stats = |server: &TestServer| server.connect().say("INFO stats").text();
        bobbin_testkit::until(|| !stats(&server).contains("\r\nevicted_keys:0\r\n"));
    }
}

fn words(reply: &ReplyFrame) -> String {
    match reply {
        ReplyFrame::Aggregate { items, .. } => {
            items.iter().map(words).filter(|it| !it.is_empty()).collect::<Vec<_>>().join(" ")
        }
        other => other.text(),
    }
}

/// A script that strays goes on once what it needs is free, though it has paused long ago, in
/// whichever order the shards lie.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_long_script_that_strays_begins_anew() {
    const STRAYING: &str = "local n = 0 for i = 1, ARGV[1] do n = n + i end \
        if ARGV[2] ~= '' then return redis.call('get', ARGV[2]) end return redis.call('get', KEYS[1])";
    let server = TestServer::bobbin(&["--io-threads", "2", "--busy-reply-threshold", "600000"]);
    let mut other = server.connect();
    for round in 0..6 {
        // Each round with a source of its own, of which nothing is known.
        let straying = format!("{STRAYING} -- {round}");
        let (own, wanted) = (format!("own:{round}"), format!("wanted:{round}"));
        other.call(&["EVAL", LONG, "1", &wanted, "1"]).expect("it answers");
        other.call(&["EVAL", &straying, "1", &own, "1", ""]).expect("it answers");
        other.say("CONFIG RESETSTAT");
        let mut holder = server.connect();
        holder.send(&["EVAL", LONG, "1", &wanted, LONGER_COUNT]).expect("is sent");
        bobbin_testkit::until(|| other.say("INFO commandstats").text().contains("cmdstat_incr:"));
        let mut strays = server.connect();
        strays.send(&["EVAL", &straying, "1", &own, LONG_COUNT, &wanted]).expect("is sent");
        assert_eq!(strays.receive().expect("it answers").text(), "4", "round {round}");
        assert_eq!(holder.receive().expect("it answers").text(), "4", "round {round}");
        assert_eq!(other.say("SCRIPT KILL").text(), "NOTBUSY No scripts in execution right now.");
    }
}

/// A library has one state. A client that waits for it keeps no other client of its worker from
/// being served.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn who_waits_for_a_library_holds_nobody_up() {
    const COUNTING: &str = "#!lua name=counting\n\
        local function count(keys, args) for i = 1, tonumber(args[1]) do local x = i end return 1 end\n\
        server.register_function('count', count)";
    let server = TestServer::bobbin(&["--io-threads", "2", "--busy-reply-threshold", "600000"]);
    let mut first = server.connect();
    assert_eq!(
        first.call(&["FUNCTION", "LOAD", COUNTING]).expect("it is connected").text(),
        "counting"
    );
    // It keeps to its keys, so that it does not hold everything the next time.
    assert_eq!(first.say("FCALL count 1 a 1"), ReplyFrame::integer(1));
    let mut others: Vec<TestConnection> = (0..16).map(|_| server.connect()).collect();
    first.send(&["FCALL", "count", "1", "a", "300000000"]).expect("it is connected");
    // The clients of the other thread are those that are answered meanwhile.
    others.iter_mut().for_each(|other| other.send(&["PING"]).expect("it is connected"));
    let mut answered = Vec::new();
    bobbin_testkit::until(|| {
        let hears = |other: &mut TestConnection| {
            matches!(other.receive_within(MOMENT), Ok(ReceiveOutcome::Reply(_)))
        };
        answered.extend(others.extract_if(.., hears));
        answered.len() >= 2
    });
    let [waiting, beside, ..] = &mut answered[..] else { unreachable!("there are two") };
    waiting.send(&["FCALL", "count", "1", "b", "1"]).expect("it is connected");
    for _ in 0..100 {
        assert_eq!(beside.say("PING").text(), "PONG");
    }
    let nothing = matches!(first.receive_within(MOMENT), Ok(ReceiveOutcome::Nothing));
    assert!(nothing, "the function should take longer than all the others");
    assert_eq!(first.receive().expect("it is connected"), ReplyFrame::integer(1));
    assert_eq!(waiting.receive().expect("it is connected"), ReplyFrame::integer(1));
}

/// How long it is seen whether a reply is there.
const MOMENT: Duration = Duration::from_millis(1);
