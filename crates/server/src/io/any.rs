//! The driver a worker holds: either of the two, chosen at start, called without a virtual table.

use super::{Driver, Epoll, Event, Token, Waker};
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::time::Duration;

pub enum AnyDriver {
    Epoll(Epoll),
}

impl AnyDriver {
    pub fn epoll() -> io::Result<Self> {
        Epoll::new().map(Self::Epoll)
    }
}

/// Calls the same method of whichever driver it is.
macro_rules! either {
    ($any:expr, $driver:ident => $call:expr) => {
        match $any {
            AnyDriver::Epoll($driver) => $call,
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
        // SAFETY: the caller's promise is passed on.
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

    #[inline]
    unsafe fn send(&mut self, token: Token, socket: BorrowedFd<'_>, bytes: *const u8, len: usize) {
        // SAFETY: the caller's promise is passed on.
        either!(self, driver => unsafe { driver.send(token, socket, bytes, len) });
    }

    #[inline]
    unsafe fn send_vectored(
        &mut self,
        token: Token,
        socket: BorrowedFd<'_>,
        parts: &[IoSlice<'_>],
    ) {
        // SAFETY: the caller's promise is passed on.
        either!(self, driver => unsafe { driver.send_vectored(token, socket, parts) });
    }

    fn notify_writable(&mut self, token: Token, socket: BorrowedFd<'_>) {
        either!(self, driver => driver.notify_writable(token, socket));
    }

    #[inline]
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        either!(self, driver => driver.wait(timeout, events))
    }
}
