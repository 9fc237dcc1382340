//! What clients hear, and what the server says of itself, while the disk is full.

use bobbin_io::Peer;

use super::disk::{Disk, Faults};
use super::process::SimulatedProcess;
use super::tasks;
use crate::engine::server::Switch;
use crate::persistence::aof;

/// A process of two workers with a log, and a client of each worker.
fn process() -> (SimulatedProcess, Disk, [Peer; 2]) {
    let mut process = SimulatedProcess::new(2);
    let disk = Disk::default();
    Disk::put_in(Some(disk.clone()));
    let clients = [process.connect(0), process.connect(1)];
    process.ask(&clients[0], "CONFIG SET appendonly yes");
    aof::step_log(process.server);
    tasks::run_next();
    aof::step_log(process.server);
    (process, disk, clients)
}

fn fill(disk: &Disk) {
    disk.set_faults(Faults { room: Some(0), ..Faults::default() });
}

#[test]
fn a_sync_does_not_hide_that_the_disk_took_nothing() {
    let (mut process, disk, [client, _]) = process();
    process.ask(&client, "SET there 1");
    aof::step_log(process.server);
    fill(&disk);
    assert_eq!(process.ask(&client, "SET lost 1"), "+OK\r\n");
    aof::step_log(process.server);
    assert!(process.server.switches.has(Switch::LOG_FAILED));
    aof::end_log_alone(process.server);
    assert!(process.server.switches.has(Switch::LOG_FAILED), "nothing was solved");
    Disk::put_in(None);
}

/// Records that were written just before the disk was full are not known to be unkept: they are
/// forced to disk.
#[test]
fn other_keys_are_read_whatever_was_written_before_the_disk_was_full() {
    let (mut process, disk, [client, _]) = process();
    assert_eq!(process.ask(&client, "SET there 1"), "+OK\r\n");
    aof::step_log(process.server);
    fill(&disk);
    assert_eq!(process.ask(&client, "SET lost 1"), "+OK\r\n");
    aof::step_log(process.server);
    assert_eq!(process.ask(&client, "CONFIG SET appendfsync always"), "+OK\r\n");
    assert_eq!(process.ask(&client, "GET there"), "$1\r\n1\r\n");
    assert_eq!(process.ask(&client, "GET lost"), "", "it is on no disk");
    Disk::put_in(None);
}

/// A transaction may write behind the command that makes replies wait.
#[test]
fn a_transaction_that_makes_replies_wait_waits_itself() {
    let (mut process, disk, [client, _]) = process();
    process.ask(&client, "MULTI");
    process.ask(&client, "CONFIG SET appendfsync always");
    process.ask(&client, "SET key 1");
    fill(&disk);
    assert_eq!(process.ask(&client, "EXEC"), "", "it is on no disk");
    disk.set_faults(Faults::default());
    aof::step_log(process.server);
    process.turns(2);
    assert_eq!(process.heard(&client), "*2\r\n+OK\r\n+OK\r\n");
    Disk::put_in(None);
}

/// The reply to the client that asks for `always` tells of nothing; other replies then wait.
#[test]
fn replies_can_be_made_to_wait_and_let_go_while_the_disk_is_full() {
    let (mut process, disk, [client, other]) = process();
    fill(&disk);
    assert_eq!(process.ask(&client, "SET lost 1"), "+OK\r\n");
    aof::step_log(process.server);
    assert_eq!(process.ask(&client, "CONFIG SET appendfsync always"), "+OK\r\n");
    assert_eq!(process.ask(&client, "GET other"), "$-1\r\n");
    assert_eq!(process.ask(&client, "GET lost"), "", "it is on no disk");
    assert_eq!(process.ask(&other, "CONFIG SET appendfsync everysec"), "+OK\r\n");
    process.turns(1);
    assert_eq!(process.heard(&client), "$1\r\n1\r\n");
    // What comes behind the switch, in the same packet, waits.
    client.send(b"CONFIG SET appendfsync always\r\nGET lost\r\n");
    process.turns(3);
    assert_eq!(process.heard(&client), "+OK\r\n");
    disk.set_faults(Faults::default());
    aof::step_log(process.server);
    process.turns(2);
    assert_eq!(process.heard(&client), "$1\r\n1\r\n");
    Disk::put_in(None);
}
