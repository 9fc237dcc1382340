//! An entry: one allocation that holds a key, its header, its expiry and its value.
//!
//! ```text
//! offset 0  type and encoding  u8
//!        1  flags              4 bits, and above them the lowest 4 of the access bits
//!        2  key length         u8    (with LONG_KEY: unused)
//!        3  access bits        3 x u8, the other 24
//!        6  value length       u16   (inline strings)
//!        8  expiry             i64   (with EXPIRES; Unix milliseconds)
//!           key length         u32   (with LONG_KEY)
//!           key
//!           value              the string, an aligned pointer to it, or a collection
//! ```
//! Integers are kept as their digits. So SET and GET, the most frequent commands, convert nothing,
//! and a short number takes less than 8 bytes.
//!
//! A key of 16 bytes with a value of 32 takes 56 bytes. The block's size is a multiple of 8, so a
//! value of about the same length may overwrite another without a new block.
//!
//! The unsafe code here relies on these rules:
//! - *Whole*: an [`OwnedEntry`], [`EntryRef`] or [`EntryMut`] points to the beginning of a live
//!   block with the layout above. [`OwnedEntry::new`] makes it so, and each change keeps it so. The
//!   header says where everything is, and all of that is initialised. The block is aligned to 8.
//! - *Sized*: the block has the layout that [`layout`] gives for the end of its value. A value is
//!   overwritten only by one whose end gives the same layout.
//! - *Held*: while there is an [`EntryRef`] nothing changes the entry, and while there is an
//!   [`EntryMut`] nothing else uses it. Their lifetimes ensure this: they are those of borrows of
//!   the table or of the owned entry.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, offset_of};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::value::prefetch::{LINE, prefetch};
use crate::value::{
    AnyCollection, CHUNKED_LEN_MIN, ChunkedString, Collection, CollectionRef, Defragmenter,
    Encoding, Hash, List, PlainCollection, SLOT, Set, SortedSet, Stream, StringRef, ValueType,
};
use access::ACCESS_MASK;

pub use crate::value::SharedString;

pub mod access;

/// The longest string that lies inside its entry. Longer ones are shared, so that a reply can refer
/// to them after the shard is unlocked.
pub const INLINE_MAX: usize = 4096;
/// The longest key in bytes.
pub const KEY_LEN_MAX: usize = u32::MAX as usize;
/// The bytes for key, value and expiry together that valkey-server 9 puts into one block of 128
/// bytes. A longer string is called `raw`.
const EMBSTR_ROOM: usize = 113;
/// A key of this length or more takes two more bytes of that room.
const EMBSTR_LONG_KEY: usize = 32;
/// How many cache lines of a value are prefetched for a copy.
const LINES_AHEAD: usize = 4;
/// The longest 64-bit integer: digits and sign.
const INTEGER_LEN_MAX: usize = 20;

/// If a string grows to this length at once by more than its half, it gets no spare room.
const FRESH_ZEROS_MIN: usize = 64 * 1024;

/// Collections of at most this many blocks of memory are freed at once.
const LIGHT_EFFORT: usize = 64;

const HEADER: usize = size_of::<EntryHeader>();
/// In the first byte the type lies above the form.
const TYPE_SHIFT: u32 = 4;
const EXPIRES: u8 = 1 << 0;
const LONG_KEY: u8 = 1 << 1;
/// A cut has copied the entry, or the entry is new (see `cut`). Never set outside of a table.
const MARKED: u8 = 1 << 2;
/// The bits of their byte that are flags.
const FLAGS: u8 = 0x0f;

/// How the value lies in the entry. It is the low half of the first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum ValueForm {
    /// The bytes themselves. They are `int`, `embstr` or `raw`, depending on their contents.
    Inline = 0,
    /// The bytes themselves, after a change in place: always `raw`.
    InlineRaw = 1,
    /// The bytes themselves, never `int`.
    InlineText = 2,
    /// Eight bytes: a `SharedString`.
    Shared = 3,
    /// Eight bytes: a `ChunkedString`.
    Chunked = 4,
    /// `SLOT` bytes: the collection of the type in the high half of the byte.
    Collection = 5,
}

/// The beginning of every entry, byte for byte.
#[repr(C)]
struct EntryHeader {
    /// The form, and above it the type.
    first: u8,
    /// The flags, and above them the lowest 4 of the access bits.
    flags: u8,
    /// Unused with LONG_KEY.
    key_len: u8,
    /// The other 24 access bits.
    access: [u8; 3],
    /// The length of an inline string.
    value_len: u16,
}

const _: () = assert!(HEADER == 8 && offset_of!(EntryHeader, value_len) == 6);

/// A string that is converted to chunks stays in its block.
const _: () = assert!(
    size_of::<ChunkedString>() == size_of::<SharedString>()
        && align_of::<ChunkedString>() <= align_of::<SharedString>()
);

impl ValueForm {
    #[inline(always)]
    const fn is_inline(self) -> bool {
        matches!(self, Self::Inline | Self::InlineRaw | Self::InlineText)
    }

    #[inline(always)]
    const fn is_aligned(self) -> bool {
        matches!(self, Self::Shared | Self::Chunked)
    }
}

/// A value that will be put into an entry.
#[derive(Clone, Debug)]
pub enum NewValue<'a> {
    /// A string of at most `INLINE_MAX` bytes.
    Inline(&'a [u8]),
    /// A short string for which OBJECT ENCODING says `raw`, because it was changed in place.
    InlineRaw(&'a [u8]),
    /// A short string for which OBJECT ENCODING never says `int`, because INCRBYFLOAT made it.
    InlineText(&'a [u8]),
    Shared(SharedString),
    Chunked(ChunkedString),
    Collection(AnyCollection),
}

/// A value inside an entry.
#[derive(Clone, Copy, Debug)]
pub enum ValueRef<'a> {
    Bytes(&'a [u8]),
    Shared(&'a SharedString),
    Chunked(&'a ChunkedString),
    Collection(CollectionRef<'a>),
}

/// A shared reference to an entry, while its shard is locked.
#[derive(Clone, Copy)]
pub struct EntryRef<'a> {
    pointer: NonNull<u8>,
    shard: PhantomData<&'a ()>,
}

/// An exclusive reference to an entry, while its shard is locked.
pub struct EntryMut<'a> {
    pointer: NonNull<u8>,
    shard: PhantomData<&'a mut ()>,
}

/// An entry that is in no table: newly made, or removed. Dropping it frees it.
pub struct OwnedEntry {
    pointer: NonNull<u8>,
}

// SAFETY: nothing else has a pointer to the block, and its contents may be sent: `SharedString` and
// `ChunkedString` by the assertion below, collections by the one beside their list.
unsafe impl Send for OwnedEntry {}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<SharedString>();
    is_send::<ChunkedString>();
};

impl EntryHeader {
    #[inline(always)]
    const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    #[inline(always)]
    const fn form(&self) -> ValueForm {
        match self.first & 0x0f {
            0 => ValueForm::Inline,
            1 => ValueForm::InlineRaw,
            2 => ValueForm::InlineText,
            3 => ValueForm::Shared,
            4 => ValueForm::Chunked,
            _ => ValueForm::Collection,
        }
    }

    /// The type of the value. A string's bits are 0.
    #[inline(always)]
    const fn value_type(&self) -> ValueType {
        match self.first >> TYPE_SHIFT {
            0 => ValueType::String,
            1 => ValueType::List,
            2 => ValueType::Set,
            3 => ValueType::SortedSet,
            4 => ValueType::Hash,
            _ => ValueType::Stream,
        }
    }

    #[inline(always)]
    const fn access(&self) -> u32 {
        let [low, middle, high] = self.access;
        u32::from_le_bytes([low, middle, high, 0]) << 4 | (self.flags >> 4) as u32
    }

    #[inline(always)]
    const fn set_access(&mut self, access: u32) {
        let access = access & ACCESS_MASK;
        let [low, middle, high, _] = (access >> 4).to_le_bytes();
        self.flags = self.flags & FLAGS | (access as u8) << 4;
        self.access = [low, middle, high];
    }

    const fn set_marked(&mut self, marked: bool) {
        self.flags = self.flags & !MARKED | if marked { MARKED } else { 0 };
    }
}

impl<'a> NewValue<'a> {
    /// The form of a plain string.
    #[inline]
    pub fn string(bytes: &'a [u8]) -> Self {
        if bytes.len() <= INLINE_MAX {
            NewValue::Inline(bytes)
        } else {
            NewValue::Shared(Arc::new(bytes.to_vec()))
        }
    }

    /// The bytes, if they will lie in the entry.
    #[inline(always)]
    const fn inline(&self) -> Option<&'a [u8]> {
        match *self {
            NewValue::Inline(bytes) | NewValue::InlineRaw(bytes) | NewValue::InlineText(bytes) => {
                Some(bytes)
            }
            NewValue::Shared(_) | NewValue::Chunked(_) | NewValue::Collection(_) => None,
        }
    }

    #[inline(always)]
    const fn form(&self) -> ValueForm {
        match self {
            NewValue::Inline(_) => ValueForm::Inline,
            NewValue::InlineRaw(_) => ValueForm::InlineRaw,
            NewValue::InlineText(_) => ValueForm::InlineText,
            NewValue::Shared(_) => ValueForm::Shared,
            NewValue::Chunked(_) => ValueForm::Chunked,
            NewValue::Collection(_) => ValueForm::Collection,
        }
    }

    /// Form and type, combined as in the first byte.
    #[inline(always)]
    const fn first_byte(&self) -> u8 {
        match self {
            NewValue::Collection(collection) => {
                ValueForm::Collection as u8 | (collection.value_type() as u8) << TYPE_SHIFT
            }
            _ => self.form() as u8,
        }
    }

    /// How many bytes the value takes inside the entry.
    #[inline(always)]
    const fn size(&self) -> usize {
        match self {
            NewValue::Inline(bytes) | NewValue::InlineRaw(bytes) | NewValue::InlineText(bytes) => {
                bytes.len()
            }
            NewValue::Shared(_) | NewValue::Chunked(_) => 8,
            NewValue::Collection(_) => SLOT,
        }
    }

    /// Writes the value into an entry whose key ends at `end`.
    ///
    /// # Safety
    /// The block at `pointer` is live, aligned to 8, used only by the caller, and as large as
    /// `layout` gives for `end` and the value's size.
    #[inline(always)]
    unsafe fn write(self, pointer: NonNull<u8>, end: usize) {
        if let Some(bytes) = self.inline() {
            // SAFETY: the block has room for the bytes behind the key. They are borrowed, so they
            // do not lie in a block that only the caller uses.
            unsafe {
                pointer.add(end).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
            }
            return;
        }
        // SAFETY: a collection may lie at any address, and the block has room for it behind the
        // key. A string's pointer is aligned to 8 like the block. It ends within the block: the
        // block's size was rounded up to a multiple of 8, and its place and size are such
        // multiples.
        unsafe {
            let aligned = pointer.add(end.next_multiple_of(8));
            match self {
                NewValue::Shared(shared) => aligned.cast().write(shared),
                NewValue::Chunked(chunked) => aligned.cast().write(chunked),
                NewValue::Collection(collection) => collection.write(pointer.add(end)),
                NewValue::Inline(_) | NewValue::InlineRaw(_) | NewValue::InlineText(_) => {}
            }
        }
    }
}

impl OwnedEntry {
    /// Makes an entry. `access` is its access bits, and `expire_ms` a Unix time.
    ///
    /// # Panics
    /// If an inline value is longer than `INLINE_MAX`, or the key is 4 GiB or longer.
    #[inline]
    pub fn new(key: &[u8], value: NewValue<'_>, expire_ms: Option<i64>, access: u32) -> Self {
        let inline_len = value.inline().map_or(0, <[u8]>::len);
        assert!(inline_len <= INLINE_MAX, "inline value of {inline_len} bytes");
        let mut flags = 0;
        let mut end = HEADER + key.len();
        if expire_ms.is_some() {
            flags |= EXPIRES;
            end += 8;
        }
        if key.len() > usize::from(u8::MAX) {
            assert!(key.len() <= KEY_LEN_MAX, "a key of {} bytes", key.len());
            flags |= LONG_KEY;
            end += 4;
        }
        let mut header = EntryHeader {
            first: value.first_byte(),
            flags,
            key_len: key.len() as u8,
            access: [0; 3],
            value_len: inline_len as u16,
        };
        header.set_access(access);
        let layout = layout(end + value.size());
        // SAFETY: the layout has room for at least a header, so its size is not zero.
        let Some(pointer) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout);
        };
        // SAFETY: only this function uses the new block, and it is aligned to 8. `end` is the sum
        // of the lengths of the header, the expiry, the length and the key, in this order. So all
        // of them lie within the block, the first two at multiples of 8.
        unsafe {
            pointer.cast().write(header);
            let mut at = pointer.add(HEADER);
            if let Some(ms) = expire_ms {
                at.cast::<i64>().write(ms);
                at = at.add(8);
            }
            if flags & LONG_KEY != 0 {
                at.cast::<u32>().write(key.len() as u32);
                at = at.add(4);
            }
            at.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
        }
        // SAFETY: the block was made for the end of the key and the size of the value.
        unsafe { value.write(pointer, end) };
        Self { pointer }
    }

    /// The pointer that a table keeps.
    #[inline(always)]
    pub(crate) fn into_pointer(self) -> NonNull<u8> {
        ManuallyDrop::new(self).pointer
    }

    /// # Safety
    /// The pointer came from `into_pointer`, and neither a table nor anything else has it any more.
    #[inline(always)]
    pub(crate) const unsafe fn from_pointer(pointer: NonNull<u8>) -> Self {
        Self { pointer }
    }

    #[inline(always)]
    pub fn as_ref(&self) -> EntryRef<'_> {
        EntryRef { pointer: self.pointer, shard: PhantomData }
    }

    fn as_mut(&mut self) -> EntryMut<'_> {
        EntryMut { pointer: self.pointer, shard: PhantomData }
    }

    /// Sets or removes the mark of a cut.
    pub(crate) fn set_marked(&mut self, marked: bool) {
        self.as_mut().set_marked(marked);
    }

    pub fn set_access(&mut self, access: u32) {
        self.as_mut().set_access(access);
    }

    /// Moves the value to another key, with another expiry. Large values are not copied.
    pub fn renamed(self, key: &[u8], expire_ms: Option<i64>, access: u32) -> Self {
        let emptied = Emptied(self.into_pointer());
        // SAFETY: this is the only call for this entry.
        Self::new(key, unsafe { emptied.value() }, expire_ms, access)
    }

    /// Moves the entry to another block, and frees the old one.
    pub(crate) fn moved(self) -> Self {
        let emptied = Emptied(self.into_pointer());
        let layout = layout(emptied.as_ref().end());
        // SAFETY: *sized*: it is the layout of a block, so its size is not zero.
        let Some(pointer) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout);
        };
        // SAFETY: *whole* and *sized*: both blocks have this layout, and only this function uses
        // the new one. The new block now owns what the value points to, because only the old
        // block's memory is freed.
        unsafe { pointer.copy_from_nonoverlapping(emptied.0, layout.size()) };
        Self { pointer }
    }

    /// Gives the entry another expiry, or none. Key and value stay.
    pub(crate) fn with_expiry(self, expire_ms: Option<i64>) -> Self {
        let emptied = Emptied(self.into_pointer());
        let (key, access) = (emptied.as_ref().key(), emptied.as_ref().access());
        // SAFETY: this is the only call for this entry.
        Self::new(key, unsafe { emptied.value() }, expire_ms, access)
    }
}

impl Drop for OwnedEntry {
    #[inline]
    fn drop(&mut self) {
        let emptied = Emptied(self.pointer);
        if !self.as_ref().header().form().is_inline() {
            // SAFETY: this is the only call, since nothing uses the entry after its drop.
            drop(unsafe { emptied.value() });
        }
    }
}

/// An entry whose value is moved elsewhere. Dropping it frees only the block, even if moving the
/// value panics.
struct Emptied(NonNull<u8>);

impl Emptied {
    #[inline(always)]
    fn as_ref(&self) -> EntryRef<'_> {
        EntryRef { pointer: self.0, shard: PhantomData }
    }

    /// The value, for another entry. What it points to is moved, not copied.
    ///
    /// # Safety
    /// Must be called only once, so that what the value points to has one owner.
    #[inline(always)]
    unsafe fn value(&self) -> NewValue<'_> {
        let look = self.as_ref();
        let at = look.value_offset();
        // SAFETY: *whole*: a value of this form lies there. The caller says that it is not read
        // again.
        unsafe {
            match look.header().form() {
                ValueForm::Inline | ValueForm::InlineRaw | ValueForm::InlineText => {
                    look.to_new_value()
                }
                ValueForm::Shared => NewValue::Shared(self.0.add(at).cast().read()),
                ValueForm::Chunked => NewValue::Chunked(self.0.add(at).cast().read()),
                ValueForm::Collection => NewValue::Collection(AnyCollection::read(
                    look.header().value_type(),
                    self.0.add(at),
                )),
            }
        }
    }
}

impl Drop for Emptied {
    #[inline(always)]
    fn drop(&mut self) {
        let layout = layout(self.as_ref().end());
        // SAFETY: *sized*: this is the block's layout. The block was an owned entry's, so nothing
        // else has it.
        unsafe { dealloc(self.0.as_ptr(), layout) };
    }
}

impl<'a> EntryRef<'a> {
    /// # Safety
    /// The pointer came from `OwnedEntry::into_pointer`. For 'a the entry lives and nothing changes
    /// it.
    #[inline(always)]
    pub(crate) const unsafe fn new(pointer: NonNull<u8>) -> Self {
        Self { pointer, shard: PhantomData }
    }

    #[inline(always)]
    fn header(self) -> &'a EntryHeader {
        // SAFETY: *whole*: an entry begins with its header. *Held*: it does not change in 'a.
        unsafe { self.pointer.cast().as_ref() }
    }

    /// The value at an offset.
    ///
    /// # Safety
    /// The header says that the entry has a T there.
    #[inline(always)]
    unsafe fn at<T>(self, offset: usize) -> &'a T {
        // SAFETY: *whole*: the block has an initialised T there, which is aligned. *Held*: it lives
        // and does not change in 'a.
        unsafe { self.pointer.add(offset).cast().as_ref() }
    }

    /// The bytes at an offset.
    ///
    /// # Safety
    /// The header says that the entry has these bytes there.
    #[inline(always)]
    unsafe fn bytes(self, offset: usize, len: usize) -> &'a [u8] {
        // SAFETY: *whole*: the block has `len` initialised bytes there. *Held*: they live and do
        // not change in 'a.
        unsafe { NonNull::slice_from_raw_parts(self.pointer.add(offset), len).as_ref() }
    }

    /// The offset and the length of the key.
    #[inline(always)]
    fn key_place(self) -> (usize, usize) {
        let header = self.header();
        let offset = HEADER + usize::from(header.has(EXPIRES)) * 8;
        if header.has(LONG_KEY) {
            // SAFETY: the flag says that the length lies there, behind 8 or 16 bytes.
            (offset + 4, unsafe { *self.at::<u32>(offset) } as usize)
        } else {
            (offset, usize::from(header.key_len))
        }
    }

    /// The value's offset. That of a string's pointer is rounded up for its alignment.
    #[inline(always)]
    fn value_offset(self) -> usize {
        let (offset, len) = self.key_place();
        let end = offset + len;
        if self.header().form().is_aligned() { end.next_multiple_of(8) } else { end }
    }

    /// The size that the block was made for: where the value would end if it began at the key's
    /// end.
    #[inline(always)]
    fn end(self) -> usize {
        let (offset, len) = self.key_place();
        let value = match self.header().form() {
            ValueForm::Inline | ValueForm::InlineRaw | ValueForm::InlineText => self.value_len(),
            ValueForm::Shared | ValueForm::Chunked => 8,
            ValueForm::Collection => SLOT,
        };
        offset + len + value
    }

    /// The length of an inline string.
    #[inline(always)]
    fn value_len(self) -> usize {
        usize::from(self.header().value_len)
    }

    #[inline(always)]
    pub fn key(self) -> &'a [u8] {
        let (offset, len) = self.key_place();
        // SAFETY: these bytes are the key.
        unsafe { self.bytes(offset, len) }
    }

    #[inline(always)]
    pub fn value_type(self) -> ValueType {
        self.header().value_type()
    }

    /// The collection, if the entry has one of this type.
    #[inline(always)]
    pub fn collection<T: Collection>(self) -> Option<&'a T> {
        // SAFETY: `Collection` promises that an entry with this type of value holds a `T`. It lies
        // at the value's place, because only collections have such a type.
        (self.value_type() == T::VALUE_TYPE).then(|| unsafe { self.at(self.value_offset()) })
    }

    /// When the key expires, in Unix milliseconds.
    #[inline(always)]
    pub fn expire_ms(self) -> Option<i64> {
        // SAFETY: the flag says that the time lies behind the header.
        self.header().has(EXPIRES).then(|| unsafe { *self.at(HEADER) })
    }

    /// Whether a cut has marked the entry.
    pub(crate) fn is_marked(self) -> bool {
        self.header().has(MARKED)
    }

    /// The 28 access bits.
    #[inline(always)]
    pub fn access(self) -> u32 {
        self.header().access()
    }

    #[inline(always)]
    pub fn value(self) -> ValueRef<'a> {
        let at = self.value_offset();
        // SAFETY: the form says which of these lies at the value's place, and the type says which
        // collection. *Held*: it lives and does not change in 'a.
        unsafe {
            match self.header().form() {
                ValueForm::Inline | ValueForm::InlineRaw | ValueForm::InlineText => {
                    ValueRef::Bytes(self.bytes(at, self.value_len()))
                }
                ValueForm::Shared => ValueRef::Shared(self.at(at)),
                ValueForm::Chunked => ValueRef::Chunked(self.at(at)),
                ValueForm::Collection => ValueRef::Collection(CollectionRef::new(
                    self.value_type(),
                    self.pointer.add(at),
                )),
            }
        }
    }

    /// Prefetches what a copy reads beyond the first two cache lines of the entry, which were
    /// prefetched before. The processor prefetches the rest of a longer value by itself.
    pub(crate) fn prefetch_value(self) {
        match self.value() {
            ValueRef::Bytes(bytes) => {
                bytes.chunks(LINE).skip(1).take(LINES_AHEAD).for_each(|line| prefetch(&line[0]));
            }
            ValueRef::Collection(collection) => {
                if let Some(block) = collection.block_address() {
                    prefetch(block);
                    prefetch(block.wrapping_add(LINE));
                }
            }
            ValueRef::Shared(_) | ValueRef::Chunked(_) => {}
        }
    }

    /// The string. Empty if the value is a collection.
    #[inline(always)]
    pub fn string(self) -> StringRef<'a> {
        match self.inline() {
            Some(bytes) => StringRef::Flat(bytes),
            None => self.long_string(),
        }
    }

    #[inline(never)]
    fn long_string(self) -> StringRef<'a> {
        match self.value() {
            ValueRef::Bytes(bytes) => StringRef::Flat(bytes),
            ValueRef::Shared(shared) => StringRef::Flat(shared),
            ValueRef::Chunked(chunked) => StringRef::Chunked(chunked),
            ValueRef::Collection(_) => StringRef::Flat(&[]),
        }
    }

    /// The string, if it lies in the entry itself.
    #[inline(always)]
    pub fn inline(self) -> Option<&'a [u8]> {
        // SAFETY: the form says that the bytes lie at the value's place.
        let bytes = || unsafe { self.bytes(self.value_offset(), self.value_len()) };
        self.header().form().is_inline().then(bytes)
    }

    /// The value, to be put into another entry. A `raw` string stays `raw`, even if it would now be
    /// `embstr`.
    pub fn to_new_value(self) -> NewValue<'a> {
        match self.value() {
            ValueRef::Bytes(bytes) if self.encoding() == Encoding::Raw => {
                NewValue::InlineRaw(bytes)
            }
            ValueRef::Bytes(bytes) if self.is_text() => NewValue::InlineText(bytes),
            ValueRef::Bytes(bytes) => NewValue::Inline(bytes),
            ValueRef::Shared(shared) => NewValue::Shared(Arc::clone(shared)),
            ValueRef::Chunked(chunked) => NewValue::Chunked(chunked.clone()),
            ValueRef::Collection(collection) => NewValue::Collection(collection.cloned()),
        }
    }

    /// Whether freeing the value is quick.
    #[inline(always)]
    pub fn is_light(self) -> bool {
        match self.value() {
            ValueRef::Bytes(_) => true,
            ValueRef::Shared(_) | ValueRef::Chunked(_) => false,
            ValueRef::Collection(collection) => collection.free_effort() <= LIGHT_EFFORT,
        }
    }

    /// Whether the string was changed in place since it was set.
    pub fn is_raw(self) -> bool {
        matches!(
            self.header().form(),
            ValueForm::InlineRaw | ValueForm::Shared | ValueForm::Chunked
        )
    }

    /// Whether the string counts as text even if it is an integer.
    fn is_text(self) -> bool {
        self.header().form() == ValueForm::InlineText
    }

    /// The answer of OBJECT ENCODING, by the rules of valkey-server 9.1.2: `embstr` depends on the
    /// length of the key and on whether it has an expiry.
    pub fn encoding(self) -> Encoding {
        let bytes = match self.value() {
            ValueRef::Bytes(bytes) => bytes,
            ValueRef::Shared(_) | ValueRef::Chunked(_) => return Encoding::Raw,
            ValueRef::Collection(collection) => return collection.encoding(),
        };
        if self.is_raw() {
            return Encoding::Raw;
        }
        if is_integer(bytes) && !self.is_text() {
            return Encoding::Int;
        }
        let key_len = self.key().len();
        let extra = usize::from(key_len >= EMBSTR_LONG_KEY) * 2;
        let expiry = usize::from(self.expire_ms().is_some()) * 8;
        if key_len + extra + expiry + bytes.len() <= EMBSTR_ROOM {
            Encoding::Embstr
        } else {
            Encoding::Raw
        }
    }

    /// Bytes of memory, including the value's.
    pub fn memory(self) -> usize {
        let block = layout(self.end()).size();
        match self.value() {
            ValueRef::Shared(bytes) => block + size_of::<Vec<u8>>() + 16 + bytes.capacity(),
            ValueRef::Chunked(chunked) => block + chunked.memory(),
            ValueRef::Collection(collection) => block + collection.memory(),
            ValueRef::Bytes(_) => block,
        }
    }
}

impl<'a> EntryMut<'a> {
    /// # Safety
    /// The pointer came from `OwnedEntry::into_pointer`. For 'a the entry lives, and nothing else
    /// uses it.
    #[inline(always)]
    pub(crate) const unsafe fn new(pointer: NonNull<u8>) -> Self {
        Self { pointer, shard: PhantomData }
    }

    #[inline(always)]
    pub fn as_ref(&self) -> EntryRef<'_> {
        EntryRef { pointer: self.pointer, shard: PhantomData }
    }

    /// Turns the exclusive reference into a shared one of the same lifetime.
    #[inline(always)]
    pub fn into_ref(self) -> EntryRef<'a> {
        EntryRef { pointer: self.pointer, shard: PhantomData }
    }

    #[inline(always)]
    fn header_mut(&mut self) -> &mut EntryHeader {
        // SAFETY: *whole*: an entry begins with its header. *Held*: nothing else uses the entry,
        // and it is borrowed exclusively while the result is used.
        unsafe { self.pointer.cast().as_mut() }
    }

    /// The value at an offset, for changing it.
    ///
    /// # Safety
    /// The header says that the entry has a T there, and nothing else uses it for 'm.
    #[inline(always)]
    unsafe fn at_mut<'m, T>(&mut self, offset: usize) -> &'m mut T {
        // SAFETY: *whole*: the block has an initialised T there, which is aligned. The caller says
        // that this is the only reference to it.
        unsafe { self.pointer.add(offset).cast().as_mut() }
    }

    /// Sets or removes the mark of a cut.
    pub(crate) fn set_marked(&mut self, marked: bool) {
        self.header_mut().set_marked(marked);
    }

    #[inline(always)]
    pub fn set_access(&mut self, access: u32) {
        self.header_mut().set_access(access);
    }

    /// Replaces the value in place if the new one fits the block. Otherwise gives the new one back.
    #[inline]
    pub fn replace<'v>(&mut self, value: NewValue<'v>) -> Result<(), NewValue<'v>> {
        let look = self.as_ref();
        let Some(bytes) = value.inline().filter(|_| look.header().form().is_inline()) else {
            return Err(value);
        };
        let at = look.value_offset();
        if layout(at + bytes.len()).size() != layout(at + look.value_len()).size() {
            return Err(value);
        }
        assert!(bytes.len() <= INLINE_MAX, "inline value of {} bytes", bytes.len());
        let header = self.header_mut();
        (header.first, header.value_len) = (value.first_byte(), bytes.len() as u16);
        // SAFETY: *sized*: the new value ends within the block, because its end gives the same
        // layout. *Held*: nothing else uses the entry until all of it is written.
        unsafe { value.write(self.pointer, at) };
        Ok(())
    }

    /// The string for changing in place, padded with zeros to at least `len` bytes. `None`: that
    /// needs a new entry, or chunks (see `chunked_mut`). From then on its encoding is `raw`. A long
    /// string is copied first if a reply still refers to it.
    #[inline]
    pub fn string_mut(&mut self, len: usize) -> Option<&mut [u8]> {
        let look = self.as_ref();
        let (form, at) = (look.header().form(), look.value_offset());
        if form == ValueForm::Shared {
            // SAFETY: the form says that a `SharedString` lies there. *Held*: nothing else uses it
            // in the borrow.
            return padded(unsafe { self.at_mut(at) }, len);
        } else if !form.is_inline() {
            return None;
        }
        let old_len = look.value_len();
        if len > old_len {
            if len > INLINE_MAX || layout(at + len).size() != layout(at + old_len).size() {
                return None;
            }
            // SAFETY: *sized*: a string of `len` bytes ends within the block too, because its end
            // gives the same layout. *Held*: nothing else uses the block.
            unsafe { self.pointer.add(at + old_len).write_bytes(0, len - old_len) };
        }
        let len = len.max(old_len);
        let header = self.header_mut();
        (header.first, header.value_len) = (ValueForm::InlineRaw as u8, len as u16);
        // SAFETY: *whole*: the string's bytes lie there; the last of them were set to zero above.
        // *Held*: nothing else uses them in the borrow.
        unsafe { Some(NonNull::slice_from_raw_parts(self.pointer.add(at), len).as_mut()) }
    }

    /// A long string in chunks, for changing in place, padded with zeros to at least `len` bytes.
    /// Converts the string to chunks if necessary. Other readers of the string keep its old
    /// contents, and only changed chunks are copied. `None`: the string lies in its entry.
    #[cold]
    pub fn chunked_mut(&mut self, len: usize) -> Option<&mut ChunkedString> {
        let look = self.as_ref();
        let (form, at) = (look.header().form(), look.value_offset());
        if form == ValueForm::Shared {
            // SAFETY: the form says that a `SharedString` lies there. *Held*: nothing else uses it.
            // An empty one stays in its place, so that the entry is whole even if the conversion
            // panics.
            let shared = std::mem::take(unsafe { self.at_mut::<SharedString>(at) });
            let chunked = ChunkedString::from_shared(shared);
            // SAFETY: the place has room for a `ChunkedString`, which has the size of a
            // `SharedString` and needs no other alignment. The empty string that lies there is
            // dropped first.
            unsafe {
                let place = self.pointer.add(at);
                place.cast::<SharedString>().drop_in_place();
                place.cast().write(chunked);
            }
            self.header_mut().first = ValueForm::Chunked as u8;
        } else if form != ValueForm::Chunked {
            return None;
        }
        // SAFETY: the form says that a `ChunkedString` lies there. *Held*: nothing else uses it in
        // the borrow.
        let chunked = unsafe { self.at_mut::<ChunkedString>(at) };
        chunked.grow(len);
        Some(chunked)
    }

    /// The collection for changing in place, if the entry has one of this type.
    #[inline(always)]
    pub fn collection_mut<T: PlainCollection>(self) -> Option<&'a mut T> {
        self.any_collection_mut()
    }

    /// As `collection_mut`, also for a hash.
    #[inline(always)]
    pub(crate) fn any_collection_mut<T: Collection>(mut self) -> Option<&'a mut T> {
        let look = self.as_ref();
        let (value_type, at) = (look.value_type(), look.value_offset());
        // SAFETY: `Collection` promises that an entry with this type of value holds a `T`. *Held*:
        // nothing else uses it in 'a, and the result replaces our own reference.
        (value_type == T::VALUE_TYPE).then(|| unsafe { self.at_mut(at) })
    }

    /// Moves blocks of the value out of sparsely used memory, from one part of the value on.
    /// Returns the part to continue with; 0 at the end. Chunks of a string are too large for this
    /// to help.
    pub(crate) fn defragment(self, from: usize, defragmenter: &mut Defragmenter<'_>) -> usize {
        match self.as_ref().value_type() {
            ValueType::String => {
                self.defragment_string(defragmenter);
                0
            }
            ValueType::List => self.defragment_collection::<List>(from, defragmenter),
            ValueType::Set => self.defragment_collection::<Set>(from, defragmenter),
            ValueType::SortedSet => self.defragment_collection::<SortedSet>(from, defragmenter),
            ValueType::Hash => self.defragment_collection::<Hash>(from, defragmenter),
            ValueType::Stream => self.defragment_collection::<Stream>(from, defragmenter),
        }
    }

    fn defragment_collection<T: Collection>(
        self,
        from: usize,
        defragmenter: &mut Defragmenter<'_>,
    ) -> usize {
        self.any_collection_mut::<T>().map_or(0, |value| value.defragment(from, defragmenter))
    }

    fn defragment_string(mut self, defragmenter: &mut Defragmenter<'_>) {
        let look = self.as_ref();
        if look.header().form() != ValueForm::Shared {
            return;
        }
        let at = look.value_offset();
        // SAFETY: the form says that a `SharedString` lies there. *Held*: nothing else uses it.
        let shared = unsafe { self.at_mut::<SharedString>(at) };
        if let Some(string) = defragmenter.counted(shared) {
            defragmenter.vector(string);
        }
    }

    /// Changes the expiry of an entry that has one. `false`: the entry has none, so a new entry
    /// with room for the time is needed.
    pub(crate) fn set_expire_in_place(&mut self, expire_ms: i64) -> bool {
        let expires = self.as_ref().header().has(EXPIRES);
        if expires {
            // SAFETY: the flag says that the time lies behind the header. *Held*: nothing else uses
            // it.
            unsafe { *self.at_mut(HEADER) = expire_ms };
        }
        expires
    }
}

/// A long string, padded with zeros to at least `len` bytes. `None`: that needs chunks.
fn padded(shared: &mut SharedString, len: usize) -> Option<&mut [u8]> {
    if len.max(shared.len()) >= CHUNKED_LEN_MIN {
        let grows = len > shared.len();
        return Arc::get_mut(shared).filter(|_| !grows).map(Vec::as_mut_slice);
    }
    let string = Arc::make_mut(shared);
    pad(string, len);
    Some(string)
}

/// Whether a text is a 64-bit integer in exactly the form that formatting gives.
fn is_integer(text: &[u8]) -> bool {
    if text.len() > INTEGER_LEN_MAX {
        return false;
    }
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let canonical = match digits {
        [b'0'] => digits.len() == text.len(),
        [b'1'..=b'9', ..] => digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    canonical && str::from_utf8(text).is_ok_and(|text| text.parse::<i64>().is_ok())
}

/// Makes a string at least `len` bytes long. A string that grows often gets as much spare room as
/// its length, so it is seldom copied. One that grows a lot at once gets none. Strings longer than
/// a few chunks never come here.
fn pad(string: &mut Vec<u8>, len: usize) {
    if len <= string.len() {
        return;
    }
    if len > string.capacity() {
        if len >= FRESH_ZEROS_MIN && len / 2 > string.len() {
            let mut padded = vec![0; len];
            padded[..string.len()].copy_from_slice(string);
            *string = padded;
            return;
        }
        string.reserve_exact(len - string.len() + len);
    }
    string.resize(len, 0);
}

/// The block for an entry of `size` bytes. It has at least room for the header and an aligned
/// pointer.
#[inline(always)]
fn layout(size: usize) -> Layout {
    // Cannot fail: keys are shorter than 4 GiB and inline values shorter than 4 KiB.
    Layout::from_size_align(size.next_multiple_of(8), 8).expect("an entry's size is in range")
}

#[cfg(test)]
mod tests;
