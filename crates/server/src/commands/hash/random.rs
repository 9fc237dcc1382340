//! Hashes: HRANDFIELD.

use bobbin_resp::{Protocol, Reply};
use bobbin_store::value::Hash;
use bobbin_store::value::hash::Field;

use super::super::choice::{below, distinct_below};
use super::super::elements::TOO_LOW;
use super::super::elements::bulk;
use crate::command::slices::{SLICE, SLICED_MIN, reply_in_slices};
use crate::command::{Call, Failure, Outcome};
use crate::random::Random;

pub(super) fn hrandfield(call: &mut Call<'_>) -> Outcome {
    let args = call.args;
    let count = match args.get(2) {
        Some(_) => Some(call.integer(2)?),
        None => None,
    };
    let with_values = args.len() == 4 && call.word_is(3, "withvalues");
    if args.len() > 4 || args.len() == 4 && !with_values {
        return Err(Failure::SYNTAX);
    }
    if count == Some(i64::MIN) {
        return Err(TOO_LOW);
    }
    // The reply would have more elements than can be counted.
    let most = i64::MAX / 2;
    if with_values && count.is_some_and(|count| !(-most..=most).contains(&count)) {
        return Err("ERR value is out of range".into());
    }
    let (key, now_ms) = (call.key(1)?, call.data.now_ms);
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
    let shape = Shape { with_values, nested };
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if wanted > SLICED_MIN && (count < 0 || hash.len() > SLICED_MIN) && !call.in_transaction {
        let pinned = hash.clone();
        in_slices(call, pinned, shape, count < 0, wanted, random);
        return Ok(());
    }
    let choice = Choice::new(hash, now_ms, count < 0, wanted, &mut random);
    shape.header(&mut call.reply, choice.len());
    for at in 0..choice.len() {
        if let Some(field) = choice.field(hash, at, &mut random) {
            shape.field(&mut call.reply, field);
        }
    }
    Ok(())
}

fn in_slices(
    call: &mut Call<'_>,
    hash: Hash,
    shape: Shape,
    repeats: bool,
    wanted: usize,
    mut random: Random,
) {
    let now_ms = call.data.now_ms;
    let (mut choice, mut at) = (None, 0);
    reply_in_slices(call, move |reply| {
        let choice = choice.get_or_insert_with(|| {
            let choice = Choice::new(&hash, now_ms, repeats, wanted, &mut random);
            shape.header(reply, choice.len());
            choice
        });
        let end = choice.len().min(at + SLICE);
        for at in at..end {
            if let Some(field) = choice.field(&hash, at, &mut random) {
                shape.field(reply, field);
            }
        }
        at = end;
        at < choice.len()
    });
}

/// How fields are answered.
#[derive(Clone, Copy)]
struct Shape {
    with_values: bool,
    /// Field and value in an array of their own.
    nested: bool,
}

impl Shape {
    fn header(self, reply: &mut Reply<'_>, fields: usize) {
        reply.array(if self.with_values && !self.nested { fields * 2 } else { fields });
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

/// Which fields are answered.
enum Choice {
    /// So many, each any of the indexes below `from`, or of those in `live`.
    Repeating {
        count: usize,
        from: usize,
        live: Option<Vec<usize>>,
    },
    Distinct(Vec<usize>),
}

impl Choice {
    fn new(hash: &Hash, now_ms: i64, repeats: bool, wanted: usize, random: &mut Random) -> Self {
        let live: Option<Vec<usize>> = hash.may_have_expired(now_ms).then(|| {
            let fields = hash.iter().enumerate();
            let live = fields.filter(|(_, field)| field.expire_ms.is_none_or(|at| at > now_ms));
            live.map(|(index, _)| index).collect()
        });
        let from = live.as_ref().map_or(hash.len(), Vec::len);
        if repeats {
            let count = if from == 0 { 0 } else { wanted };
            return Self::Repeating { count, from, live };
        }
        let mut chosen = distinct_below(from, wanted, random);
        if let Some(live) = live {
            chosen.iter_mut().for_each(|index| *index = live[*index]);
        }
        Self::Distinct(chosen)
    }

    fn len(&self) -> usize {
        match self {
            Self::Repeating { count, .. } => *count,
            Self::Distinct(chosen) => chosen.len(),
        }
    }

    fn field<'a>(&self, hash: &'a Hash, at: usize, random: &mut Random) -> Option<Field<'a>> {
        let index = match self {
            Self::Distinct(chosen) => chosen[at],
            Self::Repeating { from, live, .. } => {
                let index = below(random, *from);
                live.as_ref().map_or(index, |live| live[index])
            }
        };
        hash.nth(index).map(|spot| hash.field(spot))
    }
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
