//! The layout of a set's member or a hash's field in its page.
//!
//! ```text
//! key head   u8      low 7 bits: the key's length up to 125; 126: u16 length follows; 127: outside
//!                    highest bit: with an expiry
//! key                the bytes, or a pointer to them
//! value head u8      (hashes) up to 253: the length; 254: u16 length follows; 255: outside
//! expiry     i64     (if marked; Unix milliseconds)
//! value              (hashes) the bytes, or a pointer to them
//! ```
//! A string longer than [`INLINE_MAX`] lies outside, behind a shared pointer, so that pages stay
//! small and replies can refer to it.
//!
//! The unsafe code here relies on these rules:
//! - *Written*: wherever a record is read, `NewRecord::write` has written one, or one was copied as
//!   a whole. So its heads describe the bytes that follow, and all of them are initialised. Nothing
//!   in it is aligned.
//! - *Owned*: a pointer in a record came from `Arc::into_raw`, and its page owns a reference
//!   through it as long as the page has the record.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use crate::value::{Defragmenter, SharedString};

/// The longest string that lies inside its page.
pub const INLINE_MAX: usize = 512;

/// A string in a record.
#[derive(Clone, Copy, Debug)]
pub enum RecordText<'a> {
    Inline(&'a [u8]),
    Outside(Outside<'a>),
}

/// A string that lies outside its page.
#[derive(Clone, Copy, Debug)]
pub struct Outside<'a> {
    /// Where the record has the pointer.
    at: *const u8,
    page: PhantomData<&'a SharedString>,
}

/// A string that will be put into a record.
#[derive(Clone, Copy, Debug)]
pub enum Given<'a> {
    Bytes(&'a [u8]),
    /// A string that is shared already. If it is long, it is kept as it is.
    Shared(&'a SharedString),
}

/// The parts of a record.
#[derive(Clone, Copy, Debug)]
pub struct TableRecord<'a> {
    pub key: RecordText<'a>,
    /// Only hashes have one.
    pub value: Option<RecordText<'a>>,
    /// When it expires, in Unix milliseconds.
    pub expire_ms: Option<i64>,
    /// How many bytes the record takes in its page.
    pub(super) len: usize,
}

/// A record that will be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewRecord<'a> {
    pub(super) key: Given<'a>,
    pub(super) value: Option<Given<'a>>,
    pub(super) expire_ms: Option<i64>,
}

impl<'a> RecordText<'a> {
    #[inline(always)]
    pub fn bytes(self) -> &'a [u8] {
        match self {
            RecordText::Inline(bytes) => bytes,
            RecordText::Outside(outside) => outside.bytes(),
        }
    }
}

impl<'a> Outside<'a> {
    #[inline(always)]
    fn pointer(self) -> *const Vec<u8> {
        // SAFETY: *written*: a pointer lies there, at any alignment, as long as the page is
        // borrowed.
        unsafe { self.at.cast::<*const Vec<u8>>().read_unaligned() }
    }

    pub fn bytes(self) -> &'a [u8] {
        // SAFETY: *owned*: the string lives while the page has the record, which is borrowed for
        // 'a. No owner changes a string that is shared.
        unsafe { &*self.pointer() }
    }

    /// Another owner, for a caller that needs the string longer than the page.
    pub fn to_shared(self) -> SharedString {
        // SAFETY: *owned*: the pointer is an `Arc`'s, whose count includes the page's reference. It
        // is raised by one, and the result owns that reference.
        unsafe {
            Arc::increment_strong_count(self.pointer());
            Arc::from_raw(self.pointer())
        }
    }
}

impl<'a> Given<'a> {
    #[inline(always)]
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Given::Bytes(bytes) => bytes,
            Given::Shared(shared) => shared,
        }
    }

    #[inline(always)]
    fn is_outside(self) -> bool {
        self.bytes().len() > INLINE_MAX
    }

    fn into_shared(self) -> SharedString {
        match self {
            Given::Bytes(bytes) => Arc::new(bytes.to_vec()),
            Given::Shared(shared) => Arc::clone(shared),
        }
    }

    /// How many bytes it takes behind the first byte of its head.
    #[inline(always)]
    fn room(self, short_max: usize) -> usize {
        let len = self.bytes().len();
        if len <= short_max {
            len
        } else if len <= INLINE_MAX {
            len + 2
        } else {
            POINTER
        }
    }
}

impl<'a> From<&'a [u8]> for Given<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Given::Bytes(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Given<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Given::Bytes(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for Given<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Given::Bytes(bytes)
    }
}

impl NewRecord<'_> {
    /// How many bytes it will take.
    #[inline]
    pub(super) fn len(&self) -> usize {
        let value = self.value.map_or(0, |value| 1 + value.room(VALUE_SHORT_MAX));
        1 + self.key.room(KEY_SHORT_MAX) + value + if self.expire_ms.is_some() { 8 } else { 0 }
    }

    /// Whether it keeps a string outside.
    #[inline]
    pub(super) fn outside(&self) -> bool {
        self.key.is_outside() || self.value.is_some_and(Given::is_outside)
    }

    /// How many bytes of memory it will take outside its page.
    #[inline]
    pub(super) fn outside_memory(&self) -> usize {
        let value = self.value.map_or(0, |value| outside_memory(value.bytes().len()));
        outside_memory(self.key.bytes().len()) + value
    }

    /// Writes the record. Returns where it ends.
    ///
    /// # Safety
    /// `at` has room for `len()` bytes, which overlap none of the strings.
    #[inline]
    pub(super) unsafe fn write(&self, at: *mut u8) -> *mut u8 {
        let mark = if self.expire_ms.is_some() { EXPIRES } else { 0 };
        // SAFETY: the caller has room for `len()` bytes, which include everything written here, and
        // which overlap none of the strings.
        unsafe {
            let mut at = write_text(at, self.key, KEY_SHORT_MAX, mark, |at| at);
            if let Some(value) = self.value {
                at = write_text(at, value, VALUE_SHORT_MAX, 0, |at| {
                    write_expiry(at, self.expire_ms)
                });
            } else {
                at = write_expiry(at, self.expire_ms);
            }
            at
        }
    }
}

impl NewRecord<'_> {
    /// Writes what follows the key of an existing record.
    ///
    /// # Safety
    /// A record of at least `len()` bytes, which the caller may write, lies at `at`. It has the
    /// same key, and an expiry if this one has. The strings other than the key lie elsewhere.
    pub(super) unsafe fn write_tail(&self, at: *mut u8) {
        // SAFETY: *written*: a record lies there, so the tail begins where its key ends. The new
        // tail ends within the record: with the key, which is as long as ours, it takes `len()`
        // bytes.
        unsafe {
            let (_, tail) = key(at);
            let tail = tail.cast_mut();
            match self.value {
                Some(value) => {
                    write_text(tail, value, VALUE_SHORT_MAX, 0, |at| {
                        write_expiry(at, self.expire_ms)
                    });
                }
                None => {
                    write_expiry(tail, self.expire_ms);
                }
            }
        }
    }
}

/// The key of the record at `at`, and where the key ends.
///
/// # Safety
/// A record begins there, which lives and does not change for 'a.
#[inline(always)]
pub(super) unsafe fn key<'a>(at: *const u8) -> (RecordText<'a>, *const u8) {
    // SAFETY: *written*: a record begins with the head of its key, and `read_text` reads on behind
    // that.
    unsafe {
        let len = at.read() & !EXPIRES;
        read_text(at.add(1), usize::from(len), KEY_SHORT_MAX)
    }
}

/// Whether the record at `at` has this key.
///
/// # Safety
/// A record begins there, which lives and does not change meanwhile.
#[inline(always)]
pub(super) unsafe fn has_key(at: *const u8, wanted: &[u8]) -> bool {
    // SAFETY: *written*: a record begins with the head of its key. A head up to `KEY_SHORT_MAX` is
    // the number of bytes that follow.
    unsafe {
        let len = usize::from(at.read() & !EXPIRES);
        if wanted.len() <= KEY_SHORT_MAX {
            len == wanted.len() && std::slice::from_raw_parts(at.add(1), len) == wanted
        } else {
            len > KEY_SHORT_MAX && key(at).0.bytes() == wanted
        }
    }
}

/// The record at `at`.
///
/// # Safety
/// A record begins there, with a value if `values`. It lives and does not change for 'a.
#[inline(always)]
pub(super) unsafe fn read<'a>(at: *const u8, values: bool) -> TableRecord<'a> {
    // SAFETY: *written*: the parts lie behind each other as the heads and the mark say, so each is
    // read where it was written.
    unsafe {
        let expires = at.read() & EXPIRES != 0;
        let (key, mut end) = key(at);
        let read_expiry = |end: &mut *const u8| {
            expires.then(|| {
                let expire_ms = end.cast::<i64>().read_unaligned();
                *end = end.add(8);
                expire_ms
            })
        };
        let (mut value, expire_ms);
        value = None;
        if values {
            let head = usize::from(end.read());
            end = end.add(1);
            let len = if head == VALUE_SHORT_MAX + 1 {
                let len = end.cast::<u16>().read_unaligned();
                end = end.add(2);
                usize::from(len)
            } else {
                head
            };
            expire_ms = read_expiry(&mut end);
            if head == VALUE_SHORT_MAX + 2 {
                value = Some(RecordText::Outside(Outside { at: end, page: PhantomData }));
                end = end.add(POINTER);
            } else {
                value = Some(RecordText::Inline(std::slice::from_raw_parts(end, len)));
                end = end.add(len);
            }
        } else {
            expire_ms = read_expiry(&mut end);
        }
        TableRecord { key, value, expire_ms, len: end.offset_from_unsigned(at) }
    }
}

/// Releases the strings that a record keeps outside, or takes another reference to each (`taken`).
///
/// # Safety
/// Released references must belong to a page that forgets the record. Taken ones must be for a copy
/// of the record, which owns them from then on.
pub(super) unsafe fn count_outside(record: TableRecord<'_>, taken: bool) {
    for text in [Some(record.key), record.value].into_iter().flatten() {
        if let RecordText::Outside(outside) = text {
            // SAFETY: *owned*: the pointer is an `Arc`'s, to which the page has a reference. That
            // reference is the one that is released, and the caller says that it is not used
            // afterwards.
            unsafe {
                if taken {
                    Arc::increment_strong_count(outside.pointer());
                } else {
                    Arc::decrement_strong_count(outside.pointer());
                }
            }
        }
    }
}

/// Moves the strings that a record keeps outside, unless they have other owners.
///
/// # Safety
/// The record's page is borrowed exclusively and is its block's only owner, and no part of the
/// record is used meanwhile.
pub(super) unsafe fn move_outside(record: TableRecord<'_>, defragmenter: &mut Defragmenter<'_>) {
    for text in [Some(record.key), record.value].into_iter().flatten() {
        if let RecordText::Outside(outside) = text {
            // SAFETY: *owned*: the pointer is an `Arc`'s, to which the page has a reference. That
            // reference is only borrowed: if the allocator panics, the page still has it.
            let mut shared = ManuallyDrop::new(unsafe { Arc::from_raw(outside.pointer()) });
            if let Some(string) = Arc::get_mut(&mut shared) {
                defragmenter.vector(string);
            }
            defragmenter.counted(&mut *shared);
            let pointer = Arc::into_raw(ManuallyDrop::into_inner(shared));
            // SAFETY: the caller lets us change the record, and the pointer lies there. Nothing is
            // between the move of what it points to and this.
            unsafe { outside.at.cast_mut().cast::<*const Vec<u8>>().write_unaligned(pointer) };
        }
    }
}

impl TableRecord<'_> {
    pub(super) fn outside(&self) -> bool {
        let is_outside = |text| matches!(text, RecordText::Outside(_));
        is_outside(self.key) || self.value.is_some_and(is_outside)
    }

    /// How many bytes of memory it takes outside its page.
    pub(super) fn outside_memory(&self) -> usize {
        let memory = |text: RecordText<'_>| match text {
            RecordText::Inline(_) => 0,
            RecordText::Outside(outside) => outside_memory(outside.bytes().len()),
        };
        memory(self.key) + self.value.map_or(0, memory)
    }
}

/// The memory of a string of this length outside: a vector's header, two counters, and the bytes.
pub(super) const fn outside_memory(len: usize) -> usize {
    if len > INLINE_MAX { 40 + len } else { 0 }
}

/// Writes a head, then calls `between`, and then writes the string.
///
/// # Safety
/// `at` has room that the caller may write: for the head, for the bytes that `between` writes, and
/// for the string or a pointer to it. The room does not overlap the string.
#[inline(always)]
unsafe fn write_text(
    at: *mut u8,
    text: Given<'_>,
    short_max: usize,
    mark: u8,
    between: impl FnOnce(*mut u8) -> *mut u8,
) -> *mut u8 {
    let bytes = text.bytes();
    // SAFETY: the caller has room for each of these. A string outside leaves its reference with the
    // pointer (*owned*).
    unsafe {
        if text.is_outside() {
            at.write((short_max + 2) as u8 | mark);
            let at = between(at.add(1));
            at.cast::<*const Vec<u8>>().write_unaligned(Arc::into_raw(text.into_shared()));
            return at.add(POINTER);
        }
        let at = if bytes.len() <= short_max {
            at.write(bytes.len() as u8 | mark);
            at.add(1)
        } else {
            at.write((short_max + 1) as u8 | mark);
            at.add(1).cast::<u16>().write_unaligned(bytes.len() as u16);
            at.add(3)
        };
        let at = between(at);
        at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        at.add(bytes.len())
    }
}

/// Writes a time, if there is one. Returns where it ends.
///
/// # Safety
/// `at` has room for it, which the caller may write.
#[inline(always)]
unsafe fn write_expiry(at: *mut u8, expire_ms: Option<i64>) -> *mut u8 {
    match expire_ms {
        // SAFETY: the caller has room for eight bytes.
        Some(expire_ms) => unsafe {
            at.cast::<i64>().write_unaligned(expire_ms);
            at.add(8)
        },
        None => at,
    }
}

/// The string behind a head, and where it ends.
///
/// # Safety
/// `at` is behind the head of a string, and `len` is the head's value. The record lives and does
/// not change for 'a.
#[inline(always)]
unsafe fn read_text<'a>(
    at: *const u8,
    len: usize,
    short_max: usize,
) -> (RecordText<'a>, *const u8) {
    // SAFETY: *written*: as the head says, the bytes follow, or two bytes with their number and
    // then the bytes, or a pointer.
    unsafe {
        if len <= short_max {
            (RecordText::Inline(std::slice::from_raw_parts(at, len)), at.add(len))
        } else if len == short_max + 1 {
            let len = usize::from(at.cast::<u16>().read_unaligned());
            (RecordText::Inline(std::slice::from_raw_parts(at.add(2), len)), at.add(2 + len))
        } else {
            (RecordText::Outside(Outside { at, page: PhantomData }), at.add(POINTER))
        }
    }
}

const EXPIRES: u8 = 0x80;
const KEY_SHORT_MAX: usize = 125;
const VALUE_SHORT_MAX: usize = 253;
const POINTER: usize = size_of::<*const Vec<u8>>();
