//! Whether a client may run a command, by its user's rights.

use crate::engine::acl::check::{Asked, Denied};
use crate::engine::acl::log::Scene;
use crate::engine::client::Client;
use crate::engine::client::protected::check_debug_allowed;
use crate::engine::command::call::{Context, Request};
use crate::engine::command::{Call, Failure, Flags, Registered};
use crate::engine::server::Server;

/// Checks the rights of a client whose rights are not open. Unknown commands and wrong numbers of
/// arguments pass: later checks refuse them.
#[cold]
pub fn admit(
    context: &mut Context<'_>,
    client: &mut Client,
    request: &Request<'_>,
) -> Result<(), Failure> {
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
    let scene = if in_transaction { Scene::Multi } else { Scene::Toplevel };
    // ACL LOG shows the command that the client runs, so the command is noted first.
    client.note_command(command);
    check(server, client, command, args, scene, context.data.turn.now_ms)
        .map_err(|denied| failure(denied, client, command))
}

/// Checks a queued command just before it runs, with its locks held. The user's rules or the
/// selected database may have changed since the command was queued.
#[cold]
pub fn admit_queued(
    call: &mut Call<'_>,
    command: &Registered,
    args: &[&[u8]],
) -> Result<(), Failure> {
    renew(call.server, call.client)?;
    check(call.server, call.client, command, args, Scene::Multi, call.data.turn.now_ms)
        .map_err(Denied::too_late)
}

/// Checks the rights for a long command again, before it changes anything.
#[cold]
pub fn admit_late(
    server: &Server,
    client: &mut Client,
    command: &Registered,
    args: &[&[u8]],
    now_ms: i64,
) -> Result<(), Failure> {
    renew(server, client)?;
    check(server, client, command, args, Scene::Toplevel, now_ms)
        .map_err(|denied| failure(denied, client, command))
}

/// Checks a command that a script calls.
#[cold]
pub fn admit_script(
    server: &Server,
    client: &mut Client,
    command: &Registered,
    args: &[&[u8]],
    now_ms: i64,
) -> Result<(), Failure> {
    if !client.rights.refresh(&server.acl) {
        return Err("ERR ACL failure in script: the user was deleted".into());
    }
    let checked = check(server, client, command, args, Scene::Script, now_ms);
    checked.map_err(|denied| {
        let text = client.rights.user().map(|user| denied.text(user, command, None));
        Failure::format(format!("ERR ACL failure in script: {}", text.unwrap_or_default()))
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
fn renew(server: &Server, client: &mut Client) -> Result<(), Failure> {
    if client.rights.refresh(&server.acl) {
        return Ok(());
    }
    client.close();
    Err(Failure::NOT_AUTHENTICATED)
}

/// Checks a command against the user's rules. A refusal is counted and logged.
fn check(
    server: &Server,
    client: &Client,
    command: &Registered,
    args: &[&[u8]],
    scene: Scene,
    now_ms: i64,
) -> Result<(), Denied> {
    let Some(user) = client.rights.user() else { return Ok(()) };
    let queued = client.transaction.as_ref().and_then(|transaction| transaction.database());
    let database = queued.unwrap_or(client.database);
    user.check(&Asked::new(command, args, database, &server.config)).inspect_err(|denied| {
        let info = client.on_behalf_of.as_ref().unwrap_or(&client.info);
        let event = denied.event(scene, command, args, user);
        server.note_denied(info, event, now_ms);
    })
}

/// The error that the client gets.
fn failure(denied: Denied, client: &Client, command: &Registered) -> Failure {
    let text = client.rights.user().map(|user| denied.text(user, command, None));
    Failure::format(format!("NOPERM {}", text.unwrap_or_default()))
}
