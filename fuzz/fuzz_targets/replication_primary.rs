//! What a primary may send: any bytes. A replica takes the same of them however they are cut, keeps
//! no more than its limits allow, and never panics. The first byte says how many answers of the
//! handshake are put before the rest, the second where the bytes are cut.

#![no_main]

use bobbin_server::replication::link::handshake::Introduction;
use bobbin_server::replication::link::machine::{GiveUp, LinkEvent, LinkLimits, LinkMachine};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [answers, step, rest @ ..] = data else { return };
    let mut input = b"+OK\r\n".repeat(usize::from(answers % 8));
    if answers & 8 != 0 {
        input.extend_from_slice(b"+CONTINUE\r\n");
    } else if answers & 16 != 0 {
        input.extend_from_slice(b"+FULLRESYNC 0123456789012345678901234567890123456789 5\r\n");
    }
    input.extend_from_slice(rest);
    let whole = receive(&input, input.len().max(1));
    let pieces = receive(&input, usize::from(*step) + 1);
    assert_eq!(whole, pieces);
});

/// All that is seen: what a connection did, and how it ended.
#[derive(Default, PartialEq, Eq, Debug)]
struct Seen {
    events: Vec<String>,
    copy: Vec<u8>,
    stream: Vec<u8>,
    commands: Vec<Vec<Vec<u8>>>,
    said: Vec<u8>,
    /// Whether it ended, and by what kind of fault.
    end: Option<bool>,
}

fn receive(input: &[u8], step: usize) -> Seen {
    let introduction =
        Introduction { position: Some(("0".repeat(40), 7)), ..Introduction::default() };
    let mut machine = LinkMachine::new(introduction, LIMITS, 0);
    let mut seen = Seen::default();
    for piece in input.chunks(step) {
        machine.room(piece.len())[..piece.len()].copy_from_slice(piece);
        machine.received(piece.len(), 0);
        if let Err(end) = look(&mut machine, &mut seen) {
            seen.end = Some(end.is_damage);
            break;
        }
        assert!(machine.kept_bytes() <= KEPT_MAX.max(piece.len()), "{}", machine.kept_bytes());
    }
    seen.said.append(machine.output());
    seen
}

fn look(machine: &mut LinkMachine, seen: &mut Seen) -> Result<(), GiveUp> {
    loop {
        match machine.next_event()? {
            LinkEvent::Nothing => return Ok(()),
            LinkEvent::Copy(bytes) => seen.copy.extend_from_slice(bytes),
            LinkEvent::Commands(commands) => {
                let mut last = 0;
                for (args, end) in commands.iter() {
                    assert!(!args.is_empty() && end > last && end <= commands.len());
                    last = end;
                    seen.commands.push(args.iter().map(|arg| arg.to_vec()).collect());
                }
                let len = commands.len();
                assert!(len > 0);
                seen.stream.extend_from_slice(&commands.bytes[..len]);
                machine.applied(len)?;
            }
            LinkEvent::CopyEnds => {
                seen.events.push("the copy ends".to_owned());
                machine.loaded(0);
            }
            other => seen.events.push(format!("{other:?}")),
        }
    }
}

const LIMITS: LinkLimits = LinkLimits {
    bulk_len_max: 500,
    command_len_max: 1000,
    transaction_len_max: 2000,
    gathered_len_max: 1000,
};
/// The longest line of the handshake, which is more than a command may have here.
const KEPT_MAX: usize = 4096 + 256;
