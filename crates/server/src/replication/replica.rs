//! A replica as its primary sees it: what it has said of itself, and what it is sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};

use bobbin_sync::Mutex;

use super::Replication;
use super::transfer::{Transfer, TransferState};
use super::wish::Wish;
use crate::engine::client::connection::output::ConnectionOutput;
use crate::engine::client::feeder::{Feeder, Feeding};
use crate::engine::client::{ClientFlag, ClientInfo};
use crate::engine::log::feed::FeedReader;
use crate::engine::server::Server;

/// What any thread may know of a replica.
pub struct Replica {
    pub client: Arc<ClientInfo>,
    /// `ReplicaState`.
    state: AtomicU8,
    /// The port on which it serves clients.
    pub port: AtomicU32,
    /// The address that it wants to be known by.
    pub address: Mutex<Option<Box<str>>>,
    /// The version that it says it has: `0x00MMmmpp`.
    pub version: AtomicU32,
    /// `Capability` bits.
    pub capabilities: AtomicU32,
    wish: Mutex<Wish>,
    /// It wants the copy, and not the stream that follows.
    pub copy_only: AtomicBool,
    /// The offset up to which it has the stream.
    acked: AtomicU64,
    /// How often it said so.
    acks: AtomicU64,
    /// The offset up to which it has the stream on disk.
    acked_on_disk: AtomicU64,
    /// When it last said how far it is (Unix ms).
    acked_ms: AtomicI64,
    /// Since when it waits for its copy (Unix ms).
    since_ms: AtomicI64,
    /// The copy that it gets.
    transfer: Mutex<Option<Arc<Transfer>>>,
}

/// How far a replica is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ReplicaState {
    /// It has said things about itself.
    Greets,
    /// It waits for a copy of all keys to begin.
    Waiting,
    /// It gets the copy.
    Receives,
    /// It gets the stream.
    Online,
}

/// What a replica says that it understands (REPLCONF CAPA).
pub struct Capability;
impl Capability {
    /// A copy whose length is not told before.
    pub const EOF: u32 = 1 << 0;
    /// +CONTINUE with a new name of the history.
    pub const PSYNC2: u32 = 1 << 1;
}

/// What feeds a replica's connection.
pub struct ReplicaFeeder {
    server: &'static Server,
    pub replica: Arc<Replica>,
    source: Source,
    /// It asked with SYNC, and is not told the history and the offset.
    is_plain: bool,
    /// When it last got an empty line (Unix ms).
    kept_alive_ms: i64,
}

/// Where the next bytes come from.
enum Source {
    Nothing,
    /// The copy, behind this many bytes of it; then the stream.
    Copy {
        transfer: Arc<Transfer>,
        sent: u64,
        stream: FeedReader,
    },
    /// The whole copy was sent, and the replica has not said that it has it: so often has it said
    /// how far it is.
    Loaded {
        stream: FeedReader,
        acks: u64,
    },
    Stream(FeedReader),
    /// It has all that it wants as soon as its output is sent.
    End,
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
            acked: AtomicU64::new(0),
            acks: AtomicU64::new(0),
            acked_on_disk: AtomicU64::new(0),
            acked_ms: AtomicI64::new(now_ms),
            since_ms: AtomicI64::new(now_ms),
            transfer: Mutex::new(None),
        }
    }

    pub fn state(&self) -> ReplicaState {
        match self.state.load(Ordering::SeqCst) {
            0 => ReplicaState::Greets,
            1 => ReplicaState::Waiting,
            2 => ReplicaState::Receives,
            _ => ReplicaState::Online,
        }
    }

    fn set_state(&self, state: ReplicaState) {
        self.state.store(state as u8, Ordering::SeqCst);
    }

    /// What its copy must be like.
    pub fn wish(&self) -> Wish {
        *self.wish.lock()
    }

    pub(super) fn set_wish(&self, wish: Wish) {
        *self.wish.lock() = wish;
    }

    /// The offset up to which it has the stream.
    pub fn acked(&self) -> u64 {
        self.acked.load(Ordering::SeqCst)
    }

    /// The offset up to which it has the stream on disk.
    pub fn acked_on_disk(&self) -> u64 {
        self.acked_on_disk.load(Ordering::SeqCst)
    }

    /// When it last said how far it is (Unix ms).
    pub fn acked_ms(&self) -> i64 {
        self.acked_ms.load(Ordering::Relaxed)
    }

    pub fn since_ms(&self) -> i64 {
        self.since_ms.load(Ordering::Relaxed)
    }

    /// It says how far it is.
    pub fn ack(&self, offset: u64, on_disk: Option<u64>, now_ms: i64) {
        self.acked.fetch_max(offset, Ordering::SeqCst);
        if let Some(on_disk) = on_disk {
            self.acked_on_disk.fetch_max(on_disk, Ordering::SeqCst);
        }
        self.acked_ms.store(now_ms, Ordering::Relaxed);
        self.acks.fetch_add(1, Ordering::SeqCst);
    }

    /// It gets this copy.
    pub(super) fn receive(&self, transfer: &Arc<Transfer>) {
        *self.transfer.lock() = Some(Arc::clone(transfer));
        self.set_state(ReplicaState::Receives);
    }

    /// The address under which its clients reach it.
    pub fn host(&self) -> String {
        if let Some(address) = &*self.address.lock() {
            return address.to_string();
        }
        let peer = &*self.client.peer;
        let host = peer.rsplit_once(':').map_or(peer, |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']').to_owned()
    }
}

impl ReplicaFeeder {
    pub fn new(server: &'static Server, client: &Arc<ClientInfo>, now_ms: i64) -> Self {
        let replica = Arc::new(Replica::new(Arc::clone(client), now_ms));
        let source = Source::Nothing;
        Self { server, replica, source, is_plain: false, kept_alive_ms: now_ms }
    }

    /// The client becomes a replica that waits for a copy.
    pub fn wait_for_copy(&mut self, now_ms: i64, is_plain: bool) {
        self.is_plain = is_plain;
        self.become_replica(now_ms, ReplicaState::Waiting);
    }

    /// The client becomes a replica that goes on where it was.
    pub fn go_on(&mut self, stream: FeedReader, now_ms: i64) {
        self.replica.acked.store(stream.offset(), Ordering::SeqCst);
        self.source = Source::Stream(stream);
        self.become_replica(now_ms, ReplicaState::Online);
    }

    fn become_replica(&self, now_ms: i64, state: ReplicaState) {
        let replica = &self.replica;
        replica.since_ms.store(now_ms, Ordering::Relaxed);
        replica.acked_ms.store(now_ms, Ordering::Relaxed);
        replica.set_state(state);
        replica.client.flag(ClientFlag::REPLICA, true);
        Replication::of(self.server).add(replica);
    }

    /// Empty lines tell a replica that waits that its primary is alive.
    fn keep_alive(&mut self, now_ms: i64, output: &mut ConnectionOutput) {
        let period_ms = self.server.config.repl_ping_replica_period() * 1000;
        if now_ms - self.kept_alive_ms >= period_ms {
            self.kept_alive_ms = now_ms;
            output.push(b"\n");
        }
    }

    /// Takes up the copy that it was given, if that has begun.
    fn begin_copy(&mut self, output: &mut ConnectionOutput) -> Feeding {
        let Some(transfer) = self.replica.transfer.lock().clone() else { return Feeding::GoesOn };
        let Some(offset) = transfer.offset() else { return Feeding::GoesOn };
        let client = Some(Arc::clone(&self.replica.client));
        let Some(stream) = self.server.feed.reader(offset, client) else { return Feeding::Ends };
        if !self.is_plain {
            let id = self.server.feed.id();
            output.push(format!("+FULLRESYNC {id} {offset}\r\n").as_bytes());
        }
        output.push(transfer.header().as_bytes());
        self.source = Source::Copy { transfer, sent: 0, stream };
        Feeding::GoesOn
    }
}

impl Feeder for ReplicaFeeder {
    fn fill(&mut self, now_ms: i64, bytes_max: usize, output: &mut ConnectionOutput) -> Feeding {
        match self.replica.state() {
            ReplicaState::Greets => return Feeding::GoesOn,
            ReplicaState::Waiting => {
                self.keep_alive(now_ms, output);
                return Feeding::GoesOn;
            }
            ReplicaState::Receives | ReplicaState::Online => {}
        }
        if matches!(self.source, Source::Nothing) && self.begin_copy(output) == Feeding::Ends {
            return Feeding::Ends;
        }
        let timeout_ms = self.server.config.repl_timeout() * 1000;
        self.source = match std::mem::replace(&mut self.source, Source::Nothing) {
            Source::Nothing => Source::Nothing,
            Source::End if output.is_empty() => return Feeding::Finishes,
            Source::End => Source::End,
            Source::Copy { transfer, mut sent, stream } => {
                let take = |bytes| output.push_shared(bytes);
                match transfer.read(&self.replica.client, &mut sent, bytes_max, take) {
                    TransferState::GoesOn => Source::Copy { transfer, sent, stream },
                    TransferState::Failed => return Feeding::Ends,
                    TransferState::Done => {
                        output.push(transfer.mark());
                        self.replica.acked_ms.store(now_ms, Ordering::Relaxed);
                        *self.replica.transfer.lock() = None;
                        if self.replica.copy_only.load(Ordering::Relaxed) {
                            log::info!(
                                "RDB transfer completed, rdb only replica ({}) should be \
                                 disconnected asap",
                                self.replica.host()
                            );
                            self.source = Source::End;
                            return Feeding::GoesOn;
                        }
                        let acks = self.replica.acks.load(Ordering::SeqCst);
                        Source::Loaded { stream, acks }
                    }
                }
            }
            Source::Loaded { stream, acks } if self.replica.acks.load(Ordering::SeqCst) == acks => {
                Source::Loaded { stream, acks }
            }
            Source::Loaded { stream, .. } => {
                log::info!("Synchronization with replica {} succeeded", self.replica.host());
                self.replica.set_state(ReplicaState::Online);
                self.server.feed.read(&stream, bytes_max as u64, |bytes| output.push_shared(bytes));
                Source::Stream(stream)
            }
            Source::Stream(stream) => {
                if now_ms - self.replica.acked_ms() > timeout_ms {
                    log::warn!("Disconnecting timedout replica: {}", self.replica.host());
                    return Feeding::Ends;
                }
                self.server.feed.read(&stream, bytes_max as u64, |bytes| output.push_shared(bytes));
                Source::Stream(stream)
            }
        };
        Feeding::GoesOn
    }

    fn waiting_bytes(&self) -> u64 {
        match &self.source {
            Source::Nothing | Source::End => 0,
            Source::Copy { stream, .. }
            | Source::Loaded { stream, .. }
            | Source::Stream(stream) => {
                self.server.feed.published().saturating_sub(stream.offset())
            }
        }
    }
}

impl Drop for ReplicaFeeder {
    fn drop(&mut self) {
        let replica = &self.replica;
        if let Some(transfer) = replica.transfer.lock().take() {
            transfer.leave(&replica.client);
        }
        if replica.state() != ReplicaState::Greets {
            log::info!("Connection with replica {} lost.", replica.host());
            Replication::of(self.server).remove(self.server, replica);
        }
    }
}
