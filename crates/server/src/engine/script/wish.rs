//! Wishes for the gate. Whatever needs every shard is refused while a script, or a transaction, has
//! some reserved; and where many of them overlap something is reserved at all times. So what was
//! refused leaves a wish, and as long as there is one, no further script begins that is known to
//! pause, and no transaction pauses. Those at work come to their end, and the wish has its turn.
//!
//! A script may also need, in its midst, what others keep, while it keeps something itself. To wait
//! for that it needs the right to, which one script has at a time: two would wait for each other.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::engine::server::Server;

/// The right of a script that keeps something to wait for what others keep, however long that is.
/// They come to their end without it: none of them has the right.
pub struct WaitRight {
    server: &'static Server,
    number: u64,
}

/// What all scripts know of that.
#[derive(Default)]
pub(super) struct Waits {
    /// The number of the right that is valid; 0: no script has it.
    valid: AtomicU64,
    /// The last number that there was.
    last: AtomicU64,
    /// One more than the shard that the script waits for which has it; 0: everything.
    waited_for: AtomicUsize,
}

impl Waits {
    fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Gives the right from one number to another; whether the first one had it.
    fn pass(&self, from: u64, to: u64) -> bool {
        self.valid.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

impl WaitRight {
    /// `None`: another script has it.
    pub fn claim(server: &'static Server) -> Option<Self> {
        let number = server.scripts.waits.next();
        server.scripts.waits.pass(0, number).then(|| Self { server, number })
    }

    /// Takes it from the script that has it, if there is one.
    pub fn take(server: &'static Server) -> Self {
        let number = server.scripts.waits.next();
        server.scripts.waits.valid.store(number, Ordering::SeqCst);
        Self { server, number }
    }

    /// Whether no other script has taken it.
    pub fn is_valid(&self) -> bool {
        self.server.scripts.waits.valid.load(Ordering::SeqCst) == self.number
    }

    /// Notes what its script waits for; `None`: everything.
    pub fn wait_for(&self, shard: Option<usize>) {
        let waited_for = shard.map_or(0, |shard| shard + 1);
        self.server.scripts.waits.waited_for.store(waited_for, Ordering::SeqCst);
    }

    /// The shard that the script waits for which has the right; `None`: everything.
    pub fn waited_for(server: &Server) -> Option<usize> {
        server.scripts.waits.waited_for.load(Ordering::SeqCst).checked_sub(1)
    }
}

impl Drop for WaitRight {
    fn drop(&mut self) {
        self.server.scripts.waits.pass(self.number, 0);
    }
}

/// That a thread or a client waits for the gate. It is kept until the next attempt is over.
pub struct GateWish(&'static Server);

impl GateWish {
    pub fn new(server: &'static Server) -> Self {
        server.scripts.add_wish();
        Self(server)
    }
}

impl Drop for GateWish {
    fn drop(&mut self) {
        if self.0.scripts.remove_wish() {
            // What was kept from beginning.
            self.0.scripts.serve_waiters(self.0);
        }
    }
}
