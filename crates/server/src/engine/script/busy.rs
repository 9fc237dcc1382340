//! What others know of a script that takes long.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::config::Config;
use crate::engine::row::Failure;

/// What others know of a script that goes on in slices.
pub struct Busy {
    /// The function's name; `None`: it is a script.
    pub function: Option<Vec<u8>>,
    /// The command that began it, as the command log shows it.
    pub words: Vec<Vec<u8>>,
    pub started_ms: i64,
    /// Whether it can still be ended as if it had not been.
    state: AtomicU8,
    /// Clients are told that the server is busy with it.
    is_slow: AtomicBool,
}

/// It has changed nothing, and was not told to end.
const UNTOUCHED: u8 = 0;
/// It changed something, and cannot be ended any more.
const CHANGED: u8 = 1;
/// It must end, and must not change anything.
const KILLED: u8 = 2;

impl Busy {
    /// `has_changed`: it has changed something.
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

    /// The reply to a client that asks for something else.
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

    /// From now on clients are told of it; to be called by `Scripts`, which has them told.
    pub fn become_slow(&self) {
        self.is_slow.store(true, Ordering::Relaxed);
    }

    /// Has it end as soon as it looks.
    pub fn kill(&self) -> Result<(), Failure> {
        match self.move_to(KILLED) {
            true => Ok(()),
            false => Err(UNKILLABLE),
        }
    }

    pub fn check_killable(&self) -> Result<(), Failure> {
        if self.state.load(Ordering::Acquire) == CHANGED { Err(UNKILLABLE) } else { Ok(()) }
    }

    /// To be called before the script changes something; fails if it was told to end.
    pub fn begin_change(&self) -> Result<(), Failure> {
        match self.move_to(CHANGED) {
            true => Ok(()),
            false => Err(Failure::new(self.text_of_kill())),
        }
    }

    /// Whether its state is this one from now on: the first of the two wins.
    fn move_to(&self, state: u8) -> bool {
        let moved =
            self.state.compare_exchange(UNTOUCHED, state, Ordering::AcqRel, Ordering::Acquire);
        moved.is_ok() || moved == Err(state)
    }

    /// What the script fails with, if it was told to end.
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
    "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the script \
     termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
);
