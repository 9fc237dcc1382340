//! What becomes of the sources of scripts that are forgotten.

use std::sync::{Arc, Weak};

use bobbin_io::Peer;

use super::process::SimulatedProcess;
use crate::engine::script::{Script, sha_of};

/// Scripts of this many bytes, more of them than are kept.
const LEN: usize = 20_000;
const COUNT: usize = 1_000;

fn source(number: usize) -> String {
    format!("return {number} --{}", "x".repeat(LEN))
}

/// Runs a script; what tells whether it is still in memory.
fn run(process: &mut SimulatedProcess, client: &Peer, number: usize) -> Weak<Script> {
    let source = source(number);
    assert_eq!(process.ask(client, &format!("EVAL \"{source}\" 0")), format!(":{number}\r\n"));
    let script = process.server.scripts.find(&sha_of(source.as_bytes()));
    Arc::downgrade(&script.expect("it is known"))
}

fn count(scripts: &[Weak<Script>]) -> usize {
    scripts.iter().filter(|script| script.strong_count() > 0).count()
}

/// By EVAL and by EVALSHA, from any worker.
#[test]
fn a_script_that_is_used_again_is_forgotten_behind_others() {
    let mut process = SimulatedProcess::new(2);
    let (first, second) = (process.connect(0), process.connect(1));
    let run = |process: &mut SimulatedProcess, client: &Peer, number: usize| {
        process.ask(client, &format!("EVAL \"return {number}\" 0"));
        sha_of(format!("return {number}").as_bytes())
    };
    let names: Vec<_> = (0..500).map(|number| run(&mut process, &first, number)).collect();
    run(&mut process, &first, 0);
    run(&mut process, &second, 1);
    for (client, name) in [(&first, names[2]), (&second, names[3])] {
        let name = String::from_utf8_lossy(&name);
        process.ask(client, &format!("EVALSHA {name} 0"));
    }
    run(&mut process, &second, 1000);
    let is_known = |at: &usize| process.server.scripts.find(&names[*at]).is_some();
    assert_eq!((0..500).filter(|at| !is_known(at)).collect::<Vec<_>>(), [4]);
    (1001..1500).for_each(|number| _ = run(&mut process, &first, number));
    let is_known = |at: &usize| process.server.scripts.find(&names[*at]).is_some();
    assert_eq!((0..500).filter(is_known).count(), 0, "once it is not used any more");
}

/// The second time it uses keys that it did not declare.
#[test]
fn a_script_that_begins_anew_counts_its_commands_once() {
    let mut process = SimulatedProcess::new(1);
    let client = process.connect(0);
    process.ask(&client, "SET k v");
    process.ask(&client, "CONFIG RESETSTAT");
    let calls = "redis.call('GET', KEYS[1]) redis.call('GET', KEYS[2]) redis.pcall('LLEN', KEYS[1]) \
                 redis.pcall('GET')";
    let script = format!("{calls} if ARGV[1] then return redis.call('DBSIZE') end");
    assert_eq!(process.ask(&client, &format!("EVAL \"{script}\" 2 k none")), "$-1\r\n");
    assert_eq!(process.ask(&client, &format!("EVAL \"{script}\" 2 k none all")), ":1\r\n");
    let info = process.ask(&client, "INFO everything");
    let found = |start: &str, end: &str| {
        info.lines().any(|line| line.starts_with(start) && line.ends_with(end))
    };
    for (start, end) in [
        ("cmdstat_get:calls=4,", ",rejected_calls=2,failed_calls=0"),
        ("cmdstat_llen:calls=2,", ",rejected_calls=0,failed_calls=2"),
        ("cmdstat_dbsize:calls=1,", ",rejected_calls=0,failed_calls=0"),
        ("cmdstat_eval:calls=2,", ",rejected_calls=0,failed_calls=0"),
        ("errorstat_ERR:", "count=2"),
        ("errorstat_WRONGTYPE:", "count=2"),
        ("total_error_replies:", ":4"),
        ("total_commands_processed:", ":10"),
        ("keyspace_hits:", ":4"),
        ("keyspace_misses:", ":2"),
    ] {
        assert!(found(start, end), "{start}...{end} in {info}");
    }
}

/// The worker that ran them does so in time, and others by the clock.
#[test]
fn scripts_that_are_forgotten_because_of_others_are_freed() {
    let mut process = SimulatedProcess::new(2);
    let (first, second) = (process.connect(0), process.connect(1));
    let idle: Vec<_> = (0..20).map(|number| run(&mut process, &first, number)).collect();
    let busy: Vec<_> = (20..COUNT).map(|number| run(&mut process, &second, number)).collect();
    let known = process.server.scripts.len();
    assert!(known < COUNT - 100, "{known}");
    let spare = known / 4 + (1 << 20) / LEN + 1;
    assert!(count(&busy) <= known + spare, "{} of {known}", count(&busy));
    process.pass(100);
    process.turns(2);
    assert_eq!((count(&idle), count(&busy)), (0, known));
    // What is left still answers by its source and by its name.
    let sha = sha_of(source(COUNT - 1).as_bytes());
    let sha = String::from_utf8_lossy(&sha);
    for line in [format!("EVALSHA {sha} 0"), format!("EVAL \"{}\" 0", source(COUNT - 1))] {
        assert_eq!(process.ask(&second, &line), format!(":{}\r\n", COUNT - 1));
    }
    run(&mut process, &second, 20);
    assert_eq!(process.ask(&first, &format!("EVALSHA {sha} 0")), format!(":{}\r\n", COUNT - 1));
}

#[test]
fn a_flush_frees_the_scripts_of_all_workers() {
    let mut process = SimulatedProcess::new(2);
    let (first, second) = (process.connect(0), process.connect(1));
    let all = [run(&mut process, &first, 1), run(&mut process, &second, 2)];
    assert_eq!(process.ask(&first, "SCRIPT FLUSH"), "+OK\r\n");
    process.pass(100);
    process.turns(2);
    assert_eq!((count(&all), process.server.scripts.state_memory()), (0, 0));
}
