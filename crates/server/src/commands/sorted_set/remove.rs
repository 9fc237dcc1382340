//! Taking members out of sorted sets.

use bobbin_store::value::SortedSet;

use super::bounds::Bounds;
use super::shrunk;
use crate::command::{Call, Outcome};

pub(super) fn zrem(call: &mut Call<'_>) -> Outcome {
    let (key, hasher) = (call.key(1), call.data.keyspace().hasher());
    let mut removed = 0;
    if let Some(set) = call.data.write_as::<SortedSet>(key)? {
        for member in &call.args[2..] {
            removed += usize::from(set.remove(member, hasher).is_some());
        }
    }
    if removed > 0 {
        shrunk(call.data, key, removed, "zrem");
    }
    call.reply.integer(removed as i64);
    Ok(())
}

pub(super) fn zremrangebyrank(call: &mut Call<'_>) -> Outcome {
    let bounds = Bounds::ranks(call.args[2], call.args[3])?;
    remove(call, &bounds, "zremrangebyrank")
}

pub(super) fn zremrangebyscore(call: &mut Call<'_>) -> Outcome {
    let bounds = Bounds::scores(call.args[2], call.args[3])?;
    remove(call, &bounds, "zremrangebyscore")
}

pub(super) fn zremrangebylex(call: &mut Call<'_>) -> Outcome {
    let bounds = Bounds::members(call.args[2], call.args[3])?;
    remove(call, &bounds, "zremrangebylex")
}

fn remove(call: &mut Call<'_>, bounds: &Bounds<'_>, event: &'static str) -> Outcome {
    let (key, hasher) = (call.key(1), call.data.keyspace().hasher());
    let mut removed = 0;
    if let Some(set) = call.data.write_as::<SortedSet>(key)? {
        let ranks = bounds.find(set, false);
        removed = ranks.len();
        set.remove_range(ranks, hasher);
    }
    if removed > 0 {
        shrunk(call.data, key, removed, event);
    }
    call.reply.integer(removed as i64);
    Ok(())
}
