//! A user: its name, its passwords, and its rights as compiled from its rules.

use std::sync::Arc;

use bobbin_text::hex;
use sha2::{Digest, Sha256};

use super::selector::Selector;
use crate::engine::row::Facts;

/// The SHA-256 of a password.
pub type PasswordHash = [u8; 32];

/// A user at one moment. A change makes a new one.
#[derive(Clone, Debug)]
pub struct User {
    pub name: Arc<[u8]>,
    /// Distinguishes a user from a deleted one with the same name.
    pub identity: u64,
    pub(super) enabled: bool,
    /// Whether the user is admitted with any password.
    pub(super) no_password: bool,
    pub(super) passwords: Vec<PasswordHash>,
    pub(super) root: Selector,
    /// The selectors beside the root.
    pub(super) selectors: Vec<Selector>,
    /// Whether the user may do everything.
    pub(super) is_unlimited: bool,
}

impl User {
    /// A user that may do nothing and cannot log in.
    pub fn new(name: &[u8], identity: u64, commands: &[&Facts], all_channels: bool) -> Self {
        Self {
            name: name.into(),
            identity,
            enabled: false,
            no_password: false,
            passwords: Vec::new(),
            root: Selector::new(commands, all_channels),
            selectors: Vec::new(),
            is_unlimited: false,
        }
    }

    /// Derives what follows from the rules. To be called after they have changed.
    pub(super) fn settle(&mut self, commands: &[&Facts]) {
        let is_unlimited = self.selectors().any(|selector| selector.is_unlimited(commands));
        self.is_unlimited = is_unlimited;
    }

    pub const fn is_unlimited(&self) -> bool {
        self.is_unlimited
    }

    /// Whether new connections are this user without authenticating.
    pub const fn needs_no_password(&self) -> bool {
        self.enabled && self.no_password
    }

    pub const fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// `nopass`.
    pub const fn has_no_password(&self) -> bool {
        self.no_password
    }

    /// All selectors; the root comes first.
    pub fn selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    pub fn root(&self) -> &Selector {
        &self.root
    }

    pub fn other_selectors(&self) -> &[Selector] {
        &self.selectors
    }

    pub fn passwords(&self) -> &[PasswordHash] {
        &self.passwords
    }

    /// Whether a password with this hash lets the user in. The time it takes does not depend on
    /// which password fits, or on how much of one.
    pub fn admits(&self, hash: &PasswordHash) -> bool {
        if !self.enabled {
            return false;
        }
        let mut fits = false;
        for password in &self.passwords {
            let difference = password.iter().zip(hash).fold(0, |difference, (known, given)| {
                std::hint::black_box(difference | (known ^ given))
            });
            fits |= std::hint::black_box(difference) == 0;
        }
        self.no_password || fits
    }

    /// `on` or `off`, and `nopass`.
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.enabled { "on" } else { "off" }];
        if self.no_password {
            flags.push("nopass");
        }
        flags
    }

    /// The rules that make the same user from a new one.
    pub fn describe(&self) -> Vec<u8> {
        let mut parts: Vec<Vec<u8>> =
            self.flags().iter().map(|flag| flag.as_bytes().to_vec()).collect();
        parts.extend(self.passwords.iter().map(|hash| [b"#", hex(hash).as_bytes()].concat()));
        parts.push(self.root.describe());
        let others = self.selectors.iter().map(|other| [b"(", &*other.describe(), b")"].concat());
        parts.extend(others);
        parts.join(&b' ')
    }

    /// The user as a line of the configuration: `user name ...`.
    pub fn line(&self) -> Vec<u8> {
        [b"user ", &*self.name, b" ", &self.describe()].concat()
    }
}

pub fn hash_password(password: &[u8]) -> PasswordHash {
    Sha256::digest(password).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::command::Registry;

    #[test]
    fn only_the_password_itself_lets_in() {
        let registry = Registry::new(&crate::process::families(), &[]).unwrap();
        let mut user = User::new(b"u", 1, registry.facts(), false);
        user.passwords = vec![hash_password(b"secret"), hash_password(b"")];
        assert!(!user.admits(&hash_password(b"secret")), "disabled");
        user.enabled = true;
        for guess in ["s", "secre", "secret", "secrets", "secretsecret", "Secret", ""] {
            let fits = user.admits(&hash_password(guess.as_bytes()));
            assert_eq!(fits, guess == "secret" || guess.is_empty(), "{guess}");
        }
    }
}
