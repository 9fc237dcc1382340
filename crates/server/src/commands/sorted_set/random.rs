//! ZRANDMEMBER.

use bobbin_resp::Reply;
use bobbin_store::value::SortedSet;
use bobbin_store::value::listpack::ListpackPosition;

use super::super::choice::{DistinctNumbers, Places, below};
use super::super::elements::{TOO_LOW, bulk};
use super::range::{element, header};
use crate::base::random::Random;
use crate::engine::command::{Call, Failure, Outcome};
use crate::engine::execution::slices::{SLICE, SLICED_MIN, repeat_in_slices, reply_in_slices};

pub(super) fn zrandmember(call: &mut Call<'_>) -> Outcome {
    if call.args.len() == 2 {
        return one(call);
    }
    let count = bobbin_resp::parse_i64(call.args[2]).ok_or(Failure::NOT_AN_INTEGER)?;
    if count == i64::MIN {
        return Err(TOO_LOW);
    }
    if call.args.len() > 4 || call.args.len() == 4 && !call.word_is(3, "withscores") {
        return Err(Failure::SYNTAX);
    }
    let with_scores = call.args.len() == 4;
    if with_scores && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(OUT_OF_RANGE);
    }
    let seed = call.data.random.next_u64();
    let Some(set) = call.data.read_as::<SortedSet>(call.key(1)?)? else {
        call.reply.array(0);
        return Ok(());
    };
    let random = Random::new(seed);
    if count < 0 {
        let set = set.clone();
        return repeated(call, set, count.unsigned_abs(), with_scores, random);
    }
    let wanted = usize::try_from(count).unwrap_or(usize::MAX);
    if wanted.min(set.len()) > SLICED_MIN && call.may_leave_job {
        let pinned = set.clone();
        in_slices(call, pinned, wanted, with_scores, random);
        return Ok(());
    }
    let ranks = DistinctNumbers::below(set.len(), wanted, random);
    header(&mut call.reply, ranks.len(), with_scores);
    let places = Places::new(wanted, || set.places());
    ranks.for_each(|rank| reply_member(&mut call.reply, set, &places, rank, with_scores));
    Ok(())
}

fn one(call: &mut Call<'_>) -> Outcome {
    let mut random = Random::new(call.data.random.next_u64());
    let set = call.data.read_as::<SortedSet>(call.key(1)?)?;
    match set.and_then(|set| set.get(below(&mut random, set.len()))) {
        Some((member, _)) => bulk(&mut call.reply, member),
        None => call.reply.null(),
    }
    Ok(())
}

fn in_slices(
    call: &mut Call<'_>,
    set: SortedSet,
    wanted: usize,
    with_scores: bool,
    random: Random,
) {
    let mut ranks = DistinctNumbers::below(set.len(), wanted, random);
    let places = Places::new(wanted, || set.places());
    let mut is_begun = false;
    reply_in_slices(call, move |reply| {
        if !std::mem::replace(&mut is_begun, true) {
            header(reply, ranks.len(), with_scores);
        }
        let some = ranks.by_ref().take(SLICE);
        some.for_each(|rank| reply_member(reply, &set, &places, rank, with_scores));
        ranks.len() > 0
    });
}

/// Replies with members that may repeat.
fn repeated(
    call: &mut Call<'_>,
    set: SortedSet,
    count: u64,
    with_scores: bool,
    mut random: Random,
) -> Outcome {
    let (count, len) = (usize::try_from(count).unwrap_or(usize::MAX), set.len());
    let places = Places::new(count, || set.places());
    repeat_in_slices(
        call,
        count,
        move |reply| header(reply, count, with_scores),
        move |reply| reply_member(reply, &set, &places, below(&mut random, len), with_scores),
    )
}

fn reply_member(
    reply: &mut Reply<'_>,
    set: &SortedSet,
    places: &Places<ListpackPosition>,
    rank: usize,
    with_scores: bool,
) {
    let found = match places.get(rank) {
        Some(place) => set.element(place),
        None => set.get(rank),
    };
    if let Some((member, score)) = found {
        element(reply, member, with_scores.then_some(score));
    }
}

const OUT_OF_RANGE: Failure = Failure::new(&"ERR value is out of range");
