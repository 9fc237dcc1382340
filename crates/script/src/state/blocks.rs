//! Small blocks of a state's memory, which are kept for the next value of their size.
//!
//! A script makes a dozen small values and drops them again: a list here costs a few instructions,
//! where the process's allocator takes some fifty.
//!
//! What the unsafe code here rests on is called *free*: a block in a list was made with the layout
//! of that list's sizes, has no other owner, and begins with the pointer to the next one.

use std::alloc::Layout;
use std::cell::Cell;

/// The largest block that is kept, in bytes.
pub(crate) const SMALL_MAX: usize = 128;
/// Sizes are rounded up to a multiple of this.
const STEP: usize = 16;
/// How many blocks of a size are kept: 144 KiB in all. None where a fuzzer watches each block.
const KEPT_MAX: u32 = if cfg!(fuzzing) { 0 } else { 256 };

/// Blocks that are not in use, by size.
#[derive(Default)]
pub(crate) struct Blocks([List; SMALL_MAX / STEP]);

#[derive(Default)]
struct List {
    first: Cell<Option<Free>>,
    count: Cell<u32>,
}

/// A block that is not in use: it holds where the next one is.
type Free = std::ptr::NonNull<Option<Next>>;

#[derive(Clone, Copy)]
struct Next(Free);

impl Blocks {
    fn list(&self, size: usize) -> &List {
        &self.0[(size - 1) / STEP]
    }

    /// A block of a size that is not zero; null if there is no memory.
    #[inline]
    pub(crate) fn allocate(&self, size: usize) -> *mut u8 {
        assert!(size > 0, "a block of nothing");
        if size <= SMALL_MAX
            && let Some(block) = self.list(size).pop()
        {
            return block.as_ptr().cast();
        }
        // SAFETY: the size is not zero.
        unsafe { std::alloc::alloc(layout(size)) }
    }

    /// Keeps a block for the next of its size, or frees it.
    ///
    /// # Safety
    /// The block came from `allocate` or `resize`, last with this size, and nothing uses it any
    /// more.
    #[inline]
    pub(crate) unsafe fn free(&self, block: *mut u8, size: usize) {
        if size <= SMALL_MAX
            && let Some(free) = Free::new(block.cast())
            && self.list(size).count.get() < KEPT_MAX
        {
            // SAFETY: the caller's block has the size of this list, and has no other owner.
            unsafe { self.list(size).push(free) };
        } else {
            // SAFETY: the caller's block was made with the layout of this size.
            unsafe { std::alloc::dealloc(block, layout(size)) };
        }
    }
}

impl List {
    /// Takes a block out.
    #[inline]
    fn pop(&self) -> Option<Free> {
        let block = self.first.get()?;
        // SAFETY: *free*: a block in the list has no other owner, and `push` wrote there.
        let next = unsafe { block.read() };
        self.first.set(next.map(|next| next.0));
        self.count.set(self.count.get() - 1);
        Some(block)
    }

    /// Puts a block in.
    ///
    /// # Safety
    /// The block has the size that this list is for, and from now on is the list's.
    #[inline]
    unsafe fn push(&self, block: Free) {
        // SAFETY: the block is the list's, is aligned to 8, and has room for a pointer: none has
        // less than `STEP` bytes.
        unsafe { block.write(self.first.get().map(Next)) };
        self.first.set(Some(block));
        self.count.set(self.count.get() + 1);
    }
}

/// Changes the size of a block, neither of which is zero; null if there is no memory.
///
/// # Safety
/// The block came from `Blocks::allocate` or from here, last with the size `old`, and is not used
/// afterwards; the result takes its place.
#[inline]
pub(crate) unsafe fn resize(block: *mut u8, old: usize, new: usize) -> *mut u8 {
    assert!(new > 0, "a block of nothing");
    if old.max(new) <= SMALL_MAX && is_same_block(old, new) {
        return block;
    }
    // SAFETY: the caller's block was made with the layout of its old size; `layout` has checked the
    // new one, which is not zero.
    unsafe { std::alloc::realloc(block, layout(old), layout(new).size()) }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for (at, list) in self.0.iter().enumerate() {
            let layout = layout((at + 1) * STEP);
            while let Some(block) = list.pop() {
                // SAFETY: the block is ours since it was taken out, and was made with the layout
                // that all of its list have.
                unsafe { std::alloc::dealloc(block.as_ptr().cast(), layout) };
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
            let block = blocks.allocate(size);
            // SAFETY: it has at least this size, and is put back once.
            unsafe {
                block.write_bytes(0xAA, size);
                blocks.free(block, size);
            }
            let again = blocks.allocate(size.next_multiple_of(STEP));
            assert_eq!(again, block);
            // SAFETY: it came with a size of the same list, and is put back once.
            unsafe { blocks.free(again, size) };
        }
    }

    #[test]
    fn few_blocks_are_kept() {
        let blocks = Blocks::default();
        let taken: Vec<*mut u8> = (0..2 * KEPT_MAX).map(|_| blocks.allocate(32)).collect();
        for &block in &taken {
            // SAFETY: each was taken with this size.
            unsafe { blocks.free(block, 32) };
        }
        assert_eq!(blocks.list(32).count.get(), KEPT_MAX);
        let last_kept = taken[KEPT_MAX as usize - 1];
        assert_eq!(blocks.allocate(17), last_kept, "the last that was kept comes first");
        // SAFETY: it was taken with this size.
        unsafe { blocks.free(last_kept, 17) };
    }

    #[test]
    fn sizes_of_one_block() {
        assert!(is_same_block(1, 16) && is_same_block(17, 32) && !is_same_block(16, 17));
        assert_eq!((layout(1).size(), layout(128).size(), layout(129).size()), (16, 128, 129));
    }
}
