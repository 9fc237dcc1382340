//! A link between two servers that a test can spoil: cut, reset, half open, slow, in tiny pieces.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

use crate::random::TestRandom;

/// Listens on a port of its own, and passes on what comes there to a server, and back.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

/// How bytes pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProxyPace {
    Free,
    /// What comes together is passed on so much later.
    Delayed(Duration),
    Throttled {
        bytes_per_s: usize,
    },
    /// In pieces of one byte to this many.
    Pieces {
        len_max: usize,
    },
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    pace: Mutex<ProxyPace>,
    /// What is connected now.
    pairs: Mutex<Vec<Arc<Pair>>>,
    /// How many connections there have been.
    accepted: AtomicUsize,
    is_over: AtomicBool,
}

/// A connection to us, and ours to the server.
#[derive(Debug)]
struct Pair {
    client: TcpStream,
    server: TcpStream,
    /// `State`.
    state: AtomicU8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum State {
    Open,
    /// Nothing gets through any more, and neither side is told.
    Swallowing,
    Over,
}

impl Proxy {
    /// A link to a server. `seed` decides how long pieces are.
    ///
    /// # Panics
    /// When no port is free.
    pub fn to(target: SocketAddr, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            target,
            pace: Mutex::new(ProxyPace::Free),
            pairs: Mutex::default(),
            accepted: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        });
        let its = Arc::clone(&shared);
        let accepting = thread::spawn(move || its.accept(&listener, seed));
        Self { address, shared, accepting: Some(accepting) }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// How many connections there have been.
    pub fn connections(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Has bytes pass so from now on.
    pub fn set_pace(&self, pace: ProxyPace) {
        *self.shared.pace.lock().unwrap() = pace;
    }

    /// Ends what is connected now, in good order.
    pub fn cut(&self) {
        self.shared.end_all(|socket| {
            // The other side may have gone already.
            let _ = socket.shutdown(Shutdown::Write);
        });
    }

    /// Ends what is connected now by resets: what was under way is lost.
    pub fn reset(&self) {
        self.shared.end_all(|socket| {
            set_socket_linger(socket, Some(Duration::ZERO)).expect("a socket has the option");
        });
    }

    /// Has nothing more get through what is connected now, in either direction. Neither side is
    /// told, not even that the other one has gone.
    pub fn swallow(&self) {
        for pair in self.shared.pairs.lock().unwrap().drain(..) {
            pair.set_state(State::Swallowing);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // It waits for a connection.
        drop(TcpStream::connect(self.address));
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        self.cut();
    }
}

impl Shared {
    fn accept(self: Arc<Self>, listener: &TcpListener, seed: u64) {
        let mut seeds = TestRandom::new(seed);
        while let Ok((client, _)) = listener.accept() {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            // No server is there: the connection ends at once.
            let Ok(server) = TcpStream::connect(self.target) else { continue };
            for socket in [&client, &server] {
                socket.set_nodelay(true).expect("a socket has the option");
                socket.set_read_timeout(Some(LOOK)).expect("a socket has a time limit");
                socket.set_write_timeout(Some(LOOK)).expect("a socket has a time limit");
            }
            let pair = Arc::new(Pair { client, server, state: AtomicU8::new(State::Open as u8) });
            self.pairs.lock().unwrap().push(Arc::clone(&pair));
            self.accepted.fetch_add(1, Ordering::SeqCst);
            for is_up in [true, false] {
                let (shared, pair) = (Arc::clone(&self), Arc::clone(&pair));
                let random = TestRandom::new(seeds.number());
                thread::spawn(move || shared.pass_all(&pair, is_up, random));
            }
        }
    }

    /// `prepare` gets both sockets of each connection before it ends.
    fn end_all(&self, prepare: impl Fn(&TcpStream)) {
        for pair in self.pairs.lock().unwrap().drain(..) {
            prepare(&pair.client);
            prepare(&pair.server);
            // The sockets are closed when the threads let them go.
            pair.set_state(State::Over);
        }
    }

    /// Passes on what comes from one side until that ends, or the connection does.
    fn pass_all(&self, pair: &Pair, is_up: bool, mut random: TestRandom) {
        let (mut from, to) =
            if is_up { (&pair.client, &pair.server) } else { (&pair.server, &pair.client) };
        let mut block = vec![0; BLOCK_BYTES];
        loop {
            let count = match from.read(&mut block) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if is_pause(&error) => 0,
                Err(_) => break,
            };
            if pair.state() == State::Over {
                return;
            }
            if self.pass(pair, to, &block[..count], &mut random).is_err() {
                break;
            }
        }
        match pair.state() {
            State::Open => {
                pair.set_state(State::Over);
                self.pairs.lock().unwrap().retain(|other| !std::ptr::eq(&**other, pair));
                let _ = to.shutdown(Shutdown::Both);
            }
            // The other side is not told.
            State::Swallowing | State::Over => {}
        }
    }

    /// Passes bytes on at the pace that is set, unless they are swallowed.
    fn pass(
        &self,
        pair: &Pair,
        to: &TcpStream,
        mut bytes: &[u8],
        random: &mut TestRandom,
    ) -> io::Result<()> {
        if let ProxyPace::Delayed(delay) = self.pace()
            && !bytes.is_empty()
        {
            thread::sleep(delay);
        }
        while !bytes.is_empty() && pair.state() == State::Open {
            let len_max = match self.pace() {
                ProxyPace::Free | ProxyPace::Delayed(_) => bytes.len(),
                ProxyPace::Throttled { bytes_per_s } => {
                    thread::sleep(LOOK);
                    (bytes_per_s * LOOK.as_millis() as usize / 1000).max(1)
                }
                ProxyPace::Pieces { len_max } => 1 + random.below(len_max),
            };
            let mut to = to;
            match to.write(&bytes[..len_max.min(bytes.len())]) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_pause(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn pace(&self) -> ProxyPace {
        *self.pace.lock().unwrap()
    }
}

impl Pair {
    fn state(&self) -> State {
        match self.state.load(Ordering::SeqCst) {
            0 => State::Open,
            1 => State::Swallowing,
            _ => State::Over,
        }
    }

    fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::SeqCst);
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// What is passed on at once.
const BLOCK_BYTES: usize = 16 * 1024;
/// How often a thread that waits looks at what the test wants.
const LOOK: Duration = Duration::from_millis(5);
