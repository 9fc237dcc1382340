//! Natural numbers of any size, with the operations for conversion between decimal digits and
//! binary.

/// A natural number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Big {
    /// Digits in base 2^32, the lowest first. The last one is not zero.
    words: Vec<u32>,
}

const WORD_BITS: usize = 32;
/// The largest power of ten in a word.
const POWER: u32 = 1_000_000_000;
const POWER_DIGITS: u32 = 9;

impl Big {
    pub(super) fn from_u64(value: u64) -> Self {
        let mut big = Self { words: vec![value as u32, (value >> WORD_BITS) as u32] };
        big.trim();
        big
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }

    pub(super) fn bits(&self) -> usize {
        self.words
            .last()
            .map_or(0, |top| self.words.len() * WORD_BITS - top.leading_zeros() as usize)
    }

    /// `self * factor + summand`
    pub(super) fn multiply_add(&mut self, factor: u32, summand: u32) {
        let mut carry = u64::from(summand);
        for word in &mut self.words {
            carry += u64::from(*word) * u64::from(factor);
            *word = carry as u32;
            carry >>= WORD_BITS;
        }
        if carry != 0 {
            self.words.push(carry as u32);
        }
    }

    pub(super) fn multiply_by_power_of_10(&mut self, exponent: u32) {
        for _ in 0..exponent / POWER_DIGITS {
            self.multiply_add(POWER, 0);
        }
        self.multiply_add(10u32.pow(exponent % POWER_DIGITS), 0);
    }

    pub(super) fn shift_left(&mut self, bits: usize) {
        let (words, bits) = (bits / WORD_BITS, bits % WORD_BITS);
        self.multiply_add(1 << bits, 0);
        self.words.splice(0..0, std::iter::repeat_n(0, words));
    }

    fn shift_right_by_one(&mut self) {
        let mut carry = 0;
        for word in self.words.iter_mut().rev() {
            let low = *word & 1;
            *word = *word >> 1 | carry << (WORD_BITS - 1);
            carry = low;
        }
        self.trim();
    }

    /// The quotient, which has at most `quotient_bits` bits (at most 128), and whether there is a
    /// remainder.
    pub(super) fn divide(mut self, divisor: &Self, quotient_bits: usize) -> (u128, bool) {
        let mut divisor = divisor.clone();
        divisor.shift_left(quotient_bits);
        let mut quotient = 0;
        for _ in 0..quotient_bits {
            divisor.shift_right_by_one();
            quotient <<= 1;
            if self.at_least(&divisor) {
                self.subtract(&divisor);
                quotient |= 1;
            }
        }
        (quotient, !self.words.is_empty())
    }

    fn at_least(&self, other: &Self) -> bool {
        let (a, b) = (&self.words, &other.words);
        a.len().cmp(&b.len()).then_with(|| a.iter().rev().cmp(b.iter().rev())).is_ge()
    }

    /// `other` must not be larger.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = false;
        for (i, word) in self.words.iter_mut().enumerate() {
            let other = other.words.get(i).copied().unwrap_or(0);
            let (difference, first) = word.overflowing_sub(other);
            let (difference, second) = difference.overflowing_sub(u32::from(borrow));
            *word = difference;
            borrow = first || second;
        }
        self.trim();
    }

    /// The highest 128 bits, the exponent of the lowest of them, and whether any lower bit is set.
    pub(super) fn top(&self) -> (u128, i32, bool) {
        let below = self.bits().saturating_sub(128);
        let mut top = 0;
        let mut more = false;
        for (i, &word) in self.words.iter().enumerate() {
            let at = (i * WORD_BITS) as i64 - below as i64;
            if at >= 0 {
                top |= u128::from(word) << at;
            } else {
                let dropped = at.unsigned_abs().min(WORD_BITS as u64);
                let word = u64::from(word);
                top |= u128::from(word >> dropped);
                more |= word & ((1 << dropped) - 1) != 0;
            }
        }
        (top, below as i32, more)
    }

    /// Appends the decimal digits.
    pub(super) fn append_digits(mut self, output: &mut Vec<u8>) {
        let start = output.len();
        while !self.words.is_empty() {
            let mut rest = self.divide_by_power();
            for _ in 0..POWER_DIGITS {
                output.push(b'0' + (rest % 10) as u8);
                rest /= 10;
            }
        }
        while output.len() > start + 1 && output.last() == Some(&b'0') {
            output.pop();
        }
        output[start..].reverse();
    }

    /// Divides by `POWER`, and returns the remainder.
    fn divide_by_power(&mut self) -> u32 {
        let mut rest = 0u64;
        for word in self.words.iter_mut().rev() {
            let value = rest << WORD_BITS | u64::from(*word);
            *word = (value / u64::from(POWER)) as u32;
            rest = value % u64::from(POWER);
        }
        self.trim();
        rest as u32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn big(value: u128) -> Big {
        let mut big = Big::from_u64((value >> 64) as u64);
        big.shift_left(64);
        let mut low = Big::from_u64(value as u64);
        low.words.resize(4, 0);
        big.words.resize(4, 0);
        big.words[..2].copy_from_slice(&low.words[..2]);
        big.trim();
        big
    }

    proptest! {
        #[test]
        fn agrees_with_u128(value: u128, divisor in 1u64.., shift in 0..300usize) {
            let number = big(value);
            prop_assert_eq!(number.bits(), (128 - value.leading_zeros()) as usize);
            let mut digits = Vec::new();
            number.clone().append_digits(&mut digits);
            let expected = if value == 0 { String::new() } else { value.to_string() };
            prop_assert_eq!(String::from_utf8(digits).unwrap(), expected);
            let wide = u128::from(divisor) << 60;
            let (quotient, more) = number.clone().divide(&big(wide), 68);
            prop_assert_eq!((quotient, more), (value / wide, value % wide != 0));
            let mut shifted = number;
            shifted.shift_left(shift);
            let (top, below, more) = shifted.top();
            prop_assert!(!more);
            if value != 0 {
                prop_assert_eq!(top.trailing_zeros() as usize + below as usize, value.trailing_zeros() as usize + shift);
                prop_assert_eq!(top >> top.trailing_zeros(), value >> value.trailing_zeros());
            }
        }
    }
}
