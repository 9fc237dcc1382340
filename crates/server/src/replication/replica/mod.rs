//! A replica as its primary sees it: what it has told about itself, and what it gets.

mod feeder;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};

use bobbin_io::bracketed;
use bobbin_sync::Mutex;

pub use self::feeder::ReplicaFeeder;
use super::refusals::Refusal;
use super::transfer::Transfer;
use super::wish::Wish;
use crate::engine::client;
use crate::engine::clients::ClientInfo;
use crate::engine::server::Server;

/// The state of a replica, which any thread may read.
///
/// It has many fields because a replica tells many things about itself (REPLCONF), and INFO shows
/// them.
pub struct Replica {
    pub client: Arc<ClientInfo>,
    /// A `ReplicaState`.
    state: AtomicU8,
    /// The port on which the replica serves clients.
    pub port: AtomicU32,
    /// The address that the replica wants to be known by.
    pub address: Mutex<Option<Box<str>>>,
    /// The version that the replica gives: `0x00MMmmpp`.
    pub version: AtomicU32,
    /// `Capability` bits.
    pub capabilities: AtomicU32,
    wish: Mutex<Wish>,
    /// The replica wants only the copy, and not the stream behind it.
    pub copy_only: AtomicBool,
    /// This connection is only for the copy: the replica has a main connection too.
    pub is_copy_channel: AtomicBool,
    /// This is a main connection, and that client is the connection of its copy. 0: there is no
    /// other connection.
    pub copy_client: AtomicU64,
    /// This is the connection of a copy, and that client is the main connection. 0: the main
    /// connection will name this one.
    pub main_client: AtomicU64,
    /// The offset up to which the replica has executed the stream.
    acked: AtomicU64,
    /// How many times it has acknowledged.
    acks: AtomicU64,
    /// The offset up to which it has the stream on disk.
    acked_on_disk: AtomicU64,
    /// When it last acknowledged (Unix ms).
    acked_ms: AtomicI64,
    /// Since when it waits for its copy (Unix ms).
    since_ms: AtomicI64,
    /// The copy that it gets.
    transfer: Mutex<Option<Arc<Transfer>>>,
    /// Why it gets no copy.
    refusal: Mutex<Option<Refusal>>,
}

/// The state of a replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum ReplicaState {
    /// It has described itself.
    Greets,
    /// It opens another connection for its copy, and waits until the copy begins.
    OpensChannel,
    /// It waits for a copy to begin.
    Waiting,
    /// It gets the copy while it is made, or waits until it is made.
    Receives,
    /// It gets the copy, which is complete.
    ReceivesFile,
    /// It gets the stream here, and its copy on another connection.
    Gathers,
    /// It was sent the whole copy, and has not confirmed it.
    Loads,
    /// It gets the stream.
    Online,
}

impl ReplicaState {
    /// Whether it was sent its whole copy, and gets the stream, now or once it has loaded the copy.
    pub fn is_online(self) -> bool {
        self >= Self::Loads
    }

    /// The name that Valkey gives the state.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Greets | Self::OpensChannel | Self::Waiting | Self::Receives => "wait_bgsave",
            Self::ReceivesFile => "send_bulk",
            Self::Gathers => "bg_transfer",
            Self::Loads | Self::Online => "online",
        }
    }
}

/// What a replica says that it understands (REPLCONF CAPA).
pub struct Capability;
impl Capability {
    /// A copy without a length before it.
    pub const EOF: u32 = 1 << 0;
    /// +CONTINUE with a new name of the history.
    pub const PSYNC2: u32 = 1 << 1;
    /// A copy on a connection of its own, while the stream comes on the main one: Redis's form,
    /// since version 8, and Valkey's form.
    pub const REDIS_CHANNEL: u32 = 1 << 2;
    pub const DUAL_CHANNEL: u32 = 1 << 3;
}

impl Replica {
    fn new(client: Arc<ClientInfo>, now_ms: i64) -> Self {
        Self {
            client,
            state: AtomicU8::new(ReplicaState::Greets as u8),
            port: AtomicU32::new(0),
            address: Mutex::new(None),
            version: AtomicU32::new(0),
            capabilities: AtomicU32::new(0),
            wish: Mutex::default(),
            copy_only: AtomicBool::new(false),
            is_copy_channel: AtomicBool::new(false),
            copy_client: AtomicU64::new(0),
            main_client: AtomicU64::new(0),
            acked: AtomicU64::new(0),
            acks: AtomicU64::new(0),
            acked_on_disk: AtomicU64::new(0),
            acked_ms: AtomicI64::new(now_ms),
            since_ms: AtomicI64::new(now_ms),
            transfer: Mutex::new(None),
            refusal: Mutex::new(None),
        }
    }

    pub fn state(&self) -> ReplicaState {
        match self.state.load(Ordering::SeqCst) {
            0 => ReplicaState::Greets,
            1 => ReplicaState::OpensChannel,
            2 => ReplicaState::Waiting,
            3 => ReplicaState::Receives,
            4 => ReplicaState::ReceivesFile,
            5 => ReplicaState::Gathers,
            6 => ReplicaState::Loads,
            _ => ReplicaState::Online,
        }
    }

    fn set_state(&self, state: ReplicaState) {
        self.state.store(state as u8, Ordering::SeqCst);
    }

    /// The port on which the replica serves clients.
    pub fn port(&self) -> u32 {
        self.port.load(Ordering::Relaxed)
    }

    /// How many times it has acknowledged.
    fn acks(&self) -> u64 {
        self.acks.load(Ordering::SeqCst)
    }

    /// The required properties of its copy.
    pub fn wish(&self) -> Wish {
        *self.wish.lock()
    }

    pub(super) fn set_wish(&self, wish: Wish) {
        *self.wish.lock() = wish;
    }

    /// The offset up to which it has executed the stream.
    pub fn acked(&self) -> u64 {
        self.acked.load(Ordering::SeqCst)
    }

    /// The offset up to which it has the stream on disk.
    pub fn acked_on_disk(&self) -> u64 {
        self.acked_on_disk.load(Ordering::SeqCst)
    }

    /// When it last acknowledged (Unix ms).
    pub fn acked_ms(&self) -> i64 {
        self.acked_ms.load(Ordering::Relaxed)
    }

    /// Takes no moment for later than now, after the system's clock was set back.
    fn begin_anew_by(&self, now_ms: i64) {
        self.acked_ms.fetch_min(now_ms, Ordering::Relaxed);
        self.since_ms.fetch_min(now_ms, Ordering::Relaxed);
    }

    pub fn since_ms(&self) -> i64 {
        self.since_ms.load(Ordering::Relaxed)
    }

    /// Handles an acknowledgement.
    pub fn ack(&self, offset: u64, on_disk: Option<u64>, now_ms: i64) {
        self.acked.fetch_max(offset, Ordering::SeqCst);
        if let Some(on_disk) = on_disk {
            self.acked_on_disk.fetch_max(on_disk, Ordering::SeqCst);
        }
        self.acked_ms.store(now_ms, Ordering::Relaxed);
        self.acks.fetch_add(1, Ordering::SeqCst);
        if self.state() == ReplicaState::Gathers {
            log::info!("Synchronization with replica {} succeeded", self.name());
            self.set_state(ReplicaState::Online);
        }
    }

    /// Which of the replica's connections this is, by Valkey's names.
    pub fn channel_name(&self) -> &'static str {
        if self.is_copy_channel() {
            "rdb-channel"
        } else if matches!(self.state(), ReplicaState::OpensChannel | ReplicaState::Gathers) {
            "main-channel"
        } else {
            "replica"
        }
    }

    /// Whether this connection is only for the copy.
    pub fn is_copy_channel(&self) -> bool {
        self.is_copy_channel.load(Ordering::Relaxed)
    }

    /// The main connection that this connection has named, if any.
    pub(super) fn main_client(&self) -> Option<u64> {
        Some(self.main_client.load(Ordering::Relaxed)).filter(|client| *client != 0)
    }

    /// Whether the replica says that it understands something.
    pub fn has(&self, capability: u32) -> bool {
        self.capabilities.load(Ordering::Relaxed) & capability != 0
    }

    /// Refuses the replica a copy, and has it told why.
    pub(super) fn refuse(&self, server: &Server, refusal: Refusal) {
        *self.refusal.lock() = Some(refusal);
        client::feeder::wake(server, &self.client);
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refusal.lock().is_some()
    }

    /// Assigns this copy to the replica.
    pub(super) fn receive(&self, transfer: &Arc<Transfer>) {
        *self.transfer.lock() = Some(Arc::clone(transfer));
        self.set_state(ReplicaState::Receives);
    }

    /// The address by which clients reach the replica.
    pub fn host(&self) -> String {
        if let Some(address) = &*self.address.lock() {
            return address.to_string();
        }
        let peer = &*self.client.peer;
        let host = peer.rsplit_once(':').map_or(peer, |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']').to_owned()
    }

    /// The replica as the log names it, by Valkey's form: its address and the port on which it
    /// serves clients.
    pub fn name(&self) -> String {
        let host = self.host();
        let host = bracketed(&host);
        match self.port() {
            0 => format!("{host}:<unknown-replica-port>"),
            port => format!("{host}:{port}"),
        }
    }
}
