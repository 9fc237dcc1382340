//! What a certificate (RFC 5280) says of itself: rustls judges certificates, but shows nothing of
//! them.

use crate::der::{
    DerReader, GENERALIZED_TIME, INTEGER, OBJECT, OCTET_STRING, SEQUENCE, SET, UTC_TIME,
};

/// What people and access rules ask of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Hexadecimal digits in capitals, as OpenSSL writes them.
    pub serial: String,
    /// Unix time in seconds from which on it is no longer valid.
    pub expires_s: i64,
    /// The subject's first common name.
    pub common_name: Option<String>,
    /// The URIs among its other names, in their order.
    pub uris: Vec<String>,
}

impl CertificateFacts {
    /// `None`: this is no certificate.
    pub fn of(der: &[u8]) -> Option<Self> {
        let mut signed = DerReader::new(der).enter(SEQUENCE)?;
        let mut body = signed.enter(SEQUENCE)?;
        let _version = body.take(VERSION);
        let serial = hexadecimal(body.take(INTEGER)?);
        let _algorithm = body.take(SEQUENCE)?;
        let _issuer = body.take(SEQUENCE)?;
        let mut validity = body.enter(SEQUENCE)?;
        let _begins = validity.next()?;
        let expires_s = seconds(validity.next()?)?;
        let common_name = common_name(body.enter(SEQUENCE)?);
        let _key = body.take(SEQUENCE)?;
        let mut uris = Vec::new();
        while let Some((tag, content)) = body.next() {
            if tag == EXTENSIONS {
                uris = self::uris(DerReader::new(content).enter(SEQUENCE)?);
            }
        }
        Some(Self { serial, expires_s, common_name, uris })
    }
}

fn hexadecimal(number: &[u8]) -> String {
    let digits: String = number.iter().map(|byte| format!("{byte:02X}")).collect();
    let digits =
        if number.len() > 1 { digits.strip_prefix("00").unwrap_or(&digits) } else { &digits };
    digits.to_owned()
}

/// A name is a sequence of sets of pairs.
fn common_name(mut name: DerReader<'_>) -> Option<String> {
    while let Some(mut set) = name.enter(SET) {
        while let Some(mut pair) = set.enter(SEQUENCE) {
            let kind = pair.take(OBJECT)?;
            let (tag, text) = pair.next()?;
            if kind == COMMON_NAME {
                return Some(text_of(tag, text));
            }
        }
    }
    None
}

fn text_of(tag: u8, bytes: &[u8]) -> String {
    if tag == BMP_STRING {
        let units: Vec<u16> =
            bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
        return String::from_utf16_lossy(&units);
    }
    String::from_utf8_lossy(bytes).into_owned()
}

fn uris(mut extensions: DerReader<'_>) -> Vec<String> {
    let mut uris = Vec::new();
    while let Some(mut extension) = extensions.enter(SEQUENCE) {
        if extension.take(OBJECT) != Some(OTHER_NAMES) {
            continue;
        }
        // Whether it is critical may stand before its value.
        while let Some((tag, value)) = extension.next() {
            if tag != OCTET_STRING {
                continue;
            }
            let Some(mut names) = DerReader::new(value).enter(SEQUENCE) else { continue };
            while let Some((tag, name)) = names.next() {
                if tag == URI {
                    uris.push(String::from_utf8_lossy(name).into_owned());
                }
            }
        }
    }
    uris
}

/// Unix time of `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`; a certificate knows no other zone.
fn seconds((tag, text): (u8, &[u8])) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let year = number(text.get(..2)?)?;
            // RFC 5280, 4.1.2.5.1.
            (if year >= 50 { 1900 + year } else { 2000 + year }, text.get(2..)?)
        }
        GENERALIZED_TIME => (number(text.get(..4)?)?, text.get(4..)?),
        _ => return None,
    };
    let mut fields = [0; 5];
    for (index, field) in fields.iter_mut().enumerate() {
        *field = number(rest.get(index * 2..index * 2 + 2)?)?;
    }
    let [month, day, hour, minute, second] = fields;
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    Some(days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

fn number(digits: &str) -> Option<i64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// In the Gregorian calendar, whose years begin here in March, so that the odd day comes last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const BMP_STRING: u8 = 0x1e;
/// Among the other names (RFC 5280, 4.2.1.6).
const URI: u8 = 0x86;
/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
/// 2.5.29.17
const OTHER_NAMES: &[u8] = &[0x55, 29, 17];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_unix_times() {
        assert_eq!(seconds((UTC_TIME, b"700101000000Z")), Some(0));
        assert_eq!(seconds((UTC_TIME, b"000229120000Z")), Some(951_825_600));
        assert_eq!(seconds((GENERALIZED_TIME, b"20380119031407Z")), Some(i64::from(i32::MAX)));
        assert_eq!(seconds((GENERALIZED_TIME, b"99991231235959Z")), Some(253_402_300_799));
        for broken in [&b""[..], b"7001010000", b"701301000000Z", b"+1010100000Z"] {
            assert_eq!(seconds((UTC_TIME, broken)), None, "{broken:?}");
        }
    }

    #[test]
    fn rubbish_is_no_certificate() {
        assert_eq!(CertificateFacts::of(b""), None);
        assert_eq!(CertificateFacts::of(&[0x30, 3, 0x30, 1, 0]), None);
    }
}
