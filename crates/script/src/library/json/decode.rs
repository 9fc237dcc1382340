//! JSON to tables.

use super::{Raise, Stack, push_null};
use crate::state::Core;
use crate::state::json::JsonOptions;

/// Pushes the value that a text describes.
pub(super) fn push(stack: Stack, options: &JsonOptions, text: &[u8]) -> Result<(), Raise> {
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(stack.fail("JSON parser does not support UTF-16 or UTF-32"));
    }
    let mut decoder = Decoder { stack, core: stack.core(), options, text, at: 0 };
    let first = decoder.token()?;
    decoder.value(first, 0)?;
    match decoder.token()? {
        Token { kind: Kind::End, .. } => Ok(()),
        other => Err(unexpected(stack, "the end", &other)),
    }
}

struct Decoder<'a> {
    stack: Stack,
    core: &'a Core,
    options: &'a JsonOptions,
    text: &'a [u8],
    at: usize,
}

struct Token {
    kind: Kind,
    /// Where it begins.
    at: usize,
}

enum Kind {
    ObjectBegin,
    ObjectEnd,
    ListBegin,
    ListEnd,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Invalid(&'static str),
}

impl Kind {
    fn name(&self) -> &'static str {
        match self {
            Self::ObjectBegin => "T_OBJ_BEGIN",
            Self::ObjectEnd => "T_OBJ_END",
            Self::ListBegin => "T_ARR_BEGIN",
            Self::ListEnd => "T_ARR_END",
            Self::String(_) => "T_STRING",
            Self::Number(_) => "T_NUMBER",
            Self::Boolean(_) => "T_BOOLEAN",
            Self::Null => "T_NULL",
            Self::Colon => "T_COLON",
            Self::Comma => "T_COMMA",
            Self::End => "T_END",
            Self::Invalid(what) => what,
        }
    }
}

fn unexpected(stack: Stack, expected: &str, found: &Token) -> Raise {
    let (name, at) = (found.kind.name(), found.at + 1);
    stack.fail(&format!("Expected {expected} but found {name} at character {at}"))
}

impl Decoder<'_> {
    /// Pushes the value that begins with a token.
    fn value(&mut self, token: Token, depth: usize) -> Result<(), Raise> {
        match token.kind {
            Kind::String(bytes) => {
                self.core.charge_string(self.stack, bytes.len())?;
                self.stack.push_bytes(&bytes);
            }
            Kind::Number(number) => self.stack.push_number(number),
            Kind::Boolean(value) => self.stack.push_bool(value),
            Kind::Null => push_null(self.stack),
            Kind::ObjectBegin => self.object(depth + 1)?,
            Kind::ListBegin => self.list(depth + 1)?,
            _ => return Err(unexpected(self.stack, "value", &token)),
        }
        Ok(())
    }

    fn check_depth(&self, depth: usize) -> Result<(), Raise> {
        if depth <= self.options.decode_depth_max && self.stack.reserve(STACK_ROOM) {
            return Ok(());
        }
        let at = self.at;
        let text = format!("Found too many nested data structures ({depth}) at character {at}");
        Err(self.stack.fail(&text))
    }

    fn object(&mut self, depth: usize) -> Result<(), Raise> {
        self.check_depth(depth)?;
        self.stack.push_table(0, 0);
        let mut token = self.token()?;
        if matches!(token.kind, Kind::ObjectEnd) {
            return Ok(());
        }
        let mut count = 0;
        loop {
            let Kind::String(key) = &token.kind else {
                return Err(unexpected(self.stack, "object key string", &token));
            };
            count += 1;
            self.core.charge_element(self.stack, count)?;
            self.core.charge_string(self.stack, key.len())?;
            self.stack.push_bytes(key);
            let colon = self.token()?;
            if !matches!(colon.kind, Kind::Colon) {
                return Err(unexpected(self.stack, "colon", &colon));
            }
            let first = self.token()?;
            self.value(first, depth)?;
            self.stack.raw_set(-3);
            let next = self.token()?;
            match next.kind {
                Kind::ObjectEnd => return Ok(()),
                Kind::Comma => token = self.token()?,
                _ => return Err(unexpected(self.stack, "comma or object end", &next)),
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<(), Raise> {
        self.check_depth(depth)?;
        self.stack.push_table(0, 0);
        let mut token = self.token()?;
        if matches!(token.kind, Kind::ListEnd) {
            return Ok(());
        }
        for index in 1usize.. {
            self.core.charge_element(self.stack, index)?;
            self.value(token, depth)?;
            self.stack.raw_set_at(-2, index as i32);
            let next = self.token()?;
            match next.kind {
                Kind::ListEnd => break,
                Kind::Comma => {}
                _ => return Err(unexpected(self.stack, "comma or array end", &next)),
            }
            token = self.token()?;
        }
        Ok(())
    }

    fn token(&mut self) -> Result<Token, Raise> {
        let start = self.at;
        let token = self.next();
        // What is read is charged for, and what it becomes.
        self.core.charge(self.stack, 2 + (self.at - start) / 16)?;
        Ok(token)
    }

    fn next(&mut self) -> Token {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        let at = self.at;
        let one = |kind| (kind, 1);
        let (kind, len) = match self.text.get(at) {
            // The text ends with a zero, too: the library reads C's strings.
            None | Some(0) => (Kind::End, 0),
            Some(b'{') => one(Kind::ObjectBegin),
            Some(b'}') => one(Kind::ObjectEnd),
            Some(b'[') => one(Kind::ListBegin),
            Some(b']') => one(Kind::ListEnd),
            Some(b':') => one(Kind::Colon),
            Some(b',') => one(Kind::Comma),
            Some(b'"') => return self.string(),
            Some(_) => match &self.text[at..] {
                [b't', b'r', b'u', b'e', ..] => (Kind::Boolean(true), 4),
                [b'f', b'a', b'l', b's', b'e', ..] => (Kind::Boolean(false), 5),
                [b'n', b'u', b'l', b'l', ..] => (Kind::Null, 4),
                rest => self.number_token(rest),
            },
        };
        self.at += len;
        Token { kind, at }
    }

    /// What begins neither like a value nor like a number is no token at all.
    fn number_token(&self, text: &[u8]) -> (Kind, usize) {
        let (is_odd, takes_odd) = (is_odd(text), self.options.decode_invalid);
        let begins = text[0] == b'-' || text[0].is_ascii_digit();
        if !(begins || is_odd && takes_odd) {
            return (Kind::Invalid("invalid token"), 0);
        }
        match number(text) {
            Some((number, len)) if takes_odd || !is_odd => (Kind::Number(number), len),
            _ => (Kind::Invalid("invalid number"), 0),
        }
    }

    fn string(&mut self) -> Token {
        let begin = self.at;
        let mut bytes = Vec::new();
        let mut at = begin + 1;
        let invalid = |what, at| Token { kind: Kind::Invalid(what), at };
        loop {
            match self.text.get(at) {
                None | Some(0) => return invalid("unexpected end of string", at),
                Some(b'"') => break,
                Some(b'\\') => {
                    let escaped = match self.text.get(at + 1) {
                        Some(b'u') => {
                            let Some((character, len)) = unicode(&self.text[at..]) else {
                                return invalid("invalid unicode escape code", at);
                            };
                            let mut buffer = [0; 4];
                            bytes.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
                            at += len;
                            continue;
                        }
                        Some(&byte @ (b'"' | b'\\' | b'/')) => byte,
                        Some(b'b') => 8,
                        Some(b'f') => 12,
                        Some(b'n') => b'\n',
                        Some(b'r') => b'\r',
                        Some(b't') => b'\t',
                        _ => return invalid("invalid escape code", at),
                    };
                    bytes.push(escaped);
                    at += 2;
                }
                Some(&byte) => {
                    bytes.push(byte);
                    at += 1;
                }
            }
        }
        self.at = at + 1;
        Token { kind: Kind::String(bytes), at: begin }
    }
}

/// The character that a text's escape stands for (two escapes, for one of a pair), and its length.
fn unicode(text: &[u8]) -> Option<(char, usize)> {
    let unit = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
        let digits = str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
        u32::from_str_radix(digits, 16).ok()
    };
    let first = unit(0)?;
    if let Some(character) = char::from_u32(first) {
        return Some((character, 6));
    }
    let second = unit(6).filter(|unit| (0xdc00..0xe000).contains(unit))?;
    let high = first.checked_sub(0xd800).filter(|high| *high < 0x400)?;
    let character = char::from_u32(0x10000 + (high << 10) + (second - 0xdc00))?;
    Some((character, 12))
}

/// The number at the beginning of a text, and its length: whatever C's `strtod` takes.
fn number(text: &[u8]) -> Option<(f64, usize)> {
    let signed = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let sign = if text.first() == Some(&b'-') { -1.0 } else { 1.0 };
    let rest = &text[signed..];
    let begins =
        |word: &[u8]| rest.len() >= word.len() && rest[..word.len()].eq_ignore_ascii_case(word);
    if begins(b"infinity") {
        return Some((sign * f64::INFINITY, signed + 8));
    }
    if begins(b"inf") {
        return Some((sign * f64::INFINITY, signed + 3));
    }
    if begins(b"nan") {
        return Some((f64::NAN, signed + 3));
    }
    if begins(b"0x") {
        let digits = rest[2..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        if digits > 0 {
            let value = rest[2..2 + digits].iter().fold(0.0, |value, &digit| {
                value * 16.0 + f64::from((digit as char).to_digit(16).unwrap_or(0))
            });
            return Some((sign * value, signed + 2 + digits));
        }
    }
    let digits = |from: usize| rest[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(0);
    let mut len = whole;
    if rest.get(len) == Some(&b'.') {
        let fraction = digits(len + 1);
        if whole + fraction == 0 {
            return None;
        }
        len += 1 + fraction;
    } else if whole == 0 {
        return None;
    }
    if matches!(rest.get(len), Some(b'e' | b'E')) {
        let signed = usize::from(matches!(rest.get(len + 1), Some(b'+' | b'-')));
        let exponent = digits((len + 1 + signed).min(rest.len()));
        if exponent > 0 {
            len += 1 + signed + exponent;
        }
    }
    let value: f64 = str::from_utf8(&rest[..len]).ok()?.parse().ok()?;
    Some((sign * value, signed + len))
}

/// Whether a text begins like a number that is none by JSON's rules: with `+`, with a zero too
/// many, hexadecimal, or without digits at all. The library looks at no more of it.
fn is_odd(text: &[u8]) -> bool {
    let begins =
        |text: &[u8], word| text.get(..3).is_some_and(|start| start.eq_ignore_ascii_case(word));
    match text.strip_prefix(b"-").unwrap_or(text) {
        _ if text[0] == b'+' => true,
        [b'0', second, ..] => matches!(second, b'x' | b'X' | b'0'..=b'9'),
        rest => begins(rest, b"inf") || begins(rest, b"nan"),
    }
}

/// What one level has on the stack at most.
const STACK_ROOM: i32 = 6;
