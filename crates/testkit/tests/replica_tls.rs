//! A replica that follows its primary with TLS.

use bobbin_testkit::server::tls::{Certificates, TlsServer};
use bobbin_testkit::{Reply, Server, until};

fn start(arguments: &[&str]) -> Server {
    const ARGUMENTS: [&str; 4] =
        ["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"];
    Server::bobbin(&[&ARGUMENTS, arguments].concat())
}

fn follow(replica: &Server, port: u16) {
    let reply = replica.connect().say(&format!("REPLICAOF 127.0.0.1 {port}"));
    assert_eq!(reply, Reply::simple("OK"));
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.bytes().expect("it has bytes")).into_owned()
}

/// A field of INFO.
fn info(server: &Server, field: &str) -> String {
    let text = text(&server.connect().say("INFO everything"));
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field} in {text}")).to_owned()
}

fn digest(server: &Server) -> String {
    text(&server.connect().say("DEBUG DIGEST"))
}

/// Waits until the replica has all that the primary has.
fn settle(primary: &Server, replica: &Server) {
    until(|| {
        let same = |field| info(replica, field) == info(primary, field);
        info(replica, "master_link_status") == "up"
            && same("master_replid")
            && same("master_repl_offset")
    });
}

/// What a replica of a primary with TLS needs.
fn tls_options(certificates: &Certificates) -> Vec<String> {
    let options = [
        ("--tls-replication", "yes".to_owned()),
        ("--tls-ca-cert-file", certificates.path("ca.crt")),
        ("--tls-client-cert-file", certificates.path("client.crt")),
        ("--tls-client-key-file", certificates.path("client.key")),
    ];
    options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

fn follows_with_tls(begin: fn(&[&str]) -> Server) {
    let arguments = ["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"];
    let primary = TlsServer::start(begin, "server", &arguments);
    let mut client = primary.server.connect();
    for key in 0..500 {
        client.call(&["SET", &format!("key:{key}"), &"x".repeat(key)]).expect("it answers");
    }
    let options = tls_options(&primary.certificates);
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    let replica = start(&options);
    follow(&replica, primary.port);
    settle(&primary.server, &replica);
    primary.server.connect().say("SET later 1");
    primary.server.connect().say("CLIENT KILL TYPE replica");
    primary.server.connect().say("SET last 1");
    settle(&primary.server, &replica);
    until(|| digest(&primary.server) == digest(&replica));
    assert_eq!(info(&primary.server, "sync_partial_ok"), "1");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_primary_is_followed_with_tls() {
    follows_with_tls(Server::bobbin);
    follows_with_tls(Server::valkey);
    let primary = TlsServer::start(Server::bobbin, "server", &[]);
    // One with another authority is not believed.
    let other = Certificates::create();
    let options = tls_options(&other);
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    let replica = start(&options);
    follow(&replica, primary.port);
    until(|| replica.log().contains("TLS: "));
    assert_eq!(info(&replica, "master_link_status"), "down");
    let plain = start(&[]);
    let refused = plain.connect().say("CONFIG SET tls-replication yes");
    assert!(text(&refused).contains("Unable to update TLS configuration"), "{refused:?}");
}
