//! A large sort, a slice at a time: the elements are loaded, sorted in runs, and the runs merged into the reply.

use std::ops::Range;

use bobbin_resp::Reply;
use bobbin_store::hash::Hasher;

use super::NOT_NUMBERS;
use super::elements::{Elements, Ordering, Source};
use super::options::Options;
use crate::command::slices::SLICE;

/// See the module.
pub(super) struct Sorting {
    source: Source,
    hasher: &'static Hasher,
    elements: Elements,
    /// `None`: in their own order.
    ordering: Option<Ordering>,
    backwards: bool,
    /// Which of the sorted elements are wanted.
    wanted: Range<usize>,
    phase: Phase,
    /// Runs that are not used up, as a heap: the one with the first element at the top.
    runs: Vec<Range<usize>>,
}

enum Phase {
    /// From this cursor of the source.
    Load(u64),
    /// From this element.
    Sort(usize),
    /// From this place in the order.
    Merge(usize),
    /// A list or a sorted set as it is, from this place.
    Copy(usize),
}

impl Sorting {
    pub(super) fn new(
        source: Source,
        hasher: &'static Hasher,
        options: &Options<'_>,
        wanted: Range<usize>,
    ) -> Self {
        let phase = match source {
            Source::List(_) | Source::SortedSet(_) if options.unsorted => Phase::Copy(wanted.start),
            _ => Phase::Load(0),
        };
        Self {
            source,
            hasher,
            elements: Elements::default(),
            ordering: (!options.unsorted).then(|| options.ordering()),
            backwards: options.descending,
            wanted,
            phase,
            runs: Vec::new(),
        }
    }

    /// Goes on for a slice; `false` when the reply is complete.
    pub(super) fn step(&mut self, reply: &mut Reply<'_>) -> bool {
        match self.phase {
            Phase::Load(from) => self.load(from, reply),
            Phase::Sort(from) => {
                self.sort(from, reply);
                true
            }
            Phase::Merge(from) => self.merge(from, reply),
            Phase::Copy(from) => self.copy(from, reply),
        }
    }

    fn load(&mut self, from: u64, reply: &mut Reply<'_>) -> bool {
        let before = self.elements.len();
        let next = self.source.load(from, SLICE, self.hasher, &mut self.elements);
        if self.ordering.is_some_and(|ordering| !ordering.alpha)
            && self.elements.weigh(before..self.elements.len()).is_none()
        {
            reply.error(NOT_NUMBERS.0.as_bytes());
            return false;
        }
        match next {
            Some(next) => self.phase = Phase::Load(next),
            None if self.ordering.is_some() => self.phase = Phase::Sort(0),
            None => {
                self.runs.push(0..self.elements.len());
                self.begin_merge(reply);
            }
        }
        true
    }

    fn sort(&mut self, from: usize, reply: &mut Reply<'_>) {
        let end = (from + RUN).min(self.elements.len());
        if let Some(ordering) = self.ordering {
            self.elements.sort_range(from..end, ordering);
        }
        self.runs.push(from..end);
        if end < self.elements.len() {
            self.phase = Phase::Sort(end);
            return;
        }
        for at in (0..self.runs.len() / 2).rev() {
            self.sink(at);
        }
        self.begin_merge(reply);
    }

    fn begin_merge(&mut self, reply: &mut Reply<'_>) {
        reply.array(self.wanted.len());
        self.phase = Phase::Merge(0);
    }

    fn merge(&mut self, from: usize, reply: &mut Reply<'_>) -> bool {
        let end = (from + SLICE).min(self.wanted.end);
        for place in from..end {
            let Some(run) = self.runs.first_mut() else { return false };
            let Some(at) = run.next() else { return false };
            if run.start == run.end {
                self.runs.swap_remove(0);
            }
            self.sink(0);
            if place >= self.wanted.start {
                reply.bulk(self.elements.get(at));
            }
        }
        self.phase = Phase::Merge(end);
        end < self.wanted.end
    }

    /// Lets a run go down in the heap to where it belongs.
    fn sink(&mut self, mut at: usize) {
        let Some(ordering) = self.ordering else { return };
        // Equal elements come from the earlier run first: the sort is stable.
        let is_before = |a: &Range<usize>, b: &Range<usize>| {
            self.elements.compare(a.start, b.start, ordering).then(a.start.cmp(&b.start)).is_lt()
        };
        loop {
            let mut first = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.runs.len() && is_before(&self.runs[child], &self.runs[first]) {
                    first = child;
                }
            }
            if first == at {
                return;
            }
            self.runs.swap(at, first);
            at = first;
        }
    }

    fn copy(&mut self, from: usize, reply: &mut Reply<'_>) -> bool {
        if from == self.wanted.start {
            reply.array(self.wanted.len());
        }
        let end = (from + SLICE).min(self.wanted.end);
        let mut elements = Elements::default();
        self.source.load_range(from..end, self.backwards, &mut elements);
        (0..elements.len()).for_each(|at| reply.bulk(elements.get(at)));
        self.phase = Phase::Copy(end);
        end < self.wanted.end
    }
}

/// Elements that are sorted at once: some hundred microseconds.
const RUN: usize = 1024;
