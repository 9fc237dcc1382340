//! Whether a client may run a command, by its user's rights.

use super::admission::check_spectator;
use crate::engine::acl::check::Asked;
use crate::engine::acl::log::Scene;
use crate::engine::client::Client;
use crate::engine::client::protected::check_debug_allowed;
use crate::engine::command::call::{Context, Request};
use crate::engine::command::{Call, Failure, Flags, Outcome, Registered};
use crate::engine::server::Server;

/// On whose order a command runs.
#[derive(Clone, Copy)]
pub enum Caller {
    Client,
    /// EXEC, which runs what the client queued before.
    Exec,
    Script,
}

/// Checks the rights of a client whose rights are not open, and what else that client may not do.
/// Unknown commands and wrong numbers of
/// arguments pass: later checks refuse them.
#[cold]
pub fn check_request(
    context: &mut Context<'_>,
    client: &mut Client,
    request: &Request<'_>,
) -> Outcome {
    let server = context.server;
    renew(server, client)?;
    if client.rights.is_open(&server.acl) {
        return Ok(());
    }
    let free = request.command.is_some_and(|command| command.has(Flags::NO_AUTH));
    if !free && !client.rights.authenticated && server.acl.demands_password() {
        return Err(Failure::NOT_AUTHENTICATED);
    }
    let (Some(command), args) = (request.command, request.args) else { return Ok(()) };
    let Some(command) = command.of_words(args) else { return Ok(()) };
    let in_transaction = client.transaction.is_some();
    if !command.accepts(args.len()) || in_transaction && command.has(Flags::NO_MULTI) {
        return Ok(());
    }
    if command.has(Flags::PROTECTED) {
        // A command that no client may run is refused before the user's rights are checked.
        check_debug_allowed(server, client)?;
    }
    // ACL LOG shows the command that the client runs, so the command is noted first.
    client.note_command(command);
    check(server, client, command, args, Caller::Client, context.data.conditions.now_ms)?;
    check_spectator(server, client, command, args)
}

/// Checks a command by the current rules of the user. A refusal is counted and logged.
#[cold]
pub fn check(
    server: &Server,
    client: &mut Client,
    command: &Registered,
    args: &[&[u8]],
    caller: Caller,
    now_ms: i64,
) -> Outcome {
    match caller {
        Caller::Client | Caller::Exec => renew(server, client)?,
        Caller::Script if client.rights.refresh(&server.acl) => {}
        Caller::Script => return Err("ERR ACL failure in script: the user was deleted".into()),
    }
    let Some(user) = client.rights.user() else { return Ok(()) };
    let queued = client.transaction.as_ref().and_then(|transaction| transaction.database());
    let database = queued.unwrap_or(client.database);
    let Err(denied) = user.check(&Asked::new(command, args, database, &server.config)) else {
        return Ok(());
    };
    let scene = match caller {
        Caller::Client if client.transaction.is_none() => Scene::Toplevel,
        Caller::Client | Caller::Exec => Scene::Multi,
        Caller::Script => Scene::Script,
    };
    let info = client.on_behalf_of.as_ref().unwrap_or(&client.info);
    server.note_denied(info, denied.event(scene, command, args, user), now_ms);
    let text = || denied.text(user, command, None);
    Err(match caller {
        Caller::Client => Failure::format(format!("NOPERM {}", text())),
        Caller::Exec => denied.too_late(),
        Caller::Script => Failure::format(format!("ERR ACL failure in script: {}", text())),
    })
}

/// Whether the client of a script may run a command with these words. For `redis.acl_check_cmd`.
pub fn may_call(
    server: &Server,
    client: &mut Client,
    command: &Registered,
    args: &[&[u8]],
) -> bool {
    if client.rights.is_open(&server.acl) {
        return true;
    }
    let known = client.rights.refresh(&server.acl);
    let user = client.rights.user();
    known
        && user.is_none_or(|user| {
            user.check(&Asked::new(command, args, client.database, &server.config)).is_ok()
        })
}

/// Whether the command's client may read every key. For commands that read keys that they do not
/// name.
pub fn may_read_all(call: &Call<'_>) -> bool {
    let Some(user) = call.client.rights.user() else { return true };
    if call.client.rights.is_open(&call.server.acl) {
        return true;
    }
    user.may_read_all(&Asked::new(
        call.command,
        call.args,
        call.client.database,
        &call.server.config,
    ))
}

/// Applies the current rules to the client. A client whose user was deleted is closed.
fn renew(server: &Server, client: &mut Client) -> Outcome {
    if client.rights.refresh(&server.acl) {
        return Ok(());
    }
    client.close();
    Err(Failure::NOT_AUTHENTICATED)
}
