//! Wishes for the gate. Whatever needs every shard is refused while a script, or a transaction, has
//! some reserved; and where many of them overlap something is reserved at all times. So what was
//! refused leaves a wish, and as long as there is one, no further script begins that is known to
//! pause, and no transaction pauses. Those at work come to their end, and the wish has its turn.

use crate::engine::server::Server;

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
