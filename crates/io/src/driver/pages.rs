//! Memory straight from the kernel: zeroed, page-aligned, resident only where touched.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ptr::NonNull;

/// A private mapping, unmapped on drop. Handed out by raw pointer only, so that several parts of it
/// can be in use at a time, by the kernel too.
pub(super) struct Pages {
    start: NonNull<u8>,
    len: usize,
}

impl Pages {
    pub(super) fn new(len: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, MapFlags::PRIVATE)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// The address of byte `offset`, from which on `len` bytes lie in the mapping.
    #[inline]
    pub(super) fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(offset <= self.len && len <= self.len - offset, "{offset}+{len} > {}", self.len);
        // SAFETY: checked to be within the mapping.
        unsafe { self.start.add(offset) }
    }

    /// Gives the memory of these whole pages back to the system; they read as zero when touched
    /// again.
    pub(super) fn release(&self, offset: usize, len: usize) {
        let start = self.at(offset, len);
        // SAFETY: within the mapping; the owner knows that nobody uses these bytes. On failure they
        // stay.
        let _ = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxDontNeed) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and whole; users of its pointers are bound to the owner's
        // lifetime.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}
