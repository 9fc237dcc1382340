//! Starting the process: the server, its workers, its listening sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bobbin_store::{Gate, Keyspace};

use crate::client::{Client, ClientInfo, Clients};
use crate::clock::{Clock, system_ms};
use crate::command::Registry;
use crate::commands::Monitors;
use crate::config::{Config, IoDriver};
use crate::io::{AnyDriver, DriverKind, Token};
use crate::pause::Pause;
use crate::random::Random;
use crate::server::{ErrorStats, Server, Switches, Workers};
use crate::worker::{Connection, Post, Worker};

impl Server {
    /// Makes what the threads share. It lives until the process ends.
    pub fn new(config: Config) -> Result<&'static Self, String> {
        let registry = Registry::new(crate::commands::FAMILIES, &[])?;
        let workers = Workers::new(registry.all().len());
        let driver = choose_driver(&config)?;
        let clock = Clock::new();
        Ok(Box::leak(Box::new(Self {
            config,
            registry,
            keyspace: Keyspace::new(random_seed()),
            gate: Gate::default(),
            clients: Clients::default(),
            switches: Switches::default(),
            pause: Pause::default(),
            monitors: Monitors::default(),
            errors: ErrorStats::default(),
            workers,
            run_id: run_id(),
            started_ms: system_ms(),
            shutdown: AtomicBool::new(false),
            driver,
            clock,
        })))
    }

    /// Starts one more worker. It is listed when this returns.
    pub fn start_worker(&'static self, id: usize) -> Result<(), String> {
        let (sender, receiver) = std::sync::mpsc::channel();
        let run = move || {
            let worker =
                AnyDriver::new(self.driver).map_err(|error| error.to_string()).and_then(|driver| {
                    Worker::new(self, id, driver).ok_or_else(|| "too many threads".to_owned())
                });
            match worker {
                Ok(worker) => {
                    self.workers.add(Arc::clone(worker.handle()));
                    let _ = sender.send(Ok(()));
                    worker.run();
                    self.workers.retire(id);
                }
                Err(error) => drop(sender.send(Err(error))),
            }
        };
        thread::Builder::new()
            .name(format!("bobbin-{id}"))
            .spawn(run)
            .map_err(|error| format!("cannot start worker {id}: {error}"))?;
        receiver.recv().unwrap_or_else(|_| Err("the worker did not start".into()))
    }

    /// Gives a new connection to the next worker.
    pub fn adopt(
        &'static self,
        socket: std::os::fd::OwnedFd,
        peer: String,
        local: String,
        unix: bool,
    ) {
        use std::os::fd::AsRawFd;
        let info = ClientInfo::new(
            self.clients.next_id(),
            socket.as_raw_fd(),
            peer,
            local,
            unix,
            self.clock.now_ms(),
        );
        let info = Arc::new(info);
        self.clients.add(Arc::clone(&info));
        let client = Client::new(info, self.config.requirepass().is_empty());
        let mut post = Post::Adopt(Box::new(Connection::new(socket, Token::new(0, 0), client)));
        // A worker may retire between being chosen and being posted to.
        while let Some(worker) = self.workers.next() {
            match worker.mailbox.post(post) {
                Ok(()) => return,
                Err(back) => post = back,
            }
        }
    }

    pub fn is_shutting_down(&self) -> bool {
        self.shutdown.load(Ordering::Relaxed)
    }
}

/// The driver that `io-driver` asks for, or the best one there is.
fn choose_driver(config: &Config) -> Result<DriverKind, String> {
    let asked = match config.io_driver() {
        IoDriver::Auto => {
            let (kind, refused) = DriverKind::best();
            if let Some(error) = refused {
                log::info!("io_uring is not available here ({error}), using epoll");
            }
            return Ok(kind);
        }
        IoDriver::Epoll => DriverKind::Epoll,
        IoDriver::IoUring => DriverKind::Uring,
    };
    let refused = |error| format!("io-driver {} does not work here: {error}", asked.name());
    asked.check().map(|()| asked).map_err(refused)
}

/// Bytes from the kernel's generator.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(_) => {
                // Only without the system call, as in a strict sandbox: the clock must do.
                let mut random = Random::new(crate::clock::system_us() as u64);
                bytes[filled..].fill_with(|| random.next_u32() as u8);
                return bytes;
            }
        }
    }
    bytes
}

fn random_seed() -> u64 {
    u64::from_le_bytes(random_bytes())
}

fn run_id() -> String {
    random_bytes::<20>().iter().map(|byte| format!("{byte:02x}")).collect()
}
