//! How a connection is read from, depending on its unexecuted input.

use std::os::fd::AsFd;

use bobbin_io::Driver;

use super::Worker;
use crate::engine::client::connection::Reading;

/// A connection whose commands wait until replies are sent is not read from while it has more bytes
/// of input than this.
const READ_AHEAD_MAX: usize = 256 * 1024;

impl Worker {
    /// Pauses reading while a connection has much input and has to send replies first. Resumes it
    /// afterwards.
    pub(super) fn fit_reading(&mut self, slot: u32) {
        let Some(connection) = self.connections.at(slot) else { return };
        if connection.deferred && connection.input.len() > READ_AHEAD_MAX {
            self.read_by(slot, Reading::Paused);
        } else if connection.reading == Reading::Paused {
            self.read_by(slot, Reading::Data);
        }
    }

    /// Has the driver read a connection in this way from now on.
    pub(super) fn read_by(&mut self, slot: u32, reading: Reading) {
        let Some(connection) = self.connections.at(slot) else { return };
        if reading == connection.reading {
            return;
        }
        connection.reading = reading;
        let (token, socket) = (connection.token, connection.socket.as_fd());
        match reading {
            Reading::Data => self.driver.resume(token, socket),
            Reading::Direct => self.driver.direct(token, socket),
            Reading::Paused => self.driver.pause(token, socket),
        }
    }
}
