//! Commands about the process: TIME, SHUTDOWN and others.

use super::shutdown::Shutdown;
use crate::admin::lolwut;
use crate::base::clock::system_us;
use crate::engine::blocking::{self, Wait};
use crate::engine::command::{Call, Command, Flags, Outcome};
use crate::engine::server::{EndRequest, Switch, VERSION};

fn time(call: &mut Call<'_>) -> Outcome {
    // Within a transaction or a script the time does not change.
    let now_us = match call.client.time_us {
        frozen_us if call.in_transaction && frozen_us != 0 => frozen_us,
        _ => system_us(),
    };
    call.client.time_us = now_us;
    call.reply.array(2);
    call.reply.bulk_i64(now_us / 1_000_000);
    call.reply.bulk_i64(now_us % 1_000_000);
    Ok(())
}

/// LOLWUT [VERSION version] [columns [rows]]. The version chooses a drawing in other servers; here
/// there is only one. Some of those drawings take more arguments, so what comes behind a version,
/// columns and rows is passed over.
fn lolwut(call: &mut Call<'_>) -> Outcome {
    const USAGE: &str = "ERR Syntax error. Use: LOLWUT [VERSION version] [columns [rows]]";
    let mut first = 1;
    if call.args.len() > 1 && call.word_is(1, "version") {
        if call.args.len() == 2 {
            return Err(USAGE.into());
        }
        call.integer(2)?;
        first = 3;
    } else if call.args.len() > 3 {
        return Err(USAGE.into());
    }
    let size = |call: &Call<'_>, index, usual, max: usize| {
        if index >= call.args.len() {
            return Ok(usual);
        }
        call.integer(index).map(|asked| asked.clamp(1, max as i64) as usize)
    };
    let columns = size(call, first, lolwut::COLUMNS, lolwut::COLUMNS_MAX)?;
    let rows = size(call, first + 1, lolwut::ROWS, lolwut::ROWS_MAX)?;
    let cloth = lolwut::weave(columns, rows, &mut call.data.random);
    let text = format!("{cloth}\nWoven on the spot, and no two are alike. Bobbin ver. {VERSION}\n");
    call.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn shutdown(call: &mut Call<'_>) -> Outcome {
    let shutdown = Shutdown::parse(&call.args[1..])?;
    let Shutdown::End { save, force, now } = shutdown else {
        if call.server.switches.has(Switch::LOADING) {
            // Loading was ended by the shutdown, and does not continue.
            return Err("ERR A shutdown can't be aborted while data is loaded.".into());
        }
        if !call.server.end.cancel(call.server) {
            return Err("ERR No shutdown in progress.".into());
        }
        log::info!("Shutdown manually aborted.");
        call.reply.ok();
        return Ok(());
    };
    if let Some(busy) = call.server.scripts.busy().filter(|_| save != Some(false)) {
        // A script's half of its changes must not be saved.
        return Err(busy.failure(&call.server.config));
    }
    // There is no reply: the connection ends with the process, unless the process cannot end.
    log::warn!("User requested shutdown...");
    let waiters = vec![blocking::block(call, ShuttingDown, &[], None)];
    call.server.end.end(EndRequest { save, force, now, waiters, ..EndRequest::default() });
    Ok(())
}

struct ShuttingDown;

impl Wait for ShuttingDown {
    fn can_be_unblocked(&self) -> bool {
        false
    }
}

const ADMIN: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::STALE);

pub(super) const COMMANDS: &[Command] = &[
    Command::new("time", 1, time)
        .flags(Flags::LOADING.with(Flags::STALE).with(Flags::FAST))
        .doc("server", "2.6.0", "O(1)", "Answers the server's time.")
        .tips(&["nondeterministic_output"]),
    Command::new("lolwut", -1, lolwut)
        .flags(Flags::READONLY.with(Flags::FAST))
        .doc("server", "5.0.0", "", "Draws something, and tells the version.")
        .syntax("[VERSION version:int]"),
    Command::new("shutdown", -1, shutdown)
        .flags(ADMIN.with(Flags::LOADING).with(Flags::NO_MULTI).with(Flags::ALLOW_BUSY))
        .doc(
            "server",
            "1.0.0",
            "O(1), with saving O(N), N: keys of all databases",
            "Ends the server.",
        )
        .syntax(
            "[[NOSAVE | SAVE] [NOW @7.0.0] [FORCE @7.0.0] [SAFE @9.0.0] [FAILOVER @9.0.0] | \
             ABORT @7.0.0] :abort-selector",
        )
        .history(&[
            ("7.0.0", "Takes NOW, FORCE and ABORT."),
            ("9.0.0", "Takes SAFE and FAILOVER."),
        ]),
];
