//! Requests that name one thing again and again: some bytes for each name, and the work or the
//! answer is that of something large. Such a command takes little memory beside its words, ends at
//! its client's limit, and lets others have their turns.

use std::io::Read;

use bobbin_testkit::{ReceiveOutcome, TestConnection, TestServer, encode_command};

/// Fills a server, and says what it is then asked.
type Request<'a> = &'a dyn Fn(&mut TestConnection) -> Vec<u8>;

/// A command whose answer is many times the memory it takes to give it.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn answers_that_repeat_are_not_copied() {
    let large = "x".repeat(100_000);
    let cases: [(&str, Request); 5] = [
        ("COMMAND DOCS", &|_| repeated(&["COMMAND", "DOCS"], &["client"], 10_000)),
        ("COMMAND INFO", &|_| repeated(&["COMMAND", "INFO"], &["client"], 100_000)),
        ("XCLAIM", &|control| {
            control.call(&["XADD", "x", "5-1", "f", &large]).expect("is answered");
            control.say("XGROUP CREATE x g 0");
            control.say("XREADGROUP GROUP g one STREAMS x >");
            repeated(&["XCLAIM", "x", "g", "two", "0"], &["5-1"], 3000)
        }),
        ("ZDIFF", &|control| {
            for member in 0..128 {
                control.say(&format!("ZADD z 1 {member:060}"));
            }
            repeated(&["ZDIFF", "40000"], &["z"], 40_000)
        }),
        ("GETRANGE", &|control| {
            control.say("SETBIT k 160000000 1");
            let mut all = Vec::new();
            (0..20).for_each(|_| encode_command(&["GETRANGE", "k", "1", "-1"], &mut all));
            all
        }),
    ];
    for (name, request) in cases {
        let server = TestServer::bobbin(&["--io-threads", "2"]);
        let request = request(&mut server.connect());
        ask(&server, &request, true);
        assert_took_little(name, &server, 100 << 20);
    }
}

/// What a script is answered is part of what scripts may have together.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_script_is_not_answered_more_than_it_may_have() {
    let server = TestServer::bobbin(&["--io-threads", "2", "--maxmemory-scripts", "32mb"]);
    let mut control = server.connect();
    control.call(&["SET", "k", &"x".repeat(200_000)]).expect("is answered");
    for command in ["MGET", "STRLEN"] {
        let script = format!(
            "local t = {{}} for i = 1, {} do t[i] = KEYS[1] end return redis.call('{command}', unpack(t))",
            if command == "MGET" { 2000 } else { 1 }
        );
        let reply = control.call(&["EVAL", &script, "1", "k"]).expect("is answered");
        assert_eq!(reply.is_error(), command == "MGET", "{reply:?}");
        assert!(!reply.is_error() || reply.text().contains("needs more memory"), "{reply:?}");
    }
    assert_took_little("MGET in a script", &server, 150 << 20);
}

/// Replies that grow beyond what their client may be sent: it is closed then, without all of them
/// having been made.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn replies_end_at_the_limit() {
    const SLOW: &str = "for i = 1, 3000000 do end return 1";
    let transaction = |parts: &[(&[&str], usize)]| {
        let mut all = Vec::new();
        encode_command(&["MULTI"], &mut all);
        for (command, count) in parts {
            (0..*count).for_each(|_| encode_command(command, &mut all));
        }
        encode_command(&["SET", "done", "1"], &mut all);
        encode_command(&["EXEC"], &mut all);
        all
    };
    let (get, slow) = (&["GET", "k"][..], &["EVAL", SLOW, "0"][..]);
    let cases: [(&str, Vec<u8>); 6] = [
        ("GET and a slow script", transaction(&[(get, 400), (slow, 1)])),
        ("a slow script and GET", transaction(&[(slow, 1), (get, 400)])),
        ("LRANGE", transaction(&[(&["LRANGE", "l", "0", "-1"], 200)])),
        ("SRANDMEMBER in MULTI", transaction(&[(&["SRANDMEMBER", "s", "-400"], 1)])),
        ("SRANDMEMBER", repeated(&["SRANDMEMBER", "s", "-400"], &[], 0)),
        ("SORT", repeated(&["SORT", "l", "BY", "nosort"], &["GET", "#"], 200)),
    ];
    for (name, request) in cases {
        let limit = "normal 16mb 0 0";
        let server =
            TestServer::bobbin(&["--io-threads", "2", "--client-output-buffer-limit", limit]);
        let mut control = server.connect();
        let value = "x".repeat(1 << 20);
        control.call(&["SET", "k", &value]).expect("is answered");
        control.call(&["SADD", "s", &value]).expect("is answered");
        let element = "x".repeat(1000);
        control.call(&[&["RPUSH", "l"][..], &[&*element; 2000]].concat()).expect("is answered");
        assert!(!ask(&server, &request, false), "{name}: it was answered");
        // What it ordered is done all the same.
        let done = control.say("GET done").text() == "1";
        assert!(done || !request.starts_with(b"*1\r\n$5\r\nMULTI"), "{name}");
        assert_took_little(name, &server, 120 << 20);
    }
}

/// Commands that work for long on what they name again and again: meanwhile another client of the
/// same worker is served.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn others_have_their_turns() {
    let stream = |control: &mut TestConnection| {
        for entry in 1..=2000 {
            control.send(&["XADD", "x", &format!("{entry}-1"), "f", "v"]).expect("is sent");
        }
        (0..2000).for_each(|_| drop(control.receive().expect("is answered")));
        control.say("XGROUP CREATE x g 0");
        control.say("XREADGROUP GROUP g c STREAMS x >");
    };
    let named = |head: &[&str], count: usize| {
        let words = [head, &vec!["x"; count], &vec!["0"; count]].concat();
        let mut request = Vec::new();
        encode_command(&words, &mut request);
        request
    };
    let cases: [(&str, Request); 3] = [
        ("CONFIG GET", &|_| repeated(&["CONFIG", "GET"], &["*a*e*"], 500_000)),
        ("XREADGROUP", &|control| {
            stream(control);
            named(&["XREADGROUP", "GROUP", "g", "c", "STREAMS"], 20_000)
        }),
        ("ZINTER", &|control| {
            for member in 0..1000 {
                control.say(&format!("ZADD z 1 {member}"));
            }
            repeated(&["ZINTER", "100000"], &["z"], 100_000)
        }),
    ];
    for (name, request) in cases {
        // One worker, and replies that are nobody's burden.
        let server = TestServer::bobbin(&["--io-threads", "1"]);
        let mut control = server.connect();
        let request = request(&mut control);
        let mut client = server.connect();
        assert_eq!(client.say("PING").text(), "PONG");
        client.send_raw(&request).expect("is sent");
        // It is at work, and the worker answers all the same.
        let id = client.stream().local_addr().expect("is connected").to_string();
        let mut seen = false;
        for _ in 0..100_000 {
            let list = control.say("CLIENT LIST");
            let list = list.text();
            let line = list.lines().find(|line| line.contains(&format!("addr={id}")));
            let line = line.expect("it is there");
            seen = line.contains(&format!("cmd={}", name.to_lowercase().replace(' ', "|")));
            if seen {
                break;
            }
        }
        assert!(seen, "{name}");
        let received = client.receive_within(std::time::Duration::from_millis(1));
        assert!(matches!(received, Ok(ReceiveOutcome::Nothing)), "{name} took one turn");
    }
}

/// A command that ends in `times` copies of some words.
fn repeated(head: &[&str], words: &[&str], times: usize) -> Vec<u8> {
    let mut request = Vec::new();
    encode_command(&[head, &words.repeat(times)].concat(), &mut request);
    request
}

/// Sends a request, and reads what comes until all is answered; `false`: the connection was closed
/// before.
fn ask(server: &TestServer, request: &[u8], reads: bool) -> bool {
    let mut client = server.connect();
    let (request, end) = (request.to_vec(), b"$7\r\nthe end\r\n");
    let mut writer = client.stream().try_clone().expect("a socket");
    let sending = std::thread::spawn(move || {
        use std::io::Write;
        // It may be closed in the midst.
        let _ = writer.write_all(&request);
        let _ = writer.write_all(b"*2\r\n$4\r\nECHO\r\n$7\r\nthe end\r\n");
    });
    if !reads {
        // What is answered waits: that is what has a limit.
        let closed = "client_output_buffer_limit_disconnections:1\r";
        let mut control = server.connect();
        for _ in 0..3000 {
            if control.say("INFO clients").text().contains(closed)
                || control.say("INFO stats").text().contains(closed)
            {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    let (mut buffer, mut tail) = (vec![0; 1 << 20], Vec::new());
    let answered = loop {
        match client.stream().read(&mut buffer) {
            Ok(0) | Err(_) => break false,
            Ok(len) => {
                tail.extend_from_slice(&buffer[len.saturating_sub(end.len())..len]);
                tail.drain(..tail.len().saturating_sub(end.len()));
                if tail == end {
                    break true;
                }
            }
        }
    };
    sending.join().expect("it has sent");
    answered
}

fn assert_took_little(name: &str, server: &TestServer, bytes_max: u64) {
    let peak = server.peak_resident_bytes();
    assert!(peak < bytes_max, "{name} took {} MiB", peak >> 20);
}
