//! Whether a text matches a Lua pattern, by trying.
//!
//! Trying may take for ever. So the steps are counted, and every `STEPS` of them the caller is
//! asked whether to go on. Nothing here has a destructor, as Lua may jump over these frames.

/// What one attempt to match works with.
pub(super) struct Matcher<'a, W> {
    pub subject: &'a [u8],
    pub pattern: &'a [u8],
    /// How many captures were opened.
    level: usize,
    captures: [Capture; CAPTURES_MAX],
    depth: usize,
    steps: u32,
    /// Called every `STEPS` steps; returns `false` to stop the attempt.
    watch: W,
}

/// A part of the subject.
#[derive(Clone, Copy)]
pub(super) struct Capture {
    pub start: usize,
    pub extent: Extent,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    Open,
    /// `()`: only where it is.
    Position,
    Bytes(usize),
}

/// Why matching ended without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// The pattern is wrong.
    Pattern(&'static str),
    /// The watch ended the attempt.
    Stopped,
}

type Matched = Result<Option<usize>, Fault>;

impl<'a, W: FnMut() -> bool> Matcher<'a, W> {
    /// Patterns end at a zero byte, as they do in Lua 5.1.
    pub(super) fn new(subject: &'a [u8], pattern: &'a [u8], watch: W) -> Self {
        let len = pattern.iter().position(|&byte| byte == 0).unwrap_or(pattern.len());
        let captures = [Capture { start: 0, extent: Extent::Open }; CAPTURES_MAX];
        let pattern = &pattern[..len];
        Self { subject, pattern, level: 0, captures, depth: 0, steps: 0, watch }
    }

    /// Where a match ends that begins at `start`, by the pattern from `from` on.
    pub(super) fn matches(&mut self, start: usize, from: usize) -> Matched {
        self.level = 0;
        self.depth = 0;
        self.attempt(start, from)
    }

    pub(super) fn captures(&self) -> &[Capture] {
        &self.captures[..self.level]
    }

    /// Tries the pattern from `item` on at `at`, from within a match: what follows an item that
    /// left a choice.
    fn attempt(&mut self, at: usize, item: usize) -> Matched {
        if self.depth >= DEPTH_MAX {
            return Err(Fault::Pattern("pattern too complex"));
        }
        self.depth += 1;
        let matched = self.follow(at, item);
        self.depth -= 1;
        matched
    }

    fn follow(&mut self, mut at: usize, mut item: usize) -> Matched {
        loop {
            self.count(1)?;
            let Some(&first) = self.pattern.get(item) else { return Ok(Some(at)) };
            let second = self.pattern.get(item + 1).copied();
            match (first, second) {
                (b'(', Some(b')')) => return self.open(at, item + 2, Extent::Position),
                (b'(', _) => return self.open(at, item + 1, Extent::Open),
                (b')', _) => return self.close(at, item + 1),
                (b'$', None) => return Ok((at == self.subject.len()).then_some(at)),
                (b'%', Some(b'b')) => match self.balanced(at, item + 2)? {
                    Some(end) => (at, item) = (end, item + 4),
                    None => return Ok(None),
                },
                (b'%', Some(b'f')) => match self.frontier(at, item + 2)? {
                    Some(next) => item = next,
                    None => return Ok(None),
                },
                (b'%', Some(digit @ b'0'..=b'9')) => match self.repeated(at, digit)? {
                    Some(end) => (at, item) = (end, item + 2),
                    None => return Ok(None),
                },
                _ => {
                    let end = self.end_of_single(item)?;
                    self.count_set(item, end)?;
                    match self.pattern.get(end) {
                        Some(b'?') => {
                            if self.fits(at, item, end)
                                && let Some(end) = self.attempt(at + 1, end + 1)?
                            {
                                return Ok(Some(end));
                            }
                            item = end + 1;
                        }
                        Some(b'*') => return self.as_many(at, 0, item, end),
                        Some(b'+') => return self.as_many(at, 1, item, end),
                        Some(b'-') => return self.as_few(at, item, end),
                        _ if self.fits(at, item, end) => (at, item) = (at + 1, end),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    fn open(&mut self, at: usize, item: usize, extent: Extent) -> Matched {
        if self.level >= CAPTURES_MAX {
            return Err(Fault::Pattern("too many captures"));
        }
        self.captures[self.level] = Capture { start: at, extent };
        self.level += 1;
        let matched = self.attempt(at, item)?;
        if matched.is_none() {
            self.level -= 1;
        }
        Ok(matched)
    }

    fn close(&mut self, at: usize, item: usize) -> Matched {
        let open = self.captures().iter().rposition(|capture| capture.extent == Extent::Open);
        let number = open.ok_or(Fault::Pattern("invalid pattern capture"))?;
        self.captures[number].extent = Extent::Bytes(at - self.captures[number].start);
        let matched = self.attempt(at, item)?;
        if matched.is_none() {
            self.captures[number].extent = Extent::Open;
        }
        Ok(matched)
    }

    /// `%b`: from one byte to the other that ends it.
    fn balanced(&mut self, at: usize, item: usize) -> Matched {
        let &[begin, end, ..] = &self.pattern[item..] else {
            return Err(Fault::Pattern("unbalanced pattern"));
        };
        if self.subject.get(at) != Some(&begin) {
            return Ok(None);
        }
        let mut open = 1;
        for next in at + 1..self.subject.len() {
            self.count(1)?;
            match self.subject[next] {
                byte if byte == end => {
                    open -= 1;
                    if open == 0 {
                        return Ok(Some(next + 1));
                    }
                }
                byte if byte == begin => open += 1,
                _ => {}
            }
        }
        Ok(None)
    }

    /// `%f`: where a set begins; what follows in the pattern.
    fn frontier(&mut self, at: usize, item: usize) -> Matched {
        if self.pattern.get(item) != Some(&b'[') {
            return Err(Fault::Pattern("missing '[' after '%f' in pattern"));
        }
        let end = self.end_of_single(item)?;
        self.count_set(item, end)?;
        let before = if at == 0 { 0 } else { self.subject[at - 1] };
        let here = self.subject.get(at).copied().unwrap_or(0);
        let is_in = |byte| is_in_set(&self.pattern[item + 1..end - 1], byte);
        Ok((!is_in(before) && is_in(here)).then_some(end))
    }

    /// `%1`: what was captured, once more.
    fn repeated(&mut self, at: usize, digit: u8) -> Matched {
        let number = usize::from(digit).wrapping_sub(usize::from(b'1'));
        let capture = self.captures().get(number).filter(|found| found.extent != Extent::Open);
        let capture = capture.ok_or(Fault::Pattern("invalid capture index"))?;
        let Extent::Bytes(len) = capture.extent else { return Ok(None) };
        let captured = &self.subject[capture.start..capture.start + len];
        self.count((len / 64).min(STEPS as usize) as u32)?;
        Ok(self.subject[at..].starts_with(captured).then_some(at + len))
    }

    /// Matches one item as often as possible, then less often until the rest matches too.
    fn as_many(&mut self, at: usize, least: usize, item: usize, end: usize) -> Matched {
        let mut count = 0;
        while self.fits(at + count, item, end) {
            self.count(1)?;
            self.count_set(item, end)?;
            count += 1;
        }
        for count in (least..=count).rev() {
            if let Some(end) = self.attempt(at + count, end + 1)? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    fn as_few(&mut self, mut at: usize, item: usize, end: usize) -> Matched {
        loop {
            if let Some(end) = self.attempt(at, end + 1)? {
                return Ok(Some(end));
            }
            if !self.fits(at, item, end) {
                return Ok(None);
            }
            self.count_set(item, end)?;
            at += 1;
        }
    }

    /// Where the item ends that matches one byte and begins at `item`.
    fn end_of_single(&self, item: usize) -> Result<usize, Fault> {
        match self.pattern[item] {
            b'%' if item + 1 < self.pattern.len() => Ok(item + 2),
            b'%' => Err(Fault::Pattern("malformed pattern (ends with '%')")),
            b'[' => {
                let mut next = item + 1 + usize::from(self.pattern.get(item + 1) == Some(&b'^'));
                loop {
                    // The first is no end, whatever it is.
                    let byte = self.pattern.get(next);
                    let byte = byte.ok_or(Fault::Pattern("malformed pattern (missing ']')"))?;
                    next += 1 + usize::from(*byte == b'%' && next + 1 < self.pattern.len());
                    if self.pattern.get(next) == Some(&b']') {
                        return Ok(next + 1);
                    }
                }
            }
            _ => Ok(item + 1),
        }
    }

    /// Whether the byte at `at` is one that the item matches.
    #[inline]
    fn fits(&self, at: usize, item: usize, end: usize) -> bool {
        let Some(&byte) = self.subject.get(at) else { return false };
        match self.pattern[item] {
            b'.' => true,
            b'%' => is_in_class(self.pattern[item + 1], byte),
            b'[' => is_in_set(&self.pattern[item + 1..end - 1], byte),
            literal => literal == byte,
        }
    }

    /// Counts that a set is gone through, which may be long.
    #[inline(always)]
    fn count_set(&mut self, item: usize, end: usize) -> Result<(), Fault> {
        if end - item < 8 {
            Ok(())
        } else {
            self.count(((end - item) / 4).min(STEPS as usize) as u32)
        }
    }

    #[inline(always)]
    fn count(&mut self, steps: u32) -> Result<(), Fault> {
        self.steps += steps;
        if self.steps < STEPS { Ok(()) } else { self.look() }
    }

    #[cold]
    fn look(&mut self) -> Result<(), Fault> {
        self.steps = 0;
        if (self.watch)() { Ok(()) } else { Err(Fault::Stopped) }
    }
}

/// Whether a set, without its brackets, has a byte.
fn is_in_set(set: &[u8], byte: u8) -> bool {
    let (mut rest, wanted) = match set.strip_prefix(b"^") {
        Some(rest) => (rest, false),
        None => (set, true),
    };
    loop {
        let (has, len) = match *rest {
            [] => return !wanted,
            [b'%', class, ..] => (is_in_class(class, byte), 2),
            [low, b'-', high, ..] => ((low..=high).contains(&byte), 3),
            [literal, ..] => (literal == byte, 1),
        };
        if has {
            return wanted;
        }
        rest = &rest[len..];
    }
}

/// Whether a byte is in the class of a letter; in upper case: is not. What is no letter of a class
/// stands for itself.
fn is_in_class(class: u8, byte: u8) -> bool {
    let is_in = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | b'\t'..=b'\r'),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_in != class.is_ascii_uppercase()
}

/// As many as Lua has.
pub(super) const CAPTURES_MAX: usize = 32;
/// Choices that may be open within one another: what they take of the machine's stack is bounded.
const DEPTH_MAX: usize = 4096;
/// Steps between two calls of the watch: less than a millisecond.
const STEPS: u32 = 50_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn end(subject: &str, pattern: &str) -> Matched {
        Matcher::new(subject.as_bytes(), pattern.as_bytes(), || true).matches(0, 0)
    }

    #[test]
    fn items_match_what_they_say() {
        for (subject, pattern, expected) in [
            ("", "", Some(0)),
            ("abc", "a.c", Some(3)),
            ("abc", "ab-c$", Some(3)),
            ("aab", "a*ab", Some(3)),
            ("b", "a+b", None),
            ("b", "a?b", Some(1)),
            ("[x]", "[[x%]]+", Some(3)),
            ("]", "[]]", Some(1)),
            ("b-", "[a-c][a-]", Some(2)),
            ("z", "[^a-c]", Some(1)),
            ("(a(b))c", "%b()", Some(6)),
            ("(a", "%b()", None),
            ("THE", "%f[%a]%a+%f[%A]", Some(3)),
            ("abab", "(ab)%1", Some(4)),
            ("x\0", "x%z", Some(2)),
            ("a$", "a$$", Some(2)),
            ("$a", "$a", Some(2)),
            ("é", "%a", None),
        ] {
            assert_eq!(end(subject, pattern), Ok(expected), "{subject:?} {pattern:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (pattern, text) in [
            ("%", "malformed pattern (ends with '%')"),
            ("[a", "malformed pattern (missing ']')"),
            ("[]", "malformed pattern (missing ']')"),
            ("[^%", "malformed pattern (missing ']')"),
            ("%b(", "unbalanced pattern"),
            ("%fa", "missing '[' after '%f' in pattern"),
            ("%1", "invalid capture index"),
            ("(%1)", "invalid capture index"),
            (")", "invalid pattern capture"),
        ] {
            assert_eq!(end("aaa", pattern), Err(Fault::Pattern(text)), "{pattern}");
        }
        assert_eq!(end("", &"()".repeat(33)), Err(Fault::Pattern("too many captures")));
        let deep = "a?".repeat(5000);
        let long = "a".repeat(5000);
        assert_eq!(end(&long, &deep), Err(Fault::Pattern("pattern too complex")));
    }

    #[test]
    fn who_watches_can_end_it() {
        let (subject, pattern) = ("a".repeat(40), "a?".repeat(40) + &"a".repeat(40) + "b");
        let mut looks = 0;
        let watch = || {
            looks += 1;
            looks < 10
        };
        let mut matcher = Matcher::new(subject.as_bytes(), pattern.as_bytes(), watch);
        assert_eq!(matcher.matches(0, 0), Err(Fault::Stopped));
    }
}
