//! Unions, intersections and differences of sorted sets, and of sets.

use std::sync::Arc;

use bobbin_resp::{Reply, parse_f64};
use bobbin_store::Hasher;
use bobbin_store::value::integer::IntegerText;
use bobbin_store::value::{Item, SortedSet, SortedSetLimits};

use super::gathered::Gathered;
use super::input::{SetInput, SetPlace};
use super::limits;
use super::range::{element, header, store};
use crate::engine::command::{Call, Data, Failure, Outcome};
use crate::engine::execution::slices::{
    SLICE, SLICED_MIN, SlicedChange, change_in_slices, integer_in_slices, reply_in_slices,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum SortedSetOperation {
    Union,
    Intersection,
    Difference,
}

/// How the scores of one member in several sets are combined.
#[derive(Clone, Copy)]
enum ScoreAggregate {
    Sum,
    Lowest,
    Highest,
}

pub(super) fn zunion(call: &mut Call<'_>) -> Outcome {
    answer(call, SortedSetOperation::Union)
}

pub(super) fn zinter(call: &mut Call<'_>) -> Outcome {
    answer(call, SortedSetOperation::Intersection)
}

pub(super) fn zdiff(call: &mut Call<'_>) -> Outcome {
    answer(call, SortedSetOperation::Difference)
}

pub(super) fn zunionstore(call: &mut Call<'_>) -> Outcome {
    combine_and_store(call, SortedSetOperation::Union, "zunionstore")
}

pub(super) fn zinterstore(call: &mut Call<'_>) -> Outcome {
    combine_and_store(call, SortedSetOperation::Intersection, "zinterstore")
}

pub(super) fn zdiffstore(call: &mut Call<'_>) -> Outcome {
    combine_and_store(call, SortedSetOperation::Difference, "zdiffstore")
}

fn answer(call: &mut Call<'_>, operation: SortedSetOperation) -> Outcome {
    let request = CombineRequest::read(call, 1, operation, false)?;
    let with_scores = request.with_scores;
    let mut combination = request.begin(call)?;
    if combination.work() < SLICED_MIN || !call.may_leave_job {
        let mut result = combination.finish();
        header(&mut call.reply, result.len(), with_scores);
        while let Some((member, score)) = result.next() {
            element(&mut call.reply, Item::Bytes(member), with_scores.then_some(score));
        }
        return Ok(());
    }
    let mut is_answering = false;
    reply_in_slices(call, move |reply| {
        if !is_answering && combination.step() {
            return true;
        }
        let result = &mut combination.result;
        if !is_answering {
            header(reply, result.len(), with_scores);
            is_answering = true;
        }
        for _ in 0..SLICE {
            let Some((member, score)) = result.next() else { return false };
            element(reply, Item::Bytes(member), with_scores.then_some(score));
        }
        true
    });
    Ok(())
}

fn combine_and_store(
    call: &mut Call<'_>,
    operation: SortedSetOperation,
    event: &'static str,
) -> Outcome {
    let request = CombineRequest::read(call, 2, operation, true)?;
    let combination = request.begin(call)?;
    let limits = limits(call.server);
    if combination.work() < SLICED_MIN {
        let hasher = combination.hasher;
        let mut set = SortedSet::new();
        combination.finish().append_some(usize::MAX, &mut set, limits, hasher);
        let destination = call.key(1)?;
        store(call.data, &mut call.reply, destination, set, event);
        return Ok(());
    }
    let keys: Vec<_> = request.keys.iter().copied().chain([1]).collect();
    let request = request.owned(call);
    let destination = call.args[1].into();
    let set = SortedSet::new();
    let storing = SortedSetStoring { request, combination, set, destination, limits, event };
    change_in_slices(call, keys.into_iter(), storing)
}

pub(super) fn zintercard(call: &mut Call<'_>) -> Outcome {
    let keys = key_range(call, 1)?;
    let mut limit = usize::MAX;
    let mut at = keys.end;
    let inputs = SetInput::read_all(call, keys)?;
    while at < call.args.len() {
        if !call.word_is(at, "limit") || at + 1 >= call.args.len() {
            return Err(Failure::SYNTAX);
        }
        let number = bobbin_resp::parse_i64(call.args[at + 1]);
        let number = number.and_then(|number| usize::try_from(number).ok());
        limit = match number.ok_or("ERR LIMIT can't be negative")? {
            0 => usize::MAX,
            limit => limit,
        };
        at += 2;
    }
    let hasher = call.data.keyspace().hasher();
    let mut count = Counting { inputs, place: SetPlace::default(), count: 0, limit, hasher };
    count.inputs.sort_by_key(|input| input.len());
    let work = count.inputs[0].len().saturating_mul(count.inputs.len());
    integer_in_slices(call, work >= SLICED_MIN, move || {
        (!count.step()).then_some(count.count as i64)
    });
    Ok(())
}

/// ZINTERCARD in progress.
struct Counting {
    /// The smallest set comes first.
    inputs: Vec<Arc<SetInput>>,
    place: SetPlace,
    count: usize,
    limit: usize,
    hasher: &'static Hasher,
}

impl Counting {
    /// Returns whether there is more to do.
    fn step(&mut self) -> bool {
        let Some((smallest, others)) = self.inputs.split_first() else { return false };
        let Some((second, others)) = others.split_first() else {
            self.count = smallest.len().min(self.limit);
            return false;
        };
        let (looks, left) = (others.len() + 1, self.limit - self.count);
        let next = smallest.walk_common(second, self.place, looks, left, self.hasher, |member| {
            let is_in = |other: &Arc<SetInput>| {
                Arc::ptr_eq(other, smallest) || other.score(member, self.hasher).is_some()
            };
            let counts = self.count < self.limit && others.iter().all(is_in);
            self.count += usize::from(counts);
        });
        self.place = next.unwrap_or_default();
        next.is_some() && self.count < self.limit
    }
}

/// The arguments that are keys according to `numkeys key [key ...]`.
fn key_range(call: &Call<'_>, numkeys_at: usize) -> Result<std::ops::Range<usize>, Failure> {
    let numkeys = call.integer(numkeys_at)?;
    if numkeys < 1 {
        let name = &call.command.full_name;
        let text = format!("ERR at least 1 input key is needed for '{name}' command");
        return Err(Failure::format(text));
    }
    let first = numkeys_at + 1;
    let end = usize::try_from(numkeys).ok().and_then(|count| first.checked_add(count));
    end.filter(|&end| end <= call.args.len()).map(|end| first..end).ok_or(Failure::SYNTAX)
}

/// The request. `K` identifies keys: argument indices, or the keys themselves.
struct CombineRequest<K> {
    operation: SortedSetOperation,
    keys: Vec<K>,
    weights: Vec<f64>,
    aggregate: ScoreAggregate,
    with_scores: bool,
}

impl CombineRequest<usize> {
    fn read(
        call: &mut Call<'_>,
        numkeys_at: usize,
        operation: SortedSetOperation,
        store: bool,
    ) -> Result<Self, Failure> {
        let keys = key_range(call, numkeys_at)?;
        let (count, mut at) = (keys.len(), keys.end);
        for at in keys.clone() {
            // Wrong types are reported before wrong options.
            let key = call.key(at)?;
            SetInput::check(call.data, key)?;
        }
        let mut request = Self {
            operation,
            keys: keys.collect(),
            weights: vec![1.0; count],
            aggregate: ScoreAggregate::Sum,
            with_scores: false,
        };
        while at < call.args.len() {
            let (left, weighs) =
                (call.args.len() - at, operation != SortedSetOperation::Difference);
            if weighs && call.word_is(at, "weights") && left > count {
                for weight in &mut request.weights {
                    at += 1;
                    *weight = parse_f64(call.args[at]).ok_or("ERR weight value is not a float")?;
                }
            } else if weighs && call.word_is(at, "aggregate") && left > 1 {
                at += 1;
                request.aggregate = ScoreAggregate::read(call.args[at])?;
            } else if !store && call.word_is(at, "withscores") {
                request.with_scores = true;
            } else {
                return Err(Failure::SYNTAX);
            }
            at += 1;
        }
        Ok(request)
    }

    fn begin(&self, call: &mut Call<'_>) -> Result<Combination, Failure> {
        let inputs = SetInput::read_all(call, self.keys.iter().copied())?;
        Ok(self.combination(self.weighed(inputs), call.data.keyspace().hasher()))
    }

    /// A copy that does not borrow the call.
    fn owned(self, call: &Call<'_>) -> CombineRequest<Box<[u8]>> {
        CombineRequest {
            operation: self.operation,
            keys: self.keys.iter().map(|&at| call.args[at].into()).collect(),
            weights: self.weights,
            aggregate: self.aggregate,
            with_scores: self.with_scores,
        }
    }
}

impl<K> CombineRequest<K> {
    /// The sets with their weights, in the order in which they are combined.
    fn weighed(&self, inputs: Vec<Arc<SetInput>>) -> Vec<(Arc<SetInput>, f64)> {
        let mut inputs: Vec<_> = inputs.into_iter().zip(self.weights.iter().copied()).collect();
        if self.operation != SortedSetOperation::Difference {
            // As in Redis, the smallest comes first. This determines the order in which scores are
            // added.
            inputs.sort_by_key(|(input, _)| input.len());
        }
        inputs
    }

    fn combination(
        &self,
        inputs: Vec<(Arc<SetInput>, f64)>,
        hasher: &'static Hasher,
    ) -> Combination {
        let result = match self.operation {
            SortedSetOperation::Union => {
                let before_last = &inputs[..inputs.len() - 1];
                Gathered::of_repeated(before_last.iter().map(|(input, _)| input.len()).sum())
            }
            _ => Gathered::default(),
        };
        Combination {
            operation: self.operation,
            inputs,
            aggregate: self.aggregate,
            hasher,
            at: 0,
            place: SetPlace::default(),
            result,
        }
    }
}

/// An operation on pinned sets in progress.
struct Combination {
    operation: SortedSetOperation,
    /// The sets and their weights.
    inputs: Vec<(Arc<SetInput>, f64)>,
    aggregate: ScoreAggregate,
    hasher: &'static Hasher,
    /// The set that is walked, and how far. All sets of a union are walked; otherwise only the
    /// first one is.
    at: usize,
    place: SetPlace,
    result: Gathered,
}

impl Combination {
    /// How many members must be examined, approximately.
    fn work(&self) -> usize {
        match self.operation {
            SortedSetOperation::Union => self.inputs.iter().map(|(input, _)| input.len()).sum(),
            _ => self.inputs[0].0.len().saturating_mul(self.inputs.len()),
        }
    }

    /// Does everything that is left. Returns the sorted result.
    fn finish(mut self) -> Gathered {
        while self.gather() {}
        self.result.sort_some(usize::MAX);
        self.result
    }

    /// Works for a slice. Returns whether there is more to do.
    fn step(&mut self) -> bool {
        self.gather() || self.result.sort_some(RUN)
    }

    /// Gathers the next members. Returns whether there were any.
    fn gather(&mut self) -> bool {
        let Self { operation, ref inputs, aggregate, hasher, ref mut result, .. } = *self;
        let walked = if operation == SortedSetOperation::Union { inputs.len() } else { 1 };
        let Some((input, weight)) = inputs[..walked].get(self.at) else { return false };
        let others = &inputs[1..];
        // No set has a member twice, so members of the last set need not be found again.
        let comes_again = self.at + 1 < inputs.len();
        let mut room = IntegerText::new(0);
        let looks = if operation == SortedSetOperation::Union { 0 } else { others.len() };
        let next = input.walk(self.place, looks, |member, score| {
            let member = member.text(&mut room);
            let score = match operation {
                SortedSetOperation::Union => {
                    let score = not_nan(weight * score);
                    result.merge(member, score, comes_again, hasher, |sum, score| {
                        aggregate.of(sum, score)
                    });
                    return;
                }
                SortedSetOperation::Intersection => {
                    others.iter().try_fold(not_nan(weight * score), |sum, (other, weight)| {
                        // Unlike in a union, a product that is NaN makes the whole sum 0. A set
                        // that is named again needs no lookup.
                        let own = Arc::ptr_eq(other, input).then_some(score);
                        let score = own.or_else(|| other.score(member, hasher))?;
                        Some(aggregate.of(sum, weight * score))
                    })
                }
                SortedSetOperation::Difference => {
                    let stays =
                        others.iter().all(|(other, _)| other.score(member, hasher).is_none());
                    stays.then_some(score)
                }
            };
            if let Some(score) = score {
                result.push(member, score);
            }
        });
        match next {
            Some(place) => self.place = place,
            None => (self.at, self.place) = (self.at + 1, SetPlace::default()),
        }
        true
    }
}

/// A STORE command in progress.
struct SortedSetStoring {
    request: CombineRequest<Box<[u8]>>,
    combination: Combination,
    /// The set that will be stored.
    set: SortedSet,
    destination: Box<[u8]>,
    limits: SortedSetLimits,
    event: &'static str,
}

impl SlicedChange for SortedSetStoring {
    fn step(&mut self, _: &mut Data) -> bool {
        let Self { combination, set, limits, .. } = self;
        combination.step()
            || combination.result.append_some(SLICE, set, *limits, combination.hasher)
    }

    fn is_current(&mut self, data: &mut Data) -> Result<bool, Failure> {
        let keys: Vec<_> = self.request.keys.iter().map(|name| data.key(name)).collect();
        let inputs = SetInput::at_keys(data, keys.into_iter(), Data::peek)?;
        let inputs = self.request.weighed(inputs);
        let mut pairs = inputs.iter().zip(&self.combination.inputs);
        let same = pairs.all(|((now, _), (then, _))| now.is_same(then));
        if !same {
            self.combination = self.request.combination(inputs, data.keyspace().hasher());
            self.set = SortedSet::new();
        }
        Ok(same)
    }

    fn finish(&mut self, data: &mut Data, _: &[&[u8]], reply: &mut Reply<'_>) -> Outcome {
        let set = std::mem::take(&mut self.set);
        let destination = data.key(&self.destination);
        store(data, reply, destination, set, self.event);
        Ok(())
    }
}

impl ScoreAggregate {
    fn read(word: &[u8]) -> Result<Self, Failure> {
        [("sum", Self::Sum), ("min", Self::Lowest), ("max", Self::Highest)]
            .into_iter()
            .find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, aggregate)| aggregate)
            .ok_or(Failure::SYNTAX)
    }

    fn of(self, sum: f64, score: f64) -> f64 {
        match self {
            // As in Redis, infinity plus minus infinity is 0.
            Self::Sum => not_nan(sum + score),
            Self::Lowest => sum.min(score),
            Self::Highest => sum.max(score),
        }
    }
}

/// Replaces NaN by 0.
const fn not_nan(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// How many members are sorted at once: some hundred microseconds.
const RUN: usize = 2048;
