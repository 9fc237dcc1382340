//! A client's session: what commands know and change about their client.

pub mod certificate;
pub mod connection;
pub mod describe;
pub mod eviction;
pub mod feeder;
pub mod monitors;
pub mod name;
pub mod protected;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bobbin_resp::Protocol;

use crate::engine::acl::user::User;
use crate::engine::acl::{Acl, Rights};
use crate::engine::blocking::Waiter;
use crate::engine::client::connection::Connection;
use crate::engine::client::feeder::Feeder;
use crate::engine::clients::{ClientFlag, ClientInfo};
use crate::engine::command::Registered;
use crate::engine::command::job::{Account, Job};
use crate::engine::command::transaction::{Transaction, WatchedKey};
use crate::engine::pubsub::Subscriptions;
use crate::engine::script::GateWish;
use crate::engine::server::Server;
use crate::engine::server::mailbox::Post;
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
    /// It has gone, or goes, and what its commands answer is not sent.
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

    /// Ends that the client is put off. Its wish for the gate, if it has one, lasts until its
    /// command has been tried again.
    #[must_use = "a wish that is dropped is none"]
    pub fn go_on(&mut self) -> Option<GateWish> {
        self.postpone(false);
        self.gate_wish.take()
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

    /// Whether what it is answered is dropped, as nobody would read it.
    pub const fn is_unread(&self) -> bool {
        self.discard || self.is_overflowed()
    }

    pub const fn is_closing(&self) -> bool {
        self.halts.0 & Halts::CLOSING != 0
    }

    /// Remembers a command as the client's last.
    #[inline(always)]
    pub fn note_command(&self, command: &Registered) {
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

/// Has another client's worker close it.
pub fn kill(server: &Server, info: &Arc<ClientInfo>) {
    info.kill.store(true, Ordering::Relaxed);
    server.workers.post_to(info, || Post::Kill(Arc::clone(info)));
}

/// Bytes of memory that a client takes, its connection included.
pub fn memory(info: &ClientInfo) -> usize {
    size_of::<Connection>() + info.memory()
}
