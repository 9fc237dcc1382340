//! HOTKEYS, as in Redis 8.6: the keys that take most time and network traffic; and, as an
//! extension, most memory.

use crate::engine::command::help::{container, help_row};
use crate::engine::command::{Call, Categories, Command, Failure, Flags, Outcome};
use crate::engine::server::Switch;
use crate::engine::telemetry::hotkeys::HotkeysRequest;

/// `HOTKEYS START METRICS count [CPU] [NET] [SIZE] [COUNT k] [DURATION seconds] [SAMPLE ratio]`.
fn start(call: &mut Call<'_>) -> Outcome {
    if call.server.services.hot_keys.report().is_some_and(|(_, _, report)| report.is_active) {
        return Err(IN_PROGRESS);
    }
    if call.args.len() < 4 || !call.word_is(2, "metrics") {
        return Err("ERR METRICS parameter is required".into());
    }
    let wanted = parse(call)?;
    if !call.server.services.hot_keys.start(wanted) {
        return Err(IN_PROGRESS);
    }
    call.server.services.follow(&call.server.config, &call.server.clock);
    call.server.switches.set(Switch::SIZED, wanted.size);
    call.reply.ok();
    Ok(())
}

fn parse(call: &Call<'_>) -> Result<HotkeysRequest, Failure> {
    let metrics = number(call, 3, 1, 3, "METRICS count must be > 0 and <= 3")? as usize;
    let mut wanted = HotkeysRequest {
        cpu: false,
        net: false,
        size: false,
        count: 10,
        duration_ms: 0,
        sample: 1,
    };
    let named = call.args.len().min(4 + metrics);
    for at in 4..named {
        // Unknown metrics are ignored: later versions may have more.
        let metrics =
            [("CPU", &mut wanted.cpu), ("NET", &mut wanted.net), ("SIZE", &mut wanted.size)];
        for (word, metric) in metrics {
            if call.word_is(at, word) && std::mem::replace(metric, true) {
                let text = format!("ERR METRICS {word} defined more than once!");
                return Err(Failure::format(text));
            }
        }
    }
    if named < 4 + metrics {
        let text = "ERR METRICS count does not match number of metric types provided";
        return Err(text.into());
    }
    if !wanted.cpu && !wanted.net && !wanted.size {
        return Err("ERR METRICS no valid metrics passed. Supported: CPU|NET|SIZE".into());
    }
    let mut at = named;
    while at < call.args.len() {
        if at + 1 == call.args.len() {
            return Err(Failure::SYNTAX);
        }
        if call.word_is(at, "count") {
            let text = "COUNT must be between 1 and 64";
            wanted.count = number(call, at + 1, 1, 64, text)? as usize;
        } else if call.word_is(at, "duration") {
            let text = "DURATION must be between 1 and 1000000";
            wanted.duration_ms = number(call, at + 1, 1, 1_000_000, text)? * 1000;
        } else if call.word_is(at, "sample") {
            let text = "SAMPLE ratio must be positive";
            wanted.sample = number(call, at + 1, 1, i64::from(i32::MAX), text)? as u32;
        } else if call.word_is(at, "slots") {
            return Err("ERR SLOTS parameter cannot be used in non-cluster mode".into());
        } else {
            return Err(Failure::SYNTAX);
        }
        at += 2;
    }
    Ok(wanted)
}

fn number(call: &Call<'_>, at: usize, least: i64, most: i64, text: &str) -> Result<i64, Failure> {
    let number = bobbin_resp::parse_i64(call.args[at]);
    let number = number.filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| Failure::format(format!("ERR {text}")))
}

/// Ends a session. As for the start, the gate is held: several places say whether there is a
/// session, and no command may see only half of them changed.
fn stop(call: &mut Call<'_>) -> Outcome {
    let stopped = call.server.services.hot_keys.stop();
    call.server.switches.set(Switch::SIZED, false);
    call.server.services.follow(&call.server.config, &call.server.clock);
    if stopped {
        call.reply.ok();
    } else {
        call.reply.null();
    }
    Ok(())
}

fn reset(call: &mut Call<'_>) -> Outcome {
    if !call.server.services.hot_keys.reset() {
        return Err("ERR hotkey tracking session in progress, stop tracking first".into());
    }
    call.server.services.follow(&call.server.config, &call.server.clock);
    call.reply.ok();
    Ok(())
}

/// Replies with an array that contains one array of names and values.
fn get(call: &mut Call<'_>) -> Outcome {
    let Some((wanted, started_ms, report)) = call.server.services.hot_keys.report() else {
        call.reply.null();
        return Ok(());
    };
    let reply = &mut call.reply;
    reply.array(1);
    let fields = [(wanted.cpu, 3), (wanted.net, 2), (wanted.size, 1)];
    reply.map(7 + fields.iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, n)| n).sum::<usize>());
    let mut integer = |name: &str, value: i64| {
        reply.bulk(name.as_bytes());
        reply.integer(value);
    };
    integer("tracking-active", i64::from(report.is_active));
    integer("sample-ratio", i64::from(wanted.sample));
    reply.bulk(b"selected-slots");
    reply.array(1);
    reply.array(2);
    reply.integer(0);
    reply.integer(SLOTS - 1);
    let mut integer = |name: &str, value: i64| {
        reply.bulk(name.as_bytes());
        reply.integer(value);
    };
    integer("all-commands-all-slots-us", report.us as i64);
    integer("net-bytes-all-commands-all-slots", report.bytes as i64);
    integer("collection-start-time-unix-ms", started_ms);
    integer("collection-duration-ms", report.duration_ms);
    if wanted.cpu {
        integer("total-cpu-time-user-ms", report.cpu_user_ms as i64);
        integer("total-cpu-time-sys-ms", report.cpu_system_ms as i64);
    }
    if wanted.net {
        integer("total-net-bytes", report.bytes as i64);
    }
    let lists = [
        (wanted.cpu, "by-cpu-time-us", &report.by_us),
        (wanted.net, "by-net-bytes", &report.by_bytes),
        (wanted.size, "by-size-bytes", &report.by_size),
    ];
    for (_, name, keys) in lists.into_iter().filter(|(is_wanted, ..)| *is_wanted) {
        reply.bulk(name.as_bytes());
        reply.array(keys.len() * 2);
        for (key, sum) in keys {
            reply.bulk(key);
            reply.integer(*sum as i64);
        }
    }
    Ok(())
}

const IN_PROGRESS: Failure = Failure::new(&"ERR hotkey tracking session already in progress");
const SLOTS: i64 = 16384;
const ADMIN: Flags = Flags::ADMIN.with(Flags::NOSCRIPT);
const DANGEROUS: Categories = Categories::NONE;

pub(super) const COMMANDS: &[Command] = &[Command::new("hotkeys", -2, container)
    .doc("server", "8.6.0", "Depends on subcommand.", "Finds the keys that take most.")
    .subcommands(&[
        Command::new("get", 2, get).flags(ADMIN).categories(DANGEROUS).doc(
            "server",
            "8.6.0",
            "O(K), K: keys told",
            "What the look at keys has found.",
        ),
        help_row("server", "8.6.0"),
        Command::new("reset", 2, reset).flags(ADMIN).categories(DANGEROUS).doc(
            "server",
            "8.6.0",
            "O(1)",
            "Forgets what a look at keys has found.",
        ),
        Command::new("start", -2, start)
            .flags(ADMIN.with(Flags::GATE))
            .categories(DANGEROUS)
            .doc("server", "8.6.0", "O(1)", "Begins a look at keys.")
            .syntax(
                "METRICS count:int [CPU] [NET] [SIZE] [COUNT k] [DURATION seconds:int] [SAMPLE \
                 ratio]",
            ),
        Command::new("stop", 2, stop).flags(ADMIN.with(Flags::GATE)).categories(DANGEROUS).doc(
            "server",
            "8.6.0",
            "O(1)",
            "Ends a look at keys.",
        ),
    ])];
