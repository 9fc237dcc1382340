//! What a connection knows of its rights, and the check of each command.

use std::sync::Arc;

use super::check::{Asked, Denied};
use super::log::{AclEvent, Scene};
use super::user::User;
use crate::engine::acl;
use crate::engine::blocking::Waiter;
use crate::engine::client::{Client, ClientInfo};
use crate::engine::command::call::{Context, Request};
use crate::engine::command::{Call, Failure, Flags, Registered};
use crate::engine::server::Server;

/// Who a client is.
#[derive(Clone)]
pub struct Rights {
    /// `None`: the server itself, which may do everything.
    user: Option<Arc<User>>,
    /// Whether it may do more than say who it is.
    pub authenticated: bool,
    /// The epoch in which it may do everything without further questions; 0: none.
    open_epoch: u32,
    /// The epoch that `user` is of.
    epoch: u32,
    /// The client that a script's commands are run for.
    on_behalf_of: Option<Arc<ClientInfo>>,
}

impl Rights {
    /// Of a new connection.
    pub fn new(server: &Server) -> Self {
        // In this order: the user may change meanwhile, and is looked up again if the epoch is an
        // old one.
        let epoch = server.acl.epoch();
        let user = server.acl.default_user();
        let authenticated = user.needs_no_password();
        Self { authenticated, epoch, ..Self::of_user(server, user) }
    }

    /// Of a client that has said who it is.
    pub fn of_user(server: &Server, user: Arc<User>) -> Self {
        let epoch = server.acl.epoch();
        Self { user: Some(user), authenticated: true, open_epoch: 0, epoch, on_behalf_of: None }
    }

    /// Of the server itself.
    pub const fn unlimited() -> Self {
        Self { user: None, authenticated: true, open_epoch: 0, epoch: 0, on_behalf_of: None }
    }

    /// Whether nothing needs to be checked.
    #[inline(always)]
    pub fn is_open(&self, server: &Server) -> bool {
        self.open_epoch == server.acl.epoch()
    }

    /// Whether rules have changed since it was last looked at.
    pub fn is_outdated(&self, server: &Server) -> bool {
        self.epoch != server.acl.epoch()
    }

    pub fn user(&self) -> Option<&Arc<User>> {
        self.user.as_ref()
    }

    /// A script's client acts for another.
    #[inline]
    pub fn act_for(&mut self, client: &Client, server: &Server) {
        let other = &client.rights;
        let is_same = match (&self.user, &other.user) {
            (Some(user), Some(other)) => Arc::ptr_eq(user, other),
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            self.user.clone_from(&other.user);
        }
        self.authenticated = other.authenticated;
        (self.open_epoch, self.epoch) = (other.open_epoch, other.epoch);
        if !other.is_open(server) {
            let info = other.on_behalf_of.as_ref().unwrap_or(&client.info);
            self.on_behalf_of = Some(Arc::clone(info));
        } else if self.on_behalf_of.is_some() {
            self.on_behalf_of = None;
        }
    }

    /// Takes up what has changed. `false`: the user is no more.
    fn refresh(&mut self, server: &Server) -> bool {
        let epoch = server.acl.epoch();
        if self.epoch != epoch {
            if let Some(user) = &mut self.user {
                match server.acl.renewed(user) {
                    Some(renewed) => *user = renewed,
                    None => return false,
                }
            }
            self.epoch = epoch;
        }
        let may_enter = self.authenticated || !server.acl.demands_password();
        let is_unlimited = self.user.as_ref().is_none_or(|user| user.is_unlimited());
        self.open_epoch = if may_enter && is_unlimited { epoch } else { 0 };
        true
    }
}

/// Checks a request of a client whose rights are not open. What is no command, or not called as
/// one, is left to the checks that follow.
#[cold]
pub fn admit(
    context: &mut Context<'_>,
    client: &mut Client,
    request: &Request<'_>,
) -> Result<(), Failure> {
    let server = context.server;
    if !client.rights.refresh(server) {
        client.close();
        return Err(Failure::NOT_AUTHENTICATED);
    }
    if client.rights.is_open(server) {
        return Ok(());
    }
    let free = request.command.is_some_and(|command| command.has(Flags::NO_AUTH));
    if !free && !client.rights.authenticated && server.acl.demands_password() {
        return Err(Failure::NOT_AUTHENTICATED);
    }
    let (Some(command), args) = (request.command, request.args) else { return Ok(()) };
    let command = match args.get(1).filter(|_| !command.subcommands.is_empty()) {
        None => command,
        Some(name) => match command.subcommand(name) {
            Some(subcommand) => subcommand,
            None => return Ok(()),
        },
    };
    let in_transaction = client.transaction.is_some();
    if !command.accepts(args.len()) || in_transaction && command.has(Flags::NO_MULTI) {
        return Ok(());
    }
    if command.has(Flags::PROTECTED) {
        // What no client may do is told before what this one may not.
        acl::check_debug_allowed(server, client)?;
    }
    let scene = if in_transaction { Scene::Multi } else { Scene::Toplevel };
    // The log shows what the client is at.
    client.ran(command);
    check(server, client, command, args, scene, context.data.turn.now_ms)
        .map_err(|denied| denied.failure(client, command))
}

/// Checks a queued command that is about to run, with all that it needs held: the rules, or the
/// selected database, may be others than when it was queued.
#[cold]
pub fn admit_queued(
    call: &mut Call<'_>,
    command: &Registered,
    args: &[&[u8]],
) -> Result<(), Failure> {
    if !call.client.rights.refresh(call.server) {
        call.client.close();
        return Err(Failure::NOT_AUTHENTICATED);
    }
    check(call.server, call.client, command, args, Scene::Multi, call.data.turn.now_ms)
        .map_err(Denied::too_late)
}

/// Checks a script's command.
#[cold]
pub fn admit_script(
    server: &Server,
    client: &mut Client,
    command: &Registered,
    args: &[&[u8]],
    now_ms: i64,
) -> Result<(), Failure> {
    if !client.rights.refresh(server) {
        return Err("ERR ACL failure in script: the user was deleted".into());
    }
    let checked = check(server, client, command, args, Scene::Script, now_ms);
    checked.map_err(|denied| {
        let text = client.rights.user.as_ref().map(|user| denied.text(user, command, None));
        Failure::format(format!("ERR ACL failure in script: {}", text.unwrap_or_default()))
    })
}

/// Checks a blocked command that is about to be served, in an epoch later than that in which it was
/// blocked.
#[cold]
pub fn admit_waiter(server: &Server, waiter: &Waiter, now_ms: i64) -> Result<(), Failure> {
    let Some(user) = waiter.client.user() else { return Ok(()) };
    let Some(user) = server.acl.renewed(&user) else { return Err(Failure::NOT_AUTHENTICATED) };
    let args: Vec<&[u8]> = waiter.args.iter().map(|arg| &**arg).collect();
    let asked = asked(server, waiter.command, &args, waiter.database);
    user.check(&asked).map_err(|denied| {
        let event = event(denied, Scene::Toplevel, waiter.command, &args, &user);
        server.note_denied(&waiter.client, event, now_ms);
        Failure::format(format!("NOPERM {}", denied.text(&user, waiter.command, None)))
    })
}

/// Whether a script's client may run a command with these words, for `acl_check_cmd`.
pub fn may_call(
    server: &Server,
    client: &mut Client,
    command: &Registered,
    args: &[&[u8]],
) -> bool {
    if client.rights.is_open(server) {
        return true;
    }
    let known = client.rights.refresh(server);
    let user = client.rights.user.as_ref();
    known
        && user
            .is_none_or(|user| user.check(&asked(server, command, args, client.database)).is_ok())
}

/// Makes a client another user's.
pub fn log_in(server: &Server, client: &mut Client, user: Arc<User>) {
    client.info.names().user = Some(Arc::clone(&user));
    client.change_rights(Rights::of_user(server, user));
}

/// Whether the command's client may read any key whatever: for commands that do not name what they
/// read.
pub fn may_read_all(call: &Call<'_>) -> bool {
    let Some(user) = call.client.rights.user.as_ref() else { return true };
    if call.client.rights.is_open(call.server) {
        return true;
    }
    user.may_read_all(&asked(call.server, call.command, call.args, call.client.database))
}

fn asked<'a>(
    server: &Server,
    command: &'a Registered,
    args: &'a [&'a [u8]],
    database: u32,
) -> Asked<'a> {
    Asked { command, args, database, databases: server.config.databases() as u32 }
}

/// The check itself; a refusal is counted and logged.
fn check(
    server: &Server,
    client: &Client,
    command: &Registered,
    args: &[&[u8]],
    scene: Scene,
    now_ms: i64,
) -> Result<(), Denied> {
    let Some(user) = client.rights.user.as_ref() else { return Ok(()) };
    let queued = client.transaction.as_ref().and_then(|transaction| transaction.database());
    let database = queued.unwrap_or(client.database);
    user.check(&asked(server, command, args, database)).inspect_err(|denied| {
        let info = client.rights.on_behalf_of.as_ref().unwrap_or(&client.info);
        let event = event(*denied, scene, command, args, user);
        server.note_denied(info, event, now_ms);
    })
}

fn event(
    denied: Denied,
    context: Scene,
    command: &Registered,
    args: &[&[u8]],
    user: &User,
) -> AclEvent {
    let object = match denied.at {
        0 => command.full_name.as_bytes(),
        at => args[at],
    };
    AclEvent::new(denied.reason, context, object, &user.name)
}

impl Denied {
    fn failure(self, client: &Client, command: &Registered) -> Failure {
        let user = client.rights.user.as_ref();
        let text = user.map(|user| self.text(user, command, None)).unwrap_or_default();
        Failure::format(format!("NOPERM {text}"))
    }
}
