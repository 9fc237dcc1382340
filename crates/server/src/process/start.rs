//! Starts the process: the server, its workers, and its listening sockets.

use std::sync::Arc;

use bobbin_io::{Acceptor, Address, DriverKind, error_text};
use bobbin_store::hash::Hasher;
use bobbin_store::log::Log;
use bobbin_store::{Gate, Keyspace};
use bobbin_sync::Mutex;
use sha2::{Digest, Sha256};

use super::signals;
use crate::admin::metrics;
use crate::base::clock::{Clock, number_clock, system_ms};
use crate::base::random::random_bytes;
use crate::config::{Config, IoDriver, OptionId};
use crate::engine::acl::Acl;
use crate::engine::blocking::Waiters;
use crate::engine::client::eviction::ClientMemory;
use crate::engine::client::monitors::Monitors;
use crate::engine::clients::Clients;
use crate::engine::command::Registry;
use crate::engine::defrag::{self, Defrag};
use crate::engine::pubsub::PubSub;
use crate::engine::script::{Functions, Scripts};
use crate::engine::server::pause::Pause;
use crate::engine::server::{
    ErrorStats, Server, ServerEnd, ServerParts, Switch, Switches, Workers,
};
use crate::engine::telemetry::services::Services;
use crate::persistence::aof::{self, Aof};
use crate::persistence::{Persistence, load};
use crate::process;
use crate::process::announce;
use crate::replication::Replication;
use crate::system::host::{self, OpenFiles};
use crate::system::tls;
use crate::worker::watchdog::{self, Watchdog};
use crate::worker::{accept, listen, pool};

/// Makes the server's shared state, which lives until the process ends.
pub fn create(config: Config, renamed: &[(Vec<u8>, Vec<u8>)]) -> Result<&'static Server, String> {
    let registry = Registry::new(&process::families(), renamed)?;
    let acl = Acl::new(registry.facts(), &config);
    let workers = Workers::new(registry.all().len());
    let driver = choose_driver(&config)?;
    let clock = Clock::new();
    let scripts = Scripts::default();
    let hash_seed = config.hash_seed();
    let key = hash_key(&hash_seed, b"scripts");
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| key[8 * at + byte]));
    bobbin_script::choose_hash_key([word(0), word(1)]);
    bobbin_script::choose_redis_version(config.redis_version_numbers());
    Ok(Box::leak(Box::new(Server {
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
        end: ServerEnd::default(),
        services: Services::new(&config, &clock),
        tls: Default::default(),
        functions: Functions::new(Arc::clone(scripts.state_source())),
        scripts,
        log: number_clock().map_or_else(Default::default, Log::with_clock),
        feed: Default::default(),
        log_error: Default::default(),
        unwritten_bytes: Default::default(),
        pressure: Default::default(),
        parts: ServerParts::default()
            .with(Persistence::new(system_ms()))
            .with(Aof::default())
            .with(Replication::default())
            .with(Watchdog::default())
            .with(Defrag::default()),
        config,
        clock,
    })))
}

/// Starts the workers and the listening sockets, and loads the data. Clients are served from then
/// on. `listens` is called between the two.
pub fn start(server: &'static Server, listens: impl FnOnce()) -> Result<(), String> {
    server.follow_config();
    signals::watch_signals(server)?;
    watchdog::follow_watchdog(server)?;
    defrag::follow_config(server)?;
    pool::set_worker_count(server, server.config.worker_count())?;
    log::info!(
        "Server initialized, {} workers over {}",
        server.workers.serving(),
        server.driver.name()
    );
    metrics::start_metrics(server)?;
    if server.config.tls_port() != 0 {
        server
            .tls
            .follow(&server.config)
            .map_err(|reason| format!("Failed to configure TLS: {reason}"))?;
    }
    if server.config.tls_replication() {
        tls::outgoing(&server.config)
            .map_err(|reason| format!("Failed to configure TLS: {reason}"))?;
    }
    server.tls.reloader.follow(&server.tls, &server.config)?;
    let listeners = listen::listeners(server)?;
    let keepalive_s = server.config.tcp_keepalive() as u32;
    // No client may see the empty keyspace.
    server.switches.set(Switch::LOADING, true);
    let have_room = move || server.workers.have_room();
    let let_in = move |accepted| accept::let_in(server, accepted);
    let acceptor = Acceptor::start(listeners, keepalive_s, have_room, let_in)
        .map_err(|error| format!("Can't start the acceptor: {}", error_text(&error)))?;
    announce::announce(server, &acceptor.addresses());
    *server.acceptor.lock() = Some(acceptor);
    listens();
    let loaded = if server.config.appendonly() {
        aof::start_log(server)
    } else {
        aof::start_without_log(server).and_then(|()| load::load_at_start(server))
    };
    if !loaded? {
        return Ok(());
    }
    Replication::resume(server)?;
    Replication::begin(server)?;
    let acceptor = server.acceptor.lock();
    let addresses = acceptor.as_ref().map(Acceptor::addresses).unwrap_or_default();
    let is_tcp =
        |(address, is_tls): &(Address, bool)| matches!(address, Address::Tcp(_)) && !is_tls;
    if addresses.iter().any(is_tcp) {
        log::info!("Ready to accept connections tcp");
    }
    if !server.config.unixsocket().is_empty() {
        log::info!("Ready to accept connections unix");
    }
    if addresses.iter().any(|(_, is_tls)| *is_tls) {
        log::info!("Ready to accept connections tls");
    }
    Ok(())
}

/// Prepares the machine: huge pages and open files. Returns what the administrator should change.
pub fn prepare_host(config: &Config) -> Result<Vec<String>, String> {
    let huge_pages_off = config.disable_thp() && host::disable_huge_pages();
    match host::raise_open_files(config.maxclients() as u64, config.worker_count()) {
        OpenFiles::Enough => {}
        OpenFiles::Only { clients: 0, limit, needed } => {
            return Err(format!(
                "Your current 'ulimit -n' of {limit} is not enough for the server to start. Please \
                 increase your open file limit to at least {needed}. Exiting."
            ));
        }
        OpenFiles::Only { clients, limit, .. } => {
            config.set_internally(OptionId::maxclients, &clients.to_string())?;
            log::warn!(
                "Current maximum open files is {limit}. maxclients has been reduced to {clients} \
                 to compensate for low ulimit. If you need higher maxclients increase 'ulimit -n'."
            );
        }
    }
    Ok(host::HostFiles::default().warnings(config, huge_pages_off))
}

/// The driver that `io-driver` names, or the best one available.
pub(super) fn choose_driver(config: &Config) -> Result<DriverKind, String> {
    let asked = match config.io_driver() {
        IoDriver::Auto => {
            let (kind, refused) = DriverKind::best();
            if let Some(error) = refused {
                log::info!("io_uring is not available here ({}), using epoll", error_text(&error));
            }
            return Ok(kind);
        }
        IoDriver::Epoll => DriverKind::Epoll,
        IoDriver::IoUring => DriverKind::Uring,
    };
    let refused =
        |error| format!("io-driver {} does not work here: {}", asked.name(), error_text(&error));
    asked.check().map(|()| asked).map_err(refused)
}

/// The key of a hash function. It depends only on `hash-seed`, and is random without one. Different
/// names give unrelated keys.
fn hash_key(chosen: &[u8], name: &[u8]) -> [u8; 32] {
    if chosen.is_empty() {
        return random_bytes();
    }
    Sha256::new().chain_update(chosen).chain_update(name).finalize().into()
}

fn run_id() -> String {
    random_bytes::<20>().iter().map(|byte| format!("{byte:02x}")).collect()
}
