//! A server with its real workers, none of which has a thread. A test gives it time, bytes and a
//! disk.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bobbin_io::{AnyDriver, Memory, Network, Peer, Token};

use crate::config::{Config, OptionId};
use crate::embedded;
use crate::engine::acl::Rights;
use crate::engine::client::Client;
use crate::engine::client::connection::Connection;
use crate::engine::clients::ClientInfo;
use crate::engine::command::data::{Suspended, Then};
use crate::engine::server::Server;
use crate::worker::Worker;

use super::{tasks, ticks};

/// A server whose workers a test drives. Its server is never freed: make few.
pub struct SimulatedProcess {
    pub server: &'static Server,
    workers: Vec<Worker>,
    network: Network,
    now_ms: i64,
}

impl SimulatedProcess {
    /// Bytes of messages that a worker's last turn has passed to connections.
    pub fn unsent_bytes(&self, worker: usize) -> usize {
        self.workers[worker].unsent_bytes()
    }

    /// Bytes of messages that wait for a worker.
    pub fn backlog_bytes(&self, worker: usize) -> usize {
        self.workers[worker].handle().backlog_bytes.load(Ordering::Relaxed)
    }

    /// A process with `workers` workers, at a time of its own.
    pub fn new(workers: usize) -> Self {
        tasks::begin();
        let config = Config::new();
        config.set_internally(OptionId::save, "").expect("it is an option");
        config.set_internally(OptionId::io_driver, "epoll").expect("it is an option");
        // What a server does by the number of its workers, this one does as well.
        config.set_internally(OptionId::io_threads, &workers.to_string()).expect("it is one");
        // With the same seed, the same keys must be in the same shards.
        config.set_internally(OptionId::hash_seed, "simulation").expect("it is an option");
        let server = crate::process::create(config, &[]).expect("a server can be made");
        server.follow_config();
        let network = Network::default();
        let mut process = Self { server, workers: Vec::new(), network, now_ms: 0 };
        process.be_at(START_MS);
        for _ in 0..workers {
            let driver = AnyDriver::Memory(Memory::new(&process.network).expect("it can be made"));
            let id = server.workers.next_id();
            let worker = Worker::new(server, id, driver).expect("there are threads for all");
            server.workers.add(Arc::clone(worker.handle()));
            process.workers.push(worker);
        }
        server.workers.want(workers);
        process
    }

    /// How many turns would have slept.
    pub fn sleeps(&self) -> usize {
        self.network.sleeps()
    }

    /// Has so much time go by.
    pub fn pass(&mut self, ms: i64) {
        self.be_at(self.now_ms + ms);
        ticks::pass(ms as u64 * 1_000);
    }

    /// Has the time be this, while no time goes by for others.
    pub fn be_at(&mut self, now_ms: i64) {
        self.now_ms = now_ms;
        self.server.clock.fix(now_ms);
    }

    pub const fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// A client of the how-many-eth worker, which sees it in its next turn.
    pub fn connect(&self, worker: usize) -> Peer {
        let (peer, socket) = self.network.connect().expect("there are sockets");
        let id = self.server.clients.next_id();
        let info = ClientInfo::new(id, -1, "test".into(), "test".into(), true, self.now_ms);
        let info = Arc::new(info);
        self.server.clients.add(Arc::clone(&info));
        let client = Client::new(info, Rights::new(&self.server.acl));
        let connection = Box::new(Connection::new(socket, Token::new(0, 0), client));
        assert!(self.workers[worker].handle().give(connection).is_ok(), "the worker serves");
        peer
    }

    /// Has a worker take a turn; whether it goes on.
    pub fn turn(&mut self, worker: usize) -> bool {
        self.workers[worker].take_turn()
    }

    /// Makes all workers take `count` turns.
    pub fn turns(&mut self, count: usize) {
        for _ in 0..count {
            for worker in &mut self.workers {
                worker.take_turn();
            }
        }
    }

    /// Sends a line of words to the first worker, and takes what comes back at once.
    pub fn ask(&mut self, peer: &Peer, line: &str) -> String {
        peer.send(format!("{line}\r\n").as_bytes());
        self.turns(2);
        self.heard(peer)
    }

    /// What came back by now.
    pub fn heard(&self, peer: &Peer) -> String {
        String::from_utf8_lossy(&peer.received()).into_owned()
    }

    /// An observer within, which waits for no disk and no pause.
    pub fn observer(&self) -> embedded::Embedded {
        let observer = embedded::EmbeddedProcess::of(self.server).worker(1);
        let mut observer = observer.expect("there are threads for all");
        observer.set_time(self.now_ms);
        observer
    }

    /// Has another thread reserve the shard of a key, as a paused script does.
    pub fn reserve(&self, key: &str) -> Reservation {
        let (server, mut thread) = (self.server, self.observer());
        let data = thread.data();
        data.enter();
        assert!(data.hold_one(server.keyspace.hash(key.as_bytes()).shard()));
        let kept = data.suspend_unit(self.server);
        data.leave();
        Reservation { server, thread, kept }
    }
}

/// What another thread keeps from the workers until the test ends it.
pub struct Reservation {
    server: &'static Server,
    thread: embedded::Embedded,
    kept: Suspended,
}

impl Reservation {
    /// Gives the shard back. Clients that wait for it are not served yet.
    pub fn end(self) {
        let Self { server, mut thread, kept } = self;
        let data = thread.data();
        data.enter();
        data.resume_unit(kept, Then::Ended);
        data.end_resumed(server);
        data.leave();
    }
}

/// When all begins (Unix ms): behind the system's time, so that it shows where that is looked at
/// instead.
const START_MS: i64 = 1_000_000_000_000;
