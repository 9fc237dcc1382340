//! APPEND and SETRANGE of many bytes, which are written to a draft of the string in slices.

use bobbin_resp::Reply;
use bobbin_store::NewValue;
use bobbin_store::ValueRef;
use bobbin_store::entry::SharedString;
use bobbin_store::shard::Expire;
use bobbin_store::value::{CHUNK_LEN, ChunkedString, StringRef};

use super::edit::{affordable, checked_len};
use super::pinned::PinnedString;
use crate::engine::command::data::string;
use crate::engine::command::{Call, Classes, Data, Failure, Key, Outcome};
use crate::engine::execution::slices::{SlicedChange, change_in_slices};

/// Longer parts, in bytes, are written in slices.
pub(super) const PART_AT_ONCE_MAX: usize = 512 * 1024;

/// Writes the argument at `part` into the string at a key: at the offset `at`, or at its end.
pub(super) fn put_in_slices(
    call: &mut Call<'_>,
    at: Option<usize>,
    part: usize,
    limit: usize,
    event: &'static str,
) -> Outcome {
    let key = call.key(1)?;
    let before = Before::of(call.data, key)?;
    let part = call.data.shared(call.args[part]);
    let mut change = LongEdit {
        key: key.bytes.into(),
        before,
        draft: ChunkedString::from_shared(SharedString::default()),
        at,
        part,
        start: 0,
        done: 0,
        limit,
        event,
    };
    change.begin()?;
    change_in_slices(call, [1].into_iter(), change)
}

/// The value of a key before a change.
enum Before {
    Nothing,
    Short(Box<[u8]>),
    Long(PinnedString),
}

impl Before {
    fn of(data: &mut Data, key: Key<'_>) -> Result<Self, Failure> {
        let Some(entry) = data.peek(key) else { return Ok(Self::Nothing) };
        string(entry)?;
        Ok(match (PinnedString::of(entry.value()), entry.value()) {
            (Some(long), _) => Self::Long(long),
            (None, ValueRef::Bytes(bytes)) => Self::Short(bytes.into()),
            (None, _) => Self::Nothing,
        })
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Nothing, Self::Nothing) => true,
            (Self::Short(one), Self::Short(other)) => one == other,
            (Self::Long(one), Self::Long(other)) => one.is_same(other),
            _ => false,
        }
    }

    fn string(&self) -> StringRef<'_> {
        match self {
            Self::Nothing => StringRef::Flat(&[]),
            Self::Short(bytes) => StringRef::Flat(bytes),
            Self::Long(long) => long.as_ref(),
        }
    }
}

/// A write in progress.
struct LongEdit {
    key: Box<[u8]>,
    before: Before,
    draft: ChunkedString,
    /// Where to write. `None`: at the end.
    at: Option<usize>,
    part: SharedString,
    /// Where the part begins.
    start: usize,
    /// How many of its bytes are written.
    done: usize,
    /// The most bytes of the string.
    limit: usize,
    event: &'static str,
}

impl LongEdit {
    /// Begins, or starts over with the key's current value.
    fn begin(&mut self) -> Outcome {
        let old_len = self.before.string().len();
        let start = self.at.unwrap_or(old_len);
        let len = affordable(checked_len(start, self.part.len(), self.limit)?)?;
        self.draft = match &self.before {
            Before::Long(PinnedString::Chunked(chunked)) => chunked.clone(),
            Before::Long(PinnedString::Shared(shared)) => {
                ChunkedString::from_shared(SharedString::clone(shared))
            }
            Before::Short(bytes) => ChunkedString::from_bytes(bytes, 0),
            Before::Nothing => ChunkedString::from_bytes(&[], 0),
        };
        self.draft.grow(len);
        (self.start, self.done) = (start, 0);
        Ok(())
    }
}

impl SlicedChange for LongEdit {
    fn step(&mut self, _: &mut Data) -> bool {
        let end = self.part.len().min(self.done + CHUNK_LEN);
        self.draft.write(self.start + self.done, &self.part[self.done..end]);
        self.done = end;
        end < self.part.len()
    }

    fn is_current(&mut self, data: &mut Data) -> Result<bool, Failure> {
        let now = Before::of(data, data.key(&self.key))?;
        let is_current = now.is_same(&self.before);
        if !is_current {
            self.before = now;
            self.begin()?;
        }
        Ok(is_current)
    }

    fn finish(&mut self, data: &mut Data, args: &[&[u8]], reply: &mut Reply<'_>) -> Outcome {
        let key = data.key(args[1]);
        let draft =
            std::mem::replace(&mut self.draft, ChunkedString::from_shared(SharedString::default()));
        let len = draft.len();
        data.set(key, NewValue::Chunked(draft), Expire::Keep);
        data.event(Classes::STRING, self.event, key);
        reply.integer(len as i64);
        Ok(())
    }
}
