//! Whether a command may run now: pauses, loading, scripts, memory, the disk.
//!
//! What is checked here may change while a command waits for a lock, so it is checked again behind
//! each wait.

use super::rights;
use crate::engine::client::{Client, Replies};
use crate::engine::clients::ClientFlag;
use crate::engine::command::call::{Context, Request};
use crate::engine::command::data::evictor::Room;
use crate::engine::command::{Call, Data, Failure, Flags, Outcome, Registered};
use crate::engine::eviction;
use crate::engine::row::WRITERS;
use crate::engine::script::{self, GateWish};
use crate::engine::server::pause::PauseReason;
use crate::engine::server::{Server, Switch};

/// The checks that few servers need, behind one load. `false`: the client has to wait.
#[cold]
pub(super) fn guard(
    context: &mut Context<'_>,
    client: &mut Client,
    command: &'static Registered,
    request: &Request<'_>,
    switches: u32,
    output: &mut Vec<u8>,
) -> Result<bool, Failure> {
    if context.data.turn.loading {
        // A log was checked when it was written.
        return Ok(true);
    }
    let flags = WholeFlags::of(context.server, client, command, request.args);
    if !may_run(context.server, context.data, client, command, flags)? {
        return Ok(false);
    }
    let writes = flags.any.has(Flags::WRITE);
    // A client that looks whether the server is well is told, too.
    let is_told = writes || command.row.name == "ping";
    if switches & Switch::PRESSURE != 0
        && writes
        && switches & Switch::LOG_FAILED == 0
        && context.server.holds_up(client, context.data)
    {
        client.note_command(command);
        client.postpone(true);
        return Ok(false);
    }
    if context.server.minds_maxmemory() {
        let room = make_room(context, client, output);
        let denies_oom = flags.any.has(Flags::DENYOOM);
        // A script alone looks once more for itself.
        let runs_scripts = || flags.any.has(Flags::RUNS) && !command.has(Flags::RUNS);
        match room {
            Room::Enough | Room::Soon => {}
            Room::Reserved if denies_oom || runs_scripts() => {
                return Err(postpone_for_reserved(context.server, context.data, client, command));
            }
            Room::None if denies_oom => return Err(Failure::OUT_OF_MEMORY),
            Room::Reserved | Room::None => {}
        }
        if command.has(Flags::EXECUTES)
            && let Some(transaction) = &mut client.transaction
        {
            transaction.is_oom = room == Room::None;
        }
        if writes || command.has(Flags::RUNS) {
            eviction::expect_change(context.data);
        }
    }
    if switches & Switch::DISK_FAILED != 0
        && is_told
        && let Some(failure) = context.server.disk_failure()
    {
        return Err(failure);
    }
    if switches & Switch::FEW_REPLICAS != 0 && writes {
        return Err(Failure::NOREPLICAS);
    }
    Ok(true)
}

/// What keeps a command from running now that may not have a moment ago. `false`: the client has to
/// wait.
pub(super) fn may_run(
    server: &'static Server,
    data: &mut Data,
    client: &mut Client,
    command: &'static Registered,
    flags: WholeFlags,
) -> Result<bool, Failure> {
    let switches = server.switches.load();
    if data.turn.loading {
        return Ok(!data.is_dismissed());
    }
    data.turn.sees_dead = server.shows_dead(&client.info);
    if client.info.has(ClientFlag::MONITOR) && flags.any.has(KEY_USERS) {
        // What a pause is for must not be got around by a client that no pause concerns.
        return Err(Failure::new("ERR Replica can't interact with the keyspace"));
    }
    if !is_served(server, client, flags, switches)? {
        client.note_command(command);
        client.postpone(true);
        return Ok(false);
    }
    if switches & Switch::BUSY != 0 && !command.has(Flags::ALLOW_BUSY) {
        return Err(server.scripts.busy_failure(&server.config));
    }
    Ok(!has_to_wait(server, data, client, command, flags))
}

/// Whether the server serves such a command, as a primary or a replica, and while it loads.
/// `false`: the client has to wait.
#[inline]
fn is_served(
    server: &Server,
    client: &Client,
    flags: WholeFlags,
    switches: u32,
) -> Result<bool, Failure> {
    if switches & Switch::REPLICA != 0 && !may_run_on_replica(server, client, flags)? {
        return Ok(false);
    }
    if switches & Switch::LOADING != 0 && !flags.all.has(Flags::LOADING)
        || switches & Switch::LOADING_ASIDE != 0 && flags.any.has(Flags::NO_ASYNC_LOADING)
    {
        return Err(Failure::loading(&server.config));
    }
    Ok(true)
}

/// What a replica refuses. `false`: the client has to wait.
#[cold]
fn may_run_on_replica(
    server: &Server,
    client: &Client,
    flags: WholeFlags,
) -> Result<bool, Failure> {
    let writes = flags.any.has(Flags::WRITE);
    if client.info.has(ClientFlag::CAPA_REDIRECT) {
        let reads = flags.any.has(Flags::READONLY);
        if writes || reads && !client.info.has(ClientFlag::READONLY) {
            // As long as the target has not taken over there is no primary to go to.
            let waits = server.is_paused_for(PauseReason::Failover);
            return if waits { Ok(false) } else { Err(Failure::redirect(&server.config)) };
        }
    }
    if writes && server.is_read_only() {
        return Err(Failure::READONLY);
    }
    if server.is_too_stale() && !flags.all.has(Flags::STALE) {
        return Err(Failure::MASTERDOWN);
    }
    Ok(true)
}

/// Evicts keys if there are too many. That a copy of the client's own is gone comes before the
/// reply.
fn make_room(context: &mut Context<'_>, client: &Client, output: &mut Vec<u8>) -> Room {
    let id = client.tracking.as_ref().map_or(0, |tracked| tracked.id);
    context.data.audience.evicting_for = id;
    let room = eviction::make_room(context.server, context.data);
    context.data.audience.evicting_for = 0;
    if id != 0
        && client.replies == Replies::On
        && let Some(subscribers) = &mut context.data.audience.subscribers
    {
        output.append(subscribers.set_aside());
    }
    room
}

/// Whether a pause holds the command up.
fn has_to_wait(
    server: &Server,
    data: &mut Data,
    client: &mut Client,
    command: &'static Registered,
    flags: WholeFlags,
) -> bool {
    let pause = server.paused(data.turn.now_ms);
    // Another worker may have started or ended the pause in the midst of this turn.
    data.turn.may_expire = server.may_expire(data.turn.now_ms);
    let Some(pause) = pause else { return false };
    let wait = !client.info.has(ClientFlag::MONITOR) && (pause.all || flags.any.has(WRITERS));
    if wait {
        client.note_command(command);
        client.postpone(true);
    }
    wait
}

/// Whether a pause holds up what a command has left, as that changes keys, or the thread must leave
/// it. No pause holds up a log that is loaded.
fn is_put_off(server: &Server, data: &Data, command: &Registered) -> bool {
    let is_paused = || !data.turn.loading && server.paused(data.turn.now_ms).is_some();
    data.is_dismissed() || command.has(WRITERS) && is_paused()
}

/// Checks again whether a command that has worked for a while may change keys now: the server may
/// be a replica, and rules may be others. `false`: it has to wait.
pub fn may_finish(
    server: &Server,
    data: &Data,
    client: &mut Client,
    command: &Registered,
    args: &[&[u8]],
) -> Result<bool, Failure> {
    if is_put_off(server, data, command) {
        return Ok(false);
    }
    if data.turn.loading {
        return Ok(true);
    }
    let flags = WholeFlags::of(server, client, command, args);
    if !is_served(server, client, flags, server.switches.load())? {
        return Ok(false);
    }
    if !client.rights.is_open(&server.acl) {
        rights::admit_late(server, client, command, args, data.turn.now_ms)?;
    }
    Ok(true)
}

/// The flags of a command together with those of what it runs: the commands that EXEC finds queued,
/// or a script that says what it is.
#[derive(Clone, Copy)]
pub(super) struct WholeFlags {
    /// What one of them has.
    any: Flags,
    /// What each of them has.
    all: Flags,
}

impl WholeFlags {
    fn of(server: &Server, client: &Client, command: &Registered, args: &[&[u8]]) -> Self {
        let flags = script::flags(server, command, args);
        match &client.transaction {
            Some(transaction) if command.has(Flags::EXECUTES) => {
                Self { any: flags.with(transaction.flags), all: flags.without(transaction.missing) }
            }
            _ => Self { any: flags, all: flags },
        }
    }
}

/// Checks again what may have changed while the command waited for what it holds now: rules,
/// pauses, and what the time is. `false`: the client has to wait.
#[cold]
pub(super) fn admit_after_wait(
    context: &mut Context<'_>,
    client: &mut Client,
    command: &'static Registered,
    request: &Request<'_>,
) -> Result<bool, Failure> {
    context.data.refresh_time(context.server);
    if !client.rights.is_open(&context.server.acl) {
        rights::admit(context, client, request)?;
    }
    let flags = WholeFlags::of(context.server, client, command, request.args);
    let goes_on = may_run(context.server, context.data, client, command, flags)?;
    if !goes_on {
        context.data.end_prepared();
        context.data.release();
    }
    Ok(goes_on)
}

/// What a command returns that finds what it needs reserved; nothing was done yet.
pub fn wait_for_reserved(call: &mut Call<'_>) -> Failure {
    postpone_for_reserved(call.server, call.data, call.client, call.command)
}

/// What a command returns that lets those have their turn that wish for the gate; nothing was done
/// yet. It waits for the end of their wishes, so it must have none.
pub fn make_way(call: &mut Call<'_>) -> Failure {
    // Of another command, which did not ask.
    call.data.take_refusal();
    wait_for_reserved(call)
}

/// Checks again what may have changed while the command waited. It is for a command that gets
/// hold of what it needs only while it runs. The command must return an error at once, with
/// nothing done.
pub fn admit_again(call: &mut Call<'_>) -> Outcome {
    if !call.data.turn.waited || call.in_transaction {
        return Ok(());
    }
    call.data.refresh_time(call.server);
    if !call.client.rights.is_open(&call.server.acl) {
        rights::admit_queued(call, call.command, call.args)?;
    }
    let flags = WholeFlags::of(call.server, call.client, call.command, call.args);
    let goes_on = may_run(call.server, call.data, call.client, call.command, flags)?;
    if goes_on { Ok(()) } else { Err(Failure::Postponed) }
}

/// What becomes of a command that finds what it needs reserved: its client waits until that is
/// over, or is told that a script is slow. Nothing was done yet.
#[cold]
pub(super) fn postpone_for_reserved(
    server: &'static Server,
    data: &mut Data,
    client: &mut Client,
    command: &Registered,
) -> Failure {
    let is_gate_refused = data.take_refusal();
    // What a primary has done is done here too, however long that takes.
    if server.switches.load() & Switch::BUSY != 0 && !data.turn.loading {
        return server.scripts.busy_failure(&server.config);
    }
    client.note_command(command);
    client.wait_for_reserved();
    client.gate_wish = is_gate_refused.then(|| GateWish::new(server));
    Failure::Postponed
}

const KEY_USERS: Flags = WRITERS.with(Flags::READONLY);
