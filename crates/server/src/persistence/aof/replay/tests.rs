use super::*;
use crate::config::{Config, OptionId};
use crate::engine::log::append_command;

/// The names of all commands, each with no other name in its place.
pub(crate) fn hidden() -> Vec<(Vec<u8>, Vec<u8>)> {
    let families = crate::process::families();
    let commands = families.iter().flat_map(|family| family.iter());
    commands.map(|command| (command.row.name.into(), Vec::new())).collect()
}

/// Replays a log whose lines are commands.
fn replay(server: &'static Server, lines: &[&str]) -> Result<Replay, String> {
    let mut log = Vec::new();
    for line in lines {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        append_command(&mut log, &words);
    }
    let mut replay = Replay::new(server).expect("there are threads for all");
    let (valid, ended) = replay.run_all(&mut AofReader::new(&log[..], 0), 0, |_| Ok(()))?;
    assert!(valid == log.len() as u64 && ended.is_ok(), "{lines:?}");
    Ok(replay)
}

/// What the server itself writes has the commands' own names, whatever clients call them.
#[test]
fn a_log_is_read_if_clients_call_commands_otherwise_or_not_at_all() {
    let mut renamed = hidden();
    let found = renamed.iter_mut().find(|(name, _)| name == b"set");
    found.expect("there is SET").1 = b"mine".to_vec();
    let server = crate::process::create(Config::new(), &renamed).expect("no name is taken");
    let lines = [
        "MULTI",
        "SELECT 3",
        "MINE a 1",
        "set b 2 KEEPTTL",
        "EXEC",
        "SELECT 0",
        "PEXPIREAT c 1",
        "HSET h f v",
        "UNLINK h",
    ];
    let mut replay = replay(server, &lines).expect("all is known");
    replay.data.enter();
    assert_eq!([0, 3].map(|database| replay.data.total(database)), [0, 2]);
    replay.data.leave();
}

/// Else the commands behind it would change another database.
#[test]
fn a_log_with_a_database_that_there_is_not_is_refused() {
    let load = |databases, lines: &[&str]| {
        let config = Config::new();
        config.set_internally(OptionId::databases, databases).expect("it is a number");
        let server = crate::process::create(config, &[]).expect("a server can be made");
        replay(server, lines).map(drop)
    };
    for lines in [
        &["SELECT 5", "SET a v"][..],
        &["MULTI", "SELECT 5", "SET a v", "EXEC"],
        &["SET a v", "MOVE a 5"],
        &["SET a v", "COPY a b DB 5"],
        &["SWAPDB 5 0"],
    ] {
        assert_eq!(load("6", lines), Ok(()), "{lines:?}");
        let complaint = load("5", lines).expect_err("the database is missing");
        assert!(complaint.contains("no database 5"), "{complaint}");
        assert!(complaint.contains("'databases' is 5"), "{complaint}");
    }
}

/// Else all workers would wait behind the thread that wants the gate, for as long as the
/// command takes.
#[test]
fn a_long_command_of_a_primary_leaves_the_gate_to_a_thread_that_waits_for_it() {
    let config = Config::new();
    config.set_internally(OptionId::lazyfree_lazy_user_del, "no").expect("it is an option");
    let server = crate::process::create(config, &[]).expect("a server can be made");
    let mut replay = Replay::following(server).expect("there are threads for all");
    let run = |replay: &mut Replay, line: &str| {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let (command, hash) = (server.registry.find(args[0]), server.keyspace.hash(args[1]));
        let mut is_made = false;
        let outcome = replay.run_relayed(&args, command, hash, |_, _| is_made = true);
        let gives_way = match outcome {
            Ok(()) => false,
            Err(Hindrance::Gate) => true,
            Err(Hindrance::Wait) => panic!("nothing is reserved"),
            Err(Hindrance::Failure(complaint)) => panic!("{complaint}"),
        };
        (gives_way, is_made)
    };
    replay.data.enter();
    for set in ["a", "b"] {
        let members: String = (0..5_000).map(|number| format!(" {set}{number}")).collect();
        assert_eq!(run(&mut replay, &format!("SADD {set}{members}")), (false, true));
    }
    // A union is made at one moment, behind the work. DEL deletes at once, and then waits for
    // the thread that frees.
    for (line, key, is_made) in [("SUNIONSTORE to a b", "to", false), ("DEL a", "a", true)] {
        let goes_on = lazyfree::hold_up();
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| {
                let mut data = background::data(server).expect("there are threads for all");
                data.enter();
                data.hold_gate_anyway();
                let is_there = data.peek(data.key(key.as_bytes())).is_some();
                data.release();
                data.leave();
                is_there
            });
            while !server.gate.is_closed() {
                std::thread::yield_now();
            }
            let done = run(&mut replay, line);
            replay.data.leave();
            assert!(!taker.join().expect("it is content"), "{line}");
            assert_eq!(done, (true, is_made), "{line}");
        });
        drop(goes_on);
        replay.data.enter();
        assert_eq!(run(&mut replay, line), (false, true));
    }
    let key = replay.data.key(b"to");
    assert!(replay.data.hold_one(key.hash.shard()) && replay.data.peek(key).is_some());
    replay.data.leave();
}
