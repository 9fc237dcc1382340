//! Where a server is, and sockets to it that never block.

use std::{fmt, io, net::SocketAddr, os::fd::OwnedFd, path::PathBuf};

use bobbin_client::{AddressFamily as Family, ClientTlsSession, ServerAddress, Transport};
use rustix::{
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, ipproto, socket_with,
        sockopt,
    },
};

#[derive(Clone, Debug)]
pub struct Endpoint {
    place: Place,
    host: String,
    transport: Transport,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Endpoint {
    /// Looks up the host's address; the first one that there is, of the family if one is wanted.
    pub fn new(address: &ServerAddress, transport: &Transport) -> io::Result<Self> {
        let (place, host) = match address {
            ServerAddress::Tcp { host, port } => {
                let first = transport.family.resolve(host, *port)?.into_iter().next();
                let first = first.filter(|address| match transport.family {
                    Family::Any => true,
                    Family::Ipv4 => address.is_ipv4(),
                    Family::Ipv6 => address.is_ipv6(),
                });
                let first =
                    first.ok_or_else(|| io::Error::other("the host has no such address"))?;
                (Place::Tcp(first), host.clone())
            }
            ServerAddress::Unix(path) => (Place::Unix(path.clone()), String::new()),
        };
        Ok(Self { place, host, transport: transport.clone() })
    }

    /// Plain TCP.
    pub fn tcp(host: &str, port: u16) -> io::Result<Self> {
        Self::new(&ServerAddress::Tcp { host: host.to_owned(), port }, &Transport::default())
    }

    pub(super) fn is_same_place(&self, other: &Self) -> bool {
        self.place == other.place
    }

    /// A socket whose connection stands or is on its way.
    pub(super) fn open(&self) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (socket, connected) = match &self.place {
            Place::Tcp(address) => {
                let family =
                    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                let protocol = self.transport.multipath.then_some(ipproto::MPTCP);
                let socket = socket_with(family, SocketType::STREAM, flags, protocol)?;
                sockopt::set_tcp_nodelay(&socket, true)?;
                let connected = connect(&socket, address);
                (socket, connected)
            }
            Place::Unix(path) => {
                let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
                let connected = connect(&socket, &SocketAddrUnix::new(path.as_path())?);
                (socket, connected)
            }
        };
        match connected {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
            Err(error) => Err(error),
        }
    }

    /// TLS for one such socket, where it is wanted.
    pub(super) fn tls_session(&self) -> Result<Option<ClientTlsSession>, String> {
        let Some(connector) = &self.transport.tls else { return Ok(None) };
        let address = match &self.place {
            Place::Tcp(address) => Some(address.ip()),
            Place::Unix(_) => None,
        };
        connector.session(&self.host, address).map(Some)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Tcp(address) => address.fmt(f),
            Place::Unix(path) => path.display().fmt(f),
        }
    }
}
