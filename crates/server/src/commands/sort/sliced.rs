//! A large SORT, in slices.

use bobbin_resp::{Protocol, Reply};
use bobbin_store::hash::Hasher;

use super::elements::SortSource;
use super::limits;
use super::lookups::Lookups;
use super::options::{Owned, SortOptions};
use super::output::Stored;
use super::sorting::Sorting;
use crate::engine::buffers::pieces::Pieces;
use crate::engine::command::{Call, Data, Failure, Key, Outcome};
use crate::engine::execution::slices::SlicedChange;

/// A SORT in slices.
pub(super) struct SlicedSort {
    key: Box<[u8]>,
    options: Owned,
    sorting: Sorting,
    /// Set if keys are named after elements.
    lookups: Option<Lookups>,
    target: SortTarget,
    hasher: &'static Hasher,
    is_sorted: bool,
    failure: Option<Failure>,
}

enum SortTarget {
    Reply(Pieces, Protocol),
    Stored(Stored, Box<[u8]>),
}

impl SlicedSort {
    pub(super) fn new(
        call: &mut Call<'_>,
        key: Key<'_>,
        source: SortSource,
        options: &SortOptions<'_>,
    ) -> Self {
        let target = match options.store {
            None => SortTarget::Reply(Pieces::default(), call.client.protocol),
            Some(at) => {
                let stored = Stored::new(limits(call), options.needs_other_keys());
                SortTarget::Stored(stored, call.args[at].into())
            }
        };
        let hasher = call.data.keyspace().hasher();
        Self {
            key: key.bytes.into(),
            options: options.owned(),
            sorting: Sorting::new(source, options, hasher),
            lookups: options.needs_other_keys().then(|| Lookups::begin(call.data)),
            target,
            hasher,
            is_sorted: false,
            failure: None,
        }
    }

    fn sort(&mut self, data: &mut Data) -> Result<bool, Failure> {
        let lookups = self.lookups.as_mut();
        match &mut self.target {
            SortTarget::Reply(pieces, protocol) => {
                let mut reply = Reply::new(pieces.open(), *protocol);
                self.sorting.step(data, lookups, &mut reply)
            }
            SortTarget::Stored(stored, _) => self.sorting.step(data, lookups, stored),
        }
    }

    fn end_lookups(&mut self, data: &mut Data) {
        if let Some(lookups) = self.lookups.take() {
            lookups.end(data);
        }
    }

    fn is_valid(&mut self, now: &SortSource) -> bool {
        self.lookups.as_mut().is_none_or(Lookups::are_current) && now.is_same(self.sorting.source())
    }
}

impl SlicedChange for SlicedSort {
    fn step(&mut self, data: &mut Data) -> bool {
        if self.is_sorted {
            return self.lookups.as_mut().is_some_and(Lookups::check_some);
        }
        let now_ms = data.conditions.now_ms;
        if let Some(lookups) = &self.lookups {
            data.conditions.now_ms = lookups.began_ms();
        }
        let more = self.sort(data);
        data.conditions.now_ms = now_ms;
        if self.lookups.is_some() && !data.holds_all() {
            data.release();
        }
        match more {
            Ok(more) => self.is_sorted = !more,
            Err(failure) => {
                self.failure = Some(failure);
                self.is_sorted = true;
            }
        }
        true
    }

    fn needs_everything(&self) -> bool {
        self.lookups.is_some()
    }

    fn is_current(&mut self, data: &mut Data) -> Result<bool, Failure> {
        if matches!(self.target, SortTarget::Reply(..)) && self.lookups.is_none() {
            // The reply shows the value at the time of the command.
            return Ok(true);
        }
        let now = SortSource::of(data.peek(data.key(&self.key)));
        let now = now.inspect_err(|_| self.end_lookups(data))?;
        if self.is_valid(&now) {
            return Ok(true);
        }
        self.sorting = Sorting::new(now, &self.options.borrow(), self.hasher);
        if let Some(lookups) = &mut self.lookups {
            lookups.begin_anew(data);
        }
        match &mut self.target {
            SortTarget::Reply(pieces, _) => *pieces = Pieces::default(),
            SortTarget::Stored(stored, _) => drop(stored.take()),
        }
        (self.is_sorted, self.failure) = (false, None);
        Ok(false)
    }

    fn finish(&mut self, data: &mut Data, _: &[&[u8]], reply: &mut Reply<'_>) -> Outcome {
        self.end_lookups(data);
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if let SortTarget::Stored(stored, destination) = &mut self.target {
            stored.take().put(data, reply, data.key(destination));
        }
        Ok(())
    }

    fn abandon(&mut self, data: &mut Data) {
        self.end_lookups(data);
    }

    fn rest(&mut self) -> Option<Pieces> {
        match &mut self.target {
            SortTarget::Reply(pieces, _) => Some(std::mem::take(pieces)),
            SortTarget::Stored(..) => None,
        }
    }

    fn rest_bytes(&self) -> usize {
        match &self.target {
            SortTarget::Reply(pieces, _) => pieces.byte_len(),
            SortTarget::Stored(..) => 0,
        }
    }
}
