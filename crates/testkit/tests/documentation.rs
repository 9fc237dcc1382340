//! What COMMAND DOCS and COMMAND INFO say of the commands that are there: the same as the
//! reference, but for the sentences, which are our own. Hints of shells are made from it.

use std::collections::BTreeMap;

use bobbin_testkit::{Connection, Reply, Server};

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn documentation_is_that_of_the_reference() {
    let (valkey, bobbin) = (Server::valkey(&[]), Server::bobbin(&[]));
    for (command, read) in QUESTIONS {
        let read = |server: &Server| {
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

/// Commands, subcommands among them, and what is said of each: a value for each path.
type Facts = BTreeMap<String, BTreeMap<String, String>>;

/// Takes an answer apart.
type Read = fn(Reply) -> Facts;

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

fn ask(connection: &mut Connection, command: &str) -> Reply {
    let reply = connection.say(command);
    assert!(!reply.is_error(), "{reply:?}");
    reply
}

fn docs(reply: Reply) -> Facts {
    let mut facts = Facts::new();
    add_docs(&reply, &mut facts);
    facts
}

fn add_docs(commands: &Reply, facts: &mut Facts) {
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

fn infos(reply: Reply) -> Facts {
    let mut facts = Facts::new();
    reply.items().iter().for_each(|command| add_info(command, &mut facts));
    facts
}

fn add_info(command: &Reply, facts: &mut Facts) {
    let mut of_command = BTreeMap::new();
    let items = command.items();
    for (at, item) in items.iter().enumerate().take(items.len() - 1) {
        add(item, format!("/{at}"), &mut of_command);
    }
    items[items.len() - 1].items().iter().for_each(|command| add_info(command, facts));
    facts.insert(items[0].text(), of_command);
}

/// Adds all that is in a reply; what has no order is sorted.
fn add(reply: &Reply, path: String, facts: &mut BTreeMap<String, String>) {
    match reply {
        Reply::Aggregate { kind: b'%', items } => {
            for pair in items.chunks(2) {
                let name = pair[0].text();
                // These are sentences.
                if name != "notes" && name != "summary" {
                    add(&pair[1], format!("{path}/{name}"), facts);
                }
            }
        }
        Reply::Aggregate { kind: b'~', items } => {
            let mut words: Vec<_> = items.iter().map(Reply::text).collect();
            words.sort();
            facts.insert(path, words.join(" "));
        }
        Reply::Aggregate { items, .. } => {
            for (at, item) in items.iter().enumerate() {
                add(item, format!("{path}/{at}"), facts);
            }
        }
        scalar => drop(facts.insert(path, scalar.text())),
    }
}
