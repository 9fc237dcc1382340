//! Access control lists: who may come in, and what each user may do.
//!
//! A [`User`] is made from rules once, and never changed: a change puts another in its place, with
//! the gate held, and begins a new *epoch*. A connection remembers its user and the epoch for which
//! it found that the user may do everything ([`Rights`]). So for most connections the check is one
//! comparison; the others look their user up once in an epoch, then test a bit, and the command's
//! keys, channels and databases if the user is limited to some.

pub mod certificate;
pub mod check;
pub mod file;
pub mod log;
pub mod pattern;
mod protected;
mod rights;
pub mod rules;
pub mod selector;
pub mod user;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bobbin_sync::{Mutex, RwLock};

use self::check::Reason;
use self::file::Users;
use self::log::{AclEvent, AclLog};
pub use self::protected::{check_debug_allowed, is_allowed};
pub use self::rights::{
    Rights, admit, admit_queued, admit_script, admit_waiter, log_in, may_call, may_read_all,
};
use self::rules::{RuleGrammar, join_selectors};
use self::user::{User, hash_password};
use crate::config::{AclPubsubDefault, Config};
use crate::engine::client::{self, ClientInfo, describe};
use crate::engine::row::Facts;
use crate::engine::server::Server;
use crate::engine::server::mailbox::Post;

/// All users.
pub struct Acl {
    /// Never 0. Changes with the gate held.
    epoch: AtomicU32,
    users: RwLock<Users>,
    next_identity: AtomicU64,
    pub log: AclLog,
    /// How often something was refused, by reason.
    denied: [AtomicU64; Reason::COUNT],
    /// One at a time writes the file.
    saving: Mutex<()>,
}

/// The user that every client has at first. It cannot be deleted.
pub const DEFAULT_USER: &[u8] = b"default";
const DEFAULT_IDENTITY: u64 = 0;
/// No client's id.
const NOBODY: u64 = 0;

impl Acl {
    /// With the default user alone.
    pub fn new(commands: &[&Facts], config: &Config) -> Self {
        let acl = Self {
            epoch: AtomicU32::new(1),
            users: RwLock::default(),
            next_identity: AtomicU64::new(DEFAULT_IDENTITY + 1),
            log: AclLog::default(),
            denied: Default::default(),
            saving: Mutex::default(),
        };
        let mut default = open_user(&grammar(commands, config));
        require_password(&mut default, &config.requirepass());
        acl.put(default);
        acl
    }

    #[inline(always)]
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    pub fn find(&self, name: &[u8]) -> Option<Arc<User>> {
        self.users.read().get(name).cloned()
    }

    /// By name.
    pub fn all(&self) -> Vec<Arc<User>> {
        self.users.read().values().cloned().collect()
    }

    pub fn default_user(&self) -> Arc<User> {
        match self.users.read().get(DEFAULT_USER) {
            Some(user) => Arc::clone(user),
            None => unreachable!("nothing deletes the default user"),
        }
    }

    /// The user as it is now; `None`: it was deleted.
    pub fn renewed(&self, user: &User) -> Option<Arc<User>> {
        self.find(&user.name).filter(|found| found.identity == user.identity)
    }

    /// Whether new connections have to say who they are.
    pub fn demands_password(&self) -> bool {
        !self.default_user().needs_no_password()
    }

    /// The user of this name, if the password is right. Takes as long where there is no such user.
    pub fn log_in(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        let hash = hash_password(password);
        self.find(name).filter(|user| user.admits(&hash))
    }

    /// How often something was refused for this reason.
    pub fn denied(&self, reason: Reason) -> u64 {
        self.denied[reason as usize].load(Ordering::Relaxed)
    }

    /// CONFIG RESETSTAT.
    pub fn reset_statistics(&self) {
        self.denied.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }

    fn put(&self, user: User) {
        self.users.write().insert(Arc::clone(&user.name), Arc::new(user));
    }

    /// Every client looks again what it may do.
    fn begin_epoch(&self) {
        // It goes around after four thousand million changes, without 0.
        let next = self.epoch().checked_add(1).unwrap_or(1);
        self.epoch.store(next, Ordering::Release);
    }

    fn new_identity(&self) -> u64 {
        self.next_identity.fetch_add(1, Ordering::Relaxed)
    }
}

/// What rules are read with on this server.
pub fn grammar<'a>(commands: &'a [&'a Facts], config: &Config) -> RuleGrammar<'a> {
    let all_channels = config.acl_pubsub_default() == AclPubsubDefault::Allchannels;
    RuleGrammar { commands, all_channels }
}

/// The default user of a server without configuration.
fn open_user(grammar: &RuleGrammar<'_>) -> User {
    let mut user = User::new(DEFAULT_USER, DEFAULT_IDENTITY, grammar.commands, false);
    for rule in ["+@all", "~*", "&*", "on", "nopass"] {
        let applied = user.apply(rule.as_bytes(), grammar);
        debug_assert!(applied.is_ok(), "{rule}");
    }
    user.settle(grammar.commands);
    user
}

/// What `requirepass` says; empty: none.
fn require_password(user: &mut User, password: &[u8]) {
    user.passwords.clear();
    user.no_password = password.is_empty();
    if !password.is_empty() {
        user.passwords.push(hash_password(password));
    }
}

/// Changes of users. The gate is held, or no client is connected yet.
impl Server {
    /// Takes up the users of the configuration file (the words behind `user` of each line), or of
    /// `aclfile`; at start.
    pub fn load_users(&self, lines: &[Vec<Vec<u8>>]) -> Result<(), String> {
        let path = self.config.aclfile();
        if !path.is_empty() && !lines.is_empty() {
            return Err("Users are defined in the configuration file and in the file of aclfile. Keep them in one of \
                        the two: else nobody can tell which rules hold."
                .into());
        }
        if !path.is_empty() {
            return self
                .load_user_file(NOBODY)
                .map_err(|errors| format!("Aborting startup because of ACL errors: {errors}"));
        }
        let grammar = grammar(self.registry.facts(), &self.config);
        for words in lines {
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let name = words.first().copied().unwrap_or_default();
            let identity =
                if name == DEFAULT_USER { DEFAULT_IDENTITY } else { self.acl.new_identity() };
            let user = file::read_user(&words, identity, &grammar)?;
            if !user.enabled {
                let name = String::from_utf8_lossy(name);
                ::log::info!(
                    "The user '{name}' is disabled: its line has no 'on'. Make sure that this is meant."
                );
            }
            self.acl.put(user);
        }
        self.acl.begin_epoch();
        Ok(())
    }

    /// ACL LOAD: all users of the file, or none. Clients of users that are no more are ended, but
    /// for the one that asks.
    pub fn load_user_file(&self, asking: u64) -> Result<(), String> {
        let grammar = grammar(self.registry.facts(), &self.config);
        let mut identity = |name: &[u8]| match self.acl.find(name) {
            _ if name == DEFAULT_USER => DEFAULT_IDENTITY,
            Some(known) => known.identity,
            None => self.acl.new_identity(),
        };
        let mut users = file::load(&self.config.aclfile(), &grammar, &mut identity)?;
        users.entry(DEFAULT_USER.into()).or_insert_with(|| Arc::new(open_user(&grammar)));
        let before = std::mem::replace(&mut *self.acl.users.write(), users);
        self.acl.begin_epoch();
        self.end_clients(asking, |user| self.acl.renewed(user).is_none());
        let lost = before
            .values()
            .filter(|old| self.acl.renewed(old).is_some_and(|new| loses_channels(old, &new)));
        self.end_listeners(lost.map(|user| user.identity).collect());
        Ok(())
    }

    /// ACL SAVE.
    pub fn save_user_file(&self) -> std::io::Result<()> {
        let _one_at_a_time = self.acl.saving.lock();
        file::save(&self.config.aclfile(), &self.acl.all())
    }

    /// The users' lines of the configuration file; none if they are in a file of their own.
    pub fn user_lines(&self) -> Vec<Vec<u8>> {
        if !self.config.aclfile().is_empty() {
            return Vec::new();
        }
        self.acl.all().iter().map(|user| file::configuration_line(user)).collect()
    }

    /// ACL SETUSER: follows all of the rules or none. The error is the reply's text.
    pub fn set_user(&self, name: &[u8], rules: &[&[u8]]) -> Result<(), String> {
        let grammar = grammar(self.registry.facts(), &self.config);
        let rules = join_selectors(rules).map_err(file::unmatched)?;
        let before = self.acl.find(name);
        let mut user = match &before {
            Some(user) => User::clone(user),
            None => {
                User::new(name, self.acl.new_identity(), grammar.commands, grammar.all_channels)
            }
        };
        for rule in rules {
            user.apply(&rule, &grammar).map_err(|error| {
                let rule = String::from_utf8_lossy(&rule);
                format!("Error in ACL SETUSER modifier '{rule}': {}", error.text())
            })?;
        }
        user.settle(grammar.commands);
        let (identity, lost) =
            (user.identity, before.is_some_and(|before| loses_channels(&before, &user)));
        self.acl.put(user);
        self.acl.begin_epoch();
        if lost {
            self.end_listeners(vec![identity]);
        }
        Ok(())
    }

    /// ACL DELUSER of one; whether there was such a user. Its clients are ended, but for the one
    /// that asks.
    pub fn delete_user(&self, name: &[u8], asking: u64) -> bool {
        let Some(deleted) = self.acl.users.write().remove(name) else { return false };
        self.acl.begin_epoch();
        self.end_clients(asking, |user| user.identity == deleted.identity);
        true
    }

    /// CONFIG SET requirepass.
    pub fn follow_requirepass(&self) {
        let mut default = User::clone(&self.acl.default_user());
        require_password(&mut default, &self.config.requirepass());
        self.acl.put(default);
        self.acl.begin_epoch();
    }

    fn end_clients(&self, asking: u64, concerned: impl Fn(&User) -> bool) {
        for info in self.clients.all() {
            if info.id == asking {
                continue;
            }
            let user = info.user();
            if user.is_some_and(|user| concerned(&user)) {
                client::kill(self, &info);
            }
        }
    }

    /// Has the workers end those clients of users that listen to what they may not.
    fn end_listeners(&self, identities: Vec<u64>) {
        if identities.is_empty() {
            return;
        }
        let identities: Arc<[u64]> = identities.into();
        for worker in self.workers.all() {
            // One that has ended has no clients.
            drop(worker.mailbox.post(Post::Revoked(Arc::clone(&identities))));
        }
    }

    /// Counts a refusal, and logs it.
    #[cold]
    pub fn note_denied(&self, info: &ClientInfo, event: AclEvent, now_ms: i64) {
        let mut client = describe::line(self, info, now_ms, None);
        client.truncate(client.trim_end().len());
        self.note_denied_to(client, event, now_ms);
    }

    /// Likewise; `client`: what ACL LOG says of the client.
    pub fn note_denied_to(&self, client: String, event: AclEvent, now_ms: i64) {
        self.acl.denied[event.reason as usize].fetch_add(1, Ordering::Relaxed);
        let keep = usize::try_from(self.config.acllog_max_len()).unwrap_or(0);
        self.acl.log.add(event, client, now_ms, keep);
    }
}

/// Whether a user could listen to something that it cannot any more. What is allowed in other words
/// counts as lost: then its clients' channels are looked at one by one.
fn loses_channels(before: &User, after: &User) -> bool {
    use selector::ChannelRules;
    if after.selectors().any(|selector| selector.channels == ChannelRules::All) {
        return false;
    }
    before.selectors().any(|selector| match &selector.channels {
        ChannelRules::All => true,
        ChannelRules::These(patterns) => patterns.iter().any(|pattern| {
            !after.selectors().any(|selector| match &selector.channels {
                ChannelRules::All => true,
                ChannelRules::These(others) => others.contains(pattern),
            })
        }),
    })
}
