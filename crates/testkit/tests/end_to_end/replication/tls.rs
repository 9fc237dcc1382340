//! A replica that follows its primary with TLS.

use bobbin_testkit::server::tls::{Certificates, TlsServer};
use bobbin_testkit::{TestServer, until};

fn start(arguments: &[&str]) -> TestServer {
    const ARGUMENTS: [&str; 4] =
        ["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"];
    TestServer::bobbin(&[&ARGUMENTS, arguments].concat())
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

/// `channels`: whether copies come by connections of their own.
fn follows_with_tls(begin: fn(&[&str]) -> TestServer, channels: &str) {
    let two = ["--dual-channel-replication-enabled", channels];
    let arguments = ["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"];
    let primary = TlsServer::start(begin, "server", &[&arguments[..], &two].concat());
    let mut client = primary.server.connect();
    for key in 0..500 {
        client.call(&["SET", &format!("key:{key}"), &"x".repeat(key)]).expect("it answers");
    }
    let options = tls_options(&primary.certificates);
    let options: Vec<_> = options.iter().map(String::as_str).chain(two).collect();
    let replica = start(&options);
    replica.follow(primary.port);
    primary.server.settle(&[&replica]);
    let by_main = if channels == "yes" { 1 } else { 0 };
    primary.server.connect().say("SET later 1");
    primary.server.connect().say("CLIENT KILL TYPE replica");
    primary.server.connect().say("SET last 1");
    primary.server.settle(&[&replica]);
    until(|| primary.server.digest() == replica.digest());
    assert_eq!(primary.server.info("sync_partial_ok"), (1 + by_main).to_string());
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_primary_is_followed_with_tls() {
    for channels in ["no", "yes"] {
        follows_with_tls(TestServer::bobbin, channels);
        follows_with_tls(TestServer::valkey, channels);
    }
    let primary = TlsServer::start(TestServer::bobbin, "server", &[]);
    // One with another authority is not believed.
    let other = Certificates::create();
    let options = tls_options(&other);
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    let replica = start(&options);
    replica.follow(primary.port);
    until(|| replica.log().contains("TLS: "));
    assert_eq!(replica.info("master_link_status"), "down");
    let plain = start(&[]);
    let refused = plain.connect().say("CONFIG SET tls-replication yes");
    assert!(refused.text().contains("Unable to update TLS configuration"), "{refused:?}");
}
