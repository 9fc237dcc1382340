//! What a worker and its driver demand of each other. The driver moves the bytes of the worker's
//! connections.

use crate::waker::Waker;
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::time::Duration;

pub use any::{AnyDriver, DriverKind};
pub use epoll::Epoll;
#[cfg(feature = "simulation")]
pub use memory::{Memory, Network, Peer};
pub use uring::Uring;

mod any;
mod epoll;
#[cfg(feature = "simulation")]
mod memory;
mod pages;
mod slots;
mod uring;

/// Names a connection to the driver. The worker chooses it. It has a slot and a generation. Slots
/// are small numbers with few gaps, since drivers use them as indices of a table. The generation
/// changes whenever the slot is used again, so a late completion cannot be taken for one of the
/// slot's next connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(u64);

impl Token {
    /// The token of no connection.
    pub const NONE: Self = Self((GENERATION_MASK as u64) << 32 | u32::MAX as u64);

    /// `generation` counts modulo 2^24: the driver uses the top byte of the word for itself.
    #[inline]
    pub fn new(slot: u32, generation: u32) -> Self {
        Self(u64::from(generation & GENERATION_MASK) << 32 | u64::from(slot))
    }

    #[inline]
    pub fn slot(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    pub(super) fn from_raw(raw: u64) -> Self {
        debug_assert!(raw >> 56 == 0, "token {raw:#x} uses the driver's byte");
        Self(raw)
    }

    #[inline]
    pub(super) fn raw(self) -> u64 {
        self.0
    }
}

/// What `wait` reports. In one batch a connection's `Sent` comes before its `Data`, and its `Data`
/// come in order. `Closed` is never in the same batch as `Data`, so the worker can still answer
/// what was read before the end.
#[derive(Debug)]
pub enum Event {
    /// Bytes arrived (at least one). They lie in the driver's memory and stay valid until the next
    /// `wait`. One batch may have several of these for a connection.
    Data { token: Token, bytes: ReceivedBytes },
    /// In direct mode: the socket has bytes, or its end, and the worker should receive them itself.
    Readable { token: Token },
    /// The peer sends nothing more (no error), or the socket failed. No events but `Sent` and
    /// `Writable` follow: a peer may have finished sending and still read. The worker must still
    /// call `remove`.
    Closed { token: Token, error: Option<Errno> },
    /// How much of an earlier `send` the kernel took. It may be fewer bytes than were offered, and
    /// 0 if the send would have blocked.
    Sent { token: Token, result: Result<usize, Errno> },
    /// The socket for which `notify_writable` was called has room again, or has failed; in that
    /// case the next send returns the error.
    Writable { token: Token },
    /// The answer to `detach`: the driver does not know the connection any more, and none of its
    /// bytes were lost.
    Detached { token: Token },
    /// A thread has used this worker's `Waker` since the last batch, once or more often.
    Woken,
}

/// Received bytes in a driver's memory. They have no lifetime; the driver's contract says how long
/// they stay.
pub struct ReceivedBytes {
    start: NonNull<u8>,
    len: usize,
}

impl ReceivedBytes {
    #[inline]
    pub(super) fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len }
    }

    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// The bytes of a vector that the driver does not change until the next `wait`. The vector may
    /// move.
    pub(super) fn lent(bytes: &mut Vec<u8>) -> Self {
        Self::new(NonNull::from(bytes.as_mut_slice()).cast(), bytes.len())
    }

    /// The bytes, for a lifetime that the caller chooses.
    ///
    /// # Safety
    /// While the slice is used, the driver that gave it is alive and neither its `wait` nor its
    /// `rest` is called, and no slice of `as_mut_slice` is used.
    #[inline]
    pub unsafe fn as_slice<'a>(&self) -> &'a [u8] {
        // SAFETY: drivers make `ReceivedBytes` of `len` initialised bytes at `start`. They leave
        // them alone until they wait, rest or are dropped, which the caller rules out. The caller
        // also rules out a mutable slice.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The bytes, to be changed in place (decryption). No two events of a batch share bytes.
    ///
    /// # Safety
    /// As for `as_slice`, and no other slice of these bytes may be in use.
    #[inline]
    pub unsafe fn as_mut_slice<'a>(&mut self) -> &'a mut [u8] {
        // SAFETY: as in `as_slice`. Drivers make `ReceivedBytes` of memory that may be written, and
        // of different bytes for each event, so the caller's slice is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for ReceivedBytes {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Bytes({})", self.len)
    }
}

/// The most parts of one `send_vectored` (the kernel's UIO_MAXIOV). More parts are not sent; the
/// event then reports a short send.
pub const PARTS_MAX: usize = 1024;

/// Moves the bytes of one worker's connections. It is made by the thread that uses it, and no other
/// thread uses it.
///
/// A connection is in one of three modes. *Data* (after `add`): received bytes come as
/// `Event::Data`. *Paused*: nothing is read. *Direct*: `Event::Readable` tells the worker to
/// receive by itself, straight into its own memory (see `receive_into`). So a large bulk is not
/// copied from the driver's buffers.
///
/// A batch is not changed after it was handed out. After `pause`, `direct` or `remove` the same
/// batch may still have events of that connection. The worker ignores them, which it can tell by
/// the generation, or keeps them.
pub trait Driver {
    /// `epoll` or `io_uring`, as in INFO.
    fn name(&self) -> &'static str;

    /// A handle with which any thread makes `wait` return with `Event::Woken`.
    fn waker(&self) -> Waker;

    /// Starts to read from the socket, which must be non-blocking. The driver does not own the
    /// socket and never closes it.
    ///
    /// # Safety
    /// The driver keeps and uses the socket's number. The socket must stay open until `remove` was
    /// called for the token, or `Detached` was reported for it, or the driver was dropped.
    unsafe fn add(&mut self, token: Token, socket: BorrowedFd<'_>) -> io::Result<()>;

    /// Stops everything for the token: no later batch has an event of it. The caller then closes
    /// the socket. If a send was queued and not reported yet, the driver may drop it.
    fn remove(&mut self, token: Token, socket: BorrowedFd<'_>);

    /// From the next batch on there is no Data and no Readable. Until `resume` it is not reported
    /// that the peer closed the connection; a failure of the connection is.
    fn pause(&mut self, token: Token, socket: BorrowedFd<'_>);

    /// Returns from Paused or Direct to Data. Bytes that arrived in between come first.
    fn resume(&mut self, token: Token, socket: BorrowedFd<'_>);

    /// Starts direct mode: every batch has a `Readable` as long as the socket has something. Data
    /// that the driver has already received comes before the first `Readable`. If the driver has
    /// received the end, `Closed` comes too.
    fn direct(&mut self, token: Token, socket: BorrowedFd<'_>);

    /// Asks for the connection back, to give it to another driver. Data that the driver has
    /// received still comes, even if the connection was paused. Then comes `Closed` or `Detached`;
    /// from `Detached` on the token counts as removed. Until then `pause`, `resume` and `direct` do
    /// nothing. `remove` would not do: bytes received until the next `wait` would be lost.
    fn detach(&mut self, token: Token, socket: BorrowedFd<'_>);

    /// Sends without blocking, either now or at the start of the next `wait`. A connection may have
    /// one send in each turn. The batch of the next `wait` has its `Event::Sent`.
    ///
    /// `wait` does not sleep if a send was short or failed. It may sleep if all sends went out
    /// whole. A caller that must act on a whole send (such as to close after the last reply) calls
    /// `wait` with a timeout of zero.
    ///
    /// # Safety
    /// `len` initialised bytes lie at `bytes`. They stay in place, unchanged, until the next `wait`
    /// has returned without an error or the driver was dropped.
    unsafe fn send(&mut self, token: Token, socket: BorrowedFd<'_>, bytes: *const u8, len: usize);

    /// Sends several parts as one, at most `PARTS_MAX` of them. The list of parts is copied.
    ///
    /// # Safety
    /// The requirements of `send` hold for the bytes of every part.
    unsafe fn send_vectored(&mut self, token: Token, socket: BorrowedFd<'_>, parts: &[IoSlice<'_>]);

    /// Asks for one `Event::Writable` when the socket has room.
    fn notify_writable(&mut self, token: Token, socket: BorrowedFd<'_>);

    /// Sends what is queued, sleeps until there is an event or the time is over (`None` for no
    /// limit, zero for no sleep), and replaces `events` with the new batch. It may return early
    /// without an event.
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()>;

    /// Gives memory back if much was received in it. No slice of received bytes may be in use.
    /// Callers call it when the last batch was empty.
    fn rest(&mut self);
}

/// `rest` gives memory back if at least this many bytes were received. For fewer, the system call
/// is not worthwhile.
pub(super) const REST_MIN: usize = 64 << 10;

const GENERATION_MASK: u32 = 0x00ff_ffff;

#[cfg(test)]
mod tests;
