//! Ctrl-C. It ends the program, unless some code has work to finish first: then it is noted, and
//! only a second one ends the program, as that code may wait for a server that says nothing.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use signal_hook::{SigId, consts::SIGINT, flag, low_level};

struct Interrupt {
    /// Ctrl-C ends the process, with status 1.
    ends: Arc<AtomicBool>,
    /// It was pressed.
    pressed: Arc<AtomicBool>,
    holds: Mutex<Holds>,
}

#[derive(Default)]
struct Holds {
    /// How many there are, one within the other.
    depth: usize,
    /// What makes a second Ctrl-C end the process.
    arming: Option<SigId>,
}

static INTERRUPT: OnceLock<Option<Interrupt>> = OnceLock::new();

/// From now on Ctrl-C ends the program only while no code [`hold`]s it.
fn install() -> Option<&'static Interrupt> {
    let install = || {
        let ends = Arc::new(AtomicBool::new(true));
        let pressed = Arc::new(AtomicBool::new(false));
        flag::register_conditional_shutdown(SIGINT, 1, Arc::clone(&ends)).ok()?;
        flag::register(SIGINT, Arc::clone(&pressed)).ok()?;
        let interrupt = Interrupt { ends, pressed, holds: Mutex::default() };
        interrupt.arm(&mut interrupt.holds());
        Some(interrupt)
    };
    INTERRUPT.get_or_init(install).as_ref()
}

impl Interrupt {
    fn holds(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The flag is set behind the check whether Ctrl-C ends the process, so that it is the next one
    /// that does.
    fn arm(&self, holds: &mut Holds) {
        if holds.arming.is_none() {
            holds.arming = flag::register(SIGINT, Arc::clone(&self.ends)).ok();
        }
    }
}

/// Until it is dropped Ctrl-C is only noted.
pub struct Hold(());

pub fn hold() -> Hold {
    if let Some(interrupt) = install() {
        let mut holds = interrupt.holds();
        holds.depth += 1;
        if holds.depth == 1 {
            interrupt.pressed.store(false, Ordering::SeqCst);
            interrupt.ends.store(false, Ordering::SeqCst);
        }
    }
    Hold(())
}

/// Until it is dropped Ctrl-C is for a program that shares the terminal, however often.
pub struct Ignore {
    _hold: Hold,
}

pub fn ignore() -> Ignore {
    let hold = hold();
    if let Some(interrupt) = install()
        && let Some(arming) = interrupt.holds().arming.take()
    {
        low_level::unregister(arming);
    }
    Ignore { _hold: hold }
}

impl Hold {
    /// Whether it was pressed since.
    pub fn is_pressed(&self) -> bool {
        is_pressed()
    }
}

/// Whether some code holds Ctrl-C.
pub fn is_held() -> bool {
    INTERRUPT.get().and_then(Option::as_ref).is_some_and(|interrupt| interrupt.holds().depth > 0)
}

/// Whether Ctrl-C was pressed while it was held.
pub fn is_pressed() -> bool {
    let interrupt = INTERRUPT.get().and_then(Option::as_ref);
    interrupt.is_some_and(|interrupt| interrupt.pressed.load(Ordering::SeqCst))
}

/// Sleeps, but no longer than until Ctrl-C is pressed.
pub fn sleep(length: Duration) {
    let until = Instant::now() + length;
    while !(is_held() && is_pressed()) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(MOMENT));
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(interrupt) = install() {
            let mut holds = interrupt.holds();
            holds.depth = holds.depth.saturating_sub(1);
            if holds.depth == 0 {
                interrupt.ends.store(true, Ordering::SeqCst);
            }
        }
    }
}

impl Drop for Ignore {
    fn drop(&mut self) {
        if let Some(interrupt) = install() {
            interrupt.arm(&mut interrupt.holds());
        }
    }
}

/// How soon Ctrl-C is noticed.
const MOMENT: Duration = Duration::from_millis(50);
