//! What a worker has still to do for connections that it has not come to, or whose peers have gone.
//! While that is much, the worker gets no new connections. While that is so of all workers, none
//! are accepted. Then they wait in the kernel's backlog, which is limited, and count for nothing.
//! Otherwise clients that connect, send a command and go would take all of `maxclients`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many connections a worker has not come to, and how many have commands at work though their
/// peers have gone, together.
#[derive(Default)]
pub struct UnservedCount(Arc<AtomicUsize>);

/// One of them. It counts until it is dropped.
pub struct Unserved(Arc<AtomicUsize>);

impl UnservedCount {
    pub fn add(&self) -> Unserved {
        self.0.fetch_add(1, Ordering::Relaxed);
        Unserved(Arc::clone(&self.0))
    }

    /// Whether the worker should get no new connections.
    pub fn is_high(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= UNSERVED_MAX
    }
}

impl Drop for Unserved {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// From this number on a worker gets no more connections, but for the rest of those that were
/// accepted at once.
const UNSERVED_MAX: usize = 64;
