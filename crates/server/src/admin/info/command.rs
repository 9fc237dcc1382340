//! INFO.

use crate::admin::info::{self, Snapshot};
use crate::engine::command::{Call, Categories, Command, Flags, Outcome};

fn info(call: &mut Call<'_>) -> Outcome {
    let snapshot = Snapshot::new(call.server, call.data);
    let text = info::write(&snapshot, &call.args[1..]);
    call.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

pub const COMMANDS: &[Command] = &[Command::new("info", -1, info)
    .flags(Flags::LOADING.with(Flags::STALE).with(Flags::WALKS))
    .categories(Categories::DANGEROUS)
    .doc("server", "1.0.0", "O(1)", "Tells about the server, section by section.")
    .syntax("[section [section ...]]")
    .history(&[("7.0.0", "Takes several sections.")])
    .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])];
