//! The socket of a connection to a primary.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::engine::server::Server;

/// A connected socket.
pub(super) struct Wire {
    socket: TcpStream,
}

/// How long a read waits at most: then the thread looks at the clock.
const READ_WAIT: Duration = Duration::from_millis(100);

impl Wire {
    pub fn connect(server: &Server, host: &str, port: u16) -> io::Result<Self> {
        let timeout = Duration::from_secs(server.config.repl_timeout().max(1) as u64);
        let mut last = io::Error::other("the name has no address");
        for address in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    socket.set_read_timeout(Some(READ_WAIT))?;
                    socket.set_write_timeout(Some(timeout))?;
                    return Ok(Self { socket });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Another handle of the socket, by which somebody else may end the connection.
    pub fn handle(&self) -> io::Result<TcpStream> {
        self.socket.try_clone()
    }
}

impl Read for Wire {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.socket.read(bytes)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}
