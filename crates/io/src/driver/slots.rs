//! A driver's table of connections, indexed by the slot of their tokens.

use super::Token;
use std::os::fd::RawFd;

/// What a driver knows about every connection. `S` is what the kind of driver adds.
pub(super) struct Slots<S> {
    entries: Vec<ConnectionSlot<S>>,
}

pub(super) struct ConnectionSlot<S> {
    token: u64,
    pub(super) fd: RawFd,
    pub(super) state: S,
}

impl<S: Default> Slots<S> {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new() }
    }

    pub(super) fn insert(&mut self, token: Token, fd: RawFd) {
        let slot = token.slot() as usize;
        if slot >= self.entries.len() {
            self.entries.resize_with(slot + 1, || ConnectionSlot {
                token: VACANT,
                fd: -1,
                state: S::default(),
            });
        }
        let entry = &mut self.entries[slot];
        debug_assert!(entry.token == VACANT, "slot {slot} is in use by {:#x}", entry.token);
        *entry = ConnectionSlot { token: token.raw(), fd, state: S::default() };
    }

    /// The entry of a token, or nothing if the token was removed, even if another connection has
    /// its slot now.
    #[inline]
    pub(super) fn find(&mut self, token: Token) -> Option<&mut ConnectionSlot<S>> {
        self.entries.get_mut(token.slot() as usize).filter(|entry| entry.token == token.raw())
    }

    pub(super) fn remove(&mut self, token: Token) -> Option<ConnectionSlot<S>> {
        let vacant = ConnectionSlot { token: VACANT, fd: -1, state: S::default() };
        self.find(token).map(|entry| std::mem::replace(entry, vacant))
    }
}

/// The word of no token: tokens leave the top byte empty.
const VACANT: u64 = u64::MAX;
