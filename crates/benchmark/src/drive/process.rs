//! Server processes: starting them, and what /proc tells of them.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use bobbin_client::error_text;

use super::DriveFailure;
use crate::{
    children,
    interrupt::{INTERRUPT, TOO_EARLY},
    options::Common,
    provenance, server,
};

/// A server of our own; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct ServerProcess {
    id: u32,
    /// How it was called, as a shell takes it.
    command: String,
}

impl ServerProcess {
    /// Starts `program` on the port of `common` and waits until it answers. It saves nothing.
    pub(super) fn start(
        program: &Path,
        arguments: &[String],
        common: &Common,
    ) -> Result<Self, DriveFailure> {
        if server::connect(common).is_ok() {
            let place = server::place(common);
            return Err(DriveFailure(format!(
                "Somebody answers at {place} already; choose --port"
            )));
        }
        let folder = std::env::temp_dir().join(format!(
            "bobbin-benchmark-{}-{}",
            std::process::id(),
            common.port
        ));
        let shown = program.display();
        let port = common.port.to_string();
        let own = ["--port", &port, "--bind", &common.host, "--save", "", "--appendonly", "no"];
        let own = own.map(str::to_owned);
        let words = [program.display().to_string()].into_iter().chain(own.clone());
        let words = words.chain(arguments.iter().cloned());
        let command = provenance::command_line(words);
        let mut server = Command::new(program);
        server.args(own).arg("--dir").arg(&folder).args(arguments);
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let id = children::start(&mut server, &folder).map_err(|error| {
            DriveFailure(format!("Cannot start {shown}: {}", error_text(&error)))
        })?;
        let process = Self { id, command };
        let deadline = Instant::now() + START_MAX;
        loop {
            let answers = server::connect(common)
                .is_ok_and(|mut client| server::call(&mut client, &["PING"]).is_ok());
            if answers {
                return Ok(process);
            }
            if let Some(status) = children::ended(id) {
                return Err(DriveFailure(format!("{shown} ended at once ({status})")));
            }
            if INTERRUPT.is_raised() {
                return Err(DriveFailure(TOO_EARLY.into()));
            }
            if Instant::now() > deadline {
                return Err(DriveFailure(format!("{shown} does not answer")));
            }
            std::thread::sleep(POLL);
        }
    }

    pub(super) fn command(&self) -> &str {
        &self.command
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        children::end(self.id);
    }
}

/// The server program of a name: `bobbin` is the one beside this program, others are looked up in
/// PATH; a path is itself.
pub(super) fn program(name: &str) -> PathBuf {
    if name == "bobbin" {
        let beside = std::env::current_exe()
            .ok()
            .and_then(|path| Some(path.parent()?.join("bobbin-server")))
            .filter(|path| path.exists());
        return beside.unwrap_or_else(|| "bobbin-server".into());
    }
    name.into()
}

/// Time that all threads of a process have run.
pub(super) fn cpu_time(process: u32) -> Option<Duration> {
    let mut sum = 0;
    for task in std::fs::read_dir(format!("/proc/{process}/task")).ok()? {
        let path = task.ok()?.path().join("schedstat");
        // A thread may end meanwhile.
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        sum += text.split(' ').next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(sum))
}

/// Time in user space and in the kernel, in ticks of the clock.
pub(super) fn user_and_kernel_ticks(process: u32) -> Option<(u64, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is the name in parentheses, which may hold anything.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some((fields.nth(11)?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Physical memory in bytes.
pub(super) fn resident_bytes(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

const START_MAX: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);
