//! Receiving straight into the memory of a connection, for bulks too large for the way through a
//! driver.

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::os::fd::{AsRawFd, BorrowedFd};

/// What one `receive_into` brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// This many bytes were appended (at least one).
    Bytes(usize),
    /// Nothing there now: wait for the next `Event::Readable`.
    WouldBlock,
    /// The peer closed its side.
    End,
}

/// Receives once: of the `missing` bytes that `buffer` needs, as much as `len_max`, and when it has
/// all of them, appends to `behind` a little of what else there is.
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
    // SAFETY: all zeros are a header: its pointers may be null, and its other fields are numbers.
    // It says that there is no address, no control data and no part.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = parts.as_mut_ptr();
    header.msg_iovlen = if wanted == missing { 2 } else { 1 };
    let received = loop {
        // SAFETY: the header and its parts live through the call. Each part is memory that is ours
        // to write, of its length: `rest`, and the room that was reserved in `buffer`.
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
    // SAFETY: the kernel fills the parts in order and says how many bytes it wrote, so those from
    // the old length up to `filled` are initialised. At most `wanted` are counted, which were
    // reserved.
    unsafe { buffer.set_len(filled) };
    behind.extend_from_slice(&rest[..received.saturating_sub(wanted)]);
    Ok(if received == 0 { Received::End } else { Received::Bytes(received) })
}

/// What may come along behind a large argument: the end of its command, mostly.
const BEHIND_LEN: usize = 512;

/// Receives once, appending to `buffer`, at most `len_max` bytes. Reserves nothing when the buffer
/// has room for `len_max` already, so a bulk of known length is reserved once and filled by as few
/// calls as the socket allows.
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
                // SAFETY: `recv` returns the front of the room that it has initialised, which
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
