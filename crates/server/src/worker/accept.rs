//! New connections: which are accepted, and which worker serves them.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use bobbin_io::{Accepted, Token};
use rustix::net::SendFlags;

use crate::engine::acl::Rights;
use crate::engine::client::Client;
use crate::engine::client::connection::Connection;
use crate::engine::clients::ClientInfo;
use crate::engine::server::{Server, WorkerHandle};

/// Gives a new connection to a worker, or refuses it.
pub fn let_in(server: &'static Server, accepted: Accepted) {
    let refusal = refusal(server, &accepted);
    if refusal.is_some() {
        server.clients.count_rejected();
    }
    match refusal {
        // Over TLS the client gets the refusal after the handshake.
        Some(PROTECTED_MODE) if accepted.is_tls => {}
        Some(_) if accepted.is_tls => return,
        Some(reason) => {
            // A new socket has room for these few bytes. If not, the peer only sees that the
            // connection ends.
            rustix::net::send(&accepted.socket, reason, SendFlags::NOSIGNAL).ok();
            return;
        }
        None => {}
    }
    let info = ClientInfo::new(
        server.clients.next_id(),
        accepted.socket.as_raw_fd(),
        accepted.peer.to_string(),
        accepted.local.to_string(),
        !accepted.is_tcp(),
        server.clock.advance(),
    );
    let info = Arc::new(info);
    server.clients.add(Arc::clone(&info));
    let client = Client::new(info, Rights::new(&server.acl));
    let mut connection = Box::new(Connection::new(accepted.socket, Token::new(0, 0), client));
    if accepted.is_tls {
        connection.tls = Some(Box::default());
    }
    if let Some(reason) = refusal {
        connection.output.push(reason);
        connection.closing = true;
    }
    hand_over(server, connection);
}

/// The error for a new connection that is refused.
fn refusal(server: &Server, accepted: &Accepted) -> Option<&'static [u8]> {
    if server.clients.len() as i64 >= server.config.maxclients() {
        return Some(b"-ERR max number of clients reached\r\n");
    }
    let protected = server.config.protected_mode() && server.acl.default_user().has_no_password();
    (protected && !accepted.peer.is_local()).then_some(PROTECTED_MODE)
}

/// The worker that the next connection goes to: the one with the fewest.
pub fn least_burdened(server: &Server) -> Option<Arc<WorkerHandle>> {
    server.workers.next(server.config.connections_per_io_thread() as usize)
}

/// Gives a connection to a worker.
pub fn hand_over(server: &Server, mut connection: Box<Connection>) {
    // The chosen worker may end before the connection is posted to it.
    while let Some(worker) = least_burdened(server) {
        match worker.give(connection) {
            Ok(()) => return,
            Err(back) => connection = back,
        }
    }
}

/// What protected mode tells a remote client. It is Redis's own text, because clients and people
/// search for it.
const PROTECTED_MODE: &[u8] = b"-DENIED Running in protected mode because protected mode is enabled and no \
password is set for the default user. In this mode connections are only accepted from the loopback \
interface. If you want to connect from external computers, you may adopt one of the following solutions: \
1) Just disable protected mode sending the command 'CONFIG SET protected-mode no' from the loopback \
interface by connecting from the same host the server is running, however MAKE SURE it's not publicly \
accessible from internet if you do so. Use CONFIG REWRITE to make this change permanent. 2) Alternatively \
you can just disable the protected mode by editing the configuration file, and setting the protected mode \
option to 'no', and then restarting the server. 3) If you started the server manually just for testing, \
restart it with the '--protected-mode no' option. 4) Set up an authentication password for the default \
user. NOTE: You only need to do one of the above things in order for the server to start accepting \
connections from the outside.\r\n";
