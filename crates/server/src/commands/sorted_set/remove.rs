//! Removes members from sorted sets.

use std::ops::Range;

use bobbin_resp::Reply;
use bobbin_store::Hasher;
use bobbin_store::value::SortedSet;
use bobbin_store::value::pages::PREFETCHED;

use super::bounds::ElementBounds;
use super::shrunk;
use crate::engine::command::{Call, Data, Failure, Key, Outcome};
use crate::engine::execution::slices::{Draft, SLICE, SLICED_MIN, SlicedChange, change_in_slices};

pub(super) fn zrem(call: &mut Call<'_>) -> Outcome {
    let (key, hasher) = (call.key(1)?, call.data.keyspace().hasher());
    let mut removed = 0;
    if let Some(set) = call.data.write_as::<SortedSet>(key)? {
        for members in call.args[2..].chunks(PREFETCHED) {
            set.prefetch(members.iter().copied(), hasher);
            removed += members.iter().filter_map(|member| set.remove(member, hasher)).count();
        }
    }
    if removed > 0 {
        shrunk(call.data, key, removed, "zrem");
    }
    call.reply.integer(removed as i64);
    Ok(())
}

pub(super) fn zremrangebyrank(call: &mut Call<'_>) -> Outcome {
    remove(call, |start, end| ElementBounds::ranks(start, end), "zremrangebyrank")
}

pub(super) fn zremrangebyscore(call: &mut Call<'_>) -> Outcome {
    remove(call, |start, end| ElementBounds::scores(start, end), "zremrangebyscore")
}

pub(super) fn zremrangebylex(call: &mut Call<'_>) -> Outcome {
    remove(call, |start, end| ElementBounds::members(start, end), "zremrangebylex")
}

/// Parses the two ends of a range.
type Parse = for<'a> fn(&'a [u8], &'a [u8]) -> Result<ElementBounds<'a>, Failure>;

fn remove(call: &mut Call<'_>, parse: Parse, event: &'static str) -> Outcome {
    let (key, hasher) = (call.key(1)?, call.data.keyspace().hasher());
    let bounds = parse(call.args[2], call.args[3])?;
    let mut removed = 0;
    if let Some(set) = call.data.write_as::<SortedSet>(key)? {
        let ranks = bounds.find(set, false);
        removed = ranks.len();
        if removed > SLICED_MIN && call.may_leave_job {
            let draft = Draft::new(key.bytes, set);
            let ends = [call.args[2].into(), call.args[3].into()];
            let removing = MemberRemoval { draft, parse, ends, ranks, removed, event, hasher };
            return change_in_slices(call, [1].into_iter(), removing);
        }
        set.remove_range(ranks, hasher);
    }
    note_removed(call.data, &mut call.reply, key, removed, event);
    Ok(())
}

fn note_removed(
    data: &mut Data,
    reply: &mut Reply<'_>,
    key: Key<'_>,
    removed: usize,
    event: &'static str,
) {
    if removed > 0 {
        shrunk(data, key, removed, event);
    }
    reply.integer(removed as i64);
}

/// Removes many members.
struct MemberRemoval {
    draft: Draft<SortedSet>,
    parse: Parse,
    ends: [Box<[u8]>; 2],
    /// The ranks that are still to be removed.
    ranks: Range<usize>,
    removed: usize,
    event: &'static str,
    hasher: &'static Hasher,
}

impl SlicedChange for MemberRemoval {
    fn step(&mut self, _: &mut Data) -> bool {
        let last = self.ranks.len().saturating_sub(SLICE) + self.ranks.start;
        self.draft.value.remove_range(last..self.ranks.end, self.hasher);
        self.ranks.end = last;
        !self.ranks.is_empty()
    }

    fn is_current(&mut self, data: &mut Data) -> Result<bool, Failure> {
        let current = self.draft.is_current(data)?;
        if !current {
            let bounds = (self.parse)(&self.ends[0], &self.ends[1])?;
            self.ranks = bounds.find(&self.draft.value, false);
            self.removed = self.ranks.len();
        }
        Ok(current)
    }

    fn finish(&mut self, data: &mut Data, _: &[&[u8]], reply: &mut Reply<'_>) -> Outcome {
        let key = self.draft.put(data)?;
        note_removed(data, reply, key, self.removed, self.event);
        Ok(())
    }
}
