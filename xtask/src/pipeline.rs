//! Many commands on one connection, to fill a server.

use bobbin_testkit::TestConnection;
use bobbin_testkit::connection::encode_command;

use crate::shell::TaskResult;

/// Commands that are sent together.
pub(crate) struct Pipeline<'a> {
    control: &'a mut TestConnection,
    bytes: Vec<u8>,
    sent: usize,
}

impl<'a> Pipeline<'a> {
    pub const fn new(control: &'a mut TestConnection) -> Self {
        Self { control, bytes: Vec::new(), sent: 0 }
    }

    /// Sends a command, now or together with later ones. An error as a reply is one.
    pub fn send<A: AsRef<[u8]>>(&mut self, command: &[A]) -> TaskResult {
        encode_command(command, &mut self.bytes);
        self.sent += 1;
        if self.sent < PIPELINED { Ok(()) } else { self.finish() }
    }

    /// Sends what is left, and receives all answers.
    pub fn finish(&mut self) -> TaskResult {
        let text = |error: std::io::Error| format!("filling the server: {error}");
        self.control.send_raw(&self.bytes).map_err(text)?;
        self.bytes.clear();
        for _ in 0..std::mem::take(&mut self.sent) {
            let reply = self.control.receive().map_err(text)?;
            if reply.is_error() {
                return Err(format!("filling the server: {}", reply.text()));
            }
        }
        Ok(())
    }
}

const PIPELINED: usize = 100;
