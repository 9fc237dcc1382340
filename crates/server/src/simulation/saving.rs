//! Saving and loading, on a disk that is full, fails, or loses its power in the midst of it.

use std::sync::atomic::Ordering;

use bobbin_io::Peer;

use super::disk::{Disk, Faults};
use super::process::SimulatedProcess;
use super::tasks;
use crate::base::random::Random;
use crate::persistence::aof::{Aof, AofDirectory};
use crate::persistence::{Persistence, aof, load};

/// A process on an empty disk, and a client.
fn process() -> (SimulatedProcess, Disk, Peer) {
    let process = SimulatedProcess::new(1);
    let disk = Disk::default();
    Disk::put_in(Some(disk.clone()));
    let client = process.connect(0);
    (process, disk, client)
}

fn random(seed: u64) -> Random {
    Random::new(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// What a start finds in the snapshot, as the value of `k`.
fn found(reader: &mut SimulatedProcess, peer: &Peer, disk: Disk) -> Result<String, String> {
    reader.ask(peer, "FLUSHALL");
    Disk::put_in(Some(disk));
    load::load_at_start(reader.server)?;
    load::end_loading(reader.server);
    Ok(reader.ask(peer, "GET k"))
}

#[test]
fn a_power_cut_at_any_step_of_a_save_leaves_the_old_snapshot_or_the_new_one() {
    let (mut process, disk, client) = process();
    process.ask(&client, "SET k old");
    assert_eq!(process.ask(&client, "BGSAVE"), "+Background saving started\r\n");
    assert_eq!(tasks::run_next().as_deref(), Some("bobbin-save"));
    process.ask(&client, "SET k new");
    let mut reader = SimulatedProcess::new(1);
    let peer = reader.connect(0);
    let mut all = std::collections::BTreeSet::new();
    for steps in 0.. {
        assert_eq!(process.ask(&client, "BGSAVE"), "+Background saving started\r\n");
        let before = disk.after_kill();
        disk.cut_power_after(steps, random(steps as u64));
        tasks::run_next();
        let Some(left) = disk.left_by_power_cut() else { break };
        let value = found(&mut reader, &peer, left).expect("it can be loaded");
        assert!(["$3\r\nold\r\n", "$3\r\nnew\r\n"].contains(&&value[..]), "{steps}: {value}");
        all.insert(value);
        // The next one begins with the old one again.
        Disk::put_in(Some(disk.clone()));
        disk.be(&before);
    }
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!(found(&mut reader, &peer, disk.after_kill()).expect("it is there"), "$3\r\nnew\r\n");
    Disk::put_in(None);
}

#[test]
fn a_client_that_sends_nothing_more_gets_the_reply_of_its_save() {
    let (mut process, _disk, admin) = process();
    for (requests, replies) in [("SAVE\r\n", "+OK\r\n"), ("SAVE\r\nPING\r\n", "+OK\r\n+PONG\r\n")] {
        let client = process.connect(0);
        client.send(requests.as_bytes());
        client.finish();
        process.turns(3);
        assert_eq!((process.heard(&client).as_str(), client.is_ended()), ("", false));
        tasks::run_next();
        process.turns(3);
        assert_eq!((process.heard(&client).as_str(), client.is_ended()), (replies, true));
    }
    // What waits for other clients ends with its own.
    let client = process.connect(0);
    client.send(b"BLPOP k 0\r\n");
    client.finish();
    process.turns(3);
    assert!(client.is_ended());
    assert_eq!(process.ask(&admin, "LPUSH k v"), ":1\r\n");
    assert_eq!(process.ask(&admin, "LLEN k"), ":1\r\n");
    Disk::put_in(None);
}

/// It would have begun when the SAVE had ended, if that had held up all clients.
#[test]
fn a_save_beside_another_one_waits_for_a_snapshot_of_its_own() {
    let started = "+Background saving started\r\n";
    for (save, at_once, later) in [("SAVE", "", "+OK\r\n"), ("BGSAVE", started, "")] {
        let (mut process, disk, client) = process();
        let other = process.connect(0);
        process.ask(&client, "SET k old");
        assert_eq!(process.ask(&client, "SAVE"), "");
        process.ask(&other, "SET k new");
        assert_eq!(process.ask(&other, save), at_once);
        assert_eq!(tasks::run_next().as_deref(), Some("bobbin-save"));
        process.turns(1);
        assert_eq!(process.heard(&client), "+OK\r\n");
        assert_eq!(process.heard(&other), "");
        process.pass(1000);
        process.turns(1);
        assert_eq!(tasks::run_next().as_deref(), Some("bobbin-save"));
        process.turns(1);
        assert_eq!(process.heard(&other), later);
        let left = disk.after_kill();
        assert_eq!(process.ask(&client, "BGSAVE"), started);
        let refused = "-ERR Background save already in progress\r\n";
        assert_eq!(process.ask(&other, save), refused, "beside a save in the background");
        tasks::run_next();
        let mut reader = SimulatedProcess::new(1);
        let peer = reader.connect(0);
        assert_eq!(found(&mut reader, &peer, left).expect("it is there"), "$3\r\nnew\r\n");
        Disk::put_in(None);
    }
}

#[test]
fn a_full_disk_keeps_the_old_snapshot_and_is_told_of() {
    let (mut process, disk, client) = process();
    process.ask(&client, "CONFIG SET save \"3600 1000000\"");
    process.ask(&client, "SET k old");
    assert_eq!(process.ask(&client, "SAVE"), "");
    tasks::run_next();
    process.turns(1);
    assert_eq!(process.heard(&client), "+OK\r\n");
    let names = disk.list();
    let full = Faults { room: Some(50), ..Faults::default() };
    let failing = Faults { failing_syncs: 1, ..Faults::default() };
    for faults in [full, failing] {
        process.ask(&client, "SET k new");
        disk.set_faults(faults);
        assert_eq!(process.ask(&client, "BGSAVE"), "+Background saving started\r\n");
        tasks::run_next();
        assert_eq!(disk.list(), names, "nothing is left over of {faults:?}");
        let answer = process.ask(&client, "SET k newer");
        assert!(answer.starts_with("-MISCONF"), "{answer}");
        assert_eq!(process.ask(&client, "GET k"), "$3\r\nnew\r\n");
        disk.set_faults(Faults::default());
        // It is tried again by itself.
        process.pass(10_000);
        process.ask(&client, "BGSAVE");
        tasks::run_next();
        assert_eq!(process.ask(&client, "SET k old"), "+OK\r\n");
    }
    Disk::put_in(None);
}

#[test]
fn what_changes_beside_a_save_is_not_in_it() {
    let (mut process, disk, client) = process();
    for number in 0..500 {
        process.ask(&client, &format!("SET key:{number} before"));
    }
    process.ask(&client, "SET k before");
    assert_eq!(process.ask(&client, "BGSAVE"), "+Background saving started\r\n");
    process.ask(&client, "SET k after");
    process.ask(&client, "DEL key:1 key:2 key:3");
    let library = "#!lua name=l\nredis.register_function('f', function() return 1 end)";
    let len = library.len();
    client
        .send(format!("*3\r\n$8\r\nFUNCTION\r\n$4\r\nLOAD\r\n${len}\r\n{library}\r\n").as_bytes());
    process.turns(2);
    assert_eq!(process.heard(&client), "$1\r\nl\r\n");
    tasks::run_next();
    let mut reader = SimulatedProcess::new(1);
    let peer = reader.connect(0);
    let left = disk.after_power_cut(&mut Random::new(1));
    assert_eq!(found(&mut reader, &peer, left).expect("it is there"), "$6\r\nbefore\r\n");
    assert_eq!(reader.ask(&peer, "DBSIZE"), ":501\r\n");
    assert_eq!(reader.ask(&peer, "FUNCTION LIST"), "*0\r\n");
    Disk::put_in(None);
}

/// A log that a crash cut short is loaded up to there, whole transactions only, and the rest is cut
/// off.
#[test]
fn a_log_is_loaded_up_to_where_it_is_whole() {
    let (mut process, disk, client) = process();
    process.ask(&client, "CONFIG SET appendonly yes");
    aof::step_log(process.server);
    tasks::run_next();
    aof::step_log(process.server);
    for number in 0..20 {
        process.ask(&client, "MULTI");
        process.ask(&client, &format!("SET k {number}"));
        process.ask(&client, &format!("SET twin {number}"));
        process.ask(&client, "EXEC");
    }
    aof::step_log(process.server);
    let mut reader = SimulatedProcess::new(1);
    let peer = reader.connect(0);
    let mut seen = std::collections::BTreeSet::new();
    for seed in 1..60u64 {
        let left = disk.after_power_cut(&mut random(seed));
        for again in [false, true] {
            reader.ask(&peer, "FLUSHALL");
            Disk::put_in(Some(left.clone()));
            aof::load_log(reader.server).unwrap_or_else(|error| panic!("{seed}, {again}: {error}"));
            let (value, twin) = (reader.ask(&peer, "GET k"), reader.ask(&peer, "GET twin"));
            assert_eq!(value, twin, "{seed}");
            seen.insert(value);
        }
        // The directory may name an increment more, which was never written.
        reader.ask(&peer, "FLUSHALL");
        Disk::put_in(Some(disk.after_power_cut(&mut random(seed))));
        let directory = AofDirectory::of(&reader.server.config);
        let mut manifest = directory.load().expect("it can be read").expect("it is there");
        let name = manifest.add_increment(directory.prefix());
        drop(directory.open(&name, true).expect("it can be made"));
        directory.persist(&manifest).expect("it can be written");
        aof::load_log(reader.server).unwrap_or_else(|error| panic!("{seed}: {error}"));
        assert_eq!(reader.ask(&peer, "GET k"), reader.ask(&peer, "GET twin"), "{seed}");
    }
    assert!(seen.len() > 5, "{seen:?}");
    Disk::put_in(None);
}

/// A server that is told to end while it loads its log goes no further, and leaves the log as it
/// is.
#[test]
fn loading_a_log_ends_when_the_server_has_to() {
    let (mut process, disk, client) = process();
    process.ask(&client, "CONFIG SET aof-use-rdb-preamble no");
    process.ask(&client, "CONFIG SET appendonly yes");
    aof::step_log(process.server);
    tasks::run_next();
    aof::step_log(process.server);
    for number in 0..300 {
        process.ask(&client, &format!("SET k {number}"));
    }
    aof::step_log(process.server);
    let left = disk.after_kill();
    for ends in [false, true] {
        let mut reader = SimulatedProcess::new(1);
        Disk::put_in(Some(left.clone()));
        let server = reader.server;
        if ends {
            server.end.signal("SIGTERM", server.config.shutdown_on_sigterm());
        }
        assert_eq!(aof::start_log(server), Ok(!ends));
        assert_eq!(left.list(), disk.list());
        load::end_loading(server);
        let peer = reader.connect(0);
        let value = if ends { "$-1\r\n" } else { "$3\r\n299\r\n" };
        assert_eq!(reader.ask(&peer, "GET k"), value);
        let loading = &Persistence::of(server).loading;
        let (total, loaded) = (&loading.total_bytes, &loading.loaded_bytes);
        let [total, loaded] = [total, loaded].map(|bytes| bytes.load(Ordering::Relaxed));
        assert_eq!(loaded == total, !ends, "{loaded} of {total}");
    }
    Disk::put_in(None);
}

/// A rewrite begins with the log turned off. When it is turned on meanwhile, the base lacks what
/// happens until then.
#[test]
fn the_log_is_numbered_by_the_clock_unless_each_turn_asks_for_its_last_number() {
    let mut process = SimulatedProcess::new(2);
    let client = process.connect(0);
    Disk::put_in(Some(Disk::default()));
    process.server.log.switch(true);
    let mut last = 0;
    for (option, by_clock) in [
        ("hz 10", true),
        ("appendfsync always", true),
        ("appendonly yes", false),
        ("appendfsync everysec", true),
    ] {
        // Replies may wait for the disk.
        process.ask(&client, &format!("CONFIG SET {option}"));
        assert_eq!(process.server.log.is_by_clock(), by_clock, "{option}");
        process.ask(&client, "INCR n");
        let number = process.server.log.last();
        assert!(number > last, "{number} behind {last} with {option}");
        last = number;
    }
}

#[test]
fn a_base_that_was_begun_before_the_log_was_turned_on_does_not_make_it_whole() {
    let (mut process, disk, client) = process();
    let server = process.server;
    process.ask(&client, "SET k 1");
    assert!(process.ask(&client, "BGREWRITEAOF").starts_with("+Background"));
    process.ask(&client, "SET k 2");
    process.ask(&client, "CONFIG SET appendonly yes");
    process.ask(&client, "SET other 1");
    aof::step_log(server);
    tasks::run_next();
    aof::step_log(server);
    assert!(Aof::of(server).is_waiting_for_base());
    assert_eq!(process.ask(&client, "WAITAOF 1 0 10"), "");
    process.pass(2_000);
    process.turns(2);
    assert_eq!(process.heard(&client), "*2\r\n:0\r\n:0\r\n");
    // The rewrite that the log needs has begun meanwhile.
    aof::step_log(server);
    assert_eq!(tasks::run_next().as_deref(), Some("bobbin-rewrite"));
    aof::step_log(server);
    assert_eq!(process.ask(&client, "WAITAOF 1 0 0"), "*2\r\n:1\r\n:0\r\n");
    let mut reader = SimulatedProcess::new(1);
    let peer = reader.connect(0);
    reader.turns(1);
    Disk::put_in(Some(disk.after_power_cut(&mut random(1))));
    aof::load_log(reader.server).expect("it can be loaded");
    assert_eq!(reader.ask(&peer, "MGET k other"), "*2\r\n$1\r\n2\r\n$1\r\n1\r\n");
    Disk::put_in(None);
}

/// A manifest may be on disk though the disk failed to say so. A later base must not be written
/// over a file that it names.
#[test]
fn a_base_that_may_count_is_not_written_over() {
    let (one, both) = ("*1\r\n$1\r\n1\r\n", "*2\r\n$1\r\n1\r\n$1\r\n2\r\n");
    let mut reader = SimulatedProcess::new(1);
    let peer = reader.connect(0);
    let mut all = std::collections::BTreeSet::new();
    for good_syncs in 0..8 {
        for steps in 0.. {
            let (mut process, disk, client) = process();
            process.ask(&client, "CONFIG SET appendonly yes");
            aof::step_log(process.server);
            process.ask(&client, "RPUSH list 1");
            aof::step_log(process.server);
            disk.set_faults(Faults { good_syncs, failing_syncs: 1, ..Faults::default() });
            tasks::run_next();
            disk.set_faults(Faults::default());
            process.ask(&client, "CONFIG SET appendonly no");
            aof::step_log(process.server);
            while tasks::run_next().is_some() {}
            process.ask(&client, "RPUSH list 2");
            process.ask(&client, "BGREWRITEAOF");
            disk.cut_power_after(steps, random(steps as u64));
            while tasks::run_next().is_some() {}
            let Some(left) = disk.left_by_power_cut() else { break };
            reader.ask(&peer, "FLUSHALL");
            Disk::put_in(Some(left));
            aof::load_log(reader.server).expect("it can be loaded");
            let list = reader.ask(&peer, "LRANGE list 0 -1");
            assert!(["*0\r\n", one, both].contains(&&list[..]), "{good_syncs}, {steps}: {list}");
            all.insert(list);
        }
    }
    assert_eq!(all.len(), 3, "{all:?}");
    Disk::put_in(None);
}

/// A rewrite whose manifest cannot be written leaves no files behind, whether it wrote a base for a
/// log that has one or the first one; and what may count is deleted only once it does not.
#[test]
fn a_manifest_that_cannot_be_written_leaves_no_files_behind() {
    let mut reader = SimulatedProcess::new(1);
    let peer = reader.connect(0);
    for (good_syncs, has_base) in (0..10).flat_map(|syncs| [(syncs, false), (syncs, true)]) {
        for steps in 0.. {
            let (mut process, disk, client) = process();
            let server = process.server;
            process.ask(&client, "SET k v");
            process.ask(&client, "CONFIG SET appendonly yes");
            aof::step_log(server);
            if has_base {
                tasks::run_next();
                process.ask(&client, "BGREWRITEAOF");
            }
            disk.set_faults(Faults { good_syncs, failing_syncs: 1, ..Faults::default() });
            aof::step_log(server);
            while tasks::run_next().is_some() {}
            disk.set_faults(Faults::default());
            disk.cut_power_after(steps, random(steps as u64));
            for value in ["yes", "no"] {
                process.ask(&client, &format!("CONFIG SET aof-disable-auto-gc {value}"));
            }
            let cut = disk.left_by_power_cut();
            process.pass(2_000);
            process.ask(&client, "BGREWRITEAOF");
            process.turns(2);
            aof::step_log(server);
            while tasks::run_next().is_some() {}
            let names = disk.list();
            assert_eq!(names.len(), 4, "{good_syncs} {has_base} {steps}: {names:?}");
            let Some(left) = cut else { break };
            reader.ask(&peer, "FLUSHALL");
            Disk::put_in(Some(left));
            aof::load_log(reader.server).expect("it can be loaded");
            if has_base {
                assert_eq!(reader.ask(&peer, "GET k"), "$1\r\nv\r\n");
            }
        }
    }
    Disk::put_in(None);
}

/// What the disk lost of one increment takes what comes after it along: the log goes on in another
/// one only once a base makes good what was lost.
#[test]
fn nothing_outlives_what_the_disk_did_not_keep() {
    let mut reader = SimulatedProcess::new(1);
    let peer = reader.connect(0);
    let (mut lists, mut refused) = (std::collections::BTreeSet::new(), 0);
    for rewrites_again in [false, true] {
        let (mut process, disk, client) = process();
        process.ask(&client, "CONFIG SET appendonly yes");
        aof::step_log(process.server);
        tasks::run_next();
        process.ask(&client, "RPUSH list 1");
        process.ask(&client, "SET brief v PX 500");
        aof::step_log(process.server);
        disk.set_faults(Faults { failing_syncs: 1, ..Faults::default() });
        process.ask(&client, "BGREWRITEAOF");
        assert_eq!(process.ask(&client, "RPUSH list 2"), ":2\r\n");
        aof::step_log(process.server);
        while tasks::run_next().is_some() {}
        let answer = process.ask(&client, "RPUSH list 3");
        assert!(answer.starts_with("-MISCONF"), "{answer}");
        process.pass(2_000);
        if rewrites_again {
            assert_eq!(process.ask(&client, "GET brief"), "$-1\r\n");
        }
        aof::step_log(process.server);
        aof::step_log(process.server);
        for seed in 0..300 {
            reader.ask(&peer, "FLUSHALL");
            Disk::put_in(Some(disk.after_power_cut(&mut random(seed))));
            match aof::load_log(reader.server) {
                Ok(_) => drop(lists.insert(reader.ask(&peer, "LRANGE list 0 -1"))),
                Err(_) => refused += 1,
            }
        }
        Disk::put_in(Some(disk.clone()));
        process.pass(2_000);
        process.turns(1);
        aof::step_log(process.server);
        while tasks::run_next().is_some() {}
        aof::step_log(process.server);
        assert_eq!(process.ask(&client, "RPUSH list 3"), ":3\r\n");
        reader.ask(&peer, "FLUSHALL");
        Disk::put_in(Some(disk.after_kill()));
        aof::load_log(reader.server).expect("it can be loaded");
        assert_eq!(reader.ask(&peer, "LINDEX list 1"), "$1\r\n2\r\n");
    }
    assert!(refused > 0, "a hole in a file is told of");
    let whole = "*2\r\n$1\r\n1\r\n$1\r\n2\r\n";
    let beginnings = ["*0\r\n", "*1\r\n$1\r\n1\r\n", whole];
    assert!(lists.iter().all(|list| beginnings.contains(&&list[..])), "{lists:?}");
    Disk::put_in(None);
}

/// What was done while there was no log is on no disk before there is a base.
#[test]
fn nobody_is_told_that_the_disk_has_what_was_done_before_the_log_has_a_base() {
    let (mut process, _, client) = process();
    assert_eq!(process.ask(&client, "SET k v"), "+OK\r\n");
    assert_eq!(process.ask(&client, "CONFIG SET appendonly yes"), "+OK\r\n");
    assert_eq!(process.ask(&client, "WAITAOF 1 0 0"), "");
    aof::step_log(process.server);
    process.turns(1);
    assert_eq!(process.heard(&client), "");
    tasks::run_next();
    process.turns(1);
    assert_eq!(process.heard(&client), "*2\r\n:1\r\n:0\r\n");
    Disk::put_in(None);
}

/// Whatever the disk takes of a log that is turned off, a client that waits for it is told so.
#[test]
fn clients_that_wait_for_the_log_hear_that_it_was_turned_off() {
    let (mut process, disk, client) = process();
    let server = process.server;
    let admin = process.connect(0);
    process.ask(&client, "CONFIG SET appendonly yes");
    // Without a base, with one and a full disk, and with one and a disk that takes all.
    for (has_base, room) in [(false, None), (true, Some(0)), (true, None)] {
        process.ask(&admin, "CONFIG SET appendonly yes");
        aof::step_log(server);
        if has_base {
            tasks::run_next();
        }
        disk.set_faults(Faults { room, ..Faults::default() });
        assert_eq!(process.ask(&client, "SET k v"), "+OK\r\n");
        let waits = if has_base { "WAITAOF 1 0 0" } else { "WAITAOF 1 1 0" };
        assert_eq!(process.ask(&client, waits), "");
        assert_eq!(process.ask(&admin, "CONFIG SET appendonly no"), "+OK\r\n");
        aof::step_log(server);
        // Waits for replicas are looked at by the clock.
        process.pass(200);
        process.turns(3);
        let answer = process.heard(&client);
        assert!(answer.starts_with("-ERR WAITAOF cannot"), "{has_base} {room:?}: {answer}");
        disk.set_faults(Faults::default());
        while tasks::run_next().is_some() {}
    }
    Disk::put_in(None);
}

/// A rewrite waits for a full disk to take what comes before it. A client that ends the server, or
/// turns the log off, does not.
#[test]
fn nobody_waits_behind_a_rewrite_for_a_full_disk() {
    for ends in [true, false] {
        let (mut process, disk, client) = process();
        let server = process.server;
        process.ask(&client, "CONFIG SET appendonly yes");
        aof::step_log(server);
        tasks::run_next();
        disk.set_faults(Faults { room: Some(0), ..Faults::default() });
        assert_eq!(process.ask(&client, "SET k v"), "+OK\r\n");
        aof::step_log(server);
        assert!(process.ask(&client, "SET k w").starts_with("-MISCONF"));
        assert!(process.ask(&client, "BGREWRITEAOF").starts_with("+Background"));
        aof::step_log(server);
        assert!(aof::log_has_orders(server), "it waits");
        if ends {
            aof::end_log_alone(server);
        } else {
            assert_eq!(process.ask(&client, "CONFIG SET appendonly no"), "+OK\r\n");
            aof::step_log(server);
            assert_eq!(process.ask(&client, "SET k w"), "+OK\r\n");
        }
        assert!(!aof::log_has_orders(server));
        assert_eq!(tasks::run_next().as_deref(), Some("bobbin-rewrite"), "it ends");
        Disk::put_in(None);
    }
}

/// A reply that told of nothing, in the turn that ended `always`, must not let the next one of the
/// same length go before it is on disk.
#[test]
fn a_reply_waits_for_the_disk_once_another_thread_wants_that_again() {
    let mut process = SimulatedProcess::new(2);
    let disk = Disk::default();
    Disk::put_in(Some(disk.clone()));
    let (client, other) = (process.connect(0), process.connect(1));
    let server = process.server;
    process.ask(&client, "CONFIG SET appendonly yes");
    aof::step_log(server);
    tasks::run_next();
    aof::step_log(server);
    for policy in ["always", "everysec"] {
        assert_eq!(process.ask(&client, &format!("CONFIG SET appendfsync {policy}")), "+OK\r\n");
    }
    // The first worker has no turn meanwhile.
    other.send(b"CONFIG SET appendfsync always\r\n");
    process.turn(1);
    assert_eq!(process.heard(&other), "+OK\r\n");
    disk.set_faults(Faults { room: Some(0), ..Faults::default() });
    client.send(b"SET k v\r\n");
    process.turn(0);
    assert_eq!(process.heard(&client), "", "it is on no disk");
    disk.set_faults(Faults::default());
    aof::step_log(server);
    process.turns(2);
    assert_eq!(process.heard(&client), "+OK\r\n");
    Disk::put_in(None);
}

/// A connection that keeps back too much executes nothing more. What it goes on sending stays as it
/// is, also where a large argument lies aside.
#[test]
fn a_large_argument_waits_whole_behind_what_is_kept_back() {
    let mut process = SimulatedProcess::new(2);
    let disk = Disk::default();
    Disk::put_in(Some(disk.clone()));
    let client = process.connect(0);
    let server = process.server;
    let large = "v".repeat(2 << 20);
    client.send(format!("*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$2097152\r\n{large}\r\n").as_bytes());
    process.turns(2);
    assert_eq!(process.heard(&client), "+OK\r\n");
    process.ask(&client, "CONFIG SET appendonly yes");
    aof::step_log(server);
    tasks::run_next();
    aof::step_log(server);
    assert_eq!(process.ask(&client, "CONFIG SET appendfsync always"), "+OK\r\n");
    disk.set_faults(Faults { room: Some(0), ..Faults::default() });
    let large = format!("$100000\r\n{}\r\n", "\r\n$1".repeat(25_000));
    // The first argument begins to arrive in the turn that comes to keep back too much.
    let command =
        format!("SET k v\r\nGET large\r\n*5\r\n$4\r\nMSET\r\n$1\r\na\r\n{large}$1\r\nb\r\n{large}");
    for part in command.as_bytes().chunks(8_000) {
        client.send(part);
        process.turns(1);
    }
    assert!(process.heard(&client).is_empty(), "it is kept back");
    disk.set_faults(Faults::default());
    aof::step_log(server);
    process.turns(3);
    let mut heard = String::new();
    for _ in 0..100 {
        aof::step_log(server);
        process.turns(1);
        heard += &process.heard(&client);
    }
    assert!(heard.ends_with("v\r\n+OK\r\n"), "{}", &heard[heard.len().saturating_sub(60)..]);
    assert_eq!(process.ask(&client, "STRLEN b"), ":100000\r\n");
    Disk::put_in(None);
}
