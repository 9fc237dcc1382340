//! While one client's command works on a large value, the others are served. Nothing here looks at
//! a clock: what counts is how many commands of another client are answered between a command and
//! its reply.

use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

use bobbin_testkit::connection::encode_command;
use bobbin_testkit::{TestConnection, TestServer};

/// With one worker: no other worker could answer.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn others_are_served_while_a_heavy_command_runs() {
    for driver in ["auto", "epoll"] {
        let server = TestServer::bobbin(&["--io-threads", "1", "--io-driver", driver]);
        let mut control = server.connect();
        fill(&mut control, BOBBIN_ELEMENTS);
        for command in PREPARED {
            let reply = control.say(command);
            assert!(!reply.is_error(), "{command}: {reply:?}");
        }
        let mut too_few = Vec::new();
        for command in HEAVY {
            let served: Vec<usize> = attempts(&server, command).collect();
            if served.last().is_none_or(|served| *served < SERVED_MIN) {
                too_few.push(format!("{command}: {served:?}"));
            }
        }
        assert!(too_few.is_empty(), "{driver}: {too_few:?}");
    }
}

/// The canary: a server that does one command at a time is found out.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn valkey_serves_nobody_meanwhile() {
    let server = TestServer::valkey(&[]);
    let mut control = server.connect();
    fill(&mut control, VALKEY_ELEMENTS);
    for command in ["SMEMBERS s", "SORT n LIMIT 0 10", "ZUNIONSTORE to 2 z z2", "KEYS *"] {
        let served = served_meanwhile(&server, command);
        assert!(served < SERVED_MIN, "{served} GETs during {command}");
    }
}

/// What takes a large value's place, or leaves none, does not free it itself.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn large_values_are_freed_by_nobody_who_serves() {
    let server = TestServer::bobbin(&["--io-threads", "2"]);
    let mut control = server.connect();
    let mut not_freed = Vec::new();
    let ends = [
        "DEL {}",
        "UNLINK {}",
        "SET {} over",
        "GETDEL {}",
        "PEXPIRE {} 1",
        "PEXPIREAT {} 1",
        "RENAME small {}",
        "COPY small {} REPLACE",
        "SINTERSTORE {} small other",
        "SORT numbers STORE {}",
        "FLUSHALL ASYNC",
    ];
    for end in ends {
        let sources: &[&str] = match end.split(' ').next() {
            // It is for strings only.
            Some("GETDEL") => &[],
            _ => &["s", "h", "z", "l", "x"],
        };
        for source in sources {
            control.say("FLUSHALL");
            fill_one(&mut control, source, BOBBIN_ELEMENTS);
            control.say("SADD small a b");
            control.say("SADD other a c");
            control.say("RPUSH numbers 3 1 2");
            let is_idle = |control: &mut TestConnection| {
                memory_field(control, "lazyfree_pending_objects") == 0
            };
            assert!(happens(&mut control, is_idle), "what was there before is never freed");
            let before = memory_field(&mut control, "lazyfreed_objects");
            let command = end.replace("{}", source);
            let reply = control.say(&command);
            assert!(!reply.is_error(), "{command}: {reply:?}");
            let is_freed = |control: &mut TestConnection| {
                memory_field(control, "lazyfreed_objects") > before && is_idle(control)
            };
            if !happens(&mut control, is_freed) {
                not_freed.push(command);
            }
        }
    }
    assert!(not_freed.is_empty(), "not freed in the background: {not_freed:?}");
}

/// What `served_meanwhile` counts, until it is enough or there were enough attempts. On a machine
/// with other work this thread may get no core until the reply is there, several times in a row;
/// after a pause its scheduler may choose otherwise.
fn attempts(server: &TestServer, command: &str) -> impl Iterator<Item = usize> {
    let mut is_enough = false;
    (0..ATTEMPTS).map_while(move |attempt| {
        if is_enough {
            return None;
        }
        if attempt > 0 {
            std::thread::sleep(PAUSE);
        }
        let served = served_meanwhile(server, command);
        is_enough = served >= SERVED_MIN;
        Some(served)
    })
}

/// GETs that a client gets answered, one after the other, between a command of another client and
/// the first byte of its reply.
fn served_meanwhile(server: &TestServer, command: &str) -> usize {
    let (mut heavy, mut other) = (server.connect(), server.connect());
    assert_eq!(other.say("GET w_1").text(), "1");
    let mut bytes = Vec::new();
    encode_command(&command.split(' ').collect::<Vec<_>>(), &mut bytes);
    encode_command(&["PING"], &mut bytes);
    heavy.send_raw(&bytes).expect("is sent");
    let mut served = 0;
    while !has_input(&mut heavy) {
        assert_eq!(other.say("GET w_1").text(), "1");
        served += 1;
    }
    let first = skip_to_pong(&mut heavy);
    assert_ne!(first, b'-', "{command} fails");
    served
}

fn has_input(connection: &mut TestConnection) -> bool {
    let stream = connection.stream();
    stream.set_nonblocking(true).expect("a socket can");
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).expect("a socket can");
    match peeked {
        Ok(count) => count > 0,
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => panic!("the connection breaks: {error}"),
    }
}

/// Reads to the PONG that comes last; the first byte of all.
fn skip_to_pong(connection: &mut TestConnection) -> u8 {
    let (mut chunk, mut tail, mut first) = (vec![0; 1 << 20], Vec::new(), None);
    connection.stream().set_read_timeout(Some(RUN_LIMIT)).expect("a socket can");
    while !tail.ends_with(b"+PONG\r\n") {
        let count = connection.stream().read(&mut chunk).expect("more comes");
        assert!(count > 0, "the server has closed");
        first.get_or_insert(chunk[0]);
        tail.extend_from_slice(&chunk[..count]);
        let surplus = tail.len().saturating_sub(16);
        tail.drain(..surplus);
    }
    first.expect("something came")
}

fn fill(control: &mut TestConnection, elements: usize) {
    for key in ["s", "s2", "h", "l", "n", "z", "z2", "x", "w"] {
        fill_one(control, key, elements);
    }
}

/// Makes a value of this many elements (a stream gets a fifth), or as many keys if `key` is `w`.
fn fill_one(control: &mut TestConnection, key: &str, elements: usize) {
    let head: &[&str] = match key {
        "s" | "s2" => &["SADD", key],
        "h" => &["HSET", key],
        "l" | "n" => &["RPUSH", key],
        "z" | "z2" => &["ZADD", key],
        "x" => &["XADD", key, "*"],
        _ => &["MSET"],
    };
    let per_command = if key == "x" { 1 } else { 1000 };
    // A stream of full size takes too long one by one.
    let elements = if key == "x" { elements / 5 } else { elements };
    let all: Vec<usize> = (0..elements).collect();
    for part in all.chunks(per_command * PIPELINED) {
        let mut bytes = Vec::new();
        let commands = part.chunks(per_command);
        let count = commands.len();
        for numbers in commands {
            let mut command: Vec<String> = head.iter().map(|word| (*word).to_owned()).collect();
            for i in numbers {
                match key {
                    "s" => command.push(format!("member {i}")),
                    "s2" => command.push(format!("member {}", i * 2)),
                    "h" | "x" => command.extend([format!("field {i}"), "value".to_owned()]),
                    "l" => command.push(format!("item {i}")),
                    "n" => command.push((i * 7919 % 1_000_003).to_string()),
                    "z" => command.extend([(i * 31 % 1009).to_string(), format!("member {i}")]),
                    "z2" => command.extend([i.to_string(), format!("member {}", i * 2)]),
                    _ => command.extend([format!("w_{i}"), i.to_string()]),
                }
            }
            encode_command(&command, &mut bytes);
        }
        control.send_raw(&bytes).expect("is sent");
        for _ in 0..count {
            assert!(!control.receive().expect("is answered").is_error());
        }
    }
}

fn memory_field(control: &mut TestConnection, name: &str) -> u64 {
    let memory = control.say("INFO memory").text();
    let field = memory.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    field.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("INFO has {name}"))
}

/// Whether something becomes true before it has taken far too long.
fn happens(control: &mut TestConnection, done: impl Fn(&mut TestConnection) -> bool) -> bool {
    let deadline = Instant::now() + WAIT_LIMIT;
    while !done(control) {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// What works long on the values that `fill` makes.
const HEAVY: &[&str] = &[
    "SMEMBERS s",
    "SINTER s s2",
    "SUNION s s2",
    "SDIFF s s2",
    "SINTERCARD 2 s s2",
    "SINTERSTORE to s s2",
    "SUNIONSTORE to s s2",
    "SDIFFSTORE to s s2",
    "SRANDMEMBER s 1000000",
    "HGETALL h",
    "HKEYS h",
    "HVALS h",
    "LRANGE l 0 -1",
    "SORT n LIMIT 0 10",
    "SORT n STORE to",
    "SORT l ALPHA",
    "ZRANGE z 0 -1 WITHSCORES",
    "ZUNION 2 z z2",
    "ZUNIONSTORE to 2 z z2",
    "ZINTERSTORE to 2 z z2",
    "ZDIFFSTORE to 2 z z2",
    "XRANGE x - +",
    "XREAD COUNT 1000000 STREAMS x 0",
    "LREM l 0 none",
    "LPOS l none",
    "LINSERT l BEFORE none item",
    "XAUTOCLAIM x g second 0 0 COUNT 1000000",
    "XAUTOCLAIM x g third 0 0 COUNT 1000000 JUSTID",
    "BITCOUNT bits",
    "BITPOS bits 1",
    "KEYS *",
];

/// What some of these need.
const PREPARED: &[&str] = &[
    "XGROUP CREATE x g 0",
    "XREADGROUP GROUP g first COUNT 1000000 STREAMS x >",
    "SETRANGE bits 200000000 x",
];

const BOBBIN_ELEMENTS: usize = 300_000;
const VALKEY_ELEMENTS: usize = 200_000;
const ATTEMPTS: usize = 100;
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);
/// More than a server can answer before it has seen the heavy command at all, and behind it before
/// its reply is there.
const SERVED_MIN: usize = 4;
/// Commands of a fill in one write.
const PIPELINED: usize = 100;
const RUN_LIMIT: Duration = Duration::from_secs(60);
const WAIT_LIMIT: Duration = Duration::from_secs(5);
