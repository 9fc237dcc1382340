//! The orderly end: how SHUTDOWN's words are read, and how the end is begun.
//!
//! Beginning it only wakes the main thread (`Server::wait_for_end`), which stops accepting, lets the
//! workers finish their turns and send what they have, removes the files of the socket and of the
//! process id, and leaves. So it may be begun anywhere, with anything held.

use crate::server::Server;

/// What SHUTDOWN asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    /// NOW is left out: without replicas there is nobody to wait for.
    End {
        save: bool,
        force: bool,
    },
    Abort,
}

impl Shutdown {
    /// Reads the words behind SHUTDOWN; `None` when they make no sense together.
    pub fn parse(words: &[&[u8]]) -> Option<Self> {
        let (mut save, mut nosave, mut force, mut abort) = (false, false, false, false);
        for word in words {
            match &word.to_ascii_lowercase()[..] {
                b"save" => save = true,
                b"nosave" => nosave = true,
                b"now" | b"safe" => {}
                b"force" => force = true,
                b"abort" => abort = true,
                _ => return None,
            }
        }
        match (abort, save && nosave) {
            (true, _) if words.len() > 1 => None,
            (true, _) => Some(Self::Abort),
            (false, true) => None,
            (false, false) => Some(Self::End { save, force }),
        }
    }
}

impl Server {
    /// Begins the end of the server; `reason` is logged.
    pub fn shut_down(&self, reason: &str) {
        log::warn!("{reason}");
        self.end.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_shutdown() {
        let parse = |line: &str| {
            let words: Vec<&[u8]> = line.split_whitespace().map(str::as_bytes).collect();
            Shutdown::parse(&words)
        };
        assert_eq!(parse(""), Some(Shutdown::End { save: false, force: false }));
        assert_eq!(parse("NoSave NOW"), Some(Shutdown::End { save: false, force: false }));
        assert_eq!(parse("save force"), Some(Shutdown::End { save: true, force: true }));
        assert_eq!(parse("abort"), Some(Shutdown::Abort));
        for wrong in ["abort now", "save nosave", "later", "now abort"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
