//! DUMP payloads: a type byte, the value, the RDB version (two bytes, least significant first) and
//! the CRC-64 of all that (eight bytes, likewise).

use std::borrow::Cow;

use bobbin_store::value::{CollectionRef, StringRef};

use crate::crc64::crc64;
use crate::error::PayloadError;
use crate::format::Format;
use crate::input::Input;
use crate::kind::ValueKind;
use crate::options::{DumpOptions, RDB_VERSION, RDB_VERSION_SHARED_MAX};
use crate::value::string::{append_stored_string, append_string, read_string};
use crate::value::{SerializedCollection, append_collection};

/// The DUMP payload of a string, compressed where that pays.
pub fn dump_string(value: &[u8]) -> Vec<u8> {
    let mut output = Vec::with_capacity(value.len() + OVERHEAD_LEN_MAX);
    append_string_payload(StringRef::Flat(value), Format::Valkey, true, &mut output);
    output
}

/// Appends the DUMP payload of a string, with `rdbcompression` as `compress`.
pub fn append_string_payload(
    value: StringRef<'_>,
    format: Format,
    compress: bool,
    output: &mut Vec<u8>,
) {
    let start = output.len();
    output.push(ValueKind::String as u8);
    append_stored_string(value, compress, output);
    append_footer(start, format, output);
}

/// Appends the DUMP payload of a collection, with `rdbcompression` as `compress`.
pub fn append_collection_payload(
    collection: CollectionRef<'_>,
    format: Format,
    compress: bool,
    output: &mut Vec<u8>,
) {
    let start = output.len();
    let form = format.form(collection);
    output.push(form as u8);
    append_collection(collection, form, compress, output);
    append_footer(start, format, output);
}

/// Appends the payload of FUNCTION DUMP: the libraries' sources, each as in an RDB file.
pub fn append_functions_payload<'a>(
    sources: impl Iterator<Item = &'a [u8]>,
    format: Format,
    compress: bool,
    output: &mut Vec<u8>,
) {
    let start = output.len();
    for source in sources {
        output.push(FUNCTION);
        append_string(source, compress, output);
    }
    append_footer(start, format, output);
}

/// Reads what FUNCTION DUMP gave: the libraries' sources.
pub fn parse_functions_payload(payload: &[u8]) -> Result<Vec<Vec<u8>>, PayloadError> {
    let options = DumpOptions::default();
    let (body, _) = verified_body(payload, &options)?;
    let (mut input, mut sources) = (Input(body), Vec::new());
    while let Some(kind) = input.byte() {
        let source = (kind == FUNCTION).then(|| read_string(&mut input, options.string_len_max));
        sources.push(source.flatten().ok_or(PayloadError::BadFormat)?.into_owned());
    }
    Ok(sources)
}

/// Reads what DUMP gave, here or on a reference server. [`DumpOptions`]' defaults apply.
pub fn parse_payload(payload: &[u8]) -> Result<Payload<'_>, PayloadError> {
    parse_payload_with(payload, &DumpOptions::default())
}

/// Reads what DUMP gave, as RESTORE does: first version and checksum, then the value. Bytes behind
/// the value are ignored, as they are by the reference.
pub fn parse_payload_with<'a>(
    payload: &'a [u8],
    options: &DumpOptions,
) -> Result<Payload<'a>, PayloadError> {
    let (body, version) = verified_body(payload, options)?;
    let mut input = Input(body);
    let kind = input.byte().and_then(ValueKind::from_byte).ok_or(PayloadError::BadFormat)?;
    let is_redis = (RDB_VERSION_SHARED_MAX + 1..RDB_VERSION).contains(&version);
    let is_redis_kind = matches!(kind, ValueKind::HashMetadata | ValueKind::HashListpackExpiring);
    if kind as u8 >= KIND_FORKED && is_redis != is_redis_kind {
        return Err(PayloadError::BadFormat);
    }
    match kind {
        ValueKind::String => read_string(&mut input, options.string_len_max)
            .map(Payload::String)
            .ok_or(PayloadError::BadFormat),
        // There are no modules that could read it.
        ValueKind::Module => Err(PayloadError::BadFormat),
        kind => Ok(Payload::Collection(SerializedCollection { kind, bytes: input.0 })),
    }
}

/// A value from a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Borrowed from the payload where it lies there as it is.
    String(Cow<'a, [u8]>),
    /// To be read by its `read`.
    Collection(SerializedCollection<'a>),
}

/// The payload without its footer, if that is right, and the version that it has.
fn verified_body<'a>(
    payload: &'a [u8],
    options: &DumpOptions,
) -> Result<(&'a [u8], u16), PayloadError> {
    let (checked, checksum) = payload.split_last_chunk().ok_or(PayloadError::VersionOrChecksum)?;
    let (body, version) = checked.split_last_chunk().ok_or(PayloadError::VersionOrChecksum)?;
    let version = u16::from_le_bytes(*version);
    let intact = || options.trusted || crc64(0, checked) == u64::from_le_bytes(*checksum);
    if options.version_check.allows(version) && intact() {
        Ok((body, version))
    } else {
        Err(PayloadError::VersionOrChecksum)
    }
}

fn append_footer(start: usize, format: Format, output: &mut Vec<u8>) {
    output.extend_from_slice(&format.version().to_le_bytes());
    let checksum = crc64(0, &output[start..]);
    output.extend_from_slice(&checksum.to_le_bytes());
}

/// What a library's source follows, as in an RDB file.
const FUNCTION: u8 = 245;
/// From this type byte on, Redis and Valkey mean different things.
const KIND_FORKED: u8 = 22;
/// A type byte, a string's header, and the footer.
const OVERHEAD_LEN_MAX: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VersionCheck;
    use proptest::prelude::*;

    #[test]
    fn sources_of_functions_come_back() {
        let sources = [b"#!lua name=a\n".to_vec(), vec![b'x'; 1000]];
        let mut payload = Vec::new();
        let all = sources.iter().map(|source| &source[..]);
        append_functions_payload(all, Format::Redis7, true, &mut payload);
        assert_eq!(parse_functions_payload(&payload), Ok(sources.to_vec()));
        assert!(parse_functions_payload(&payload[1..]).is_err());
        assert!(parse_functions_payload(b"").is_err());
    }

    /// Values and what DUMP of valkey-server 9.1.2 gave for them.
    fn vectors() -> Vec<(Vec<u8>, &'static str)> {
        let text = |value: &str, dump| (value.into(), dump);
        vec![
            text("", "0000500092b195d1912dc52e"),
            text("a", "000161500070d4260a11641a40"),
            text("0", "00c0005000576a6ee9660264fc"),
            text("-1", "00c0ff5000c3b9b7b51b5afa31"),
            text("127", "00c07f5000c29f22a0cc06a2e0"),
            text("128", "00c18000500024507a248e9d2c91"),
            text("-128", "00c0805000564cfbfcb15e3c2d"),
            text("-129", "00c17fff5000d84a4bb9cad2e374"),
            text("32767", "00c1ff7f50008670fe4b89a6b2df"),
            text("32768", "00c20080000050008af2e77c4befcee4"),
            text("-32769", "00c2ff7fffff500061c985dc9894e2c2"),
            text("2147483647", "00c2ffffff7f5000e35e2c0f7e7cca55"),
            text("2147483648", "000a323134373438333634385000289be032d24f111a"),
            text("-2147483648", "00c200000080500008654eafad07e673"),
            text("-2147483649", "000b2d3231343734383336343950000d4bfee896a06578"),
            text("9223372036854775807", "0013393232333337323033363835343737353830375000f54fb7051fba38d6"),
            text("01", "000230315000a3f70dd08a1e1a50"),
            text("+1", "00022b3150000dac3946ddc8899b"),
            text("-0", "00022d3050001a6bd64848823738"),
            text("hello world", "000b68656c6c6f20776f726c645000c4d680283895c7c0"),
            (b"a".repeat(20), "0014616161616161616161616161616161616161616150004c9ea2cf8543cb05"),
            (b"a".repeat(21), "00c30615016161e00a00500032267af99913589c"),
            (b"a".repeat(63), "00c3093f016161e032000161615000089e9d50f5da013f"),
            ([&b"abc".repeat(21)[..], b"d"].concat(), "00c30b40400361626361e031020163645000a4f2cd8bb7db52ac"),
            (b"a".repeat(64), "00c3094040016161e0330001616150000c4f5f83504ea398"),
            (b"abcdefghij".repeat(30), "00c315412c0a6162636465666768696a61e0ff09e10e0d01696a5000f7e0cbcb44a72764"),
            (
                b"xxxx\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13".to_vec(),
                "001878787878000102030405060708090a0b0c0d0e0f10111213500083c3cd64c2574bca",
            ),
        ]
    }

    fn from_hex(hex: &str) -> Vec<u8> {
        let digit = |digit: u8| (digit as char).to_digit(16).unwrap() as u8;
        hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
    }

    /// A payload around any body.
    fn payload(body: &[u8], version: u16) -> Vec<u8> {
        let mut payload = [body, &version.to_le_bytes()].concat();
        payload.extend_from_slice(&crc64(0, &payload).to_le_bytes());
        payload
    }

    fn string(value: &[u8]) -> Result<Payload<'_>, PayloadError> {
        Ok(Payload::String(Cow::Borrowed(value)))
    }

    #[test]
    fn the_same_bytes_as_valkey_both_ways() {
        for (value, dump) in vectors() {
            let dump = from_hex(dump);
            assert_eq!(dump_string(&value), dump, "{}", value.escape_ascii());
            assert_eq!(parse_payload(&dump), string(&value));
        }
    }

    #[test]
    fn without_compression() {
        let mut output = b"before".to_vec();
        append_string_payload(StringRef::Flat(&[b'a'; 100]), Format::Valkey, false, &mut output);
        assert_eq!(output[6..9], [0, 0x40, 100]);
        assert_eq!(parse_payload(&output[6..]), string(&b"a".repeat(100)));
    }

    // DUMP of `SET s hello` on redis-server 8.0.6.
    #[test]
    fn payloads_of_redis_8_are_read() {
        let dump = from_hex("000568656c6c6f0c00a804ebb69f1ebe43");
        assert_eq!(parse_payload(&dump), string(b"hello"));
        assert_eq!(parse_payload(&payload(b"\x16\x03abc", 12)), Err(PayloadError::BadFormat));
    }

    // What follows was asked of valkey-server 9.1.2 with RESTORE; that version 12 is let through is
    // our own.

    #[test]
    fn versions() {
        let relaxed =
            DumpOptions { version_check: VersionCheck::Relaxed, ..DumpOptions::default() };
        for version in [0, 1, 9, 11, 12, 79, 80, 81, 100, 65535] {
            let payload = payload(b"\0\x03abc", version);
            let strict = [1, 9, 11, 12, 80].contains(&version);
            let refused = Err(PayloadError::VersionOrChecksum);
            let expected = |allowed| if allowed { string(b"abc") } else { refused.clone() };
            assert_eq!(parse_payload(&payload), expected(strict));
            assert_eq!(parse_payload_with(&payload, &relaxed), expected(version > 0));
        }
    }

    #[test]
    fn checksums() {
        let sound = dump_string(b"value");
        for at in 0..sound.len() {
            let mut damaged = sound.clone();
            damaged[at] ^= 0x10;
            assert_eq!(parse_payload(&damaged), Err(PayloadError::VersionOrChecksum));
            assert_eq!(parse_payload(&sound[..at]), Err(PayloadError::VersionOrChecksum));
        }
        let mut zero = sound.clone();
        zero.truncate(sound.len() - 8);
        zero.extend_from_slice(&[0; 8]);
        assert_eq!(parse_payload(&zero), Err(PayloadError::VersionOrChecksum));
    }

    #[test]
    fn bodies() {
        for (body, value) in [
            (&b"\0\x03abcJUNK"[..], &b"abc"[..]),
            (b"\0\x40\x03abc", b"abc"),
            (b"\0\x80\0\0\0\x03abc", b"abc"),
            (b"\0\x81\0\0\0\0\0\0\0\x03abc", b"abc"),
            (b"\0\xc0\xff", b"-1"),
            (b"\0\xc3\x02\x01\0a", b"a"),
            (b"\0\xc3\0\0", b""),
            (b"\0\xc3\x01\0\0", b""),
        ] {
            assert_eq!(parse_payload(&payload(body, 80)), string(value), "{}", body.escape_ascii());
        }
        for body in [
            &b""[..],
            b"\0",
            b"\0\x04abc",
            b"\0\x82\0\0\0\x03abc",
            b"\0\xc4abc",
            b"\0\xc2\0\0\0",
            b"\0\xc3\x02\x05\0a",
            b"\0\xc3\x02\x81\0\0\0\x10\0\0\0\0\0a",
            b"\0\xc3\xc0\x02\x05\0a",
            b"\0\x81\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x06",
            b"\x07\0",
            b"\x08\x03abc",
            b"\x17\x03abc",
            b"\xff\x03abc",
        ] {
            let bad = Err(PayloadError::BadFormat);
            assert_eq!(parse_payload(&payload(body, 80)), bad, "{}", body.escape_ascii());
        }
    }

    #[test]
    fn a_limit_on_length() {
        let options = DumpOptions { string_len_max: 100, ..DumpOptions::default() };
        for value in [&[b'a'; 100][..], &[b'a'; 101]] {
            for compress in [true, false] {
                let mut payload = Vec::new();
                append_string_payload(
                    StringRef::Flat(value),
                    Format::Valkey,
                    compress,
                    &mut payload,
                );
                let expected =
                    if value.len() > 100 { Err(PayloadError::BadFormat) } else { string(value) };
                assert_eq!(parse_payload_with(&payload, &options), expected);
            }
        }
    }

    // DUMP of `RPUSH l 1 a` and of `HSET h f v`.
    #[test]
    fn collections_are_named() {
        let list = from_hex("1201020c0c00000002000101816102ff50001fb3063d29cd79b7");
        let kind = |payload: &[u8]| match parse_payload(payload) {
            Ok(Payload::Collection(serialized)) => serialized.kind,
            other => panic!("{other:?}"),
        };
        assert_eq!(kind(&list), ValueKind::ListQuicklist2);
        let hash = from_hex("100d0d0000000200816602817602ff5000efdbf4d5bd066f69");
        assert_eq!(kind(&hash), ValueKind::HashListpack);
    }

    proptest! {
        #[test]
        fn what_is_dumped_is_restored(value: Vec<u8>, times in 1..50usize, compress: bool) {
            let value = value.repeat(times);
            let mut payload = Vec::new();
            append_string_payload(StringRef::Flat(&value), Format::Valkey, compress, &mut payload);
            prop_assert_eq!(parse_payload(&payload), string(&value));
        }

        #[test]
        fn numbers_are_restored(value: i64) {
            let value = value.to_string();
            let payload = dump_string(value.as_bytes());
            prop_assert_eq!(parse_payload(&payload), string(value.as_bytes()));
        }

        #[test]
        fn random_bodies_do_no_harm(body: Vec<u8>, special in 0xc0..0xc5u8) {
            let _ = parse_payload(&body);
            let _ = parse_payload(&payload(&body, RDB_VERSION));
            let _ = parse_payload(&payload(&[&[0, special], &body[..]].concat(), RDB_VERSION));
        }
    }
}
