//! Clients that wait until replicas have their changes: WAIT and WAITAOF.

use std::sync::{Arc, OnceLock};

use bobbin_resp::Reply;

use super::Replication;
use super::replica::{Replica, ReplicaState};
use crate::engine::blocking::Waiter;
use crate::engine::server::Server;
use crate::persistence::aof::{self, Aof};

/// A client that waits for replicas.
pub(super) struct ReplicaWait {
    waiter: Arc<Waiter>,
    wanted: WaitGoal,
}

/// What WAIT or WAITAOF asks for.
#[derive(Clone)]
pub struct WaitGoal {
    /// The client's last record.
    pub(super) number: u64,
    /// The offset behind that record, once the stream has it. It is kept here because the feed
    /// forgets the offsets of old records, and a replica may be seconds behind.
    offset: Arc<OnceLock<u64>>,
    /// How many replicas must have the record.
    pub(super) replicas: usize,
    /// `Some`: the replicas must have it on disk. `Some(true)`: this server must too.
    disk: Option<bool>,
}

/// How far the wish is met.
#[derive(Clone, Copy)]
pub struct WaitProgress {
    replicas: usize,
    is_on_disk: bool,
}

impl WaitGoal {
    pub fn new(number: u64, replicas: usize, disk: Option<bool>) -> Self {
        Self { number, offset: Arc::default(), replicas, disk }
    }

    /// Checks how far the wish is met now.
    pub fn look(&self, server: &Server) -> WaitProgress {
        let is_on_disk = self.disk.is_some() && self.is_on_disk(server);
        WaitProgress { replicas: self.count(server), is_on_disk }
    }

    /// Whether the wish cannot be met, as this server's log was turned off.
    fn is_hopeless(&self, server: &Server) -> bool {
        self.disk == Some(true) && !server.config.appendonly()
    }

    /// Whether the wish is met.
    pub fn is_met_by(&self, found: WaitProgress) -> bool {
        (self.disk != Some(true) || found.is_on_disk) && found.replicas >= self.replicas
    }

    fn is_on_disk(&self, server: &Server) -> bool {
        let kept = server.config.appendonly().then(|| Aof::of(server).kept()).flatten();
        kept.is_some_and(|kept| kept >= self.number)
    }

    fn count(&self, server: &Server) -> usize {
        let offset_of = if self.disk.is_some() { Replica::acked_on_disk } else { Replica::acked };
        let count = |offset| Replication::of(server).count_with(server, offset, offset_of);
        self.offset(server).map_or(0, count)
    }

    fn offset(&self, server: &Server) -> Option<u64> {
        if self.number == 0 {
            return Some(0);
        }
        let known = self.offset.get().copied();
        let offset = known.or_else(|| server.feed.offset_behind(self.number))?;
        Some(*self.offset.get_or_init(|| offset))
    }

    /// Answers the client.
    pub fn answer(&self, found: WaitProgress, reply: &mut Reply<'_>) {
        if self.disk.is_some() {
            reply.array(2);
            reply.integer(i64::from(found.is_on_disk));
        }
        reply.integer(found.replicas as i64);
    }
}

impl Replication {
    /// How many replicas have the stream up to an offset. `offset_of` gives a replica's offset.
    fn count_with(&self, server: &Server, offset: u64, offset_of: fn(&Replica) -> u64) -> usize {
        if !server.feed.is_on() {
            return 0;
        }
        let has = |replica: &&Arc<Replica>| {
            replica.state() == ReplicaState::Online && offset_of(replica) >= offset
        };
        self.replicas.lock().iter().filter(has).count()
    }

    /// Answers a client once enough replicas have its record.
    pub fn await_replicas(&self, server: &'static Server, waiter: Arc<Waiter>, wanted: WaitGoal) {
        let number = wanted.number;
        self.waits.lock().push(ReplicaWait { waiter, wanted });
        // Ask behind the record, so that the answers cover it. While replicas catch up, the stream
        // must not grow; they report their offsets anyway.
        if !self.stream_stands_still(server) {
            self.ask_replicas(server, number);
        }
        self.answer_waits(server);
    }

    /// Answers the clients of WAIT and WAITAOF whose wishes are met, or cannot be met any more.
    pub(super) fn answer_waits(&self, server: &Server) {
        let mut waits = self.waits.lock();
        if waits.is_empty() {
            return;
        }
        waits.retain(|wait| wait.waiter.is_waiting());
        let mut over = Vec::new();
        waits.retain(|ReplicaWait { waiter, wanted }| {
            let found = wanted.look(server);
            let is_over = wanted.is_hopeless(server) || wanted.is_met_by(found);
            if is_over {
                over.push((Arc::clone(waiter), wanted.clone(), found));
            }
            !is_over
        });
        drop(waits);
        for (waiter, wanted, found) in over {
            waiter.answer(server, |reply| {
                if wanted.is_hopeless(server) {
                    return Err(aof::NO_LOG);
                }
                wanted.answer(found, reply);
                Ok(())
            });
        }
    }
}
