//! A short run of every fuzz target: shows that they build and that nothing falls out at once.

use std::process::Command;

use bobbin_testkit::peers::repository;

use crate::shell::{self, TaskResult};

/// Runs each target for `seconds`, one after the other; without the tools it says what is missing
/// and does nothing.
pub(crate) fn smoke(seconds: &str) -> TaskResult {
    let seconds: u32 =
        seconds.parse().map_err(|_| format!("{seconds:?} is not a number of seconds"))?;
    if seconds == 0 {
        return Err("fuzzing without a limit never ends: give at least a second".to_owned());
    }
    for (arguments, missing) in [(["+nightly", "--version"], NO_NIGHTLY), (VERSION, NO_CARGO_FUZZ)]
    {
        if !shell::works("cargo", &arguments) {
            println!("skipped: {missing}");
            return Ok(());
        }
    }
    let targets = shell::output(&mut cargo_fuzz(&["list"]))?;
    let mut failed = Vec::new();
    for target in targets.lines() {
        println!("{target}: {seconds} s");
        let limit = format!("-max_total_time={seconds}");
        // An input that takes seconds hangs the server as well.
        let hang = "-timeout=20";
        let mut run = cargo_fuzz(&["run", target, "--", &limit, hang]);
        run.args(["-print_final_stats=0", "-verbosity=0"]).env("ASAN_OPTIONS", ASAN_OPTIONS);
        if let Err(error) = shell::run(&mut run) {
            eprintln!("{error}");
            failed.push(target);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("fuzzing failed: {}", failed.join(", "))) }
}

/// Each script has a stack of its own. The sanitizer would keep a shadow of each for ever, to find
/// the use of variables of functions that have returned.
const ASAN_OPTIONS: &str = "detect_stack_use_after_return=0";

/// Compiles the targets, which are no part of the workspace, so that they do not fall behind it.
pub(crate) fn check() -> TaskResult {
    let mut check = Command::new(env!("CARGO"));
    check.args([
        "check",
        "--locked",
        "--quiet",
        "--no-default-features",
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--target-dir",
        "target",
    ]);
    shell::run(check.current_dir(repository()))
}

fn cargo_fuzz(arguments: &[&str]) -> Command {
    // The name and not `CARGO`: that would be one toolchain's, which knows no other.
    let mut command = Command::new("cargo");
    command.args(["+nightly", "fuzz"]).args(arguments);
    command.current_dir(repository()).env_remove("RUSTUP_TOOLCHAIN");
    command
}

pub(crate) const SECONDS: &str = "10";
const VERSION: [&str; 2] = ["fuzz", "--version"];
const NO_NIGHTLY: &str = "there is no nightly toolchain, which fuzzing needs; `rustup toolchain \
                          install nightly` installs it";
const NO_CARGO_FUZZ: &str =
    "cargo-fuzz is missing; `cargo install --locked cargo-fuzz` installs it";
