//! A small sorted set: a listpack with alternating members and scores, in order, as in Redis.

use std::cmp::Ordering;

use bobbin_text::{format_f64, parse_f64};

use super::SortedSetLimits;
use crate::hash::Hasher;
use crate::value::integer::IntegerText;
use crate::value::listpack::{Item, Listpack, ListpackPosition};

/// Inserts an element at its place. The member must not exist.
pub(super) fn insert(pack: &mut Listpack, member: &[u8], score: f64) {
    let mut room = IntegerText::new(0);
    // The usual case: the highest score comes last.
    let last = pack.last().map(|position| score_of(pack.item(position)));
    if last.is_none_or(|last| last < score) {
        return push(pack, member, score);
    }
    let place =
        positions(pack).find(|&(_, other, other_score)| match other_score.partial_cmp(&score) {
            Some(Ordering::Equal) => other.text(&mut room) > member,
            order => order == Some(Ordering::Greater),
        });
    let Some((position, ..)) = place else { return push(pack, member, score) };
    let text = format_f64(score);
    let position = pack.insert_before(position, member);
    pack.insert_after(position, score_item(score, &text));
}

/// Appends an element behind all others.
pub(super) fn push(pack: &mut Listpack, member: &[u8], score: f64) {
    let text = format_f64(score);
    pack.append_many([Item::Bytes(member), score_item(score, &text)].into_iter());
}

/// The member's position and score.
pub(super) fn find(pack: &Listpack, member: &[u8]) -> Option<(ListpackPosition, f64)> {
    let position = pack.find(member, 2)?;
    let score = pack.next(position).map(|score| score_of(pack.item(score)))?;
    Some((position, score))
}

pub(super) fn remove(pack: &mut Listpack, position: ListpackPosition) {
    pack.remove_from(position, 2);
}

/// How many elements, from the first on, satisfy the predicate.
pub(super) fn partition(pack: &Listpack, mut holds: impl FnMut(Item<'_>, f64) -> bool) -> usize {
    positions(pack).take_while(|&(_, member, score)| holds(member, score)).count()
}

/// Whether a foreign listpack is a sorted set within the limits as it is.
pub(super) fn is_in_order(pack: &Listpack, limits: SortedSetLimits, hasher: &Hasher) -> bool {
    if pack.len() / 2 > limits.packed_entries {
        return false;
    }
    let (mut entries, mut last) = (pack.iter(), None);
    let (mut room, mut last_room) = (IntegerText::new(0), IntegerText::new(0));
    while let Some(member) = entries.next() {
        let Some(score) = entries.next() else { return false };
        let Some(score) = score_from_elsewhere(score) else { return false };
        let follows = last.is_none_or(|(last, last_score): (Item<'_>, f64)| {
            last_score < score
                || last_score == score && last.text(&mut last_room) < member.text(&mut room)
        });
        let is_short = member.text(&mut room).len() <= limits.packed_value_len;
        if !follows || !is_short {
            return false;
        }
        last = Some((member, score));
    }
    !pack.repeats(2, hasher)
}

fn positions(pack: &Listpack) -> impl Iterator<Item = (ListpackPosition, Item<'_>, f64)> {
    let mut entries = pack.iter();
    std::iter::from_fn(move || {
        let position = entries.position()?;
        let member = entries.next()?;
        let score = score_of(entries.next()?);
        Some((position, member, score))
    })
}

/// The score in an entry.
pub(super) fn score_of(item: Item<'_>) -> f64 {
    match item {
        Item::Integer(value) => value as f64,
        // Our own entries parse, and foreign ones were checked.
        Item::Bytes(text) => parse_score(text).unwrap_or(0.0),
    }
}

/// The score in an entry of a foreign listpack, if it is one.
pub(super) fn score_from_elsewhere(item: Item<'_>) -> Option<f64> {
    match item {
        Item::Integer(value) => Some(value as f64),
        Item::Bytes(text) => parse_score(text),
    }
}

/// A score from a text, including forms that only a lax parser accepts.
fn parse_score(text: &[u8]) -> Option<f64> {
    parse_f64(text)
        .or_else(|| str::from_utf8(text).ok()?.parse().ok())
        .filter(|score: &f64| !score.is_nan())
}

/// A score as an entry. As in Redis, it is an integer if that is the same number, so -0 becomes 0.
fn score_item(score: f64, text: &[u8]) -> Item<'_> {
    if score.abs() <= (i64::MAX / 2) as f64 && score.trunc() == score {
        Item::Integer(score as i64)
    } else {
        Item::Bytes(text)
    }
}
