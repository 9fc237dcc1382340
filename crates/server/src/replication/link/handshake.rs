//! The handshake between a replica and its primary, before the stream. It has no sockets and no
//! clock: the caller sends the commands and passes the answers on.

use crate::config::VALKEY_VERSION;
use crate::engine::log::history::parse_offset;

/// What the replica tells about itself.
#[derive(Clone, Debug, Default)]
pub struct Introduction {
    /// AUTH's arguments, if any.
    pub credentials: Vec<Vec<u8>>,
    /// The port on which it serves clients.
    pub port: u16,
    /// The address that the replica wants to be known by; empty: the one that it connects from.
    pub address: Vec<u8>,
    /// The history and the offset of the next byte that it wants; `None`: it wants everything.
    pub position: Option<(String, u64)>,
    /// Asks the other server, which is a replica, to lead from there on.
    pub hands_over: bool,
    /// It accepts copies on a connection of their own.
    pub takes_dual_channel: bool,
}

/// The step of the handshake: which command has no answer yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HandshakeStage {
    Ping,
    Auth,
    Port,
    Address,
    Capabilities,
    Version,
    Psync,
}

/// The replica's side of the handshake.
pub struct Handshake {
    introduction: Introduction,
    stage: HandshakeStage,
}

/// What the caller has to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NextStep {
    /// Send this command, and wait for the answer.
    Say(Vec<Vec<u8>>),
    /// Receive all keys, and then the stream from this offset of this history on.
    ReceiveAll { id: String, offset: u64 },
    /// Continue the stream, perhaps under a new name.
    GoOn { id: Option<String> },
    /// The primary does not know PSYNC: ask for everything by SYNC.
    Sync,
    /// Fetch all keys on a connection of their own. With Redis 8 that connection names this one by
    /// the client id that the primary gives here.
    FetchApart { main_client: Option<u64> },
    /// Close this connection.
    GiveUp(String),
}

/// The version that the replica gives, which is a version of Valkey.
const VERSION: &[u8] = VALKEY_VERSION.as_bytes();

impl Handshake {
    /// Begins a handshake. Returns the first command too.
    pub fn begin(introduction: Introduction) -> (Self, Vec<Vec<u8>>) {
        (Self { introduction, stage: HandshakeStage::Ping }, words(&[b"PING"]))
    }

    /// Handles the answer to the last command: a line without its end.
    pub fn answer(&mut self, line: &[u8]) -> NextStep {
        let text = String::from_utf8_lossy(line).into_owned();
        let is_error = line.first() == Some(&b'-');
        if !is_error && line.first() != Some(&b'+') {
            return NextStep::GiveUp(format!("Unexpected reply from primary: '{text}'"));
        }
        match self.stage {
            HandshakeStage::Ping if is_error && !is_about_rights(line) => {
                return NextStep::GiveUp(format!("Error reply to PING from primary: '{text}'"));
            }
            HandshakeStage::Ping
                if line.starts_with(b"-NOAUTH") && self.introduction.credentials.is_empty() =>
            {
                let text =
                    format!("The primary wants a password, and primaryauth has none: {text}");
                return NextStep::GiveUp(text);
            }
            // It only wants the password, which comes next.
            HandshakeStage::Ping => {}
            HandshakeStage::Auth if is_error => {
                return NextStep::GiveUp(format!("Unable to AUTH to PRIMARY: {text}"));
            }
            HandshakeStage::Psync => return self.answer_to_psync(line, text),
            _ if is_error => {
                log::info!("(Non critical) Primary does not understand REPLCONF: {text}");
            }
            _ => {}
        }
        self.advance();
        NextStep::Say(self.question())
    }

    /// Whether PSYNC was sent.
    pub fn asked_for_stream(&self) -> bool {
        self.stage == HandshakeStage::Psync
    }

    /// Begins the handshake on the connection for a copy. Returns the first command too.
    pub fn fetch_apart(&self, main_client: Option<u64>) -> (CopyHandshake, Vec<Vec<u8>>) {
        CopyHandshake::begin(self.introduction.clone(), main_client)
    }

    fn advance(&mut self) {
        self.stage = match self.stage {
            HandshakeStage::Ping if !self.introduction.credentials.is_empty() => {
                HandshakeStage::Auth
            }
            HandshakeStage::Ping | HandshakeStage::Auth => HandshakeStage::Port,
            HandshakeStage::Port if !self.introduction.address.is_empty() => {
                HandshakeStage::Address
            }
            HandshakeStage::Port | HandshakeStage::Address => HandshakeStage::Capabilities,
            HandshakeStage::Capabilities => HandshakeStage::Version,
            HandshakeStage::Version | HandshakeStage::Psync => HandshakeStage::Psync,
        };
    }

    fn question(&self) -> Vec<Vec<u8>> {
        let Introduction { credentials, port, address, position, hands_over, .. } =
            &self.introduction;
        match self.stage {
            HandshakeStage::Ping => words(&[b"PING"]),
            HandshakeStage::Auth => [vec![b"AUTH".to_vec()], credentials.clone()].concat(),
            HandshakeStage::Port => {
                words(&[b"REPLCONF", b"listening-port", port.to_string().as_bytes()])
            }
            HandshakeStage::Address => words(&[b"REPLCONF", b"ip-address", address]),
            HandshakeStage::Capabilities => {
                let mut said = words(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"]);
                if self.introduction.takes_dual_channel {
                    said.extend(words(&[b"capa", b"dual-channel", b"capa", b"rdb-channel-repl"]));
                }
                said
            }
            HandshakeStage::Version => words(&[b"REPLCONF", b"version", VERSION]),
            HandshakeStage::Psync => match position {
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
            let wrong = || format!("Primary replied with wrong +FULLRESYNC syntax: {text}");
            return match full_resync(&text) {
                Some((id, offset)) => NextStep::ReceiveAll { id, offset },
                None => NextStep::GiveUp(wrong()),
            };
        }
        if let Some(rest) = line.strip_prefix(b"+CONTINUE")
            && self.introduction.position.is_some()
        {
            let id = String::from_utf8_lossy(rest).trim().to_owned();
            return NextStep::GoOn { id: is_id(&id).then_some(id) };
        }
        if line.starts_with(b"+DUALCHANNELSYNC") && self.introduction.takes_dual_channel {
            return NextStep::FetchApart { main_client: None };
        }
        if let Some(id) = text.strip_prefix("+RDBCHANNELSYNC ")
            && self.introduction.takes_dual_channel
            && let Ok(id) = id.trim_end().parse()
        {
            return NextStep::FetchApart { main_client: Some(id) };
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

/// The replica's side of the handshake on the connection for a copy.
pub struct CopyHandshake {
    introduction: Introduction,
    /// The client id of the main connection, if the primary is of Redis's kind.
    main_client: Option<u64>,
    stage: CopyStage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CopyStage {
    Auth,
    Introduction,
    Sync,
}

/// What the caller has to do next on the copy's connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CopyStep {
    /// Send this command, and wait for the answer.
    Say(Vec<Vec<u8>>),
    /// Receive the copy.
    Receive(CopyPoint),
    /// Close this connection.
    GiveUp(String),
}

/// The moment at which a copy was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyPoint {
    /// The history, and the offset in it.
    pub id: String,
    pub offset: u64,
    /// The database that the stream has selected there; `None`: the stream selects one itself.
    pub database: Option<u32>,
    /// The client id of this connection, if the main connection has to name it.
    pub client: Option<u64>,
}

impl CopyHandshake {
    fn begin(introduction: Introduction, main_client: Option<u64>) -> (Self, Vec<Vec<u8>>) {
        let stage = match introduction.credentials.is_empty() {
            true => CopyStage::Introduction,
            false => CopyStage::Auth,
        };
        let handshake = Self { introduction, main_client, stage };
        let first = handshake.question();
        (handshake, first)
    }

    /// Handles the answer to the last command: a line without its end.
    pub fn answer(&mut self, line: &[u8]) -> CopyStep {
        let text = String::from_utf8_lossy(line).into_owned();
        let is_error = line.first() == Some(&b'-');
        self.stage = match self.stage {
            CopyStage::Auth if is_error => {
                return CopyStep::GiveUp(format!("Unable to AUTH to Primary: {text}"));
            }
            CopyStage::Auth => CopyStage::Introduction,
            CopyStage::Introduction if is_error => {
                return CopyStep::GiveUp(format!(
                    "Server does not support sync with offset, dual channel sync approach cannot \
                     be used: {text}"
                ));
            }
            CopyStage::Introduction => CopyStage::Sync,
            CopyStage::Sync => {
                let cut = match self.main_client {
                    Some(_) => full_resync(&text).map(|(id, offset)| CopyPoint {
                        id,
                        offset,
                        database: None,
                        client: None,
                    }),
                    None => end_offset(&text),
                };
                let wrong = || CopyStep::GiveUp(format!("unexpected answer to the sync: {text}"));
                return cut.map_or_else(wrong, CopyStep::Receive);
            }
        };
        CopyStep::Say(self.question())
    }

    fn question(&self) -> Vec<Vec<u8>> {
        let Introduction { credentials, port, address, .. } = &self.introduction;
        match self.stage {
            CopyStage::Auth => [vec![b"AUTH".to_vec()], credentials.clone()].concat(),
            CopyStage::Introduction => {
                let port = port.to_string();
                let mut said = words(&[b"REPLCONF", b"capa", b"eof", b"rdb-only", b"1"]);
                said.extend(words(&[b"rdb-channel", b"1", b"listening-port", port.as_bytes()]));
                if !address.is_empty() {
                    said.extend(words(&[b"ip-address", address]));
                }
                match self.main_client {
                    Some(client) => {
                        let client = client.to_string();
                        said.extend(words(&[b"main-ch-client-id", client.as_bytes()]));
                    }
                    None => said.extend(words(&[b"version", VERSION])),
                }
                said
            }
            CopyStage::Sync if self.main_client.is_some() => words(&[b"PSYNC", b"?", b"-1"]),
            CopyStage::Sync => words(&[b"SYNC"]),
        }
    }
}

/// Parses `$ENDOFF:offset id database client`.
fn end_offset(text: &str) -> Option<CopyPoint> {
    let mut parts = text.strip_prefix("$ENDOFF:")?.split(' ');
    let (offset, id) = (parse_offset(parts.next()?.as_bytes())?, parts.next()?);
    let (database, client) = (number(parts.next()?)?, number(parts.next()?)?);
    let client = u64::try_from(client).ok()?;
    let database = u32::try_from(database).ok();
    let cut = CopyPoint { id: id.to_owned(), offset, database, client: Some(client) };
    (is_id(id) && parts.next().is_none()).then_some(cut)
}

fn number(text: &str) -> Option<i64> {
    bobbin_resp::parse_i64(text.as_bytes())
}

/// Parses `+FULLRESYNC id offset`.
fn full_resync(text: &str) -> Option<(String, u64)> {
    let (id, offset) = text.strip_prefix("+FULLRESYNC ")?.split_once(' ')?;
    let offset = parse_offset(offset.trim_end().as_bytes())?;
    is_id(id).then(|| (id.to_owned(), offset))
}

fn is_id(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Whether an error only says that the client must authenticate.
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
            ..Introduction::default()
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

    /// A handshake that waits for the answer to PSYNC.
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
            "+RDBCHANNELSYNC 5",
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
    fn a_password_that_is_missing_is_told_of() {
        let (mut handshake, _) = Handshake::begin(Introduction::default());
        let NextStep::GiveUp(why) = handshake.answer(b"-NOAUTH Authentication required.") else {
            panic!("it goes on")
        };
        assert!(why.starts_with("The primary wants a password"), "{why}");
    }

    #[test]
    fn a_copy_is_fetched_by_a_connection_of_its_own() {
        let introduction = Introduction {
            credentials: vec![b"secret".to_vec()],
            port: 7000,
            address: b"10.0.0.1".to_vec(),
            takes_dual_channel: true,
            ..Introduction::default()
        };
        let (mut handshake, _) = Handshake::begin(introduction);
        let said: Vec<_> = (0..6).map(|_| text(&handshake.answer(b"+OK"))).collect();
        assert_eq!(
            said[3],
            "REPLCONF capa eof capa psync2 capa dual-channel capa rdb-channel-repl"
        );
        assert_eq!(
            handshake.answer(b"+DUALCHANNELSYNC"),
            NextStep::FetchApart { main_client: None }
        );
        let (mut copy, first) = handshake.fetch_apart(None);
        assert_eq!(first, words(&[b"AUTH", b"secret"]));
        let introduced = "REPLCONF capa eof rdb-only 1 rdb-channel 1 listening-port 7000 \
                          ip-address 10.0.0.1 version 9.1.2";
        let CopyStep::Say(said) = copy.answer(b"+OK") else { panic!("it has a question") };
        assert_eq!(text(&NextStep::Say(said)), introduced);
        assert_eq!(copy.answer(b"+OK"), CopyStep::Say(words(&[b"SYNC"])));
        let id = "a".repeat(40);
        for line in [
            "-ERR no".to_owned(),
            "$ENDOFF:".to_owned(),
            format!("$ENDOFF:1 {id} 0"),
            format!("$ENDOFF:-1 {id} 0 1"),
            format!("$ENDOFF:9223372036854775807 {id} 0 1"),
            format!("$ENDOFF:1 {} 0 1", "a".repeat(39)),
            format!("$ENDOFF:1 {id} x 1"),
            format!("$ENDOFF:1 {id} 0 -1"),
            format!("$ENDOFF:1 {id} 0 1 2"),
        ] {
            assert!(matches!(copy.answer(line.as_bytes()), CopyStep::GiveUp(_)), "{line}");
        }
        for (database, known) in [("-1", None), ("3", Some(3))] {
            let line = format!("$ENDOFF:12 {id} {database} 7");
            let cut = CopyPoint { id: id.clone(), offset: 12, database: known, client: Some(7) };
            assert_eq!(copy.answer(line.as_bytes()), CopyStep::Receive(cut));
        }
        let (mut copy, _) = handshake.fetch_apart(None);
        assert!(matches!(copy.answer(b"-WRONGPASS"), CopyStep::GiveUp(_)));
        copy.answer(b"+OK");
        assert!(matches!(copy.answer(b"-ERR unknown option"), CopyStep::GiveUp(_)));
    }

    #[test]
    fn a_primary_without_psync_is_asked_by_sync() {
        assert_eq!(asked(None).answer(b"-ERR unknown command 'PSYNC'"), NextStep::Sync);
        let position = Some(("a".repeat(40), 5));
        assert_eq!(asked(position).answer(b"-ERR unknown command"), NextStep::Sync);
    }
}
