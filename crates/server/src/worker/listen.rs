//! Where the server listens.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bobbin_io::{Address, Listener, TcpOptions};

use crate::config::OptionId;
use crate::engine::server::Server;

/// Binds the sockets that the configuration names.
pub fn listeners(server: &Server) -> Result<Vec<Listener>, String> {
    let backlog = server.config.tcp_backlog() as u32;
    let mut listeners = tcp_listeners(server, false)?;
    listeners.extend(tcp_listeners(server, true)?);
    let path = server.config.unixsocket();
    if !path.is_empty() {
        let path = Path::new(OsStr::from_bytes(&path));
        let permission = server.config.unixsocketperm() as u32;
        let group = server.config.unixsocketgroup();
        let unix = Listener::unix(path, &group, permission, backlog)
            .map_err(|error| format!("{error} ({})", path.display()))?;
        listeners.push(unix);
    }
    if listeners.is_empty() {
        return Err("Configured to not listen anywhere, exiting.".into());
    }
    Ok(listeners)
}

/// The listeners of `port`, or those of `tls-port`.
fn tcp_listeners(server: &Server, is_tls: bool) -> Result<Vec<Listener>, String> {
    let addresses = server.config.words_of(OptionId::bind);
    let port = if is_tls { server.config.tls_port() } else { server.config.port() };
    let listeners = Listener::tcp(&addresses, port as u16, options(server));
    let listeners = listeners.map_err(|error| error.to_string())?;
    Ok(if is_tls { with_tls(listeners) } else { listeners })
}

/// Binds `bind` and `port` (or `tls-port`) anew after CONFIG SET. If this fails, the server listens
/// where it did before; this function does not restore the configuration.
pub fn listen_again(server: &Server, is_tls: bool) -> Result<(), String> {
    let acceptor = server.acceptor.lock();
    let Some(acceptor) = &*acceptor else { return Ok(()) };
    let before = acceptor.addresses();
    acceptor.remove(|listener| listener.is_tcp() && listener.is_tls() == is_tls);
    let (listeners, outcome) = match tcp_listeners(server, is_tls) {
        Ok(listeners) => (listeners, Ok(())),
        Err(_) => {
            let error = "Failed to bind to specified addresses.".to_owned();
            (bind_again(server, &before, is_tls), Err(error))
        }
    };
    acceptor.add(listeners).map_err(|error| error.to_string())?;
    outcome
}

/// Binds the earlier addresses again, as far as that is possible.
fn bind_again(server: &Server, addresses: &[(Address, bool)], is_tls: bool) -> Vec<Listener> {
    let is_meant = |(address, secured): &&(Address, bool)| {
        matches!(address, Address::Tcp(_)) && *secured == is_tls
    };
    let listeners = addresses
        .iter()
        .filter(is_meant)
        .flat_map(|(address, _)| Listener::tcp(&[address.host()], address.port(), options(server)))
        .flatten()
        .collect();
    if is_tls { with_tls(listeners) } else { listeners }
}

fn options(server: &Server) -> TcpOptions {
    let config = &server.config;
    TcpOptions {
        backlog: config.tcp_backlog() as u32,
        multipath: config.mptcp(),
        mark: config.socket_mark_id() as u32,
    }
}

fn with_tls(listeners: Vec<Listener>) -> Vec<Listener> {
    listeners.into_iter().map(Listener::with_tls).collect()
}
