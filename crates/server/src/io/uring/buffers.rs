//! The receive buffers of one ring: the kernel takes one whenever bytes arrive on any connection, so a connection
//! without traffic owns none.
//!
//! Only a window of the buffers is offered at a time. The kernel takes them in turn, so the fewer there are, the
//! warmer they stay; the window doubles whenever it ran out.

use crate::io::Bytes;
use crate::io::pages::Pages;
use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

pub(super) struct Buffers {
    memory: Pages,
    /// The ring shared with the kernel: `COUNT_MAX` entries, whose tail lies in the spare field of the first.
    ring: Pages,
    tail: u16,
    /// Handed out since the last `recycle`.
    used: Vec<u16>,
    /// Buffers `0..window` are the kernel's or in `used`; those above were never offered.
    window: u16,
}

impl Buffers {
    /// Registers the buffers with `ring`, as group `GROUP`.
    ///
    /// # Safety
    /// `ring` must be dropped before the result is.
    pub(super) unsafe fn new(ring: &IoUring) -> io::Result<Self> {
        let mut buffers = Self {
            memory: Pages::new(usize::from(COUNT_MAX) * BUFFER_LEN)?,
            ring: Pages::new(usize::from(COUNT_MAX) * size_of::<BufRingEntry>())?,
            tail: 0,
            used: Vec::with_capacity(usize::from(COUNT_MAX)),
            window: 0,
        };
        let address = buffers.entry(0).as_ptr() as u64;
        // SAFETY: the mapping holds `COUNT_MAX` entries, is page-aligned, and outlives the ring by the
        // caller's promise.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(address, COUNT_MAX, GROUP, 0)?;
        }
        buffers.widen(WINDOW_START);
        Ok(buffers)
    }

    /// The first `len` bytes of a buffer that a completion named. They stay until the next `recycle`.
    pub(super) fn take(&mut self, buffer: u16, len: usize) -> Bytes {
        self.used.push(buffer);
        assert!(len <= BUFFER_LEN, "{len} bytes in a buffer");
        Bytes::new(self.memory.at(usize::from(buffer) * BUFFER_LEN, len), len)
    }

    /// Gives all used buffers back to the kernel.
    pub(super) fn recycle(&mut self) {
        if self.used.is_empty() {
            return;
        }
        let mut used = std::mem::take(&mut self.used);
        for buffer in used.drain(..) {
            self.offer(buffer);
        }
        self.used = used;
        self.publish();
    }

    /// Offers as many buffers again, if there are.
    pub(super) fn grow(&mut self) {
        self.widen(self.window.saturating_mul(2).min(COUNT_MAX));
    }

    /// How many receives may be started in one turn with a fair chance to find a buffer.
    pub(super) fn window(&self) -> usize {
        usize::from(self.window)
    }

    fn widen(&mut self, window: u16) {
        for buffer in self.window..window {
            self.offer(buffer);
        }
        self.window = window;
        self.publish();
    }

    fn offer(&mut self, buffer: u16) {
        let start = self.memory.at(usize::from(buffer) * BUFFER_LEN, BUFFER_LEN);
        let mut entry = self.entry(self.tail % COUNT_MAX);
        // SAFETY: the entry is in the mapping, and the kernel reads it only once the tail is past it. At most
        // `COUNT_MAX` buffers exist, so it has read the entry's last content.
        let entry = unsafe { entry.as_mut() };
        entry.set_addr(start.as_ptr() as u64);
        entry.set_len(BUFFER_LEN as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&self) {
        // SAFETY: the first entry is in the mapping, its spare field is the tail, aligned to two bytes, and
        // the kernel only reads it.
        let tail =
            unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entry(0).as_ptr()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    fn entry(&self, index: u16) -> NonNull<BufRingEntry> {
        let len = size_of::<BufRingEntry>();
        self.ring.at(usize::from(index) * len, len).cast()
    }
}

/// The ring's only buffer group.
pub(super) const GROUP: u16 = 0;
/// As much as one receive can bring.
const BUFFER_LEN: usize = 16 << 10;
/// 8 MiB of addresses; resident is what was touched. A power of two, as the kernel demands.
const COUNT_MAX: u16 = 512;
const WINDOW_START: u16 = 64;
const _: () = assert!(COUNT_MAX.is_power_of_two() && WINDOW_START <= COUNT_MAX);
