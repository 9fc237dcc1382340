//! `appendfsync everysec` beside an `fsync` that takes long, or fails: the calls are meddled with
//! by strace.

use std::time::{Duration, Instant};

use bobbin_testkit::disk::Folder;
use bobbin_testkit::{TestConnection, TestServer};

const LIMIT: Duration = Duration::from_secs(10);
/// Longer than what waits for it not to be over.
const LONG: &str = "fdatasync:delay_enter=15000000";

fn start(fault: &str, folder: &Folder) -> TestServer {
    let own = ["--dir", folder.text(), "--appendonly", "yes", "--appendfsync", "everysec"];
    let started = TestServer::meddled_with(fault, &own);
    started.unwrap_or_else(|error| panic!("{error}"))
}

/// Asks until INFO has this.
fn await_field(client: &mut TestConnection, field: &str) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let info = client.say("INFO persistence").text();
        if info.contains(field) {
            return;
        }
        assert!(Instant::now() < deadline, "{field}: {info}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What is written while an `fsync` lasts gets to the kernel, so that a kill does not lose it. It
/// does not count as safe.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn writing_goes_on_beside_an_fsync() {
    let folder = Folder::new();
    let mut server = start(LONG, &folder);
    let mut client = server.connect();
    assert_eq!(client.say("SET first 1").text(), "OK");
    await_field(&mut client, "aof_pending_bio_fsync:1");
    for number in 0..1000 {
        assert_eq!(client.say(&format!("SET key:{number} value")).text(), "OK");
    }
    assert_eq!(client.say("SET last 1").text(), "OK");
    let deadline = Instant::now() + LIMIT;
    let file = folder.log().join("appendonly.aof.1.incr.aof");
    let is_written = || {
        let bytes = std::fs::read(&file).expect("it is there");
        bytes.windows(4).any(|bytes| bytes == b"last")
    };
    while !is_written() {
        assert!(Instant::now() < deadline, "it is not written");
        std::thread::sleep(Duration::from_millis(5));
    }
    await_field(&mut client, "aof_pending_bio_fsync:1");
    assert_eq!(client.say("WAITAOF 1 0 50").items()[0].as_integer(), Some(0));
    assert!(server.kill());
    let log = ["--dir", folder.text(), "--appendonly", "yes"];
    let server = TestServer::bobbin(&log);
    assert_eq!(server.connect().say("DBSIZE").text(), "1002");
}

/// A rewrite that begins while an `fsync` lasts waits for it; nothing counts as safe before.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_rewrite_begins_beside_an_fsync() {
    let folder = Folder::new();
    let mut server = start("fdatasync:delay_enter=1500000", &folder);
    let mut client = server.connect();
    for round in 0..2 {
        assert_eq!(client.say(&format!("SET before:{round} 1")).text(), "OK");
        await_field(&mut client, "aof_pending_bio_fsync:1");
        assert!(!client.say("BGREWRITEAOF").is_error());
        assert_eq!(client.say(&format!("SET after:{round} 1")).text(), "OK");
        await_field(&mut client, "aof_rewrite_in_progress:0");
        assert_eq!(client.say("WAITAOF 1 0 0").items()[0].as_integer(), Some(1));
    }
    assert!(client.say("INFO persistence").text().contains("aof_last_bgrewrite_status:ok"));
    assert!(server.kill());
    let log = ["--dir", folder.text(), "--appendonly", "yes"];
    let server = TestServer::bobbin(&log);
    assert_eq!(server.connect().say("DBSIZE").text(), "4");
}

/// One that fails: writes are refused, and nothing is safe, before there is a new base.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn an_fsync_that_fails_beside_the_writing() {
    let folder = Folder::new();
    let mut server = start("fdatasync:error=EIO:when=1..2", &folder);
    let mut client = server.connect();
    assert_eq!(client.say("SET first 1").text(), "OK");
    await_field(&mut client, "aof_last_write_status:err");
    let refused = client.say("SET refused 1").text();
    assert!(
        refused.starts_with("MISCONF Errors writing to the AOF file: Input/output error"),
        "{refused}"
    );
    await_field(&mut client, "aof_last_write_status:ok");
    assert_eq!(client.say("SET last 1").text(), "OK");
    assert_eq!(client.say("WAITAOF 1 0 0").items()[0].as_integer(), Some(1));
    let manifest = folder.log().join("appendonly.aof.manifest");
    let manifest = std::fs::read_to_string(manifest).expect("it is there");
    assert!(!manifest.contains("appendonly.aof.1.base"), "{manifest}");
    assert!(server.kill());
    let log = ["--dir", folder.text(), "--appendonly", "yes"];
    let server = TestServer::bobbin(&log);
    let mut client = server.connect();
    assert_eq!(client.say("GET first").text(), "1");
    assert_eq!(client.say("GET last").text(), "1");
}
