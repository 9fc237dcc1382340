//! How a member of a set or a field of a hash lies in its page.
//!
//! ```text
//! key head   u8      low 7 bits: the key's length up to 125; 126: u16 length follows; 127: outside
//!                    highest bit: with an expiry
//! key                the bytes, or a pointer to them
//! value head u8      (hashes) up to 253: the length; 254: u16 length follows; 255: outside
//! expiry     i64     (if marked; Unix milliseconds)
//! value              (hashes) the bytes, or a pointer to them
//! ```
//! What is longer than [`INLINE_MAX`] lies outside, behind a shared pointer, so that pages stay
//! small and a reply can refer to it.
//!
//! What the unsafe code here rests on, by name:
//! - *Written*: where a record is read, `NewRecord::write` has written one, or one was copied
//!   whole. So its heads say how its bytes go on, and all of them are initialised. Nothing in it is
//!   aligned.
//! - *Owned*: a pointer in a record came from `Arc::into_raw`, and its page owns a reference with
//!   it for as long as it has the record.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::value::Shared;

/// Longest string that lies inside its page.
pub const INLINE_MAX: usize = 512;

/// A string in a record.
#[derive(Clone, Copy, Debug)]
pub enum Text<'a> {
    Inline(&'a [u8]),
    Outside(Outside<'a>),
}

/// A string that lies outside its page.
#[derive(Clone, Copy, Debug)]
pub struct Outside<'a> {
    pointer: *const Vec<u8>,
    page: PhantomData<&'a Shared>,
}

/// A string on its way into a record.
#[derive(Clone, Copy, Debug)]
pub enum Given<'a> {
    Bytes(&'a [u8]),
    /// One that is shared already: when it is long it is kept as it is.
    Shared(&'a Shared),
}

/// A record, taken apart.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub key: Text<'a>,
    /// Only hashes have one.
    pub value: Option<Text<'a>>,
    /// When it expires, in Unix milliseconds.
    pub expire_ms: Option<i64>,
    /// Bytes that it takes in its page.
    pub(super) len: usize,
}

/// A record about to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewRecord<'a> {
    pub(super) key: Given<'a>,
    pub(super) value: Option<Given<'a>>,
    pub(super) expire_ms: Option<i64>,
}

impl<'a> Text<'a> {
    #[inline(always)]
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Text::Inline(bytes) => bytes,
            Text::Outside(outside) => outside.bytes(),
        }
    }

    /// Itself, to be put into another record.
    pub fn to_given(self) -> Given<'a> {
        Given::Bytes(self.bytes())
    }
}

impl<'a> Outside<'a> {
    pub fn bytes(self) -> &'a [u8] {
        // SAFETY: *owned*: the string lives as long as the page has the record, which is borrowed
        // for 'a. No owner changes a string that is shared.
        unsafe { &*self.pointer }
    }

    /// An owner of its own for a caller that needs the string longer than the page.
    pub fn to_shared(self) -> Shared {
        // SAFETY: *owned*: the pointer is that of an `Arc`, whose count is at least the page's one.
        // It is one more now, which the result owns.
        unsafe {
            Arc::increment_strong_count(self.pointer);
            Arc::from_raw(self.pointer)
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

    fn into_shared(self) -> Shared {
        match self {
            Given::Bytes(bytes) => Arc::new(bytes.to_vec()),
            Given::Shared(shared) => Arc::clone(shared),
        }
    }

    /// Bytes that it takes behind its head's first byte.
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
    /// Bytes that it will take.
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

    /// Bytes of memory that it will take outside its page.
    #[inline]
    pub(super) fn outside_memory(&self) -> usize {
        let value = self.value.map_or(0, |value| outside_memory(value.bytes().len()));
        outside_memory(self.key.bytes().len()) + value
    }

    /// Writes it; returns where it ends.
    ///
    /// # Safety
    /// At `at` there is room for `len()` bytes, which overlap none of the strings.
    #[inline]
    pub(super) unsafe fn write(&self, at: *mut u8) -> *mut u8 {
        let mark = if self.expire_ms.is_some() { EXPIRES } else { 0 };
        // SAFETY: the caller has room for `len()` bytes, which has counted all that is written
        // here, and they overlap none of the strings.
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
    /// Writes what follows the key of a record that is there already.
    ///
    /// # Safety
    /// At `at` is a record that the caller may write, of `len()` bytes or more. It has the same
    /// key, and an expiry if this one has. The strings but the key lie elsewhere.
    pub(super) unsafe fn write_tail(&self, at: *mut u8) {
        // SAFETY: *written*: a record lies there, so the tail is where its key ends. What is
        // written there ends within the record: it takes `len()` bytes with the key, which is as
        // long as ours.
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

/// The key of the record at `at`.
///
/// # Safety
/// A record begins there, which lives and does not change for 'a.
#[inline(always)]
pub(super) unsafe fn key<'a>(at: *const u8) -> (Text<'a>, *const u8) {
    // SAFETY: *written*: a record begins with the head of its key, behind which `read_text` goes
    // on.
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
/// A record begins there, with a value if `values`, which lives and does not change for 'a.
#[inline(always)]
pub(super) unsafe fn read<'a>(at: *const u8, values: bool) -> Record<'a> {
    // SAFETY: *written*: the parts lie behind each other as the heads and the mark say, so what is
    // read here is what was written there.
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
                value = Some(outside(end));
                end = end.add(POINTER);
            } else {
                value = Some(Text::Inline(std::slice::from_raw_parts(end, len)));
                end = end.add(len);
            }
        } else {
            expire_ms = read_expiry(&mut end);
        }
        Record { key, value, expire_ms, len: end.offset_from_unsigned(at) }
    }
}

/// Lets go of what a record keeps outside, or takes another hold of it.
///
/// # Safety
/// The record is one of a page, which owns the references that are counted down and forgets it; or
/// which is copied, so that the copy owns the references that are counted up.
pub(super) unsafe fn count_outside(record: Record<'_>, taken: bool) {
    for text in [Some(record.key), record.value].into_iter().flatten() {
        if let Text::Outside(outside) = text {
            // SAFETY: *owned*: the pointer is that of an `Arc` with a reference of the page's,
            // which is the one that is counted down. The caller says that it is not used
            // afterwards.
            unsafe {
                if taken {
                    Arc::increment_strong_count(outside.pointer);
                } else {
                    Arc::decrement_strong_count(outside.pointer);
                }
            }
        }
    }
}

impl Record<'_> {
    pub(super) fn outside(&self) -> bool {
        let is_outside = |text| matches!(text, Text::Outside(_));
        is_outside(self.key) || self.value.is_some_and(is_outside)
    }

    /// Bytes of memory that it takes outside its page.
    pub(super) fn outside_memory(&self) -> usize {
        let memory = |text: Text<'_>| match text {
            Text::Inline(_) => 0,
            Text::Outside(outside) => outside_memory(outside.bytes().len()),
        };
        memory(self.key) + self.value.map_or(0, memory)
    }
}

/// What a string of this length takes outside: a vector's header, two counters, the bytes.
pub(super) const fn outside_memory(len: usize) -> usize {
    if len > INLINE_MAX { 40 + len } else { 0 }
}

/// Writes a head, what comes between (`between`), and the string.
///
/// # Safety
/// At `at` is room that the caller may write: for the head, for what `between` writes, and for the
/// string or a pointer to it. It overlaps the string nowhere.
#[inline(always)]
unsafe fn write_text(
    at: *mut u8,
    text: Given<'_>,
    short_max: usize,
    mark: u8,
    between: impl FnOnce(*mut u8) -> *mut u8,
) -> *mut u8 {
    let bytes = text.bytes();
    // SAFETY: the caller has room for each of these, one behind the other. A string that goes
    // outside leaves its reference with the pointer (*owned*).
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

/// Writes a time, if there is one; returns where it ends.
///
/// # Safety
/// At `at` is room for it that the caller may write.
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
/// `at` is behind the head of a string, which said `len`. The record lives and does not change for
/// 'a.
#[inline(always)]
unsafe fn read_text<'a>(at: *const u8, len: usize, short_max: usize) -> (Text<'a>, *const u8) {
    // SAFETY: *written*: by what the head says there follow the bytes, or two with their number and
    // then these, or a pointer.
    unsafe {
        if len <= short_max {
            (Text::Inline(std::slice::from_raw_parts(at, len)), at.add(len))
        } else if len == short_max + 1 {
            let len = usize::from(at.cast::<u16>().read_unaligned());
            (Text::Inline(std::slice::from_raw_parts(at.add(2), len)), at.add(2 + len))
        } else {
            (outside(at), at.add(POINTER))
        }
    }
}

/// A string that lies outside.
///
/// # Safety
/// At `at` is a pointer that `write_text` wrote, of a record that its page has for 'a.
unsafe fn outside<'a>(at: *const u8) -> Text<'a> {
    // SAFETY: *written*: a pointer lies there, at any alignment.
    let pointer = unsafe { at.cast::<*const Vec<u8>>().read_unaligned() };
    Text::Outside(Outside { pointer, page: PhantomData })
}

const EXPIRES: u8 = 0x80;
const KEY_SHORT_MAX: usize = 125;
const VALUE_SHORT_MAX: usize = 253;
const POINTER: usize = size_of::<*const Vec<u8>>();
