//! Active defragmentation: moves blocks out of sparsely used memory.
//!
//! The allocator keeps small blocks of one size in runs of pages. A run is freed once all its
//! blocks are free. After many deletions most runs may hold only a few blocks. Then a thread walks
//! over all keys, a few at a time, and copies such blocks elsewhere. The allocator says which
//! blocks to move; this module only finds the blocks. Blocks that are shared with a clone stay,
//! because the clone would need a copy of its own.

use std::ptr::NonNull;

/// Asks the allocator about blocks, and counts them.
pub struct Defragmenter<'a> {
    is_sparse: &'a mut dyn FnMut(NonNull<u8>) -> bool,
    /// How many blocks were looked at.
    looked: usize,
    /// How many blocks were moved.
    moved: usize,
    /// How many keys are done, and for how many of them a block was moved.
    keys: usize,
    keys_moved: usize,
    /// How many blocks this step may look at.
    looks_max: usize,
}

/// How far a walk over a database has come.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DefragCursor {
    /// How many slots of the table were looked at.
    pub(crate) slot: usize,
    /// How far the next slot's value was looked at, in parts that the value defines.
    pub(crate) part: usize,
}

impl<'a> Defragmenter<'a> {
    /// A step looks at `looks_max` blocks, or at a few hundred more. `is_sparse` says whether the
    /// block at an address should move.
    pub fn new(looks_max: usize, is_sparse: &'a mut dyn FnMut(NonNull<u8>) -> bool) -> Self {
        Self { is_sparse, looked: 0, moved: 0, keys: 0, keys_moved: 0, looks_max }
    }

    /// Whether the block at this address should move.
    pub fn wants(&mut self, block: NonNull<u8>) -> bool {
        self.looked += 1;
        let wants = (self.is_sparse)(block);
        self.moved += usize::from(wants);
        wants
    }

    /// Whether the step is over.
    pub(crate) const fn is_spent(&self) -> bool {
        self.looked >= self.looks_max
    }

    /// Counts a key. `moved` is the number of moved blocks before it.
    pub(crate) fn count_key(&mut self, moved: usize) {
        self.keys += 1;
        self.keys_moved += usize::from(self.moved > moved);
    }

    /// How many keys are done.
    pub const fn keys(&self) -> usize {
        self.keys
    }

    /// For how many of the keys a block was moved. For a value that took several steps only the
    /// last step counts.
    pub const fn keys_moved(&self) -> usize {
        self.keys_moved
    }

    pub const fn looked(&self) -> usize {
        self.looked
    }

    pub const fn moved(&self) -> usize {
        self.moved
    }
}
