//! Wakes a sleeping driver from another thread, with an eventfd.

use bobbin_sync::inbox::Bell;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Makes one driver's `wait` return. Clones wake the same driver. To wake a driver that was dropped
/// does nothing.
///
/// The drivers watch the eventfd edge-triggered: each write is an edge. So its counter is never
/// read, and a wake costs the woken thread no system call of its own.
#[derive(Clone, Debug)]
pub struct Waker {
    event: Arc<OwnedFd>,
}

impl Waker {
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event: Arc::new(event) })
    }

    /// Wakes the driver: its current or next `wait` returns with `Event::Woken`.
    pub fn wake(&self) {
        // The write can fail only when the counter is full, after 2^64 wakes.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}

impl Bell for Waker {
    fn ring(&self) {
        self.wake();
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
