//! What compressed values are told by, and what is in them.

use std::io::{self, Read};

use flate2::read::{MultiGzDecoder, ZlibDecoder};
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Gzip,
    Zlib,
    Zstd,
}

/// What came out.
pub enum Inflated {
    Whole(Vec<u8>),
    TooLong,
}

impl Method {
    /// The method that the first bytes are of.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0x1f, 0x8b, 8, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            // The usual window, and a checksum of these two bytes.
            [0x78, flags, _, ..] if (0x7800 | u16::from(*flags)).is_multiple_of(31) => {
                Some(Self::Zlib)
            }
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }

    /// What is in the bytes, up to a number of bytes. `None`: they are damaged, or cut off, or want
    /// a larger window than values need.
    pub fn inflate(self, bytes: &[u8], most: usize) -> Option<Inflated> {
        match self {
            Self::Gzip => read(MultiGzDecoder::new(bytes), most),
            Self::Zlib => read(ZlibDecoder::new(bytes), most),
            Self::Zstd => {
                let mut decoder = FrameDecoder::new();
                decoder.set_max_window_size(WINDOW_LEN_MAX);
                let decoder = StreamingDecoder::new_with_decoder(bytes, decoder).ok()?;
                read(decoder, most)
            }
        }
        .ok()
    }
}

fn read(decoder: impl Read, most: usize) -> io::Result<Inflated> {
    let mut inflated = Vec::new();
    decoder.take(most as u64 + 1).read_to_end(&mut inflated)?;
    Ok(if inflated.len() > most { Inflated::TooLong } else { Inflated::Whole(inflated) })
}

/// As much as the format's specification asks decoders for (RFC 8878, 3.1.1.1.2).
const WINDOW_LEN_MAX: u64 = 8 << 20;
