//! A client's session: what commands know and change about their client.

pub mod certificate;
pub mod connection;
pub mod describe;
pub mod eviction;
pub mod feeder;
pub mod monitors;
pub mod name;
pub mod protected;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use bobbin_io::Token;
use bobbin_resp::Protocol;
use bobbin_sync::Mutex;

use crate::engine::acl::user::User;
use crate::engine::acl::{Acl, Rights};
use crate::engine::blocking::Waiter;
use crate::engine::client::connection::Connection;
use crate::engine::client::feeder::Feeder;
use crate::engine::command::Registered;
use crate::engine::command::job::{Account, Job};
use crate::engine::command::transaction::{Transaction, WatchedKey};
use crate::engine::pubsub::Subscriptions;
use crate::engine::script::GateWish;
use crate::engine::server::Server;
use crate::engine::server::mailbox::Post;
use crate::engine::telemetry::stats::Counter;
use crate::engine::tracking::ConnectionTracking;

/// A client's session. Owned by the connection, and so by one worker.
///
/// It has many fields, as everything that a connection can be told (by SELECT, MULTI, WATCH, CLIENT
/// and others), or can wait for, stands here.
pub struct Client {
    pub info: Arc<ClientInfo>,
    pub protocol: Protocol,
    pub database: u32,
    pub rights: Rights,
    /// Of a script: the client that its commands are run for, unless that may do everything.
    pub on_behalf_of: Option<Arc<ClientInfo>>,
    pub transaction: Option<Box<Transaction>>,
    pub watched: Vec<WatchedKey>,
    /// `None`: it never listened to anything.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// The first of its worker's posts, by number, that may hold a message for it; see
    /// `Subscribers`.
    pub hears_from: u64,
    /// What TIME last told, in Unix microseconds; 0 when a transaction or a script begins.
    pub time_us: i64,
    /// Of a script: the client that called it, by number; 0 of all others.
    pub caller: u64,
    /// It keeps copies of keys.
    pub tracking: Option<Box<ConnectionTracking>>,
    pub replies: Replies,
    /// Why what the client sent next is not executed at once.
    pub halts: Halts,
    /// It was put off until a script or a transaction is over that keeps what it needs.
    pub waits_for_reserved: bool,
    /// Its command was refused the gate.
    pub gate_wish: Option<GateWish>,
    /// With `Halts::CLOSING`: what the turn's commands answered is not sent either.
    pub discard: bool,
    /// Work that a command left to be done in slices; nothing else is executed until it is done.
    pub job: Option<Box<dyn Job>>,
    /// What the command that left the job is measured by.
    pub account: Option<Box<Account>>,
    /// Bytes that what is executed for it may reply with: up to its output limit, or for a script
    /// to what its memory has room for.
    pub reply_bytes_max: usize,
    /// Bytes to send after the job's reply.
    pub behind: Vec<u8>,
    /// The command that left the job was sent while replies were off.
    pub job_is_quiet: bool,
    /// CLIENT NO-TOUCH: reading a key does not count as using it.
    pub no_touch: bool,
    /// It was put off for a cut that is walked, with the command that is its next.
    pub has_waited: bool,
    /// What it waits for; nothing is executed until that has ended.
    pub blocked: Option<Arc<Waiter>>,
    /// The number in the log of the last change that it made, or one that this does not exceed; 0:
    /// there is none.
    pub last_record: u64,
    /// What it is sent beside replies: it is a replica, or is about to be one.
    pub feeder: Option<Box<dyn Feeder>>,
}

/// CLIENT REPLY.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replies {
    On,
    Off,
    /// Off for the command that asked for it and for the next.
    SkipNext,
    Skip,
}

/// What CLIENT LIST, KILL and INFO see of a client, from any thread. Its worker writes it.
///
/// It has many fields, as CLIENT LIST shows as many.
pub struct ClientInfo {
    pub id: u64,
    pub socket: i32,
    pub peer: Box<str>,
    pub local: Box<str>,
    pub is_unix: bool,
    pub created_ms: i64,
    /// Worker and connection; changes when the client moves.
    pub worker: AtomicUsize,
    pub token: Mutex<Token>,
    /// Set by CLIENT KILL and similar commands. The worker closes the client when it next looks.
    pub kill: AtomicBool,
    /// There is no connection any more, or there soon will be none.
    pub gone: AtomicBool,
    /// The client that is told of changes to keys that this client keeps copies of: another one,
    /// itself (0), or none (-1).
    pub redirect: AtomicI64,
    /// That other one is gone.
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
    /// How many channels, patterns and shard channels it listens to.
    pub subscriptions: [AtomicU32; 3],
    pub subscription_bytes: AtomicUsize,
    /// Of the beginnings of keys that it wants to be told of.
    pub tracking_bytes: AtomicUsize,
    pub input_bytes: AtomicUsize,
    pub input_capacity: AtomicUsize,
    pub output_bytes: AtomicUsize,
    /// What TLS keeps of the connection.
    pub tls_bytes: AtomicUsize,
    /// What the sum of all clients' memory holds of it; see `client_eviction`.
    pub counted_bytes: AtomicUsize,
    pub net_input_bytes: Counter,
    pub net_output_bytes: Counter,
    pub commands: Counter,
    pub names: Mutex<ClientNames>,
    /// What it is blocked by, for a thread that would unblock it.
    pub waiter: Mutex<Option<Arc<Waiter>>>,
}

/// What a client calls itself.
#[derive(Default, Clone)]
pub struct ClientNames {
    pub name: Box<[u8]>,
    pub library: Box<[u8]>,
    pub library_version: Box<[u8]>,
    /// Who it is, as of when it said so; `None`: the server itself.
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
    /// CLIENT IMPORT-SOURCE: in import mode it sees what has expired.
    pub const IMPORT_SOURCE: u32 = 1 << 14;
    /// READONLY: it knows that it reads from a replica.
    pub const READONLY: u32 = 1 << 13;
    /// It is no client, but the connection to the primary.
    pub const PRIMARY: u32 = 1 << 15;
}

impl ClientInfo {
    /// The facts that a connection begins with.
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
            waiter: Mutex::default(),
        }
    }

    /// Sets or clears flag bits. To be called by the client's worker.
    pub fn flag(&self, bits: u32, on: bool) {
        let flags = self.flags.load(Ordering::Relaxed);
        self.flags.store(if on { flags | bits } else { flags & !bits }, Ordering::Relaxed);
    }

    pub fn has(&self, bits: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & bits != 0
    }

    /// Whether it is gone, or will be without another word.
    pub fn is_going(&self) -> bool {
        self.gone.load(Ordering::Acquire) || self.kill.load(Ordering::Relaxed)
    }

    /// What it speaks.
    pub fn protocol(&self) -> Protocol {
        match self.protocol.load(Ordering::Relaxed) {
            3 => Protocol::Resp3,
            _ => Protocol::Resp2,
        }
    }

    /// Bytes of memory that the client takes: its connection, TLS, buffers, transaction, watched
    /// keys, subscriptions and prefixes that it tracks.
    pub fn memory(&self) -> usize {
        let names = self.names();
        let named = names.name.len() + names.library.len() + names.library_version.len();
        size_of::<Connection>()
            + size_of::<Self>()
            + self.peer.len()
            + self.local.len()
            + named
            + self.queued_bytes.load(Ordering::Relaxed)
            + self.watched_bytes.load(Ordering::Relaxed)
            + self.subscription_bytes.load(Ordering::Relaxed)
            + self.tracking_bytes.load(Ordering::Relaxed)
            + self.input_capacity.load(Ordering::Relaxed)
            + self.output_bytes.load(Ordering::Relaxed)
            + self.tls_bytes.load(Ordering::Relaxed)
    }

    /// Forgets how many keys are watched.
    pub fn watches_nothing(&self) {
        self.watched.store(0, Ordering::Relaxed);
        self.watched_bytes.store(0, Ordering::Relaxed);
    }

    /// The name and the like; the lock is held for as long as the result lives.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn names(&self) -> bobbin_sync::MutexGuard<'_, ClientNames> {
        self.names.lock()
    }

    /// Who it is, as of when it said so.
    pub fn user(&self) -> Option<Arc<User>> {
        self.names().user.clone()
    }

    /// Whether the peer is this very host, as protected mode asks.
    pub fn is_local(&self) -> bool {
        self.is_unix || self.peer.starts_with("127.") || self.peer.starts_with("[::1]")
    }
}

impl Client {
    pub fn new(info: Arc<ClientInfo>, rights: Rights) -> Self {
        info.names().user = rights.user().cloned();
        Self {
            info,
            protocol: Protocol::Resp2,
            database: 0,
            rights,
            on_behalf_of: None,
            transaction: None,
            watched: Vec::new(),
            subscriptions: None,
            hears_from: 0,
            caller: 0,
            tracking: None,
            replies: Replies::On,
            halts: Halts::default(),
            waits_for_reserved: false,
            gate_wish: None,
            discard: false,
            job: None,
            account: None,
            reply_bytes_max: usize::MAX,
            behind: Vec::new(),
            job_is_quiet: false,
            no_touch: false,
            time_us: 0,
            has_waited: false,
            blocked: None,
            last_record: 0,
            feeder: None,
        }
    }

    /// Takes it back who it said it is.
    pub fn become_newcomer(&mut self, rights: Rights) {
        self.info.names().user = rights.user().cloned();
        self.change_rights(rights);
    }

    /// What follows is parsed and answered within other limits.
    pub fn change_rights(&mut self, rights: Rights) {
        self.rights = rights;
        self.halts.0 |= Halts::RIGHTS;
    }

    /// Makes it another user's.
    pub fn log_in(&mut self, acl: &Acl, user: Arc<User>) {
        self.info.names().user = Some(Arc::clone(&user));
        self.change_rights(Rights::of_user(acl, user));
    }

    /// A script's client acts for another.
    #[inline]
    pub fn act_for(&mut self, other: &Self, acl: &Acl) {
        self.rights.follow(&other.rights);
        if !other.rights.is_open(acl) {
            let info = other.on_behalf_of.as_ref().unwrap_or(&other.info);
            self.on_behalf_of = Some(Arc::clone(info));
        } else if self.on_behalf_of.is_some() {
            self.on_behalf_of = None;
        }
    }

    /// Selects a database for the commands that follow.
    pub fn select(&mut self, database: u32) {
        self.database = database;
        self.info.database.store(database, Ordering::Relaxed);
    }

    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
        self.info.protocol.store(u32::from(protocol.number()), Ordering::Relaxed);
    }

    /// CLIENT NO-EVICT.
    pub fn set_no_evict(&mut self, on: bool) {
        self.info.flag(ClientFlag::NO_EVICT, on);
    }

    /// CLIENT NO-TOUCH.
    pub fn set_no_touch(&mut self, on: bool) {
        self.no_touch = on;
        self.info.flag(ClientFlag::NO_TOUCH, on);
    }

    /// Whether it is sent what it does not ask for at that moment: messages, news of its copies,
    /// what others do.
    pub fn listens(&self) -> bool {
        self.subscriptions.as_ref().is_some_and(|all| !all.is_empty())
            || self.tracking.is_some()
            || self.info.has(ClientFlag::MONITOR)
    }

    /// Whether the protocol leaves it no way to tell messages from replies, so that it may only
    /// listen.
    #[inline(always)]
    pub fn only_listens(&self) -> bool {
        self.subscriptions.as_ref().is_some_and(|s| !s.is_empty())
            && self.protocol == Protocol::Resp2
    }

    /// Puts the client off until what it needs is no longer reserved.
    pub fn wait_for_reserved(&mut self) {
        self.postpone(true);
        self.waits_for_reserved = true;
    }

    /// Puts the client off, or ends that.
    pub fn postpone(&mut self, postponed: bool) {
        self.waits_for_reserved = false;
        if self.is_postponed() != postponed {
            self.halts.0 ^= Halts::POSTPONED;
            self.info.flag(ClientFlag::BLOCKED, postponed);
        }
    }

    /// Whether its next command waits until a pause, say, is over.
    pub const fn is_postponed(&self) -> bool {
        self.halts.0 & Halts::POSTPONED != 0
    }

    /// Ends the connection once the reply of the command at work is out.
    pub const fn close(&mut self) {
        self.halts.0 |= Halts::CLOSING;
    }

    /// Says whether the replies of a transaction were more than the client may have: they are
    /// dropped, and it is closed.
    pub const fn set_overflowed(&mut self, overflowed: bool) {
        self.halts.0 &= !Halts::OVERFLOWED;
        if overflowed {
            self.halts.0 |= Halts::OVERFLOWED;
        }
    }

    pub const fn is_overflowed(&self) -> bool {
        self.halts.0 & Halts::OVERFLOWED != 0
    }

    pub const fn is_closing(&self) -> bool {
        self.halts.0 & Halts::CLOSING != 0
    }

    /// Remembers a command as the client's last.
    #[inline(always)]
    pub fn ran(&self, command: &Registered) {
        self.info.command.store(command.id, Ordering::Relaxed);
    }
}

/// Reasons, one bit each, not to execute what follows a command at once: one load tells whether
/// there is any.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Halts(u8);

impl Halts {
    /// The connection ends once the replies are out.
    const CLOSING: u8 = 1;
    /// The command at hand was put off.
    const POSTPONED: u8 = 1 << 1;
    /// What follows is parsed anew, with the limits of the client's rights of now.
    const RIGHTS: u8 = 1 << 2;
    /// It has more replies than it may have.
    const OVERFLOWED: u8 = 1 << 3;

    #[inline(always)]
    pub const fn is_any(self) -> bool {
        self.0 != 0
    }

    /// Whether the only reason is that what follows must be parsed anew. Clears that reason.
    pub const fn take_rights_alone(&mut self) -> bool {
        let alone = self.0 == Self::RIGHTS;
        self.0 &= !Self::RIGHTS;
        alone
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.info.gone.store(true, Ordering::Release);
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

    /// The highest id so far, and so the number of clients that ever were.
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

    /// Connections that were not let in, since the start or CONFIG RESETSTAT.
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

    /// All of them, in the order of ids.
    pub fn all(&self) -> Vec<Arc<ClientInfo>> {
        self.by_id.lock().values().cloned().collect()
    }
}

/// Has another client's worker close it.
pub fn kill(server: &Server, info: &Arc<ClientInfo>) {
    info.kill.store(true, Ordering::Relaxed);
    server.workers.post(info.worker.load(Ordering::Relaxed), Post::Kill(info.clone()));
}
