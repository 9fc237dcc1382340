//! Commands about the connection itself: which user it has, what it speaks, which database it uses.

use std::sync::atomic::Ordering;

use bobbin_resp::Protocol;

use super::pubsub;
use crate::engine::acl::check::Reason;
use crate::engine::acl::log::{AclEvent, Scene};
use crate::engine::acl::{DEFAULT_USER, Rights};
use crate::engine::client::name::{checked_name, set_name};
use crate::engine::client::{ReplyMode, monitors};
use crate::engine::clients::ClientFlag;
use crate::engine::command::{Call, Categories, Command, DatabaseUse, Failure, Flags, Outcome};
use crate::engine::execution::transaction;
use crate::engine::server::Switch;
use crate::engine::tracking;

fn ping(call: &mut Call<'_>) -> Outcome {
    match call.args {
        [_] | [_, _] if call.client.only_listens() => {
            call.reply.array(2);
            call.reply.bulk(b"pong");
            call.reply.bulk(call.args.get(1).copied().unwrap_or_default());
        }
        [_] => call.reply.simple("PONG"),
        [_, message] => give_back(call, message),
        _ => return Err(Failure::wrong_arity(call.command)),
    }
    Ok(())
}

fn echo(call: &mut Call<'_>) -> Outcome {
    give_back(call, call.args[1]);
    Ok(())
}

/// Replies with an argument. A large one is not copied.
fn give_back(call: &mut Call<'_>, argument: &[u8]) {
    match call.data.offered(argument) {
        Some(shared) => call.reply.bulk_shared(&shared),
        None => call.reply.bulk(argument),
    }
}

fn quit(call: &mut Call<'_>) -> Outcome {
    call.client.close();
    // Before any client can see the answer: from then on it hears of nothing.
    call.client.info.gone.store(true, Ordering::Release);
    call.reply.ok();
    Ok(())
}

/// Resets the client's state to that of a new connection. It keeps its id, its library's name and
/// its capabilities.
fn reset(call: &mut Call<'_>) -> Outcome {
    monitors::leave(call.server, &call.client.info);
    call.data.release();
    transaction::end(call);
    pubsub::leave_all(call);
    tracking::disable(call.server, call.client);
    let client = &mut call.client;
    client.select(0);
    client.set_protocol(Protocol::Resp2);
    client.info.names().name = Box::default();
    client.set_no_evict(false);
    client.set_no_touch(false);
    client.info.flag(ClientFlag::READONLY | ClientFlag::IMPORT_SOURCE, false);
    // CLIENT REPLY SKIP skips the reply of RESET.
    if client.reply_mode == ReplyMode::Off {
        client.reply_mode = ReplyMode::On;
    }
    client.become_newcomer(Rights::new(&call.server.acl));
    call.reply.simple("RESET");
    Ok(())
}

fn select(call: &mut Call<'_>) -> Outcome {
    let number = call.integer(1)?;
    let Ok(number) = i32::try_from(number) else {
        return Err(
            "ERR value is out of range, value must between -2147483648 and 2147483647".into()
        );
    };
    let database = u32::try_from(number).ok();
    let count = call.server.config.databases();
    let Some(database) = database.filter(|database| i64::from(*database) < count) else {
        return Err("ERR DB index is out of range".into());
    };
    call.client.select(database);
    call.reply.ok();
    Ok(())
}

fn auth(call: &mut Call<'_>) -> Outcome {
    let (user, password) = match call.args {
        [_, _] if call.server.acl.default_user().has_no_password() => {
            return Err("ERR AUTH <password> called without any password configured for the \
                        default user. Are you sure your configuration is correct?"
                .into());
        }
        [_, password] => (DEFAULT_USER, *password),
        [_, user, password] => (*user, *password),
        _ => return Err(Failure::SYNTAX),
    };
    authenticate(call, user, password)?;
    call.reply.ok();
    Ok(())
}

/// `HELLO [protover [AUTH username password] [SETNAME clientname]]`. It succeeds or fails as a
/// whole.
fn hello(call: &mut Call<'_>) -> Outcome {
    let mut protocol = None;
    if let Some(word) = call.args.get(1) {
        let number = bobbin_resp::parse_i64(word);
        let number = number.ok_or("ERR Protocol version is not an integer or out of range")?;
        protocol = Some(match number {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => return Err("NOPROTO unsupported protocol version".into()),
        });
    }
    let mut credentials = None;
    let mut name = None;
    let mut rest = call.args.get(2..).unwrap_or_default();
    while let [option, words @ ..] = rest {
        rest = match words {
            [user, password, rest @ ..] if option.eq_ignore_ascii_case(b"auth") => {
                credentials = Some((*user, *password));
                rest
            }
            [word, rest @ ..] if option.eq_ignore_ascii_case(b"setname") => {
                name = Some(checked_name(word)?);
                rest
            }
            _ => {
                let option = String::from_utf8_lossy(option);
                let text = format!("ERR Syntax error in HELLO option '{option}'");
                return Err(Failure::format(text));
            }
        };
    }
    if let Some((user, password)) = credentials {
        authenticate(call, user, password)?;
    }
    if !call.client.rights.authenticated && call.server.acl.demands_password() {
        return Err(NOT_AUTHENTICATED);
    }
    if let Some(name) = name {
        set_name(call, name);
    }
    if let Some(protocol) = protocol {
        call.client.set_protocol(protocol);
    }
    let is_replica = call.server.switches.has(Switch::REPLICA);
    let output = call.reply.output();
    let mut reply = bobbin_resp::Reply::new(output, call.client.protocol);
    let zone = call.server.config.availability_zone();
    let (name, version) = call.server.config.hello();
    reply.map(7 + usize::from(!zone.is_empty()));
    reply.bulk(b"server");
    reply.bulk(name.as_bytes());
    reply.bulk(b"version");
    reply.bulk(&version);
    reply.bulk(b"proto");
    reply.integer(i64::from(call.client.protocol.number()));
    reply.bulk(b"id");
    reply.integer(call.client.info.id as i64);
    reply.bulk(b"mode");
    reply.bulk(b"standalone");
    reply.bulk(b"role");
    reply.bulk(if is_replica { b"replica" } else { b"master" });
    reply.bulk(b"modules");
    list_modules(&mut reply);
    if !zone.is_empty() {
        reply.bulk(b"availability_zone");
        reply.bulk(&zone);
    }
    Ok(())
}

/// The loaded modules: Lua is one, as in Valkey.
pub fn list_modules(reply: &mut bobbin_resp::Reply<'_>) {
    reply.array(1);
    reply.map(4);
    reply.bulk(b"name");
    reply.bulk(b"lua");
    reply.bulk(b"ver");
    reply.integer(1);
    reply.bulk(b"path");
    reply.bulk(b"lua");
    reply.bulk(b"args");
    reply.empty_array();
}

fn authenticate(call: &mut Call<'_>, user: &[u8], password: &[u8]) -> Outcome {
    if let Some(user) = call.server.acl.log_in(user, password) {
        call.client.log_in(&call.server.acl, user);
        return Ok(());
    }
    let scene = if call.in_transaction { Scene::Multi } else { Scene::Toplevel };
    let event = AclEvent::new(Reason::Password, scene, call.args[0], user);
    call.server.note_denied(&call.client.info, event, call.data.conditions.now_ms);
    Err("WRONGPASS invalid username-password pair or user is disabled.".into())
}

const NOT_AUTHENTICATED: Failure = Failure::new(
    &"NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
     AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
     version at the same time",
);

const ANYTIME: Flags = Flags::LOADING.with(Flags::STALE).with(Flags::FAST);
const UNAUTHENTICATED: Flags =
    ANYTIME.with(Flags::NOSCRIPT).with(Flags::NO_AUTH).with(Flags::ALLOW_BUSY);

pub(super) const COMMANDS: &[Command] = &[
    Command::new("ping", -1, ping)
        .flags(Flags::FAST.with(Flags::LISTENERS))
        .categories(Categories::CONNECTION)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .doc("connection", "1.0.0", "O(1)", "Answers PONG, or the message.")
        .syntax("[message]"),
    Command::new("echo", 2, echo)
        .flags(ANYTIME)
        .categories(Categories::CONNECTION)
        .doc("connection", "1.0.0", "O(1)", "Answers the message.")
        .syntax("message"),
    Command::new("quit", -1, quit)
        .flags(UNAUTHENTICATED.with(Flags::NOT_QUEUED).with(Flags::LISTENERS))
        .categories(Categories::CONNECTION)
        .doc("connection", "1.0.0", "O(1)", "Ends the connection."),
    Command::new("reset", 1, reset)
        .flags(UNAUTHENTICATED.with(Flags::NOT_QUEUED).with(Flags::LISTENERS))
        .categories(Categories::CONNECTION)
        .doc("connection", "6.2.0", "O(1)", "Makes the connection as it was when it began."),
    Command::new("auth", -2, auth)
        .flags(UNAUTHENTICATED)
        .categories(Categories::CONNECTION)
        .doc(
            "connection",
            "1.0.0",
            "O(N), N: passwords of the user",
            "Says who the client is, by a password.",
        )
        .history(&[("6.0.0", "Takes a user's name too.")])
        .syntax("[username @6.0.0] password"),
    Command::new("hello", -1, hello)
        .flags(UNAUTHENTICATED)
        .categories(Categories::CONNECTION)
        .doc(
            "connection",
            "6.0.0",
            "O(1)",
            "Chooses the protocol version, and tells about the server and the connection.",
        )
        .history(&[
            ("8.1.0", "Tells the `availability_zone` when one is configured."),
            ("6.2.0", "Can be called without `protover`, which then stays what it is."),
        ])
        .syntax("[protover:int [AUTH username password] [SETNAME clientname]] :arguments"),
    Command::new("select", 2, select)
        .flags(ANYTIME.with(Flags::ALLOW_BUSY).with(Flags::SELECTS))
        .categories(Categories::CONNECTION)
        .databases(DatabaseUse::Named(|_, found| found(1)))
        .doc("connection", "1.0.0", "O(1)", "Chooses the database that commands work on.")
        .syntax("index:int"),
];
