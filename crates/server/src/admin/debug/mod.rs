//! DEBUG: subcommands for tests and tools, which read or provoke internal states.
//!
//! DEBUG runs with the whole process stopped, so nothing changes while it reads or changes the
//! state.

pub(crate) mod digest;
mod keys;
mod protocol;

use std::io::Read;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::allocator;
use crate::base::files::disk;
use crate::engine::blocking::{self, Wait};
use crate::engine::client::protected::check_debug_allowed;
use crate::engine::command::help::show;
use crate::engine::command::{Call, Command, Failure, Flags, Key, Outcome};
use crate::engine::log::history::HistoryId;
use crate::engine::server::Switch;
use crate::persistence::{Existing, LoadRules};

use crate::persistence::aof::Aof;
use crate::persistence::position::CutPosition;
use crate::persistence::{Persistence, aof, load, save};
use crate::replication::Replication;

fn debug(call: &mut Call<'_>) -> Outcome {
    check_debug_allowed(call.server, call.client)?;
    let name = call.args[1].to_ascii_lowercase();
    let arguments = call.args.len() - 2;
    let found = SUBCOMMANDS
        .iter()
        .find(|sub| sub.name.as_bytes() == name && sub.arguments.contains(&arguments));
    match found {
        Some(sub) => (sub.run)(call),
        None => Err(unknown(call)),
    }
}

/// A subcommand, how many arguments it takes behind its name, and its text in HELP.
struct Subcommand {
    name: &'static str,
    arguments: RangeInclusive<usize>,
    run: fn(&mut Call<'_>) -> Outcome,
    syntax: &'static str,
    summary: &'static str,
}

const fn sub(
    name: &'static str,
    arguments: RangeInclusive<usize>,
    run: fn(&mut Call<'_>) -> Outcome,
    syntax: &'static str,
    summary: &'static str,
) -> Subcommand {
    Subcommand { name, arguments, run, syntax, summary }
}

/// The subcommands that only answer OK control features that Bobbin does not have: resizing of
/// tables in the background, reply buffers, conversions of lists.
static SUBCOMMANDS: &[Subcommand] = &[
    sub(
        "aof-flush-sleep",
        1..=1,
        slow_log,
        "<microseconds>",
        "Let each write of the log take longer.",
    ),
    sub(
        "assert",
        0..=0,
        |_| crash("=== ASSERTION FAILED === DEBUG ASSERT"),
        "",
        "Crash as by a failed assertion.",
    ),
    sub("change-repl-id", 0..=0, change_history, "", "Replicas that come again get a copy."),
    sub("client-enforce-reply-list", 1..=1, ok, "<0|1>", "Accepted: no reply has a buffer."),
    sub(
        "config-rewrite-force-all",
        0..=0,
        rewrite_every_option,
        "",
        "CONFIG REWRITE with every option.",
    ),
    sub(
        "delay-rdb-client-free-seconds",
        1..=1,
        delay_awaited,
        "<seconds>",
        "How long a replica's main connection is awaited when its copy is over.",
    ),
    sub("dict-resizing", 1..=1, ok, "<0|1>", "Accepted: tables are resized where they are used."),
    sub(
        "digest",
        0..=0,
        digest::all,
        "",
        "A sum of all keys and values; the same for the same data.",
    ),
    sub(
        "digest-value",
        0..=usize::MAX,
        digest::values,
        "<key> [<key> ...]",
        "A sum for the value of each key.",
    ),
    sub("error", 1..=1, error, "<string>", "Answer with that error."),
    sub(
        "fail-cut",
        0..=0,
        fail_cut,
        "",
        "Have the snapshot, the rewrite or the copy at work fail.",
    ),
    sub(
        "hashtable-can-abort-shrink",
        1..=1,
        ok,
        "<0|1>",
        "Accepted: tables are resized where they are used.",
    ),
    sub("help", 0..=0, help, "", ""),
    sub(
        "htstats",
        1..=2,
        keys::table_statistics,
        "<dbid> [full]",
        "Figures of a database's tables.",
    ),
    sub(
        "htstats-key",
        1..=2,
        keys::value_statistics,
        "<key> [full]",
        "Figures of the table that is a key's value.",
    ),
    sub("leak", 1..=1, leak, "<string>", "Lose the memory of a copy of the string."),
    sub("loadaof", 0..=0, load_log, "", "Empty all and load the append only file."),
    sub("log", 1..=1, log, "<message>", "Write to the log."),
    sub("mallctl", 1..=2, mallctl, "<key> [<val>]", "Get or set a number of the allocator."),
    sub(
        "mallctl-str",
        1..=2,
        mallctl_text,
        "<key> [VOID]",
        "Get a text of the allocator, or do what takes no value.",
    ),
    sub(
        "object",
        1..=2,
        keys::object,
        "<key> [fast]",
        "How a value is kept; fast leaves out what costs time.",
    ),
    sub("oom", 0..=0, run_out_of_memory, "", "Crash as where there is no memory left."),
    sub("panic", 0..=0, |_| crash("------ DEBUG PANIC ------"), "", "Crash as by a panic."),
    sub(
        "pause-after-fork",
        1..=1,
        |call| switch(call, Switch::STOPS_BEFORE_STREAM, b"1"),
        "<0|1>",
        "Whether a replica stops its process (SIGSTOP) before it asks\n\
         for the stream behind a copy on a connection of its own.",
    ),
    sub(
        "pause-cron",
        1..=1,
        |call| switch(call, Switch::CRON_PAUSED, b"1"),
        "<0|1>",
        "Stop the work that is done by the clock.",
    ),
    sub(
        "populate",
        1..=3,
        keys::populate,
        "<count> [<prefix>] [<size>]",
        "Make <count> strings key:<n>.",
    ),
    sub(
        "protocol",
        1..=1,
        protocol::reply,
        "<type>",
        "Answer with a value of a type: string, integer, double, bignum,\n\
         null, array, set, map, attrib, push, verbatim, true, false.",
    ),
    sub(
        "quicklist-packed-threshold",
        1..=1,
        packed_threshold,
        "<size>",
        "Accepted: sizes of list nodes are built in.",
    ),
    sub(
        "reload",
        0..=usize::MAX,
        reload,
        "[NOSAVE] [NOFLUSH] [MERGE]",
        "Save a snapshot, empty all and load it: without saving,\n\
         without emptying, replacing what is there already.",
    ),
    sub(
        "replicate",
        1..=usize::MAX,
        replicate,
        "<command> [<arg> ...]",
        "Give a command to replicas alone.",
    ),
    sub(
        "replybuffer",
        2..=2,
        reply_buffer,
        "<PEAK-RESET-TIME|RESIZING> <value>",
        "Accepted: no reply has a buffer.",
    ),
    sub("sdslen", 1..=1, keys::string_length, "<key>", "Lengths of a key and of its string."),
    sub("segfault", 0..=0, segfault, "", "Crash by a signal."),
    sub(
        "set-active-expire",
        1..=1,
        |call| switch(call, Switch::NO_ACTIVE_EXPIRE, b"0"),
        "<0|1>",
        "Whether keys that nobody looks at expire.",
    ),
    sub(
        "set-disable-deny-scripts",
        1..=1,
        |call| switch(call, Switch::SCRIPTS_UNBOUND, b"1"),
        "<0|1>",
        "Whether scripts may run what they must not.",
    ),
    sub(
        "set-skip-checksum-validation",
        1..=1,
        skip_checksums,
        "<0|1>",
        "Whether RESTORE trusts its payloads.",
    ),
    sub("sleep", 1..=1, sleep, "<seconds>", "Stop the whole server for a while."),
    sub("stringmatch-len", 2..=2, match_text, "<pattern> <string>", "Whether a pattern matches."),
];

/// Deletes all keys and functions, before a file is loaded.
fn forget_everything(call: &mut Call<'_>) {
    super::flush::flush_everything(call);
    call.server.functions.flush();
}

/// DEBUG may be used while a file is loaded, but not to change the keys that another thread loads.
fn refuse_while_loading(call: &Call<'_>) -> Outcome {
    if call.server.switches.has(Switch::LOADING | Switch::LOADING_ASIDE) {
        return Err(Failure::loading(&call.server.config));
    }
    Ok(())
}

fn unknown(call: &Call<'_>) -> Failure {
    let name = call.args[1];
    Failure::wrong_subcommand("DEBUG", &name[..name.len().min(128)])
}

fn ok(call: &mut Call<'_>) -> Outcome {
    call.reply.ok();
    Ok(())
}

/// Turns a switch on if the argument is this word, and off otherwise.
fn switch(call: &mut Call<'_>, bit: u32, on: &[u8]) -> Outcome {
    call.server.switches.set(bit, call.args[2] == on);
    call.server.end.look_again();
    ok(call)
}

fn skip_checksums(call: &mut Call<'_>) -> Outcome {
    let skip = call.args[2] != b"0";
    call.server.services.skip_checksums.store(skip, Ordering::Relaxed);
    ok(call)
}

/// Sets how long a replica's main connection is awaited after its copy has ended.
fn delay_awaited(call: &mut Call<'_>) -> Outcome {
    let seconds = call.integer(2)?.clamp(0, i64::from(u32::MAX));
    Replication::of(call.server).awaited.set_grace_ms(seconds * 1000);
    ok(call)
}

/// Sleeps for a number of seconds, with decimals. All clients wait.
fn sleep(call: &mut Call<'_>) -> Outcome {
    let seconds = bobbin_resp::parse_f64(call.args[2]).unwrap_or(0.0);
    std::thread::sleep(Duration::from_secs_f64(seconds.clamp(0.0, SLEEP_MAX_S)));
    ok(call)
}

fn log(call: &mut Call<'_>) -> Outcome {
    log::warn!("DEBUG LOG: {}", String::from_utf8_lossy(call.args[2]));
    ok(call)
}

/// Replies with the argument as an error, which is not counted.
fn error(call: &mut Call<'_>) -> Outcome {
    call.reply.error(call.args[2]);
    Ok(())
}

/// Does what the end of Valkey's child process does.
fn fail_cut(call: &mut Call<'_>) -> Outcome {
    let what = call.server.abort_cut().ok_or(Failure::new(&"ERR Nothing is written"))?;
    log::warn!("The {what} was aborted by DEBUG FAIL-CUT");
    ok(call)
}

fn match_text(call: &mut Call<'_>) -> Outcome {
    let matches = crate::base::glob::matches_text(call.args[2], call.args[3]);
    call.reply.integer(i64::from(matches));
    Ok(())
}

fn packed_threshold(call: &mut Call<'_>) -> Outcome {
    match memory(call.args[2]) {
        Some(bytes) if bytes <= PACKED_THRESHOLD_MAX => ok(call),
        _ => Err("ERR argument must be a memory value bigger than 1 and smaller than 4gb".into()),
    }
}

/// Parses a number of bytes, with a unit as in the configuration.
fn memory(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.to_ascii_lowercase();
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

fn reply_buffer(call: &mut Call<'_>) -> Outcome {
    let is_time = |call: &Call<'_>| {
        call.word_is(3, "never") || call.word_is(3, "reset") || call.integer(3).is_ok()
    };
    if call.word_is(2, "peak-reset-time") {
        if !is_time(call) {
            return Err("ERR value is out of range".into());
        }
    } else if !call.word_is(2, "resizing") {
        return Err(unknown(call));
    }
    ok(call)
}

fn rewrite_every_option(call: &mut Call<'_>) -> Outcome {
    call.server.config.rewrite_every_option(&call.server.user_lines()).map_err(|error| {
        let reason = error.text.strip_prefix("ERR ").unwrap_or(&error.text);
        Failure::format(format!("ERR CONFIG-REWRITE-FORCE-ALL failed: {reason}"))
    })?;
    ok(call)
}

fn mallctl(call: &mut Call<'_>) -> Outcome {
    let value = if call.args.len() > 3 { Some(call.integer(3)?) } else { None };
    let found = allocator::control_integer(call.args[2], value);
    let found = found.map_err(|reason| Failure::format(format!("ERR {reason}")))?;
    call.reply.integer(found);
    Ok(())
}

fn mallctl_text(call: &mut Call<'_>) -> Outcome {
    if call.args.len() > 3 {
        if !call.word_is(3, "void") {
            return Err("ERR only VOID can be set: the control takes no value then".into());
        }
        let done = allocator::control_nothing(call.args[2]);
        done.map_err(|reason| Failure::format(format!("ERR {reason}")))?;
        return ok(call);
    }
    let found = allocator::control_text(call.args[2]);
    let found = found.map_err(|reason| Failure::format(format!("ERR {reason}")))?;
    call.reply.bulk(&found);
    Ok(())
}

fn slow_log(call: &mut Call<'_>) -> Outcome {
    let us = u64::try_from(call.integer(2)?).unwrap_or(0);
    Aof::of(call.server).write_delay_us.store(us, Ordering::Relaxed);
    ok(call)
}

/// LOADAOF: writes the rest of the log, deletes everything and loads the log. The client waits;
/// other clients are told that the server is loading.
fn load_log(call: &mut Call<'_>) -> Outcome {
    let server = call.server;
    if call.in_transaction {
        return Err("ERR DEBUG LOADAOF is not allowed in transactions".into());
    }
    refuse_while_loading(call)?;
    if !aof::has_log_to_load(server) {
        return Err("ERR there is no append only file to load".into());
    }
    save::abort_save(server);
    Aof::of(server).rewrites.cancel();
    call.data.propagate_nothing();
    forget_everything(call);
    let waiter = blocking::block(call, LoadingClient, &[], None);
    aof::load_log_again(server, waiter);
    Ok(())
}

/// The wait of LOADAOF's client.
struct LoadingClient;

impl Wait for LoadingClient {
    fn can_be_unblocked(&self) -> bool {
        false
    }
}

/// RELOAD [NOSAVE] [NOFLUSH] [MERGE]: saves, deletes and loads everything. All clients wait.
fn reload(call: &mut Call<'_>) -> Outcome {
    let (mut save, mut flush, mut existing) = (true, true, Existing::Refuse);
    for at in 2..call.args.len() {
        if call.word_is(at, "merge") {
            existing = Existing::Replace;
        } else if call.word_is(at, "noflush") {
            flush = false;
        } else if call.word_is(at, "nosave") {
            save = false;
        } else {
            return Err(
                "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.".into()
            );
        }
    }
    refuse_while_loading(call)?;
    // A save in progress is aborted with NOSAVE too, because its data may be replaced.
    save::abort_save(call.server);
    call.data.propagate_nothing();
    if save {
        let position = CutPosition::of(call.server, call.data);
        save::save_held(call.server, call.data, position).map_err(|_| Failure::new(&"ERR"))?;
    }
    let name = call.server.config.dbfilename();
    let mut reload = || {
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(&name));
        let mut file = disk::open(path).map_err(|error| error.to_string())?;
        let header = load::read_header(call.server, &mut file)?;
        if flush {
            forget_everything(call);
        }
        // The log does not tell of expired keys and fields that are dropped here. So they stay
        // until they are deleted as others are. But of a file that is merged, an expired key must
        // not take the place of one that lives.
        let keeps_expired = save || existing == Existing::Refuse;
        let rules = LoadRules { existing, keeps_expired, ..LoadRules::default() };
        load::load_held(call.server, call.data, header.as_slice().chain(file), rules)
    };
    match reload() {
        Ok(loaded) => {
            load::log_loaded(call.server, loaded);
            let changes = call.server.workers.totals().dirty.get() + call.data.counters.dirty;
            Persistence::of(call.server).set_saved(changes);
            log::warn!("DB reloaded by DEBUG RELOAD");
            ok(call)
        }
        Err(error) => {
            log::warn!("{error}");
            Err("ERR Error trying to load the RDB dump, check server logs.".into())
        }
    }
}

fn crash(text: &str) -> Outcome {
    log::error!("{text}");
    std::process::abort()
}

/// Asks for a block that no machine has, which ends the process.
fn run_out_of_memory(call: &mut Call<'_>) -> Outcome {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(TOO_LARGE_BYTES)));
    ok(call)
}

/// Leaks memory for ever, to show what a leak looks like.
fn leak(call: &mut Call<'_>) -> Outcome {
    call.args[2].to_vec().leak();
    ok(call)
}

/// Sends a command only to the replicas, so their data differs from this server's afterwards.
fn replicate(call: &mut Call<'_>) -> Outcome {
    call.data.propagate_to_replicas(&call.args[2..]);
    ok(call)
}

/// Changes the history's name. Connected replicas go on, but none can reconnect with the old
/// history.
fn change_history(call: &mut Call<'_>) -> Outcome {
    log::info!("The history of replication is another one from here on (DEBUG CHANGE-REPL-ID)");
    call.server.feed.change_history(|history| history.take(HistoryId::new()));
    ok(call)
}

/// Sends the signal to the thread that executes this, as a fault would.
fn segfault(call: &mut Call<'_>) -> Outcome {
    // SAFETY: the system call concerns this thread only.
    if unsafe { libc::raise(libc::SIGSEGV) } != 0 {
        return Err("ERR The signal could not be sent".into());
    }
    ok(call)
}

fn help(call: &mut Call<'_>) -> Outcome {
    show(call, "debug", SUBCOMMANDS.iter().map(|sub| (sub.name, sub.syntax, sub.summary)));
    Ok(())
}

/// More than an address space has.
const TOO_LARGE_BYTES: usize = 1 << 61;
const PACKED_THRESHOLD_MAX: u64 = 4 << 30;
/// A day. A longer sleep is a mistake.
const SLEEP_MAX_S: f64 = 86_400.0;

/// The key at this argument. As in Redis, DEBUG declares no keys: everything is locked, and a
/// client that may use DEBUG may read all keys.
fn any_key<'a>(call: &Call<'a>, index: usize) -> Key<'a> {
    call.data.key(call.args[index])
}

pub(super) const COMMANDS: &[Command] = &[Command::new("debug", -2, debug)
    .flags(
        Flags::ADMIN
            .with(Flags::NOSCRIPT)
            .with(Flags::LOADING)
            .with(Flags::STALE)
            .with(Flags::PROTECTED)
            .with(Flags::GATE),
    )
    .doc("server", "1.0.0", "Depends on subcommand.", "Looks inside the server, and provokes it.")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subcommands_are_sorted_and_memory_has_units() {
        assert!(SUBCOMMANDS.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert_eq!(memory(b"100b"), Some(100));
        assert_eq!(memory(b"5GB"), Some(5 << 30));
        assert_eq!((memory(b"x"), memory(b"")), (None, None));
    }
}
