//! What servers do while their calls are written down.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use bobbin_testkit::connection::encode_command;
use bobbin_testkit::power::disk::{Before, FileTree, Luck};
use bobbin_testkit::random::TestRandom;

use super::work::{Count, CountingClient, PowerStage, ReplyCounts, Work};

type Load = (&'static str, fn(&mut TestRandom) -> Work);

pub(crate) const LOADS: &[Load] = &[
    ("always", always),
    ("everysec", everysec),
    ("switched", switched),
    ("snapshots", snapshots),
    ("single-file", single_file),
    ("recovered", recovered),
    ("killed", killed),
    ("policies", policies),
    ("ended", ended),
    ("saved-at-the-end", saved_at_the_end),
];

const ALWAYS: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];
const FROM_LOG: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];
const REWRITTEN: &[&str] = &["aof_rewrite_in_progress:0", "aof_last_bgrewrite_status:ok"];

/// From the first start on every unit is promised, through rewrites.
pub(crate) fn always(random: &mut TestRandom) -> Work {
    let stage = PowerStage::new(FileTree::new(), ReplyCounts::default(), ALWAYS);
    stage.play(random, FROM_LOG, work_with_rewrites)
}

fn work_with_rewrites(stage: &PowerStage, conductor: &mut CountingClient) {
    stage.promise_units(true);
    for format in ["yes", "no"] {
        stage.await_units(15);
        conductor.say(&["CONFIG", "SET", "aof-use-rdb-preamble", format]);
        conductor.promise_after(stage, &["BGREWRITEAOF"], REWRITTEN);
    }
    stage.await_units(15);
}

/// What WAITAOF told is promised.
fn everysec(random: &mut TestRandom) -> Work {
    let arguments = ["--appendonly", "yes", "--appendfsync", "everysec"];
    let stage = PowerStage::new(FileTree::new(), ReplyCounts::default(), &arguments);
    stage.waits.store(true, Ordering::SeqCst);
    stage.play(random, FROM_LOG, |stage, conductor| {
        for _ in 0..2 {
            stage.await_units(60);
            conductor.promise_after(stage, &["BGREWRITEAOF"], REWRITTEN);
        }
        stage.await_units(60);
    })
}

/// The log is turned on and off and on again. What it had is promised from when it has a base.
fn switched(random: &mut TestRandom) -> Work {
    let stage =
        PowerStage::new(FileTree::new(), ReplyCounts::default(), &["--appendfsync", "always"]);
    let on = [&["aof_enabled:1", "aof_rewrite_scheduled:0"], REWRITTEN].concat();
    stage.play(random, FROM_LOG, |stage, conductor| {
        for _ in 0..2 {
            stage.await_units(10);
            conductor.promise_after(stage, &["CONFIG", "SET", "appendonly", "yes"], &on);
            stage.promise_units(true);
            stage.await_units(10);
            stage.promise_units(false);
            conductor.say(&["CONFIG", "SET", "appendonly", "no"]);
        }
    })
}

/// What a snapshot that is told to be done has is promised.
pub(crate) fn snapshots(random: &mut TestRandom) -> Work {
    let stage = PowerStage::new(FileTree::new(), ReplyCounts::default(), &[]);
    let saved = ["rdb_bgsave_in_progress:0", "rdb_last_bgsave_status:ok"];
    stage.play(random, &["--appendonly", "no"], |stage, conductor| {
        for _ in 0..3 {
            stage.await_units(10);
            conductor.promise_after(stage, &["SAVE"], &[]);
            stage.await_units(10);
            conductor.promise_after(stage, &["BGSAVE"], &saved);
        }
    })
}

/// The log of a server as they were before Redis 7 is taken over.
fn single_file(random: &mut TestRandom) -> Work {
    let mut log = Vec::new();
    for number in ["1", "2", "3"] {
        encode_command(&["SET", "plain:0", number], &mut log);
        encode_command(&["INCR", "counter:0"], &mut log);
        encode_command(&["RPUSH", "list:0", number], &mut log);
        encode_command(&["SET", "large:0", &format!("{number},")], &mut log);
    }
    let before = FileTree::from([(PathBuf::from("appendonly.aof"), Some(log))]);
    let mut counts = ReplyCounts::default();
    counts[0] = Count { plain: 3, grouped: 3 };
    PowerStage::new(before, counts, ALWAYS).play(random, FROM_LOG, |stage, _| {
        stage.promise_units(true);
        stage.await_units(10);
    })
}

/// A server that starts on what a power cut left, and goes on.
fn recovered(random: &mut TestRandom) -> Work {
    let first = always(random);
    let moments = first.recording.disk.moments_of_names();
    let moment = moments[moments.len() / 2 + random.below(moments.len() / 2)];
    let left = first.recording.disk.after(moment, Luck::Some, Luck::Some, random);
    let stage = PowerStage::new(left, first.promised(moment), ALWAYS);
    stage.promises_reads.store(true, Ordering::SeqCst);
    stage.play(random, FROM_LOG, work_with_rewrites)
}

/// A server that starts on what another one, which was killed, had not forced to disk. What it
/// shows clients is promised.
fn killed(random: &mut TestRandom) -> Work {
    let first = careless(random);
    let end = *first.recording.disk.moments().last().expect("it did something");
    let tree = first.recording.disk.after(end, Luck::Most, Luck::Most, random);
    let increment = PathBuf::from("appendonlydir/appendonly.aof.1.incr.aof");
    let before = Before { tree, safe: BTreeMap::from([(increment, 0)]) };
    let stage = PowerStage::new(before, ReplyCounts::default(), ALWAYS);
    stage.promises_reads.store(true, Ordering::SeqCst);
    stage.play(random, FROM_LOG, |stage, _| {
        stage.promise_units(true);
        stage.await_units(10);
    })
}

/// `appendfsync` changes between what promises units and what does not.
fn policies(random: &mut TestRandom) -> Work {
    let arguments = ["--appendonly", "yes", "--appendfsync", "everysec"];
    let stage = PowerStage::new(FileTree::new(), ReplyCounts::default(), &arguments);
    stage.play(random, FROM_LOG, |stage, conductor| {
        for loose in ["everysec", "no", "everysec"] {
            conductor.say(&["CONFIG", "SET", "appendfsync", loose]);
            stage.await_units(20);
            conductor.say(&["CONFIG", "SET", "appendfsync", "always"]);
            stage.promise_units(true);
            stage.await_units(10);
            stage.promise_units(false);
        }
    })
}

/// A server that was told to end has forced all to disk.
fn ended(random: &mut TestRandom) -> Work {
    let arguments = ["--appendonly", "yes", "--appendfsync", "everysec"];
    let stage = PowerStage::new(FileTree::new(), ReplyCounts::default(), &arguments);
    stage.play_to_the_end(random, FROM_LOG, "SHUTDOWN NOSAVE", |stage, _| stage.await_units(20))
}

fn saved_at_the_end(random: &mut TestRandom) -> Work {
    let stage = PowerStage::new(FileTree::new(), ReplyCounts::default(), &[]);
    let restart = &["--appendonly", "no"];
    stage.play_to_the_end(random, restart, "SHUTDOWN SAVE", |stage, _| stage.await_units(20))
}

/// One that promises what it never forces to disk.
pub(crate) fn careless(random: &mut TestRandom) -> Work {
    let arguments = ["--appendonly", "yes", "--appendfsync", "no"];
    let stage = PowerStage::new(FileTree::new(), ReplyCounts::default(), &arguments);
    stage.play(random, FROM_LOG, |stage, _| {
        stage.promise_units(true);
        stage.await_units(30);
    })
}
