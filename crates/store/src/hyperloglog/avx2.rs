//! The loops of `dense` for processors with AVX2: 32 registers in 24 bytes at once.
//!
//! Each half of a vector takes twelve bytes. Each word of 32 bits in it takes three bytes, *a*, *b*
//! and *c*, which contain four registers. They are unpacked as *ab* and *bc*, 16 bits each: the
//! first two registers are the lower 12 bits of *ab*, the others the upper 12 bits of *bc*.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_cvtsi128_si64, _mm_loadu_si128, _mm_storeu_si128, _mm256_and_si256,
    _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_lddqu_si256, _mm256_madd_epi16,
    _mm256_maddubs_epi16, _mm256_max_epu8, _mm256_mullo_epi16, _mm256_or_si256,
    _mm256_permutevar8x32_epi32, _mm256_set_m128i, _mm256_set1_epi16, _mm256_set1_epi32,
    _mm256_setr_epi8, _mm256_setr_epi32, _mm256_shuffle_epi8, _mm256_srli_epi16,
    _mm256_storeu_si256,
};

use super::Registers;

/// Proof that the processor has the instructions.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

impl Avx2 {
    #[inline]
    pub(super) fn new() -> Option<Self> {
        std::is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    /// Does the same as `dense::merge_into`.
    pub(super) fn merge_into(self, body: &[u8], registers: &mut Registers) {
        // SAFETY: the function needs the feature `avx2`. `new` makes an `Avx2` only if the
        // processor has it, and nothing else makes one.
        unsafe { merge_into(body, registers) };
    }

    /// Does the same as `dense::write`.
    pub(super) fn write(self, registers: &Registers, body: &mut [u8]) {
        // SAFETY: as in `merge_into`.
        unsafe { write(registers, body) };
    }
}

#[target_feature(enable = "avx2")]
fn merge_into(body: &[u8], registers: &mut Registers) {
    let blocks = registers.as_chunks_mut::<VALUES>().0;
    for (bytes, registers) in body.as_chunks::<BYTES>().0.iter().zip(blocks) {
        store(registers, _mm256_max_epu8(load(registers), unpacked(bytes)));
    }
}

#[target_feature(enable = "avx2")]
fn write(registers: &Registers, body: &mut [u8]) {
    let blocks = body.as_chunks_mut::<BYTES>().0;
    for (registers, bytes) in registers.as_chunks::<VALUES>().0.iter().zip(blocks) {
        let packed = packed(load(registers));
        let (front, back) = bytes.split_at_mut(HALF);
        if let Some(front) = front.first_chunk_mut() {
            store_half(front, _mm256_castsi256_si128(packed));
        }
        let rest = _mm_cvtsi128_si64(_mm256_extracti128_si256::<1>(packed));
        back.copy_from_slice(&rest.to_le_bytes());
    }
}

/// The registers in the bytes. The lower half of the vector is made from the first 16 bytes, and
/// the upper half from the last 16.
#[inline]
#[target_feature(enable = "avx2")]
fn unpacked(bytes: &[u8; BYTES]) -> __m256i {
    let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) else {
        unreachable!("24 bytes have 16");
    };
    let words = _mm256_shuffle_epi8(
        _mm256_set_m128i(load_half(last), load_half(first)),
        _mm256_setr_epi8(
            0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11, //
            4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11, 12, 13, 14, 14, 15,
        ),
    );
    // Move the bits of *ab* to where those of *bc* are.
    let words = _mm256_mullo_epi16(words, _mm256_set1_epi32(1 << 16 | 16));
    let even = _mm256_and_si256(_mm256_srli_epi16::<4>(words), _mm256_set1_epi16(0x3f));
    let odd = _mm256_and_si256(_mm256_srli_epi16::<2>(words), _mm256_set1_epi16(0x3f00));
    _mm256_or_si256(even, odd)
}

/// The opposite of `unpacked`: the result is in the lower 24 bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn packed(values: __m256i) -> __m256i {
    // Add neighbours at their places: first two of 6 bits, then two of 12.
    let pairs = _mm256_maddubs_epi16(values, _mm256_set1_epi16(64 << 8 | 1));
    let fours = _mm256_madd_epi16(pairs, _mm256_set1_epi32(4096 << 16 | 1));
    let halves = _mm256_shuffle_epi8(
        fours,
        _mm256_setr_epi8(
            0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1, //
            0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,
        ),
    );
    _mm256_permutevar8x32_epi32(halves, _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7))
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(values: &[u8; VALUES]) -> __m256i {
    // SAFETY: this reads 32 bytes, which the array has, at any alignment.
    unsafe { _mm256_lddqu_si256(values.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_half(bytes: &[u8; HALF]) -> __m128i {
    // SAFETY: this reads 16 bytes, which the array has, at any alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(values: &mut [u8; VALUES], vector: __m256i) {
    // SAFETY: this writes 32 bytes, which the array has, at any alignment.
    unsafe { _mm256_storeu_si256(values.as_mut_ptr().cast(), vector) };
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_half(bytes: &mut [u8; HALF], vector: __m128i) {
    // SAFETY: this writes 16 bytes, which the array has, at any alignment.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), vector) };
}

/// Registers in a vector.
const VALUES: usize = 32;
/// How many bytes contain them.
const BYTES: usize = VALUES * 6 / 8;
/// Bytes of half a vector.
const HALF: usize = 16;
