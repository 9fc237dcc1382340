//! The clients that use MONITOR: they are shown what all clients do.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bobbin_sync::{Mutex, MutexGuard};

use crate::engine::clients::{ClientFlag, ClientInfo};
use crate::engine::server::{Server, Switch};

/// The clients that use MONITOR.
#[derive(Default)]
pub struct Monitors {
    clients: Mutex<Vec<Arc<ClientInfo>>>,
}

impl Server {
    /// Forgets a client that has gone or is going.
    pub fn forget_client(&self, info: &ClientInfo) {
        info.gone.store(true, Ordering::Release);
        self.clients.remove(info.id);
        leave(self, info);
    }
}

/// Makes a client a monitor; the gate is held. Returns `false` if it is one already.
pub fn join(server: &Server, info: &Arc<ClientInfo>) -> bool {
    if info.has(ClientFlag::MONITOR) {
        return false;
    }
    info.flag(ClientFlag::MONITOR, true);
    server.monitors.clients.lock().push(Arc::clone(info));
    server.switches.set(Switch::MONITORED, true);
    true
}

/// Ends a client's monitoring, if it is a monitor.
pub fn leave(server: &Server, info: &ClientInfo) {
    if !info.has(ClientFlag::MONITOR) {
        return;
    }
    info.flag(ClientFlag::MONITOR, false);
    let mut clients = server.monitors.clients.lock();
    clients.retain(|client| client.id != info.id);
    if clients.is_empty() {
        server.switches.set(Switch::MONITORED, false);
    }
}

impl Monitors {
    /// All monitors. None can be added or removed as long as the result lives.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn all(&self) -> MutexGuard<'_, Vec<Arc<ClientInfo>>> {
        self.clients.lock()
    }
}
