//! Unions, intersections and differences of sorted sets, and of sets.

use std::cmp::Ordering;
use std::collections::HashMap;

use bobbin_resp::parse_f64;
use bobbin_store::value::{CollectionRef, Item, Set, SortedSet, integer};
use bobbin_store::{Hasher, ValueRef};

use super::limits;
use super::range::{element, header, store};
use crate::command::{Call, Failure, Outcome};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// How the scores of one member in several sets become one.
#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Lowest,
    Highest,
}

pub(super) fn zunion(call: &mut Call<'_>) -> Outcome {
    answer(call, Operation::Union)
}

pub(super) fn zinter(call: &mut Call<'_>) -> Outcome {
    answer(call, Operation::Intersection)
}

pub(super) fn zdiff(call: &mut Call<'_>) -> Outcome {
    answer(call, Operation::Difference)
}

pub(super) fn zunionstore(call: &mut Call<'_>) -> Outcome {
    combine_and_store(call, Operation::Union, "zunionstore")
}

pub(super) fn zinterstore(call: &mut Call<'_>) -> Outcome {
    combine_and_store(call, Operation::Intersection, "zinterstore")
}

pub(super) fn zdiffstore(call: &mut Call<'_>) -> Outcome {
    combine_and_store(call, Operation::Difference, "zdiffstore")
}

fn answer(call: &mut Call<'_>, operation: Operation) -> Outcome {
    let request = Request::read(call, 1, operation, false)?;
    let elements = request.combine(call.data.keyspace().hasher());
    header(&mut call.reply, elements.len(), request.with_scores);
    for (member, score) in &elements {
        element(&mut call.reply, Item::Bytes(member), request.with_scores.then_some(*score));
    }
    Ok(())
}

fn combine_and_store(call: &mut Call<'_>, operation: Operation, event: &'static str) -> Outcome {
    let request = Request::read(call, 2, operation, true)?;
    let (limits, hasher) = (limits(call), call.data.keyspace().hasher());
    let mut set = SortedSet::new();
    for (member, score) in request.combine(hasher) {
        set.insert(&member, score, limits, hasher);
    }
    drop(request);
    store(call, set, event);
    Ok(())
}

pub(super) fn zintercard(call: &mut Call<'_>) -> Outcome {
    let (inputs, mut at) = Input::read_all(call, 1)?;
    let mut limit = usize::MAX;
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
    let mut inputs: Vec<_> = inputs.iter().collect();
    inputs.sort_by_key(|input| input.len());
    let (smallest, others) = inputs.split_first().ok_or(Failure::SYNTAX)?;
    let (mut count, mut room) = (0, integer::Text::new(0));
    smallest.for_each(|member, _| {
        let member = member.text(&mut room);
        count += usize::from(others.iter().all(|other| other.score(member, hasher).is_some()));
        count < limit
    });
    call.reply.integer(count as i64);
    Ok(())
}

/// A member with its score in the result.
type Element = (Box<[u8]>, f64);

/// What is asked for.
struct Request {
    operation: Operation,
    inputs: Vec<Input>,
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
}

impl Request {
    fn read(
        call: &mut Call<'_>,
        numkeys_at: usize,
        operation: Operation,
        store: bool,
    ) -> Result<Self, Failure> {
        let (inputs, mut at) = Input::read_all(call, numkeys_at)?;
        let mut request = Self {
            operation,
            weights: vec![1.0; inputs.len()],
            inputs,
            aggregate: Aggregate::Sum,
            with_scores: false,
        };
        while at < call.args.len() {
            let (left, weighs) = (call.args.len() - at, operation != Operation::Difference);
            if weighs && call.word_is(at, "weights") && left > request.inputs.len() {
                for weight in &mut request.weights {
                    at += 1;
                    *weight = parse_f64(call.args[at]).ok_or("ERR weight value is not a float")?;
                }
            } else if weighs && call.word_is(at, "aggregate") && left > 1 {
                at += 1;
                request.aggregate = Aggregate::read(call.args[at])?;
            } else if !store && call.word_is(at, "withscores") {
                request.with_scores = true;
            } else {
                return Err(Failure::SYNTAX);
            }
            at += 1;
        }
        Ok(request)
    }

    /// The result, in order.
    fn combine(&self, hasher: &Hasher) -> Vec<Element> {
        // The smallest first, as Redis does: it decides about the order in which scores are added up.
        let mut inputs: Vec<_> = self.inputs.iter().zip(self.weights.iter().copied()).collect();
        if self.operation != Operation::Difference {
            inputs.sort_by_key(|(input, _)| input.len());
        }
        let mut elements = match self.operation {
            Operation::Union => self.union(&inputs),
            Operation::Intersection => self.intersection(&inputs, hasher),
            Operation::Difference => difference(&self.inputs, hasher),
        };
        elements.sort_unstable_by(|one, other| {
            let by_score = one.1.partial_cmp(&other.1).unwrap_or(Ordering::Equal);
            by_score.then_with(|| one.0.cmp(&other.0))
        });
        elements
    }

    fn union(&self, inputs: &[(&Input, f64)]) -> Vec<Element> {
        let mut scores: HashMap<Box<[u8]>, f64> = HashMap::new();
        let mut room = integer::Text::new(0);
        for &(input, weight) in inputs {
            input.for_each(|member, score| {
                let (member, score) = (member.text(&mut room), weighted(weight, score));
                match scores.get_mut(member) {
                    Some(sum) => *sum = self.aggregate.of(*sum, score),
                    None => {
                        scores.insert(member.into(), score);
                    }
                }
                true
            });
        }
        scores.into_iter().collect()
    }

    fn intersection(&self, inputs: &[(&Input, f64)], hasher: &Hasher) -> Vec<Element> {
        let Some(((smallest, weight), others)) = inputs.split_first() else { return Vec::new() };
        let (mut elements, mut room) = (Vec::new(), integer::Text::new(0));
        smallest.for_each(|member, score| {
            let member = member.text(&mut room);
            let score = others.iter().try_fold(weighted(*weight, score), |sum, (other, weight)| {
                let score = other.score(member, hasher)?;
                Some(self.aggregate.of(sum, weighted(*weight, score)))
            });
            if let Some(score) = score {
                elements.push((member.into(), score));
            }
            true
        });
        elements
    }
}

fn difference(inputs: &[Input], hasher: &Hasher) -> Vec<Element> {
    let Some((first, others)) = inputs.split_first() else { return Vec::new() };
    let (mut elements, mut room) = (Vec::new(), integer::Text::new(0));
    first.for_each(|member, score| {
        let member = member.text(&mut room);
        if others.iter().all(|other| other.score(member, hasher).is_none()) {
            elements.push((member.into(), score));
        }
        true
    });
    elements
}

/// A set that is combined with others, pinned; the members of a plain one have the score 1.
enum Input {
    Nothing,
    Set(Set),
    SortedSet(SortedSet),
}

impl Input {
    /// The sets that `numkeys key [key ...]` names, and the argument behind them.
    fn read_all(call: &mut Call<'_>, numkeys_at: usize) -> Result<(Vec<Self>, usize), Failure> {
        let numkeys = call.integer(numkeys_at)?;
        if numkeys < 1 {
            let name = &call.command.full_name;
            let text = format!("ERR at least 1 input key is needed for '{name}' command");
            return Err(Failure::format(text));
        }
        let first = numkeys_at + 1;
        let end = usize::try_from(numkeys).ok().and_then(|count| first.checked_add(count));
        let end = end.filter(|&end| end <= call.args.len()).ok_or(Failure::SYNTAX)?;
        let inputs = (first..end).map(|at| Self::read(call, at)).collect::<Result<_, _>>()?;
        Ok((inputs, end))
    }

    fn read(call: &mut Call<'_>, at: usize) -> Result<Self, Failure> {
        let Some(entry) = call.data.read(call.key(at)) else { return Ok(Self::Nothing) };
        match entry.value() {
            ValueRef::Collection(CollectionRef::Set(set)) => Ok(Self::Set(set.clone())),
            ValueRef::Collection(CollectionRef::SortedSet(set)) => Ok(Self::SortedSet(set.clone())),
            _ => Err(Failure::WRONG_TYPE),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Set(set) => set.len(),
            Self::SortedSet(set) => set.len(),
        }
    }

    fn score(&self, member: &[u8], hasher: &Hasher) -> Option<f64> {
        match self {
            Self::Nothing => None,
            Self::Set(set) => set.contains(member, hasher).then_some(1.0),
            Self::SortedSet(set) => set.score(member, hasher),
        }
    }

    /// Calls `visit` with the elements while it returns `true`.
    fn for_each(&self, mut visit: impl FnMut(Item<'_>, f64) -> bool) {
        match self {
            Self::Nothing => {}
            Self::Set(set) => {
                let _ = set.iter().all(|member| visit(member, 1.0));
            }
            Self::SortedSet(set) => {
                let _ = set.iter().all(|(member, score)| visit(member, score));
            }
        }
    }
}

impl Aggregate {
    fn read(word: &[u8]) -> Result<Self, Failure> {
        [("sum", Self::Sum), ("min", Self::Lowest), ("max", Self::Highest)]
            .into_iter()
            .find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, aggregate)| aggregate)
            .ok_or(Failure::SYNTAX)
    }

    fn of(self, sum: f64, score: f64) -> f64 {
        match self {
            // Infinity and its opposite make 0, as in Redis.
            Self::Sum => not_nan(sum + score),
            Self::Lowest => sum.min(score),
            Self::Highest => sum.max(score),
        }
    }
}

fn weighted(weight: f64, score: f64) -> f64 {
    not_nan(weight * score)
}

/// What has no value counts as 0.
const fn not_nan(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}
