//! Clients that have not said who they are: what they may send and what they are sent, also in the
//! midst of a pipeline.

use std::io::{Read, Write};

use bobbin_testkit::{TestConnection, TestServer};

use crate::common::on_both;

const ARGUMENTS: [&str; 2] = ["--requirepass", "secret"];
/// The longest argument, and one more than the most arguments, that a stranger may send.
const BULK_LEN_MAX: usize = 16_384;
const TOO_MANY: usize = 11;

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bobbin_testkit::connection::encode_command(words, &mut bytes);
    bytes
}

fn receive(connection: &mut TestConnection, what: &str) -> String {
    connection.receive().unwrap_or_else(|error| panic!("{what}: {error}")).text()
}

/// The limits end with AUTH or HELLO, for what comes behind it in the same packet, too.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn limits_end_with_the_password() {
    on_both(&ARGUMENTS, |name, server| {
        let value = vec![b'x'; 100_000];
        for login in [command(&[b"AUTH", b"secret"]), b"HELLO 2 AUTH default secret\r\n".to_vec()] {
            let mut connection = server.connect();
            let mut pipeline = login.clone();
            pipeline.extend(command(&[b"SET", b"k", &value]));
            pipeline.extend(command(&[
                b"DEL", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9", b"10",
            ]));
            for _ in 0..10 {
                pipeline.extend(command(&[b"GET", b"k"]));
            }
            connection.send_raw(&pipeline).expect("sent");
            let first = connection.receive().expect("an answer");
            assert!(!first.is_error(), "{name}: {}", first.text());
            assert_eq!(receive(&mut connection, name), "OK", "{name}");
            assert_eq!(receive(&mut connection, name), "0", "{name}");
            for _ in 0..10 {
                assert_eq!(receive(&mut connection, name).len(), value.len(), "{name}");
            }
        }
    });
}

/// They hold until then: behind other commands in the same packet, after a wrong password, and
/// again after RESET.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn limits_hold_within_pipelines() {
    let too_many = format!("*{TOO_MANY}\r\n").into_bytes();
    let too_long = format!("*2\r\n$4\r\nECHO\r\n${}\r\n", BULK_LEN_MAX + 1).into_bytes();
    let good = command(&[b"AUTH", b"secret"]);
    let wrong = command(&[b"AUTH", b"wrong"]);
    on_both(&ARGUMENTS, |name, server| {
        for (before, replies) in [
            (Vec::new(), 0),
            (b"PING\r\n".to_vec(), 1),
            (b"PING\r\n".repeat(100), 100),
            (command(&[b"GET", b"k"]).repeat(10), 10),
            (wrong.clone(), 1),
            (b"HELLO 3 AUTH default wrong\r\n".to_vec(), 1),
            (b"HELLO 3\r\n".to_vec(), 1),
            ([&good[..], b"PING\r\nRESET\r\n"].concat(), 3),
            ([&good[..], &wrong, b"RESET\r\n", &wrong].concat(), 4),
            (command(&[b"ECHO", &vec![b'x'; BULK_LEN_MAX]]), 1),
        ] {
            for (bytes, error) in [
                (&too_many, "ERR Protocol error: unauthenticated multibulk length"),
                (&too_long, "ERR Protocol error: unauthenticated bulk length"),
            ] {
                let mut connection = server.connect();
                connection.send_raw(&[&before[..], bytes].concat()).expect("sent");
                let what = format!("{name}: {}", before[..before.len().min(60)].escape_ascii());
                for _ in 0..replies {
                    receive(&mut connection, &what);
                }
                assert_eq!(receive(&mut connection, &what), error, "{what}");
                assert!(connection.receive().is_err(), "{what}: is closed");
            }
        }
    });
}

/// A web page that has a browser send what it likes is not listened to, password or none: what
/// comes behind the line of HTTP may be a command. The log tells of it, but is not filled by it.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn lines_of_http_end_the_connection() {
    for arguments in [&[][..], &ARGUMENTS] {
        on_both(arguments, |name, server| {
            for (before, line) in [
                ("", "POST / HTTP/1.1"),
                ("", "post /"),
                ("GET / HTTP/1.1\r\n", "Host: 127.0.0.1:6379"),
                ("PING\r\n", "host: x"),
            ] {
                for _ in 0..20 {
                    let mut page = server.connect();
                    let bytes = format!("{before}{line}\r\nAUTH secret\r\nSET k evil\r\n\r\n");
                    page.send_raw(bytes.as_bytes()).expect("sent");
                    let mut answers = Vec::new();
                    // Its unread bytes make the close a reset.
                    let _ = page.stream().read_to_end(&mut answers);
                    let answers = String::from_utf8_lossy(&answers);
                    assert!(!answers.contains("+OK"), "{name}: {line}: {answers}");
                }
            }
            let mut client = server.connect();
            client.say("AUTH secret");
            assert!(client.say("GET k").is_null(), "{name}");
            let told = server.log().matches("SECURITY ATTACK").count();
            assert_eq!(told, 1, "{name}");
        });
    }
}

/// However the bytes are cut into packets.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn limits_hold_for_commands_in_pieces() {
    let server = TestServer::bobbin(&ARGUMENTS);
    let header = format!("PING\r\n*2\r\n$4\r\nECHO\r\n${}\r\n", BULK_LEN_MAX + 1);
    for cut in 1..header.len() {
        let mut connection = server.connect();
        connection.stream().set_nodelay(true).expect("a socket");
        let (first, second) = header.as_bytes().split_at(cut);
        connection.send_raw(first).expect("sent");
        if cut >= 6 {
            receive(&mut connection, "PING");
        }
        connection.send_raw(second).expect("sent");
        if cut < 6 {
            receive(&mut connection, "PING");
        }
        let error = receive(&mut connection, "the end");
        assert_eq!(error, "ERR Protocol error: unauthenticated bulk length", "cut at {cut}");
    }
}

/// Replies that are not read are bounded, however the commands came: each calls forth an error, and
/// a stranger that reads none of them is closed before they take memory.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn replies_to_strangers_are_bounded() {
    for driver in ["epoll", "io_uring"] {
        let server = TestServer::bobbin(&["--requirepass", "secret", "--io-driver", driver]);
        let mut admin = server.connect();
        admin.say("AUTH secret");
        let closed = |admin: &mut TestConnection| -> u64 {
            let stats = admin.say("INFO stats").text();
            let line = stats
                .lines()
                .find_map(|line| line.strip_prefix("client_output_buffer_limit_disconnections:"));
            line.and_then(|count| count.parse().ok()).expect("INFO has it")
        };
        for (what, bytes) in [
            ("inline commands", b"x\r\n".to_vec()),
            ("commands", command(&[b"GET", b"k"])),
            ("wrong passwords", command(&[b"AUTH", b"wrong"])),
            ("HELLO", command(&[b"HELLO", b"3", b"AUTH", b"default", b"wrong"])),
        ] {
            let before = closed(&mut admin);
            let mut stranger = server.connect();
            // Far more replies than the sockets' buffers hold.
            let pipeline = bytes.repeat(64 * 1024 / bytes.len());
            while stranger.stream().write_all(&pipeline).is_ok() {}
            assert_eq!(closed(&mut admin), before + 1, "{driver}: {what}");
            // One that reads gets all its errors.
            let mut patient = server.connect();
            for _ in 0..20 {
                patient.send_raw(&bytes.repeat(100)).expect("sent");
                for _ in 0..100 {
                    let reply = patient
                        .receive()
                        .unwrap_or_else(|error| panic!("{driver}: {what}: {error}"));
                    assert!(reply.is_error(), "{driver}: {what}: {}", reply.text());
                }
            }
        }
        // A great many in one packet, most of which is answered in one turn.
        let mut stranger = server.connect();
        let _ = stranger.stream().write_all(&b"x\r\n".repeat(100_000));
        let mut rest = Vec::new();
        let _ = stranger.stream().read_to_end(&mut rest);
        assert!(rest.len() < 4 << 20, "{driver}: {} bytes", rest.len());
    }
}
