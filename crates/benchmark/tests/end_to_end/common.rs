//! Running the program against a server of the test's own.

use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use bobbin_client::{RespClient, Value};
use bobbin_testkit::{Endless, TestServer};

/// Runs the program with the server's port in front of `line`; words are between blanks, and `~` in
/// one stands for a blank.
pub fn run_with(first: &[&str], server: &TestServer, line: &str) -> Output {
    let mut command = program(first, server);
    command.args(words(line));
    finish(command, b"")
}

/// The program with the server's port among these arguments: behind the way to call it (`sweep`,
/// `--memtier`), if they begin with one, and before the rest.
pub fn program(arguments: &[&str], server: &TestServer) -> Command {
    let port = server.address().port().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bobbin-benchmark"));
    let is_way = |word: &&&str| !word.starts_with('-') || **word == "--memtier";
    let way = arguments.first().filter(is_way);
    command.args(way).args(["-p", &port]).args(&arguments[way.iter().len()..]);
    command
}

pub fn finish(mut command: Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It may end without reading.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn words(line: &str) -> impl Iterator<Item = String> {
    line.split(' ').filter(|word| !word.is_empty()).map(|word| word.replace('~', " "))
}

/// The standard output of a run that must succeed.
pub fn bench(server: &TestServer, line: &str) -> String {
    text_of(line, run_with(&[], server, line))
}

pub fn memtier(server: &TestServer, line: &str) -> String {
    text_of(line, run_with(&["--memtier"], server, line))
}

pub fn text_of(line: &str, output: Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The one line of a run that must fail.
pub fn failure(server: &TestServer, line: &str) -> String {
    let output = run_with(&[], server, line);
    assert_eq!(output.status.code(), Some(1), "{line}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error.trim_end().lines().count(), 1, "{line}: {error}");
    error.trim_end().to_owned()
}

pub fn start(arguments: &[&str]) -> Endless {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bobbin-benchmark"));
    command.args(arguments);
    start_command(command)
}

pub fn start_on(server: &TestServer, arguments: &[&str]) -> Endless {
    start_command(program(arguments, server))
}

fn start_command(mut command: Command) -> Endless {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Endless(command.spawn().unwrap())
}

/// Waits until something holds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn client(server: &TestServer) -> RespClient {
    RespClient::connect(&server.address().to_string()).unwrap()
}

pub fn ask(server: &TestServer, command: &str) -> Value {
    client(server).line(command).unwrap()
}

pub fn integer(server: &TestServer, command: &str) -> i64 {
    let reply = ask(server, command);
    reply.as_integer().unwrap_or_else(|| panic!("{command}: {reply:?}"))
}

pub fn scratch(server: &TestServer, name: &str) -> PathBuf {
    server.folder().join(name)
}
