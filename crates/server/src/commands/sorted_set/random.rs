//! ZRANDMEMBER.

use std::collections::HashSet;

use bobbin_store::value::SortedSet;

use super::super::elements::{TOO_LOW, bulk};
use super::range::{element, header};
use crate::base::random::Random;
use crate::engine::command::slices::repeat_in_slices;
use crate::engine::command::{Call, Failure, Outcome};

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
    let mut random = Random::new(seed);
    if count < 0 {
        return repeated(call, count.unsigned_abs(), with_scores, random);
    }
    let ranks = distinct(count as usize, set.len(), &mut random);
    header(&mut call.reply, ranks.len(), with_scores);
    for rank in ranks {
        if let Some((member, score)) = set.get(rank) {
            element(&mut call.reply, member, with_scores.then_some(score));
        }
    }
    Ok(())
}

fn one(call: &mut Call<'_>) -> Outcome {
    let chance = call.data.random.next_u64();
    let set = call.data.read_as::<SortedSet>(call.key(1)?)?;
    match set.and_then(|set| set.get(below(chance, set.len()))) {
        Some((member, _)) => bulk(&mut call.reply, member),
        None => call.reply.null(),
    }
    Ok(())
}

/// Answers members that may be the same several times.
fn repeated(call: &mut Call<'_>, count: u64, with_scores: bool, mut random: Random) -> Outcome {
    let Some(set) = call.data.read_as::<SortedSet>(call.key(1)?)? else { return Ok(()) };
    let (count, len) = (usize::try_from(count).unwrap_or(usize::MAX), set.len());
    let set = set.clone();
    repeat_in_slices(
        call,
        count,
        move |reply| header(reply, count, with_scores),
        move |reply| {
            if let Some((member, score)) = set.get(below(random.next_u64(), len)) {
                element(reply, member, with_scores.then_some(score));
            }
        },
    )
}

/// That many different ranks below `len`, each set of them as likely as any other.
fn distinct(count: usize, len: usize, random: &mut Random) -> Vec<usize> {
    if count >= len {
        return (0..len).collect();
    }
    if count > len / 4 {
        // Goes through all ranks and takes each with the chance that is left for it.
        let mut left = count;
        let chosen = (0..len).filter(|rank| {
            let taken = below(random.next_u64(), len - rank) < left;
            left -= usize::from(taken);
            taken
        });
        return chosen.collect();
    }
    // Robert Floyd's way: one draw for each rank.
    let mut seen = HashSet::with_capacity(count);
    (len - count..len)
        .map(|highest| {
            let rank = below(random.next_u64(), highest + 1);
            let rank = if seen.contains(&rank) { highest } else { rank };
            seen.insert(rank);
            rank
        })
        .collect()
}

/// Uniform below `bound`, of a random number.
fn below(random: u64, bound: usize) -> usize {
    ((u128::from(random) * bound as u128) >> 64) as usize
}

const OUT_OF_RANGE: Failure = Failure::new("ERR value is out of range");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_ranks_are_distinct_and_even() {
        let mut random = Random::new(5);
        for (count, len) in [(0, 10), (3, 10), (9, 10), (10, 10), (20, 10), (2, 100)] {
            let mut hits = vec![0; len];
            for _ in 0..2000 {
                let ranks = distinct(count, len, &mut random);
                assert_eq!(ranks.iter().collect::<HashSet<_>>().len(), count.min(len));
                ranks.into_iter().for_each(|rank| hits[rank] += 1);
            }
            let expected = 2000 * count.min(len) / len;
            for hit in hits {
                assert!(hit >= expected / 2 && hit <= expected * 2, "{hit} of {expected}");
            }
        }
    }
}
