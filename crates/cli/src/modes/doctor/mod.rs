//! `bobbin-cli doctor`: what on this machine and in the server's configuration costs speed or
//! safety, and what to change.

mod host;
mod server;

use std::{net::IpAddr, process::ExitCode};

use bobbin_client::ServerAddress;

use crate::{session::Session, terminal};

/// Examines the host and the server. The status is 1 when the server cannot be reached.
pub fn run(session: &mut Session) -> ExitCode {
    out!("This machine\n");
    for finding in host::examine(&host::HostFacts::read()) {
        out!("{}", finding.show());
    }
    out!("\nThe server at {}\n", session.address);
    if session.connect().is_err() {
        return ExitCode::FAILURE;
    }
    if !is_here(&session.address) {
        out!("  (it is on another machine: run this there, too)\n");
    }
    let Some(client) = session.client() else { return ExitCode::FAILURE };
    for finding in server::examine(client) {
        out!("{}", finding.show());
    }
    ExitCode::SUCCESS
}

/// One thing that was looked at.
#[derive(Debug, PartialEq)]
struct Finding {
    level: Level,
    /// What was found, in a line.
    found: String,
    /// What to do about it.
    advice: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Good,
    /// Worth knowing, often as intended.
    Note,
    Bad,
}

impl Finding {
    fn good(found: impl Into<String>) -> Self {
        Self { level: Level::Good, found: found.into(), advice: None }
    }

    fn note(found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: Level::Note, found: found.into(), advice: Some(advice.into()) }
    }

    fn bad(found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: Level::Bad, found: found.into(), advice: Some(advice.into()) }
    }

    fn show(&self) -> String {
        let (label, colour) = match self.level {
            Level::Good => ("ok    ", "\x1b[32m"),
            Level::Note => ("note  ", "\x1b[33m"),
            Level::Bad => ("change", "\x1b[31m"),
        };
        let label = if terminal::is_for_people() && terminal::has_colours() {
            format!("{colour}{label}\x1b[0m")
        } else {
            label.to_owned()
        };
        let mut text = format!("  {label}  {}\n", self.found);
        for line in self.advice.iter().flat_map(|advice| advice.lines()) {
            text.push_str(&format!("          -> {line}\n"));
        }
        text
    }
}

fn is_here(address: &ServerAddress) -> bool {
    match address {
        ServerAddress::Unix(_) => true,
        ServerAddress::Tcp { host, .. } => {
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
    }
}
