//! Transactions: the queue that MULTI opens, the keys that WATCH guards, and how EXEC runs the
//! queue as one unit.

mod running;

use std::sync::atomic::Ordering;

use bobbin_store::shard::watch::OBSERVED_KEY_BYTES;
use bobbin_store::trim::{FEW, Trim};

use super::admission::{admit_again, make_way, wait_for_reserved};
use crate::engine::client::Client;
use crate::engine::clients::ClientFlag;
use crate::engine::command::transaction::{Queued, WatchedKey};
use crate::engine::command::{Call, Data, Failure, Flags, KeySet, Outcome};

/// The number of commands whose keys are prefetched together.
const WINDOW: usize = 32;

/// Marks the transaction as failed: one of its commands was refused, so EXEC will be too.
pub fn spoil(client: &mut Client) {
    if let Some(transaction) = &mut client.transaction {
        transaction.spoil(&client.info);
        client.info.flag(ClientFlag::DIRTY_EXEC, true);
    }
}

/// MULTI.
pub fn begin(call: &mut Call<'_>) -> Outcome {
    if call.client.transaction.is_some() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    call.client.transaction = Some(Box::default());
    call.client.info.queued.store(0, Ordering::Relaxed);
    call.client.info.flag(ClientFlag::MULTI, true);
    call.reply.ok();
    Ok(())
}

/// DISCARD.
pub fn discard(call: &mut Call<'_>) -> Outcome {
    if call.client.transaction.is_none() {
        return Err("ERR DISCARD without MULTI".into());
    }
    end(call);
    call.reply.ok();
    Ok(())
}

/// Leaves the transaction and forgets the watched keys.
pub fn end(call: &mut Call<'_>) {
    leave(call.client);
    unwatch(call);
}

fn leave(client: &mut Client) {
    client.transaction = None;
    client.info.queued.store(-1, Ordering::Relaxed);
    client.info.queued_bytes.store(0, Ordering::Relaxed);
    client.info.flag(ClientFlag::MULTI | ClientFlag::DIRTY_EXEC, false);
}

/// Leaves the transaction because EXEC was refused.
pub fn abort(client: &mut Client, data: &mut Data) {
    leave(client);
    data.release();
    forget(client, data);
}

/// EXEC: locks the shards of all queued commands and watched keys with one plan, then runs the
/// commands one after the other.
pub fn execute(call: &mut Call<'_>) -> Outcome {
    let Some(transaction) = call.client.transaction.take() else {
        return Err("ERR EXEC without MULTI".into());
    };
    if transaction.spoiled {
        end(call);
        return Err("EXECABORT Transaction discarded because of previous errors.".into());
    }
    call.client.time_us = 0;
    let mut shards = std::mem::take(&mut call.data.shard_set);
    shards.clear();
    for watched in &call.client.watched {
        shards.add_key(call.data.key(&watched.key));
    }
    let args = transaction.words.all();
    for queued in &transaction.queue {
        let Queued { command, args: at, first_hash } = queued;
        shards.add(call.data, command, &args[at.clone()], at.start, *first_hash);
    }
    // The scripts of a transaction make way for wishes for the gate, as other scripts do.
    let makes_way = transaction.has(Flags::RUNS_SCRIPT)
        && call.server.scripts.is_gate_wished()
        && !(shards.needs_everything() || call.data.conditions.loading);
    let held = !makes_way && shards.hold(call.data);
    let hashes = shards.take_hashes();
    call.data.shard_set = shards;
    // `admit_again` looks at the commands of the transaction, so it goes back to the client.
    drop(args);
    call.client.transaction = Some(transaction);
    let admitted = match held {
        true => admit_again(call),
        false if makes_way => Err(make_way(call)),
        false => Err(wait_for_reserved(call.server, call.data, call.client)),
    };
    if let Err(failure) = admitted {
        call.data.shard_set.give_back(hashes);
        if failure == Failure::Postponed {
            return Err(failure);
        }
        abort(call.client, call.data);
        return Err(aborted(&failure));
    }
    let Some(transaction) = call.client.transaction.take() else {
        unreachable!("it was put there before");
    };
    if end_watches(call) {
        running::begin(call, transaction, hashes);
    } else {
        call.reply.null_array();
        running::skip(call, hashes);
    }
    Ok(())
}

/// The error of an EXEC that was refused. A redirect stays as it is.
pub fn aborted(failure: &Failure) -> Failure {
    if failure.is_redirect() {
        return failure.clone();
    }
    let text = failure.text();
    let reason = text.strip_prefix("ERR ").unwrap_or(text);
    Failure::format(format!("EXECABORT Transaction discarded because of: {reason}"))
}

/// WATCH. The keys' shards are held.
pub fn watch(call: &mut Call<'_>) -> Outcome {
    if call.client.transaction.is_some() {
        return Err("ERR WATCH inside MULTI is not allowed".into());
    }
    let database = call.client.database;
    let mut distinct = KeySet::default();
    let mut added: Vec<WatchedKey> = Vec::new();
    let has_many = call.args.len() > MANY_KEYS;
    let before = call.client.watched.iter().filter(|watched| watched.database == database);
    if has_many {
        before.for_each(|watched| _ = distinct.insert(call.data.key(&watched.key)));
    }
    let keys = (1..call.args.len()).map(|at| call.key(at)).collect::<Result<Vec<_>, _>>()?;
    for key in keys {
        let known = |w: &WatchedKey| w.database == database && *w.key == *key.bytes;
        let is_known = match has_many {
            true => !distinct.insert(key),
            false => call.client.watched.iter().chain(&added).any(known),
        };
        if is_known {
            continue;
        }
        // An expired key is deleted now. Its removal is no change for a client that begins to watch
        // it here.
        call.data.exists(key);
        let stale = call.data.is_stale(database, key);
        let version = call.data.watch(key);
        // In the client's own list, and in the shard's table.
        let bytes = size_of::<WatchedKey>() + OBSERVED_KEY_BYTES + 2 * key.bytes.len();
        call.client.info.watched_bytes.fetch_add(bytes, Ordering::Relaxed);
        added.push(WatchedKey { database, key: key.bytes.into(), version, stale });
    }
    call.client.watched.append(&mut added);
    call.client.info.watched.store(call.client.watched.len(), Ordering::Relaxed);
    call.reply.ok();
    Ok(())
}

/// Forgets the watched keys, whose shards are held. Returns whether none of them has changed.
fn end_watches(call: &mut Call<'_>) -> bool {
    let mut unchanged = true;
    for watched in call.client.watched.drain(..) {
        let key = call.data.key(&watched.key);
        let version = call.data.unwatch(watched.database, key);
        unchanged = unchanged
            && version == Some(watched.version)
            && (watched.stale || !call.data.is_stale(watched.database, key));
    }
    call.client.watched.trim(FEW);
    call.client.info.watches_nothing();
    unchanged
}

/// UNWATCH. Others that forget the watched keys call it too.
pub fn unwatch(call: &mut Call<'_>) {
    forget(call.client, call.data);
}

/// Forgets a client's watched keys, one shard at a time.
pub fn forget(client: &mut Client, data: &mut Data) {
    if client.watched.is_empty() {
        return;
    }
    for watched in client.watched.drain(..) {
        let key = data.key(&watched.key);
        data.visit(key.hash.shard(), |shard| shard.unwatch(watched.database, &watched.key));
    }
    client.watched.trim(FEW);
    client.info.watches_nothing();
}

/// A WATCH of more keys than this finds keys that are watched already by a table.
const MANY_KEYS: usize = 16;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::Config;
    use crate::embedded::Embedded;
    use crate::engine::acl::Rights;
    use crate::engine::clients::ClientInfo;

    #[test]
    fn the_memory_of_watched_keys_is_given_back() {
        let mut embedded = Embedded::new(Config::new(), 1).expect("it starts");
        let info = ClientInfo::new(1, -1, "test".into(), "test".into(), true, 0);
        let mut client = Client::new(Arc::new(info), Rights::new(&embedded.server().acl));
        let data = embedded.data();
        data.enter();
        let key = data.key(b"k");
        assert!(data.hold_one(key.hash.shard()));
        let version = data.watch(key);
        data.release();
        client.watched.reserve(10_000);
        let watched = WatchedKey { database: 0, key: key.bytes.into(), version, stale: false };
        client.watched.push(watched);
        forget(&mut client, data);
        data.leave();
        assert!(client.watched.capacity() < 100, "{}", client.watched.capacity());
    }
}
