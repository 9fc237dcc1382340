//! A value that clones share until one of them changes.
//!
//! The unsafe code here relies on these rules:
//! - *Counted*: `owners` is the number of [`Cow`]s with this pointer, which came from a box. The
//!   last of them frees it.
//! - *Sole*: only a single owner, borrowed exclusively, changes the value. No new owner can appear
//!   meanwhile, because that takes a borrow of this one.

use std::ops::Deref;
use std::ptr::NonNull;

use super::defrag::Defragmenter;
use super::owners::Owners;

/// Like `Arc`, without weak references. Checking whether it is shared costs one load, while
/// `Arc::make_mut` costs a locked instruction at each level of a tree. The pointer may lie at any
/// address (see `SLOT`).
#[repr(Rust, packed)]
pub struct Cow<T> {
    block: NonNull<CowBlock<T>>,
}

struct CowBlock<T> {
    owners: Owners,
    value: T,
}

// SAFETY: owners on several threads may read the value at the same time, so it must be `Sync`. The
// last owner, on any thread, changes or drops it, so it must be `Send`. The count is atomic.
unsafe impl<T: Send + Sync> Send for Cow<T> {}
// SAFETY: a shared reference is enough to make another owner, so the same applies.
unsafe impl<T: Send + Sync> Sync for Cow<T> {}

impl<T> Cow<T> {
    pub(super) fn new(value: T) -> Self {
        let block = Box::new(CowBlock { owners: Owners::one(), value });
        Self { block: NonNull::from(Box::leak(block)) }
    }

    /// The bytes of the value, without those that it points to.
    pub(super) const fn size() -> usize {
        size_of::<CowBlock<T>>()
    }

    /// Whether both are clones of one, and neither has changed since.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        std::ptr::eq(self.block(), other.block())
    }

    #[inline(always)]
    fn block(&self) -> &CowBlock<T> {
        // SAFETY: *counted*: the block lives while we are an owner. *Sole*: except for the count,
        // which is atomic, it does not change while we are borrowed.
        unsafe { { self.block }.as_ref() }
    }

    /// The value, for changing it. `None`: it is shared.
    pub(super) fn get_mut(&mut self) -> Option<&mut T> {
        if !self.block().owners.is_one() {
            return None;
        }
        // SAFETY: *sole*: the count was 1, and we are borrowed exclusively while the result is
        // used.
        Some(unsafe { &mut { self.block }.as_mut().value })
    }

    /// Returns the value, so that its parts from one on can be moved. With the first part, 0, its
    /// own block moves if it lies in sparsely used memory. `None`: it is shared, and all stays.
    pub(super) fn defragment(
        &mut self,
        from: usize,
        defragmenter: &mut Defragmenter<'_>,
    ) -> Option<&mut T> {
        if !self.block().owners.is_one() {
            return None;
        }
        if from == 0 && defragmenter.wants(self.block.cast()) {
            // SAFETY: *counted*: the pointer came from a box, and we are the only owner. So the box
            // is ours until `block` is written again, and nothing panics before that.
            let old = unsafe { Box::from_raw(self.block.as_ptr()) };
            self.block = NonNull::from(Box::leak(Box::new(*old)));
        }
        self.get_mut()
    }
}

impl<T: Clone> Cow<T> {
    /// The value, for changing it. It is copied if it is shared.
    #[inline(always)]
    pub(super) fn make_mut(&mut self) -> &mut T {
        if !self.block().owners.is_one() {
            self.copy();
        }
        // SAFETY: *sole*: the count was 1, or we have made our own copy. We are borrowed
        // exclusively while the result is used.
        unsafe { &mut { self.block }.as_mut().value }
    }

    #[cold]
    fn copy(&mut self) {
        *self = Self::new(self.block().value.clone());
    }
}

impl<T> Clone for Cow<T> {
    fn clone(&self) -> Self {
        self.block().owners.add();
        Self { block: self.block }
    }
}

impl<T> Drop for Cow<T> {
    fn drop(&mut self) {
        if self.block().owners.remove() {
            // SAFETY: *counted*: we were the last owner, and the pointer came from a box.
            drop(unsafe { Box::from_raw(self.block.as_ptr()) });
        }
    }
}

impl<T> Deref for Cow<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.block().value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_reaches_no_other_owner() {
        let mut one = Cow::new(vec![1]);
        let address = one.as_ptr();
        one.make_mut()[0] = 2;
        assert_eq!(one.as_ptr(), address);
        let other = one.clone();
        one.make_mut()[0] = 3;
        assert_eq!((&**one, &**other), (&[3][..], &[2][..]));
        let thread = std::thread::spawn(move || other[0]);
        assert_eq!(thread.join().ok(), Some(2));
        let address = one.as_ptr();
        one.make_mut()[0] = 4;
        assert_eq!(one.as_ptr(), address);
    }
}
