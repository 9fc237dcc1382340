//! Options of what measures: names, each with a value.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use bobbin_testkit::peers;

use crate::shell::TaskResult;

/// Gives `take` each name and its value. It says whether there is such an option.
pub(crate) fn pairs<'a>(
    arguments: &[&'a str],
    usage: &str,
    mut take: impl FnMut(&str, &'a str) -> Result<bool, String>,
) -> TaskResult {
    for pair in arguments.chunks(2) {
        match *pair {
            [name, value] if take(name, value)? => {}
            _ => return Err(usage.to_owned()),
        }
    }
    Ok(())
}

pub(crate) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

/// Ours and valkey's: names, programs, and how many threads they use where two cores are theirs.
pub(crate) fn both_servers(ours: &Path) -> [(&'static str, PathBuf, &'static str); 2] {
    [("bobbin", ours.to_owned(), "2"), ("valkey", peers::peer("valkey-server"), "1")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values() {
        let parse = |arguments: &[&str]| {
            let mut count = 1_usize;
            pairs(arguments, "usage", |name, value| {
                match name {
                    "--count" => count = number(value)?,
                    _ => return Ok(false),
                }
                Ok(true)
            })
            .map(|()| count)
        };
        assert_eq!(parse(&[]), Ok(1));
        assert_eq!(parse(&["--count", "2", "--count", "3"]), Ok(3));
        assert_eq!(parse(&["--count", "x"]), Err("\"x\" is not a number".to_owned()));
        for wrong in [&["--count"][..], &["--other", "1"], &["--count", "2", "3"]] {
            assert_eq!(parse(wrong), Err("usage".to_owned()));
        }
    }
}
