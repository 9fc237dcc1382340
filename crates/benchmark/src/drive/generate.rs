//! `bobbin-benchmark generate`: the man page and completions, for packages.

use super::DriveFailure;
use crate::options::{completion, man_page, memtier, redis};

/// Prints what the one argument names.
pub fn run(arguments: &[String]) -> Result<(), DriveFailure> {
    let flags = redis::GRAMMAR.descriptions();
    let text = match arguments {
        [what] if what == "man" => Some(man_page(
            &[
                (redis::GRAMMAR.usage, "options", flags),
                (
                    memtier::GRAMMAR.usage,
                    "options after --memtier",
                    memtier::GRAMMAR.descriptions(),
                ),
            ],
            redis::GRAMMAR.notes,
        )),
        [shell] => completion(shell, &flags, SUBCOMMANDS),
        _ => None,
    };
    let text =
        text.ok_or_else(|| DriveFailure("generate needs one of: man, bash, zsh, fish".into()))?;
    say!("{text}");
    Ok(())
}

const SUBCOMMANDS: &[&str] = &["--memtier", "expire", "sweep", "limits", "compare", "generate"];
