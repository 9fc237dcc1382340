//! The driver that uses io_uring. One system call per turn submits all sends and sleeps until bytes
//! arrive.
//!
//! Each connection has one multishot receive in flight, which takes buffers from the worker's pool.
//! Sends never wait (`MSG_DONTWAIT`), so they are done when the kernel has read their entries. A
//! send that went out whole posts no completion. So the sleep ends only for something worth waking
//! for: new bytes, or a send that did not go out whole.

mod buffers;
mod connections;
mod probe;

use super::{Driver, Event, PARTS_MAX, Token, Waker};
use connections::{Connections, RingOperation};
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, opcode};
pub(super) use probe::probe;
use rustix::io::Errno;
use rustix::io_uring::{MsgHdr, iovec};
use rustix::net::{RecvFlags, SendFlags};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

pub struct Uring {
    // Dropped first: the kernel must stop using the connections' buffers before they are unmapped.
    ring: IoUring,
    connections: Connections,
    waker: Waker,
    waker_watched: bool,
    sends: Vec<Send>,
    /// The parts of all vectored sends of the turn, and the headers that point to them.
    parts: Vec<iovec>,
    headers: Vec<MsgHdr>,
    /// A send was cut before it was submitted, so its event must not be delayed.
    send_cut: bool,
    enter_flags: EnterFlags,
    /// The kernel receives only during the system call that asks for it.
    deferred: bool,
}

/// A queued send. It becomes an entry of the ring only in `wait`, so `remove` can still drop it.
struct Send {
    token: Token,
    what: What,
    len: usize,
}

enum What {
    Bytes(*const u8),
    /// These are indices into `parts`.
    Parts {
        first: usize,
        count: usize,
    },
}

impl Uring {
    /// Fails if the kernel lacks something or forbids io_uring, as it often does in containers.
    pub fn new() -> io::Result<Self> {
        let (ring, deferred) = build()?;
        // SAFETY: both become fields of one value, whose fields are dropped in the order of their
        // declaration: `ring` first. If this fails, `ring` is dropped with nothing registered.
        let connections = unsafe { Connections::new(&ring)? };
        let mut enter_flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        // A server that sleeps is idle. It should not be counted as waiting for a disk.
        enter_flags.set(EnterFlags::NO_IOWAIT, ring.params().is_feature_no_iowait());
        Ok(Self {
            ring,
            connections,
            waker: Waker::new()?,
            waker_watched: false,
            sends: Vec::new(),
            parts: Vec::new(),
            headers: Vec::new(),
            send_cut: false,
            enter_flags,
            deferred,
        })
    }

    fn push(&mut self, entry: &Entry) -> io::Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            // SAFETY: what an entry points to stays in place until the entry was submitted, and
            // `finish` submits all before this `wait` returns. The callers of `send` keep the
            // bytes, and `headers` and `parts` do not grow meanwhile. Sends never wait, so then the
            // kernel does not need them any more. Receives use the pool, which outlives the ring.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            // The ring is full. Without GETEVENTS nothing new is received, so the order of the
            // batch is kept.
            self.enter(0, None, EnterFlags::EXT_ARG)?;
        }
        Err(Errno::AGAIN.into())
    }

    /// Turns the queued sends into entries, and reports all as successful in `events`. A completion
    /// corrects that.
    fn push_sends(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        let sends = std::mem::take(&mut self.sends);
        self.headers.clear();
        self.headers.reserve(sends.len());
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        for Send { token, what, len } in &sends {
            let Some(fd) = self.connections.fd(*token) else { continue };
            let entry = match *what {
                What::Bytes(bytes) => opcode::Send::new(Fd(fd), bytes, *len as u32)
                    .flags((flags.bits() | WAIT_ALL) as i32)
                    .build(),
                What::Parts { first, count } => {
                    let parts = &mut self.parts[first..first + count];
                    // The headers do not move, because room for all was reserved above.
                    self.headers.push(header_of(parts));
                    let header: *const MsgHdr = &self.headers[self.headers.len() - 1];
                    opcode::SendMsg::new(Fd(fd), header.cast())
                        .flags(flags.bits() | WAIT_ALL)
                        .build()
                }
            };
            let kind = RingOperation::Send { event: events.len() as u32 };
            events.push(Event::Sent { token: *token, result: Ok(*len) });
            self.push(&entry.flags(Flags::SKIP_SUCCESS).user_data(kind.word()))?;
        }
        self.sends = sends;
        self.sends.clear();
        Ok(())
    }

    /// Starts, restarts and cancels the operations that the connections' modes ask for.
    fn push_operations(&mut self) -> io::Result<()> {
        if !self.waker_watched {
            let poll = opcode::PollAdd::new(Fd(self.waker.as_fd().as_raw_fd()), POLL_IN);
            self.push(&poll.multi(true).build().user_data(RingOperation::Wake.word()))?;
            self.waker_watched = true;
        }
        while let Some((operation, fd)) = self.connections.next_operation() {
            self.push(&entry_of(operation, fd))?;
        }
        Ok(())
    }

    /// Submits the rest, waits for `want` completions and takes all that there are, also those for
    /// which the ring had no room. None may be left for later: a send's completion names its index
    /// in this batch, and a receive's names a buffer that may be given back.
    fn finish(
        &mut self,
        mut want: u32,
        timeout: Option<Duration>,
        events: &mut Vec<Event>,
    ) -> io::Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            self.enter(want, timeout, self.enter_flags)?;
            self.collect(events);
            let submission = self.ring.submission();
            if submission.is_empty() && !submission.cq_overflow() {
                return Ok(());
            }
            want = 0;
        }
        Err(Errno::AGAIN.into())
    }

    /// Makes the system call. It may submit less than all, or return early.
    fn enter(&mut self, want: u32, timeout: Option<Duration>, flags: EnterFlags) -> io::Result<()> {
        let time;
        let mut arguments = SubmitArgs::new();
        if let Some(timeout) = timeout {
            time = Timespec::from(timeout);
            arguments = arguments.timespec(&time);
        }
        let queued = self.ring.submission().len() as u32;
        let submitter = self.ring.submitter();
        // SAFETY: the argument has the type that EXT_ARG announces. It lives until the call has
        // returned, and so does `time`, to which it points. The entries were pushed by `push`.
        let entered = unsafe { submitter.enter(queued, want, flags.bits(), Some(&arguments)) };
        match entered {
            Ok(_) => Ok(()),
            Err(error) => match Errno::from_io_error(&error) {
                // The time is over, or a signal came, or the kernel has no memory for the moment,
                // or completions must be taken first.
                Some(Errno::TIME | Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Turns completions into events.
    fn collect(&mut self, events: &mut Vec<Event>) {
        for completion in self.ring.completion() {
            match RingOperation::of(completion.user_data()) {
                RingOperation::Send { event } => {
                    let result = match result_of(completion.result()) {
                        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
                        other => other,
                    };
                    if let Some(Event::Sent { result: of, .. }) = events.get_mut(event as usize) {
                        *of = result;
                    }
                }
                RingOperation::Wake => {
                    self.waker_watched = io_uring::cqueue::more(completion.flags());
                    events.push(Event::Woken);
                }
                RingOperation::Cancel { .. } => {}
                operation => self.connections.complete(
                    operation,
                    result_of(completion.result()),
                    completion.flags(),
                    events,
                ),
            }
        }
    }
}

impl Driver for Uring {
    fn name(&self) -> &'static str {
        "io_uring"
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    unsafe fn add(&mut self, token: Token, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.connections.add(token, socket.as_raw_fd());
        Ok(())
    }

    fn remove(&mut self, token: Token, _: BorrowedFd<'_>) {
        self.connections.remove(token);
    }

    fn pause(&mut self, token: Token, _: BorrowedFd<'_>) {
        self.connections.pause(token);
    }

    fn resume(&mut self, token: Token, _: BorrowedFd<'_>) {
        self.connections.resume(token);
    }

    fn direct(&mut self, token: Token, _: BorrowedFd<'_>) {
        self.connections.direct(token);
    }

    fn detach(&mut self, token: Token, _: BorrowedFd<'_>) {
        self.connections.detach(token);
    }

    unsafe fn send(&mut self, token: Token, _: BorrowedFd<'_>, bytes: *const u8, len: usize) {
        self.send_cut |= len > SEND_LEN_MAX;
        self.sends.push(Send { token, what: What::Bytes(bytes), len: len.min(SEND_LEN_MAX) });
    }

    unsafe fn send_vectored(&mut self, token: Token, _: BorrowedFd<'_>, parts: &[IoSlice<'_>]) {
        let first = self.parts.len();
        let mut len = 0;
        for part in parts.iter().take(PARTS_MAX) {
            if len + part.len() > SEND_LEN_MAX {
                break;
            }
            len += part.len();
            let base = part.as_ptr().cast_mut().cast();
            self.parts.push(iovec { iov_base: base, iov_len: part.len() });
        }
        let count = self.parts.len() - first;
        self.send_cut |= count < parts.len();
        self.sends.push(Send { token, what: What::Parts { first, count }, len });
    }

    fn notify_writable(&mut self, token: Token, _: BorrowedFd<'_>) {
        self.connections.notify_writable(token);
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        events.clear();
        self.connections.start_turn();
        self.push_sends(events)?;
        let sends = events.len();
        self.connections.settle(events);
        self.push_operations()?;
        // This keeps the vector's memory unchanged: the kernel reads the parts when the entries are
        // submitted.
        self.parts.clear();
        let sleepless = std::mem::take(&mut self.send_cut)
            || events.len() > sends
            || !self.connections.settled()
            || timeout == Some(Duration::ZERO);
        if sleepless { self.finish(0, None, events) } else { self.finish(1, timeout, events) }
    }

    fn rest(&mut self) {
        if self.deferred {
            self.connections.rest();
        }
    }
}

/// Makes the ring with the cheapest completions that the kernel offers. Returns also whether they
/// are deferred.
fn build() -> io::Result<(IoUring, bool)> {
    let mut deferred = IoUring::builder();
    deferred.setup_single_issuer().setup_defer_taskrun();
    let mut cooperative = IoUring::builder();
    cooperative.setup_coop_taskrun();
    let mut result = Err(io::ErrorKind::Unsupported.into());
    for (mut builder, deferred) in [(deferred, true), (cooperative, false)] {
        builder.dontfork().setup_submit_all().setup_cqsize(COMPLETIONS_LEN);
        result = builder.build(SUBMISSIONS_LEN).map(|ring| (ring, deferred));
        if result.is_ok() {
            break;
        }
    }
    let (ring, deferred) = result?;
    let parameters = ring.params();
    let complete = parameters.is_feature_ext_arg()
        && parameters.is_feature_nodrop()
        && parameters.is_feature_skip_cqe_on_success();
    if complete { Ok((ring, deferred)) } else { Err(io::ErrorKind::Unsupported.into()) }
}

fn entry_of(operation: RingOperation, fd: RawFd) -> Entry {
    let fd = Fd(fd);
    let entry = match operation {
        RingOperation::Receive { .. } => opcode::RecvMulti::new(fd, buffers::GROUP).build(),
        RingOperation::WatchInput { .. } => opcode::PollAdd::new(fd, POLL_IN).build(),
        RingOperation::WatchOutput { .. } => opcode::PollAdd::new(fd, POLL_OUT).multi(true).build(),
        // Errors and hang-ups are always reported.
        RingOperation::WatchHangup { .. } => opcode::PollAdd::new(fd, 0).build(),
        RingOperation::Cancel { word } => {
            let target = CancelBuilder::user_data(word);
            opcode::AsyncCancel2::new(target).build().flags(Flags::SKIP_SUCCESS)
        }
        RingOperation::Send { .. } | RingOperation::Wake => {
            unreachable!("{operation:?} has its own way")
        }
    };
    entry.user_data(operation.word())
}

fn header_of(parts: &mut [iovec]) -> MsgHdr {
    MsgHdr {
        msg_name: std::ptr::null_mut(),
        msg_namelen: 0,
        msg_iov: parts.as_mut_ptr(),
        msg_iovlen: parts.len(),
        msg_control: std::ptr::null_mut(),
        msg_controllen: 0,
        msg_flags: RecvFlags::empty(),
    }
}

fn result_of(result: i32) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result))
}

/// How many entries can be pushed before some must be submitted. They are few, so that they stay in
/// the cache.
const SUBMISSIONS_LEN: u32 = 256;
/// More completions than these wait in the kernel (`NODROP`).
const COMPLETIONS_LEN: u32 = 1024;
/// How often a submission is tried for which the kernel has no memory.
const ATTEMPTS_MAX: usize = 1000;
/// The longest single send, so that its length fits the kernel's 32-bit results. A longer one is a
/// short send.
const SEND_LEN_MAX: usize = 1 << 30;
/// `MSG_WAITALL`. In io_uring it makes a short send a failure, which posts its completion despite
/// `SKIP_SUCCESS`. With `MSG_DONTWAIT` the send still does not wait.
const WAIT_ALL: u32 = RecvFlags::WAITALL.bits();
const POLL_IN: u32 = rustix::event::PollFlags::IN.bits() as u32;
const POLL_OUT: u32 = rustix::event::PollFlags::OUT.bits() as u32;
