//! A large sort, a slice at a time: the elements are loaded, sorted in runs, and the runs merged into the reply, or into
//! the list that is stored.

use std::ops::Range;

use bobbin_resp::Reply;
use bobbin_store::hash::Hasher;
use bobbin_store::value::{End, Item, List, ListLimits};

use super::NOT_NUMBERS;
use super::elements::{Elements, Ordering, Source};
use super::options::Options;
use crate::command::slices::{Change, SLICE};
use crate::command::{Classes, Data, Failure, Key, Outcome};

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

/// Where the sorted elements go.
pub(super) trait Output {
    /// There will be so many elements.
    fn begin(&mut self, len: usize);
    fn element(&mut self, element: &[u8]);
    /// There is no result.
    fn fail(&mut self, failure: Failure);
}

impl Output for Reply<'_> {
    fn begin(&mut self, len: usize) {
        self.array(len);
    }

    fn element(&mut self, element: &[u8]) {
        self.bulk(element);
    }

    fn fail(&mut self, failure: Failure) {
        self.error(failure.0.as_bytes());
    }
}

/// SORT with STORE, of a large value.
pub(super) struct Storing {
    pub sorting: Sorting,
    pub options: Options<'static>,
    /// The value as it was.
    pub source: Source,
    pub key: Box<[u8]>,
    pub destination: Box<[u8]>,
    pub result: Stored,
}

/// The list that is stored.
pub(super) struct Stored {
    list: List,
    limits: ListLimits,
    failure: Option<Failure>,
}

impl Stored {
    pub(super) fn new(limits: ListLimits) -> Self {
        Self { list: List::new(), limits, failure: None }
    }

    /// Puts the list where it belongs, and answers how long it is.
    pub(super) fn put(self, data: &mut Data, reply: &mut Reply<'_>, key: Key<'_>) -> Outcome {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let len = self.list.len();
        if len > 0 {
            data.set_collection(key, self.list);
            data.counters.dirty += len as u64 - 1;
            data.event(Classes::LIST, "sortstore", key);
        } else if data.remove(key) {
            data.event(Classes::GENERIC, "del", key);
        }
        reply.integer(len as i64);
        Ok(())
    }
}

impl Output for Stored {
    fn begin(&mut self, _: usize) {}

    fn element(&mut self, element: &[u8]) {
        self.list.prepare(element.len(), 1, self.limits);
        self.list.push(Item::from(element), End::Back, self.limits);
    }

    fn fail(&mut self, failure: Failure) {
        self.failure = Some(failure);
    }
}

impl Change for Storing {
    fn step(&mut self) -> bool {
        self.sorting.step(&mut self.result)
    }

    fn is_current(&mut self, data: &mut Data) -> Result<bool, Failure> {
        let key = data.key(&self.key);
        let now = Source::of(data.peek(key))?;
        let same = now.is_same(&self.source);
        if !same {
            let (hasher, range) = (data.keyspace().hasher(), self.options.range(now.len()));
            self.sorting = Sorting::new(now.clone(), hasher, &self.options, range);
            self.source = now;
            self.result = Stored::new(self.result.limits);
        }
        Ok(same)
    }

    fn finish(&mut self, data: &mut Data, reply: &mut Reply<'_>) -> Outcome {
        let empty = Stored::new(self.result.limits);
        let result = std::mem::replace(&mut self.result, empty);
        result.put(data, reply, data.key(&self.destination))
    }
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
            elements: Elements::with_capacity(source.len()),
            source,
            hasher,
            ordering: (!options.unsorted).then(|| options.ordering()),
            backwards: options.descending,
            wanted,
            phase,
            runs: Vec::new(),
        }
    }

    /// Goes on for a slice; `false` when the reply is complete.
    pub(super) fn step(&mut self, output: &mut impl Output) -> bool {
        match self.phase {
            Phase::Load(from) => self.load(from, output),
            Phase::Sort(from) => {
                self.sort(from, output);
                true
            }
            Phase::Merge(from) => self.merge(from, output),
            Phase::Copy(from) => self.copy(from, output),
        }
    }

    fn load(&mut self, from: u64, output: &mut impl Output) -> bool {
        let before = self.elements.len();
        let next = self.source.load(from, SLICE, self.hasher, &mut self.elements);
        if self.ordering.is_some_and(|ordering| !ordering.alpha)
            && self.elements.weigh(before..self.elements.len()).is_none()
        {
            output.fail(NOT_NUMBERS);
            return false;
        }
        match next {
            Some(next) => self.phase = Phase::Load(next),
            None if self.ordering.is_some() => self.phase = Phase::Sort(0),
            None => {
                self.runs.push(0..self.elements.len());
                self.begin_merge(output);
            }
        }
        true
    }

    fn sort(&mut self, from: usize, output: &mut impl Output) {
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
        self.begin_merge(output);
    }

    fn begin_merge(&mut self, output: &mut impl Output) {
        output.begin(self.wanted.len());
        self.phase = Phase::Merge(0);
    }

    fn merge(&mut self, from: usize, output: &mut impl Output) -> bool {
        let end = (from + SLICE).min(self.wanted.end);
        for place in from..end {
            let Some(run) = self.runs.first_mut() else { return false };
            let Some(at) = run.next() else { return false };
            if run.start == run.end {
                self.runs.swap_remove(0);
            }
            self.sink(0);
            if place >= self.wanted.start {
                output.element(self.elements.get(at));
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

    fn copy(&mut self, from: usize, output: &mut impl Output) -> bool {
        if from == self.wanted.start {
            output.begin(self.wanted.len());
        }
        let end = (from + SLICE).min(self.wanted.end);
        let mut elements = Elements::with_capacity(end - from);
        self.source.load_range(from..end, self.backwards, &mut elements);
        (0..elements.len()).for_each(|at| output.element(elements.get(at)));
        self.phase = Phase::Copy(end);
        end < self.wanted.end
    }
}

/// Elements that are sorted at once: some hundred microseconds.
const RUN: usize = 512;
