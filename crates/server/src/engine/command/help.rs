//! The replies of containers and of their HELP subcommands.

use super::{Call, Failure, Outcome};
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

/// The handler of a container. It answers that the subcommand is missing.
pub fn container(call: &mut Call<'_>) -> Outcome {
    Err(Failure::wrong_arity(call.command))
}

/// Answers HELP of a container: its subcommands with their arguments, and one or more lines of text
/// for each. An entry with an empty name adds a line to the subcommand before it.
pub fn help_of(call: &mut Call<'_>, subcommands: &[(&str, &str)]) -> Outcome {
    let name = String::from_utf8_lossy(call.args[0]).to_ascii_uppercase();
    let mut lines =
        vec![format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    for (usage, text) in subcommands.iter().chain(&[("HELP", "Tell what the subcommands do.")]) {
        if !usage.is_empty() {
            lines.push((*usage).to_owned());
        }
        lines.push(format!("    {text}"));
    }
    call.reply.array(lines.len());
    lines.iter().for_each(|line| call.reply.simple(line));
    Ok(())
}
