//! Patterns: those of Redis, for keys, channels and CONFIG GET, and those of the shell, for the
//! paths of `include`.

use std::path::{Path, PathBuf};

/// A pattern of `*`, `?`, `[...]` and `\` that ignores case. It is prepared once for all texts that
/// are compared with it, as a client's pattern may be long.
pub(crate) struct CaselessPattern(Vec<u8>);

impl CaselessPattern {
    pub fn new(pattern: &[u8]) -> Self {
        Self(pattern.to_ascii_lowercase())
    }

    pub fn matches(&self, text: &[u8]) -> bool {
        matches(&self.0, &text.to_ascii_lowercase(), b'^')
    }
}

/// Whether `text` matches a pattern of Redis: `*`, `?`, `[...]` and `\`.
pub fn matches_text(pattern: &[u8], text: &[u8]) -> bool {
    // As in Redis, an empty text matches only an empty pattern.
    if text.is_empty() { pattern.is_empty() } else { matches(pattern, text, b'^') }
}

/// Whether a path has wildcards.
pub(crate) fn is_pattern(text: &[u8]) -> bool {
    text.iter().any(|byte| b"*?[".contains(byte))
}

/// The paths that match a pattern, sorted. Names that begin with a dot match only if the pattern
/// does so too.
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

/// Whether `text` matches. `negation` is the byte at the start of a set that means all other bytes.
///
/// Each `*` matches as few bytes as possible: the elements up to the next `*` are searched once, as
/// the rest of the pattern has no better chance further on. So nothing is tried again except for
/// one run of elements between two stars, and plain bytes not even then.
fn matches(pattern: &[u8], text: &[u8], negation: u8) -> bool {
    // Most patterns begin with plain bytes, and most texts differ in those.
    let bytes = pattern.iter().zip(text);
    let same = bytes.take_while(|(wanted, byte)| wanted == byte && !is_special(**wanted)).count();
    let (pattern, text) = (&pattern[same..], &text[same..]);
    match pattern {
        [] => return text.is_empty(),
        [b'*'] => return true,
        [wanted, ..] if !is_special(*wanted) => return false,
        _ => {}
    }
    let (head, mut pattern) = PatternRun::split(pattern, negation);
    let mut work = WORK_FREE + WORK_PER_BYTE * (pattern.len() + text.len());
    if !head.is_at(text, &mut work) {
        return false;
    }
    let mut text = &text[head.elements..];
    let mut stars = 0;
    while let Some(first) = pattern.iter().position(|byte| *byte != b'*') {
        stars += usize::from(!text.is_empty());
        if stars > STARS_MAX {
            return false;
        }
        let (run, rest) = PatternRun::split(&pattern[first..], negation);
        if rest.is_empty() {
            // The last run must match the end of the text.
            let start = text.len().checked_sub(run.elements);
            return start.is_some_and(|start| run.is_at(&text[start..], &mut work));
        }
        let Some(start) = run.find(text, &mut work) else { return false };
        (pattern, text) = (rest, &text[start + run.elements..]);
    }
    text.is_empty() || !pattern.is_empty()
}

/// The elements of a pattern up to a `*` or to its end. Each matches one byte.
struct PatternRun<'a> {
    pattern: &'a [u8],
    elements: usize,
    /// Whether each element is a byte that matches only itself.
    is_plain: bool,
    negation: u8,
}

impl<'a> PatternRun<'a> {
    /// Splits off the first run of a pattern. Returns the run and the rest.
    fn split(pattern: &'a [u8], negation: u8) -> (Self, &'a [u8]) {
        let (mut at, mut elements, mut is_plain) = (0, 0, true);
        while at < pattern.len() && pattern[at] != b'*' {
            is_plain &= !is_special(pattern[at]);
            at += element(&pattern[at..], 0, negation).0;
            elements += 1;
        }
        let (pattern, rest) = pattern.split_at(at);
        (Self { pattern, elements, is_plain, negation }, rest)
    }

    /// Whether a text begins with a match of the run.
    fn is_at(&self, text: &[u8], work: &mut usize) -> bool {
        if self.is_plain || text.len() < self.elements {
            return text.starts_with(self.pattern);
        }
        let mut at = 0;
        for &byte in &text[..self.elements] {
            let (length, is_match) = element(&self.pattern[at..], byte, self.negation);
            *work = work.saturating_sub(length);
            if !is_match {
                return false;
            }
            at += length;
        }
        true
    }

    /// The first place where the run matches; `None` also if the search takes too much work.
    fn find(&self, text: &[u8], work: &mut usize) -> Option<usize> {
        if self.is_plain {
            return memchr::memmem::find(text, self.pattern);
        }
        let mut starts = 0..(text.len() + 1).saturating_sub(self.elements);
        starts.find(|&start| *work == 0 || self.is_at(&text[start..], work)).filter(|_| *work > 0)
    }
}

/// A pattern that needs more stars than this matches nothing, as in Redis.
const STARS_MAX: usize = 1000;
/// Bytes of a pattern that may be compared again and again before the pattern counts as not
/// matching. They take some milliseconds.
const WORK_FREE: usize = 1 << 22;
/// Further bytes for each byte of the pattern and of the text.
const WORK_PER_BYTE: usize = 16;

/// Whether a byte of a pattern has a special meaning.
const fn is_special(byte: u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[' | b'\\')
}

/// The length of the pattern's first element, and whether the element matches `byte`.
fn element(pattern: &[u8], byte: u8, negation: u8) -> (usize, bool) {
    match pattern {
        [] => (0, false),
        [b'?', ..] => (1, true),
        [b'[', set @ ..] => {
            let (length, has) = in_set(set, byte, negation);
            (length + 1, has)
        }
        [b'\\', escaped, ..] => (2, *escaped == byte),
        [literal, ..] => (1, *literal == byte),
    }
}

/// The length of a set with its closing bracket, and whether `byte` is in it. A set that is not
/// closed ends with the pattern.
fn in_set(set: &[u8], byte: u8, negation: u8) -> (usize, bool) {
    let negated = set.first() == Some(&negation);
    let mut at = usize::from(negated);
    let mut found = false;
    while at < set.len() && set[at] != b']' {
        match &set[at..] {
            [b'\\', escaped, ..] => {
                found |= *escaped == byte;
                at += 2;
            }
            // For Redis, a bracket behind a dash is the end of a range, not of the set.
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
    ((at + 1).min(set.len()), found != negated)
}

/// Whether `text` matches, computed in another way: it keeps which beginnings of the text each
/// beginning of the pattern matches. For tests and fuzzing.
pub fn means(pattern: &[u8], text: &[u8], negation: u8) -> bool {
    let mut matched = vec![false; text.len() + 1];
    matched[0] = true;
    let mut at = 0;
    while at < pattern.len() {
        let mut next = vec![false; text.len() + 1];
        if pattern[at] == b'*' {
            at += 1;
            let first = matched.iter().position(|is_matched| *is_matched);
            next[first.unwrap_or(text.len() + 1)..].fill(true);
        } else {
            let length = element(&pattern[at..], 0, negation).0;
            for (read, &byte) in text.iter().enumerate() {
                next[read + 1] = matched[read] && element(&pattern[at..], byte, negation).1;
            }
            at += length;
        }
        if !next.contains(&true) {
            return false;
        }
        matched = next;
    }
    matched[text.len()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    #[test]
    fn matches_like_redis() {
        let matches = |pattern: &str, text: &str| {
            CaselessPattern::new(pattern.as_bytes()).matches(text.as_bytes())
        };
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
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("", "a"), ("a", ""), ("a*b", "abc"), ("[^a]", "a"), ("?", "")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
        // These were answered by valkey-server 9.1.2 to KEYS.
        for (pattern, text) in [("[a-]x]", "^"), ("[?a-]", "^"), ("a*", "a"), ("", "")] {
            assert!(matches_text(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in [("[?a-]", "-"), ("**", ""), ("A", "a")] {
            assert!(!matches_text(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        let stars = |count| matches_text("*?".repeat(count).as_bytes(), &[b'a'; 2000]);
        assert!(stars(1000) && !stars(1001));
        let long = "a".repeat(10_000);
        assert!(!matches("a*a*a*a*a*a*b", &long));
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 20_000,
            failure_persistence: None,
            rng_seed: RngSeed::Fixed(1),
            ..ProptestConfig::default()
        })]

        #[test]
        fn matches_what_the_pattern_means(
            pattern in r"[ab*?\\\[\]^!-]{0,10}",
            text in r"[ab*\\^-]{0,10}",
            negation in prop::sample::select(vec![b'^', b'!']),
        ) {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matches(pattern, text, negation), means(pattern, text, negation));
        }
    }

    /// Patterns and texts of a megabyte, which once took minutes.
    #[test]
    fn long_patterns_and_texts_take_little_work() {
        const LEN: usize = 1 << 20;
        let text = vec![b'a'; LEN];
        let many = |element: &str, count| element.repeat(count);
        let long = many("a", LEN / 2);
        assert!(!matches_text(format!("*{long}b*").as_bytes(), &text));
        assert!(!matches_text(format!("*{long}b").as_bytes(), &text));
        assert!(matches_text(format!("*{long}").as_bytes(), &text));
        assert!(matches_text(format!("*{long}*{long}*").as_bytes(), &text));
        assert!(!matches_text(format!("*{}b*", many("a?", LEN / 4)).as_bytes(), &text));
        assert!(!matches_text(format!("*[^b{}]b*", many("c", LEN / 2)).as_bytes(), &text));
        assert!(matches_text(many("a?", LEN / 2).as_bytes(), &text));
        assert!(matches_text(format!("*{}", many("a?", LEN / 2)).as_bytes(), &text));
        // A search that needs work and finds a match.
        let text = [&text[..1 << 14], b"b"].concat();
        assert!(matches_text(format!("*{}b*", many("a?", 50)).as_bytes(), &text));
    }
}
