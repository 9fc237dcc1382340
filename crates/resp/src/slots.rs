//! The slots of a cluster. They say which node a key belongs to.

/// The slot of a key: the CRC-16 (XMODEM) of the key or of its hash tag.
pub fn key_slot(key: &[u8]) -> u16 {
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

/// The number of slots.
pub const SLOTS: u16 = 16384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_as_every_client_computes_them() {
        assert_eq!(key_slot(b"123456789"), 0x31c3);
        assert_eq!(key_slot(b"foo"), 12182);
        assert_eq!(key_slot(b"a{foo}b"), 12182);
        assert_ne!(key_slot(b"{}foo"), 12182);
    }
}
