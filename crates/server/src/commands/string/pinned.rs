//! Long strings that commands go on reading without their keys.

use std::sync::Arc;

use bobbin_store::ValueRef;
use bobbin_store::entry::Shared;
use bobbin_store::value::{Chunked, StringRef};

/// A long string as it was; nothing was copied for it.
pub(crate) enum PinnedString {
    Shared(Shared),
    Chunked(Chunked),
}

impl PinnedString {
    /// `None`: it is a short string, whose bytes lie in its entry, or none at all.
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

    /// Whether both were pinned at one key, and it was not changed in between.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Shared(one), Self::Shared(other)) => Arc::ptr_eq(one, other),
            (Self::Chunked(one), Self::Chunked(other)) => one.is_same(other),
            _ => false,
        }
    }
}
