//! The CRC-64 at the end of payloads and RDB files: Jones's polynomial, reflected, starting from 0,
//! nothing added at the end (CRC-64/REDIS in the catalogues).

/// The checksum of what `crc` was the checksum of, followed by `bytes`; start with 0.
pub fn crc64(crc: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<SLICE_LEN>();
    let mut crc = crc;
    for word in words {
        // Each byte's share depends only on how far it is from the end of the word.
        let [b0, b1, b2, b3, b4, b5, b6, b7] = (crc ^ u64::from_le_bytes(*word)).to_le_bytes();
        crc = TABLES[7][usize::from(b0)]
            ^ TABLES[6][usize::from(b1)]
            ^ TABLES[5][usize::from(b2)]
            ^ TABLES[4][usize::from(b3)]
            ^ TABLES[3][usize::from(b4)]
            ^ TABLES[2][usize::from(b5)]
            ^ TABLES[1][usize::from(b6)]
            ^ TABLES[0][usize::from(b7)];
    }
    for byte in rest {
        crc = TABLES[0][usize::from(crc as u8 ^ byte)] ^ (crc >> 8);
    }
    crc
}

/// `TABLES[n][byte]` is what `byte` adds when `n` bytes follow it.
static TABLES: [[u64; 256]; SLICE_LEN] = tables();

const fn tables() -> [[u64; 256]; SLICE_LEN] {
    let mut tables = [[0; 256]; SLICE_LEN];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL_REFLECTED } else { 0 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut follow = 1;
    while follow < SLICE_LEN {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[follow - 1][byte];
            tables[follow][byte] = tables[0][(crc & 0xff) as usize] ^ (crc >> 8);
            byte += 1;
        }
        follow += 1;
    }
    tables
}

/// 0xad93d23594c935a9 with its bits in reverse.
const POLYNOMIAL_REFLECTED: u64 = 0x95ac_9329_ac4b_c9b5;
const SLICE_LEN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn check_value() {
        assert_eq!(crc64(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(crc64(0, b""), 0);
    }

    proptest! {
        #[test]
        fn agrees_with_bit_by_bit(start: u64, bytes: Vec<u8>) {
            let model = bytes.iter().fold(start, |crc, byte| {
                (0..8).fold(crc ^ u64::from(*byte), |crc, _| {
                    (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL_REFLECTED } else { 0 }
                })
            });
            prop_assert_eq!(crc64(start, &bytes), model);
        }

        #[test]
        fn pieces_add_up(first: Vec<u8>, second: Vec<u8>) {
            let whole = [&first[..], &second].concat();
            prop_assert_eq!(crc64(crc64(0, &first), &second), crc64(0, &whole));
        }
    }
}
