//! Running bobbin-cli against a server of the test's own.

use std::{
    io::Write,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use bobbin_testkit::TestServer;

/// What a run left behind.
#[derive(Debug)]
pub struct Ran {
    pub output: String,
    pub bytes: Vec<u8>,
    pub errors: String,
    /// `None` where a signal ended it.
    pub status: Option<i32>,
}

impl Ran {
    /// The output of a run that must have ended well.
    pub fn ok(self) -> String {
        assert_eq!(self.status, Some(0), "{self:?}");
        self.output
    }

    /// What was said of a run that must have failed.
    pub fn failed(self) -> String {
        assert_eq!(self.status, Some(1), "{self:?}");
        self.errors
    }
}

/// The program under test, without what the user's environment would change.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bobbin-cli"));
    for variable in ["VALKEYCLI_AUTH", "REDISCLI_AUTH", "FAKETTY", "NO_COLOR"] {
        command.env_remove(variable);
    }
    command.env_remove("VALKEYCLI_CLUSTER_YES").env_remove("REDISCLI_CLUSTER_YES");
    command.env("VALKEYCLI_HISTFILE", "/dev/null").env("VALKEYCLI_RCFILE", "/dev/null");
    command
}

/// Runs the program with the server's port before the arguments.
pub fn run(server: &TestServer, arguments: &[&str]) -> Ran {
    run_with(server, arguments, b"", &[])
}

/// Runs the program as `run` does, with a standard input and environment variables.
pub fn run_with(
    server: &TestServer,
    arguments: &[&str],
    input: &[u8],
    environment: &[(&str, &str)],
) -> Ran {
    let port = server.address().port().to_string();
    let mut command = program();
    command.args(["-p", &port]).args(arguments).envs(environment.iter().copied());
    finish(command, input)
}

/// Runs a command to its end, which must come.
pub fn finish(mut command: Command, input: &[u8]) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut standard_input = child.stdin.take().expect("it is piped");
    let input = input.to_vec();
    // The program may end without reading: then there is no reader to write to.
    let writer = std::thread::spawn(move || drop(standard_input.write_all(&input)));
    let output = child.wait_with_output().expect("the program ends");
    writer.join().expect("the writer does not panic");
    Ran {
        output: String::from_utf8_lossy(&output.stdout).into_owned(),
        bytes: output.stdout,
        errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        status: output.status.code(),
    }
}

/// Waits until something holds.
pub fn eventually(what: &str, holds: impl FnMut() -> bool) {
    eventually_or(|| what.to_owned(), holds);
}

/// Waits until something holds. `what` makes the message of a failure when the wait is over.
pub fn eventually_or(what: impl Fn() -> String, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{}", what());
        std::thread::sleep(Duration::from_millis(20));
    }
}
