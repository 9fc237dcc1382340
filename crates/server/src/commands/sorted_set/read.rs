//! Reading sorted sets: lengths, scores and ranks.

use bobbin_resp::Reply;
use bobbin_store::value::SortedSet;

use super::bounds::ElementBounds;
use crate::engine::command::{Call, Failure, Outcome};
use crate::engine::execution::slices::{each_word_in_slices, has_many_words};

pub(super) fn zcard(call: &mut Call<'_>) -> Outcome {
    let len = call.data.read_as::<SortedSet>(call.key(1)?)?.map_or(0, SortedSet::len);
    call.reply.integer(len as i64);
    Ok(())
}

pub(super) fn zcount(call: &mut Call<'_>) -> Outcome {
    let bounds = ElementBounds::scores(call.args[2], call.args[3])?;
    count(call, &bounds)
}

pub(super) fn zlexcount(call: &mut Call<'_>) -> Outcome {
    let bounds = ElementBounds::members(call.args[2], call.args[3])?;
    count(call, &bounds)
}

fn count(call: &mut Call<'_>, bounds: &ElementBounds<'_>) -> Outcome {
    let set = call.data.read_as::<SortedSet>(call.key(1)?)?;
    let count = set.map_or(0, |set| bounds.find(set, false).len());
    call.reply.integer(count as i64);
    Ok(())
}

pub(super) fn zscore(call: &mut Call<'_>) -> Outcome {
    let hasher = call.data.keyspace().hasher();
    let set = call.data.read_as::<SortedSet>(call.key(1)?)?;
    match set.and_then(|set| set.score(call.args[2], hasher)) {
        Some(score) => call.reply.double(score),
        None => call.reply.null(),
    }
    Ok(())
}

pub(super) fn zmscore(call: &mut Call<'_>) -> Outcome {
    each_score(call, |reply, score| match score {
        Some(score) => reply.double(score),
        None => reply.null(),
    })
}

/// Replies with an array. `append` appends an element for the score of each member that the command
/// names.
pub(in crate::commands) fn each_score(
    call: &mut Call<'_>,
    append: impl Fn(&mut Reply<'_>, Option<f64>) + Send + 'static,
) -> Outcome {
    let (key, hasher) = (call.key(1)?, call.data.keyspace().hasher());
    let is_long = has_many_words(call);
    let set = call.data.read_as::<SortedSet>(key)?;
    let append = move |set: Option<&SortedSet>, members: &[&[u8]], reply: &mut Reply<'_>| match set
    {
        Some(set) => set.score_all(members, hasher, |score| append(reply, score)),
        None => members.iter().for_each(|_| append(reply, None)),
    };
    if is_long {
        let set = set.cloned();
        each_word_in_slices(call, 2, move |members, reply| append(set.as_ref(), members, reply));
        return Ok(());
    }
    call.reply.array(call.args.len() - 2);
    append(set, &call.args[2..], &mut call.reply);
    Ok(())
}

pub(super) fn zrank(call: &mut Call<'_>) -> Outcome {
    rank(call, false)
}

pub(super) fn zrevrank(call: &mut Call<'_>) -> Outcome {
    rank(call, true)
}

fn rank(call: &mut Call<'_>, reverse: bool) -> Outcome {
    if call.args.len() > 4 {
        return Err(Failure::wrong_arity(call.command));
    }
    let with_score = call.args.len() == 4;
    if with_score && !call.word_is(3, "withscore") {
        return Err(Failure::SYNTAX);
    }
    let hasher = call.data.keyspace().hasher();
    let set = call.data.read_as::<SortedSet>(call.key(1)?)?;
    let found = set.and_then(|set| {
        let (rank, score) = set.rank(call.args[2], hasher)?;
        Some((if reverse { set.len() - 1 - rank } else { rank }, score))
    });
    match found {
        Some((rank, score)) if with_score => {
            call.reply.array(2);
            call.reply.integer(rank as i64);
            call.reply.double(score);
        }
        Some((rank, _)) => call.reply.integer(rank as i64),
        None if with_score => call.reply.null_array(),
        None => call.reply.null(),
    }
    Ok(())
}
