//! The state of a long script that other threads can see.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::config::Config;
use crate::engine::row::Failure;

/// The state of a script that goes on in slices, as other threads see it.
pub struct Busy {
    /// The function's name; `None` for a script of EVAL.
    pub function: Option<Vec<u8>>,
    /// The command that runs the script, as the command log shows it.
    pub words: Vec<Vec<u8>>,
    pub started_ms: i64,
    /// One of the three states below: whether the script can still be killed.
    state: AtomicU8,
    /// Whether clients get `-BUSY` because of this script.
    is_slow: AtomicBool,
}

/// The script has changed nothing and was not killed.
const UNTOUCHED: u8 = 0;
/// The script has changed something and cannot be killed any more.
const CHANGED: u8 = 1;
/// The script was killed and must not change anything.
const KILLED: u8 = 2;

impl Busy {
    /// `has_changed`: whether the script has changed something already.
    pub fn new(
        function: Option<Vec<u8>>,
        words: Vec<Vec<u8>>,
        started_ms: i64,
        has_changed: bool,
    ) -> Self {
        Self {
            function,
            words,
            started_ms,
            state: AtomicU8::new(if has_changed { CHANGED } else { UNTOUCHED }),
            is_slow: AtomicBool::new(false),
        }
    }

    /// The error for a client that sends another command meanwhile.
    pub fn failure(&self, config: &Config) -> Failure {
        Self::failure_of(self.function.is_some(), config)
    }

    pub fn failure_of(function: bool, config: &Config) -> Failure {
        let (name, kind) = (config.name(), if function { "FUNCTION" } else { "SCRIPT" });
        Failure::format(format!(
            "BUSY {name} is busy running a script. You can only call {kind} KILL or SHUTDOWN NOSAVE."
        ))
    }

    pub fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    /// Marks the script as slow. Only `Scripts` calls this, which also sees to it that clients are
    /// told.
    pub fn become_slow(&self) {
        self.is_slow.store(true, Ordering::Relaxed);
    }

    /// Kills the script: it ends at its next check. Fails if it has changed something.
    pub fn kill(&self) -> Result<(), Failure> {
        match self.move_to(KILLED) {
            true => Ok(()),
            false => Err(UNKILLABLE),
        }
    }

    pub fn check_killable(&self) -> Result<(), Failure> {
        if self.state.load(Ordering::Acquire) == CHANGED { Err(UNKILLABLE) } else { Ok(()) }
    }

    /// To be called before the script changes something. Fails if the script was killed.
    pub fn begin_change(&self) -> Result<(), Failure> {
        match self.move_to(CHANGED) {
            true => Ok(()),
            false => Err(Failure::from(self.text_of_kill())),
        }
    }

    /// Moves to one of the two final states. Returns whether the script is in that state now: the
    /// first of the two wins.
    fn move_to(&self, state: u8) -> bool {
        let moved =
            self.state.compare_exchange(UNTOUCHED, state, Ordering::AcqRel, Ordering::Acquire);
        moved.is_ok() || moved == Err(state)
    }

    /// The error that the script fails with, if it was killed.
    pub fn killed(&self) -> Option<&'static str> {
        let killed = self.state.load(Ordering::Acquire) == KILLED;
        killed.then(|| self.text_of_kill())
    }

    const fn text_of_kill(&self) -> &'static str {
        match self.function {
            Some(_) => "Script killed by user with FUNCTION KILL.",
            None => "Script killed by user with SCRIPT KILL.",
        }
    }
}

const UNKILLABLE: Failure = Failure::new(
    &"UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the script \
     termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
);
