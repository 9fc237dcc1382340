//! `--cluster`: making, checking, mending and changing clusters, as `valkey-cli --cluster` does.
//! Node lines, slot lists and figures are in its form, since scripts read them.
//!
//! `model` is what a cluster is made of, `plan` works out changes; neither talks to any node.
//! `members` has the connections, `moving` moves slots, `check` and `fix` look and mend, and the
//! others are a sub-command or two each.

mod backup;
mod check;
mod create;
mod every;
mod fix;
mod import;
mod members;
mod membership;
mod model;
mod moving;
mod plan;
mod rebalance;
mod reshard;
mod say;

use std::process::ExitCode;

use members::Cluster;
use say::ClusterResult;

use crate::{command, options::Options, session::Session};

/// Runs the sub-command.
pub fn run(session: &mut Session) -> ExitCode {
    let options = &session.options;
    let name = options.manager.command.clone();
    let Some(command) = COMMANDS.iter().find(|command| command.name.as_bytes() == name) else {
        let name = String::from_utf8_lossy(&name);
        complain!("Unknown --cluster subcommand '{name}'; '--cluster help' shows all.");
        return ExitCode::FAILURE;
    };
    let mut words = options.manager.arguments.clone();
    if let Err(mistake) = command::complete(options, &mut words) {
        mistake.report();
        return ExitCode::FAILURE;
    }
    let (min, max) = command.arguments;
    if !(min..=max).contains(&words.len()) {
        complain!("Wrong number of arguments: --cluster {} {}", command.name, command.usage);
        return ExitCode::FAILURE;
    }
    match (command.run)(options, &words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// A sub-command.
struct Command {
    name: &'static str,
    /// At least and at most.
    arguments: (usize, usize),
    usage: &'static str,
    summary: &'static str,
    /// Without `--cluster-`.
    options: &'static str,
    run: fn(&Options, &[Vec<u8>]) -> ClusterResult,
}

const COMMANDS: [Command; 13] = [
    Command {
        name: "create",
        arguments: (1, usize::MAX),
        usage: "host:port ...",
        summary: "Make a cluster of these nodes, which must be empty.",
        options: "replicas yes",
        run: create::run,
    },
    Command {
        name: "check",
        arguments: (1, 2),
        usage: NODE,
        summary: "Show the nodes; look for open slots, slots of nobody and disagreement.",
        options: "search-multiple-owners",
        run: check::run,
    },
    Command {
        name: "info",
        arguments: (1, 2),
        usage: NODE,
        summary: "Show keys, slots and replicas of each primary.",
        options: "",
        run: check::info,
    },
    Command {
        name: "fix",
        arguments: (1, 2),
        usage: NODE,
        summary: "Check, and mend what is wrong with slots.",
        options: "search-multiple-owners fix-with-unreachable-primaries replace",
        run: check::fix,
    },
    Command {
        name: "reshard",
        arguments: (1, 2),
        usage: NODE,
        summary: "Move slots, with their keys, to a node. What options leave out is asked for.",
        options: "from to slots yes timeout pipeline replace use-atomic-slot-migration",
        run: reshard::run,
    },
    Command {
        name: "rebalance",
        arguments: (1, 2),
        usage: NODE,
        summary: "Move slots until each primary has its share.",
        options: "weight use-empty-primaries threshold simulate timeout pipeline replace \
                  use-atomic-slot-migration",
        run: rebalance::run,
    },
    Command {
        name: "add-node",
        arguments: (2, 3),
        usage: "new-host:port host:port",
        summary: "Bring an empty node into the cluster that the other is in.",
        options: "replica primary-id",
        run: membership::add,
    },
    Command {
        name: "del-node",
        arguments: (2, 2),
        usage: "host:port node-id",
        summary: "Make all nodes forget one that has no slots.",
        options: "",
        run: membership::delete,
    },
    Command {
        name: "call",
        arguments: (2, usize::MAX),
        usage: "host:port command [argument ...]",
        summary: "Run a command on every node.",
        options: "only-primaries only-replicas",
        run: every::call,
    },
    Command {
        name: "set-timeout",
        arguments: (2, 2),
        usage: "host:port milliseconds",
        summary: "Set cluster-node-timeout on every node, in its configuration file, too.",
        options: "",
        run: every::set_timeout,
    },
    Command {
        name: "import",
        arguments: (1, 1),
        usage: "host:port",
        summary: "Move the keys of a server without a cluster into one.",
        options: "from from-user from-pass from-askpass copy replace timeout",
        run: import::run,
    },
    Command {
        name: "backup",
        arguments: (2, 2),
        usage: "host:port folder",
        summary: "Save an RDB file of each primary, and the nodes as JSON.",
        options: "",
        run: backup::run,
    },
    Command {
        name: "help",
        arguments: (0, usize::MAX),
        usage: "",
        summary: "Show this.",
        options: "",
        run: help,
    },
];

const NODE: &str = "host:port | host port";

fn help(_: &Options, _: &[Vec<u8>]) -> ClusterResult {
    out!("Cluster Manager Commands:\n");
    for command in &COMMANDS {
        out!("  {:<14} {}\n{:17}{}\n", command.name, command.usage, "", command.summary);
        for option in command.options.split_whitespace() {
            let flag = crate::options::flag(format!("--cluster-{option}").as_bytes());
            let value = flag.and_then(|flag| flag.value);
            let value = value.map_or_else(String::new, |value| format!(" <{value}>"));
            out!("{:17}  --cluster-{option}{value}\n", "");
        }
    }
    out!(
        "\nAny node that works may be named for the whole cluster. --cluster-yes answers the \
         questions of create and reshard;\nthose of fix want an answer.\n"
    );
    // As valkey-cli ends.
    Err(say::Failed)
}

/// The cluster that the first argument, or the first two, name.
fn load(options: &Options, words: &[Vec<u8>]) -> ClusterResult<Cluster> {
    let (host, port) = place(words)?;
    Cluster::load(options, &host, port)
}

/// `host:port`, `host:port@bus` or `host port`.
fn place(words: &[Vec<u8>]) -> ClusterResult<(String, u16)> {
    let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
    let (host, port) = match words {
        [place] => {
            let place = text(place);
            let place = place.split('@').next().unwrap_or_default();
            let (host, port) = place.rsplit_once(':').unwrap_or_default();
            (host.to_owned(), port.to_owned())
        }
        [host, port] => (text(host), text(port)),
        _ => Default::default(),
    };
    match port.parse() {
        Ok(port) if port > 0 && !host.is_empty() => Ok((host, port)),
        _ => {
            complain!(
                "[ERR] Invalid arguments: a node is host:port (as 127.0.0.1:7000) or host port."
            );
            Err(say::Failed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let place = |words: &[&str]| {
            let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            place(&words).ok()
        };
        assert_eq!(place(&["h:1"]), Some(("h".into(), 1)));
        assert_eq!(place(&["::1:7000@17000"]), Some(("::1".into(), 7000)));
        assert_eq!(place(&["h", "1"]), Some(("h".into(), 1)));
        for wrong in [&["h"][..], &["h:x"], &["h:0"], &[":1"], &["h", "70000"], &[]] {
            assert_eq!(place(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn options_of_sub_commands_exist() {
        for command in &COMMANDS {
            for option in command.options.split_whitespace() {
                let name = format!("--cluster-{option}");
                assert!(crate::options::flag(name.as_bytes()).is_some(), "{name}");
            }
        }
    }
}
