//! Records in the order of their IDs, in pages which clones share until one changes.
//!
//! Most records are added at the end and removed from the front, which moves nothing.

use std::collections::VecDeque;
use std::mem::offset_of;

use super::StreamId;
use crate::value::Defragmenter;
use crate::value::cow::Cow;
use crate::value::defrag::Movable;

/// A record that has an ID, by which it is found. The ID does not change.
pub trait Keyed: Clone {
    fn id(&self) -> StreamId;
}

impl Movable for StreamId {
    fn defragment(&mut self, _: &mut Defragmenter<'_>) {}
}

impl Keyed for StreamId {
    fn id(&self) -> StreamId {
        *self
    }
}

/// Records by ID. No page is empty.
///
/// The last record lies in the map itself. It is the record that is read and changed most, and many
/// maps have no other, so it is found without going through the pages.
#[derive(Clone)]
#[repr(C)]
pub struct IdMap<T> {
    pages: VecDeque<Cow<VecDeque<T>>>,
    len: usize,
    /// `None`: there are no records.
    last: Option<T>,
}

/// A place between records: before the record with this index in its page. The last record counts
/// as a page behind the others.
#[derive(Clone, Copy, PartialEq, Eq)]
struct IdMapPlace {
    page: usize,
    index: usize,
}

impl<T> Default for IdMap<T> {
    fn default() -> Self {
        Self { pages: VecDeque::new(), len: 0, last: None }
    }
}

impl<T> IdMap<T> {
    /// The offset of its last record.
    pub(super) const LAST_AT: usize = offset_of!(Self, last);

    fn record(&self, place: IdMapPlace) -> Option<&T> {
        match self.pages.get(place.page) {
            Some(page) => page.get(place.index),
            None if place.page == self.pages.len() => self.last.as_ref(),
            None => None,
        }
    }

    /// How many records a page has.
    fn page_len(&self, page: usize) -> usize {
        self.pages.get(page).map_or(1, |page| page.len())
    }
}

impl<T: Keyed> IdMap<T> {
    /// Adds a record, or replaces the one with the same ID.
    pub fn insert(&mut self, record: T) {
        let id = record.id();
        if self.last().is_none_or(|last| last.id() < id) {
            return self.push_back(record);
        }
        let mut place = self.lower_bound(id);
        if let Some(there) = self.record_mut(place).filter(|there| there.id() == id) {
            *there = record;
            return;
        }
        self.len += 1;
        let Some(page) = self.pages.get_mut(place.page) else { return self.push_to_pages(record) };
        let page = page.make_mut();
        if page.len() < PAGE_LEN_MAX {
            page.insert(place.index, record);
            return;
        }
        let upper = page.split_off(PAGE_LEN_MAX / 2);
        self.pages.insert(place.page + 1, Cow::new(upper));
        if place.index > PAGE_LEN_MAX / 2 {
            place = IdMapPlace { page: place.page + 1, index: place.index - PAGE_LEN_MAX / 2 };
        }
        self.pages[place.page].make_mut().insert(place.index, record);
    }

    /// Adds a record whose ID is greater than all others.
    pub fn push_back(&mut self, record: T) {
        debug_assert!(self.last().is_none_or(|last| last.id() < record.id()));
        self.len += 1;
        if let Some(before) = self.last.replace(record) {
            self.push_to_pages(before);
        }
    }

    /// Appends a record to the pages.
    fn push_to_pages(&mut self, record: T) {
        match self.pages.back_mut() {
            Some(page) if page.len() < PAGE_LEN_MAX => page.make_mut().push_back(record),
            _ => {
                // In many maps the first page never gets a second record.
                let mut page = VecDeque::with_capacity(1);
                page.push_back(record);
                self.pages.push_back(Cow::new(page));
            }
        }
    }

    pub fn remove(&mut self, id: StreamId) -> Option<T> {
        let place = self.place_of(id)?;
        let removed = match self.pages.get_mut(place.page) {
            Some(page) => page.make_mut().remove(place.index)?,
            None => {
                let before = self.pages.back_mut().and_then(|page| page.make_mut().pop_back());
                std::mem::replace(&mut self.last, before)?
            }
        };
        self.len -= 1;
        if let Some(last_page) = self.pages.len().checked_sub(1) {
            self.tidy(place.page.min(last_page));
        }
        Some(removed)
    }

    pub fn pop_front(&mut self) -> Option<T> {
        let removed = match self.pages.front_mut() {
            Some(page) => page.make_mut().pop_front(),
            None => self.last.take(),
        }?;
        self.len -= 1;
        if self.pages.front().is_some_and(|page| page.is_empty()) {
            self.pages.pop_front();
        }
        Some(removed)
    }

    pub fn get_mut(&mut self, id: StreamId) -> Option<&mut T> {
        self.record_mut(self.place_of(id)?)
    }

    pub fn first_mut(&mut self) -> Option<&mut T> {
        match self.pages.front_mut() {
            Some(page) => page.make_mut().front_mut(),
            None => self.last.as_mut(),
        }
    }

    #[inline]
    pub fn last_mut(&mut self) -> Option<&mut T> {
        self.last.as_mut()
    }

    /// The record with the greatest ID that is not above this one.
    pub fn floor_mut(&mut self, id: StreamId) -> Option<&mut T> {
        self.record_mut(self.before(self.upper_bound(id))?)
    }

    pub fn get(&self, id: StreamId) -> Option<&T> {
        self.record(self.place_of(id)?)
    }

    pub fn first(&self) -> Option<&T> {
        match self.pages.front() {
            Some(page) => page.front(),
            None => self.last.as_ref(),
        }
    }

    #[inline]
    pub fn last(&self) -> Option<&T> {
        self.last.as_ref()
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn iter(&self) -> IdMapIter<'_, T> {
        IdMapIter { map: self, next: IdMapPlace { page: 0, index: 0 } }
    }

    /// The records from the first one on whose ID is not below this one.
    pub fn iter_from(&self, id: StreamId) -> IdMapIter<'_, T> {
        IdMapIter { map: self, next: self.lower_bound(id) }
    }

    /// The records from the last one on whose ID is not above this one.
    pub fn iter_floor(&self, id: StreamId) -> IdMapIter<'_, T> {
        let after = self.upper_bound(id);
        IdMapIter { map: self, next: self.before(after).unwrap_or(after) }
    }

    /// The records in reverse, from the last one whose ID is not above this one.
    pub fn iter_back_from(&self, id: StreamId) -> RecordsBack<'_, T> {
        RecordsBack { map: self, next: self.before(self.upper_bound(id)) }
    }

    /// How many pages there are.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Bytes of memory, without what the records point to.
    pub fn memory(&self) -> usize {
        let page = |page: &Cow<VecDeque<T>>| page.capacity() * size_of::<T>();
        let records: usize = match self.pages.len() {
            0..=SAMPLE => self.pages.iter().map(page).sum(),
            pages => self.pages.iter().rev().take(SAMPLE).map(page).sum::<usize>() / SAMPLE * pages,
        };
        let directory = self.pages.capacity() * size_of::<Cow<VecDeque<T>>>();
        directory + self.pages.len() * Cow::<VecDeque<T>>::size() + records
    }

    fn record_mut(&mut self, place: IdMapPlace) -> Option<&mut T> {
        let pages = self.pages.len();
        match self.pages.get_mut(place.page) {
            Some(page) => page.make_mut().get_mut(place.index),
            None if place.page == pages => self.last.as_mut(),
            None => None,
        }
    }

    fn place_of(&self, id: StreamId) -> Option<IdMapPlace> {
        let place = self.lower_bound(id);
        (self.record(place)?.id() == id).then_some(place)
    }

    fn lower_bound(&self, id: StreamId) -> IdMapPlace {
        self.bound(|other| other < id)
    }

    fn upper_bound(&self, id: StreamId) -> IdMapPlace {
        self.bound(|other| other <= id)
    }

    /// The place before the first record for which `is_before` is false. It is never at the end of
    /// a page. Behind all records it is at the start of a page that does not exist.
    fn bound(&self, is_before: impl Fn(StreamId) -> bool) -> IdMapPlace {
        if self.last.as_ref().is_some_and(|last| is_before(last.id())) {
            return IdMapPlace { page: self.pages.len() + 1, index: 0 };
        }
        let is_page_before =
            |page: &Cow<VecDeque<T>>| page.back().is_some_and(|last| is_before(last.id()));
        // Most searches are near the end.
        let last = self.pages.len().saturating_sub(1);
        let page = match self.pages.get(last).and_then(|page| page.front()) {
            Some(first) if is_before(first.id()) => last,
            _ => self.pages.partition_point(is_page_before),
        };
        let Some(records) = self.pages.get(page) else { return IdMapPlace { page, index: 0 } };
        let index = records.partition_point(|record| is_before(record.id()));
        if index == records.len() {
            IdMapPlace { page: page + 1, index: 0 }
        } else {
            IdMapPlace { page, index }
        }
    }

    /// The record before a place.
    fn before(&self, place: IdMapPlace) -> Option<IdMapPlace> {
        if place.index > 0 {
            return Some(IdMapPlace { index: place.index - 1, ..place });
        }
        let page = place.page.checked_sub(1)?;
        Some(IdMapPlace { page, index: self.page_len(page) - 1 })
    }

    /// After a removal, removes an empty page, or merges a small one with its neighbour.
    fn tidy(&mut self, page: usize) {
        let len = self.pages[page].len();
        if len == 0 {
            self.pages.remove(page);
        } else if len < PAGE_LEN_MAX / 4 {
            let lower = if page + 1 < self.pages.len() { page } else { page.saturating_sub(1) };
            let both = [lower, lower + 1].map(|at| self.pages.get(at).map_or(0, |page| page.len()));
            if both[1] > 0
                && both[0] + both[1] <= PAGE_LEN_MAX / 2
                && let Some(upper) = self.pages.remove(lower + 1)
            {
                self.pages[lower].make_mut().extend(upper.iter().cloned());
            }
        }
    }
}

impl<T: Movable> IdMap<T> {
    /// How many parts there are for [`Self::defragment`]: as many for each page as it may have
    /// records, and the last record.
    pub(super) fn parts(&self) -> usize {
        self.pages.len() * PAGE_LEN_MAX + 1
    }

    /// Moves blocks of pages and their records, from a part on, except those of pages that a clone
    /// shares. Returns the part to continue with; the number of parts at the end.
    pub(super) fn defragment(&mut self, from: usize, defragmenter: &mut Defragmenter<'_>) -> usize {
        if from == 0 {
            defragmenter.queue(&mut self.pages);
        }
        let mut at = from % PAGE_LEN_MAX;
        for (number, page) in self.pages.iter_mut().enumerate().skip(from / PAGE_LEN_MAX) {
            if let Some(records) = page.defragment(at, defragmenter) {
                if at == 0 {
                    defragmenter.queue(records);
                }
                for record in records.iter_mut().skip(at) {
                    record.defragment(defragmenter);
                    at += 1;
                    if defragmenter.is_spent() {
                        return number * PAGE_LEN_MAX + at;
                    }
                }
            }
            at = 0;
        }
        if let Some(last) = &mut self.last {
            last.defragment(defragmenter);
        }
        self.parts()
    }
}

/// Records in order.
pub struct IdMapIter<'a, T> {
    map: &'a IdMap<T>,
    next: IdMapPlace,
}

impl<T> Clone for IdMapIter<'_, T> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<'a, T> Iterator for IdMapIter<'a, T> {
    type Item = &'a T;

    #[inline]
    fn next(&mut self) -> Option<&'a T> {
        let record = self.map.record(self.next)?;
        self.next.index += 1;
        if self.next.index == self.map.page_len(self.next.page) {
            self.next = IdMapPlace { page: self.next.page + 1, index: 0 };
        }
        Some(record)
    }
}

/// Records in reverse order.
#[derive(Clone)]
pub struct RecordsBack<'a, T> {
    map: &'a IdMap<T>,
    next: Option<IdMapPlace>,
}

impl<'a, T: Keyed> Iterator for RecordsBack<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        let place = self.next?;
        self.next = self.map.before(place);
        self.map.record(place)
    }
}

/// The most records of a page.
const PAGE_LEN_MAX: usize = 128;
/// How many pages are looked at to estimate the memory of all.
const SAMPLE: usize = 8;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_sorted_set_while_clones_stay_as_they_were(
            steps in proptest::collection::vec((0..8u8, 0..600u64), 1..if cfg!(miri) { 120 } else { 900 })
        ) {
            let (mut map, mut model) = (IdMap::default(), BTreeSet::new());
            let mut clones = Vec::new();
            let mut end = 600;
            for (what, number) in steps {
                let id = StreamId::new(number / 7, number % 7);
                match what {
                    0..3 => {
                        map.insert(id);
                        model.insert(id);
                    }
                    3 => {
                        end += 1;
                        map.push_back(StreamId::new(end, 0));
                        model.insert(StreamId::new(end, 0));
                    }
                    4 | 5 => prop_assert_eq!(map.remove(id).is_some(), model.remove(&id)),
                    6 => prop_assert_eq!(map.pop_front(), model.pop_first()),
                    _ if clones.len() < 4 => clones.push((map.clone(), model.clone())),
                    _ => {}
                }
                prop_assert_eq!(map.len(), model.len());
                prop_assert_eq!(map.get(id).copied(), model.get(&id).copied());
                prop_assert_eq!(map.first(), model.first());
                prop_assert_eq!(map.last(), model.last());
                prop_assert!(map.iter_from(id).take(3).eq(model.range(id..).take(3)));
                prop_assert!(map.iter_back_from(id).take(3).eq(model.range(..=id).rev().take(3)));
                let floor = model.range(..=id).next_back().or_else(|| model.first());
                prop_assert_eq!(map.iter_floor(id).next(), floor);
                prop_assert_eq!(
                    map.floor_mut(id).map(|id| *id),
                    model.range(..=id).next_back().copied()
                );
            }
            clones.push((map, model));
            for (map, model) in clones {
                prop_assert!(map.iter().eq(&model));
                prop_assert!(map.iter_back_from(StreamId::MAX).eq(model.iter().rev()));
            }
        }
    }
}
