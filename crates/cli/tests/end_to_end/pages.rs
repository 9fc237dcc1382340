//! What the pages in `docs` show of a shell, is so: their blocks of `console`. Where a page shows
//! what cannot be the same twice (a machine's settings, figures that go on for ever, a cluster's, a
//! terminal's hints) that is a block of `text`. Each block of a page goes on where the one before
//! ended.

use std::path::Path;

use bobbin_testkit::pages::{PageShell, blocks, with_blocks};
use bobbin_testkit::server::tls::{Certificates, TlsServer};
use bobbin_testkit::{TestServer, peers, server::free_port};

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_the_page_about_the_shell_shows() {
    let TlsServer { server, port, certificates } =
        &TlsServer::start(TestServer::bobbin, "server", &[]);
    let mut admin = server.connect();
    let mut shell = PageShell::new();
    provide_cli(&mut shell, server.address().port(), *port);
    shell.mean("127.0.0.1:6379", &format!("127.0.0.1:{port}"));
    for (name, own) in [("ca.crt", "ca.crt"), ("me.crt", "client.crt"), ("me.key", "client.key")] {
        copy(certificates, own, &shell.folder().join(name));
    }
    std::fs::write(shell.folder().join("picture.png"), "a picture").unwrap();
    hold_page(&mut shell, "docs/cli.md");
    assert_eq!(admin.say("GET picture").text(), "a picture");
    assert_eq!(admin.say("GET b").text(), "hello world");
}

/// Certificates that OpenSSL makes, a server with TLS, and one whose files change.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_the_page_about_security_shows() {
    let port = free_port().unwrap();
    let mut shell = PageShell::new();
    provide_server(&mut shell, "--bind 127.0.0.1");
    provide_cli(&mut shell, port, port);
    shell.mean("6379", &port.to_string());
    hold_page(&mut shell, "docs/security.md");
}

/// Users in a file.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_the_page_about_users_shows() {
    hold_pages_own_server("docs/acl.md");
}

/// A server that is killed, damaged and mended.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_the_page_about_keeping_data_shows() {
    hold_pages_own_server("docs/persistence.md");
}

/// A primary and a replica that change parts.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_the_page_about_high_availability_shows() {
    let (first, second) = (free_port().unwrap(), free_port().unwrap());
    let mut shell = PageShell::new();
    provide_server(&mut shell, "--bind 127.0.0.1 --repl-diskless-sync-delay 0");
    provide_cli(&mut shell, first, first);
    shell.mean("7001", &first.to_string());
    shell.mean("7002", &second.to_string());
    hold_page(&mut shell, "docs/high-availability.md");
}

/// From a Valkey to a Bobbin.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_the_page_about_moving_shows() {
    let arguments = ["--repl-diskless-sync-delay", "0"];
    let (old, new) = (TestServer::valkey(&arguments), TestServer::bobbin(&arguments));
    let mut client = old.connect();
    for number in 0..1000 {
        client.say(&format!("SET key:{number} {number}"));
    }
    let mut shell = PageShell::new();
    provide_cli(&mut shell, old.address().port(), old.address().port());
    shell.mean("6379", &old.address().port().to_string());
    shell.mean("6380", &new.address().port().to_string());
    hold_page(&mut shell, "docs/migrate.md");
}

/// A new user's first ten minutes.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_the_tour_shows() {
    hold_pages_own_server("docs/tour.md");
}

/// Copies that are made and taken back, limits, an upgrade.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_the_page_about_running_a_server_shows() {
    hold_pages_own_server("docs/operations.md");
}

/// A page that shows a shell and is not listed here would be tried by nobody.
#[test]
fn every_page_that_shows_a_shell_is_tried() {
    let tried = [
        "acl.md",
        "benchmark.md", // by the tests of bobbin-benchmark
        "cli.md",
        "high-availability.md",
        "migrate.md",
        "operations.md",
        "persistence.md",
        "security.md",
        "tour.md",
    ];
    assert_eq!(with_blocks("console"), tried);
}

/// A page that starts its servers itself: one on Redis's port, and another on the next.
fn hold_pages_own_server(page: &str) {
    let (port, second) = (free_port().unwrap(), free_port().unwrap());
    let mut shell = PageShell::new();
    provide_server(
        &mut shell,
        &format!("--bind 127.0.0.1 --repl-diskless-sync-delay 0 --port {port}"),
    );
    provide_cli(&mut shell, port, port);
    shell.mean("6379", &port.to_string());
    shell.mean("6380", &second.to_string());
    hold_page(&mut shell, page);
}

/// Runs all blocks of a page.
fn hold_page(shell: &mut PageShell, page: &str) {
    let blocks = blocks(page, "console");
    assert!(!blocks.is_empty(), "{page}");
    blocks.iter().for_each(|block| shell.hold(page, block));
}

/// The server, which takes these flags unless it only checks a file.
fn provide_server(shell: &mut PageShell, flags: &str) {
    let server = peers::bobbin();
    let script = "case \"$1\" in --check-*) exec SERVER \"$@\";; esac\nexec SERVER FLAGS \"$@\"";
    let script = script.replace("SERVER", &format!("'{}'", server.display()));
    shell.program("bobbin-server", &script.replace("FLAGS", flags));
}

/// The program under test, at a port, and at another with TLS. What it prints where nobody reads on
/// is for people.
fn provide_cli(shell: &mut PageShell, port: u16, tls_port: u16) {
    let program = env!("CARGO_BIN_EXE_bobbin-cli");
    shell.program(
        "bobbin-cli",
        &format!(
            "port={port}\n\
             for word in \"$@\"; do [ \"$word\" = --tls ] && port={tls_port}; done\n\
             [ -f /dev/stdout ] && set -- --no-raw \"$@\"\n\
             export VALKEYCLI_RCFILE=/dev/null\n\
             exec '{program}' -p $port \"$@\""
        ),
    );
}

fn copy(certificates: &Certificates, name: &str, path: &Path) {
    std::fs::copy(certificates.path(name), path).unwrap();
}
