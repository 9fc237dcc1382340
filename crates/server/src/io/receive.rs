//! Receiving straight into the memory of a connection, for bulks too large for the way through a driver.

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::os::fd::BorrowedFd;

/// What one `receive_into` brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// So many bytes were appended (at least one).
    Bytes(usize),
    /// Nothing there now: wait for the next `Event::Readable`.
    WouldBlock,
    /// The peer closed its side.
    End,
}

/// Receives once, appending to `buffer`, at most `len_max` bytes. Reserves nothing when the buffer has room for
/// `len_max` already, so a bulk of known length is reserved once and filled by as few calls as the socket allows.
pub fn receive_into(
    socket: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    len_max: usize,
) -> Result<Received, Errno> {
    debug_assert!(len_max > 0);
    buffer.reserve(len_max);
    let spare = &mut buffer.spare_capacity_mut()[..len_max];
    loop {
        match recv(socket, &mut *spare, RecvFlags::DONTWAIT) {
            Ok(((initialised, _), _)) => {
                let len = initialised.len();
                let filled = buffer.len() + len;
                // SAFETY: the kernel wrote `len` bytes from the old length on, within the capacity.
                unsafe { buffer.set_len(filled) };
                return Ok(if len == 0 { Received::End } else { Received::Bytes(len) });
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Received::WouldBlock),
            Err(error) => return Err(error),
        }
    }
}
