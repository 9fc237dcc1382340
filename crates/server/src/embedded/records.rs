//! The log without files: its records one by one, bases in memory, and the data that a start would
//! load. For tests in which a server crashes at any record.

use std::sync::atomic::AtomicU64;

use bobbin_store::Cut;

use crate::admin::debug::digest;
use crate::engine::command::Data;
use crate::engine::log::{RecordStream, StreamOutput};
use crate::engine::server::Server;
use crate::persistence::aof::replay::Replay;
use crate::persistence::aof::{AofFault, AofReader};
use crate::persistence::snapshot::{Body, Contents, Purpose};
use crate::persistence::{LoadRules, load};

/// The records that the log's thread would write, one by one. A server has one of these.
pub struct LogRecords {
    server: &'static Server,
    stream: RecordStream,
}

/// A base that is being made while other commands run.
pub struct BaseInProgress {
    server: &'static Server,
    cut: Cut,
    body: Body,
    bytes: Vec<u8>,
}

/// A server at its start.
pub struct Start {
    server: &'static Server,
    replay: Replay,
}

impl LogRecords {
    pub(crate) fn new(server: &'static Server) -> Self {
        Self { server, stream: RecordStream::default() }
    }

    /// Appends the bytes of the next record, if there is one, and returns its number.
    pub fn next(&mut self, out: &mut Vec<u8>) -> Option<u64> {
        self.stream.collect(&self.server.log);
        let mut output = StreamOutput { file: Some(out), feed: None };
        self.stream.next(u64::MAX, &mut output).then(|| self.stream.done())
    }

    /// Begins another file.
    pub fn begin_file(&mut self) {
        self.stream.begin_anew();
    }

    /// The number that was given last.
    pub fn last(&self) -> u64 {
        self.server.log.last()
    }
}

impl BaseInProgress {
    /// Begins a base of the current data. The caller holds no lock.
    pub(crate) fn begin(server: &'static Server, data: &mut Data) -> (Self, u64) {
        data.enter();
        let contents = Contents::begin(server, data, "base");
        let number = server.log.last();
        data.leave();
        let body = Body::of(server, &contents, Purpose::LogBase(None));
        (Self { server, cut: contents.keys, body, bytes: Vec::new() }, number)
    }

    /// Adds a few keys. Returns whether there are more.
    pub(crate) fn step(&mut self, data: &mut Data) -> bool {
        let Self { server, cut, body, bytes } = self;
        let mut pieces = Vec::new();
        data.enter();
        let visit =
            |index, walk: &mut dyn FnMut(&mut bobbin_store::Shard)| data.visit(index, |s| walk(s));
        let more = cut.step(server.keyspace.hasher(), visit, 1, &mut pieces);
        data.leave();
        body.pieces(&pieces, &AtomicU64::new(0), bytes).expect("memory takes all");
        more
    }

    /// The bytes of a base that has no more keys.
    pub fn finish(self) -> Vec<u8> {
        let Self { server, body, mut bytes, .. } = self;
        body.finish(&mut bytes).expect("memory takes all");
        server.end_cut();
        bytes
    }
}

impl Start {
    pub(crate) fn new(server: &'static Server) -> Result<Self, String> {
        Ok(Self { server, replay: Replay::new(server)? })
    }

    /// Begins with only a base.
    pub fn begin(&mut self, base: Option<&[u8]>) -> Result<(), String> {
        self.replay.abandon_transaction();
        self.carry_out(b"*1\r\n$8\r\nFLUSHALL\r\n*2\r\n$8\r\nFUNCTION\r\n$5\r\nFLUSH\r\n")?;
        self.replay.begin_file();
        let Some(base) = base else { return Ok(()) };
        let data = &mut self.replay.data;
        data.enter();
        data.hold_gate_anyway();
        let loaded = load::load_held(self.server, data, base, LoadRules::BEGINNING);
        data.leave();
        loaded.map(|_| ())
    }

    /// Continues with these bytes of a log. Returns whether they end within a command or a
    /// transaction, which is then discarded.
    pub fn carry_out(&mut self, log: &[u8]) -> Result<bool, String> {
        let (_, ended) = self.replay.run_all(&mut AofReader::new(log, 0), 0, |_| Ok(()))?;
        self.replay.abandon_transaction();
        match ended {
            Ok(()) => Ok(false),
            Err(AofFault::Truncated) => Ok(true),
            Err(fault) => Err(format!("{fault:?}")),
        }
    }

    /// A digest of all data.
    pub fn digest(&mut self) -> [u8; 20] {
        digest_of(&mut self.replay.data)
    }
}

/// A digest of all data; see `digest::whole`.
pub(crate) fn digest_of(data: &mut Data) -> [u8; 20] {
    data.enter();
    // The gate makes the shards' locks unnecessary.
    data.hold_gate_anyway();
    let digest = digest::whole(data);
    data.leave();
    digest
}
