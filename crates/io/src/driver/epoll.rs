//! The driver that works on every Linux. It uses level-triggered epoll. It calls `recv` once for
//! each ready connection, into an arena of the worker, and it calls `send` at once.

use super::pages::Pages;
use super::slots::Slots;
use super::{Driver, Event, PARTS_MAX, REST_MIN, ReceivedBytes, Token, Waker};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

pub struct Epoll {
    poll: OwnedFd,
    waker: Waker,
    slots: Slots<State>,
    /// The reports of the last `epoll_wait`. There was no room in the arena for those from `next`
    /// on; they are first next time.
    ready: Vec<epoll::Event>,
    next: usize,
    /// Results of `send` since the last batch, and of `detach`.
    done: Vec<Event>,
    /// Whether `done` has anything but sends that went out whole.
    done_urgent: bool,
    arena: Pages,
    /// How much of the arena was used since its memory was last given back.
    arena_used: usize,
}

/// What epoll should report about a connection.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct State {
    mode: Mode,
    writable: bool,
    /// `Closed` was told. So that it is told only once, epoll watches the connection no more, or
    /// only whether it has room.
    closed: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Data,
    Paused,
    Direct,
}

impl Epoll {
    pub fn new() -> io::Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let waker = Waker::new()?;
        let data = epoll::EventData::new_u64(WAKER);
        epoll::add(&poll, &waker, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        Ok(Self {
            poll,
            waker,
            slots: Slots::new(),
            ready: Vec::with_capacity(READY_MAX),
            next: 0,
            done: Vec::new(),
            done_urgent: false,
            arena: Pages::new(ARENA_LEN)?,
            arena_used: 0,
        })
    }

    /// Asks epoll for more reports, if the last ones are used up.
    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if self.next < self.ready.len() {
            return Ok(());
        }
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        self.next = 0;
        self.ready.clear();
        let spare = rustix::buffer::spare_capacity(&mut self.ready);
        match epoll::wait(&self.poll, spare, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Turns reports into events until either the reports or the arena are used up.
    fn collect(&mut self, events: &mut Vec<Event>) {
        let mut used = 0;
        while self.next < self.ready.len() && ARENA_LEN - used >= READ_LEN_MAX {
            let report = self.ready[self.next];
            self.next += 1;
            if report.data.u64() == WAKER {
                events.push(Event::Woken);
                continue;
            }
            let token = Token::from_raw(report.data.u64());
            used += self.collect_one(token, report.flags, used, events);
        }
        self.arena_used = self.arena_used.max(used);
    }

    /// Handles the report of one connection. Returns how many bytes of the arena this used, rounded
    /// up to whole cache lines.
    fn collect_one(
        &mut self,
        token: Token,
        flags: epoll::EventFlags,
        used: usize,
        events: &mut Vec<Event>,
    ) -> usize {
        use epoll::EventFlags;
        let Some(entry) = self.slots.find(token) else { return 0 };
        // SAFETY: the caller of `add` keeps the socket open until `remove` or `detach`, and each of
        // them empties the entry.
        let socket = unsafe { BorrowedFd::borrow_raw(entry.fd) };
        let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        if entry.state.writable && (broken || flags.contains(EventFlags::OUT)) {
            events.push(Event::Writable { token });
            let state = State { writable: false, ..entry.state };
            self.change(token, socket, state);
        }
        let Some(entry) = self.slots.find(token) else { return 0 };
        if entry.state.closed {
            return 0;
        }
        match entry.state.mode {
            Mode::Paused if broken => {
                let error = rustix::net::sockopt::socket_error(socket).ok().and_then(Result::err);
                self.close(token, socket, error, events);
                0
            }
            Mode::Paused => 0,
            Mode::Direct if broken || flags.contains(EventFlags::IN) => {
                events.push(Event::Readable { token });
                0
            }
            Mode::Data if broken || flags.contains(EventFlags::IN) => {
                self.read(token, socket, used, events)
            }
            Mode::Data | Mode::Direct => 0,
        }
    }

    fn read(
        &mut self,
        token: Token,
        socket: BorrowedFd<'_>,
        used: usize,
        events: &mut Vec<Event>,
    ) -> usize {
        let room = self.arena.at(used, READ_LEN_MAX);
        // SAFETY: `at` has checked that all these bytes lie in the arena, and all of them are
        // initialised (*mapped*). Slices of earlier turns are not used since this `wait` began, and
        // what this turn has handed out lies before `used`.
        let slice = unsafe { std::slice::from_raw_parts_mut(room.as_ptr(), READ_LEN_MAX) };
        match recv(socket, slice, RecvFlags::DONTWAIT) {
            Ok((0, _)) => {
                self.close(token, socket, None, events);
                0
            }
            Ok((len, _)) => {
                events.push(Event::Data { token, bytes: ReceivedBytes::new(room, len) });
                len.next_multiple_of(CACHE_LINE)
            }
            // Epoll is level-triggered, so it reports again what is still there.
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(error) => {
                self.close(token, socket, Some(error), events);
                0
            }
        }
    }

    fn close(
        &mut self,
        token: Token,
        socket: BorrowedFd<'_>,
        error: Option<Errno>,
        events: &mut Vec<Event>,
    ) {
        if let Some(entry) = self.slots.find(token) {
            let state = State { closed: true, ..entry.state };
            self.change(token, socket, state);
            events.push(Event::Closed { token, error });
        }
    }

    /// Makes epoll watch a connection as `state` says. A system call is made only if that is a
    /// change.
    fn change(&mut self, token: Token, socket: BorrowedFd<'_>, state: State) {
        let Some(entry) = self.slots.find(token) else { return };
        let before = std::mem::replace(&mut entry.state, state);
        let data = epoll::EventData::new_u64(token.raw());
        let changed = match (interest(before), interest(state)) {
            (before, after) if before == after => Ok(()),
            (Some(_), Some(flags)) => epoll::modify(&self.poll, socket, data, flags),
            (Some(_), None) => epoll::delete(&self.poll, socket),
            (None, Some(flags)) => epoll::add(&self.poll, socket, data, flags),
            (None, None) => Ok(()),
        };
        debug_assert!(changed.is_ok(), "epoll lost a socket: {changed:?}");
    }

    fn change_mode(&mut self, token: Token, socket: BorrowedFd<'_>, mode: Mode) {
        if let Some(entry) = self.slots.find(token) {
            let state = State { mode, ..entry.state };
            self.change(token, socket, state);
        }
    }

    fn note_sent(&mut self, token: Token, offered: usize, result: Result<usize, Errno>) {
        let result = match result {
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            other => other,
        };
        self.done_urgent |= result != Ok(offered);
        self.done.push(Event::Sent { token, result });
    }
}

impl Driver for Epoll {
    fn name(&self) -> &'static str {
        "epoll"
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    unsafe fn add(&mut self, token: Token, socket: BorrowedFd<'_>) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token.raw());
        epoll::add(&self.poll, socket, data, epoll::EventFlags::IN)?;
        self.slots.insert(token, socket.as_raw_fd());
        Ok(())
    }

    fn remove(&mut self, token: Token, socket: BorrowedFd<'_>) {
        let Some(entry) = self.slots.remove(token) else { return };
        if interest(entry.state).is_some() {
            let _ = epoll::delete(&self.poll, socket);
        }
        if !self.done.is_empty() {
            self.done
                .retain(|event| !matches!(event, Event::Sent { token: of, .. } if *of == token));
        }
    }

    fn pause(&mut self, token: Token, socket: BorrowedFd<'_>) {
        self.change_mode(token, socket, Mode::Paused);
    }

    fn resume(&mut self, token: Token, socket: BorrowedFd<'_>) {
        self.change_mode(token, socket, Mode::Data);
    }

    fn direct(&mut self, token: Token, socket: BorrowedFd<'_>) {
        self.change_mode(token, socket, Mode::Direct);
    }

    fn detach(&mut self, token: Token, socket: BorrowedFd<'_>) {
        let Some(entry) = self.slots.find(token) else { return };
        if !entry.state.closed {
            // Bytes that were not read yet stay in the socket.
            let _ = epoll::delete(&self.poll, socket);
            self.slots.remove(token);
            self.done.push(Event::Detached { token });
            self.done_urgent = true;
        }
    }

    unsafe fn send(&mut self, token: Token, socket: BorrowedFd<'_>, bytes: *const u8, len: usize) {
        // SAFETY: the caller keeps these bytes in place until after this call.
        let slice = unsafe { std::slice::from_raw_parts(bytes, len) };
        let result = send(socket, slice, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        self.note_sent(token, len, result);
    }

    unsafe fn send_vectored(
        &mut self,
        token: Token,
        socket: BorrowedFd<'_>,
        parts: &[IoSlice<'_>],
    ) {
        let offered = parts.iter().map(|part| part.len()).sum();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let parts = &parts[..parts.len().min(PARTS_MAX)];
        let result = sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), flags);
        self.note_sent(token, offered, result);
    }

    fn notify_writable(&mut self, token: Token, socket: BorrowedFd<'_>) {
        if let Some(entry) = self.slots.find(token) {
            let state = State { writable: true, ..entry.state };
            self.change(token, socket, state);
        }
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        let timeout = if self.done_urgent { Some(Duration::ZERO) } else { timeout };
        self.poll(timeout)?;
        events.clear();
        events.append(&mut self.done);
        self.done_urgent = false;
        self.collect(events);
        Ok(())
    }

    fn rest(&mut self) {
        if self.arena_used >= REST_MIN {
            self.arena_used = 0;
            // SAFETY: `rest` is called only when no slice of received bytes is in use. The kernel
            // writes into the arena only within `read`.
            unsafe { self.arena.release(0, ARENA_LEN) };
        }
    }
}

/// What epoll watches; `None` if it does not know the connection.
fn interest(state: State) -> Option<epoll::EventFlags> {
    let mut flags = epoll::EventFlags::empty();
    flags.set(epoll::EventFlags::IN, state.mode != Mode::Paused && !state.closed);
    flags.set(epoll::EventFlags::OUT, state.writable);
    // Epoll always reports that a connection has broken, also if it watches nothing else.
    (!state.closed || state.writable).then_some(flags)
}

/// The most reports taken from one `epoll_wait`. This limits how much one turn handles.
const READY_MAX: usize = 256;
/// The most bytes read from one connection in one turn, so that none delays the others for long.
const READ_LEN_MAX: usize = 16 << 10;
/// Room for the bytes of one turn. Reads are stored without gaps, so a few small requests touch few
/// pages.
const ARENA_LEN: usize = 1 << 20;
const CACHE_LINE: usize = 64;
const WAKER: u64 = u64::MAX;
