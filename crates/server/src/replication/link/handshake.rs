//! What a replica and its primary say to each other before there is a stream. No sockets and no
//! clock are here: whoever drives it sends the words and hands it the answers.

/// What the replica knows of itself.
#[derive(Clone, Debug, Default)]
pub struct Introduction {
    /// AUTH's arguments, if any.
    pub credentials: Vec<Vec<u8>>,
    /// The port on which it serves clients.
    pub port: u16,
    /// The address that it wants to be known by; empty: the one that it has.
    pub address: Vec<u8>,
    /// The history and the offset of the next byte that it wants; `None`: everything.
    pub position: Option<(String, u64)>,
    /// The other server, which is a replica, shall lead from there.
    pub hands_over: bool,
}

/// Where the handshake is: what was said and not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Ping,
    Auth,
    Port,
    Address,
    Capabilities,
    Version,
    Psync,
}

/// The replica's side.
pub struct Handshake {
    introduction: Introduction,
    stage: Stage,
}

/// What to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NextStep {
    /// Send this command, and wait for the answer.
    Say(Vec<Vec<u8>>),
    /// All keys follow, and then the stream from this offset of this history on.
    ReceiveAll { id: String, offset: u64 },
    /// The stream goes on where it was; perhaps under a new name.
    GoOn { id: Option<String> },
    /// The primary does not know PSYNC: ask for everything by SYNC.
    Sync,
    /// Nothing comes of this connection.
    GiveUp(String),
}

/// The version that the replica says it has, as Valkey counts.
const VERSION: &[u8] = b"9.1.2";

impl Handshake {
    /// A handshake, and what is said first.
    pub fn begin(introduction: Introduction) -> (Self, Vec<Vec<u8>>) {
        (Self { introduction, stage: Stage::Ping }, words(&[b"PING"]))
    }

    /// Takes the answer to what was said last: a line without its end.
    pub fn answer(&mut self, line: &[u8]) -> NextStep {
        let text = String::from_utf8_lossy(line).into_owned();
        let is_error = line.first() == Some(&b'-');
        if !is_error && line.first() != Some(&b'+') {
            return NextStep::GiveUp(format!("Unexpected reply from primary: '{text}'"));
        }
        match self.stage {
            Stage::Ping if is_error && !is_about_rights(line) => {
                return NextStep::GiveUp(format!("Error reply to PING from primary: '{text}'"));
            }
            Stage::Auth if is_error => {
                return NextStep::GiveUp(format!("Unable to AUTH to PRIMARY: {text}"));
            }
            Stage::Psync => return self.answer_to_psync(line, text),
            _ if is_error => {
                log::info!("(Non critical) Primary does not understand REPLCONF: {text}");
            }
            _ => {}
        }
        self.advance();
        NextStep::Say(self.question())
    }

    /// Whether the answer to PSYNC is awaited, or has come.
    pub fn asked_for_stream(&self) -> bool {
        self.stage == Stage::Psync
    }

    fn advance(&mut self) {
        self.stage = match self.stage {
            Stage::Ping if !self.introduction.credentials.is_empty() => Stage::Auth,
            Stage::Ping | Stage::Auth => Stage::Port,
            Stage::Port if !self.introduction.address.is_empty() => Stage::Address,
            Stage::Port | Stage::Address => Stage::Capabilities,
            Stage::Capabilities => Stage::Version,
            Stage::Version | Stage::Psync => Stage::Psync,
        };
    }

    fn question(&self) -> Vec<Vec<u8>> {
        let Introduction { credentials, port, address, position, hands_over } = &self.introduction;
        match self.stage {
            Stage::Ping => words(&[b"PING"]),
            Stage::Auth => [vec![b"AUTH".to_vec()], credentials.clone()].concat(),
            Stage::Port => words(&[b"REPLCONF", b"listening-port", port.to_string().as_bytes()]),
            Stage::Address => words(&[b"REPLCONF", b"ip-address", address]),
            Stage::Capabilities => words(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"]),
            Stage::Version => words(&[b"REPLCONF", b"version", VERSION]),
            Stage::Psync => match position {
                None => words(&[b"PSYNC", b"?", b"-1"]),
                Some((id, offset)) => {
                    let first = (offset + 1).to_string();
                    let mut said = words(&[b"PSYNC", id.as_bytes(), first.as_bytes()]);
                    said.extend(hands_over.then(|| b"FAILOVER".to_vec()));
                    said
                }
            },
        }
    }

    fn answer_to_psync(&self, line: &[u8], text: String) -> NextStep {
        if line.starts_with(b"+FULLRESYNC") {
            return full_resync(&text).unwrap_or_else(|| {
                NextStep::GiveUp(format!("Primary replied with wrong +FULLRESYNC syntax: {text}"))
            });
        }
        if let Some(rest) = line.strip_prefix(b"+CONTINUE")
            && self.introduction.position.is_some()
        {
            let id = String::from_utf8_lossy(rest).trim().to_owned();
            return NextStep::GoOn { id: is_id(&id).then_some(id) };
        }
        if [&b"-NOMASTERLINK"[..], b"-LOADING"].iter().any(|prefix| line.starts_with(prefix)) {
            let text = format!("Primary is currently unable to PSYNC: {text}");
            return NextStep::GiveUp(text);
        }
        if line.starts_with(b"-ERR") && !self.introduction.hands_over {
            log::info!("Primary does not support PSYNC or is in error state (reply: {text})");
            return NextStep::Sync;
        }
        NextStep::GiveUp(format!("Unexpected reply to PSYNC from primary: {text}"))
    }
}

/// What `+FULLRESYNC id offset` says.
fn full_resync(text: &str) -> Option<NextStep> {
    let (id, offset) = text.strip_prefix("+FULLRESYNC ")?.split_once(' ')?;
    let offset = bobbin_resp::parse_i64(offset.trim_end().as_bytes())?;
    let offset = u64::try_from(offset).ok().filter(|offset| *offset <= OFFSET_MAX)?;
    is_id(id).then(|| NextStep::ReceiveAll { id: id.to_owned(), offset })
}

fn is_id(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Where a stream may begin: the bytes that follow must have offsets, too.
const OFFSET_MAX: u64 = 1 << 62;

/// Whether an error says only that the client must say who it is.
fn is_about_rights(line: &[u8]) -> bool {
    [&b"-NOAUTH"[..], b"-NOPERM", b"-ERR operation not permitted"]
        .iter()
        .any(|prefix| line.starts_with(prefix))
}

fn words(words: &[&[u8]]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(step: &NextStep) -> String {
        match step {
            NextStep::Say(words) => String::from_utf8(words.join(&b' ')).unwrap(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_replica_introduces_itself_and_asks() {
        let introduction = Introduction {
            credentials: vec![b"user".to_vec(), b"secret".to_vec()],
            port: 7000,
            address: b"10.0.0.1".to_vec(),
            position: Some(("a".repeat(40), 99)),
            hands_over: false,
        };
        let (mut handshake, first) = Handshake::begin(introduction);
        assert_eq!(first, words(&[b"PING"]));
        let answers =
            ["-NOAUTH Authentication required.", "+OK", "+OK", "+OK", "+OK", "-ERR Unrecognized"];
        let said: Vec<_> =
            answers.iter().map(|answer| text(&handshake.answer(answer.as_bytes()))).collect();
        let asked = format!("PSYNC {} 100", "a".repeat(40));
        let expected = [
            "AUTH user secret",
            "REPLCONF listening-port 7000",
            "REPLCONF ip-address 10.0.0.1",
            "REPLCONF capa eof capa psync2",
            "REPLCONF version 9.1.2",
            &asked,
        ];
        assert_eq!(said, expected);
        assert_eq!(handshake.answer(b"+CONTINUE"), NextStep::GoOn { id: None });
        let id = "b".repeat(40);
        let step = handshake.answer(format!("+CONTINUE {id}").as_bytes());
        assert_eq!(step, NextStep::GoOn { id: Some(id.clone()) });
        let step = handshake.answer(format!("+FULLRESYNC {id} 12").as_bytes());
        assert_eq!(step, NextStep::ReceiveAll { id, offset: 12 });
    }

    /// A handshake that awaits the answer to PSYNC.
    fn asked(position: Option<(String, u64)>) -> Handshake {
        let introduction = Introduction { position, ..Introduction::default() };
        let (mut handshake, _) = Handshake::begin(introduction);
        for _ in 0..4 {
            assert!(matches!(handshake.answer(b"+OK"), NextStep::Say(_)));
        }
        handshake
    }

    #[test]
    fn what_makes_no_sense_is_given_up() {
        let (mut handshake, _) = Handshake::begin(Introduction::default());
        for line in [&b"-LOADING later"[..], b"$5", b"*1", b":1", b"HTTP/1.1 400 Bad Request"] {
            assert!(matches!(handshake.answer(line), NextStep::GiveUp(_)), "{line:?}");
        }
        let id = "a".repeat(40);
        for line in [
            "+FULLRESYNC",
            "+FULLRESYNC short 1",
            &format!("+FULLRESYNC {id}"),
            &format!("+FULLRESYNC {id} x"),
            &format!("+FULLRESYNC {id} -1"),
            &format!("+FULLRESYNC {id} 9223372036854775807"),
            "+CONTINUE",
            "+DUALCHANNELSYNC",
            "-NOMASTERLINK wait",
            "-LOADING wait",
            "-NOPERM no",
            "$5",
        ] {
            let step = asked(None).answer(line.as_bytes());
            assert!(matches!(step, NextStep::GiveUp(_)), "{line} {step:?}");
        }
    }

    #[test]
    fn a_primary_without_psync_is_asked_by_sync() {
        assert_eq!(asked(None).answer(b"-ERR unknown command 'PSYNC'"), NextStep::Sync);
        let position = Some(("a".repeat(40), 5));
        assert_eq!(asked(position).answer(b"-ERR unknown command"), NextStep::Sync);
    }
}
