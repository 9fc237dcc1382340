//! Commands about whole databases: FLUSHALL, FLUSHDB, SWAPDB, DBSIZE.

use bobbin_resp::Reply;
use bobbin_store::shard::{Flushed, FlushedEntries};

use crate::engine::command::job::{Job, Slice};
use crate::engine::command::{Call, Categories, Command, DatabaseUse, Failure, Flags, Outcome};
use crate::engine::lazyfree;
use crate::persistence::position::CutPosition;
use crate::persistence::{points, save};

fn flushall(call: &mut Call<'_>) -> Outcome {
    let in_background = frees_in_background(call)?;
    call.data.propagate(call.args);
    let flushed = call.data.flush_all();
    let server = call.server;
    // The snapshot in progress has deleted data. An empty one replaces it.
    save::abort_save(server);
    if server.has_save_points() {
        if call.in_transaction {
            // No file may hold half a transaction. Until the save that is scheduled here, the
            // existing snapshot still has the deleted keys.
            points::owe_save(server);
        } else {
            // The stream gets FLUSHALL only behind this, so the file is at no position of it. A
            // replica that comes back after a crash gets a copy. A failure is logged.
            drop(save::save_held(server, call.data, CutPosition::NONE));
        }
    }
    dispose(call, flushed, in_background);
    Ok(())
}

/// Deletes all keys of all databases. The caller holds the gate.
pub(super) fn flush_everything(call: &mut Call<'_>) {
    drop(call.data.flush_all());
}

fn flushdb(call: &mut Call<'_>) -> Outcome {
    let in_background = frees_in_background(call)?;
    call.data.propagate(call.args);
    let (database, mut flushed) = (call.client.database, Vec::new());
    call.data.each_used(|data, index| flushed.push(data.flush(index, database)));
    call.data.all_changed();
    dispose(call, flushed, in_background);
    Ok(())
}

fn frees_in_background(call: &Call<'_>) -> Result<bool, Failure> {
    match call.args.len() {
        1 => Ok(call.server.config.lazyfree_lazy_user_flush()),
        2 if call.word_is(1, "async") => Ok(true),
        2 if call.word_is(1, "sync") => Ok(false),
        _ => Err(Failure::SYNTAX),
    }
}

/// Frees removed databases, and replies. Without `in_background` they are freed in slices before
/// the reply, so that only this client waits.
fn dispose(call: &mut Call<'_>, mut flushed: Vec<Flushed>, in_background: bool) {
    flushed.retain(|keys| !keys.is_empty());
    if in_background {
        lazyfree::free_databases(flushed);
    } else if !flushed.is_empty() && !call.in_transaction {
        let flushed = flushed.into_iter().map(Flushed::into_entries).collect();
        call.leave_job(FreeDatabases(flushed));
        return;
    }
    call.reply.ok();
}

/// Frees databases in slices.
struct FreeDatabases(Vec<FlushedEntries>);

impl Job for FreeDatabases {
    fn step(&mut self, slice: &mut Slice<'_>) -> bool {
        while let Some(entries) = self.0.last_mut()
            && (slice.more)()
        {
            entries.by_ref().take(lazyfree::FLUSHED_AT_ONCE).for_each(drop);
            if entries.len() == 0 {
                self.0.pop();
            }
        }
        self.0.is_empty()
    }

    fn changes_later(&self) -> bool {
        false
    }

    fn reply(&mut self, reply: &mut Reply<'_>) {
        reply.ok();
    }
}

fn swapdb(call: &mut Call<'_>) -> Outcome {
    let number = |at| call.integer(at).ok().and_then(|number| i32::try_from(number).ok());
    let a = number(1).ok_or("ERR invalid first DB index")?;
    let b = number(2).ok_or("ERR invalid second DB index")?;
    let databases = call.server.config.databases();
    let index = |number: i32| u32::try_from(number).ok().filter(|&n| i64::from(n) < databases);
    let (Some(a), Some(b)) = (index(a), index(b)) else { return Err(Failure::NO_DATABASE) };
    if a != b {
        call.data.each_used(|data, index| data.swap(index, a, b));
        call.data.all_changed();
    }
    call.data.counters.dirty += 1;
    call.reply.ok();
    Ok(())
}

fn dbsize(call: &mut Call<'_>) -> Outcome {
    let database = call.client.database;
    let total = call.data.total(database);
    call.reply.integer(total as i64);
    Ok(())
}

const FLUSH_HISTORY: &[(&str, &str)] = &[("4.0.0", "Takes `ASYNC`."), ("6.2.0", "Takes `SYNC`.")];
const FLUSH_TIPS: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];
const DANGEROUS: Categories = Categories::KEYSPACE.with(Categories::DANGEROUS);

pub(super) const COMMANDS: &[Command] = &[
    Command::new("flushall", -1, flushall)
        .flags(Flags::WRITE.with(Flags::GATE))
        .categories(DANGEROUS)
        .databases(DatabaseUse::Every)
        .doc(
            "server",
            "1.0.0",
            "O(N), N: keys of all databases",
            "Deletes the keys of all databases.",
        )
        .syntax("[<ASYNC @4.0.0 | SYNC @6.2.0>]")
        .history(FLUSH_HISTORY)
        .tips(FLUSH_TIPS),
    Command::new("flushdb", -1, flushdb)
        .flags(Flags::WRITE.with(Flags::GATE))
        .categories(DANGEROUS)
        .doc(
            "server",
            "1.0.0",
            "O(N), N: keys of the database",
            "Deletes the keys of the database.",
        )
        .syntax("[<ASYNC @4.0.0 | SYNC @6.2.0>]")
        .history(FLUSH_HISTORY)
        .tips(FLUSH_TIPS),
    Command::new("swapdb", 3, swapdb)
        .flags(Flags::WRITE.with(Flags::FAST).with(Flags::GATE))
        .categories(DANGEROUS)
        .databases(DatabaseUse::Named(|_, found| (1..=2).for_each(found)))
        .doc(
            "server",
            "4.0.0",
            "O(N), N: clients that watch or wait for keys of either",
            "Exchanges the contents of two databases.",
        )
        .syntax("index1:int index2:int"),
    Command::new("dbsize", 1, dbsize)
        .flags(Flags::READONLY.with(Flags::FAST).with(Flags::WALKS))
        .categories(Categories::KEYSPACE)
        .doc("server", "1.0.0", "O(1)", "Counts the keys of the database.")
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"]),
];
