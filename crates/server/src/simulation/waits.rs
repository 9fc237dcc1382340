//! What happens while a thread waits for a lock: in a test that is another thread's work, done at
//! that moment.

use std::cell::RefCell;

thread_local! {
    static MEANWHILE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// Has this happen when the calling thread waits next, before it has what it waits for.
pub fn meanwhile(f: impl FnOnce() + 'static) {
    MEANWHILE.set(Some(Box::new(f)));
}

/// The calling thread waits.
pub fn begin() {
    if let Some(f) = MEANWHILE.take() {
        f();
    }
}

/// Whether what was to happen has happened.
pub fn is_over() -> bool {
    MEANWHILE.with_borrow(Option::is_none)
}
