//! ZRANGE with its options, the older commands that it replaces, and ZRANGESTORE.

use std::ops::Range;

use bobbin_resp::{Protocol, Reply};
use bobbin_store::value::integer::IntegerText;
use bobbin_store::value::{Item, SortedSet, SortedSetLimits};
use bobbin_store::{Encoding, Hasher};

use super::super::elements::bulk;
use super::bounds::ElementBounds;
use super::gathered::Gathered;
use super::limits;
use crate::engine::command::{Call, Classes, Data, Failure, Key, Outcome};
use crate::engine::execution::slices::{
    SLICE, SLICED_MIN, SlicedChange, change_in_slices, reply_in_slices,
};

/// The unit of a range's bounds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Member,
}

/// The options of a range, without the bounds.
#[derive(Clone, Copy)]
struct RangeOptions {
    by: Option<By>,
    reverse: Option<bool>,
    with_scores: bool,
    /// The offset and the count of LIMIT, if given.
    limit: Option<(i64, i64)>,
}

pub(super) fn zrange(call: &mut Call<'_>) -> Outcome {
    range(call, None, None)
}

pub(super) fn zrangebyscore(call: &mut Call<'_>) -> Outcome {
    range(call, Some(By::Score), Some(false))
}

pub(super) fn zrangebylex(call: &mut Call<'_>) -> Outcome {
    range(call, Some(By::Member), Some(false))
}

pub(super) fn zrevrange(call: &mut Call<'_>) -> Outcome {
    range(call, Some(By::Rank), Some(true))
}

pub(super) fn zrevrangebyscore(call: &mut Call<'_>) -> Outcome {
    range(call, Some(By::Score), Some(true))
}

pub(super) fn zrevrangebylex(call: &mut Call<'_>) -> Outcome {
    range(call, Some(By::Member), Some(true))
}

fn range(call: &mut Call<'_>, by: Option<By>, reverse: Option<bool>) -> Outcome {
    let options = RangeOptions::read(call, 4, by, reverse, false)?;
    let (bounds, reverse, with_scores) =
        (options.bounds(call, 2)?, options.reverse(), options.with_scores);
    let Some(set) = call.data.read_as::<SortedSet>(call.key(1)?)? else {
        call.reply.array(0);
        return Ok(());
    };
    let ranks = options.cut(set, bounds.find(set, reverse));
    if ranks.len() < SLICED_MIN || !call.may_leave_job {
        header(&mut call.reply, ranks.len(), with_scores);
        answer(&mut call.reply, set, ranks, reverse, with_scores);
        return Ok(());
    }
    let (set, mut done) = (set.clone(), 0);
    reply_in_slices(call, move |reply| {
        if done == 0 {
            header(reply, ranks.len(), with_scores);
        }
        let next = (done + SLICE).min(ranks.len());
        let slice = if reverse {
            ranks.end - next..ranks.end - done
        } else {
            ranks.start + done..ranks.start + next
        };
        answer(reply, &set, slice, reverse, with_scores);
        done = next;
        done < ranks.len()
    });
    Ok(())
}

/// Begins an array of elements.
pub(super) fn header(reply: &mut Reply<'_>, len: usize, with_scores: bool) {
    let flat = with_scores && reply.protocol() == Protocol::Resp2;
    reply.array(if flat { len * 2 } else { len });
}

fn answer(
    reply: &mut Reply<'_>,
    set: &SortedSet,
    ranks: Range<usize>,
    reverse: bool,
    with_scores: bool,
) {
    let elements = set.range(ranks);
    let mut one = |(member, score)| element(reply, member, with_scores.then_some(score));
    if reverse {
        elements.rev().for_each(&mut one);
    } else {
        elements.for_each(&mut one);
    }
}

/// Appends an element to an array that [`header`] began.
pub(super) fn element(reply: &mut Reply<'_>, member: Item<'_>, score: Option<f64>) {
    let Some(score) = score else { return bulk(reply, member) };
    if reply.protocol() != Protocol::Resp2 {
        reply.array(2);
    }
    bulk(reply, member);
    reply.double(score);
}

pub(super) fn zrangestore(call: &mut Call<'_>) -> Outcome {
    let options = RangeOptions::read(call, 5, None, None, true)?;
    let bounds = options.bounds(call, 3)?;
    let (limits, hasher) = (limits(call.server), call.data.keyspace().hasher());
    let (source, destination) = (call.key(2)?, call.key(1)?);
    let Some(set) = call.data.read_as::<SortedSet>(source)? else {
        store(call.data, &mut call.reply, destination, SortedSet::new(), "zrangestore");
        return Ok(());
    };
    let ranks = options.cut(set, bounds.find(set, options.reverse()));
    let mut copy = Copying::new(set.clone(), ranks, options, limits, hasher);
    if copy.ranks.len() <= SLICED_MIN {
        copy.step(usize::MAX);
        store(call.data, &mut call.reply, destination, copy.result, "zrangestore");
        return Ok(());
    }
    let storing = RangeStoring {
        copy,
        options,
        bounds: [3, 4].map(|at| call.args[at].into()),
        source: source.bytes.into(),
        destination: destination.bytes.into(),
    };
    change_in_slices(call, [1, 2].into_iter(), storing)
}

/// Copies a part of a pinned set into another set.
struct Copying {
    set: SortedSet,
    /// The ranks that are still to be copied.
    ranks: Range<usize>,
    /// The ranks of which a score of -0 becomes 0.
    packed: Range<usize>,
    result: SortedSet,
    limits: SortedSetLimits,
    hasher: &'static Hasher,
}

impl Copying {
    fn new(
        set: SortedSet,
        ranks: Range<usize>,
        options: RangeOptions,
        limits: SortedSetLimits,
        hasher: &'static Hasher,
    ) -> Self {
        let packed = options.packed_first(&set, &ranks, limits);
        Self { set, ranks, packed, result: SortedSet::new(), limits, hasher }
    }

    /// Copies up to `count` elements. Returns whether there is more to do.
    fn step(&mut self, count: usize) -> bool {
        let next = self.ranks.end.min(self.ranks.start.saturating_add(count));
        let (mut room, mut some) = (IntegerText::new(0), Gathered::default());
        for (rank, (member, score)) in
            (self.ranks.start..).zip(self.set.range(self.ranks.start..next))
        {
            // A sum with 0 is never -0.
            let score = if self.packed.contains(&rank) { score + 0.0 } else { score };
            some.push(member.text(&mut room), score);
        }
        some.sort_some(usize::MAX);
        if self.result.is_empty() {
            self.result = SortedSet::for_elements(self.ranks.len(), 0, self.limits);
        }
        some.append_some(usize::MAX, &mut self.result, self.limits, self.hasher);
        self.ranks.start = next;
        !self.ranks.is_empty()
    }
}

/// ZRANGESTORE of a long range.
struct RangeStoring {
    copy: Copying,
    options: RangeOptions,
    bounds: [Box<[u8]>; 2],
    source: Box<[u8]>,
    destination: Box<[u8]>,
}

impl SlicedChange for RangeStoring {
    fn step(&mut self, _: &mut Data) -> bool {
        self.copy.step(SLICE)
    }

    fn is_current(&mut self, data: &mut Data) -> Result<bool, Failure> {
        let set = match data.peek(data.key(&self.source)) {
            Some(entry) => entry.collection::<SortedSet>().ok_or(Failure::WRONG_TYPE)?.clone(),
            None => SortedSet::new(),
        };
        let same = set.is_same(&self.copy.set);
        if !same {
            let [start, stop] = &self.bounds;
            let bounds = self.options.bounds_of(start, stop)?;
            let ranks = self.options.cut(&set, bounds.find(&set, self.options.reverse()));
            let Copying { limits, hasher, .. } = self.copy;
            self.copy = Copying::new(set, ranks, self.options, limits, hasher);
        }
        Ok(same)
    }

    fn finish(&mut self, data: &mut Data, _: &[&[u8]], reply: &mut Reply<'_>) -> Outcome {
        let result = std::mem::take(&mut self.copy.result);
        store(data, reply, data.key(&self.destination), result, "zrangestore");
        Ok(())
    }
}

/// Stores a result at a key, and replies with the number of its members.
pub(super) fn store(
    data: &mut Data,
    reply: &mut Reply<'_>,
    destination: Key<'_>,
    set: SortedSet,
    event: &'static str,
) {
    let len = set.len();
    let existed = data.exists(destination);
    if data.set_collection(destination, set) {
        data.event(Classes::SORTED_SET, event, destination);
    } else if existed {
        data.event(Classes::GENERIC, "del", destination);
    }
    reply.integer(len as i64);
}

impl RangeOptions {
    fn read(
        call: &Call<'_>,
        first: usize,
        by: Option<By>,
        reverse: Option<bool>,
        store: bool,
    ) -> Result<Self, Failure> {
        let mut options = Self { by, reverse, with_scores: false, limit: None };
        let mut at = first;
        while at < call.args.len() {
            if !store && call.word_is(at, "withscores") {
                options.with_scores = true;
            } else if call.word_is(at, "limit") && at + 2 < call.args.len() {
                options.limit = Some((call.integer(at + 1)?, call.integer(at + 2)?));
                at += 2;
            } else if options.reverse.is_none() && call.word_is(at, "rev") {
                options.reverse = Some(true);
            } else if options.by.is_none() && call.word_is(at, "bylex") {
                options.by = Some(By::Member);
            } else if options.by.is_none() && call.word_is(at, "byscore") {
                options.by = Some(By::Score);
            } else {
                return Err(Failure::SYNTAX);
            }
            at += 1;
        }
        let limited = options.limit.is_some_and(|(_, count)| count != -1);
        if limited && options.by() == By::Rank {
            return Err(LIMIT_OF_RANKS);
        }
        if options.with_scores && options.by() == By::Member {
            return Err(SCORES_OF_MEMBERS);
        }
        Ok(options)
    }

    fn by(&self) -> By {
        self.by.unwrap_or(By::Rank)
    }

    fn reverse(&self) -> bool {
        self.reverse.unwrap_or(false)
    }

    /// Parses the bounds, which are the two arguments from `at` on.
    fn bounds<'a>(&self, call: &Call<'a>, at: usize) -> Result<ElementBounds<'a>, Failure> {
        self.bounds_of(call.args[at], call.args[at + 1])
    }

    /// In reverse order the upper bound comes first.
    fn bounds_of<'a>(&self, start: &'a [u8], stop: &'a [u8]) -> Result<ElementBounds<'a>, Failure> {
        let (mut min, mut max) = (start, stop);
        if self.reverse() && self.by() != By::Rank {
            std::mem::swap(&mut min, &mut max);
        }
        match self.by() {
            By::Rank => ElementBounds::ranks(min, max),
            By::Score => ElementBounds::scores(min, max),
            By::Member => ElementBounds::members(min, max),
        }
    }

    /// The ranks of the elements that Valkey's ZRANGESTORE puts into a packed set, which has no
    /// score of -0, before one of them makes it large. It takes the elements in the range's order,
    /// and knows their number in advance only if the range is one of ranks.
    fn packed_first(
        &self,
        set: &SortedSet,
        ranks: &Range<usize>,
        limits: SortedSetLimits,
    ) -> Range<usize> {
        if self.by() == By::Rank && ranks.len() > limits.packed_entries {
            return 0..0;
        }
        let most = ranks.len().min(limits.packed_entries);
        let is_short = |(member, _): &(Item<'_>, f64)| member.len() <= limits.packed_value_len;
        if self.reverse() {
            let elements = set.range(ranks.end - most..ranks.end).rev();
            ranks.end - elements.take_while(is_short).count()..ranks.end
        } else {
            let elements = set.range(ranks.start..ranks.start + most);
            ranks.start..ranks.start + elements.take_while(is_short).count()
        }
    }

    /// The part of a range that LIMIT selects.
    fn cut(&self, set: &SortedSet, ranks: Range<usize>) -> Range<usize> {
        let Some((offset, count)) = self.limit.filter(|_| self.by() != By::Rank) else {
            return ranks;
        };
        let offset = match usize::try_from(offset) {
            Ok(offset) => offset.min(ranks.len()),
            // This keeps a quirk of Redis: in a large set such an offset counts from the other end,
            // and in a packed set nothing is found.
            Err(_) => {
                let from_end = usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX);
                match set.encoding() {
                    Encoding::Skiplist if from_end <= ranks.len() => ranks.len() - from_end,
                    _ => return ranks.start..ranks.start,
                }
            }
        };
        // A negative count means all.
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(ranks.len() - offset);
        if self.reverse() {
            ranks.end - offset - count..ranks.end - offset
        } else {
            ranks.start + offset..ranks.start + offset + count
        }
    }
}

const LIMIT_OF_RANKS: Failure = Failure::new(
    &"ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
);
const SCORES_OF_MEMBERS: Failure =
    Failure::new(&"ERR syntax error, WITHSCORES not supported in combination with BYLEX");
