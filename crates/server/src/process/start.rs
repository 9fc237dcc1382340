//! Starting the process: the server, its workers, its listening sockets.

use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use bobbin_io::{Accepted, Acceptor, Address, AnyDriver, DriverKind, Listener, Token};
use bobbin_store::hash::Hasher;
use bobbin_store::{Gate, Keyspace};
use bobbin_sync::Mutex;
use rustix::net::SendFlags;
use sha2::{Digest, Sha256};
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::base::allocator;
use crate::base::clock::{Clock, system_ms};
use crate::config::{Config, IoDriver, OptionId};
use crate::engine::acl::{Acl, Rights};
use crate::engine::blocking::Waiters;
use crate::engine::client::eviction::ClientMemory;
use crate::engine::client::{Client, ClientInfo, Clients};
use crate::engine::command::Registry;
use crate::engine::connection::Connection;
use crate::engine::monitor::Monitors;
use crate::engine::pause::Pause;
use crate::engine::pubsub::PubSub;
use crate::engine::script::{Functions, Scripts};
use crate::engine::server::{End, ErrorStats, Server, Switch, Switches, WorkerHandle, Workers};
use crate::engine::services::Services;
use crate::persistence::{self, Persistence};
use crate::worker::Worker;

impl Server {
    /// Makes what the threads share. It lives until the process ends.
    pub fn new(config: Config, renamed: &[(Vec<u8>, Vec<u8>)]) -> Result<&'static Self, String> {
        let registry = Registry::new(&crate::process::families(), renamed)?;
        let acl = Acl::new(&registry, &config);
        let workers = Workers::new(registry.all().len());
        let driver = choose_driver(&config)?;
        let clock = Clock::new();
        let scripts = Scripts::default();
        let hash_seed = config.hash_seed();
        let key = hash_key(&hash_seed, b"scripts");
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| key[8 * at + byte]));
        bobbin_script::choose_hash_key([word(0), word(1)]);
        Ok(Box::leak(Box::new(Self {
            acl,
            registry,
            keyspace: Keyspace::with_hasher(Hasher::with_key(&hash_key(&hash_seed, b""))),
            gate: Gate::default(),
            clients: Clients::default(),
            client_memory: ClientMemory::default(),
            switches: Switches::default(),
            pause: Pause::default(),
            monitors: Monitors::default(),
            pubsub: PubSub::new(Hasher::with_key(&random_bytes())),
            tracking: Default::default(),
            event_classes: Default::default(),
            waiters: Waiters::default(),
            errors: ErrorStats::default(),
            workers,
            run_id: run_id(),
            started_ms: system_ms(),
            driver,
            acceptor: Mutex::new(None),
            end: End::default(),
            services: Services::new(&config, &clock),
            watchdog: Default::default(),
            tls: Default::default(),
            functions: Functions::new(Arc::clone(scripts.state_pool())),
            scripts,
            log: Default::default(),
            aof: Default::default(),
            pressure: Default::default(),
            persistence: Persistence::new(system_ms()),
            config,
            clock,
        })))
    }

    /// Sets the switches that follow from the configuration; at start, and for CONFIG SET (with the
    /// gate held).
    pub fn follow_config(&self) {
        self.switches.set(Switch::MAXMEMORY, self.config.maxmemory() > 0);
        self.follow_client_memory();
        self.scripts.limit_states(self.config.maxmemory_scripts(), self.config.maxmemory());
        let classes = self.config.notify_keyspace_events();
        self.event_classes.store(classes as u32, Ordering::Relaxed);
    }

    /// Starts the workers and the listening sockets, and loads what there is; from then on clients
    /// are served.
    pub fn start(&'static self) -> Result<(), String> {
        self.follow_config();
        self.watch_signals()?;
        self.follow_watchdog();
        self.set_worker_count(self.config.worker_count())?;
        log::info!(
            "Server initialized, {} workers over {}",
            self.workers.serving(),
            self.driver.name()
        );
        self.start_metrics()?;
        if self.config.tls_port() != 0 {
            self.tls
                .follow(&self.config)
                .map_err(|reason| format!("Failed to configure TLS: {reason}"))?;
        }
        self.tls.reloader.follow(&self.tls, &self.config)?;
        let listeners = self.listeners()?;
        let keepalive_s = self.config.tcp_keepalive() as u32;
        // Nobody shall see that there is nothing yet.
        self.switches.set(Switch::LOADING, true);
        let acceptor = Acceptor::start(listeners, keepalive_s, |accepted| self.adopt(accepted))
            .map_err(|error| format!("Can't start the acceptor: {error}"))?;
        *self.acceptor.lock() = Some(acceptor);
        if self.config.appendonly() {
            self.start_log()?;
        } else if !self.load_at_start()? {
            return Ok(());
        }
        self.end_loading();
        let acceptor = self.acceptor.lock();
        let addresses = acceptor.as_ref().map(Acceptor::addresses).unwrap_or_default();
        let is_tcp =
            |(address, is_tls): &(Address, bool)| matches!(address, Address::Tcp(_)) && !is_tls;
        if addresses.iter().any(is_tcp) {
            log::info!("Ready to accept connections tcp");
        }
        if !self.config.unixsocket().is_empty() {
            log::info!("Ready to accept connections unix");
        }
        if addresses.iter().any(|(_, is_tls)| *is_tls) {
            log::info!("Ready to accept connections tls");
        }
        Ok(())
    }

    /// Binds what the configuration says.
    fn listeners(&self) -> Result<Vec<Listener>, String> {
        let backlog = self.config.tcp_backlog() as u32;
        let mut listeners = self.tcp_listeners(false)?;
        listeners.extend(self.tcp_listeners(true)?);
        let path = self.config.unixsocket();
        if !path.is_empty() {
            let path = Path::new(OsStr::from_bytes(&path));
            let permission = self.config.unixsocketperm() as u32;
            let group = self.config.unixsocketgroup();
            let unix =
                Listener::unix(path, &group, permission, backlog).map_err(|e| e.to_string())?;
            listeners.push(unix);
        }
        if listeners.is_empty() {
            return Err("Configured to not listen anywhere, exiting.".into());
        }
        Ok(listeners)
    }

    /// Those of `port`, or of `tls-port`.
    fn tcp_listeners(&self, is_tls: bool) -> Result<Vec<Listener>, String> {
        let addresses = self.config.words_of(OptionId::bind);
        let backlog = self.config.tcp_backlog() as u32;
        let port = if is_tls { self.config.tls_port() } else { self.config.port() };
        let listeners = Listener::tcp(&addresses, port as u16, backlog);
        let listeners = listeners.map_err(|error| error.to_string())?;
        Ok(if is_tls { with_tls(listeners) } else { listeners })
    }

    /// Listens where `bind` and `port` say now (`is_tls`: `tls-port`); for CONFIG SET. On an error
    /// all is as before, but for the configuration.
    pub fn listen_again(&self, is_tls: bool) -> Result<(), String> {
        let acceptor = self.acceptor.lock();
        let Some(acceptor) = &*acceptor else { return Ok(()) };
        let before = acceptor.addresses();
        acceptor.remove(|listener| listener.is_tcp() && listener.is_tls() == is_tls);
        let (listeners, outcome) = match self.tcp_listeners(is_tls) {
            Ok(listeners) => (listeners, Ok(())),
            Err(_) => {
                let error = "Failed to bind to specified addresses.".to_owned();
                (self.bind_again(&before, is_tls), Err(error))
            }
        };
        acceptor.add(listeners).map_err(|error| error.to_string())?;
        outcome
    }

    /// The addresses that were listened on before, as far as they can be had again.
    fn bind_again(&self, addresses: &[(Address, bool)], is_tls: bool) -> Vec<Listener> {
        let backlog = self.config.tcp_backlog() as u32;
        let is_meant = |(address, secured): &&(Address, bool)| {
            matches!(address, Address::Tcp(_)) && *secured == is_tls
        };
        let listeners = addresses
            .iter()
            .filter(is_meant)
            .flat_map(|(address, _)| Listener::tcp(&[address.host()], address.port(), backlog))
            .flatten()
            .collect();
        if is_tls { with_tls(listeners) } else { listeners }
    }

    /// Makes `count` workers serve, and spreads the connections over them. Workers beyond that
    /// number give their connections away, except those that listen, and end once they have none.
    /// Until then they can be called upon again.
    pub fn set_worker_count(&'static self, count: usize) -> Result<(), String> {
        let count = count.max(1);
        for _ in self.workers.want(count)..count {
            self.start_worker(self.workers.next_id())?;
        }
        allocator::give_back_in_steps();
        self.workers.rebalance();
        Ok(())
    }

    /// SIGTERM and SIGINT end the server. While it ends, another SIGINT does so at once, and so
    /// does another SIGTERM. SIGHUP opens the log anew, SIGALRM has the server say what it does.
    fn watch_signals(&'static self) -> Result<(), String> {
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGALRM])
            .map_err(|error| format!("Can't watch for signals: {error}"))?;
        let mut asked: Option<Instant> = None;
        let run = move || {
            for signal in signals.forever() {
                let ends = self.end.is_on_its_way();
                let is_insisted_on = match signal {
                    SIGINT => ends,
                    SIGTERM => ends && asked.is_some_and(|at| at.elapsed() >= SAME_SIGNAL),
                    _ => false,
                };
                match signal {
                    SIGHUP => {
                        if let Err(error) = crate::system::logging::reopen() {
                            log::warn!("Can't open the log file anew: {error}");
                        }
                    }
                    SIGALRM => crate::process::watchdog::show_workers(self),
                    _ if is_insisted_on => {
                        let name = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
                        log::warn!("Received {name} again: exiting at once.");
                        persistence::remove_unfinished();
                        std::process::exit(1);
                    }
                    SIGINT => self.end.signal("SIGINT", self.config.shutdown_on_sigint()),
                    _ => {
                        if !ends || asked.is_none() {
                            asked = Some(Instant::now());
                        }
                        self.end.signal("SIGTERM", self.config.shutdown_on_sigterm());
                    }
                }
            }
        };
        let spawned = thread::Builder::new().name("bobbin-signals".into()).spawn(run);
        spawned.map(drop).map_err(|error| format!("Can't start the signal thread: {error}"))
    }

    /// Sleeps until somebody ends the server, and ends it in order: no new connections, then the
    /// workers finish their turns and send what they have.
    pub fn wait_for_end(&'static self) -> Result<ExitCode, String> {
        while !self.prepare_end(&self.wait_until_end_is_wanted()) {}
        *self.acceptor.lock() = None;
        let path = self.config.unixsocket();
        if !path.is_empty() {
            log::info!("Removing the unix socket file.");
            let _ = std::fs::remove_file(OsStr::from_bytes(&path));
        }
        self.workers.stop();
        self.workers.wait_until_ended();
        self.end_log();
        Ok(ExitCode::SUCCESS)
    }

    /// Starts one more worker. It is listed when this returns.
    fn start_worker(&'static self, id: usize) -> Result<(), String> {
        let (sender, receiver) = std::sync::mpsc::channel();
        let run = move || {
            let worker =
                AnyDriver::new(self.driver).map_err(|error| error.to_string()).and_then(|driver| {
                    Worker::new(self, id, driver).ok_or_else(|| "too many threads".to_owned())
                });
            match worker {
                Ok(worker) => {
                    let handle = Arc::clone(worker.handle());
                    self.workers.add(Arc::clone(&handle));
                    let _ = sender.send(Ok(()));
                    worker.run();
                    self.workers.ended(&handle);
                }
                Err(error) => drop(sender.send(Err(error))),
            }
        };
        thread::Builder::new()
            .name(format!("bobbin-{id}"))
            .spawn(run)
            .map_err(|error| format!("Can't start worker {id}: {error}"))?;
        let started = receiver.recv().unwrap_or_else(|_| Err("it ended at once".into()));
        started.map_err(|error| format!("Can't start worker {id}: {error}"))
    }

    /// Gives a new connection to the next worker, or turns it away.
    fn adopt(&'static self, accepted: Accepted) {
        let refusal = self.refusal(&accepted);
        if refusal.is_some() {
            self.clients.count_rejected();
        }
        match refusal {
            // Over TLS it is told after the handshake.
            Some(PROTECTED_MODE) if accepted.is_tls => {}
            Some(_) if accepted.is_tls => return,
            Some(reason) => {
                // A new socket takes so few bytes at once; if not, the peer sees the end alone.
                let _ = rustix::net::send(&accepted.socket, reason, SendFlags::NOSIGNAL);
                return;
            }
            None => {}
        }
        let info = ClientInfo::new(
            self.clients.next_id(),
            accepted.socket.as_raw_fd(),
            accepted.peer.to_string(),
            accepted.local.to_string(),
            !accepted.is_tcp(),
            self.clock.advance(),
        );
        let info = Arc::new(info);
        self.clients.add(Arc::clone(&info));
        let client = Client::new(info, Rights::new(self));
        let mut connection = Box::new(Connection::new(accepted.socket, Token::new(0, 0), client));
        if accepted.is_tls {
            connection.tls = Some(Box::default());
        }
        if let Some(reason) = refusal {
            connection.output.push(reason);
            connection.closing = true;
        }
        self.hand_over(connection);
    }

    /// Why a new connection is not let in, as it is told.
    fn refusal(&self, accepted: &Accepted) -> Option<&'static [u8]> {
        if self.clients.len() as i64 >= self.config.maxclients() {
            return Some(b"-ERR max number of clients reached\r\n");
        }
        let protected = self.config.protected_mode() && self.acl.default_user().has_no_password();
        (protected && !accepted.peer.is_local()).then_some(PROTECTED_MODE)
    }

    /// The worker that the next connection goes to.
    pub fn next_worker(&self) -> Option<Arc<WorkerHandle>> {
        self.workers.next(self.config.connections_per_io_thread() as usize)
    }

    /// Gives a connection to a worker.
    pub fn hand_over(&self, mut connection: Box<Connection>) {
        // A worker may end between being chosen and being posted to.
        while let Some(worker) = self.next_worker() {
            match worker.give(connection) {
                Ok(()) => return,
                Err(back) => connection = back,
            }
        }
    }
}

/// `timeout` sends SIGTERM to its child and again to the child's group: what comes so soon after
/// the first one insists on nothing.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

fn with_tls(listeners: Vec<Listener>) -> Vec<Listener> {
    listeners.into_iter().map(Listener::with_tls).collect()
}

/// What protected mode tells a client from elsewhere: Redis's own text, which clients and people
/// look for.
const PROTECTED_MODE: &[u8] = b"-DENIED Running in protected mode because protected mode is enabled and no \
password is set for the default user. In this mode connections are only accepted from the loopback \
interface. If you want to connect from external computers, you may adopt one of the following solutions: \
1) Just disable protected mode sending the command 'CONFIG SET protected-mode no' from the loopback \
interface by connecting from the same host the server is running, however MAKE SURE it's not publicly \
accessible from internet if you do so. Use CONFIG REWRITE to make this change permanent. 2) Alternatively \
you can just disable the protected mode by editing the configuration file, and setting the protected mode \
option to 'no', and then restarting the server. 3) If you started the server manually just for testing, \
restart it with the '--protected-mode no' option. 4) Set up an authentication password for the default \
user. NOTE: You only need to do one of the above things in order for the server to start accepting \
connections from the outside.\r\n";

/// Readies the machine's side: huge pages, open files; returns what the administrator should
/// change.
pub fn prepare_host(config: &Config) -> Result<Vec<String>, String> {
    let huge_pages_off = config.disable_thp() && crate::system::host::disable_huge_pages();
    let asked = config.maxclients() as u64;
    let reserved = crate::system::host::RESERVED_DESCRIPTORS + config.worker_count() as u64 * 4;
    let possible = crate::system::host::raise_open_files(asked, reserved)?;
    if possible < asked {
        config.set_internally(OptionId::maxclients, &possible.to_string())?;
    }
    Ok(crate::system::host::HostFiles::default().warnings(config, huge_pages_off))
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

/// Bytes from the kernel's generator. Without it nothing that hangs on them is a secret, so the
/// process ends. That is at start, which needs some.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                log::error!("The system has no random bytes for us ({error}). Exiting.");
                std::process::exit(1);
            }
        }
    }
    bytes
}

/// The key of a hash function: the same for the same `hash-seed`, a secret without one. What has
/// another `name` has a key that says nothing about this one.
fn hash_key(chosen: &[u8], name: &[u8]) -> [u8; 32] {
    if chosen.is_empty() {
        return random_bytes();
    }
    Sha256::new().chain_update(chosen).chain_update(name).finalize().into()
}

fn run_id() -> String {
    random_bytes::<20>().iter().map(|byte| format!("{byte:02x}")).collect()
}
