//! Whether a command may run now: pauses, loading, busy scripts, memory, the disk, replicas.
//!
//! The answers may change while a command waits for a lock, so the checks are made again after each
//! wait.

use super::rights::{self, Caller};
use crate::engine::client::{Client, ReplyMode};
use crate::engine::clients::ClientFlag;
use crate::engine::command::call::{Context, Request};
use crate::engine::command::data::evictor::Room;
use crate::engine::command::{Call, Data, Failure, Flags, Outcome, Registered};
use crate::engine::eviction;
use crate::engine::row::WRITERS;
use crate::engine::script::{self, GateWish};
use crate::engine::server::pause::PauseReason;
use crate::engine::server::{Server, Switch};

/// The checks that few servers need. The caller skips them all with one load of the switches.
#[cold]
pub(super) fn guard(
    context: &mut Context<'_>,
    client: &mut Client,
    command: &'static Registered,
    request: &Request<'_>,
    switches: u32,
    output: &mut Vec<u8>,
) -> Outcome {
    if context.data.conditions.loading {
        // The commands of a log were checked before they were logged.
        return Ok(());
    }
    let flags = WholeFlags::of(context.server, client, command, request.args);
    check_state(context.server, context.data, client, command, flags)?;
    let writes = flags.any.has(Flags::WRITE);
    // PING is refused too, so that a health check sees the failure of the disk.
    let is_told = writes || command.row.name == "ping";
    if switches & Switch::PRESSURE != 0
        && writes
        && switches & Switch::LOG_FAILED == 0
        && context.server.holds_up(client, context.data)
    {
        return Err(Failure::Postponed);
    }
    if context.server.minds_maxmemory() {
        let room = make_room(context, client, output);
        let denies_oom = flags.any.has(Flags::DENYOOM);
        // A script checks the memory again by itself.
        let runs_scripts = || flags.any.has(Flags::RUNS_SCRIPT) && !command.has(Flags::RUNS_SCRIPT);
        match room {
            Room::Enough | Room::Soon => {}
            Room::Reserved if denies_oom || runs_scripts() => {
                return Err(wait_for_reserved(context.server, context.data, client));
            }
            Room::None if denies_oom => return Err(Failure::OUT_OF_MEMORY),
            Room::Reserved | Room::None => {}
        }
        if command.has(Flags::RUNS_TRANSACTION)
            && let Some(transaction) = &mut client.transaction
        {
            transaction.is_oom = room == Room::None;
        }
        if writes || command.has(Flags::RUNS_SCRIPT) {
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
    Ok(())
}

/// The checks whose answers change over time. They are made before a command runs, and again after
/// each wait.
fn check_state(
    server: &Server,
    data: &mut Data,
    client: &Client,
    command: &Registered,
    flags: WholeFlags,
) -> Outcome {
    let switches = server.switches.load();
    if data.conditions.loading {
        return if data.is_dismissed() { Err(Failure::Postponed) } else { Ok(()) };
    }
    data.conditions.sees_dead = server.shows_dead(&client.info);
    flags.check_spectator(client)?;
    check_role(server, client, flags, switches)?;
    if switches & Switch::BUSY != 0 && !command.has(Flags::ALLOW_BUSY) {
        return Err(server.scripts.busy_failure(&server.config));
    }
    check_pause(server, data, client, flags)
}

/// Whether the server's role, primary or replica, and its loading allow the command.
#[inline]
fn check_role(server: &Server, client: &Client, flags: WholeFlags, switches: u32) -> Outcome {
    if switches & Switch::REPLICA != 0 {
        check_on_replica(server, client, flags)?;
    }
    if switches & Switch::LOADING != 0 && !flags.all.has(Flags::LOADING)
        || switches & Switch::LOADING_ASIDE != 0 && flags.any.has(Flags::NO_ASYNC_LOADING)
    {
        return Err(Failure::loading(&server.config));
    }
    Ok(())
}

/// Whether a replica may run the command.
#[cold]
fn check_on_replica(server: &Server, client: &Client, flags: WholeFlags) -> Outcome {
    let writes = flags.any.has(Flags::WRITE);
    if client.info.is_redirected(writes, flags.any.has(Flags::READONLY)) {
        // Until the failover's target has taken over, there is no primary to redirect the client
        // to.
        let waits = server.is_paused_for(PauseReason::Failover);
        return Err(if waits { Failure::Postponed } else { Failure::redirect(&server.config) });
    }
    if writes && server.is_read_only() {
        return Err(Failure::READONLY);
    }
    if server.is_too_stale() && !flags.all.has(Flags::STALE) {
        return Err(Failure::MASTERDOWN);
    }
    Ok(())
}

/// Evicts keys if memory is over its limit. If an evicted key was tracked by the client, the
/// message about it is sent before the reply.
fn make_room(context: &mut Context<'_>, client: &Client, output: &mut Vec<u8>) -> Room {
    let id = client.tracking.as_ref().map_or(0, |tracked| tracked.id);
    let before = std::mem::replace(&mut context.data.audience.replying_to, id);
    let room = eviction::make_room(context.server, context.data);
    context.data.audience.replying_to = before;
    if id != 0
        && client.reply_mode == ReplyMode::On
        && let Some(subscribers) = &mut context.data.audience.subscribers
    {
        output.append(subscribers.invalid_aside());
    }
    room
}

/// Whether the client may use keys, if the command does: a replica or a monitor may not. The rights
/// of a replica are watched, so that this is asked for each of its commands.
pub(super) fn check_spectator(
    server: &Server,
    client: &Client,
    command: &Registered,
    args: &[&[u8]],
) -> Outcome {
    WholeFlags::of(server, client, command, args).check_spectator(client)
}

/// Whether the client is a replica or a monitor: it is sent what others do.
fn is_spectator(client: &Client) -> bool {
    client.info.has(ClientFlag::MONITOR | ClientFlag::REPLICA)
}

/// Whether a pause makes the client wait.
fn check_pause(server: &Server, data: &mut Data, client: &Client, flags: WholeFlags) -> Outcome {
    let pause = server.paused(data.conditions.now_ms);
    // Another worker may have started or ended a pause during this turn.
    data.conditions.may_expire = server.may_expire(data.conditions.now_ms);
    match pause {
        Some(pause) if !is_spectator(client) && (pause.all || flags.any.has(WRITERS)) => {
            Err(Failure::Postponed)
        }
        _ => Ok(()),
    }
}

/// Whether a long command must put off its last step: a pause forbids changes, or the thread is to
/// stop. Pauses do not hold up the loading of a log.
fn is_put_off(server: &Server, data: &Data, command: &Registered) -> bool {
    let is_paused = || !data.conditions.loading && server.paused(data.conditions.now_ms).is_some();
    data.is_dismissed() || command.has(WRITERS) && is_paused()
}

/// Checks again whether a long command may make its change now: the server may have become a
/// replica, and the user's rules may have changed. A command that is postponed tries again later.
pub fn check_finish(
    server: &Server,
    data: &Data,
    client: &mut Client,
    command: &Registered,
    args: &[&[u8]],
) -> Outcome {
    if is_put_off(server, data, command) {
        return Err(Failure::Postponed);
    }
    if data.conditions.loading {
        return Ok(());
    }
    let flags = WholeFlags::of(server, client, command, args);
    check_role(server, client, flags, server.switches.load())?;
    if !client.rights.is_open(&server.acl) {
        let now_ms = data.conditions.now_ms;
        rights::check(server, client, command, args, Caller::Client, now_ms)?;
    }
    Ok(())
}

/// The flags of a command, combined with those of the commands that it runs: the queue of EXEC, or
/// the flags that a script declares.
#[derive(Clone, Copy)]
pub(super) struct WholeFlags {
    /// The flags that at least one of the commands has.
    any: Flags,
    /// The flags that all the commands have.
    all: Flags,
}

impl WholeFlags {
    fn of(server: &Server, client: &Client, command: &Registered, args: &[&[u8]]) -> Self {
        let flags = script::flags(server, command, args);
        match &client.transaction {
            Some(transaction) if command.has(Flags::RUNS_TRANSACTION) => {
                Self { any: flags.with(transaction.flags), all: flags.without(transaction.missing) }
            }
            _ => Self { any: flags, all: flags },
        }
    }

    fn check_spectator(self, client: &Client) -> Outcome {
        if is_spectator(client) && self.any.has(KEY_USERS) {
            // Pauses do not stop these clients, so they must not use keys at all.
            return Err(Failure::new(&"ERR Replica can't interact with the keyspace"));
        }
        Ok(())
    }
}

/// Refreshes the time after a wait for locks, and checks again what may have changed meanwhile: the
/// user's rules, pauses, loading, busy scripts.
#[cold]
pub(super) fn admit_after_wait(
    context: &mut Context<'_>,
    client: &mut Client,
    command: &'static Registered,
    request: &Request<'_>,
) -> Outcome {
    context.data.refresh_time(context.server);
    if !client.rights.is_open(&context.server.acl) {
        rights::check_request(context, client, request)?;
    }
    let flags = WholeFlags::of(context.server, client, command, request.args);
    check_state(context.server, context.data, client, command, flags)
}

/// The failure of a command that gives way to clients and threads that wish for the gate. It must
/// not have done anything yet. The command waits until no wish is left, so it leaves no wish of its
/// own.
pub fn make_way(call: &mut Call<'_>) -> Failure {
    // The refusal noted here belongs to an earlier command.
    call.data.take_refusal();
    wait_for_reserved(call.server, call.data, call.client)
}

/// Checks again what may have changed while a running command waited for its locks. It is for
/// commands that take locks in their handlers. If it fails, the handler must return the error at
/// once, without having done anything.
pub fn admit_again(call: &mut Call<'_>) -> Outcome {
    if !call.data.conditions.waited || call.in_transaction {
        return Ok(());
    }
    call.data.refresh_time(call.server);
    if !call.client.rights.is_open(&call.server.acl) {
        let now_ms = call.data.conditions.now_ms;
        rights::check(call.server, call.client, call.command, call.args, Caller::Client, now_ms)?;
    }
    let flags = WholeFlags::of(call.server, call.client, call.command, call.args);
    check_state(call.server, call.data, call.client, call.command, flags)
}

/// The failure of a command that needs reserved shards: its client waits until they are free. If a
/// slow script keeps them, the client gets `-BUSY` instead. The command must not have done anything
/// yet.
#[cold]
pub fn wait_for_reserved(server: &'static Server, data: &mut Data, client: &mut Client) -> Failure {
    let is_gate_refused = data.take_refusal();
    // What comes from the primary is never answered with `-BUSY`: it waits, however long that
    // takes.
    if server.switches.has(Switch::BUSY) && !data.conditions.loading {
        return server.scripts.busy_failure(&server.config);
    }
    client.waits_for_reserved = true;
    client.gate_wish = is_gate_refused.then(|| GateWish::new(server));
    Failure::Postponed
}

const KEY_USERS: Flags = WRITERS.with(Flags::READONLY);
