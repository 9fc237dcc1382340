//! What a connection knows of its rights.

use std::sync::Arc;

use super::Acl;
use super::user::User;

/// Who a client is.
#[derive(Clone)]
pub struct Rights {
    /// `None`: the server itself, which may do everything.
    user: Option<Arc<User>>,
    /// Whether it may do more than say who it is.
    pub authenticated: bool,
    /// The epoch in which it may do everything without further questions; 0: none.
    open_epoch: u32,
    /// The epoch that `user` is of.
    epoch: u32,
}

impl Rights {
    /// Of a new connection.
    pub fn new(acl: &Acl) -> Self {
        // In this order: the user may change meanwhile, and is looked up again if the epoch is an
        // old one.
        let epoch = acl.epoch();
        let user = acl.default_user();
        let authenticated = user.needs_no_password();
        Self { authenticated, epoch, ..Self::of_user(acl, user) }
    }

    /// Of a client that has said who it is.
    pub fn of_user(acl: &Acl, user: Arc<User>) -> Self {
        let epoch = acl.epoch();
        Self { user: Some(user), authenticated: true, open_epoch: 0, epoch }
    }

    /// Of the server itself.
    pub const fn unlimited() -> Self {
        Self { user: None, authenticated: true, open_epoch: 0, epoch: 0 }
    }

    /// Whether nothing needs to be checked.
    #[inline(always)]
    pub fn is_open(&self, acl: &Acl) -> bool {
        self.open_epoch == acl.epoch()
    }

    /// Whether rules have changed since it was last looked at.
    pub fn is_outdated(&self, acl: &Acl) -> bool {
        self.epoch != acl.epoch()
    }

    pub fn user(&self) -> Option<&Arc<User>> {
        self.user.as_ref()
    }

    /// Becomes the same as another.
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

    /// Takes up what has changed. `false`: the user is no more.
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
        self.open_epoch = if may_enter && is_unlimited { epoch } else { 0 };
        true
    }
}
