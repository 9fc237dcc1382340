//! A string inside RDB: its length and its bytes, or, where that is shorter, an integer or an LZF
//! stream.

use std::borrow::Cow;

use bobbin_store::value::StringRef;

use crate::{
    input::Input,
    length::{Length, SPECIAL, append_length},
    lzf::{LZF_INPUT_LEN_MAX, lzf_compress, lzf_decompress},
};

/// Appends a string in the form the reference servers would choose, with `rdbcompression` as
/// `compress`.
pub fn append_string(value: &[u8], compress: bool, output: &mut Vec<u8>) {
    if append_integer(value, output) {
        return;
    }
    if compress && value.len() >= COMPRESS_LEN_MIN {
        let start = output.len();
        let room = value.len() - COMPRESS_GAIN_LEN_MIN;
        if let Some(compressed_len) = lzf_compress(value, room, output) {
            // The lengths go in front, but only now are they known: at most nineteen bytes,
            // and the stream is moved once.
            let mut header = Vec::with_capacity(HEADER_LEN_MAX);
            header.push(SPECIAL | LZF);
            append_length(compressed_len, &mut header);
            append_length(value.len(), &mut header);
            output.splice(start..start, header);
            return;
        }
    }
    output.reserve(value.len() + HEADER_LEN_MAX);
    append_length(value.len(), output);
    output.extend_from_slice(value);
}

/// Appends a string that may lie in chunks. To be compressed it is copied into one piece.
pub fn append_stored_string(value: StringRef<'_>, compress: bool, output: &mut Vec<u8>) {
    match value {
        StringRef::Chunked(chunked) if !compress || chunked.len() > LZF_INPUT_LEN_MAX => {
            output.reserve(chunked.len() + HEADER_LEN_MAX);
            append_length(chunked.len(), output);
            value.slices(0..value.len()).for_each(|slice| output.extend_from_slice(slice));
        }
        _ => append_string(&value.joined(), compress, output),
    }
}

/// Reads a string, borrowed where it lies there as it is. `None` if it is damaged or longer than
/// `len_max`.
pub(crate) fn read_string<'a>(input: &mut Input<'a>, len_max: usize) -> Option<Cow<'a, [u8]>> {
    let special = match Length::read(input)? {
        Length::Plain(len) => {
            let len = usize::try_from(len).ok().filter(|&len| len <= len_max)?;
            return input.bytes(len).map(Cow::Borrowed);
        }
        Length::Special(special) => special,
    };
    let integer = match special {
        INT8 => i8::from_le_bytes(input.array()?).into(),
        INT16 => i16::from_le_bytes(input.array()?).into(),
        INT32 => i32::from_le_bytes(input.array()?),
        LZF => {
            let compressed_len = Length::read_plain(input)?;
            let len = Length::read_plain(input).filter(|&len| len <= len_max)?;
            let compressed = input.bytes(compressed_len)?;
            // A stream said to hold nothing is not looked at by the reference either.
            return match len {
                0 => Some(Cow::Borrowed(&[])),
                len => lzf_decompress(compressed, len).map(Cow::Owned),
            };
        }
        _ => return None,
    };
    Some(Cow::Owned(itoa::Buffer::new().format(integer).as_bytes().to_vec()))
}

/// Appends the value as an integer, if it is the exact text of one of up to 32 bits.
fn append_integer(value: &[u8], output: &mut Vec<u8>) -> bool {
    if value.len() > INTEGER_TEXT_LEN_MAX {
        return false;
    }
    let parsed = str::from_utf8(value).ok().and_then(|text| text.parse::<i32>().ok());
    let Some(integer) =
        parsed.filter(|&integer| itoa::Buffer::new().format(integer).as_bytes() == value)
    else {
        return false;
    };
    if let Ok(integer) = i8::try_from(integer) {
        output.push(SPECIAL | INT8);
        output.extend_from_slice(&integer.to_le_bytes());
    } else if let Ok(integer) = i16::try_from(integer) {
        output.push(SPECIAL | INT16);
        output.extend_from_slice(&integer.to_le_bytes());
    } else {
        output.push(SPECIAL | INT32);
        output.extend_from_slice(&integer.to_le_bytes());
    }
    true
}

const INT8: u8 = 0;
const INT16: u8 = 1;
const INT32: u8 = 2;
const LZF: u8 = 3;

/// Bytes of `i32::MIN` as text.
const INTEGER_TEXT_LEN_MAX: usize = 11;
/// Shorter strings are not worth the attempt.
const COMPRESS_LEN_MIN: usize = 21;
/// What compression must save to be used.
const COMPRESS_GAIN_LEN_MIN: usize = 4;
/// An encoding byte and two lengths.
const HEADER_LEN_MAX: usize = 19;
