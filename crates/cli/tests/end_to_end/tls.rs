//! TLS, against the real servers.

use std::process::Command;

use crate::common::{Ran, finish, program};
use bobbin_testkit::{TestServer, peers, server::tls::TlsServer};

fn run_with(mut command: Command, server: &TlsServer, arguments: &[&str], input: &[u8]) -> Ran {
    command.args(["-p", &server.port.to_string()]).args(arguments);
    finish(command, input)
}

fn run(server: &TlsServer, arguments: &[&str]) -> Ran {
    run_with(program(), server, arguments, b"")
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn certificates_are_judged() {
    for start in [TestServer::valkey, TestServer::redis] {
        let server = TlsServer::start(start, "elsewhere", &["--tls-auth-clients", "no"]);
        let authority = server.certificates.path("ca.crt");
        let known = ["--tls", "--cacert", &authority];
        let ping = |more: &[&str]| run(&server, &[&known, more, &["PING"]].concat());
        // A certificate signed by our own authorities is accepted for any name, as in redis-cli.
        assert_eq!(ping(&[]).ok(), "PONG\n");
        assert_eq!(ping(&["--sni", "elsewhere.test"]).ok(), "PONG\n");
        let named = ping(&["--sni", "other.test"]).failed();
        assert!(named.contains("certificate not valid for name \"other.test\""), "{named}");
        assert_eq!(run(&server, &["--tls", "--insecure", "PING"]).ok(), "PONG\n");
        let stranger = run(&server, &["--tls", "PING"]).failed();
        let place = format!("Could not connect to 127.0.0.1:{}: ", server.port);
        assert!(stranger.starts_with(&place), "{stranger}");
        assert!(stranger.contains("UnknownIssuer"), "{stranger}");
        assert_eq!(stranger.lines().count(), 1);
        for scheme in ["rediss", "valkeys"] {
            let url = format!("{scheme}://localhost:{}", server.port);
            let mut command = program();
            command.args(["-u", &url, "--cacert", &authority, "PING"]);
            assert_eq!(finish(command, b"").ok(), "PONG\n");
        }
        // A folder of authorities is one that OpenSSL's c_rehash has been over.
        let hashed = server.certificates.folder().join("authorities");
        std::fs::create_dir(&hashed).unwrap();
        let folder = hashed.to_str().unwrap();
        assert!(run(&server, &["--tls", "--cacertdir", folder, "PING"]).failed().contains(folder));
        std::fs::copy(&authority, hashed.join("0123abcd.0")).unwrap();
        assert_eq!(run(&server, &["--tls", "--cacertdir", folder, "PING"]).ok(), "PONG\n");
        // Neither side may take the other for what it is not.
        assert_eq!(run(&server, &["PING"]).status, Some(1));
        let mut plain = program();
        let port = server.server.address().port().to_string();
        plain.args(["-p", &port, "-t", "0.5", "--tls", "--insecure", "PING"]);
        let plain = finish(plain, b"").failed();
        let reason = "no answer to TLS: is it a port without TLS?";
        assert_eq!(plain, format!("Could not connect to 127.0.0.1:{port}: {reason}\n"));
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn clients_show_certificates() {
    let server = TlsServer::start(TestServer::valkey, "server", &[]);
    let [authority, certificate, key] =
        ["ca.crt", "client.crt", "client.key"].map(|name| server.certificates.path(name));
    let known = ["--tls", "--cacert", &authority];
    let own = [&known[..], &["--cert", &certificate, "--key", &key]].concat();
    let refused = run(&server, &[&known[..], &["PING"]].concat());
    assert!(refused.failed().contains("CertificateRequired"));
    assert_eq!(run(&server, &[&own[..], &["PING"]].concat()).ok(), "PONG\n");
    // Certificate and key may be in one file.
    let both = server.certificates.folder().join("both.pem");
    let text = [&certificate, &key].map(|file| std::fs::read_to_string(file).unwrap()).concat();
    std::fs::write(&both, text).unwrap();
    let both = both.to_str().unwrap();
    assert_eq!(run(&server, &[&known[..], &["--cert", both, "PING"]].concat()).ok(), "PONG\n");
    let missing = run(&server, &[&known[..], &["--cert", "/nowhere", "PING"]].concat()).failed();
    assert!(missing.starts_with("/nowhere: "), "{missing}");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn ciphers_are_chosen() {
    let start = |arguments: &[&str]| TlsServer::start(TestServer::valkey, "server", arguments);
    let new = start(&["--tls-protocols", "TLSv1.3", "--tls-auth-clients", "no"]);
    let old = start(&["--tls-protocols", "TLSv1.2", "--tls-auth-clients", "no"]);
    let ping = |server: &TlsServer, arguments: &[&str]| {
        run(server, &[&["--tls", "--insecure"], arguments, &["PING"]].concat())
    };
    assert_eq!(ping(&new, &["--tls-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"]).ok(), "PONG\n");
    assert_eq!(ping(&old, &["--tls-ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256"]).ok(), "PONG\n");
    // The certificate's key is of another kind.
    assert_eq!(ping(&old, &["--tls-ciphers", "ECDHE-RSA-AES128-GCM-SHA256"]).status, Some(1));
    for option in ["--tls-ciphers", "--tls-ciphersuites"] {
        let error = ping(&new, &[option, "NONSENSE"]).failed();
        assert!(error.starts_with("None of the ciphers 'NONSENSE' is there, but "), "{error}");
    }
}

/// What goes over the connection is the same as without TLS: long replies, what is written while
/// replies come, messages, files.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn everything_goes_over_tls() {
    let server = TlsServer::start(TestServer::valkey, "server", &["--tls-auth-clients", "no"]);
    let run = |arguments: &[&str], input: &[u8]| {
        run_with(program(), &server, &[&["--tls", "--insecure"], arguments].concat(), input)
    };
    let long = vec![b'x'; 5 << 20];
    assert_eq!(run(&["-x", "SET", "long"], &long).ok(), "OK\n");
    assert!(run(&["GET", "long"], b"").bytes.len() > long.len());
    let mut input = Vec::new();
    for index in 0..20_000 {
        input.extend(format!("SET key:{index} {index}\r\n").bytes());
    }
    let piped = run(&["--pipe"], &input).ok();
    assert_eq!(piped.lines().last(), Some("errors: 0, replies: 20000"), "{piped}");
    assert_eq!(run(&["DBSIZE"], b"").ok(), "20001\n");
    assert!(run(&["--bigkeys"], b"").ok().contains("Sampled 20001 keys"));
    let file = server.certificates.folder().join("copy.rdb");
    run(&["--rdb", file.to_str().unwrap()], b"").ok();
    assert!(std::fs::metadata(&file).unwrap().len() > 100_000);
    assert_eq!(run(&["-3", "HELLO", "3"], b"").status, Some(0));
    // The same command prints the same as valkey-cli's.
    let arguments = ["--tls", "--insecure", "--no-raw", "INFO", "commandstats"];
    let lines = |text: String| text.lines().filter(|line| line.contains("set:")).count();
    let theirs = run_with(Command::new(peers::peer("valkey-cli")), &server, &arguments, b"");
    let ours = run_with(program(), &server, &arguments, b"");
    assert_eq!(lines(ours.ok()), lines(theirs.ok()));
}
