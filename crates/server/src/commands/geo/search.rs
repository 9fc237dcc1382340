//! GEOSEARCH, GEORADIUS and their forms.

use std::cmp::Ordering;
use std::ops::Range;

use bobbin_resp::{Protocol, Reply};
use bobbin_store::geo::{Position, Shape};
use bobbin_store::hash::Hasher;
use bobbin_store::value::{Item, SortedSet, SortedSetLimits, integer};

use super::query::{DistanceOrder, Query, SearchForm};
use super::{append_distance, append_position, limits};
use crate::commands::elements;
use crate::engine::command::{Call, Classes, Data, Failure, Key, KeyUse, Outcome};
use crate::engine::execution::slices::{Pieces, SLICE, SlicedChange, change_in_slices};

pub(super) fn geosearch(call: &mut Call<'_>) -> Outcome {
    search(call, SearchForm::Search)
}

pub(super) fn geosearchstore(call: &mut Call<'_>) -> Outcome {
    search(call, SearchForm::SearchStore)
}

pub(super) fn georadius(call: &mut Call<'_>) -> Outcome {
    search(call, SearchForm::Radius { may_store: true })
}

pub(super) fn georadius_ro(call: &mut Call<'_>) -> Outcome {
    search(call, SearchForm::Radius { may_store: false })
}

pub(super) fn georadiusbymember(call: &mut Call<'_>) -> Outcome {
    search(call, SearchForm::RadiusByMember { may_store: true })
}

pub(super) fn georadiusbymember_ro(call: &mut Call<'_>) -> Outcome {
    search(call, SearchForm::RadiusByMember { may_store: false })
}

pub(super) fn find_keys(args: &[&[u8]], found: &mut dyn FnMut(usize, KeyUse)) {
    find_stored(args, SearchForm::Radius { may_store: true }, found);
}

pub(super) fn find_keys_by_member(args: &[&[u8]], found: &mut dyn FnMut(usize, KeyUse)) {
    find_stored(args, SearchForm::RadiusByMember { may_store: true }, found);
}

fn find_stored(args: &[&[u8]], form: SearchForm, found: &mut dyn FnMut(usize, KeyUse)) {
    found(1, super::READ);
    if let Some(at) = form.stored(args) {
        found(at, super::STORE);
    }
}

/// A member within the shape.
struct FoundMember<'a> {
    member: Item<'a>,
    score: f64,
    /// Metres from the centre.
    distance: f64,
}

impl FoundMember<'_> {
    fn insert_into(
        &self,
        result: &mut SortedSet,
        query: &Query,
        limits: SortedSetLimits,
        hasher: &Hasher,
    ) {
        let distance = self.distance / query.metres;
        let score = if query.store_distance { distance } else { self.score };
        result.insert(self.member.text(&mut integer::Text::new(0)), score, limits, hasher);
    }

    fn append_to(&self, reply: &mut Reply<'_>, query: &Query) {
        let more = [query.with_distance, query.with_score, query.with_position];
        let more = more.iter().filter(|&&wanted| wanted).count();
        if more > 0 {
            reply.array(1 + more);
        }
        elements::bulk(reply, self.member);
        if query.with_distance {
            append_distance(reply, self.distance / query.metres);
        }
        if query.with_score {
            reply.integer(self.score as i64);
        }
        if query.with_position {
            append_position(reply, Position::from_score(self.score));
        }
    }
}

fn search(call: &mut Call<'_>, form: SearchForm) -> Outcome {
    let source_at = if form == SearchForm::SearchStore { 2 } else { 1 };
    let source = call.key(source_at)?;
    let hasher = call.data.keyspace().hasher();
    let set = call.data.read_as::<SortedSet>(source)?;
    let query = Query::parse(call.args, form, set.map(|set| (set, hasher)))?;
    let mut looks = match (set, &query.shape) {
        (Some(set), Some(shape)) => Looks::new(set, shape),
        _ => Looks::default(),
    };
    let effort = query.shape.as_ref().map_or(0, Shape::effort);
    if looks.left().saturating_mul(effort) > EFFORT_AT_ONCE_MAX
        && call.may_leave_job
        && let Some(set) = set
    {
        let keys = [source_at].into_iter().chain(query.store);
        let sliced = SlicedSearch {
            key: source.bytes.into(),
            store: query.store.map(|at| call.args[at].into()),
            args: call.args.iter().map(|&arg| arg.into()).collect(),
            form,
            limits: limits(call.server),
            hasher,
            protocol: call.reply.protocol(),
            set: set.clone(),
            query,
            looks,
            hits: None,
            made: 0,
            result: SortedSet::new(),
            members: Pieces::default(),
        };
        return change_in_slices(call, keys, sliced);
    }
    let mut found = Vec::new();
    if let Some(set) = set {
        looks.go_on(set, &query, usize::MAX);
        found = looks.found(set);
    }
    sort(&mut found, &query, |member| member.distance);
    let Some(store) = query.store else {
        append(&mut call.reply, &query, &found);
        return Ok(());
    };
    let result = stored(&found, &query, limits(call.server), hasher);
    let key = call.key(store)?;
    put(call.data, &mut call.reply, key, result, form);
    Ok(())
}

/// The order that is asked for, and no more than are asked for.
fn sort<T>(found: &mut Vec<T>, query: &Query, distance: impl Fn(&T) -> f64) {
    let wanted = query.count.map_or(found.len(), |count| count.min(found.len()));
    let by_distance =
        |a: &T, b: &T| distance(a).partial_cmp(&distance(b)).unwrap_or(Ordering::Equal);
    match query.order {
        DistanceOrder::Any => {}
        DistanceOrder::Nearest => found.sort_by(by_distance),
        DistanceOrder::Farthest => found.sort_by(|a, b| by_distance(b, a)),
    }
    found.truncate(wanted);
}

/// What STORE makes of the members found.
fn stored(
    found: &[FoundMember<'_>],
    query: &Query,
    limits: SortedSetLimits,
    hasher: &Hasher,
) -> SortedSet {
    let mut result = SortedSet::new();
    found.iter().for_each(|member| member.insert_into(&mut result, query, limits, hasher));
    result
}

fn put(data: &mut Data, reply: &mut Reply<'_>, key: Key<'_>, result: SortedSet, form: SearchForm) {
    let count = result.len();
    if count > 0 {
        data.set_collection(key, result);
        data.counters.dirty += count as u64 - 1;
        let event = match form {
            SearchForm::SearchStore => "geosearchstore",
            _ => "georadiusstore",
        };
        data.event(Classes::SORTED_SET, event, key);
    } else if data.remove(key) {
        data.event(Classes::GENERIC, "del", key);
    }
    reply.integer(count as i64);
}

/// A search at work: ranks of the set that are still to be looked at, and those of members within
/// the shape, with their distances, in the order of looking.
#[derive(Default)]
struct Looks {
    /// The last one comes first.
    ranks: Vec<Range<usize>>,
    hits: Vec<(usize, f64)>,
}

impl Looks {
    fn new(set: &SortedSet, shape: &Shape) -> Self {
        let rank = |score: u64| set.rank_below_score(score as f64, false);
        let ranges = shape.score_ranges().into_iter().rev();
        let ranks = ranges.map(|scores| rank(scores.start)..rank(scores.end)).collect();
        Self { ranks, hits: Vec::new() }
    }

    /// Members to look at.
    fn left(&self) -> usize {
        self.ranks.iter().map(Range::len).sum()
    }

    /// Looks at some members; whether there are more.
    fn go_on(&mut self, set: &SortedSet, query: &Query, mut looks: usize) -> bool {
        let Some(shape) = &query.shape else { return false };
        let enough = query.count.filter(|_| query.any);
        while let Some(ranks) = self.ranks.last_mut() {
            let part = ranks.start..ranks.end.min(ranks.start.saturating_add(looks));
            looks -= part.len();
            ranks.start = part.end;
            if ranks.start >= ranks.end {
                self.ranks.pop();
            }
            for (rank, (_, score)) in part.clone().zip(set.range(part)) {
                if let Some(distance) = shape.distance_within(Position::from_score(score)) {
                    self.hits.push((rank, distance));
                    if enough == Some(self.hits.len()) {
                        return false;
                    }
                }
            }
            if looks == 0 {
                break;
            }
        }
        !self.ranks.is_empty()
    }

    fn found<'a>(&self, set: &'a SortedSet) -> Vec<FoundMember<'a>> {
        let mut found = Vec::with_capacity(self.hits.len());
        let mut at = 0;
        // Neighbours are read together.
        while let Some(&(first, _)) = self.hits.get(at) {
            let is_next = |(index, hit): (usize, &(usize, f64))| hit.0 == first + index;
            let run = self.hits[at..].iter().enumerate().take_while(|&hit| is_next(hit)).count();
            let hits = &self.hits[at..at + run];
            for ((member, score), &(_, distance)) in set.range(first..first + run).zip(hits) {
                found.push(FoundMember { member, score, distance });
            }
            at += run;
        }
        found
    }
}

/// A search among many members, or in a shape of many edges, in slices.
struct SlicedSearch {
    key: Box<[u8]>,
    /// Where to store the result.
    store: Option<Box<[u8]>>,
    args: Vec<Box<[u8]>>,
    form: SearchForm,
    limits: SortedSetLimits,
    hasher: &'static Hasher,
    protocol: Protocol,
    set: SortedSet,
    query: Query,
    looks: Looks,
    /// Ranks and distances of those that are wanted, in their order, once all are found.
    hits: Option<Vec<(usize, f64)>>,
    /// How many of them are in the result or among the members.
    made: usize,
    /// What STORE will put.
    result: SortedSet,
    /// What is answered if nothing is stored.
    members: Pieces,
}

impl SlicedChange for SlicedSearch {
    fn step(&mut self, _: &mut Data) -> bool {
        let Some(hits) = &self.hits else {
            let effort = self.query.shape.as_ref().map_or(1, Shape::effort);
            if !self.looks.go_on(&self.set, &self.query, (EFFORT_PER_SLICE / effort).max(1)) {
                let mut hits = std::mem::take(&mut self.looks.hits);
                sort(&mut hits, &self.query, |&(_, distance)| distance);
                self.hits = Some(hits);
            }
            return true;
        };
        let end = hits.len().min(self.made + SLICE);
        let mut reply = Reply::new(self.members.open(), self.protocol);
        for &(rank, distance) in &hits[self.made..end] {
            let Some((member, score)) = self.set.get(rank) else { continue };
            let found = FoundMember { member, score, distance };
            match self.store {
                Some(_) => {
                    let result = &mut self.result;
                    found.insert_into(result, &self.query, self.limits, self.hasher);
                }
                None => found.append_to(&mut reply, &self.query),
            }
        }
        self.made = end;
        end < hits.len()
    }

    fn is_current(&mut self, data: &mut Data) -> Result<bool, Failure> {
        if self.store.is_none() {
            // It is what the value was when the command came.
            return Ok(true);
        }
        let now = match data.peek(data.key(&self.key)) {
            Some(entry) => entry.collection::<SortedSet>().ok_or(Failure::WRONG_TYPE)?.clone(),
            None => SortedSet::new(),
        };
        if now.is_same(&self.set) {
            return Ok(true);
        }
        let args: Vec<&[u8]> = self.args.iter().map(|arg| &**arg).collect();
        let set = (!now.is_empty()).then_some((&now, self.hasher));
        self.query = Query::parse(&args, self.form, set)?;
        self.looks = match &self.query.shape {
            Some(shape) => Looks::new(&now, shape),
            None => Looks::default(),
        };
        self.set = now;
        (self.hits, self.made, self.result) = (None, 0, SortedSet::new());
        Ok(false)
    }

    fn finish(&mut self, data: &mut Data, _: &[&[u8]], reply: &mut Reply<'_>) -> Outcome {
        match &self.store {
            None => reply.array(self.made),
            Some(store) => {
                let result = std::mem::take(&mut self.result);
                put(data, reply, data.key(store), result, self.form);
            }
        }
        Ok(())
    }

    fn rest(&mut self) -> Option<Pieces> {
        self.store.is_none().then(|| std::mem::take(&mut self.members))
    }

    fn rest_bytes(&self) -> usize {
        self.members.byte_len()
    }
}

fn append(reply: &mut Reply<'_>, query: &Query, found: &[FoundMember<'_>]) {
    reply.array(found.len());
    found.iter().for_each(|member| member.append_to(reply, query));
}

/// A search of more effort than this is done in slices: some milliseconds.
const EFFORT_AT_ONCE_MAX: usize = 1 << 20;
/// Effort between two looks at the time.
const EFFORT_PER_SLICE: usize = 1 << 14;
