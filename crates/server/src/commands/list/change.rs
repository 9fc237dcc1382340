//! Changes of lists elsewhere than at their ends.

use bobbin_resp::Reply;
use bobbin_store::value::{End, Item, List, ListLimits};

use super::super::elements;
use super::position::{LOOKS, PositionSearch};
use super::read::index_of;
use super::{element, limits, shrunk};
use crate::engine::command::{Call, Classes, Data, Failure, Key, Outcome};
use crate::engine::execution::slices::{Draft, SLICE, SLICED_MIN, SlicedChange, change_in_slices};

pub(super) fn linsert(call: &mut Call<'_>) -> Outcome {
    let after = if call.word_is(2, "after") {
        1
    } else if call.word_is(2, "before") {
        0
    } else {
        return Err(Failure::SYNTAX);
    };
    let (key, limits, pivot) = (call.key(1)?, limits(call.server), call.args[3]);
    let value = element(call.args[4])?;
    let Some(list) = call.data.write_as::<List>(key)? else {
        call.reply.integer(0);
        return Ok(());
    };
    let is_long = list.len() > SLICED_MIN && call.may_leave_job;
    let most = if is_long { LOOKS } else { usize::MAX };
    let (mut search, mut index) = (PositionSearch::first(), None);
    if search.step(list, pivot, most, |found| index = Some(found)) {
        let (key, pinned, pivot) = (key.bytes.into(), list.clone(), pivot.into());
        let insertion = Insertion { key, pinned, pivot, after, limits, search, index };
        return change_in_slices(call, [1].into_iter(), insertion);
    }
    let len = index.map(|index| insert(list, index + after, value, limits));
    note_inserted(call.data, &mut call.reply, key, len);
    Ok(())
}

/// Inserts an element. Returns the new length.
fn insert(list: &mut List, index: usize, value: Item<'_>, limits: ListLimits) -> usize {
    list.prepare(value.len(), 1, limits);
    list.insert(index, value, limits);
    list.len()
}

/// `len` is the list's new length. `None`: nothing was inserted.
fn note_inserted(data: &mut Data, reply: &mut Reply<'_>, key: Key<'_>, len: Option<usize>) {
    if len.is_some() {
        data.changed(key);
        data.event(Classes::LIST, "linsert", key);
    }
    reply.integer(len.map_or(-1, |len| len as i64));
}

/// LINSERT into a long list. Finding the place takes long.
struct Insertion {
    key: Box<[u8]>,
    pinned: List,
    pivot: Box<[u8]>,
    /// 1: the element is inserted behind the pivot.
    after: usize,
    limits: ListLimits,
    search: PositionSearch,
    /// The index of the pivot.
    index: Option<usize>,
}

impl SlicedChange for Insertion {
    fn step(&mut self, _: &mut Data) -> bool {
        let Self { pinned, pivot, search, index, .. } = self;
        search.step(pinned, pivot, LOOKS, |found| *index = Some(found))
    }

    fn is_current(&mut self, data: &mut Data) -> Result<bool, Failure> {
        let now = match data.peek(data.key(&self.key)) {
            Some(entry) => entry.collection::<List>().ok_or(Failure::WRONG_TYPE)?.clone(),
            None => List::default(),
        };
        let current = now.is_same(&self.pinned);
        if !current {
            (self.search, self.index) = (PositionSearch::first(), None);
        }
        self.pinned = now;
        Ok(current)
    }

    fn finish(&mut self, data: &mut Data, args: &[&[u8]], reply: &mut Reply<'_>) -> Outcome {
        let key = data.key(args[1]);
        // Release the pin, so that the list is changed in place.
        self.pinned = List::default();
        let value = element(args[4])?;
        let Some(list) = data.write_as::<List>(key)? else {
            reply.integer(0);
            return Ok(());
        };
        let len = self.index.map(|index| insert(list, index + self.after, value, self.limits));
        note_inserted(data, reply, key, len);
        Ok(())
    }
}

pub(super) fn lset(call: &mut Call<'_>) -> Outcome {
    let (key, limits) = (call.key(1)?, limits(call.server));
    let (index, value) = (call.integer(2), element(call.args[3])?);
    let list = call.data.write_as::<List>(key)?.ok_or(Failure::NO_SUCH_KEY)?;
    let index = index_of(index?, list.len()).ok_or(Failure::OUT_OF_RANGE)?;
    list.prepare(value.len(), 1, limits);
    list.set(index, value, limits);
    call.data.changed(key);
    call.data.event(Classes::LIST, "lset", key);
    call.reply.ok();
    Ok(())
}

pub(super) fn lrem(call: &mut Call<'_>) -> Outcome {
    let count = call.integer(2)?;
    if count == i64::MIN {
        return Err(elements::TOO_LOW);
    }
    let (key, limits, value) = (call.key(1)?, limits(call.server), call.args[3]);
    let end = if count < 0 { End::Back } else { End::Front };
    let most = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
    let removed = match call.data.write_as::<List>(key)? {
        // A search tells whether the elements are near. Only then they are removed in place.
        Some(list)
            if list.len() > SLICED_MIN
                && call.may_leave_job
                && PositionSearch::some(most, end).step(list, value, LOOKS, |_| {}) =>
        {
            let draft = Draft::new(key.bytes, list);
            let (value, passed, removed) = (value.into(), 0, 0);
            let removing = ElementRemoval { draft, value, most, end, limits, passed, removed };
            return change_in_slices(call, [1].into_iter(), removing);
        }
        Some(list) => list.remove_equal(value, most, end, limits),
        None => 0,
    };
    note_removed(call.data, &mut call.reply, key, removed);
    Ok(())
}

fn note_removed(data: &mut Data, reply: &mut Reply<'_>, key: Key<'_>, removed: usize) {
    if removed > 0 {
        shrunk(data, key, removed, "lrem");
    }
    reply.integer(removed as i64);
}

/// LREM of a long list.
struct ElementRemoval {
    draft: Draft<List>,
    value: Box<[u8]>,
    most: usize,
    end: End,
    limits: ListLimits,
    /// How many elements were examined and stay.
    passed: usize,
    removed: usize,
}

impl SlicedChange for ElementRemoval {
    fn step(&mut self, _: &mut Data) -> bool {
        let most = self.most - self.removed;
        let (list, end, limits) = (&mut self.draft.value, self.end, self.limits);
        let (removed, more) =
            list.remove_some_equal(&self.value, most, end, limits, &mut self.passed, SLICE);
        self.removed += removed;
        more
    }

    fn is_current(&mut self, data: &mut Data) -> Result<bool, Failure> {
        let current = self.draft.is_current(data)?;
        if !current {
            (self.passed, self.removed) = (0, 0);
        }
        Ok(current)
    }

    fn finish(&mut self, data: &mut Data, _: &[&[u8]], reply: &mut Reply<'_>) -> Outcome {
        let key = self.draft.put(data)?;
        note_removed(data, reply, key, self.removed);
        Ok(())
    }
}

pub(super) fn ltrim(call: &mut Call<'_>) -> Outcome {
    let (start, stop) = (call.integer(2)?, call.integer(3)?);
    let (key, limits) = (call.key(1)?, limits(call.server));
    if let Some(list) = call.data.write_as::<List>(key)? {
        let len = list.len();
        let removed = len - elements::range(start, stop, len).len();
        if removed > SLICED_MIN && call.may_leave_job {
            let draft = Draft::new(key.bytes, list);
            let trimming = ListTrimming::new(draft, start, stop, limits);
            return change_in_slices(call, [1].into_iter(), trimming);
        }
        list.trim(elements::range(start, stop, len), limits);
        shrunk(call.data, key, removed, "ltrim");
    }
    call.reply.ok();
    Ok(())
}

/// LTRIM that removes many elements. Those at the end are removed first.
struct ListTrimming {
    draft: Draft<List>,
    start: i64,
    stop: i64,
    limits: ListLimits,
    /// How many elements before and behind the range are still to be removed.
    before: usize,
    behind: usize,
    removed: usize,
}

impl ListTrimming {
    fn new(draft: Draft<List>, start: i64, stop: i64, limits: ListLimits) -> Self {
        let (before, behind, removed) = (0, 0, 0);
        let mut trimming = Self { draft, start, stop, limits, before, behind, removed };
        trimming.begin();
        trimming
    }

    fn begin(&mut self) {
        let len = self.draft.value.len();
        let kept = elements::range(self.start, self.stop, len);
        (self.before, self.behind) = (kept.start, len - kept.end);
        self.removed = self.before + self.behind;
    }
}

impl SlicedChange for ListTrimming {
    fn step(&mut self, _: &mut Data) -> bool {
        let list = &mut self.draft.value;
        if self.behind > 0 {
            let len = list.len();
            self.behind -= list.remove_some(len - self.behind..len, TRIMMED, self.limits);
        } else if self.before > 0 {
            self.before -= list.remove_some(0..self.before, TRIMMED, self.limits);
        }
        self.before + self.behind > 0
    }

    fn is_current(&mut self, data: &mut Data) -> Result<bool, Failure> {
        let current = self.draft.is_current(data)?;
        if !current {
            self.begin();
        }
        Ok(current)
    }

    fn finish(&mut self, data: &mut Data, _: &[&[u8]], reply: &mut Reply<'_>) -> Outcome {
        let key = self.draft.put(data)?;
        // The list may not exist any more.
        if data.exists(key) {
            shrunk(data, key, self.removed, "ltrim");
        }
        reply.ok();
        Ok(())
    }
}

/// How many elements are removed between two looks at the clock. Removing a whole chunk is quick.
const TRIMMED: usize = 16 * SLICE;
