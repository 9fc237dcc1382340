//! Streams. Only what an entry needs of one is here yet.

use crate::entry::Encoding;

/// A log of entries.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    entries: Box<[u8]>,
}

impl Stream {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub const fn encoding(&self) -> Encoding {
        Encoding::Stream
    }

    pub fn memory(&self) -> usize {
        self.entries.len()
    }

    pub const fn free_effort(&self) -> usize {
        1
    }
}
