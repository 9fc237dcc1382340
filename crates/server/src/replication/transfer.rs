//! A copy of all keys on its way to replicas, straight from a cut.
//!
//! One thread walks the cut and appends the bytes of an RDB file; any number of replicas read them,
//! each at its own pace. Bytes are kept until the slowest has them. The thread waits while those
//! are too many, so a copy needs little memory, and nobody who writes waits for it.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bobbin_resp::SharedSlice;
use bobbin_store::Cut;
use bobbin_sync::{Condvar, Mutex};

use super::replica::{Replica, ReplicaState};
use super::wish::Wish;
use crate::base::cores::CoreWork;
use crate::base::random::random_bytes;
use crate::engine::client::{ClientInfo, feeder};
use crate::engine::log::feed::FeedReader;
use crate::engine::server::Server;
use crate::persistence::snapshot::{self, Beside, Purpose};

/// A copy for some replicas.
pub struct Transfer {
    server: &'static Server,
    wish: Wish,
    state: Mutex<State>,
    /// Rings when a reader has taken something, or has gone.
    room: Condvar,
    /// What ends the copy: bytes that are nowhere in it, by all odds.
    mark: String,
}

struct State {
    chunks: VecDeque<Arc<Vec<u8>>>,
    /// Bytes before the first chunk.
    start: u64,
    /// Bytes that were written.
    end: u64,
    /// The stream from the cut on, kept until all readers have readers of their own.
    stream: Option<FeedReader>,
    /// How it ended.
    outcome: Option<bool>,
    readers: Vec<Reader>,
}

struct Reader {
    client: Arc<ClientInfo>,
    /// Bytes that it has taken.
    taken: u64,
}

/// How it stands with a copy, for one of its readers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransferState {
    GoesOn,
    /// The reader has all of it.
    Done,
    Failed,
}

/// Bytes that may wait for the slowest reader before the walk waits as well.
const WAITING_MAX: u64 = 8 << 20;

/// A thread that will walk the cut.
pub(super) fn beside() -> io::Result<Beside> {
    Beside::start("bobbin-sync", CoreWork::Saving)
}

/// The replicas that the next copy is for: the first that waits, and all that wait for the same.
pub(super) fn waiting(replicas: &[Arc<Replica>]) -> Vec<Arc<Replica>> {
    let waits = |replica: &&Arc<Replica>| replica.state() == ReplicaState::Waiting;
    let mut waiting: Vec<_> = replicas.iter().filter(waits).cloned().collect();
    let wish = waiting.first().map(|first| first.wish());
    waiting.retain(|replica| Some(replica.wish()) == wish);
    waiting
}

impl Transfer {
    /// For replicas that all ask for the same.
    pub(super) fn new(server: &'static Server, replicas: &[Arc<Replica>]) -> Self {
        let reader =
            |replica: &Arc<Replica>| Reader { client: Arc::clone(&replica.client), taken: 0 };
        let state = State {
            chunks: VecDeque::new(),
            start: 0,
            end: 0,
            stream: None,
            outcome: None,
            readers: replicas.iter().map(reader).collect(),
        };
        let mark = random_bytes::<20>().iter().map(|byte| format!("{byte:02x}")).collect();
        let wish = replicas.first().map(|first| first.wish()).unwrap_or_default();
        Self { server, wish, state: Mutex::new(state), room: Condvar::new(), mark }
    }

    pub(super) fn wish(&self) -> Wish {
        self.wish
    }

    /// The stream goes on from the cut at this offset.
    pub(super) fn begin(&self, offset: u64) {
        let stream = self.server.feed.reader(offset, None);
        let mut state = self.state.lock();
        if stream.is_none() {
            state.outcome = Some(false);
        }
        state.stream = stream;
        drop(state);
        self.wake_readers();
    }

    /// The offset at which the stream goes on; `None`: that is not known yet.
    pub(super) fn offset(&self) -> Option<u64> {
        self.state.lock().stream.as_ref().map(FeedReader::offset)
    }

    /// What goes before the copy.
    pub(super) fn header(&self) -> String {
        format!("$EOF:{}\r\n", self.mark)
    }

    /// What goes behind it.
    pub(super) fn mark(&self) -> &[u8] {
        self.mark.as_bytes()
    }

    /// Hands a reader about `bytes_max` bytes of what it does not have; `sent` counts them.
    pub(super) fn read(
        &self,
        client: &Arc<ClientInfo>,
        sent: &mut u64,
        bytes_max: usize,
        mut take: impl FnMut(SharedSlice),
    ) -> TransferState {
        let mut state = self.state.lock();
        if state.outcome == Some(false) {
            return TransferState::Failed;
        }
        let (mut at, until) = (state.start, sent.saturating_add(bytes_max as u64));
        for chunk in &state.chunks {
            let end = at + chunk.len() as u64;
            if end > *sent && *sent < until {
                take(SharedSlice::from(Arc::clone(chunk)));
                *sent = end;
            }
            at = end;
        }
        state.taken(client, *sent);
        self.room.notify_all();
        if state.outcome.is_some() && *sent == state.end {
            TransferState::Done
        } else {
            TransferState::GoesOn
        }
    }

    /// A reader has gone.
    pub(super) fn leave(&self, client: &Arc<ClientInfo>) {
        let mut state = self.state.lock();
        state.readers.retain(|reader| reader.client.id != client.id);
        self.room.notify_all();
    }

    /// Makes the copy, of a cut if it has keys. `database`: what the stream is about, if it does
    /// not say that itself.
    pub(super) fn run(self: Arc<Self>, cut: Option<Cut>, database: Option<u32>) {
        let server = self.server;
        let purpose = Purpose::Copy { database, functions: self.wish.parts.functions };
        let mut sink = self.as_ref();
        let written = match cut {
            None => snapshot::write_without_keys(server, purpose, &mut sink),
            Some(cut) => {
                let (mut walker, keys) = (snapshot::walker(server), AtomicU64::new(0));
                let written = snapshot::write(server, &mut walker, cut, purpose, &keys, &mut sink);
                server.end_cut();
                written
            }
        };
        match &written {
            Ok(()) => log::info!("All keys are on their way to the replicas"),
            Err(error) => log::warn!("A full synchronization ended before all was sent: {error}"),
        }
        self.state.lock().outcome.get_or_insert(written.is_ok());
        self.wake_readers();
    }

    fn wake_readers(&self) {
        let readers: Vec<_> =
            self.state.lock().readers.iter().map(|reader| Arc::clone(&reader.client)).collect();
        readers.iter().for_each(|client| feeder::wake(self.server, client));
    }
}

impl State {
    /// Notes how far a reader is, and forgets what all have.
    fn taken(&mut self, client: &Arc<ClientInfo>, taken: u64) {
        for reader in &mut self.readers {
            if reader.client.id == client.id {
                reader.taken = taken;
            }
        }
        self.trim();
    }

    fn trim(&mut self) {
        let needed = self.readers.iter().map(|reader| reader.taken).min().unwrap_or(self.end);
        while let Some(first) = self.chunks.front()
            && self.start + first.len() as u64 <= needed
        {
            self.start += first.len() as u64;
            self.chunks.pop_front();
        }
    }
}

impl Write for &Transfer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.state.lock();
        loop {
            state.trim();
            if state.readers.is_empty() || state.outcome == Some(false) {
                return Err(io::Error::other("no replica is left"));
            }
            if state.end - state.start < WAITING_MAX {
                break;
            }
            state = self.room.wait(state);
        }
        state.chunks.push_back(Arc::new(bytes.to_vec()));
        state.end += bytes.len() as u64;
        drop(state);
        self.wake_readers();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
