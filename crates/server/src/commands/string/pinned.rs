//! Long strings that commands continue to read without their keys.

use std::sync::Arc;

use bobbin_store::ValueRef;
use bobbin_store::entry::SharedString;
use bobbin_store::value::{ChunkedString, StringRef};

use crate::engine::command::data::{Look, string};
use crate::engine::command::{Data, Failure, Key};

/// A pinned long string. Nothing was copied for it.
pub(crate) enum PinnedString {
    Shared(SharedString),
    Chunked(ChunkedString),
}

impl PinnedString {
    /// `None`: it is a short string, whose bytes lie in its entry, or no string.
    pub(crate) fn of(value: ValueRef<'_>) -> Option<Self> {
        match value {
            ValueRef::Shared(shared) => Some(Self::Shared(Arc::clone(shared))),
            ValueRef::Chunked(chunked) => Some(Self::Chunked(chunked.clone())),
            ValueRef::Bytes(_) | ValueRef::Collection(_) => None,
        }
    }

    pub(crate) fn as_ref(&self) -> StringRef<'_> {
        match self {
            Self::Shared(shared) => StringRef::Flat(shared),
            Self::Chunked(chunked) => StringRef::Chunked(chunked),
        }
    }

    /// Whether both were pinned at one key that did not change in between.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Shared(one), Self::Shared(other)) => Arc::ptr_eq(one, other),
            (Self::Chunked(one), Self::Chunked(other)) => one.is_same(other),
            _ => false,
        }
    }
}

/// The strings at some keys, which may change meanwhile.
#[derive(Default)]
pub(in crate::commands) struct PinnedStrings {
    parts: Vec<PinnedPart>,
    /// The short strings, one behind the other.
    short: Vec<u8>,
}

enum PinnedPart {
    Short { start: usize, end: usize },
    Long(PinnedString),
}

impl PinnedStrings {
    /// The current strings. A missing key counts as an empty string.
    pub(in crate::commands) fn gather<'k>(
        data: &mut Data,
        keys: impl Iterator<Item = Key<'k>>,
        look: Look,
    ) -> Result<Self, Failure> {
        let mut strings = Self::default();
        for key in keys {
            let start = strings.short.len();
            if let Some(entry) = look(data, key) {
                string(entry)?;
                if let Some(long) = PinnedString::of(entry.value()) {
                    strings.parts.push(PinnedPart::Long(long));
                    continue;
                }
                if let ValueRef::Bytes(bytes) = entry.value() {
                    strings.short.extend_from_slice(bytes);
                }
            }
            strings.parts.push(PinnedPart::Short { start, end: strings.short.len() });
        }
        Ok(strings)
    }

    /// Whether the strings have not changed.
    pub(in crate::commands) fn are_same(&self, other: &Self) -> bool {
        let is_same = |(a, b): (&PinnedPart, &PinnedPart)| match (a, b) {
            (PinnedPart::Long(a), PinnedPart::Long(b)) => a.is_same(b),
            // Their bytes are compared below.
            (PinnedPart::Short { start, end }, PinnedPart::Short { start: s, end: e }) => {
                (start, end) == (s, e)
            }
            _ => false,
        };
        self.short == other.short
            && self.parts.len() == other.parts.len()
            && self.parts.iter().zip(&other.parts).all(is_same)
    }

    /// The bytes of all strings.
    pub(in crate::commands) fn bytes(&self) -> usize {
        self.strings().iter().map(|string| string.len()).sum()
    }

    pub(in crate::commands) fn strings(&self) -> Vec<StringRef<'_>> {
        (0..self.parts.len()).filter_map(|at| self.get(at)).collect()
    }

    /// The string with the index of its key.
    pub(in crate::commands) fn get(&self, at: usize) -> Option<StringRef<'_>> {
        Some(match self.parts.get(at)? {
            PinnedPart::Short { start, end } => StringRef::Flat(&self.short[*start..*end]),
            PinnedPart::Long(long) => long.as_ref(),
        })
    }
}
