//! The order of texts in a language, from the system's C library.

use std::ffi::{CString, c_char};
use std::sync::Arc;

/// An order of texts.
pub struct Collation(libc::locale_t);

// SAFETY: a locale is only read once it has been made, and is freed by its one owner.
unsafe impl Send for Collation {}
// SAFETY: as above.
unsafe impl Sync for Collation {}

/// The most bytes of a text that decide its place by the locale. The rest is compared as bytes.
const TEXT_MAX: usize = 64 * 1024;

unsafe extern "C" {
    fn strxfrm_l(
        to: *mut c_char,
        from: *const c_char,
        room: usize,
        locale: libc::locale_t,
    ) -> usize;
}

impl Collation {
    /// The order of a locale, by its name. Returns `None` if the system has no such locale.
    pub fn of_locale(name: &[u8]) -> Option<Arc<Self>> {
        let name = CString::new(name).ok()?;
        // SAFETY: the name is a C string, and there is no locale to begin with.
        let locale =
            unsafe { libc::newlocale(libc::LC_COLLATE_MASK, name.as_ptr(), std::ptr::null_mut()) };
        (!locale.is_null()).then(|| Arc::new(Self(locale)))
    }

    /// Replaces `key` with bytes whose order is that of the text among texts. Texts that the locale
    /// considers equal are ordered by their bytes.
    pub fn key(&self, text: &[u8], key: &mut Vec<u8>) {
        key.clear();
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len()).min(TEXT_MAX);
        let mut from = text[..end].to_vec();
        from.push(0);
        // Most keys fit into this. The result says if more room is needed.
        let mut room = 4 * from.len();
        loop {
            key.reserve(room);
            // SAFETY: the text ends with a zero byte, the key has the stated room, and the locale
            // lives as long as `self`.
            let len =
                unsafe { strxfrm_l(key.as_mut_ptr().cast(), from.as_ptr().cast(), room, self.0) };
            if len < room {
                // SAFETY: this many bytes were written, with a zero byte behind them.
                unsafe { key.set_len(len) };
                break;
            }
            room = len + 1;
        }
        key.push(0);
        key.extend_from_slice(text);
    }
}

impl Drop for Collation {
    fn drop(&mut self) {
        // SAFETY: `of_locale` made the locale, and nothing else owns it.
        unsafe { libc::freelocale(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "it calls the C library")]
    fn keys_are_ordered_as_texts_are() {
        assert!(Collation::of_locale(b"no_SUCH").is_none());
        assert!(Collation::of_locale(b"C\0").is_none());
        let collation = Collation::of_locale(b"C").expect("it is always there");
        let key = |text: &[u8]| {
            let mut key = b"old".to_vec();
            collation.key(text, &mut key);
            key
        };
        let long = vec![b'x'; TEXT_MAX + 10];
        let texts: [&[u8]; 7] = [b"", b"\0a", b"A", b"a", b"a\0b", b"\xff", &long];
        for (one, other) in texts.iter().flat_map(|one| texts.map(|other| (*one, other))) {
            assert_eq!(key(one).cmp(&key(other)), one.cmp(other), "{one:?} {other:?}");
        }
    }
}
