//! Active defragmentation: moves blocks out of sparsely used memory.
//!
//! The allocator keeps small blocks of one size in runs of pages. A run is freed once all its
//! blocks are free. After many deletions most runs may hold only a few blocks. Then a thread walks
//! over all keys, a few at a time, and copies such blocks elsewhere. The allocator says which
//! blocks to move; this module only finds the blocks. Blocks that are shared with a clone stay,
//! because the clone would need a copy of its own.

use std::collections::{BTreeMap, VecDeque};
use std::ptr::NonNull;
use std::sync::Arc;

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
    /// A step looks at `looks_max` blocks, or at some more: a value is left between two of its
    /// records, leaves or nodes. `is_sparse` says whether the block that an address lies in should
    /// move.
    pub fn new(looks_max: usize, is_sparse: &'a mut dyn FnMut(NonNull<u8>) -> bool) -> Self {
        Self { is_sparse, looked: 0, moved: 0, keys: 0, keys_moved: 0, looks_max }
    }

    /// Whether the block that this address lies in should move.
    pub fn wants(&mut self, block: NonNull<u8>) -> bool {
        self.looked += 1;
        let wants = (self.is_sparse)(block);
        self.moved += usize::from(wants);
        wants
    }

    /// Moves the block of a vector.
    pub fn vector<T>(&mut self, vector: &mut Vec<T>) {
        if vector.capacity() > 0
            && size_of::<T>() > 0
            && self.wants(NonNull::from(vector.as_mut_slice()).cast())
        {
            let mut moved = Vec::with_capacity(vector.capacity());
            moved.append(vector);
            *vector = moved;
        }
    }

    /// Moves the block of a queue. An empty one stays, as nothing shows where its block is.
    pub(crate) fn queue<T>(&mut self, queue: &mut VecDeque<T>) {
        let Some(first) = queue.front_mut() else { return };
        if size_of::<T>() > 0 && self.wants(NonNull::from(first).cast()) {
            let mut moved = VecDeque::with_capacity(queue.capacity());
            moved.append(queue);
            *queue = moved;
        }
    }

    /// Moves a box.
    pub(crate) fn boxed<T: Default>(&mut self, boxed: &mut Box<T>) {
        if size_of::<T>() > 0 && self.wants(NonNull::from(&mut **boxed).cast()) {
            let moved = Box::new(std::mem::take(&mut **boxed));
            *boxed = moved;
        }
    }

    /// Moves bytes in a box.
    pub fn bytes(&mut self, bytes: &mut Box<[u8]>) {
        if !bytes.is_empty() && self.wants(NonNull::from(&mut **bytes).cast()) {
            *bytes = bytes.clone();
        }
    }

    /// Moves what a counted pointer points to, unless there are other owners. Returns it for
    /// changing then.
    pub fn counted<'p, T: Default>(&mut self, pointer: &'p mut Arc<T>) -> Option<&'p mut T> {
        let value = Arc::get_mut(pointer)?;
        if self.wants(NonNull::from(&mut *value).cast()) {
            *pointer = Arc::new(std::mem::take(value));
        }
        Arc::get_mut(pointer)
    }

    /// Makes a map anew if its one node should move. Its keys move then, too. A larger map stays:
    /// making it anew would take long.
    pub(crate) fn map<K: Ord + Movable, V>(&mut self, map: &mut BTreeMap<K, V>) {
        if map.len() <= NODE_LEN_MAX
            && let Some(first) = map.values_mut().next()
            && self.wants(NonNull::from(first).cast())
        {
            // The old node is freed last.
            let mut old = std::mem::take(map);
            while let Some((mut key, value)) = old.pop_first() {
                key.defragment(self);
                map.insert(key, value);
            }
        }
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

/// What may have blocks of memory that can move.
pub trait Movable {
    /// Moves its blocks out of sparsely used memory, except those that it shares.
    fn defragment(&mut self, defragmenter: &mut Defragmenter<'_>);
}

impl Movable for () {
    fn defragment(&mut self, _: &mut Defragmenter<'_>) {}
}

impl Movable for u32 {
    fn defragment(&mut self, _: &mut Defragmenter<'_>) {}
}

impl Movable for Box<[u8]> {
    fn defragment(&mut self, defragmenter: &mut Defragmenter<'_>) {
        defragmenter.bytes(self);
    }
}

impl Movable for Arc<[u8]> {
    /// It has other owners.
    fn defragment(&mut self, _: &mut Defragmenter<'_>) {}
}

/// A map of the standard library with so few entries has one node, or a few after deletions.
const NODE_LEN_MAX: usize = 11;
