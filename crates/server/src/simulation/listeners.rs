//! Clients that cause more messages than a worker delivers: they wait, and nothing piles up.

use bobbin_io::Peer;

use super::process::SimulatedProcess;
use super::ticks;
use crate::base::random::Random;

/// What may wait for a worker: the limit, and what one turn of the other adds.
const BACKLOG_MAX: usize = 512 * 1024;
const COUNT: usize = 20_000;

/// The largest backlog of the second worker while the first one serves all that a client has sent.
/// The second one has few turns at first.
fn most(process: &mut SimulatedProcess, client: &Peer, requests: &str) -> usize {
    let mut most = 0;
    client.send(requests.as_bytes());
    for turn in 0..4000 {
        process.pass(1);
        process.turn(0);
        most = most.max(process.backlog_bytes(1));
        if turn % 64 == 0 || turn > 1000 {
            process.turn(1);
        }
    }
    most
}

/// Two workers; a client of each, and what the second one has sent to be told of.
fn process(listen: &str) -> (SimulatedProcess, Peer, Peer) {
    let mut process = SimulatedProcess::new(2);
    let (client, listener) = (process.connect(0), process.connect(1));
    assert_ne!(process.ask(&listener, listen), "");
    (process, client, listener)
}

/// How often the text is in what a client was told.
fn count(process: &SimulatedProcess, listener: &Peer, text: &str) -> usize {
    process.heard(listener).matches(text).count()
}

#[test]
fn nothing_piles_up_for_monitors() {
    let (mut process, client, monitor) = process("MONITOR");
    let value = "v".repeat(300);
    let most = most(&mut process, &client, &format!("SET key {value}\r\n").repeat(COUNT));
    assert!((1..BACKLOG_MAX).contains(&most), "{most}");
    assert_eq!(count(&process, &monitor, "\"SET\""), COUNT);
    assert_eq!(process.backlog_bytes(1), 0);
}

#[test]
fn nothing_piles_up_for_clients_that_keep_copies() {
    for mode in ["", "BCAST"] {
        let (mut process, client, reader) = process("HELLO 3");
        process.ask(&reader, &format!("CLIENT TRACKING ON {mode}"));
        let name = "n".repeat(1000);
        for number in 0..2000 {
            process.ask(&reader, &format!("GET {name}:{number}"));
        }
        process.heard(&reader);
        let sets: String = (0..2000).map(|number| format!("SET {name}:{number} v\r\n")).collect();
        let most = most(&mut process, &client, &sets);
        assert!((1..BACKLOG_MAX).contains(&most), "{mode}: {most}");
        assert_eq!(count(&process, &reader, &name), 2000);
        assert_eq!(process.backlog_bytes(1), 0);
    }
}

/// Whether a script or a transaction is done at once or in slices.
#[test]
fn nothing_piles_up_for_subscribers_of_what_takes_long() {
    let body = "for i = 1, 100 do redis.call('PUBLISH', 'channel', ARGV[1]) end";
    let payload = "x".repeat(1000);
    let script = format!("EVAL \"{body}\" 0 {payload}\r\n");
    let publish = format!("PUBLISH channel {payload}\r\n").repeat(100);
    for requests in [script, format!("MULTI\r\n{publish}EXEC\r\n")] {
        for jumps in [None, Some((Random::new(7), 30, 1_000))] {
            let (mut process, client, listener) = process("SUBSCRIBE channel");
            ticks::jump(jumps);
            let most = most(&mut process, &client, &requests.repeat(100));
            ticks::jump(None);
            assert!((1..BACKLOG_MAX).contains(&most), "{most}");
            assert_eq!(count(&process, &listener, &payload), 10_000);
            assert_eq!(process.backlog_bytes(1), 0);
        }
    }
}
