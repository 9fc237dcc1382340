//! Sets: adding, removing, moving and looking up members.

use bobbin_resp::{Aggregate, Reply};
use bobbin_store::ValueType;
use bobbin_store::value::pages::PREFETCHED;
use bobbin_store::value::set::Walk;
use bobbin_store::value::{Item, Set};

use super::super::element_scan::{reply_scan, scan_in_slices};
use super::super::elements::bulk;
use super::super::scan::parse_cursor;
use super::super::scan_options::{ScanOptions, Scanned};
use super::{changed, ended, limits};
use crate::engine::command::{Call, Classes, Failure, Outcome};
use crate::engine::execution::slices::{
    SLICE, SLICED_MIN, each_word_in_slices, has_many_words, reply_in_slices,
};

pub(super) fn sadd(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1)?;
    let (limits, hasher) = (limits(call.server), call.data.keyspace().hasher());
    let members = &call.args[2..];
    let set = call.data.write_or_create::<Set>(key)?;
    let added = set.insert_all(members, &limits, hasher);
    if added > 0 {
        changed(call, key, added);
        call.data.event(Classes::SET, "sadd", key);
    }
    call.reply.integer(added as i64);
    Ok(())
}

pub(super) fn srem(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1)?;
    let hasher = call.data.keyspace().hasher();
    let Some(set) = call.data.write_as::<Set>(key)? else {
        call.reply.integer(0);
        return Ok(());
    };
    let mut removed = 0;
    for members in call.args[2..].chunks(PREFETCHED) {
        set.prefetch(members, hasher);
        removed += members.iter().filter(|member| set.remove(member, hasher)).count();
    }
    if removed > 0 {
        changed(call, key, removed);
        call.data.event(Classes::SET, "srem", key);
        ended(call.data, key);
    }
    call.reply.integer(removed as i64);
    Ok(())
}

pub(super) fn smove(call: &mut Call<'_>) -> Outcome {
    let (source, target, member) = (call.key(1)?, call.key(2)?, call.args[3]);
    let (limits, hasher) = (limits(call.server), call.data.keyspace().hasher());
    // As in Valkey, both count as used, and one that has expired is deleted, whatever happens then.
    let types = [source, target].map(|key| call.data.write(key).map(|it| it.as_ref().value_type()));
    call.data.count_no_more_use();
    if types[0].is_none() {
        call.reply.integer(0);
        return Ok(());
    }
    if types.into_iter().flatten().any(|value_type| value_type != ValueType::Set) {
        return Err(Failure::WRONG_TYPE);
    }
    let Some(set) = call.data.write_as::<Set>(source)? else { return Ok(()) };
    if source.bytes == target.bytes {
        let is_member = set.contains(member, hasher);
        call.reply.integer(i64::from(is_member));
        return Ok(());
    }
    if !set.remove(member, hasher) {
        call.reply.integer(0);
        return Ok(());
    }
    changed(call, source, 1);
    call.data.event(Classes::SET, "srem", source);
    ended(call.data, source);
    let set = call.data.write_or_create::<Set>(target)?;
    if set.is_empty() {
        *set = Set::for_members(member, 1, &limits);
    }
    if set.insert(member, &limits, hasher) {
        changed(call, target, 1);
        call.data.event(Classes::SET, "sadd", target);
    }
    call.reply.integer(1);
    Ok(())
}

pub(super) fn scard(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1)?;
    let len = call.data.read_as::<Set>(key)?.map_or(0, Set::len);
    call.reply.integer(len as i64);
    Ok(())
}

pub(super) fn sismember(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1)?;
    let hasher = call.data.keyspace().hasher();
    let set = call.data.read_as::<Set>(key)?;
    let is_member = set.is_some_and(|set| set.contains(call.args[2], hasher));
    call.reply.integer(i64::from(is_member));
    Ok(())
}

pub(super) fn smismember(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1)?;
    let hasher = call.data.keyspace().hasher();
    let is_long = has_many_words(call);
    let set = call.data.read_as::<Set>(key)?;
    let append = move |set: Option<&Set>, members: &[&[u8]], reply: &mut Reply<'_>| match set {
        Some(set) => set.contains_all(members, hasher, |is_member| reply.integer(is_member.into())),
        None => members.iter().for_each(|_| reply.integer(0)),
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

pub(super) fn smembers(call: &mut Call<'_>) -> Outcome {
    let key = call.key(1)?;
    let Some(set) = call.data.read_as::<Set>(key)? else {
        call.reply.set(0);
        return Ok(());
    };
    if set.len() > SLICED_MIN && call.may_leave_job {
        let pinned = set.clone();
        let mut walk = None;
        reply_in_slices(call, move |reply| {
            if walk.is_none() {
                reply.aggregate(Aggregate::Set, pinned.len());
            }
            let from = walk.unwrap_or_default();
            let next: Option<Walk> = pinned.walk(from, SLICE, |member| bulk(reply, member));
            walk = Some(next.unwrap_or_default());
            next.is_some()
        });
        return Ok(());
    }
    call.reply.set(set.len());
    set.iter().for_each(|member| bulk(&mut call.reply, member));
    Ok(())
}

pub(super) fn sscan(call: &mut Call<'_>) -> Outcome {
    let cursor = parse_cursor(call.args[2]).ok_or("ERR invalid cursor")?;
    let key = call.key(1)?;
    let hasher = call.data.keyspace().hasher();
    if call.data.read_as::<Set>(key)?.is_none() {
        reply_scan(&mut call.reply, 0, 0, &[]);
        return Ok(());
    }
    let options = ScanOptions::parse(call, 3, Scanned::Set)?;
    // The read was counted already.
    let Some(set) = call.data.peek(key).and_then(|entry| entry.collection::<Set>()) else {
        return Ok(());
    };
    let show = |reply: &mut Reply<'_>, member: Item<'_>, options: &ScanOptions| {
        let matches = options.matches(member);
        if matches {
            bulk(reply, member);
        }
        usize::from(matches)
    };
    if options.count > SLICED_MIN && set.len() > SLICED_MIN && call.may_leave_job {
        let pinned = set.clone();
        scan_in_slices(call, options, cursor, move |cursor, count, options, reply| {
            let mut shown = 0;
            let next = pinned.scan(cursor, count, hasher, |member| {
                shown += show(reply, member, options);
            });
            (next, shown)
        });
        return Ok(());
    }
    let (mut found, mut shown) = (Vec::new(), 0);
    let mut elements = Reply::new(&mut found, call.client.protocol);
    let next = set.scan(cursor, options.count, hasher, |member| {
        shown += show(&mut elements, member, &options);
    });
    reply_scan(&mut call.reply, next, shown, &found);
    Ok(())
}
