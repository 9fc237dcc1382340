//! The replies of containers and of their HELP subcommands.

use super::{Call, Command, Failure, Flags, Outcome};
use crate::engine::row::syntax::plain;

/// The handler of every HELP: answers the syntax and the summary of each subcommand.
pub fn help(call: &mut Call<'_>) -> Outcome {
    let Some(parent) = call.command.parent else { return Ok(()) };
    let container = call.server.registry.all()[parent];
    let name = container.row.name.to_ascii_uppercase();
    let lines = call.reply.defer();
    let mut count = 1;
    call.reply.simple(format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for command in &container.subcommands {
        let row = command.row;
        if row.name == "help" {
            continue;
        }
        let title = format!("{} {}", row.name.to_ascii_uppercase(), plain(row.syntax));
        call.reply.simple(title.trim_end());
        call.reply.simple(format!("    {}", row.summary));
        count += 2;
    }
    call.reply.simple("HELP");
    call.reply.simple("    Print this help.");
    call.reply.finish_array(lines, count + 2);
    Ok(())
}

/// The row of a container's HELP.
pub const fn help_row(group: &'static str, since: &'static str) -> Command {
    Command::new("help", 2, help).flags(Flags::LOADING.with(Flags::STALE)).doc(
        group,
        since,
        "O(1)",
        "Lists the subcommands.",
    )
}

/// The handler of a container. It answers that the subcommand is missing.
pub fn container(call: &mut Call<'_>) -> Outcome {
    Err(Failure::wrong_arity(call.command))
}
