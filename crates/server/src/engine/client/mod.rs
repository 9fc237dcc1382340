//! A client's session: the state of a client that commands read and change.

pub mod attempts;
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
use crate::engine::client::attempts::ScriptAttempts;
use crate::engine::client::connection::Connection;
use crate::engine::client::feeder::Feeder;
use crate::engine::clients::{ClientFlag, ClientInfo};
use crate::engine::command::Registered;
use crate::engine::command::job::LongCommand;
use crate::engine::command::transaction::{Transaction, WatchedKey};
use crate::engine::pubsub::Subscriptions;
use crate::engine::script::GateWish;
use crate::engine::server::Server;
use crate::engine::server::mailbox::ClientPost;
use crate::engine::tracking::ConnectionTracking;

/// A client's session. A connection owns it, and so does one worker.
///
/// It has many fields because all that commands such as SELECT, MULTI, WATCH and CLIENT can set for
/// a connection, and all that a connection can wait for, is here.
pub struct Client {
    pub info: Arc<ClientInfo>,
    pub protocol: Protocol,
    pub database: u32,
    pub rights: Rights,
    /// For a script's client: the client that the script runs for, unless that has all rights.
    pub on_behalf_of: Option<Arc<ClientInfo>>,
    pub transaction: Option<Box<Transaction>>,
    pub watched: Vec<WatchedKey>,
    /// `None` if the client has never subscribed.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// The number of the worker's first post that may hold a message for the client; see
    /// `Subscribers`.
    pub hears_from: u64,
    /// The last answer of TIME, in Unix microseconds; 0 when a transaction or a script begins.
    pub time_us: i64,
    /// For a script's client: the number of the client that runs the script; otherwise 0.
    pub caller: u64,
    /// The state of client-side caching, if the client keeps copies of keys.
    pub tracking: Option<Box<ConnectionTracking>>,
    pub reply_mode: ReplyMode,
    /// Why the client's next command is not executed at once.
    pub halts: Halts,
    /// Whether a client that is put off waits until a script or a transaction has freed its
    /// reserved shards.
    pub waits_for_reserved: bool,
    /// The wish of a client whose command was refused the gate.
    pub gate_wish: Option<GateWish>,
    /// Whether the client sends nothing more. Its connection closes once its commands are executed
    /// and their replies sent.
    pub ended: bool,
    /// What others have learned of the script that the client runs, or that runs for it.
    pub attempts: ScriptAttempts,
    /// Whether the client has gone or is going. Then its replies are not sent.
    pub discard: bool,
    /// The long command that the client waits for. Nothing else is executed until it is done.
    pub long_command: Option<Box<LongCommand>>,
    /// The most bytes that a command may reply with: the client's output limit, or for a script
    /// what its memory has room for.
    pub reply_bytes_max: usize,
    /// Bytes to send behind the reply of the long command.
    pub behind: Vec<u8>,
    /// CLIENT NO-TOUCH: reading a key does not count as using it.
    pub no_touch: bool,
    /// Whether the client's next command was already put off for a cut that is being walked.
    pub was_held_up: bool,
    /// The wait of a blocked client. Nothing is executed until it has ended.
    pub blocked: Option<Arc<Waiter>>,
    /// A number in the log that is not below that of the client's last change; 0 if there is none.
    pub last_record: u64,
    /// What sends the client bytes that are not replies: it is a replica, or is becoming one.
    pub feeder: Option<Box<dyn Feeder>>,
}

/// CLIENT REPLY.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyMode {
    On,
    Off,
    /// No reply to this command and to the next one.
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
            reply_mode: ReplyMode::On,
            halts: Halts::default(),
            waits_for_reserved: false,
            gate_wish: None,
            ended: false,
            attempts: ScriptAttempts::default(),
            discard: false,
            long_command: None,
            reply_bytes_max: usize::MAX,
            behind: Vec::new(),
            no_touch: false,
            time_us: 0,
            was_held_up: false,
            blocked: None,
            last_record: 0,
            feeder: None,
        }
    }

    /// Takes the client's user back (RESET).
    pub fn become_newcomer(&mut self, rights: Rights) {
        self.info.names().user = rights.user().cloned();
        self.change_rights(rights);
    }

    /// Changes the client's rights. The following input is parsed and answered within other limits.
    pub fn change_rights(&mut self, rights: Rights) {
        self.rights = rights;
        self.parse_anew();
    }

    /// Makes the client act as this user.
    pub fn log_in(&mut self, acl: &Acl, user: Arc<User>) {
        self.info.names().user = Some(Arc::clone(&user));
        self.change_rights(Rights::of_user(acl, user));
    }

    /// Gives a script's client the rights of the client that runs the script.
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

    /// Selects a database for the following commands.
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

    /// Whether the client is sent messages that are not replies: publications, news of its copies,
    /// or what MONITOR shows.
    pub fn listens(&self) -> bool {
        self.subscriptions.as_ref().is_some_and(|all| !all.is_empty())
            || self.tracking.is_some()
            || self.info.has(ClientFlag::MONITOR)
    }

    /// Whether the protocol cannot tell messages from replies, so that the client may only listen.
    #[inline(always)]
    pub fn only_listens(&self) -> bool {
        self.subscriptions.as_ref().is_some_and(|s| !s.is_empty())
            && self.protocol == Protocol::Resp2
    }

    /// Makes the client wait, or ends that.
    pub fn postpone(&mut self, postponed: bool) {
        self.waits_for_reserved &= postponed;
        if self.is_postponed() != postponed {
            self.halts.0 ^= Halts::POSTPONED;
            self.info.flag(ClientFlag::BLOCKED, postponed);
        }
    }

    /// Ends that the client waits, and returns its wish for the gate, if it has one. The wish must
    /// live until the command has been tried again.
    #[must_use = "a wish that is dropped is none"]
    pub fn go_on(&mut self) -> Option<GateWish> {
        self.postpone(false);
        self.gate_wish.take()
    }

    /// Whether the next command of the client has to wait, for example for the end of a pause.
    pub const fn is_postponed(&self) -> bool {
        self.halts.0 & Halts::POSTPONED != 0
    }

    /// Closes the connection after the reply of the current command.
    pub const fn close(&mut self) {
        self.halts.0 |= Halts::CLOSING;
    }

    /// Sets whether a transaction has replied with more than the client may have. Then its replies
    /// are dropped and the client is closed.
    pub const fn set_overflowed(&mut self, overflowed: bool) {
        self.halts.0 &= !Halts::OVERFLOWED;
        if overflowed {
            self.halts.0 |= Halts::OVERFLOWED;
        }
    }

    pub const fn is_overflowed(&self) -> bool {
        self.halts.0 & Halts::OVERFLOWED != 0
    }

    /// Whether the client's replies are dropped, as it will not read them.
    pub const fn is_unread(&self) -> bool {
        self.discard || self.is_overflowed()
    }

    pub const fn is_closing(&self) -> bool {
        self.halts.0 & Halts::CLOSING != 0
    }

    /// Has the input behind the current command parsed and checked anew.
    pub const fn parse_anew(&mut self) {
        self.halts.0 |= Halts::ANEW;
    }

    /// Whether a script that began anew calls a command again that has been counted.
    pub const fn is_repeating(&self) -> bool {
        self.caller != 0 && self.attempts.calls.is_repeat()
    }

    /// Notes a command as the client's last one.
    #[inline(always)]
    pub fn note_command(&self, command: &Registered) {
        self.info.command.store(command.id, Ordering::Relaxed);
    }

    /// Notes that the client's last command is not known.
    pub fn note_unknown_command(&self) {
        self.info.command.store(usize::MAX, Ordering::Relaxed);
    }
}

/// Reasons not to execute the next command at once, one bit each, so that one load tells whether
/// there is any.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Halts(u8);

impl Halts {
    /// The connection closes after its replies.
    const CLOSING: u8 = 1;
    /// The current command was put off.
    const POSTPONED: u8 = 1 << 1;
    /// The following input is parsed and checked anew, because the client's rights or the server's
    /// options have changed, or the client is a replica now, which may have no replies.
    const ANEW: u8 = 1 << 2;
    /// The client has more replies than it may have.
    const OVERFLOWED: u8 = 1 << 3;

    #[inline(always)]
    pub const fn is_any(self) -> bool {
        self.0 != 0
    }

    /// Whether the only reason is that the input must be parsed anew. Clears that reason.
    pub const fn take_anew_alone(&mut self) -> bool {
        let alone = self.0 == Self::ANEW;
        self.0 &= !Self::ANEW;
        alone
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.info.gone.store(true, Ordering::Release);
    }
}

/// Tells a client's worker to close the client.
pub fn kill(server: &Server, info: &Arc<ClientInfo>) {
    info.kill.store(true, Ordering::Relaxed);
    server.workers.post_to(info, ClientPost::Kill);
}

/// Bytes of memory of a client and its connection.
pub fn memory(info: &ClientInfo) -> usize {
    size_of::<Connection>() + info.memory()
}
