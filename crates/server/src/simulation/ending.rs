//! The orderly end: what is acknowledged is on disk then, or the server goes on.

use bobbin_io::Peer;

use super::disk::{Disk, Faults};
use super::process::SimulatedProcess;
use super::{tasks, ticks};
use crate::base::random::Random;
use crate::persistence::aof::{self, Aof};
use crate::persistence::load;
use crate::process::shutdown;

/// A process that has save points, on an empty disk, and a client.
fn process() -> (SimulatedProcess, Disk, Peer) {
    let mut process = SimulatedProcess::new(2);
    let disk = Disk::default();
    Disk::put_in(Some(disk.clone()));
    let client = process.connect(0);
    process.ask(&client, "CONFIG SET save \"3600 1000000\"");
    (process, disk, client)
}

fn signal(process: &SimulatedProcess) {
    let server = process.server;
    server.end.signal("SIGTERM", server.config.shutdown_on_sigterm());
}

/// Does what the main thread does once an end is wanted; whether the server ends.
fn ends(process: &SimulatedProcess) -> bool {
    let mut request = process.server.end.take().expect("an end is wanted");
    shutdown::prepare_end(process.server, &mut request)
}

/// What a start finds in the snapshot.
fn found(disk: &Disk, line: &str) -> String {
    let mut reader = SimulatedProcess::new(1);
    let peer = reader.connect(0);
    Disk::put_in(Some(disk.after_kill()));
    load::load_at_start(reader.server).expect("it can be loaded");
    load::end_loading(reader.server);
    let answer = reader.ask(&peer, line);
    Disk::put_in(None);
    answer
}

/// Half of what a script does is in no snapshot, but the other half of the keys must be.
#[test]
fn no_end_forgets_what_there_is_because_a_script_has_written() {
    const LONG: &str = "redis.call('SET', KEYS[1], 'half') local n = 0 for i = 1, 200000 do n = n + i \
                        end return redis.call('SET', KEYS[1], 'whole')";
    let (mut process, disk, client) = process();
    ticks::jump(Some((Random::new(7), 2, 300)));
    let admin = process.connect(1);
    process.ask(&client, "SET k v");
    client.send(format!("EVAL \"{LONG}\" 1 script\r\n").as_bytes());
    while !process.server.gate.is_reserved() {
        process.turns(1);
    }
    admin.send(b"SHUTDOWN\r\n");
    process.turn(1);
    assert!(!ends(&process), "by a client");
    process.turn(1);
    assert_eq!(process.heard(&admin), "-ERR Errors trying to SHUTDOWN. Check logs.\r\n");
    assert!(!process.server.end.is_wanted());
    signal(&process);
    assert!(!ends(&process), "by a signal");
    assert_eq!(process.heard(&client), "", "the script is still running");
    while process.heard(&client).is_empty() {
        process.turns(1);
    }
    assert!(ends(&process), "the signal still counts");
    assert_eq!(found(&disk, "MGET k script"), "*2\r\n$1\r\nv\r\n$5\r\nwhole\r\n");
    tasks::forget();
}

/// A base that the disk does not take keeps nobody from ending the server.
#[test]
fn a_log_that_cannot_begin_holds_no_end_up() {
    for line in ["SHUTDOWN NOSAVE", "SHUTDOWN SAVE", "SIGTERM"] {
        let (mut process, disk, client) = process();
        let server = process.server;
        process.ask(&client, "SET k v");
        let ask_for_end = |process: &mut SimulatedProcess| {
            if line == "SIGTERM" {
                signal(process);
            } else {
                client.send(format!("{line}\r\n").as_bytes());
                process.turn(0);
            }
        };
        assert_eq!(process.ask(&client, "CONFIG SET appendonly yes"), "+OK\r\n");
        ask_for_end(&mut process);
        assert!(!ends(&process), "{line}: it is being written");
        process.turns(1);
        process.heard(&client);
        disk.set_faults(Faults { room: Some(0), ..Faults::default() });
        aof::step_log(server);
        assert_eq!(tasks::run_next().as_deref(), Some("bobbin-rewrite"));
        assert!(Aof::of(server).is_waiting_for_base());
        disk.set_faults(Faults::default());
        ask_for_end(&mut process);
        assert!(ends(&process), "{line}: it has failed");
        if line != "SHUTDOWN NOSAVE" {
            assert_eq!(found(&disk, "GET k"), "$1\r\nv\r\n");
        }
        tasks::forget();
        Disk::put_in(None);
    }
}

/// A base that could not be written is due again. An end that is refused leaves it so.
#[test]
fn a_refused_end_keeps_the_log_from_nothing() {
    let (mut process, disk, client) = process();
    let server = process.server;
    process.ask(&client, "SET k v");
    assert_eq!(process.ask(&client, "CONFIG SET appendonly yes"), "+OK\r\n");
    disk.set_faults(Faults { room: Some(0), ..Faults::default() });
    aof::step_log(server);
    assert_eq!(tasks::run_next().as_deref(), Some("bobbin-rewrite"));
    client.send(b"SHUTDOWN SAVE\r\n");
    process.turn(0);
    assert!(!ends(&process), "the disk is full");
    process.turns(1);
    assert_eq!(process.heard(&client), "-ERR Errors trying to SHUTDOWN. Check logs.\r\n");
    disk.set_faults(Faults::default());
    process.pass(5_000);
    process.turns(2);
    aof::step_log(server);
    assert_eq!(tasks::run_next().as_deref(), Some("bobbin-rewrite"));
    aof::step_log(server);
    assert!(!Aof::of(server).is_waiting_for_base());
    // Nor is any other task kept from beginning.
    assert_eq!(process.ask(&client, "BGSAVE"), "+Background saving started\r\n");
    tasks::forget();
    Disk::put_in(None);
}
