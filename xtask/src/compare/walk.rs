//! What both servers tell of themselves: commands, options, INFO, HELP, and the errors of commands
//! with too few or too many arguments.

use std::collections::{BTreeMap, BTreeSet};

use bobbin_testkit::ReplyFrame;

use super::{Difference, Pair, Wanted, text, words};

/// Facts by their names.
type Facts = BTreeMap<String, String>;

/// Compares all that is listed.
pub(super) fn compare(pair: &mut Pair, _: &Wanted) -> Result<Vec<Difference>, String> {
    let mut found = Vec::new();
    let [valkey, bobbin] = pair.say("COMMAND")?;
    let both = [&valkey, &bobbin].map(commands);
    found.extend(differences(&both));
    let [valkey, bobbin] = pair.say("COMMAND DOCS")?;
    found.extend(differences(&[&valkey, &bobbin].map(documents)));
    let [valkey, bobbin] = pair.say("CONFIG GET *")?;
    found.extend(differences(&[&valkey, &bobbin].map(options)));
    let [valkey, bobbin] = pair.say("INFO everything")?;
    found.extend(differences(&[&valkey, &bobbin].map(|reply| fields(&reply.text()))));
    let [valkey, bobbin] = pair.say("DEBUG HELP")?;
    found.extend(differences(&[&valkey, &bobbin].map(debug_subcommands)));
    let names: BTreeSet<_> = both.iter().flat_map(|facts| facts.keys()).collect();
    let names: BTreeSet<_> = names.iter().filter_map(|fact| fact.split(' ').nth(1)).collect();
    for name in names {
        found.extend(errors(pair, name)?);
    }
    Ok(found)
}

fn differences(both: &[Facts; 2]) -> Vec<Difference> {
    let [valkey, bobbin] = both;
    let names: BTreeSet<_> = valkey.keys().chain(bobbin.keys()).collect();
    let mut found = Vec::new();
    for name in names {
        let [ours, theirs] = [bobbin, valkey].map(|facts| facts.get(name));
        if ours != theirs {
            let of = |fact: Option<&String>| fact.map_or("(not there)", String::as_str).to_owned();
            found.push(Difference {
                what: name.clone(),
                how: String::new(),
                valkey: of(theirs),
                bobbin: of(ours),
            });
        }
    }
    found
}

/// Of COMMAND: all columns of each command and subcommand.
fn commands(reply: &ReplyFrame) -> Facts {
    let mut facts = Facts::new();
    for row in reply.items() {
        let name = row.items().first().map(ReplyFrame::text).unwrap_or_default();
        for (at, column) in COLUMNS.iter().enumerate() {
            let Some(item) = row.items().get(at) else { continue };
            if *column == "subcommands" {
                facts.extend(commands(item));
                continue;
            }
            let item = without_words(item);
            facts.insert(format!("command {name} {column}"), text(&item));
        }
    }
    facts
}

/// A column in any order, without notes, which are each server's own words.
fn without_words(item: &ReplyFrame) -> ReplyFrame {
    let ReplyFrame::Aggregate { kind, items } = item else { return item.clone() };
    let mut items: Vec<_> = items.iter().map(without_words).collect();
    if items.first().is_some_and(|first| first.text() == "notes") {
        items.drain(..2);
    }
    let mut item = ReplyFrame::Aggregate { kind: *kind, items };
    item.sort_unordered();
    item
}

/// Of COMMAND DOCS: all but what is said in sentences.
fn documents(reply: &ReplyFrame) -> Facts {
    let mut facts = Facts::new();
    for pair in reply.items().chunks_exact(2) {
        let name = pair[0].text();
        for field in pair[1].items().chunks_exact(2) {
            match field[0].text().as_str() {
                "summary" => {}
                // Only that there is one: the words are each server's own.
                "complexity" => {
                    facts.insert(format!("docs {name} complexity"), "told".into());
                }
                "history" => {
                    let since = |row: &ReplyFrame| row.items().first().map(ReplyFrame::text);
                    let versions: Vec<_> = field[1].items().iter().filter_map(since).collect();
                    facts.insert(format!("docs {name} history"), versions.join(" "));
                }
                "subcommands" => facts.extend(documents(&field[1])),
                what => {
                    facts.insert(format!("docs {name} {what}"), text(&field[1]));
                }
            }
        }
    }
    facts
}

fn options(reply: &ReplyFrame) -> Facts {
    let pairs = reply.items().chunks_exact(2);
    pairs.map(|pair| (format!("config {}", pair[0].text()), pair[1].text())).collect()
}

/// Of INFO: sections and fields, with what kind of value they have.
fn fields(info: &str) -> Facts {
    let (mut facts, mut section) = (Facts::new(), "");
    for line in info.lines() {
        if let Some(title) = line.strip_prefix("# ") {
            section = title;
        } else if let Some((name, value)) = line.split_once(':') {
            let kind = if value.is_empty() {
                "empty"
            } else if value.parse::<i64>().is_ok() {
                "integer"
            } else if value.parse::<f64>().is_ok() {
                "number"
            } else {
                "text"
            };
            facts.insert(format!("info {section} {name}"), kind.to_owned());
        }
    }
    facts
}

/// Of DEBUG HELP: the subcommands, which COMMAND does not list.
fn debug_subcommands(reply: &ReplyFrame) -> Facts {
    // The first line is about them all, and what is indented is about the one above.
    let lines = reply.items().iter().skip(1).map(ReplyFrame::text);
    let titles = lines.filter(|line| !line.starts_with(' '));
    let name = |title: String| title.split(' ').next().unwrap_or_default().to_lowercase();
    titles.map(|title| (format!("debug {}", name(title)), "told".to_owned())).collect()
}

/// What each says to a command with no argument, with many, and of a container to an unknown
/// subcommand.
fn errors(pair: &mut Pair, name: &str) -> Result<Vec<Difference>, String> {
    let mut found = Vec::new();
    let spoken = name.replace('|', " ").to_uppercase();
    let container = spoken.split(' ').next().unwrap_or_default();
    let mut lines = vec![format!("{spoken}{}", " x".repeat(12))];
    if !ACT_WITHOUT_ARGUMENTS.contains(&spoken.as_str()) && container != "DEBUG" {
        lines.push(spoken.clone());
    }
    if !name.contains('|') {
        lines.push(format!("{spoken} nosuch"));
        lines.push(format!("{spoken} nosuch x"));
    }
    for line in lines {
        if ACT_ALWAYS.contains(&container) || ACT_ALWAYS.contains(&spoken.as_str()) {
            continue;
        }
        let [valkey, bobbin] = pair.call(&words(&line))?;
        if line.ends_with("HELP") || !valkey.is_error() && !bobbin.is_error() {
            continue;
        }
        let (valkey, bobbin) = (text(&valkey), text(&bobbin));
        if valkey != bobbin {
            found.push(Difference { what: format!("error {line}"), how: line, valkey, bobbin });
        }
        pair.reconnect();
    }
    Ok(found)
}

const COLUMNS: [&str; 10] = [
    "name",
    "arity",
    "flags",
    "first",
    "last",
    "step",
    "categories",
    "tips",
    "keys",
    "subcommands",
];
/// They end the conversation, the server, or a replica's peace.
const ACT_ALWAYS: [&str; 8] =
    ["SHUTDOWN", "MONITOR", "SYNC", "PSYNC", "QUIT", "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"];
const ACT_WITHOUT_ARGUMENTS: [&str; 9] = [
    "FAILOVER",
    "UNSUBSCRIBE",
    "PUNSUBSCRIBE",
    "SUNSUBSCRIBE",
    "CLIENT REPLY",
    "RESET",
    "BGSAVE",
    "BGREWRITEAOF",
    "SAVE",
];
