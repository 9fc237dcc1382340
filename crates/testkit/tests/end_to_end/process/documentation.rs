//! What COMMAND DOCS and COMMAND INFO say of the commands that are there: the same as the
//! reference, but for the sentences, which are our own. Hints of shells are made from it.

use std::collections::{BTreeMap, BTreeSet};

use bobbin_testkit::{ReplyFrame, TestConnection, TestServer};

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn documentation_is_that_of_the_reference() {
    let (valkey, bobbin) = (TestServer::valkey(&[]), TestServer::bobbin(&[]));
    for (command, read) in QUESTIONS {
        let read = |server: &TestServer| {
            let mut connection = server.connect();
            connection.say("HELLO 3");
            read(ask(&mut connection, command))
        };
        let (expected, found) = (read(&valkey), read(&bobbin));
        let mut wrong = Vec::new();
        for (name, facts) in &found {
            let Some(wanted) = expected.get(name) else { continue };
            let paths = facts.keys().chain(wanted.keys());
            let mut paths: Vec<_> = paths.filter(|path| !is_known(name, path)).collect();
            paths.sort_unstable();
            paths.dedup();
            for path in paths {
                let (ours, theirs) = (facts.get(path), wanted.get(path));
                if ours != theirs {
                    wrong.push(format!("{name} {path}: {ours:?}, expected {theirs:?}"));
                }
            }
        }
        assert!(found.len() > 300, "{command}: only {} commands", found.len());
        assert!(wrong.is_empty(), "{command}: {}\n{}", wrong.len(), wrong.join("\n"));
    }
}

/// What is listed in valkey-server's INFO, CLIENT LIST, CONFIG GET and HELP is here, by the same
/// name and in the same order, with the same value where that is a default; and COMPAT.md tells
/// what else there is.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn names_are_those_of_the_reference() {
    let (valkey, bobbin) = (TestServer::valkey(&[]), TestServer::bobbin(&[]));
    for (question, read, missing, own) in NAMED {
        let read = |server: &TestServer| read(&ask(&mut server.connect(), question).text());
        let (theirs, ours) = (read(&valkey), read(&bobbin));
        let without = |names: &[String], others: &[String]| -> Vec<String> {
            names.iter().filter(|name| !others.contains(name)).cloned().collect()
        };
        assert_eq!(without(&theirs, &ours), missing, "{question}");
        assert_eq!(without(&ours, &theirs), own, "{question}");
        let shared: Vec<_> = ours.iter().filter(|name| theirs.contains(name)).collect();
        assert!(theirs.iter().filter(|name| ours.contains(name)).eq(shared), "{question}: order");
    }
    let options = |server: &TestServer| {
        let reply = ask(&mut server.connect(), "CONFIG GET *");
        let pairs = reply.items().chunks(2).map(|pair| (pair[0].text(), pair[1].text()));
        pairs.collect::<BTreeMap<_, _>>()
    };
    let (theirs, ours) = (options(&valkey), options(&bobbin));
    let differs = |name: &&String| ours.get(*name) != theirs.get(*name);
    let different: Vec<_> = theirs.keys().filter(differs).collect();
    let known = ["dir", "hash-seed", "io-threads", "logfile", "port", "syslog-ident"];
    assert!(different.iter().all(|name| known.contains(&name.as_str())), "{different:?}");
    assert!(ours["io-threads"].parse::<usize>().is_ok_and(|threads| threads > 0));
    for container in CONTAINERS {
        let lines = |server: &TestServer| {
            let reply = ask(&mut server.connect(), &format!("{container} HELP"));
            let lines: Vec<_> = reply.items().iter().map(ReplyFrame::text).collect();
            // What is indented explains the line before.
            let names =
                lines.iter().skip(1).filter(|line| !line.starts_with(' ') && !line.is_empty());
            let name = |line: &String| line.split([' ', '(']).next().map(str::to_owned);
            names.filter_map(name).filter(|name| !name.is_empty()).collect::<BTreeSet<_>>()
        };
        assert_eq!(lines(&valkey), lines(&bobbin), "{container} HELP");
    }
}

/// Commands with HELP; CLUSTER's is refused without a cluster, and DEBUG's is our own.
const CONTAINERS: [&str; 15] = [
    "ACL",
    "CLIENT",
    "COMMAND",
    "COMMANDLOG",
    "CONFIG",
    "FUNCTION",
    "LATENCY",
    "MEMORY",
    "MODULE",
    "OBJECT",
    "PUBSUB",
    "SCRIPT",
    "SLOWLOG",
    "XGROUP",
    "XINFO",
];

/// A question, how names are taken from the answer, those that only Valkey has, and those that only
/// Bobbin has.
type Named =
    (&'static str, fn(&str) -> Vec<String>, &'static [&'static str], &'static [&'static str]);

const NAMED: [Named; 2] = [
    (
        "INFO everything",
        info_names,
        &["valkey_release_stage", "redis_build_id", "gcc_version", "used_active_time_main_thread"],
        &[
            "bobbin_version",
            "redis_mode",
            "io_driver",
            "tls_handshakes",
            "tls_handshakes_resumed",
            "tls_handshakes_failed",
            "rdb_current_kept_bytes",
            "# Threads",
            "worker_threads",
            "worker_threads_wanted",
            "worker",
        ],
    ),
    ("CLIENT LIST", client_names, &[], &["io-thread"]),
];

/// Sections, and fields without numbers at the end of their names; not those of commands.
fn info_names(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in text.lines() {
        let name = line.split(':').next().unwrap_or_default();
        let name = name.trim_end_matches(|end: char| end.is_ascii_digit()).trim_end_matches('_');
        let of_commands = ["cmdstat", "errorstat", "latency_percentiles"];
        if !name.is_empty()
            && !of_commands.iter().any(|start| name.starts_with(start))
            && !names.iter().any(|known| known == name)
        {
            names.push(name.to_owned());
        }
    }
    names
}

fn client_names(text: &str) -> Vec<String> {
    let line = text.lines().next().unwrap_or_default();
    line.split(' ').filter_map(|word| Some(word.split_once('=')?.0.to_owned())).collect()
}

/// Commands, subcommands among them, and what is said of each: a value for each path.
type Facts = BTreeMap<String, BTreeMap<String, String>>;

/// Takes an answer apart.
type Read = fn(ReplyFrame) -> Facts;

const QUESTIONS: [(&str, Read); 2] = [("COMMAND DOCS", docs), ("COMMAND", infos)];

/// Where we differ on purpose.
fn is_known(name: &str, path: &str) -> bool {
    match name {
        // We know operations of Redis 8.2, too.
        "bitop" => path.starts_with("/arguments/0/arguments"),
        // There is nobody yet to take over.
        "shutdown" => path.starts_with("/arguments/0/arguments/0/arguments/4"),
        // It comes with the cluster.
        "cluster|migrateslots" => path.starts_with("/arguments"),
        _ => false,
    }
}

fn ask(connection: &mut TestConnection, command: &str) -> ReplyFrame {
    let reply = connection.say(command);
    assert!(!reply.is_error(), "{reply:?}");
    reply
}

fn docs(reply: ReplyFrame) -> Facts {
    let mut facts = Facts::new();
    add_docs(&reply, &mut facts);
    facts
}

fn add_docs(commands: &ReplyFrame, facts: &mut Facts) {
    for command in commands.items().chunks(2) {
        let mut of_command = BTreeMap::new();
        for field in command[1].items().chunks(2) {
            match field[0].text().as_str() {
                "summary" | "complexity" => {}
                "subcommands" => add_docs(&field[1], facts),
                "history" => {
                    let changes = field[1].items().iter();
                    let mut versions: Vec<_> =
                        changes.map(|change| change.items()[0].text()).collect();
                    versions.sort();
                    of_command.insert("/history".to_owned(), versions.join(" "));
                }
                name => add(&field[1], format!("/{name}"), &mut of_command),
            }
        }
        facts.insert(command[0].text(), of_command);
    }
}

fn infos(reply: ReplyFrame) -> Facts {
    let mut facts = Facts::new();
    reply.items().iter().for_each(|command| add_info(command, &mut facts));
    facts
}

fn add_info(command: &ReplyFrame, facts: &mut Facts) {
    let mut of_command = BTreeMap::new();
    let items = command.items();
    for (at, item) in items.iter().enumerate().take(items.len() - 1) {
        add(item, format!("/{at}"), &mut of_command);
    }
    items[items.len() - 1].items().iter().for_each(|command| add_info(command, facts));
    facts.insert(items[0].text(), of_command);
}

/// Adds all that is in a reply; what has no order is sorted.
fn add(reply: &ReplyFrame, path: String, facts: &mut BTreeMap<String, String>) {
    match reply {
        ReplyFrame::Aggregate { kind: b'%', items } => {
            for pair in items.chunks(2) {
                let name = pair[0].text();
                // These are sentences.
                if name != "notes" && name != "summary" {
                    add(&pair[1], format!("{path}/{name}"), facts);
                }
            }
        }
        ReplyFrame::Aggregate { kind: b'~', items } => {
            let mut words: Vec<_> = items.iter().map(ReplyFrame::text).collect();
            words.sort();
            facts.insert(path, words.join(" "));
        }
        ReplyFrame::Aggregate { items, .. } => {
            for (at, item) in items.iter().enumerate() {
                add(item, format!("{path}/{at}"), facts);
            }
        }
        scalar => drop(facts.insert(path, scalar.text())),
    }
}
