//! The texts of the system's errors.

use std::io;

/// The system's text for an error, without the number that the standard library appends.
pub fn error_text(error: &io::Error) -> String {
    let mut text = error.to_string();
    if let Some(end) = text.find(" (os error") {
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_not_shown() {
        let missing = io::Error::from_raw_os_error(libc::ENOENT);
        assert_eq!(error_text(&missing), "No such file or directory");
        assert_eq!(error_text(&io::Error::other("our own")), "our own");
    }
}
