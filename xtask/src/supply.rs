//! What is built in that others wrote: where it comes from, under which licences, how often, and,
//! given a checkout of the RustSec database, whether somebody warned of it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use crate::advisories;
use crate::shell::{self, TaskResult};

/// Checks the lock file and the manifests of all that it names. `advisories`: a checkout of
/// RustSec's database.
pub(crate) fn check(advisories: Option<&Path>) -> TaskResult {
    let lock =
        std::fs::read_to_string("Cargo.lock").map_err(|error| format!("Cargo.lock: {error}"))?;
    let packages = packages(&lock);
    let mut faults = Vec::new();
    check_sources(&packages, &mut faults);
    check_duplicates(&packages, &mut faults);
    check_licences(&manifests()?, &mut faults)?;
    advisories::check_lua(&packages, &mut faults)?;
    if let Some(folder) = advisories {
        let count = advisories::check(folder, &packages, &mut faults)?;
        println!("{count} advisories read");
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// A package of Cargo.lock. Without a source it is our own.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    source: Option<String>,
    has_checksum: bool,
}

fn packages(lock: &str) -> Vec<Package> {
    let mut packages: Vec<Package> = Vec::new();
    for line in lock.lines() {
        if line == "[[package]]" {
            packages.push(Package::default());
        }
        let Some(package) = packages.last_mut() else { continue };
        let Some((key, value)) = line.split_once(" = ") else { continue };
        let value = value.trim_matches('"').to_owned();
        match key {
            "name" => package.name = value,
            "version" => package.version = value,
            "source" => package.source = Some(value),
            "checksum" => package.has_checksum = true,
            _ => {}
        }
    }
    packages
}

fn check_sources(packages: &[Package], faults: &mut Vec<String>) {
    for Package { name, version, source, has_checksum } in packages {
        match source {
            None => {}
            Some(source) if source == REGISTRY && *has_checksum => {}
            Some(source) => faults.push(format!("{name} {version} comes from {source}")),
        }
    }
}

fn check_duplicates(packages: &[Package], faults: &mut Vec<String>) {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    for (name, versions) in &versions {
        if versions.len() > 1 && !DUPLICATES.iter().any(|(known, _)| known == name) {
            faults.push(format!(
                "{name} is there {} times: {}",
                versions.len(),
                versions.join(", ")
            ));
        }
    }
    for (name, _) in DUPLICATES {
        if versions.get(name).is_none_or(|versions| versions.len() < 2) {
            faults.push(format!("{name} is there once: take it out of the list of duplicates"));
        }
    }
}

/// The manifests of all packages that are built here.
fn manifests() -> Result<Vec<String>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let host = shell::output(Command::new("rustc").args(["--print", "host-tuple"]))?;
    let metadata = shell::output(Command::new(cargo).args([
        "metadata",
        "--format-version=1",
        "--filter-platform",
        host.trim(),
    ]))?;
    let found = metadata.split("\"manifest_path\":\"").skip(1);
    let paths = found.filter_map(|rest| rest.split('"').next());
    paths
        .map(|path| std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}")))
        .collect()
}

fn check_licences(manifests: &[String], faults: &mut Vec<String>) -> TaskResult {
    for manifest in manifests {
        let field = |name: &str| {
            let lines = manifest.lines().skip_while(|line| line.trim() != "[package]");
            let mut lines =
                lines.take_while(|line| line.trim() == "[package]" || !line.starts_with('['));
            lines.find_map(|line| {
                let (key, value) = line.split_once('=')?;
                (key.trim() == name).then(|| value.trim().trim_matches('"').to_owned())
            })
        };
        let name = field("name").ok_or("a manifest without a name")?;
        // Our own have the workspace's.
        if field("license.workspace").is_some() {
            continue;
        }
        match field("license") {
            Some(licence) if is_allowed(&licence) => {}
            Some(licence) => faults.push(format!("{name} has the licence {licence}")),
            None => faults.push(format!("{name} names no licence")),
        }
    }
    Ok(())
}

/// Whether an expression of SPDX can be met with what we allow. `/` is the older form of `OR`.
fn is_allowed(expression: &str) -> bool {
    let mut spaced = String::new();
    for character in expression.chars() {
        let _ = match character {
            '(' | ')' => write!(spaced, " {character} "),
            '/' => write!(spaced, " OR "),
            other => write!(spaced, "{other}"),
        };
    }
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let allowed = any_of(&words, &mut at);
    allowed && at == words.len()
}

fn any_of(words: &[&str], at: &mut usize) -> bool {
    let mut allowed = all_of(words, at);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        allowed |= all_of(words, at);
    }
    allowed
}

fn all_of(words: &[&str], at: &mut usize) -> bool {
    let mut allowed = one(words, at);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        allowed &= one(words, at);
    }
    allowed
}

fn one(words: &[&str], at: &mut usize) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let allowed = any_of(words, at);
        let is_closed = words.get(*at) == Some(&")");
        *at += 1;
        return allowed && is_closed;
    }
    if words.get(*at) == Some(&"WITH") {
        // An exception only allows more.
        *at += 2;
    }
    ALLOWED.contains(word)
}

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Licences that ask for no more than to be named.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates that are there in several versions, and what needs them.
const DUPLICATES: &[(&str, &str)] = &[
    ("base64", "hdrhistogram; pem of rcgen in tests"),
    ("bit-vec", "yasna of rcgen; proptest: both in tests"),
    ("getrandom", "ring, which nothing here builds; rand of proptest"),
    ("nom", "x509-parser of rcgen in tests; hdrhistogram"),
    ("rand", "shuttle; proptest: both in tests"),
    ("rand_core", "of both versions of rand, in tests"),
    ("signal-hook", "crossterm; ours"),
    ("syn", "derive macros, when building"),
    ("untrusted", "aws-lc-rs; rustls-webpki"),
    ("windows-sys", "of other systems"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_licences() {
        for allowed in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ] {
            assert!(is_allowed(allowed), "{allowed}");
        }
        for refused in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT MIT", "MIT AND (ISC"] {
            assert!(!is_allowed(refused), "{refused}");
        }
    }

    #[test]
    fn sources_are_the_registry_alone() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\n[[package]]\nname = \"b\"\n\
                    version = \"1.0.0\"\nsource = \"git+https://example.org/b\"\n";
        let packages = packages(lock);
        let mut faults = Vec::new();
        check_sources(&packages, &mut faults);
        assert_eq!(faults, ["b 1.0.0 comes from git+https://example.org/b"]);
    }
}
