//! A worker whose turns a test takes, one by one.

use super::Worker;

impl Worker {
    /// Takes a turn; whether the worker goes on. At its end it lets its last replies leave.
    pub(crate) fn take_turn(&mut self) -> bool {
        if !self.stop {
            self.turn();
        }
        if self.stop {
            self.finish();
            self.handle.mailbox.close();
        }
        !self.stop
    }
}
