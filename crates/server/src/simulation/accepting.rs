//! New connections are accepted as fast as the workers come to them. Clients that connect and go
//! again, however quickly, leave room for others.

use bobbin_io::Peer;

use super::process::SimulatedProcess;
use super::ticks;
use crate::base::random::Random;

/// What is never reached, as all of these clients have gone: no more than the workers may have
/// waiting, which is far less than `maxclients`.
const COUNT_MAX: usize = 100;
/// How many clients come in all.
const STORM: usize = 1_000;

/// As many clients as are accepted now, of 200, connect to a worker, send a command, and go.
fn storm(process: &SimulatedProcess, worker: usize, command: &str) -> usize {
    let mut count = 0;
    while process.server.workers.have_room() && count < 200 {
        let peer = process.connect(worker);
        peer.send(command.as_bytes());
        peer.close();
        count += 1;
    }
    count
}

#[test]
fn a_worker_that_takes_no_turn_gets_few_connections() {
    let mut process = SimulatedProcess::new(1);
    for _ in 0..20 {
        let count = storm(&process, 0, "PING\r\n");
        assert!((1..COUNT_MAX).contains(&count), "{count}");
        assert_eq!(process.server.clients.len(), count);
        process.turns(3);
        assert_eq!(process.server.clients.len(), 0, "they have gone");
    }
}

/// As clients do whose patience ends, and that try again.
#[test]
fn clients_that_have_gone_hold_others_up_while_their_commands_are_at_work() {
    const LONG: &str = "EVAL \"local n = 0 for i = 1, 40000 do n = n + i end return n\" 0\r\n";
    let mut process = SimulatedProcess::new(1);
    let admin = process.connect(0);
    process.turns(1);
    ticks::jump(Some((Random::new(7), 2, 1_000)));
    let (mut came, mut turns) = (0, 0);
    while came < STORM {
        came += storm(&process, 0, LONG);
        process.turns(1);
        // Those that come in a turn are worked on before it is seen that they have gone.
        let count = process.server.clients.len();
        assert!(count < 2 * COUNT_MAX, "{count} of {came}");
        turns += 1;
    }
    while process.server.clients.len() > 1 {
        process.turns(1);
        turns += 1;
        assert!(turns < 100_000, "{} are left", process.server.clients.len());
    }
    assert!(process.server.workers.have_room());
    assert_eq!(process.ask(&admin, "PING"), "+PONG\r\n");
}

/// A driver does not report of all connections at once when there are many.
#[test]
fn few_connections_a_turn_follow_while_others_keep_the_worker_at_work() {
    let mut process = SimulatedProcess::new(1);
    let others: Vec<Peer> = (0..COUNT_MAX).map(|_| process.connect(0)).collect();
    process.turns(3);
    let mut came = 0;
    for turn in 0..20 {
        others.iter().for_each(|peer| peer.send(b"PING\r\n"));
        came += storm(&process, 0, "PING\r\n");
        process.turns(1);
        assert!(came < COUNT_MAX + 10 * turn, "{came} in {turn} turns");
    }
    process.turns(3);
    assert!(process.server.workers.have_room());
    assert_eq!(process.server.clients.len(), others.len());
}

/// Nor do those whose commands wait for an administrator, who may have to connect first.
#[test]
fn what_may_take_for_ever_holds_nobody_up() {
    let mut process = SimulatedProcess::new(1);
    let admin = process.connect(0);
    assert_eq!(process.ask(&admin, "CLIENT PAUSE 100000 ALL"), "+OK\r\n");
    let begin = |process: &SimulatedProcess| -> Vec<Peer> {
        let peers: Vec<_> = (0..COUNT_MAX).map(|_| process.connect(0)).collect();
        peers.iter().for_each(|peer| peer.send(b"PING\r\nBLPOP k 0\r\n"));
        peers
    };
    for finish in [Peer::finish, Peer::close] {
        let peers = begin(&process);
        process.turns(2);
        peers.iter().for_each(finish);
        process.turns(2);
        assert!(process.server.workers.have_room());
    }
    let idle = begin(&process);
    process.turns(3);
    assert!(process.server.workers.have_room());
    process.pass(100_000);
    process.turns(3);
    assert!(idle.iter().all(|peer| process.heard(peer) == "+PONG\r\n"));
    assert!(process.server.workers.have_room());
}

/// All of its connections go to the worker that is left.
#[test]
fn a_worker_that_ends_leaves_nothing_counted() {
    let mut process = SimulatedProcess::new(2);
    while !process.server.workers.all()[1].unserved.is_high() {
        process.connect(1);
    }
    let count = process.server.clients.len();
    process.server.workers.want(1);
    process.server.workers.rebalance();
    assert!(process.server.workers.have_room(), "the other one has");
    process.turn(1);
    process.turn(1);
    assert!(!process.server.workers.have_room(), "all of them wait for the other one");
    process.turn(0);
    process.turn(0);
    assert!(process.server.workers.have_room());
    assert_eq!(process.server.clients.len(), count);
}
