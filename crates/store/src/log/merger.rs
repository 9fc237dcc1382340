//! Merges the lanes by number.

use std::sync::Arc;

use super::{
    Buffer, HEADER_BYTES, IS_LARGE, KEPT_MAX, LaneRecords, Lanes, Log, LogState, ROOM_MIN, header,
};

/// Merges the lanes of a log. Each log has one merger.
#[derive(Default)]
pub struct Merger {
    /// The number of the last record that was yielded.
    done: u64,
    /// The merger's view of each lane. The place of a lane that has ended is empty until another
    /// lane gets it.
    pub(super) sources: Vec<Option<LaneSource>>,
    /// The lanes of the collected records behind `done`, in the order of the records' numbers.
    owners: Vec<RecordLane>,
    /// How many of the owners, from the first on, belong to yielded records.
    passed: usize,
    /// Memory for sorting the owners.
    spare: Vec<RecordLane>,
    /// All records up to this number were collected.
    complete_to: u64,
    /// How many changes of the list of lanes were seen.
    seen: u64,
    /// How much of the owners' memory the log has counted.
    held: u64,
    /// The most owners since the last `give_back`.
    owners_max: usize,
}

/// Says which lane has a record.
#[derive(Clone, Copy)]
struct RecordLane {
    number: u64,
    place: u32,
}

/// A lane as the merger sees it, with the records that were taken from it.
pub(super) struct LaneSource {
    shared: Arc<LogState>,
    buffer: Arc<Buffer>,
    taken: LaneRecords,
    at: usize,
    /// The large record that was yielded last.
    shown: Vec<u8>,
    /// The most bytes that waited here since the last [`Merger::give_back`].
    bytes_max: usize,
    /// The room that the lane had when it was last locked.
    lane_room: usize,
}

/// If there is room for more owners than this, it is freed once there are none.
const OWNERS_KEPT_MAX: usize = 1 << 16;
/// So much room for owners is never given back.
const OWNERS_MIN: usize = 1 << 10;
/// Up to this many runs are merged by comparison.
const RUNS_COMPARED: usize = 3;
/// More runs are sorted by digits of this many bits, if a few passes are enough.
const DIGIT_BITS: u32 = 11;
const DIGITS: usize = 1 << DIGIT_BITS;
const PASSES_MAX: u32 = 3;

impl Merger {
    /// Takes all records from the lanes: every record whose number was given out before.
    pub fn collect(&mut self, log: &Log) {
        let mut lanes = log.shared.lanes.0.lock();
        // Read before any lane is looked at: records that come later have higher numbers.
        self.complete_to = log.until_now();
        if lanes.changes != self.seen {
            self.follow(&log.shared, &mut lanes);
        }
        self.owners.drain(..self.passed);
        self.passed = 0;
        if self.owners.is_empty() {
            self.owners.shrink_to(OWNERS_KEPT_MAX);
            self.spare.truncate(OWNERS_KEPT_MAX);
            self.spare.shrink_to(OWNERS_KEPT_MAX);
        }
        let mut runs = usize::from(!self.owners.is_empty());
        for (source, place) in self.sources.iter_mut().zip(0..) {
            let Some(known) = source else { continue };
            let (has_ended, before) = (known.buffer.has_ended(), self.owners.len());
            self.owners.extend(known.refill().map(|number| RecordLane { number, place }));
            runs += usize::from(self.owners.len() > before);
            if let Some(mut source) = source.take_if(|source| has_ended && source.is_empty()) {
                log.shared.held.free(&mut source.taken);
                log.shared.held.free(&mut source.buffer.lock());
            }
        }
        drop(lanes);
        // If two threads got the same number from the clock, their records concern different
        // things.
        sort(&mut self.owners, runs, &mut self.spare);
        self.owners_max = self.owners_max.max(self.owners.len());
        let capacity = self.owners.capacity() + self.spare.capacity();
        let held = capacity.saturating_sub(2 * OWNERS_KEPT_MAX) * size_of::<RecordLane>();
        log.shared.held.change(&mut self.held, held);
    }

    /// Whether there is room left of earlier records that [`give_back`](Self::give_back) may free.
    pub fn has_room(&self) -> bool {
        let has_room = |source: &LaneSource| source.room().max(source.lane_room) > ROOM_MIN;
        self.sources.iter().flatten().any(has_room)
            || self.owners.capacity().max(self.spare.capacity()) > OWNERS_MIN
    }

    /// Frees room that the records since the last call did not need. Only lanes that have such room
    /// are locked. Call this now and then, while [`has_room`](Self::has_room).
    pub fn give_back(&mut self) {
        self.sources.iter_mut().flatten().for_each(LaneSource::give_back);
        let owners_max = std::mem::take(&mut self.owners_max).saturating_mul(2).max(OWNERS_MIN);
        if self.passed == self.owners.len() {
            self.owners.clear();
            self.passed = 0;
        }
        self.owners.shrink_to(owners_max);
        self.spare.truncate(owners_max);
        self.spare.shrink_to(owners_max);
    }

    /// Adds new lanes, and removes those that have ended from the list.
    #[cold]
    fn follow(&mut self, shared: &Arc<LogState>, lanes: &mut Lanes) {
        for buffer in &lanes.buffers {
            let is_known = |source: &LaneSource| Arc::ptr_eq(&source.buffer, buffer);
            if self.sources.iter().flatten().any(is_known) {
                continue;
            }
            let source = Some(LaneSource {
                shared: Arc::clone(shared),
                buffer: Arc::clone(buffer),
                taken: LaneRecords::default(),
                at: 0,
                shown: Vec::new(),
                bytes_max: 0,
                lane_room: 0,
            });
            match self.sources.iter_mut().find(|place| place.is_none()) {
                Some(place) => *place = source,
                None => self.sources.push(source),
            }
        }
        lanes.buffers.retain(|buffer| !buffer.has_ended() || buffer.lock().len() > 0);
        // A lane that ended but still holds records is removed later.
        if !lanes.buffers.iter().any(|buffer| buffer.has_ended()) {
            self.seen = lanes.changes;
        }
    }

    /// The next record by number, if it and all before it were collected, and its number is not
    /// above `number_max`.
    pub fn take_next(&mut self, number_max: u64) -> Option<&[u8]> {
        let owner = self.owners.get(self.passed)?;
        if owner.number > number_max.min(self.complete_to) {
            return None;
        }
        self.passed += 1;
        self.done = owner.number;
        let source = self.sources.get_mut(owner.place as usize)?.as_mut();
        Some(source.expect("a source with records is kept").take())
    }

    /// The number of the last record that was yielded. All records before it were yielded too.
    pub const fn done(&self) -> u64 {
        self.done
    }
}

/// Sorts owners that consist of some sorted runs.
fn sort(owners: &mut Vec<RecordLane>, runs: usize, spare: &mut Vec<RecordLane>) {
    if runs <= RUNS_COMPARED {
        owners.sort_by_key(|owner| owner.number);
        return;
    }
    let numbers = || owners.iter().map(|owner| owner.number);
    let first = numbers().min().unwrap_or(0);
    let span = numbers().max().unwrap_or(0) - first;
    let passes = (u64::BITS - span.leading_zeros()).div_ceil(DIGIT_BITS);
    if owners.len() < DIGITS / 4 || passes > PASSES_MAX {
        owners.sort_by_key(|owner| owner.number);
        return;
    }
    for pass in 0..passes {
        let digit = |owner: &RecordLane| (owner.number - first) >> (pass * DIGIT_BITS);
        sort_by_digit(owners, spare, |owner| digit(owner) as usize % DIGITS);
        std::mem::swap(owners, spare);
    }
}

/// One pass of a radix sort. Passes go from the lowest digit to the highest.
fn sort_by_digit(
    from: &[RecordLane],
    to: &mut Vec<RecordLane>,
    digit: impl Fn(&RecordLane) -> usize,
) {
    // For each digit, the place of the next owner with that digit.
    let mut places = [0; DIGITS];
    from.iter().for_each(|owner| places[digit(owner)] += 1);
    let mut before = 0;
    for place in &mut places {
        before += std::mem::replace(place, before);
    }
    to.resize(from.len(), RecordLane { number: 0, place: 0 });
    for owner in from {
        let place = &mut places[digit(owner)];
        to[*place] = *owner;
        *place += 1;
    }
}

impl LaneSource {
    /// Takes all records from the lane. If earlier records still wait for those of other lanes, the
    /// new ones are appended; otherwise the buffers are exchanged. Returns the numbers of the
    /// records taken.
    fn refill(&mut self) -> RecordNumbers<'_> {
        let is_empty = self.is_empty();
        self.taken.bytes.drain(..self.at);
        self.at = 0;
        self.free_shown();
        if is_empty {
            self.taken.bytes.shrink_to(KEPT_MAX);
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
        if self.taken.held + records.held > 0 {
            self.shared.held.follow(&mut self.taken);
            self.shared.held.follow(&mut records);
        }
        self.lane_room = records.bytes.capacity();
        drop(records);
        self.bytes_max = self.bytes_max.max(self.taken.bytes.len());
        RecordNumbers { bytes: &self.taken.bytes[new_at..] }
    }

    /// How many bytes have room here.
    const fn room(&self) -> usize {
        self.taken.bytes.capacity()
    }

    /// Frees room that was not needed since the last call, here and in the lane.
    fn give_back(&mut self) {
        let room_max = std::mem::take(&mut self.bytes_max).saturating_mul(2).max(ROOM_MIN);
        if self.room() > room_max && self.is_empty() {
            self.taken.bytes.clear();
            self.at = 0;
            self.shared.held.shrink(&mut self.taken, room_max);
        }
        if self.lane_room > room_max {
            let mut records = self.buffer.lock();
            self.shared.held.shrink(&mut records, room_max);
            self.lane_room = records.bytes.capacity();
        }
    }

    fn is_empty(&self) -> bool {
        self.at == self.taken.bytes.len()
    }

    fn take(&mut self) -> &[u8] {
        let start = self.at + HEADER_BYTES;
        let header = header(&self.taken.bytes[self.at..]).expect("an owner has a record");
        self.at = start + header.len_here();
        if header.length == IS_LARGE {
            self.free_shown();
            self.shown = self.taken.large.pop_front().unwrap_or_default();
            return &self.shown;
        }
        &self.taken.bytes[start..self.at]
    }

    /// Frees the large record that was yielded last. It counts as held until then.
    fn free_shown(&mut self) {
        if !self.shown.is_empty() {
            self.taken.large_bytes -= std::mem::take(&mut self.shown).len();
            self.shared.held.follow(&mut self.taken);
        }
    }
}

/// The numbers of the records in some bytes.
struct RecordNumbers<'a> {
    bytes: &'a [u8],
}

impl Iterator for RecordNumbers<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let header = header(self.bytes)?;
        self.bytes = self.bytes.get(HEADER_BYTES + header.len_here()..)?;
        Some(header.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_sorted_and_those_of_a_lane_stay_in_order() {
        let mut random = 1_u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % bound
        };
        // Few, many, many far apart, and some so far apart that sorting by digits does not pay.
        for (count, step) in [(10, 5), (5000, 3), (5000, 1 << 15), (1000, 1 << 40), (0, 1)] {
            let (mut owners, mut spare) = (Vec::new(), Vec::new());
            for _ in 0..6 {
                let mut number = below(1 << 20) + (1 << 50);
                for place in 0..count {
                    number += below(step);
                    owners.push(RecordLane { number, place });
                }
            }
            let plain = |owners: &[RecordLane]| -> Vec<_> {
                owners.iter().map(|owner| (owner.number, owner.place)).collect()
            };
            let mut expected = plain(&owners);
            expected.sort_by_key(|owner| owner.0);
            sort(&mut owners, 6, &mut spare);
            assert_eq!(plain(&owners), expected, "{count} owners, {step}");
        }
    }
}
