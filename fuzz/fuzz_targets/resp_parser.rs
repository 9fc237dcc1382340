//! Requests in any bytes: no panic, and the same commands and the same error however the bytes are
//! cut. The first two bytes say who asks and where to cut.

#![no_main]

use bobbin_resp::{Limits, Parser, ProtocolError, Step};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [settings, step, input @ ..] = data else { return };
    let limits = match settings & 1 {
        0 => Limits::new(1 << 20),
        _ => Limits::unauthenticated(1 << 20),
    };
    let whole = parse(input, input.len(), &limits);
    let pieces = parse(input, usize::from(*step) + 1, &limits);
    // Only a line that has not ended can be too long, and in pieces it has not ended for longer.
    if input.len() <= limits.inline_len_max {
        assert_eq!(whole, pieces);
    }
});

fn parse(input: &[u8], step: usize, limits: &Limits) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let (mut commands, mut parser, mut consumed, mut end) = (Vec::new(), Parser::default(), 0, 0);
    while end < input.len() {
        end = input.len().min(end + step);
        // The caller may move what has not been consumed.
        let buffer = input[consumed..end].to_vec();
        let mut position = 0;
        loop {
            let (before, mut arguments) = (position, Vec::new());
            match parser.next(&buffer, &mut position, limits, &mut arguments) {
                Ok(Step::Complete) => {
                    commands.push(arguments.iter().map(|argument| argument.to_vec()).collect());
                }
                Ok(Step::Inline(arguments)) => commands.push(arguments),
                Ok(Step::Empty) => assert!(arguments.is_empty()),
                Ok(Step::Incomplete { wanted }) => {
                    assert!(wanted > 0 && position == before && arguments.is_empty());
                    break;
                }
                Err(error) => return (commands, Some(error)),
            }
            assert!(position > before && position <= buffer.len());
        }
        consumed += position;
    }
    (commands, None)
}
