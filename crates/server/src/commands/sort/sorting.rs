//! A sort in progress, a slice at a time: loads and weighs the elements, sorts them in runs, and
//! merges the runs into the output.

use std::ops::Range;
use std::sync::Arc;

use bobbin_store::hash::Hasher;

use super::super::runs::Runs;
use super::NOT_NUMBERS;
use super::elements::{Ordering, SortElements, SortSource};
use super::lookups::Lookups;
use super::options::SortOptions;
use super::output::SortOutput;
use super::pattern::SortPattern;
use crate::base::locale::Collation;
use crate::engine::command::{Data, Failure};
use crate::engine::execution::slices::{REPEATED_BYTES_MAX, SLICE, TOO_LONG};

/// A sort in progress.
pub(super) struct Sorting {
    source: SortSource,
    hasher: &'static Hasher,
    elements: SortElements,
    /// `None`: the elements keep their order.
    ordering: Option<Ordering>,
    /// The order of texts, if it is not the order of their bytes. Then each weight is the text's
    /// sort key.
    collation: Option<Arc<Collation>>,
    /// The pattern of the weights, and the patterns of the output for each element.
    by: Option<Box<[u8]>>,
    get: Vec<Box<[u8]>>,
    /// How many bytes GET has put out.
    got_bytes: usize,
    backwards: bool,
    /// The range of sorted elements that is wanted.
    wanted: Range<usize>,
    phase: Phase,
    runs: Runs,
}

enum Phase {
    /// Loads elements, from this cursor of the source on.
    Load(u64),
    /// Looks up weights, from this element on.
    Weigh(usize),
    /// Sorts runs, from this element on.
    Sort(usize),
    /// Merges runs, from this place in the order on.
    Merge(usize),
    /// Copies a list or a sorted set in its own order, from this place on.
    Copy(usize),
}

impl Sorting {
    pub(super) fn new(
        source: SortSource,
        options: &SortOptions<'_>,
        hasher: &'static Hasher,
    ) -> Self {
        let wanted = options.range(source.len());
        let (phase, loaded) = match options.copies(&source) {
            true => (Phase::Copy(wanted.start), 0),
            false => (Phase::Load(0), source.len()),
        };
        Self {
            source,
            hasher,
            elements: SortElements::with_capacity(loaded),
            ordering: (!options.unsorted).then(|| options.ordering()),
            collation: options.collation.clone(),
            by: options.by.filter(|_| !options.unsorted).map(Box::from),
            get: options.get.iter().copied().map(Box::from).collect(),
            got_bytes: 0,
            backwards: options.descending,
            wanted,
            phase,
            runs: Runs::default(),
        }
    }

    /// Works for a slice. `false`: the output is complete. Without `lookups` everything is locked.
    pub(super) fn step(
        &mut self,
        data: &mut Data,
        mut lookups: Option<&mut Lookups>,
        output: &mut impl SortOutput,
    ) -> Result<bool, Failure> {
        match self.phase {
            Phase::Load(from) => self.load(from, output)?,
            Phase::Weigh(from) => self.weigh(from, data, lookups.as_deref_mut())?,
            Phase::Sort(from) => self.sort(from, output),
            Phase::Merge(from) => return self.merge(from, data, lookups, output),
            Phase::Copy(from) => return self.copy(from, data, lookups, output),
        }
        Ok(true)
    }

    pub(super) const fn source(&self) -> &SortSource {
        &self.source
    }

    fn load(&mut self, from: u64, output: &mut impl SortOutput) -> Result<(), Failure> {
        let before = self.elements.len();
        let next = self.source.load(from, SLICE, self.hasher, &mut self.elements);
        if self.by.is_none() && self.ordering.is_some_and(|ordering| !ordering.alpha) {
            self.elements.weigh(before..self.elements.len()).ok_or(NOT_NUMBERS)?;
        }
        if self.by.is_none()
            && let Some(collation) = &self.collation
        {
            let mut key = Vec::new();
            for at in before..self.elements.len() {
                collation.key(self.elements.get(at), &mut key);
                self.elements.set_text_weight(at, &key);
            }
        }
        match next {
            Some(next) => self.phase = Phase::Load(next),
            None if self.by.is_some() => self.phase = Phase::Weigh(0),
            None if self.ordering.is_some() => self.phase = Phase::Sort(0),
            None => {
                self.runs.push(0..self.elements.len(), |_, _| false);
                self.begin_merge(output);
            }
        }
        Ok(())
    }

    fn weigh(
        &mut self,
        from: usize,
        data: &mut Data,
        mut lookups: Option<&mut Lookups>,
    ) -> Result<(), Failure> {
        let end = (from + SLICE).min(self.elements.len());
        let alpha = self.ordering.is_some_and(|ordering| ordering.alpha);
        let pattern = SortPattern::new(self.by.as_deref().unwrap_or_default());
        let (mut element, mut key) = (Vec::new(), Vec::new());
        for at in from..end {
            element.clear();
            element.extend_from_slice(self.elements.get(at));
            let (elements, collation) = (&mut self.elements, self.collation.as_ref());
            let weighed = pattern.look_up(data, lookups.as_deref_mut(), &element, |value| {
                let Some(value) = value else { return Some(()) };
                if let Some(collation) = collation {
                    collation.key(value, &mut key);
                    elements.set_text_weight(at, &key);
                    return Some(());
                }
                if alpha {
                    elements.set_text_weight(at, value);
                    return Some(());
                }
                elements.set_weight(at, value)
            });
            weighed.ok_or(NOT_NUMBERS)?;
        }
        self.phase = match end < self.elements.len() {
            true => Phase::Weigh(end),
            false => Phase::Sort(0),
        };
        Ok(())
    }

    fn sort(&mut self, from: usize, output: &mut impl SortOutput) {
        let end = (from + RUN).min(self.elements.len());
        if let Some(ordering) = self.ordering {
            self.elements.sort_range(from..end, ordering);
        }
        let (elements, ordering) = (&self.elements, self.ordering);
        self.runs.push(from..end, |one, other| is_before(elements, ordering, one, other));
        if end < self.elements.len() {
            self.phase = Phase::Sort(end);
        } else {
            self.begin_merge(output);
        }
    }

    fn begin_merge(&mut self, output: &mut impl SortOutput) {
        self.begin(output);
        self.phase = Phase::Merge(0);
    }

    fn begin(&self, output: &mut impl SortOutput) {
        output.begin(self.wanted.len() * self.get.len().max(1));
    }

    fn merge(
        &mut self,
        from: usize,
        data: &mut Data,
        mut lookups: Option<&mut Lookups>,
        output: &mut impl SortOutput,
    ) -> Result<bool, Failure> {
        let end = (from + self.answered_at_once()).min(self.wanted.end);
        for place in from..end {
            let (elements, ordering) = (&self.elements, self.ordering);
            let next = self.runs.next(|one, other| is_before(elements, ordering, one, other));
            let Some(at) = next else { return Ok(false) };
            if place >= self.wanted.start {
                let element = self.elements.get(at);
                let bytes = self.answer(element, data, lookups.as_deref_mut(), output)?;
                self.got_bytes += bytes;
            }
        }
        self.phase = Phase::Merge(end);
        Ok(end < self.wanted.end)
    }

    fn copy(
        &mut self,
        from: usize,
        data: &mut Data,
        mut lookups: Option<&mut Lookups>,
        output: &mut impl SortOutput,
    ) -> Result<bool, Failure> {
        if from == self.wanted.start {
            self.begin(output);
        }
        let end = (from + self.answered_at_once()).min(self.wanted.end);
        let mut elements = SortElements::with_capacity(end - from);
        self.source.load_range(from..end, self.backwards, &mut elements);
        for at in 0..elements.len() {
            let bytes = self.answer(elements.get(at), data, lookups.as_deref_mut(), output)?;
            self.got_bytes += bytes;
        }
        self.phase = Phase::Copy(end);
        Ok(end < self.wanted.end)
    }

    /// How many elements are put out in a slice, each once for every GET.
    fn answered_at_once(&self) -> usize {
        (SLICE / self.get.len().max(1)).max(1)
    }

    /// Puts out what is requested for an element, and returns how many bytes GET gave. A client can
    /// request any number of copies, so GET's output is limited like other repeated replies.
    fn answer(
        &self,
        element: &[u8],
        data: &mut Data,
        mut lookups: Option<&mut Lookups>,
        output: &mut impl SortOutput,
    ) -> Result<usize, Failure> {
        if self.get.is_empty() {
            output.element(Some(element));
        }
        let mut bytes = 0;
        for pattern in &self.get {
            let pattern = SortPattern::new(pattern);
            bytes += pattern.look_up(data, lookups.as_deref_mut(), element, |value| {
                output.element(value);
                ELEMENT_BYTES + value.map_or(0, <[u8]>::len)
            });
            if self.got_bytes + bytes > REPEATED_BYTES_MAX {
                return Err(Failure::new(&TOO_LONG));
            }
        }
        Ok(bytes)
    }
}

/// Whether one element comes before another. Equal elements keep their order: the sort is stable.
fn is_before(
    elements: &SortElements,
    ordering: Option<Ordering>,
    one: usize,
    other: usize,
) -> bool {
    let Some(ordering) = ordering else { return one < other };
    elements.compare(one, other, ordering).then(one.cmp(&other)).is_lt()
}

/// The bytes of an element beside its text.
const ELEMENT_BYTES: usize = 5;
/// How many elements are sorted at once: some hundred microseconds.
const RUN: usize = 512;
