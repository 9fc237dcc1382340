//! The words of SHUTDOWN.

use crate::engine::command::Failure;

/// The request of SHUTDOWN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    End {
        /// `None`: neither SAVE nor NOSAVE was given.
        save: Option<bool>,
        force: bool,
        /// Do not wait for replicas.
        now: bool,
    },
    Abort,
}

impl Shutdown {
    /// Parses the words behind SHUTDOWN. Fails if they contradict each other, or need a cluster.
    pub fn parse(words: &[&[u8]]) -> Result<Self, Failure> {
        let (mut save, mut nosave, mut force, mut now) = (false, false, false, false);
        let (mut abort, mut failover) = (false, false);
        for word in words {
            match &word.to_ascii_lowercase()[..] {
                b"save" => save = true,
                b"nosave" => nosave = true,
                b"now" => now = true,
                // SAFE concerns only nodes of a cluster.
                b"safe" => {}
                b"force" => force = true,
                b"failover" => failover = true,
                b"abort" => abort = true,
                _ => return Err(Failure::SYNTAX),
            }
        }
        if abort && words.len() > 1 || save && nosave {
            return Err(Failure::SYNTAX);
        }
        if failover {
            return Err("ERR SHUTDOWN FAILOVER is only supported in cluster mode.".into());
        }
        if abort {
            return Ok(Self::Abort);
        }
        Ok(Self::End { save: (save || nosave).then_some(save), force, now })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_shutdown() {
        let parse = |line: &str| {
            let words: Vec<&[u8]> = line.split_whitespace().map(str::as_bytes).collect();
            Shutdown::parse(&words).map_err(|failure| failure.text().to_string())
        };
        let end = |save, force, now| Ok(Shutdown::End { save, force, now });
        assert_eq!(parse(""), end(None, false, false));
        assert_eq!(parse("NoSave NOW"), end(Some(false), false, true));
        assert_eq!(parse("save force"), end(Some(true), true, false));
        assert_eq!(parse("abort"), Ok(Shutdown::Abort));
        for wrong in ["abort now", "save nosave", "later", "now abort"] {
            assert_eq!(parse(wrong), Err("ERR syntax error".to_owned()), "{wrong}");
        }
        assert!(parse("failover safe").is_err_and(|error| error.contains("cluster")));
    }
}
