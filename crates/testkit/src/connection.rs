//! A blocking connection that shows whole frames, silence and the close of the other side.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::ReplyFrame;
use crate::reply::FrameScan;

/// A TCP connection to a server.
pub struct TestConnection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// How much of the buffer was looked at.
    scan: FrameScan,
}

/// What came within the time given.
#[derive(Debug, PartialEq, Eq)]
pub enum ReceiveOutcome {
    Reply(ReplyFrame),
    Nothing,
    Closed,
}

impl TestConnection {
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, REPLY_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Self { stream, buffer: Vec::new(), scan: FrameScan::new() })
    }

    /// Sends a command and returns its reply.
    pub fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<ReplyFrame> {
        self.send(arguments)?;
        self.receive()
    }

    /// [`Self::call`] of words split at spaces; panics when the connection breaks.
    pub fn say(&mut self, command: &str) -> ReplyFrame {
        let words: Vec<_> = command.split(' ').collect();
        self.call(&words).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    pub fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<()> {
        let mut bytes = Vec::new();
        encode_command(arguments, &mut bytes);
        self.send_raw(&bytes)
    }

    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next frame; an error when none comes in time or the server closes.
    pub fn receive(&mut self) -> io::Result<ReplyFrame> {
        match self.receive_within(REPLY_TIMEOUT)? {
            ReceiveOutcome::Reply(reply) => Ok(reply),
            ReceiveOutcome::Nothing => Err(io::Error::new(io::ErrorKind::TimedOut, "no reply")),
            ReceiveOutcome::Closed => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    pub fn receive_within(&mut self, limit: Duration) -> io::Result<ReceiveOutcome> {
        let deadline = Instant::now() + limit;
        loop {
            let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
            if self.scan.is_whole(&self.buffer).map_err(invalid)?
                && let Some((reply, length)) = ReplyFrame::parse(&self.buffer).map_err(invalid)?
            {
                self.buffer.drain(..length);
                self.scan = FrameScan::new();
                return Ok(ReceiveOutcome::Reply(reply));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(ReceiveOutcome::Nothing);
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(ReceiveOutcome::Closed),
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock
                    | io::ErrorKind::TimedOut
                    | io::ErrorKind::Interrupted => {}
                    // A server that closes with unread input resets the connection.
                    io::ErrorKind::ConnectionReset => return Ok(ReceiveOutcome::Closed),
                    _ => return Err(error),
                },
            }
        }
    }

    /// Says that nothing more will be sent; replies can still be read.
    pub fn finish_sending(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// The socket, for tests that misuse it.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }
}

/// Appends a command as an array of bulk strings.
pub fn encode_command<A: AsRef<[u8]>>(arguments: &[A], output: &mut Vec<u8>) {
    output.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
    for argument in arguments {
        let argument = argument.as_ref();
        output.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        output.extend_from_slice(argument);
        output.extend_from_slice(b"\r\n");
    }
}

/// Far above what any reply takes, so that only a hang reaches it.
const REPLY_TIMEOUT: Duration = Duration::from_secs(120);
