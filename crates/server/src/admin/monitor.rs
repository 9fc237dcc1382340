//! MONITOR.

use crate::engine::client::monitors::join;
use crate::engine::clients::ClientFlag;
use crate::engine::command::{Call, Categories, Command, Flags, Outcome};

fn monitor(call: &mut Call<'_>) -> Outcome {
    if call.in_transaction {
        return Err("ERR MONITOR isn't allowed for DENY BLOCKING client".into());
    }
    // A replica's connection carries the stream alone.
    if !call.client.info.has(ClientFlag::REPLICA) && join(call.server, &call.client.info) {
        call.reply.ok();
    }
    Ok(())
}

pub(super) const COMMANDS: &[Command] = &[Command::new("monitor", 1, monitor)
    .flags(
        Flags::ADMIN
            .with(Flags::NOSCRIPT)
            .with(Flags::LOADING)
            .with(Flags::STALE)
            .with(Flags::GATE),
    )
    .categories(Categories::NONE)
    .doc("server", "1.0.0", "", "Shows every command that the server executes, as it happens.")];
