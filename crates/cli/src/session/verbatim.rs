//! Commands whose reply is text for people, which is shown as it is.

/// Whether to show the reply of these words as it is.
pub fn is_text(words: &[impl AsRef<[u8]>]) -> bool {
    let word = |index: usize| words.get(index).map(|word| word.as_ref().to_ascii_lowercase());
    let (Some(command), second) = (word(0), word(1).unwrap_or_default()) else { return false };
    TEXTS.iter().any(|text| {
        text.command.as_bytes() == command
            && (text.subcommands.is_empty()
                || text.subcommands.iter().any(|known| known.as_bytes() == second))
            && text.words.is_none_or(|count| count == words.len())
    })
}

struct Text {
    command: &'static str,
    /// Any, where none are listed.
    subcommands: &'static [&'static str],
    /// How many words there must be; `None` is any number.
    words: Option<usize>,
}

/// The list of valkey-cli.
const TEXTS: &[Text] = &[
    Text { command: "info", subcommands: &[], words: None },
    Text { command: "lolwut", subcommands: &[], words: None },
    Text {
        command: "debug",
        subcommands: &["htstats", "htstats-key", "client-eviction"],
        words: None,
    },
    Text { command: "memory", subcommands: &["malloc-stats", "doctor"], words: None },
    Text { command: "cluster", subcommands: &["nodes", "info"], words: Some(2) },
    Text { command: "client", subcommands: &["list", "info"], words: None },
    Text { command: "latency", subcommands: &["graph"], words: Some(3) },
    Text { command: "latency", subcommands: &["doctor"], words: Some(2) },
    Text { command: "proxy", subcommands: &["info"], words: None },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        for (words, text) in [
            (&["INFO", "memory"][..], true),
            (&["client", "LIST"], true),
            (&["client", "id"], false),
            (&["cluster", "nodes", "x"], false),
            (&["latency", "graph", "command"], true),
            (&["memory"], false),
        ] {
            assert_eq!(is_text(words), text, "{words:?}");
        }
    }
}
