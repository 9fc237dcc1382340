//! One order for the changes of all threads, without a lock or a buffer that they share.
//!
//! Each thread appends its records to its own [`Lane`]. A record's number comes from one counter,
//! or from a clock that is the same for all threads. The number is taken while everything that the
//! record concerns is locked: after the last lock and before the first unlock. So records about the
//! same thing are numbered in the order in which they happened, and a record made after another one
//! was acknowledged has the higher number. The [`Merger`] merges the lanes by number.
//!
//! A number is taken while the lane is locked. So when the merger reads the counter, or the clock,
//! and then each lane, it gets all records up to the number that it read. It yields those and no
//! later ones. So no change is yielded before the changes that preceded it.

mod merger;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bobbin_sync::{AtomicBool, AtomicU64, Futex, Mutex, MutexGuard, Ordering, OwnLine, fence};

pub use merger::Merger;

use crate::value::prefetch::prefetch_to_write;

/// The lanes of all threads, and the numbers of their records.
#[derive(Default)]
pub struct Log {
    shared: Arc<LogState>,
}

/// A clock that numbers records. Each reading, by any thread, is higher than all earlier ones.
pub type NumberClock = Box<dyn Fn() -> u64 + Send + Sync>;

/// One thread's part of the log.
pub struct Lane {
    shared: Arc<LogState>,
    buffer: Arc<Buffer>,
}

/// The result of appending a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub number: u64,
    /// How many bytes lie in the lane, including this record's.
    pub waiting_bytes: usize,
}

#[derive(Default)]
struct LogState {
    /// The last number that the counter gave out.
    counter: OwnLine<AtomicU64>,
    /// `AWAKE`, `RUNG` or `ASLEEP`: the state of the thread with the merger.
    reader: OwnLine<Futex>,
    modes: OwnLine<Modes>,
    lanes: OwnLine<Mutex<Lanes>>,
    held: HeldBytes,
}

/// Bytes of memory of records that wait for the merger or are in it, beyond the room that is kept
/// for later records. Changes when memory is allocated or freed, not with each record.
#[derive(Default)]
struct HeldBytes(OwnLine<AtomicU64>);

/// Whether records are made, and where their numbers come from. Changes only with the gate held.
#[derive(Default)]
struct Modes {
    is_on: AtomicBool,
    by_clock: AtomicBool,
    clock: Option<NumberClock>,
}

#[derive(Default)]
struct Lanes {
    /// The buffers of all lanes, including ended ones that still hold records.
    buffers: Vec<Arc<Buffer>>,
    /// How many times a lane began or ended.
    changes: u64,
    /// The highest number of a record in a lane that has ended.
    ended_last: u64,
}

/// Records that were appended and not taken yet.
#[derive(Default)]
struct Buffer {
    records: Mutex<LaneRecords>,
    /// The number of the last record that was appended.
    last: AtomicU64,
    /// Nothing more will be appended.
    has_ended: AtomicBool,
}

#[derive(Default)]
struct LaneRecords {
    /// The records, each behind its number and its length. A large record has only these here.
    bytes: Vec<u8>,
    large: VecDeque<Vec<u8>>,
    large_bytes: usize,
    /// The capacity, and the bytes of memory, that are counted in `HeldBytes`.
    known_capacity: usize,
    held: u64,
}

const NUMBER_BYTES: usize = size_of::<u64>();
const LENGTH_BYTES: usize = size_of::<u64>();
const HEADER_BYTES: usize = NUMBER_BYTES + LENGTH_BYTES;
/// The length that says that the record is in `large`.
const IS_LARGE: u64 = u64::MAX;
/// A record of at least this many bytes is moved instead of copied, if the caller gives it away.
const LARGE_MIN: usize = 64 * 1024;
/// A buffer larger than this is freed once it is empty.
const KEPT_MAX: usize = 1 << 20;
/// So much room for records is never given back.
const ROOM_MIN: usize = 64 << 10;

/// How many cache lines a small record takes.
const LINES_AHEAD: usize = 2;
const LINE_BYTES: usize = 64;

const AWAKE: u32 = 0;
/// Awake, or about to be, and there is something new.
const RUNG: u32 = 1;
const ASLEEP: u32 = 2;

impl Log {
    /// A log that can be numbered by a clock.
    pub fn with_clock(clock: NumberClock) -> Self {
        let modes = OwnLine(Modes { clock: Some(clock), ..Modes::default() });
        Self { shared: Arc::new(LogState { modes, ..LogState::default() }) }
    }

    /// A lane for the calling thread. It ends when it is dropped and its records were merged.
    pub fn lane(&self) -> Lane {
        let buffer = Arc::<Buffer>::default();
        let mut lanes = self.shared.lanes.0.lock();
        lanes.buffers.push(Arc::clone(&buffer));
        lanes.changes += 1;
        drop(lanes);
        Lane { shared: Arc::clone(&self.shared), buffer }
    }

    /// Turns the log on or off. The caller holds the gate: no thread is making a change.
    pub fn switch(&self, on: bool) {
        self.shared.modes.0.is_on.store(on, Ordering::SeqCst);
    }

    pub fn is_on(&self) -> bool {
        self.shared.modes.0.is_on.load(Ordering::SeqCst)
    }

    /// Takes numbers from the clock from now on, or from the counter. The caller holds the gate, or
    /// no thread has a lane yet. A log without a clock always uses its counter.
    ///
    /// The counter is a cache line that all threads write. It costs little with one thread, and
    /// makes `last` quick. The clock costs about 30 ns with any number of threads.
    pub fn number_by_clock(&self, by_clock: bool) {
        let LogState { counter, modes: OwnLine(modes), .. } = &*self.shared;
        let Some(clock) = &modes.clock else { return };
        // The merger locks this while it collects. So it cannot read the time, and then find lower
        // numbers from the counter in the lanes.
        let lanes = self.shared.lanes.0.lock();
        let last = lanes.last_number();
        counter.0.fetch_max(last, Ordering::SeqCst);
        // The counter cannot get ahead of a clock that counts nanoseconds.
        modes.by_clock.store(by_clock && clock() > last, Ordering::SeqCst);
    }

    /// Whether numbers come from the clock.
    pub fn is_by_clock(&self) -> bool {
        self.shared.modes.0.by_clock.load(Ordering::Relaxed)
    }

    /// The highest number of a record; 0: there was none. If the clock gives the numbers, this
    /// looks at each lane.
    #[inline]
    pub fn last(&self) -> u64 {
        if self.is_by_clock() { self.last_of_lanes() } else { self.until_now() }
    }

    #[cold]
    fn last_of_lanes(&self) -> u64 {
        self.shared.lanes.0.lock().last_number()
    }

    /// A number that no earlier record exceeds, and that every later record exceeds. There need not
    /// be a record with this number.
    #[inline]
    pub fn until_now(&self) -> u64 {
        match &self.shared.modes.0.clock {
            Some(clock) if self.is_by_clock() => clock(),
            _ => self.shared.counter.0.load(Ordering::SeqCst),
        }
    }

    /// How many bytes lie in the lanes.
    pub fn pending_bytes(&self) -> usize {
        self.shared.lanes.0.lock().buffers.iter().map(|buffer| buffer.lock().len()).sum()
    }

    /// Bytes of memory of records that wait for the merger or are in it, beyond the little room
    /// that is kept for later records.
    pub fn held_bytes(&self) -> usize {
        self.shared.held.0.0.load(Ordering::Relaxed) as usize
    }

    /// Sleeps until a thread calls [`Lane::ring`] or [`wake`](Self::wake), or for the given time at
    /// most. Does not sleep if that happened since the last sleep. Afterwards everything that was
    /// appended before the call is visible.
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
        // Pairs with the fence of `wake`: either the calling thread sees that it must wake us, or
        // we see what it appended.
        fence(Ordering::SeqCst);
    }

    /// Wakes the reader, or keeps it from falling asleep. Must be called after appending.
    pub fn wake(&self) {
        self.shared.wake();
    }
}

impl Lanes {
    fn last_number(&self) -> u64 {
        let of_lanes = self.buffers.iter().map(|buffer| buffer.last.load(Ordering::Relaxed));
        of_lanes.fold(self.ended_last, u64::max)
    }
}

impl LogState {
    #[inline]
    fn next_number(&self) -> u64 {
        let modes = &self.modes.0;
        match &modes.clock {
            Some(clock) if modes.by_clock.load(Ordering::Relaxed) => clock(),
            _ => self.counter.0.fetch_add(1, Ordering::SeqCst) + 1,
        }
    }

    #[inline]
    fn wake(&self) {
        fence(Ordering::SeqCst);
        let reader = &self.reader.0;
        // Most threads find that another one has rung already, and write nothing that threads
        // share.
        if reader.word().load(Ordering::Relaxed) != RUNG
            && reader.word().swap(RUNG, Ordering::Relaxed) == ASLEEP
        {
            reader.wake(1);
        }
    }
}

impl Lane {
    /// Whether the log is read. Changes only with the gate held.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.shared.modes.0.is_on.load(Ordering::Relaxed)
    }

    /// Appends a record and gives it its number. The caller holds the locks of everything that the
    /// record concerns.
    #[inline]
    pub fn append(&self, record: &[u8]) -> Appended {
        self.append_with(|bytes| bytes.extend_from_slice(record))
    }

    /// Appends a record as `append` does. `write` writes it in place, by appending to the bytes.
    #[inline]
    pub fn append_with(&self, write: impl FnOnce(&mut Vec<u8>)) -> Appended {
        let mut records = self.buffer.lock();
        let at = records.bytes.len();
        records.push_header(0, 0);
        write(&mut records.bytes);
        // Between taking the number and unlocking the buffer nothing may take long, because the
        // merger waits for the buffer.
        let number = self.next_number();
        records.set_header(at, number);
        records.prefetch_end();
        if records.bytes.capacity() > records.known_capacity {
            self.shared.held.follow(&mut records);
        }
        Appended { number, waiting_bytes: records.len() }
    }

    /// Appends a record as `append` does, but moves a large one out of the vector instead of
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
        let number = self.next_number();
        records.push_header(number, IS_LARGE);
        records.large_bytes += record.len();
        records.large.push_back(std::mem::take(record));
        self.shared.held.follow(&mut records);
        Appended { number, waiting_bytes: records.len() }
    }

    /// Takes a number for a record. The buffer is locked.
    #[inline]
    fn next_number(&self) -> u64 {
        let number = self.shared.next_number();
        self.buffer.last.store(number, Ordering::Relaxed);
        number
    }

    /// Wakes the reader, or keeps it from falling asleep. Called once after the records of a turn.
    #[inline]
    pub fn ring(&self) {
        self.shared.wake();
    }
}

impl Drop for Lane {
    /// If the log is not read, nothing else removes the lane from the list.
    fn drop(&mut self) {
        let mut lanes = self.shared.lanes.0.lock();
        lanes.changes += 1;
        lanes.ended_last = lanes.ended_last.max(self.buffer.last.load(Ordering::Relaxed));
        self.buffer.has_ended.store(true, Ordering::Release);
        let mut records = self.buffer.lock();
        if records.len() == 0 {
            self.shared.held.free(&mut records);
            lanes.buffers.retain(|buffer| !Arc::ptr_eq(buffer, &self.buffer));
        }
    }
}

impl HeldBytes {
    /// Updates the count after records took more or less memory.
    #[cold]
    fn follow(&self, records: &mut LaneRecords) {
        let capacity = records.bytes.capacity();
        records.known_capacity = capacity.max(KEPT_MAX);
        let held = if capacity > KEPT_MAX { capacity } else { 0 } + records.large_bytes;
        self.change(&mut records.held, held);
    }

    /// Frees room of records beyond this many bytes, and beyond what they fill.
    fn shrink(&self, records: &mut LaneRecords, bytes: usize) {
        records.bytes.shrink_to(bytes);
        if records.held > 0 {
            self.follow(records);
        }
    }

    /// Counts `now` instead of `before`.
    fn change(&self, before: &mut u64, now: usize) {
        let change = (now as u64).wrapping_sub(std::mem::replace(before, now as u64));
        if change != 0 {
            self.0.0.fetch_add(change, Ordering::Relaxed);
        }
    }

    /// Frees the memory of records that will not be used again.
    fn free(&self, records: &mut LaneRecords) {
        self.change(&mut records.held, 0);
        *records = LaneRecords::default();
    }
}

/// The header of a record.
struct RecordHeader {
    number: u64,
    length: u64,
}

impl RecordHeader {
    /// How many bytes of the record lie behind the header.
    const fn len_here(&self) -> usize {
        if self.length == IS_LARGE { 0 } else { self.length as usize }
    }
}

fn header(bytes: &[u8]) -> Option<RecordHeader> {
    let (number, rest) = bytes.split_first_chunk::<NUMBER_BYTES>()?;
    let length = rest.first_chunk::<LENGTH_BYTES>()?;
    Some(RecordHeader { number: u64::from_le_bytes(*number), length: u64::from_le_bytes(*length) })
}

impl Buffer {
    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn lock(&self) -> MutexGuard<'_, LaneRecords> {
        self.records.lock()
    }
}

impl LaneRecords {
    #[inline]
    fn push_header(&mut self, number: u64, length: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
        self.bytes.extend_from_slice(&length.to_le_bytes());
    }

    /// Sets the header of the last record, which is at `at`.
    #[inline]
    fn set_header(&mut self, at: usize, number: u64) {
        let length = (self.bytes.len() - at - HEADER_BYTES) as u64;
        let (number_bytes, length_bytes) =
            self.bytes[at..at + HEADER_BYTES].split_at_mut(NUMBER_BYTES);
        number_bytes.copy_from_slice(&number.to_le_bytes());
        length_bytes.copy_from_slice(&length.to_le_bytes());
    }

    /// Prefetches the bytes behind the last record, before the next record is written there. The
    /// merger's core had them last.
    #[inline]
    fn prefetch_end(&self) {
        let end = self.bytes.as_ptr().wrapping_add(self.bytes.len());
        for line in 1..=LINES_AHEAD {
            prefetch_to_write(end.wrapping_add(line * LINE_BYTES));
        }
    }

    /// Bytes of memory, approximately.
    fn len(&self) -> usize {
        self.bytes.len() + self.large_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(merger: &mut Merger) -> Vec<u8> {
        std::iter::from_fn(|| merger.take_next(u64::MAX).map(|record| record[0])).collect()
    }

    fn lanes(log: &Log) -> usize {
        log.shared.lanes.0.lock().buffers.len()
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
        assert_eq!((merger.done(), log.pending_bytes()), (6, 0));
    }

    /// A log whose clock begins with the returned word, and shows one more each time.
    fn clocked() -> (Log, Arc<AtomicU64>) {
        let time = Arc::<AtomicU64>::default();
        let clock = Arc::clone(&time);
        let log = Log::with_clock(Box::new(move || clock.fetch_add(1, Ordering::Relaxed) + 1));
        (log, time)
    }

    #[test]
    fn a_record_that_is_later_than_the_look_waits_for_the_next() {
        let ((log, time), mut merger) = (clocked(), Merger::default());
        log.number_by_clock(true);
        let lanes = [log.lane(), log.lane()];
        time.store(100, Ordering::Relaxed);
        lanes[1].append(b"b");
        lanes[0].append(b"c");
        assert_eq!(log.last(), 102);
        // The merger read the clock before these were appended, so records of the first lane may be
        // missing.
        time.store(90, Ordering::Relaxed);
        merger.collect(&log);
        assert_eq!((all(&mut merger), merger.done()), (vec![], 0));
        time.store(101, Ordering::Relaxed);
        merger.collect(&log);
        assert_eq!(merger.take_next(100), None, "no further than asked for");
        assert_eq!((all(&mut merger), merger.done()), (b"bc".to_vec(), 102));
    }

    #[test]
    fn numbers_rise_when_another_source_gives_them() {
        let ((log, time), mut merger) = (clocked(), Merger::default());
        let lanes = [log.lane(), log.lane()];
        let append = |lane: usize, name: u8| lanes[lane].append(&[name]).number;
        assert_eq!((append(0, b'a'), append(1, b'b'), log.last()), (1, 2, 2));
        time.store(1000, Ordering::Relaxed);
        log.number_by_clock(true);
        assert_eq!((append(1, b'c'), append(0, b'd'), log.last()), (1002, 1003, 1003));
        log.number_by_clock(false);
        assert_eq!(log.last(), 1003, "that record's number, not one that none has");
        assert_eq!((append(0, b'e'), append(1, b'f'), log.last()), (1004, 1005, 1005));
        // A clock that is behind would give lower numbers.
        time.store(10, Ordering::Relaxed);
        log.number_by_clock(true);
        assert_eq!((append(0, b'g'), log.is_by_clock()), (1006, false));
        merger.collect(&log);
        assert_eq!(all(&mut merger), b"abcdefg");
        drop(lanes);
        assert_eq!(log.last(), 1006);
    }

    #[test]
    fn a_lane_that_ended_counts_for_the_last_number() {
        let (log, time) = clocked();
        time.store(5, Ordering::Relaxed);
        log.number_by_clock(true);
        let lane = log.lane();
        let number = lane.append(b"x").number;
        drop(lane);
        let mut merger = Merger::default();
        merger.collect(&log);
        assert_eq!((all(&mut merger), lanes(&log)), (b"x".to_vec(), 1));
        merger.collect(&log);
        assert_eq!((lanes(&log), log.last()), (0, number));
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
                assert_eq!(merger.take_next(u64::MAX), Some(&vec![at as u8; len][..]));
            }
            assert_eq!((merger.take_next(u64::MAX), log.pending_bytes()), (None, 0));
        }
    }

    #[test]
    fn the_memory_of_what_waits_is_known() {
        let (log, mut merger) = (Log::default(), Merger::default());
        let [first, second] = [log.lane(), log.lane()];
        let record = [b'x'; 1000];
        first.append(&record);
        assert_eq!(log.held_bytes(), 0, "so little is kept in any case");
        let is_held = |bytes: usize| (bytes..3 * bytes).contains(&log.held_bytes());
        let fill = |lane: &Lane, kib: usize| (0..kib).for_each(|_| _ = lane.append(&record));
        fill(&first, 2000);
        assert!(is_held(2_000_000));
        fill(&second, 1500);
        second.append_from(&mut vec![b'x'; 1_000_000]);
        assert!(is_held(4_500_000));
        merger.collect(&log);
        assert!(is_held(4_500_000));
        assert!(merger.take_next(u64::MAX).is_some());
        // New records are appended to those that were taken before.
        fill(&first, 1000);
        merger.collect(&log);
        assert!(is_held(5_500_000));
        while merger.take_next(u64::MAX).is_some() {}
        assert!(log.held_bytes() > 0, "it is freed with the next look");
        for _ in 0..2 {
            merger.collect(&log);
        }
        assert_eq!(log.held_bytes(), 0);
        fill(&first, 2000);
        drop((first, second));
        assert!(is_held(2_000_000));
        merger.collect(&log);
        while merger.take_next(u64::MAX).is_some() {}
        merger.collect(&log);
        assert_eq!(log.held_bytes(), 0);
    }

    #[test]
    fn room_that_is_not_needed_any_more_is_given_back() {
        let (log, mut merger) = (Log::default(), Merger::default());
        let lanes = [log.lane(), log.lane()];
        let burst = |merger: &mut Merger, bytes: usize| {
            for at in 0..bytes / 100 {
                lanes[at % 2].append(&[b'x'; 100]);
            }
            merger.collect(&log);
            while merger.take_next(u64::MAX).is_some() {}
        };
        let room = || {
            let lanes = log.shared.lanes.0.lock();
            lanes.buffers.iter().map(|buffer| buffer.lock().bytes.capacity()).sum::<usize>()
        };
        assert!(!merger.has_room());
        for _ in 0..3 {
            burst(&mut merger, 1_500_000);
        }
        merger.give_back();
        assert!(merger.has_room() && room() >= 1_500_000, "it was needed");
        // Few records come now. The first of them still lie behind the burst.
        for _ in 0..2 {
            burst(&mut merger, 1000);
            merger.give_back();
        }
        assert!(room() <= 2 * ROOM_MIN && !merger.has_room(), "{}", room());
        assert_eq!(log.held_bytes(), 0);
        // What was not taken yet is kept.
        burst(&mut merger, 1_500_000);
        (0..2000_u16).for_each(|at| _ = lanes[0].append(&at.to_le_bytes()));
        merger.give_back();
        merger.collect(&log);
        for at in 0..2000_u16 {
            assert_eq!(merger.take_next(u64::MAX), Some(&at.to_le_bytes()[..]));
        }
        assert_eq!(merger.take_next(u64::MAX), None);
    }

    #[test]
    fn a_large_record_is_not_held_any_more_behind_the_next() {
        const LARGE: usize = 1_000_000;
        let (log, mut merger) = (Log::default(), Merger::default());
        let lane = log.lane();
        (0..4).for_each(|_| _ = lane.append_from(&mut vec![b'x'; LARGE]));
        merger.collect(&log);
        for left in (1..=4).rev() {
            assert!(merger.take_next(u64::MAX).is_some());
            assert_eq!(log.held_bytes(), left * LARGE, "the one that was yielded is still there");
        }
        // The lane always has a record left.
        for _ in 0..100 {
            (0..2).for_each(|_| _ = lane.append_from(&mut vec![b'x'; LARGE]));
            merger.collect(&log);
            assert!(merger.take_next(u64::MAX).is_some());
            lane.append_from(&mut vec![b'x'; LARGE]);
            merger.collect(&log);
            (0..2).for_each(|_| assert!(merger.take_next(u64::MAX).is_some()));
        }
        assert_eq!(log.held_bytes(), LARGE);
        merger.collect(&log);
        assert_eq!(log.held_bytes(), 0);
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
