//! A copy of all keys on its way to replicas.
//!
//! One thread makes the bytes of an RDB file (`copying`). Any number of replicas read them, each at
//! its own pace. The bytes are kept until the slowest replica has them. The thread waits while too
//! many are kept, so a copy needs little memory. No client that writes waits for it.

use std::collections::VecDeque;
use std::sync::Arc;

use bobbin_resp::SharedSlice;
use bobbin_store::CutHandle;
use bobbin_sync::{Condvar, Mutex};

use super::replica::{Capability, Replica, ReplicaState};
use super::wish::{Obstacle, Wish};
use crate::base::clock::has_passed;
use crate::base::random::random_bytes;
use crate::engine::client::feeder;
use crate::engine::clients::ClientInfo;
use crate::engine::command::Data;
use crate::engine::log::feed::FeedReader;
use crate::engine::log::history::HistoryId;
use crate::engine::server::Server;
use crate::persistence::snapshot;

/// A copy for one or more replicas.
pub struct Transfer {
    server: &'static Server,
    wish: Wish,
    form: CopyForm,
    state: Mutex<CopyState>,
    /// Notified when a reader has taken something, or has gone.
    room: Condvar,
}

/// How a reader finds the end of a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum CopyForm {
    /// By a mark that is almost certainly not in the copy. So the copy can be sent while it is
    /// made.
    Marked(String),
    /// By its length. So the whole copy is written to a file first.
    Sized,
}

/// A place in a stream.
#[derive(Clone, Copy)]
pub(super) struct StreamPlace {
    /// The history that the stream belongs to.
    pub id: HistoryId,
    pub offset: u64,
}

struct CopyState {
    chunks: VecDeque<Arc<Vec<u8>>>,
    /// How many bytes come before the first chunk.
    start: u64,
    /// How many bytes were written.
    end: u64,
    /// The length of the whole copy, once it is known.
    len: Option<u64>,
    /// Where the stream was at the cut.
    place: Option<StreamPlace>,
    /// The database that the stream has selected there, if the stream does not select one itself.
    database: Option<u32>,
    /// The stream from the cut on, kept until all readers have begun.
    stream: Option<FeedReader>,
    /// The cut that is being copied.
    cut: Option<CutHandle>,
    /// Whether the whole copy was made, once that is known.
    outcome: Option<bool>,
    readers: Vec<CopyReader>,
}

struct CopyReader {
    client: Arc<ClientInfo>,
    has_begun: bool,
    /// How many bytes the reader has taken.
    taken: u64,
}

/// The state of a copy for one of its readers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransferState {
    GoesOn,
    /// The reader has the whole copy.
    Done,
    Failed,
}

/// The outcome of offering bytes to the readers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OfferOutcome {
    Taken,
    /// The readers are slow, and other threads should not wait for them.
    Refused,
    /// No reader is left.
    Useless,
}

/// How many bytes may wait for the slowest reader before the thread that makes them waits.
const WAITING_MAX: u64 = 8 << 20;

/// The replicas that the next copy is for: the one that has waited longest, and all with the same
/// wish.
pub(super) fn waiting(replicas: &[Arc<Replica>]) -> Vec<Arc<Replica>> {
    let waits =
        |replica: &&Arc<Replica>| replica.state() == ReplicaState::Waiting && !replica.is_refused();
    let mut waiting: Vec<_> = replicas.iter().filter(waits).cloned().collect();
    let wish = waiting.first().map(|first| first.wish());
    waiting.retain(|replica| Some(replica.wish()) == wish);
    waiting
}

/// What the replicas with this wish cannot read, if anything. `data` holds the gate.
pub(super) fn obstacle(server: &Server, data: &mut Data, wish: Wish) -> Option<Obstacle> {
    // Most can read every format.
    wish.dialect.format(true, true).err()?;
    let fields = wish.parts.keys && snapshot::has_expiring_fields(data);
    let functions = wish.parts.functions && !server.functions.all().is_empty();
    wish.dialect.format(fields, functions).err()
}

/// Whether the copy may begin, or rather waits for more replicas to join. A replica that needs the
/// length is not kept waiting, as in Valkey.
pub(super) fn is_time(server: &Server, waiting: &[Arc<Replica>], now_ms: i64) -> bool {
    let config = &server.config;
    if !config.repl_diskless_sync() || !all_know_marks(waiting) {
        return true;
    }
    let since_ms = waiting.iter().map(|replica| replica.since_ms()).min().unwrap_or(now_ms);
    let enough = config.repl_diskless_sync_max_replicas() as usize;
    let delay_ms = config.repl_diskless_sync_delay() * 1000;
    has_passed(now_ms, since_ms, delay_ms) || enough > 0 && waiting.len() >= enough
}

fn all_know_marks(replicas: &[Arc<Replica>]) -> bool {
    replicas.iter().all(|replica| replica.has(Capability::EOF))
}

impl CopyForm {
    /// Chooses the form. As in Valkey, a copy of a part, or one for connections of its own, never
    /// goes through a file. If one replica needs the length, the copy for all of them goes through
    /// a file.
    fn of(server: &Server, wish: Wish, replicas: &[Arc<Replica>]) -> Self {
        let is_direct = server.config.repl_diskless_sync()
            || wish.parts.is_filtered()
            || replicas.iter().all(|replica| replica.is_copy_channel());
        if !is_direct || !all_know_marks(replicas) {
            return Self::Sized;
        }
        Self::Marked(random_bytes::<20>().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl Transfer {
    /// Makes a copy for replicas with the same wish.
    pub(super) fn new(server: &'static Server, replicas: &[Arc<Replica>]) -> Self {
        let reader = |replica: &Arc<Replica>| CopyReader {
            client: Arc::clone(&replica.client),
            has_begun: false,
            taken: 0,
        };
        let state = CopyState {
            chunks: VecDeque::new(),
            start: 0,
            end: 0,
            len: None,
            place: None,
            database: None,
            stream: None,
            cut: None,
            outcome: None,
            readers: replicas.iter().map(reader).collect(),
        };
        let wish = replicas.first().map(|first| first.wish()).unwrap_or_default();
        let form = CopyForm::of(server, wish, replicas);
        Self { server, wish, form, state: Mutex::new(state), room: Condvar::new() }
    }

    pub(super) fn wish(&self) -> Wish {
        self.wish
    }

    pub(super) fn form(&self) -> &CopyForm {
        &self.form
    }

    pub(super) fn server(&self) -> &'static Server {
        self.server
    }

    /// Sets the stream's offset at the cut. `database` is the one that the stream has selected
    /// there, if the stream does not select one itself.
    pub(super) fn begin(&self, offset: u64, database: Option<u32>) {
        let stream = self.server.feed.reader(offset, None);
        let mut state = self.state.lock();
        if stream.is_none() {
            state.outcome = Some(false);
        }
        state.place = Some(StreamPlace { id: self.server.feed.id(), offset });
        state.database = database;
        state.stream = stream;
        drop(state);
        self.wake_readers();
    }

    /// The database that the stream has selected at the cut, if the stream does not select one
    /// itself.
    pub(super) fn database(&self) -> Option<u32> {
        self.state.lock().database
    }

    /// Begins a reader. Returns where the stream was at the cut, and the stream from there on if it
    /// is still kept. `None`: the place is not known yet.
    pub(super) fn take_stream(
        &self,
        client: &Arc<ClientInfo>,
    ) -> Option<(StreamPlace, Option<FeedReader>)> {
        let mut state = self.state.lock();
        let place = state.place?;
        let kept = state.stream.as_ref();
        let stream = kept.and_then(|kept| self.server.feed.reader_from(kept, client));
        let begun = state.readers.iter_mut().find(|reader| reader.client.id == client.id);
        begun.into_iter().for_each(|reader| reader.has_begun = true);
        state.let_stream_go();
        Some((place, stream))
    }

    /// The line before the copy. `None`: it is not known yet.
    pub(super) fn header(&self) -> Option<String> {
        match &self.form {
            CopyForm::Marked(mark) => Some(format!("$EOF:{mark}\r\n")),
            CopyForm::Sized => self.state.lock().len.map(|len| format!("${len}\r\n")),
        }
    }

    /// The bytes behind the copy.
    pub(super) fn trailer(&self) -> &[u8] {
        match &self.form {
            CopyForm::Marked(mark) => mark.as_bytes(),
            CopyForm::Sized => b"",
        }
    }

    /// Whether the copy has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.state.lock().outcome == Some(false)
    }

    /// Hands a reader about `bytes_max` bytes that it does not have yet, and advances `sent`.
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

    /// Removes a reader that has gone.
    pub(super) fn leave(&self, client: &Arc<ClientInfo>) {
        let mut state = self.state.lock();
        state.readers.retain(|reader| reader.client.id != client.id);
        state.let_stream_go();
        state.let_cut_go();
        self.room.notify_all();
    }

    /// Sets the cut that is being copied. It is given up when no reader is left.
    pub(super) fn walks(&self, cut: CutHandle) {
        let mut state = self.state.lock();
        state.cut = Some(cut);
        state.let_cut_go();
    }

    /// How many readers there are.
    pub(super) fn reader_count(&self) -> usize {
        self.state.lock().readers.len()
    }

    /// Offers bytes to the readers, and waits until there is room. If `is_urgent` says that other
    /// threads wait for the caller, this does not wait.
    pub(super) fn offer(&self, bytes: &[u8], is_urgent: impl Fn() -> bool) -> OfferOutcome {
        let mut state = self.state.lock();
        loop {
            state.trim();
            if state.readers.is_empty() || state.outcome == Some(false) {
                return OfferOutcome::Useless;
            }
            if state.end - state.start < WAITING_MAX {
                break;
            }
            if is_urgent() {
                return OfferOutcome::Refused;
            }
            state = self.room.wait_timeout(state, LOOK).0;
        }
        state.chunks.push_back(Arc::new(bytes.to_vec()));
        state.end += bytes.len() as u64;
        drop(state);
        self.wake_readers();
        OfferOutcome::Taken
    }

    /// Sets the length of the whole copy.
    pub(super) fn tell_len(&self, len: u64) {
        self.state.lock().len = Some(len);
        self.wake_readers();
    }

    /// Ends the copy. `is_whole`: all bytes were offered.
    pub(super) fn end(&self, is_whole: bool) {
        self.state.lock().outcome.get_or_insert(is_whole);
        self.wake_readers();
    }

    fn wake_readers(&self) {
        let readers: Vec<_> =
            self.state.lock().readers.iter().map(|reader| Arc::clone(&reader.client)).collect();
        readers.iter().for_each(|client| feeder::wake(self.server, client));
    }
}

/// How often the thread that makes the copy checks whether others wait for it.
const LOOK: std::time::Duration = std::time::Duration::from_millis(10);

impl CopyState {
    /// Notes how much a reader has taken, and frees the bytes that all readers have.
    fn taken(&mut self, client: &Arc<ClientInfo>, taken: u64) {
        for reader in &mut self.readers {
            if reader.client.id == client.id {
                reader.taken = taken;
            }
        }
        self.trim();
    }

    fn let_stream_go(&mut self) {
        if self.readers.iter().all(|reader| reader.has_begun) {
            self.stream = None;
        }
    }

    fn let_cut_go(&mut self) {
        if self.readers.is_empty()
            && let Some(cut) = self.cut.take()
        {
            cut.abort();
        }
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
