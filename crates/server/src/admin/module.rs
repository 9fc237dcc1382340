//! MODULE: no modules can be loaded, because modules depend on another server's internals. Lua is
//! listed as one, as in Valkey.

use crate::commands::list_modules;
use crate::engine::command::help::{container, help_row};
use crate::engine::command::{Call, Command, Failure, Flags, Outcome};

fn list(call: &mut Call<'_>) -> Outcome {
    list_modules(&mut call.reply);
    Ok(())
}

fn refuse(_: &mut Call<'_>) -> Outcome {
    Err(Failure::new(&"ERR Modules are not supported by this server"))
}

const ADMIN: Flags = Flags::ADMIN.with(Flags::NOSCRIPT);
const CHANGE: Flags = ADMIN.with(Flags::NO_ASYNC_LOADING);

pub(super) const COMMANDS: &[Command] = &[Command::new("module", -2, container)
    .doc("server", "4.0.0", "Depends on subcommand.", "A container for commands about modules.")
    .subcommands(&[
        help_row("server", "5.0.0"),
        Command::new("list", 2, list)
            .flags(ADMIN)
            .doc("server", "4.0.0", "O(N), N: modules", "Lists the modules that are loaded.")
            .tips(&["nondeterministic_output_order"]),
        Command::new("load", -3, refuse)
            .flags(CHANGE)
            .doc("server", "4.0.0", "O(1)", "Refused: modules are not supported.")
            .syntax("path [arg [arg ...]]"),
        Command::new("loadex", -3, refuse)
            .flags(CHANGE)
            .doc("server", "7.0.0", "O(1)", "Refused: modules are not supported.")
            .syntax(
                "path [CONFIG name value [CONFIG name value ...]] :configs [ARGS args [args ...]]",
            ),
        Command::new("unload", 3, refuse)
            .flags(CHANGE)
            .doc("server", "4.0.0", "O(1)", "Refused: modules are not supported.")
            .syntax("name"),
    ])];
