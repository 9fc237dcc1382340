//! A box whose pointer may lie at any address.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::defrag::Defragmenter;

/// Like `Box`, for a collection in its entry (see `SLOT`).
#[repr(Rust, packed)]
#[derive(Default)]
pub struct UnalignedBox<T>(Box<T>);

impl<T> UnalignedBox<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Box::new(value))
    }
}

impl<T: Default> UnalignedBox<T> {
    /// Moves the value out of sparsely used memory.
    pub(super) fn defragment(&mut self, defragmenter: &mut Defragmenter<'_>) {
        if defragmenter.wants(NonNull::from(&**self).cast()) {
            *self = Self::new(std::mem::take(&mut **self));
        }
    }
}

#[expect(clippy::explicit_auto_deref, reason = "the box cannot be borrowed where it lies")]
impl<T> Deref for UnalignedBox<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &*self.0
    }
}

#[expect(clippy::explicit_auto_deref, reason = "the box cannot be borrowed where it lies")]
impl<T> DerefMut for UnalignedBox<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut *self.0
    }
}

impl<T: Clone> Clone for UnalignedBox<T> {
    fn clone(&self) -> Self {
        Self::new((**self).clone())
    }
}
