//! The socket of a connection to a primary, with or without TLS.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use bobbin_io::error_text;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::config::Config;
use crate::engine::server::Server;
use crate::system::tls;

/// A connected socket.
pub(super) enum LinkWire {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// The longest wait of a read, after which the thread looks at the clock.
pub(super) const READ_WAIT: Duration = Duration::from_millis(100);

impl LinkWire {
    pub fn connect(server: &Server, host: &str, port: u16) -> io::Result<Self> {
        let timeout = Duration::from_secs(server.config.repl_timeout().max(1) as u64);
        let mut last = io::Error::other("the name has no address");
        for address in (host, port).to_socket_addrs()? {
            match connect(&server.config, &address, timeout) {
                Ok(socket) if server.config.tls_replication() => {
                    let name = ServerName::try_from(host.to_owned());
                    let name = name.unwrap_or_else(|_| ServerName::from(address.ip()));
                    return begin_tls(server, socket, name, timeout);
                }
                Ok(socket) => return Ok(Self::Plain(socket)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }

    /// Whether decrypted bytes can be read without the socket.
    fn has_decrypted(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => !stream.conn.wants_read(),
        }
    }

    /// Another handle of the socket, with which another thread may close the connection.
    pub fn handle(&self) -> io::Result<TcpStream> {
        self.socket().try_clone()
    }
}

/// Connects from the address in `bind-source-addr`. Uses MultiPath TCP if the configuration and the
/// system have it.
fn connect(config: &Config, address: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol = config.repl_mptcp().then_some(ipproto::MPTCP);
    let socket = net::socket_with(family, SocketType::STREAM, flags, protocol)?;
    let source = config.bind_source_addr();
    if !source.is_empty() {
        let source = String::from_utf8_lossy(&source).parse::<IpAddr>();
        let source = source.map_err(|_| io::Error::other("bind-source-addr is no address"))?;
        net::bind(&socket, &SocketAddr::new(source, 0))?;
    }
    match net::connect(&socket, address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
            let mut waiting = [PollFd::new(&socket, PollFlags::OUT)];
            if poll(&mut waiting, Some(&timeout))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            sockopt::socket_error(&socket)??;
        }
        Err(error) => return Err(error.into()),
    }
    let socket = TcpStream::from(socket);
    socket.set_nonblocking(false)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(READ_WAIT))?;
    socket.set_write_timeout(Some(timeout))?;
    Ok(socket)
}

/// Performs TLS's own handshake.
fn begin_tls(
    server: &Server,
    mut socket: TcpStream,
    name: ServerName<'static>,
    timeout: Duration,
) -> io::Result<LinkWire> {
    let config = tls::outgoing(&server.config).map_err(io::Error::other)?;
    let mut connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let begun = Instant::now();
    while connection.is_handshaking() {
        match connection.complete_io(&mut socket) {
            Ok(_) => {}
            Err(error) if is_pause(&error) && begun.elapsed() < timeout => {}
            Err(error) => return Err(io::Error::other(format!("TLS: {}", error_text(&error)))),
        }
    }
    Ok(LinkWire::Tls(Box::new(StreamOwned::new(connection, socket))))
}

/// Waits until something has come on one of these connections, or for this long. Returns on which.
pub(super) fn wait(wires: [Option<&LinkWire>; 2], wait: Duration) -> io::Result<[bool; 2]> {
    let mut ready = wires.map(|wire| wire.is_some_and(LinkWire::has_decrypted));
    let wait = if ready.contains(&true) { Duration::ZERO } else { wait };
    let wait = Timespec::try_from(wait).map_err(io::Error::other)?;
    let mut polled = Vec::with_capacity(wires.len());
    for wire in wires.into_iter().flatten() {
        polled.push(PollFd::new(wire.socket(), PollFlags::IN));
    }
    match poll(&mut polled, Some(&wait)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut polled = polled.iter();
    for (wire, ready) in wires.iter().zip(&mut ready) {
        if wire.is_some() {
            *ready |= polled.next().is_some_and(|polled| !polled.revents().is_empty());
        }
    }
    Ok(ready)
}

/// Whether nothing was read, but the connection is still open.
pub(super) fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

impl Read for LinkWire {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for LinkWire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}
