//! GEOSEARCH, GEORADIUS and their forms.

use std::ops::Range;

use bobbin_resp::{Protocol, Reply};
use bobbin_store::ValueRef;
use bobbin_store::geo::{GeoPosition, Shape};
use bobbin_store::hash::Hasher;
use bobbin_store::value::integer::IntegerText;
use bobbin_store::value::{CollectionRef, Item, SortedSet, SortedSetLimits};

use super::query::{DistanceOrder, Query, SearchForm};
use super::{append_distance, append_position, limits};
use crate::commands::elements;
use crate::commands::runs::Runs;
use crate::engine::buffers::pieces::Pieces;
use crate::engine::command::{Call, Classes, Data, Failure, Key, KeyUse, Outcome};
use crate::engine::execution::elsewhere::Elsewhere;
use crate::engine::execution::slices::{SLICE, SLICED_MIN, SlicedChange, change_in_slices};
use crate::engine::log::payload_of;

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
#[derive(Clone, Copy)]
struct FoundMember<'a> {
    member: Item<'a>,
    score: f64,
    /// Its distance from the centre in metres.
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
        result.insert(self.member.text(&mut IntegerText::new(0)), score, limits, hasher);
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
            append_position(reply, GeoPosition::from_score(self.score));
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
            order: Order::default(),
            all_found: false,
            made: 0,
            result: SortedSet::new(),
            encoding: None,
            payload: None,
            began_anew: false,
            members: Pieces::default(),
        };
        return change_in_slices(call, keys, sliced);
    }
    let mut found = Vec::new();
    if let Some(set) = set {
        looks.go_on(set, &query, usize::MAX);
        found = looks.found(set, &sorted(&looks.hits, &query));
    }
    let Some(store) = query.store else {
        call.reply.array(found.len());
        found.iter().for_each(|member| member.append_to(&mut call.reply, &query));
        return Ok(());
    };
    let (mut result, limits) = (SortedSet::new(), limits(call.server));
    found.iter().for_each(|member| member.insert_into(&mut result, &query, limits, hasher));
    let key = call.key(store)?;
    let payload = payload(call.data, &query, &result);
    put(call.data, &mut call.reply, key, result, form, payload);
    Ok(())
}

/// The payload of a result that is logged instead of the search.
fn payload(data: &Data, query: &Query, result: &SortedSet) -> Option<Vec<u8>> {
    let is_needed = data.is_logged() && !query.is_universal();
    is_needed.then(|| payload_of_set(result))
}

fn payload_of_set(set: &SortedSet) -> Vec<u8> {
    payload_of(ValueRef::Collection(CollectionRef::SortedSet(set)), false)
}

/// A member within the shape: its rank, and its distance from the centre in metres.
type Hit = (usize, f64);

/// The key by which hits are sorted: the requested order in the upper half, and the index among all
/// hits in the lower half.
fn sort_key(order: DistanceOrder, (at, &(_, distance)): (usize, &Hit)) -> u128 {
    // The bits of numbers that are not negative are in the order of the numbers.
    let place = match order {
        DistanceOrder::Any => 0,
        DistanceOrder::Nearest => distance.to_bits(),
        DistanceOrder::Farthest => !distance.to_bits(),
    };
    u128::from(place) << 64 | at as u128
}

/// The indices of the wanted hits, in the requested order.
fn sorted(hits: &[Hit], query: &Query) -> Vec<usize> {
    let keys = hits.iter().enumerate().map(|hit| sort_key(query.order, hit));
    let mut keys: Vec<_> = keys.collect();
    let wanted = query.wanted_of(keys.len());
    if wanted < keys.len() {
        keys.select_nth_unstable(wanted);
        keys.truncate(wanted);
    }
    keys.sort_unstable();
    keys.into_iter().map(|key| key as usize).collect()
}

/// Sorts hits: in runs while they are found, and then by merging the runs.
#[derive(Default)]
struct Order {
    keys: Vec<u128>,
    /// How many keys are in runs.
    in_runs: usize,
    runs: Runs,
}

impl Order {
    /// Adds the new hits. `are_all`: no more follow.
    fn take_in(&mut self, hits: &[Hit], order: DistanceOrder, are_all: bool) {
        let new = hits.iter().enumerate().skip(self.keys.len());
        self.keys.extend(new.map(|hit| sort_key(order, hit)));
        let run_len_min = if are_all { 1 } else { RUN_LEN };
        while self.keys.len() - self.in_runs >= run_len_min {
            let run = self.in_runs..self.keys.len().min(self.in_runs + RUN_LEN);
            self.in_runs = run.end;
            self.keys[run.clone()].sort_unstable();
            let keys = &self.keys;
            self.runs.push(run, |one, other| keys[one] < keys[other]);
        }
    }

    /// The index of the next hit.
    fn next(&mut self) -> Option<usize> {
        let keys = &self.keys;
        let at = self.runs.next(|one, other| keys[one] < keys[other])?;
        Some(keys[at] as usize)
    }
}

/// Stores a result. With its payload the result is logged, and not the search.
fn put(
    data: &mut Data,
    reply: &mut Reply<'_>,
    key: Key<'_>,
    result: SortedSet,
    form: SearchForm,
    payload: Option<Vec<u8>>,
) {
    let count = result.len();
    if count > 0 {
        data.set_collection(key, result);
        if let Some(payload) = payload {
            data.propagate_value(key, &payload, &[b"REPLACE"]);
        }
        data.counters.dirty += count as u64 - 1;
        let event = match form {
            SearchForm::SearchStore => "geosearchstore",
            _ => "georadiusstore",
        };
        data.event(Classes::SORTED_SET, event, key);
    } else if data.remove(key) {
        if payload.is_some() {
            data.propagate(&[b"DEL", key.bytes]);
        }
        data.event(Classes::GENERIC, "del", key);
    }
    reply.integer(count as i64);
}

/// A search in progress: the ranks that were not examined yet, and the ranks and distances of
/// members within the shape, in the order in which they were found.
#[derive(Default)]
struct Looks {
    /// The range to examine next is the last one.
    ranks: Vec<Range<usize>>,
    hits: Vec<Hit>,
}

impl Looks {
    fn new(set: &SortedSet, shape: &Shape) -> Self {
        let rank = |score: u64| set.rank_below_score(score as f64, false);
        let ranges = shape.score_ranges().into_iter().rev();
        let ranks = ranges.map(|scores| rank(scores.start)..rank(scores.end)).collect();
        Self { ranks, hits: Vec::new() }
    }

    /// How many members are left to examine.
    fn left(&self) -> usize {
        self.ranks.iter().map(Range::len).sum()
    }

    /// Examines some members. Returns whether there are more.
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
                if let Some(distance) = shape.distance_within(GeoPosition::from_score(score)) {
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

    /// The members for some hits, by the hits' indices.
    fn found<'a>(&self, set: &'a SortedSet, wanted: &[usize]) -> Vec<FoundMember<'a>> {
        if wanted.len() < self.hits.len() / HITS_PER_SEEK {
            let found = wanted.iter().map(|&at| self.hits[at]);
            let member = |(rank, distance)| {
                let (member, score) = set.get(rank)?;
                Some(FoundMember { member, score, distance })
            };
            return found.filter_map(member).collect();
        }
        let all = self.all_found(set);
        wanted.iter().map(|&at| all[at]).collect()
    }

    fn all_found<'a>(&self, set: &'a SortedSet) -> Vec<FoundMember<'a>> {
        let mut found = Vec::with_capacity(self.hits.len());
        let mut at = 0;
        // Consecutive members are read together.
        while let Some(&(first, _)) = self.hits.get(at) {
            let is_next = |(index, hit): (usize, &Hit)| hit.0 == first + index;
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

/// A search among many members, or in a shape with many edges, in slices.
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
    order: Order,
    /// No more hits will come.
    all_found: bool,
    /// How many hits are in `result` or `members`.
    made: usize,
    /// The set that STORE will store.
    result: SortedSet,
    /// Another thread makes its payload for the log.
    encoding: Option<Elsewhere<Vec<u8>>>,
    payload: Option<Vec<u8>>,
    /// The set has changed meanwhile.
    began_anew: bool,
    /// The reply if nothing is stored.
    members: Pieces,
}

impl SlicedSearch {
    /// Lets another thread make the payload of a large result, if the log needs it. Returns whether
    /// it is at work. After a change of the set the shards may be held, and nobody waits for it.
    fn make_payload(&mut self, data: &Data) -> bool {
        if let Some(encoding) = &self.encoding {
            self.payload = self.payload.take().or_else(|| encoding.result());
            return self.payload.is_none();
        }
        let is_needed = self.store.is_some() && data.is_logged() && !self.query.is_universal();
        if is_needed && !self.began_anew && self.result.len() > SLICED_MIN {
            let result = self.result.clone();
            self.encoding = Elsewhere::start("bobbin-payload", move || payload_of_set(&result));
        }
        self.encoding.is_some()
    }
}

impl SlicedChange for SlicedSearch {
    fn step(&mut self, data: &mut Data) -> bool {
        if !self.all_found {
            let effort = self.query.shape.as_ref().map_or(1, Shape::effort);
            let looks = (EFFORT_PER_SLICE / effort).max(1);
            self.all_found = !self.looks.go_on(&self.set, &self.query, looks);
            self.order.take_in(&self.looks.hits, self.query.order, self.all_found);
            return true;
        }
        let wanted = self.query.wanted_of(self.looks.hits.len());
        let mut reply = Reply::new(self.members.open(), self.protocol);
        for _ in self.made..wanted.min(self.made + SLICE) {
            let Some(at) = self.order.next() else { return false };
            let (rank, distance) = self.looks.hits[at];
            let Some((member, score)) = self.set.get(rank) else { return false };
            self.made += 1;
            let found = FoundMember { member, score, distance };
            match self.store {
                Some(_) => {
                    let result = &mut self.result;
                    found.insert_into(result, &self.query, self.limits, self.hasher);
                }
                None => found.append_to(&mut reply, &self.query),
            }
        }
        self.made < wanted || self.make_payload(data)
    }

    fn is_elsewhere(&self) -> bool {
        self.encoding.is_some() && self.payload.is_none()
    }

    fn is_current(&mut self, data: &mut Data) -> Result<bool, Failure> {
        if self.store.is_none() {
            // The reply shows the value at the time of the command.
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
        (self.order, self.all_found) = (Order::default(), false);
        (self.made, self.result) = (0, SortedSet::new());
        (self.encoding, self.payload, self.began_anew) = (None, None, true);
        Ok(false)
    }

    fn finish(&mut self, data: &mut Data, _: &[&[u8]], reply: &mut Reply<'_>) -> Outcome {
        match &self.store {
            None => reply.array(self.made),
            Some(store) => {
                let result = std::mem::take(&mut self.result);
                let payload = self.payload.take().or_else(|| payload(data, &self.query, &result));
                put(data, reply, data.key(store), result, self.form, payload);
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

/// A search with more effort than this is done in slices. It takes some milliseconds.
const EFFORT_AT_ONCE_MAX: usize = 1 << 20;
/// The effort between two looks at the clock.
const EFFORT_PER_SLICE: usize = 1 << 14;
/// Where at most one hit of this many is wanted, the members are sought one by one. That costs less
/// than to read all in their order.
const HITS_PER_SEEK: usize = 8;
/// How many hits are sorted at once: a fraction of a millisecond.
const RUN_LEN: usize = 1 << 12;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;

    #[test]
    fn few_members_are_found_as_all_are() {
        let hasher = Hasher::new(1);
        let limits = SortedSetLimits { packed_entries: 16, packed_value_len: 64 };
        let mut set = SortedSet::new();
        for number in 0..500_u32 {
            let score = f64::from(number * 7919 % 500);
            set.insert(format!("member {number}").as_bytes(), score, limits, &hasher);
        }
        let hits: Vec<Hit> = (0..500).step_by(3).map(|rank| (rank, rank as f64 * 2.5)).collect();
        let looks = Looks { ranks: Vec::new(), hits };
        let plain = |found: &FoundMember<'_>| (found.member.to_vec(), found.score, found.distance);
        let all = looks.all_found(&set);
        for wanted in [vec![], vec![5], vec![40, 3, 17], (0..100).rev().collect::<Vec<_>>()] {
            let found: Vec<_> = looks.found(&set, &wanted).iter().map(plain).collect();
            let expected: Vec<_> = wanted.iter().map(|&at| plain(&all[at])).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn runs_give_the_order_that_sorting_gives() {
        let args = b"GEOSEARCH k FROMLONLAT 1 1 BYRADIUS 1 m".split(|&byte| byte == b' ');
        let query = Query::parse(&args.collect::<Vec<_>>(), SearchForm::Search, None);
        let Ok(mut query) = query else { panic!("it is not understood") };
        let mut random = Random::new(5);
        let hits: Vec<Hit> =
            (0..3 * RUN_LEN + 7).map(|rank| (rank, (random.next_u64() % 5_000) as f64)).collect();
        for order in [DistanceOrder::Any, DistanceOrder::Nearest, DistanceOrder::Farthest] {
            let mut expected: Vec<usize> = (0..hits.len()).collect();
            match order {
                DistanceOrder::Any => {}
                DistanceOrder::Nearest => expected.sort_by_key(|&at| hits[at].1 as i64),
                DistanceOrder::Farthest => expected.sort_by_key(|&at| -(hits[at].1 as i64)),
            }
            for count in [None, Some(1), Some(100), Some(hits.len() + 1)] {
                (query.order, query.count) = (order, count);
                let wanted = query.wanted_of(hits.len());
                assert_eq!(sorted(&hits, &query), expected[..wanted]);
                let mut found = Order::default();
                for part in (0..=hits.len()).step_by(1_000).chain([hits.len()]) {
                    found.take_in(&hits[..part], order, part == hits.len());
                }
                let given: Vec<_> = std::iter::from_fn(|| found.next()).take(wanted).collect();
                assert_eq!(given, expected[..wanted]);
            }
        }
    }
}
