//! What counts towards `maxmemory`.

use std::sync::atomic::Ordering;

use bobbin_io::Peer;

use super::disk::Disk;
use super::process::SimulatedProcess;
use super::tasks;
use crate::engine::eviction;
use crate::engine::log::append_command;
use crate::engine::server::Switch;
use crate::persistence::aof;

/// A number that INFO tells.
fn told(process: &mut SimulatedProcess, client: &Peer, name: &str) -> usize {
    let info = process.ask(client, "INFO everything");
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect("there is such a field").parse().expect("it is a number")
}

/// Keys would be evicted for it though that frees none of it.
#[test]
fn what_waits_for_the_disk_does_not_count() {
    const COUNT: usize = 5000;
    let mut process = SimulatedProcess::new(1);
    Disk::put_in(Some(Disk::default()));
    let client = process.connect(0);
    process.ask(&client, "CONFIG SET appendonly yes");
    aof::step_log(process.server);
    tasks::run_next();
    aof::step_log(process.server);
    let fields = ["mem_aof_buffer", "aof_buffer_length"];
    assert_eq!(fields.map(|name| told(&mut process, &client, name)), [0, 0]);
    let set = format!("SET k {}\r\n", "v".repeat(1000));
    for _ in 0..COUNT / 50 {
        client.send(set.repeat(50).as_bytes());
        process.turns(2);
        assert_eq!(process.heard(&client), "+OK\r\n".repeat(50));
    }
    for name in fields {
        let waiting = told(&mut process, &client, name);
        assert!(waiting >= COUNT * 1000, "{name}: {waiting}");
        assert!(eviction::not_counted(process.server) >= waiting);
    }
    for _ in 0..2 {
        aof::step_log(process.server);
    }
    assert_eq!(fields.map(|name| told(&mut process, &client, name)), [0, 0]);
    Disk::put_in(None);
}

/// Evicting a key makes such messages, and further keys would be evicted for them.
#[test]
fn messages_on_their_way_to_clients_do_not_count() {
    const KEY_LEN: usize = 60_000;
    let mut process = SimulatedProcess::new(2);
    let (writer, reader) = (process.connect(0), process.connect(1));
    let key = "k".repeat(KEY_LEN);
    process.ask(&reader, "HELLO 3");
    process.ask(&reader, "CLIENT TRACKING ON");
    reader.send(format!("GET {key}\r\n").as_bytes());
    // The commands arrive in pieces.
    process.turns(200);
    assert_eq!(process.heard(&reader), "_\r\n");
    writer.send(format!("SET {key} v\r\n").as_bytes());
    for _ in 0..200 {
        process.turn(0);
    }
    assert!(eviction::not_counted(process.server) >= KEY_LEN, "it is posted");
    process.turn(1);
    assert!(eviction::not_counted(process.server) >= KEY_LEN, "it is being sent");
    assert!(process.unsent_bytes(1) >= KEY_LEN);
    assert!(process.heard(&reader).contains(&key));
    process.turn(1);
    // Other tests share the sum.
    assert_eq!(process.unsent_bytes(1), 0, "it is sent");
}

/// A log has a key in pieces. One that goes in between would come back without the first of them.
#[test]
fn no_key_is_evicted_while_a_data_set_is_loaded() {
    for switch in [Switch::LOADING, Switch::LOADING_ASIDE] {
        let mut process = SimulatedProcess::new(1);
        let client = process.connect(0);
        for key in 0..20 {
            process.ask(&client, &format!("SET {key} v"));
        }
        process.server.switches.set(switch, true);
        for line in ["maxmemory-policy allkeys-random", "maxmemory 1"] {
            assert_eq!(process.ask(&client, &format!("CONFIG SET {line}")), "+OK\r\n");
        }
        for _ in 0..20 {
            process.pass(100);
            process.turns(1);
        }
        assert_eq!(process.server.keyspace.len_of_first(), 20);
        if switch == Switch::LOADING_ASIDE {
            assert_eq!(process.ask(&client, "SET 0 w"), "+OK\r\n");
        }
        process.server.switches.set(switch, false);
        for _ in 0..20 {
            process.pass(100);
            process.turns(1);
        }
        assert_eq!(process.server.keyspace.len_of_first(), 0);
    }
}

/// It would be evicted for a reply that it has read.
#[test]
fn a_client_that_has_read_a_large_reply_no_longer_counts_for_it() {
    const LEN: usize = 1_000_000;
    let mut process = SimulatedProcess::new(1);
    let (client, other) = (process.connect(0), process.connect(0));
    process.ask(&other, "CONFIG SET maxmemory-clients 100mb");
    let mut request = Vec::new();
    append_command(&mut request, &[b"SET", b"k", &[b'v'; LEN]]);
    other.send(&request);
    while process.heard(&other).is_empty() {
        process.turns(1);
    }
    let id = process.ask(&client, "CLIENT ID");
    let id = id.trim_start_matches(':').trim_end().parse().expect("it is a number");
    let info = process.server.clients.find(id).expect("it is connected");
    client.send(b"GET k\r\n");
    let (mut read, mut counted) = (0, 0);
    while read < LEN {
        process.turns(1);
        counted = counted.max(info.counted_bytes.load(Ordering::Relaxed));
        read += client.received().len();
    }
    process.turns(1);
    assert!(counted >= LEN, "{counted}");
    let counted = info.counted_bytes.load(Ordering::Relaxed);
    assert!(counted < LEN / 10, "{counted}");
}
