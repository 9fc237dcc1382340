//! Memory of messages that are on their way to clients.
//!
//! It does not count towards `maxmemory`. Evicting a key makes such messages, so if they counted,
//! further keys would be evicted for them, and in the end all keys.

use std::sync::atomic::{AtomicUsize, Ordering};

use bobbin_sync::OwnLine;

static TOTAL: OwnLine<AtomicUsize> = OwnLine(AtomicUsize::new(0));

/// A part of that memory, from when it is taken until the message was offered to the client's
/// socket. What the socket does not take then counts as any other output does.
#[derive(Default)]
pub struct UnsentBytes(usize);

impl UnsentBytes {
    pub fn new(bytes: usize) -> Self {
        TOTAL.0.fetch_add(bytes, Ordering::Relaxed);
        Self(bytes)
    }

    /// The bytes of all messages.
    pub fn total() -> usize {
        TOTAL.0.load(Ordering::Relaxed)
    }

    /// The bytes of this part.
    #[cfg(test)]
    pub const fn bytes(&self) -> usize {
        self.0
    }

    /// Takes over another part.
    pub fn add(&mut self, other: Self) {
        self.0 += other.0;
        std::mem::forget(other);
    }
}

impl Drop for UnsentBytes {
    fn drop(&mut self) {
        if self.0 > 0 {
            TOTAL.0.fetch_sub(self.0, Ordering::Relaxed);
        }
    }
}
