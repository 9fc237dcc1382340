//! A replica's connection to its primary: one thread that receives all keys and then executes the
//! stream.
//!
//! The thread ends when the server's role changes. The thread that changes it holds the gate, so no
//! command of the old primary is executed afterwards.

mod apply;
mod copy;
pub mod handshake;
pub mod machine;
mod parts;
mod receive;
mod session;
#[cfg(test)]
mod tests;
mod wire;

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use bobbin_sync::Mutex;

use self::handshake::Introduction;
use self::machine::GiveUp;
use self::parts::Helpers;
use self::session::{LinkSession, lost};
use self::wire::LinkWire;
use super::{FailoverPhase, Replication};
use crate::base::cores::CoreWork;
use crate::engine::clients::{ClientFlag, ClientInfo};
use crate::engine::command::Registered;
use crate::engine::server::{Server, Switch, background};
use crate::persistence::aof;
use crate::persistence::aof::replay::Replay;

/// The connection to a primary.
pub struct Link {
    pub host: String,
    pub port: u16,
    /// A `LinkState`.
    state: AtomicU8,
    /// The server's role has changed.
    is_over: Arc<AtomicBool>,
    /// The current socket, with which another thread can end the connection.
    socket: Mutex<Option<TcpStream>>,
    /// How CLIENT LIST shows the connection, once the stream continues.
    client: Mutex<Option<Arc<ClientInfo>>>,
    /// When something was last received (Unix ms).
    pub heard_ms: AtomicI64,
    /// Since when the server has no link (Unix ms); 0: it has had none since it became a replica.
    pub down_since_ms: AtomicI64,
    pub sync: SyncProgress,
    /// Bytes of the stream that have come and cannot be executed yet.
    pub held_bytes: AtomicUsize,
    /// How many commands of the stream were executed by threads beside the link's own.
    pub helped_commands: AtomicU64,
}

/// How much of a copy was received.
#[derive(Default)]
pub struct SyncProgress {
    /// 0: unknown.
    total_bytes: AtomicU64,
    read_bytes: AtomicU64,
    /// Bytes of the stream that are kept until the copy is loaded.
    gathered_bytes: AtomicUsize,
    gathered_peak: AtomicUsize,
}

impl SyncProgress {
    fn begin(&self) {
        self.expect(None);
        self.gathered_peak.store(0, Ordering::Relaxed);
    }

    /// Sets the length of the copy in bytes, if that is known.
    fn expect(&self, total: Option<u64>) {
        self.total_bytes.store(total.unwrap_or(0), Ordering::Relaxed);
        self.read_bytes.store(0, Ordering::Relaxed);
    }

    fn gathered(&self, bytes: usize) {
        self.gathered_bytes.store(bytes, Ordering::Relaxed);
        self.gathered_peak.fetch_max(bytes, Ordering::Relaxed);
    }

    /// How many bytes of the stream are kept until the copy is loaded, and the most that there
    /// were.
    pub fn kept_bytes(&self) -> (usize, usize) {
        let (kept, peak) = (&self.gathered_bytes, &self.gathered_peak);
        (kept.load(Ordering::Relaxed), peak.load(Ordering::Relaxed))
    }

    fn took(&self, len: usize) {
        self.read_bytes.fetch_add(len as u64, Ordering::Relaxed);
    }

    /// The length of the copy in bytes, or 0 if unknown, and how many bytes have come.
    pub fn bytes(&self) -> (u64, u64) {
        let (total, read) = (&self.total_bytes, &self.read_bytes);
        (total.load(Ordering::Relaxed), read.load(Ordering::Relaxed))
    }
}

/// The state of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum LinkState {
    /// There is no connection.
    Connect,
    Connecting,
    Handshake,
    /// All keys are being received.
    Sync,
    Connected,
}

/// The shortest time between two attempts to connect, so a connection that lasted longer is made
/// again at once.
const RETRY: Duration = Duration::from_secs(1);

impl Link {
    /// Starts the thread that follows this primary. `old` is the link that this one replaces.
    pub fn start(
        server: &'static Server,
        (host, port): (String, u16),
        old: Option<&Self>,
        is_merged: Receiver<()>,
    ) -> Result<Arc<Self>, String> {
        let now_ms = server.clock.now_ms();
        // Clients have to wait for this primary as they waited for the old one.
        let down_since_ms = old.map_or(0, |old| match old.state() {
            LinkState::Connected => now_ms,
            _ => old.down_since_ms.load(Ordering::Relaxed),
        });
        let link = Arc::new(Self {
            host,
            port,
            state: AtomicU8::new(LinkState::Connect as u8),
            is_over: Arc::default(),
            socket: Mutex::new(None),
            client: Mutex::new(None),
            heard_ms: AtomicI64::new(0),
            down_since_ms: AtomicI64::new(down_since_ms),
            sync: SyncProgress::default(),
            held_bytes: AtomicUsize::new(0),
            helped_commands: AtomicU64::new(0),
        });
        let run = Arc::clone(&link);
        background::start("bobbin-replica", CoreWork::Background, move || {
            run.run(server, &is_merged);
        })
        .map_err(|error| format!("Can't start a thread: {error}"))?;
        Ok(link)
    }

    pub fn state(&self) -> LinkState {
        match self.state.load(Ordering::SeqCst) {
            0 => LinkState::Connect,
            1 => LinkState::Connecting,
            2 => LinkState::Handshake,
            3 => LinkState::Sync,
            _ => LinkState::Connected,
        }
    }

    /// How CLIENT LIST shows the connection; `None`: it is not that far.
    pub fn client(&self) -> Option<Arc<ClientInfo>> {
        self.client.lock().clone()
    }

    /// Notes that bytes came from the primary.
    fn heard(&self, now_ms: i64, len: usize) {
        self.heard_ms.store(now_ms, Ordering::Relaxed);
        if let Some(client) = &*self.client.lock() {
            client.last_ms.store(now_ms, Ordering::Relaxed);
            client.net_input_bytes.add(len as u64);
        }
    }

    /// Notes that commands were executed: how many, the last one, and the database selected now.
    fn carried_out(&self, commands: u64, last: Option<&Registered>, database: u32) {
        if let Some(client) = &*self.client.lock() {
            client.commands.add(commands);
            client.command.store(last.map_or(usize::MAX, |last| last.id), Ordering::Relaxed);
            client.database.store(database, Ordering::Relaxed);
        }
    }

    /// The connection as a client. It is made when the stream continues.
    fn make_client(&self, server: &Server) -> Option<Arc<ClientInfo>> {
        let socket = self.socket.lock();
        let socket = socket.as_ref()?;
        let address = |address: io::Result<SocketAddr>| address.ok().map(|it| it.to_string());
        let (peer, local) = (address(socket.peer_addr())?, address(socket.local_addr())?);
        let (id, now_ms) = (server.clients.next_id(), server.clock.now_ms());
        let info = ClientInfo::new(id, socket.as_raw_fd(), peer, local, false, now_ms);
        info.flag(ClientFlag::PRIMARY, true);
        Some(Arc::new(info))
    }

    fn set_state(&self, server: &Server, state: LinkState) {
        let client = match state {
            LinkState::Connected => self.make_client(server),
            _ => None,
        };
        *self.client.lock() = client;
        self.state.store(state as u8, Ordering::SeqCst);
        Replication::of(server).if_followed(self, || {
            server.switches.set(Switch::LINK_DOWN, state != LinkState::Connected);
        });
    }

    /// Ends the link: no command of this primary is executed any more. The caller holds the gate.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(socket) = &*self.socket.lock() {
            // The socket may be closed already.
            socket.shutdown(Shutdown::Both).ok();
        }
    }

    /// Breaks the connection, which is then made again. Returns whether there was one.
    pub fn cut(&self) -> bool {
        let socket = self.socket.lock();
        let connected = socket.as_ref().filter(|_| self.state() == LinkState::Connected);
        connected.is_some_and(|socket| socket.shutdown(Shutdown::Both).is_ok())
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn run(&self, server: &'static Server, is_merged: &Receiver<()>) {
        // Earlier changes belong to our own stream, so wait until they are merged. An error means
        // that the server ends.
        if is_merged.recv().is_err() {
            return;
        }
        let mut replay = loop {
            match Replay::following(server) {
                Ok(replay) => break replay,
                Err(_) if self.is_over() => return,
                Err(error) => log::warn!("Can't follow a primary yet: {error}"),
            }
            std::thread::sleep(RETRY);
        };
        replay.data.dismissed = Some(Arc::clone(&self.is_over));
        replay.data.enter();
        replay.data.hold_gate_anyway();
        if !self.is_over() {
            aof::follow_readers(server);
        }
        replay.data.release();
        replay.data.leave();
        let mut helpers = Helpers::start(server);
        let mut asks_for_all = false;
        while !self.is_over() {
            // The link waits for what has the server to itself, such as DEBUG SLEEP.
            replay.data.enter();
            replay.data.leave();
            let begun = Instant::now();
            let followed = self.follow(server, &mut replay, &mut helpers, asks_for_all);
            asks_for_all &= self.state() != LinkState::Connected;
            if let Err(end) = followed
                && !self.is_over()
            {
                log::warn!("Connection with primary lost: {}", end.why);
                // A damaged stream would be damaged again from the same byte, so ask for
                // everything.
                asks_for_all |= end.is_damage;
            }
            replay.abandon_transaction();
            self.sync.gathered(0);
            *self.socket.lock() = None;
            if self.state() == LinkState::Connected {
                self.down_since_ms.store(server.clock.now_ms(), Ordering::Relaxed);
            }
            self.set_state(server, LinkState::Connect);
            if !self.is_over() {
                std::thread::sleep(RETRY.saturating_sub(begun.elapsed()));
            }
        }
    }

    fn follow(
        &self,
        server: &'static Server,
        replay: &mut Replay,
        helpers: &mut Helpers,
        asks_for_all: bool,
    ) -> Result<(), GiveUp> {
        self.set_state(server, LinkState::Connecting);
        log::info!("Connecting to PRIMARY {}:{}", self.host, self.port);
        let wire =
            LinkWire::connect(server, &self.host, self.port).map_err(|error| lost(&error))?;
        *self.socket.lock() = Some(wire.handle().map_err(|error| lost(&error))?);
        if self.is_over() {
            return Ok(());
        }
        self.set_state(server, LinkState::Handshake);
        LinkSession::new(server, self, (replay, helpers), wire, asks_for_all).follow()
    }
}

/// What the server tells its primary about itself.
fn introduction(server: &Server) -> Introduction {
    let config = &server.config;
    let (user, password) = (config.primaryuser(), config.primaryauth());
    let mut credentials = Vec::new();
    if !password.is_empty() {
        if !user.is_empty() {
            credentials.push(user.to_vec());
        }
        credentials.push(password.to_vec());
    }
    let port = match config.replica_announce_port() {
        0 => config.port(),
        port => port,
    };
    Introduction {
        credentials,
        port: port as u16,
        address: config.replica_announce_ip().to_vec(),
        position: Replication::of(server).position(server),
        hands_over: Replication::of(server).failover_phase() == FailoverPhase::InProgress,
        takes_dual_channel: config.dual_channel_replication_enabled(),
    }
}
