//! Replies in any bytes: no panic, and the scanner finds the same end or error when the bytes come
//! in pieces. The first byte says in how large ones. The lines are read as replies of MIGRATE's
//! target, too.

#![no_main]

use bobbin_resp::{ReplyScanner, read_reply};
use bobbin_server::read_target_reply;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [step, input @ ..] = data else { return };
    let mut lines = input;
    while let Ok(Some(reply)) = read_target_reply(&mut lines) {
        assert!(reply.is_none_or(|error| error.len() <= input.len() * 3 + 40));
    }
    let whole = ReplyScanner::default().scan(input);
    let mut scanner = ReplyScanner::default();
    let mut end = 0;
    let pieces = loop {
        match scanner.scan(&input[..end]) {
            Ok(None) if end < input.len() => end = input.len().min(end + usize::from(*step) + 1),
            done => break done,
        }
    };
    assert_eq!(whole, pieces);
    match (whole, read_reply(input)) {
        (Ok(Some(len)), Ok(Some((_, read_len)))) => assert_eq!(len, read_len),
        // The scanner looks at counts and lengths alone.
        (Ok(Some(_)), Err(_)) => {}
        (scanned, read) => assert_eq!(scanned.map(|len| len.is_some()), read.map(|_| false)),
    }
});
