//! The contract between a worker and the driver that moves its connections' bytes.

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

/// Names a connection to the driver. The worker chooses it: a slot (small and dense, drivers index
/// a table by it) and a generation that changes whenever the slot is used again, so that a late
/// completion cannot meet a newcomer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(u64);

impl Token {
    /// Names no connection.
    pub const NONE: Self = Self((GENERATION_MASK as u64) << 32 | u32::MAX as u64);

    /// `generation` counts modulo 2^24: the top byte of the word is the driver's own.
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

/// What `wait` tells. Within one batch a connection's `Sent` comes before its `Data`, its `Data`
/// come in order, and `Closed` never shares a batch with `Data`: what was read before the end can
/// still be answered.
#[derive(Debug)]
pub enum Event {
    /// Bytes arrived (at least one). They lie in the driver's memory and stay valid until the next
    /// `wait`. A connection may have several in one batch.
    Data { token: Token, bytes: Bytes },
    /// In direct mode: the socket has bytes, or its end, to be received by the worker itself.
    Readable { token: Token },
    /// The peer closed its side (no error), or the socket failed. No further event comes except
    /// `Sent`; the worker must still call `remove`.
    Closed { token: Token, error: Option<Errno> },
    /// What the kernel took of an earlier `send`: perhaps fewer bytes than offered, 0 when it would
    /// block.
    Sent { token: Token, result: Result<usize, Errno> },
    /// The socket that `notify_writable` was asked for has room again, or failed (then the next
    /// send says how).
    Writable { token: Token },
    /// The answer to `detach`: the driver has forgotten the connection, and nothing of it was lost.
    Detached { token: Token },
    /// A thread called this worker's `Waker` since the last batch, once or more often.
    Woken,
}

/// Received bytes in a driver's memory, without a lifetime: the contract says how long they stay.
pub struct Bytes {
    start: NonNull<u8>,
    len: usize,
}

impl Bytes {
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

    /// Bytes of a vector, which the driver keeps as it is until the next `wait`. It may move.
    pub(super) fn lent(bytes: &mut Vec<u8>) -> Self {
        Self::new(NonNull::from(bytes.as_mut_slice()).cast(), bytes.len())
    }

    /// The bytes, for a lifetime of the caller's choosing.
    ///
    /// # Safety
    /// As long as the slice is used, the driver that gave them lives, and neither its `wait` nor
    /// its `rest` is called; nor is a slice of `as_mut_slice` used at the same time.
    #[inline]
    pub unsafe fn as_slice<'a>(&self) -> &'a [u8] {
        // SAFETY: drivers make `Bytes` of `len` initialised bytes at `start`, and leave them alone
        // until they wait, rest or go, which the caller rules out, as it does a slice for changing.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The bytes for change in place (decryption). No two events of a batch share bytes.
    ///
    /// # Safety
    /// As for `as_slice`, and no other slice of these bytes may be in use.
    #[inline]
    pub unsafe fn as_mut_slice<'a>(&mut self) -> &'a mut [u8] {
        // SAFETY: as in `as_slice`. Drivers make `Bytes` of memory that may be written, and of
        // other bytes for each event, so the caller's is the only slice.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Bytes({})", self.len)
    }
}

/// Most parts of one `send_vectored` (the kernel's UIO_MAXIOV). More are not sent: a short send
/// says so.
pub const PARTS_MAX: usize = 1024;

/// Moves the bytes of one worker's connections. Made on the thread that uses it, and used by that
/// thread alone.
///
/// A connection is in one of three modes. *Data* (after `add`): what arrives comes as
/// `Event::Data`. *Paused*: nothing is read. *Direct*: `Event::Readable` says that the worker may
/// receive by itself, straight into memory of its own (see `receive_into`), which spares a large
/// bulk the way through the driver's buffers.
///
/// A batch that was handed out is not recalled: after `pause`, `direct` or `remove`, events of that
/// connection may still follow in the same batch, and the worker passes over them (by the
/// generation) or keeps them.
pub trait Driver {
    /// `epoll` or `io_uring`, as INFO shows it.
    fn name(&self) -> &'static str;

    /// A handle by which any thread makes `wait` return with `Event::Woken`.
    fn waker(&self) -> Waker;

    /// Starts reading from the socket, which must be non-blocking. The driver never owns or closes
    /// it.
    ///
    /// # Safety
    /// The driver keeps the socket's number and uses it: the socket stays open until `remove` was
    /// called for the token, `Detached` was told of it, or the driver was dropped.
    unsafe fn add(&mut self, token: Token, socket: BorrowedFd<'_>) -> io::Result<()>;

    /// Stops everything of the token: no later batch holds an event of it. The caller then closes
    /// the socket. A send that was queued and not yet reported may be dropped.
    fn remove(&mut self, token: Token, socket: BorrowedFd<'_>);

    /// No Data and no Readable from the next batch on. That the peer closed is then not told before
    /// `resume` (that the connection broke is).
    fn pause(&mut self, token: Token, socket: BorrowedFd<'_>);

    /// Back to Data, from Paused or Direct. What had arrived in between comes first.
    fn resume(&mut self, token: Token, socket: BorrowedFd<'_>);

    /// Direct mode: every batch holds a `Readable` as long as the socket has something. Data that
    /// the driver had already received still comes, and comes before the first `Readable`; if that
    /// was the end, so does `Closed`.
    fn direct(&mut self, token: Token, socket: BorrowedFd<'_>);

    /// Asks for the connection back, to give it to another driver. What the driver had received
    /// still comes as Data, also if the connection was paused; then comes `Detached` (from then on
    /// the token is gone, as if removed), or `Closed`. (`remove` will not do: bytes received until
    /// the next `wait` are lost with it.)
    fn detach(&mut self, token: Token, socket: BorrowedFd<'_>);

    /// Sends without blocking, now or at the start of the next `wait`. One send per connection and
    /// turn. The batch of the next `wait` holds its `Event::Sent`.
    ///
    /// `wait` does not sleep over a short or failed send, but it does when all went out whole: a
    /// caller that must act on a whole send (close after the last reply) calls `wait` with a zero
    /// timeout.
    ///
    /// # Safety
    /// From `bytes` on lie `len` initialised bytes. They stay in place, unchanged, until the next
    /// `wait` has returned without an error, or the driver was dropped.
    unsafe fn send(&mut self, token: Token, socket: BorrowedFd<'_>, bytes: *const u8, len: usize);

    /// Sends several parts as one, at most `PARTS_MAX` of them. The list itself is copied.
    ///
    /// # Safety
    /// As for `send`, for the bytes of every part.
    unsafe fn send_vectored(&mut self, token: Token, socket: BorrowedFd<'_>, parts: &[IoSlice<'_>]);

    /// Asks for one `Event::Writable` once the socket has room.
    fn notify_writable(&mut self, token: Token, socket: BorrowedFd<'_>);

    /// Sends what is queued, sleeps until there is an event or the time is over (`None`: no limit,
    /// zero: no sleep), and replaces `events` by the new batch. May return early with none.
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()>;

    /// Gives memory back in which much was received, so no slice of received bytes may be in use.
    /// To be called when the last batch was empty.
    fn rest(&mut self);
}

/// Received bytes from which on `rest` gives memory back: for less it is not worth a system call.
pub(super) const REST_MIN: usize = 64 << 10;

const GENERATION_MASK: u32 = 0x00ff_ffff;

#[cfg(test)]
mod tests;
