//! Running a script: what is held meanwhile, and what becomes of its reply.

use bobbin_script::{Chunk, Ended, ScriptFlags, Vm};

use super::Lua;
use super::cache::{Habits, Script};
use super::session::{Session, Way};
use crate::client::Client;
use crate::command::call::hold_keys;
use crate::command::{Call, Failure, Outcome};
use crate::eviction::{self, Room};
use crate::server::Switch;

/// What the first argument is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Text,
    Sha,
}

/// EVAL and its like.
pub(crate) fn evaluate(call: &mut Call<'_>, source: Source, read_only: bool) -> Outcome {
    let keys = count_keys(call)?;
    let seed = call.data.random.next_u64();
    let mut lua = match call.data.lua.take() {
        Some(lua) => lua,
        None => Box::new(Lua::new(call.server, seed)),
    };
    lua.refresh(call.server, || seed);
    let outcome = find(call, &mut lua, source).and_then(|(script, chunk)| {
        let Lua { vm, client, .. } = &mut *lua;
        run(call, vm, client, &script, chunk, keys, read_only)
    });
    call.data.lua = Some(lua);
    outcome
}

/// How many keys follow; they begin at argument 3.
fn count_keys(call: &Call<'_>) -> Result<usize, Failure> {
    let count = call.integer(2)?;
    if count > (call.args.len() - 3) as i64 {
        return Err("ERR Number of keys can't be greater than number of args".into());
    }
    usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative".into())
}

fn find(
    call: &Call<'_>,
    lua: &mut Lua,
    source: Source,
) -> Result<(std::sync::Arc<Script>, Chunk), Failure> {
    let argument = call.args[1];
    let at = match source {
        Source::Text => {
            lua.of_source(call.server, argument, call.data.keyspace().hash(argument))?
        }
        Source::Sha => lua.of_sha(call.server, argument)?.ok_or(NO_SCRIPT)?,
    };
    Ok(lua.compiled(at))
}

fn run(
    call: &mut Call<'_>,
    vm: &mut Vm,
    client: &mut Client,
    script: &Script,
    chunk: Chunk,
    keys: usize,
    read_only: bool,
) -> Outcome {
    let is_oom = call.server.switches.load() & Switch::MAXMEMORY != 0
        && !call.in_transaction
        && eviction::make_room(call.server, call.data) == Room::None;
    if script.is_strict {
        check_promises(script, read_only, is_oom)?;
    }
    client.select(call.client.database);
    client.no_touch = call.client.no_touch;
    let (keys, arguments) = call.args[3..].split_at(keys);
    let start = call.reply.output().len();
    let mut everything = script.habits() != Habits::Declared;
    let ended = loop {
        if !call.in_transaction {
            hold_keys(call.data, keys, everything);
        }
        let mut session = Session::new(call.server, call.data, call.stats, client);
        session.read_only = read_only || script.flags.has(ScriptFlags::NO_WRITES);
        session.is_oom = is_oom && !script.flags.has(ScriptFlags::ALLOW_OOM);
        session.observe(keys, script.habits() == Habits::Unknown);
        let ended = vm.run(&mut session, chunk, keys, arguments, &mut call.reply);
        let way = session.way();
        script.learn(if way == Way::Declared { Habits::Declared } else { Habits::Stray });
        if way == Way::Blocked && !everything {
            // Nothing was changed yet, so that it can begin anew.
            call.reply.truncate(start);
            everything = true;
            continue;
        }
        break ended;
    };
    // Its commands have logged theirs.
    call.data.propagate_nothing();
    finish(call, ended)
}

/// What a script that says in its first line what it is must keep to.
fn check_promises(script: &Script, read_only: bool, is_oom: bool) -> Outcome {
    let writes = !script.flags.has(ScriptFlags::NO_WRITES);
    if read_only && writes {
        return Err("ERR Can not execute a script with write flag using *_ro command.".into());
    }
    if is_oom && writes && !script.flags.has(ScriptFlags::ALLOW_OOM) {
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
        Ended::Failed { text, counted: false } => {
            Err(Failure::format(String::from_utf8_lossy(&text).into_owned()))
        }
        Ended::Failed { text, counted: true } => {
            // The command that failed was counted.
            call.reply.error(&text);
            call.stats.commands[call.command.id].failed.add(1);
            Ok(())
        }
        Ended::Stopped => Err(KILLED),
    }
}

const NO_SCRIPT: Failure = Failure::new("NOSCRIPT No matching script.");
const KILLED: Failure =
    Failure::new("ERR Error running script: Script killed by user with SCRIPT KILL.");
