//! How many bytes of a socket its peer has not taken.

use std::os::fd::{AsRawFd, OwnedFd};

/// How many bytes in a socket the peer's machine has not taken yet; 0 if the descriptor cannot
/// tell.
pub fn unsent(socket: &OwnedFd) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open while it is borrowed. For this request the kernel writes one
    // `int` to where the pointer points (tcp(7) and unix(7), SIOCOUTQ), which is `bytes`.
    let told = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if told == 0 { usize::try_from(bytes).unwrap_or(0) } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_peer_that_reads_leaves_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut sender =
            TcpStream::connect(listener.local_addr().expect("bound")).expect("listens");
        let (mut reader, _) = listener.accept().expect("it came");
        sender.set_nonblocking(true).expect("a socket");
        let mut sent = 0;
        while let Ok(count) = sender.write(&[0; 64 << 10]) {
            sent += count;
        }
        let socket = OwnedFd::from(sender);
        assert!(unsent(&socket) > 0);
        reader.read_exact(&mut vec![0; sent]).expect("it was sent");
        while unsent(&socket) > 0 {
            std::thread::yield_now();
        }
    }
}
