//! The options of SCAN, HSCAN, SSCAN and ZSCAN behind the cursor.

use bobbin_store::value::Item;
use bobbin_store::value::integer::IntegerText;
use bobbin_store::{EntryRef, ValueType};

use crate::base::glob;
use crate::engine::command::{Call, Failure};

/// What a scan examines, and what it shows.
pub(super) struct ScanOptions {
    pattern: Option<Box<[u8]>>,
    kind: Option<ValueType>,
    /// How many keys or elements to examine.
    pub(super) count: usize,
    /// NOVALUES of HSCAN or NOSCORES of ZSCAN.
    pub(super) names_only: bool,
}

/// The kind of scan. Some options belong to only one command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scanned {
    Keys,
    Hash,
    Set,
    SortedSet,
}

impl ScanOptions {
    /// Parses the words from index `at` on.
    pub(super) fn parse(call: &Call<'_>, mut at: usize, scanned: Scanned) -> Result<Self, Failure> {
        let mut options = Self { count: COUNT_DEFAULT, ..Self::everything() };
        while at < call.args.len() {
            let value = call.args.get(at + 1).copied();
            match value {
                Some(_) if call.word_is(at, "count") => {
                    let count = call.integer(at + 1)?;
                    let count = usize::try_from(count).ok().filter(|&count| count > 0);
                    options.count = count.ok_or(Failure::SYNTAX)?;
                }
                Some(pattern) if call.word_is(at, "match") => options.set_pattern(pattern),
                Some(name) if scanned == Scanned::Keys && call.word_is(at, "type") => {
                    let kind = ValueType::from_name(name).ok_or_else(|| unknown_type(name))?;
                    options.kind = Some(kind);
                }
                _ if call.word_is(at, "novalues") => {
                    if scanned != Scanned::Hash {
                        return Err("ERR NOVALUES option can only be used in HSCAN".into());
                    }
                    options.names_only = true;
                    at += 1;
                    continue;
                }
                _ if call.word_is(at, "noscores") => {
                    if scanned != Scanned::SortedSet {
                        return Err("ERR NOSCORES option can only be used in ZSCAN".into());
                    }
                    options.names_only = true;
                    at += 1;
                    continue;
                }
                _ => return Err(Failure::SYNTAX),
            }
            at += 2;
        }
        Ok(options)
    }

    /// The options of KEYS: all matches at once.
    pub(super) fn all_of(pattern: &[u8]) -> Self {
        let mut options = Self::everything();
        options.set_pattern(pattern);
        options
    }

    fn everything() -> Self {
        Self { pattern: None, kind: None, count: usize::MAX, names_only: false }
    }

    fn set_pattern(&mut self, pattern: &[u8]) {
        self.pattern = (pattern != b"*").then(|| pattern.into());
    }

    #[inline]
    pub(super) fn matches_entry(&self, entry: EntryRef<'_>) -> bool {
        self.kind.is_none_or(|kind| entry.value_type() == kind)
            && self.pattern.as_ref().is_none_or(|pattern| glob::matches_text(pattern, entry.key()))
    }

    pub(super) fn matches(&self, element: Item<'_>) -> bool {
        let Some(pattern) = &self.pattern else { return true };
        let mut room = IntegerText::new(0);
        glob::matches_text(pattern, element.text(&mut room))
    }
}

#[cold]
fn unknown_type(name: &[u8]) -> Failure {
    Failure::format(format!("ERR unknown type name '{}'", String::from_utf8_lossy(name)))
}

/// How many keys or elements are examined by default.
const COUNT_DEFAULT: usize = 10;
