//! Prefetching.

/// The length of a cache line in bytes.
pub(crate) const LINE: usize = 64;

/// Fetches a cache line into the core's cache.
#[inline(always)]
pub(crate) fn prefetch(pointer: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint. It reads nothing that the program sees, and cannot fail for
        // any address.
        unsafe { _mm_prefetch(pointer.cast(), _MM_HINT_T0) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = pointer;
}

/// Fetches a cache line for writing: no other core keeps the line.
#[inline(always)]
pub(crate) fn prefetch_to_write(pointer: *const u8) {
    // Miri knows no assembly.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint for any address. A processor without this one ignores it. It
    // changes no register, no flag and no memory.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    prefetch(pointer);
}
