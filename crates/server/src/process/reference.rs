//! The pages in `docs/reference`, made from the rows of commands, options, INFO, metrics and
//! latency events.
//!
//! The pages are in the repository, so that they can be read and linked to without a build. A test
//! fails if a page does not match the rows.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::admin::info::{InfoField, InfoUnit, Nature, SECTIONS};
use crate::admin::metrics::{ALIASES, FAMILIES, PREFIX, metric_of};
use crate::config::document::{self, markdown};
use crate::engine::command::{Registered, Registry};
use crate::engine::row::syntax;
use crate::engine::telemetry::latency::LatencyEvent;
use crate::process;

/// The pages by name.
fn pages() -> [(&'static str, String); 5] {
    [
        ("commands", commands()),
        ("options", document::reference()),
        ("info", info()),
        ("metrics", metrics()),
        ("latency", latency()),
    ]
}

/// Every command, by group and name.
fn commands() -> String {
    let registry = Registry::new(&process::families(), &[]).expect("nothing is renamed");
    let mut groups: BTreeMap<&str, Vec<&Registered>> = BTreeMap::new();
    for (_, command) in registry.top() {
        groups.entry(command.row.group).or_default().push(command);
    }
    let mut page = heading(
        "Commands",
        "What `COMMAND DOCS` says of each command: its arguments, what it does, the version of \
         Redis or\nValkey that had it first, how its time grows, and its ACL categories. \
         [COMPAT.md](../../COMPAT.md) lists\nwhere Bobbin answers otherwise than Valkey.",
    );
    for (group, commands) in &mut groups {
        commands.sort_by_key(|command| command.row.name);
        // Writing to a String cannot fail, here and below.
        write!(page, "\n## Group {group}\n").ok();
        for command in commands {
            describe(&mut page, command);
            command.subcommands.iter().for_each(|command| describe(&mut page, command));
        }
    }
    page
}

fn describe(page: &mut String, command: &Registered) {
    let row = command.row;
    if row.is_absent {
        return;
    }
    let name = command.full_name.replace('|', " ").to_uppercase();
    let arguments = syntax::plain(row.syntax);
    write!(page, "\n### {name}\n\n`{}`\n\n{}", format!("{name} {arguments}").trim(), row.summary)
        .ok();
    write!(page, " Since {}.", row.since).ok();
    if let Some((since, instead)) = row.deprecated {
        write!(page, " Deprecated since {since}: use {instead}.").ok();
    }
    let categories: Vec<String> =
        row.categories.complete(row.flags).names().map(|name| format!("@{name}")).collect();
    write!(page, "\n\n{}{}\n", complexity(row.complexity), categories.join(" ")).ok();
    if !row.history.is_empty() {
        page.push('\n');
    }
    for (version, change) in row.history {
        writeln!(page, "- {version}: {change}").ok();
    }
}

fn complexity(complexity: &str) -> String {
    if complexity.is_empty() {
        return String::new();
    }
    let end = if complexity.ends_with('.') { "" } else { "." };
    format!("{}{end} ", markdown(complexity))
}

/// Every field of INFO whose name is fixed.
fn info() -> String {
    let mut page = heading(
        "INFO",
        "The fields of `INFO` by section, and the metric that has the same number. A gauge rises \
         and\nfalls, a counter only rises. Metrics are in base units: bytes and seconds. Sections \
         whose lines\ndepend on what there is (commands, errors, databases, threads) are \
         [metrics with labels](metrics.md).",
    );
    for section in SECTIONS {
        write!(page, "\n## {}\n", section.title).ok();
        let fields = section.lines.fields();
        if fields.is_empty() {
            page.push_str("\nIts lines depend on what there is.\n");
        }
        let rows: Vec<String> = fields.iter().filter_map(|field| number(field)).collect();
        if !rows.is_empty() {
            page.push_str("\n| field | kind | unit | what it says | metric |\n");
            page.push_str("|---|---|---|---|---|\n");
            page.push_str(&rows.concat());
        }
        for (start, nature) in [("Without a metric", Nature::Label), ("Always 0", Nature::Absent)] {
            let names: Vec<String> = fields
                .iter()
                .filter(|field| field.nature == nature)
                .map(|field| format!("`{}`", field.name))
                .collect();
            if !names.is_empty() {
                write!(page, "\n{start}: {}.\n", names.join(", ")).ok();
            }
        }
    }
    page
}

/// The table row of a field that is a number.
fn number(field: &InfoField) -> Option<String> {
    let (kind, meaning) = match field.nature {
        Nature::Counter(meaning) => ("counter", meaning),
        Nature::Gauge(meaning) => ("gauge", meaning),
        Nature::Label | Nature::Absent => return None,
    };
    Some(format!(
        "| `{}` | {kind} | {} | {} | `{PREFIX}{}` |\n",
        field.name,
        unit(meaning.unit),
        cell(meaning.help),
        metric_of(field)?
    ))
}

const fn unit(unit: InfoUnit) -> &'static str {
    match unit {
        InfoUnit::Number => "",
        InfoUnit::Bytes => "bytes",
        InfoUnit::Kilobytes => "kilobytes",
        InfoUnit::Seconds => "seconds",
        InfoUnit::Milliseconds => "milliseconds",
        InfoUnit::Microseconds => "microseconds",
    }
}

fn metrics() -> String {
    let mut page = heading(
        "Metrics",
        "What `metrics-port` serves for [Prometheus](../metrics.md): the numbers of \
         [INFO](info.md), and\nthese.",
    );
    page.push_str("\n| metric | kind | labels | what it says |\n|---|---|---|---|\n");
    for family in FAMILIES {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        writeln!(
            page,
            "| `{PREFIX}{}` | {} | {} | {} |",
            family.name,
            family.kind_name(),
            labels.join(", "),
            cell(family.help)
        )
        .ok();
    }
    page.push_str(
        "\n## Other names\n\nThe names that redis_exporter gives to some of them are there, too, \
         and `redis_up`.\n\n| metric | the same as |\n|---|---|\n",
    );
    for (own, other) in ALIASES {
        writeln!(page, "| `redis_{other}` | `{PREFIX}{own}` |").ok();
    }
    page
}

fn latency() -> String {
    let mut page = heading(
        "Latency events",
        "What the latency monitor watches. An event that takes `latency-monitor-threshold` \
         milliseconds or\nlonger is kept; 0, the default, keeps none. `LATENCY LATEST` lists \
         them; `LATENCY HISTORY`, `GRAPH` and\n`RESET` take a name.",
    );
    page.push_str("\n| event | what took long |\n|---|---|\n");
    for event in LatencyEvent::ALL {
        writeln!(page, "| `{}` | {} |", event.name(), cell(event.help())).ok();
    }
    page
}

fn heading(title: &str, about: &str) -> String {
    format!("<!-- generated from the rows: BOBBIN_WRITE=1 {TEST} -->\n\n# {title}\n\n{about}\n")
}

/// A row's words as Markdown in a table's cell.
fn cell(words: &str) -> String {
    markdown(words).replace('|', "\\|")
}

const TEST: &str = "cargo test -p bobbin-server --lib reference";

/// With BOBBIN_WRITE=1 in the environment the pages are written.
#[test]
fn the_reference_is_up_to_date() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference");
    for (name, wanted) in pages() {
        let path = format!("{folder}/{name}.md");
        if std::env::var_os("BOBBIN_WRITE").is_some() {
            std::fs::write(path, wanted).expect("the folder is writable");
            continue;
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == wanted,
            "docs/reference/{name}.md lags behind the rows: BOBBIN_WRITE=1 {TEST}"
        );
    }
}

/// An event without a row would be missing from the page.
#[test]
fn latency_events_are_in_order_and_each_is_explained() {
    let names = LatencyEvent::ALL.map(LatencyEvent::name);
    assert!(names.is_sorted(), "{names:?}");
    assert!(LatencyEvent::ALL.iter().all(|event| event.help().ends_with('.')));
    let all = std::collections::BTreeSet::from(names);
    assert_eq!(all.len(), names.len(), "each has a name of its own");
}
