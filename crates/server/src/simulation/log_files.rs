//! The files of a log that was there before, whatever the server was started with.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering;

use bobbin_io::Peer;

use super::disk::{self, Disk};
use super::process::SimulatedProcess;
use super::tasks;
use crate::base::files::DATA_MODE;
use crate::base::random::Random;
use crate::persistence::Persistence;
use crate::persistence::aof::{self, Aof};

/// Has a process on an empty disk keep a log of these commands; what is on the disk then.
fn log_of(commands: &[&str]) -> Disk {
    let disk = Disk::default();
    let (mut process, client) = process(&disk);
    process.ask(&client, "CONFIG SET appendonly yes");
    aof::step_log(process.server);
    tasks::run_next();
    aof::step_log(process.server);
    for command in commands {
        process.ask(&client, command);
    }
    aof::step_log(process.server);
    disk.after_kill()
}

/// A process on a disk, and a client.
fn process(disk: &Disk) -> (SimulatedProcess, Peer) {
    let process = SimulatedProcess::new(1);
    Disk::put_in(Some(disk.clone()));
    let client = process.connect(0);
    (process, client)
}

/// A server that was started without the log writes a base. Wherever the power goes, there is one
/// log or the other.
#[test]
fn a_log_that_was_not_loaded_is_not_written_over() {
    let old = log_of(&["RPUSH list 1", "RPUSH list 2"]);
    let (mut reader, peer) = process(&old);
    for request in ["CONFIG SET appendonly yes", "BGREWRITEAOF"] {
        let mut all = BTreeSet::new();
        for steps in 0.. {
            let disk = old.after_kill();
            let (mut process, client) = process(&disk);
            aof::start_without_log(process.server).expect("it is whole");
            process.ask(&client, "RPUSH list 3");
            disk.cut_power_after(steps, Random::new(steps as u64 + 1));
            assert!(process.ask(&client, request).starts_with('+'));
            aof::step_log(process.server);
            while tasks::run_next().is_some() {}
            aof::step_log(process.server);
            let left = disk.left_by_power_cut();
            let is_cut = left.is_some();
            reader.ask(&peer, "FLUSHALL");
            Disk::put_in(Some(left.unwrap_or(disk)));
            aof::load_log(reader.server).unwrap_or_else(|error| panic!("{steps}: {error}"));
            all.insert(reader.ask(&peer, "LRANGE list 0 -1"));
            if !is_cut {
                break;
            }
        }
        let all: Vec<_> = all.into_iter().collect();
        assert_eq!(all, ["*1\r\n$1\r\n3\r\n", "*2\r\n$1\r\n1\r\n$1\r\n2\r\n"], "{request}");
    }
    Disk::put_in(None);
}

#[test]
fn a_manifest_that_cannot_be_read_ends_the_start_also_without_the_log() {
    let old = log_of(&["SET k v"]);
    let (process, _) = process(&old);
    let manifest = Path::new("appendonlydir/appendonly.aof.manifest");
    let mut file = disk::append_to(manifest, DATA_MODE).expect("it is there");
    file.write_all(b"nonsense\n").expect("there is room");
    let error = aof::start_without_log(process.server).expect_err("it is no manifest");
    assert!(error.contains("FATAL AOF MANIFEST FILE ERROR"), "{error}");
    Disk::put_in(None);
}

#[test]
fn what_is_said_of_a_broken_log_can_be_done() {
    let old = log_of(&["SET k v"]);
    let (process, _) = process(&old);
    let increment = Path::new("appendonlydir/appendonly.aof.1.incr.aof");
    let mut file = disk::append_to(increment, DATA_MODE).expect("it is there");
    file.write_all(b"nonsense\r\n").expect("there is room");
    let error = aof::load_log(process.server).expect_err("it is broken");
    let advice = "bobbin-server --check-aof --fix ";
    assert!(error.contains(advice), "{error}");
    assert!(error.ends_with("appendonlydir/appendonly.aof.manifest"), "{error}");
    Disk::put_in(None);
}

/// Without its manifest a log is not taken for an empty one, and no file of it is written over.
#[test]
fn a_log_without_its_manifest_keeps_its_files() {
    let old = log_of(&["SET k v"]);
    let (mut process, client) = process(&old);
    let manifest = Path::new("appendonlydir/appendonly.aof.manifest");
    disk::remove_file(manifest).expect("it is there");
    let left = old.list();
    let error = aof::load_log(process.server).expect_err("the manifest is missing");
    let lines = "file appendonly.aof.1.base.rdb seq 1 type b\n\
                 file appendonly.aof.1.incr.aof seq 1 type i\n";
    let command = format!("printf '{}' > ", lines.replace('\n', "\\n"));
    assert!(error.contains(&command), "{error}");
    aof::start_without_log(process.server).expect("the log is not needed");
    let refused = process.ask(&client, "CONFIG SET appendonly yes");
    assert!(refused.contains("Unable to turn on AOF"), "{refused}");
    process.ask(&client, "BGREWRITEAOF");
    while tasks::run_next().is_some() {}
    assert!(process.ask(&client, "INFO persistence").contains("aof_last_bgrewrite_status:err"));
    assert_eq!(old.list(), left);
    let mut file = disk::append_to(manifest, DATA_MODE).expect("there is room");
    file.write_all(lines.as_bytes()).expect("there is room");
    aof::load_log(process.server).expect("it is whole again");
    assert_eq!(process.ask(&client, "GET k"), "$1\r\nv\r\n");
    Disk::put_in(None);
}

/// Wherever the process ends that begins a log, the next one begins it too.
#[test]
fn a_log_whose_beginning_was_cut_short_can_be_begun_again() {
    for steps in 0.. {
        let disk = Disk::default();
        let (first, _) = process(&disk);
        disk.cut_power_after(steps, Random::new(steps as u64 + 1));
        aof::load_log(first.server).expect("there is none yet");
        let Some(left) = disk.left_by_power_cut() else { break };
        Disk::put_in(Some(left));
        aof::load_log(first.server).unwrap_or_else(|error| panic!("{steps}: {error}"));
    }
    Disk::put_in(None);
}

/// A log that is turned on where there is a snapshot begins with the keys of it, wherever the power
/// goes meanwhile.
#[test]
fn a_log_begins_with_the_keys_of_the_snapshot() {
    let disk = Disk::default();
    let (mut first, client) = process(&disk);
    first.ask(&client, "SET k v");
    assert_eq!(first.ask(&client, "BGSAVE"), "+Background saving started\r\n");
    while tasks::run_next().is_some() {}
    let old = disk.after_kill();
    let (mut reader, peer) = process(&old);
    for steps in 0.. {
        let disk = old.after_kill();
        Disk::put_in(Some(disk.clone()));
        disk.cut_power_after(steps, Random::new(steps as u64 + 1));
        reader.ask(&peer, "FLUSHALL");
        Disk::put_in(Some(disk.clone()));
        aof::load_log(reader.server).expect("it can be loaded");
        assert_eq!(reader.ask(&peer, "GET k"), "$1\r\nv\r\n", "{steps}");
        let left = disk.left_by_power_cut();
        let is_cut = left.is_some();
        reader.ask(&peer, "FLUSHALL");
        Disk::put_in(Some(left.unwrap_or(disk)));
        if !is_cut {
            disk::remove_file("dump.rdb").expect("it is there");
        }
        aof::load_log(reader.server).unwrap_or_else(|error| panic!("{steps}: {error}"));
        assert_eq!(reader.ask(&peer, "GET k"), "$1\r\nv\r\n", "{steps}");
        if !is_cut {
            break;
        }
    }
    Disk::put_in(None);
}

/// The log that a server did not load is there under another name once it has begun one of its own.
#[test]
fn a_log_that_was_not_loaded_is_kept() {
    let old = log_of(&["SET k v"]);
    let (mut process, client) = process(&old);
    aof::start_without_log(process.server).expect("it is whole");
    process.ask(&client, "SET k later");
    process.ask(&client, "CONFIG SET appendonly yes");
    aof::step_log(process.server);
    while tasks::run_next().is_some() {}
    process.ask(&client, "BGREWRITEAOF");
    aof::step_log(process.server);
    while tasks::run_next().is_some() {}
    let manifest = Path::new("appendonlydir/appendonly.aof.manifest");
    let kept = Path::new("appendonlydir/before-appendonly.aof.2.base.rdb.manifest");
    for value in ["$5\r\nlater\r\n", "$1\r\nv\r\n"] {
        process.ask(&client, "CONFIG SET appendonly no");
        aof::step_log(process.server);
        process.ask(&client, "FLUSHALL");
        aof::load_log(process.server).expect("it can be loaded");
        assert_eq!(process.ask(&client, "GET k"), value);
        disk::rename(kept, manifest).ok();
    }
    Disk::put_in(None);
}

/// What a log holds was slow or large when it ran, and is not noted again when it is loaded.
#[test]
fn a_log_that_is_loaded_leaves_nothing_in_the_command_log() {
    let old = log_of(&["SET k v", "MULTI", "INCR n", "INCR n", "EXEC"]);
    let (mut process, client) = process(&old);
    process.ask(&client, "CONFIG SET commandlog-execution-slower-than 0");
    aof::load_log(process.server).expect("it can be loaded");
    assert_eq!(process.ask(&client, "GET n"), "$1\r\n2\r\n");
    let noted = process.ask(&client, "COMMANDLOG GET -1 slow");
    assert!(noted.contains("GET\r\n") && !noted.contains("INCR\r\n"), "{noted}");
    Disk::put_in(None);
}

/// What was written since the last rewrite counts as growth behind a restart as well.
#[test]
fn a_restart_does_not_put_off_the_next_rewrite() {
    let commands: Vec<_> = (0..50).map(|key| format!("SET key:{key} v")).collect();
    let old = log_of(&commands.iter().map(String::as_str).collect::<Vec<_>>());
    let (mut process, client) = process(&old);
    aof::load_log(process.server).expect("it can be loaded");
    let figures = &Aof::of(process.server).figures;
    let [all, base] = [&figures.size, &figures.base_size].map(|size| size.load(Ordering::Relaxed));
    let size_of = |end: &str| {
        let sizes = old.list().into_iter().filter(|(name, _)| name.ends_with(end));
        sizes.map(|(_, size)| size as u64).sum::<u64>()
    };
    assert_eq!((base, all), (size_of(".base.rdb"), size_of(".rdb") + size_of(".incr.aof")));
    assert!(base > 0 && all > 2 * base, "{base} of {all}");
    // No snapshot has what was loaded.
    let info = process.ask(&client, "INFO persistence");
    assert!(info.contains("rdb_changes_since_last_save:50\r\n"), "{info}");
    assert_eq!(Persistence::of(process.server).unsaved(0), 50);
    Disk::put_in(None);
}
