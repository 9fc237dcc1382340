//! The clients that monitor: they are shown what all clients do.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bobbin_sync::{Mutex, MutexGuard};

use crate::engine::clients::{ClientFlag, ClientInfo};
use crate::engine::server::{Server, Switch};

/// The clients that monitor.
#[derive(Default)]
pub struct Monitors {
    clients: Mutex<Vec<Arc<ClientInfo>>>,
}

impl Server {
    /// A client is gone, or going.
    pub fn forget_client(&self, info: &ClientInfo) {
        info.gone.store(true, Ordering::Release);
        self.clients.remove(info.id);
        leave(self, info);
    }
}

/// Has a client monitor; the gate is held. `false`: it does so already.
pub fn join(server: &Server, info: &Arc<ClientInfo>) -> bool {
    if info.has(ClientFlag::MONITOR) {
        return false;
    }
    info.flag(ClientFlag::MONITOR, true);
    server.monitors.clients.lock().push(Arc::clone(info));
    server.switches.set(Switch::MONITORED, true);
    true
}

/// Ends a client's monitoring, if it does.
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
    /// All of them; none joins or leaves for as long as the result lives.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn all(&self) -> MutexGuard<'_, Vec<Arc<ClientInfo>>> {
        self.clients.lock()
    }
}
