//! Receives straight into the memory of a connection, for bulks that are too large to be copied
//! from a driver's buffers.

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::os::fd::{AsRawFd, BorrowedFd};

/// What one `receive_into` brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// This many bytes were appended (at least one).
    Bytes(usize),
    /// There is nothing now: wait for the next `Event::Readable`.
    WouldBlock,
    /// The peer closed its side.
    End,
}

/// Receives once. It appends to `buffer` as many of its `missing` bytes as `len_max` permits. If
/// the buffer then has all of them, a few of the bytes behind them are appended to `behind`.
pub fn receive_split(
    socket: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    missing: usize,
    len_max: usize,
    behind: &mut Vec<u8>,
) -> Result<Received, Errno> {
    let wanted = missing.min(len_max);
    buffer.reserve(wanted);
    let mut rest = [0u8; BEHIND_LEN];
    let mut parts = [
        libc::iovec { iov_base: buffer.spare_capacity_mut().as_mut_ptr().cast(), iov_len: wanted },
        libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() },
    ];
    // SAFETY: a header may be all zeros: its pointers may be null, and its other fields are
    // numbers. Zeros mean that there is no address, no control data and no part.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = parts.as_mut_ptr();
    header.msg_iovlen = if wanted == missing { 2 } else { 1 };
    let received = loop {
        // SAFETY: the header and its parts live until the call has returned. Each part is memory of
        // its length that this function may write: `rest`, and the room that was reserved in
        // `buffer`.
        let received =
            unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_DONTWAIT) };
        match usize::try_from(received) {
            Ok(received) => break received,
            Err(_) => match Errno::from_io_error(&std::io::Error::last_os_error()) {
                Some(Errno::INTR) => {}
                Some(Errno::AGAIN) => return Ok(Received::WouldBlock),
                error => return Err(error.unwrap_or(Errno::IO)),
            },
        }
    };
    let filled = buffer.len() + received.min(wanted);
    // SAFETY: the kernel fills the parts in order and returns how many bytes it wrote. So the bytes
    // from the old length up to `filled` are initialised. At most `wanted` are counted, and those
    // were reserved.
    unsafe { buffer.set_len(filled) };
    behind.extend_from_slice(&rest[..received.saturating_sub(wanted)]);
    Ok(if received == 0 { Received::End } else { Received::Bytes(received) })
}

/// The most bytes to receive behind a large argument. Mostly they are the end of its command.
const BEHIND_LEN: usize = 512;

/// Receives once and appends at most `len_max` bytes to `buffer`. If the buffer already has room
/// for `len_max`, nothing is reserved. So a bulk of known length is reserved once, and then filled
/// with as few calls as the socket permits.
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
                // SAFETY: `recv` returns the part of the room that it has initialised. That part
                // begins at the old length, so it lies within the capacity.
                unsafe { buffer.set_len(filled) };
                return Ok(if len == 0 { Received::End } else { Received::Bytes(len) });
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Received::WouldBlock),
            Err(error) => return Err(error),
        }
    }
}
