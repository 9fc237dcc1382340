//! The `redis` table (and `server`, the same by another name): what scripts call the server by.

use std::ffi::c_int;
use std::sync::OnceLock;

use mlua_sys as lua;
use sha1::{Digest, Sha1};

use crate::convert;
use crate::host::{Called, Level};
use crate::shebang::ScriptFlags;
use crate::state::budget::{NO_MEMORY, Output};
use crate::state::raw::{
    LUA_TFUNCTION, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, Raise, Returned, Stack, lua_function,
};
use crate::state::{CallBuffers, Chunk, Registration};

/// Which code finds the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ApiCaller {
    Scripts,
    Functions,
    /// A library's code while it is loaded.
    Loading,
}

/// Pushes the table.
pub(crate) fn push_table(stack: Stack, audience: ApiCaller) {
    type Functions = &'static [(&'static str, crate::state::raw::lua_CFunction)];
    const RUNNING: Functions = &[
        ("call", call),
        ("pcall", pcall),
        ("sha1hex", sha1hex),
        ("error_reply", error_reply),
        ("status_reply", status_reply),
        ("setresp", setresp),
        ("set_repl", set_repl),
        ("acl_check_cmd", acl_check_cmd),
    ];
    const SCRIPTS: Functions =
        &[("replicate_commands", replicate_commands), ("breakpoint", breakpoint), ("debug", debug)];
    const LOADING: Functions = &[("register_function", register_function)];
    stack.push_table(0, 32);
    let table = stack.top();
    let functions: &[Functions] = match audience {
        ApiCaller::Scripts => &[RUNNING, SCRIPTS],
        ApiCaller::Functions => &[RUNNING],
        ApiCaller::Loading => &[LOADING],
    };
    for (name, function) in functions.iter().flat_map(|functions| functions.iter()) {
        stack.push_function(*function);
        stack.set_field(table, name.as_bytes());
    }
    stack.push_function(log);
    stack.set_field(table, b"log");
    for (name, value) in [
        ("LOG_DEBUG", 0),
        ("LOG_VERBOSE", 1),
        ("LOG_NOTICE", 2),
        ("LOG_WARNING", 3),
        ("REPL_NONE", 0),
        ("REPL_AOF", 1),
        ("REPL_REPLICA", 2),
        ("REPL_SLAVE", 2),
        ("REPL_ALL", 3),
        ("REDIS_VERSION_NUM", version_number(redis_version())),
        ("VALKEY_VERSION_NUM", version_number(VALKEY_VERSION)),
    ] {
        stack.push_number(f64::from(value));
        stack.set_field(table, name.as_bytes());
    }
    let text = |[major, minor, patch]: [u8; 3]| format!("{major}.{minor}.{patch}");
    for (name, value) in [
        ("REDIS_VERSION", text(redis_version())),
        ("VALKEY_VERSION", text(VALKEY_VERSION)),
        ("SERVER_NAME", "valkey".to_owned()),
    ] {
        stack.push_bytes(value.as_bytes());
        stack.set_field(table, name.as_bytes());
    }
}

/// Says which version of Redis scripts are told, of all states that are made afterwards; the first
/// call counts.
pub fn choose_redis_version(version: [u8; 3]) {
    REDIS_VERSION.get_or_init(|| version);
}

fn redis_version() -> [u8; 3] {
    *REDIS_VERSION.get_or_init(|| [7, 4, 0])
}

static REDIS_VERSION: OnceLock<[u8; 3]> = OnceLock::new();
/// Whose scripts run here unchanged.
const VALKEY_VERSION: [u8; 3] = [9, 1, 2];

fn version_number([major, minor, patch]: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, major, minor, patch])
}

lua_function!(call, call_raising);
lua_function!(pcall, call_catching);
lua_function!(log, write_log);
lua_function!(sha1hex, hash);
lua_function!(error_reply, make_error);
lua_function!(status_reply, make_status);
lua_function!(setresp, choose_protocol);
lua_function!(set_repl, choose_replication);
lua_function!(acl_check_cmd, check_command);
lua_function!(replicate_commands, accept);
lua_function!(breakpoint, refuse_breakpoint);
lua_function!(debug, ignore);
lua_function!(register_function, register);

fn call_raising(stack: Stack) -> Returned {
    run_command(stack, true)
}

fn call_catching(stack: Stack) -> Returned {
    run_command(stack, false)
}

/// `redis.call` and `pcall`: the arguments are a command; what it replied becomes a value.
fn run_command(stack: Stack, raising: bool) -> Returned {
    let core = stack.core();
    if core.is_stopping() {
        return Err(core.stop(stack, ""));
    }
    core.charge(stack, CALL_STEPS)?;
    let mut buffers = core.take_buffers();
    let outcome = match take_arguments(stack, &mut buffers) {
        Ok(()) => {
            let called = carry_out(stack, &mut buffers);
            if called == Called::Late {
                core.end_steps();
            }
            match called {
                Called::Replied | Called::Late => {
                    // As many arguments as there can be leave no room for the reply.
                    stack.set_top(0);
                    let reply = &buffers.reply;
                    convert::push_reply(stack, reply).map(|()| reply.first() == Some(&b'-'))
                }
                Called::TooLong => {
                    stack.set_top(0);
                    Err(stack.fail(NO_MEMORY))
                }
                Called::Stop | Called::Unfinished | Called::Postponed => Err(core.stop(stack, "")),
            }
        }
        Err(text) => {
            stack.set_top(0);
            push_error(stack, text);
            Ok(true)
        }
    };
    core.put_buffers(buffers);
    match outcome? {
        true if raising => Err(Raise),
        _ => Ok(1),
    }
}

/// Has the host execute the command. The script pauses in the midst of one that takes long.
#[inline(always)]
fn carry_out(stack: Stack, buffers: &mut CallBuffers) -> Called {
    let core = stack.core();
    let Some(host) = core.host() else { return Called::Stop };
    let (args, reply) = (&buffers.args[..], &mut buffers.reply);
    let mut called = host.call(args, core.resp3.get(), core.room(), reply);
    while matches!(called, Called::Unfinished | Called::Postponed) {
        if !core.look(stack) {
            return Called::Stop;
        }
        // After a pause it may be another.
        let Some(host) = core.host() else { return Called::Stop };
        called = match called {
            Called::Postponed => host.call(args, core.resp3.get(), core.room(), reply),
            _ => host.go_on(core.room(), reply),
        };
    }
    called
}

/// Steps that each command counts for, unless its host says that it is late.
const CALL_STEPS: usize = 128;

/// Takes the arguments of the function as those of a command: strings, and numbers as their text.
fn take_arguments(stack: Stack, buffers: &mut CallBuffers) -> Result<(), &'static [u8]> {
    let count = stack.top();
    if count == 0 {
        return Err(NO_ARGUMENTS);
    }
    // So that the texts do not move while others are added.
    buffers.numbers.reserve(count as usize * NUMBER_LEN_MAX);
    for at in 1..=count {
        let bytes = match stack.string(at) {
            Some(bytes) => bytes,
            None if stack.kind(at) == LUA_TNUMBER => {
                let start = buffers.numbers.len();
                convert::append_number(stack.number(at), &mut buffers.numbers);
                assert!(buffers.numbers.len() - start <= NUMBER_LEN_MAX, "a long number");
                let text = &buffers.numbers[start..];
                // SAFETY: the texts stay where they are: the buffer has room for as long a text for
                // each argument, so it is not moved while others are added. The commands are over
                // before `put_buffers` clears it, and clears `args` too.
                unsafe { std::slice::from_raw_parts(text.as_ptr(), text.len()) }
            }
            None => return Err(WRONG_ARGUMENTS),
        };
        buffers.args.push(bytes);
    }
    Ok(())
}

/// Pushes the table that stands for an error reply.
fn push_error(stack: Stack, text: &[u8]) {
    stack.push_table(0, 2);
    stack.push_bytes(text);
    stack.set_field(stack.top() - 1, b"err");
}

fn write_log(stack: Stack) -> Returned {
    if stack.top() < 2 {
        return Err(raise(stack, "ERR server.log() requires two arguments or more."));
    }
    if !stack.is_number(1) {
        return Err(raise(stack, "ERR First argument must be a number (log level)."));
    }
    let level = match stack.number(1) as i64 {
        0 => Level::Debug,
        1 => Level::Verbose,
        2 => Level::Notice,
        3 => Level::Warning,
        _ => return Err(raise(stack, "ERR Invalid log level.")),
    };
    let core = stack.core();
    if !core.host().is_some_and(|host| host.logs(level)) {
        return Ok(0);
    }
    let mut message = Output::new(stack, core);
    for (number, word) in (2..=stack.top()).filter_map(|at| stack.bytes(at)).enumerate() {
        if number > 0 {
            message.extend(b" ")?;
        }
        message.extend(word)?;
    }
    if let Some(host) = core.host() {
        host.log(level, &message.take());
    }
    Ok(0)
}

fn hash(stack: Stack) -> Returned {
    if stack.top() != 1 {
        return Err(raise(stack, "ERR wrong number of arguments"));
    }
    let mut digest = Sha1::new();
    for piece in stack.bytes(1).unwrap_or_default().chunks(HASHED_LEN) {
        stack.core().charge(stack, HASHED_LEN / 8)?;
        digest.update(piece);
    }
    let digest = digest.finalize();
    stack.push_bytes(bobbin_text::hex(&digest).as_bytes());
    Ok(1)
}

fn make_error(stack: Stack) -> Returned {
    let Some(text) = only_string(stack) else { return Ok(1) };
    // One word alone has no code, and gets one.
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let code: &[u8] = if text.contains(&b' ') { b"" } else { b"ERR " };
    let text = [code, text].concat();
    stack.push_table(0, 1);
    stack.push_bytes(&text);
    stack.set_field(stack.top() - 1, b"err");
    Ok(1)
}

fn make_status(stack: Stack) -> Returned {
    let Some(text) = only_string(stack) else { return Ok(1) };
    stack.push_table(0, 1);
    stack.push_bytes(text);
    stack.set_field(stack.top() - 1, b"ok");
    Ok(1)
}

/// The function's argument; if it is not one string, an error table is pushed.
fn only_string<'a>(stack: Stack) -> Option<&'a [u8]> {
    if stack.top() == 1 && stack.kind(1) == LUA_TSTRING {
        return stack.bytes(1);
    }
    push_error(stack, b"ERR wrong number or type of arguments");
    None
}

fn choose_protocol(stack: Stack) -> Returned {
    if stack.top() != 1 {
        return Err(raise(stack, "ERR server.setresp() requires one argument."));
    }
    let resp3 = match stack.number(1).trunc() {
        2.0 => false,
        3.0 => true,
        _ => return Err(raise(stack, "ERR RESP version must be 2 or 3.")),
    };
    stack.core().resp3.set(resp3);
    Ok(0)
}

fn choose_replication(stack: Stack) -> Returned {
    if stack.top() != 1 {
        return Err(raise(stack, "ERR server.set_repl() requires one argument."));
    }
    let flags = stack.number(1) as i64;
    if flags & !3 != 0 {
        let text =
            "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.";
        return Err(raise(stack, text));
    }
    if let Some(host) = stack.core().host() {
        host.set_replication(flags as u8);
    }
    Ok(0)
}

fn check_command(stack: Stack) -> Returned {
    let core = stack.core();
    let mut buffers = core.take_buffers();
    let taken = take_arguments(stack, &mut buffers);
    let may = taken.map(|()| core.host().and_then(|host| host.may_call(&buffers.args)));
    core.put_buffers(buffers);
    match may {
        Ok(Some(may)) => stack.push_bool(may),
        Ok(None) => {
            return Err(raise(stack, "ERR Invalid command passed to server.acl_check_cmd()"));
        }
        Err(text) => {
            push_error(stack, text);
            return Err(Raise);
        }
    }
    Ok(1)
}

/// `replicate_commands`: it is always so.
fn accept(stack: Stack) -> Returned {
    stack.push_bool(true);
    Ok(1)
}

/// `breakpoint`: there is no debugger.
fn refuse_breakpoint(stack: Stack) -> Returned {
    stack.push_bool(false);
    Ok(1)
}

fn ignore(_stack: Stack) -> Returned {
    Ok(0)
}

/// Pushes an error table, to be raised.
fn raise(stack: Stack, text: &str) -> Raise {
    push_error(stack, text.as_bytes());
    Raise
}

/// `register_function(name, callback)`, or with a table that has these as fields.
fn register(stack: Stack) -> Returned {
    let core = stack.core();
    if core.registered.borrow().is_none() {
        let text = "ERR server.register_function can only be called on FUNCTION LOAD command";
        return Err(raise(stack, text));
    }
    let registration = match stack.top() {
        1 if stack.kind(1) == LUA_TTABLE => from_table(stack),
        1 => Err(
            "ERR calling server.register_function with a single argument is only applicable to Lua table \
                 (representing named arguments).",
        ),
        2 => from_arguments(stack),
        _ => Err("ERR wrong number of arguments to server.register_function"),
    };
    let registration = registration.map_err(|text| raise(stack, text))?;
    if let Some(registered) = &mut *core.registered.borrow_mut() {
        registered.push(registration);
    }
    Ok(0)
}

fn from_arguments(stack: Stack) -> Result<Registration, &'static str> {
    if !is_text(stack, 1) {
        return Err("ERR first argument to server.register_function must be a string");
    }
    if !is_function(stack, 2) {
        return Err("ERR second argument to server.register_function must be a function");
    }
    let name = stack.bytes(1).unwrap_or_default().to_vec();
    stack.copy(2);
    let function = Chunk::of_kept(stack.keep());
    Ok(Registration { name, description: None, flags: ScriptFlags::default(), function })
}

const UNKNOWN_ARGUMENT: &str = "ERR unknown argument given to server.register_function";

fn from_table(stack: Stack) -> Result<Registration, &'static str> {
    let (mut name, mut description, mut function) = (None, None, None);
    let mut flags = ScriptFlags::default();
    stack.push_nil();
    while stack.next(1) {
        let (key, value) = (stack.top() - 1, stack.top());
        if stack.kind(key) == LUA_TNUMBER {
            // Lua takes a number for a string; no argument has one for its name.
            return Err(UNKNOWN_ARGUMENT);
        }
        if stack.kind(key) != LUA_TSTRING {
            return Err("ERR named argument key given to server.register_function is not a string");
        }
        let text = is_text(stack, value).then(|| stack.bytes(value)).flatten();
        match stack.bytes(key).unwrap_or_default() {
            b"function_name" => {
                let text = text.ok_or(
                    "ERR function_name argument given to server.register_function must be a string",
                )?;
                name = Some(text.to_vec());
            }
            b"description" => {
                let text = text.ok_or(
                    "ERR description argument given to server.register_function must be a string",
                )?;
                description = Some(text.to_vec());
            }
            b"callback" => {
                if !is_function(stack, value) {
                    return Err(
                        "ERR callback argument given to server.register_function must be a function",
                    );
                }
                stack.copy(value);
                function = Some(Chunk::of_kept(stack.keep()));
            }
            b"flags" => {
                if stack.kind(value) != LUA_TTABLE {
                    return Err(
                        "ERR flags argument to server.register_function must be a table representing function flags",
                    );
                }
                flags = flags_from(stack, value)?;
            }
            _ => {
                return Err(UNKNOWN_ARGUMENT);
            }
        }
        stack.pop(1);
    }
    let name = name.ok_or("ERR server.register_function must get a function name argument")?;
    let function = function.ok_or("ERR server.register_function must get a callback argument")?;
    Ok(Registration { name, description, flags, function })
}

fn flags_from(stack: Stack, table: c_int) -> Result<ScriptFlags, &'static str> {
    let mut flags = ScriptFlags::default();
    for index in 1.. {
        stack.raw_get_at(table, index);
        let found = stack.kind(-1) == LUA_TSTRING;
        let flag = stack.bytes(-1).and_then(ScriptFlags::named);
        let is_end = stack.kind(-1) == lua::LUA_TNIL;
        stack.pop(1);
        match flag {
            Some(flag) if found => flags = flags.with(flag),
            _ if is_end => break,
            _ => return Err("ERR unknown flag given"),
        }
    }
    Ok(flags)
}

/// Whether the value at an index can be called.
fn is_function(stack: Stack, at: c_int) -> bool {
    stack.kind(at) == LUA_TFUNCTION
}

/// A string, or a number, which reads as one.
fn is_text(stack: Stack, at: c_int) -> bool {
    matches!(stack.kind(at), LUA_TSTRING | LUA_TNUMBER)
}

/// Bytes that are hashed between two charges.
const HASHED_LEN: usize = 16 * 1024;
/// What a number's text takes at most.
const NUMBER_LEN_MAX: usize = 32;
const NO_ARGUMENTS: &[u8] = b"ERR Please specify at least one argument for this call";
const WRONG_ARGUMENTS: &[u8] = b"ERR Command arguments must be strings or integers";
