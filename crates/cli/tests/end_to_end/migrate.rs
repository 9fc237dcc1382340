//! `bobbin-cli migrate`: following another server, and taking over from it.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};

use bobbin_testkit::server::tls::{Certificates, TlsServer};
use bobbin_testkit::{ReplyFrame, TestServer, peers};

use crate::common::{Ran, eventually, finish, program, run};

const ARGUMENTS: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

/// Keys of all types in two databases.
fn fill(server: &TestServer) {
    let mut client = server.connect();
    for database in ["SELECT 3", "SELECT 0"] {
        client.say(database);
        for number in 0..50 {
            for line in [
                format!("SET s:{number} {number}"),
                format!("SET e:{number} {number} EX {}", 1000 + number),
                format!("RPUSH l:{number} a b {number}"),
                format!("HSET h:{number} a {number} b c"),
                format!("SADD t:{number} a {number} b"),
                format!("ZADD z:{number} {number} a 2 b"),
                format!("XADD x:{number} * f {number}"),
            ] {
                assert!(!client.say(&line).is_error(), "{line}");
            }
        }
    }
}

fn migrate(target: &TestServer, source: &TestServer, words: &[&str]) -> Ran {
    let source = source.address().to_string();
    run(target, &[&["migrate", &source][..], words].concat())
}

/// Moves from one server to another one and back, while a client writes.
fn there_and_back(source: &TestServer, target: &TestServer) {
    fill(source);
    let ready = migrate(target, source, &[]).ok();
    for text in ["in step", "sampled keys are equal", "Ready. To switch"] {
        assert!(ready.contains(text), "{text} in {ready}");
    }
    let stop = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut client = source.connect();
            let mut count = 0_u32;
            while !stop.load(Ordering::SeqCst) {
                // From the switch on it is refused.
                match client.call(&["SET", "count", &(count + 1).to_string()]) {
                    Ok(reply) if reply == ReplyFrame::simple("OK") => count += 1,
                    Ok(_) | Err(_) => break,
                }
            }
            count
        });
        let done = migrate(target, source, &["switch", "back"]).ok();
        assert!(done.contains("is a primary now"), "{done}");
        stop.store(true, Ordering::SeqCst);
        writer.join().expect("it ends")
    });
    let mut client = target.connect();
    assert_eq!(client.say("GET count"), ReplyFrame::bulk(written.to_string()));
    assert_eq!(client.say("SET after 1"), ReplyFrame::simple("OK"));
    let done = migrate(source, target, &["switch"]).ok();
    assert!(done.contains("is a primary now"), "{done}");
    let mut client = source.connect();
    assert_eq!(client.say("GET after"), ReplyFrame::bulk("1"));
    assert_eq!(client.say("SET after 2"), ReplyFrame::simple("OK"));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn from_real_servers_and_back() {
    there_and_back(&TestServer::valkey(&ARGUMENTS), &TestServer::bobbin(&ARGUMENTS));
    there_and_back(&TestServer::bobbin(&ARGUMENTS), &TestServer::bobbin(&ARGUMENTS));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn nothing_is_replaced_or_switched_by_mistake() {
    let (source, target) = (TestServer::valkey(&ARGUMENTS), TestServer::bobbin(&ARGUMENTS));
    source.connect().say("SET a 1");
    let mut client = target.connect();
    client.say("SET b 1");
    let errors = migrate(&target, &source, &["switch"]).failed();
    assert!(errors.contains("has keys (1), which the copy would replace"), "{errors}");
    assert_eq!(client.say("GET b"), ReplyFrame::bulk("1"));
    migrate(&target, &source, &["replace"]).ok();
    assert!(client.say("GET b").is_null());
    // A key that differs is found, and nothing is switched.
    client.say("CONFIG SET replica-read-only no");
    client.say("SET a 2");
    let errors = migrate(&target, &source, &["switch"]).failed();
    assert!(errors.contains("a: another value (string)"), "{errors}");
    assert_eq!(source.connect().say("SET c 1"), ReplyFrame::simple("OK"));
    assert!(target.connect().say("INFO replication").text().contains("role:slave"));
    let errors = run(&target, &["migrate", "127.0.0.1:1", "switch"]).failed();
    assert!(errors.contains("Could not connect to 127.0.0.1:1"), "{errors}");
}

/// A primary that followed itself could be written to no more.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_server_does_not_follow_itself() {
    let server = TestServer::bobbin(&ARGUMENTS);
    let errors = migrate(&server, &server, &["replace", "switch"]).failed();
    assert!(errors.contains("the same server"), "{errors}");
    assert_eq!(server.info("role"), "master");
}

/// Two servers that followed each other would both refuse writes.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_server_does_not_follow_its_own_replica() {
    let target = TestServer::bobbin(&ARGUMENTS);
    let [replica, second] = [TestServer::bobbin(&ARGUMENTS), TestServer::bobbin(&ARGUMENTS)];
    for (server, primary) in [(&replica, &target), (&second, &replica)] {
        let port = primary.address().port();
        assert_eq!(server.connect().say(&format!("REPLICAOF 127.0.0.1 {port}")).text(), "OK");
        eventually("there is a link", || server.info("master_link_status") == "up");
    }
    for source in [&replica, &second] {
        let errors = migrate(&target, source, &["replace"]).failed();
        assert!(errors.contains("is a replica of the target"), "{errors}");
    }
    assert_eq!(target.info("role"), "master");
}

/// The target has taken over by then, so the user must hear what becomes of the source.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_source_that_must_not_follow_is_told_of() {
    let (source, target) = (TestServer::bobbin(&ARGUMENTS), TestServer::bobbin(&ARGUMENTS));
    source.connect().say("ACL SETUSER mover on >secret ~* +@all -replicaof");
    let address = format!("redis://mover:secret@127.0.0.1:{}", source.address().port());
    let errors = run(&target, &["migrate", &address, "switch", "back"]).failed();
    assert!(errors.starts_with("There is no way back: "), "{errors}");
    assert!(errors.contains("does not follow") && errors.ends_with("stop it.\n"), "{errors}");
    assert_eq!([source.info("role"), target.info("role")], ["master", "master"]);
}

/// It is refused before anything is changed.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_way_back_wants_no_unix_socket() {
    let source = TestServer::bobbin(&ARGUMENTS);
    let socket = source.folder().join("target.sock");
    let socket = socket.to_str().expect("plain");
    let target = TestServer::bobbin(&["--unixsocket", socket]);
    source.connect().say("SET a 1");
    let mut command = program();
    let address = source.address().to_string();
    command.args(["-s", socket, "migrate", &address, "switch", "back"]);
    let errors = finish(command, b"").failed();
    assert!(errors.contains("cannot follow a Unix socket"), "{errors}");
    assert_eq!(target.connect().say("DBSIZE").text(), "0");
    assert_eq!([source.info("role"), target.info("role")], ["master", "master"]);
}

/// For the source that address is its own. It is refused before anything is changed.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_way_back_wants_an_address_that_leads_there() {
    let (source, target) = (TestServer::bobbin(&["--bind", "*"]), TestServer::bobbin(&ARGUMENTS));
    let probe = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    // Nothing is sent: this asks by which of its addresses the machine is known to others.
    let Ok(()) = probe.connect("192.0.2.1:9") else { return };
    let ip = probe.local_addr().expect("an address").ip();
    if ip.is_loopback() {
        return;
    }
    source.connect().say("CONFIG SET protected-mode no");
    let address = format!("{ip}:{}", source.address().port());
    let errors = run(&target, &["migrate", &address, "switch", "back"]).failed();
    assert!(errors.contains("leads to its own machine"), "{errors}");
    assert_eq!([source.info("role"), target.info("role")], ["master", "master"]);
}

/// The address names the user by which the source is asked and followed. That user needs the rights
/// that docs/migrate.md lists. Functions come along, users do not.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_user_of_few_rights_moves_data_and_functions() {
    for start in [TestServer::valkey, TestServer::bobbin] {
        let (source, target) = (start(&ARGUMENTS), TestServer::bobbin(&ARGUMENTS));
        fill(&source);
        let mut client = source.connect();
        let library = "#!lua name=lib\nredis.register_function('f', function() return 7 end)";
        client.call(&["FUNCTION", "LOAD", library]).expect("it answers");
        let page = peers::repository().join("docs/migrate.md");
        let page = std::fs::read_to_string(page).expect("the page");
        let (_, rights) = page.split_once("`ACL SETUSER mover ").expect("the page tells rights");
        let rights = rights.split('`').next().expect("its end").replace('\n', " ");
        assert_eq!(client.say(&format!("ACL SETUSER mover {rights}")).text(), "OK");
        client.say("ACL SETUSER default resetpass >another");
        let errors = migrate(&target, &source, &[]).failed();
        assert!(errors.ends_with("goes into its address: redis://user:password@host:port.\n"));
        let address = format!("redis://mover:secret@127.0.0.1:{}", source.address().port());
        let switched = run(&target, &["migrate", &address, "switch"]).ok();
        assert!(switched.contains("is a primary now"), "{switched}");
        assert!(switched.contains("stand still for 60 s, and are lost after that"), "{switched}");
        let mut client = target.connect();
        assert_eq!(client.say("DBSIZE").text(), "350");
        assert_eq!(client.say("FCALL f 0").as_integer(), Some(7));
        assert!(client.say("ACL GETUSER mover").is_null());
        assert_eq!(client.say("CONFIG GET primaryauth").items()[1].text(), "secret");
    }
}

/// The source speaks TLS, the target need not: the address of each says so.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn the_source_may_speak_tls() {
    for start in [TestServer::valkey, TestServer::bobbin] {
        let arguments = [&ARGUMENTS[..], &["--tls-auth-clients", "no"]].concat();
        let source = TlsServer::start(start, "elsewhere", &arguments);
        fill(&source.server);
        let files: &Certificates = &source.certificates;
        let [authority, certificate, key] =
            ["ca.crt", "elsewhere.crt", "elsewhere.key"].map(|name| files.path(name));
        let target = TestServer::bobbin(&[
            "--tls-ca-cert-file",
            &authority,
            "--tls-cert-file",
            &certificate,
            "--tls-key-file",
            &key,
        ]);
        let address = format!("rediss://127.0.0.1:{}", source.port);
        let switched = run(&target, &["--cacert", &authority, "migrate", &address, "switch"]).ok();
        assert!(switched.contains("is a primary now"), "{switched}");
        assert_eq!(target.connect().say("DBSIZE").text(), "350");
        assert_eq!(target.info("role"), "master");
    }
}
