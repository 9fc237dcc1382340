//! A driver without a kernel. A test puts bytes in and takes bytes out. No wait sleeps, but the
//! waits that would have are counted.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{self, IoSlice, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::{Errno, ioctl_fionread};

use super::{Driver, Event, PARTS_MAX, ReceivedBytes, Token, Waker};
use crate::receive::{Received, receive_into};

/// The most bytes that are taken back at once.
const LENT_MAX: usize = 64 * 1024;

/// All lines between a test and its workers, by the socket of the worker's end. When a line is
/// closed, the next one may get the same number. All clones share them.
#[derive(Clone, Default)]
pub struct Network {
    lines: Rc<RefCell<BTreeMap<RawFd, SharedLine>>>,
    sleeps: Rc<Cell<usize>>,
}

/// The test's end of a connection.
#[derive(Clone)]
pub struct Peer(SharedLine);

type SharedLine = Rc<RefCell<Line>>;

struct Line {
    /// Bytes that the test has sent and the worker has not seen.
    input: Vec<u8>,
    /// Bytes that the worker has sent and the test has not seen.
    output: Vec<u8>,
    /// How many more bytes the worker may send; `None` for no limit.
    room: Option<usize>,
    /// The test sends nothing more.
    is_finished: bool,
    /// The test has closed its end: it receives nothing more, either.
    is_closed: bool,
    /// The worker has closed its end.
    is_ended: bool,
    /// The socket from whose other end the worker receives by itself.
    far: UnixStream,
    /// The worker may not have received all bytes written to `far`.
    is_lent: bool,
}

/// A driver for which the test takes the kernel's part.
pub struct Memory {
    network: Network,
    waker: Waker,
    connections: BTreeMap<u32, State>,
    done: Vec<Event>,
    /// A send was short or failed, or a connection was given back.
    is_urgent: bool,
    /// The bytes that the events of the last wait refer to. They are not in boxes: when a box
    /// moves, its bytes may be reached only through the moved box from then on.
    received: Vec<Vec<u8>>,
}

struct State {
    token: Token,
    socket: RawFd,
    line: SharedLine,
    mode: Mode,
    asks_for_room: bool,
    /// `Closed` was told.
    is_closed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Data,
    Paused,
    Direct,
}

impl Network {
    /// Makes a line. Returns the test's end, and the socket that stands for the other end.
    pub fn connect(&self) -> io::Result<(Peer, OwnedFd)> {
        let (near, far) = UnixStream::pair()?;
        // Under Miri pairs of sockets are always non-blocking, and the test there reads nothing
        // from one.
        if !cfg!(miri) {
            near.set_nonblocking(true)?;
            far.set_nonblocking(true)?;
        }
        let socket = near.as_raw_fd();
        let line = Line {
            input: Vec::new(),
            output: Vec::new(),
            room: None,
            is_finished: false,
            is_closed: false,
            is_ended: false,
            far,
            is_lent: false,
        };
        let line = Rc::new(RefCell::new(line));
        self.lines.borrow_mut().insert(socket, Rc::clone(&line));
        Ok((Peer(line), near.into()))
    }

    /// How many waits of all workers would have slept, as nothing had happened but sends that went
    /// out whole.
    pub fn sleeps(&self) -> usize {
        self.sleeps.get()
    }
}

impl Peer {
    pub fn send(&self, bytes: &[u8]) {
        self.0.borrow_mut().input.extend_from_slice(bytes);
    }

    /// The bytes that the worker has sent since the last call.
    pub fn received(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.borrow_mut().output)
    }

    /// Sets how many more bytes the worker may send; `None` for no limit.
    pub fn set_room(&self, room: Option<usize>) {
        self.0.borrow_mut().room = room;
    }

    /// Sends nothing more, and still receives.
    pub fn finish(&self) {
        self.0.borrow_mut().is_finished = true;
    }

    pub fn close(&self) {
        self.finish();
        self.0.borrow_mut().is_closed = true;
    }

    /// Whether the worker has closed its end.
    pub fn is_ended(&self) -> bool {
        self.0.borrow().is_ended
    }
}

impl Line {
    /// For a worker that receives by itself: writes as much of the input into the socket as there
    /// is room for. Returns whether there is something to receive.
    fn lend(&mut self, near: BorrowedFd<'_>) -> io::Result<bool> {
        if !self.input.is_empty() {
            let len = match self.far.write(&self.input) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                result => result?,
            };
            self.input.drain(..len);
            self.is_lent = true;
        }
        self.is_lent = self.is_lent && ioctl_fionread(near)? > 0;
        if self.is_finished && self.input.is_empty() && !self.is_lent {
            self.far.shutdown(Shutdown::Write)?;
            return Ok(true);
        }
        Ok(self.is_lent)
    }

    /// Takes back the bytes that the worker has not received.
    fn take_back(&mut self, near: BorrowedFd<'_>) -> io::Result<()> {
        let mut input = Vec::new();
        while let Received::Bytes(_) = receive_into(near, &mut input, LENT_MAX)? {}
        input.append(&mut self.input);
        (self.input, self.is_lent) = (input, false);
        Ok(())
    }

    fn send(&mut self, parts: &[&[u8]]) -> Result<usize, Errno> {
        if self.is_closed {
            return Err(Errno::PIPE);
        }
        let mut sent = 0;
        for part in parts {
            let len = self.room.map_or(part.len(), |room| part.len().min(room));
            self.output.extend_from_slice(&part[..len]);
            self.room = self.room.map(|room| room - len);
            sent += len;
        }
        Ok(sent)
    }
}

impl Memory {
    pub fn new(network: &Network) -> io::Result<Self> {
        Ok(Self {
            network: network.clone(),
            waker: Waker::new()?,
            connections: BTreeMap::new(),
            done: Vec::new(),
            is_urgent: false,
            received: Vec::new(),
        })
    }

    fn find(&mut self, token: Token) -> Option<&mut State> {
        self.connections.get_mut(&token.slot()).filter(|state| state.token == token)
    }

    fn set_mode(&mut self, token: Token, mode: Mode) {
        self.find(token).into_iter().for_each(|state| state.mode = mode);
    }

    fn line(&self, socket: BorrowedFd<'_>) -> SharedLine {
        Rc::clone(self.network.lines.borrow().get(&socket.as_raw_fd()).expect("it is a line's"))
    }

    /// Also sends for a connection that was removed, as a socket would.
    fn sent(&mut self, token: Token, socket: BorrowedFd<'_>, parts: &[&[u8]]) {
        let result = self.line(socket).borrow_mut().send(parts);
        self.is_urgent |= result != Ok(parts.iter().map(|part| part.len()).sum());
        self.done.push(Event::Sent { token, result });
    }
}

impl Driver for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    unsafe fn add(&mut self, token: Token, socket: BorrowedFd<'_>) -> io::Result<()> {
        let (line, socket, mode) = (self.line(socket), socket.as_raw_fd(), Mode::Data);
        let state = State { token, socket, line, mode, asks_for_room: false, is_closed: false };
        self.connections.insert(token.slot(), state);
        Ok(())
    }

    fn remove(&mut self, token: Token, socket: BorrowedFd<'_>) {
        if self.find(token).is_some() {
            self.connections.remove(&token.slot());
        }
        self.line(socket).borrow_mut().is_ended = true;
        self.done.retain(|event| !matches!(event, Event::Sent { token: of, .. } if *of == token));
    }

    fn pause(&mut self, token: Token, _: BorrowedFd<'_>) {
        self.set_mode(token, Mode::Paused);
    }

    fn resume(&mut self, token: Token, _: BorrowedFd<'_>) {
        self.set_mode(token, Mode::Data);
    }

    fn direct(&mut self, token: Token, _: BorrowedFd<'_>) {
        self.set_mode(token, Mode::Direct);
    }

    fn detach(&mut self, token: Token, _: BorrowedFd<'_>) {
        if self.find(token).is_some_and(|state| !state.is_closed) {
            self.connections.remove(&token.slot());
            self.done.push(Event::Detached { token });
            self.is_urgent = true;
        }
    }

    unsafe fn send(&mut self, token: Token, socket: BorrowedFd<'_>, bytes: *const u8, len: usize) {
        // SAFETY: the caller keeps these bytes in place until after this call.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, len) };
        self.sent(token, socket, &[bytes]);
    }

    unsafe fn send_vectored(
        &mut self,
        token: Token,
        socket: BorrowedFd<'_>,
        parts: &[IoSlice<'_>],
    ) {
        let parts: Vec<&[u8]> = parts.iter().take(PARTS_MAX).map(|part| &**part).collect();
        self.sent(token, socket, &parts);
    }

    fn notify_writable(&mut self, token: Token, _: BorrowedFd<'_>) {
        self.find(token).into_iter().for_each(|state| state.asks_for_room = true);
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        self.received.clear();
        events.clear();
        events.append(&mut self.done);
        let whole_sends = events.len();
        for state in self.connections.values_mut() {
            let token = state.token;
            let line = &mut *state.line.borrow_mut();
            if state.asks_for_room && (line.is_closed || line.room != Some(0)) {
                state.asks_for_room = false;
                events.push(Event::Writable { token });
            }
            if state.is_closed {
                continue;
            }
            // SAFETY: the socket stays open until the connection is removed here.
            let near = unsafe { BorrowedFd::borrow_raw(state.socket) };
            if state.mode == Mode::Data && line.is_lent {
                line.take_back(near)?;
            }
            match state.mode {
                Mode::Data if !line.input.is_empty() => {
                    let mut bytes = std::mem::take(&mut line.input);
                    events.push(Event::Data { token, bytes: ReceivedBytes::lent(&mut bytes) });
                    self.received.push(bytes);
                }
                Mode::Data if line.is_finished => {
                    state.is_closed = true;
                    events.push(Event::Closed { token, error: None });
                }
                Mode::Direct if line.lend(near)? => events.push(Event::Readable { token }),
                Mode::Data | Mode::Paused | Mode::Direct => {}
            }
        }
        let is_urgent = std::mem::take(&mut self.is_urgent) || events.len() > whole_sends;
        if !is_urgent && timeout != Some(Duration::ZERO) {
            self.network.sleeps.set(self.network.sleeps.get() + 1);
        }
        Ok(())
    }

    fn rest(&mut self) {}
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// Miri checks whether the bytes may still be reached.
    #[test]
    fn bytes_stay_until_the_next_wait() {
        let network = Network::default();
        let mut driver = Memory::new(&network).expect("a driver");
        let (peer, socket) = network.connect().expect("a line");
        let token = Token::new(0, 1);
        // SAFETY: the socket is open until the end of the test.
        unsafe { driver.add(token, socket.as_fd()).expect("it is new") };
        let mut events = Vec::new();
        for request in [&b"one"[..], b"another"] {
            peer.send(request);
            driver.wait(None, &mut events).expect("nothing fails");
            let [Event::Data { bytes, .. }] = &mut events[..] else { panic!("{events:?}") };
            // SAFETY: the driver does not wait again before this slice was used.
            assert_eq!(unsafe { bytes.as_slice() }, request);
            // SAFETY: the slice before this one is not used any more.
            unsafe { bytes.as_mut_slice() }.fill(0);
        }
    }
}
