//! The replies of containers and of their HELP subcommands.

use super::{Call, Command, Failure, Flags, Outcome};
use crate::engine::row::syntax::plain;

/// The handler of a container's HELP.
fn help(call: &mut Call<'_>) -> Outcome {
    let Some(parent) = call.command.parent else { return Ok(()) };
    let container = call.server.registry.all()[parent];
    let rows = container.subcommands.iter().map(|command| command.row);
    show(call, container.row.name, rows.map(|row| (row.name, plain(row.syntax), row.summary)));
    Ok(())
}

/// Answers the name, the arguments and the summary of each subcommand. HELP itself comes last.
pub fn show<S: AsRef<str>>(
    call: &mut Call<'_>,
    container: &str,
    subcommands: impl Iterator<Item = (&'static str, S, &'static str)>,
) {
    let (lines, mut count) = (call.reply.defer(), 0);
    let mut add = |line: &str| {
        call.reply.simple(line);
        count += 1;
    };
    let name = container.to_ascii_uppercase();
    add(&format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for (name, arguments, summary) in subcommands.filter(|(name, ..)| *name != "help") {
        add(format!("{} {}", name.to_ascii_uppercase(), arguments.as_ref()).trim_end());
        summary.lines().for_each(|line| add(&format!("    {line}")));
    }
    add("HELP");
    add("    Print this help.");
    call.reply.finish_array(lines, count);
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
