//! Searches, most of which end soon, in large values.

use bobbin_io::Peer;

use super::jobs::{begin, process, wait};
use super::process::SimulatedProcess;
use super::ticks;

/// A process with a list of 10,000 elements, a sparse string of 20 MB, a stream with 10,000 pending
/// entries, and two large sets with the same members.
fn process_to_search() -> (SimulatedProcess, Peer) {
    let (mut process, client, admin) = process();
    let elements: String = (0..10_000).map(|at| format!("$5\r\ne{at:04}\r\n")).collect();
    client.send(format!("*10002\r\n$5\r\nRPUSH\r\n$4\r\nlist\r\n{elements}").as_bytes());
    process.turns(2);
    assert_eq!(process.heard(&client), ":10000\r\n");
    for (command, reply) in [
        ("SETBIT bits 160000000 1", ":0\r\n"),
        ("SETBIT bits 500000 1", ":0\r\n"),
        ("COPY one same", ":1\r\n"),
        ("XGROUP CREATE stream group 0 MKSTREAM", "+OK\r\n"),
    ] {
        assert_eq!(process.ask(&admin, command), reply, "{command}");
    }
    for _ in 0..10 {
        let adds: String = (0..1000).map(|_| "XADD stream * a b\r\n").collect();
        client.send(adds.as_bytes());
        process.turns(4);
        process.heard(&client);
        client.send(b"XREADGROUP GROUP group me COUNT 1000 STREAMS stream >\r\n");
        process.turns(20);
        process.heard(&client);
    }
    (process, client)
}

#[test]
fn a_search_that_ends_soon_is_done_at_once() {
    let (mut process, client) = process_to_search();
    ticks::jump(None);
    process.pass(10);
    for (command, reply) in [
        ("LPOS list e0900", ":900\r\n"),
        ("LPOS list e9500 RANK -1", ":9500\r\n"),
        ("LPOS list e0005 COUNT 1", "*1\r\n:5\r\n"),
        ("LINSERT list BEFORE e0005 new", ":10001\r\n"),
        ("LREM list 1 new", ":1\r\n"),
        ("LREM list -1 e9990", ":1\r\n"),
        ("SORT list BY nosort LIMIT 5000 1", "*1\r\n$5\r\ne5000\r\n"),
        ("SINTERCARD 2 one same LIMIT 7", ":7\r\n"),
        ("ZINTERCARD 2 one same LIMIT 7", ":7\r\n"),
        ("BITPOS bits 1", ":500000\r\n"),
    ] {
        client.send(format!("{command}\r\n").as_bytes());
        process.turn(0);
        assert_eq!(process.heard(&client), reply, "{command}");
    }
    client.send(b"XPENDING stream group IDLE 1 - + 3\r\n");
    process.turn(0);
    assert!(process.heard(&client).starts_with("*3\r\n"), "it is done at once");
}

#[test]
fn a_search_that_does_not_end_soon_goes_on_in_slices() {
    let (mut process, client) = process_to_search();
    for (command, reply) in [
        ("LPOS list none", "$-1\r\n"),
        ("LPOS list e2000", ":2000\r\n"),
        ("LINSERT list AFTER e7000 new", ":10001\r\n"),
        ("LPOS list new COUNT 0", "*1\r\n:7001\r\n"),
        ("LREM list 2 new", ":1\r\n"),
        ("LREM list 1 none", ":0\r\n"),
        ("SORT list BY nosort LIMIT 0 5000", ""),
        ("SINTERCARD 2 one same", ":20000\r\n"),
        ("ZINTERCARD 2 one same LIMIT 19000", ":19000\r\n"),
        ("BITPOS bits 1 1000000", ":160000000\r\n"),
        ("BITCOUNT bits", ":2\r\n"),
        ("XPENDING stream group IDLE 1000000000 - + 3", "*0\r\n"),
    ] {
        begin(&mut process, &client, &format!("{command}\r\n"));
        let heard = wait(&mut process, &client);
        assert!(heard == reply || reply.is_empty(), "{command}: {heard}");
        process.turns(20);
        process.heard(&client);
    }
    // What was found before the job began is part of its answer.
    for at in [0, 9_999] {
        assert_eq!(process.ask(&client, &format!("LSET list {at} again")), "+OK\r\n");
    }
    begin(&mut process, &client, "LPOS list again COUNT 0\r\n");
    assert_eq!(wait(&mut process, &client), "*2\r\n:0\r\n:9999\r\n");
    begin(&mut process, &client, "LREM list 0 again\r\n");
    assert_eq!(wait(&mut process, &client), ":2\r\n");
}

/// Behind each long command, only some of what follows is parsed.
#[test]
fn a_pipeline_of_long_commands_is_answered_in_order() {
    let (mut process, client) = process_to_search();
    let (mut sent, mut expected) = (String::new(), String::new());
    for number in 0..40 {
        sent += &format!("SINTERCARD 2 one same LIMIT {}\r\n", 3000 + number);
        expected += &format!(":{}\r\n", 3000 + number);
        for echo in 0..number {
            sent += &format!("ECHO {number}-{echo}-{}\r\n", "x".repeat(echo * 10));
            let text = format!("{number}-{echo}-{}", "x".repeat(echo * 10));
            expected += &format!("${}\r\n{text}\r\n", text.len());
        }
    }
    client.send(sent.as_bytes());
    let mut heard = String::new();
    for _ in 0..100_000 {
        process.turns(1);
        heard += &process.heard(&client);
        if heard.len() >= expected.len() {
            break;
        }
    }
    assert_eq!(heard, expected);
}
