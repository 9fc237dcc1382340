//! The words of SHUTDOWN.

/// What SHUTDOWN asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    /// NOW is left out: without replicas there is nobody to wait for.
    End {
        /// `None`: neither SAVE nor NOSAVE.
        save: Option<bool>,
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
            (false, false) => {
                let save = (save || nosave).then_some(save);
                Some(Self::End { save, force })
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
        assert_eq!(parse(""), Some(Shutdown::End { save: None, force: false }));
        assert_eq!(parse("NoSave NOW"), Some(Shutdown::End { save: Some(false), force: false }));
        assert_eq!(parse("save force"), Some(Shutdown::End { save: Some(true), force: true }));
        assert_eq!(parse("abort"), Some(Shutdown::Abort));
        for wrong in ["abort now", "save nosave", "later", "now abort"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
