//! An entry: one allocation that holds a key, its header, its expiry and its value.
//!
//! ```text
//! offset 0  kind and encoding  u8
//!        1  flags              4 bits, and above them the lowest 4 of the access bits
//!        2  key length         u8    (with LONG_KEY: unused)
//!        3  access bits        3 x u8, the other 24
//!        6  value length       u16   (inline strings)
//!        8  expiry             i64   (with EXPIRES; Unix milliseconds)
//!           key length         u32   (with LONG_KEY)
//!           key
//!           value              the string, an aligned pointer to it, or an aligned collection
//! ```
//! Integers are kept as their digits: SET and GET, which are most of what happens, then have
//! nothing to convert, and a short number is shorter than 8 bytes.
//!
//! A key of 16 bytes with a value of 32 takes 56 bytes. The block's size is a multiple of 8, so a
//! value may be overwritten by another of about its length without a new block.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::value::{
    AnyCollection, CHUNKED_LEN_MIN, Chunked, Collection, CollectionRef, Encoding, Kind, SLOT,
    StringRef,
};
use access::ACCESS_MASK;

pub use crate::value::Shared;

pub mod access;

/// Longest string that lies inside its entry. Longer ones are shared, so that a reply can refer to
/// them after the shard is unlocked.
pub const INLINE_MAX: usize = 4096;
/// Bytes of a key at most.
pub const KEY_LEN_MAX: usize = u32::MAX as usize;
/// What valkey-server 9 has for key, value and expiry together in one block of 128 bytes: a longer
/// string is called `raw`.
const EMBSTR_ROOM: usize = 113;
/// From this length on a key takes two bytes more of that room.
const EMBSTR_LONG_KEY: usize = 32;
/// Digits and sign of any 64-bit integer.
const INTEGER_LEN_MAX: usize = 20;

/// A string that grows to this length, by more than its half, gets no spare room.
const FRESH_ZEROS_MIN: usize = 64 * 1024;

/// Collections of at most this many blocks of memory are freed at once.
const LIGHT_EFFORT: usize = 64;

const HEADER: usize = 8;
/// In the first byte the kind lies above the form.
const KIND_SHIFT: u32 = 4;
const EXPIRES: u8 = 1 << 0;
const LONG_KEY: u8 = 1 << 1;
/// See `cut`. Never set outside a table.
const MARKED: u8 = 1 << 2;
/// The bits of their byte that are flags.
const FLAGS: u8 = 0x0f;

/// How the value lies in the entry; the low half of the first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Form {
    /// The bytes themselves; `int`, `embstr` or `raw` by what they are.
    Inline = 0,
    /// The bytes themselves, once changed in place: always `raw`.
    InlineRaw = 1,
    /// The bytes themselves, never `int`.
    InlineText = 2,
    /// Eight bytes: a `Shared`.
    Shared = 3,
    /// `SLOT` bytes: the collection of the kind in the high half of the byte.
    Collection = 4,
    /// Eight bytes: a `Chunked`.
    Chunked = 5,
}

/// A string that becomes chunks stays in its block.
const _: () = assert!(
    size_of::<Chunked>() == size_of::<Shared>() && align_of::<Chunked>() == align_of::<Shared>()
);

impl Form {
    #[inline(always)]
    const fn is_inline(self) -> bool {
        matches!(self, Self::Inline | Self::InlineRaw | Self::InlineText)
    }
}

/// A value on its way into an entry.
#[derive(Clone, Debug)]
pub enum NewValue<'a> {
    /// A string of at most `INLINE_MAX` bytes.
    Inline(&'a [u8]),
    /// A short string for which OBJECT ENCODING says `raw`: it was changed in place.
    InlineRaw(&'a [u8]),
    /// A short string for which OBJECT ENCODING never says `int`: INCRBYFLOAT made it.
    InlineText(&'a [u8]),
    Shared(Shared),
    Chunked(Chunked),
    Collection(AnyCollection),
}

/// A value inside an entry.
#[derive(Clone, Copy, Debug)]
pub enum ValueRef<'a> {
    Bytes(&'a [u8]),
    Shared(&'a Shared),
    Chunked(&'a Chunked),
    Collection(CollectionRef<'a>),
}

/// A shared look at an entry, while its shard is held.
#[derive(Clone, Copy)]
pub struct EntryRef<'a> {
    pointer: NonNull<u8>,
    shard: PhantomData<&'a ()>,
}

/// An exclusive hold of an entry, while its shard is held.
pub struct EntryMut<'a> {
    pointer: NonNull<u8>,
    shard: PhantomData<&'a mut ()>,
}

/// An entry that is in no table: freshly made, or taken out. Dropping it frees it.
pub struct OwnedEntry {
    pointer: NonNull<u8>,
}

// SAFETY: an entry owns all that it points to, and that (Vec<u8> behind Arc, chunks, collections)
// is Send.
unsafe impl Send for OwnedEntry {}

impl<'a> NewValue<'a> {
    /// The form that a plain string gets.
    #[inline]
    pub fn string(bytes: &'a [u8]) -> Self {
        if bytes.len() <= INLINE_MAX {
            NewValue::Inline(bytes)
        } else {
            NewValue::Shared(Arc::new(bytes.to_vec()))
        }
    }

    #[inline(always)]
    const fn form(&self) -> Form {
        match self {
            NewValue::Inline(_) => Form::Inline,
            NewValue::InlineRaw(_) => Form::InlineRaw,
            NewValue::InlineText(_) => Form::InlineText,
            NewValue::Shared(_) => Form::Shared,
            NewValue::Chunked(_) => Form::Chunked,
            NewValue::Collection(_) => Form::Collection,
        }
    }

    /// Form and kind, as the first byte has them.
    #[inline(always)]
    const fn first_byte(&self) -> u8 {
        match self {
            NewValue::Collection(collection) => {
                Form::Collection as u8 | (collection.kind() as u8) << KIND_SHIFT
            }
            _ => self.form() as u8,
        }
    }

    /// Bytes that the value takes inside the entry.
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
}

impl OwnedEntry {
    /// Makes an entry. `access` are its access bits, `expire_ms` a Unix time.
    ///
    /// # Panics
    /// When an inline value is longer than `INLINE_MAX` or the key is 4 GiB or longer.
    #[inline]
    pub fn new(key: &[u8], value: NewValue<'_>, expire_ms: Option<i64>, access: u32) -> Self {
        let mut flags = 0;
        let mut size = HEADER + key.len() + value.size();
        if expire_ms.is_some() {
            flags |= EXPIRES;
            size += 8;
        }
        if key.len() > usize::from(u8::MAX) {
            assert!(key.len() <= KEY_LEN_MAX, "a key of {} bytes", key.len());
            flags |= LONG_KEY;
            size += 4;
        }
        let layout = layout(size);
        // SAFETY: the size is not zero.
        let Some(pointer) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout);
        };
        // SAFETY: the block is `size` bytes or more: the header, then what was summed up above, in
        // that order.
        unsafe {
            pointer.write(value.first_byte());
            pointer.add(1).write(flags);
            pointer.add(2).write(key.len() as u8);
            write_access(pointer, access);
            pointer.add(6).cast::<u16>().write(0);
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
            write_value(pointer, at.add(key.len()), value);
        }
        Self { pointer }
    }

    /// What a table keeps of it.
    #[inline(always)]
    pub(crate) fn into_pointer(self) -> NonNull<u8> {
        ManuallyDrop::new(self).pointer
    }

    /// # Safety
    /// The pointer came from `into_pointer`, and no table and nobody else has it any more.
    #[inline(always)]
    pub(crate) const unsafe fn from_pointer(pointer: NonNull<u8>) -> Self {
        Self { pointer }
    }

    pub fn as_ref(&self) -> EntryRef<'_> {
        EntryRef { pointer: self.pointer, shard: PhantomData }
    }

    /// Puts the mark of a cut on it, or takes it away.
    pub(crate) fn set_marked(&mut self, marked: bool) {
        // SAFETY: we own the entry.
        unsafe { write_marked(self.pointer, marked) };
    }

    pub fn set_access(&mut self, access: u32) {
        // SAFETY: we own the entry.
        unsafe { write_access(self.pointer, access) };
    }

    /// The same value under another key, with another expiry. Nothing large is copied.
    pub fn renamed(self, key: &[u8], expire_ms: Option<i64>, access: u32) -> Self {
        // SAFETY: this entry is freed without its value, which the new one has now.
        unsafe {
            let renamed = Self::new(key, moved_value(self.pointer), expire_ms, access);
            self.free_block();
            renamed
        }
    }

    /// Frees the entry, but not what its value points to.
    ///
    /// # Safety
    /// The value was moved.
    pub(crate) unsafe fn free_block(self) {
        let pointer = self.into_pointer();
        // SAFETY: we own the block; the layout is the one it was made with.
        unsafe { dealloc(pointer.as_ptr(), layout(block_size(pointer))) };
    }
}

impl Drop for OwnedEntry {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: we own the block and what it points to; the layout is the one it was made with,
        // as `block_size` is kept equal by every change in place.
        unsafe {
            match form(self.pointer) {
                Form::Inline | Form::InlineRaw | Form::InlineText => {}
                Form::Shared => drop(value_pointer(self.pointer).cast::<Shared>().read()),
                Form::Chunked => drop(value_pointer(self.pointer).cast::<Chunked>().read()),
                Form::Collection => {
                    let at = value_pointer(self.pointer);
                    drop(AnyCollection::read(kind(self.pointer), at));
                }
            }
            dealloc(self.pointer.as_ptr(), layout(block_size(self.pointer)));
        }
    }
}

impl<'a> EntryRef<'a> {
    /// # Safety
    /// The pointer is an entry of a table whose shard is held for 'a.
    #[inline(always)]
    pub(crate) const unsafe fn new(pointer: NonNull<u8>) -> Self {
        Self { pointer, shard: PhantomData }
    }

    #[inline(always)]
    pub fn key(self) -> &'a [u8] {
        // SAFETY: the entry lives for 'a.
        unsafe { key(self.pointer) }
    }

    #[inline(always)]
    pub fn kind(self) -> Kind {
        // SAFETY: the entry lives for 'a.
        unsafe { kind(self.pointer) }
    }

    /// The collection, if it is one of this type.
    #[inline(always)]
    pub fn collection<T: Collection>(self) -> Option<&'a T> {
        // SAFETY: an entry of the type's kind holds that type, and lives for 'a.
        unsafe {
            (kind(self.pointer) == T::KIND).then(|| value_pointer(self.pointer).cast().as_ref())
        }
    }

    /// When the key expires, in Unix milliseconds.
    #[inline(always)]
    pub fn expire_ms(self) -> Option<i64> {
        // SAFETY: as above; EXPIRES says that the eight bytes behind the header are the time.
        unsafe {
            (flags(self.pointer) & EXPIRES != 0)
                .then(|| self.pointer.add(HEADER).cast::<i64>().read())
        }
    }

    /// Whether a cut has marked it.
    pub(crate) fn is_marked(self) -> bool {
        // SAFETY: the entry lives for 'a.
        unsafe { flags(self.pointer) & MARKED != 0 }
    }

    /// Takes the mark of a cut away.
    ///
    /// # Safety
    /// Nobody else looks at the entry at this moment: its shard is held exclusively.
    pub(crate) unsafe fn unmark(self) {
        // SAFETY: by the caller.
        unsafe { write_marked(self.pointer, false) };
    }

    /// The 28 access bits.
    #[inline(always)]
    pub fn access(self) -> u32 {
        // SAFETY: byte 1 and bytes 3 to 5 of the header.
        unsafe {
            let low = self.pointer.add(1).read() >> 4;
            let bytes = self.pointer.add(3).cast::<[u8; 3]>().read();
            u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]) << 4 | u32::from(low)
        }
    }

    #[inline(always)]
    pub fn value(self) -> ValueRef<'a> {
        // SAFETY: the form says what lies at the value's place, and the entry lives for 'a.
        unsafe {
            let at = value_pointer(self.pointer);
            match form(self.pointer) {
                Form::Inline | Form::InlineRaw | Form::InlineText => ValueRef::Bytes(
                    NonNull::slice_from_raw_parts(at, value_len(self.pointer)).as_ref(),
                ),
                // `value_pointer` keeps it aligned.
                Form::Shared => ValueRef::Shared(at.cast::<Shared>().as_ref()),
                Form::Chunked => ValueRef::Chunked(at.cast::<Chunked>().as_ref()),
                Form::Collection => {
                    ValueRef::Collection(CollectionRef::new(kind(self.pointer), at))
                }
            }
        }
    }

    /// The string; empty when it is a collection.
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
        // SAFETY: the form says that the bytes lie at the value's place, and the entry lives for
        // 'a.
        unsafe {
            form(self.pointer).is_inline().then(|| {
                let at = value_pointer(self.pointer);
                NonNull::slice_from_raw_parts(at, value_len(self.pointer)).as_ref()
            })
        }
    }

    /// The value as it would be put into another entry. What is `raw` stays so, even where it would
    /// now be `embstr`.
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

    /// Whether freeing it is quick.
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
        // SAFETY: the entry lives for 'a.
        unsafe { matches!(form(self.pointer), Form::InlineRaw | Form::Shared | Form::Chunked) }
    }

    /// Whether the string counts as text even if it is an integer.
    fn is_text(self) -> bool {
        // SAFETY: the entry lives for 'a.
        unsafe { form(self.pointer) == Form::InlineText }
    }

    /// What OBJECT ENCODING answers, by the rules of valkey-server 9.1.2: `embstr` depends on the
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

    /// Bytes of memory, its value's included.
    pub fn memory(self) -> usize {
        // SAFETY: the entry lives for 'a.
        let block = unsafe { layout(block_size(self.pointer)).size() };
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
    /// The pointer is an entry of a table whose shard is held for 'a, and no other reference to it
    /// is used meanwhile.
    #[inline(always)]
    pub(crate) const unsafe fn new(pointer: NonNull<u8>) -> Self {
        Self { pointer, shard: PhantomData }
    }

    #[inline(always)]
    pub fn as_ref(&self) -> EntryRef<'_> {
        EntryRef { pointer: self.pointer, shard: PhantomData }
    }

    /// Gives the exclusive hold up for a shared look of the same length.
    #[inline(always)]
    pub fn into_ref(self) -> EntryRef<'a> {
        EntryRef { pointer: self.pointer, shard: PhantomData }
    }

    /// Puts the mark of a cut on it.
    pub(crate) fn mark(&mut self) {
        // SAFETY: we hold the entry exclusively.
        unsafe { write_marked(self.pointer, true) };
    }

    #[inline(always)]
    pub fn set_access(&mut self, access: u32) {
        // SAFETY: we hold the entry exclusively.
        unsafe { write_access(self.pointer, access) };
    }

    /// Puts another value in, if it fits the block as it is; gives it back if not.
    #[inline]
    pub fn replace<'v>(&mut self, value: NewValue<'v>) -> Result<(), NewValue<'v>> {
        // SAFETY: we hold the entry exclusively; the new value ends within the block, since blocks
        // of the same rounded size are the same size.
        unsafe {
            if !form(self.pointer).is_inline() || !value.form().is_inline() {
                return Err(value);
            }
            let at = value_pointer(self.pointer);
            let before = at.offset_from_unsigned(self.pointer);
            let now = layout(block_size(self.pointer)).size();
            if layout(before + value.size()).size() != now {
                return Err(value);
            }
            write_value(self.pointer, at, value);
            Ok(())
        }
    }

    /// The string for changing in place, padded with zeros to at least `len` bytes; `None` when
    /// that needs a new entry, or chunks (see `chunked_mut`). From then on its encoding is `raw`. A
    /// long string is copied first if a reply still refers to it.
    #[inline]
    pub fn string_mut(&mut self, len: usize) -> Option<&mut [u8]> {
        // SAFETY: we hold the entry exclusively, and the form says what lies at the value's place.
        // A longer inline string ends within the block, since blocks of the same rounded size are
        // the same size.
        unsafe {
            let at = value_pointer(self.pointer);
            if !form(self.pointer).is_inline() {
                if form(self.pointer) != Form::Shared {
                    return None;
                }
                let shared = at.cast::<Shared>().as_mut();
                if len.max(shared.len()) >= CHUNKED_LEN_MIN {
                    let grows = len > shared.len();
                    return Arc::get_mut(shared).filter(|_| !grows).map(Vec::as_mut_slice);
                }
                let string = Arc::make_mut(shared);
                pad(string, len);
                return Some(string);
            }
            let old_len = value_len(self.pointer);
            let before = at.offset_from_unsigned(self.pointer);
            if len > old_len {
                let now = layout(before + old_len).size();
                if len > INLINE_MAX || layout(before + len).size() != now {
                    return None;
                }
                at.add(old_len).write_bytes(0, len - old_len);
                self.pointer.add(6).cast::<u16>().write(len as u16);
            }
            self.pointer.write(Form::InlineRaw as u8);
            Some(NonNull::slice_from_raw_parts(at, old_len.max(len)).as_mut())
        }
    }

    /// A long string for changing in place, padded with zeros to at least `len` bytes, in chunks
    /// from now on: what else reads it stays as it is, and only what changes is copied. `None` when
    /// the string lies in its entry.
    #[cold]
    pub fn chunked_mut(&mut self, len: usize) -> Option<&mut Chunked> {
        // SAFETY: we hold the entry exclusively, and the form says what lies at the value's place.
        // A chunked string takes as much room there as a shared one, so the block's size stays the
        // same. Between the read and the write nothing panics.
        let chunked = unsafe {
            let at = value_pointer(self.pointer);
            match form(self.pointer) {
                Form::Shared => {
                    let shared = at.cast::<Shared>().read();
                    at.cast::<Chunked>().write(Chunked::from_shared(shared));
                    self.pointer.write(Form::Chunked as u8);
                }
                Form::Chunked => {}
                _ => return None,
            }
            at.cast::<Chunked>().as_mut()
        };
        chunked.grow(len);
        Some(chunked)
    }

    /// The collection for changing in place, if it is one of this type.
    #[inline(always)]
    pub fn collection_mut<T: Collection>(self) -> Option<&'a mut T> {
        // SAFETY: an entry of the type's kind holds that type; we hold it exclusively for 'a.
        unsafe {
            (kind(self.pointer) == T::KIND).then(|| value_pointer(self.pointer).cast().as_mut())
        }
    }

    /// The same key and value in a block with another expiry. This one is then good for nothing but
    /// `OwnedEntry::free_block`.
    ///
    /// # Safety
    /// Nobody reads the value of this entry any more.
    pub(crate) unsafe fn successor(self, expire_ms: Option<i64>) -> OwnedEntry {
        let old = self.into_ref();
        // SAFETY: by the caller.
        let value = unsafe { moved_value(old.pointer) };
        OwnedEntry::new(old.key(), value, expire_ms, old.access())
    }

    /// Changes the expiry of an entry that has one; `false` when it has none, and room for it must
    /// be made by a new entry.
    pub(crate) fn set_expire_in_place(&mut self, expire_ms: i64) -> bool {
        // SAFETY: we hold the entry exclusively.
        unsafe {
            let expires = flags(self.pointer) & EXPIRES != 0;
            if expires {
                self.pointer.add(HEADER).cast::<i64>().write(expire_ms);
            }
            expires
        }
    }
}

/// Whether a text is a 64-bit integer in the one form that formatting would give.
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

/// Makes a string at least `len` bytes long. One that grows often gets as much spare room as it is
/// long, and so is copied seldom; one that grows a lot gets none. Those that are longer than a few
/// chunks never come here.
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

/// The key of an entry.
///
/// # Safety
/// The pointer is a live entry, and stays one for 'a.
#[inline(always)]
pub(crate) unsafe fn key<'a>(pointer: NonNull<u8>) -> &'a [u8] {
    // SAFETY: by the caller; the layout is the module's.
    unsafe {
        let (offset, len) = key_place(pointer);
        NonNull::slice_from_raw_parts(pointer.add(offset), len).as_ref()
    }
}

/// Brings the first lines of an entry towards the core.
#[inline(always)]
pub(crate) fn prefetch(pointer: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching has no effect but on the cache, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch(pointer.cast(), _MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = pointer;
}

/// Brings a cache line towards the core to write to it: no other core keeps the line.
#[inline(always)]
pub(crate) fn prefetch_to_write(pointer: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above; where the instruction is not known it does nothing.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    prefetch(pointer);
}

/// Offset and length of the key.
///
/// # Safety
/// The pointer is a live entry.
#[inline(always)]
unsafe fn key_place(pointer: NonNull<u8>) -> (usize, usize) {
    // SAFETY: by the caller.
    unsafe {
        let flags = flags(pointer);
        let offset = HEADER + usize::from(flags & EXPIRES != 0) * 8;
        if flags & LONG_KEY == 0 {
            (offset, usize::from(pointer.add(2).read()))
        } else {
            (offset + 4, pointer.add(offset).cast::<u32>().read() as usize)
        }
    }
}

/// Where the value lies. A pointer's place is rounded up so that it is aligned.
///
/// # Safety
/// The pointer is a live entry whose form is written.
#[inline(always)]
unsafe fn value_pointer(pointer: NonNull<u8>) -> NonNull<u8> {
    // SAFETY: by the caller; the value begins where the key ends.
    unsafe {
        let (offset, len) = key_place(pointer);
        let end = offset + len;
        pointer.add(if form(pointer).is_inline() { end } else { end.next_multiple_of(8) })
    }
}

/// The value, to be put into another entry: what it points to is moved, not copied.
///
/// # Safety
/// The pointer is a live entry whose value nobody reads or drops afterwards, and whose block
/// outlives the result.
unsafe fn moved_value<'a>(pointer: NonNull<u8>) -> NewValue<'a> {
    // SAFETY: by the caller.
    unsafe {
        let at = value_pointer(pointer);
        match form(pointer) {
            Form::Inline | Form::InlineRaw | Form::InlineText => {
                EntryRef::<'a>::new(pointer).to_new_value()
            }
            Form::Shared => NewValue::Shared(at.cast::<Shared>().read()),
            Form::Chunked => NewValue::Chunked(at.cast::<Chunked>().read()),
            Form::Collection => NewValue::Collection(AnyCollection::read(kind(pointer), at)),
        }
    }
}

/// # Safety
/// The pointer is an entry whose header and key are written; `at` is the end of its key, and the
/// block has room for the value.
#[inline(always)]
unsafe fn write_value(pointer: NonNull<u8>, at: NonNull<u8>, value: NewValue<'_>) {
    // SAFETY: by the caller; an aligned pointer fits since the block is a multiple of 8 long.
    unsafe {
        pointer.write(value.first_byte());
        match value {
            NewValue::Inline(bytes) | NewValue::InlineRaw(bytes) | NewValue::InlineText(bytes) => {
                assert!(bytes.len() <= INLINE_MAX, "inline value of {} bytes", bytes.len());
                pointer.add(6).cast::<u16>().write(bytes.len() as u16);
                at.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
            }
            NewValue::Shared(shared) => value_pointer(pointer).cast::<Shared>().write(shared),
            NewValue::Chunked(chunked) => value_pointer(pointer).cast::<Chunked>().write(chunked),
            NewValue::Collection(collection) => collection.write(value_pointer(pointer)),
        }
    }
}

/// # Safety
/// The pointer is a live entry.
#[inline(always)]
unsafe fn block_size(pointer: NonNull<u8>) -> usize {
    // SAFETY: by the caller.
    unsafe {
        let (offset, len) = key_place(pointer);
        let value = match form(pointer) {
            Form::Inline | Form::InlineRaw | Form::InlineText => value_len(pointer),
            Form::Shared | Form::Chunked => 8,
            Form::Collection => SLOT,
        };
        offset + len + value
    }
}

/// # Safety
/// The pointer is a live entry with an inline value.
#[inline(always)]
unsafe fn value_len(pointer: NonNull<u8>) -> usize {
    // SAFETY: by the caller; bytes 6 and 7 of the header.
    usize::from(unsafe { pointer.add(6).cast::<u16>().read() })
}

/// # Safety
/// The pointer is a live entry.
#[inline(always)]
unsafe fn flags(pointer: NonNull<u8>) -> u8 {
    // SAFETY: by the caller.
    unsafe { pointer.add(1).read() }
}

/// # Safety
/// The pointer is a live entry whose form is written.
#[inline(always)]
unsafe fn form(pointer: NonNull<u8>) -> Form {
    // SAFETY: by the caller; the byte was written from a Form.
    unsafe {
        match pointer.read() & 0x0f {
            0 => Form::Inline,
            1 => Form::InlineRaw,
            2 => Form::InlineText,
            3 => Form::Shared,
            4 => Form::Collection,
            _ => Form::Chunked,
        }
    }
}

/// The kind; a string's bits are 0.
///
/// # Safety
/// The pointer is a live entry whose form is written.
#[inline(always)]
unsafe fn kind(pointer: NonNull<u8>) -> Kind {
    // SAFETY: by the caller; the bits were written from a Kind.
    match unsafe { pointer.read() } >> KIND_SHIFT {
        0 => Kind::String,
        1 => Kind::List,
        2 => Kind::Set,
        3 => Kind::SortedSet,
        4 => Kind::Hash,
        _ => Kind::Stream,
    }
}

/// # Safety
/// The caller holds the entry exclusively.
#[inline(always)]
unsafe fn write_access(pointer: NonNull<u8>, access: u32) {
    let access = access & ACCESS_MASK;
    let bytes = (access >> 4).to_le_bytes();
    // SAFETY: by the caller; byte 1 and bytes 3 to 5 of the header.
    unsafe {
        let first = pointer.add(1);
        first.write(first.read() & FLAGS | (access as u8) << 4);
        pointer.add(3).cast::<[u8; 3]>().write([bytes[0], bytes[1], bytes[2]]);
    }
}

/// # Safety
/// The pointer is a live entry that is held exclusively.
unsafe fn write_marked(pointer: NonNull<u8>, marked: bool) {
    // SAFETY: by the caller; byte 1 of the header.
    unsafe {
        let flags = pointer.add(1);
        let others = flags.read() & !MARKED;
        flags.write(if marked { others | MARKED } else { others });
    }
}

/// The block for an entry of `size` bytes. Never smaller than the header and a pointer that was
/// rounded up to be aligned.
#[inline(always)]
fn layout(size: usize) -> Layout {
    // Cannot fail: keys are below 4 GiB and inline values below 4 KiB.
    Layout::from_size_align(size.next_multiple_of(8), 8).expect("an entry's size is in range")
}

#[cfg(test)]
mod tests;
