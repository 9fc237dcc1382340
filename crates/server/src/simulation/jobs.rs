//! Long commands that go on in slices, while what they were admitted by changes.

use bobbin_io::Peer;

use super::process::SimulatedProcess;
use super::ticks;
use crate::base::random::Random;
use crate::engine::server::Switch;

/// A process in which long commands pause often, with two large sets, and two clients.
pub(super) fn process() -> (SimulatedProcess, Peer, Peer) {
    let mut process = SimulatedProcess::new(1);
    let (client, admin) = (process.connect(0), process.connect(0));
    assert_eq!(process.ask(&admin, "ACL SETUSER default on nopass ~* &* +@all"), "+OK\r\n");
    for set in ["one", "two"] {
        let members: String = (0..20_000).map(|at| format!("$9\r\n{set}:{at:05}\r\n")).collect();
        client.send(format!("*20002\r\n$4\r\nSADD\r\n$3\r\n{set}\r\n{members}").as_bytes());
        process.turns(2);
        assert_eq!(process.heard(&client), ":20000\r\n");
    }
    ticks::jump(Some((Random::new(7), 2, 1_000)));
    (process, client, admin)
}

/// Has a client begin a command that goes on as a job.
pub(super) fn begin(process: &mut SimulatedProcess, client: &Peer, commands: &str) {
    client.send(commands.as_bytes());
    process.turn(0);
    assert_eq!(process.heard(client), "", "it is done at once");
}

/// Takes turns until a client hears something.
pub(super) fn wait(process: &mut SimulatedProcess, client: &Peer) -> String {
    for _ in 0..100_000 {
        process.turns(1);
        let heard = process.heard(client);
        if !heard.is_empty() {
            return heard;
        }
    }
    let admin = process.connect(0);
    panic!("it is not answered: {}", process.ask(&admin, "CLIENT LIST"));
}

const STORE: &str = "SUNIONSTORE stored one two\r\n";

#[test]
fn a_long_command_changes_nothing_once_its_client_may_not() {
    let (mut process, client, admin) = process();
    begin(&mut process, &client, STORE);
    assert_eq!(process.ask(&admin, "ACL SETUSER default -sunionstore"), "+OK\r\n");
    let heard = wait(&mut process, &client);
    assert!(heard.starts_with("-NOPERM"), "{heard}");
    assert_eq!(process.ask(&admin, "EXISTS stored"), ":0\r\n");
}

#[test]
fn other_clients_are_served_while_very_many_are_listed() {
    let (mut process, client, admin) = process();
    let others: Vec<Peer> = (0..1000).map(|_| process.connect(0)).collect();
    begin(&mut process, &client, "CLIENT LIST\r\n");
    assert_eq!(process.ask(&admin, "EXISTS one"), ":1\r\n");
    let mut heard = wait(&mut process, &client);
    // The reply is too long to be sent at once.
    process.turns(10);
    heard += &process.heard(&client);
    assert_eq!(heard.matches("\nid=").count(), others.len() + 2);
}

#[test]
fn a_long_command_changes_nothing_on_what_has_become_a_replica() {
    let (mut process, client, admin) = process();
    begin(&mut process, &client, STORE);
    process.server.switches.set(Switch::REPLICA, true);
    let heard = wait(&mut process, &client);
    assert!(heard.starts_with("-READONLY"), "{heard}");
    process.server.switches.set(Switch::REPLICA, false);
    assert_eq!(process.ask(&admin, "EXISTS stored"), ":0\r\n");
}

/// A client with a command at work is not idle, however long that takes.
#[test]
fn a_long_command_is_answered_though_it_takes_longer_than_timeout() {
    let (mut process, client, admin) = process();
    assert_eq!(process.ask(&admin, "CONFIG SET timeout 1"), "+OK\r\n");
    begin(&mut process, &client, STORE);
    process.pass(3_000);
    assert_eq!(wait(&mut process, &client), ":40000\r\n");
}

/// What a client has sent before it goes is done, as far as no pause keeps it.
#[test]
fn what_a_client_has_sent_is_done_though_it_goes() {
    let (mut process, client, admin) = process();
    begin(&mut process, &client, &format!("{STORE}SET done 1\r\n"));
    client.close();
    process.turns(1);
    for _ in 0..100_000 {
        process.turns(1);
        if process.ask(&admin, "EXISTS done") == ":1\r\n" {
            break;
        }
    }
    assert_eq!(process.ask(&admin, "SCARD stored"), ":40000\r\n");
    process.turns(2);
    assert_eq!(process.server.clients.len(), 1, "and then it is gone");
    let client = process.connect(0);
    assert_eq!(process.ask(&admin, "CLIENT PAUSE 100 WRITE"), "+OK\r\n");
    assert_eq!(process.ask(&client, "SET done 2"), "");
    client.close();
    process.turns(2);
    assert_eq!(process.server.clients.len(), 1);
    process.pass(200);
    process.turns(2);
    assert_eq!(process.ask(&admin, "GET done"), "$1\r\n1\r\n");
}

/// A client may say that it sends nothing more and still read.
#[test]
fn a_client_that_has_finished_sending_gets_its_replies() {
    let (mut process, client, admin) = process();
    begin(&mut process, &client, &format!("{STORE}GET none\r\n"));
    client.finish();
    assert_eq!(wait(&mut process, &client), ":40000\r\n$-1\r\n");
    process.turns(2);
    assert!(client.is_ended());
    // What follows CONFIG SET is parsed once that is done.
    let client = process.connect(0);
    client.send(b"CONFIG SET timeout 0\r\nCONFIG SET timeout 1\r\nPING\r\n");
    client.finish();
    process.turns(6);
    assert_eq!(process.heard(&client), "+OK\r\n+OK\r\n+PONG\r\n");
    assert!(client.is_ended());
    // A reply waits for room.
    let client = process.connect(0);
    client.set_room(Some(3));
    client.send(b"PING\r\n");
    process.turns(1);
    client.finish();
    process.turns(2);
    assert_eq!(process.heard(&client), "+PO");
    client.set_room(None);
    process.turns(3);
    assert_eq!(process.heard(&client), "NG\r\n");
    assert!(client.is_ended());
    // Nobody is there for a message.
    let client = process.connect(0);
    assert_eq!(process.ask(&client, "BLPOP none 0"), "");
    client.finish();
    process.turns(2);
    assert!(client.is_ended());
    assert_eq!(process.ask(&admin, "PING"), "+PONG\r\n");
    assert_eq!(process.server.clients.len(), 1);
}

/// Likewise behind a large argument, which the worker receives by itself.
#[test]
fn what_a_client_has_sent_behind_a_large_argument_is_done_though_it_goes() {
    let (mut process, client, admin) = process();
    let large = format!("*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$1000000\r\n{}", "v".repeat(1_000_000));
    for part in large.as_bytes().chunks(100_000) {
        client.send(part);
        process.turns(1);
    }
    client.send(format!("\r\n{STORE}SET done 1\r\n").as_bytes());
    process.turns(1);
    client.close();
    for _ in 0..100_000 {
        process.turns(1);
        if process.ask(&admin, "EXISTS done") == ":1\r\n" {
            break;
        }
    }
    assert_eq!(process.ask(&admin, "MGET done"), "*1\r\n$1\r\n1\r\n");
    process.turns(2);
    assert_eq!(process.server.clients.len(), 1, "and then it is gone");
}

/// A script that others wait for ends without its client, unless it has written. One that is not
/// slow is done, as all that its client has sent.
#[test]
fn a_slow_script_ends_with_its_client() {
    let (mut process, client, admin) = process();
    assert_eq!(process.ask(&admin, "CONFIG SET busy-reply-threshold 500"), "+OK\r\n");
    let short = "for i = 1, 20000 do end return redis.call('set', KEYS[1], 1)";
    begin(&mut process, &client, &format!("EVAL \"{short}\" 1 done\r\n"));
    client.close();
    process.turns(500);
    assert_eq!(process.ask(&admin, "EXISTS done"), ":1\r\n");
    let client = process.connect(0);
    begin(&mut process, &client, "EVAL \"while true do end\" 0\r\n");
    client.close();
    for _ in 0..20_000 {
        if process.server.clients.len() > 1 {
            process.turns(1);
        }
    }
    assert_eq!(process.server.clients.len(), 1);
    assert_eq!(process.ask(&admin, "PING"), "+PONG\r\n");
}

/// Long replies wait for a shard that a script keeps, more of them than are worked on at once, and
/// which began before it. The script goes on all the same.
#[test]
fn replies_that_wait_for_a_script_do_not_keep_it_from_its_end() {
    let mut process = SimulatedProcess::new(1);
    let (script, admin) = (process.connect(0), process.connect(0));
    let key = |number: usize| format!("{number:0>200}");
    assert_eq!(process.ask(&admin, "CONFIG SET busy-reply-threshold 100000000"), "+OK\r\n");
    for from in (0..5_000).step_by(100) {
        let words: String =
            (from..from + 100).map(|number| format!(" {} v", key(number))).collect();
        assert_eq!(process.ask(&admin, &format!("MSET{words}")), "+OK\r\n");
    }
    let mut keys: Vec<String> = (0..5_000).map(key).collect();
    keys.sort_by_key(|key| process.server.keyspace.hash(key.as_bytes()).shard());
    let (middle, last) = (&keys[3_000], &keys[4_999]);
    let source = "for i = 1, ARGV[1] do redis.call('exists', KEYS[1]) end return 1";
    // From its first run on it is known to keep to its key.
    assert_eq!(process.ask(&script, &format!("EVAL \"{source}\" 1 {last} 1")), ":1\r\n");
    ticks::jump(Some((Random::new(7), 2, 1_000)));
    let readers: Vec<_> = (0..4).map(|_| process.connect(0)).collect();
    process.turns(2);
    readers.iter().for_each(|reader| reader.send(b"KEYS *\r\n"));
    process.turn(0);
    let reservation = process.reserve(middle);
    process.turns(1_000);
    script.send(format!("EVAL \"{source}\" 1 {last} 3000\r\n").as_bytes());
    process.turns(3);
    assert_eq!(process.server.gate.reservations(), 2, "the script is in its midst");
    reservation.end();
    assert_eq!(wait(&mut process, &script), ":1\r\n");
    for reader in &readers {
        let heard: String = (0..1_000)
            .map(|_| {
                process.turns(1);
                process.heard(reader)
            })
            .collect();
        assert!(heard.starts_with("*5000\r\n") && heard.len() > 1_000_000, "{}", heard.len());
    }
}

/// The source of an import sees what is dead. A long command of another client does not, whatever
/// the source does meanwhile.
#[test]
fn a_long_command_sees_what_its_own_client_sees() {
    let (mut process, client, admin) = process();
    assert_eq!(process.ask(&client, "SET dead value PX 10"), "+OK\r\n");
    assert_eq!(process.ask(&admin, "CONFIG SET import-mode yes"), "+OK\r\n");
    assert_eq!(process.ask(&admin, "CLIENT IMPORT-SOURCE ON"), "+OK\r\n");
    process.pass(20);
    assert_eq!(process.ask(&admin, "EXISTS dead"), ":1\r\n");
    client.send(b"KEYS *\r\n");
    let mut heard = String::new();
    while !heard.ends_with("\r\n") || heard.len() < 10 {
        admin.send(b"EXISTS dead\r\n");
        process.turns(1);
        heard += &process.heard(&client);
    }
    assert!(heard.contains("one") && !heard.contains("dead"), "{heard}");
}

/// A replica must not delete it either: its primary may have another time for it by now.
#[test]
fn a_dead_hyperloglog_stays_where_nothing_expires_though_it_is_counted() {
    let (mut process, client, admin) = process();
    assert_eq!(process.ask(&client, "PFADD dead a b"), ":1\r\n");
    assert_eq!(process.ask(&client, "PEXPIRE dead 10"), ":1\r\n");
    assert_eq!(process.ask(&admin, "CONFIG SET import-mode yes"), "+OK\r\n");
    assert_eq!(process.ask(&admin, "CLIENT IMPORT-SOURCE ON"), "+OK\r\n");
    process.pass(20);
    assert_eq!(process.ask(&client, "PFCOUNT dead"), ":0\r\n");
    assert_eq!(process.ask(&admin, "PFCOUNT dead"), ":2\r\n");
}

/// In import mode nothing goes by itself, whether or not a script pauses on its way.
#[test]
fn a_paused_script_takes_out_no_dead_key_where_none_goes() {
    let (mut process, client, admin) = process();
    assert_eq!(process.ask(&client, "SET dead value PX 10"), "+OK\r\n");
    assert_eq!(process.ask(&admin, "CONFIG SET import-mode yes"), "+OK\r\n");
    process.pass(20);
    let script = "local n = 0 for i = 1, 200000 do n = n + i end return redis.call('GET', KEYS[1])";
    begin(&mut process, &client, &format!("EVAL \"{script}\" 1 dead\r\n"));
    assert_eq!(wait(&mut process, &client), "$-1\r\n");
    assert_eq!(process.ask(&admin, "CLIENT IMPORT-SOURCE ON"), "+OK\r\n");
    assert_eq!(process.ask(&admin, "EXISTS dead"), ":1\r\n");
}

/// A process in which a client has told a listener more than that has heard of.
fn overrun() -> (SimulatedProcess, Peer, Peer) {
    let mut process = SimulatedProcess::new(2);
    let (client, listener) = (process.connect(0), process.connect(1));
    assert_eq!(process.ask(&client, "CONFIG SET notify-keyspace-events KEA"), "+OK\r\n");
    process.ask(&listener, "PSUBSCRIBE *");
    ticks::jump(Some((Random::new(7), 2, 300)));
    process.ask(&client, "MULTI");
    for from in 0..40 {
        let some: String =
            (0..1_000).map(|at| format!("SET {}:{at} v\r\n", from * 1_000)).collect();
        client.send(some.as_bytes());
        process.turns(1);
        process.heard(&client);
    }
    (process, client, listener)
}

/// A transaction that goes on as a job may tell others more than they have heard of yet. Its client
/// waits for them, and not for ever.
#[test]
fn a_client_whose_job_told_others_much_goes_on_once_they_have_heard_it() {
    let (mut process, client, listener) = overrun();
    client.send(b"EXEC\r\nPING\r\n");
    let mut heard = String::new();
    for _ in 0..100_000 {
        process.turns(1);
        heard += &process.heard(&client);
        process.heard(&listener);
        if heard.ends_with("+PONG\r\n") {
            return;
        }
    }
    panic!("it waits for ever, behind {} bytes", heard.len());
}

/// It may also go before they have heard it. Then nothing of it is left.
#[test]
fn a_client_whose_job_told_others_much_may_go() {
    let (mut process, client, listener) = overrun();
    client.send(b"EXEC\r\n");
    for _ in 0..20 {
        process.turn(0);
    }
    client.close();
    for _ in 0..100_000 {
        process.turns(1);
        process.heard(&listener);
        if process.server.clients.len() == 1 {
            return;
        }
    }
    panic!("it is still there");
}

#[test]
fn a_long_pop_goes_on_with_the_next_key_when_the_first_is_gone() {
    let (mut process, client, admin) = process();
    let members: Vec<_> = (1..=5_000).map(|member| format!("{member} {member}")).collect();
    for (fill, one, pop) in [
        ("RPUSH", "v", "LMPOP 2 first second LEFT COUNT 100000\r\n"),
        ("ZADD", "1 v", "ZMPOP 2 first second MIN COUNT 100000\r\n"),
    ] {
        client.send(format!("{fill} first {}\r\n", members.join(" ")).as_bytes());
        wait(&mut process, &client);
        assert_eq!(process.ask(&client, &format!("{fill} second {one}")), ":1\r\n");
        begin(&mut process, &client, pop);
        assert_eq!(process.ask(&admin, "DEL first"), ":1\r\n");
        let answer = wait(&mut process, &client);
        assert!(answer.starts_with("*2\r\n$6\r\nsecond\r\n"), "{pop}: {answer}");
        assert_eq!(process.ask(&client, "EXISTS second"), ":0\r\n");
    }
}

#[test]
fn a_scan_ends_with_its_client_once_its_reply_is_longer_than_that_may_have() {
    let (mut process, client, admin) = process();
    let mut turns_until = |client: &Peer, is_over: &dyn Fn(&str) -> bool| {
        begin(&mut process, client, "SSCAN one 0 COUNT 20000\r\n");
        let turns = (0..100_000).find(|_| {
            process.turns(1);
            is_over(&process.heard(client))
        });
        assert_eq!(process.ask(&admin, LIMIT), "+OK\r\n");
        (turns.expect("it ends"), process.connect(0))
    };
    let (whole, next) = turns_until(&client, &|heard| !heard.is_empty());
    let (ended, _) = turns_until(&next, &|_| next.is_ended());
    assert!(ended < whole / 2, "{ended} of {whole} turns");
}

/// A third of what the scan answers.
const LIMIT: &str = "CONFIG SET client-output-buffer-limit \"normal 100000 0 0\"";

/// Has a client begin a transaction of a long command and others, and kills it.
fn kill_within(process: &mut SimulatedProcess, others: &str) {
    let (client, admin) = (process.connect(0), process.connect(0));
    let id = process.ask(&client, "CLIENT ID").trim_matches([':', '\r', '\n']).to_owned();
    process.ask(&client, "MULTI");
    for line in ["SORT one ALPHA STORE sorted"].into_iter().chain(others.lines()) {
        assert_eq!(process.ask(&client, line), "+QUEUED\r\n");
    }
    begin(process, &client, "EXEC\r\n");
    assert_eq!(process.ask(&admin, &format!("CLIENT KILL ID {id}")), ":1\r\n");
    assert_eq!(process.ask(&admin, "GET done"), "", "it waits");
    assert_eq!(wait(process, &admin), "$1\r\n1\r\n");
    process.turns(10);
}

#[test]
fn what_a_killed_client_goes_on_with_leaves_nothing_of_it_behind() {
    let (mut process, _, admin) = process();
    let listens = "SUBSCRIBE channel\nPSUBSCRIBE *\nSSUBSCRIBE shard\nCLIENT TRACKING ON\nGET one";
    kill_within(&mut process, &format!("HELLO 3\n{}\nSET done 1", listens.replace("GET", "TYPE")));
    assert_eq!(process.ask(&admin, "PUBSUB NUMSUB channel"), "*2\r\n$7\r\nchannel\r\n:0\r\n");
    assert_eq!(process.ask(&admin, "PUBLISH channel x"), ":0\r\n");
    assert_eq!(process.ask(&admin, "SPUBLISH shard x"), ":0\r\n");
    assert_eq!(process.ask(&admin, "PUBSUB NUMPAT"), ":0\r\n");
    let info = process.ask(&admin, "INFO clients");
    assert!(info.contains("tracking_clients:0") && info.contains("pubsub_clients:0"), "{info}");
}

#[test]
fn what_a_killed_client_goes_on_with_reads_nothing() {
    let (mut process, _, admin) = process();
    kill_within(&mut process, "SMEMBERS two\nGET done\nSET done 1\nSMEMBERS one\nINCR after");
    assert_eq!(process.ask(&admin, "GET after"), "$1\r\n1\r\n");
    let info = process.ask(&admin, "INFO commandstats");
    assert!(info.contains("cmdstat_incr:calls=1,") && !info.contains("smembers"), "{info}");
}

/// A pop whose reply is large waits for the end of a pause. Replies that begin later do not.
#[test]
fn a_job_that_is_parked_keeps_no_other_from_its_end() {
    let (mut process, client, admin) = process();
    let value = "v".repeat(1_000);
    for _ in 0..100 {
        let values = format!(" {value}").repeat(50);
        process.ask(&admin, &format!("RPUSH list{values}"));
    }
    begin(&mut process, &client, "LPOP list 5000\r\n");
    admin.send(b"CLIENT PAUSE 60000 WRITE\r\n");
    assert_eq!(wait(&mut process, &admin), "+OK\r\n");
    process.turns(1_000);
    assert_eq!(process.heard(&client), "", "it waits for the pause");
    admin.send(b"SMEMBERS one\r\nPING\r\n");
    let mut heard = String::new();
    while !heard.ends_with("+PONG\r\n") {
        heard += &wait(&mut process, &admin);
    }
    assert_eq!(process.ask(&admin, "CLIENT UNPAUSE"), "+OK\r\n");
    assert!(wait(&mut process, &client).starts_with("*5000\r\n"));
}

#[test]
fn a_long_command_uses_keys_as_its_own_client_wants() {
    let (mut process, client, admin) = process();
    for member in 0..200 {
        let keys: String =
            (0..100).map(|at| format!(" weight_one:{:05} 1", member * 100 + at)).collect();
        process.ask(&admin, &format!("MSET{keys}"));
    }
    process.pass(60_000);
    assert_eq!(process.ask(&client, "CLIENT NO-TOUCH ON"), "+OK\r\n");
    begin(&mut process, &client, "SORT one BY nosort GET weight_*\r\n");
    let mut heard = String::new();
    while heard.is_empty() {
        process.ask(&admin, "GET done");
        heard = process.heard(&client);
    }
    for member in (0..20_000).step_by(97) {
        let idle = process.ask(&admin, &format!("OBJECT IDLETIME weight_one:{member:05}"));
        assert_eq!(idle, ":60\r\n", "{member}");
    }
}

/// What a client is told of the copies that it keeps counts, also while its command is at work.
#[test]
fn a_client_that_is_told_much_while_its_script_runs_reaches_its_limit() {
    let (mut process, client, admin) = process();
    assert!(process.ask(&client, "HELLO 3").starts_with('%'));
    assert_eq!(process.ask(&client, "CLIENT TRACKING ON BCAST"), "+OK\r\n");
    assert_eq!(process.ask(&admin, LIMIT), "+OK\r\n");
    assert_eq!(process.ask(&admin, "CONFIG SET busy-reply-threshold 100000000"), "+OK\r\n");
    begin(&mut process, &client, "EVAL \"while true do end\" 1 none\r\n");
    for at in 0..5_000 {
        assert_eq!(process.ask(&admin, &format!("SET key:{at} v")), "+OK\r\n");
        if client.is_ended() {
            break;
        }
    }
    assert!(client.is_ended());
}

#[test]
fn what_a_script_sends_to_its_own_client_comes_before_what_that_has_sent_behind_it() {
    let (mut process, client, _) = process();
    assert!(process.ask(&client, "HELLO 3").starts_with('%'));
    assert!(process.ask(&client, "SUBSCRIBE channel").starts_with('>'));
    let script = "for i = 1, 20000 do end redis.call('publish', 'channel', 'news') return 7";
    begin(&mut process, &client, &format!("EVAL \"{script}\" 0\r\nPING\r\n"));
    let mut heard = String::new();
    while !heard.contains("+PONG\r\n") {
        heard += &wait(&mut process, &client);
    }
    let (before, after) = heard.split_once("+PONG").expect("it is there");
    assert!(before.starts_with(":7\r\n>3\r\n") && before.contains("news"), "{heard}");
    assert_eq!(after, "\r\n");
}
