//! The rules that neither the compiler nor clippy checks.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use bobbin_testkit::peers::repository;

use crate::names::TypeNames;
use crate::shell::{self, TaskResult};
use crate::{book, chart, layers, links, scaling};

/// Looks at every file of the checkout that git does not ignore.
pub(crate) fn check() -> TaskResult {
    let mut faults = scaling::faults()?;
    faults.extend(chart::faults()?);
    let listed = listed()?;
    let mut type_names = TypeNames::default();
    for file in listed.lines() {
        let path = repository().join(file);
        // A file that was deleted and not yet committed is still listed.
        let Ok(bytes) = std::fs::read(&path) else { continue };
        if bytes.len() > FILE_BYTES_MAX {
            faults.push(format!("{file}: {} bytes, more than {FILE_BYTES_MAX}", bytes.len()));
        }
        let text = String::from_utf8_lossy(&bytes);
        if file.ends_with(".rs") {
            check_length(file, &text, &mut faults);
            check_locks(file, &text, &mut faults);
            // The compiler's formatter leaves comments as they are.
            check_width(file, &text, is_comment, &mut faults);
            type_names.note(file, &text);
        }
        if file == README {
            check_length(file, &text, &mut faults);
        }
        if file.starts_with("crates/") && PAGE_FILES.iter().any(|end| file.ends_with(end)) {
            check_length(file, &text, &mut faults);
            check_page(file, &text, &mut faults);
        }
        if file.ends_with(".md") {
            check_tables(file, &text, &mut faults);
        }
        if file.ends_with(".md") && !LONG_LINES.iter().any(|start| file.starts_with(start)) {
            check_width(file, &text, wrappable(), &mut faults);
        }
        if file != OWN_FILE {
            check_words(file, &text, &mut faults);
        }
        if file.ends_with("Cargo.toml") {
            check_dependencies(Path::new(file), &text, &mut faults);
        }
    }
    type_names.check(&mut faults);
    layers::check(&mut faults)?;
    document_faults(&listed, &mut faults)?;
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// Only the links between the documents, and whether the book has them all.
pub(crate) fn check_documents() -> TaskResult {
    let mut faults = Vec::new();
    document_faults(&listed()?, &mut faults)?;
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

fn document_faults(listed: &str, faults: &mut Vec<String>) -> TaskResult {
    let read = |file| Some((file, std::fs::read_to_string(repository().join(file)).ok()?));
    let documents: HashMap<&str, String> =
        listed.lines().filter(|file| file.ends_with(".md")).filter_map(read).collect();
    links::check(&documents, faults);
    links::check_code(&documents, listed, faults);
    book::check_summary(documents.keys().copied(), faults)
}

/// The files of the checkout that git does not ignore, one in each line.
fn listed() -> Result<String, String> {
    shell::output(
        Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .current_dir(repository()),
    )
}

fn check_length(file: &str, text: &str, faults: &mut Vec<String>) {
    let lines = text.lines().count();
    let is_server = file.starts_with("crates/server/src/") && file.ends_with(".rs");
    let limit = match file {
        README => README_LINES_MAX,
        _ if is_server => SERVER_LINES_MAX,
        _ => FILE_LINES_MAX,
    };
    if lines > limit {
        faults.push(format!("{file}: {lines} lines, more than {limit}; split it"));
    }
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// Says of a document's lines, one after the other, whether they can be wrapped.
fn wrappable() -> impl FnMut(&str) -> bool {
    let mut is_code = false;
    move |line| {
        let line = line.trim();
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        let is_table = line.starts_with('|');
        !is_code && !is_fence && !is_table && line.contains(' ')
    }
}

/// Checks the width of the lines that `is_checked` names.
fn check_width(
    file: &str,
    text: &str,
    mut is_checked: impl FnMut(&str) -> bool,
    faults: &mut Vec<String>,
) {
    for (number, line) in text.lines().enumerate() {
        if is_checked(line) && line.chars().count() > WIDTH_MAX {
            faults.push(format!("{file}:{}: wrap it at {WIDTH_MAX} columns", number + 1));
        }
    }
}

/// No formatter looks at what a browser gets, and no compiler at how it treats texts from outside.
fn check_page(file: &str, text: &str, faults: &mut Vec<String>) {
    for (number, line) in text.lines().enumerate() {
        for way in HTML_OF_TEXT {
            if line.contains(way) {
                faults.push(format!("{file}:{}: {way}: use textContent", number + 1));
            }
        }
    }
    check_width(file, text, |_| true, faults);
}

fn check_words(file: &str, text: &str, faults: &mut Vec<String>) {
    for (number, line) in text.lines().enumerate() {
        for (word, reason) in BANNED {
            if line.contains(word) {
                faults.push(format!("{file}:{}: {word:?}: {reason}", number + 1));
            }
        }
    }
}

/// A row that follows no other row, or has another number of cells than the table's first line, is
/// shown as text.
fn check_tables(file: &str, text: &str, faults: &mut Vec<String>) {
    let mut cells = None;
    let mut lines = text.lines().enumerate().peekable();
    let mut in_code = false;
    while let Some((number, line)) = lines.next() {
        in_code ^= line.starts_with("```");
        if in_code || !line.starts_with('|') {
            cells = None;
            continue;
        }
        let found = line.replace("\\|", "").matches('|').count();
        let is_first = lines.peek().is_some_and(|(_, next)| next.starts_with("|--"));
        let expected = *cells.get_or_insert(if is_first { found } else { 0 });
        if found != expected {
            faults.push(format!("{file}:{}: the row is no part of a table", number + 1));
        }
    }
}

/// The server's locks are those of `bobbin_sync`, whose order debug builds check.
fn check_locks(file: &str, text: &str, faults: &mut Vec<String>) {
    if file.starts_with(LOCKS_HOME) || !SERVER_CRATES.iter().any(|dir| file.starts_with(dir)) {
        return;
    }
    for (at, module) in text.match_indices("sync::") {
        let (before, named) = (&text[..at], &text[at + module.len()..]);
        let is_comment = before.lines().last().is_some_and(|line| line.contains("//"));
        if is_comment || LOCKS_PATHS.iter().any(|path| before.ends_with(path)) {
            continue;
        }
        // One name, or a list of them over some lines.
        let end = if named.starts_with('{') { named.find('}') } else { None };
        let end = end.or_else(|| named.find(|c: char| !c.is_alphanumeric()));
        let named = &named[..end.unwrap_or(named.len())];
        let mut names = named.split(|c: char| !c.is_alphanumeric());
        if let Some(name) = names.find(|name| LOCKS.contains(name)) {
            let line = before.lines().count();
            faults.push(format!("{file}:{line}: take {name} from bobbin_sync"));
        }
    }
}

/// Crates may use only those that [`DIRECTION`] lists for them.
fn check_dependencies(file: &Path, text: &str, faults: &mut Vec<String>) {
    let Some(name) = file.parent().and_then(Path::file_name).map(|name| name.to_string_lossy())
    else {
        return; // The workspace's own manifest.
    };
    if !text.contains("[package]") {
        return;
    }
    let Some((_, allowed)) = DIRECTION.iter().find(|(known, _)| *known == name) else {
        faults.push(format!("{}: give {name} a row in {OWN_FILE}", file.display()));
        return;
    };
    for line in text.lines() {
        let Some(used) = line.strip_prefix("bobbin-") else { continue };
        let used = used.split([' ', '=', '.']).next().unwrap_or_default();
        if !allowed.contains(&used) {
            faults.push(format!("{}: {name} may not use {used}", file.display()));
        }
    }
}

const OWN_FILE: &str = "xtask/src/tidy.rs";
const WIDTH_MAX: usize = 100;
/// Documents with lines that are longer: what is made from the code, and a list of links.
const LONG_LINES: &[&str] = &["docs/reference/", "docs/SUMMARY.md"];
const FILE_LINES_MAX: usize = 1000;
const README: &str = "README.md";
/// A screen.
const README_LINES_MAX: usize = 48;
/// Of a file of the server.
const SERVER_LINES_MAX: usize = 600;
const FILE_BYTES_MAX: usize = 1 << 20;

/// How the files of a page for browsers end, in a crate.
const PAGE_FILES: &[&str] = &[".css", ".html", ".js"];
/// What makes HTML of a text.
const HTML_OF_TEXT: &[&str] =
    &["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "DOMParser"];

/// What the server is made of.
const SERVER_CRATES: &[&str] = &[
    "crates/dump/",
    "crates/io/",
    "crates/resp/",
    "crates/script/",
    "crates/server/",
    "crates/store/",
    "crates/sync/",
    "crates/text/",
    "crates/tls/",
];
const LOCKS: &[&str] = &["Mutex", "RwLock", "Condvar"];
/// Where the locks are made of the standard library's.
const LOCKS_HOME: &str = "crates/sync/";
/// What stands before `sync::` where it is ours.
const LOCKS_PATHS: &[&str] = &["bobbin_", "crate::", "super::"];

const BANNED: &[(&str, &str)] = &[
    ("TODO", "do it, or open an issue"),
    ("FIXME", "fix it, or open an issue"),
    ("dbg!(", "left from debugging"),
    ("/root/", "a path of one machine"),
    ("/home/", "a path of one machine"),
    ("/work/", "a path of one machine"),
    ("so many ", PLAIN),
    (" is to be ", PLAIN),
    (" are to be ", PLAIN),
    (" and its like", PLAIN),
    ("whoever ", ACTOR),
    ("Whoever ", ACTOR),
];
const ACTOR: &str = "name the thread, client or command";
const PLAIN: &str = "say it as technical documentation does";

/// Which crate may use which: the one way down that ARCHITECTURE.md draws. A row uses only rows
/// above it, so there can be no cycle.
const DIRECTION: &[(&str, &[&str])] = &[
    ("text", &[]),
    ("resp", &["text"]),
    ("sync", &[]),
    ("lines", &[]),
    ("io", &["sync", "text"]),
    ("store", &["sync", "text"]),
    ("dump", &["store"]),
    ("script", &["text", "resp"]),
    ("tls", &["text"]),
    ("client", &["text", "resp", "tls"]),
    ("server", &["sync", "text", "io", "resp", "store", "dump", "script", "tls"]),
    ("testkit", &["resp", "client"]),
    ("cli", &["resp", "client", "testkit"]),
    ("benchmark", &["resp", "client", "testkit"]),
    ("fuzz", &["resp", "store", "dump", "client", "server", "script"]),
    ("xtask", &["testkit"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_may_use_only_those_above_it() {
        for (index, (name, uses)) in DIRECTION.iter().enumerate() {
            for used in *uses {
                let above = DIRECTION[..index].iter().any(|(earlier, _)| earlier == used);
                assert!(above, "{name} uses {used}, which is not above it");
            }
        }
        let mut faults = Vec::new();
        let manifest = "[package]\n[dependencies]\nbobbin-server = { workspace = true }\n";
        check_dependencies(Path::new("crates/store/Cargo.toml"), manifest, &mut faults);
        assert_eq!(faults, ["crates/store/Cargo.toml: store may not use server"]);
    }

    #[test]
    fn locks_of_the_server_are_its_own() {
        let faults_of = |file: &str, text: &str| {
            let mut faults = Vec::new();
            check_locks(file, text, &mut faults);
            faults
        };
        let file = "crates/server/src/a.rs";
        let fault = "crates/server/src/a.rs:2: take RwLock from bobbin_sync";
        for text in [
            "\nuse std::sync::RwLock;",
            "\nuse std::sync::{\n    Arc, RwLock, Weak,\n};",
            "\nuse std::{sync::RwLock, time};",
            "\n    known: std::sync::RwLock<u32>,",
        ] {
            assert_eq!(faults_of(file, text), [fault], "{text}");
            assert_eq!(faults_of("crates/cli/src/a.rs", text), Vec::<String>::new());
        }
        for text in [
            "use std::sync::{Arc, atomic::AtomicU32};\nstruct Mutex;",
            "// A std::sync::Mutex would do.",
            "use bobbin_sync::{Condvar, Mutex};",
        ] {
            assert_eq!(faults_of(file, text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn rows_belong_to_a_table() {
        let faults_of = |text: &str| {
            let mut faults = Vec::new();
            check_tables("a.md", text, &mut faults);
            faults.len()
        };
        let table = "| a | b |\n|---|---|\n| 1 | `x \\| y` |\n";
        assert_eq!(faults_of(table), 0);
        assert_eq!(faults_of(&format!("```\n| x |\n```\n{table}")), 0);
        assert_eq!(faults_of(&format!("{table}\n| 3 | 4 |\n")), 1);
        assert_eq!(faults_of(&format!("{table}| 3 | `4 | 5` |\n")), 1);
        assert_eq!(faults_of(&format!("{table}| 3 |\n")), 1);
    }

    #[test]
    fn documents_are_narrow_where_they_can_be() {
        let long = "a b ".repeat(30);
        let mut faults = Vec::new();
        for text in [format!("| {long} |"), format!("```\n{long}\n```"), "x".repeat(101)] {
            check_width("a.md", &text, wrappable(), &mut faults);
        }
        assert_eq!(faults, [""; 0]);
        check_width("a.md", &format!("```\n```\n{long}"), wrappable(), &mut faults);
        assert_eq!(faults, ["a.md:3: wrap it at 100 columns"]);
    }

    #[test]
    fn pages_are_narrow_and_take_texts_as_texts() {
        let mut faults = Vec::new();
        let text = format!("a.textContent = b;\na.innerHTML = b;\n{}\n", "x".repeat(101));
        check_page("a.js", &text, &mut faults);
        let expected = ["a.js:2: innerHTML: use textContent", "a.js:3: wrap it at 100 columns"];
        assert_eq!(faults, expected);
    }

    #[test]
    fn long_files_and_banned_words_are_faults() {
        let mut faults = Vec::new();
        check_length("a.rs", &"x\n".repeat(FILE_LINES_MAX + 1), &mut faults);
        check_length("crates/server/src/a.rs", &"x\n".repeat(SERVER_LINES_MAX + 1), &mut faults);
        check_length(README, &"x\n".repeat(README_LINES_MAX + 1), &mut faults);
        check_words("a.rs", "fine\n// TODO: later", &mut faults);
        assert_eq!(faults.len(), 4, "{faults:?}");
        assert!(faults[3].starts_with("a.rs:2:"));
    }
}
