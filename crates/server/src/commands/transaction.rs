//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.

use crate::engine::command::{Call, Categories, Command, Flags, Outcome};
use crate::engine::execution::transaction;
use crate::engine::row::keys::{KeySpec, KeyUse};

fn unwatch(call: &mut Call<'_>) -> Outcome {
    transaction::unwatch(call);
    call.reply.ok();
    Ok(())
}

const CONTROL: Flags = Flags::NOSCRIPT
    .with(Flags::LOADING)
    .with(Flags::STALE)
    .with(Flags::FAST)
    .with(Flags::ALLOW_BUSY);

pub(super) const COMMANDS: &[Command] = &[
    Command::new("multi", 1, transaction::begin)
        .flags(CONTROL.with(Flags::NOT_QUEUED).with(Flags::NO_MULTI))
        .categories(Categories::TRANSACTION)
        .doc("transactions", "1.2.0", "O(1)", "Opens a transaction: commands are queued."),
    Command::new("exec", 1, transaction::execute)
        .flags(
            Flags::NOSCRIPT
                .with(Flags::LOADING)
                .with(Flags::STALE)
                .with(Flags::SKIP_SLOWLOG)
                .with(Flags::NOT_QUEUED)
                .with(Flags::RUNS_TRANSACTION),
        )
        .categories(Categories::TRANSACTION)
        .doc(
            "transactions",
            "1.2.0",
            "Depends on commands in the transaction",
            "Executes the queued commands as one.",
        ),
    Command::new("discard", 1, transaction::discard)
        .flags(CONTROL.with(Flags::NOT_QUEUED))
        .categories(Categories::TRANSACTION)
        .doc("transactions", "2.0.0", "O(N), N: queued commands", "Drops the queued commands."),
    Command::new("watch", -2, transaction::watch)
        .flags(CONTROL.with(Flags::NOT_QUEUED).with(Flags::NO_MULTI))
        .categories(Categories::TRANSACTION)
        .keys(&[KeySpec::range(1, -1, 1, KeyUse::READ_ONLY)])
        .doc(
            "transactions",
            "2.2.0",
            "O(1) for each key",
            "Makes the next transaction depend on keys not changing.",
        )
        .syntax("key [key ...]"),
    Command::new("unwatch", 1, unwatch).flags(CONTROL).categories(Categories::TRANSACTION).doc(
        "transactions",
        "2.2.0",
        "O(1)",
        "Forgets the watched keys.",
    ),
];
