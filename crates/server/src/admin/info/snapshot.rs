//! The source of all fields: the server, and costly figures. Those are computed once, and only if a
//! field asks for them.

use std::cell::{OnceCell, RefCell};

use super::clients::ClientFigures;
use super::keyspace::KeyspaceFigures;
use super::memory::MemoryFigures;
use crate::base::usage::ProcessorUsage;
use crate::engine::command::Data;
use crate::engine::server::Server;
use crate::engine::telemetry::stats::Totals;

/// The source of all fields of one INFO.
pub struct Snapshot<'a> {
    pub server: &'static Server,
    /// Memory in use before INFO took any, in bytes.
    pub used_bytes: usize,
    /// `None`: the figures that need the keys were gathered before.
    data: RefCell<Option<&'a mut Data>>,
    totals: OnceCell<Totals>,
    clients: OnceCell<ClientFigures>,
    memory: OnceCell<MemoryFigures>,
    keyspace: OnceCell<KeyspaceFigures>,
    usage: OnceCell<ProcessorUsage>,
    tracked: OnceCell<(usize, usize)>,
}

impl<'a> Snapshot<'a> {
    /// Reads keys through `data`, which holds no lock or everything.
    pub fn new(server: &'static Server, data: &'a mut Data) -> Self {
        Self::with(server, Some(data))
    }

    /// Uses figures that were gathered from the shards before.
    pub fn gathered(
        server: &'static Server,
        keyspace: KeyspaceFigures,
        tracked: (usize, usize),
    ) -> Self {
        let (keyspace, tracked) = (OnceCell::from(keyspace), OnceCell::from(tracked));
        Self { keyspace, tracked, ..Self::with(server, None) }
    }

    fn with(server: &'static Server, data: Option<&'a mut Data>) -> Self {
        Self {
            server,
            used_bytes: crate::base::memory::used(),
            data: RefCell::new(data),
            totals: OnceCell::new(),
            clients: OnceCell::new(),
            memory: OnceCell::new(),
            keyspace: OnceCell::new(),
            usage: OnceCell::new(),
            tracked: OnceCell::new(),
        }
    }

    /// The counters of all workers in total. They include what this worker has done in the current
    /// turn, as far as possible.
    pub fn totals(&self) -> &Totals {
        self.totals.get_or_init(|| {
            let totals = self.server.workers.totals();
            let data = self.data.borrow();
            let pending = data.as_ref().map(|data| data.counters).unwrap_or_default();
            totals.keyspace_hits.add(pending.hits);
            totals.keyspace_misses.add(pending.misses);
            totals.expired_keys.add(pending.expired);
            totals.expired_fields.add(pending.expired_fields);
            totals.evicted_keys.add(pending.evicted);
            totals.dirty.add(pending.dirty);
            totals
        })
    }

    pub fn clients(&self) -> &ClientFigures {
        self.clients.get_or_init(|| ClientFigures::of(self.server))
    }

    pub fn memory(&self) -> &MemoryFigures {
        self.memory.get_or_init(|| MemoryFigures::of(self))
    }

    pub fn keyspace(&self) -> &KeyspaceFigures {
        let look = |data: &mut &mut Data| KeyspaceFigures::of(data);
        self.keyspace.get_or_init(|| self.data.borrow_mut().as_mut().map(look).unwrap_or_default())
    }

    /// How many keys clients keep copies of, and the number of copies.
    pub fn tracked(&self) -> (usize, usize) {
        *self.tracked.get_or_init(|| match self.server.tracking.clients() {
            0 => (0, 0),
            _ => self.data.borrow_mut().as_mut().map_or((0, 0), |data| data.tracked()),
        })
    }

    pub fn usage(&self) -> ProcessorUsage {
        *self.usage.get_or_init(ProcessorUsage::now)
    }

    /// Converts ticks to microseconds.
    pub fn us(&self, ticks: u64) -> u64 {
        self.server.clock.us(ticks) as u64
    }
}
