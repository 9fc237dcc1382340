//! TLS on the server's side: what clients see of it, which clients get in, and that certificates
//! change under way. Through both drivers, with several workers.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use bobbin_client::{RespClient, ServerAddress, TlsConnector, TlsOptions, Transport, Value};
use bobbin_testkit::disk::Folder;
use bobbin_testkit::server::tls::{Certificates, TlsServer};
use bobbin_testkit::{TestServer, peers, until};

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn commands_are_answered_whatever_their_size() {
    on_both_drivers(&["--tls-auth-clients", "no"], |server| {
        let mut client = connect(server);
        assert_eq!(text(&mut client, "SET a b"), "OK");
        assert_eq!(text(&mut client, "GET a"), "b");
        // Larger than records, the driver's buffers and what is sealed in a turn.
        let large: Vec<u8> = (0..3_000_000u32).map(|n| (n * 7 % 251) as u8).collect();
        for len in [1, 16_384, 65_535, 65_536, 300_000, large.len()] {
            let value = &large[..len];
            assert!(matches!(
                client.command(&[&b"SET"[..], b"large", value]),
                Ok(Value::Simple(ok)) if ok == b"OK"
            ));
            assert_eq!(client.command(&["GET", "large"]).unwrap(), Value::Bulk(value.to_vec()));
        }
        // A pipeline, with large values among small ones.
        for round in 0..2000 {
            client.send(&["SET", &format!("key:{round}"), &format!("value:{round}")]);
            client.send(&["GET", &format!("key:{round}")]);
            if round % 500 == 0 {
                client.send(&[&b"APPEND"[..], b"grown", &large[..200_000]]);
                client.send(&["GET", "grown"]);
            }
        }
        client.flush().unwrap();
        for round in 0..2000 {
            assert_eq!(client.receive().unwrap(), Value::Simple(b"OK".to_vec()));
            let value = format!("value:{round}").into_bytes();
            assert_eq!(client.receive().unwrap(), Value::Bulk(value));
            if round % 500 == 0 {
                let len = (round / 500 + 1) * 200_000;
                assert_eq!(client.receive().unwrap(), Value::Integer(len as i64));
                let Value::Bulk(grown) = client.receive().unwrap() else { panic!("no bulk") };
                assert!(
                    grown.len() == len && grown.chunks(200_000).all(|c| c == &large[..200_000])
                );
            }
        }
        client.send(&["MULTI"]);
        client.send(&["INCR", "n"]);
        client.send(&["GET", "large"]);
        client.send(&["EXEC"]);
        client.flush().unwrap();
        for expected in ["OK", "QUEUED", "QUEUED"] {
            assert_eq!(client.receive().unwrap(), Value::Simple(expected.as_bytes().to_vec()));
        }
        let whole = Value::Array(vec![Value::Integer(1), Value::Bulk(large.clone())]);
        assert_eq!(client.receive().unwrap(), whole);
        // Its last words arrive, and then the end.
        client.send(&["GET", "a"]);
        client.send(&["QUIT"]);
        assert_eq!(client.receive_to_end().unwrap(), b"$1\r\nb\r\n+OK\r\n");
    });
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn who_reads_slowly_gets_everything_and_holds_up_nobody() {
    on_both_drivers(&["--tls-auth-clients", "no", "--io-threads", "2"], |server| {
        let mut slow = connect(server);
        let mut other = connect(server);
        let value = vec![b'x'; 1 << 20];
        slow.command(&[&b"SET"[..], b"large", value.as_slice()]).unwrap();
        for round in 0..40 {
            slow.send(&["GET", "large"]);
            slow.send(&["ECHO", &round.to_string()]);
        }
        slow.flush().unwrap();
        for _ in 0..100 {
            assert_eq!(text(&mut other, "PING"), "PONG");
        }
        for round in 0..40 {
            assert_eq!(slow.receive().unwrap(), Value::Bulk(value.clone()));
            assert_eq!(slow.receive().unwrap(), Value::Bulk(round.to_string().into_bytes()));
        }
        assert_eq!(text(&mut slow, "PING"), "PONG");
        // Over its limit it goes, as without TLS.
        let limit = "normal 4194304 0 0";
        let set = ["CONFIG", "SET", "client-output-buffer-limit", limit];
        assert_eq!(other.command(&set).unwrap(), Value::Simple(b"OK".to_vec()));
        for _ in 0..100 {
            slow.send(&["GET", "large"]);
        }
        let _ = slow.flush();
        let closed = "client_output_buffer_limit_disconnections:1";
        eventually(|| text(&mut other, "INFO stats").contains(closed));
    });
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn messages_come_over_tls_and_connections_change_workers() {
    on_both_drivers(&["--tls-auth-clients", "no", "--io-threads", "2"], |server| {
        let mut listeners: Vec<RespClient> = (0..8).map(|_| connect(server)).collect();
        for listener in &mut listeners {
            listener.command(&["SUBSCRIBE", "news"]).unwrap();
        }
        let mut control = server.server.connect();
        let mut talking = connect(server);
        for (round, threads) in ["4", "1", "3", "2"].iter().enumerate() {
            control.say(&format!("CONFIG SET io-threads {threads}"));
            assert_eq!(control.say(&format!("PUBLISH news {round}")).as_integer(), Some(8));
            for listener in &mut listeners {
                let message = ["message", "news", &round.to_string()];
                let message = message.map(|word| Value::Bulk(word.as_bytes().to_vec()));
                assert_eq!(listener.receive().unwrap(), Value::Array(message.to_vec()));
            }
            assert_eq!(text(&mut talking, "PING"), "PONG");
        }
        // A blocked client is woken.
        talking.send(&["BLPOP", "list", "0"]);
        talking.flush().unwrap();
        control.say("RPUSH list item");
        let popped = ["list", "item"].map(|word| Value::Bulk(word.as_bytes().to_vec()));
        assert_eq!(talking.receive().unwrap(), Value::Array(popped.to_vec()));
    });
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn clients_show_certificates_as_asked() {
    on_both_drivers(&[], |server| {
        let strangers = Certificates::create();
        let own = Some(&server.certificates);
        assert!(try_ping(server, &options(server, None)).is_err());
        assert_eq!(try_ping(server, &options(server, own)), Ok(()));
        assert!(try_ping(server, &options(server, Some(&strangers))).is_err());
        let mut control = server.server.connect();
        assert_eq!(control.say("CONFIG SET tls-auth-clients optional").text(), "OK");
        assert_eq!(try_ping(server, &options(server, None)), Ok(()));
        assert_eq!(try_ping(server, &options(server, own)), Ok(()));
        assert!(try_ping(server, &options(server, Some(&strangers))).is_err());
        assert_eq!(control.say("CONFIG SET tls-auth-clients no").text(), "OK");
        assert_eq!(try_ping(server, &options(server, None)), Ok(()));
        // The client judges the server, too.
        let doubting = TlsOptions {
            authorities: Some(strangers.path("ca.crt").into()),
            ..TlsOptions::default()
        };
        assert!(try_ping(server, &doubting).is_err());
        let log = server.server.log();
        assert!(log.contains("Error accepting a client connection: "), "{log}");
        // The server may read the last client's alert after the client is gone.
        until(|| {
            let failed = field(&control.say("INFO tls").text(), "tls_handshakes_failed");
            failed.parse::<u32>().unwrap() >= 4
        });
    });
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_certificate_may_name_the_user() {
    let arguments = ["--requirepass", "secret", "--tls-auth-clients-user", "CN"];
    let server = TlsServer::start(TestServer::bobbin, "server", &arguments);
    let shown = |name: &str| TlsOptions {
        certificate: Some(server.certificates.path(&format!("{name}.crt")).into()),
        key: Some(server.certificates.path(&format!("{name}.key")).into()),
        ..options(&server, None)
    };
    // Twice: a client that goes on with a session is the user it was.
    let connector = TlsConnector::new(&shown("default")).unwrap();
    for _ in 0..2 {
        assert_eq!(text(&mut connect_by(&server, &connector).unwrap(), "PING"), "PONG");
    }
    let unknown = try_ping(&server, &shown("client")).unwrap_err();
    assert!(unknown.contains("NOAUTH"), "{unknown}");
    let mut control = server.server.connect();
    assert_eq!(control.say("AUTH secret").text(), "OK");
    let stats = control.say("INFO stats").text();
    assert_eq!(field(&stats, "acl_access_denied_tls_cert"), "1");
    let log = control.say("ACL LOG").items()[0]
        .items()
        .iter()
        .map(|item| item.text())
        .collect::<Vec<_>>();
    assert!(log.contains(&"tls-cert".to_owned()) && log.contains(&"client".to_owned()), "{log:?}");
    assert_eq!(control.say("ACL SETUSER client on ~* +@all").text(), "OK");
    let connector = TlsConnector::new(&shown("client")).unwrap();
    let mut named = connect_by(&server, &connector).unwrap();
    assert_eq!(text(&mut named, "ACL WHOAMI"), "client");
    assert_eq!(control.say("ACL SETUSER client off").text(), "OK");
    assert!(try_ping(&server, &shown("client")).unwrap_err().contains("NOAUTH"));
    assert_eq!(control.say("CONFIG SET tls-auth-clients-user off").text(), "OK");
    assert!(try_ping(&server, &shown("default")).unwrap_err().contains("NOAUTH"));
}

/// In protected mode a peer from elsewhere is told so once it can read it, and nothing of what it
/// sends is executed.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn protected_mode_holds_over_tls() {
    let Some(elsewhere) = address_elsewhere() else {
        eprintln!("without a network there is no peer from elsewhere");
        return;
    };
    on_both_drivers(&["--tls-auth-clients", "no", "--bind", "0.0.0.0"], |server| {
        let connector = TlsConnector::new(&options(server, None)).unwrap();
        let connect = |host: &str| {
            let address = ServerAddress::Tcp { host: host.to_owned(), port: server.port };
            let transport = Transport { tls: Some(connector.clone()), ..Transport::default() };
            RespClient::connect_to(&address, &transport)
        };
        // Its own words may be what the connection's end cuts off.
        let stranger = connect(&elsewhere).ok();
        if let Some(answer) = stranger.and_then(|mut client| client.line("SET stranger 1").ok()) {
            let Value::Error(text) = answer else { panic!("{answer:?}") };
            assert!(text.starts_with(b"DENIED Running in protected mode"));
        }
        let mut own = connect("127.0.0.1").unwrap();
        assert_eq!(own.line("EXISTS stranger").unwrap(), Value::Integer(0));
        assert_eq!(text(&mut own, "CONFIG SET protected-mode no"), "OK");
        let mut client = connect(&elsewhere).unwrap();
        assert_eq!(text(&mut client, "SET stranger 1"), "OK");
    });
}

/// An address of this machine that is not of its loopback.
fn address_elsewhere() -> Option<String> {
    // Nothing is sent: the kernel only looks which way it would go.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback()).then(|| address.to_string())
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn strangers_are_sent_little() {
    let server = TlsServer::start(TestServer::bobbin, "server", &["--requirepass", "secret"]);
    let mut stranger = server.server.connect();
    let refused = b"*1\r\n$4\r\nPING\r\n".repeat(1000);
    // Until the socket takes no more, and some: nothing of it is read.
    let sends = (0..10_000).take_while(|_| stranger.send_raw(&refused).is_ok()).count();
    assert!(sends < 10_000, "errors for ten million commands were kept");
    let mut control = server.server.connect();
    assert_eq!(control.say("AUTH secret").text(), "OK");
    let stats = control.say("INFO stats").text();
    assert_eq!(field(&stats, "client_output_buffer_limit_disconnections"), "1");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn certificates_are_replaced_while_clients_stay() {
    let server = TlsServer::start(TestServer::bobbin, "server", &["--tls-auth-clients", "no"]);
    let others = Certificates::create();
    let mut control = server.server.connect();
    let mut before = connect(&server);
    let serial = field(&control.say("INFO tls").text(), "tls_server_cert_serial");
    // Half of a pair is refused, and changes nothing.
    let new = others.path("server.crt");
    let refused = control.say(&format!("CONFIG SET tls-cert-file {new}")).text();
    assert!(refused.contains("Unable to update TLS configuration"), "{refused}");
    assert_eq!(field(&control.say("INFO tls").text(), "tls_server_cert_serial"), serial);
    // The files change, and the same names are set again.
    for file in ["server.crt", "server.key"] {
        std::fs::copy(others.path(file), server.certificates.path(file)).unwrap();
    }
    let [certificate, key] =
        ["server.crt", "server.key"].map(|file| server.certificates.path(file));
    let set = format!("CONFIG SET tls-cert-file {certificate} tls-key-file {key}");
    assert_eq!(control.say(&set).text(), "OK");
    assert_ne!(field(&control.say("INFO tls").text(), "tls_server_cert_serial"), serial);
    assert_eq!(text(&mut before, "PING"), "PONG");
    assert!(try_ping(&server, &options(&server, None)).is_err());
    let believing =
        TlsOptions { authorities: Some(others.path("ca.crt").into()), ..TlsOptions::default() };
    assert_eq!(try_ping(&server, &believing), Ok(()));
    // The clock does the same.
    assert_eq!(control.say("CONFIG SET tls-auto-reload-interval 1").text(), "OK");
    let third = Certificates::create();
    for file in ["server.crt", "server.key"] {
        std::fs::copy(third.path(file), server.certificates.path(file)).unwrap();
    }
    let believing =
        TlsOptions { authorities: Some(third.path("ca.crt").into()), ..TlsOptions::default() };
    eventually(|| try_ping(&server, &believing).is_ok());
    assert_eq!(text(&mut before, "PING"), "PONG");
    // Files that could not be used are tried again, though nothing tells that they have changed.
    let fourth = Certificates::create();
    let put = |file: &str, bytes: &[u8]| {
        let path = server.certificates.path(file);
        std::fs::write(&path, bytes).unwrap();
        let written = std::fs::File::options().write(true).open(&path).unwrap();
        written.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    };
    put("server.key", b"not yet");
    put("server.crt", &std::fs::read(fourth.path("server.crt")).unwrap());
    eventually(|| server.server.log().contains("server.key"));
    put("server.key", &std::fs::read(fourth.path("server.key")).unwrap());
    let believing =
        TlsOptions { authorities: Some(fourth.path("ca.crt").into()), ..TlsOptions::default() };
    eventually(|| try_ping(&server, &believing).is_ok());
    assert_eq!(text(&mut before, "PING"), "PONG");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn sessions_go_on_where_that_is_allowed() {
    for (arguments, resumed) in [
        (&["--tls-protocols", "TLSv1.3"][..], true),
        (&["--tls-protocols", "TLSv1.2"], true),
        (&["--tls-protocols", "TLSv1.3", "--tls-session-caching", "no"], false),
        (&["--tls-protocols", "TLSv1.2", "--tls-session-caching", "no"], false),
        (&["--tls-session-cache-timeout", "0"], false),
    ] {
        let server = TlsServer::start(TestServer::bobbin, "server", arguments);
        let connector = TlsConnector::new(&options(&server, Some(&server.certificates))).unwrap();
        for _ in 0..3 {
            let mut client = connect_by(&server, &connector).unwrap();
            assert_eq!(text(&mut client, "PING"), "PONG");
        }
        let shown = server.server.connect().say("INFO tls").text();
        let count: u32 = field(&shown, "tls_handshakes_resumed").parse().unwrap();
        assert_eq!(count > 0, resumed, "{arguments:?}: {shown}");
        // Another setting, and all begin anew.
        let mut control = server.server.connect();
        assert_eq!(control.say("CONFIG SET tls-prefer-server-ciphers yes").text(), "OK");
        let mut client = connect_by(&server, &connector).unwrap();
        assert_eq!(text(&mut client, "PING"), "PONG");
        let info = control.say("INFO tls").text();
        assert_eq!(field(&info, "tls_handshakes_resumed"), count.to_string(), "{arguments:?}");
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_is_no_tls_ends_the_connection_alone() {
    on_both_drivers(&["--tls-auth-clients", "no"], |server| {
        let mut client = connect(server);
        let mut record = b"\x16\x03\x01\x40\x00".to_vec();
        record.resize(20_000, b'x');
        let mut alert_in_pieces = b"\x16\x03\x01\x00\x06\x01\x00\x00\x02\x03\x03".to_vec();
        alert_in_pieces.extend_from_slice(b"\x15\x03\x01\x00\x02\x02\x28");
        for junk in [
            &b"PING\r\n"[..],
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"\x16\x03\x01\x00\x05hello",
            b"\x00\x00\x00\x00\x00\x00",
            b"\x17\x03\x03\x00\x01x",
            b"\x14\x03\x03\x00\x01\x01\x14\x03\x03\x00\x01\x01\x14\x03\x03\x00\x01\x01",
            &alert_in_pieces,
            &record,
        ] {
            let mut socket = socket(server);
            let _ = socket.write_all(junk);
            let mut answer = Vec::new();
            let _ = socket.read_to_end(&mut answer);
            // Nothing, or an alert.
            assert!(answer.is_empty() || answer[0] == 0x15, "{junk:?}: {answer:?}");
        }
        // Half of a record and then nothing: the side that waits is not the server.
        let mut half = socket(server);
        half.write_all(&record[..300]).unwrap();
        half.shutdown(Shutdown::Write).unwrap();
        assert_eq!(half.read_to_end(&mut Vec::new()).unwrap_or(0), 0);
        assert_eq!(text(&mut client, "PING"), "PONG");
        let log = server.server.log();
        assert!(log.contains("Error accepting a client connection: what came is no TLS"), "{log}");
    });
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn who_never_finishes_a_handshake_goes() {
    on_both_drivers(&["--tls-auth-clients", "no"], |server| {
        let mut silent = socket(server);
        silent.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut busy = connect(server);
        assert_eq!(silent.read_to_end(&mut Vec::new()).unwrap_or(0), 0);
        assert_eq!(text(&mut busy, "PING"), "PONG");
        assert!(server.server.log().contains("the handshake takes too long"));
    });
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn the_port_for_plain_connections_can_be_closed() {
    let server = TlsServer::start(TestServer::bobbin, "server", &["--tls-auth-clients", "no"]);
    let mut control = server.server.connect();
    let plain = control.say("CONFIG GET port").items()[1].text();
    assert_eq!(control.say("CONFIG SET port 0").text(), "OK");
    assert!(TcpStream::connect(("127.0.0.1", plain.parse().unwrap())).is_err());
    let mut client = connect(&server);
    let memory = |list: &str| {
        let total = list.split(' ').find_map(|field| field.strip_prefix("tot-mem="));
        total.expect("its memory").parse::<u64>().unwrap()
    };
    let listed = memory(&text(&mut client, "CLIENT INFO"));
    assert!(listed > memory(&control.say("CLIENT INFO").text()) + 2048, "{listed} with TLS");
    let info = text(&mut client, "INFO server");
    assert_eq!(field(&info, "tcp_port"), server.port.to_string());
    assert!(info.contains("listener2:name=tls,") && !info.contains("listener0:"), "{info}");
    assert_eq!(text(&mut client, "CONFIG SET tls-port 0"), "OK");
    assert!(TcpStream::connect(("127.0.0.1", server.port)).is_err());
    assert_eq!(text(&mut client, "PING"), "PONG");
    assert_eq!(text(&mut client, &format!("CONFIG SET tls-port {}", server.port)), "OK");
    assert_eq!(try_ping(&server, &options(&server, None)), Ok(()));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn options_that_cannot_be_followed_are_refused_with_the_reason() {
    let certificates = Certificates::create();
    let [authority, certificate, key] =
        ["ca.crt", "server.crt", "server.key"].map(|file| certificates.path(file));
    let whole =
        ["--tls-cert-file", &certificate, "--tls-key-file", &key, "--tls-ca-cert-file", &authority];
    for (arguments, reason) in [
        (&[][..], "No tls-cert-file configured!"),
        (&whole[..2], "No tls-key-file configured!"),
        (&whole[..4], "tls-auth-clients needs tls-ca-cert-file or tls-ca-cert-dir"),
        (&[&whole[..], &["--tls-ciphers", "AES128-SHA"]].concat(), "ECDHE-RSA-AES256-GCM-SHA384"),
        (&[&whole[..], &["--tls-ciphersuites", "NONE"]].concat(), "TLS_AES_128_GCM_SHA256"),
        (&[&whole[..], &["--tls-protocols", "TLSv1.1"]].concat(), "neither TLSv1.2 nor TLSv1.3"),
        (&[&whole[..], &["--tls-key-file", "/nowhere"]].concat(), "/nowhere: "),
        (&[&whole[..], &["--tls-dh-params-file", "/x"]].concat(), "is not supported"),
    ] {
        let port = bobbin_testkit::server::free_port().unwrap().to_string();
        let arguments = [&["--tls-port", &port][..], arguments].concat();
        let error = TestServer::start(&peers::bobbin(), &arguments).expect_err("it cannot start");
        assert!(error.contains(reason), "{arguments:?}: {error}");
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_key_may_be_encrypted() {
    let server = TlsServer::start(TestServer::bobbin, "server", &["--tls-auth-clients", "no"]);
    let (key, encrypted) =
        (server.certificates.path("server.key"), server.certificates.path("encrypted.key"));
    let mut control = server.server.connect();
    for cipher in ["aes-256-cbc", "aes-128-cbc"] {
        let pass = ["-passout", "pass:secret", "-v2", cipher];
        let made = Command::new("openssl")
            .args(["pkcs8", "-topk8", "-in", &key, "-out", &encrypted])
            .args(pass)
            .status();
        let Ok(made) = made else {
            eprintln!("without openssl there is no encrypted key to try");
            return;
        };
        assert!(made.success());
        let set = format!("CONFIG SET tls-key-file {encrypted}");
        let with = |password: &str| format!("{set} tls-key-file-pass {password}");
        let plain = ["CONFIG", "SET", "tls-key-file", &key, "tls-key-file-pass", ""];
        assert_eq!(control.call(&plain).expect("is answered").text(), "OK");
        assert!(control.say(&set).text().contains("Unable to update TLS"), "{cipher}");
        assert!(control.say(&with("wrong")).text().contains("Unable to update TLS"), "{cipher}");
        assert_eq!(control.say(&with("secret")).text(), "OK", "{cipher}");
        assert_eq!(try_ping(&server, &options(&server, None)), Ok(()));
    }
    let log = server.server.log();
    assert!(log.contains("there is no password for it") && log.contains("the password is wrong"));
    assert!(!log.contains("secret"), "a password is in the log");
}

/// Replies that wait for the disk when the server ends are sealed and sent, and none that tells of
/// what was not done.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_was_done_before_the_end_is_answered() {
    const CLIENTS: usize = 4;
    for driver in ["epoll", "io_uring"] {
        let folder = Folder::new();
        let log = ["--dir", folder.text(), "--appendonly", "yes", "--appendfsync", "always"];
        let own = ["--io-driver", driver, "--io-threads", "2", "--enable-debug-command", "yes"];
        let mut server = TlsServer::start(TestServer::bobbin, "server", &[log, own].concat());
        let mut clients: Vec<RespClient> = (0..CLIENTS).map(|_| connect(&server)).collect();
        let mut last = connect(&server);
        assert_eq!(text(&mut last, "DEBUG AOF-FLUSH-SLEEP 400000"), "OK");
        // The log's thread is at work on this one while the others come.
        last.send(&["SET", "first", "1"]);
        last.flush().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let value = "x".repeat(300_000);
        for (number, client) in clients.iter_mut().enumerate() {
            let key = format!("k{number}");
            client.send(&["SET", &key, &value]);
            client.send(&["GET", &key]);
            client.send(&["INCR", "count"]);
            client.flush().unwrap();
        }
        std::thread::sleep(Duration::from_millis(100));
        last.send(&["SET", "last", "1"]);
        last.send(&["SHUTDOWN", "NOSAVE"]);
        last.flush().unwrap();
        let answers: Vec<_> = clients.iter_mut().map(until_closed).collect();
        assert_eq!(until_closed(&mut last).len(), 2, "{driver}: of both SETs");
        let status = server.server.wait(Duration::from_secs(30)).expect("it ends");
        assert_eq!(status.code(), Some(0), "{driver}");
        drop(server);
        let server = TestServer::bobbin(&log);
        let mut client = server.connect();
        assert_eq!(client.say("GET last").text(), "1");
        let counted = answers.iter().filter(|answers| answers.len() == 3).count();
        let count = client.say("GET count").text().parse().unwrap_or(0);
        assert_eq!(counted, count, "{driver}: all that was counted was answered");
        for (number, answers) in answers.iter().enumerate() {
            let is_there = client.say(&format!("EXISTS k{number}")).as_integer() == Some(1);
            assert_eq!(is_there, !answers.is_empty(), "{driver}: {number}");
            let bulk = Value::Bulk(value.clone().into_bytes());
            assert!(answers.get(1).is_none_or(|got| *got == bulk), "{driver}: {number}");
        }
    }
}

/// Every reply to come.
fn until_closed(client: &mut RespClient) -> Vec<Value> {
    let mut replies = Vec::new();
    loop {
        match client.receive() {
            Ok(reply) => replies.push(reply),
            Err(error) => {
                assert!(error.is_closed(), "{error}");
                return replies;
            }
        }
    }
}

/// Before AUTH the limits are those of connections without TLS, and they end with it within a
/// pipeline.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn strangers_have_their_limits() {
    const LEN_MAX: usize = 16_384;
    on_both_drivers(&["--requirepass", "secret"], |server| {
        let mut client = connect(server);
        client.send(&["AUTH", "secret"]);
        client.send(&["SET", "k", &"x".repeat(100_000)]);
        for _ in 0..10 {
            client.send(&["GET", "k"]);
        }
        client.flush().unwrap();
        for _ in 0..2 {
            assert_eq!(client.receive().unwrap(), Value::Simple(b"OK".to_vec()));
        }
        for _ in 0..10 {
            assert!(
                matches!(client.receive().unwrap(), Value::Bulk(bytes) if bytes.len() == 100_000)
            );
        }
        let mut stranger = connect(server);
        stranger.send(&["AUTH", "wrong"]);
        stranger.send(&["ECHO", &"x".repeat(LEN_MAX)]);
        stranger.send(&["ECHO", &"x".repeat(LEN_MAX + 1)]);
        stranger.flush().unwrap();
        for start in ["WRONGPASS", "NOAUTH", "ERR Protocol error: unauthenticated bulk length"] {
            let Value::Error(error) = stranger.receive().unwrap() else { panic!("not {start}") };
            assert!(String::from_utf8_lossy(&error).starts_with(start), "{start}");
        }
        assert!(stranger.receive().is_err(), "it is closed");
        let mut stranger = connect(server);
        loop {
            for _ in 0..1000 {
                stranger.send(&["GET", "k"]);
            }
            if stranger.flush().is_err() {
                break;
            }
        }
    });
}

fn on_both_drivers(arguments: &[&str], test: impl Fn(&TlsServer)) {
    for driver in ["epoll", "io_uring"] {
        let arguments = [&["--io-driver", driver][..], arguments].concat();
        test(&TlsServer::start(TestServer::bobbin, "server", &arguments));
    }
}

/// Believes the server's authority, and shows the certificate of these.
fn options(server: &TlsServer, shown: Option<&Certificates>) -> TlsOptions {
    TlsOptions {
        authorities: Some(server.certificates.path("ca.crt").into()),
        certificate: shown.map(|certificates| certificates.path("client.crt").into()),
        key: shown.map(|certificates| certificates.path("client.key").into()),
        ..TlsOptions::default()
    }
}

fn connect(server: &TlsServer) -> RespClient {
    let connector = TlsConnector::new(&options(server, Some(&server.certificates))).unwrap();
    connect_by(server, &connector).unwrap()
}

fn connect_by(server: &TlsServer, connector: &TlsConnector) -> std::io::Result<RespClient> {
    let address = ServerAddress::Tcp { host: "127.0.0.1".to_owned(), port: server.port };
    let transport = Transport {
        tls: Some(connector.clone()),
        timeout: Some(Duration::from_secs(20)),
        ..Transport::default()
    };
    let mut client = RespClient::connect_to(&address, &transport)?;
    client.set_read_timeout(Some(Duration::from_secs(20)))?;
    Ok(client)
}

fn try_ping(server: &TlsServer, options: &TlsOptions) -> Result<(), String> {
    let connector = TlsConnector::new(options)?;
    let mut client = connect_by(server, &connector).map_err(|error| error.to_string())?;
    match client.line("PING").map_err(|error| error.to_string())? {
        Value::Simple(pong) if pong == b"PONG" => Ok(()),
        Value::Error(text) => Err(String::from_utf8_lossy(&text).into_owned()),
        other => Err(format!("{other:?}")),
    }
}

fn socket(server: &TlsServer) -> TcpStream {
    let socket = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

fn text(client: &mut RespClient, line: &str) -> String {
    match client.line(line).unwrap() {
        Value::Simple(text) | Value::Bulk(text) | Value::Error(text) => {
            String::from_utf8(text).unwrap()
        }
        Value::Verbatim { text, .. } => String::from_utf8(text).unwrap(),
        other => panic!("{line}: {other:?}"),
    }
}

/// A field of INFO.
fn field(info: &str, name: &str) -> String {
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("no {name} in {info}")).trim_end().to_owned()
}

fn eventually(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "it does not happen");
        std::thread::sleep(Duration::from_millis(50));
    }
}
