//! What counts towards `maxmemory`.

use bobbin_io::Peer;

use super::disk::Disk;
use super::process::Process;
use super::tasks;
use crate::engine::eviction;
use crate::persistence::aof;

/// A number that INFO tells.
fn told(process: &mut Process, client: &Peer, name: &str) -> usize {
    let info = process.ask(client, "INFO everything");
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect("there is such a field").parse().expect("it is a number")
}

/// Keys would be evicted for it though that frees none of it.
#[test]
fn what_waits_for_the_disk_does_not_count() {
    const COUNT: usize = 5000;
    let mut process = Process::new(1);
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
