use super::*;
use crate::config::Config;
use crate::engine::log::append_command;
use crate::persistence::aof::AofReader;
use crate::persistence::aof::replay::Replay;
use crate::simulation::process::SimulatedProcess;

/// A string in a snapshot, with a length of four bytes.
fn add_string(file: &mut Vec<u8>, bytes: &[u8]) {
    file.push(0x80);
    file.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    file.extend_from_slice(bytes);
}

fn add_key(file: &mut Vec<u8>, key: &str, value: &[u8]) {
    file.push(0);
    add_string(file, key.as_bytes());
    add_string(file, value);
}

#[test]
fn no_stream_goes_on_from_an_offset_that_none_has() {
    for (offset, goes_on) in
        [(1 << 62, true), ((1 << 62) + 1, false), (i64::MAX as u64, false), (u64::MAX, false)]
    {
        let server = crate::process::create(Config::new(), &[]).expect("a server can be made");
        let rules = LoadRules { resumes: true, ..LoadRules::default() };
        let mut file = b"REDIS0011".to_vec();
        for (name, value) in [("repl-id", "a".repeat(40)), ("repl-offset", offset.to_string())] {
            file.push(0xfa);
            add_string(&mut file, name.as_bytes());
            add_string(&mut file, value.as_bytes());
        }
        file.extend_from_slice(&[0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
        load_with(server, &server.keyspace, &file[..], rules, 1).expect("it is a snapshot");
        let found = Persistence::of(server).loading.position().map(|position| position.offset);
        assert_eq!(found, goes_on.then_some(offset));
        assert_eq!(server.feed.is_on(), goes_on);
    }
}

/// The only thread that makes values finds a fault while the one that reads waits for it.
#[test]
fn a_fault_ends_loading_though_blocks_wait() {
    let server = crate::process::create(Config::new(), &[]).expect("a server can be made");
    let mut file = b"REDIS0011\xfe\0".to_vec();
    // The expired key is found while the queue is full.
    (0..30_000).for_each(|number| add_key(&mut file, &format!("key:{number}"), b""));
    add_key(&mut file, "key:0", b"again");
    let large = vec![b'x'; BLOCK_BYTES];
    (0..3 * BLOCKS_MAX).for_each(|n| add_key(&mut file, &format!("large:{n}"), &large));
    file.extend_from_slice(&[0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    let rules = LoadRules::default();
    let error = load_with(server, &server.keyspace, &file[..], rules, 1).unwrap_err();
    assert_eq!(error, "RDB has duplicated key 'key:0' in DB 0");
}

/// Else a replica that takes a copy, whose earlier keys are freed in the background, would need
/// almost twice the memory. Loading is faster than the thread that frees.
#[test]
fn what_was_flushed_is_freed_as_fast_as_keys_are_loaded() {
    let process = SimulatedProcess::new(1);
    let (server, mut thread) = (process.server, process.observer());
    let file = |prefix: &str| {
        let mut file = b"REDIS0011\xfe\0".to_vec();
        (0..KEYS).for_each(|number| add_key(&mut file, &format!("{prefix}{number}"), b"v"));
        file.extend_from_slice(&[0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
        file
    };
    let (before, after, mut log) = (file("before:"), file("after:"), Vec::new());
    let set = |number: usize| {
        append_command(&mut log, &[b"SET", number.to_string().as_bytes(), b"v"]);
    };
    (0..KEYS).for_each(set);
    let ways: [&dyn Fn(&mut Data); 3] = [
        &|data| {
            data.release();
            data.leave();
            let loaded = load_into(server, &server.keyspace, &after[..], LoadRules::default());
            assert_eq!(loaded.map(|(loaded, _)| loaded.keys), Ok(KEYS as u64));
            data.enter();
            data.hold_gate_anyway();
        },
        &|data| {
            load_held(server, data, &after[..], LoadRules::default()).expect("it is whole");
        },
        &|data| {
            data.release();
            data.leave();
            let mut replay = Replay::new(server).expect("there are threads for all");
            let run = replay.run_all(&mut AofReader::new(&log[..], 0), 0, |_| Ok(()));
            assert!(run.is_ok_and(|(good, ended)| good == log.len() as u64 && ended.is_ok()));
            data.enter();
            data.hold_gate_anyway();
        },
    ];
    for (way, load) in ways.into_iter().enumerate() {
        // Meanwhile the thread that frees in the background has something else to do.
        let goes_on = lazyfree::hold_up();
        let data = thread.data();
        data.enter();
        data.hold_gate_anyway();
        load_held(server, data, &before[..], LoadRules::default()).expect("it is whole");
        lazyfree::free_databases(data.flush_all());
        load(data);
        let left = lazyfree::take_flushed(b"before:");
        drop(data.flush_all());
        data.release();
        data.leave();
        drop(goes_on);
        assert!(left < KEYS / 2, "{left} are left in way {way}");
    }
}

const KEYS: usize = 10_000;
