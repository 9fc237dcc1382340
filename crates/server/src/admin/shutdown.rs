//! The words of SHUTDOWN.

/// What SHUTDOWN asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    End {
        /// `None`: neither SAVE nor NOSAVE.
        save: Option<bool>,
        force: bool,
        /// Replicas are not waited for.
        now: bool,
    },
    Abort,
}

impl Shutdown {
    /// Reads the words behind SHUTDOWN; `None` when they make no sense together.
    pub fn parse(words: &[&[u8]]) -> Option<Self> {
        let (mut save, mut nosave, mut force, mut now) = (false, false, false, false);
        let mut abort = false;
        for word in words {
            match &word.to_ascii_lowercase()[..] {
                b"save" => save = true,
                b"nosave" => nosave = true,
                b"now" => now = true,
                // Only a node of a cluster asks whether it is safe.
                b"safe" => {}
                b"force" => force = true,
                b"abort" => abort = true,
                _ => return None,
            }
        }
        match (abort, save && nosave) {
            (true, _) if words.len() > 1 => None,
            (true, _) => Some(Self::Abort),
            (false, true) => None,
            (false, false) => {
                let save = (save || nosave).then_some(save);
                Some(Self::End { save, force, now })
            }
        }
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
        let end = |save, force, now| Some(Shutdown::End { save, force, now });
        assert_eq!(parse(""), end(None, false, false));
        assert_eq!(parse("NoSave NOW"), end(Some(false), false, true));
        assert_eq!(parse("save force"), end(Some(true), true, false));
        assert_eq!(parse("abort"), Some(Shutdown::Abort));
        for wrong in ["abort now", "save nosave", "later", "now abort"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
