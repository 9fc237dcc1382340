//! Where a server is, and sockets to it that never block.

use std::{
    fmt, io,
    net::{SocketAddr, ToSocketAddrs},
    os::fd::OwnedFd,
    path::PathBuf,
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, ipproto, socket_with,
        sockopt,
    },
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Tcp { address: SocketAddr, multipath: bool },
    Unix(PathBuf),
}

impl Endpoint {
    /// Looks up the host's address; the first one that there is.
    pub fn tcp(host: &str, port: u16) -> io::Result<Self> {
        let address = (host, port).to_socket_addrs()?.next();
        let address = address.ok_or_else(|| io::Error::other("the host has no address"))?;
        Ok(Self::Tcp { address, multipath: false })
    }

    /// A socket whose connection stands or is on its way.
    pub(super) fn open(&self) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (socket, connected) = match self {
            Self::Tcp { address, multipath } => {
                let family =
                    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                let protocol = multipath.then_some(ipproto::MPTCP);
                let socket = socket_with(family, SocketType::STREAM, flags, protocol)?;
                sockopt::set_tcp_nodelay(&socket, true)?;
                let connected = connect(&socket, address);
                (socket, connected)
            }
            Self::Unix(path) => {
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
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { address, .. } => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}
