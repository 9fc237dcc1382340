//! CLIENT: commands by which clients read and change their own state and that of other clients.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bobbin_resp::Reply;

use self::filter::Filter;
use crate::engine::client::{self, ReplyMode};
use crate::engine::clients::{ClientFlag, ClientInfo};
use crate::engine::command::{Call, Failure, Outcome};
use crate::engine::execution::slices::reply_in_slices;
use crate::engine::server::pause::PauseReason;
use crate::replication::Replication;

mod filter;
pub(super) mod name;
mod rows;
mod tracking;

pub(super) use rows::COMMANDS;

/// The handler of the container. It is never called, because the arity demands a subcommand.
fn container(_: &mut Call<'_>) -> Outcome {
    Err(Failure::SYNTAX)
}

// Subcommands about the client itself.

fn id(call: &mut Call<'_>) -> Outcome {
    call.reply.integer(call.client.info.id as i64);
    Ok(())
}

fn info(call: &mut Call<'_>) -> Outcome {
    let line = describer(call)(&call.client.info);
    call.reply.verbatim("txt", line.as_bytes());
    Ok(())
}

fn no_evict(call: &mut Call<'_>) -> Outcome {
    let on = switch(call)?;
    call.client.set_no_evict(on);
    call.reply.ok();
    Ok(())
}

fn no_touch(call: &mut Call<'_>) -> Outcome {
    let on = switch(call)?;
    call.client.set_no_touch(on);
    call.reply.ok();
    Ok(())
}

fn reply(call: &mut Call<'_>) -> Outcome {
    if call.word_is(2, "on") {
        call.client.reply_mode = ReplyMode::On;
        call.reply.ok();
    } else if call.word_is(2, "off") {
        call.client.reply_mode = ReplyMode::Off;
    } else if call.word_is(2, "skip") {
        if call.client.reply_mode != ReplyMode::Off {
            call.client.reply_mode = ReplyMode::SkipNext;
        }
    } else {
        return Err(Failure::SYNTAX);
    }
    Ok(())
}

/// `CLIENT CAPA`: what the client supports. Unknown capabilities are ignored, because later
/// versions may have more.
fn capa(call: &mut Call<'_>) -> Outcome {
    if (2..call.args.len()).any(|index| call.word_is(index, "redirect")) {
        call.client.info.flag(ClientFlag::CAPA_REDIRECT, true);
    }
    call.reply.ok();
    Ok(())
}

/// `CLIENT IMPORT-SOURCE`: whether the client is the source of an import.
fn import_source(call: &mut Call<'_>) -> Outcome {
    if !call.word_is(2, "off") && !call.server.config.import_mode() {
        return Err("ERR Server is not in import mode".into());
    }
    let is_source = switch(call)?;
    call.client.info.flag(ClientFlag::IMPORT_SOURCE, is_source);
    call.reply.ok();
    Ok(())
}

/// Parses an argument that is `on` or `off`.
fn switch(call: &Call<'_>) -> Result<bool, Failure> {
    match () {
        () if call.word_is(2, "on") => Ok(true),
        () if call.word_is(2, "off") => Ok(false),
        () => Err(Failure::SYNTAX),
    }
}

// Subcommands about other clients.

/// `CLIENT LIST`. Many clients are described in slices, which takes about a microsecond for each.
fn list(call: &mut Call<'_>) -> Outcome {
    let filter = Filter::parse(call, 2, false)?;
    let mut clients = all(call);
    clients.retain(|info| !info.kill.load(Ordering::Relaxed) && filter.matches(call, info));
    let (mut lines, mut next) = (String::new(), 0);
    let describe = describer(call);
    let mut step = move |reply: &mut Reply<'_>| {
        let end = clients.len().min(next + LISTED_AT_ONCE);
        clients[next..end].iter().for_each(|info| lines.push_str(&describe(info)));
        next = end;
        if next == clients.len() {
            reply.verbatim("txt", lines.as_bytes());
        }
        next < clients.len()
    };
    if step(&mut call.reply) {
        reply_in_slices(call, step);
    }
    Ok(())
}

/// All clients, and the connection to the primary, in the order of their ids.
fn all(call: &Call<'_>) -> Vec<Arc<ClientInfo>> {
    let mut clients = call.server.clients.all();
    if let Some(primary) = Replication::of(call.server).link().and_then(|link| link.client()) {
        let at = clients.partition_point(|info| info.id < primary.id);
        clients.insert(at, primary);
    }
    clients
}

/// Describes a client in the line that the caller is shown.
fn describer(call: &Call<'_>) -> impl Fn(&ClientInfo) -> String + Send + use<> {
    let (server, now_ms) = (call.server, call.data.conditions.now_ms);
    let (caller, argument_bytes) =
        (call.client.info.id, call.args.iter().map(|arg| arg.len()).sum());
    move |info| {
        let asking = (info.id == caller).then_some(argument_bytes);
        client::describe::line(server, info, now_ms, asking)
    }
}

/// How many clients are described between two looks at the clock.
const LISTED_AT_ONCE: usize = 64;

/// `CLIENT KILL addr`, or with conditions. With conditions the reply is the number of clients.
fn kill(call: &mut Call<'_>) -> Outcome {
    let clients = all(call);
    if let [_, _, address] = call.args {
        let Some(info) = clients.iter().find(|info| info.peer.as_bytes() == *address) else {
            return Err("ERR No such client".into());
        };
        end(call, info);
        call.reply.ok();
        return Ok(());
    }
    let filter = Filter::parse(call, 2, true)?;
    let mut count = 0;
    for info in &clients {
        if !info.kill.load(Ordering::Relaxed) && filter.matches(call, info) {
            end(call, info);
            count += 1;
        }
    }
    call.reply.integer(count);
    Ok(())
}

/// Closes a client: at once, or after the reply if it is the caller.
fn end(call: &mut Call<'_>, info: &Arc<ClientInfo>) {
    if info.id == call.client.info.id {
        call.client.close();
    } else if info.has(ClientFlag::PRIMARY) {
        if let Some(link) = Replication::of(call.server).link() {
            link.cut();
        }
    } else {
        client::kill(call.server, info);
    }
}

/// `CLIENT PAUSE timeout [WRITE | ALL]`. The caller holds the gate.
fn pause(call: &mut Call<'_>) -> Outcome {
    // As in Valkey, a mode is ignored if more words follow it.
    let all = match call.args {
        [_, _, _, mode] if mode.eq_ignore_ascii_case(b"write") => false,
        [_, _, _, mode] if mode.eq_ignore_ascii_case(b"all") => true,
        [_, _, _, _] => return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".into()),
        _ => true,
    };
    let Some(timeout_ms) = bobbin_resp::parse_i64(call.args[2]) else {
        return Err("ERR timeout is not an integer or out of range".into());
    };
    if timeout_ms < 0 {
        return Err("ERR timeout is negative".into());
    }
    let now_ms = call.data.conditions.now_ms;
    let Some(until_ms) = now_ms.checked_add(timeout_ms) else {
        return Err("ERR timeout is out of range".into());
    };
    call.server.pause_clients(PauseReason::Command, until_ms, all, now_ms);
    call.data.conditions.may_expire = call.server.may_expire(now_ms);
    call.reply.ok();
    Ok(())
}

fn unpause(call: &mut Call<'_>) -> Outcome {
    call.server.unpause_clients(PauseReason::Command);
    call.data.conditions.may_expire = call.server.may_expire(call.data.conditions.now_ms);
    call.reply.ok();
    Ok(())
}

/// `CLIENT UNBLOCK id [TIMEOUT | ERROR]`.
fn unblock(call: &mut Call<'_>) -> Outcome {
    // As in Valkey, a reason is ignored if more words follow it.
    let has_reason = call.args.len() == 4;
    let with_error = has_reason && call.word_is(3, "error");
    if has_reason && !with_error && !call.word_is(3, "timeout") {
        return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".into());
    }
    let id = u64::try_from(call.integer(2)?).unwrap_or(0);
    let waiter = call.server.waiters.of_client(id);
    let unblocked = waiter.is_some_and(|waiter| waiter.unblock(call.server, with_error));
    call.reply.integer(i64::from(unblocked));
    Ok(())
}
