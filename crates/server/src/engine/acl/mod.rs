//! Access control lists: which clients may log in, and what each user may do.
//!
//! A [`User`] is made from rules and never changes. A change puts a new user in its place, with the
//! gate held, and begins a new *epoch*. A connection remembers its user, and the epoch in which it
//! found that the user may do everything ([`Rights`]). So for most connections the check is one
//! comparison. The others look up their user once in each epoch. For each command they then test a
//! bit, and if the user is limited to some keys, channels or databases, they test the command's.

pub mod check;
pub mod file;
pub mod log;
pub mod pattern;
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
pub use self::rights::Rights;
use self::rules::{RuleGrammar, join_selectors};
use self::user::{User, hash_password};
use crate::config::{AclPubsubDefault, Config};
use crate::engine::row::Facts;

/// All users.
pub struct Acl {
    /// The epoch of the rules; never 0. Changes with the gate held.
    epoch: AtomicU32,
    users: RwLock<Users>,
    next_identity: AtomicU64,
    pub log: AclLog,
    /// The number of refusals, by reason.
    denied: [AtomicU64; Reason::COUNT],
    /// Held by the thread that writes the file.
    saving: Mutex<()>,
}

/// The user of every new client. It cannot be deleted.
pub const DEFAULT_USER: &[u8] = b"default";
const DEFAULT_IDENTITY: u64 = 0;

impl Acl {
    /// Makes a list with only the default user.
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

    /// All users, ordered by name.
    pub fn all(&self) -> Vec<Arc<User>> {
        self.users.read().values().cloned().collect()
    }

    pub fn default_user(&self) -> Arc<User> {
        match self.users.read().get(DEFAULT_USER) {
            Some(user) => Arc::clone(user),
            None => unreachable!("nothing deletes the default user"),
        }
    }

    /// The current rules of a user; `None` if the user was deleted.
    pub fn renewed(&self, user: &User) -> Option<Arc<User>> {
        self.find(&user.name).filter(|found| found.identity == user.identity)
    }

    /// Whether new connections have to authenticate.
    pub fn demands_password(&self) -> bool {
        !self.default_user().needs_no_password()
    }

    /// The user of this name, if the password is right. An unknown name takes as long as a wrong
    /// password.
    pub fn log_in(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        let hash = hash_password(password);
        self.find(name).filter(|user| user.admits(&hash))
    }

    /// The number of refusals for this reason.
    pub fn denied(&self, reason: Reason) -> u64 {
        self.denied[reason as usize].load(Ordering::Relaxed)
    }

    fn put(&self, user: User) {
        self.users.write().insert(Arc::clone(&user.name), Arc::new(user));
    }

    /// Begins a new epoch: every client looks up its user again.
    fn begin_epoch(&self) {
        // The number wraps around after some four thousand million changes, and skips 0.
        let next = self.epoch().checked_add(1).unwrap_or(1);
        self.epoch.store(next, Ordering::Release);
    }

    fn new_identity(&self) -> u64 {
        self.next_identity.fetch_add(1, Ordering::Relaxed)
    }
}

/// Changes of users. The gate is held, or no client is connected yet.
impl Acl {
    /// Loads the users of the configuration file: the words behind `user` of each line.
    pub fn load_lines(
        &self,
        lines: &[Vec<Vec<u8>>],
        grammar: &RuleGrammar<'_>,
    ) -> Result<(), String> {
        for words in lines {
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let name = words.first().copied().unwrap_or_default();
            let identity =
                if name == DEFAULT_USER { DEFAULT_IDENTITY } else { self.new_identity() };
            let user = file::read_user(&words, identity, grammar)?;
            if !user.enabled {
                let name = String::from_utf8_lossy(name);
                ::log::info!(
                    "The user '{name}' is disabled: its line has no 'on'. Make sure that this is meant."
                );
            }
            self.put(user);
        }
        self.begin_epoch();
        Ok(())
    }

    /// Loads all users of a file, or none. Returns the identities of users that may no longer
    /// listen to all channels that they could before.
    pub fn load_file(&self, path: &[u8], grammar: &RuleGrammar<'_>) -> Result<Vec<u64>, String> {
        let mut identity = |name: &[u8]| match self.find(name) {
            _ if name == DEFAULT_USER => DEFAULT_IDENTITY,
            Some(known) => known.identity,
            None => self.new_identity(),
        };
        let mut users = file::load(path, grammar, &mut identity)?;
        users.entry(DEFAULT_USER.into()).or_insert_with(|| Arc::new(open_user(grammar)));
        let before = std::mem::replace(&mut *self.users.write(), users);
        self.begin_epoch();
        let lost = before
            .values()
            .filter(|old| self.renewed(old).is_some_and(|new| loses_channels(old, &new)));
        Ok(lost.map(|user| user.identity).collect())
    }

    /// Writes all users to a file.
    pub fn save_file(&self, path: &[u8]) -> std::io::Result<()> {
        let _one_at_a_time = self.saving.lock();
        file::save(path, &self.all())
    }

    /// Applies all of the rules, or none. The error is the text of the reply. Returns the user's
    /// identity if the user may no longer listen to all channels that it could before.
    pub fn set(
        &self,
        name: &[u8],
        rules: &[&[u8]],
        grammar: &RuleGrammar<'_>,
    ) -> Result<Option<u64>, String> {
        let rules = join_selectors(rules).map_err(file::unmatched)?;
        let before = self.find(name);
        let mut user = match &before {
            Some(user) => User::clone(user),
            None => User::new(name, self.new_identity(), grammar.commands, grammar.all_channels),
        };
        for rule in rules {
            user.apply(&rule, grammar).map_err(|error| {
                let rule = String::from_utf8_lossy(&rule);
                format!("Error in ACL SETUSER modifier '{rule}': {}", error.text())
            })?;
        }
        user.settle(grammar.commands);
        let (identity, lost) =
            (user.identity, before.is_some_and(|before| loses_channels(&before, &user)));
        self.put(user);
        self.begin_epoch();
        Ok(lost.then_some(identity))
    }

    /// Deletes a user. Returns its identity.
    pub fn delete(&self, name: &[u8]) -> Option<u64> {
        let deleted = self.users.write().remove(name)?;
        self.begin_epoch();
        Some(deleted.identity)
    }

    /// Applies the value of `requirepass` to the default user.
    pub fn follow_requirepass(&self, password: &[u8]) {
        let mut default = User::clone(&self.default_user());
        require_password(&mut default, password);
        self.put(default);
        self.begin_epoch();
    }

    /// Counts a refusal, and adds it to ACL LOG. `client`: the client's description for ACL LOG;
    /// `keep`: the most entries that are kept.
    #[cold]
    pub fn note_denied(&self, client: String, event: AclEvent, now_ms: i64, keep: usize) {
        self.denied[event.reason as usize].fetch_add(1, Ordering::Relaxed);
        self.log.add(event, client, now_ms, keep);
    }
}

/// The grammar of this server's rules.
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

/// Sets the password of `requirepass`; empty for none.
fn require_password(user: &mut User, password: &[u8]) {
    user.passwords.clear();
    user.no_password = password.is_empty();
    if !password.is_empty() {
        user.passwords.push(hash_password(password));
    }
}

/// Whether the user may no longer listen to some channel that it could before. A right that is
/// expressed in other words counts as lost; the channels of the user's clients are then checked one
/// by one.
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
