//! `daemonize`: goes on in the background, and tells the shell whether the start succeeded.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// Tells the process that was started in the foreground how the start went. That process waits for
/// it, and shows what it hears: the daemon has no terminal.
pub struct StartReport(UnixStream);

/// What says that the server listens. Anything else is the text of an error.
const LISTENS: &[u8] = b"\0";

impl StartReport {
    /// The server listens.
    pub fn succeed(mut self) {
        self.tell(LISTENS);
    }

    /// The server ends. Does nothing if it has listened before.
    pub fn fail(mut self, error: &str) {
        self.tell(error.as_bytes());
    }

    fn tell(&mut self, bytes: &[u8]) {
        if let Err(error) = self.0.write_all(bytes) {
            log::debug!("Nobody waits for the start of the daemon: {error}");
        }
    }
}

/// Goes on in the background: a child without a terminal takes over, and the caller's process ends
/// once the child listens or has failed. Must come before any thread is started.
pub fn daemonize() -> io::Result<StartReport> {
    io::stdout().flush()?;
    let (here, there) = UnixStream::pair()?;
    // SAFETY: the process has one thread, so the child has all there was, and no lock is held by a
    // thread it lacks.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => drop(here),
        _parent => {
            drop(there);
            let code = wait(here);
            // SAFETY: ends this process without running what belongs to the child too. It takes no
            // pointers.
            unsafe { libc::_exit(code) }
        }
    }
    rustix::process::setsid()?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(StartReport(there))
}

/// Waits for what the daemon reports, and shows an error. Returns the code to end with.
fn wait(mut report: UnixStream) -> i32 {
    let mut told = Vec::new();
    // What was told before an error counts.
    drop(report.read_to_end(&mut told));
    if told == LISTENS {
        return 0;
    }
    match String::from_utf8_lossy(&told) {
        none if none.is_empty() => eprintln!("The server ended before it could listen."),
        error => eprintln!("{error}"),
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_in_the_foreground_ends_as_the_start_went() {
        let ends: [(fn(StartReport), i32); 3] = [
            (StartReport::succeed, 0),
            (|report| report.fail("Failed listening on port 6379 (tcp), aborting."), 1),
            (drop, 1),
        ];
        for (end, code) in ends {
            let (here, there) = UnixStream::pair().unwrap();
            end(StartReport(there));
            assert_eq!(wait(here), code);
        }
    }
}
