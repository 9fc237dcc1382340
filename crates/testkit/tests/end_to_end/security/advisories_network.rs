//! What made other servers of this protocol fail, by way of connections, clients and their files:
//! each test is named by the advisory, in whose place something of the kind could be here.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::thread;
use std::time::Instant;

use bobbin_testkit::connection::encode_command;
use bobbin_testkit::{PATIENCE, TestConnection, TestServer, on_each_driver, peers, until};

/// Nothing is left of a request without words, wherever it was cut.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn cve_2026_27623_an_empty_request_leaves_nothing_behind() {
    let requests: [&[u8]; 6] =
        [b"*0\r\n", b"*-1\r\n", b"\r\n", b"*0\r\n\r\n*0\r\n", b"\n", b"  \r\n"];
    on_each_driver(&[], |server| {
        for empty in requests {
            let whole = [empty, b"*1\r\n$4\r\nPING\r\n", empty, b"PING\r\n", empty].concat();
            for cut in 0..=whole.len() {
                let mut client = server.connect();
                client.send_raw(&whole[..cut]).expect("is sent");
                server.connect().say("PING");
                client.send_raw(&whole[cut..]).expect("is sent");
                for _ in 0..2 {
                    assert_eq!(client.receive().expect("a reply").text(), "PONG");
                }
                assert_eq!(client.say("ECHO end").text(), "end");
            }
        }
    });
}

/// A client that is served becomes too large by that, and is evicted: once, and nothing of it is
/// used again.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn cve_2026_23479_a_client_is_evicted_as_it_is_unblocked() {
    on_each_driver(&["--io-threads", "2"], |server| {
        let mut control = server.connect();
        control.say("CLIENT NO-EVICT ON");
        let value = "v".repeat(300_000);
        for round in 0..100 {
            control.say("CONFIG SET maxmemory-clients 0");
            let mut clients: Vec<TestConnection> = (0..4).map(|_| server.connect()).collect();
            for (number, client) in clients.iter_mut().enumerate() {
                let mut commands = Vec::new();
                match number % 2 {
                    0 => encode_command(&["BLPOP", "list", "0"], &mut commands),
                    _ => encode_command(
                        &["BLMOVE", "list", "list2", "LEFT", "LEFT", "0"],
                        &mut commands,
                    ),
                }
                // Behind it more that makes it large, when its turn comes.
                encode_command(&["MULTI"], &mut commands);
                (0..4).for_each(|_| encode_command(&["ECHO", &value], &mut commands));
                encode_command(&["EXEC"], &mut commands);
                let _ = client.send_raw(&commands);
            }
            until(|| control.say("INFO clients").text().contains("blocked_clients:4"));
            control.say("CONFIG SET maxmemory-clients 1mb");
            let _ = control.call(&["RPUSH", "list", &value, &value, &value, &value]);
            control.say("DEL list list2");
            until(|| control.say("INFO clients").text().contains("blocked_clients:0"));
            assert_eq!(control.say(&format!("ECHO {round}")).text(), round.to_string());
        }
    });
}

/// Replies whose length is known last, behind others that fill a buffer to any place.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn cve_2025_49112_lengths_that_are_known_last() {
    on_each_driver(&[], |server| {
        let mut client = server.connect();
        (0..30).for_each(|number| assert!(!client.say(&format!("SET key:{number} v")).is_error()));
        for len in (15_900..16_500).chain(65_400..65_600) {
            let text = "t".repeat(len);
            let mut commands = Vec::new();
            encode_command(&["ECHO", &text], &mut commands);
            encode_command(&["KEYS", "key:1*"], &mut commands);
            encode_command(&["SCAN", "0", "COUNT", "1000"], &mut commands);
            encode_command(&["ECHO", "end"], &mut commands);
            client.send_raw(&commands).expect("is sent");
            assert_eq!(client.receive().expect("a reply").text(), text);
            assert_eq!(client.receive().expect("a reply").items().len(), 11);
            assert_eq!(client.receive().expect("a reply").items()[1].items().len(), 30);
            assert_eq!(client.receive().expect("a reply").text(), "end");
        }
    });
}

/// A client that breaks the protocol over and over does not starve clients that keep to it.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn cve_2025_48367_errors_of_the_protocol_without_end() {
    on_each_driver(&["--requirepass", "secret", "--maxclients", "50"], |server| {
        let mut client = server.connect();
        client.say("AUTH secret");
        let before = server.resident_bytes();
        for garbage in
            [&b"*3\r\n$abc\r\n"[..], b"*1\r\n:1\r\n", b"*99999\r\n", b"\x00\xff\r\n*-\r\n"]
        {
            for _ in 0..500 {
                let mut other = server.connect();
                let _ = other.send_raw(&garbage.repeat(20));
                let _ = other.finish_sending();
            }
            assert_eq!(client.say("PING").text(), "PONG");
        }
        until(|| client.say("INFO clients").text().contains("connected_clients:1\r\n"));
        assert!(server.resident_bytes().saturating_sub(before) < 32 << 20);
    });
}

/// Patterns that match in many ways, or are long, are matched in bounded time and depth.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn cve_2022_36021_and_cve_2024_31228_patterns_of_subscribers() {
    on_each_driver(&[], |server| {
        let mut listener = server.connect();
        let patterns =
            ["a*".repeat(50) + "b", "*".repeat(100_000), "[".repeat(100_000), "\\".repeat(99_999)];
        for pattern in &patterns {
            listener.call(&["PSUBSCRIBE", pattern]).expect("a confirmation");
        }
        let mut client = server.connect();
        // The one of stars alone matches.
        assert_eq!(
            client.call(&["PUBLISH", &"a".repeat(5000), "m"]).expect("a reply").as_integer(),
            Some(1)
        );
        for pattern in &patterns {
            client.call(&["PUBSUB", "CHANNELS", pattern]).expect("a reply");
        }
        assert_eq!(client.say("PING").text(), "PONG");
    });
}

/// A name longer than any file's is refused.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn cve_2025_27151_the_checks_of_files_take_any_path() {
    for tool in ["--check-aof", "--check-rdb"] {
        for len in [255, 256, 1023, 1024, 4095, 4096, 4097, 100_000] {
            for path in
                ["x".repeat(len), "x/".repeat(len / 2), "../".repeat(len / 3) + "x.manifest"]
            {
                let output = Command::new(peers::bobbin()).arg(tool).arg(&path).output();
                let output = output.expect("it runs");
                assert_eq!(output.status.code(), Some(1), "{tool}, {len}");
            }
        }
    }
}

/// The socket's file has its mode before any client can connect.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn cve_2023_45145_the_mode_of_the_unix_socket() {
    let folder = std::env::temp_dir().join(format!("bobbin-socket-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("server.sock");
    let name = path.to_str().expect("UTF-8").to_owned();
    let watched = path.clone();
    let watcher = thread::spawn(move || {
        // A client that connects as soon as that is possible finds the mode.
        let start = Instant::now();
        while std::os::unix::net::UnixStream::connect(&watched).is_err() {
            assert!(start.elapsed() < PATIENCE, "nobody listens");
            thread::yield_now();
        }
        std::fs::metadata(&watched).expect("it is there").permissions().mode() & 0o777
    });
    let server = TestServer::bobbin(&["--unixsocket", &name, "--unixsocketperm", "700"]);
    assert_eq!(watcher.join().expect("it ends"), 0o700);
    drop(server);
    let _ = std::fs::remove_dir_all(&folder);
}
