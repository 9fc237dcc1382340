//! Wishes for the gate. Whatever needs every shard is refused while a script, or a transaction, has
//! some reserved; and where many of them overlap something is reserved at all times. So what was
//! refused leaves a wish, and as long as there is one, no further script begins that is known to
//! pause, and no transaction pauses. Those at work come to their end, and the wish has its turn.
//!
//! A script may also need, in its midst, what others keep, while it keeps something itself. To wait
//! for that it needs the right to, which one script has at a time: two would wait for each other.

use crate::engine::server::Server;

/// The right of a script that keeps something to wait for what others keep, however long that is.
/// They come to their end without it: none of them has the right.
pub struct WaitRight {
    server: &'static Server,
    number: u64,
}

impl WaitRight {
    /// `None`: another script has it.
    pub fn claim(server: &'static Server) -> Option<Self> {
        let number = server.scripts.next_wait();
        server.scripts.claim_wait(0, number).then(|| Self { server, number })
    }

    /// Takes it from the script that has it, if there is one.
    pub fn take(server: &'static Server) -> Self {
        let number = server.scripts.next_wait();
        server.scripts.take_wait(number);
        Self { server, number }
    }

    /// Whether no other script has taken it.
    pub fn is_valid(&self) -> bool {
        self.server.scripts.has_wait(self.number)
    }
}

impl Drop for WaitRight {
    fn drop(&mut self) {
        self.server.scripts.claim_wait(self.number, 0);
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
