//! The driver that a worker has: one of the two, chosen at the start. Calls need no virtual table.

use super::{Driver, Epoll, Event, Token, Uring, Waker, uring};
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::time::Duration;

#[expect(clippy::large_enum_variant, reason = "a worker has one, for its whole life")]
pub enum AnyDriver {
    Epoll(Epoll),
    Uring(Uring),
    #[cfg(feature = "simulation")]
    Memory(super::Memory),
}

/// Which driver to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DriverKind {
    Epoll,
    Uring,
}

impl DriverKind {
    /// The better driver that works here. If that is not io_uring, also why io_uring does not work.
    pub fn best() -> (Self, Option<io::Error>) {
        match Self::Uring.check() {
            Ok(()) => (Self::Uring, None),
            Err(error) => (Self::Epoll, Some(error)),
        }
    }

    /// Tries real operations, for about a millisecond, to learn whether the driver works here.
    pub fn check(self) -> io::Result<()> {
        match self {
            Self::Epoll => Epoll::new().map(drop),
            Self::Uring => uring::probe(),
        }
    }

    /// The name that the option `io-driver` and INFO use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::Uring => "io_uring",
        }
    }
}

impl AnyDriver {
    /// A driver for the calling thread. No other thread may use it.
    pub fn new(kind: DriverKind) -> io::Result<Self> {
        match kind {
            DriverKind::Epoll => Epoll::new().map(Self::Epoll),
            DriverKind::Uring => Uring::new().map(Self::Uring),
        }
    }
}

/// Calls the same method of the driver, whichever it is.
macro_rules! either {
    ($any:expr, $driver:ident => $call:expr) => {
        match $any {
            AnyDriver::Epoll($driver) => $call,
            AnyDriver::Uring($driver) => $call,
            #[cfg(feature = "simulation")]
            AnyDriver::Memory($driver) => $call,
        }
    };
}

impl Driver for AnyDriver {
    fn name(&self) -> &'static str {
        either!(self, driver => driver.name())
    }

    fn waker(&self) -> Waker {
        either!(self, driver => driver.waker())
    }

    unsafe fn add(&mut self, token: Token, socket: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: the caller keeps the socket open for as long as the trait demands, whichever
        // driver this is.
        either!(self, driver => unsafe { driver.add(token, socket) })
    }

    fn remove(&mut self, token: Token, socket: BorrowedFd<'_>) {
        either!(self, driver => driver.remove(token, socket));
    }

    fn pause(&mut self, token: Token, socket: BorrowedFd<'_>) {
        either!(self, driver => driver.pause(token, socket));
    }

    fn resume(&mut self, token: Token, socket: BorrowedFd<'_>) {
        either!(self, driver => driver.resume(token, socket));
    }

    fn direct(&mut self, token: Token, socket: BorrowedFd<'_>) {
        either!(self, driver => driver.direct(token, socket));
    }

    fn detach(&mut self, token: Token, socket: BorrowedFd<'_>) {
        either!(self, driver => driver.detach(token, socket));
    }

    #[inline]
    unsafe fn send(&mut self, token: Token, socket: BorrowedFd<'_>, bytes: *const u8, len: usize) {
        // SAFETY: the caller keeps the bytes for as long as the trait demands, whichever driver
        // this is.
        either!(self, driver => unsafe { driver.send(token, socket, bytes, len) });
    }

    #[inline]
    unsafe fn send_vectored(
        &mut self,
        token: Token,
        socket: BorrowedFd<'_>,
        parts: &[IoSlice<'_>],
    ) {
        // SAFETY: the caller keeps the parts' bytes for as long as the trait demands, whichever
        // driver this is.
        either!(self, driver => unsafe { driver.send_vectored(token, socket, parts) });
    }

    fn notify_writable(&mut self, token: Token, socket: BorrowedFd<'_>) {
        either!(self, driver => driver.notify_writable(token, socket));
    }

    #[inline]
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        either!(self, driver => driver.wait(timeout, events))
    }

    fn rest(&mut self) {
        either!(self, driver => driver.rest());
    }
}
