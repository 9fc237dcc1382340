//! One order for the changes of all threads, without a lock or a buffer that they share.
//!
//! Each thread has a [`Lane`] of its own and appends its records there. A record's number comes
//! from one counter; it is taken while everything that the record is about is held, after the last
//! lock and before the first unlock. So records about the same thing are numbered in the order in
//! which they happened, and a record that was made after another one was acknowledged has the
//! higher number. The [`Merger`] puts the lanes together by number: numbers are dense, so a list by
//! number of who has which record is all that it needs, however many lanes there are. It stops at
//! the first one that is not there yet, and no beginning of what it yields holds a change without
//! those that came before it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bobbin_sync::{AtomicBool, AtomicU64, Futex, Mutex, MutexGuard, Ordering, OwnLine, fence};

use crate::entry;

/// The lanes of all threads, and the numbers of their records.
#[derive(Default)]
pub struct Log {
    shared: Arc<Shared>,
}

/// What one thread appends to.
pub struct Lane {
    shared: Arc<Shared>,
    buffer: Arc<Buffer>,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub number: u64,
    /// Bytes that lie in the lane, this record's included.
    pub waiting_bytes: usize,
}

/// Puts the lanes together. There is one.
#[derive(Default)]
pub struct Merger {
    /// The number of the last record that was yielded.
    done: u64,
    /// What it knows of each lane. A place is empty where a lane has ended, until another one gets
    /// it.
    sources: Vec<Option<Source>>,
    /// The places of the sources that have the records behind `done`, by number.
    owners: VecDeque<u32>,
    /// The changes of the list of lanes that were seen.
    seen: u64,
}

#[derive(Default)]
struct Shared {
    /// How many numbers were given out: the last one, as they start from 1.
    last: OwnLine<AtomicU64>,
    /// `AWAKE`, `RUNG` or `ASLEEP`: the merger's owner.
    reader: OwnLine<Futex>,
    is_on: OwnLine<AtomicBool>,
    lanes: Mutex<Lanes>,
}

#[derive(Default)]
struct Lanes {
    /// Of those that are, and of those that were and hold records.
    buffers: Vec<Arc<Buffer>>,
    /// How often a lane began or ended.
    changes: u64,
}

/// What was appended and not taken yet.
#[derive(Default)]
struct Buffer {
    records: Mutex<Records>,
    /// Nothing more will be appended.
    has_ended: AtomicBool,
}

#[derive(Default)]
struct Records {
    /// Records, each behind its number and its length. Of a large one there is no more than that.
    bytes: Vec<u8>,
    large: VecDeque<Vec<u8>>,
    large_bytes: usize,
}

/// A lane as the merger sees it, with what it took from there.
struct Source {
    buffer: Arc<Buffer>,
    taken: Records,
    at: usize,
    /// The large record that was yielded last.
    shown: Vec<u8>,
}

const NUMBER_BYTES: usize = size_of::<u64>();
const LENGTH_BYTES: usize = size_of::<u64>();
const HEADER_BYTES: usize = NUMBER_BYTES + LENGTH_BYTES;
/// Room for more owners than this is given back once there are none.
const OWNERS_KEPT_MAX: usize = 1 << 16;
/// In the place of an owner: the record was not collected yet.
const NOBODY: u32 = u32::MAX;
/// Where the length is, for a record that lies elsewhere.
const IS_LARGE: u64 = u64::MAX;
/// A record of at least this many bytes is not copied if it may be kept.
const LARGE_MIN: usize = 64 * 1024;
/// A buffer larger than this is given back once it is empty.
const KEPT_MAX: usize = 1 << 20;

/// What small records take, a cache line or two.
const LINES_AHEAD: usize = 2;
const LINE_BYTES: usize = 64;

const AWAKE: u32 = 0;
/// Awake, or about to be, and there is something to see.
const RUNG: u32 = 1;
const ASLEEP: u32 = 2;

impl Log {
    /// A lane for the calling thread. It ends when it is dropped and what it holds was merged.
    pub fn lane(&self) -> Lane {
        let buffer = Arc::<Buffer>::default();
        let mut lanes = self.shared.lanes.lock();
        lanes.buffers.push(Arc::clone(&buffer));
        lanes.changes += 1;
        drop(lanes);
        Lane { shared: Arc::clone(&self.shared), buffer }
    }

    /// Turns it on or off. The gate is held: nobody is in the midst of a change.
    pub fn switch(&self, on: bool) {
        self.shared.is_on.0.store(on, Ordering::SeqCst);
    }

    pub fn is_on(&self) -> bool {
        self.shared.is_on.0.load(Ordering::SeqCst)
    }

    /// The number that was given out last; 0: none was.
    #[inline]
    pub fn last(&self) -> u64 {
        self.shared.last.0.load(Ordering::SeqCst)
    }

    /// Bytes that lie in the lanes.
    pub fn pending_bytes(&self) -> usize {
        self.shared.lanes.lock().buffers.iter().map(|buffer| buffer.lock().len()).sum()
    }

    /// Sleeps until a thread rings after it appended, or [`wake`](Self::wake) is called, at most
    /// for the given time; not at all if that happened since it slept last. What was left before a
    /// ring is there after this.
    pub fn sleep(&self, timeout: Option<Duration>) {
        let reader = &self.shared.reader.0;
        if reader
            .word()
            .compare_exchange(AWAKE, ASLEEP, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
        {
            reader.wait_for(ASLEEP, timeout);
        }
        reader.word().store(AWAKE, Ordering::Relaxed);
        // Pairs with the fence of `wake`: either who rings sees that it has to, or we see what was
        // left.
        fence(Ordering::SeqCst);
    }

    /// Wakes the reader, or lets it not fall asleep. To be called after what it is to see was left.
    pub fn wake(&self) {
        self.shared.wake();
    }
}

impl Shared {
    #[inline]
    fn next_number(&self) -> u64 {
        self.last.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    #[inline]
    fn wake(&self) {
        fence(Ordering::SeqCst);
        let reader = &self.reader.0;
        // Most find that somebody has rung before, and change nothing that they share.
        if reader.word().load(Ordering::Relaxed) != RUNG
            && reader.word().swap(RUNG, Ordering::Relaxed) == ASLEEP
        {
            reader.wake(1);
        }
    }
}

impl Lane {
    /// Whether somebody reads the log. Changes only while the gate is held.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.shared.is_on.0.load(Ordering::Relaxed)
    }

    /// Appends a record and gives it its number. The caller holds everything that the record is
    /// about.
    #[inline]
    pub fn append(&self, record: &[u8]) -> Appended {
        self.append_with(|bytes| bytes.extend_from_slice(record))
    }

    /// Appends a record as `append` does, but has `write` write it in place: it appends to the
    /// bytes that are there.
    #[inline]
    pub fn append_with(&self, write: impl FnOnce(&mut Vec<u8>)) -> Appended {
        let mut records = self.buffer.lock();
        let at = records.bytes.len();
        records.push_header(0, 0);
        write(&mut records.bytes);
        // From taking the number until the buffer is let go nothing can take long: all others wait
        // for it.
        let number = self.shared.next_number();
        records.set_header(at, number);
        records.prefetch_end();
        Appended { number, waiting_bytes: records.len() }
    }

    /// Appends a record as `append` does, but takes a large one out of the vector instead of
    /// copying it.
    #[inline]
    pub fn append_from(&self, record: &mut Vec<u8>) -> Appended {
        if record.len() < LARGE_MIN { self.append(record) } else { self.append_large(record) }
    }

    #[cold]
    fn append_large(&self, record: &mut Vec<u8>) -> Appended {
        let mut records = self.buffer.lock();
        records.bytes.reserve(HEADER_BYTES);
        records.large.reserve(1);
        let number = self.shared.next_number();
        records.push_header(number, IS_LARGE);
        records.large_bytes += record.len();
        records.large.push_back(std::mem::take(record));
        Appended { number, waiting_bytes: records.len() }
    }

    /// Wakes the reader, or lets it not fall asleep. To be called once after the records of a turn.
    #[inline]
    pub fn ring(&self) {
        self.shared.wake();
    }
}

impl Drop for Lane {
    /// Where nobody reads the log, nobody else would take the lane from the list.
    fn drop(&mut self) {
        let mut lanes = self.shared.lanes.lock();
        lanes.changes += 1;
        self.buffer.has_ended.store(true, Ordering::Release);
        if self.buffer.lock().len() == 0 {
            lanes.buffers.retain(|buffer| !Arc::ptr_eq(buffer, &self.buffer));
        }
    }
}

impl Merger {
    /// Takes what the lanes hold: every record whose number was given out before.
    pub fn collect(&mut self, log: &Log) {
        let mut lanes = log.shared.lanes.lock();
        if lanes.changes != self.seen {
            self.follow(&mut lanes);
        }
        drop(lanes);
        if self.owners.is_empty() {
            self.owners.shrink_to(OWNERS_KEPT_MAX);
        }
        for (source, place) in self.sources.iter_mut().zip(0..) {
            let Some(known) = source else { continue };
            let has_ended = known.buffer.has_ended();
            for number in known.refill() {
                let ahead = (number - self.done - 1) as usize;
                match self.owners.get_mut(ahead) {
                    Some(owner) => *owner = place,
                    None => {
                        self.owners.resize(ahead, NOBODY);
                        self.owners.push_back(place);
                    }
                }
            }
            source.take_if(|source| has_ended && source.is_empty());
        }
    }

    /// Gets to know lanes that are new, and takes those off the list that have ended.
    #[cold]
    fn follow(&mut self, lanes: &mut Lanes) {
        for buffer in &lanes.buffers {
            let is_known = |source: &Source| Arc::ptr_eq(&source.buffer, buffer);
            if self.sources.iter().flatten().any(is_known) {
                continue;
            }
            let buffer = Arc::clone(buffer);
            let source =
                Some(Source { buffer, taken: Records::default(), at: 0, shown: Vec::new() });
            match self.sources.iter_mut().find(|place| place.is_none()) {
                Some(place) => *place = source,
                None => self.sources.push(source),
            }
        }
        lanes.buffers.retain(|buffer| !buffer.has_ended() || buffer.lock().len() > 0);
        // One that still holds something goes next time.
        if !lanes.buffers.iter().any(|buffer| buffer.has_ended()) {
            self.seen = lanes.changes;
        }
    }

    /// The next record by number, if it was collected.
    pub fn take_next(&mut self) -> Option<&[u8]> {
        let owner = *self.owners.front().filter(|&&owner| owner != NOBODY)?;
        self.owners.pop_front();
        self.done += 1;
        let source = self.sources.get_mut(owner as usize)?.as_mut();
        Some(source.expect("a source with records is kept").take())
    }

    /// The number of the last record that was yielded: all before it were as well.
    pub const fn done(&self) -> u64 {
        self.done
    }
}

impl Source {
    /// Takes what the lane holds: by exchanging buffers, or, if something is left that waits for
    /// the records of others, behind that. Returns the numbers of what it took.
    fn refill(&mut self) -> Numbers<'_> {
        let is_empty = self.is_empty();
        self.taken.bytes.drain(..self.at);
        self.at = 0;
        self.shown = Vec::new();
        if is_empty {
            self.taken.bytes.shrink_to(KEPT_MAX);
            self.taken.large_bytes = 0;
        }
        let new_at = self.taken.bytes.len();
        let mut records = self.buffer.lock();
        if is_empty {
            std::mem::swap(&mut *records, &mut self.taken);
        } else {
            self.taken.bytes.append(&mut records.bytes);
            self.taken.large.append(&mut records.large);
            self.taken.large_bytes += std::mem::take(&mut records.large_bytes);
        }
        Numbers { bytes: &self.taken.bytes[new_at..] }
    }

    fn is_empty(&self) -> bool {
        self.at == self.taken.bytes.len()
    }

    fn take(&mut self) -> &[u8] {
        let start = self.at + HEADER_BYTES;
        let header = header(&self.taken.bytes[self.at..]).expect("an owner has a record");
        self.at = start + header.len_here();
        if header.length == IS_LARGE {
            self.shown = self.taken.large.pop_front().unwrap_or_default();
            return &self.shown;
        }
        &self.taken.bytes[start..self.at]
    }
}

/// What stands before a record.
struct Header {
    number: u64,
    length: u64,
}

impl Header {
    /// Bytes of the record that lie behind the header.
    const fn len_here(&self) -> usize {
        if self.length == IS_LARGE { 0 } else { self.length as usize }
    }
}

fn header(bytes: &[u8]) -> Option<Header> {
    let (number, rest) = bytes.split_first_chunk::<NUMBER_BYTES>()?;
    let length = rest.first_chunk::<LENGTH_BYTES>()?;
    Some(Header { number: u64::from_le_bytes(*number), length: u64::from_le_bytes(*length) })
}

/// The numbers of the records that lie in some bytes.
struct Numbers<'a> {
    bytes: &'a [u8],
}

impl Iterator for Numbers<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let header = header(self.bytes)?;
        self.bytes = self.bytes.get(HEADER_BYTES + header.len_here()..)?;
        Some(header.number)
    }
}

impl Buffer {
    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock(&self) -> MutexGuard<'_, Records> {
        self.records.lock()
    }
}

impl Records {
    #[inline]
    fn push_header(&mut self, number: u64, length: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
        self.bytes.extend_from_slice(&length.to_le_bytes());
    }

    /// Sets the header `at` this place, of the last record.
    #[inline]
    fn set_header(&mut self, at: usize, number: u64) {
        let length = (self.bytes.len() - at - HEADER_BYTES) as u64;
        let (number_bytes, length_bytes) =
            self.bytes[at..at + HEADER_BYTES].split_at_mut(NUMBER_BYTES);
        number_bytes.copy_from_slice(&number.to_le_bytes());
        length_bytes.copy_from_slice(&length.to_le_bytes());
    }

    /// Has what is behind the last record brought here from the core of the merger, which had it
    /// last, before the next record is written there.
    #[inline]
    fn prefetch_end(&self) {
        let end = self.bytes.as_ptr().wrapping_add(self.bytes.len());
        for line in 1..=LINES_AHEAD {
            entry::prefetch_to_write(end.wrapping_add(line * LINE_BYTES));
        }
    }

    /// Bytes of memory, about.
    fn len(&self) -> usize {
        self.bytes.len() + self.large_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(merger: &mut Merger) -> Vec<u8> {
        std::iter::from_fn(|| merger.take_next().map(|record| record[0])).collect()
    }

    fn lanes(log: &Log) -> usize {
        log.shared.lanes.lock().buffers.len()
    }

    #[test]
    fn records_come_by_number_and_up_to_the_first_missing_one() {
        let (log, mut merger) = (Log::default(), Merger::default());
        let lanes = [log.lane(), log.lane(), log.lane()];
        for (at, lane) in [0, 0, 2, 1, 0, 2].into_iter().enumerate() {
            assert_eq!(lanes[lane].append(&[at as u8]).number, at as u64 + 1);
        }
        assert_eq!(log.last(), 6);
        merger.collect(&log);
        assert_eq!(all(&mut merger), [0, 1, 2, 3, 4, 5]);
        // Another thread has a number and did not append yet.
        log.shared.last.0.fetch_add(1, Ordering::SeqCst);
        lanes[1].append(b"8");
        merger.collect(&log);
        assert_eq!((all(&mut merger), merger.done()), (vec![], 6));
        let mut records = lanes[0].buffer.lock();
        records.push_header(7, 1);
        records.bytes.push(b'7');
        drop(records);
        merger.collect(&log);
        assert_eq!((all(&mut merger), merger.done()), (b"78".to_vec(), 8));
        assert_eq!(log.pending_bytes(), 0);
    }

    #[test]
    fn large_records_keep_their_place() {
        let (log, mut merger) = (Log::default(), Merger::default());
        let lanes = [log.lane(), log.lane()];
        let lens = [10, LARGE_MIN, 20, LARGE_MIN + 1, LARGE_MIN + 2, 0, 30];
        for round in 0..2 {
            for (at, &len) in lens.iter().enumerate() {
                let mut record = vec![at as u8; len];
                let appended = lanes[at % 2].append_from(&mut record);
                assert!(appended.waiting_bytes >= len);
                assert_eq!(record.is_empty(), len >= LARGE_MIN || len == 0, "{round}");
            }
            merger.collect(&log);
            for (at, &len) in lens.iter().enumerate() {
                assert_eq!(merger.take_next(), Some(&vec![at as u8; len][..]));
            }
            assert_eq!((merger.take_next(), log.pending_bytes()), (None, 0));
        }
    }

    #[test]
    fn lanes_that_end_are_forgotten_though_nobody_reads() {
        let log = Log::default();
        let kept = log.lane();
        for _ in 0..if cfg!(miri) { 20 } else { 1000 } {
            drop(log.lane());
        }
        assert_eq!(lanes(&log), 1);
        kept.append(b"x");
        drop(kept);
        assert_eq!(lanes(&log), 1, "what it holds will be merged");
        let mut merger = Merger::default();
        merger.collect(&log);
        assert_eq!(all(&mut merger), b"x");
    }

    #[test]
    fn a_new_lane_gets_the_place_of_one_that_ended() {
        let (log, mut merger) = (Log::default(), Merger::default());
        let kept = log.lane();
        for round in 0..10 {
            let lane = log.lane();
            kept.append(&[2 * round]);
            lane.append(&[2 * round + 1]);
            drop(lane);
            merger.collect(&log);
            assert_eq!(all(&mut merger), [2 * round, 2 * round + 1]);
        }
        merger.collect(&log);
        assert_eq!((merger.sources.iter().flatten().count(), lanes(&log)), (1, 1));
        assert!(merger.sources.len() <= 3, "{}", merger.sources.len());
    }

    #[test]
    fn a_lane_that_ends_is_merged_and_forgotten() {
        let (log, mut merger) = (Log::default(), Merger::default());
        let lane = log.lane();
        merger.collect(&log);
        lane.append(b"x");
        drop(lane);
        merger.collect(&log);
        assert_eq!(all(&mut merger), b"x");
        merger.collect(&log);
        assert_eq!((merger.sources.iter().flatten().count(), lanes(&log)), (0, 0));
    }
}
