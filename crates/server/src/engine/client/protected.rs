//! Commands that the configuration forbids to all clients, or to clients of other hosts.

use crate::config::ProtectedAction;
use crate::engine::client::Client;
use crate::engine::row::{Failure, Outcome};
use crate::engine::server::Server;

/// Whether a protected action is allowed to the client: the configuration allows it to all clients,
/// to none, or to those of this host.
pub fn is_allowed(action: ProtectedAction, client: &Client) -> bool {
    match action {
        ProtectedAction::Yes => true,
        ProtectedAction::No => false,
        ProtectedAction::Local => client.info.is_local(),
    }
}

/// Returns an error unless `enable-debug-command` allows DEBUG to the client.
pub fn check_debug_allowed(server: &Server, client: &Client) -> Outcome {
    if is_allowed(server.config.enable_debug_command(), client) {
        Ok(())
    } else {
        Err(Failure::new(&DEBUG_NOT_ALLOWED))
    }
}

const DEBUG_NOT_ALLOWED: &str = "ERR DEBUG command not allowed. If the enable-debug-command option is set \
    to \"local\", you can run it from a local connection, otherwise you need to set this option in \
    the configuration file, and then restart the server.";
