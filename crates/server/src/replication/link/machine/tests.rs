//! What a primary may send, split at any byte, and what it may not send.

use super::channel::LINE_MAX;
use super::*;

const ID: &str = "0123456789012345678901234567890123456789";
const LIMITS: LinkLimits = LinkLimits {
    bulk_len_max: 1000,
    command_len_max: 2000,
    transaction_len_max: 3000,
    gathered_len_max: 500,
};

/// The history and the offset of a copy, and its length in bytes.
type CopyHeader = (Option<(String, u64)>, Option<u64>);

/// What a replica sees, however the bytes are split.
#[derive(Default, PartialEq, Eq, Debug)]
struct Seen {
    goes_on: Option<Option<String>>,
    copy_begins: Option<CopyHeader>,
    copy: Vec<u8>,
    copy_ends: bool,
    commands: Vec<Vec<Vec<u8>>>,
    /// Bytes of the stream.
    stream: Vec<u8>,
    end: Option<GiveUp>,
    said: Vec<u8>,
}

fn introduction(position: Option<(String, u64)>) -> Introduction {
    Introduction { position, port: 7000, ..Introduction::default() }
}

/// Gives a machine these pieces of bytes one after the other.
fn see<'a>(
    position: Option<(String, u64)>,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (LinkMachine, Seen) {
    let mut machine = LinkMachine::new(introduction(position), LIMITS, 0);
    let mut seen = Seen::default();
    for piece in pieces {
        machine.room(piece.len())[..piece.len()].copy_from_slice(piece);
        machine.received(piece.len(), 0);
        if let Err(end) = look(&mut machine, &mut seen) {
            seen.end = Some(end);
            break;
        }
    }
    seen.said.append(machine.output());
    (machine, seen)
}

fn look(machine: &mut LinkMachine, seen: &mut Seen) -> Result<(), GiveUp> {
    loop {
        match machine.next_event()? {
            LinkEvent::Nothing => return Ok(()),
            LinkEvent::WillCopy | LinkEvent::WantsChannel => {}
            LinkEvent::GoesOn { id } => seen.goes_on = Some(id),
            LinkEvent::CopyBegins { history, length, .. } => {
                seen.copy_begins = Some((history, length));
            }
            LinkEvent::Copy(bytes) => seen.copy.extend_from_slice(bytes),
            LinkEvent::CopyEnds => {
                seen.copy_ends = true;
                machine.loaded(0);
            }
            LinkEvent::Commands(commands) => {
                let taken = |(args, _): (&[&[u8]], usize)| {
                    args.iter().map(|arg| arg.to_vec()).collect::<Vec<_>>()
                };
                seen.commands.extend(commands.iter().map(taken));
                let len = commands.len();
                seen.stream.extend_from_slice(&commands.bytes[..len]);
                machine.applied(len)?;
            }
        }
    }
}

/// What a replica sees of these bytes. Checks that it is the same however they are split.
fn seen(position: Option<(String, u64)>, bytes: &[u8]) -> Seen {
    let (_, whole) = see(position.clone(), [bytes]);
    let (_, single) = see(position.clone(), bytes.chunks(1));
    assert_eq!(whole, single, "byte by byte");
    for at in 1..bytes.len() {
        let (first, second) = bytes.split_at(at);
        let (_, two) = see(position.clone(), [first, second]);
        assert_eq!(whole, two, "cut at {at}");
    }
    whole
}

/// The answers to everything before PSYNC, as old and new servers give them.
fn greeting() -> String {
    "+PONG\r\n-ERR Unrecognized REPLCONF option: x\r\n\n+OK\r\n+OK\r\n".to_owned()
}

const STREAM: &[u8] =
    b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2\r\n\r\n\r\n\
      *3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n*0\r\n*1\r\n$4\r\nPING\r\n\r\n";

#[test]
fn a_copy_and_its_stream_come_in_any_pieces() {
    let mark = "m".repeat(40);
    for (header, footer) in [("$11".to_owned(), ""), (format!("$EOF:{mark}"), &*mark)] {
        let head = greeting() + &format!("\n\n+FULLRESYNC {ID} 77\r\n\n\n{header}\r\n");
        let bytes = [head.as_bytes(), b"some\nkeys*1", footer.as_bytes(), STREAM].concat();
        let seen = seen(None, &bytes);
        assert_eq!(seen.end, None);
        let length = footer.is_empty().then_some(11);
        assert_eq!(seen.copy_begins, Some((Some((ID.to_owned(), 77)), length)));
        assert!(seen.copy_ends && seen.copy == b"some\nkeys*1");
        assert!(seen.stream == STREAM);
        let names: Vec<_> = seen.commands.iter().map(|args| args[0].clone()).collect();
        assert_eq!(names, [&b"SELECT"[..], b"SET", b"REPLCONF", b"PING"]);
        let said = String::from_utf8(seen.said).unwrap();
        assert!(said.ends_with("$5\r\nPSYNC\r\n$1\r\n?\r\n$2\r\n-1\r\n"), "{said}");
    }
}

#[test]
fn a_stream_goes_on_in_any_pieces() {
    let position = Some((ID.to_owned(), 100));
    let bytes = [(greeting() + "\n+CONTINUE\r\n").as_bytes(), STREAM].concat();
    let seen = seen(position, &bytes);
    assert!(seen.goes_on == Some(None) && seen.stream == STREAM && seen.end.is_none());
    let said = String::from_utf8(seen.said).unwrap();
    assert!(said.ends_with(&format!("$40\r\n{ID}\r\n$3\r\n101\r\n")), "{said}");
}

#[test]
fn a_primary_of_old_is_told_nothing() {
    let head = greeting() + "-ERR unknown command 'PSYNC'\r\n$4\r\nkeys";
    let bytes = [head.as_bytes(), STREAM].concat();
    let seen = seen(None, &bytes);
    assert_eq!(seen.copy_begins, Some((None, Some(4))));
    assert!(seen.stream == STREAM && seen.said.ends_with(b"SYNC\r\n"));
    let (machine, _) = see(None, [&bytes[..]]);
    assert!(!machine.wants_ack(None, 1_000_000), "it would answer within the stream");
}

#[test]
fn lies_and_garbage_end_the_connection() {
    let go_on = greeting() + "+CONTINUE\r\n";
    let full = greeting() + &format!("+FULLRESYNC {ID} 0\r\n");
    let long = "x".repeat(LINE_MAX + 1);
    for (head, wrong, is_damage) in [
        ("", "HTTP/1.1 400 Bad Request\r\n", false),
        ("", "$5\r\nhello\r\n", false),
        ("", &*long, false),
        (&full, "-ERR later\r\n", false),
        (&full, "$-5\r\n", false),
        (&full, "$EOF:abc\r\n", false),
        (&full, "+OK\r\n", false),
        (&full, &*long, false),
        (&go_on, "+OK\r\n", true),
        (&go_on, "PING\r\n", true),
        (&go_on, "\rx", true),
        (&go_on, "*1\r\n$9223372036854775807\r\n", true),
        (&go_on, "*1\r\n$1001\r\n", true),
        (&go_on, "*9223372036854775807\r\n", true),
        (&go_on, "*1\r\n+OK\r\n", true),
        (&go_on, "*1\r\n$1\r\nab\r\n", true),
    ] {
        let before = if is_damage { STREAM } else { b"" };
        let bytes = [head.as_bytes(), before, wrong.as_bytes()].concat();
        let seen = seen(Some((ID.to_owned(), 5)), &bytes);
        assert!(seen.stream == before, "what came before is good");
        let end = seen.end.unwrap_or_else(|| panic!("{wrong}"));
        assert_eq!(end.is_damage, is_damage, "{wrong} {}", end.why);
    }
}

#[test]
fn what_is_kept_has_a_limit() {
    let go_on = greeting() + "+CONTINUE\r\n";
    let argument = format!("$1000\r\n{}\r\n", "x".repeat(1000));
    let position = || Some((ID.to_owned(), 5));
    for (len, command) in [(1, format!("*1\r\n{argument}")), (2, format!("*9\r\n{argument}"))] {
        let bytes = [&*go_on, &*command, if len == 2 { &argument } else { "" }].concat();
        let seen = seen(position(), bytes.as_bytes());
        assert_eq!(seen.end.is_some(), len == 2);
    }
    // A transaction is kept until its end comes.
    let (mut machine, seen) = see(position(), [go_on.as_bytes()]);
    assert!(seen.end.is_none());
    let command = format!("*1\r\n{argument}");
    let mut ended = Ok(());
    for _ in 0..4 {
        machine.room(command.len())[..command.len()].copy_from_slice(command.as_bytes());
        machine.received(command.len(), 0);
        assert!(matches!(machine.next_event(), Ok(LinkEvent::Commands(_))));
        ended = machine.applied(0);
    }
    assert!(ended.is_err_and(|end| end.is_damage));
}

#[test]
fn little_memory_is_kept_of_a_long_stream() {
    let (mut machine, _) =
        see(Some((ID.to_owned(), 5)), [(greeting() + "+CONTINUE\r\n").as_bytes()]);
    let mut seen = Seen::default();
    let stream = STREAM.repeat(10);
    for piece in stream.chunks(7).cycle().take(stream.len() * 10) {
        let room = machine.room(100);
        assert!(room.len() < 10_000, "{}", room.len());
        room[..piece.len()].copy_from_slice(piece);
        machine.received(piece.len(), 0);
        look(&mut machine, &mut seen).unwrap();
        assert!(machine.kept_bytes() < 100);
    }
    assert!(seen.stream.starts_with(&stream.repeat(50)));
}

#[test]
fn silence_ends_the_connection_and_acks_are_said_in_time() {
    let (mut machine, _) = see(None, []);
    assert!(machine.check_time(60_000, 60_000).is_ok());
    assert!(machine.check_time(60_001, 60_000).is_err());
    assert!(!machine.wants_ack(None, 60_000));
    let position = Some((ID.to_owned(), 5));
    let head = greeting() + "+CONTINUE\r\n";
    (machine, _) = see(position, [head.as_bytes()]);
    assert!(machine.wants_ack(None, 0), "the first at once");
    machine.acknowledge(5, None, 10);
    assert_eq!(machine.output(), b"*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n$1\r\n5\r\n");
    assert!(!machine.wants_ack(None, 1009) && machine.wants_ack(None, 1010));
    machine.output().clear();
    machine.acknowledge(7, Some(6), 1010);
    assert!(machine.output().ends_with(b"$4\r\nFACK\r\n$1\r\n6\r\n"));
    let ask = b"*3\r\n$8\r\nreplconf\r\n$6\r\ngetack\r\n$1\r\n*\r\n";
    machine.room(ask.len())[..ask.len()].copy_from_slice(ask);
    machine.received(ask.len(), 1020);
    assert!(matches!(machine.next_event(), Ok(LinkEvent::Commands(_))));
    assert!(machine.wants_ack(Some(6), 1020), "it is asked");
    machine.acknowledge(44, Some(6), 1020);
    assert!(machine.owes_ack() && !machine.wants_ack(Some(43), 1020));
    assert!(machine.wants_ack(Some(44), 1020), "now it is on disk");
    machine.acknowledge(44, Some(44), 1020);
    assert!(!machine.owes_ack() && !machine.wants_ack(Some(44), 1020));
    machine.acknowledge(50, Some(44), 2020);
    assert!(!machine.owes_ack(), "the primary has not asked");
    assert!(machine.check_time(61_020, 60_000).is_ok());
    assert!(machine.check_time(61_021, 60_000).is_err());
    // The clock was set back by an hour, and the time begins anew.
    let now_ms = 61_021 - 3_600_000;
    assert!(machine.check_time(now_ms, 60_000).is_ok());
    assert!(machine.check_time(now_ms + 60_000, 60_000).is_ok());
    assert!(machine.check_time(now_ms + 60_001, 60_000).is_err());
}

#[test]
fn nothing_is_missed_while_a_copy_is_loaded() {
    let head = greeting() + &format!("+FULLRESYNC {ID} 7\r\n$4\r\nkeys");
    let bytes = [head.as_bytes(), STREAM].concat();
    let mut machine = LinkMachine::new(introduction(None), LIMITS, 0);
    machine.room(bytes.len())[..bytes.len()].copy_from_slice(&bytes);
    machine.received(bytes.len(), 0);
    while machine.next_event().unwrap() != LinkEvent::CopyEnds {}
    assert_eq!(machine.next_event(), Ok(LinkEvent::Nothing));
    machine.output().clear();
    machine.keep_alive(999);
    assert!(machine.output().is_empty());
    machine.keep_alive(1000);
    assert_eq!(machine.output(), b"\n");
    assert!(machine.check_time(1_000_000, 60_000).is_ok(), "it is we who take long");
    machine.loaded(1_000_000);
    assert!(machine.wants_ack(None, 1_000_000));
    assert!(machine.check_time(1_000_001, 60_000).is_ok());
    assert!(matches!(machine.next_event(), Ok(LinkEvent::Commands(_))));
}
