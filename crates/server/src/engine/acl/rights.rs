//! What a connection remembers of its user's rights.

use std::sync::Arc;

use super::Acl;
use super::user::User;

/// The user of a client, and what is known of its rights.
#[derive(Clone)]
pub struct Rights {
    /// `None` for the server itself, which may do everything.
    user: Option<Arc<User>>,
    /// Whether the client may do more than authenticate.
    pub authenticated: bool,
    /// The epoch in which the client may do everything without checks; 0 for none.
    open_epoch: u32,
    /// The epoch of `user`.
    epoch: u32,
    /// Whether each command is checked, even if the user may do everything.
    is_watched: bool,
}

impl Rights {
    /// The rights of a new connection.
    pub fn new(acl: &Acl) -> Self {
        // The epoch is read before the user. If the user changes in between, the epoch is an old
        // one, so the user is looked up again.
        let epoch = acl.epoch();
        let user = acl.default_user();
        let authenticated = user.needs_no_password();
        Self { authenticated, epoch, ..Self::of_user(acl, user) }
    }

    /// The rights of a client that has logged in.
    pub fn of_user(acl: &Acl, user: Arc<User>) -> Self {
        let epoch = acl.epoch();
        Self { user: Some(user), authenticated: true, open_epoch: 0, epoch, is_watched: false }
    }

    /// The rights of the server itself.
    pub const fn unlimited() -> Self {
        Self { user: None, authenticated: true, open_epoch: 0, epoch: 0, is_watched: false }
    }

    /// Whether nothing needs to be checked.
    #[inline(always)]
    pub fn is_open(&self, acl: &Acl) -> bool {
        self.open_epoch == acl.epoch()
    }

    /// From now on, has each command checked.
    pub const fn watch(&mut self) {
        (self.is_watched, self.open_epoch) = (true, 0);
    }

    pub fn user(&self) -> Option<&Arc<User>> {
        self.user.as_ref()
    }

    /// Takes over another client's rights.
    #[inline]
    pub fn follow(&mut self, other: &Self) {
        let is_same = match (&self.user, &other.user) {
            (Some(user), Some(other)) => Arc::ptr_eq(user, other),
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            self.user.clone_from(&other.user);
        }
        self.authenticated = other.authenticated;
        (self.open_epoch, self.epoch) = (other.open_epoch, other.epoch);
    }

    /// Looks up the current rules of the user. Returns `false` if the user no longer exists.
    pub fn refresh(&mut self, acl: &Acl) -> bool {
        let epoch = acl.epoch();
        if self.epoch != epoch {
            if let Some(user) = &mut self.user {
                match acl.renewed(user) {
                    Some(renewed) => *user = renewed,
                    None => return false,
                }
            }
            self.epoch = epoch;
        }
        let may_enter = self.authenticated || !acl.demands_password();
        let is_unlimited = self.user.as_ref().is_none_or(|user| user.is_unlimited());
        let is_open = may_enter && is_unlimited && !self.is_watched;
        self.open_epoch = if is_open { epoch } else { 0 };
        true
    }
}
