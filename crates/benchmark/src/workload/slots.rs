//! The slots of a cluster, by which keys belong to nodes.

use bobbin_client::{SLOTS, key_slot};

use super::TAG_LEN;

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
            let slot = key_slot(tag);
            bits[usize::from(slot / 64)] |= 1 << (slot % 64);
        }
        Self { bits }
    }

    #[inline]
    pub fn contains(&self, slot: u16) -> bool {
        self.bits[usize::from(slot / 64)] & (1 << (slot % 64)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_tags() {
        let set = SlotSet::of_tags(&[*b"foo"]);
        assert!(set.contains(12182) && !set.contains(12183));
    }
}
