//! Scripts and transactions that pause, and what waits for them.

use bobbin_io::Peer;

use super::process::SimulatedProcess;
use super::ticks;
use crate::base::random::Random;
use crate::engine::script::WaitRight;
use crate::engine::server::Switch;

/// A script that is known to pause, about each key.
const LONG: &str =
    "local n = 0 for i = 1, 200000 do n = n + i end return redis.call('INCR', KEYS[1])";

/// A process in which most looks at the counter find that much time has gone by.
fn process() -> SimulatedProcess {
    let process = SimulatedProcess::new(2);
    ticks::jump(Some((Random::new(7), 2, 300)));
    process
}

/// A client that sends a request again as soon as it is answered.
struct Repeater {
    peer: Peer,
    request: String,
    answers: usize,
}

impl Repeater {
    fn new(process: &SimulatedProcess, worker: usize, request: String) -> Self {
        let peer = process.connect(worker);
        peer.send(request.as_bytes());
        Self { peer, request, answers: 0 }
    }

    fn go_on(&mut self, process: &SimulatedProcess) {
        let heard = process.heard(&self.peer);
        if !heard.is_empty() {
            assert!(!heard.contains('-'), "{heard}");
            self.answers += 1;
            self.peer.send(self.request.as_bytes());
        }
    }
}

/// Takes turns until `peer` has heard something; how many answers the others got meanwhile.
fn wait(process: &mut SimulatedProcess, peer: &Peer, others: &mut [Repeater]) -> (String, usize) {
    let answers = |others: &[Repeater]| others.iter().map(|other| other.answers).sum::<usize>();
    let before = answers(others);
    loop {
        process.turns(1);
        others.iter_mut().for_each(|other| other.go_on(process));
        let heard = process.heard(peer);
        if !heard.is_empty() {
            return (heard, answers(others) - before);
        }
        assert!(answers(others) - before < 1000, "it is never served");
    }
}

#[test]
fn what_needs_every_shard_is_served_though_scripts_overlap() {
    let mut process = process();
    let admin = process.connect(0);
    let mut others: Vec<Repeater> = (0..6)
        .map(|at| Repeater::new(&process, at % 2, format!("EVAL \"{LONG}\" 1 key:{at}\r\n")))
        .collect();
    for _ in 0..20 {
        others.iter_mut().for_each(|other| other.go_on(&process));
        process.turns(7);
    }
    assert!(process.server.gate.is_reserved(), "they overlap");
    for line in ["CONFIG SET maxmemory-samples 6", "DBSIZE", "FLUSHALL"] {
        admin.send(format!("{line}\r\n").as_bytes());
        let (heard, answers) = wait(&mut process, &admin, &mut others);
        assert!(!heard.starts_with('-'), "{line}: {heard}");
        // Those at work when it came, and perhaps one that was let in before it.
        assert!(answers <= 2 * others.len(), "{line} came behind {answers} scripts");
        process.turns(50);
    }
    // A client that goes while it waits holds no other client up.
    admin.send(b"CONFIG SET maxmemory-samples 7\r\n");
    process.turns(1);
    admin.close();
    let client = process.connect(1);
    client.send(format!("EVAL \"{LONG}\" 1 another\r\n").as_bytes());
    let (heard, _) = wait(&mut process, &client, &mut others);
    assert_eq!(heard, ":1\r\n");
}

/// What waits for a key of a script comes before what the script's client sends next.
#[test]
fn a_pipeline_of_scripts_lets_others_in_between() {
    let mut process = process();
    let (client, reader, walker) = (process.connect(0), process.connect(0), process.connect(0));
    let request = format!("EVAL \"{LONG}\" 1 key\r\n");
    client.send(request.repeat(100).as_bytes());
    while process.server.scripts.running().is_none() {
        process.turns(1);
    }
    for (peer, line) in [(&reader, "GET key\r\n"), (&walker, "KEYS *\r\n")] {
        process.heard(&client);
        peer.send(line.as_bytes());
        let mut scripts = 0;
        while process.heard(peer).is_empty() {
            process.turns(1);
            scripts += process.heard(&client).matches(':').count();
            assert!(scripts <= 3, "{line} came behind {scripts} scripts");
        }
    }
}

/// A process with keys that transactions read and write, and a log.
fn fill(process: &mut SimulatedProcess, admin: &Peer) {
    for at in 0..50 {
        let members: Vec<String> = (0..100).map(|member| format!("m{at}:{member}")).collect();
        process.ask(admin, &format!("SADD set {}", members.join(" ")));
    }
}

#[test]
fn a_transaction_pauses_and_nobody_sees_half_of_it() {
    let mut process = process();
    let (client, reader, admin) = (process.connect(0), process.connect(1), process.connect(1));
    fill(&mut process, &admin);
    let mut request = "MULTI\r\nSET first 1\r\nSMEMBERS set\r\n".to_owned();
    request += &"INCR count\r\n".repeat(500);
    request += "SET last 1\r\nEXEC\r\n";
    for round in 1..=5 {
        process.ask(&admin, "DEL first last");
        client.send(request.as_bytes());
        let (mut replies, mut turns, mut was_reserved) = (String::new(), 0, false);
        while !replies.contains(&format!(":{}\r\n+OK\r\n", round * 500)) {
            process.turns(1);
            was_reserved |= process.server.gate.is_reserved();
            replies += &process.heard(&client);
            turns += 1;
            // Others are served meanwhile.
            assert_eq!(process.ask(&reader, "GET elsewhere"), "$-1\r\n");
            assert!(turns < 10_000, "it does not end: {replies}");
        }
        assert!(was_reserved, "it never paused");
        assert!(replies.contains("*503\r\n+OK\r\n"), "one reply of all commands");
        assert_eq!(replies.matches("\r\nm").count(), 5000);
    }
}

#[test]
fn what_waits_for_a_transaction_sees_all_of_it() {
    let mut process = process();
    let (client, reader) = (process.connect(0), process.connect(1));
    let request = format!("MULTI\r\n{}EXEC\r\n", "INCR count\r\n".repeat(2000));
    let monitor = process.connect(1);
    assert_eq!(process.ask(&monitor, "MONITOR"), "+OK\r\n");
    for round in 1..=5 {
        client.send(request.as_bytes());
        while !process.server.gate.is_reserved() {
            process.turns(1);
        }
        reader.send(b"GET count\r\n");
        let mut heard = String::new();
        while heard.is_empty() {
            process.turns(1);
            heard = process.heard(&reader);
        }
        let count = (round * 2000).to_string();
        assert_eq!(heard, format!("${}\r\n{count}\r\n", count.len()));
        process.turns(2);
        process.heard(&client);
        let seen = process.heard(&monitor);
        let names: Vec<&str> = seen.lines().filter_map(|line| line.split('"').nth(1)).collect();
        let own: Vec<&&str> =
            names.iter().filter(|name| !name.eq_ignore_ascii_case("get")).collect();
        assert_eq!(own.len(), 2002);
        assert!(own[0].eq_ignore_ascii_case("multi") && own[2001].eq_ignore_ascii_case("exec"));
    }
}

/// Its client is gone, and what it ordered is done all the same.
#[test]
fn a_transaction_outlives_its_client() {
    let mut process = process();
    let (client, reader) = (process.connect(0), process.connect(1));
    client.send(format!("MULTI\r\n{}EXEC\r\n", "INCR count\r\n".repeat(2000)).as_bytes());
    while !process.server.gate.is_reserved() {
        process.turns(1);
    }
    client.close();
    while process.server.gate.is_reserved() {
        process.turns(1);
    }
    assert_eq!(process.ask(&reader, "GET count"), "$4\r\n2000\r\n");
}

/// A reply that is longer than its client may have is not made, and what is written is.
#[test]
fn a_transaction_whose_reply_is_too_long_is_carried_out() {
    let mut process = process();
    let (client, admin) = (process.connect(0), process.connect(1));
    fill(&mut process, &admin);
    process.ask(&admin, "CONFIG SET client-output-buffer-limit \"normal 20000 0 0\"");
    let request = "MULTI\r\nSMEMBERS set\r\nSET k v\r\nSMEMBERS set\r\nINCR n\r\nEXEC\r\n";
    client.send(request.as_bytes());
    for _ in 0..200 {
        process.turns(1);
    }
    assert!(!process.heard(&client).contains('*'), "nothing of the reply");
    assert!(client.is_ended(), "its connection is");
    assert_eq!(process.ask(&admin, "MGET k n"), "*2\r\n$1\r\nv\r\n$1\r\n1\r\n");
}

/// What follows a HELLO speaks its version, also behind a pause.
#[test]
fn a_queue_changes_its_protocol_where_hello_stands() {
    let mut process = process();
    let client = process.connect(0);
    let long = format!("EVAL \"{LONG}\" 1 key\r\n");
    for pause in ["", &long] {
        let queue = "GET none\r\nHELLO 3\r\nGET none\r\n";
        let more = "CONFIG GET maxmemory\r\nHELLO 2\r\nGET none\r\nEXEC\r\n";
        client.send(format!("MULTI\r\n{queue}{pause}GET none\r\n{more}").as_bytes());
        let mut heard = String::new();
        while !heard.ends_with("$-1\r\n") {
            heard += &answer(&mut process, &client);
        }
        let (_, replies) = heard.rsplit_once("+QUEUED\r\n").expect("it was queued");
        let (begin, rest) = replies.split_once("%7\r\n").expect("HELLO has a map");
        assert!(begin.ends_with("\r\n$-1\r\n"), "{begin}");
        let ran = if pause.is_empty() { "" } else { ":1\r\n" };
        let map = "%1\r\n$9\r\nmaxmemory\r\n$1\r\n0\r\n*14\r\n";
        let expected = format!("\r\n_\r\n{ran}_\r\n{map}");
        assert!(rest.contains(&expected), "{rest}");
    }
}

/// Another loop, which the server has not seen run.
fn unknown(rest: &str) -> String {
    format!("local n = 0 for i = 1, 200000 do n = n + i end {rest}")
}

/// Takes turns until a script is paused.
fn until_paused(process: &mut SimulatedProcess) {
    for _ in 0..1000 {
        if process.server.gate.is_reserved() {
            return;
        }
        process.turns(1);
    }
    panic!("no script pauses");
}

/// Takes turns until `peer` has an answer.
fn answer(process: &mut SimulatedProcess, peer: &Peer) -> String {
    for _ in 0..100_000 {
        process.turns(1);
        let heard = process.heard(peer);
        if !heard.is_empty() {
            return heard;
        }
    }
    panic!("it is never answered");
}

/// A script that runs for the first time may turn out to stray. That holds up no client that wants
/// other keys.
#[test]
fn the_first_run_of_a_script_lets_others_in_too() {
    let mut process = process();
    let (client, other) = (process.connect(0), process.connect(1));
    let (second, waiting) = (process.connect(1), process.connect(1));
    let before = "redis.call('SET', KEYS[1], 'half')";
    let loops = "for i = 1, 200000 do n = n + i end";
    for (number, begin) in ["", before].into_iter().enumerate() {
        let code = unknown(&format!("{begin} {loops} redis.call('SET', KEYS[1], 'whole')"));
        client.send(format!("EVAL \"{begin} {code} return {number}\" 1 key\r\n").as_bytes());
        until_paused(&mut process);
        waiting.send(b"GET key\r\n");
        // Another that the server does not know waits for it.
        second.send(format!("EVAL \"return {number}\" 0\r\n").as_bytes());
        for at in 0..20 {
            // In every slice, and whichever shard.
            assert_eq!(process.ask(&other, &format!("SET other:{at} v")), "+OK\r\n");
            assert_eq!(process.heard(&second), "");
            assert!(process.server.gate.is_reserved(), "it is still under way");
        }
        assert_eq!(answer(&mut process, &waiting), "$5\r\nwhole\r\n");
        process.turns(1);
        assert_eq!(process.heard(&client), format!(":{number}\r\n"));
        assert_eq!(answer(&mut process, &second), format!(":{number}\r\n"));
    }
}

/// It gets everything again, also once it has written and others have something reserved.
#[test]
fn a_first_run_that_strays_late_is_whole() {
    let strays = ["redis.call('INCR', 'far')", "redis.call('DBSIZE')"];
    for stray in strays {
        let mut process = process();
        let (client, reader) = (process.connect(0), process.connect(1));
        reader.send(format!("EVAL \"{LONG}\" 1 near\r\n").as_bytes());
        assert_eq!(answer(&mut process, &reader), ":1\r\n");
        let code = unknown("redis.call('INCR', 'near')");
        let loops = "for i = 1, 200000 do n = n + i end ";
        let long = loops.repeat(10);
        let code = format!("{code} {long} {stray} {loops} return redis.call('INCR', KEYS[1])");
        client.send(format!("EVAL \"{code}\" 1 near\r\n").as_bytes());
        until_paused(&mut process);
        // Scripts that are known to keep to their keys, and overlap. One reserves the very shard.
        let begin = |key| Repeater::new(&process, 1, format!("EVAL \"{LONG}\" 1 {key}\r\n"));
        let mut others = [begin("far"), begin("one"), begin("two")];
        while others.iter().any(|other| other.answers == 0) {
            process.turns(1);
            others.iter_mut().for_each(|other| other.go_on(&process));
        }
        reader.send(b"MGET near far\r\n");
        assert_eq!(wait(&mut process, &client, &mut others).0, ":3\r\n");
        let (heard, _) = wait(&mut process, &reader, &mut others);
        assert!(heard.starts_with("*2\r\n$1\r\n3\r\n"), "half of a script: {heard}");
    }
}

/// Has a client run a script; what it answers, however long that takes.
fn run(process: &mut SimulatedProcess, client: &Peer, request: &str) -> String {
    client.send(format!("{request}\r\n").as_bytes());
    wait(process, client, &mut []).0
}

/// Makes scripts and functions known to keep to their keys that stray if their last word says so.
fn stray_later(process: &mut SimulatedProcess, client: &Peer) -> Vec<(&'static str, String)> {
    let strays = ["'DBSIZE'", "'KEYS', '*'", "'SCAN', 0", "'INFO', 'server'", "'GET', 'far'"];
    let mut calls = Vec::new();
    for (at, stray) in strays.into_iter().enumerate() {
        let body =
            "redis.call('INCR', KEYS[1]) if ARGV[1] == 'go' then return redis.call(STRAY) end";
        let body = body.replace("STRAY", stray);
        let library = format!(
            "#!lua name=l{at}\\nredis.register_function('f{at}', function(KEYS, ARGV) {body} end)"
        );
        let loaded = process.ask(client, &format!("FUNCTION LOAD \"{library}\""));
        assert!(loaded.starts_with('$'), "{loaded}");
        calls.push((stray, format!("EVAL \"{body}\" 1 near")));
        calls.push((stray, format!("FCALL f{at} 1 near")));
    }
    for (_, call) in &calls {
        for _ in 0..2 {
            assert_eq!(run(process, client, &format!("{call} no")), "$-1\r\n", "{call}");
        }
    }
    calls
}

/// A script that nobody expects to stray does so after it has written, alone and in a transaction:
/// it waits for what it needs, as long as others keep that.
#[test]
fn a_script_that_strays_after_it_has_written_has_what_it_needs() {
    let mut process = process();
    let (client, other) = (process.connect(0), process.connect(1));
    process.ask(&client, "SET far value");
    for (_, call) in stray_later(&mut process, &client) {
        let heard = run(&mut process, &client, &format!("{call} go"));
        assert!(!heard.starts_with('-') && heard != "$-1\r\n", "{call}: {heard}");
        process.ask(&client, "MULTI");
        process.ask(&client, &format!("{call} go"));
        let heard = run(&mut process, &client, "EXEC");
        assert!(heard.starts_with("*1\r\n") && !heard.contains("\n-"), "{call}: {heard}");
    }
    process.ask(&client, "SCRIPT FLUSH");
    process.ask(&client, "FUNCTION FLUSH");
    let keeps = format!("EVAL \"while true do redis.call('GET', KEYS[1]) end -- {LONG}\" 1 far");
    let known = run(&mut process, &other, "EVAL \"return redis.call('GET', KEYS[1])\" 1 far");
    assert_eq!(known, "$5\r\nvalue\r\n");
    for (_, call) in stray_later(&mut process, &client) {
        other.send(format!("{keeps}\r\n").as_bytes());
        process.turns(20);
        client.send(format!("{call} go\r\n").as_bytes());
        process.turns(2_000);
        assert_eq!(process.heard(&client), "", "{call}: the other one keeps it");
        let third = process.connect(0);
        assert_eq!(process.ask(&third, "PING"), "+PONG\r\n");
        assert_eq!(process.ask(&third, "SCRIPT KILL"), "+OK\r\n");
        let heard = answer(&mut process, &client);
        assert!(!heard.starts_with('-') && heard != "$-1\r\n", "{call}: {heard}");
        assert!(answer(&mut process, &other).contains("SCRIPT KILL"));
    }
}

/// Two that have written, and each of which needs what the other one keeps: one of them is told.
#[test]
fn of_two_scripts_that_wait_for_each_other_one_is_told_to_try_again() {
    let mut process = process();
    let (one, two) = (process.connect(0), process.connect(1));
    let body = "redis.call('INCR', KEYS[1]) if ARGV[1] == '' then return 1 end \
                for i = 1, 200000 do end return redis.call('INCR', ARGV[1])";
    let call = |from: &str, to: &str| format!("EVAL \"{body}\" 1 {from} \"{to}\"");
    for _ in 0..2 {
        assert_eq!(run(&mut process, &one, &call("a", "")), ":1\r\n");
    }
    one.send(format!("{}\r\n", call("a", "b")).as_bytes());
    two.send(format!("{}\r\n", call("b", "a")).as_bytes());
    let mut heard = [answer(&mut process, &one), answer(&mut process, &two)];
    heard.sort();
    let [told, whole] = heard;
    assert!(told.starts_with("-TRYAGAIN"), "{told}");
    assert!(whole.starts_with(':'), "{whole}");
    assert!(!process.server.scripts.is_gate_wished() && !process.server.gate.is_reserved());
}

/// Neither keeps what the other one waits for: both have it once it is free.
#[test]
fn two_scripts_that_wait_for_a_third_both_have_what_they_need() {
    let mut process = process();
    let clients = [process.connect(0), process.connect(1)];
    let other = process.connect(1);
    let keeps = "EVAL \"for i = 1, ARGV[1] do redis.call('GET', KEYS[1]) end return 1\" 1 far";
    let body = "redis.call('INCR', KEYS[1]) if ARGV[1] == '' then return 1 end \
                return redis.call('INCR', ARGV[1])";
    for _ in 0..2 {
        assert_eq!(run(&mut process, &other, &format!("{keeps} 1")), ":1\r\n");
        let call = format!("EVAL \"{body}\" 1 near \"\"");
        assert_eq!(run(&mut process, &clients[0], &call), ":1\r\n");
    }
    other.send(format!("{keeps} 3000\r\n").as_bytes());
    process.turns(20);
    assert!(process.server.gate.is_reserved());
    for (client, key) in clients.iter().zip(["one", "two"]) {
        client.send(format!("EVAL \"{body}\" 1 {key} far\r\n").as_bytes());
    }
    assert_eq!(answer(&mut process, &other), ":1\r\n");
    let mut heard = clients.each_ref().map(|client| answer(&mut process, client));
    heard.sort();
    assert_eq!(heard, [":1\r\n", ":2\r\n"]);
}

/// One that is refused while it waits gives up what it needs for that.
#[test]
fn a_script_that_is_refused_while_it_waits_keeps_nobody_from_anything() {
    let mut process = process();
    let (client, other, admin) = (process.connect(0), process.connect(1), process.connect(0));
    let body = "if ARGV[1] == '' then return 1 end redis.pcall('INCR', ARGV[1]) \
                for i = 1, 2000 do redis.call('GET', KEYS[1]) end return 2";
    let library = format!(
        "#!lua name=library\\nredis.register_function('strays', function(KEYS, ARGV) {body} end)"
    );
    assert!(process.ask(&admin, &format!("FUNCTION LOAD \"{library}\"")).starts_with('$'));
    for _ in 0..2 {
        assert_eq!(run(&mut process, &client, "FCALL strays 1 near \"\""), ":1\r\n");
    }
    run(&mut process, &other, "EVAL \"return redis.call('GET', KEYS[1])\" 1 far");
    let keeps = "EVAL \"while true do redis.call('GET', KEYS[1]) end\" 1 far\r\n";
    other.send(keeps.as_bytes());
    process.turns(20);
    client.send(b"FCALL strays 1 near far\r\n");
    process.turns(200);
    assert_eq!(process.heard(&client), "", "it waits");
    process.server.switches.set(Switch::REPLICA, true);
    assert_eq!(answer(&mut process, &client), ":2\r\n");
    process.server.switches.set(Switch::REPLICA, false);
    assert!(!process.server.scripts.is_gate_wished());
    assert!(WaitRight::claim(process.server).is_some());
    assert_eq!(process.ask(&admin, "SCRIPT KILL"), "+OK\r\n");
    assert!(answer(&mut process, &other).contains("SCRIPT KILL"));
}

/// Nobody waits for its work while it waits for others.
#[test]
fn a_script_is_not_slow_because_it_waited() {
    let mut process = process();
    let (client, admin) = (process.connect(0), process.connect(0));
    let body = "redis.call('INCR', KEYS[1]) if ARGV[1] == '' then return 1 end \
                redis.call('INCR', ARGV[1]) for i = 1, 500 do redis.call('GET', KEYS[1]) end return 2";
    assert_eq!(process.ask(&admin, "CONFIG SET busy-reply-threshold 1000"), "+OK\r\n");
    for _ in 0..2 {
        assert_eq!(run(&mut process, &client, &format!("EVAL \"{body}\" 1 near \"\"")), ":1\r\n");
    }
    let reservation = process.reserve("far");
    client.send(format!("EVAL \"{body}\" 1 near far\r\n").as_bytes());
    process.turns(20);
    process.pass(5_000);
    process.turns(20);
    assert_eq!(process.heard(&client), "", "it waits");
    reservation.end();
    let mut answers = 0;
    while process.heard(&client) != ":2\r\n" {
        assert_eq!(process.ask(&admin, "GET other"), "$-1\r\n");
        answers += 1;
    }
    assert!(answers > 3, "it goes on in slices");
}

/// What a queued command may need the gate for is not only keys. It has it behind one that paused.
#[test]
fn a_transaction_has_the_gate_again_behind_a_script_that_paused() {
    for first in ["for i = 1, 200000 do end", "redis.call('SORT', 'set', 'BY', 'nosort')"] {
        let mut process = process();
        let client = process.connect(0);
        for from in (0..20_000).step_by(1_000) {
            let members: String = (from..from + 1_000).map(|at| format!(" {at}")).collect();
            process.ask(&client, &format!("SADD set{members}"));
        }
        process.ask(&client, "MULTI");
        for line in [&*format!("EVAL \"{first}\" 0"), "SORT set ALPHA STORE made", "FLUSHALL"] {
            process.ask(&client, line);
        }
        let heard = run(&mut process, &client, "EXEC");
        assert!(heard.ends_with(":20000\r\n+OK\r\n"), "{heard}");
    }
}
