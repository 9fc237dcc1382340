//! The connection's bytes, over TCP or a Unix socket, with or without TLS.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::net::{SocketFlags, SocketType, ipproto, socket_with, sockopt};

use crate::{ClientTlsSession, ServerAddress, TlsConnector};

/// How to get to a server, beside its address.
#[derive(Clone, Debug, Default)]
pub struct Transport {
    /// For each address that the host has, and for the handshake of TLS.
    pub timeout: Option<Duration>,
    pub family: AddressFamily,
    /// Multipath TCP, which falls back to TCP where the server does not have it.
    pub multipath: bool,
    pub tls: Option<TlsConnector>,
}

/// Which of a host's addresses to try first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressFamily {
    /// As the resolver gives them.
    #[default]
    Any,
    Ipv4,
    Ipv6,
}

impl AddressFamily {
    /// The host's addresses, those of the family first.
    pub fn resolve(self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let mut addresses: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
        match self {
            Self::Any => {}
            Self::Ipv4 => addresses.sort_by_key(SocketAddr::is_ipv6),
            Self::Ipv6 => addresses.sort_by_key(SocketAddr::is_ipv4),
        }
        Ok(addresses)
    }
}

#[derive(Debug)]
pub(crate) struct ClientStream {
    socket: Socket,
    tls: Option<Arc<Tls>>,
    /// What one read gave, before TLS takes it all: kept only for its memory.
    network: Vec<u8>,
}

impl ClientStream {
    pub(crate) fn connect(address: &ServerAddress, transport: &Transport) -> io::Result<Self> {
        match address {
            ServerAddress::Tcp { host, port } => {
                let addresses = transport.family.resolve(host, *port)?;
                Self::connect_first(host, addresses, transport)
            }
            ServerAddress::Unix(path) => {
                let socket = Socket::Unix(UnixStream::connect(path)?);
                Self::over(socket, "", None, transport)
            }
        }
    }

    /// Connects to the first of a host's addresses that answers.
    pub(crate) fn connect_first(
        host: &str,
        addresses: impl IntoIterator<Item = SocketAddr>,
        transport: &Transport,
    ) -> io::Result<Self> {
        let mut last_error = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            let connected = match (transport.multipath, transport.timeout) {
                (true, timeout) => connect_multipath(address, timeout),
                (false, None) => TcpStream::connect(address),
                (false, Some(timeout)) => TcpStream::connect_timeout(&address, timeout),
            };
            match connected {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Self::over(Socket::Tcp(stream), host, Some(address.ip()), transport);
                }
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    fn over(
        socket: Socket,
        host: &str,
        address: Option<IpAddr>,
        transport: &Transport,
    ) -> io::Result<Self> {
        let mut stream = Self { socket, tls: None, network: Vec::new() };
        if let Some(connector) = &transport.tls {
            let session = connector.session(host, address).map_err(io::Error::other)?;
            stream.socket.set_read_timeout(transport.timeout.or(Some(HANDSHAKE_TIME_MAX)))?;
            stream.tls = Some(Arc::new(Tls { session: session.into(), sending: Mutex::new(()) }));
            stream.shake_hands()?;
            stream.socket.set_read_timeout(None)?;
        }
        Ok(stream)
    }

    fn shake_hands(&mut self) -> io::Result<()> {
        let Some(tls) = self.tls.clone() else { return Ok(()) };
        loop {
            tls.write(&self.socket, &[])?;
            if !lock(&tls.session).is_handshaking() {
                return Ok(());
            }
            // Whatever else comes this early is for the first reader, and there is nothing: it is
            // the client that speaks first.
            match self.append(&mut Vec::new(), NETWORK_LEN) {
                Ok(0) if lock(&tls.session).is_handshaking() => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Ok(_) => {}
                Err(error) => {
                    // The server is told why; whether it hears that changes nothing.
                    let _ = tls.write(&self.socket, &[]);
                    return Err(match error.kind() {
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                            io::Error::new(io::ErrorKind::TimedOut, NO_ANSWER_TO_TLS)
                        }
                        _ => error,
                    });
                }
            }
        }
    }

    /// Reads once, at most about `len_max` bytes, and appends what came to `input`. Returns how
    /// many bytes were received, which with TLS may not yet be any of the protocol; 0 is the end.
    pub(crate) fn append(&mut self, input: &mut Vec<u8>, len_max: usize) -> io::Result<usize> {
        let Some(tls) = &self.tls else {
            return read_into(&mut self.socket, input, len_max);
        };
        self.network.clear();
        let received = read_into(&mut self.socket, &mut self.network, NETWORK_LEN)?;
        if received == 0 {
            return Ok(0);
        }
        let start = input.len();
        let is_over = lock(&tls.session).receive(&self.network, input)?;
        Ok(if is_over && input.len() == start { 0 } else { received })
    }

    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        write_all(&self.socket, self.tls.as_deref(), bytes)
    }

    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(timeout)
    }

    pub(crate) fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match &self.socket {
            Socket::Tcp(stream) => stream.set_write_timeout(timeout),
            Socket::Unix(stream) => stream.set_write_timeout(timeout),
        }
    }

    pub(crate) fn raw_writer(&self) -> io::Result<RawWriter> {
        let socket = match &self.socket {
            Socket::Tcp(stream) => Socket::Tcp(stream.try_clone()?),
            Socket::Unix(stream) => Socket::Unix(stream.try_clone()?),
        };
        Ok(RawWriter { socket, tls: self.tls.clone() })
    }

    pub(crate) fn shutdown_write(&mut self) -> io::Result<()> {
        if let Some(tls) = &self.tls {
            tls.close(&self.socket)?;
        }
        match &self.socket {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }
}

impl AsFd for ClientStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        }
    }
}

/// Writes bytes to a connection that another thread reads.
#[derive(Debug)]
pub struct RawWriter {
    socket: Socket,
    tls: Option<Arc<Tls>>,
}

impl Write for RawWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write_all(&self.socket, self.tls.as_deref(), bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
            Self::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }
}

/// TLS that one thread reads from and another may write to.
#[derive(Debug)]
struct Tls {
    session: Mutex<ClientTlsSession>,
    /// Held while bytes of the session go out, so that they do so in its order. No thread reads
    /// with it held: the one that writes may wait for the server, which may wait for us to read.
    sending: Mutex<()>,
}

impl Tls {
    fn write(&self, socket: &Socket, bytes: &[u8]) -> io::Result<()> {
        self.send(socket, |session, network| session.send(bytes, network))
    }

    fn close(&self, socket: &Socket) -> io::Result<()> {
        self.send(socket, ClientTlsSession::close)
    }

    fn send(
        &self,
        socket: &Socket,
        produce: impl FnOnce(&mut ClientTlsSession, &mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<()> {
        let _sending = lock(&self.sending);
        let mut network = Vec::new();
        produce(&mut lock(&self.session), &mut network)?;
        write_all(socket, None, &network)
    }
}

fn write_all(socket: &Socket, tls: Option<&Tls>, bytes: &[u8]) -> io::Result<()> {
    match (tls, socket) {
        (Some(tls), socket) => tls.write(socket, bytes),
        (None, Socket::Tcp(stream)) => (&mut &*stream).write_all(bytes),
        (None, Socket::Unix(stream)) => (&mut &*stream).write_all(bytes),
    }
}

/// Reads once and appends.
fn read_into(socket: &mut Socket, input: &mut Vec<u8>, len_max: usize) -> io::Result<usize> {
    let start = input.len();
    input.resize(start + len_max, 0);
    let read = loop {
        let read = match socket {
            Socket::Tcp(stream) => stream.read(&mut input[start..]),
            Socket::Unix(stream) => stream.read(&mut input[start..]),
        };
        match read {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read,
        }
    };
    input.truncate(start + *read.as_ref().unwrap_or(&0));
    read
}

fn connect_multipath(address: SocketAddr, timeout: Option<Duration>) -> io::Result<TcpStream> {
    let family = match address {
        SocketAddr::V4(_) => rustix::net::AddressFamily::INET,
        SocketAddr::V6(_) => rustix::net::AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::MPTCP))?;
    // What bounds writing bounds connecting too.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, timeout)?;
    rustix::net::connect(&socket, &address)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, None)?;
    Ok(socket.into())
}

/// A session that a panic left half done fails at its next use, for its bytes do not fit together.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const NO_ANSWER_TO_TLS: &str = "no answer to TLS: is it a port without TLS?";
/// A server that does not speak TLS may wait for ever for the end of what it takes for a line.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// A record of TLS is at most a little longer.
const NETWORK_LEN: usize = 16 * 1024;
