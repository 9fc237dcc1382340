//! Handles the signals of the operating system.

use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use bobbin_io::error_text;

use crate::engine::server::Server;
use crate::persistence;
use crate::system::logging;
use crate::worker::watchdog;

/// Makes a file that reaches the limit of its size (`ulimit -f`) an error of the write, as a full
/// disk is. By default the signal SIGXFSZ would end the process.
pub fn ignore_file_size_signal() {
    // SAFETY: no handler is installed, and the signal was not handled before.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// SIGTERM and SIGINT end the server. While it ends, another SIGINT or SIGTERM ends it at once.
/// SIGHUP reopens the server's log file, and SIGALRM logs what the workers do.
pub fn watch_signals(server: &'static Server) -> Result<(), String> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGALRM])
        .map_err(|error| format!("Can't watch for signals: {}", error_text(&error)))?;
    let mut asked: Option<Instant> = None;
    let run = move || {
        for signal in signals.forever() {
            let ends = server.end.is_on_its_way();
            let is_insisted_on = match signal {
                SIGINT => ends,
                SIGTERM => ends && asked.is_some_and(|at| at.elapsed() >= SAME_SIGNAL),
                _ => false,
            };
            match signal {
                SIGHUP => {
                    if let Err(error) = logging::reopen() {
                        log::warn!("Can't open the log file anew: {}", error_text(&error));
                    }
                }
                SIGALRM => watchdog::show_workers(server),
                _ if is_insisted_on => {
                    let name = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
                    log::warn!("Received {name} again: exiting at once.");
                    persistence::remove_unfinished();
                    std::process::exit(1);
                }
                SIGINT => server.end.signal("SIGINT", server.config.shutdown_on_sigint()),
                _ => {
                    if !ends || asked.is_none() {
                        asked = Some(Instant::now());
                    }
                    server.end.signal("SIGTERM", server.config.shutdown_on_sigterm());
                }
            }
        }
    };
    let spawned = thread::Builder::new().name("bobbin-signals".into()).spawn(run);
    spawned
        .map(drop)
        .map_err(|error| format!("Can't start the signal thread: {}", error_text(&error)))
}

/// `timeout` sends SIGTERM to its child, and again to the child's group. A signal so soon after the
/// first one does not count as another.
const SAME_SIGNAL: Duration = Duration::from_millis(500);
