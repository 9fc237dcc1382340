//! Replicas whose disk is full: they follow as long as they need none, say why they cannot where
//! they do, and come back when there is room.

use std::io::Write;
use std::path::Path;

use bobbin_testkit::disk::SmallDisk;
use bobbin_testkit::random::TestRandom;
use bobbin_testkit::{ReplyFrame, TestServer, until};

const ARGUMENTS: [&str; 4] = ["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"];

/// A primary with more than the disks of this file can hold.
fn primary() -> TestServer {
    let primary = TestServer::bobbin(&ARGUMENTS);
    let (mut client, mut random) = (primary.connect(), TestRandom::new(1));
    for key in 0..60 {
        let (key, value) = (format!("key:{key}"), random.bytes(30_000));
        client.call(&[b"SET", key.as_bytes(), &value]).expect("it answers");
    }
    primary
}

fn replica(disk: &SmallDisk, load: &str) -> TestServer {
    let own = ["--dir", disk.text(), "--repl-diskless-load", load];
    TestServer::bobbin(&[&ARGUMENTS[..], &own].concat())
}

fn fill(folder: &Path) {
    let mut file = std::fs::File::create(folder.join("rest")).expect("it can be made");
    while file.write(&[0; 512]).is_ok_and(|count| count > 0) {}
}

/// Whether nothing but what was there before is on the disk.
fn is_clean(folder: &Path) -> bool {
    let names = std::fs::read_dir(folder).expect("it is there").flatten();
    names.map(|entry| entry.file_name()).all(|name| name == "rest")
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_copy_that_goes_to_memory_needs_no_room_on_disk() {
    let primary = primary();
    for load in ["swapdb", "flush-before-load", "on-empty-db"] {
        let Some(disk) = SmallDisk::new("1m") else { return };
        fill(disk.path());
        let replica = replica(&disk, load);
        replica.follow(primary.address().port());
        primary.settle(&[&replica]);
        primary.connect().say(&format!("SET {load} 1"));
        primary.settle(&[&replica]);
        assert_eq!(primary.digest(), replica.digest(), "{load}");
        assert!(is_clean(disk.path()));
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_copy_that_goes_to_a_full_disk_is_given_up_until_there_is_room() {
    let primary = primary();
    for is_full in [true, false] {
        // Otherwise it becomes full while the copy comes.
        let Some(disk) = SmallDisk::new("1m") else { return };
        if is_full {
            fill(disk.path());
        }
        let replica = replica(&disk, "disabled");
        let mut client = replica.connect();
        client.say("SET old 1");
        replica.follow(primary.address().port());
        let why = "the copy cannot be kept on disk: No space left on device";
        until(|| replica.log().contains(why));
        assert_eq!(replica.info("master_link_status"), "down");
        assert_eq!(client.say("GET old"), ReplyFrame::bulk("1"));
        // It tries again and again.
        until(|| replica.log().matches(why).count() > 1);
        until(|| is_clean(disk.path()));
        disk.remount("size=64m");
        primary.settle(&[&replica]);
        assert_eq!(primary.digest(), replica.digest());
        assert!(client.say("GET old").is_null());
        assert!(is_clean(disk.path()));
    }
}
