//! Changes of users, and their consequences for clients.

use std::sync::Arc;

use super::Server;
use super::mailbox::Post;
use crate::engine::acl::log::AclEvent;
use crate::engine::acl::rules::RuleGrammar;
use crate::engine::acl::user::User;
use crate::engine::acl::{self, file};
use crate::engine::client::{self, describe};
use crate::engine::clients::ClientInfo;

/// An id that no client has.
const NOBODY: u64 = 0;

/// Changes of users. The gate is held, or no client is connected yet.
/// The error of a configuration with users in two places.
pub const USERS_TWICE: &str = "Users are defined in the configuration file and in the file of aclfile. Keep them in \
     one of the two: else nobody can tell which rules hold.";

impl Server {
    /// Loads the users at start: from the configuration file (`lines` has the words behind `user`
    /// of each line), or from `aclfile`.
    pub fn load_users(&self, lines: &[Vec<Vec<u8>>]) -> Result<(), String> {
        let path = self.config.aclfile();
        if !path.is_empty() && !lines.is_empty() {
            return Err(USERS_TWICE.into());
        }
        if !path.is_empty() {
            return self
                .load_user_file(NOBODY)
                .map_err(|errors| format!("Aborting startup because of ACL errors: {errors}"));
        }
        self.acl.load_lines(lines, &self.user_grammar())
    }

    /// The grammar that users' rules are parsed with.
    pub fn user_grammar(&self) -> RuleGrammar<'_> {
        acl::grammar(self.registry.facts(), &self.config)
    }

    /// ACL LOAD: loads all users of the file, or none. Clients of users that no longer exist are
    /// closed, except for the client `asking`.
    pub fn load_user_file(&self, asking: u64) -> Result<(), String> {
        let lost = self.acl.load_file(&self.config.aclfile(), &self.user_grammar())?;
        self.end_clients(asking, |user| self.acl.renewed(user).is_none());
        self.end_listeners(lost);
        Ok(())
    }

    /// ACL SAVE.
    pub fn save_user_file(&self) -> std::io::Result<()> {
        self.acl.save_file(&self.config.aclfile())
    }

    /// The users' lines for the configuration file; none if the users are in a file of their own.
    pub fn user_lines(&self) -> Vec<Vec<u8>> {
        if !self.config.aclfile().is_empty() {
            return Vec::new();
        }
        self.acl.all().iter().map(|user| file::configuration_line(user)).collect()
    }

    /// ACL SETUSER: applies all of the rules or none. The error is the text of the reply.
    pub fn set_user(&self, name: &[u8], rules: &[&[u8]]) -> Result<(), String> {
        let lost = self.acl.set(name, rules, &self.user_grammar())?;
        self.end_listeners(lost.into_iter().collect());
        Ok(())
    }

    /// ACL DELUSER of one user; returns whether the user existed. The user's clients are closed,
    /// except for the client `asking`.
    pub fn delete_user(&self, name: &[u8], asking: u64) -> bool {
        let Some(identity) = self.acl.delete(name) else { return false };
        self.end_clients(asking, |user| user.identity == identity);
        true
    }

    /// CONFIG SET requirepass.
    pub fn follow_requirepass(&self) {
        self.acl.follow_requirepass(&self.config.requirepass());
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

    /// Tells the workers to close the clients of these users that listen to channels that they no
    /// longer may.
    fn end_listeners(&self, identities: Vec<u64>) {
        if identities.is_empty() {
            return;
        }
        let identities: Arc<[u64]> = identities.into();
        for worker in self.workers.all() {
            // A worker that has ended has no clients.
            drop(worker.mailbox.post(Post::Revoked(Arc::clone(&identities))));
        }
    }

    /// Counts a refused command, and adds it to ACL LOG.
    #[cold]
    pub fn note_denied(&self, info: &ClientInfo, event: AclEvent, now_ms: i64) {
        self.note_denied_to(describe::line_to_keep(self, info, now_ms), event, now_ms);
    }

    /// As `note_denied`. `client` is the description of the client for ACL LOG.
    pub fn note_denied_to(&self, client: String, event: AclEvent, now_ms: i64) {
        let keep = usize::try_from(self.config.acllog_max_len()).unwrap_or(0);
        self.acl.note_denied(client, event, now_ms, keep);
    }
}
