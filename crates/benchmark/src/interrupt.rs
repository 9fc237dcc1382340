//! The wish that a run ends early, which SIGINT, SIGTERM and SIGHUP bring. The run then stops, and
//! what it has measured until then is reported. Another signal ends the program at once, and with
//! it the servers that it started.

use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use bobbin_client::error_text;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::children;

/// Whether somebody wants the end, and by which signal.
#[derive(Debug, Default)]
pub struct Interrupt {
    /// 0 as long as there was none.
    signal: AtomicI32,
}

impl Interrupt {
    pub const fn new() -> Self {
        Self { signal: AtomicI32::new(0) }
    }

    #[inline]
    pub fn is_raised(&self) -> bool {
        self.signal.load(Relaxed) != 0
    }

    /// The first signal.
    pub fn signal(&self) -> Option<i32> {
        Some(self.signal.load(Relaxed)).filter(|signal| *signal != 0)
    }

    /// Whether this is the first signal.
    pub fn raise(&self, signal: i32) -> bool {
        self.signal.compare_exchange(0, signal, Relaxed, Relaxed).is_ok()
    }
}

/// That of this program. It is never raised before [`watch_signals`].
pub static INTERRUPT: Interrupt = Interrupt::new();

/// From now on a signal is a wish that the run heeds. Ways of calling the program that have nothing
/// to report do without, and signals end those.
pub(crate) fn watch_signals() -> Result<(), String> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])
        .map_err(|error| format!("Cannot watch signals: {}", error_text(&error)))?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if !INTERRUPT.raise(signal) {
                children::exit(status(signal));
            }
        }
    });
    Ok(())
}

/// The exit status of a program that this signal ended, as shells give it.
pub(crate) fn status(signal: i32) -> i32 {
    128 + signal
}

/// What failed because of the signal is said like this.
pub(crate) const TOO_EARLY: &str = "Interrupted before anything was measured";
