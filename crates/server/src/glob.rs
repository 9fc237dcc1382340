//! Patterns: those of CONFIG GET (Redis's), and of `include` (the shell's, over paths).

use std::path::{Path, PathBuf};

/// Whether `text` matches a pattern of `*`, `?`, `[...]` and `\`, without regard to case.
/// Only the last `*` is ever retried, so the time is bounded by the product of the lengths.
pub(crate) fn matches_ignoring_case(pattern: &[u8], text: &[u8]) -> bool {
    matches(&pattern.to_ascii_lowercase(), &text.to_ascii_lowercase(), b'^')
}

/// Whether `text` matches a pattern of Redis: `*`, `?`, `[...]` and `\\`.
pub(crate) fn matches_text(pattern: &[u8], text: &[u8]) -> bool {
    // As with Redis, an empty text matches an empty pattern alone.
    if text.is_empty() { pattern.is_empty() } else { matches(pattern, text, b'^') }
}

/// Whether a path holds wildcards.
pub(crate) fn is_pattern(text: &[u8]) -> bool {
    text.iter().any(|byte| b"*?[".contains(byte))
}

/// The paths that match a pattern, sorted. Names that begin with a dot must be asked for.
pub(crate) fn paths(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in pattern {
        let bytes = part.as_encoded_bytes();
        found = if is_pattern(bytes) {
            found.iter().flat_map(|folder| matching_names(folder, bytes)).collect()
        } else {
            found.iter().map(|folder| folder.join(part)).collect()
        };
    }
    found.retain(|path| path.exists());
    found.sort();
    found
}

fn matching_names(folder: &Path, pattern: &[u8]) -> Vec<PathBuf> {
    let listed = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(entries) = std::fs::read_dir(listed) else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name());
    let wanted = names.filter(|name| {
        let name = name.as_encoded_bytes();
        let hidden = name.starts_with(b".") && !pattern.starts_with(b".");
        !hidden && matches(pattern, name, b'!')
    });
    wanted.map(|name| folder.join(name)).collect()
}

/// `negation` is what may stand first in a set to mean all but these.
fn matches(pattern: &[u8], text: &[u8], negation: u8) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    let mut stars = 0;
    while read < text.len() {
        if pattern.get(at) == Some(&b'*') {
            at += pattern[at..].iter().take_while(|byte| **byte == b'*').count();
            if at == pattern.len() {
                return true;
            }
            star = Some((at, read));
            stars += 1;
            if stars > STARS_MAX {
                return false;
            }
            continue;
        }
        match one(&pattern[at..], text[read], negation) {
            Some(length) => {
                at += length;
                read += 1;
            }
            None => {
                let Some((after, from)) = star else { return false };
                star = Some((after, from + 1));
                (at, read) = (after, from + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// A pattern matches nothing that needs more stars than this, as with Redis.
const STARS_MAX: usize = 1000;

/// The length of the pattern's first element if it matches `byte`.
fn one(pattern: &[u8], byte: u8, negation: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', set @ ..] => in_set(set, byte, negation).map(|length| length + 1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [literal, ..] => (*literal == byte).then_some(1),
    }
}

/// The length of a set with its closing bracket if `byte` is in it. A set that is not closed ends with the pattern.
fn in_set(set: &[u8], byte: u8, negation: u8) -> Option<usize> {
    let negated = set.first() == Some(&negation);
    let mut at = usize::from(negated);
    let mut found = false;
    while at < set.len() && set[at] != b']' {
        match &set[at..] {
            [b'\\', escaped, ..] => {
                found |= *escaped == byte;
                at += 2;
            }
            // To Redis the bracket behind a dash is the end of a range, and not of the set.
            [first, b'-', last, ..] if *last != b']' || negation == b'^' => {
                found |= (*first.min(last)..=*first.max(last)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                found |= *literal == byte;
                at += 1;
            }
            [] => break,
        }
    }
    (found != negated).then_some((at + 1).min(set.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_like_redis() {
        for (pattern, text) in [
            ("*", ""),
            ("max*", "MaxMemory"),
            ("*-policy", "maxmemory-policy"),
            ("a?c", "abc"),
            ("[a-c]x", "bx"),
            ("[^a]x", "bx"),
            (r"\*", "*"),
            ("a*b*c", "a__b__bc"),
            ("[ab", "a"),
        ] {
            assert!(matches_ignoring_case(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in [("", "a"), ("a", ""), ("a*b", "abc"), ("[^a]", "a"), ("?", "")] {
            assert!(
                !matches_ignoring_case(pattern.as_bytes(), text.as_bytes()),
                "{pattern} {text}"
            );
        }
        // What valkey-server 9.1.2 answered to KEYS.
        for (pattern, text) in [("[a-]x]", "^"), ("[?a-]", "^"), ("a*", "a"), ("", "")] {
            assert!(matches_text(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in [("[?a-]", "-"), ("**", ""), ("A", "a")] {
            assert!(!matches_text(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        let stars = |count| matches_text("*?".repeat(count).as_bytes(), &[b'a'; 2000]);
        assert!(stars(1000) && !stars(1001));
        let long = "a".repeat(10_000);
        assert!(!matches_ignoring_case(b"a*a*a*a*a*a*b", long.as_bytes()));
    }
}
