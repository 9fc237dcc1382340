//! The system's errors as text.

use std::io;

/// The system's words for an error, without what the standard library puts around them.
pub fn error_text(error: &io::Error) -> String {
    let mut text = error.to_string();
    if let Some(end) = text.find(" (os error") {
        text.truncate(end);
    }
    match text.strip_prefix(LOOKUP_FAILED) {
        Some(reason) => reason.to_owned(),
        None => text,
    }
}

/// What the standard library says before the reason why a name has no address.
const LOOKUP_FAILED: &str = "failed to lookup address information: ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_systems_words() {
        let missing = std::fs::read("/nowhere/at/all").unwrap_err();
        assert_eq!(error_text(&missing), "No such file or directory");
        let unknown = io::Error::other(format!("{LOOKUP_FAILED}Name or service not known"));
        assert_eq!(error_text(&unknown), "Name or service not known");
        assert_eq!(error_text(&io::Error::other("our own")), "our own");
    }
}
