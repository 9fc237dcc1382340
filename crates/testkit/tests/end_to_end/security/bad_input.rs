//! Clients that misbehave: the server stays up, its memory stays bounded, others are served.

use std::io::{ErrorKind, Read, Write};
use std::iter;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use bobbin_testkit::random::{TestRandom, seed};
use bobbin_testkit::{TestConnection, TestServer, until};

use crate::common::on_both;

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn random_bytes_disturb_nobody() {
    on_both(&[], |name, server| {
        let before = server.resident_bytes();
        let seed = seed();
        let mut random = TestRandom::new(seed);
        for round in 0..400 {
            let count = 1 + random.below(4096);
            let mut bytes = random.bytes(count);
            // Half of them look like RESP at first.
            if round % 2 == 0 {
                let heads: [&[u8]; 5] =
                    [b"*3\r\n$3\r\nSET\r\n", b"*1\r\n$", b"*", b"$5\r\n", b"*2\r\n$4\r\nECHO\r\n$"];
                let head = heads[random.below(heads.len())];
                bytes.splice(0..0, head.iter().copied());
            }
            let mut stream = TcpStream::connect(server.address()).expect("the server accepts");
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(Shutdown::Write);
            drain(&mut stream);
        }
        assert_well(name, server, before, 32 * MIB, &format!("seed {seed}"));
    });
}

/// Commands of the right shape with arguments of any kind.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn random_commands_disturb_nobody() {
    const NAMES: [&str; 24] = [
        "SET",
        "GET",
        "SETRANGE",
        "GETRANGE",
        "BITFIELD",
        "BITCOUNT",
        "BITPOS",
        "BITOP",
        "SETBIT",
        "INCRBYFLOAT",
        "LCS",
        "RESTORE",
        "SCAN",
        "EXPIRE",
        "COPY",
        "OBJECT",
        "COMMAND",
        "CONFIG",
        "CLIENT",
        "MULTI",
        "EXEC",
        "WATCH",
        "MSETEX",
        "HELLO",
    ];
    const WORDS: [&str; 24] = [
        "0",
        "1",
        "-1",
        "7",
        "4294967295",
        "9223372036854775807",
        "-9223372036854775808",
        "1e400",
        "nan",
        "",
        "k",
        "k",
        "key",
        "EX",
        "PX",
        "GET",
        "NX",
        "u8",
        "i64",
        "#1",
        "COUNT",
        "MATCH",
        "INFO",
        "LIST",
    ];
    // Long enough strings would be allowed to take half a gigabyte.
    on_both(&["--proto-max-bulk-len", "1mb"], |name, server| {
        let before = server.resident_bytes();
        let seed = seed();
        let mut random = TestRandom::new(seed);
        let mut connection = server.connect();
        for _ in 0..20_000 {
            let mut command = vec![NAMES[random.below(NAMES.len())].as_bytes().to_vec()];
            for _ in 0..random.below(7) {
                command.push(match random.below(12) {
                    0 => {
                        let count = random.below(64);
                        random.bytes(count)
                    }
                    _ => WORDS[random.below(WORDS.len())].as_bytes().to_vec(),
                });
            }
            // A reply, a close or a silence (CLIENT REPLY OFF) are all fine.
            let answered = connection
                .send(&command)
                .and_then(|()| connection.receive_within(Duration::from_secs(10)));
            if !matches!(answered, Ok(bobbin_testkit::ReceiveOutcome::Reply(_))) {
                assert!(server.is_running(), "{name}: seed {seed}: died of {command:?}");
                connection = server.connect();
            }
        }
        assert_well(name, server, before, 128 * MIB, &format!("seed {seed}"));
    });
}

/// A client says that half a gigabyte will come: nothing may be set aside for a promise.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn declared_lengths_cost_nothing() {
    on_both(&[], |name, server| {
        let before = server.resident_bytes();
        let heads: [&[u8]; 4] = [
            b"*2\r\n$4\r\nECHO\r\n$536870912\r\nabc",
            b"*1048576\r\n$4\r\nMGET\r\n",
            b"*2147483647\r\n$4\r\nMGET\r\n$1\r\na\r\n",
            b"*3\r\n$3\r\nSET\r\n$536870912\r\n",
        ];
        let mut open = Vec::new();
        for _ in 0..100 {
            for head in heads {
                let mut stream = TcpStream::connect(server.address()).expect("the server accepts");
                stream.write_all(head).expect("the server reads");
                open.push(stream);
            }
        }
        std::thread::sleep(Duration::from_millis(200));
        // Valkey sets 32 KB and more aside for each.
        assert_well(name, server, before, 64 * MIB, "400 clients promise much");
    });
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_value_above_the_limit_is_refused_before_it_is_sent() {
    on_both(&[], |name, server| {
        let mut connection = server.connect();
        connection.send_raw(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870913\r\n").expect("is sent");
        let reply = connection.receive().expect("a reply comes");
        assert_eq!(reply.text(), "ERR Protocol error: invalid bulk length", "{name}");
        assert!(connection.receive().is_err(), "{name}: closes");
        assert_serves(name, server);
    });
}

/// A request is one array of strings: what nests in it is refused at its first byte, however deep.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn nested_requests_are_refused() {
    on_both(&[], |name, server| {
        let before = server.resident_bytes();
        for head in [&b""[..], b"*2\r\n$4\r\nECHO\r\n", b"*1\r\n", b"*1048576\r\n"] {
            for nested in [&b"*1\r\n"[..], b"*2147483647\r\n"] {
                let bytes = [head, &nested.repeat(10_000)].concat();
                assert_refused(name, server, &bytes, "expected '$', got '*'");
            }
        }
        for other in [b'%', b'~', b'>', b'+', b':', b'|'] {
            let bytes = [&b"*2\r\n$4\r\nECHO\r\n"[..], &[other], b"1\r\n"].concat();
            let error = format!("expected '$', got '{}'", char::from(other));
            assert_refused(name, server, &bytes, &error);
        }
        assert_well(name, server, before, 32 * MIB, "nested requests");
    });
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_line_that_never_ends_is_refused() {
    on_both(&[], |name, server| {
        let before = server.resident_bytes();
        for (head, filling, error) in [
            (&b""[..], b'a', "too big inline request"),
            (b"*", b'1', "too big mbulk count string"),
            (b"*1\r\n$", b'1', "too big bulk count string"),
        ] {
            let bytes = [head, &vec![filling; 70_000]].concat();
            assert_refused(name, server, &bytes, error);
        }
        assert_well(name, server, before, 32 * MIB, "endless lines");
    });
}

/// What a client has sent and has not been executed: an argument without an end, and commands that
/// wait for an EXEC.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn input_that_waits_is_bounded() {
    on_both(&["--client-query-buffer-limit", "1mb"], |name, server| {
        let before = server.resident_bytes();
        let command = |length: usize| {
            let value = vec![b'x'; length];
            [format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${length}\r\n").as_bytes(), &value, b"\r\n"]
                .concat()
        };
        let mut closed = 0;
        for (when, start, waiting) in [
            ("a large argument", &b""[..], command(8_000_000)[..4_000_000].to_vec()),
            ("small commands", b"MULTI\r\n", command(10).repeat(100_000)),
            ("middling commands", b"MULTI\r\n", command(1000).repeat(4000)),
            ("large commands", b"MULTI\r\n", command(100_000).repeat(40)),
        ] {
            let mut stream = connect_patiently(server);
            let mut reader = stream.try_clone().expect("a socket can be cloned");
            let drained = std::thread::spawn(move || drain(&mut reader));
            // The server closes before it has read all, or else when it has.
            let _ = stream.write_all(start).and_then(|()| stream.write_all(&waiting));
            drained.join().unwrap_or_else(|_| panic!("{name} keeps {when}"));
            closed += 1;
            let stats = server.connect().say("INFO stats").text();
            let count = format!("client_query_buffer_limit_disconnections:{closed}\r\n");
            assert!(stats.contains(&count), "{name}: {when}: not {count}");
        }
        assert_eq!(server.connect().say("EXISTS k").as_integer(), Some(0), "{name}");
        // At the limit a value is served, and what was executed does not count.
        let mut connection = server.connect();
        for _ in 0..8 {
            let reply = connection.call(&["SET", "k", &"y".repeat(1_000_000)]).expect("is stored");
            assert_eq!(reply.text(), "OK", "{name}");
        }
        assert_well(name, server, before, 64 * MIB, "input that waits");
    });
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn ten_thousand_connections_come_and_go() {
    on_both(&[], |name, server| {
        let before = server.resident_bytes();
        let files = server.open_files();
        for number in 0..10_000 {
            let mut stream = connect_patiently(server);
            match number % 4 {
                0 => {}
                1 => _ = stream.write_all(b"PING\r\n"),
                2 => _ = stream.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nk"),
                _ => {
                    _ = stream.write_all(b"PING\r\n");
                    drain_one(&mut stream);
                }
            }
        }
        let deadline = Instant::now() + PATIENCE;
        while server.open_files() > files + 8 {
            assert!(Instant::now() < deadline, "{name}: connections are not closed");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_well(name, server, before, 32 * MIB, "after 10,000 connections");
    });
}

/// Many at once, up to what a process may open here.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn many_idle_connections_are_kept() {
    on_both(&[], |name, server| {
        let mut idle: Vec<TestConnection> = (0..400).map(|_| server.connect()).collect();
        for connection in &mut idle {
            assert_eq!(connection.say("PING").text(), "PONG", "{name}");
        }
        for (number, connection) in idle.iter_mut().enumerate() {
            assert_eq!(connection.say(&format!("SET key:{number} v")).text(), "OK", "{name}");
        }
        assert_eq!(server.connect().say("DBSIZE").as_integer(), Some(400), "{name}");
    });
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn maxclients_is_kept_and_told() {
    on_both(&["--maxclients", "10"], |name, server| {
        // The connection of the start-up check may not be gone yet.
        let mut open: Vec<TestConnection> = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while open.len() < 10 {
            assert!(Instant::now() < deadline, "{name}: only {} are let in", open.len());
            let mut connection = server.connect();
            if matches!(connection.call(&["PING"]), Ok(reply) if reply.text() == "PONG") {
                open.push(connection);
            }
        }
        // Nothing is sent: that would make the close a reset, which drops what was not read.
        let mut refused = server.connect();
        let reply = refused.receive().expect("the refusal is told");
        assert_eq!(reply.text(), "ERR max number of clients reached", "{name}");
        assert_eq!(open[0].say("PING").text(), "PONG", "{name}");
        drop(open.pop());
        let deadline = Instant::now() + PATIENCE;
        while !matches!(server.connect().call(&["PING"]), Ok(reply) if reply.text() == "PONG") {
            assert!(Instant::now() < deadline, "{name}: a place that is free is not given");
        }
    });
}

/// A client that asks for much and reads nothing is closed when its replies pass the limit, and
/// before that costs no more than the limit.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_client_that_never_reads_is_bounded() {
    let arguments = ["--client-output-buffer-limit", "normal 8mb 0 0"];
    on_both(&arguments, |name, server| {
        let mut other = server.connect();
        let value = "x".repeat(100_000);
        other.call(&["SET", "big", &value]).expect("is stored");
        let before = server.resident_bytes();
        let mut greedy = server.connect();
        let ask = b"*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n".repeat(1000);
        let stream = greedy.stream();
        stream.set_write_timeout(Some(Duration::from_secs(2))).expect("a time-out is allowed");
        for _ in 0..20 {
            // Either the server stops reading or it closes.
            if stream.write_all(&ask).is_err() {
                break;
            }
            assert_eq!(other.say("PING").text(), "PONG", "{name}");
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let clients = other.say("CLIENT LIST").text().lines().count();
            if clients == 1 {
                break;
            }
            assert!(Instant::now() < deadline, "{name}: the client is still there");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_well(name, server, before, 64 * MIB, "a client that never reads");
    });
}

/// Together they may hold no more than each alone.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn many_clients_that_never_read_are_bounded() {
    on_both(&["--client-output-buffer-limit", "normal 1mb 0 0"], |name, server| {
        let mut other = server.connect();
        other.call(&["SET", "big", &"x".repeat(100_000)]).expect("is stored");
        let before = server.resident_bytes();
        let ask = b"*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n".repeat(200);
        let greedy: Vec<TcpStream> = (0..100)
            .map(|_| {
                let mut stream = connect_patiently(server);
                stream.set_write_timeout(Some(PATIENCE)).expect("a time-out is allowed");
                // 20 MB each: either the server stops reading or it closes.
                let _ = stream.write_all(&ask);
                assert_eq!(other.say("PING").text(), "PONG", "{name}");
                stream
            })
            .collect();
        let deadline = Instant::now() + PATIENCE;
        while other.say("CLIENT LIST").text().lines().count() > 1 {
            assert!(Instant::now() < deadline, "{name}: clients are still there");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_well(name, server, before, 128 * MIB, "clients that never read");
        drop(greedy);
    });
}

/// Replies that are made in slices count as soon as they are made, and what they took is given
/// back.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn long_replies_that_nobody_reads_are_bounded() {
    // One reply is more than a client may have, or less, or so little that it is made at once.
    for elements in [200_000, 100_000, 50_000, 20_000, 2000] {
        ask_for_long_replies(elements);
    }
}

/// A command that names the same value many times is answered without a copy for each time.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_value_that_is_named_again_is_not_copied_again() {
    const TIMES: usize = 200_000;
    let server = TestServer::bobbin(&["--io-threads", "2"]);
    let mut other = server.connect();
    let value = "x".repeat(4000);
    other.call(&["SET", "k", &value]).expect("is stored");
    other.call(&["HSET", "h", "k", &value]).expect("is stored");
    for get in [&["MGET"][..], &["HMGET", "h"]] {
        let words: Vec<&str> = get.iter().copied().chain(iter::repeat_n("k", TIMES)).collect();
        let mut greedy = server.connect();
        greedy.send(&words).expect("is sent");
        // The reply has begun, and no client reads it.
        let mut first = [0; 1];
        greedy.stream().read_exact(&mut first).expect("the reply");
        let peak = server.peak_resident_bytes();
        assert!(peak <= 150 * MIB, "{} MiB at the peak, for {get:?}", peak / MIB);
    }
}

/// Has many clients ask for lists of `elements` elements, and read nothing.
fn ask_for_long_replies(elements: usize) {
    const CLIENTS: usize = 40;
    const PEAK_MAX: u64 = 128 * MIB;
    let limit = ["--client-output-buffer-limit", "normal 16mb 0 0", "--io-threads", "2"];
    let server = TestServer::bobbin(&limit);
    let mut other = server.connect();
    let element = "x".repeat(100);
    let mut push = vec!["RPUSH", "list"];
    push.resize(2 + elements.min(10_000), &element);
    for _ in 0..elements.div_ceil(10_000) {
        assert!(other.call(&push).expect("is stored").as_integer().is_some());
    }
    let before = server.resident_bytes();
    // 40 MB each, or more.
    let ask = b"*4\r\n$6\r\nLRANGE\r\n$4\r\nlist\r\n$1\r\n0\r\n$2\r\n-1\r\n";
    let ask = ask.repeat(400_000 / elements.min(20_000));
    let mut greedy: Vec<TcpStream> = (0..CLIENTS).map(|_| connect_patiently(&server)).collect();
    for stream in &mut greedy {
        stream.set_write_timeout(Some(PATIENCE)).expect("a time-out is allowed");
        let _ = stream.write_all(&ask);
    }
    until(|| other.say("CLIENT LIST").text().lines().count() == 1);
    let peak = server.peak_resident_bytes();
    assert!(peak <= PEAK_MAX, "{} MiB at the peak, with {elements} elements", peak / MIB);
    until(|| server.resident_bytes() <= before + 24 * MIB);
    drop(greedy);
}

/// Without a limit the client may take what it asked for, but all of it arrives in the end.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_slow_reader_gets_everything() {
    on_both(&[], |name, server| {
        let mut connection = server.connect();
        let value = "y".repeat(50_000);
        connection.call(&["SET", "big", &value]).expect("is stored");
        let count = 200;
        connection.send_raw(&b"*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n".repeat(count)).expect("is sent");
        std::thread::sleep(Duration::from_millis(300));
        for number in 0..count {
            let reply = connection.receive().expect("a reply comes");
            assert_eq!(reply.bytes(), Some(value.as_bytes()), "{name}: reply {number}");
        }
    });
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn bytes_may_come_one_by_one() {
    on_both(&[], |name, server| {
        let mut slow = server.connect();
        let mut other = server.connect();
        let input = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$12\r\nvalue\r\nvalue\r\nPING hello\r\n*1\r\n$4\r\nPING\r\n";
        for byte in input {
            slow.send_raw(&[*byte]).expect("the server reads");
            assert_eq!(other.say("PING").text(), "PONG", "{name}");
        }
        assert_eq!(slow.receive().expect("SET's reply").text(), "OK", "{name}");
        assert_eq!(slow.receive().expect("PING's reply").text(), "hello", "{name}");
        assert_eq!(slow.receive().expect("PING's reply").text(), "PONG", "{name}");
        assert_eq!(other.say("GET key").text(), "value\r\nvalue", "{name}");
    });
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn long_pipelines_are_answered_in_order() {
    on_both(&[], |name, server| {
        let mut connection = server.connect();
        let count = 100_000;
        let mut reader = TestConnection::open(server.address()).expect("the server accepts");
        assert_eq!(reader.say("PING").text(), "PONG");
        let mut stream = connection.stream().try_clone().expect("a socket can be cloned");
        let writer = std::thread::spawn(move || {
            let bytes = b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n".repeat(count);
            stream.write_all(&bytes)
        });
        for number in 1..=count {
            let reply = connection.receive().expect("a reply comes");
            assert_eq!(reply.as_integer(), Some(number as i64), "{name}");
        }
        writer.join().expect("the writer lives").expect("all was sent");
        assert_eq!(reader.say("GET n").text(), count.to_string(), "{name}");
    });
}

/// As `printf 'PING\r\n' | nc` does.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn who_stops_sending_is_still_answered() {
    on_both(&[], |name, server| {
        let mut connection = server.connect();
        connection.send_raw(b"PING\r\n").expect("is sent");
        connection.finish_sending().expect("a socket can be shut down");
        assert_eq!(connection.receive().expect("a reply comes").text(), "PONG", "{name}");
        assert!(connection.receive().is_err(), "{name}: closes");
    });
}

/// What valkey-server 9.1.2 lets pass and what not, to the byte.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_query_buffer_over_its_limit_ends_its_client() {
    on_both(&["--client-query-buffer-limit", "1mb"], |name, server| {
        let is_ok = |reply: std::io::Result<bobbin_testkit::ReplyFrame>| {
            reply.is_ok_and(|reply| reply.text() == "OK")
        };
        let limit = MIB as usize;
        // The argument and the line end behind it.
        for (len, passes) in [(limit - 2, true), (limit - 1, false), (limit + 200_000, false)] {
            let value = vec![b'x'; len];
            let reply = server.connect().call(&[b"SET".as_slice(), b"k", &value]);
            assert_eq!(is_ok(reply), passes, "{name}: {len} bytes");
        }
        // Arguments that are complete do not count,
        let half = vec![b'x'; limit * 3 / 5];
        let reply = server.connect().call(&[b"MSET".as_slice(), b"a", &half, b"b", &half]);
        assert!(is_ok(reply), "{name}");
        let many: Vec<&[u8]> =
            iter::once(&b"MSET"[..]).chain((0..200_000).map(|_| &b"same word"[..])).collect();
        assert!(is_ok(server.connect().call(&many)), "{name}");
        // but commands do that wait for EXEC.
        let mut connection = server.connect();
        assert_eq!(connection.say("MULTI").text(), "OK", "{name}");
        let reply = connection.call(&[b"SET".as_slice(), b"k", &half]).expect("is queued");
        assert_eq!(reply.text(), "QUEUED", "{name}");
        // The second is queued only if it comes in one piece: each piece is held against the limit.
        let _ = connection.call(&[b"SET".as_slice(), b"k", &half]);
        assert!(connection.call(&["EXEC"]).is_err(), "{name}: more than the limit was queued");
        assert_serves(name, server);
    });
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_value_of_many_megabytes_comes_back() {
    on_both(&[], |name, server| {
        let mut connection = server.connect();
        let value: Vec<u8> = (0..40 * MIB as usize).map(|index| (index % 251) as u8).collect();
        let reply = connection.call(&[b"SET".as_slice(), b"k", &value]).expect("is stored");
        assert_eq!(reply.text(), "OK", "{name}");
        let reply = connection.call(&["GET", "k"]).expect("is read");
        assert!(reply.bytes() == Some(value.as_slice()), "{name}: the value is another");
    });
}

fn assert_well(name: &str, server: &mut TestServer, before: u64, growth_max: u64, when: &str) {
    assert!(server.is_running(), "{name} ended: {when}");
    assert_serves(name, server);
    let after = server.resident_bytes();
    assert!(
        after < before + growth_max,
        "{name}: {when}: resident memory grew from {before} to {after}"
    );
}

/// The error is told and the connection closed. (A reset follows when bytes were left unread; it
/// may come before the error has been read.)
fn assert_refused(name: &str, server: &TestServer, bytes: &[u8], error: &str) {
    let mut connection = server.connect();
    let _ = connection.send_raw(bytes);
    let shown = bytes[..bytes.len().min(40)].escape_ascii();
    match connection.receive() {
        Ok(reply) => {
            assert_eq!(reply.text(), format!("ERR Protocol error: {error}"), "{name}: {shown}");
            assert!(connection.receive().is_err(), "{name}: {shown}: is not closed");
        }
        Err(failed) => assert!(
            matches!(failed.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
            "{name}: {shown}: {failed}"
        ),
    }
}

fn assert_serves(name: &str, server: &TestServer) {
    assert_eq!(server.connect().say("PING").text(), "PONG", "{name} serves others");
}

/// Connects, trying again for a while: the tests open many connections, and ports of closed ones
/// may run out for a moment.
fn connect_patiently(server: &TestServer) -> TcpStream {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect(server.address()) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < deadline, "cannot connect: {error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn drain(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out is allowed");
    let mut chunk = [0; 4096];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                let timed_out = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                assert!(!timed_out, "the server keeps a connection whose client has gone");
                return;
            }
        }
    }
}

fn drain_one(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out is allowed");
    let mut chunk = [0; 7];
    stream.read_exact(&mut chunk).expect("PING is answered");
}

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(20);
