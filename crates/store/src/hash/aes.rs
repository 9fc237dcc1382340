//! The keyed hash for processors with AES instructions: a message authentication code made from one
//! block cipher.
//!
//! A key of up to 16 bytes is one block and costs one encryption. Longer keys are chained: the
//! state begins with a secret, and each block is added to it and mixed in by four rounds. The last
//! block is also combined with a secret mask, which depends on the number of bytes in the block. So
//! no key is a prefix of another for the cipher. The hash is half of the encrypted state.
//!
//! So an observer sees no state, only whether two states are equal. For one block this is AES
//! itself. The chain is Pelican's (Daemen and Rijmen, 2005) with keys for its rounds: on average
//! over keys, no difference of two keys leads to equal states with a probability above 2^-113 per
//! step.

use std::arch::x86_64::{
    __m128i, _mm_aesenc_si128, _mm_aesenclast_si128, _mm_aeskeygenassist_si128, _mm_cvtsi128_si64,
    _mm_loadu_si128, _mm_set_epi64x, _mm_setzero_si128, _mm_shuffle_epi32, _mm_slli_si128,
    _mm_xor_si128,
};

use super::KEY_LEN;

/// Bytes of a block.
const BLOCK: usize = 16;
/// Rounds of AES with keys of 128 bits.
const ROUNDS: usize = 10;
/// The fewest rounds in which every bit of a block changes every bit of the state, and no
/// difference is probable.
const MIXING_ROUNDS: usize = 4;

/// The secrets of the function. A value of this type proves that the processor has the
/// instructions.
#[derive(Clone)]
pub(super) struct AesKeys {
    cipher: Cipher,
    /// The state before the first block of a chain, and the keys of the rounds after each block.
    start: __m128i,
    mixing: [__m128i; MIXING_ROUNDS],
    /// By the number of bytes in the last block.
    masks: [__m128i; BLOCK + 1],
}

/// The keys of the rounds.
#[derive(Clone)]
struct Cipher([__m128i; ROUNDS + 1]);

impl AesKeys {
    /// `None`: the processor lacks the instructions.
    pub(super) fn new(key: &[u8; KEY_LEN]) -> Option<Self> {
        // SAFETY: the function needs the feature `aes`, and is called only if the processor has it.
        std::is_x86_feature_detected!("aes").then(|| unsafe { Self::derive(key) })
    }

    #[target_feature(enable = "aes")]
    fn derive(key: &[u8; KEY_LEN]) -> Self {
        let (blocks, _) = key.as_chunks::<BLOCK>();
        let secrets = Cipher::new(&blocks[1]);
        let secret = |number: usize| secrets.encrypt(_mm_set_epi64x(0, number as i64));
        let mut masks = [_mm_setzero_si128(); BLOCK + 1];
        for (len, mask) in masks.iter_mut().enumerate() {
            *mask = secret(len);
        }
        let mut mixing = [_mm_setzero_si128(); MIXING_ROUNDS];
        for (round, key) in mixing.iter_mut().enumerate() {
            *key = secret(masks.len() + 1 + round);
        }
        let start = secret(masks.len());
        Self { cipher: Cipher::new(&blocks[0]), start, mixing, masks }
    }

    #[inline(always)]
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        // SAFETY: the function needs the feature `aes`. `new` makes `AesKeys` only if the processor
        // has it, and nothing else makes them.
        unsafe { self.hash_here(key) }
    }

    /// Not inlined, because the compiler must not mix it with code for all processors.
    #[target_feature(enable = "aes")]
    fn hash_here(&self, key: &[u8]) -> u64 {
        let len = key.len();
        let last = if len <= BLOCK {
            _mm_xor_si128(short(key), self.masks[len])
        } else {
            // All blocks but the last, which lies at the end and may overlap the one before it.
            let (blocks, _) = key[..len - 1].as_chunks::<BLOCK>();
            let mut state = self.start;
            for block in blocks {
                state = _mm_xor_si128(state, load(block));
                for key in self.mixing {
                    state = _mm_aesenc_si128(state, key);
                }
            }
            let end = key.last_chunk::<BLOCK>().expect("longer than a block");
            let brought = (len - 1) % BLOCK + 1;
            _mm_xor_si128(_mm_xor_si128(state, load(end)), self.masks[brought])
        };
        _mm_cvtsi128_si64(self.cipher.encrypt(last)) as u64
    }
}

/// The block of a key that fits one. Keys of the same length get different blocks.
#[inline]
#[target_feature(enable = "sse2")]
fn short(key: &[u8]) -> __m128i {
    let word = |bytes: [u8; 8]| u64::from_le_bytes(bytes);
    let half = |bytes: [u8; 4]| u64::from(u32::from_le_bytes(bytes));
    let (low, high) = if let (Some(&low), Some(&high)) = (key.first_chunk(), key.last_chunk()) {
        (word(low), word(high))
    } else if let (Some(&low), Some(&high)) = (key.first_chunk(), key.last_chunk()) {
        (half(low), half(high))
    } else if let (Some(&first), Some(&last)) = (key.first(), key.last()) {
        (u64::from(first) | u64::from(key[key.len() / 2]) << 8 | u64::from(last) << 16, 0)
    } else {
        (0, 0)
    };
    _mm_set_epi64x(high as i64, low as i64)
}

#[inline]
#[target_feature(enable = "sse2")]
fn load(block: &[u8; BLOCK]) -> __m128i {
    // SAFETY: this reads sixteen bytes, which the block has, at any alignment.
    unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
}

impl Cipher {
    /// The schedule of FIPS 197.
    #[target_feature(enable = "aes")]
    fn new(key: &[u8; BLOCK]) -> Self {
        let mut keys = [load(key); ROUNDS + 1];
        macro_rules! derive {
            ($($round:literal $constant:literal),*) => {
                $(keys[$round] = next_key::<$constant>(keys[$round - 1]);)*
            };
        }
        derive!(1 0x01, 2 0x02, 3 0x04, 4 0x08, 5 0x10, 6 0x20, 7 0x40, 8 0x80, 9 0x1b, 10 0x36);
        Self(keys)
    }

    #[inline]
    #[target_feature(enable = "aes")]
    fn encrypt(&self, block: __m128i) -> __m128i {
        let [first, middle @ .., last] = &self.0;
        let mut state = _mm_xor_si128(block, *first);
        for key in middle {
            state = _mm_aesenc_si128(state, *key);
        }
        _mm_aesenclast_si128(state, *last)
    }
}

#[inline]
#[target_feature(enable = "aes")]
fn next_key<const CONSTANT: i32>(key: __m128i) -> __m128i {
    let derived = _mm_shuffle_epi32::<0xff>(_mm_aeskeygenassist_si128::<CONSTANT>(key));
    // Each word becomes the sum of itself and all words before it.
    let mut sums = key;
    sums = _mm_xor_si128(sums, _mm_slli_si128::<4>(sums));
    sums = _mm_xor_si128(sums, _mm_slli_si128::<8>(sums));
    _mm_xor_si128(sums, derived)
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    /// AES as FIPS 197 defines it, byte by byte, to compare the instructions with.
    struct Reference([[u8; BLOCK]; ROUNDS + 1]);

    /// Multiplication by x in the field of AES.
    const fn doubled(byte: u8) -> u8 {
        byte << 1 ^ if byte & 0x80 == 0 { 0 } else { 0x1b }
    }

    fn product(a: u8, b: u8) -> u8 {
        let powers = std::iter::successors(Some(a), |&power| Some(doubled(power)));
        powers.take(8).enumerate().fold(0, |sum, (i, power)| sum ^ (power * (b >> i & 1)))
    }

    fn substitute(byte: u8) -> u8 {
        static TABLE: LazyLock<[u8; 256]> = LazyLock::new(|| {
            std::array::from_fn(|byte| {
                let inverse = (0..=255).find(|&other| product(byte as u8, other) == 1);
                (0..5).fold(0x63, |sum, turn| sum ^ inverse.unwrap_or(0).rotate_left(turn))
            })
        });
        TABLE[usize::from(byte)]
    }

    impl Reference {
        fn new(key: [u8; BLOCK]) -> Self {
            let mut keys = [key; ROUNDS + 1];
            let mut constant = 1;
            for round in 1..=ROUNDS {
                let before = keys[round - 1];
                for i in 0..BLOCK {
                    let add = match i {
                        0..4 => substitute(before[12 + (i + 1) % 4]),
                        _ => keys[round][i - 4],
                    };
                    keys[round][i] = before[i] ^ add ^ if i == 0 { constant } else { 0 };
                }
                constant = doubled(constant);
            }
            Self(keys)
        }

        fn encrypt(&self, block: [u8; BLOCK]) -> [u8; BLOCK] {
            let [first, middle @ .., last] = &self.0;
            let mut state = sum(block, *first);
            for key in middle {
                state = sum(columns_mixed(shifted(state)), *key);
            }
            sum(shifted(state), *last)
        }
    }

    fn sum(a: [u8; BLOCK], b: [u8; BLOCK]) -> [u8; BLOCK] {
        std::array::from_fn(|i| a[i] ^ b[i])
    }

    /// The bytes lie in columns; row r is shifted by r columns.
    fn shifted(state: [u8; BLOCK]) -> [u8; BLOCK] {
        std::array::from_fn(|i| substitute(state[(i + 4 * (i % 4)) % BLOCK]))
    }

    fn columns_mixed(state: [u8; BLOCK]) -> [u8; BLOCK] {
        std::array::from_fn(|i| {
            let at = |row: usize| state[i / 4 * 4 + (i + row) % 4];
            doubled(at(0)) ^ doubled(at(1)) ^ at(1) ^ at(2) ^ at(3)
        })
    }

    /// The whole function, as the module's documentation describes it.
    struct ReferenceHash {
        cipher: Reference,
        /// The masks, the start, and the keys of the mixing.
        secrets: Vec<[u8; BLOCK]>,
    }

    impl ReferenceHash {
        fn new(key: &[u8; KEY_LEN]) -> Self {
            let secrets = Reference::new(key[BLOCK..].try_into().unwrap());
            let secret = |number: u128| secrets.encrypt(number.to_le_bytes());
            let cipher = Reference::new(key[..BLOCK].try_into().unwrap());
            Self { cipher, secrets: (0..22).map(secret).collect() }
        }

        fn hash(&self, key: &[u8]) -> u64 {
            let mut state = if key.len() > BLOCK { self.secrets[17] } else { [0; BLOCK] };
            let mut rest = key;
            while rest.len() > BLOCK {
                state = sum(state, *rest.first_chunk().unwrap());
                for key in &self.secrets[18..] {
                    state = sum(columns_mixed(shifted(state)), *key);
                }
                rest = &rest[BLOCK..];
            }
            let block: Vec<u8> = match key {
                [] => vec![],
                [one] => vec![*one; 3],
                [one, other] => vec![*one, *other, *other],
                [_, _, _] => key.to_vec(),
                _ if key.len() < 8 => {
                    let end = &key[key.len() - 4..];
                    [&key[..4], &[0; 4], end].concat()
                }
                _ if key.len() < BLOCK => [&key[..8], &key[key.len() - 8..]].concat(),
                _ => key[key.len() - BLOCK..].to_vec(),
            };
            let mut last = [0; BLOCK];
            last[..block.len()].copy_from_slice(&block);
            let masked = sum(sum(state, last), self.secrets[rest.len()]);
            u64::from_le_bytes(*self.cipher.encrypt(masked).first_chunk().unwrap())
        }
    }

    const KEY: [u8; BLOCK] = [
        0x2b, 0x7e, 0x15, 0x16, 0x28, 0xae, 0xd2, 0xa6, 0xab, 0xf7, 0x15, 0x88, 0x09, 0xcf, 0x4f,
        0x3c,
    ];

    /// FIPS 197, appendix B.
    #[test]
    fn the_reference_is_aes() {
        let block = 0x3243f6a8_885a308d_313198a2_e0370734_u128.to_be_bytes();
        let encrypted = u128::from_be_bytes(Reference::new(KEY).encrypt(block));
        assert_eq!(encrypted, 0x3925841d_02dc09fb_dc118597_196a0b32);
    }

    /// Keys of all lengths, at all alignments, ending at the end of an allocation.
    #[test]
    fn the_instructions_do_what_the_reference_does() {
        let key: [u8; KEY_LEN] = std::array::from_fn(|i| KEY[i % BLOCK].rotate_left(i as u32 / 3));
        let Some(keys) = AesKeys::new(&key) else { return };
        let reference = ReferenceHash::new(&key);
        let bytes: Vec<u8> = (0..200).map(|i: u8| i.wrapping_mul(151) ^ i >> 2).collect();
        for len in 0..=144 {
            for start in 0..if len <= 33 { 16 } else { 1 } {
                let boxed: Box<[u8]> = bytes[..start + len].into();
                let (hash, wanted) = (keys.hash(&boxed[start..]), reference.hash(&boxed[start..]));
                assert_eq!(hash, wanted, "{len} bytes from {start} on");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { 4000 },
            failure_persistence: None,
            rng_seed: RngSeed::Fixed(13),
            ..ProptestConfig::default()
        })]

        #[test]
        fn any_key_of_the_function_and_any_text_hash_as_the_reference_says(
            key in any::<[u8; KEY_LEN]>(),
            text in prop::collection::vec(any::<u8>(), 0..=512),
            start in 0usize..BLOCK,
        ) {
            let text = &text[start.min(text.len())..];
            if let Some(keys) = AesKeys::new(&key) {
                prop_assert_eq!(keys.hash(text), ReferenceHash::new(&key).hash(text));
            }
        }
    }
}
