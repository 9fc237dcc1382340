//! The address of a peer or of our own end, as logs and CLIENT LIST show it.

use rustix::net::SocketAddrAny;
use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

/// Displayed as `127.0.0.1:1234`, `[::1]:1234` or `/path/of/socket:0`. As in Redis, both ends of a
/// Unix connection have the path of the server's socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(Arc<Path>),
}

impl Address {
    /// Whether protected mode counts the address as this machine's: 127.0.0.0/8, ::1 or a Unix
    /// socket.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// The address without the port (CLIENT KILL, MAXCLIENTS by address): `127.0.0.1`, `::1`,
    /// `/path`.
    pub fn host(&self) -> String {
        match self {
            Self::Tcp(address) => address.ip().to_string(),
            Self::Unix(path) => path.display().to_string(),
        }
    }

    /// The port; 0 for a Unix socket.
    pub fn port(&self) -> u16 {
        match self {
            Self::Tcp(address) => address.port(),
            Self::Unix(_) => 0,
        }
    }

    /// The address of our end of a TCP socket.
    pub(super) fn of_socket(socket: BorrowedFd<'_>) -> Option<Self> {
        rustix::net::getsockname(socket).ok().and_then(Self::of_tcp)
    }

    pub(super) fn of_tcp(any: SocketAddrAny) -> Option<Self> {
        SocketAddr::try_from(any).ok().map(Self::Tcp)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => match address.ip() {
                // Without the scope, which the standard library would add.
                IpAddr::V6(ip) => write!(out, "[{ip}]:{}", address.port()),
                IpAddr::V4(ip) => write!(out, "{ip}:{}", address.port()),
            },
            Self::Unix(path) => write!(out, "{}:0", path.display()),
        }
    }
}

/// A host as it stands before a colon and a port: an address of IPv6 in brackets.
pub fn bracketed(host: &str) -> Cow<'_, str> {
    if host.contains(':') { format!("[{host}]").into() } else { host.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colons_of_a_host_are_none_of_a_port() {
        for (host, shown) in [("::1", "[::1]"), ("127.0.0.1", "127.0.0.1"), ("db", "db")] {
            assert_eq!(bracketed(host), shown);
        }
    }

    #[test]
    fn formats_as_redis_does() {
        let tcp = |text: &str| Address::Tcp(text.parse().unwrap());
        assert_eq!(tcp("127.0.0.1:1234").to_string(), "127.0.0.1:1234");
        assert_eq!(tcp("[::1]:1234").to_string(), "[::1]:1234");
        assert_eq!(tcp("[fe80::1%3]:9").to_string(), "[fe80::1]:9");
        let unix = Address::Unix(Path::new("/tmp/a.sock").into());
        assert_eq!(unix.to_string(), "/tmp/a.sock:0");
        assert_eq!((unix.host(), unix.port()), ("/tmp/a.sock".to_owned(), 0));
        assert_eq!((tcp("[::1]:1234").host(), tcp("[::1]:1234").port()), ("::1".to_owned(), 1234));
        assert!(unix.is_local() && tcp("[::1]:1").is_local() && tcp("127.9.0.1:1").is_local());
        assert!(!tcp("10.0.0.1:1").is_local());
    }
}
