//! Client-side caching: which clients keep copies of which keys, and how they are told that a copy
//! is no longer right.
//!
//! In the default mode the shard of a key remembers which clients read it
//! (`bobbin_store::shard::tracked`). A change of the key takes that list out, under the lock that
//! the change holds, and posts to the readers' workers before any other client can see the change.
//! A reader's own reply was written before its worker looks into its mailbox, so that the message
//! comes behind the value that it revokes. In broadcast mode nothing is remembered of reads: what a
//! worker's clients changed in a turn is posted at its end to the clients that asked for keys with
//! such a beginning.
//!
//! A server without such clients pays nothing: the shard's table is not there, the switch is off.

mod message;
mod publish;
mod session;
mod table;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bobbin_sync::{Mutex, RwLock};

pub use self::message::Push;
pub use self::publish::{AtWork, Notice, Tracker};
pub use self::session::{
    ConnectionTracking, Mode, disable, enable, reader, remember, remember_already, track_as,
};
use crate::engine::clients::ClientInfo;
use crate::engine::server::mailbox::Post;
use crate::engine::server::{Server, Switch};

/// What all workers know of clients that track. A leaf: nothing but mailboxes is locked under it.
#[derive(Default)]
pub struct Tracking {
    registry: RwLock<TrackingRegistry>,
    /// A client wants to be told of all changes. Set with the gate held.
    broadcasts: AtomicBool,
    /// Keys that were added to the shards' tables, ever.
    added: AtomicU64,
    table: Mutex<table::TrackingTotals>,
}

#[derive(Default)]
struct TrackingRegistry {
    /// By number.
    readers: HashMap<u64, TrackingClient>,
    /// Clients in broadcast mode, by what keys begin with.
    prefixes: BTreeMap<Box<[u8]>, Vec<u64>>,
}

/// A client that tracks.
struct TrackingClient {
    info: Arc<ClientInfo>,
    /// The client that is told in its place: its number, and itself.
    redirect: Option<(u64, Arc<ClientInfo>)>,
    mode: Mode,
}

impl Tracking {
    #[inline]
    pub fn broadcasts(&self) -> bool {
        self.broadcasts.load(Ordering::Relaxed)
    }

    /// How many clients track.
    pub fn clients(&self) -> usize {
        self.registry.read().readers.len()
    }

    /// How many beginnings of keys clients in broadcast mode asked for.
    pub fn prefixes(&self) -> usize {
        self.registry.read().prefixes.len()
    }

    /// Changes the registry, and what is derived from it.
    fn change(&self, server: &Server, f: impl FnOnce(&mut TrackingRegistry)) {
        let mut registry = self.registry.write();
        f(&mut registry);
        server.switches.set(Switch::TRACKED, !registry.readers.is_empty());
        self.broadcasts.store(!registry.prefixes.is_empty(), Ordering::Relaxed);
    }
}

impl Server {
    /// Leaves something for a client with its worker, wherever that is by now; nothing when the
    /// client is gone.
    pub fn push_to(&self, to: &Arc<ClientInfo>, push: Push) {
        self.workers.post_to(to, || Post::Push { to: Arc::clone(to), push: push.clone() });
    }
}
