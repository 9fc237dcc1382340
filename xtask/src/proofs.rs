//! Checks that need more than a compiler: shuttle's schedules, Miri, instructions under callgrind.

use std::path::{Path, PathBuf};
use std::process::Command;

use bobbin_testkit::peers::repository;

use crate::shell::{self, TaskResult, cargo};

/// The lock, the gate and the inbox under schedules that shuttle chooses. In a target folder of its
/// own: the flag would throw away everything that was built without it.
pub(crate) fn shuttle() -> TaskResult {
    let mut command = cargo(&["test", "--quiet", "--package", "bobbin-store", "--test", "shuttle"]);
    shell::run(command.env("CARGO_TARGET_DIR", target("shuttle")).env(FLAGS, "--cfg\x1fshuttle"))
}

/// The tests of what is unsafe, or read by what is, under Miri: undefined behaviour, data races,
/// and what weak memory allows.
pub(crate) fn miri() -> TaskResult {
    if !miri_is_installed() {
        return Err(NO_MIRI.to_owned());
    }
    let mut arguments = vec![
        "+nightly",
        "miri",
        "test",
        "--quiet",
        "--package",
        "bobbin-resp",
        "--package",
        "bobbin-sync",
        "--package",
        "bobbin-store",
        "--",
    ];
    arguments.extend(SAFE.iter().flat_map(|module| ["--skip", module]));
    let mut command = cargo(&arguments);
    shell::run(
        command
            .env("CARGO_TARGET_DIR", target("miri"))
            // Miri knows the system calls by their names in libc only.
            .env(FLAGS, "--cfg\x1frustix_use_libc")
            // Entries keep flags in the high bits of their addresses.
            .env("MIRIFLAGS", "-Zmiri-permissive-provenance -Zmiri-disable-isolation")
            .env("PROPTEST_CASES", "4"),
    )
}

/// Whether [`miri`] can run.
pub(crate) fn miri_is_installed() -> bool {
    shell::works("cargo", &["+nightly", "miri", "--version"])
}

/// Instructions per command of the path of a request; an error if one takes more than [`LIMITS`]
/// allows.
pub(crate) fn instructions() -> TaskResult {
    if !shell::works("valgrind", &["--version"]) {
        shell::install_packages(&["valgrind"])?;
    }
    build_instructions()?;
    let program = target("release/examples/instructions");
    let mut over = Vec::new();
    for line in shell::read(&repository().join(LIMITS))?.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (load, limit) = match words.as_slice() {
            [] | ["#", ..] => continue,
            [load, limit] => (*load, limit.parse::<u64>().map_err(|error| error.to_string())?),
            _ => return Err(format!("{LIMITS}: {line:?} is not a load and a limit")),
        };
        // What both runs do is the start; the difference is the commands.
        let (few, many) = std::thread::scope(|scope| {
            let few = scope.spawn(|| count(&program, load, COMMANDS));
            let many = count(&program, load, 2 * COMMANDS);
            (few.join().expect("to count does not panic"), many)
        });
        let each = many?.saturating_sub(few?) / COMMANDS;
        println!("{load:10} {each:6} instructions each, at most {limit}");
        if each > limit {
            over.push(format!("{load} takes {each} instructions, more than {limit}"));
        }
    }
    if over.is_empty() { Ok(()) } else { Err(format!("{}\n({LIMITS})", over.join("\n"))) }
}

/// Builds the program whose instructions are counted, as a release is built.
pub(crate) fn build_instructions() -> TaskResult {
    let build = ["build", "--quiet", "--release", "--package", "bobbin-server", EXAMPLE];
    shell::run(&mut cargo(&build))
}

/// All instructions of one run.
fn count(program: &Path, load: &str, commands: u64) -> Result<u64, String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([load, &commands.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let report = String::from_utf8_lossy(&output.stderr);
    let collected = report.lines().find_map(|line| line.split_once("Collected : "));
    let count = collected.and_then(|(_, count)| count.trim().parse().ok());
    count.filter(|_| output.status.success()).ok_or_else(|| format!("valgrind says:\n{report}"))
}

/// A place in Cargo's target directory, wherever that is.
pub(crate) fn target(name: &str) -> PathBuf {
    let moved = std::env::var_os("CARGO_TARGET_DIR");
    repository().join(moved.unwrap_or_else(|| "target".into())).join(name)
}

pub(crate) const NO_MIRI: &str = "Miri is missing; `rustup component add --toolchain nightly miri \
                                  rust-src` installs it";
/// Tests of arithmetic in safe code, which Miri has nothing to say about.
const SAFE: [&str; 4] =
    ["hyperloglog::tests", "hyperloglog::sparse", "hyperloglog::selftest", "geo"];
const FLAGS: &str = "CARGO_ENCODED_RUSTFLAGS";
const EXAMPLE: &str = "--example=instructions";
/// With a quarter of them two counts of the same program differ by up to 4 instructions a command.
const COMMANDS: u64 = 131_072;
/// Lines of a load and its limit: what was measured, and a little room.
const LIMITS: &str = "tests/instructions.txt";
