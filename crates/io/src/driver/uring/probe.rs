//! Finds out whether io_uring works here. It is tried, because a container may forbid it and an old
//! kernel may lack parts of it.

use super::Uring;
use crate::driver::{Driver, Event, Token};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Moves bytes in both directions over a socket pair, with its own driver: a multishot receive into
/// the pool, a whole send without a completion, and a short send with one.
pub(crate) fn probe() -> io::Result<()> {
    let (ours, mut peer) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    peer.set_nonblocking(true)?;
    let token = Token::new(0, 0);
    let mut driver = Uring::new()?;
    let mut events = Vec::new();
    // SAFETY: `ours` was declared before the driver, so it is closed after the driver was dropped.
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
    // SAFETY: `block` lives until the end of the function, so longer than the one `wait` that
    // follows. If that fails, the driver is dropped without another.
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

/// More than a socket's buffer has room for.
const BLOCK_LEN: usize = 16 << 20;
const PATIENCE: Duration = Duration::from_millis(200);
const TURNS_MAX: usize = 5;
