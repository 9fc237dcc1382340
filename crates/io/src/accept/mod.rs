//! The acceptor: one thread that sleeps on all listening sockets and passes every new connection to
//! a handler.

use bobbin_sync::Mutex;
use bobbin_text::error_text;

use crate::address::Address;
use crate::waker::Waker;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with, sockopt};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use listen::{ListenError, Listener, TcpOptions};

mod listen;

/// A new connection. Its socket is non-blocking and is closed on exec. A TCP socket has no delay
/// and sends keepalive probes.
#[derive(Debug)]
pub struct Accepted {
    pub socket: OwnedFd,
    pub peer: Address,
    /// The address of our end, to which the peer connected.
    pub local: Address,
    /// Whether the peer will begin with TLS.
    pub is_tls: bool,
}

impl Accepted {
    pub fn is_tcp(&self) -> bool {
        matches!(self.local, Address::Tcp(_))
    }
}

/// The acceptor's handle. Listeners can be added and removed while it runs. Dropping it stops the
/// thread and closes all listeners.
pub struct Acceptor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    poll: OwnedFd,
    stop: AtomicBool,
    waker: Waker,
    keepalive_s: AtomicU32,
    /// The listeners, by the number that epoll reports. The thread holds this lock while it
    /// accepts, so a listener that was removed accepts nothing more.
    listeners: Mutex<Listeners>,
}

#[derive(Default)]
struct Listeners {
    next: u64,
    open: HashMap<u64, Listener>,
}

impl Acceptor {
    /// Starts the thread, which calls `handle` with every connection. `keepalive_s` means the same
    /// as `tcp-keepalive`: 0 for no probes. While `have_room` says no, connections wait in the
    /// backlogs, and only few of them are accepted.
    pub fn start(
        listeners: Vec<Listener>,
        keepalive_s: u32,
        have_room: impl Fn() -> bool + Send + 'static,
        handle: impl FnMut(Accepted) + Send + 'static,
    ) -> io::Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let waker = Waker::new()?;
        // Level-triggered: the thread, once told to stop, does not sleep again.
        epoll::add(&poll, &waker, epoll::EventData::new_u64(WAKER), epoll::EventFlags::IN)?;
        let shared = Arc::new(Shared {
            poll,
            stop: AtomicBool::new(false),
            waker,
            keepalive_s: AtomicU32::new(keepalive_s),
            listeners: Mutex::default(),
        });
        let mut acceptor = Self { shared: Arc::clone(&shared), thread: None };
        acceptor.add(listeners)?;
        let thread = std::thread::Builder::new()
            .name("bobbin-accept".to_owned())
            .spawn(move || run(&shared, have_room, handle))?;
        acceptor.thread = Some(thread);
        Ok(acceptor)
    }

    /// Adds listeners.
    pub fn add(&self, listeners: Vec<Listener>) -> io::Result<()> {
        let mut set = self.shared.listeners.lock();
        for listener in listeners {
            let data = epoll::EventData::new_u64(set.next);
            epoll::add(&self.shared.poll, &listener, data, epoll::EventFlags::IN)?;
            let number = set.next;
            set.next += 1;
            set.open.insert(number, listener);
        }
        Ok(())
    }

    /// Closes the listeners that `choice` picks. When this returns, their addresses are free. So
    /// `bind` or `port` is changed in these steps: remove the old listeners, bind the new ones, and
    /// add those; if binding failed, bind the old ones again and add them.
    pub fn remove(&self, mut choice: impl FnMut(&Listener) -> bool) {
        // Closing a socket removes it from the epoll set.
        self.shared.listeners.lock().open.retain(|_, listener| !choice(listener));
    }

    /// The addresses of all listeners, in no particular order, each with whether it is for TLS.
    pub fn addresses(&self) -> Vec<(Address, bool)> {
        let listeners = self.shared.listeners.lock();
        let address = |listener: &Listener| (listener.address().clone(), listener.is_tls());
        listeners.open.values().map(address).collect()
    }

    /// Changes the keepalive of connections that are accepted from now on.
    pub fn change_keepalive(&self, keepalive_s: u32) {
        self.shared.keepalive_s.store(keepalive_s, Ordering::Relaxed);
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, have_room: impl Fn() -> bool, mut handle: impl FnMut(Accepted)) {
    let mut reports = Vec::with_capacity(REPORTS_MAX);
    let mut accepted = Vec::new();
    let mut complaint = Complaint::default();
    while !shared.stop.load(Ordering::Acquire) {
        reports.clear();
        let spare = rustix::buffer::spare_capacity(&mut reports);
        if let Err(error) = epoll::wait(&shared.poll, spare, None)
            && error != Errno::INTR
        {
            log::warn!("Accepting client connection: {}", error_text(&error.into()));
            pause(shared, BACK_OFF_MS);
        }
        for report in &reports {
            wait_for_room(shared, &have_room);
            let outcome = accept_some(shared, report.data.u64(), &mut accepted);
            accepted.drain(..).for_each(&mut handle);
            if let Err(error) = outcome {
                complaint.say("Accepting client connection", &error.into());
                // The process is out of descriptors or memory. The connection stays in the backlog,
                // and without this pause epoll would report it in an endless loop.
                pause(shared, BACK_OFF_MS);
            }
        }
    }
}

/// Waits until there is room for connections, but not for ever: what holds up the others may be
/// something that only an administrator ends, who has to get in.
fn wait_for_room(shared: &Shared, have_room: impl Fn() -> bool) {
    let mut pauses = 0;
    while !have_room() && pauses < ROOM_PAUSES_MAX && !shared.stop.load(Ordering::Acquire) {
        pause(shared, ROOM_PAUSE_MS);
        pauses += 1;
    }
}

/// Accepts waiting connections of one listener, up to a limit. If more wait, epoll reports them
/// again.
fn accept_some(shared: &Shared, number: u64, accepted: &mut Vec<Accepted>) -> Result<(), Errno> {
    let listeners = shared.listeners.lock();
    let Some(listener) = listeners.open.get(&number) else { return Ok(()) };
    for _ in 0..ACCEPTS_MAX {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (socket, peer) = match acceptfrom_with(listener, flags) {
            Ok(accepted) => accepted,
            Err(Errno::AGAIN) => break,
            // This connection is gone, but others may wait. accept(2) returns such network errors
            // of the new connection.
            Err(
                Errno::INTR
                | Errno::CONNABORTED
                | Errno::PROTO
                | Errno::PERM
                | Errno::NETDOWN
                | Errno::NETUNREACH
                | Errno::HOSTDOWN
                | Errno::HOSTUNREACH
                | Errno::NOPROTOOPT
                | Errno::NONET
                | Errno::OPNOTSUPP,
            ) => continue,
            Err(error) => return Err(error),
        };
        let (peer, local) = match listener.address() {
            Address::Tcp(_) => {
                tune(&socket, shared.keepalive_s.load(Ordering::Relaxed));
                let peer = peer.and_then(Address::of_tcp);
                (peer, Address::of_socket(socket.as_fd()))
            }
            unix => (Some(unix.clone()), Some(unix.clone())),
        };
        // If an end has no address, the peer has already reset the connection.
        if let (Some(peer), Some(local)) = (peer, local) {
            let is_tls = listener.is_tls();
            accepted.push(Accepted { socket, peer, local, is_tls });
        }
    }
    Ok(())
}

/// Sets the options of a TCP connection. Failures are ignored: they only happen on connections that
/// are already broken.
fn tune(socket: &OwnedFd, keepalive_s: u32) {
    let _ = sockopt::set_tcp_nodelay(socket, true);
    if keepalive_s > 0 {
        // The same as in Redis: the first probe after the interval, then three more, each a third
        // of the interval later.
        let interval_s = (keepalive_s / KEEPALIVE_PROBES).max(1);
        let _ = sockopt::set_socket_keepalive(socket, true);
        let _ = sockopt::set_tcp_keepidle(socket, Duration::from_secs(keepalive_s.into()));
        let _ = sockopt::set_tcp_keepintvl(socket, Duration::from_secs(interval_s.into()));
        let _ = sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES);
    }
}

/// Accepts nothing for so long, or until the thread has to stop.
fn pause(shared: &Shared, ms: i64) {
    let pause = Timespec { tv_sec: 0, tv_nsec: ms * 1_000_000 };
    let _ = poll(&mut [PollFd::new(&shared.waker, PollFlags::IN)], Some(&pause));
}

/// Logs at most one failure a second.
#[derive(Default)]
pub struct Complaint {
    last: Option<Instant>,
}

impl Complaint {
    /// Logs that `what` failed.
    pub fn say(&mut self, what: &str, error: &io::Error) {
        if self.last.is_none_or(|last| last.elapsed() >= Duration::from_secs(1)) {
            log::warn!("{what}: {}", error_text(error));
            self.last = Some(Instant::now());
        }
    }
}

const WAKER: u64 = u64::MAX;
/// The most reports from one `epoll_wait`; there are few listeners.
const REPORTS_MAX: usize = 16;
/// The most connections that are accepted from one listener before the others have their turn.
const ACCEPTS_MAX: usize = 16;
const BACK_OFF_MS: i64 = 50;
/// How long it takes to ask again whether there is room ...
const ROOM_PAUSE_MS: i64 = 1;
/// ... and how often before a few connections are accepted all the same.
const ROOM_PAUSES_MAX: u32 = 1000;
const KEEPALIVE_PROBES: u32 = 3;

#[cfg(test)]
mod tests;
