//! Blocks of plain bytes whose length is written inside them, so that a thin pointer owns them.
//!
//! A block *was given* a number of bytes by [`allocate`] or by the last [`resize`]. It has room for
//! at least this number, and its layout is the one that [`layout`] gives for it.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::ptr::NonNull;

/// Allocates a block that begins with these bytes. There must be at least one.
#[inline]
pub(super) fn allocate(header: &[u8], bytes: &[u8]) -> NonNull<u8> {
    let len = header.len() + bytes.len();
    assert!(len > 0, "a block of nothing");
    let layout = layout(len);
    // SAFETY: there is at least one byte, so the layout's size is not zero.
    let Some(block) = NonNull::new(unsafe { alloc(layout) }) else {
        handle_alloc_error(layout);
    };
    // SAFETY: the new block has room for both. They are borrowed, so they lie elsewhere.
    unsafe {
        block.copy_from_nonoverlapping(NonNull::from(header).cast(), header.len());
        block.add(header.len()).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
    }
    block
}

/// Resizes a block from the size for `old_len` bytes to the size for `len` bytes. Returns where it
/// lies then, and `None` if it stays as it is. So a caller writes the pointer only if it changes:
/// it lies in an entry, whose cache line stays with the reading threads while no thread writes
/// there.
///
/// # Safety
/// The caller owns the block, which was last given `old_len` bytes, and uses it only through the
/// result afterwards, if there is one. `len` is not zero.
#[inline]
pub(super) unsafe fn resize(block: NonNull<u8>, old_len: usize, len: usize) -> Option<NonNull<u8>> {
    let (old, new) = (layout(old_len), layout(len));
    if old == new {
        return None;
    }
    // SAFETY: the caller owns the block and says what it was given, so `old` is its layout. The new
    // size is not zero because `len` is not, and `layout` has checked that it is in range.
    match NonNull::new(unsafe { realloc(block.as_ptr(), old, new.size()) }) {
        Some(moved) => Some(moved),
        None => handle_alloc_error(new),
    }
}

/// Frees a block.
///
/// # Safety
/// The caller owns the block, which was last given `len` bytes, and does not use it afterwards.
pub(super) unsafe fn free(block: NonNull<u8>, len: usize) {
    // SAFETY: the caller owns the block and says what it was given, so this is its layout.
    unsafe { dealloc(block.as_ptr(), layout(len)) };
}

/// The memory of a block of `len` bytes, in bytes. It is the allocator's own size class, of which
/// there are four per power of two, so most changes of length need no other block.
#[inline(always)]
pub(super) fn size(len: usize) -> usize {
    let step = ((len - 1).max(32).ilog2() - 2).min(16);
    len.next_multiple_of(1 << step)
}

#[inline(always)]
pub(super) fn layout(len: usize) -> Layout {
    // Cannot fail: no block is nearly as long as isize::MAX.
    Layout::from_size_align(size(len), 8).expect("a block's size is in range")
}
