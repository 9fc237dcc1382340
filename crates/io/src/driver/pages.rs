//! Memory straight from the kernel: zeroed, page-aligned, resident only where touched.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ptr::NonNull;

/// A private mapping, unmapped on drop. Handed out by raw pointer only, so that several parts of it
/// can be in use at a time, by the kernel too.
///
/// *Mapped*: from `start` on lie `len` bytes of whole pages that may be read and written, and
/// belong to this value alone. All are initialised: those that were never written are zero.
pub(super) struct Pages {
    start: NonNull<u8>,
    len: usize,
}

impl Pages {
    pub(super) fn new(len: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address where nothing is mapped.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, MapFlags::PRIVATE)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// The address of byte `offset`, from which on `len` bytes lie in the mapping.
    #[inline]
    pub(super) fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(offset <= self.len && len <= self.len - offset, "{offset}+{len} > {}", self.len);
        // SAFETY: *mapped*: the offset was checked to be within it, or at its end.
        unsafe { self.start.add(offset) }
    }

    /// Gives the memory of these whole pages back to the system; they read as zero when touched
    /// again.
    ///
    /// # Safety
    /// Nothing uses these bytes at this moment: there is no slice of them.
    pub(super) unsafe fn release(&self, offset: usize, len: usize) {
        let start = self.at(offset, len);
        // SAFETY: *mapped*: the bytes were checked to be within it, and the caller rules out that
        // they change under a slice. If it fails they stay as they are.
        let _ = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxDontNeed) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: *mapped*: all of it is ours. The code that hands its pointers out asks that they
        // are not used after the owner is gone (`Bytes::as_slice`, `Buffers::new`).
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}
