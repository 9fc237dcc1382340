//! Wishes for the gate. A command that needs every shard is refused while a paused script or
//! transaction has any shard reserved. If many of those overlap, some shard is reserved at all
//! times. So the refused command leaves a wish. While there is a wish, no script begins that is
//! known to pause, and no transaction pauses. The paused ones come to their end, and then the
//! command has its turn.
//!
//! A script may also need shards that others keep while it keeps some itself. To wait for them it
//! needs the right to wait. Only one script has that right at a time, as two would wait for each
//! other.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::engine::server::Server;

/// The right of a script that keeps shards to wait for shards that others keep, without a limit.
/// Those others come to their end, as none of them has the right.
pub struct WaitRight {
    server: &'static Server,
    number: u64,
}

/// The state of that right, which all scripts share.
#[derive(Default)]
pub(super) struct Waits {
    /// The number of the valid right; 0 if no script has it.
    valid: AtomicU64,
    /// The last number given out.
    last: AtomicU64,
    /// What the script with the right waits for: the index of a shard plus one, or 0 for
    /// everything.
    waited_for: AtomicUsize,
}

impl Waits {
    fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Passes the right from one number to another. Returns whether the first one had it.
    fn pass(&self, from: u64, to: u64) -> bool {
        self.valid.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

impl WaitRight {
    /// Takes the right if it is free. Returns `None` if another script has it.
    pub fn claim(server: &'static Server) -> Option<Self> {
        let number = server.scripts.waits.next();
        server.scripts.waits.pass(0, number).then(|| Self { server, number })
    }

    /// Takes the right, even if another script has it.
    pub fn take(server: &'static Server) -> Self {
        let number = server.scripts.waits.next();
        server.scripts.waits.valid.store(number, Ordering::SeqCst);
        Self { server, number }
    }

    /// Whether no other script has taken the right.
    pub fn is_valid(&self) -> bool {
        self.server.scripts.waits.valid.load(Ordering::SeqCst) == self.number
    }

    /// Notes what the script waits for: a shard, or (`None`) everything.
    pub fn wait_for(&self, shard: Option<usize>) {
        let waited_for = shard.map_or(0, |shard| shard + 1);
        self.server.scripts.waits.waited_for.store(waited_for, Ordering::SeqCst);
    }

    /// The shard that the script with the right waits for; `None` if that is everything.
    pub fn waited_for(server: &Server) -> Option<usize> {
        server.scripts.waits.waited_for.load(Ordering::SeqCst).checked_sub(1)
    }
}

impl Drop for WaitRight {
    fn drop(&mut self) {
        self.server.scripts.waits.pass(self.number, 0);
    }
}

/// A wish for the gate of a thread or a client. It is dropped after the next attempt.
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
            // The last wish is gone: the scripts that it kept from beginning may begin.
            self.0.scripts.serve_waiters(self.0);
        }
    }
}
