//! From a parsed request to its reply: the checks in Redis's order, the plan, the handler.

use std::sync::atomic::Ordering;

use bobbin_resp::Reply;
use bobbin_store::KeyHash;

use super::admission::{admit_after_wait, guard, wait_for_reserved};
use super::run::run;
use super::{monitor, rights, transaction};
use crate::base::clock::Interval;
use crate::engine::client::attempts::ScriptAttempts;
use crate::engine::client::protected::check_debug_allowed;
use crate::engine::client::{Client, ReplyMode};
use crate::engine::command::call::{Context, Request};
use crate::engine::command::plan::lone_key;
use crate::engine::command::{Call, Failure, Flags, KeyShape, Outcome, Registered, counting};
use crate::engine::script;
use crate::engine::server::{Server, Switch};

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The command ran. This is the subcommand if the request named one, not its container.
    Ran(&'static Registered),
    /// The command was queued and waits for EXEC.
    Queued,
    /// The request was answered with an error before the command ran.
    Refused,
    /// The request closed the connection without an answer.
    Dropped,
    /// The client has to wait and executes this command later. Nothing was answered.
    Postponed,
}

/// Executes one request and appends its reply, or an error, to `output`.
#[inline]
pub fn execute(
    context: &mut Context<'_>,
    client: &mut Client,
    request: Request<'_>,
    output: &mut Vec<u8>,
) -> RequestOutcome {
    let start = output.len();
    let outcome = match try_to_execute(context, client, &request, output) {
        Ok(outcome) => outcome,
        Err(Failure::Postponed) => {
            put_off(context, client, &request);
            RequestOutcome::Postponed
        }
        Err(failure) => {
            refuse(context, client, &request, failure, output);
            RequestOutcome::Refused
        }
    };
    if client.reply_mode != ReplyMode::On && outcome != RequestOutcome::Postponed {
        bobbin_resp::truncate_parts(context.parts, start);
        suppress(client, output, start);
    }
    outcome
}

#[inline]
fn try_to_execute(
    context: &mut Context<'_>,
    client: &mut Client,
    request: &Request<'_>,
    output: &mut Vec<u8>,
) -> Result<RequestOutcome, Failure> {
    let Some(command) = request.command else { return refuse_unknown(context, client, request) };
    let command = check(context, client, command, request, output)?;
    if let Some(transaction) = &mut client.transaction
        && !command.has(Flags::NOT_QUEUED)
    {
        client.info.command.store(command.id, Ordering::Relaxed);
        let flags = script::flags(context.server, command, request.args);
        transaction.queue(request, command, flags, &client.info);
        Reply::new(output, client.protocol).queued();
        return Ok(RequestOutcome::Queued);
    }
    if let Some(values) = command.row.values {
        context.data.prepare(values, request.args);
    }
    if command.shape == KeyShape::Specified {
        return run_planned(context, client, command, request, output);
    }
    hold(context, client, command, request)?;
    let hashes = match command.shape {
        KeyShape::First => &lone_key(request.first_hash)[..],
        KeyShape::None | KeyShape::Specified => &[],
    };
    run_held(context, client, command, request, hashes, output)
}

/// Makes the checks, in Redis's order. Returns the command, which is the subcommand if the request
/// names one.
#[inline(always)]
fn check(
    context: &mut Context<'_>,
    client: &mut Client,
    command: &'static Registered,
    request: &Request<'_>,
    output: &mut Vec<u8>,
) -> Result<&'static Registered, Failure> {
    let args = request.args;
    if !client.rights.is_open(&context.server.acl) {
        rights::check_request(context, client, request)?;
    }
    let command = command.of_words(args).ok_or_else(|| unknown_subcommand(command, args[1]))?;
    if !command.accepts(args.len()) {
        return Err(Failure::wrong_arity(command));
    }
    if command.has(Flags::NO_MULTI.with(Flags::PROTECTED)) && client.transaction.is_some() {
        check_in_transaction(context.server, client, command)?;
    }
    if client.only_listens() && !command.has(Flags::LISTENERS) {
        return Err(only_listens(context.server, command));
    }
    let switches = context.server.switches.load();
    if switches & Switch::GUARDED != 0 || !context.data.conditions.may_expire {
        guard(context, client, command, request, switches, output)?;
    }
    Ok(command)
}

/// Holds what a command needs that has at most one key, and checks it again if that took a wait.
#[inline(always)]
fn hold(
    context: &mut Context<'_>,
    client: &mut Client,
    command: &'static Registered,
    request: &Request<'_>,
) -> Outcome {
    let held = if command.has(Flags::GATE) {
        context.data.hold_gate()
    } else if command.shape == KeyShape::First {
        context.data.hold_one(request.first_hash.shard())
    } else {
        context.data.release();
        // A paused script or transaction has shards reserved. A walk would see its half-made
        // changes.
        !command.has(Flags::WALKS)
            || !command.has(Flags::READONLY)
            || !context.data.is_refused_everything()
    };
    if !held {
        return Err(wait_for_reserved(context.server, context.data, client));
    }
    if context.data.conditions.waited {
        admit_after_wait(context, client, command, request)?;
    }
    Ok(())
}

/// Holds the shards of a command that may have several keys, and runs it.
fn run_planned(
    context: &mut Context<'_>,
    client: &mut Client,
    command: &'static Registered,
    request: &Request<'_>,
    output: &mut Vec<u8>,
) -> Result<RequestOutcome, Failure> {
    if command.has(Flags::RUNS_SCRIPT) {
        context.data.release();
        return run_held(context, client, command, request, &[], output);
    }
    let data = &mut *context.data;
    let mut shards = std::mem::take(&mut data.shard_set);
    shards.clear();
    shards.add_alone(data, command, request);
    if client.database == 0 {
        shards.prefetch_buckets(data);
    }
    let outcome = if shards.hold(data) {
        shards.prefetch_entries(data, client.database, command.has(Flags::WRITE));
        let admitted = match context.data.conditions.waited {
            true => admit_after_wait(context, client, command, request),
            false => Ok(()),
        };
        admitted.and_then(|()| run_held(context, client, command, request, &shards.hashes, output))
    } else {
        Err(wait_for_reserved(context.server, context.data, client))
    };
    context.data.shard_set = shards;
    outcome
}

/// Runs a command whose shards are held.
#[inline(always)]
fn run_held(
    context: &mut Context<'_>,
    client: &mut Client,
    command: &'static Registered,
    request: &Request<'_>,
    hashes: &[KeyHash],
    output: &mut Vec<u8>,
) -> Result<RequestOutcome, Failure> {
    let mut call = Call {
        server: context.server,
        command,
        args: request.args,
        wire: request.wire,
        data: context.data,
        stats: context.stats,
        reply: Reply::with_parts(output, context.parts, client.protocol),
        client,
        hashes,
        in_transaction: false,
        may_leave_job: true,
    };
    run(&mut call)?;
    context.data.end_prepared();
    Ok(RequestOutcome::Ran(command))
}

/// Makes the client wait with a request that has done nothing.
#[cold]
fn put_off(context: &mut Context<'_>, client: &mut Client, request: &Request<'_>) {
    context.data.end_prepared();
    context.data.release();
    if let Some(command) = request.command.and_then(|command| command.of_words(request.args)) {
        client.note_command(command);
    }
    client.postpone(true);
}

/// Answers a request that was not executed with an error. If the client is in a transaction, the
/// transaction is spoiled.
#[cold]
fn refuse(
    context: &mut Context<'_>,
    client: &mut Client,
    request: &Request<'_>,
    failure: Failure,
    output: &mut Vec<u8>,
) {
    context.data.end_prepared();
    client.attempts = ScriptAttempts::default();
    // An unknown subcommand has no statistics of its own.
    let command = request.command.and_then(|command| command.of_words(request.args));
    match command {
        Some(command) => client.note_command(command),
        None => client.note_unknown_command(),
    }
    if let (Some(tracked), None) = (&mut client.tracking, &client.transaction) {
        tracked.caching = false;
    }
    let executes = |command: &&Registered| command.has(Flags::RUNS_TRANSACTION);
    let failure = if let Some(command) = request.command.filter(executes) {
        // Monitors have seen MULTI.
        if context.server.switches.has(Switch::MONITORED) {
            monitor::show_words(context.server, context.data, client, command, request.args);
        }
        transaction::abort(client, context.data);
        transaction::aborted(&failure)
    } else {
        transaction::spoil(client);
        failure
    };
    let text = failure.text().as_bytes();
    counting::rejected(context.server, context.stats, client, command, text);
    Reply::new(output, client.protocol).error(text);
}

/// Removes the answer of a client that asked for silence with CLIENT REPLY OFF or SKIP.
#[cold]
fn suppress(client: &mut Client, output: &mut Vec<u8>, start: usize) {
    output.truncate(start);
    if let Some(long) = &mut client.long_command {
        long.silence();
    }
    match client.reply_mode {
        ReplyMode::On | ReplyMode::Off => {}
        ReplyMode::SkipNext => client.reply_mode = ReplyMode::Skip,
        // The command still blocks. The end of its wait removes the reply.
        ReplyMode::Skip if client.blocked.is_some() => {}
        ReplyMode::Skip => client.reply_mode = ReplyMode::On,
    }
}

/// Refuses, within MULTI, the commands that must not even be queued.
#[cold]
fn check_in_transaction(server: &Server, client: &Client, command: &Registered) -> Outcome {
    if command.has(Flags::NO_MULTI) {
        let name = &command.full_name;
        let text = format!("ERR Command '{name}' not allowed inside a transaction");
        return Err(Failure::format(text));
    }
    check_debug_allowed(server, client)
}

/// Refuses an unknown command. If the request is a line of HTTP, the connection is closed, whatever
/// the client's rights: a web page made a browser send it.
#[cold]
fn refuse_unknown(
    context: &mut Context<'_>,
    client: &mut Client,
    request: &Request<'_>,
) -> Result<RequestOutcome, Failure> {
    static NOTED: Interval = Interval::new();
    let args = request.args;
    if !is_http(args[0]) {
        rights::check_request(context, client, request)?;
        return Err(unknown(args));
    }
    if NOTED.claim(context.data.conditions.now_ms, HTTP_NOTED_MS) {
        log::warn!(
            "Possible SECURITY ATTACK detected. A client sent a line of HTTP ({} {}); its connection is closed.",
            client.info.peer,
            String::from_utf8_lossy(args[0]),
        );
    }
    client.close();
    client.discard = true;
    Ok(RequestOutcome::Dropped)
}

/// The shortest time between two warnings about lines of HTTP.
const HTTP_NOTED_MS: i64 = 60_000;

/// Whether a command's name is that of a line of HTTP. Then a web page made somebody's browser
/// connect to this server, and the server would take the rest of the request for commands.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// Names the unknown command and the beginning of its arguments, as Redis does.
#[cold]
fn unknown(args: &[&[u8]]) -> Failure {
    const SHOWN_MAX: usize = 128;
    let name = String::from_utf8_lossy(&args[0][..args[0].len().min(SHOWN_MAX)]).into_owned();
    let mut shown = String::new();
    for arg in &args[1..] {
        if shown.len() >= SHOWN_MAX {
            break;
        }
        let arg = &arg[..arg.len().min(SHOWN_MAX - shown.len())];
        shown.push_str(&format!("'{}' ", String::from_utf8_lossy(arg)));
    }
    Failure::format(format!("ERR unknown command '{name}', with args beginning with: {shown}"))
}

#[cold]
fn only_listens(server: &Server, command: &Registered) -> Failure {
    if command.has(Flags::WRITE) && server.is_read_only() {
        return Failure::READONLY;
    }
    let name = &command.full_name;
    Failure::format(format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
         allowed in this context"
    ))
}

#[cold]
fn unknown_subcommand(command: &Registered, name: &[u8]) -> Failure {
    let name = String::from_utf8_lossy(&name[..name.len().min(128)]);
    let upper = command.row.name.to_ascii_uppercase();
    Failure::format(format!("ERR unknown subcommand '{name}'. Try {upper} HELP."))
}
