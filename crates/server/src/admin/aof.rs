//! The command about the log on disk: BGREWRITEAOF.

use crate::engine::command::{Call, Command, Failure, Flags, Outcome};
use crate::persistence::aof::{Aof, rewrite};

fn bgrewriteaof(call: &mut Call<'_>) -> Outcome {
    let rewrites = &Aof::of(call.server).rewrites;
    // A rewrite that was given up ends in a moment, so it does not count.
    if rewrites.is_running() && !rewrites.is_given_up() {
        return Err("ERR Background append only file rewriting already in progress".into());
    }
    // A base must not hold half of a transaction.
    if call.in_transaction || rewrite::cut_is_busy(call.server) {
        rewrites.schedule();
        call.reply.simple("Background append only file rewriting scheduled");
        return Ok(());
    }
    if !rewrite::begin_rewrite(call.server, call.data) {
        return Err(Failure::new(
            &"ERR Can't execute an AOF background rewriting. Please check the server logs for more information.",
        ));
    }
    call.reply.simple("Background append only file rewriting started");
    Ok(())
}

pub(super) const COMMANDS: &[Command] = &[Command::new("bgrewriteaof", 1, bgrewriteaof)
    .flags(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING).with(Flags::GATE))
    .doc("server", "1.0.0", "O(1)", "Begins to write the log on disk anew, and shorter.")];
