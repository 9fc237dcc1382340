//! Hashes: HRANDFIELD.

use std::collections::HashSet;

use bobbin_resp::{Protocol, Reply};
use bobbin_store::value::Hash;
use bobbin_store::value::hash::{FieldPlace, HashField};

use super::super::choice::{DistinctNumbers, Places, below};
use super::super::elements::{TOO_LOW, bulk};
use crate::base::random::Random;
use crate::engine::command::{Call, Failure, Outcome};
use crate::engine::execution::slices::{SLICE, SLICED_MIN, repeat_in_slices, reply_in_slices};

pub(super) fn hrandfield(call: &mut Call<'_>) -> Outcome {
    let args = call.args;
    let count = match args.get(2) {
        Some(_) => Some(call.integer(2)?),
        None => None,
    };
    if count == Some(i64::MIN) {
        return Err(TOO_LOW);
    }
    let with_values = args.len() == 4 && call.word_is(3, "withvalues");
    if args.len() > 4 || args.len() == 4 && !with_values {
        return Err(Failure::SYNTAX);
    }
    // Otherwise the reply could have more elements than can be counted.
    let most = i64::MAX / 2;
    if with_values && count.is_some_and(|count| !(-most..=most).contains(&count)) {
        return Err("ERR value is out of range".into());
    }
    let (key, now_ms) = (call.key(1)?, call.data.dead_ms());
    let mut random = Random::new(call.data.random.next_u64());
    let Some(hash) = call.data.read_as::<Hash>(key)? else {
        match count {
            Some(_) => call.reply.empty_array(),
            None => call.reply.null(),
        }
        return Ok(());
    };
    let Some(count) = count else {
        match random_live(hash, now_ms, &mut random) {
            Some(field) => bulk(&mut call.reply, field.name),
            None => call.reply.null(),
        }
        return Ok(());
    };
    let nested = with_values && call.client.protocol == Protocol::Resp3;
    let shape = FieldShape { with_values, nested };
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if count < 0 {
        let hash = hash.clone();
        return repeated(call, hash, shape, wanted, random);
    }
    if wanted > SLICED_MIN && hash.len() > SLICED_MIN && call.may_leave_job {
        let pinned = hash.clone();
        in_slices(call, pinned, shape, wanted, random);
        return Ok(());
    }
    let places = Places::new(wanted, || hash.places());
    let chosen = distinct(hash, &places, now_ms, wanted, random);
    shape.header(&mut call.reply, chosen.len());
    chosen.into_iter().for_each(|index| shape.nth(&mut call.reply, hash, &places, index));
    Ok(())
}

/// Replies with fields that may repeat.
fn repeated(
    call: &mut Call<'_>,
    hash: Hash,
    shape: FieldShape,
    wanted: usize,
    mut random: Random,
) -> Outcome {
    let now_ms = call.data.dead_ms();
    if random_live(&hash, now_ms, &mut random).is_none() {
        call.reply.empty_array();
        return Ok(());
    }
    let places = Places::new(wanted, || hash.places());
    let mut live: Option<Vec<usize>> = None;
    repeat_in_slices(
        call,
        wanted,
        move |reply| shape.header(reply, wanted),
        move |reply| {
            if live.is_none() {
                let mut drawn = (0..TRIES).map(|_| below(&mut random, hash.len()));
                match drawn.find(|&index| is_live(&hash, &places, index, now_ms)) {
                    Some(index) => return shape.nth(reply, &hash, &places, index),
                    None => live = live_indexes(&hash, now_ms),
                }
            }
            if let Some(live) = &live {
                shape.nth(reply, &hash, &places, live[below(&mut random, live.len())]);
            }
        },
    )
}

fn in_slices(call: &mut Call<'_>, hash: Hash, shape: FieldShape, wanted: usize, random: Random) {
    let now_ms = call.data.dead_ms();
    // The indices of live fields, if some fields may have expired.
    let mut live = hash.may_have_expired(now_ms).then(Vec::new);
    let (mut looked_at, mut chosen, mut random) = (0, None, Some(random));
    let places = Places::new(wanted, || hash.places());
    reply_in_slices(call, move |reply| {
        if let Some(live) = &mut live
            && looked_at < hash.len()
        {
            let end = hash.len().min(looked_at + SLICE);
            live.extend((looked_at..end).filter(|&index| is_live(&hash, &places, index, now_ms)));
            looked_at = end;
            return true;
        }
        if let Some(random) = random.take() {
            let len = live.as_ref().map_or(hash.len(), Vec::len);
            let indexes = DistinctNumbers::below(len, wanted, random);
            shape.header(reply, indexes.len());
            chosen = Some(indexes);
        }
        let Some(chosen) = &mut chosen else { return false };
        for at in chosen.take(SLICE) {
            shape.nth(reply, &hash, &places, live.as_ref().map_or(at, |live| live[at]));
        }
        chosen.len() > 0
    });
}

/// The form of fields in the reply.
#[derive(Clone, Copy)]
struct FieldShape {
    with_values: bool,
    /// Each field and its value are in an array of their own.
    nested: bool,
}

impl FieldShape {
    fn header(self, reply: &mut Reply<'_>, fields: usize) {
        reply.array(if self.with_values && !self.nested { fields * 2 } else { fields });
    }

    /// Appends the field with this index.
    fn nth(self, reply: &mut Reply<'_>, hash: &Hash, places: &Places<FieldPlace>, index: usize) {
        if let Some(field) = nth(hash, places, index) {
            self.field(reply, field);
        }
    }

    fn field(self, reply: &mut Reply<'_>, field: HashField<'_>) {
        if self.nested {
            reply.array(2);
        }
        bulk(reply, field.name);
        if self.with_values {
            bulk(reply, field.value.item());
        }
    }
}

/// The field with this index.
fn nth<'a>(hash: &'a Hash, places: &Places<FieldPlace>, index: usize) -> Option<HashField<'a>> {
    let spot = places.get(index).or_else(|| hash.nth(index))?;
    Some(hash.field(spot))
}

/// Whether the field with this index has not expired.
fn is_live(hash: &Hash, places: &Places<FieldPlace>, index: usize, now_ms: i64) -> bool {
    nth(hash, places, index).is_some_and(|field| field.expire_ms.is_none_or(|at| at > now_ms))
}

/// The indices of the live fields. `None`: no field has expired.
fn live_indexes(hash: &Hash, now_ms: i64) -> Option<Vec<usize>> {
    hash.may_have_expired(now_ms).then(|| {
        let fields = hash.iter().enumerate();
        let live = fields.filter(|(_, field)| field.expire_ms.is_none_or(|at| at > now_ms));
        live.map(|(index, _)| index).collect()
    })
}

/// The indices of `wanted` different live fields, or of all live fields if there are no more.
fn distinct(
    hash: &Hash,
    places: &Places<FieldPlace>,
    now_ms: i64,
    wanted: usize,
    mut random: Random,
) -> Vec<usize> {
    if hash.may_have_expired(now_ms)
        && wanted <= hash.len() / FEW
        && let Some(chosen) = drawn(hash, places, now_ms, wanted, &mut random)
    {
        return chosen;
    }
    match live_indexes(hash, now_ms) {
        Some(live) => {
            DistinctNumbers::below(live.len(), wanted, random).map(|at| live[at]).collect()
        }
        None => DistinctNumbers::below(hash.len(), wanted, random).collect(),
    }
}

/// Does the same as `distinct` without a walk over all fields. `None`: too many drawn fields had
/// expired.
fn drawn(
    hash: &Hash,
    places: &Places<FieldPlace>,
    now_ms: i64,
    wanted: usize,
    random: &mut Random,
) -> Option<Vec<usize>> {
    let (mut chosen, mut known) = (Vec::with_capacity(wanted), HashSet::with_capacity(wanted));
    for _ in 0..wanted + wanted / 2 + TRIES {
        if chosen.len() == wanted {
            break;
        }
        let index = below(random, hash.len());
        if is_live(hash, places, index, now_ms) && known.insert(index) {
            chosen.push(index);
        }
    }
    (chosen.len() == wanted).then_some(chosen)
}

/// A random live field.
fn random_live<'a>(hash: &'a Hash, now_ms: i64, random: &mut Random) -> Option<HashField<'a>> {
    let is_live = |field: &HashField<'_>| field.expire_ms.is_none_or(|at| at > now_ms);
    for _ in 0..TRIES {
        let field = hash.field(hash.nth(below(random, hash.len()))?);
        if is_live(&field) {
            return Some(field);
        }
    }
    let live: Vec<_> = hash.live(now_ms).collect();
    if live.is_empty() { None } else { Some(live[below(random, live.len())]) }
}

/// Fields are drawn only if they are at most this fraction of all.
const FEW: usize = 4;
/// How many drawn fields may have expired before the live ones are counted.
const TRIES: usize = 16;

#[cfg(test)]
mod tests {
    use bobbin_store::Hasher;
    use bobbin_store::value::HashLimits;
    use bobbin_store::value::hash::FieldExpiry;
    use bobbin_store::value::pages::Given;

    use super::*;

    #[test]
    fn only_live_fields_are_drawn_each_once() {
        let hasher = Hasher::new(1);
        let limits = HashLimits { packed_entries: 8, packed_value_len: 8 };
        for dead in [0, 10, 500, 990, 1000] {
            let (mut hash, mut random) = (Hash::default(), Random::new(1));
            for field in 0..1000 {
                let expiry = FieldExpiry::At(if field < dead { 10 } else { 1000 });
                let name = format!("f{field}");
                hash.set(name.as_bytes(), Given::from(b"v"), expiry, 0, &limits, &hasher);
            }
            let places = Places::new(1000, || hash.places());
            for wanted in [1, 5, 200, 600, 2000] {
                let random = Random::new(random.next_u64());
                let mut chosen = distinct(&hash, &places, 100, wanted, random);
                assert_eq!(chosen.len(), wanted.min(1000 - dead), "{dead}");
                assert!(chosen.iter().all(|&index| is_live(&hash, &places, index, 100)), "{dead}");
                chosen.sort_unstable();
                assert!(chosen.is_sorted_by(|one, next| one < next), "{dead}");
            }
        }
    }
}
