//! The log as one stream of bytes that replicas read: the end of it, by offset.
//!
//! Offsets count all bytes since the stream began, as PSYNC and `master_repl_offset` do. The thread
//! that merges the log appends. Readers take slices of the same bytes, so all replicas share one
//! buffer. The backlog is the end of the stream: at least its last `backlog_max` bytes, and all
//! that a reader still needs. A reader that is too far behind is let go: its bytes are no longer
//! kept.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use bobbin_resp::SharedSlice;
use bobbin_sync::Mutex;

use super::append_command;
use super::history::{History, HistoryId};
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
    /// Bytes that are kept only because a reader is slow.
    beyond_backlog: AtomicU64,
    /// The history that the stream belongs to.
    history: Mutex<History>,
    /// The database that the last command of a primary was for.
    relayed_database: AtomicU32,
}

#[derive(Default)]
struct FeedState {
    chunks: VecDeque<FeedChunk>,
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
        let kept = state.end - state.start;
        let beyond = kept.saturating_sub(backlog_max.saturating_add(CHUNK_BYTES as u64));
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

    /// Bytes that are kept only because a reader is slow.
    pub fn beyond_backlog(&self) -> usize {
        self.beyond_backlog.load(Ordering::Relaxed) as usize
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
        let (is_told, is_let_go) = Default::default();
        let at = AtomicU64::new(offset);
        let reader = Arc::new(ReaderState { at, client, is_told, is_let_go });
        state.readers.push(Arc::clone(&reader));
        Some(FeedReader { state: reader })
    }

    /// Passes about `bytes_max` of the next bytes to a reader; none if it was let go.
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
        if reader.is_let_go() {
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
    fn empty(&mut self, offset: u64) {
        let backlog_max = self.backlog_max;
        *self = Self { start: offset, end: offset, backlog_max, ..Self::default() };
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

    /// Drops what lies before the backlog, unless a reader needs it.
    fn trim(&mut self, end: u64, backlog_max: u64) {
        self.backlog_max = backlog_max;
        self.readers.retain(|reader| Arc::strong_count(reader) > 1);
        let needed = self.readers.iter().map(|reader| reader.at.load(Ordering::Relaxed)).min();
        let backlog = end.saturating_sub(backlog_max);
        let keep_from = needed.map_or(backlog, |needed| needed.min(backlog));
        while self.chunks.front().is_some_and(|chunk| chunk.end() <= keep_from) {
            self.chunks.pop_front();
        }
        self.start = self.chunks.front().map_or(self.end, |chunk| chunk.start);
    }
}

impl FeedChunk {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
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

    /// The number of unread bytes up to this offset; `None` if the reader was let go.
    pub fn waiting_bytes(&self, end: u64) -> Option<u64> {
        (!self.is_let_go()).then(|| end.saturating_sub(self.offset()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(feed: &Feed, reader: &FeedReader, bytes_max: u64) -> String {
        let mut text = Vec::new();
        feed.read(reader, bytes_max, |slice| text.extend_from_slice(&slice));
        String::from_utf8(text).unwrap()
    }

    fn publish(feed: &Feed, backlog_max: u64) {
        feed.publish(backlog_max, u64::MAX, |_| {});
    }

    #[test]
    fn readers_get_what_is_published_from_their_offset_on() {
        let feed = Feed::default();
        assert!(feed.reader(0, None).is_none(), "it is off");
        feed.begin(10);
        let early = feed.reader(10, None).unwrap();
        feed.append(1, b"abc");
        assert_eq!(read(&feed, &early, 100), "", "not published");
        publish(&feed, 4);
        feed.append(2, b"def");
        assert_eq!(read(&feed, &early, 100), "abc");
        publish(&feed, 4);
        assert_eq!((feed.start_offset(), feed.published()), (10, 16), "a reader needs it");
        let late = feed.reader(12, None).unwrap();
        assert_eq!(read(&feed, &late, 100), "cdef");
        assert_eq!(read(&feed, &early, 100), "def");
        assert!(feed.reader(9, None).is_none() && feed.reader(17, None).is_none());
    }

    #[test]
    fn the_backlog_is_kept_and_no_more_than_that() {
        let feed = Feed::default();
        feed.begin(0);
        let line = [b'x'; 1000];
        for number in 1..=1000 {
            feed.append(number, &line);
            publish(&feed, 200_000);
            let kept = feed.published() - feed.start_offset();
            assert!(kept >= 200_000.min(feed.published()) && kept <= 200_000 + CHUNK_BYTES as u64);
        }
        assert!(feed.reader(0, None).is_none());
        let reader = feed.reader(feed.start_offset(), None).unwrap();
        for number in 1001..=2000 {
            feed.append(number, &line);
            publish(&feed, 200_000);
        }
        assert!(feed.published() - feed.start_offset() >= 1_200_000 - CHUNK_BYTES as u64);
        assert!((900_000..=1_000_000).contains(&feed.beyond_backlog()));
        drop(reader);
        feed.trim(200_000);
        assert!(feed.published() - feed.start_offset() <= 200_000 + CHUNK_BYTES as u64);
        assert_eq!(feed.beyond_backlog(), 0);
    }

    #[test]
    fn of_a_large_record_the_backlog_keeps_the_end() {
        let feed = Feed::default();
        feed.begin(0);
        feed.append(1, b"small");
        let large: Vec<u8> = (0..10_000_000_u32).map(|at| b'a' + (at % 23) as u8).collect();
        feed.append(2, &large);
        publish(&feed, 200_000);
        let kept = feed.published() - feed.start_offset();
        assert!((200_000..=200_000 + CHUNK_BYTES as u64).contains(&kept), "{kept}");
        assert!(feed.memory() <= 200_000 + 2 * CHUNK_BYTES, "{}", feed.memory());
        let reader = feed.reader(feed.start_offset(), None).unwrap();
        let told = read(&feed, &reader, u64::MAX);
        assert!(large.ends_with(told.as_bytes()) && told.len() as u64 == kept);
        // A small backlog is kept in small pieces.
        feed.trim(16_384);
        feed.begin(0);
        feed.append(3, &large);
        publish(&feed, 16_384);
        let kept = feed.published() - feed.start_offset();
        assert!((16_384..=17_408).contains(&kept), "{kept}");
    }

    #[test]
    fn a_reader_that_is_too_far_behind_is_let_go() {
        let feed = Feed::default();
        feed.begin(0);
        let [slow, quick] = [0, 0].map(|offset| feed.reader(offset, None).unwrap());
        for number in 1..=1000 {
            feed.append(number, &[b'x'; 1000]);
            feed.publish(0, 500_000, |_| {});
            assert_eq!(read(&feed, &quick, u64::MAX).len(), 1000);
            let (end, is_let_go) = (feed.published(), number >= 500);
            assert_eq!(slow.waiting_bytes(end), (!is_let_go).then_some(end));
            assert!(feed.beyond_backlog() < 500_000 && quick.waiting_bytes(end) == Some(0));
        }
        assert_eq!(read(&feed, &slow, u64::MAX), "", "it would be another part of the stream");
        assert!(feed.published() - feed.start_offset() <= CHUNK_BYTES as u64);
    }

    #[test]
    fn records_are_found_by_number_or_a_later_one() {
        let feed = Feed::default();
        feed.begin(0);
        feed.append(3, b"abc");
        feed.append(5, b"de");
        let found = [1, 3, 4, 5, 6].map(|number| feed.offset_behind(number));
        assert_eq!(found, [Some(3), Some(3), Some(5), Some(5), None]);
        for number in 6..6 + MARKS_MAX as u64 {
            feed.append(number, b"f");
        }
        assert_eq!(feed.offset_behind(1), Some(6), "older ones count as the oldest known");
    }

    #[test]
    fn records_before_the_beginning_end_where_it_begins() {
        let feed = Feed::default();
        feed.begin(10);
        assert_eq!(feed.offset_behind(5), None);
        feed.lead_from(7);
        feed.append(8, b"abc");
        feed.append(9, b"");
        let found = [5, 7, 8, 9, 10].map(|number| feed.offset_behind(number));
        assert_eq!(found, [Some(10), Some(10), Some(13), Some(13), None]);
    }

    #[test]
    fn what_is_inserted_behind_a_record_does_not_move_its_end() {
        let feed = Feed::default();
        feed.begin(0);
        feed.append(3, b"abc");
        feed.insert(&[b"PING"]);
        feed.append(3, b"");
        assert_eq!(feed.offset_behind(3), Some(3));
        feed.append(4, b"d");
        assert_eq!((feed.offset_behind(3), feed.offset_behind(4)), (Some(3), Some(18)));
    }

    #[test]
    fn nothing_is_inserted_into_the_stream_of_a_primary() {
        let feed = Feed::default();
        feed.begin(0);
        feed.relay(true);
        feed.append_relayed(b"abc");
        feed.insert(&[b"REPLCONF", b"GETACK", b"*"]);
        assert_eq!(feed.end_offset(), 3);
        feed.lead_from(7);
        feed.insert(&[b"PING"]);
        assert_eq!(feed.end_offset(), 17);
        feed.end();
        feed.insert(&[b"PING"]);
        assert_eq!(feed.end_offset(), 17, "nobody would get it");
    }

    #[test]
    fn small_pieces_that_are_held_cost_little() {
        let feed = Feed::default();
        feed.begin(0);
        let reader = feed.reader(0, None).unwrap();
        let mut held = None;
        for number in 0..1000 {
            feed.append(number, &[b'x'; 40]);
            publish(&feed, u64::MAX);
            feed.read(&reader, u64::MAX, |slice| held = Some(slice));
        }
        assert_eq!(held.map(|slice| slice.len()), Some(40));
        assert!(feed.memory() < 16 * 40 * 1000, "{}", feed.memory());
    }

    #[test]
    fn what_a_reader_holds_never_changes() {
        let feed = Feed::default();
        feed.begin(0);
        let reader = feed.reader(0, None).unwrap();
        let mut held = Vec::new();
        for number in 0..100 {
            feed.append(number, format!("{number:04}").as_bytes());
            publish(&feed, 0);
            if number % 3 == 0 {
                feed.read(&reader, u64::MAX, |slice| held.push(slice));
            }
        }
        let text: Vec<u8> = held.iter().flat_map(|slice| slice.to_vec()).collect();
        let expected: String = (0..100).map(|number| format!("{number:04}")).collect();
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
