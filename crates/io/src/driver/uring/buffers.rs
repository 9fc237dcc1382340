//! The receive buffers of one ring. The kernel takes one whenever bytes arrive on any connection,
//! so a connection without traffic has none.
//!
//! Only some of the buffers, the window, are offered at a time. The kernel takes them in turn, so
//! the fewer there are, the more likely they are still in the cache. The window doubles whenever
//! all its buffers were taken. If it was too wide for long, it halves, and memory is given back.

use crate::driver::pages::Pages;
use crate::driver::{REST_MIN, ReceivedBytes};
use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

pub(super) struct ProvidedBuffers {
    memory: Pages,
    /// The ring shared with the kernel. It has `COUNT_MAX` entries; its tail is stored in the
    /// unused field of the first entry.
    ring: Pages,
    tail: u16,
    /// Buffers that were handed out since the last `recycle`.
    used: Vec<u16>,
    /// Buffers that are neither offered nor used. They have no memory.
    parked: Vec<u16>,
    /// How many buffers are not parked.
    window: usize,
    /// For how many turns in a row half of the window would have been enough.
    narrow_turns: u32,
    /// Bytes received since memory was last given back.
    received: usize,
}

impl ProvidedBuffers {
    /// Registers the buffers with `ring`, as group `GROUP`.
    ///
    /// # Safety
    /// `ring` is dropped before the result: until then the kernel reads the entries and writes into
    /// the buffers.
    pub(super) unsafe fn new(ring: &IoUring) -> io::Result<Self> {
        let mut buffers = Self {
            memory: Pages::new(usize::from(COUNT_MAX) * BUFFER_LEN)?,
            ring: Pages::new(usize::from(COUNT_MAX) * size_of::<BufRingEntry>())?,
            tail: 0,
            used: Vec::with_capacity(usize::from(COUNT_MAX)),
            parked: (0..COUNT_MAX).rev().collect(),
            window: WINDOW_START,
            narrow_turns: 0,
            received: 0,
        };
        let address = buffers.entry(0).as_ptr() as u64;
        // SAFETY: the mapping has room for `COUNT_MAX` entries and begins at a page. It lives as
        // long as the result, which the caller keeps longer than the ring. The kernel reads no
        // entry before `publish`.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(address, COUNT_MAX, GROUP, 0)?;
        }
        buffers.fill();
        Ok(buffers)
    }

    /// The first `len` bytes of the buffer that a completion named. They stay until the next
    /// `recycle`.
    pub(super) fn take(&mut self, buffer: u16, len: usize) -> ReceivedBytes {
        self.used.push(buffer);
        self.received += len;
        assert!(len <= BUFFER_LEN, "{len} bytes in a buffer");
        ReceivedBytes::new(self.memory.at(usize::from(buffer) * BUFFER_LEN, len), len)
    }

    /// Gives the used buffers back to the kernel, at the end of their turn.
    #[inline]
    pub(super) fn recycle(&mut self) {
        if self.used.is_empty() {
            return;
        }
        self.narrow_when_possible();
        let mut used = std::mem::take(&mut self.used);
        let mut surplus = usize::from(COUNT_MAX) - self.parked.len() - self.window;
        for buffer in used.drain(..) {
            if surplus > 0 {
                surplus -= 1;
                self.park(buffer);
            } else {
                self.offer(buffer);
            }
        }
        self.used = used;
        self.publish();
    }

    /// Doubles the number of offered buffers, if there are enough.
    pub(super) fn grow(&mut self) {
        self.narrow_turns = 0;
        self.window = (self.window * 2).min(usize::from(COUNT_MAX));
        self.fill();
    }

    /// Gives all memory back if much was used. The kernel must not write into it before the next
    /// system call that receives.
    pub(super) fn rest(&mut self) {
        if self.received >= REST_MIN && self.used.is_empty() {
            self.received = 0;
            // SAFETY: no buffer was handed out since the last `recycle`, so there is no slice of
            // one.
            unsafe { self.memory.release(0, usize::from(COUNT_MAX) * BUFFER_LEN) };
        }
    }

    /// How many receives can be started in one turn so that each probably finds a buffer.
    pub(super) fn window(&self) -> usize {
        self.window
    }

    fn narrow_when_possible(&mut self) {
        if self.used.len() > self.window / 2 || self.window == WINDOW_START {
            self.narrow_turns = 0;
            return;
        }
        self.narrow_turns += 1;
        if self.narrow_turns >= NARROW_TURNS {
            self.narrow_turns = 0;
            self.window /= 2;
        }
    }

    fn fill(&mut self) {
        while usize::from(COUNT_MAX) - self.parked.len() < self.window
            && let Some(buffer) = self.parked.pop()
        {
            self.offer(buffer);
        }
        self.publish();
    }

    fn park(&mut self, buffer: u16) {
        // SAFETY: the buffer comes from `recycle`, at the start of a `wait`, from which on no
        // slices are used. The kernel does not have the buffer any more, since it was used.
        unsafe { self.memory.release(usize::from(buffer) * BUFFER_LEN, BUFFER_LEN) };
        self.parked.push(buffer);
    }

    fn offer(&mut self, buffer: u16) {
        let start = self.memory.at(usize::from(buffer) * BUFFER_LEN, BUFFER_LEN);
        let mut entry = self.entry(self.tail % COUNT_MAX);
        // SAFETY: `entry` has checked that the entry lies in the mapping, and zeros are a valid
        // entry. The kernel does not read the entry now. At most `COUNT_MAX` buffers exist, so it
        // does not need the old content any more, and before `publish` the tail is not past the new
        // content.
        let entry = unsafe { entry.as_mut() };
        entry.set_addr(start.as_ptr() as u64);
        entry.set_len(BUFFER_LEN as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&self) {
        // SAFETY: the tail is a field of the first entry, so it lies in the mapping and is aligned
        // to two bytes. `offer` writes other fields of that entry, and the kernel only reads the
        // tail.
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
/// The most bytes that one receive can bring.
const BUFFER_LEN: usize = 16 << 10;
/// 8 MiB of addresses, of which only what was touched is resident. The kernel demands a power of
/// two.
const COUNT_MAX: u16 = 512;
const WINDOW_START: usize = 64;
/// After this many turns that were too narrow the window halves. Only turns that received something
/// count, so sleeping does not halve it.
const NARROW_TURNS: u32 = 1000;
const _: () = assert!(COUNT_MAX.is_power_of_two() && WINDOW_START <= COUNT_MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_follows_the_load() {
        // If io_uring is forbidden here, nothing uses this code.
        let Ok(ring) = IoUring::new(8) else { return };
        // SAFETY: both are local variables, and `buffers` is declared after the ring.
        let Ok(mut buffers) = (unsafe { ProvidedBuffers::new(&ring) }) else { return };
        let used = |buffers: &mut ProvidedBuffers, count: u16| {
            // Does as if the kernel had taken the oldest buffers that were offered.
            let first = buffers.tail.wrapping_sub(buffers.offered());
            for index in 0..count {
                // SAFETY: this entry was offered.
                let entry =
                    unsafe { buffers.entry(first.wrapping_add(index) % COUNT_MAX).as_ref() };
                buffers.take(entry.bid(), 1);
            }
        };
        assert_eq!((buffers.window(), buffers.offered()), (64, 64));
        (0..5).for_each(|_| buffers.grow());
        assert_eq!((buffers.window(), buffers.offered()), (512, 512));
        for _ in 0..20 * NARROW_TURNS {
            used(&mut buffers, 3);
            buffers.recycle();
        }
        assert_eq!((buffers.window(), buffers.offered()), (64, 64));
        assert_eq!(buffers.parked.len(), 512 - 64);
        buffers.grow();
        assert_eq!((buffers.window(), buffers.offered()), (128, 128));
        drop(ring);
    }

    impl ProvidedBuffers {
        fn offered(&self) -> u16 {
            COUNT_MAX - (self.parked.len() + self.used.len()) as u16
        }
    }
}
