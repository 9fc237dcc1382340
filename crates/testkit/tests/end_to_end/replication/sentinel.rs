//! Real Sentinels watch Bobbin nodes, and have a replica take over when the primary fails.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use bobbin_testkit::peers::java::Java;
use bobbin_testkit::peers::{self, go_redis_failover};
use bobbin_testkit::server::sentinel::{PRIMARY, Sentinels};
use bobbin_testkit::{ReceiveOutcome, ReplyFrame, TestConnection, TestServer, until};

const ARGUMENTS: [&str; 2] = ["--repl-diskless-sync-delay", "0"];
/// For how long a client waits for a reply.
const SILENCE: Duration = Duration::from_secs(2);

/// A primary with two replicas.
fn nodes() -> [TestServer; 3] {
    let primary = TestServer::bobbin(&ARGUMENTS);
    let port = primary.address().port().to_string();
    let replica =
        || TestServer::bobbin(&[&ARGUMENTS[..], &["--replicaof", "127.0.0.1", &port]].concat());
    let nodes = [primary, replica(), replica()];
    until(|| nodes[1..].iter().all(|node| info(node, "master_link_status") == "up"));
    nodes
}

/// The reply to a command. A Sentinel that changes a node's part ends its connections: then it is
/// asked again.
fn ask(server: &TestServer, command: &str) -> ReplyFrame {
    let words: Vec<_> = command.split(' ').collect();
    let mut reply = None;
    until(|| {
        reply = server.connect().call(&words).ok();
        reply.is_some()
    });
    reply.expect("it came")
}

/// A field of INFO; empty where there is none.
fn info(server: &TestServer, field: &str) -> String {
    let text = ask(server, "INFO").text();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_default().to_owned()
}

/// Writes keys until the primary fails. `confirmed` gets the number of each that both replicas
/// have.
fn write(mut client: TestConnection, confirmed: &Mutex<Vec<u32>>) {
    let mut answers = |words: &[&str], expected: ReplyFrame| {
        client.send(words)?;
        Ok::<_, std::io::Error>(client.receive_within(SILENCE)? == ReceiveOutcome::Reply(expected))
    };
    for number in 0.. {
        let key = number.to_string();
        match answers(&["SET", &key, &key], ReplyFrame::simple("OK")) {
            Ok(true) => {}
            Ok(false) | Err(_) => return,
        }
        match answers(&["WAIT", "2", "1000"], ReplyFrame::integer(2)) {
            Ok(true) => confirmed.lock().unwrap().push(number),
            Ok(false) | Err(_) => return,
        }
    }
}

/// The primary fails while a client writes. Returns the node that took over, once it was seen to
/// have all that was confirmed.
fn fail_over<'a>(
    sentinels: &Sentinels,
    nodes: &'a [TestServer; 3],
    signal: &str,
) -> &'a TestServer {
    let old = nodes[0].address().port();
    let confirmed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| write(nodes[0].connect(), &confirmed));
        until(|| confirmed.lock().unwrap().len() >= 200);
        nodes[0].signal(signal);
        until(|| sentinels.primary_port().is_some_and(|port| port != old));
    });
    let port = sentinels.primary_port().expect("they agree");
    let new = nodes.iter().find(|node| node.address().port() == port).expect("it is ours");
    until(|| ask(new, "SET after 1") == ReplyFrame::simple("OK"));
    for number in confirmed.into_inner().unwrap() {
        let key = number.to_string();
        assert_eq!(ask(new, &format!("GET {key}")), ReplyFrame::bulk(key), "WAIT confirmed it");
    }
    new
}

/// The other replica follows the new primary: without a copy, unless it was further.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_replica_takes_over_when_the_primary_is_killed() {
    let nodes = nodes();
    let sentinels = Sentinels::watch("valkey-server", 3, &nodes[0], 2);
    let new = fail_over(&sentinels, &nodes, "KILL");
    let port = new.address().port();
    let other = nodes[1..].iter().find(|node| node.address().port() != port).expect("there is one");
    until(|| info(other, "master_port") == port.to_string());
    until(|| ask(other, "GET after") == ReplyFrame::bulk("1"));
    let came = |field| info(new, field).parse::<u32>().expect("it is a number");
    assert_eq!(came("sync_full") + came("sync_partial_ok"), 1);
}

/// A primary that comes back follows the one that took over.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_primary_that_stood_still_follows_the_new_one() {
    let nodes = nodes();
    let sentinels = Sentinels::watch("redis-server", 3, &nodes[0], 2);
    let new = fail_over(&sentinels, &nodes, "STOP");
    nodes[0].signal("CONT");
    let port = new.address().port().to_string();
    until(|| info(&nodes[0], "master_port") == port);
    until(|| ask(&nodes[0], "GET after") == ReplyFrame::bulk("1"));
    assert_eq!(info(&nodes[0], "role"), "slave");
}

/// A program that writes through a client that knows Sentinel, and says how it fares. It ends by
/// itself.
struct Program {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(command: &mut Command, sentinels: &Sentinels) -> Self {
        let ports = sentinels.nodes.iter().map(|node| node.address().port().to_string());
        let started = command.arg(PRIMARY).args(ports).stdout(Stdio::piped()).spawn();
        let mut child = started.expect("it is there (`cargo xtask peers` installs it)");
        let output = BufReader::new(child.stdout.take().expect("it is a pipe"));
        Self { child, output }
    }

    fn expect(&mut self, word: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it is text");
        assert_eq!(line.trim(), word);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// redis-py, Jedis and, where it was built, go-redis go on with the replica that took over.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn clients_find_the_new_primary() {
    let script = peers::repository().join("tests/clients/redis_py_sentinel.py");
    let java = Java::compile("SentinelPool");
    let nodes = nodes();
    let sentinels = Sentinels::watch("valkey-server", 3, &nodes[0], 2);
    let old = nodes[0].address().port();
    let mut commands = vec![("redis-py", Command::new(peers::python())), ("jedis", java.command())];
    commands[0].1.arg(script);
    if go_redis_failover().exists() {
        commands.push(("go-redis", Command::new(go_redis_failover())));
    }
    let start = |(_, command): &mut (_, Command)| Program::start(command, &sentinels);
    let mut programs: Vec<_> = commands.iter_mut().map(start).collect();
    programs.iter_mut().for_each(|program| program.expect("going"));
    nodes[0].signal("KILL");
    for word in ["again", "ok"] {
        programs.iter_mut().for_each(|program| program.expect(word));
    }
    let port = sentinels.primary_port().expect("they agree");
    assert_ne!(port, old);
    let new = nodes.iter().find(|node| node.address().port() == port).expect("it is ours");
    for (name, _) in &commands {
        assert!(!ask(new, &format!("GET {name}")).is_null(), "{name}");
    }
}
