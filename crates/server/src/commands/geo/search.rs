//! GEOSEARCH, GEORADIUS and their forms.

use std::cmp::Ordering;

use bobbin_store::geo::{Position, Shape};
use bobbin_store::value::{Item, SortedSet, integer};

use super::query::{Form, Order, Query};
use super::{append_distance, append_position, limits};
use crate::command::{Call, Classes, KeyUse, Outcome};
use crate::commands::elements;

pub(super) fn geosearch(call: &mut Call<'_>) -> Outcome {
    search(call, Form::Search)
}

pub(super) fn geosearchstore(call: &mut Call<'_>) -> Outcome {
    search(call, Form::SearchStore)
}

pub(super) fn georadius(call: &mut Call<'_>) -> Outcome {
    search(call, Form::Radius { may_store: true })
}

pub(super) fn georadius_ro(call: &mut Call<'_>) -> Outcome {
    search(call, Form::Radius { may_store: false })
}

pub(super) fn georadiusbymember(call: &mut Call<'_>) -> Outcome {
    search(call, Form::RadiusByMember { may_store: true })
}

pub(super) fn georadiusbymember_ro(call: &mut Call<'_>) -> Outcome {
    search(call, Form::RadiusByMember { may_store: false })
}

pub(super) fn find_keys(args: &[&[u8]], found: &mut dyn FnMut(usize, KeyUse)) {
    find_stored(args, Form::Radius { may_store: true }, found);
}

pub(super) fn find_keys_by_member(args: &[&[u8]], found: &mut dyn FnMut(usize, KeyUse)) {
    find_stored(args, Form::RadiusByMember { may_store: true }, found);
}

fn find_stored(args: &[&[u8]], form: Form, found: &mut dyn FnMut(usize, KeyUse)) {
    found(1, super::READ);
    if let Some(at) = form.stored(args) {
        found(at, super::STORE);
    }
}

/// A member within the shape.
struct Found<'a> {
    member: Item<'a>,
    score: f64,
    place: Position,
    /// Metres from the centre.
    distance: f64,
}

fn search(call: &mut Call<'_>, form: Form) -> Outcome {
    let source = call.key(if form == Form::SearchStore { 2 } else { 1 })?;
    let (hasher, limits) = (call.data.keyspace().hasher(), limits(call.server));
    let set = call.data.read_as::<SortedSet>(source)?;
    let query = Query::parse(call.args, form, set.map(|set| (set, hasher)))?;
    let mut found = match (set, &query.shape) {
        (Some(set), Some(shape)) => find(set, shape, query.any.then_some(query.count).flatten()),
        _ => Vec::new(),
    };
    let wanted = query.count.map_or(found.len(), |count| count.min(found.len()));
    let by_distance = |a: &Found<'_>, b: &Found<'_>| {
        a.distance.partial_cmp(&b.distance).unwrap_or(Ordering::Equal)
    };
    match query.order {
        Order::Any => {}
        Order::Nearest => found.sort_by(by_distance),
        Order::Farthest => found.sort_by(|a, b| by_distance(b, a)),
    }
    found.truncate(wanted);
    let Some(store) = query.store else {
        append(&mut call.reply, &query, &found);
        return Ok(());
    };
    let mut result = SortedSet::new();
    let mut text = integer::Text::new(0);
    for member in &found {
        let distance = member.distance / query.metres;
        let score = if query.store_distance { distance } else { member.score };
        result.insert(member.member.text(&mut text), score, limits, hasher);
    }
    let count = found.len();
    let key = call.key(store)?;
    if count > 0 {
        call.data.set_collection(key, result);
        call.data.counters.dirty += count as u64 - 1;
        let event = match form {
            Form::SearchStore => "geosearchstore",
            _ => "georadiusstore",
        };
        call.data.event(Classes::SORTED_SET, event, key);
    } else if call.data.remove(key) {
        call.data.event(Classes::GENERIC, "del", key);
    }
    call.reply.integer(count as i64);
    Ok(())
}

/// The members within a shape, in the order of looking; at most so many.
fn find<'a>(set: &'a SortedSet, shape: &Shape, count_max: Option<usize>) -> Vec<Found<'a>> {
    let mut found = Vec::new();
    for scores in shape.score_ranges() {
        let ranks = set.rank_below_score(scores.start as f64, false)
            ..set.rank_below_score(scores.end as f64, false);
        for (member, score) in set.range(ranks) {
            let place = Position::from_score(score);
            if let Some(distance) = shape.distance_within(place) {
                found.push(Found { member, score, place, distance });
                if count_max == Some(found.len()) {
                    return found;
                }
            }
        }
    }
    found
}

fn append(reply: &mut bobbin_resp::Reply<'_>, query: &Query, found: &[Found<'_>]) {
    let more = [query.with_distance, query.with_score, query.with_position];
    let more = more.iter().filter(|&&wanted| wanted).count();
    reply.array(found.len());
    for member in found {
        if more > 0 {
            reply.array(1 + more);
        }
        elements::bulk(reply, member.member);
        if query.with_distance {
            append_distance(reply, member.distance / query.metres);
        }
        if query.with_score {
            reply.integer(member.score as i64);
        }
        if query.with_position {
            append_position(reply, member.place);
        }
    }
}
