//! Clients that cost a server more than they should: by what they send and do not wait for, by how
//! many words a command has, and by what they have it connect to.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use bobbin_testkit::connection::{ReceiveOutcome, encode_command};
use bobbin_testkit::{PATIENCE, TestConnection, TestServer, on_each_driver, until};

/// A client that waits, or is about to be closed, may not leave more to be read later than others.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn the_query_buffer_of_a_blocked_client_has_its_limit() {
    on_all(&[], |server| {
        let mut control = server.connect();
        control.say("CONFIG SET client-query-buffer-limit 1mb");
        let mut client = server.connect();
        client.send(&["BLPOP", "nothing", "0"]).expect("is sent");
        let mut pings = Vec::new();
        (0..1000).for_each(|_| encode_command(&["PING", &"x".repeat(1000)], &mut pings));
        let sent = (0..64).try_for_each(|_| client.send_raw(&pings));
        let is_closed = sent.is_err() || client.receive().is_err();
        assert!(is_closed, "64 MB are kept for a client that waits");
        assert_eq!(stat(&mut control, "client_query_buffer_limit_disconnections"), 1);
    });
}

/// A client that has said nothing for `timeout` seconds goes, unless it waits for what others say.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_client_that_says_nothing_goes() {
    let server = TestServer::bobbin(&["--timeout", "1"]);
    let (mut listener, mut waiting) = (server.connect(), server.connect());
    listener.say("SUBSCRIBE news");
    waiting.send(&["BLPOP", "list", "0"]).expect("is sent");
    let mut silent = server.connect();
    assert_eq!(silent.say("PING").text(), "PONG");
    assert!(matches!(silent.receive_within(PATIENCE), Ok(ReceiveOutcome::Closed)), "it is closed");
    let mut other = server.connect();
    other.say("PUBLISH news extra");
    other.say("RPUSH list element");
    assert_eq!(listener.receive().expect("it is there").items()[2].text(), "extra");
    assert_eq!(waiting.receive().expect("it is there").items()[1].text(), "element");
}

/// Where the limit is higher than any machine's memory, a string that the machine cannot hold is an
/// error.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_string_that_no_memory_holds_is_refused() {
    let server = TestServer::bobbin(&["--proto-max-bulk-len", "1000000gb"]);
    let mut client = server.connect();
    for line in ["SETRANGE k 500000000000000 x", "SETBIT k 4000000000000000 1"] {
        assert!(client.say(line).is_error(), "{line}");
    }
    assert_eq!(client.say("EXISTS k").as_integer(), Some(0));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_comes_behind_the_end_is_not_kept() {
    on_each_driver(&[], |server| {
        let mut control = server.connect();
        let value = "v".repeat(64 << 20);
        assert_eq!(control.call(&["SET", "large", &value]).expect("is set").text(), "OK");
        drop(value);
        let mut client = server.connect();
        client.send(&["CLIENT", "SETNAME", "victim"]).expect("is sent");
        client.send(&["GET", "large"]).expect("is sent");
        client.send(&["QUIT"]).expect("is sent");
        until(|| control.say("CLIENT LIST NAME victim").text().contains("cmd=quit"));
        let before = server.resident_bytes();
        let block = vec![b'x'; 1 << 20];
        (0..96).for_each(|_| client.send_raw(&block).expect("is taken"));
        control.say("PING");
        let grown = server.resident_bytes().saturating_sub(before);
        assert!(grown < 48 << 20, "{grown} bytes are kept that nobody will read");
    });
}

/// However much a client has sent before, a turn executes a bounded part of it, and others see it
/// half done.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_long_pipeline_is_executed_in_turns() {
    on_each_driver(&["--io-threads", "1"], |server| {
        let mut control = server.connect();
        let mut client = server.connect();
        client.send(&["CLIENT", "REPLY", "OFF"]).expect("is sent");
        client.send(&["BLPOP", "gate", "0"]).expect("is sent");
        let mut commands = Vec::new();
        (0..INCREMENTS).for_each(|_| encode_command(&["INCR", "counter"], &mut commands));
        encode_command(&["CLIENT", "REPLY", "ON"], &mut commands);
        client.send_raw(&commands).expect("is sent");
        until(|| stat(&mut control, "total_net_input_bytes") as usize > commands.len());
        let before = stat(&mut control, "eventloop_cycles");
        assert_eq!(control.say("LPUSH gate open").as_integer(), Some(1));
        // No client asks for anything meanwhile, which would be turns of its own.
        assert_eq!(client.receive().expect("a reply").text(), "OK");
        let turns = stat(&mut control, "eventloop_cycles") - before;
        assert!(turns >= TURNS_MIN, "{turns} turns");
        // What follows is executed as well.
        assert_eq!(client.say("ECHO end").text(), "end");
    });
}

/// Also what is left when the other side has closed.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_is_left_at_the_end_is_executed_in_turns() {
    on_each_driver(&["--io-threads", "1"], |server| {
        let mut control = server.connect();
        let item = "i".repeat(1000);
        (0..64).for_each(|_| assert!(control.call(&["RPUSH", "list", &item]).is_ok()));
        let mut client = server.connect();
        let mut commands = Vec::new();
        for _ in 0..LISTS {
            encode_command(&["LRANGE", "list", "0", "-1"], &mut commands);
        }
        encode_command(&["SET", "done", "yes"], &mut commands);
        let before = stat(&mut control, "eventloop_cycles");
        client.send_raw(&commands).expect("is sent");
        client.finish_sending().expect("is told");
        until(|| control.say("GET done").text() == "yes");
        let turns = stat(&mut control, "eventloop_cycles") - before;
        // 64 KB each, and a turn has little more than 256 KB.
        assert!(turns >= LISTS as i64 / 8, "{turns} turns");
    });
}

/// As many words as a command may have are looked for as quickly as a few.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_command_of_many_words_does_not_hold_up_others() {
    on_each_driver(&[], |server| {
        let mut control = server.connect();
        let names: Vec<String> = (0..WORDS).map(|number| format!("name:{number}")).collect();
        let command = |before: &[&str], between: Option<&str>, after: &[&str]| -> Vec<String> {
            let mut words: Vec<String> = before.iter().map(|word| word.to_string()).collect();
            for name in &names {
                words.extend(between.map(str::to_owned));
                words.push(name.clone());
            }
            words.extend(after.iter().map(|word| word.to_string()));
            words
        };
        let mut watching = server.connect();
        watching.send(&command(&["WATCH"], None, &[])).expect("is sent");
        assert_eq!(answer(&mut watching), "OK");
        assert!(
            control
                .say(&format!("CLIENT LIST ID {}", id(&mut watching)))
                .text()
                .contains(&format!("watch={WORDS} "))
        );
        let mut blocked = server.connect();
        let number = id(&mut blocked);
        blocked.send(&command(&["BLPOP"], None, &["0"])).expect("is sent");
        until(|| control.say(&format!("CLIENT UNBLOCK {number}")).as_integer() == Some(1));
        answer(&mut blocked);
        let mut listening = server.connect();
        listening.send(&command(&["PSUBSCRIBE"], None, &[])).expect("is sent");
        for _ in 0..WORDS {
            listening.receive().expect("a confirmation");
        }
        drop(listening);
        until(|| control.say("PUBSUB NUMPAT").as_integer() == Some(0));
        // Each would be the beginning of ten others, but for its end.
        let ended: Vec<String> = (0..WORDS).map(|number| format!("name:{number}:")).collect();
        let mut words: Vec<&str> = vec!["CLIENT", "TRACKING", "ON", "BCAST"];
        ended.iter().for_each(|name| words.extend(["PREFIX", name]));
        let mut tracking = server.connect();
        tracking.say("HELLO 3");
        tracking.send(&words).expect("is sent");
        assert_eq!(answer(&mut tracking), "OK");
        assert_eq!(control.say("SET name:77:x 1").text(), "OK");
        assert_eq!(answer(&mut tracking), "");
        let set: Vec<String> = names.iter().flat_map(|name| [name.clone(), "v".into()]).collect();
        let mut words = vec!["MSET".to_owned()];
        words.extend(set);
        control.send(&words).expect("is sent");
        assert_eq!(answer(&mut control), "OK");
        let nobody = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = nobody.local_addr().expect("its address").port().to_string();
        drop(nobody);
        let words = command(&["MIGRATE", "127.0.0.1", &port, "", "0", "1000", "KEYS"], None, &[]);
        control.send(&words).expect("is sent");
        assert!(answer(&mut control).contains("IOERR"));
    });
}

/// Whatever answers that is no server of this protocol has not taken a key.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_key_stays_until_a_server_has_taken_it() {
    for reply in ["HTTP/1.1 400 Bad Request\r\n", "\r\n", "$-1\r\n", "*0\r\n", "O\r\n", "\n"] {
        for watched in [true, false] {
            let target = TcpListener::bind("127.0.0.1:0").expect("a port");
            let port = target.local_addr().expect("its address").port();
            let serving = thread::spawn(move || {
                let (mut stream, _) = target.accept().expect("a connection");
                let _ = stream.write_all(reply.repeat(2).as_bytes());
                let _ = stream.read_to_end(&mut Vec::new());
            });
            let server = TestServer::bobbin(&[]);
            let mut client = server.connect();
            client.say("SET key value");
            let command = format!("MIGRATE 127.0.0.1 {port} key 0 1000");
            let reply_of_it = if watched {
                client.say(&command)
            } else {
                client.say("MULTI");
                client.say(&command);
                client.say("EXEC").items()[0].clone()
            };
            assert!(reply_of_it.is_error(), "{reply:?}: {}", reply_of_it.text());
            assert_eq!(client.say("GET key").text(), "value", "{reply:?}");
            drop((client, server));
            serving.join().expect("it ends");
        }
    }
}

/// LATENCY HISTOGRAM tells of a command once, however often it is named, and by whatever name.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_command_that_is_named_again_is_told_of_once() {
    let server = TestServer::bobbin(&[]);
    let mut client = server.connect();
    client.say("CONFIG GET port");
    client.say("GET key");
    // Each name, and what is known of it.
    assert_eq!(client.say("LATENCY HISTOGRAM get config").items().len(), 4);
    let names = ["get", "config", "config|get", "GET"].repeat(1000);
    let again = client.call(&[&["LATENCY", "HISTOGRAM"], &names[..]].concat());
    assert_eq!(again.expect("it answers").items().len(), 4);
}

/// A target of MIGRATE that answers a byte now and then is given up not much later than a silent
/// one.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_target_that_answers_by_bytes_is_given_up() {
    const BYTES: usize = 900;
    for beside in [true, false] {
        let target = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = target.local_addr().expect("its address").port();
        let dripping = thread::spawn(move || {
            let (mut stream, _) = target.accept().expect("a connection");
            stream.set_nodelay(true).expect("an option");
            (0..BYTES).find(|_| {
                thread::sleep(Duration::from_millis(20));
                stream.write_all(b"x").is_err()
            })
        });
        let server = TestServer::bobbin(&[]);
        let mut client = server.connect();
        client.say("SET key value");
        let command = format!("MIGRATE 127.0.0.1 {port} key 0 300");
        let reply = if beside {
            client.say(&command)
        } else {
            client.say("MULTI");
            client.say(&command);
            client.say("EXEC").items()[0].clone()
        };
        assert!(reply.text().starts_with("IOERR error or timeout reading"), "{}", reply.text());
        assert!(
            dripping.join().expect("it ends").is_some(),
            "it was listened to for {BYTES} bytes"
        );
        assert_eq!(client.say("GET key").text(), "value");
    }
}

fn on_all(arguments: &[&str], test: impl Fn(&TestServer)) {
    test(&TestServer::valkey(arguments));
    on_each_driver(arguments, test);
}

/// A number of INFO.
fn stat(client: &mut TestConnection, name: &str) -> i64 {
    let info = client.say("INFO everything").text();
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {name}"))
}

fn id(client: &mut TestConnection) -> i64 {
    client.say("CLIENT ID").as_integer().expect("a number")
}

fn answer(client: &mut TestConnection) -> String {
    match client.receive_within(PATIENCE).expect("it is there") {
        ReceiveOutcome::Reply(reply) => reply.text(),
        _ => panic!("no answer"),
    }
}

/// What takes the square of this in time takes minutes.
const WORDS: usize = 200_000;
const INCREMENTS: u32 = 150_000;
/// Those take 4 MB, of which a turn takes little more than 32 KB.
const TURNS_MIN: i64 = 70;
const LISTS: usize = 1500;
