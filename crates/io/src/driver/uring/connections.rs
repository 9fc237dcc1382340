//! Which operations of each connection are in flight, and which should be.
//!
//! A mode changes at once. The operations change when the next `wait` settles the connections that
//! were marked.

use super::buffers::ProvidedBuffers;
use crate::driver::slots::{ConnectionSlot, Slots};
use crate::driver::{Event, ReceivedBytes, Token};
use io_uring::{IoUring, cqueue};
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::RawFd;

pub(super) struct Connections {
    slots: Slots<State>,
    buffers: ProvidedBuffers,
    turn: u32,
    /// Connections whose operations may not be those that their mode needs. Each is here once, in
    /// the order in which they were marked.
    marked: VecDeque<Token>,
    /// Operations that were decided on and must still be pushed into the ring.
    operations: VecDeque<(RingOperation, RawFd)>,
    /// Bytes that arrived for paused connections.
    held: HashMap<Token, Vec<u8>>,
    /// Held bytes that were handed out in this turn.
    lent: Vec<Vec<u8>>,
}

/// An operation of the ring, as its completion names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RingOperation {
    Receive {
        token: Token,
    },
    WatchInput {
        token: Token,
    },
    WatchOutput {
        token: Token,
    },
    WatchHangup {
        token: Token,
    },
    /// `event` is the index of its `Sent` in the batch.
    Send {
        event: u32,
    },
    Cancel {
        word: u64,
    },
    Wake,
}

#[derive(Default)]
struct State {
    mode: Mode,
    /// Which operations are in flight: the multishot receive, its cancellation, the polls.
    receiving: bool,
    cancelling: bool,
    watching_input: bool,
    watching_output: bool,
    watching_hangup: bool,
    output_wanted: bool,
    marked: bool,
    end: End,
    /// The last turn in which `Data` was reported.
    data_turn: u32,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Data,
    Paused,
    Direct,
    Leaving,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    /// The end was seen, and will be reported when no data comes before it.
    Seen(Option<Errno>),
    Told,
}

impl Connections {
    /// # Safety
    /// `ring` is dropped before the result: the kernel writes into the result's buffers.
    pub(super) unsafe fn new(ring: &IoUring) -> io::Result<Self> {
        Ok(Self {
            slots: Slots::new(),
            // SAFETY: the buffers are dropped with the result, so after the ring.
            buffers: unsafe { ProvidedBuffers::new(ring)? },
            turn: 0,
            marked: VecDeque::new(),
            operations: VecDeque::new(),
            held: HashMap::new(),
            lent: Vec::new(),
        })
    }

    /// The socket's number, or nothing if the token was removed.
    #[inline]
    pub(super) fn fd(&mut self, token: Token) -> Option<RawFd> {
        self.slots.find(token).map(|entry| entry.fd)
    }

    pub(super) fn add(&mut self, token: Token, fd: RawFd) {
        self.slots.insert(token, fd);
        self.mark(token);
    }

    pub(super) fn remove(&mut self, token: Token) {
        let Some(ConnectionSlot { state, .. }) = self.slots.remove(token) else { return };
        self.held.remove(&token);
        let operations = [
            (state.receiving && !state.cancelling, RingOperation::Receive { token }),
            (state.watching_input, RingOperation::WatchInput { token }),
            (state.watching_output, RingOperation::WatchOutput { token }),
            (state.watching_hangup, RingOperation::WatchHangup { token }),
        ];
        for (in_flight, operation) in operations {
            if in_flight {
                self.cancel(operation);
            }
        }
    }

    pub(super) fn pause(&mut self, token: Token) {
        self.change_mode(token, Mode::Paused);
    }

    pub(super) fn resume(&mut self, token: Token) {
        self.change_mode(token, Mode::Data);
    }

    pub(super) fn direct(&mut self, token: Token) {
        self.change_mode(token, Mode::Direct);
    }

    pub(super) fn detach(&mut self, token: Token) {
        self.change_mode(token, Mode::Leaving);
    }

    pub(super) fn notify_writable(&mut self, token: Token) {
        if let Some(entry) = self.slots.find(token) {
            entry.state.output_wanted = true;
            self.mark(token);
        }
    }

    /// Begins a turn. The bytes of the last turn are not used any more.
    #[inline]
    pub(super) fn start_turn(&mut self) {
        self.turn = self.turn.wrapping_add(1);
        self.buffers.recycle();
        self.lent.clear();
    }

    /// Called when the last turn brought nothing and nothing can arrive before the next `wait`.
    pub(super) fn rest(&mut self) {
        self.buffers.rest();
    }

    /// Settles marked connections, but not more than buffers can be expected for. The others stay
    /// marked.
    pub(super) fn settle(&mut self, events: &mut Vec<Event>) {
        for _ in 0..self.marked.len().min(self.buffers.window()) {
            let Some(token) = self.marked.pop_front() else { break };
            if let Some(entry) = self.slots.find(token) {
                entry.state.marked = false;
                self.settle_one(token, events);
            }
        }
    }

    /// Whether there is nothing left to do before sleeping.
    pub(super) fn settled(&self) -> bool {
        self.marked.is_empty()
    }

    pub(super) fn next_operation(&mut self) -> Option<(RingOperation, RawFd)> {
        self.operations.pop_front()
    }

    /// Handles a completion of any operation that belongs to a connection.
    #[inline]
    pub(super) fn complete(
        &mut self,
        operation: RingOperation,
        result: Result<usize, Errno>,
        flags: u32,
        events: &mut Vec<Event>,
    ) {
        match operation {
            RingOperation::Receive { token } => self.received(token, result, flags, events),
            RingOperation::WatchInput { token } => {
                let Some(entry) = self.slots.find(token) else { return };
                entry.state.watching_input = false;
                if entry.state.mode == Mode::Direct && result != Err(Errno::CANCELED) {
                    events.push(Event::Readable { token });
                }
                self.mark(token);
            }
            RingOperation::WatchOutput { token } => {
                self.looked_for_room(token, result, flags, events);
            }
            RingOperation::WatchHangup { token } => self.hung_up(token, result, events),
            RingOperation::Send { .. } | RingOperation::Cancel { .. } | RingOperation::Wake => {}
        }
    }

    #[inline]
    fn received(
        &mut self,
        token: Token,
        result: Result<usize, Errno>,
        flags: u32,
        events: &mut Vec<Event>,
    ) {
        // The buffer is taken even if its bytes are not wanted, so that it is recycled.
        let len = result.unwrap_or(0);
        let bytes = cqueue::buffer_select(flags).map(|buffer| self.buffers.take(buffer, len));
        let Some(entry) = self.slots.find(token) else { return };
        let state = &mut entry.state;
        if let Some(bytes) = bytes.filter(|_| len > 0) {
            // Bytes that were held come before these. There may be more to settle than one turn
            // does.
            if state.mode == Mode::Paused || holds_back(&self.held, token) {
                // SAFETY: the kernel has just filled the buffer and does not use it any more. The
                // bytes are copied here, within this `wait`, and no other code has been told of
                // them.
                let bytes = unsafe { bytes.as_slice() };
                self.held.entry(token).or_default().extend_from_slice(bytes);
            } else {
                state.data_turn = self.turn;
                events.push(Event::Data { token, bytes });
            }
        }
        if cqueue::more(flags) {
            return;
        }
        state.receiving = false;
        state.cancelling = false;
        match result {
            Ok(0) => self.ended(token, None, events),
            Err(Errno::NOBUFS) => {
                self.buffers.grow();
                self.mark(token);
            }
            // The receive ended because the kernel or this code stopped it. The mode says what to
            // do next.
            Ok(_) | Err(Errno::CANCELED | Errno::AGAIN | Errno::INTR) => self.mark(token),
            Err(error) => self.ended(token, Some(error), events),
        }
    }

    /// Handles what a watch for room has reported. The kernel also reports that the peer has
    /// finished sending, and at once if that was before. So the watch goes on until there is room.
    fn looked_for_room(
        &mut self,
        token: Token,
        result: Result<usize, Errno>,
        flags: u32,
        events: &mut Vec<Event>,
    ) {
        let Some(entry) = self.slots.find(token) else { return };
        let state = &mut entry.state;
        state.watching_output = cqueue::more(flags);
        let has_room = match result {
            Ok(polled) => PollFlags::from_bits_retain(polled as _).intersects(ROOM),
            // The attempt to send shows what is wrong.
            Err(error) => error != Errno::CANCELED,
        };
        if !has_room || !state.output_wanted {
            self.mark(token);
            return;
        }
        state.output_wanted = false;
        events.push(Event::Writable { token });
        if state.watching_output {
            self.cancel(RingOperation::WatchOutput { token });
        }
    }

    fn hung_up(&mut self, token: Token, result: Result<usize, Errno>, events: &mut Vec<Event>) {
        let Some(entry) = self.slots.find(token) else { return };
        entry.state.watching_hangup = false;
        let polled = PollFlags::from_bits_retain(result.unwrap_or(0) as _);
        let broken = polled.intersects(PollFlags::ERR | PollFlags::HUP);
        if entry.state.mode != Mode::Paused || entry.state.end != End::Open {
            self.mark(token);
        } else if broken {
            // SAFETY: the caller of `add` keeps the socket open until `remove` or `detach`, and
            // each of them empties the entry.
            let socket = unsafe { std::os::fd::BorrowedFd::borrow_raw(entry.fd) };
            let error = rustix::net::sockopt::socket_error(socket).ok().and_then(Result::err);
            entry.state.end = End::Told;
            // No data follows `Closed`, as there is no peer to answer.
            self.held.remove(&token);
            events.push(Event::Closed { token, error });
        } else {
            // The peer has only finished sending. A watch would report that endlessly, so it is
            // told after `resume`.
            entry.state.watching_hangup = true;
        }
    }

    fn ended(&mut self, token: Token, error: Option<Errno>, events: &mut Vec<Event>) {
        let Some(entry) = self.slots.find(token) else { return };
        if entry.state.end != End::Open {
            return;
        }
        entry.state.end = End::Seen(error);
        let is_behind = entry.state.data_turn == self.turn || holds_back(&self.held, token);
        if entry.state.mode != Mode::Paused && !is_behind {
            entry.state.end = End::Told;
            events.push(Event::Closed { token, error });
        } else {
            self.mark(token);
        }
    }

    /// Reports the bytes that were held, and decides which operations to start or cancel.
    fn settle_one(&mut self, token: Token, events: &mut Vec<Event>) {
        let Some(ConnectionSlot { fd, state, .. }) = self.slots.find(token) else { return };
        let fd = *fd;
        if state.output_wanted && !state.watching_output {
            state.watching_output = true;
            self.operations.push_back((RingOperation::WatchOutput { token }, fd));
        }
        if state.mode != Mode::Paused {
            if let Some(mut held) = self.held.remove(&token) {
                state.data_turn = self.turn;
                events.push(Event::Data { token, bytes: ReceivedBytes::lent(&mut held) });
                self.lent.push(held);
            }
            if let End::Seen(error) = state.end {
                if state.data_turn == self.turn {
                    self.mark(token);
                } else {
                    state.end = End::Told;
                    events.push(Event::Closed { token, error });
                }
                return;
            }
        }
        if state.end != End::Open {
            return;
        }
        match state.mode {
            Mode::Data if !state.receiving => {
                state.receiving = true;
                self.operations.push_back((RingOperation::Receive { token }, fd));
            }
            Mode::Data => {}
            Mode::Paused | Mode::Direct | Mode::Leaving if state.receiving => {
                if !state.cancelling {
                    state.cancelling = true;
                    self.cancel(RingOperation::Receive { token });
                }
            }
            Mode::Paused if !state.watching_hangup => {
                state.watching_hangup = true;
                self.operations.push_back((RingOperation::WatchHangup { token }, fd));
            }
            Mode::Direct if !state.watching_input => {
                state.watching_input = true;
                self.operations.push_back((RingOperation::WatchInput { token }, fd));
            }
            Mode::Paused | Mode::Direct => {}
            Mode::Leaving => {
                self.remove(token);
                events.push(Event::Detached { token });
            }
        }
    }

    fn change_mode(&mut self, token: Token, mode: Mode) {
        if let Some(entry) = self.slots.find(token)
            && entry.state.mode != Mode::Leaving
        {
            entry.state.mode = mode;
            self.mark(token);
        }
    }

    fn mark(&mut self, token: Token) {
        if let Some(entry) = self.slots.find(token)
            && !std::mem::replace(&mut entry.state.marked, true)
        {
            self.marked.push_back(token);
        }
    }

    fn cancel(&mut self, operation: RingOperation) {
        self.operations.push_back((RingOperation::Cancel { word: operation.word() }, NO_FD));
    }
}

impl RingOperation {
    /// The 64 bits that pass through the ring. The top byte is the kind.
    #[inline]
    pub(super) fn word(self) -> u64 {
        match self {
            Self::Receive { token } => RECEIVE << KIND_SHIFT | token.raw(),
            Self::WatchInput { token } => WATCH_INPUT << KIND_SHIFT | token.raw(),
            Self::WatchOutput { token } => WATCH_OUTPUT << KIND_SHIFT | token.raw(),
            Self::WatchHangup { token } => WATCH_HANGUP << KIND_SHIFT | token.raw(),
            Self::Send { event } => SEND << KIND_SHIFT | u64::from(event),
            Self::Cancel { .. } => CANCEL << KIND_SHIFT,
            Self::Wake => WAKE << KIND_SHIFT,
        }
    }

    #[inline]
    pub(super) fn of(word: u64) -> Self {
        let rest = word & ((1 << KIND_SHIFT) - 1);
        let token = Token::from_raw(rest);
        match word >> KIND_SHIFT {
            RECEIVE => Self::Receive { token },
            WATCH_INPUT => Self::WatchInput { token },
            WATCH_OUTPUT => Self::WatchOutput { token },
            WATCH_HANGUP => Self::WatchHangup { token },
            SEND => Self::Send { event: rest as u32 },
            CANCEL => Self::Cancel { word: 0 },
            WAKE => Self::Wake,
            kind => unreachable!("a completion of kind {kind}"),
        }
    }
}

/// Whether bytes of a connection are held. Mostly no connection has any.
fn holds_back(held: &HashMap<Token, Vec<u8>>, token: Token) -> bool {
    !held.is_empty() && held.contains_key(&token)
}

/// What ends a watch for room: there is some, or the connection is broken.
const ROOM: PollFlags =
    PollFlags::OUT.union(PollFlags::ERR).union(PollFlags::HUP).union(PollFlags::NVAL);
const KIND_SHIFT: u32 = 56;
const RECEIVE: u64 = 1;
const WATCH_INPUT: u64 = 2;
const WATCH_OUTPUT: u64 = 3;
const WATCH_HANGUP: u64 = 4;
const SEND: u64 = 5;
const CANCEL: u64 = 6;
const WAKE: u64 = 7;
/// A cancellation names its target by the target's word, so it needs no socket.
const NO_FD: RawFd = -1;
