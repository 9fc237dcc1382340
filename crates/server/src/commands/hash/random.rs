//! Hashes: HRANDFIELD.

use bobbin_resp::{Protocol, Reply};
use bobbin_store::value::Hash;
use bobbin_store::value::hash::Field;

use super::super::choice::{below, distinct_below};
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
    // The reply would have more elements than can be counted.
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
    let chosen = distinct(hash, now_ms, wanted, &mut random);
    shape.header(&mut call.reply, chosen.len());
    chosen.into_iter().for_each(|index| shape.nth(&mut call.reply, hash, index));
    Ok(())
}

/// Answers fields that may be the same several times.
fn repeated(
    call: &mut Call<'_>,
    hash: Hash,
    shape: FieldShape,
    wanted: usize,
    mut random: Random,
) -> Outcome {
    let live = live(&hash, call.data.dead_ms());
    let from = live.as_ref().map_or(hash.len(), Vec::len);
    if from == 0 {
        call.reply.empty_array();
        return Ok(());
    }
    repeat_in_slices(
        call,
        wanted,
        move |reply| shape.header(reply, wanted),
        move |reply| {
            let index = below(&mut random, from);
            shape.nth(reply, &hash, live.as_ref().map_or(index, |live| live[index]));
        },
    )
}

fn in_slices(
    call: &mut Call<'_>,
    hash: Hash,
    shape: FieldShape,
    wanted: usize,
    mut random: Random,
) {
    let now_ms = call.data.dead_ms();
    let (mut chosen, mut at) = (None, 0);
    reply_in_slices(call, move |reply| {
        let chosen = chosen.get_or_insert_with(|| {
            let chosen = distinct(&hash, now_ms, wanted, &mut random);
            shape.header(reply, chosen.len());
            chosen
        });
        let end = chosen.len().min(at + SLICE);
        chosen[at..end].iter().for_each(|&index| shape.nth(reply, &hash, index));
        at = end;
        at < chosen.len()
    });
}

/// How fields are answered.
#[derive(Clone, Copy)]
struct FieldShape {
    with_values: bool,
    /// Field and value in an array of their own.
    nested: bool,
}

impl FieldShape {
    fn header(self, reply: &mut Reply<'_>, fields: usize) {
        reply.array(if self.with_values && !self.nested { fields * 2 } else { fields });
    }

    /// Appends the field with this index.
    fn nth(self, reply: &mut Reply<'_>, hash: &Hash, index: usize) {
        if let Some(spot) = hash.nth(index) {
            self.field(reply, hash.field(spot));
        }
    }

    fn field(self, reply: &mut Reply<'_>, field: Field<'_>) {
        if self.nested {
            reply.array(2);
        }
        bulk(reply, field.name);
        if self.with_values {
            bulk(reply, field.value.item());
        }
    }
}

/// The indexes of the fields that live, where some may not.
fn live(hash: &Hash, now_ms: i64) -> Option<Vec<usize>> {
    hash.may_have_expired(now_ms).then(|| {
        let fields = hash.iter().enumerate();
        let live = fields.filter(|(_, field)| field.expire_ms.is_none_or(|at| at > now_ms));
        live.map(|(index, _)| index).collect()
    })
}

/// The indexes of `wanted` live fields, all of them different; of all live fields if there are no
/// more.
fn distinct(hash: &Hash, now_ms: i64, wanted: usize, random: &mut Random) -> Vec<usize> {
    let Some(live) = live(hash, now_ms) else { return distinct_below(hash.len(), wanted, random) };
    let mut chosen = distinct_below(live.len(), wanted, random);
    chosen.iter_mut().for_each(|index| *index = live[*index]);
    chosen
}

/// Any of the live fields.
fn random_live<'a>(hash: &'a Hash, now_ms: i64, random: &mut Random) -> Option<Field<'a>> {
    let is_live = |field: &Field<'_>| field.expire_ms.is_none_or(|at| at > now_ms);
    for _ in 0..TRIES {
        let field = hash.field(hash.nth(below(random, hash.len()))?);
        if is_live(&field) {
            return Some(field);
        }
    }
    let live: Vec<_> = hash.live(now_ms).collect();
    if live.is_empty() { None } else { Some(live[below(random, live.len())]) }
}

/// Fields that may turn out to have expired before the live ones are counted.
const TRIES: usize = 16;
