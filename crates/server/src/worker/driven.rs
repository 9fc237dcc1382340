//! A worker whose turns a test takes one by one.

use super::Worker;

impl Worker {
    /// Takes one turn, and finishes the worker if it has to stop. Returns whether it goes on.
    pub(crate) fn take_turn(&mut self) -> bool {
        if !self.stop {
            self.turn();
        }
        let is_listed = self.server.workers.all().iter().any(|it| it.id == self.handle.id);
        if self.stop && is_listed {
            self.finish();
            self.server.workers.close(&self.handle);
            self.server.workers.ended(&self.handle);
        }
        !self.stop
    }

    /// Bytes of messages that the last turn has passed to connections.
    pub(crate) const fn unsent_bytes(&self) -> usize {
        self.unsent.bytes()
    }
}
