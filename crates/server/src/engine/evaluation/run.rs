//! Runs a script: which locks it holds meanwhile, and what its reply becomes.

use std::ptr::NonNull;
use std::sync::Arc;

use bobbin_script::{Chunk, Ended, ScriptFlags, ScriptProgress};

use super::paused::{Owner, PausedScript};
use super::session::{KeyAccess, ScriptSession, count_failure};
use crate::engine::client::attempts::ScriptAttempts;
use crate::engine::command::data::evictor::Room;
use crate::engine::command::plan::hold_keys;
use crate::engine::command::{Call, Failure, Outcome};
use crate::engine::eviction;
use crate::engine::execution::admission::{admit_again, make_way, wait_for_reserved};
use crate::engine::execution::monitor;
use crate::engine::script::{Compiled, Habits, Learned, Lua, LuaState, Sha};
use crate::engine::server::Switch;
use crate::engine::tracking;

/// What the first argument is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScriptSource {
    Text,
    Sha,
}

/// EVAL, EVALSHA and their read-only forms.
pub(crate) fn evaluate(call: &mut Call<'_>, source: ScriptSource, read_only: bool) -> Outcome {
    // As in Redis, a text that cannot be a SHA1 digest is refused before the other arguments are
    // checked.
    if matches!(source, ScriptSource::Sha) && call.args[1].len() != size_of::<Sha>() {
        return Err(NO_SCRIPT);
    }
    let keys = count_keys(call)?;
    let mut lua = Lua::of_worker(call.server, call.data);
    let compiled = match find(call, &mut lua, source) {
        Ok(found) => found,
        Err(failure) => {
            lua.give_back(call.data);
            return Err(failure);
        }
    };
    let script = &*compiled.script;
    let task = ScriptTask {
        chunk: compiled.chunk,
        keys,
        learned: &script.learned,
        everything: script.learned.habits() != Habits::Declared,
        flags: script.flags,
        is_strict: script.is_strict,
        can_restart: true,
        read_only,
    };
    run(call, Owner::Worker(lua), &task)
}

/// The script to run, and how to run it.
pub(super) struct ScriptTask<'a> {
    pub chunk: Chunk,
    /// The number of declared keys.
    pub keys: usize,
    pub learned: &'a Arc<Learned>,
    /// Whether the script begins with the gate held.
    pub everything: bool,
    pub flags: ScriptFlags,
    /// Whether the script declares its flags, which are then enforced.
    pub is_strict: bool,
    /// Whether the script may begin anew if it has changed nothing.
    pub can_restart: bool,
    pub read_only: bool,
}

impl ScriptTask<'_> {
    /// Whether the script has to wait: it is known to pause, and somebody wishes for the gate.
    fn makes_way(&self, call: &Call<'_>) -> bool {
        self.learned.takes_long()
            && call.server.scripts.is_gate_wished()
            && !(self.everything || call.in_transaction || call.data.conditions.loading)
    }
}

/// The number of declared keys; they begin at argument 3.
pub(super) fn count_keys(call: &Call<'_>) -> Result<usize, Failure> {
    let count = call.integer(2)?;
    if count > (call.args.len() - 3) as i64 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative".into())
}

fn find(call: &Call<'_>, lua: &mut Lua, source: ScriptSource) -> Result<Arc<Compiled>, Failure> {
    let argument = call.args[1];
    let at = match source {
        ScriptSource::Text => lua.of_source(call.server, call.data.keyspace(), argument)?,
        ScriptSource::Sha => lua.of_sha(call.server, argument)?.ok_or(NO_SCRIPT)?,
    };
    Ok(lua.compiled(at))
}

/// Runs a script and appends its reply. If the script takes long, it becomes a job of its client,
/// with its locks set aside. EXEC takes that job into the one of its transaction.
pub(super) fn run(call: &mut Call<'_>, mut owner: Owner, task: &ScriptTask<'_>) -> Outcome {
    let outcome = match attempt(call, &mut owner, task) {
        Ok(Attempt::Paused(session)) => {
            call.client.attempts = ScriptAttempts::default();
            PausedScript::begin(call, owner, session, task.learned);
            Ok(())
        }
        Ok(Attempt::Ended(ended)) => {
            owner.give_back(call.server, call.data);
            call.client.attempts = ScriptAttempts::default();
            finish(call, ended)
        }
        Err(failure) => {
            owner.give_back(call.server, call.data);
            Err(failure)
        }
    };
    // The commands that the script called have logged their effects. A refused script has none,
    // though keys may have been evicted for it.
    call.data.propagate_nothing();
    outcome
}

/// How far a script has come.
enum Attempt {
    Ended(Ended),
    Paused(Box<ScriptSession>),
}

fn attempt(
    call: &mut Call<'_>,
    owner: &mut Owner,
    task: &ScriptTask<'_>,
) -> Result<Attempt, Failure> {
    if task.makes_way(call) {
        return Err(make_way(call));
    }
    let mut is_oom = call.data.conditions.is_oom;
    if !call.in_transaction && call.server.minds_maxmemory() {
        match eviction::make_room(call.server, call.data) {
            Room::Enough | Room::Soon => {}
            Room::Reserved => return Err(wait_for_reserved(call.server, call.data, call.client)),
            Room::None => is_oom = true,
        }
    }
    check_promises(call, task, is_oom)?;
    let (keys, arguments) = call.args[3..].split_at(task.keys);
    let start = call.reply.output().len();
    let mut everything = task.everything;
    loop {
        // A transaction already holds the shards of its scripts.
        if !call.in_transaction && !hold_keys(call.data, keys, everything) {
            return Err(wait_for_reserved(call.server, call.data, call.client));
        }
        admit_again(call)?;
        call.client.attempts.begin();
        if call.server.switches.has(Switch::MONITORED) {
            monitor::show(call);
        }
        let can_restart = task.can_restart && !call.in_transaction && !everything;
        let LuaState { vm, client } = owner.state();
        client.select(call.client.database);
        client.no_touch = call.client.no_touch;
        client.last_record = call.client.last_record;
        client.attempts = call.client.attempts;
        client.time_us = if call.in_transaction { call.client.time_us } else { 0 };
        client.act_for(call.client, &call.server.acl);
        tracking::track_as(client, call.client);
        client.caller = call.client.info.id;
        let mut session =
            ScriptSession::new(call.server, call.data, call.stats, client, can_restart);
        session.read_only = task.read_only || task.flags.has(ScriptFlags::NO_WRITES);
        session.is_oom = is_oom && !task.flags.has(ScriptFlags::ALLOW_OOM);
        session.observe(keys, task.learned.habits() == Habits::Unknown);
        call.data.unit.enter_midst();
        // SAFETY: the session lives until the script is over. If the script pauses,
        // `PausedScript::begin` sets the session's new address before the script goes on.
        let mut progress = unsafe {
            let host = NonNull::from(&mut session);
            vm.start(host, task.chunk, keys, arguments, call.reply.protocol())
        };
        if progress == ScriptProgress::Paused && !PausedScript::may_begin(call.server, &session) {
            session.stay();
            progress = vm.resume();
        }
        if progress == ScriptProgress::Paused {
            return Ok(Attempt::Paused(Box::new(session)));
        }
        if !call.in_transaction {
            call.data.unit.leave_midst();
        }
        let way = session.way();
        task.learned.note(way.habits());
        let ended = vm.finish(&mut call.reply);
        if way == KeyAccess::Blocked && !everything {
            // Nothing was changed yet, so the script can begin anew.
            call.reply.truncate(start);
            call.client.attempts = owner.state().client.attempts.anew();
            everything = true;
            continue;
        }
        session.count_run(&call.client.info, call.stats, call.command);
        return Ok(Attempt::Ended(ended));
    }
}

/// Whether the flags that the script declares in its first line forbid this run.
fn check_promises(call: &Call<'_>, task: &ScriptTask<'_>, is_oom: bool) -> Outcome {
    if !task.is_strict {
        // For scripts without flags, admission has checked all but whether they may run on a stale
        // replica.
        let is_stale = call.server.is_too_stale() && !call.data.conditions.loading;
        return if is_stale { Err(Failure::MASTERDOWN) } else { Ok(()) };
    }
    let writes = !task.flags.has(ScriptFlags::NO_WRITES);
    if task.read_only && writes {
        return Err("ERR Can not execute a script with write flag using *_ro command.".into());
    }
    if is_oom && writes && !task.flags.has(ScriptFlags::ALLOW_OOM) {
        return Err(
            "OOM allow-oom flag is not set on the script, can not run it when used memory > \
                    'maxmemory'"
                .into(),
        );
    }
    Ok(())
}

fn finish(call: &mut Call<'_>, ended: Ended) -> Outcome {
    match ended {
        Ended::Replied => Ok(()),
        Ended::Failed { text, counted } => {
            call.reply.error(&text);
            count_failure(call.server, call.stats, call.command, &text, counted);
            Ok(())
        }
        Ended::Stopped => Err(STOPPED),
    }
}

const NO_SCRIPT: Failure = Failure::new(&"NOSCRIPT No matching script.");
const STOPPED: Failure = Failure::new(&"ERR Script stopped.");
