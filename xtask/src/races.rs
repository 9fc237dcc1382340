//! Data races in the whole server, as ThreadSanitizer finds them while the end-to-end tests run.
//!
//! The server and the standard library are built with it. Only the sanitizer's reports count. The
//! server is ten times slower, takes more memory, and may hear of SIGTERM late, as the sanitizer
//! keeps signals back: a test that fails for that proves nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shell::{self, TaskResult};
use crate::{end_to_end, proofs};

/// Runs the end-to-end tests with these names, or [`TESTS`], and fails if two threads used one
/// place of memory at the same time.
pub(crate) fn run(names: &[&str]) -> TaskResult {
    let names = if names.is_empty() { &TESTS } else { names };
    // What cannot run must not look as if it had found nothing.
    end_to_end::build(names)?;
    let folder = proofs::target("races");
    let server = build(&folder, &["--package", "bobbin-server", "--bin", "bobbin-server"])?;
    let race = build(&folder, &["--package", "bobbin-store", "--example", "race"])?;
    let known = empty(folder.join("known"))?;
    shell::run(watched(&mut Command::new(race.join("examples/race")), &known))?;
    if found(&known)?.is_empty() {
        return Err("the sanitizer does not see a race that is there".to_owned());
    }
    let reports = empty(folder.join("reports"))?;
    // This program itself sets the variables for the servers that the tests start.
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut tests = Command::new(own);
    tests.arg("end-to-end").args(names).env("BOBBIN_SERVER", server.join("bobbin-server"));
    if let Err(error) = shell::run(watched(&mut tests, &reports)) {
        println!("{error}; what counts here are the sanitizer's reports");
    }
    let found = found(&reports)?;
    if found.is_empty() {
        return Ok(());
    }
    let summaries: Vec<&str> =
        found.iter().flat_map(|text| text.lines()).filter(|it| it.starts_with("SUMMARY")).collect();
    Err(format!("{}\nthe reports are in {}", summaries.join("\n"), reports.display()))
}

/// Builds something with the sanitizer. Returns the folder of programs.
fn build(folder: &Path, what: &[&str]) -> Result<PathBuf, String> {
    let sources = ["+nightly", "build", "-Zbuild-std", "--target", TARGET];
    let mut command = shell::cargo(&sources);
    command.args(what).arg("--target-dir").arg(folder).env("CARGO_ENCODED_RUSTFLAGS", FLAGS);
    shell::run(&mut command).map_err(|error| format!("{error}\n({WANTED})"))?;
    Ok(folder.join(TARGET).join("debug"))
}

/// A folder with nothing in it.
fn empty(folder: PathBuf) -> Result<PathBuf, String> {
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|error| error.to_string())?;
    }
    shell::create_folder(&folder)?;
    Ok(folder)
}

/// Has a program, and those that it starts, write reports to files of this folder. A report does
/// not change how the program ends.
fn watched<'c>(command: &'c mut Command, reports: &Path) -> &'c mut Command {
    let options = format!("log_path={}/report exitcode=0 history_size=4", reports.display());
    command.env("TSAN_OPTIONS", options)
}

/// The reports in a folder.
fn found(folder: &Path) -> Result<Vec<String>, String> {
    let cannot = |error| format!("{}: {error}", folder.display());
    let read =
        |entry: std::io::Result<std::fs::DirEntry>| shell::read(&entry.map_err(cannot)?.path());
    std::fs::read_dir(folder).map_err(cannot)?.map(read).collect()
}

const TARGET: &str = "x86_64-unknown-linux-gnu";
const FLAGS: &str = "-Zsanitizer=thread\x1f--cfg\x1fthread_sanitizer\x1f-Ctarget-cpu=x86-64-v2";
const WANTED: &str = "it wants a nightly toolchain with its sources: `rustup toolchain install \
                      nightly --component rust-src` installs them";
/// Tests in which many threads do many things, and which do not measure time or memory.
const TESTS: [&str; 22] = [
    "testkit/consistency/causality",
    "testkit/consistency/groups",
    "testkit/consistency/history",
    "testkit/consistency/queues",
    "testkit/consistency/tracking",
    "testkit/latency/slices",
    "testkit/latency/slow_scripts",
    "testkit/latency/turns",
    "testkit/persistence/aof",
    "testkit/persistence/snapshot",
    "testkit/replication/answers",
    "testkit/replication/bad_links",
    "testkit/replication/copies",
    "testkit/replication/dialects",
    "testkit/replication/dual_channel",
    "testkit/replication/failover",
    "testkit/replication/link",
    "testkit/replication/reads",
    "testkit/replication/streams",
    "testkit/replication/threads",
    "testkit/replication/tls",
    "testkit/security/acl",
];
