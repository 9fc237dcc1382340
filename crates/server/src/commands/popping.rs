//! Pops many elements of a collection, in slices.

use std::ops::Range;

use bobbin_resp::{Protocol, Reply};
use bobbin_store::value::Drafted;

use crate::engine::buffers::pieces::Pieces;
use crate::engine::command::{Call, Data, Failure, Key, Outcome};
use crate::engine::execution::slices::{Draft, SLICE, SLICED_MIN, SlicedChange, change_in_slices};

/// The kind of popping: which elements are removed, and how that is reported.
pub(super) trait Pops: Send + 'static {
    type From: Drafted + 'static;

    /// Removes at most `most` elements, and appends them to the reply. Returns how many there are.
    fn take(&mut self, from: &mut Self::From, most: usize, reply: &mut Reply<'_>) -> usize;

    /// Called at the beginning, and again if the collection was changed: `wanted` elements will be
    /// removed.
    fn begin(&mut self, _from: &Self::From, _wanted: usize) {}

    /// Appends the part of the reply that precedes the elements, and reports the removal. There may
    /// be no elements.
    fn finish(&mut self, data: &mut Data, key: Key<'_>, popped: usize, reply: &mut Reply<'_>);
}

/// Whether popping this many elements takes long, so that it is done in slices if the command may.
pub(super) const fn is_long(count: usize) -> bool {
    count > SLICED_MIN
}

/// Pops elements of the collection at the argument's key, which is the first of these keys that has
/// any.
pub(super) fn pop_in_slices<P: Pops>(
    call: &mut Call<'_>,
    keys: Range<usize>,
    at: usize,
    wanted: usize,
    mut pops: P,
) -> Outcome {
    let key = call.key(at)?;
    let protocol = call.reply.protocol();
    let Some(from) = call.data.write_as::<P::From>(key)? else { return Err(Failure::WRONG_TYPE) };
    pops.begin(from, wanted);
    let draft = Draft::new(key.bytes, from);
    let names = keys.clone().map(|at| call.args[at].into()).collect();
    let (popped, elements) = (0, Pieces::default());
    let popping = Popping { keys: names, draft, pops, wanted, popped, elements, protocol };
    change_in_slices(call, keys, popping)
}

struct Popping<P: Pops> {
    keys: Vec<Box<[u8]>>,
    /// A draft of the first collection that has elements.
    draft: Draft<P::From>,
    pops: P,
    wanted: usize,
    popped: usize,
    elements: Pieces,
    protocol: Protocol,
}

impl<P: Pops> Popping<P> {
    /// The first key that has elements now.
    fn first(&self, data: &mut Data) -> Result<Option<Draft<P::From>>, Failure> {
        for name in &self.keys {
            if let Some(entry) = data.peek(data.key(name)) {
                let value = entry.collection::<P::From>().ok_or(Failure::WRONG_TYPE)?;
                return Ok(Some(Draft::new(name, value)));
            }
        }
        Ok(None)
    }
}

impl<P: Pops> SlicedChange for Popping<P> {
    fn step(&mut self, _: &mut Data) -> bool {
        let (from, most) = (&mut self.draft.value, SLICE.min(self.wanted - self.popped));
        let mut reply = Reply::new(self.elements.open(), self.protocol);
        self.popped += self.pops.take(from, most, &mut reply);
        self.popped < self.wanted && !from.is_empty()
    }

    fn is_current(&mut self, data: &mut Data) -> Result<bool, Failure> {
        let current = match self.first(data)? {
            // Other clients have emptied the key, or filled one before it.
            Some(draft) if draft.key() != self.draft.key() => {
                self.draft = draft;
                false
            }
            _ => self.draft.is_current(data)?,
        };
        if !current {
            (self.popped, self.elements) = (0, Pieces::default());
            self.pops.begin(&self.draft.value, self.wanted);
        }
        Ok(current)
    }

    fn finish(&mut self, data: &mut Data, _: &[&[u8]], reply: &mut Reply<'_>) -> Outcome {
        let key = self.draft.put(data)?;
        self.pops.finish(data, key, self.popped, reply);
        Ok(())
    }

    fn rest(&mut self) -> Option<Pieces> {
        Some(std::mem::take(&mut self.elements))
    }

    fn rest_bytes(&self) -> usize {
        self.elements.byte_len()
    }
}
