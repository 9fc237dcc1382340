//! Requests in any bytes: no panic, and the same commands and the same error however the bytes are
//! cut, and whether or not large arguments are kept outside of the parser's bytes. The first two
//! bytes say who asks and where to cut; a byte 0xff stands for a large argument's worth of bytes.

#![no_main]

use bobbin_resp::{LARGE_LEN_MIN, Limits, ParseStep, Parser, ProtocolError};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [settings, step, input @ ..] = data else { return };
    let limits = match settings & 1 {
        0 => Limits::new(1 << 20),
        _ => Limits::unauthenticated(1 << 20),
    };
    let input = expand(input);
    let whole = parse(&input, input.len().max(1), false, &limits);
    // What has not been consumed is copied with every piece: there must not be too many.
    let step = (usize::from(*step) + 1).max(input.len() / PIECES_MAX);
    let pieces = parse(&input, step, settings & 2 != 0, &limits);
    // Only a line that has not ended can be too long, and in pieces it has not ended for longer.
    if input.len() <= limits.inline_len_max {
        assert_eq!(whole, pieces);
    }
});

fn expand(input: &[u8]) -> Vec<u8> {
    let mut output = Vec::new();
    for (index, part) in input.split(|&byte| byte == 0xff).enumerate() {
        if (1..=EXPANSIONS_MAX).contains(&index) {
            output.resize(output.len() + LARGE_LEN_MIN, b'x');
        }
        output.extend_from_slice(part);
    }
    output
}

type Parsed = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

fn parse(input: &[u8], step: usize, keep_outside: bool, limits: &Limits) -> Parsed {
    let mut client = Client { keep_outside, ..Client::default() };
    let error = input.chunks(step).try_for_each(|piece| client.receive(piece, limits)).err();
    (client.commands, error)
}

/// A connection's bytes, as the server keeps them.
#[derive(Default)]
struct Client {
    keep_outside: bool,
    parser: Parser,
    commands: Vec<Vec<Vec<u8>>>,
    unparsed: Vec<u8>,
    /// Large arguments of the command that has begun, and how long each is to be.
    outside: Vec<(Vec<u8>, usize)>,
}

impl Client {
    fn receive(&mut self, piece: &[u8], limits: &Limits) -> Result<(), ProtocolError> {
        let mut piece = piece.to_vec();
        loop {
            if let Some((bytes, len)) = self.outside.last_mut() {
                let rest = piece.split_off(piece.len().min(*len - bytes.len()));
                bytes.extend_from_slice(&piece);
                if bytes.len() < *len {
                    return Ok(());
                }
                piece = rest;
            }
            self.unparsed.extend_from_slice(&piece);
            self.parse(limits)?;
            let Some(large) = self.parser.large().filter(|_| self.keep_outside) else {
                return Ok(());
            };
            piece = self.unparsed.split_off(large.start);
            self.outside.push((Vec::new(), large.len));
            self.parser.keep_outside();
        }
    }

    fn parse(&mut self, limits: &Limits) -> Result<(), ProtocolError> {
        // The caller may move what has not been consumed.
        let (buffer, mut position) = (std::mem::take(&mut self.unparsed), 0);
        loop {
            let (before, mut arguments) = (position, Vec::new());
            match self.parser.next(&buffer, &mut position, limits, &mut arguments)? {
                ParseStep::Complete => self.commands.push(owned(&arguments)),
                ParseStep::CompleteOutside(numbers) => {
                    let mut command = owned(&arguments);
                    assert_eq!(numbers.len(), self.outside.len());
                    for (number, (bytes, _)) in numbers.into_iter().zip(self.outside.drain(..)) {
                        assert!(command[number].is_empty());
                        command[number] = bytes;
                    }
                    self.commands.push(command);
                }
                ParseStep::Inline(arguments) => self.commands.push(arguments),
                ParseStep::Empty => assert!(arguments.is_empty()),
                ParseStep::Incomplete { wanted } => {
                    assert!(wanted > 0 && position == before && arguments.is_empty());
                    break;
                }
            }
            assert!(position > before && position <= buffer.len());
        }
        self.unparsed = buffer[position..].to_vec();
        Ok(())
    }
}

fn owned(arguments: &[&[u8]]) -> Vec<Vec<u8>> {
    arguments.iter().map(|argument| argument.to_vec()).collect()
}

const EXPANSIONS_MAX: usize = 4;
const PIECES_MAX: usize = 512;
