//! Real applications and clients, on the real server and on Bobbin: `cargo xtask apps`. Each has a
//! workload in `tests/apps`, which prints what its users rely on. The lines must be the same.

mod runtime;

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use bobbin_testkit::TestServer;
use bobbin_testkit::peers::cache_folder;

use crate::shell::{self, TaskResult};
use runtime::Runtime;

/// An application or client, and how its workload is run. What it needs, and in which version,
/// says the manifest beside the workload.
#[derive(Debug)]
pub(crate) struct App {
    /// The folder in `tests/apps`.
    name: &'static str,
    runtime: Runtime,
    /// Starts the server whose lines Bobbin's must equal.
    peer: fn(&[&str]) -> TestServer,
}

/// Every workload. Most are too long for the tests: [`BULLMQ`] alone is part of them.
const APPS: &[App] = &[
    App { name: "asynq", runtime: Runtime::Go, peer: TestServer::valkey },
    BULLMQ,
    App { name: "celery", runtime: Runtime::Python, peer: TestServer::valkey },
    App { name: "django", runtime: Runtime::Python, peer: TestServer::valkey },
    App { name: "lettuce", runtime: Runtime::Java, peer: TestServer::valkey },
    App { name: "php", runtime: Runtime::Php, peer: TestServer::valkey },
    App { name: "redisson", runtime: Runtime::Java, peer: TestServer::valkey },
    // It caches only what a server named Redis sends.
    App { name: "redis-py", runtime: Runtime::Python, peer: TestServer::redis },
    App { name: "sidekiq", runtime: Runtime::Ruby, peer: TestServer::valkey },
];

/// BullMQ, a job queue which is all scripts.
pub(crate) const BULLMQ: App =
    App { name: "bullmq", runtime: Runtime::Node, peer: TestServer::valkey };

/// `cargo xtask apps [--rounds N] [NAME...]`: installs and compares these, or all. One that differs
/// does not keep the others from running.
pub(crate) fn run(arguments: &[&str]) -> TaskResult {
    let (rounds, names) = match arguments {
        ["--rounds", rounds, names @ ..] => {
            let parsed = rounds.parse().map_err(|error| format!("--rounds {rounds}: {error}"))?;
            (parsed, names)
        }
        names => (NonZeroU32::MIN, names),
    };
    if let Some(name) = names.iter().find(|name| APPS.iter().all(|app| app.name != **name)) {
        let known: Vec<&str> = APPS.iter().map(|app| app.name).collect();
        return Err(format!("no app is called {name}; there are {}", known.join(", ")));
    }
    let mut faults = Vec::new();
    for app in APPS.iter().filter(|app| names.is_empty() || names.contains(&app.name)) {
        let outcome =
            app.install().and_then(|()| (0..rounds.get()).try_for_each(|_| app.compare()));
        if let Err(error) = outcome {
            eprintln!("{error}");
            faults.push(app.name);
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(format!("apps that fail: {}", faults.join(", "))) }
}

impl App {
    /// Installs it, with what runs it, into a folder of the cache, where its workload is copied.
    pub(crate) fn install(&self) -> TaskResult {
        let folder = self.folder();
        shell::copy_files(&format!("tests/apps/{}", self.name), &folder)?;
        self.runtime
            .install(&folder)
            .map_err(|error| format!("cannot install {}: {error}", self.name))
    }

    /// Runs the workload on fresh servers, and compares what it prints.
    pub(crate) fn compare(&self) -> TaskResult {
        let begun = Instant::now();
        let wanted = self.printed("the real server", &(self.peer)(&[]))?;
        if wanted.is_empty() {
            return Err(format!("{}: the workload prints nothing", self.name));
        }
        for threads in ["1", "4"] {
            let server = format!("bobbin --io-threads {threads}");
            let found = self.printed(&server, &TestServer::bobbin(&["--io-threads", threads]))?;
            let differences = differences(&wanted, &found);
            if !differences.is_empty() {
                return Err(format!("{}: {server} differs\n{differences}", self.name));
            }
        }
        let (name, lines) = (self.name, wanted.lines().count());
        println!("{name}: {lines} results are the same, in {} s", begun.elapsed().as_secs());
        Ok(())
    }

    fn printed(&self, name: &str, server: &TestServer) -> Result<String, String> {
        let workload = self.runtime.workload(&self.folder());
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after", "5", SECONDS_MAX])
            .arg(workload.get_program())
            .args(workload.get_args())
            .arg(server.address().port().to_string())
            .current_dir(self.folder());
        shell::output(&mut command).map_err(|error| format!("{} on {name}: {error}", self.name))
    }

    fn folder(&self) -> PathBuf {
        cache_folder().join("apps").join(self.name)
    }
}

/// A workload that waits for ever is ended after this time.
const SECONDS_MAX: &str = "600";

/// The lines that are not the same, of both; empty if all are.
fn differences(wanted: &str, found: &str) -> String {
    let (mut wanted, mut found) = (wanted.lines(), found.lines());
    let mut text = String::new();
    loop {
        let pair = (wanted.next(), found.next());
        if pair == (None, None) {
            return text;
        }
        if pair.0 != pair.1 {
            let shown = |line: Option<&str>| line.unwrap_or("(no line)").to_owned();
            text += &format!("  wanted: {}\n  bobbin: {}\n", shown(pair.0), shown(pair.1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_line_and_a_missing_one_are_differences() {
        assert_eq!(differences("a\nb\n", "a\nb\n"), "");
        assert_eq!(differences("a\nb\n", "a\nc\n"), "  wanted: b\n  bobbin: c\n");
        assert_eq!(differences("a\nb\n", "a\n"), "  wanted: b\n  bobbin: (no line)\n");
        assert_eq!(differences("a\n", "a\nb\n"), "  wanted: (no line)\n  bobbin: b\n");
    }
}
