//! Snapshots that are given up while they are written, and what is counted meanwhile.

use std::sync::atomic::Ordering;

use bobbin_io::Peer;

use super::disk::{Disk, Faults};
use super::hands::Hands;
use super::process::SimulatedProcess;
use super::tasks;
use crate::base::random::Random;
use crate::config::OptionId;
use crate::persistence::{Persistence, load};

/// A process on an empty disk, and a client. No save is due by itself, but the server has points.
fn process() -> (SimulatedProcess, Disk, Peer) {
    let mut process = SimulatedProcess::new(1);
    let disk = Disk::default();
    Disk::put_in(Some(disk.clone()));
    let client = process.connect(0);
    process.ask(&client, "CONFIG SET save \"3600 1000000\"");
    (process, disk, client)
}

/// A field of INFO.
fn told(process: &mut SimulatedProcess, client: &Peer, field: &str) -> String {
    let text = process.ask(client, "INFO persistence");
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{field}: {text}")).to_owned()
}

/// FLUSHALL or BGSAVE CANCEL comes at any step of a save.
#[test]
fn a_save_that_was_given_up_leaves_no_file_at_any_step() {
    let mut reader = SimulatedProcess::new(1);
    let peer = reader.connect(0);
    for line in ["FLUSHALL", "BGSAVE CANCEL"] {
        let mut was_named = [false; 2];
        for steps in 1.. {
            let (mut process, disk, client) = process();
            process.ask(&client, "SET k v");
            assert_eq!(process.ask(&client, "BGSAVE"), "+Background saving started\r\n");
            let task = tasks::take_next().expect("there is a thread").run;
            let mut hands = Hands::new(Random::new(1), 1);
            let (mut is_done, mut at) = (hands.have(&disk, task).is_some(), 1);
            while !is_done && at < steps {
                at += 1;
                is_done = hands.go_on();
            }
            if is_done {
                break;
            }
            if Persistence::of(process.server).is_naming() {
                // It is being renamed, and a client that gives it up would wait for that.
                continue;
            }
            let is_named = disk.list().iter().any(|(name, _)| name == "dump.rdb");
            was_named[usize::from(is_named)] = true;
            let answer = process.ask(&client, line);
            if line != "FLUSHALL" {
                assert_eq!(answer.starts_with('-'), is_named, "{steps}: {answer}");
            }
            while !hands.go_on() {}
            assert_eq!(told(&mut process, &client, "rdb_last_bgsave_status"), "ok");
            let names = disk.list();
            assert!(names.iter().all(|(name, _)| name == "dump.rdb"), "{steps}: {names:?}");
            reader.ask(&peer, "FLUSHALL");
            Disk::put_in(Some(disk.after_power_cut(&mut Random::new(steps))));
            load::load_at_start(reader.server).expect("it can be loaded");
            load::end_loading(reader.server);
            let keys = if line != "FLUSHALL" && is_named { ":1\r\n" } else { ":0\r\n" };
            assert_eq!(reader.ask(&peer, "DBSIZE"), keys, "{line}, {steps}");
        }
        assert_eq!(was_named, [true; 2], "{line}");
    }
    Disk::put_in(None);
}

#[test]
fn counts_that_start_over_meanwhile_leave_no_changes_that_there_were_not() {
    let (mut process, _, client) = process();
    for key in 0..20 {
        process.ask(&client, &format!("SET key:{key} v"));
    }
    assert_eq!(process.ask(&client, "BGSAVE"), "+Background saving started\r\n");
    process.ask(&client, "SET k v");
    assert_eq!(process.ask(&client, "CONFIG RESETSTAT"), "+OK\r\n");
    assert_eq!(told(&mut process, &client, "rdb_changes_since_last_save"), "21");
    tasks::run_next();
    assert_eq!(told(&mut process, &client, "rdb_changes_since_last_save"), "1");
    Disk::put_in(None);
}

/// A disk that is too slow for a snapshot has failed to take one.
#[test]
fn a_save_that_the_server_gives_up_has_failed() {
    let (mut process, _, client) = process();
    process.ask(&client, "BGSAVE");
    tasks::run_next();
    process.server.config.set_internally(OptionId::save, "1 1").expect("it is an option");
    process.ask(&client, "SET k v");
    process.pass(2_000);
    process.turns(2);
    assert_eq!(told(&mut process, &client, "rdb_bgsave_in_progress"), "1");
    process.server.keep_nothing_for_cut();
    for _ in 0..3 {
        process.ask(&client, "SET k w");
        process.pass(10);
        process.turns(1);
    }
    tasks::run_next();
    assert_eq!(told(&mut process, &client, "rdb_last_bgsave_status"), "err");
    assert!(process.ask(&client, "SET k v").starts_with("-MISCONF"));
    // The disk has a rest before the next one.
    for (seconds, is_saving) in [(4, "0"), (2, "1")] {
        process.pass(seconds * 1_000);
        process.turns(2);
        assert_eq!(told(&mut process, &client, "rdb_bgsave_in_progress"), is_saving);
    }
    tasks::run_next();
    assert_eq!(told(&mut process, &client, "rdb_last_bgsave_status"), "ok");
    Disk::put_in(None);
}

#[test]
fn a_write_that_a_save_holds_up_goes_on_when_the_clock_is_set_back() {
    let (mut process, _, client) = process();
    process.ask(&client, "SET k v");
    process.ask(&client, "BGSAVE");
    process.server.keep_nothing_for_cut();
    assert_eq!(process.ask(&client, "SET k w"), "+OK\r\n", "it leaves a copy");
    assert_eq!(process.ask(&client, "SET k x"), "");
    process.be_at(process.now_ms() - 3_600_000);
    process.turns(2);
    assert_eq!(process.heard(&client), "+OK\r\n");
    tasks::run_next();
    Disk::put_in(None);
}

#[test]
fn a_save_point_is_reached_after_the_clock_was_set_back() {
    let (mut process, _, client) = process();
    process.ask(&client, "CONFIG SET save \"60 1\"");
    process.ask(&client, "SET k v");
    process.be_at(process.now_ms() - 3_600_000);
    process.turns(2);
    assert_eq!(tasks::run_next().as_deref(), Some("bobbin-save"));
    // From then on the new time counts.
    process.ask(&client, "SET k w");
    for (ms, began) in [(60_000, None), (1000, Some("bobbin-save"))] {
        process.pass(ms);
        process.turns(2);
        assert_eq!(tasks::run_next().as_deref(), began, "after {ms} ms more");
    }
    Disk::put_in(None);
}

/// Half of a transaction is in no file, so the file that has what it deleted goes a moment later.
#[test]
fn what_a_transaction_deletes_does_not_come_back() {
    let mut reader = SimulatedProcess::new(1);
    let peer = reader.connect(0);
    for lines in [&["MULTI", "FLUSHALL", "EXEC"][..], &["EVAL \"redis.call('FLUSHALL')\" 0"]] {
        let (mut process, disk, client) = process();
        for begins_save in [false, true] {
            process.ask(&client, "SET k v");
            process.ask(&client, "BGSAVE");
            if !begins_save {
                tasks::run_next();
            }
            for line in lines {
                process.ask(&client, line);
            }
            while tasks::run_next().is_some() {}
            process.pass(200);
            process.turns(2);
            assert_eq!(tasks::run_next().as_deref(), Some("bobbin-save"), "{lines:?}");
            reader.ask(&peer, "FLUSHALL");
            Disk::put_in(Some(disk.after_power_cut(&mut Random::new(1))));
            load::load_at_start(reader.server).expect("it can be loaded");
            load::end_loading(reader.server);
            assert_eq!(reader.ask(&peer, "DBSIZE"), ":0\r\n", "{lines:?}");
            Disk::put_in(Some(disk.clone()));
        }
    }
    Disk::put_in(None);
}

/// The first save may end early: cancelled, as for an end that is refused, or on a full disk.
#[test]
fn what_a_transaction_deleted_goes_from_the_file_with_the_first_save_that_succeeds() {
    let mut reader = SimulatedProcess::new(1);
    let peer = reader.connect(0);
    for is_cancelled in [false, true] {
        let (mut process, disk, client) = process();
        process.ask(&client, "SET k v");
        process.ask(&client, "BGSAVE");
        tasks::run_next();
        for line in ["MULTI", "FLUSHALL", "EXEC"] {
            process.ask(&client, line);
        }
        process.pass(200);
        process.turns(2);
        assert!(tasks::are_there(), "a save has begun");
        if is_cancelled {
            assert!(process.ask(&client, "BGSAVE CANCEL").starts_with('+'));
        } else {
            disk.set_faults(Faults { room: Some(0), ..Faults::default() });
        }
        tasks::run_next();
        disk.set_faults(Faults::default());
        process.pass(10_000);
        process.turns(2);
        assert_eq!(tasks::run_next().as_deref(), Some("bobbin-save"), "{is_cancelled}");
        reader.ask(&peer, "FLUSHALL");
        Disk::put_in(Some(disk.after_power_cut(&mut Random::new(1))));
        load::load_at_start(reader.server).expect("it can be loaded");
        load::end_loading(reader.server);
        assert_eq!(reader.ask(&peer, "DBSIZE"), ":0\r\n", "{is_cancelled}");
        Disk::put_in(Some(disk.clone()));
        process.pass(10_000);
        process.turns(2);
        assert!(!tasks::are_there(), "that is enough");
    }
    Disk::put_in(None);
}

#[test]
fn a_scheduled_save_is_cancelled_as_such() {
    let (mut process, _, client) = process();
    process.ask(&client, "MULTI");
    process.ask(&client, "BGSAVE");
    process.ask(&client, "EXEC");
    let cancelled = "+Scheduled background saving cancelled\r\n";
    assert_eq!(process.ask(&client, "BGSAVE CANCEL"), cancelled);
    assert!(process.ask(&client, "BGSAVE CANCEL").starts_with("-ERR"));
    Disk::put_in(None);
}

#[test]
fn a_rewrite_tells_of_its_keys_and_save_of_no_time() {
    let (mut process, _, client) = process();
    process.ask(&client, "MSET a 1 b 2 c 3");
    process.ask(&client, "SAVE");
    tasks::run_next();
    process.turns(1);
    assert_eq!(process.heard(&client), "+OK\r\n");
    assert_eq!(told(&mut process, &client, "rdb_last_bgsave_time_sec"), "-1");
    process.ask(&client, "BGREWRITEAOF");
    assert_eq!(told(&mut process, &client, "current_save_keys_total"), "3");
    assert!(process.ask(&client, "INFO stats").contains("\r\ntotal_forks:2\r\n"));
    process.ask(&client, "CONFIG RESETSTAT");
    assert!(process.ask(&client, "INFO stats").contains("\r\ntotal_forks:0\r\n"));
    tasks::run_next();
    assert_eq!(told(&mut process, &client, "current_save_keys_total"), "0");
    Disk::put_in(None);
}

#[test]
fn info_tells_how_far_a_snapshot_is_and_what_is_kept_for_it() {
    let (mut process, _, client) = process();
    process.ask(&client, "MSET a 1 b 2 c 3");
    process.ask(&client, "BGSAVE");
    assert_eq!(told(&mut process, &client, "current_cow_size"), "0");
    assert_eq!(told(&mut process, &client, "current_fork_perc"), "0.00");
    process.ask(&client, "SET a 4");
    assert_ne!(told(&mut process, &client, "current_cow_size"), "0");
    Persistence::of(process.server).written_keys.store(1, Ordering::Relaxed);
    assert_eq!(told(&mut process, &client, "current_fork_perc"), "33.33");
    tasks::run_next();
    assert_eq!(told(&mut process, &client, "current_cow_size"), "0");
    assert_eq!(told(&mut process, &client, "current_fork_perc"), "0.00");
    Disk::put_in(None);
}

/// As in Valkey.
#[test]
fn a_rewrite_counts_from_its_beginning() {
    let (mut process, _, client) = process();
    for count in ["1", "2"] {
        process.ask(&client, "BGREWRITEAOF");
        assert_eq!(told(&mut process, &client, "aof_rewrites"), count);
        tasks::run_next();
        assert_eq!(told(&mut process, &client, "aof_rewrites"), count);
    }
    Disk::put_in(None);
}

/// As where Valkey's child process is killed.
#[test]
fn debug_has_what_is_written_fail() {
    let (mut process, _, client) = process();
    process.server.config.set_internally(OptionId::enable_debug_command, "yes").unwrap();
    process.ask(&client, "SET k v");
    for (begin, status) in
        [("BGSAVE", "rdb_last_bgsave_status"), ("BGREWRITEAOF", "aof_last_bgrewrite_status")]
    {
        process.ask(&client, begin);
        assert_eq!(process.ask(&client, "DEBUG FAIL-CUT"), "+OK\r\n");
        tasks::run_next();
        process.turns(1);
        assert_eq!(told(&mut process, &client, status), "err");
        assert!(process.ask(&client, "DEBUG FAIL-CUT").starts_with("-ERR"));
    }
    Disk::put_in(None);
}
