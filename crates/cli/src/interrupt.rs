//! Ctrl-C. It ends the program, unless some code has work to finish first.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use signal_hook::{consts::SIGINT, flag};

struct Interrupt {
    /// Ctrl-C ends the process, with status 1.
    ends: Arc<AtomicBool>,
    /// It was pressed.
    pressed: Arc<AtomicBool>,
}

static INTERRUPT: OnceLock<Option<Interrupt>> = OnceLock::new();

/// From now on Ctrl-C ends the program only while no code [`hold`]s it.
fn install() -> Option<&'static Interrupt> {
    let install = || {
        let ends = Arc::new(AtomicBool::new(true));
        let pressed = Arc::new(AtomicBool::new(false));
        flag::register_conditional_shutdown(SIGINT, 1, Arc::clone(&ends)).ok()?;
        flag::register(SIGINT, Arc::clone(&pressed)).ok()?;
        Some(Interrupt { ends, pressed })
    };
    INTERRUPT.get_or_init(install).as_ref()
}

/// Until it is dropped Ctrl-C is only noted.
pub struct Hold(());

pub fn hold() -> Hold {
    if let Some(interrupt) = install() {
        interrupt.pressed.store(false, Ordering::SeqCst);
        interrupt.ends.store(false, Ordering::SeqCst);
    }
    Hold(())
}

impl Hold {
    /// Whether it was pressed since.
    pub fn is_pressed(&self) -> bool {
        install().is_some_and(|interrupt| interrupt.pressed.load(Ordering::SeqCst))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(interrupt) = install() {
            interrupt.ends.store(true, Ordering::SeqCst);
        }
    }
}
