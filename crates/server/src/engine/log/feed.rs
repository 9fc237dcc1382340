//! The log as one stream of bytes that replicas read: the end of it, by offset.
//!
//! Offsets count all bytes since the stream began, as PSYNC and `master_repl_offset` do. The thread
//! that merges the log appends. Readers take slices of the same bytes, so all replicas share one
//! buffer. The backlog is the end of the stream: at least its last `backlog_max` bytes, and all
//! that a reader still needs. A reader that is too far behind is let go: its bytes are no longer
//! kept. When another stream begins, the readers of the one before get nothing more, as the same
//! offsets now mean other bytes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use bobbin_resp::SharedSlice;
use bobbin_sync::Mutex;

use super::append_command;
use super::history::{History, HistoryId};
use crate::base::memory;
use crate::engine::clients::ClientInfo;

/// The end of the stream.
#[derive(Default)]
#[repr(align(128))]
pub struct Feed {
    state: Mutex<FeedState>,
    is_on: AtomicBool,
    /// Whether the bytes come from a primary and not from the log.
    is_relayed: AtomicBool,
    /// Records up to this number were logged while the bytes came from a primary, and are not
    /// appended.
    log_from: AtomicU64,
    /// The offset behind the last byte that readers may have.
    published: AtomicU64,
    /// Bytes of memory that are kept only because a reader is slow.
    beyond_backlog: AtomicUsize,
    /// The history that the stream belongs to.
    history: Mutex<History>,
    /// The database that the last command of a primary was for.
    relayed_database: AtomicU32,
}

#[derive(Default)]
struct FeedState {
    chunks: VecDeque<FeedChunk>,
    /// How many of the chunks, from the first on, lie before the backlog, and their memory.
    before_backlog: usize,
    before_backlog_bytes: usize,
    /// Chunks that were dropped while outputs of connections still had slices of them.
    in_outputs: Vec<FeedChunk>,
    /// The offset of the first kept byte.
    start: u64,
    /// The offset behind the last byte.
    end: u64,
    /// The offsets behind records: one mark for the last record of each round of merging.
    marks: VecDeque<Mark>,
    readers: Vec<Arc<ReaderState>>,
    /// How many bytes the backlog had to keep at the last look; 0 if there was none.
    backlog_max: u64,
}

/// A reader's state, which the reader and the feed share.
struct ReaderState {
    /// The offset of the next byte to read.
    at: AtomicU64,
    /// The client that is told when there is more; `None` if the reader only keeps the bytes.
    client: Option<Arc<ClientInfo>>,
    /// Whether the client was told and has not read since.
    is_told: AtomicBool,
    /// Whether the reader was too far behind. Then its unread bytes are no longer kept.
    is_let_go: AtomicBool,
    /// Whether another stream has begun since.
    is_over: AtomicBool,
}

struct FeedChunk {
    /// The offset of the chunk's first byte.
    start: u64,
    bytes: Arc<Vec<u8>>,
}

#[derive(Clone, Copy)]
struct Mark {
    number: u64,
    end: u64,
}

/// A reader of the stream. Its unread bytes are kept.
pub struct FeedReader {
    state: Arc<ReaderState>,
}

/// The most bytes of a chunk. In a small backlog a chunk is a sixteenth of it, as in Valkey. The
/// backlog exceeds its size by a chunk at most.
const CHUNK_BYTES: usize = 64 * 1024;
const CHUNKS_MIN: u64 = 16;
/// The smallest allocation of a chunk. It is small because a replica that takes each small record
/// at once makes the next one begin a new chunk, and all those lie half empty in the backlog.
const CHUNK_MIN: usize = 512;
/// The number of marks. Records older than the first mark count as if they ended there.
const MARKS_MAX: usize = 4096;

impl Feed {
    /// The history that the stream belongs to.
    pub fn history(&self) -> History {
        *self.history.lock()
    }

    /// The name of that history.
    pub fn id(&self) -> HistoryId {
        self.history().id
    }

    /// Changes the history: to another one, or to another name.
    pub fn change_history<T>(&self, change: impl FnOnce(&mut History) -> T) -> T {
        change(&mut self.history.lock())
    }

    /// The database that the last command of a primary was for.
    pub fn relayed_database(&self) -> u32 {
        self.relayed_database.load(Ordering::SeqCst)
    }

    /// Sets the database of the primary's next command.
    pub fn set_relayed_database(&self, database: u32) {
        self.relayed_database.store(database, Ordering::SeqCst);
    }

    /// Whether any reader may want the stream.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::SeqCst)
    }

    /// Whether the log is appended to the stream.
    #[inline]
    pub fn takes_log(&self) -> bool {
        self.is_on() && !self.is_relayed.load(Ordering::SeqCst)
    }

    /// Sets whether the bytes come from a primary, or from the log. The gate is held.
    pub fn relay(&self, on: bool) {
        // With the lock held, nothing is being inserted.
        let state = self.state.lock();
        self.is_relayed.store(on, Ordering::SeqCst);
        drop(state);
    }

    /// From now on the log is appended, beginning behind this record. All earlier records end
    /// before the next byte. The gate is held.
    pub fn lead_from(&self, number: u64) {
        self.log_from.store(number, Ordering::SeqCst);
        self.state.lock().mark(number, true);
        self.relay(false);
    }

    /// The record behind which the log is appended.
    pub fn log_from(&self) -> u64 {
        self.log_from.load(Ordering::SeqCst)
    }

    /// Appends bytes from a primary.
    pub fn append_relayed(&self, bytes: &[u8]) {
        self.state.lock().push(bytes);
    }

    /// Begins to keep the stream from an offset on, with nothing before it. The gate is held.
    pub fn begin(&self, offset: u64) {
        let mut state = self.state.lock();
        state.empty(offset);
        self.published.store(offset, Ordering::SeqCst);
        self.is_on.store(true, Ordering::SeqCst);
    }

    /// Stops keeping the stream; its offset stays. If it begins again there, it belongs to a new
    /// history without an earlier name, as changes until then are not in the stream. The gate is
    /// held.
    pub fn end(&self) {
        self.is_on.store(false, Ordering::SeqCst);
        let mut state = self.state.lock();
        let end = state.end;
        state.empty(end);
        drop(state);
        self.beyond_backlog.store(0, Ordering::Relaxed);
        self.change_history(|history| history.take(HistoryId::new()));
    }

    /// Appends the bytes of all records up to a number, without publishing them. Returns the offset
    /// of the first byte.
    pub fn append(&self, number: u64, bytes: &[u8]) -> u64 {
        let state = &mut *self.state.lock();
        let start = state.end;
        if !bytes.is_empty() {
            state.push(bytes);
        }
        state.mark(number, !bytes.is_empty());
        start
    }

    /// Publishes all appended bytes to readers, and drops bytes that no reader needs. Readers with
    /// `waiting_max` unread bytes are let go. `tell` is called with their clients, and with the
    /// clients of readers that wait for more.
    pub fn publish(
        &self,
        backlog_max: u64,
        waiting_max: u64,
        mut tell: impl FnMut(&Arc<ClientInfo>),
    ) {
        let mut state = self.state.lock();
        let end = state.end;
        if self.published.swap(end, Ordering::SeqCst) == end {
            return;
        }
        let mut told = state.let_go(waiting_max);
        self.trim_locked(&mut state, backlog_max);
        let waits = |reader: &&Arc<ReaderState>| !reader.is_told.swap(true, Ordering::SeqCst);
        told.extend(state.readers.iter().filter(waits).cloned());
        drop(state);
        told.iter().filter_map(|reader| reader.client.as_ref()).for_each(&mut tell);
    }

    /// Drops bytes that no reader needs any more, although nothing was published: a reader has gone
    /// or has read, or the backlog may hold less.
    pub fn trim(&self, backlog_max: u64) {
        self.trim_locked(&mut self.state.lock(), backlog_max);
    }

    fn trim_locked(&self, state: &mut FeedState, backlog_max: u64) {
        // What is appended but not published yet is the next publisher's.
        state.trim(self.published(), backlog_max);
        let beyond = state.beyond_backlog();
        // Every thread that may evict reads this. It is mostly 0, so it is written only when it
        // changes.
        if self.beyond_backlog.load(Ordering::Relaxed) != beyond {
            self.beyond_backlog.store(beyond, Ordering::Relaxed);
        }
    }

    /// Appends a command that belongs to no record, such as a PING. It is published together with
    /// the next bytes. The stream of a primary gets no such commands: its offsets count the
    /// primary's bytes.
    pub fn insert(&self, args: &[&[u8]]) {
        let mut bytes = Vec::new();
        append_command(&mut bytes, args);
        let mut state = self.state.lock();
        if self.takes_log() {
            state.push(&bytes);
        }
    }

    /// The offset behind the last published byte: `master_repl_offset`.
    pub fn published(&self) -> u64 {
        self.published.load(Ordering::SeqCst)
    }

    /// The offset behind the last byte, published or not.
    pub fn end_offset(&self) -> u64 {
        self.state.lock().end
    }

    /// The offset of the first kept byte.
    pub fn start_offset(&self) -> u64 {
        self.state.lock().start
    }

    /// Bytes of memory that are kept only because a reader is slow.
    pub fn beyond_backlog(&self) -> usize {
        self.beyond_backlog.load(Ordering::Relaxed)
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.state.lock().chunks.iter().map(|chunk| chunk.bytes.capacity()).sum()
    }

    /// The offset behind a record or a later one; `None` if the record was not merged yet.
    pub fn offset_behind(&self, number: u64) -> Option<u64> {
        let state = self.state.lock();
        let at = state.marks.partition_point(|mark| mark.number < number);
        state.marks.get(at).map(|mark| mark.end)
    }

    /// A reader from an offset on. Returns `None` if the byte at that offset is not kept or was
    /// never written. `client` is told when there is more.
    pub fn reader(&self, offset: u64, client: Option<Arc<ClientInfo>>) -> Option<FeedReader> {
        let mut state = self.state.lock();
        if !(state.start..=state.end).contains(&offset) || !self.is_on() {
            return None;
        }
        Some(state.add_reader(offset, client))
    }

    /// A reader for this client from where another one is. `None`: that one gets nothing more.
    pub fn reader_from(&self, other: &FeedReader, client: &Arc<ClientInfo>) -> Option<FeedReader> {
        let mut state = self.state.lock();
        let goes_on = !other.is_let_go() && !other.is_over();
        goes_on.then(|| state.add_reader(other.offset(), Some(Arc::clone(client))))
    }

    /// Passes about `bytes_max` of the next bytes to a reader; none if it was let go, or if its
    /// stream is over.
    pub fn read(&self, reader: &FeedReader, bytes_max: u64, mut take: impl FnMut(SharedSlice)) {
        // This comes before the look at what is published: a thread that publishes later tells the
        // client again.
        reader.state.is_told.store(false, Ordering::SeqCst);
        let published = self.published();
        let mut at = reader.offset();
        if at >= published {
            return;
        }
        let until = published.min(at.saturating_add(bytes_max));
        let state = self.state.lock();
        if reader.is_let_go() || reader.is_over() {
            return;
        }
        let first = state.chunks.partition_point(|chunk| chunk.end() <= at);
        for chunk in state.chunks.range(first..) {
            if at >= until {
                break;
            }
            let end = chunk.end().min(published);
            let range = (at - chunk.start) as usize..(end - chunk.start) as usize;
            take(SharedSlice::new(Arc::clone(&chunk.bytes), range));
            at = end;
        }
        reader.state.at.store(at, Ordering::Relaxed);
    }
}

impl FeedState {
    /// Forgets all bytes. Another stream begins, or none.
    fn empty(&mut self, offset: u64) {
        self.readers.iter().for_each(|reader| reader.is_over.store(true, Ordering::SeqCst));
        let backlog_max = self.backlog_max;
        *self = Self { start: offset, end: offset, backlog_max, ..Self::default() };
    }

    fn add_reader(&mut self, offset: u64, client: Option<Arc<ClientInfo>>) -> FeedReader {
        let (is_told, is_let_go, is_over) = Default::default();
        let at = AtomicU64::new(offset);
        let reader = Arc::new(ReaderState { at, client, is_told, is_let_go, is_over });
        self.readers.push(Arc::clone(&reader));
        FeedReader { state: reader }
    }

    fn push(&mut self, mut bytes: &[u8]) {
        self.end += bytes.len() as u64;
        let chunk_bytes = match self.backlog_max / CHUNKS_MIN {
            0 => CHUNK_BYTES,
            bytes => bytes.clamp(CHUNK_MIN as u64, CHUNK_BYTES as u64) as usize,
        };
        // A chunk that a reader has a slice of must not change.
        if let Some(last) = self.chunks.back_mut()
            && let room @ 1.. = chunk_bytes.saturating_sub(last.bytes.len())
            && let Some(whole) = Arc::get_mut(&mut last.bytes)
        {
            let (piece, rest) = bytes.split_at(bytes.len().min(room));
            let needed = whole.len() + piece.len();
            if needed > whole.capacity() {
                // It grows to the size of a chunk and not beyond, as much of that would stay empty.
                let capacity = needed.max((2 * whole.capacity()).min(chunk_bytes));
                whole.reserve_exact(capacity - whole.len());
            }
            whole.extend_from_slice(piece);
            bytes = rest;
        }
        // A large record is cut up, so that the backlog does not keep all of it for its end.
        while !bytes.is_empty() {
            let start = self.end - bytes.len() as u64;
            let (piece, rest) = bytes.split_at(bytes.len().min(chunk_bytes));
            let mut whole = Vec::with_capacity(piece.len().max(CHUNK_MIN));
            whole.extend_from_slice(piece);
            self.chunks.push_back(FeedChunk { start, bytes: Arc::new(whole) });
            bytes = rest;
        }
    }

    /// Marks the end of the last record so far. Commands inserted behind the record do not move its
    /// end: replicas that have confirmed the record still have it.
    fn mark(&mut self, number: u64, has_grown: bool) {
        match self.marks.back_mut() {
            Some(last) if last.number == number => {
                if has_grown {
                    last.end = self.end;
                }
            }
            _ => {
                if self.marks.len() == MARKS_MAX {
                    self.marks.pop_front();
                }
                self.marks.push_back(Mark { number, end: self.end });
            }
        }
    }

    /// Removes the readers with too many unread bytes from the list, and returns them.
    fn let_go(&mut self, waiting_max: u64) -> Vec<Arc<ReaderState>> {
        let end = self.end;
        let is_behind = |reader: &mut Arc<ReaderState>| {
            end.saturating_sub(reader.at.load(Ordering::Relaxed)) >= waiting_max
        };
        let gone: Vec<_> = self.readers.extract_if(.., is_behind).collect();
        gone.iter().for_each(|reader| reader.is_let_go.store(true, Ordering::SeqCst));
        gone
    }

    /// Finds the chunks before the backlog, which begins at this offset.
    fn find_backlog(&mut self, backlog: u64) {
        // The last chunk may still grow.
        let last = self.chunks.len().saturating_sub(1);
        while self.before_backlog < last && self.chunks[self.before_backlog].end() <= backlog {
            self.before_backlog_bytes += self.chunks[self.before_backlog].memory();
            self.before_backlog += 1;
        }
        // The backlog may have become larger.
        while self.before_backlog > 0 && self.chunks[self.before_backlog - 1].end() > backlog {
            self.before_backlog -= 1;
            self.before_backlog_bytes -= self.chunks[self.before_backlog].memory();
        }
    }

    /// Bytes of memory that are kept only because a reader is slow.
    fn beyond_backlog(&self) -> usize {
        let in_outputs = self.in_outputs.iter().map(FeedChunk::memory).sum::<usize>();
        self.before_backlog_bytes + in_outputs
    }

    /// Drops what lies before the backlog, unless a reader needs it.
    fn trim(&mut self, end: u64, backlog_max: u64) {
        self.backlog_max = backlog_max;
        self.readers.retain(|reader| Arc::strong_count(reader) > 1);
        let needed = self.readers.iter().map(|reader| reader.at.load(Ordering::Relaxed)).min();
        let backlog = end.saturating_sub(backlog_max);
        let keep_from = needed.map_or(backlog, |needed| needed.min(backlog));
        self.find_backlog(backlog);
        self.in_outputs.retain(FeedChunk::is_in_output);
        while self.chunks.front().is_some_and(|chunk| chunk.end() <= keep_from)
            && let Some(chunk) = self.chunks.pop_front()
        {
            if self.before_backlog > 0 {
                self.before_backlog -= 1;
                self.before_backlog_bytes -= chunk.memory();
            }
            if chunk.is_in_output() {
                self.in_outputs.push(chunk);
            }
        }
        self.start = self.chunks.front().map_or(self.end, |chunk| chunk.start);
    }
}

impl FeedChunk {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Bytes of memory.
    fn memory(&self) -> usize {
        size_of::<Self>() + size_of::<Vec<u8>>() + memory::block_bytes(self.bytes.capacity())
    }

    /// Whether the output of a connection has a slice of it.
    fn is_in_output(&self) -> bool {
        Arc::strong_count(&self.bytes) > 1
    }
}

impl FeedReader {
    /// The offset of the next byte to read.
    pub fn offset(&self) -> u64 {
        self.state.at.load(Ordering::Relaxed)
    }

    /// Whether the reader was too far behind, so that its bytes are no longer kept.
    pub fn is_let_go(&self) -> bool {
        self.state.is_let_go.load(Ordering::SeqCst)
    }

    /// Whether the stream is over, because another one has begun.
    pub fn is_over(&self) -> bool {
        self.state.is_over.load(Ordering::SeqCst)
    }

    /// The number of unread bytes up to this offset; `None` if the reader was let go.
    pub fn waiting_bytes(&self, end: u64) -> Option<u64> {
        (!self.is_let_go()).then(|| end.saturating_sub(self.offset()))
    }
}

#[cfg(test)]
mod tests;
