//! Whether io_uring works here: tried, not asked, since a container may forbid it and an old kernel
//! lack parts.

use super::Uring;
use crate::driver::{Driver, Event, Token};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Moves bytes both ways over a socket pair with a driver of its own: a multishot receive into the
/// pool, a whole send without a completion, and a short send with one.
pub(crate) fn probe() -> io::Result<()> {
    let (ours, mut peer) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    peer.set_nonblocking(true)?;
    let token = Token::new(0, 0);
    let mut driver = Uring::new()?;
    let mut events = Vec::new();
    // SAFETY: `ours` was declared before the driver, so it is closed after the driver is gone.
    unsafe { driver.add(token, ours.as_fd())? };
    for round in 0..2 {
        peer.write_all(b"ping")?;
        receive(&mut driver, &mut events)?;
        // SAFETY: the four bytes are static.
        unsafe { driver.send(token, ours.as_fd(), b"pong".as_ptr(), 4) };
        driver.wait(Some(Duration::ZERO), &mut events)?;
        if !matches!(events[..], [Event::Sent { result: Ok(4), .. }]) {
            return unsupported(format!("a send gave {events:?} in round {round}"));
        }
        peer.read_exact(&mut [0; 4])?;
    }
    let block = vec![0u8; BLOCK_LEN];
    // SAFETY: `block` lives to the end of the function, beyond the one `wait` that follows; if that
    // fails, the driver goes without another.
    unsafe { driver.send(token, ours.as_fd(), block.as_ptr(), block.len()) };
    driver.wait(Some(PATIENCE), &mut events)?;
    match events[..] {
        [Event::Sent { result: Ok(len), .. }] if 0 < len && len < BLOCK_LEN => Ok(()),
        _ => unsupported(format!("a short send gave {events:?}")),
    }
}

fn receive(driver: &mut Uring, events: &mut Vec<Event>) -> io::Result<()> {
    for _ in 0..TURNS_MAX {
        driver.wait(Some(PATIENCE), events)?;
        if let [Event::Data { bytes, .. }] = &events[..] {
            // SAFETY: the slice is used before the driver waits again.
            let right = unsafe { bytes.as_slice() } == b"ping";
            return if right { Ok(()) } else { unsupported("wrong bytes".to_owned()) };
        }
        if !events.is_empty() {
            break;
        }
    }
    unsupported(format!("a receive gave {events:?}"))
}

fn unsupported(what: String) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, what))
}

/// More than a socket's buffer takes.
const BLOCK_LEN: usize = 16 << 20;
const PATIENCE: Duration = Duration::from_millis(200);
const TURNS_MAX: usize = 5;
