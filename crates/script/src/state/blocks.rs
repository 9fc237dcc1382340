//! Small blocks of a state's memory, which are kept for the next value of their size.
//!
//! A script makes a dozen small values and drops them again: a list here costs a few instructions,
//! where the process's allocator takes some fifty.

use std::alloc::Layout;
use std::cell::Cell;

/// The largest block that is kept, in bytes.
pub(crate) const SMALL_MAX: usize = 128;
/// Sizes are rounded up to a multiple of this.
const STEP: usize = 16;
/// How many blocks of a size are kept: 144 KiB in all. None where a fuzzer watches each block.
const KEPT_MAX: u32 = if cfg!(fuzzing) { 0 } else { 256 };

/// Blocks that nobody uses, by size.
#[derive(Default)]
pub(crate) struct Blocks([List; SMALL_MAX / STEP]);

#[derive(Default)]
struct List {
    first: Cell<Option<Free>>,
    count: Cell<u32>,
}

/// A block that nobody uses: it holds where the next one is.
type Free = std::ptr::NonNull<Option<Next>>;

#[derive(Clone, Copy)]
struct Next(Free);

impl Blocks {
    fn list(&self, size: usize) -> &List {
        &self.0[(size - 1) / STEP]
    }

    /// A block of a size from 1 to `SMALL_MAX`; null if there is no memory.
    #[inline]
    pub(crate) fn take(&self, size: usize) -> *mut u8 {
        let list = self.list(size);
        let Some(block) = list.first.get() else {
            // SAFETY: the size is not zero.
            return unsafe { std::alloc::alloc(layout(size)) };
        };
        // SAFETY: a block in the list is nobody else's, and holds what `put` wrote there.
        let next = unsafe { block.read() };
        list.first.set(next.map(|next| next.0));
        list.count.set(list.count.get() - 1);
        block.as_ptr().cast()
    }

    /// Keeps a block for the next of its size, or frees it.
    ///
    /// # Safety
    /// It has this size, from 1 to `SMALL_MAX`, has the layout that `layout` names, and nobody uses
    /// it any more.
    #[inline]
    pub(crate) unsafe fn put(&self, block: *mut u8, size: usize) {
        let list = self.list(size);
        let free = Free::new(block.cast());
        if let Some(free) = free.filter(|_| list.count.get() < KEPT_MAX) {
            // SAFETY: the block is the caller's, is aligned for a pointer, and has room for one.
            unsafe { free.write(list.first.get().map(Next)) };
            list.first.set(Some(free));
            list.count.set(list.count.get() + 1);
        } else {
            // SAFETY: as the caller says.
            unsafe { std::alloc::dealloc(block, layout(size)) };
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for (at, list) in self.0.iter().enumerate() {
            while let Some(block) = list.first.get() {
                // SAFETY: as in `take`; the block was made with the layout of its list.
                unsafe {
                    list.first.set(block.read().map(|next| next.0));
                    std::alloc::dealloc(block.as_ptr().cast(), layout((at + 1) * STEP));
                }
            }
        }
    }
}

/// How a block of a size lies in memory. Lua's values hold at most pointers and numbers.
#[inline]
pub(crate) const fn layout(size: usize) -> Layout {
    let size = if size <= SMALL_MAX { size.next_multiple_of(STEP) } else { size };
    match Layout::from_size_align(size, 8) {
        Ok(layout) => layout,
        // Lua keeps sizes below this itself.
        Err(_) => panic!("a block is smaller than the address space"),
    }
}

/// Whether a value may grow or shrink from one size to the other where it is. Neither is zero.
#[inline]
pub(crate) const fn is_same_block(old: usize, new: usize) -> bool {
    (old - 1) / STEP == (new - 1) / STEP
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_back_in_their_size() {
        let blocks = Blocks::default();
        for size in 1..=SMALL_MAX {
            let block = blocks.take(size);
            // SAFETY: it has at least this size, and is put back once.
            unsafe {
                block.write_bytes(0xAA, size);
                blocks.put(block, size);
            }
            let again = blocks.take(size.next_multiple_of(STEP));
            assert_eq!(again, block);
            // SAFETY: as above.
            unsafe { blocks.put(again, size) };
        }
    }

    #[test]
    fn few_blocks_are_kept() {
        let blocks = Blocks::default();
        let taken: Vec<*mut u8> = (0..2 * KEPT_MAX).map(|_| blocks.take(32)).collect();
        for &block in &taken {
            // SAFETY: each was taken with this size.
            unsafe { blocks.put(block, 32) };
        }
        assert_eq!(blocks.list(32).count.get(), KEPT_MAX);
        let last_kept = taken[KEPT_MAX as usize - 1];
        assert_eq!(blocks.take(17), last_kept, "the last that was kept comes first");
        // SAFETY: as above.
        unsafe { blocks.put(last_kept, 17) };
    }

    #[test]
    fn sizes_of_one_block() {
        assert!(is_same_block(1, 16) && is_same_block(17, 32) && !is_same_block(16, 17));
        assert_eq!((layout(1).size(), layout(128).size(), layout(129).size()), (16, 128, 129));
    }
}
