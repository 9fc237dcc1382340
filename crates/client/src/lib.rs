//! A small blocking client: one connection, requests out, replies in. The tools and the tests use
//! it; it does what it is told, without retries, pools or background threads.

#![forbid(unsafe_code)]

mod stream;
mod target;
mod tls;

use std::{
    collections::VecDeque,
    error, fmt, io,
    net::ToSocketAddrs,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

pub use bobbin_resp::Value;
use bobbin_resp::{Protocol, ReplyError, ReplyScanner, read_reply};

pub use bobbin_resp::{SLOTS, key_slot};
pub use bobbin_text::{error_text, nearest, wrapped};
use stream::ClientStream;
pub use stream::{AddressFamily, RawWriter, Transport};
pub use target::{ServerAddress, Target, UrlError};
pub use tls::{ClientTlsSession, TlsConnector, TlsOptions};

/// A connection to a server.
#[derive(Debug)]
pub struct RespClient {
    stream: ClientStream,
    /// Requests that have not been written.
    output: Vec<u8>,
    /// Bytes received; those before `position` have been handed out.
    input: Vec<u8>,
    position: usize,
    scanner: ReplyScanner,
    pushes: VecDeque<Value>,
    /// The longest reply that is read.
    reply_len_max: usize,
}

impl RespClient {
    /// Connects to `host:port`, or to a Unix socket when the address has a slash in it.
    pub fn connect(address: &str) -> io::Result<Self> {
        Self::connect_by(address, &Transport::default())
    }

    /// Connects as `connect` does, but gives up on each address of the host after `timeout`.
    pub fn connect_timeout(address: &str, timeout: Duration) -> io::Result<Self> {
        Self::connect_by(address, &Transport { timeout: Some(timeout), ..Transport::default() })
    }

    /// Connects to an address in its parts.
    pub fn connect_to(address: &ServerAddress, transport: &Transport) -> io::Result<Self> {
        Ok(Self::over(ClientStream::connect(address, transport)?))
    }

    fn connect_by(address: &str, transport: &Transport) -> io::Result<Self> {
        if address.contains('/') {
            return Self::connect_to(&ServerAddress::Unix(address.into()), transport);
        }
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        Ok(Self::over(ClientStream::connect_first(host, address.to_socket_addrs()?, transport)?))
    }

    /// Sends one command and returns its reply. An error reply is a value, not an `Err`.
    pub fn command(&mut self, arguments: &[impl AsRef<[u8]>]) -> Result<Value, ClientError> {
        self.send(arguments);
        self.receive()
    }

    /// Sends a command as people type it, words between blanks: `client.line("SET key value")`.
    pub fn line(&mut self, line: &str) -> Result<Value, ClientError> {
        let words = bobbin_resp::split_arguments(line.as_bytes());
        self.command(&words.ok_or(ClientError::UnbalancedQuotes)?)
    }

    /// Queues a command. It is written by [`Self::flush`], or by the next [`Self::receive`].
    pub fn send(&mut self, arguments: &[impl AsRef<[u8]>]) {
        encode_command(arguments, &mut self.output);
    }

    /// Queues bytes as they are, well-formed or not.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    /// Writes what has been queued.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        // What was written in part must not be written again, and a failed connection is of no use.
        let output = std::mem::take(&mut self.output);
        self.stream.write_all(&output)?;
        self.output = output;
        self.output.clear();
        Ok(())
    }

    /// The next reply, after writing what has been queued. Pushes that come before it are kept
    /// for [`Self::push`].
    pub fn receive(&mut self) -> Result<Value, ClientError> {
        loop {
            match self.receive_any()? {
                push @ Value::Push(_) => {
                    if self.pushes.len() >= PUSHES_MAX {
                        return Err(ClientError::TooManyPushes);
                    }
                    self.pushes.push_back(push);
                }
                reply => return Ok(reply),
            }
        }
    }

    /// The next value of either kind, in the order in which they came: what subscribers want.
    pub fn receive_any(&mut self) -> Result<Value, ClientError> {
        if !self.output.is_empty() {
            self.flush()?;
        }
        loop {
            if let Some(value) = self.buffered()? {
                return Ok(value);
            }
            self.fill()?;
        }
    }

    /// The next value of either kind if it has been received whole. It does not read.
    pub fn receive_buffered(&mut self) -> Result<Option<Value>, ClientError> {
        self.buffered()
    }

    /// Some bytes that follow what was handed out, replies or not: what has been received, else
    /// what one read gives, at most `len_max`. Nothing means that the server closed the connection.
    pub fn receive_bytes(&mut self, len_max: usize) -> Result<Vec<u8>, ClientError> {
        if !self.output.is_empty() {
            self.flush()?;
        }
        if self.position == self.input.len() {
            match self.fill() {
                Err(ClientError::Closed) => return Ok(Vec::new()),
                filled => filled?,
            }
        }
        let len = len_max.min(self.input.len() - self.position);
        let bytes = self.input[self.position..self.position + len].to_vec();
        self.consume(len);
        Ok(bytes)
    }

    /// A second handle that writes to the connection as it is, for another thread.
    pub fn raw_writer(&self) -> io::Result<RawWriter> {
        self.stream.raw_writer()
    }

    /// The bytes of the next reply, as they came.
    pub fn receive_raw(&mut self) -> Result<Vec<u8>, ClientError> {
        if !self.output.is_empty() {
            self.flush()?;
        }
        loop {
            if let Some(len) = self.buffered_len()? {
                let reply = self.input[self.position..self.position + len].to_vec();
                self.consume(len);
                return Ok(reply);
            }
            self.fill()?;
        }
    }

    /// The oldest push that came among the replies received so far. It does not wait.
    pub fn push(&mut self) -> Option<Value> {
        self.pushes.pop_front()
    }

    /// Switches the protocol version with HELLO, and returns its reply.
    pub fn hello(&mut self, protocol: Protocol) -> Result<Value, ClientError> {
        self.command(&["HELLO", &protocol.number().to_string()])
    }

    /// How long a read may wait; `None` is for ever. A receive that waited longer fails with an
    /// I/O error for which [`ClientError::is_timeout`] holds, and may be tried again.
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(timeout)
    }

    /// How long a write may wait; `None` is for ever.
    pub fn set_write_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.stream.set_write_timeout(timeout)
    }

    /// Reads no reply of more than `len_max` bytes: a receive of one fails. A piece more may have
    /// been read by then. Without a call [`REPLY_LEN_MAX`] is the limit.
    pub fn limit_replies(&mut self, len_max: usize) {
        self.reply_len_max = len_max.min(REPLY_LEN_MAX);
    }

    /// Tells the server that nothing more will be sent. Replies can still be received.
    pub fn shutdown_write(&mut self) -> io::Result<()> {
        self.stream.shutdown_write()
    }

    /// Reads until the server closes the connection and returns all that came, values or not.
    pub fn receive_to_end(&mut self) -> Result<Vec<u8>, ClientError> {
        if !self.output.is_empty() {
            self.flush()?;
        }
        let mut bytes = self.input.split_off(self.position);
        self.input.clear();
        self.position = 0;
        self.scanner = ReplyScanner::default();
        loop {
            match self.stream.append(&mut bytes, READ_LEN_MIN) {
                Ok(0) => return Ok(bytes),
                Ok(_) => {}
                // A server that closes with unread input resets the connection.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(bytes),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn over(stream: ClientStream) -> Self {
        Self {
            stream,
            output: Vec::new(),
            input: Vec::new(),
            position: 0,
            scanner: ReplyScanner::default(),
            pushes: VecDeque::new(),
            reply_len_max: REPLY_LEN_MAX,
        }
    }

    fn buffered(&mut self) -> Result<Option<Value>, ClientError> {
        let Some(len) = self.buffered_len()? else { return Ok(None) };
        let value = read_reply(&self.input[self.position..self.position + len])?;
        self.consume(len);
        Ok(value.map(|(value, _)| value))
    }

    fn buffered_len(&mut self) -> Result<Option<usize>, ClientError> {
        let end = self.scanner.scan(&self.input[self.position..])?;
        if end.is_none() && self.scanner.len_min() > self.reply_len_max {
            return Err(ClientError::ReplyTooLong);
        }
        Ok(end)
    }

    fn consume(&mut self, len: usize) {
        self.position += len;
        self.scanner = ReplyScanner::default();
        if self.position == self.input.len() {
            self.input.clear();
            self.input.shrink_to(INPUT_KEPT_LEN_MAX);
            self.position = 0;
        }
    }

    /// Reads until there is more than before.
    fn fill(&mut self) -> Result<(), ClientError> {
        if self.position > 0 {
            self.input.drain(..self.position);
            self.position = 0;
        }
        if self.input.len() > self.reply_len_max {
            return Err(ClientError::ReplyTooLong);
        }
        // A long reply is read in ever larger pieces.
        let start = self.input.len();
        while self.input.len() == start {
            let len_max = start.clamp(READ_LEN_MIN, READ_LEN_MAX);
            if self.stream.append(&mut self.input, len_max)? == 0 {
                return Err(ClientError::Closed);
            }
        }
        Ok(())
    }
}

impl AsFd for RespClient {
    /// For waiting until there is something to read. What has been received already is not seen
    /// there.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Appends a command as RESP.
pub fn encode_command(arguments: &[impl AsRef<[u8]>], output: &mut Vec<u8>) {
    let mut request = bobbin_resp::Reply::new(output, Protocol::Resp2);
    request.array(arguments.len());
    for argument in arguments {
        request.bulk(argument.as_ref());
    }
}

/// Why there is no reply.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    Io(io::Error),
    /// The server closed the connection.
    Closed,
    /// What came is no reply.
    Protocol(ReplyError),
    /// A reply longer than [`RespClient::limit_replies`] or [`REPLY_LEN_MAX`] allows.
    ReplyTooLong,
    /// More than [`PUSHES_MAX`] pushes that were not taken.
    TooManyPushes,
    /// A line given to [`RespClient::line`] has a quote without its pair.
    UnbalancedQuotes,
}

impl ClientError {
    /// Whether only the time set by [`RespClient::set_read_timeout`] ran out.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Io(error)
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
    }

    /// Whether the other side has gone, in order or not.
    pub fn is_closed(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
        match self {
            Self::Closed => true,
            Self::Io(error) => {
                matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset)
            }
            _ => false,
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Closed => f.write_str("the server closed the connection"),
            Self::Protocol(error) => error.fmt(f),
            Self::ReplyTooLong => f.write_str("a reply that is too long"),
            Self::TooManyPushes => write!(f, "more than {PUSHES_MAX} unread pushes"),
            Self::UnbalancedQuotes => f.write_str("unbalanced quotes"),
        }
    }
}

impl error::Error for ClientError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Protocol(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ReplyError> for ClientError {
    fn from(error: ReplyError) -> Self {
        Self::Protocol(error)
    }
}

/// The longest reply that is read.
pub const REPLY_LEN_MAX: usize = 8 << 30;
/// Pushes kept for the caller to take.
pub const PUSHES_MAX: usize = 1 << 20;

const READ_LEN_MIN: usize = 16 * 1024;
const READ_LEN_MAX: usize = 16 << 20;
/// A longer buffer is given back when it is empty.
const INPUT_KEPT_LEN_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        net::TcpListener,
        os::unix::net::{UnixListener, UnixStream},
        thread,
    };

    /// A server that sends `script`, each piece after a moment, and returns what it read.
    fn serve(script: &'static [&'static [u8]]) -> (String, thread::JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for piece in script {
                stream.write_all(piece).unwrap();
                thread::sleep(Duration::from_millis(5));
            }
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut request = Vec::new();
            stream.read_to_end(&mut request).unwrap();
            request
        });
        (address, server)
    }

    #[test]
    fn raw_bytes_between_replies() {
        let (address, server) = serve(&[b"+OK\r\n$EOF", b":abc", b"+END\r\n"]);
        let mut client = RespClient::connect(&address).unwrap();
        client.send(&["SYNC"]);
        assert_eq!(client.receive().unwrap(), Value::Simple(b"OK".to_vec()));
        let mut bytes = Vec::new();
        while bytes.len() < b"$EOF:abc".len() {
            bytes.extend(client.receive_bytes(b"$EOF:abc".len() - bytes.len()).unwrap());
        }
        assert_eq!(bytes, b"$EOF:abc");
        let mut writer = client.raw_writer().unwrap();
        writer.write_all(b"raw").unwrap();
        let end = match client.receive_buffered().unwrap() {
            Some(end) => end,
            None => client.receive().unwrap(),
        };
        assert_eq!(end, Value::Simple(b"END".to_vec()));
        assert_eq!(client.receive_buffered().unwrap(), None);
        assert_eq!(client.receive_bytes(1).unwrap(), b"");
        drop((client, writer));
        assert_eq!(server.join().unwrap(), b"*1\r\n$4\r\nSYNC\r\nraw");
    }

    #[test]
    fn pipelines_and_pushes() {
        let (address, server) = serve(&[
            b"+O",
            b"K\r",
            b"\n>1\r\n:7\r\n$3\r\na\r",
            b"\n\r\n*2\r\n:1\r\n$-1\r\n:5\r\n>0\r\n",
        ]);
        let mut client = RespClient::connect(&address).unwrap();
        client.send(&["SET", "key", "value"]);
        client.send(&[&b"GET"[..], b"\xff\r\n"]);
        assert_eq!(client.receive().unwrap(), Value::Simple(b"OK".to_vec()));
        assert_eq!(client.push(), None);
        assert_eq!(client.receive().unwrap(), Value::Bulk(b"a\r\n".to_vec()));
        assert_eq!(client.push(), Some(Value::Push(vec![Value::Integer(7)])));
        assert_eq!(client.receive_raw().unwrap(), b"*2\r\n:1\r\n$-1\r\n");
        assert_eq!(client.line("ECHO 'a b'").unwrap(), Value::Integer(5));
        assert_eq!(client.receive_any().unwrap(), Value::Push(vec![]));
        assert!(client.receive().unwrap_err().is_closed());
        drop(client);
        let request = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n*2\r\n$3\r\nGET\r\n$3\r\n\xff\r\n\r\n*2\r\n$4\r\nECHO\r\n$3\r\na b\r\n";
        assert_eq!(server.join().unwrap(), request);
    }

    #[test]
    fn errors_are_told_apart() {
        let (address, server) = serve(&[b"-ERR no\r\n", b"?"]);
        let mut client = RespClient::connect(&address).unwrap();
        assert_eq!(client.receive().unwrap().as_error(), Some(&b"ERR no"[..]));
        let error = client.receive().unwrap_err();
        assert!(matches!(error, ClientError::Protocol(ReplyError::UnknownType(b'?'))), "{error}");
        assert!(matches!(client.line("'").unwrap_err(), ClientError::UnbalancedQuotes));
        assert_eq!(client.receive_to_end().unwrap(), b"?");
        drop(client);
        server.join().unwrap();
        assert!(RespClient::connect("/nonexistent/socket").is_err());
        assert!(RespClient::connect("no port").is_err());
    }

    #[test]
    fn a_reply_over_the_limit_is_not_read() {
        let (address, server) = serve(&[b"$4\r\nfour\r\n", b"$99\r\n", b"more than", b" eight"]);
        let mut client = RespClient::connect(&address).unwrap();
        client.limit_replies(14);
        assert_eq!(client.receive().unwrap(), Value::Bulk(b"four".to_vec()));
        assert!(matches!(client.receive().unwrap_err(), ClientError::ReplyTooLong));
        drop(client);
        server.join().unwrap();
    }

    #[test]
    fn a_count_over_the_limit_is_refused_at_once() {
        let (address, server) = serve(&[b"*6\r\n"]);
        let mut client = RespClient::connect(&address).unwrap();
        client.limit_replies(20);
        assert!(matches!(client.receive().unwrap_err(), ClientError::ReplyTooLong));
        drop(client);
        server.join().unwrap();
    }

    #[test]
    fn a_receive_that_timed_out_can_be_tried_again() {
        let directory = std::env::temp_dir();
        let path = directory.join(format!("bobbin-client-test-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let mut client = RespClient::connect(path.to_str().unwrap()).unwrap();
        let (mut server, _): (UnixStream, _) = listener.accept().unwrap();
        std::fs::remove_file(&path).unwrap();
        client.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        server.write_all(b"$5\r\nhe").unwrap();
        assert!(client.receive().unwrap_err().is_timeout());
        server.write_all(b"llo\r\n").unwrap();
        assert_eq!(client.receive().unwrap(), Value::Bulk(b"hello".to_vec()));
    }
}
