//! The ID of a stream's entry.

/// The time when an entry was added, and its number within that millisecond.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StreamId {
    /// Unix ms, unless the client chose another number.
    pub ms: u64,
    pub seq: u64,
}

impl StreamId {
    /// No entry has this ID. It stands for "none yet".
    pub const ZERO: Self = Self { ms: 0, seq: 0 };
    pub const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    pub const fn new(ms: u64, seq: u64) -> Self {
        Self { ms, seq }
    }

    /// The next greater ID. `None`: there is none.
    pub fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The next lower ID. `None`: there is none.
    pub fn previous(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// The key in Redis's radix tree, which sorts like the ID.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.ms.to_be_bytes());
        bytes[8..].copy_from_slice(&self.seq.to_be_bytes());
        bytes
    }

    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let both = u128::from_be_bytes(bytes);
        Self { ms: (both >> 64) as u64, seq: both as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::StreamId;

    #[test]
    fn neighbours() {
        let id = StreamId::new;
        for (one, next) in [
            (id(0, 0), id(0, 1)),
            (id(7, u64::MAX), id(8, 0)),
            (id(u64::MAX, u64::MAX - 1), StreamId::MAX),
        ] {
            assert_eq!((one.next(), next.previous()), (Some(next), Some(one)));
            assert!(one < next && one.to_bytes() < next.to_bytes());
            assert_eq!(StreamId::from_bytes(next.to_bytes()), next);
        }
        assert_eq!((StreamId::MAX.next(), StreamId::ZERO.previous()), (None, None));
    }
}
