//! Active defragmentation: blocks that lie where much else is free move together.
//!
//! The allocator keeps small blocks of one size in runs of pages, and a run is given back when all
//! of its blocks are free. After many deletions most runs may hold a few blocks each. A thread then
//! goes over all keys, a few at a time, and copies such blocks into others. The allocator says
//! which, so this module only knows where blocks are. Blocks that a clone shares stay: it would
//! need a copy of its own.

use std::ptr::NonNull;

/// Asks the allocator about blocks, and counts.
pub struct Defragmenter<'a> {
    is_sparse: &'a mut dyn FnMut(NonNull<u8>) -> bool,
    /// Blocks that it looked at.
    looked: usize,
    /// Blocks that were moved.
    moved: usize,
    /// Keys that it is through with, and those of them of which something was moved.
    keys: usize,
    keys_moved: usize,
    /// Blocks that it may look at in this step.
    looks_max: usize,
}

/// How far a walk over a database has come.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DefragCursor {
    /// Slots of the table that were looked at.
    pub(crate) slot: usize,
    /// Parts of the next slot's value that were looked at, in a count that is the value's own.
    pub(crate) part: usize,
}

impl<'a> Defragmenter<'a> {
    /// For a step that looks at `looks_max` blocks, or a few hundred more. `is_sparse` says whether
    /// the block that begins at an address should move.
    pub fn new(looks_max: usize, is_sparse: &'a mut dyn FnMut(NonNull<u8>) -> bool) -> Self {
        Self { is_sparse, looked: 0, moved: 0, keys: 0, keys_moved: 0, looks_max }
    }

    /// Whether the block that begins here should move.
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

    /// Counts a key, of which blocks were moved since `moved` were.
    pub(crate) fn count_key(&mut self, moved: usize) {
        self.keys += 1;
        self.keys_moved += usize::from(self.moved > moved);
    }

    /// Keys that it is through with.
    pub const fn keys(&self) -> usize {
        self.keys
    }

    /// Those of them of which blocks were moved. Of a value that takes several steps only the last
    /// one counts.
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
