//! HyperLogLog: estimates how many different elements were seen, in at most 12 KB, with an error of
//! about 0.8 %.
//!
//! The value is a string in Redis's format, so that GET, SET, DUMP and other servers see the same
//! bytes. It has a header of 16 bytes, and 16384 registers of 6 bits: either all of them (*dense*),
//! or runs of equal ones (*sparse*, while most are zero). The header is `HYLL`, one byte of
//! encoding (0 dense, 1 sparse), three zeros, and the cardinality as it was last computed, little
//! endian. The highest bit of the cardinality says that the registers have changed since. Clients
//! can write any string, so everything here checks what it reads.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod dense;
mod estimate;
mod selftest;
mod sparse;

use estimate::Histogram;
pub use selftest::SelfTest;

/// How many registers there are.
pub const REGISTERS: usize = 1 << INDEX_BITS;
/// A register's largest value.
pub const REGISTER_MAX: u8 = 63;

/// The encoding of the registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegisterEncoding {
    Dense,
    Sparse,
}

/// The effect of an element: it raises one register to its rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisterRank {
    pub register: usize,
    /// 1 to `RANK_MAX`.
    pub rank: u8,
}

/// All registers, a byte each.
pub type Registers = [u8; REGISTERS];

/// The error for a sparse value whose runs do not add up to the registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corrupt;

/// A reference to a string with a valid header. The runs of a sparse one may still be wrong.
#[derive(Clone, Copy, Debug)]
pub struct HyperLogLogView<'a> {
    bytes: &'a [u8],
    encoding: RegisterEncoding,
}

/// An owned value with a valid header.
#[derive(Clone, Debug)]
pub struct HyperLogLog {
    bytes: Vec<u8>,
    encoding: RegisterEncoding,
}

impl RegisterRank {
    /// The element of these bytes, by Redis's hash and seed.
    pub fn of(bytes: &[u8]) -> Self {
        let hash = murmur(bytes);
        // The added bit limits the rank.
        let rest = hash >> INDEX_BITS | 1 << (RANK_MAX - 1);
        Self { register: hash as usize & (REGISTERS - 1), rank: rest.trailing_zeros() as u8 + 1 }
    }
}

impl<'a> HyperLogLogView<'a> {
    /// `None`: the string is not a HyperLogLog.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() < HEADER || !bytes.starts_with(MAGIC) {
            return None;
        }
        let encoding = match bytes[ENCODING_AT] {
            0 if bytes.len() == DENSE_LEN => RegisterEncoding::Dense,
            1 => RegisterEncoding::Sparse,
            _ => return None,
        };
        Some(Self { bytes, encoding })
    }

    pub fn encoding(self) -> RegisterEncoding {
        self.encoding
    }

    fn body(self) -> &'a [u8] {
        &self.bytes[HEADER..]
    }

    /// The cardinality, if it was computed since the last change.
    pub fn cached(self) -> Option<u64> {
        let card = self.bytes[CACHE_AT..HEADER].try_into().map(u64::from_le_bytes).ok()?;
        (card & STALE == 0).then_some(card)
    }

    /// The estimated cardinality.
    pub fn count(self) -> Result<u64, Corrupt> {
        let histogram = match self.encoding {
            RegisterEncoding::Dense => dense::histogram(self.body()),
            RegisterEncoding::Sparse => sparse::histogram(self.body())?,
        };
        Ok(histogram.cardinality())
    }

    /// Whether the element changes a register.
    pub fn is_raised_by(self, element: RegisterRank) -> Result<bool, Corrupt> {
        let value = match self.encoding {
            RegisterEncoding::Dense => dense::register(self.body(), element.register),
            RegisterEncoding::Sparse => sparse::register(self.body(), element.register)?,
        };
        Ok(value < element.rank)
    }

    /// Raises each register to at least this value's.
    pub fn merge_into(self, registers: &mut Registers) -> Result<(), Corrupt> {
        match self.encoding {
            RegisterEncoding::Dense => {
                dense::merge_into(self.body(), registers);
                Ok(())
            }
            RegisterEncoding::Sparse => sparse::merge_into(self.body(), registers),
        }
    }

    /// The runs of a sparse value as PFDEBUG shows them: `Z:100 v:3,1 z:20`.
    pub fn describe_runs(self) -> String {
        sparse::describe(self.body())
    }

    pub fn to_owned(self) -> HyperLogLog {
        HyperLogLog { bytes: self.bytes.to_vec(), encoding: self.encoding }
    }
}

impl Default for HyperLogLog {
    /// An empty value, which is sparse.
    fn default() -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[ENCODING_AT] = 1;
        bytes.extend_from_slice(&sparse::EMPTY);
        Self { bytes, encoding: RegisterEncoding::Sparse }
    }
}

impl HyperLogLog {
    pub fn view(&self) -> HyperLogLogView<'_> {
        HyperLogLogView { bytes: &self.bytes, encoding: self.encoding }
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Adds an element. Returns whether a register changed. A sparse value becomes dense if it
    /// would get longer than `sparse_len_max` bytes with its header. A sparse value from a client
    /// that is longer than a dense one becomes dense too.
    pub fn add(&mut self, element: RegisterRank, sparse_len_max: usize) -> Result<bool, Corrupt> {
        if self.encoding == RegisterEncoding::Sparse
            && self.bytes.len() > sparse_len_max.max(DENSE_LEN)
        {
            self.make_dense()?;
        }
        if self.encoding == RegisterEncoding::Sparse {
            match sparse::raise(&mut self.bytes, element, sparse_len_max)? {
                sparse::Raised::Not => return Ok(false),
                sparse::Raised::Done => {
                    mark_stale(&mut self.bytes);
                    return Ok(true);
                }
                sparse::Raised::TooLong => self.make_dense()?,
            }
        }
        Ok(raise_dense(&mut self.bytes, element))
    }

    /// Sets all registers, none of which may be lower than before. The cardinality is computed anew
    /// in any case. With `dense` the value becomes dense first.
    pub fn raise_all(
        &mut self,
        registers: &Registers,
        dense: bool,
        sparse_len_max: usize,
    ) -> Result<(), Corrupt> {
        if dense {
            self.make_dense()?;
        }
        if self.encoding == RegisterEncoding::Dense {
            raise_all_dense(&mut self.bytes, registers);
            return Ok(());
        }
        // To raise one looks for its run from the first one on. Most may be as high already.
        let mut own = [0; REGISTERS];
        self.view().merge_into(&mut own)?;
        for (register, (&rank, _)) in
            registers.iter().zip(&own).enumerate().filter(|(_, (rank, own))| rank > own)
        {
            self.add(RegisterRank { register, rank }, sparse_len_max)?;
        }
        mark_stale(&mut self.bytes);
        Ok(())
    }

    /// Notes that the cardinality has to be computed when it is next needed.
    pub fn mark_stale(&mut self) {
        mark_stale(&mut self.bytes);
    }

    /// Does nothing if the value is dense already.
    pub fn make_dense(&mut self) -> Result<(), Corrupt> {
        if self.encoding == RegisterEncoding::Dense {
            return Ok(());
        }
        let mut registers = [0; REGISTERS];
        self.view().merge_into(&mut registers)?;
        self.bytes.truncate(HEADER);
        self.bytes[ENCODING_AT] = 0;
        self.bytes.reserve_exact(DENSE_LEN - HEADER);
        self.bytes.resize(DENSE_LEN, 0);
        dense::write(&registers, &mut self.bytes[HEADER..]);
        self.encoding = RegisterEncoding::Dense;
        Ok(())
    }
}

/// Adds an element to a dense value in place. Returns whether a register changed. The header must
/// be valid.
pub fn raise_dense(bytes: &mut [u8], element: RegisterRank) -> bool {
    let raised = dense::raise(&mut bytes[HEADER..], element);
    if raised {
        mark_stale(bytes);
    }
    raised
}

/// Does what `HyperLogLog::raise_all` does, for a dense value in place. The header must be valid.
pub fn raise_all_dense(bytes: &mut [u8], registers: &Registers) {
    dense::write(registers, &mut bytes[HEADER..]);
    mark_stale(bytes);
}

/// Stores the cardinality in the header.
pub fn set_cached(bytes: &mut [u8], cardinality: u64) {
    bytes[CACHE_AT..HEADER].copy_from_slice(&cardinality.to_le_bytes());
}

/// The cardinality of registers that belong to no value.
pub fn cardinality(registers: &Registers) -> u64 {
    Histogram::of(registers).cardinality()
}

fn mark_stale(bytes: &mut [u8]) {
    bytes[HEADER - 1] |= 0x80;
}

/// MurmurHash64A with Redis's seed.
fn murmur(bytes: &[u8]) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    const R: u32 = 47;
    const SEED: u64 = 0xadc8_3b19;
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(M);
    let (words, rest) = bytes.as_chunks::<8>();
    for &word in words {
        let mut word = u64::from_le_bytes(word).wrapping_mul(M);
        word ^= word >> R;
        hash = (hash ^ word.wrapping_mul(M)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(M);
    }
    hash = (hash ^ hash >> R).wrapping_mul(M);
    hash ^ hash >> R
}

/// How many bits of the hash choose the register.
const INDEX_BITS: u32 = 14;
/// The highest rank of an element: all other bits are zero.
const RANK_MAX: u32 = 64 - INDEX_BITS + 1;
const MAGIC: &[u8] = b"HYLL";
const ENCODING_AT: usize = 4;
const CACHE_AT: usize = 8;
const HEADER: usize = 16;
const DENSE_LEN: usize = HEADER + REGISTERS * 6 / 8;
/// The cardinality in the header is out of date.
const STALE: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SPARSE_LEN_MAX: usize = 3000;

    fn registers(view: HyperLogLogView<'_>) -> Registers {
        let mut registers = [0; REGISTERS];
        view.merge_into(&mut registers).unwrap();
        registers
    }

    /// A change may move everything behind it, so a value longer than any valid one is not changed.
    #[test]
    fn a_sparse_value_longer_than_any_is_not_changed() {
        let runs = |run: &[u8]| {
            let body = run.repeat(REGISTERS);
            HyperLogLog {
                bytes: [&HyperLogLog::default().bytes[..HEADER], &body].concat(),
                encoding: RegisterEncoding::Sparse,
            }
        };
        let element = RegisterRank { register: 5, rank: 3 };
        // Each register is a run of its own in the longer form: the longest valid value.
        let mut longest = runs(&[0x40, 0x00]);
        assert_eq!(longest.view().count(), Ok(0));
        assert_eq!(longest.add(element, usize::MAX), Ok(true));
        let mut longer = runs(&[0x80, 0x80, 0x80]);
        assert_eq!(longer.view().is_raised_by(element), Ok(true));
        assert_eq!(longer.add(element, usize::MAX), Err(Corrupt));
        assert_eq!(longer.view().count(), Err(Corrupt));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn sparse_and_dense_agree_with_plain_registers(
            raises in prop::collection::vec((0..REGISTERS, 1..40u8), 1..1500),
            near in prop::collection::vec((0..40usize, 1..4u8), 0..200),
            sparse_len_max in prop_oneof![Just(0), Just(100), Just(3000), Just(16000)],
        ) {
            let mut model = [0; REGISTERS];
            let mut sparse = HyperLogLog::default();
            let mut dense = HyperLogLog::default();
            dense.make_dense().unwrap();
            for (register, rank) in raises.into_iter().chain(near) {
                let element = RegisterRank { register, rank };
                let raised = model[register] < rank;
                model[register] = model[register].max(rank);
                prop_assert_eq!(sparse.view().is_raised_by(element), Ok(raised));
                prop_assert_eq!(sparse.add(element, sparse_len_max), Ok(raised));
                prop_assert_eq!(dense.add(element, sparse_len_max), Ok(raised));
            }
            prop_assert!(registers(sparse.view()) == model);
            prop_assert!(registers(dense.view()) == model);
            prop_assert_eq!(sparse.view().count(), Ok(cardinality(&model)));
            prop_assert_eq!(dense.view().count(), Ok(cardinality(&model)));
            if sparse.encoding == RegisterEncoding::Sparse {
                prop_assert!(sparse.bytes.len() <= sparse_len_max.max(20));
            }
            for is_dense in [false, true] {
                let mut merged = HyperLogLog::default();
                merged.raise_all(&model, is_dense, sparse_len_max).unwrap();
                prop_assert!(registers(merged.view()) == model);
                prop_assert_eq!(merged.view().cached(), None);
                prop_assert!(!is_dense || merged.bytes[HEADER..] == dense.bytes[HEADER..]);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            header in any::<bool>(),
            elements in prop::collection::vec((0..REGISTERS, 1..=51u8), 1..20),
        ) {
            if header {
                let mut whole = HyperLogLog::default().into_bytes();
                whole.truncate(HEADER);
                whole.append(&mut bytes);
                bytes = whole;
            }
            let Some(view) = HyperLogLogView::new(&bytes) else { return Ok(()) };
            let mut sum = [0; REGISTERS];
            prop_assert_eq!(view.count().is_ok(), view.merge_into(&mut sum).is_ok());
            view.describe_runs();
            let mut value = view.to_owned();
            for (register, rank) in elements {
                let element = RegisterRank { register, rank };
                let would = value.view().is_raised_by(element);
                if let Ok(raised) = value.add(element, 3000) {
                    prop_assert_eq!(would, Ok(raised));
                }
            }
        }
    }

    #[test]
    fn the_hash_is_redis_s() {
        // From PFADD and PFDEBUG DECODE of valkey-server 9.1.2: a single run of one register.
        for (text, register, rank) in KNOWN {
            let element = RegisterRank { register: *register, rank: *rank };
            assert_eq!(RegisterRank::of(text.as_bytes()), element, "{text}");
        }
    }

    #[test]
    fn estimates_are_near_the_truth() {
        let mut value = HyperLogLog::default();
        for number in 1..=100_000u32 {
            value.add(RegisterRank::of(number.to_string().as_bytes()), SPARSE_LEN_MAX).unwrap();
            if [1, 10, 100, 1000, 10_000, 100_000].contains(&number) {
                let count = value.view().count().unwrap() as f64;
                let error = (count - f64::from(number)).abs() / f64::from(number);
                assert!(error < 0.03, "{number}: {count}");
            }
        }
        assert_eq!(value.encoding, RegisterEncoding::Dense);
    }

    #[test]
    fn the_cached_cardinality() {
        let mut value = HyperLogLog::default();
        assert_eq!(value.view().cached(), Some(0));
        assert_eq!(value.add(RegisterRank::of(b"a"), SPARSE_LEN_MAX), Ok(true));
        assert_eq!(value.view().cached(), None);
        assert_eq!(value.view().count(), Ok(1));
        let mut bytes = value.into_bytes();
        set_cached(&mut bytes, 1);
        assert_eq!(HyperLogLogView::new(&bytes).and_then(HyperLogLogView::cached), Some(1));
    }

    const KNOWN: &[(&str, usize, u8)] = &[
        ("", 5938, 2),
        ("a", 12711, 2),
        ("abc", 9474, 1),
        ("12345678", 10579, 3),
        ("foobarbaz", 7560, 2),
        ("x0", 4316, 14),
    ];
}
