//! A copy that comes on a connection of its own, while the stream behind it comes on the main one.
//!
//! With Valkey, the copy's connection says at which offset the copy was cut. Then the replica asks
//! for the stream from there on. It does so on the main connection, where it names the copy's
//! connection. It keeps the stream until the copy is loaded. With Redis 8, the copy's connection
//! names the main one, and the stream comes there without being asked for.

use super::super::handshake::{CopyHandshake, CopyPoint, CopyStep};
use super::GiveUp;
use super::channel::Channel;
use super::receipt::{CopyProgress, Receipt};
use super::{COPY_TIMEOUT, HANDSHAKE_TIMEOUT, digits};

/// The connection of a copy, and the state of the main connection meanwhile.
pub(super) struct Apart {
    pub channel: Channel,
    talk: Talk,
    joining: Joining,
    /// The cut that the copy was made at, once it is known.
    cut: Option<CopyPoint>,
}

/// The state of the copy's connection.
enum Talk {
    Handshake(CopyHandshake),
    Copy(Receipt),
}

/// The state of the main connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Joining {
    /// It waits for the cut.
    Waits,
    /// It has named the copy's connection, and waits for the answer.
    Names,
    /// It has asked for the stream, and waits for the answer.
    Asks,
    /// The stream comes and is kept.
    Gathers,
}

impl Apart {
    /// `comes_unasked`: the primary sends the stream without being asked.
    pub(super) fn new(
        handshake: CopyHandshake,
        first: &[Vec<u8>],
        comes_unasked: bool,
        now_ms: i64,
    ) -> Self {
        let mut channel = Channel::new(now_ms);
        channel.say(first);
        let joining = if comes_unasked { Joining::Gathers } else { Joining::Waits };
        Self { channel, talk: Talk::Handshake(handshake), joining, cut: None }
    }

    /// Whether the stream comes and is kept.
    pub(super) fn gathers(&self) -> bool {
        self.joining == Joining::Gathers
    }

    /// Whether the stream was asked for, and nothing was answered yet.
    pub(super) fn asks(&self) -> bool {
        self.joining == Joining::Asks
    }

    /// The history and the offset of the copy, and the database that the stream has selected there,
    /// as far as these are known.
    pub(super) fn cut(&self) -> (Option<(String, u64)>, Option<u32>) {
        let cut = self.cut.as_ref();
        (cut.map(|cut| (cut.id.clone(), cut.offset)), cut.and_then(|cut| cut.database))
    }

    /// Returns what was received of the copy. Its end is reported only once the stream behind it is
    /// certain to come.
    pub(super) fn next(
        &mut self,
        main: &mut Channel,
        copy_len_max: usize,
    ) -> Result<CopyProgress, GiveUp> {
        while let Talk::Handshake(handshake) = &mut self.talk {
            let Some(line) = self.channel.input.line()? else { break };
            match handshake.answer(&line) {
                CopyStep::Say(words) => self.channel.say(&words),
                CopyStep::GiveUp(why) => return Err(GiveUp::because(why)),
                CopyStep::Receive(cut) => {
                    if let Some(client) = cut.client {
                        let names = [&b"REPLCONF"[..], b"set-rdb-client-id", &digits(client)];
                        main.say(&names.map(<[u8]>::to_vec));
                        // The main connection was silent while the copy was being prepared.
                        main.heard_ms = self.channel.heard_ms;
                        self.joining = Joining::Names;
                    }
                    self.cut = Some(cut);
                    self.talk = Talk::Copy(Receipt::Awaited);
                }
            }
        }
        while !self.gathers() {
            let Some(line) = main.input.line()? else { break };
            self.join(&line, main)?;
        }
        let gathers = self.gathers();
        let received = match &mut self.talk {
            Talk::Handshake(_) => CopyProgress::Nothing,
            Talk::Copy(receipt) => receipt.next(&mut self.channel.input, copy_len_max)?,
        };
        match received {
            CopyProgress::Nothing => self.channel.expect_more().map(|()| CopyProgress::Nothing),
            CopyProgress::Whole if !gathers => Ok(CopyProgress::Nothing),
            received => Ok(received),
        }
    }

    /// Handles a line on the main connection.
    fn join(&mut self, line: &[u8], main: &mut Channel) -> Result<(), GiveUp> {
        let text = String::from_utf8_lossy(line);
        let abort = || Err(GiveUp::because(format!("Aborting dual channel sync: {text}")));
        match (self.joining, &self.cut) {
            (Joining::Names, Some(cut)) if line.starts_with(b"+") => {
                log::info!(
                    "Dual channel replication: Trying a partial resynchronization using main \
                     channel (request {}:{}).",
                    cut.id,
                    cut.offset + 1
                );
                let asks = [&b"PSYNC"[..], cut.id.as_bytes(), &digits(cut.offset + 1)];
                main.say(&asks.map(<[u8]>::to_vec));
                self.joining = Joining::Asks;
                Ok(())
            }
            (Joining::Asks, Some(cut)) => {
                let Some(id) = text.strip_prefix("+CONTINUE") else { return abort() };
                // Under another name the copy would belong to another history.
                if !matches!(id.trim(), id if id.is_empty() || id == cut.id) {
                    return abort();
                }
                log::info!(
                    "Dual channel replication: PRIMARY <-> REPLICA sync: Primary accepted a Partial \
                     Resynchronization, RDB load in background."
                );
                self.joining = Joining::Gathers;
                Ok(())
            }
            _ => abort(),
        }
    }

    /// Which timeout has passed, if any.
    pub(super) fn overdue(&self, main: &Channel, since_ms: i64) -> Option<&'static str> {
        if matches!(self.joining, Joining::Names | Joining::Asks) && main.heard_ms < since_ms {
            return Some(HANDSHAKE_TIMEOUT);
        }
        // The main connection is not checked here: its buffer may be full, and then it is not read.
        (self.channel.heard_ms < since_ms).then_some(COPY_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{GiveUp, Introduction, LinkEvent, LinkLimits, LinkMachine};

    const ID: &str = "0123456789012345678901234567890123456789";
    const STREAM: &[u8] = b"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n";
    const LIMITS: LinkLimits = LinkLimits {
        bulk_len_max: 1000,
        command_len_max: 2000,
        transaction_len_max: 3000,
        gathered_len_max: 100,
    };

    /// A machine whose primary has asked it to fetch its copy on a separate connection.
    fn machine() -> LinkMachine {
        machine_of("+DUALCHANNELSYNC")
    }

    /// A machine whose primary has given this answer to PSYNC.
    fn machine_of(answer: &str) -> LinkMachine {
        let introduction = Introduction { takes_dual_channel: true, ..Introduction::default() };
        let mut machine = LinkMachine::new(introduction, LIMITS, 0);
        let answers = format!("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n{answer}\r\n");
        tell(&mut machine, answers.as_bytes());
        assert_eq!(machine.next_event(), Ok(LinkEvent::WantsChannel));
        assert_eq!(machine.next_event(), Ok(LinkEvent::Nothing));
        machine.output().clear();
        assert!(machine.copy_channel().is_none());
        machine.channel_opened(0);
        machine
    }

    fn tell(machine: &mut LinkMachine, bytes: &[u8]) {
        machine.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        machine.received(bytes.len(), 0);
    }

    fn tell_copy(machine: &mut LinkMachine, bytes: &[u8]) {
        let channel = machine.copy_channel().expect("the copy comes");
        channel.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        channel.received(bytes.len(), 0);
    }

    fn said(output: &mut Vec<u8>) -> String {
        String::from_utf8(std::mem::take(output)).expect("it is text").replace("\r\n", " ")
    }

    /// Records what was received: the copy, whether it is complete, and the stream.
    fn look(machine: &mut LinkMachine, seen: &mut Seen) -> Result<(), GiveUp> {
        loop {
            match machine.next_event()? {
                LinkEvent::Nothing => return Ok(()),
                LinkEvent::CopyBegins { history, database, length } => {
                    assert_eq!((history, length), (Some((ID.to_owned(), 12)), Some(4)));
                    seen.database = database;
                }
                LinkEvent::Copy(bytes) => seen.copy.extend_from_slice(bytes),
                LinkEvent::CopyEnds => seen.is_whole = true,
                LinkEvent::Commands(commands) => {
                    let len = commands.len();
                    seen.stream.extend_from_slice(&commands.bytes[..len]);
                    machine.applied(len)?;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[derive(Default)]
    struct Seen {
        database: Option<u32>,
        copy: Vec<u8>,
        is_whole: bool,
        stream: Vec<u8>,
    }

    fn copy(database: i64) -> Vec<u8> {
        format!("\n+OK\r\n\n\n$ENDOFF:12 {ID} {database} 7\r\n\n$4\r\nkeys").into_bytes()
    }

    /// Delivers the cut, and the main connection's answers to it.
    fn cut(machine: &mut LinkMachine, answers: &str) -> Result<(), GiveUp> {
        tell_copy(machine, &copy(-1));
        look(machine, &mut Seen::default())?;
        tell(machine, answers.as_bytes());
        look(machine, &mut Seen::default())
    }

    #[test]
    fn copy_and_stream_come_in_any_pieces_and_any_order() {
        let (copy, main) = (copy(3), [&b"\n+OK\r\n\n+CONTINUE\r\n"[..], STREAM].concat());
        let head = copy.len() - "\n$4\r\nkeys".len();
        for at in head..=copy.len() {
            for size in 1..=main.len() {
                let (mut machine, mut seen) = (machine(), Seen::default());
                for piece in copy[..at].chunks(size) {
                    tell_copy(&mut machine, piece);
                    look(&mut machine, &mut seen).unwrap();
                }
                for piece in main.chunks(size) {
                    assert!(!seen.is_whole, "the stream is not sure to come");
                    tell(&mut machine, piece);
                    look(&mut machine, &mut seen).unwrap();
                    if at == copy.len() && machine.gathers() {
                        break;
                    }
                }
                let told = machine.gathered_bytes();
                for piece in copy[at..].chunks(size) {
                    tell_copy(&mut machine, piece);
                    look(&mut machine, &mut seen).unwrap();
                }
                assert!(seen.is_whole && seen.copy == b"keys" && seen.database == Some(3));
                assert!(machine.has_copy() && machine.copy_channel().is_none());
                assert!(seen.stream.is_empty(), "it waits until the copy is loaded");
                // This comes while the copy is being loaded.
                tell(&mut machine, &STREAM[told..]);
                assert_eq!(machine.gathered_bytes(), STREAM.len());
                let output = said(machine.output());
                assert!(output.contains("set-rdb-client-id $1 7 ") && output.ends_with("$2 13 "));
                machine.loaded(0);
                assert_eq!(machine.gathered_bytes(), STREAM.len());
                look(&mut machine, &mut seen).unwrap();
                assert!(seen.stream == STREAM && machine.gathered_bytes() == 0);
                assert!(machine.wants_ack(None, 0), "it shows the primary that all is there");
            }
        }
    }

    #[test]
    fn the_connection_of_the_copy_introduces_itself() {
        let mut machine = machine();
        let channel = machine.copy_channel().expect("it was opened");
        assert!(said(channel.output()).contains("rdb-channel $1 1 "));
        tell_copy(&mut machine, b"+OK\r\n");
        look(&mut machine, &mut Seen::default()).unwrap();
        let channel = machine.copy_channel().expect("it was opened");
        assert_eq!(said(channel.output()), "*1 $4 SYNC ");
        assert!(machine.output().is_empty(), "the main one has nothing to say yet");
    }

    #[test]
    fn redis_sends_the_stream_unasked() {
        for at in 0..=STREAM.len() {
            let (mut machine, mut seen) = (machine_of("+RDBCHANNELSYNC 5"), Seen::default());
            let channel = machine.copy_channel().expect("it was opened");
            assert!(said(channel.output()).contains("main-ch-client-id $1 5 "));
            tell(&mut machine, &STREAM[..at]);
            tell_copy(&mut machine, b"\n+OK\r\n");
            look(&mut machine, &mut seen).unwrap();
            let channel = machine.copy_channel().expect("it was opened");
            assert_eq!(said(channel.output()), "*3 $5 PSYNC $1 ? $2 -1 ");
            tell_copy(&mut machine, format!("\n+FULLRESYNC {ID} 12\r\n$4\r\nkeys").as_bytes());
            look(&mut machine, &mut seen).unwrap();
            assert!(seen.is_whole && seen.copy == b"keys" && seen.database.is_none());
            assert!(seen.stream.is_empty() && machine.gathered_bytes() == at);
            tell(&mut machine, &STREAM[at..]);
            machine.loaded(0);
            look(&mut machine, &mut seen).unwrap();
            assert!(seen.stream == STREAM && machine.wants_ack(None, 0));
            assert!(machine.output().is_empty(), "the main one has nothing to say before");
        }
        for line in ["+RDBCHANNELSYNC", "+RDBCHANNELSYNC x", "+RDBCHANNELSYNC -1"] {
            let introduction = Introduction { takes_dual_channel: true, ..Introduction::default() };
            let mut machine = LinkMachine::new(introduction, LIMITS, 0);
            tell(&mut machine, format!("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n{line}\r\n").as_bytes());
            assert!(machine.next_event().is_err(), "{line}");
        }
        for answer in ["$ENDOFF:12 x 0 7", "-ERR no", "+FULLRESYNC"] {
            let mut machine = machine_of("+RDBCHANNELSYNC 5");
            tell_copy(&mut machine, format!("+OK\r\n{answer}\r\n").as_bytes());
            assert!(machine.next_event().is_err(), "{answer}");
        }
    }

    #[test]
    fn it_is_known_whether_the_stream_was_asked_for() {
        let mut machine = machine();
        assert!(!machine.asks_behind_copy());
        cut(&mut machine, "+OK\r\n").unwrap();
        assert!(machine.asks_behind_copy());
        tell(&mut machine, b"+CONTINUE\r\n");
        look(&mut machine, &mut Seen::default()).unwrap();
        assert!(!machine.asks_behind_copy());
    }

    #[test]
    fn what_is_gathered_has_a_limit() {
        let mut machine = machine();
        cut(&mut machine, "+OK\r\n+CONTINUE\r\n").unwrap();
        assert!(machine.has_room(false) && machine.has_copy());
        let stream = STREAM.repeat(3);
        tell(&mut machine, &stream[..60]);
        assert_eq!(machine.received_len_max(), 40);
        tell(&mut machine, &stream[60..100]);
        assert!(!machine.has_room(false) && machine.gathered_bytes() == 100);
        machine.loaded(0);
        assert!(machine.has_room(false) && machine.received_len_max() == usize::MAX);
    }

    #[test]
    fn anything_else_ends_both_connections() {
        for answers in [
            "-ERR Unrecognized RDB client id 7\r\n".to_owned(),
            "$4\r\n".to_owned(),
            "+OK\r\n+DUALCHANNELSYNC\r\n".to_owned(),
            format!("+OK\r\n+FULLRESYNC {ID} 12\r\n"),
            format!("+OK\r\n+CONTINUE {}\r\n", "b".repeat(40)),
            "+OK\r\n-LOADING\r\n".to_owned(),
            "x".repeat(10_000),
        ] {
            assert!(cut(&mut machine(), &answers).is_err(), "{answers}");
        }
        cut(&mut machine(), &format!("+OK\r\n+CONTINUE {ID}\r\n")).unwrap();
        let mut unasked = machine();
        tell(&mut unasked, b"+OK\r\n");
        assert!(unasked.next_event().is_err());
        for line in ["-ERR no\r\n", "+OK\r\n-ERR later\r\n", "+OK\r\n+FULLRESYNC\r\n"] {
            let mut machine = machine();
            tell_copy(&mut machine, line.as_bytes());
            assert!(machine.next_event().is_err(), "{line}");
        }
        let mut machine = machine();
        tell_copy(&mut machine, format!("+OK\r\n$ENDOFF:1 {ID} 0 1\r\n-ERR no\r\n").as_bytes());
        assert!(machine.next_event().is_err(), "there is no copy");
    }

    #[test]
    fn silence_of_the_copy_ends_both_connections() {
        let mut machine = machine();
        assert!(machine.check_time(60_000, 60_000).is_ok());
        assert!(machine.check_time(60_001, 60_000).is_err());
        machine.copy_channel().expect("it was opened").received(0, 1000);
        assert!(machine.check_time(61_000, 60_000).is_ok(), "the main one may be silent");
        tell_copy(&mut machine, &copy(0)[..copy(0).len() - 1]);
        look(&mut machine, &mut Seen::default()).unwrap();
        machine.copy_channel().expect("it was opened").received(0, 9000);
        assert!(machine.check_time(60_001, 60_000).is_err(), "it has been asked");
        tell(&mut machine, b"+OK\r\n+CONTINUE\r\n");
        look(&mut machine, &mut Seen::default()).unwrap();
        assert!(machine.check_time(69_000, 60_000).is_ok());
        assert!(machine.check_time(69_001, 60_000).is_err());
        tell_copy(&mut machine, b"s");
        look(&mut machine, &mut Seen::default()).unwrap();
        assert!(machine.check_time(1_000_000, 60_000).is_ok(), "it is we who take long");
    }
}
