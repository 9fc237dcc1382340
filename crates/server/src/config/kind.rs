//! The kinds of options' values: how a value is written, its bounds, and how it is stored.
//!
//! The error texts and the forms of numbers are those of valkey-server 9.1.2.

use std::sync::Arc;

use super::memory;

/// The kind of an option's value, with its default.
#[derive(Clone, Copy)]
pub enum OptionKind {
    YesNo {
        default: bool,
    },
    Integer {
        min: i64,
        max: i64,
        default: i64,
    },
    /// An integer, or `auto`, which is stored as 0. So `min` is at least 1.
    IntegerOrAuto {
        min: i64,
        max: i64,
    },
    /// Bytes, with units. Stored as the bits of a `u64`.
    Memory {
        min: u64,
        max: u64,
        default: u64,
    },
    /// Bytes, with units. Negative numbers have a meaning.
    SignedMemory {
        min: i64,
        max: i64,
        default: i64,
    },
    /// Bytes, with units, or a percentage, which is stored as its negative.
    MemoryOrPercent {
        default: i64,
    },
    Octal {
        max: i64,
        default: i64,
    },
    Choice {
        words: &'static [(&'static str, i64)],
        default: i64,
    },
    /// Several words, each of which is a bit.
    Flags {
        words: &'static [(&'static str, i64)],
        default: i64,
        check: NumberCheck,
    },
    /// One word whose letters are bits. By default no bit is set.
    Letters {
        parse: LettersParse,
        format: fn(i64) -> String,
    },
    Text {
        default: &'static str,
        check: TextCheck,
    },
    /// Several words. `parse` makes the stored text from the words and the text stored before.
    Words {
        default: &'static str,
        parse: WordsParse,
    },
    /// The working directory of the process, which the kernel stores.
    Directory,
}

/// The error for a wrong number of words.
pub(super) const WRONG_ARITY: &str = "wrong number of arguments";

pub(super) type NumberCheck = fn(i64) -> Result<(), String>;
pub(super) type LettersParse = fn(&[u8]) -> Result<i64, String>;
pub(super) type TextCheck = fn(&[u8]) -> Result<(), String>;
pub(super) type WordsParse = fn(&[&[u8]], &[u8]) -> Result<Vec<u8>, String>;

/// A value, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionValue {
    Number(i64),
    Text(Arc<[u8]>),
}

impl OptionValue {
    pub fn text(text: &[u8]) -> Self {
        Self::Text(Arc::from(text))
    }

    pub fn number(&self) -> i64 {
        match self {
            Self::Number(number) => *number,
            Self::Text(_) => 0,
        }
    }
}

impl OptionKind {
    pub fn default(&self) -> OptionValue {
        match *self {
            Self::YesNo { default } => OptionValue::Number(i64::from(default)),
            Self::IntegerOrAuto { .. } | Self::Letters { .. } => OptionValue::Number(0),
            Self::Memory { default, .. } => OptionValue::Number(default as i64),
            Self::Integer { default, .. }
            | Self::SignedMemory { default, .. }
            | Self::MemoryOrPercent { default }
            | Self::Octal { default, .. }
            | Self::Choice { default, .. }
            | Self::Flags { default, .. } => OptionValue::Number(default),
            Self::Text { default, .. } | Self::Words { default, .. } => {
                OptionValue::text(default.as_bytes())
            }
            Self::Directory => OptionValue::text(b"."),
        }
    }

    /// Whether several words may follow the option's name.
    pub fn is_multi(&self) -> bool {
        matches!(self, Self::Words { .. } | Self::Flags { .. })
    }

    /// Makes a value from the words behind the name (exactly one, unless [`Self::is_multi`]).
    /// `current` is the value before, for options that are set in parts.
    pub fn parse(&self, words: &[&[u8]], current: &OptionValue) -> Result<OptionValue, String> {
        if let Self::Words { parse, .. } = self {
            let current = match current {
                OptionValue::Text(text) => &**text,
                OptionValue::Number(_) => b"",
            };
            return parse(words, current).map(|text| OptionValue::Text(text.into()));
        }
        if let Self::Flags { words: known, check, .. } = self {
            if words.is_empty() {
                return Err(must_be_one_of(known));
            }
            let mut bits = 0;
            for word in words {
                bits |= number_of_word(known, word).ok_or_else(|| must_be_one_of(known))?;
            }
            check(bits)?;
            return Ok(OptionValue::Number(bits));
        }
        let &[text] = words else { return Err(WRONG_ARITY.into()) };
        self.parse_one(text)
    }

    fn parse_one(&self, text: &[u8]) -> Result<OptionValue, String> {
        let number = match *self {
            Self::YesNo { .. } => match text {
                yes if yes.eq_ignore_ascii_case(b"yes") => 1,
                no if no.eq_ignore_ascii_case(b"no") => 0,
                _ => return Err("argument must be 'yes' or 'no'".into()),
            },
            Self::Integer { min, max, .. } => bounded(integer(text)?, min, max)?,
            Self::IntegerOrAuto { .. } if text.eq_ignore_ascii_case(b"auto") => 0,
            Self::IntegerOrAuto { min, max } => bounded(integer(text)?, min, max)?,
            Self::Memory { min, max, .. } => {
                let bytes = memory::parse(text).ok_or("argument must be a memory value")?;
                bounded(bytes, min, max)? as i64
            }
            Self::SignedMemory { min, max, .. } => {
                // Numbers beyond i64 wrap around to negative ones, as in Valkey.
                let bytes = memory::parse(text).map(|bytes| bytes as i64);
                let bytes = bytes.or_else(|| parse_integer(text));
                bounded(bytes.ok_or("argument must be a memory value")?, min, max)?
            }
            Self::MemoryOrPercent { .. } => memory_or_percent(text)?,
            Self::Octal { max, .. } => {
                let number = std::str::from_utf8(text)
                    .ok()
                    .and_then(|text| i64::from_str_radix(text, 8).ok())
                    .ok_or("argument couldn't be parsed as an octal number")?;
                if !(0..=max).contains(&number) {
                    return Err(format!("argument must be between 0 and {max:o} inclusive"));
                }
                number
            }
            Self::Choice { words, .. } => {
                number_of_word(words, text).ok_or_else(|| must_be_one_of(words))?
            }
            Self::Letters { parse, .. } => parse(text)?,
            Self::Text { check, .. } => {
                check(text)?;
                return Ok(OptionValue::text(text));
            }
            Self::Directory if text.is_empty() => return Err("dir can't be empty".into()),
            Self::Directory => return Ok(OptionValue::text(text)),
            Self::Words { .. } | Self::Flags { .. } => unreachable!("taken by `parse`"),
        };
        Ok(OptionValue::Number(number))
    }

    /// The text that CONFIG GET shows.
    pub fn format(&self, value: &OptionValue) -> Vec<u8> {
        let number = match value {
            OptionValue::Text(text) => return text.to_vec(),
            OptionValue::Number(number) => *number,
        };
        match *self {
            Self::YesNo { .. } => yes_no(number).into(),
            Self::IntegerOrAuto { .. } if number == 0 => b"auto".into(),
            Self::Memory { .. } => (number as u64).to_string().into(),
            Self::MemoryOrPercent { .. } if number < 0 => format!("{}%", -number).into(),
            Self::Octal { .. } => format!("{number:o}").into(),
            Self::Choice { words, .. } => word_of_number(words, number).into(),
            Self::Flags { words, .. } => words_of_bits(words, number).into(),
            Self::Letters { format, .. } => format(number).into(),
            _ => number.to_string().into(),
        }
    }

    /// The text that CONFIG REWRITE writes behind the name: as for CONFIG GET, but with units for
    /// bytes.
    pub fn format_for_file(&self, value: &OptionValue) -> Vec<u8> {
        let number = value.number();
        match *self {
            Self::Memory { .. } => memory::format(number as u64).into(),
            Self::SignedMemory { .. } | Self::MemoryOrPercent { .. } if number >= 0 => {
                memory::format(number as u64).into()
            }
            Self::Text { .. } | Self::Letters { .. } | Self::Directory => {
                super::words::quote(&self.format(value))
            }
            Self::Words { .. } => super::words::words_for_file(&self.format(value)),
            _ => self.format(value),
        }
    }
}

fn yes_no(number: i64) -> &'static str {
    if number != 0 { "yes" } else { "no" }
}

fn integer(text: &[u8]) -> Result<i64, String> {
    parse_integer(text).ok_or_else(|| "argument couldn't be parsed into an integer".into())
}

/// Parses an integer as strictly as Redis: no sign but `-`, no leading zeros, no spaces.
fn parse_integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let strict = match digits {
        b"0" => digits.len() == text.len(),
        [b'1'..=b'9', ..] => digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !strict {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn bounded<N: PartialOrd + std::fmt::Display>(number: N, min: N, max: N) -> Result<N, String> {
    if number < min || number > max {
        return Err(format!("argument must be between {min} and {max} inclusive"));
    }
    Ok(number)
}

fn memory_or_percent(text: &[u8]) -> Result<i64, String> {
    const PERCENT_MAX: i64 = 100;
    let percent = || text.strip_suffix(b"%").and_then(parse_integer).filter(|number| *number >= 0);
    // An amount of bytes beyond i64 wraps around to a percentage, as in Valkey.
    let bytes = memory::parse(text).map(|bytes| bytes as i64);
    let number = bytes.or_else(|| percent().map(|percent| -percent));
    match number.ok_or("argument must be a memory or percent value")? {
        percent if percent < -PERCENT_MAX => {
            Err(format!("percentage argument must be less or equal to {PERCENT_MAX}"))
        }
        number => Ok(number),
    }
}

fn number_of_word(words: &[(&str, i64)], text: &[u8]) -> Option<i64> {
    let row = words.iter().find(|(word, _)| word.as_bytes().eq_ignore_ascii_case(text));
    row.map(|(_, number)| *number)
}

fn word_of_number(words: &[(&'static str, i64)], number: i64) -> &'static str {
    words.iter().find(|row| row.1 == number).map_or("unknown", |row| row.0)
}

fn words_of_bits(words: &[(&'static str, i64)], bits: i64) -> String {
    if bits == 0 {
        return word_of_number(words, 0).into();
    }
    let set = words.iter().filter(|(_, bit)| bits & bit != 0).map(|(word, _)| *word);
    set.collect::<Vec<_>>().join(" ")
}

fn must_be_one_of(words: &[(&str, i64)]) -> String {
    let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
    format!("argument(s) must be one of the following: {}", words.join(", "))
}
