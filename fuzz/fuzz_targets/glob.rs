//! Patterns and texts: they match if and only if the pattern means the text. The first byte says
//! where the pattern ends.

#![no_main]

use bobbin_server::base::glob::{matches_text, means};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [split, rest @ ..] = data else { return };
    // The model's time is the product of the lengths.
    let rest = &rest[..rest.len().min(4096)];
    let (pattern, text) = rest.split_at(rest.len() * usize::from(*split) / 255);
    let stars = pattern.iter().filter(|byte| **byte == b'*').count();
    if stars <= 1000 && !text.is_empty() {
        assert_eq!(matches_text(pattern, text), means(pattern, text, b'^'));
    }
});
