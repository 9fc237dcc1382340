//! Memory straight from the kernel: zeroed, page-aligned, and resident only where it was touched.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ptr::NonNull;

/// A private mapping, unmapped on drop. It is handed out only by raw pointer, so that several parts
/// of it can be in use at the same time, also by the kernel.
///
/// *Mapped*: at `start` lie `len` bytes of whole pages that may be read and written, and that
/// belong to this value alone. All are initialised: those that were never written are zero.
pub(super) struct Pages {
    start: NonNull<u8>,
    len: usize,
}

impl Pages {
    pub(super) fn new(len: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address at which nothing is mapped.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, MapFlags::PRIVATE)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// The address of byte `offset`. The `len` bytes from there on lie in the mapping.
    #[inline]
    pub(super) fn at(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(offset <= self.len && len <= self.len - offset, "{offset}+{len} > {}", self.len);
        // SAFETY: *mapped*: the check above ensures that the offset is within the mapping or at its
        // end.
        unsafe { self.start.add(offset) }
    }

    /// Gives the memory of these whole pages back to the system. When they are touched again they
    /// read as zero.
    ///
    /// # Safety
    /// No slice of these bytes exists, and nothing else uses them at this moment.
    pub(super) unsafe fn release(&self, offset: usize, len: usize) {
        let start = self.at(offset, len);
        // SAFETY: *mapped*: `at` has checked that the bytes lie within the mapping, and the caller
        // ensures that no slice sees them change. If the call fails, they stay unchanged.
        let _ = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxDontNeed) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: *mapped*: all of it belongs to this value. The code that hands its pointers out
        // demands that they are not used after the owner is dropped (`Bytes::as_slice`,
        // `Buffers::new`).
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}
