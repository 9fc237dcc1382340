//! Admission: what keeps a command from running is looked at when it comes, and once more after
//! every wait.

use std::sync::mpsc::channel;

use bobbin_io::Peer;

use super::process::SimulatedProcess;
use super::waits;
use crate::engine::blocking;
use crate::engine::server::pause::PauseReason;
use crate::engine::server::{Server, Switch};

/// Something that keeps commands from running, or lets them run again.
type Change = fn(&'static Server, i64);

/// A process, a client, and another one that gives orders.
fn process() -> (SimulatedProcess, Peer, Peer) {
    let mut process = SimulatedProcess::new(2);
    let (client, admin) = (process.connect(0), process.connect(1));
    assert_eq!(process.ask(&admin, "ACL SETUSER default on nopass ~* &* +@all"), "+OK\r\n");
    (process, client, admin)
}

/// What a command that takes the gate is answered with, if this happens while it waits for it.
fn ask_meanwhile(
    process: &mut SimulatedProcess,
    client: &Peer,
    line: &str,
    change: Change,
) -> String {
    let (server, now_ms) = (process.server, process.now_ms());
    waits::meanwhile(move || change(server, now_ms));
    let answer = process.ask(client, line);
    assert!(waits::is_over(), "{line} waited for nothing");
    answer
}

/// Has an observer within do what takes the gate.
fn within(server: &'static Server, line: &str) {
    let mut embedded = crate::embedded::EmbeddedProcess::of(server).worker(1).expect("a thread");
    embedded.set_time(server.clock.now_ms());
    let mut session = embedded.connect();
    let answer = embedded.feed(&mut session, format!("{line}\r\n").as_bytes()).to_vec();
    assert_eq!(answer, b"+OK\r\n", "{line}");
}

#[test]
fn a_pause_holds_a_command_up_until_it_is_over() {
    let (mut process, client, admin) = process();
    assert_eq!(process.ask(&admin, "CLIENT PAUSE 100 WRITE"), "+OK\r\n");
    assert_eq!(process.ask(&client, "GET k"), "$-1\r\n");
    assert_eq!(process.ask(&client, "SET k v"), "");
    process.pass(99);
    process.turns(2);
    assert_eq!(
        (process.heard(&client), process.ask(&admin, "GET k")),
        (String::new(), "$-1\r\n".into())
    );
    process.pass(1);
    process.turns(2);
    assert_eq!(process.heard(&client), "+OK\r\n");
    assert_eq!(process.ask(&admin, "CLIENT PAUSE 100 ALL"), "+OK\r\n");
    assert_eq!(process.ask(&client, "GET k"), "");
    assert_eq!(process.ask(&admin, "CLIENT UNPAUSE"), "");
    process.pass(100);
    process.turns(2);
    assert_eq!(process.heard(&client), "$1\r\nv\r\n");
}

/// CONFIG SET and the commands behind it in the same input are measured by the new limits.
#[test]
fn a_change_of_options_and_what_follows_in_one_input_is_measured_by_it() {
    let (mut process, client, _) = process();
    process.ask(&client, "SLOWLOG RESET");
    client.send(b"CONFIG SET slowlog-log-slower-than 0\r\nECHO a\r\nECHO b\r\n");
    process.turns(3);
    assert_eq!(process.heard(&client), "+OK\r\n$1\r\na\r\n$1\r\nb\r\n");
    assert_eq!(process.ask(&client, "SLOWLOG LEN"), ":3\r\n");
}

#[test]
fn a_transaction_runs_when_each_of_its_commands_may() {
    let (mut process, client, _admin) = process();
    for (line, may_run) in [("GET k", false), ("INFO server", true), ("FLUSHALL", false)] {
        assert_eq!(process.ask(&client, "MULTI"), "+OK\r\n");
        assert_eq!(process.ask(&client, line), "+QUEUED\r\n");
        process.server.switches.set(Switch::LOADING, true);
        let answer = process.ask(&client, "EXEC");
        process.server.switches.set(Switch::LOADING, false);
        let refusal = "-EXECABORT Transaction discarded because of: LOADING";
        assert_eq!(answer.starts_with(refusal), !may_run, "{line}: {answer}");
    }
}

#[test]
fn a_pause_of_writers_lets_scripts_run_that_say_they_write_nothing() {
    let (mut process, client, admin) = process();
    let library = "#!lua name=l\\nredis.register_function{function_name='reads', callback=function() \
                   return 2 end, flags={'no-writes'}} redis.register_function('any', function() \
                   return 3 end)";
    process.ask(&admin, &format!("FUNCTION LOAD \"{library}\""));
    assert_eq!(process.ask(&admin, "CLIENT PAUSE 100 WRITE"), "+OK\r\n");
    let reads = "EVAL \"#!lua flags=no-writes\\nreturn 1\" 0";
    for (lines, answer) in [
        (&[reads][..], ":1\r\n"),
        (&["FCALL reads 0"], ":2\r\n"),
        (&["EVAL_RO \"return 4\" 0"], ":4\r\n"),
        (&["MULTI", reads, "FCALL reads 0", "EXEC"], "*2\r\n:1\r\n:2\r\n"),
    ] {
        let answers: Vec<_> = lines.iter().map(|line| process.ask(&client, line)).collect();
        assert_eq!(answers.last().map(String::as_str), Some(answer), "{lines:?}");
    }
    for lines in [
        &["EVAL \"return 1\" 0"][..],
        &["EVAL \"#!lua\\nreturn 1\" 0"],
        &["FCALL any 0"],
        &["FCALL none 0"],
        &["MULTI", reads, "FCALL any 0", "EXEC"],
    ] {
        let client = process.connect(0);
        let answers: Vec<_> = lines.iter().map(|line| process.ask(&client, line)).collect();
        assert_eq!(answers.last().map(String::as_str), Some(""), "{lines:?}");
    }
}

#[test]
fn a_client_in_monitor_mode_gets_at_no_key_in_any_way() {
    let (mut process, client, admin) = process();
    let library = "#!lua name=l\\nredis.register_function('f', function() return 1 end)";
    process.ask(&admin, &format!("FUNCTION LOAD \"{library}\""));
    assert_eq!(process.ask(&client, "MONITOR"), "+OK\r\n");
    process.ask(&admin, "CLIENT PAUSE 100 WRITE");
    process.heard(&client);
    let write = "return redis.call('SET', 'k', 'v')";
    for line in [
        "SET k v",
        "GET k",
        &format!("EVAL \"{write}\" 0"),
        &format!("EVAL_RO \"{write}\" 0"),
        "EVALSHA 0123456789012345678901234567890123456789 0",
        "FCALL f 0",
    ] {
        let refusal = "-ERR Replica can't interact with the keyspace\r\n";
        assert_eq!(process.ask(&client, line), refusal, "{line}");
    }
    let says_it_reads = "EVAL \"#!lua flags=no-writes\\nreturn redis.call('GET', 'k')\" 1 k";
    assert!(process.ask(&client, says_it_reads).starts_with("$-1\r\n"));
    let lies = says_it_reads.replace("'GET', 'k'", "'SET', 'k', 'v'");
    assert!(process.ask(&client, &lies).starts_with("-ERR Write commands are not allowed"));
    assert_eq!(process.ask(&admin, "GET k"), "$-1\r\n");
}

#[test]
fn monitors_see_an_exec_that_is_refused() {
    let (mut process, client, admin) = process();
    let monitor = process.connect(1);
    assert_eq!(process.ask(&monitor, "MONITOR"), "+OK\r\n");
    assert_eq!(process.ask(&client, "MULTI\r\nSET k v"), "+OK\r\n+QUEUED\r\n");
    process.ask(&admin, "CONFIG SET min-replicas-to-write 1");
    let refusal = "-EXECABORT Transaction discarded because of: NOREPLICAS";
    assert!(process.ask(&client, "EXEC").starts_with(refusal));
    process.turns(8);
    let seen = process.heard(&monitor);
    let words: Vec<_> = seen.lines().filter_map(|line| line.split_once("] ")).collect();
    let words: Vec<_> = words.iter().map(|(_, words)| *words).collect();
    assert_eq!(words, ["\"MULTI\"", "\"EXEC\""]);
}

#[test]
fn a_wait_that_ends_as_the_server_becomes_a_replica_counts_as_rejected() {
    let (mut process, client, admin) = process();
    assert_eq!(process.ask(&client, "BLPOP k 0"), "");
    blocking::dismiss_all(process.server);
    process.turns(8);
    assert!(process.heard(&client).starts_with("-UNBLOCKED force unblock"));
    let stats = process.ask(&admin, "INFO commandstats");
    let line = stats.lines().find(|line| line.starts_with("cmdstat_blpop:calls=1,"));
    let ends = |line: &str| line.ends_with(",rejected_calls=1,failed_calls=0");
    assert!(line.is_some_and(ends), "{stats}");
}

#[test]
fn a_replica_gets_at_no_key_in_any_way() {
    let (mut process, _client, admin) = process();
    let write = "EVAL \"return redis.call('SET', 'k', 'v')\" 0";
    for requests in ["SET k v", "GET k", write, "MULTI\r\nSET k v\r\nEXEC", "PING\r\nSET k v"] {
        let replica = process.connect(0);
        assert_eq!(process.ask(&replica, "GET k"), "$-1\r\n", "it is no replica yet");
        assert_eq!(process.ask(&replica, "PSYNC ? -1"), "");
        assert_eq!(process.ask(&replica, requests), "");
        assert!(replica.is_ended(), "{requests}");
        assert_eq!(process.ask(&admin, "EXISTS k"), ":0\r\n", "{requests}");
    }
    let stats = process.ask(&admin, "INFO commandstats");
    for refused in ["cmdstat_get:calls=5,", "cmdstat_eval:calls=0,"] {
        let line = stats.lines().find(|line| line.starts_with(refused));
        assert!(line.is_some_and(|line| line.contains("rejected_calls=1,")), "{stats}");
    }
    // Rights that change leave that as it is.
    let replica = process.connect(0);
    process.ask(&replica, "PSYNC ? -1");
    process.ask(&admin, "ACL SETUSER other on nopass +@all");
    process.ask(&replica, "SET k v");
    assert_eq!(process.ask(&admin, "EXISTS k"), ":0\r\n");
}

#[test]
fn a_pause_that_begins_while_a_command_waits_holds_it_up() {
    let (mut process, client, admin) = process();
    process.ask(&admin, "SET k v");
    let pause = |server: &'static Server, _| within(server, "CLIENT PAUSE 50 WRITE");
    assert_eq!(ask_meanwhile(&mut process, &client, "FLUSHALL", pause), "");
    assert_eq!(process.ask(&admin, "DBSIZE"), ":1\r\n");
    process.pass(50);
    process.turns(2);
    assert_eq!(process.heard(&client), "+OK\r\n");
    assert_eq!(process.ask(&admin, "DBSIZE"), ":0\r\n");
}

#[test]
fn rights_that_are_lost_while_a_command_waits_count() {
    let (mut process, client, admin) = process();
    process.ask(&admin, "SET k v");
    let revoke = |server: &'static Server, _| within(server, "ACL SETUSER default -flushall");
    let answer = ask_meanwhile(&mut process, &client, "FLUSHALL", revoke);
    assert!(answer.starts_with("-NOPERM"), "{answer}");
    assert_eq!(process.ask(&admin, "DBSIZE"), ":1\r\n");
    // A command that waited for the end of a pause is refused as well.
    process.ask(&admin, "CLIENT PAUSE 50 WRITE");
    assert_eq!(process.ask(&client, "SET k w"), "");
    process.ask(&admin, "ACL SETUSER default -set");
    process.pass(50);
    process.turns(2);
    let answer = process.heard(&client);
    assert!(answer.starts_with("-NOPERM"), "{answer}");
    assert_eq!(process.ask(&client, "GET k"), "$1\r\nv\r\n");
    // So is a script, which takes the gate by itself.
    let revoke = |server: &'static Server, _| within(server, "ACL SETUSER default -eval");
    let answer = ask_meanwhile(&mut process, &client, "EVAL \"return 1\" 0", revoke);
    assert_eq!(answer, "-NOPERM User default has no permissions to run the 'eval' command\r\n");
    let logged = process.ask(&admin, "ACL LOG 1");
    assert!(logged.contains("toplevel"), "{logged}");
}

#[test]
fn a_load_or_a_slow_script_that_begins_while_a_command_waits_has_it_refused() {
    for (switch, error) in [(Switch::LOADING, "-LOADING"), (Switch::BUSY, "-BUSY")] {
        let (mut process, client, admin) = process();
        process.ask(&admin, "SET k v");
        let begin: Change = match switch {
            Switch::LOADING => |server, _| server.switches.set(Switch::LOADING, true),
            _ => |server, _| server.switches.set(Switch::BUSY, true),
        };
        let answer = ask_meanwhile(&mut process, &client, "FLUSHALL", begin);
        assert!(answer.starts_with(error), "{answer}");
        let answer = process.ask(&client, "GET k");
        assert!(answer.starts_with(error), "{answer}");
        process.server.switches.set(switch, false);
        assert_eq!(process.ask(&client, "GET k"), "$1\r\nv\r\n");
    }
}

#[test]
fn keys_live_and_die_by_the_time_when_a_wait_ends() {
    let (mut process, client, admin) = process();
    process.ask(&admin, "SET k v PX 10");
    let server = process.server;
    let shard = server.keyspace.hash(b"k").shard();
    let (held, is_held) = channel();
    let (release, is_released) = channel::<()>();
    let holder = std::thread::spawn(move || {
        let _guard = server.keyspace.lock(shard);
        held.send(()).expect("somebody waits");
        is_released.recv().expect("somebody says so");
    });
    is_held.recv().expect("it is held");
    let now_ms = process.now_ms();
    waits::meanwhile(move || {
        server.clock.fix(now_ms + 11);
        release.send(()).expect("it is held");
    });
    client.send(b"GET k\r\n");
    process.turn(0);
    assert!(waits::is_over(), "it waited for the shard");
    holder.join().expect("it ends");
    process.turn(0);
    assert_eq!(process.heard(&client), "$-1\r\n");
}

#[test]
fn no_key_or_field_lives_too_short() {
    let (mut process, client, _admin) = process();
    process.ask(&client, "SET k v PX 10");
    process.ask(&client, "HSETEX h PX 10 FIELDS 1 f v");
    process.pass(10);
    process.turns(2);
    assert_eq!(process.ask(&client, "PTTL k"), ":0\r\n");
    assert_eq!(process.ask(&client, "GET k"), "$1\r\nv\r\n");
    assert_eq!(process.ask(&client, "HPTTL h FIELDS 1 f"), "*1\r\n:0\r\n");
    assert_eq!(process.ask(&client, "HGET h f"), "$1\r\nv\r\n");
    process.pass(1);
    assert_eq!(process.ask(&client, "PTTL k"), ":-2\r\n");
    assert_eq!(process.ask(&client, "HGET h f"), "$-1\r\n");
    // A time that is the present one is in the past for a command that sets it.
    process.ask(&client, "SET k v");
    let expires = format!("PEXPIREAT k {}", process.now_ms());
    assert_eq!(process.ask(&client, &expires), ":1\r\n");
    assert_eq!(process.ask(&client, "EXISTS k"), ":0\r\n");
}

#[test]
fn memory_is_looked_at_again_behind_a_pause() {
    let (mut process, client, admin) = process();
    process.ask(&admin, "CLIENT PAUSE 50 WRITE");
    assert_eq!(process.ask(&client, "SET k v"), "");
    process.ask(&admin, "CONFIG SET maxmemory 1");
    process.pass(50);
    process.turns(2);
    let answer = process.heard(&client);
    assert!(answer.starts_with("-OOM"), "{answer}");
    assert_eq!(process.ask(&client, "GET k"), "$-1\r\n");
    process.ask(&admin, "CONFIG SET maxmemory 0");
    assert_eq!(process.ask(&client, "SET k v"), "+OK\r\n");
}

/// EXEC will refuse it, so what was queued before is of no account. As in valkey-server 9.1.2.
#[test]
fn a_spoiled_transaction_does_not_wait_for_a_pause() {
    let (mut process, client, admin) = process();
    process.ask(&client, "MULTI");
    process.ask(&client, "SET k v");
    assert!(process.ask(&client, "NOSUCH").starts_with("-ERR unknown command"));
    assert_eq!(process.ask(&admin, "CLIENT PAUSE 1000 WRITE"), "+OK\r\n");
    let aborted = "-EXECABORT Transaction discarded because of previous errors.\r\n";
    assert_eq!(process.ask(&client, "EXEC"), aborted);
}

/// As valkey-server 9.1.2 answers.
#[test]
fn scripts_in_transactions_keep_to_maxmemory() {
    let (mut process, client, admin) = process();
    let write = "return redis.call('SET', KEYS[1], 'v')";
    let library = "#!lua name=l\\nredis.register_function('f', function(keys) return \
                   redis.call('SET', keys[1], 'v') end)";
    process.ask(&admin, &format!("FUNCTION LOAD \"{library}\""));
    let error = "OOM command not allowed when used memory > 'maxmemory'.";
    let aborted = format!("-EXECABORT Transaction discarded because of: {error}\r\n");
    let failed = format!("*2\r\n-{error} script: on @user_script:1.\r\n$-1\r\n");
    let free = format!("EVAL \"{write}\" 1 k");
    let freed = format!("EVAL \"redis.call('DEL', KEYS[1]) {write}\" 1 k");
    let strict = format!("EVAL \"#!lua\\n{write}\" 1 k");
    let allowed = format!("EVAL \"#!lua flags=allow-oom\\n{write}\" 1 k");
    let reads = "EVAL \"#!lua flags=no-writes\\nreturn 1\" 1 k";
    let written = "*2\r\n+OK\r\n$1\r\nv\r\n";
    for (line, answer, is_queued) in [
        (&*free, &*failed, true),
        (&freed, written, true),
        (&strict, &aborted, false),
        ("FCALL f 1 k", &aborted, false),
        (&allowed, written, true),
        (reads, "*2\r\n:1\r\n$-1\r\n", true),
    ] {
        for is_full_before in [false, true] {
            process.ask(&admin, "DEL k");
            if is_full_before {
                process.ask(&admin, "CONFIG SET maxmemory 1");
            }
            process.ask(&client, "MULTI");
            let queued = process.ask(&client, line);
            process.ask(&client, "GET k");
            process.ask(&admin, "CONFIG SET maxmemory 1");
            let ended = process.ask(&client, "EXEC");
            process.ask(&admin, "CONFIG SET maxmemory 0");
            if is_queued || !is_full_before {
                assert_eq!((&*queued, &*ended), ("+QUEUED\r\n", answer), "{line}");
            } else {
                assert_eq!(queued, format!("-{error}\r\n"), "{line}");
                assert!(ended.starts_with("-EXECABORT"), "{line}: {ended}");
            }
        }
    }
}

/// Once the last snapshot is written nothing is changed, or acknowledged, that it does not hold.
#[test]
fn what_waits_when_the_server_ends_is_not_done() {
    let (mut process, client, admin) = process();
    process.ask(&admin, "SET k v");
    let end = |server: &'static Server, now_ms| {
        let gate = server.gate.take();
        server.pause_clients(PauseReason::Shutdown, i64::MAX, true, now_ms);
        drop(gate);
    };
    assert_eq!(ask_meanwhile(&mut process, &client, "FLUSHALL", end), "");
    assert_eq!(process.ask(&client, "PING"), "");
    process.server.workers.stop();
    for worker in 0..2 {
        while process.turn(worker) {}
    }
    assert_eq!(process.heard(&client), "");
    assert!(client.is_ended() && admin.is_ended());
    let keyspace = &process.server.keyspace;
    let shard = keyspace.lock(keyspace.hash(b"k").shard());
    assert_eq!(shard.database(0).map(|database| database.len()), Some(1));
}
