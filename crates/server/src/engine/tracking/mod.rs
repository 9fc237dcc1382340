//! Client-side caching: which clients keep copies of which keys, and how they are told that a copy
//! is invalid.
//!
//! In the default mode the shard of a key remembers which clients read it
//! (`bobbin_store::shard::tracked`). A change of the key takes that list out under the shard's
//! lock, and posts to the readers' workers before any other client can see the change. A reader's
//! own reply was written before its worker looks into its mailbox, so the message comes behind the
//! value that it revokes. In broadcast mode nothing is remembered about reads. At the end of a
//! turn, a worker posts the keys that its clients changed to the clients that asked for those
//! prefixes.
//!
//! A server without such clients pays nothing: its shards have no such tables, and the switch is
//! off.

mod message;
mod publish;
mod session;
mod table;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bobbin_sync::{Mutex, RwLock};

pub use self::message::Push;
pub use self::publish::{AtWork, ChangedBy, Notice, Tracker};
pub use self::session::{
    ConnectionTracking, Mode, disable, enable, reader, remember, remember_already, track_as,
};
use crate::engine::clients::ClientInfo;
use crate::engine::server::mailbox::{ClientPost, post_memory};
use crate::engine::server::unsent::UnsentBytes;
use crate::engine::server::{Server, Switch, WorkerHandle};

/// The clients that track, as all workers see them. Only mailboxes are locked while it is locked.
#[derive(Default)]
pub struct Tracking {
    registry: RwLock<TrackingRegistry>,
    /// Whether a client has ever tracked. Set with the gate held.
    is_in_use: AtomicBool,
    /// Whether a client wants to be told of all changes. Set with the gate held.
    broadcasts: AtomicBool,
    /// The number of keys that were ever added to the shards' tables.
    added: AtomicU64,
    table: Mutex<table::TrackingTotals>,
}

#[derive(Default)]
struct TrackingRegistry {
    /// The clients that track, by number.
    readers: HashMap<u64, TrackingClient>,
    /// The clients in broadcast mode, by prefix.
    prefixes: BTreeMap<Box<[u8]>, Vec<u64>>,
}

/// A client that tracks.
struct TrackingClient {
    info: Arc<ClientInfo>,
    /// The client that is told instead, with its number.
    redirect: Option<(u64, Arc<ClientInfo>)>,
    mode: Mode,
}

impl Tracking {
    #[inline]
    pub fn broadcasts(&self) -> bool {
        self.broadcasts.load(Ordering::Relaxed)
    }

    /// The number of clients that track.
    pub fn clients(&self) -> usize {
        self.registry.read().readers.len()
    }

    /// The number of prefixes that clients in broadcast mode asked for.
    pub fn prefixes(&self) -> usize {
        self.registry.read().prefixes.len()
    }

    /// Changes the registry, and updates what follows from it.
    fn change(&self, server: &Server, f: impl FnOnce(&mut TrackingRegistry)) {
        let mut registry = self.registry.write();
        f(&mut registry);
        server.switches.set(Switch::TRACKED, !registry.readers.is_empty());
        self.is_in_use.fetch_or(!registry.readers.is_empty(), Ordering::Relaxed);
        self.broadcasts.store(!registry.prefixes.is_empty(), Ordering::Relaxed);
    }
}

impl Server {
    /// Posts a message for a client to the worker that has it now. Does nothing if the client has
    /// gone. Returns the worker if it is overrun.
    pub fn push_to(&self, to: &Arc<ClientInfo>, push: Push) -> Option<Arc<WorkerHandle>> {
        let unsent = UnsentBytes::new(post_memory(push.memory()));
        self.workers.post_to(to, ClientPost::Push { push, unsent })
    }
}
