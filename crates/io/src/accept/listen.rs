//! Listening sockets: the options `bind`, `port`, `tcp-backlog`, `socket-mark-id`, `unixsocket`,
//! `unixsocketgroup` and `unixsocketperm`. The messages are those of valkey-server 9.1.

use crate::address::Address;
use bobbin_text::error_text;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, ipproto, listen, socket_with, sockopt,
};
use std::ffi::CString;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// A non-blocking socket that is bound and listens.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    address: Address,
    is_tls: bool,
}

/// The settings that all listening TCP sockets have in common.
#[derive(Clone, Copy, Debug)]
pub struct TcpOptions {
    pub backlog: u32,
    /// Whether clients that ask for MultiPath TCP get it.
    pub multipath: bool,
    /// The mark that packet filters and routes see (`SO_MARK`); 0 for none. A process without
    /// `CAP_NET_ADMIN` may not set it: then a warning is logged and the socket has no mark.
    pub mark: u32,
}

/// Why the server cannot listen, in the words of the log: `Failed listening on port 6379 (tcp),
/// aborting.`
#[derive(Debug)]
pub struct ListenError(String);

impl Listener {
    /// Binds all addresses of `bind` to `port`. With port 0 it binds none. The addresses are
    /// written as in redis.conf: names or numbers, `*` for all of IPv4, `::*` for all of IPv6. If
    /// an address begins with `-`, it is no error that this machine does not have it. It is never
    /// an error that the machine lacks a protocol. Addresses that could not be bound are logged.
    pub fn tcp(
        addresses: &[impl AsRef<str>],
        port: u16,
        options: TcpOptions,
    ) -> Result<Vec<Self>, ListenError> {
        if port == 0 {
            return Ok(Vec::new());
        }
        let mut listeners = Vec::new();
        for address in addresses {
            let address = address.as_ref();
            let (optional, address) = match address.strip_prefix('-') {
                Some(rest) => (true, rest),
                None => (false, address),
            };
            match Self::tcp_one(address, port, options) {
                Ok(listener) => listeners.push(listener),
                Err(Failure { text, errno }) => {
                    log::warn!(
                        "Warning: Could not create server TCP listening socket {address}:{port}: {text}"
                    );
                    let absent = optional && errno == Some(Errno::ADDRNOTAVAIL);
                    if !absent && !errno.is_some_and(lacks_protocol) {
                        let text = format!("Failed listening on port {port} (tcp), aborting.");
                        return Err(ListenError(text));
                    }
                }
            }
        }
        Ok(listeners)
    }

    /// Binds a Unix socket. It replaces a file of that name. `group` is the name of the file's
    /// group; if it is empty, the file gets the process's group. `permission` is the file's mode;
    /// with 0 the umask decides.
    pub fn unix(
        path: &Path,
        group: &[u8],
        permission: u32,
        backlog: u32,
    ) -> Result<Self, ListenError> {
        Self::unix_one(path, group, permission, backlog)
            .map_err(|failure| ListenError(format!("Failed opening Unix socket: {}", failure.text)))
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Makes this socket one whose connections begin with TLS.
    pub fn with_tls(self) -> Self {
        Self { is_tls: true, ..self }
    }

    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    pub fn is_tcp(&self) -> bool {
        matches!(self.address, Address::Tcp(_))
    }

    fn tcp_one(host: &str, port: u16, options: TcpOptions) -> Result<Self, Failure> {
        let six = host.contains(':');
        let host = match host {
            "*" => "0.0.0.0",
            "::*" => "::",
            other => other,
        };
        let resolved = (host, port)
            .to_socket_addrs()
            .map_err(|error| Failure { text: error_text(&error), errno: None })?;
        let mut failure = Failure { text: "unable to bind socket".to_owned(), errno: None };
        for address in resolved.filter(|address| address.is_ipv6() == six) {
            // The first address for which a socket can be made decides, as in valkey-server.
            let family = if six { AddressFamily::INET6 } else { AddressFamily::INET };
            match tcp_socket(family, options.multipath) {
                Ok(socket) => {
                    mark(&socket, options.mark);
                    return Self::tcp_bound(socket, address, options.backlog);
                }
                Err(error) => failure = Failure::of("socket", error),
            }
        }
        Err(failure)
    }

    fn tcp_bound(socket: OwnedFd, address: SocketAddr, backlog: u32) -> Result<Self, Failure> {
        if address.is_ipv6() {
            // Without this, `*` and `::*` could not both have the port.
            sockopt::set_ipv6_v6only(&socket, true)
                .map_err(|error| Failure::of("setsockopt", error))?;
        }
        sockopt::set_socket_reuseaddr(&socket, true)
            .map_err(|error| Failure::of("setsockopt SO_REUSEADDR", error))?;
        bind(&socket, &address).map_err(|error| Failure::of("bind", error))?;
        listen_with(&socket, backlog)?;
        Ok(Self { socket, address: Address::Tcp(address), is_tls: false })
    }

    fn unix_one(path: &Path, group: &[u8], permission: u32, backlog: u32) -> Result<Self, Failure> {
        let _ = std::fs::remove_file(path);
        let address =
            rustix::net::SocketAddrUnix::new(path).map_err(|error| Failure::of("bind", error))?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)
            .map_err(|error| Failure::of("creating socket", error))?;
        if permission != 0 {
            // The file gets no more permissions than the socket has. So there is no moment at which
            // more users can connect than should.
            rustix::fs::fchmod(&socket, rustix::fs::Mode::from_raw_mode(permission))
                .map_err(|error| Failure::of("chmod", error))?;
        }
        bind(&socket, &address).map_err(|error| Failure::of("bind", error))?;
        if !group.is_empty() {
            let (group, flags) = (find_group(group)?, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
            rustix::fs::chownat(rustix::fs::CWD, path, None, Some(group), flags)
                .map_err(|error| Failure::of("chown", error))?;
        }
        if permission != 0 {
            // Restores the permissions that the umask removed. No client can connect yet.
            rustix::fs::chmod(path, rustix::fs::Mode::from_raw_mode(permission))
                .map_err(|error| Failure::of("chmod", error))?;
        }
        listen_with(&socket, backlog)?;
        Ok(Self { socket, address: Address::Unix(Arc::from(path)), is_tls: false })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl std::fmt::Display for ListenError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for ListenError {}

/// `text` is what failed and why, such as `bind: Address already in use`; `errno` is the error
/// itself.
struct Failure {
    text: String,
    errno: Option<Errno>,
}

impl Failure {
    fn of(step: &str, error: Errno) -> Self {
        Self { text: format!("{step}: {}", error_text(&error.into())), errno: Some(error) }
    }
}

/// A MultiPath TCP socket if the caller wants one and the system can make one, else a plain TCP
/// socket.
fn tcp_socket(family: AddressFamily, multipath: bool) -> Result<OwnedFd, Errno> {
    if multipath {
        match socket_with(family, SocketType::STREAM, FLAGS, Some(ipproto::MPTCP)) {
            Err(Errno::PROTONOSUPPORT | Errno::NOPROTOOPT | Errno::INVAL) => {
                log::warn!("Warning: The system has no MultiPath TCP; listening without it");
            }
            outcome => return outcome,
        }
    }
    socket_with(family, SocketType::STREAM, FLAGS, None)
}

fn listen_with(socket: &OwnedFd, backlog: u32) -> Result<(), Failure> {
    listen(socket, i32::try_from(backlog).unwrap_or(i32::MAX))
        .map_err(|error| Failure::of("listen", error))
}

fn lacks_protocol(error: Errno) -> bool {
    matches!(
        error,
        Errno::NOPROTOOPT
            | Errno::PROTONOSUPPORT
            | Errno::SOCKTNOSUPPORT
            | Errno::PFNOSUPPORT
            | Errno::AFNOSUPPORT
    )
}

/// Gives a socket its mark. Connections that it accepts inherit the mark.
fn mark(socket: &OwnedFd, mark: u32) {
    if mark == 0 {
        return;
    }
    if let Err(error) = socket2::SockRef::from(socket).set_mark(mark) {
        log::warn!("The mark {mark} (socket-mark-id) can't be set: {}", error_text(&error));
    }
}

/// Looks a group up by its name.
fn find_group(name: &[u8]) -> Result<rustix::fs::Gid, Failure> {
    let failure = |reason: &str| {
        let name = String::from_utf8_lossy(name);
        Failure { text: format!("getgrnam error for group '{name}': {reason}"), errno: None }
    };
    let terminated = CString::new(name).map_err(|_| failure("Invalid argument"))?;
    let mut buffer = vec![0 as libc::c_char; GROUP_BYTES_MAX];
    // SAFETY: a `group` may be all zeros: its pointers may be null, and 0 is a valid group number.
    let mut group: libc::group = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: the name ends in a NUL. The function writes a group, a pointer, and at most as many
    // bytes into the buffer as it has. All three belong to this function and live until the call
    // has returned.
    let error = unsafe {
        libc::getgrnam_r(
            terminated.as_ptr(),
            &raw mut group,
            buffer.as_mut_ptr(),
            buffer.len(),
            &raw mut found,
        )
    };
    match error {
        0 if found.is_null() => Err(failure("Success")),
        0 => Ok(rustix::fs::Gid::from_raw(group.gr_gid)),
        error => Err(failure(&error_text(&io::Error::from_raw_os_error(error)))),
    }
}

/// Room for a group's entry with its members.
const GROUP_BYTES_MAX: usize = 64 * 1024;
const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
