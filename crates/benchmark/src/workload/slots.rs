//! The slots of a cluster, by which keys belong to nodes.

use super::TAG_LEN;

/// The slot that a key lies in: CRC-16 (XMODEM) of the key, or of its hash tag.
pub fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let len = key[open + 1..].iter().position(|&byte| byte == b'}').filter(|&len| len > 0)?;
        Some(&key[open + 1..][..len])
    });
    let mut crc = 0u16;
    for &byte in tag.unwrap_or(key) {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
        }
    }
    crc % SLOTS
}

/// Some of the slots.
#[derive(Clone, Debug)]
pub struct SlotSet {
    bits: Vec<u64>,
}

impl SlotSet {
    /// The slots that these hash tags lead to.
    pub fn of_tags(tags: &[[u8; TAG_LEN]]) -> Self {
        let mut bits = vec![0; usize::from(SLOTS) / 64];
        for tag in tags {
            let slot = slot(tag);
            bits[usize::from(slot / 64)] |= 1 << (slot % 64);
        }
        Self { bits }
    }

    #[inline]
    pub fn contains(&self, slot: u16) -> bool {
        self.bits[usize::from(slot / 64)] & (1 << (slot % 64)) != 0
    }
}

pub const SLOTS: u16 = 16384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_as_every_client_computes_them() {
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"a{foo}b"), 12182);
        assert_ne!(slot(b"{}foo"), 12182);
        let set = SlotSet::of_tags(&[*b"foo"]);
        assert!(set.contains(12182) && !set.contains(12183));
    }
}
