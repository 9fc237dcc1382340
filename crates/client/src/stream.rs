//! A byte stream to a server: TCP or a Unix socket.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    path::Path,
    time::Duration,
};

#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub(crate) fn connect(address: &str, timeout: Option<Duration>) -> io::Result<Self> {
        if address.contains('/') {
            return Self::connect_unix(Path::new(address));
        }
        Self::connect_first(address.to_socket_addrs()?, timeout)
    }

    pub(crate) fn connect_tcp(
        host: &str,
        port: u16,
        timeout: Option<Duration>,
        family: AddressFamily,
    ) -> io::Result<Self> {
        let mut addresses: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
        match family {
            AddressFamily::Any => {}
            AddressFamily::Ipv4 => addresses.sort_by_key(SocketAddr::is_ipv6),
            AddressFamily::Ipv6 => addresses.sort_by_key(SocketAddr::is_ipv4),
        }
        Self::connect_first(addresses, timeout)
    }

    fn connect_first(
        addresses: impl IntoIterator<Item = SocketAddr>,
        timeout: Option<Duration>,
    ) -> io::Result<Self> {
        let mut last_error = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            let connected = match timeout {
                None => TcpStream::connect(address),
                Some(timeout) => TcpStream::connect_timeout(&address, timeout),
            };
            match connected {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(Self::Tcp(stream));
                }
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    pub(crate) fn connect_unix(path: &Path) -> io::Result<Self> {
        UnixStream::connect(path).map(Self::Unix)
    }

    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
            Self::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    pub(crate) fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_write_timeout(timeout),
            Self::Unix(stream) => stream.set_write_timeout(timeout),
        }
    }

    pub(crate) fn raw_writer(&self) -> io::Result<RawWriter> {
        Ok(RawWriter(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
        }))
    }

    pub(crate) fn shutdown_write(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }
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

/// Writes bytes to a connection that somebody else reads.
#[derive(Debug)]
pub struct RawWriter(Stream);

impl Write for RawWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.flush(),
            Self::Unix(stream) => stream.flush(),
        }
    }
}
