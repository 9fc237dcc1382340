//! Putting the lanes together by number.

use std::sync::Arc;

use super::{Buffer, HEADER_BYTES, IS_LARGE, KEPT_MAX, Lanes, Log, Records, Shared, header};

/// Puts the lanes together. There is one.
#[derive(Default)]
pub struct Merger {
    /// The number of the last record that was yielded.
    done: u64,
    /// What it knows of each lane. A place is empty where a lane has ended, until another one gets
    /// it.
    pub(super) sources: Vec<Option<Source>>,
    /// Which lanes have the records behind `done` that were collected, by number.
    owners: Vec<Owner>,
    /// How many of the owners have no more to do with it, from the first on.
    passed: usize,
    /// For sorting them.
    spare: Vec<Owner>,
    /// All records up to this number were collected.
    complete_to: u64,
    /// The changes of the list of lanes that were seen.
    seen: u64,
    /// What the log knows of the memory of the owners.
    held: u64,
}

/// Where a record is.
#[derive(Clone, Copy)]
struct Owner {
    number: u64,
    place: u32,
}

/// A lane as the merger sees it, with what it took from there.
pub(super) struct Source {
    shared: Arc<Shared>,
    buffer: Arc<Buffer>,
    taken: Records,
    at: usize,
    /// The large record that was yielded last.
    shown: Vec<u8>,
}

/// Room for more owners than this is given back once there are none.
const OWNERS_KEPT_MAX: usize = 1 << 16;
/// Up to this many runs are merged by comparing.
const RUNS_COMPARED: usize = 3;
/// More are sorted by digits of this many bits, if that takes a few passes.
const DIGIT_BITS: u32 = 11;
const DIGITS: usize = 1 << DIGIT_BITS;
const PASSES_MAX: u32 = 3;

impl Merger {
    /// Takes what the lanes hold: every record whose number was given out before.
    pub fn collect(&mut self, log: &Log) {
        let mut lanes = log.shared.lanes.0.lock();
        // Before any lane is looked at: what comes there later has a higher number.
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
            self.owners.extend(known.refill().map(|number| Owner { number, place }));
            runs += usize::from(self.owners.len() > before);
            if let Some(mut source) = source.take_if(|source| has_ended && source.is_empty()) {
                log.shared.held.free(&mut source.taken);
                log.shared.held.free(&mut source.buffer.lock());
            }
        }
        drop(lanes);
        // Where the clock showed two threads the same, their records are about different things.
        sort(&mut self.owners, runs, &mut self.spare);
        let capacity = self.owners.capacity() + self.spare.capacity();
        let held = capacity.saturating_sub(2 * OWNERS_KEPT_MAX) * size_of::<Owner>();
        log.shared.held.change(&mut self.held, held);
    }

    /// Gets to know lanes that are new, and takes those off the list that have ended.
    #[cold]
    fn follow(&mut self, shared: &Arc<Shared>, lanes: &mut Lanes) {
        for buffer in &lanes.buffers {
            let is_known = |source: &Source| Arc::ptr_eq(&source.buffer, buffer);
            if self.sources.iter().flatten().any(is_known) {
                continue;
            }
            let source = Some(Source {
                shared: Arc::clone(shared),
                buffer: Arc::clone(buffer),
                taken: Records::default(),
                at: 0,
                shown: Vec::new(),
            });
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

    /// The next record by number, if it was collected with all before it, and its number is not
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

    /// The number of the last record that was yielded: all before it were as well.
    pub const fn done(&self) -> u64 {
        self.done
    }
}

/// Puts owners in order: some runs that are in order already.
fn sort(owners: &mut Vec<Owner>, runs: usize, spare: &mut Vec<Owner>) {
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
        let digit = |owner: &Owner| (owner.number - first) >> (pass * DIGIT_BITS);
        sort_by_digit(owners, spare, |owner| digit(owner) as usize % DIGITS);
        std::mem::swap(owners, spare);
    }
}

/// One pass of a radix sort, from the lowest digit to the highest one.
fn sort_by_digit(from: &[Owner], to: &mut Vec<Owner>, digit: impl Fn(&Owner) -> usize) {
    // Where the next owner with each digit belongs.
    let mut places = [0; DIGITS];
    from.iter().for_each(|owner| places[digit(owner)] += 1);
    let mut before = 0;
    for place in &mut places {
        before += std::mem::replace(place, before);
    }
    to.resize(from.len(), Owner { number: 0, place: 0 });
    for owner in from {
        let place = &mut places[digit(owner)];
        to[*place] = *owner;
        *place += 1;
    }
}

impl Source {
    /// Takes what the lane holds: by exchanging buffers, or, if something is left that waits for
    /// the records of others, behind that. Returns the numbers of what it took.
    fn refill(&mut self) -> Numbers<'_> {
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
        drop(records);
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
            self.free_shown();
            self.shown = self.taken.large.pop_front().unwrap_or_default();
            return &self.shown;
        }
        &self.taken.bytes[start..self.at]
    }

    /// Frees the large record that was yielded last, which counts as long as it is there.
    fn free_shown(&mut self) {
        if !self.shown.is_empty() {
            self.taken.large_bytes -= std::mem::take(&mut self.shown).len();
            self.shared.held.follow(&mut self.taken);
        }
    }
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
        // Few, many, many far apart, and some so far apart that digits do not pay.
        for (count, step) in [(10, 5), (5000, 3), (5000, 1 << 15), (1000, 1 << 40), (0, 1)] {
            let (mut owners, mut spare) = (Vec::new(), Vec::new());
            for _ in 0..6 {
                let mut number = below(1 << 20) + (1 << 50);
                for place in 0..count {
                    number += below(step);
                    owners.push(Owner { number, place });
                }
            }
            let plain = |owners: &[Owner]| -> Vec<_> {
                owners.iter().map(|owner| (owner.number, owner.place)).collect()
            };
            let mut expected = plain(&owners);
            expected.sort_by_key(|owner| owner.0);
            sort(&mut owners, 6, &mut spare);
            assert_eq!(plain(&owners), expected, "{count} owners, {step}");
        }
    }
}
