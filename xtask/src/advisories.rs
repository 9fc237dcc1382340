//! Warnings about published crates, from a checkout of RustSec's database: a file each, whose head
//! says which versions are mended, and which never were at fault.

use std::path::Path;

use crate::shell::TaskResult;
use crate::supply::Package;

/// Looks all packages up; returns how many advisories there are. That something is not maintained
/// is no fault.
pub(crate) fn check(
    folder: &Path,
    packages: &[Package],
    faults: &mut Vec<String>,
) -> Result<usize, String> {
    let fault = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut count = 0;
    for krate in std::fs::read_dir(folder.join("crates")).map_err(fault)? {
        for file in std::fs::read_dir(krate.map_err(fault)?.path()).map_err(fault)? {
            let text = std::fs::read_to_string(file.map_err(fault)?.path()).map_err(fault)?;
            let Some(advisory) = Advisory::read(&text) else { continue };
            count += 1;
            for package in packages.iter().filter(|package| package.name == advisory.package) {
                if advisory.concerns(&package.version) {
                    let (id, name, version) = (&advisory.id, &package.name, &package.version);
                    faults.push(format!("{id} warns of {name} {version}"));
                }
            }
        }
    }
    Ok(count)
}

/// What was published against Lua 5.1, and against the scripts of Redis and Valkey, and how it is
/// known to be mended. RustSec knows nothing of C that is kept here, so this is read whenever there
/// is news of Lua, Redis or Valkey.
pub(crate) fn check_lua(packages: &[Package], faults: &mut Vec<String>) -> TaskResult {
    let read =
        |path: &str| std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    compare_lua(packages, &read(LUA_HEADER)?, &read(LUA_TESTS)?, faults);
    if !read(LUA_BUILD)?.contains("-fwrapv") {
        faults.push(format!("{LUA_BUILD} compiles Lua without -fwrapv"));
    }
    if !read(LUA_LICENCE)?.contains("Copyright (C) 1994-2012 Lua.org, PUC-Rio") {
        faults.push(format!("{LUA_LICENCE} does not name the authors of Lua"));
    }
    Ok(())
}

fn compare_lua(packages: &[Package], header: &str, tests: &str, faults: &mut Vec<String>) {
    if !header.lines().any(|line| line.split_whitespace().eq(LUA_RELEASE.split(' '))) {
        faults.push(format!(
            "{LUA_HEADER} is not that of the Lua that was read: see what changed, and then change LUA_RELEASE"
        ));
    }
    for Package { name, .. } in packages {
        if LUA_OTHERS.contains(&&**name) {
            faults.push(format!("{name} brings another Lua, which nobody has read"));
        }
    }
    for (advisory, proof) in LUA_ADVISORIES {
        if let Proof::Test(test) = proof
            && !tests.contains(&format!("#[test]\nfn {test}()"))
        {
            faults.push(format!("{advisory}: there is no test {test} in {LUA_TESTS}"));
        }
    }
}

/// How an advisory is known not to concern what is built.
enum Proof {
    /// By a test of this name.
    Test(&'static str),
    /// What it is about is not here.
    Absent(#[allow(dead_code, reason = "for those who read the list")] &'static str),
}

const LUA_HEADER: &str = "crates/script/lua/lua.h";
const LUA_LICENCE: &str = "crates/script/lua/COPYRIGHT";
const LUA_RELEASE: &str = "#define LUA_RELEASE \"Lua 5.1.5\"";
/// Crates that carry a Lua of their own.
const LUA_OTHERS: &[&str] = &["lua-src", "luajit-src", "luau0-src"];
const LUA_TESTS: &str = "crates/script/tests/advisories.rs";
const LUA_BUILD: &str = "crates/script/build.rs";
const LUA_ADVISORIES: &[(&str, Proof)] = &[
    ("CVE-2014-5461", Proof::Test("cve_2014_5461")),
    ("CVE-2015-4335", Proof::Test("cve_2022_24736")),
    ("CVE-2015-8080", Proof::Test("cve_2015_8080_and_cve_2020_14147")),
    ("CVE-2018-11218", Proof::Test("cve_2018_11218")),
    ("CVE-2018-11219", Proof::Test("cve_2018_11219")),
    ("CVE-2020-14147", Proof::Test("cve_2015_8080_and_cve_2020_14147")),
    ("CVE-2021-32626", Proof::Test("cve_2021_32626")),
    ("CVE-2021-32672", Proof::Absent("there is no script debugger")),
    ("CVE-2022-24735", Proof::Test("cve_2022_24735")),
    ("CVE-2022-24736", Proof::Test("cve_2022_24736")),
    ("CVE-2022-24834", Proof::Test("cve_2022_24834")),
    ("CVE-2024-31449", Proof::Test("cve_2024_31449")),
    ("CVE-2024-46981", Proof::Test("cve_2024_46981")),
    ("CVE-2025-46817", Proof::Test("cve_2025_46817")),
    ("CVE-2025-46818", Proof::Test("cve_2025_46818")),
    ("CVE-2025-46819", Proof::Test("cve_2025_46819")),
    ("CVE-2025-49844", Proof::Test("cve_2025_49844")),
    ("CVE-2025-67733", Proof::Test("cve_2025_67733")),
    ("CVE-2026-23631", Proof::Absent("there are no replicas, and so no full synchronisation")),
];

struct Advisory {
    id: String,
    package: String,
    /// Requirements; a version that meets one of them is sound.
    sound: Vec<String>,
}

impl Advisory {
    fn read(text: &str) -> Option<Self> {
        let (_, head) = text.split_once("```toml")?;
        let (head, _) = head.split_once("```")?;
        let after = |key: &str| {
            let lines = head.lines().map(str::trim);
            let mut values =
                lines.filter_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='));
            values.next()
        };
        let text_of = |key: &str| after(key).map(|value| value.trim().trim_matches('"').to_owned());
        if after("informational").is_some() || after("withdrawn").is_some() {
            return None;
        }
        let mut sound = requirements(head, "patched");
        sound.extend(requirements(head, "unaffected"));
        Some(Self { id: text_of("id")?, package: text_of("package")?, sound })
    }

    fn concerns(&self, version: &str) -> bool {
        !self.sound.iter().any(|requirement| meets(version, requirement))
    }
}

/// The strings of a list, which may be spread over lines.
fn requirements(head: &str, key: &str) -> Vec<String> {
    let start = head.lines().scan(0, |at, line| {
        let start = *at;
        *at += line.len() + 1;
        Some((start, line))
    });
    let mut lists = start.filter(|(_, line)| {
        line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('='))
    });
    let Some((start, _)) = lists.next() else { return Vec::new() };
    let list = head[start..].split(']').next().unwrap_or_default();
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Whether a version meets all the comparisons of a requirement, as Cargo reads it.
fn meets(version: &str, requirement: &str) -> bool {
    requirement.split(',').all(|comparison| meets_one(version, comparison.trim()))
}

fn meets_one(version: &str, comparison: &str) -> bool {
    let operators = [">=", "<=", ">", "<", "=", "^", "~"];
    let operator = operators.iter().find(|operator| comparison.starts_with(**operator));
    let operator = operator.copied().unwrap_or("");
    let (bound, given) = numbers(&comparison[operator.len()..]);
    let (version, _) = numbers(version);
    match operator {
        ">=" => version >= bound,
        "<=" => version <= bound,
        ">" => version > bound,
        "<" => version < bound,
        "=" => version[..given] == bound[..given],
        "~" => version >= bound && version[..given.clamp(1, 2)] == bound[..given.clamp(1, 2)],
        _ => {
            // Up to the first number that is not zero all must be the same.
            let fixed = bound.iter().position(|number| *number > 0).map_or(given, |at| at + 1);
            version >= bound && version[..fixed] == bound[..fixed]
        }
    }
}

/// Major, minor and patch, and how many of them are there. What is before a release counts as the
/// release.
fn numbers(version: &str) -> ([u64; 3], usize) {
    let version = version.trim().split(['-', '+']).next().unwrap_or_default();
    let mut numbers = [0; 3];
    let mut given = 0;
    for (number, text) in numbers.iter_mut().zip(version.split('.')) {
        let Ok(parsed) = text.parse() else { break };
        *number = parsed;
        given += 1;
    }
    (numbers, given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_met_as_cargo_reads_them() {
        for (version, requirement, met) in [
            ("0.23.46", ">= 0.23.5", true),
            ("0.22.4", ">= 0.22.4, < 0.23.0", true),
            ("0.23.4", ">= 0.22.4, < 0.23.0", false),
            ("1.2.3", "^1.2", true),
            ("2.0.0", "^1.2", false),
            ("0.3.9", "^0.3.2", true),
            ("0.4.0", "^0.3.2", false),
            ("1.2.9", "~1.2.3", true),
            ("1.3.0", "~1.2.3", false),
            ("1.2.3", "= 1.2.3", true),
            ("1.2.4", "> 1.2.3", true),
        ] {
            assert_eq!(meets(version, requirement), met, "{version} {requirement}");
        }
    }

    #[test]
    fn lua_is_compared() {
        let package = |name: &str, version: &str| {
            let mut package = Package::default();
            package.name.push_str(name);
            package.version.push_str(version);
            package
        };
        let tests = |of: fn(&str) -> bool| -> String {
            let tests = LUA_ADVISORIES.iter().filter_map(|(_, proof)| match proof {
                Proof::Test(test) if of(test) => Some(format!("#[test]\nfn {test}() {{}}\n")),
                _ => None,
            });
            tests.collect()
        };
        let faults = |packages: &[Package], release: &str, tests: &str| {
            let mut faults = Vec::new();
            let header = format!("#define LUA_RELEASE\t\"Lua {release}\"\n");
            compare_lua(packages, &header, tests, &mut faults);
            faults
        };
        assert!(faults(&[], "5.1.5", &tests(|_| true)).is_empty());
        assert_eq!(faults(&[], "5.1.6", &tests(|_| true)).len(), 1);
        let another = package("luajit-src", "1.0.0");
        assert_eq!(faults(&[another], "5.1.5", &tests(|_| true)).len(), 1);
        let missing = faults(&[], "5.1.5", &tests(|test| test != "cve_2025_46817"));
        assert!(missing.len() == 1 && missing[0].contains("CVE-2025-46817"), "{missing:?}");
    }

    #[test]
    fn advisories_are_read() {
        let text = "```toml\n[advisory]\nid = \"RUSTSEC-1\"\npackage = \"a\"\n\n[versions]\n\
                    patched = [\n  \">= 1.2\",\n]\nunaffected = [\"< 1.0\"]\n```\n# Words";
        let advisory = Advisory::read(text).unwrap();
        assert_eq!((advisory.id.as_str(), advisory.package.as_str()), ("RUSTSEC-1", "a"));
        assert!(advisory.concerns("1.1.0") && !advisory.concerns("1.2.0"));
        assert!(!advisory.concerns("0.9.0"));
        let unmaintained = text.replace("package", "informational = \"unmaintained\"\npackage");
        assert!(Advisory::read(&unmaintained).is_none());
    }
}
