//! The keyed hash for processors without AES instructions: SipHash-1-3 (Aumasson and Bernstein,
//! 2012).

use super::KEY_LEN;

/// The secrets of the function.
#[derive(Clone)]
pub(super) struct SipKeys([u64; 2]);

impl SipKeys {
    pub(super) fn new(key: &[u8; KEY_LEN]) -> Self {
        let (words, _) = key.as_chunks::<8>();
        Self([u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])])
    }

    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        let [one, other] = self.0;
        let mut state = [
            one ^ 0x736f_6d65_7073_6575,
            other ^ 0x646f_7261_6e64_6f6d,
            one ^ 0x6c79_6765_6e65_7261,
            other ^ 0x7465_6462_7974_6573,
        ];
        let (words, rest) = key.as_chunks();
        for &word in words {
            absorb(&mut state, u64::from_le_bytes(word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        last[7] = key.len() as u8;
        absorb(&mut state, u64::from_le_bytes(last));
        state[2] ^= 0xff;
        for _ in 0..3 {
            round(&mut state);
        }
        state.iter().fold(0, |sum, word| sum ^ word)
    }
}

#[inline]
const fn absorb(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    state[0] ^= word;
}

#[inline]
const fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *c = c.wrapping_add(*d);
    *b = b.rotate_left(13) ^ *a;
    *d = d.rotate_left(16) ^ *c;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*b);
    *a = a.wrapping_add(*d);
    *b = b.rotate_left(17) ^ *c;
    *d = d.rotate_left(21) ^ *a;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{DefaultHasher, Hasher};

    /// The standard library uses the key zero.
    #[test]
    fn it_does_what_the_standard_library_does() {
        let bytes: Vec<u8> = (0..300).map(|i: u32| (i * 151 + i / 7) as u8).collect();
        for len in 0..bytes.len() {
            let mut hasher = DefaultHasher::new();
            hasher.write(&bytes[..len]);
            let hash = SipKeys::new(&[0; KEY_LEN]).hash(&bytes[..len]);
            assert_eq!(hash, hasher.finish(), "{len} bytes");
        }
    }

    #[test]
    fn the_key_counts() {
        let key = std::array::from_fn(|i| i as u8);
        assert_ne!(SipKeys::new(&key).hash(b"key"), SipKeys::new(&[0; KEY_LEN]).hash(b"key"));
    }
}
