//! The clients, as all threads know them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use bobbin_io::Token;
use bobbin_resp::Protocol;
use bobbin_sync::Mutex;

use crate::engine::acl::user::User;
use crate::engine::telemetry::stats::Counter;

/// What CLIENT LIST, KILL and INFO see of a client, from any thread. The client's worker writes it.
///
/// It has many fields because CLIENT LIST shows many.
pub struct ClientInfo {
    pub id: u64,
    pub socket: i32,
    pub peer: Box<str>,
    pub local: Box<str>,
    pub is_unix: bool,
    pub created_ms: i64,
    /// The worker and the connection; they change when the client moves.
    pub worker: AtomicUsize,
    pub token: Mutex<Token>,
    /// Set by CLIENT KILL and similar commands. The worker closes the client when it next looks.
    pub kill: AtomicBool,
    /// Whether the connection has gone or is going.
    pub gone: AtomicBool,
    /// The client that is told of changes to keys that this client keeps copies of: the number of
    /// another client, 0 for itself, or -1 for none.
    pub redirect: AtomicI64,
    /// Whether that other client has gone.
    pub redirect_broken: AtomicBool,
    pub last_ms: AtomicI64,
    pub database: AtomicU32,
    pub protocol: AtomicU32,
    /// `ClientFlag` bits.
    pub flags: AtomicU32,
    /// Id of the last command, or `usize::MAX`.
    pub command: AtomicUsize,
    /// Queued commands, or -1 outside a transaction.
    pub queued: AtomicI64,
    pub queued_bytes: AtomicUsize,
    pub watched: AtomicUsize,
    pub watched_bytes: AtomicUsize,
    /// Bytes of the command that blocks the client, and of its places in queues.
    pub waiting_bytes: AtomicUsize,
    /// The numbers of the client's channels, patterns and shard channels.
    pub subscriptions: [AtomicU32; 3],
    pub subscription_bytes: AtomicUsize,
    /// Bytes of the prefixes that the client tracks.
    pub tracking_bytes: AtomicUsize,
    pub input_bytes: AtomicUsize,
    pub input_capacity: AtomicUsize,
    pub output_bytes: AtomicUsize,
    /// Bytes that TLS keeps for the connection.
    pub tls_bytes: AtomicUsize,
    /// The client's bytes in the sum of all clients' memory; see `client::eviction`.
    pub counted_bytes: AtomicUsize,
    pub net_input_bytes: Counter,
    pub net_output_bytes: Counter,
    pub commands: Counter,
    pub names: Mutex<ClientNames>,
}

/// The names that a client has given itself, and its user.
#[derive(Default, Clone)]
pub struct ClientNames {
    pub name: Box<[u8]>,
    pub library: Box<[u8]>,
    pub library_version: Box<[u8]>,
    /// The user, as of the client's login; `None` for the server itself.
    pub user: Option<Arc<User>>,
}

/// Bits of `ClientInfo::flags`.
pub struct ClientFlag;
impl ClientFlag {
    pub const MULTI: u32 = 1 << 0;
    pub const MONITOR: u32 = 1 << 1;
    pub const BLOCKED: u32 = 1 << 2;
    pub const CLOSE_AFTER_REPLY: u32 = 1 << 3;
    pub const DIRTY_EXEC: u32 = 1 << 4;
    pub const NO_EVICT: u32 = 1 << 5;
    pub const NO_TOUCH: u32 = 1 << 6;
    pub const UNIX_SOCKET: u32 = 1 << 7;
    pub const PUBSUB: u32 = 1 << 8;
    /// CLIENT CAPA REDIRECT.
    pub const CAPA_REDIRECT: u32 = 1 << 9;
    pub const TRACKING: u32 = 1 << 10;
    pub const BROADCAST: u32 = 1 << 11;
    pub const REPLICA: u32 = 1 << 12;
    /// CLIENT IMPORT-SOURCE: in import mode the client sees expired keys.
    pub const IMPORT_SOURCE: u32 = 1 << 14;
    /// READONLY: the client knows that it reads from a replica.
    pub const READONLY: u32 = 1 << 13;
    /// Not a client, but the connection to the primary.
    pub const PRIMARY: u32 = 1 << 15;
}

impl ClientInfo {
    /// What is known when a connection begins.
    pub fn new(
        id: u64,
        socket: i32,
        peer: String,
        local: String,
        is_unix: bool,
        now_ms: i64,
    ) -> Self {
        Self {
            id,
            socket,
            peer: peer.into(),
            local: local.into(),
            is_unix,
            created_ms: now_ms,
            worker: AtomicUsize::new(0),
            token: Mutex::new(Token::new(0, 0)),
            kill: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            redirect: AtomicI64::new(-1),
            redirect_broken: AtomicBool::new(false),
            last_ms: AtomicI64::new(now_ms),
            database: AtomicU32::new(0),
            protocol: AtomicU32::new(2),
            flags: AtomicU32::new(if is_unix { ClientFlag::UNIX_SOCKET } else { 0 }),
            command: AtomicUsize::new(usize::MAX),
            queued: AtomicI64::new(-1),
            queued_bytes: AtomicUsize::new(0),
            watched: AtomicUsize::new(0),
            watched_bytes: AtomicUsize::new(0),
            waiting_bytes: AtomicUsize::new(0),
            subscriptions: Default::default(),
            subscription_bytes: AtomicUsize::new(0),
            tracking_bytes: AtomicUsize::new(0),
            input_bytes: AtomicUsize::new(0),
            input_capacity: AtomicUsize::new(0),
            output_bytes: AtomicUsize::new(0),
            tls_bytes: AtomicUsize::new(0),
            counted_bytes: AtomicUsize::new(0),
            net_input_bytes: Counter::default(),
            net_output_bytes: Counter::default(),
            commands: Counter::default(),
            names: Mutex::default(),
        }
    }

    /// Sets or clears flag bits. Only the client's worker calls this.
    pub fn flag(&self, bits: u32, on: bool) {
        let flags = self.flags.load(Ordering::Relaxed);
        self.flags.store(if on { flags | bits } else { flags & !bits }, Ordering::Relaxed);
    }

    pub fn has(&self, bits: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & bits != 0
    }

    /// Whether a replica sends the client to the primary for a command that writes or reads. The
    /// client has asked for that, and may have said that it reads from replicas.
    pub fn is_redirected(&self, writes: bool, reads: bool) -> bool {
        self.has(ClientFlag::CAPA_REDIRECT) && (writes || reads && !self.has(ClientFlag::READONLY))
    }

    /// Whether the client has gone, or will go without executing another command.
    pub fn is_going(&self) -> bool {
        self.gone.load(Ordering::Acquire) || self.kill.load(Ordering::Relaxed)
    }

    /// The client's protocol.
    pub fn protocol(&self) -> Protocol {
        match self.protocol.load(Ordering::Relaxed) {
            3 => Protocol::Resp3,
            _ => Protocol::Resp2,
        }
    }

    /// Bytes of memory of the client beside its connection: TLS, buffers, transaction, keys that it
    /// watches or waits for, subscriptions, and prefixes that it tracks.
    pub fn memory(&self) -> usize {
        let names = self.names();
        let named = names.name.len() + names.library.len() + names.library_version.len();
        size_of::<Self>()
            + self.peer.len()
            + self.local.len()
            + named
            + self.queued_bytes.load(Ordering::Relaxed)
            + self.watched_bytes.load(Ordering::Relaxed)
            + self.waiting_bytes.load(Ordering::Relaxed)
            + self.subscription_bytes.load(Ordering::Relaxed)
            + self.tracking_bytes.load(Ordering::Relaxed)
            + self.input_capacity.load(Ordering::Relaxed)
            + self.output_bytes.load(Ordering::Relaxed)
            + self.tls_bytes.load(Ordering::Relaxed)
    }

    /// Whether there is no connection: the commands are those of a log or of a primary's stream,
    /// and nobody gets their replies.
    pub const fn is_nobody(&self) -> bool {
        self.id == 0
    }

    /// Resets the figures of watched keys.
    pub fn watches_nothing(&self) {
        self.watched.store(0, Ordering::Relaxed);
        self.watched_bytes.store(0, Ordering::Relaxed);
    }

    /// The client's names and its user. They are locked as long as the result lives.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn names(&self) -> bobbin_sync::MutexGuard<'_, ClientNames> {
        self.names.lock()
    }

    /// The client's user, as of its login.
    pub fn user(&self) -> Option<Arc<User>> {
        self.names().user.clone()
    }

    /// Whether the peer is on this host, as protected mode asks.
    pub fn is_local(&self) -> bool {
        self.is_unix || self.peer.starts_with("127.") || self.peer.starts_with("[::1]")
    }
}

/// Every connected client, by id.
#[derive(Default)]
#[repr(align(128))]
pub struct Clients {
    by_id: Mutex<BTreeMap<u64, Arc<ClientInfo>>>,
    next_id: AtomicU64,
    count: AtomicUsize,
    rejected: AtomicU64,
}

impl Clients {
    /// An id that no client had before.
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The highest id so far, which is also the number of clients so far.
    pub fn last_id(&self) -> u64 {
        self.next_id.load(Ordering::Relaxed)
    }

    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn add(&self, info: Arc<ClientInfo>) {
        self.by_id.lock().insert(info.id, info);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of connections that were refused, since the start or CONFIG RESETSTAT.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    pub fn count_rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// CONFIG RESETSTAT.
    pub fn reset_rejected(&self) {
        self.rejected.store(0, Ordering::Relaxed);
    }

    pub fn remove(&self, id: u64) {
        if self.by_id.lock().remove(&id).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub fn find(&self, id: u64) -> Option<Arc<ClientInfo>> {
        self.by_id.lock().get(&id).cloned()
    }

    /// All clients, ordered by id.
    pub fn all(&self) -> Vec<Arc<ClientInfo>> {
        self.by_id.lock().values().cloned().collect()
    }
}
