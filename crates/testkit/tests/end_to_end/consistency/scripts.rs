//! Scripts beside each other and beside other commands: each is one step, whichever keys it
//! declares.

use std::time::{Duration, Instant};

use bobbin_testkit::{ReplyFrame, TestConnection, TestServer};

use crate::common::on_both;

/// Moves an amount between two accounts; the second is not declared.
const MOVE: &str = "local a = tonumber(redis.call('get', KEYS[1]) or '0') \
                    local b = tonumber(redis.call('get', ARGV[1]) or '0') \
                    redis.call('set', KEYS[1], a - 1) redis.call('set', ARGV[1], b + 1) return a + b";
/// The same with both declared.
const MOVE_DECLARED: &str = "local a = tonumber(redis.call('get', KEYS[1]) or '0') \
                             local b = tonumber(redis.call('get', KEYS[2]) or '0') \
                             redis.call('set', KEYS[1], a - 1) redis.call('set', KEYS[2], b + 1) return a + b";
/// Strays only sometimes, and after it wrote.
const SOMETIMES: &str = "redis.call('incr', KEYS[1]) if ARGV[1] == '7' then redis.call('incr', 'counter') end \
                         return 1";

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn nothing_comes_between_the_commands_of_a_script() {
    on_both(&[], |_, server| check_sums(server));
    check_sums(&mut TestServer::bobbin(&["--io-threads", "4"]));
}

fn check_sums(server: &mut TestServer) {
    let address = server.address();
    std::thread::scope(|scope| {
        for client in 0..4 {
            scope.spawn(move || {
                let mut connection = TestConnection::open(address).expect("there is a server");
                for round in 0..ROUNDS {
                    let from = format!("account:{}", (round + client) % ACCOUNTS);
                    let to = format!("account:{}", (round * 7 + client + 1) % ACCOUNTS);
                    if from == to && client != 2 {
                        continue;
                    }
                    let reply = match client {
                        0 => connection.call(&["EVAL", MOVE, "1", &from, &to]),
                        1 => connection.call(&["EVAL", MOVE_DECLARED, "2", &from, &to]),
                        2 => {
                            let digit = (round % 10).to_string();
                            let own = format!("own:{round}");
                            connection.call(&["EVAL", SOMETIMES, "1", &own, &digit])
                        }
                        _ if round % 2 == 0 => {
                            connection.say("MULTI");
                            let queued = connection.call(&["EVAL", MOVE_DECLARED, "2", &from, &to]);
                            assert_eq!(queued.expect("it answers").text(), "QUEUED");
                            connection.call(&["EXEC"])
                        }
                        _ => {
                            connection.say("MULTI");
                            connection.say(&format!("DECR {from}"));
                            connection.say(&format!("INCR {to}"));
                            connection.call(&["EXEC"])
                        }
                    };
                    let reply = reply.expect("it answers");
                    assert!(!reply.is_error(), "{}", reply.text());
                }
            });
        }
    });
    let mut connection = server.connect();
    let sum: i64 = (0..ACCOUNTS)
        .filter_map(|account| {
            connection.say(&format!("GET account:{account}")).text().parse::<i64>().ok()
        })
        .sum();
    assert_eq!(sum, 0);
    assert_eq!(connection.say("GET counter").text(), (ROUNDS / 10).to_string());
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_slow_script_can_be_ended_and_others_are_told() {
    on_both(&[], |_, server| check_busy(server));
    check_busy(&mut TestServer::bobbin(&["--io-threads", "1"]));
    check_busy(&mut TestServer::bobbin(&["--io-threads", "4"]));
}

fn check_busy(server: &mut TestServer) {
    let (mut slow, mut other) = (server.connect(), server.connect());
    other.say("CONFIG SET busy-reply-threshold 20");
    for code in [
        "while true do end",
        "while true do pcall(function() while true do redis.call('ping') end end) end",
    ] {
        slow.send(&["EVAL", code, "0"]).expect("is sent");
        let told = until(|| other.say("GET k"), ReplyFrame::is_error);
        assert!(told.text().starts_with("BUSY "), "{}", told.text());
        assert_eq!(other.say("SCRIPT KILL").text(), "OK");
        let ended = slow.receive().expect("it answers");
        assert!(ended.text().contains("killed by user with SCRIPT KILL"), "{}", ended.text());
        assert_eq!(until(|| other.say("PING"), |reply| !reply.is_error()).text(), "PONG");
    }
    // A script that wrote cannot be ended; what it did is there as a whole.
    let code = "redis.call('set', KEYS[1], 1) local n = 0 for i = 1, 1e8 do n = n + 1 end redis.call('incr', KEYS[1]) \
                return redis.call('get', KEYS[1])";
    slow.send(&["EVAL", code, "1", "k"]).expect("is sent");
    let told = until(|| other.say("GET k"), ReplyFrame::is_error);
    assert!(told.text().starts_with("BUSY "), "{}", told.text());
    assert!(other.say("SCRIPT KILL").text().starts_with("UNKILLABLE"));
    assert_eq!(slow.receive().expect("it answers").text(), "2");
    assert_eq!(until(|| other.say("GET k"), |reply| !reply.is_error()).text(), "2");
    // A function.
    let library =
        "#!lua name=slow\nserver.register_function('loop', function() while true do end end)";
    assert_eq!(other.call(&["FUNCTION", "LOAD", library]).expect("it answers").text(), "slow");
    slow.send(&["FCALL", "loop", "0"]).expect("is sent");
    let told = until(|| other.say("GET k"), ReplyFrame::is_error);
    assert!(told.text().contains("FUNCTION KILL"), "{}", told.text());
    assert_eq!(other.say("FUNCTION KILL").text(), "OK");
    assert!(slow.receive().expect("it answers").is_error());
    assert_eq!(until(|| other.say("PING"), |reply| !reply.is_error()).text(), "PONG");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_scripts_and_functions_did_survives_in_the_log() {
    let folder = std::env::temp_dir().join(format!("bobbin-scripts-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let directory = folder.to_string_lossy().into_owned();
    let start = || {
        TestServer::bobbin(&[
            "--dir",
            &directory,
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--io-threads",
            "2",
        ])
    };
    let server = start();
    let mut connection = server.connect();
    let code = "redis.call('set', KEYS[1], 'v') redis.call('incr', 'n') redis.set_repl(redis.REPL_NONE) \
                redis.call('set', 'unlogged', 1) redis.set_repl(redis.REPL_REPLICA) redis.call('set', 'one', 1) \
                redis.set_repl(redis.REPL_ALL) return redis.call('spop', 's')";
    connection.say("SADD s a b c d e f");
    for _ in 0..3 {
        connection.call(&["EVAL", code, "1", "k"]).expect("it answers");
    }
    let library = "#!lua name=l\nserver.register_function('f', function() return 'hello' end)";
    connection.call(&["FUNCTION", "LOAD", library]).expect("it answers");
    let digest = |connection: &mut TestConnection| {
        let mut members = connection.say("SMEMBERS s").items().to_vec();
        members.sort_by_key(ReplyFrame::text);
        members
    };
    let members = digest(&mut connection);
    assert_eq!(members.len(), 3);
    drop(server);
    let server = start();
    let mut connection = server.connect();
    assert_eq!(connection.say("GET k").text(), "v");
    assert_eq!(connection.say("GET n").text(), "3");
    assert!(connection.say("GET unlogged").is_null());
    assert_eq!(connection.say("GET one").text(), "1", "replicas and the log have one stream");
    assert_eq!(digest(&mut connection), members);
    assert_eq!(connection.say("FCALL f 0").text(), "hello");
    connection.say("BGREWRITEAOF");
    until(
        || connection.say("INFO persistence"),
        |info| {
            let text = info.text();
            text.contains("aof_rewrite_in_progress:0") && text.contains("aof_rewrite_scheduled:0")
        },
    );
    drop(server);
    let server = start();
    assert_eq!(server.connect().say("FCALL f 0").text(), "hello");
    drop(server);
    drop(std::fs::remove_dir_all(&folder));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn memory_of_all_states_is_bounded() {
    let server = TestServer::bobbin(&["--io-threads", "2", "--maxmemory-scripts", "32mb"]);
    let mut client = server.connect();
    let taking = |bytes: &str| format!("return #string.rep('x', {bytes})");
    let take = |client: &mut TestConnection, bytes: &str| {
        client.call(&["EVAL", &taking(bytes), "0"]).expect("it answers").text()
    };
    assert_eq!(take(&mut client, "8000000"), "8000000");
    assert!(take(&mut client, "40000000").contains("more memory"));
    // A library has a state of its own, and no more memory for that.
    let library = "#!lua name=keeper\nlocal kept\nserver.register_function('keep', function(keys, args) \
                   kept = string.rep('x', args[1]) return #kept end)";
    assert_eq!(client.call(&["FUNCTION", "LOAD", library]).expect("it answers").text(), "keeper");
    let kept = client.call(&["FCALL", "keep", "0", "12000000"]).expect("it answers");
    assert_eq!(kept.text(), "12000000");
    assert!(take(&mut client, "12000000").contains("more memory"));
    let info = client.say("INFO memory").text();
    let field = |name: &str| -> usize {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|value| value.trim().parse().ok()).expect("it is a number")
    };
    assert!((12_000_000..32 << 20).contains(&field("used_memory_vm_functions")));
    assert!(field("used_memory_vm_total") < 32 << 20);
    assert_eq!(client.say("FUNCTION FLUSH").text(), "OK");
    assert_eq!(take(&mut client, "12000000"), "12000000");
    // Half of maxmemory is more than they get.
    client.say("CONFIG SET maxmemory-scripts 1gb");
    assert_eq!(take(&mut client, "40000000"), "40000000");
    client.say("CONFIG SET maxmemory 64mb");
    assert!(take(&mut client, "40000000").contains("more memory"));
    client.say("CONFIG SET maxmemory 1");
    assert_eq!(client.say("EVAL_RO return(7) 0").text(), "7");
}

/// Scripts that only EVAL brought are forgotten when there are more than 500, the oldest first;
/// those of SCRIPT LOAD stay. A library that does not come to its end is not loaded.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_is_kept_of_scripts_is_limited() {
    let server = TestServer::bobbin(&["--io-threads", "1"]);
    let mut client = server.connect();
    let loaded = client.say("SCRIPT LOAD return(-1)").text();
    let mut named = Vec::new();
    for number in 0..502 {
        let source = format!("return {number}");
        client.call(&["EVAL", &source, "0"]).expect("it answers");
        // Of these the names are asked for later.
        if [0, 1, 2, 501].contains(&number) {
            named.push(source);
        }
    }
    assert_eq!(server.info("number_of_cached_scripts"), "501");
    assert_eq!(client.say(&format!("EVALSHA {loaded} 0")).text(), "-1");
    let other = TestServer::bobbin(&[]);
    let mut names = other.connect();
    let known: Vec<bool> = named
        .iter()
        .map(|source| {
            let name = names.call(&["SCRIPT", "LOAD", source]).expect("it answers").text();
            !client.say(&format!("EVALSHA {name} 0")).is_error()
        })
        .collect();
    assert_eq!(known, [false, false, true, true]);
    let endless = "#!lua name=endless\nwhile true do end";
    let refused = client.call(&["FUNCTION", "LOAD", endless]).expect("it answers").text();
    assert!(refused.contains("FUNCTION LOAD timeout"), "{refused}");
    assert!(client.say("FUNCTION LIST").items().is_empty());
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

const ROUNDS: usize = 2000;
const ACCOUNTS: usize = 16;
