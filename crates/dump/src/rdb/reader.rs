//! A file's items, one after the other.

use std::borrow::Cow;

use super::skip::{self, Skipped, Stop};
use super::{
    AUX, DATABASE, END, EXPIRE_MS, EXPIRE_S, FREQUENCY, FUNCTION, FUNCTION_BEFORE_RELEASE, IDLE,
    MODULE_AUX, RdbError, SIZES, SLOT_INFO,
};
use crate::crc64::crc64;
use crate::input::Input;
use crate::kind::ValueKind;
use crate::options::{STRING_LEN_MAX, VersionCheck};
use crate::value::string::read_string;

/// Reads a file that comes in pieces. It keeps none of the bytes: the caller shows those that were
/// not used again, with more behind them.
pub struct RdbReader {
    version_check: VersionCheck,
    /// Whether the checksum is looked at.
    check: bool,
    place: Place,
    /// `None` before the header.
    version: Option<Version>,
    offset: u64,
    crc: u64,
}

/// What comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Header,
    Items,
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Version {
    number: u16,
    is_valkey: bool,
}

/// What a file consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RdbItem<'a> {
    Version {
        number: u16,
        is_valkey: bool,
    },
    /// A fact about the file, such as when it was made.
    Aux {
        name: Cow<'a, [u8]>,
        value: Cow<'a, [u8]>,
    },
    /// The keys that follow belong to this database.
    Database(u64),
    /// How many keys the database has, and how many of them expire. A hint.
    Sizes {
        keys: u64,
        expiring: u64,
    },
    /// A key with its value, as they lie in the file; see [`super::Record`].
    Key(&'a [u8]),
    /// The source of a library of functions.
    Function(Cow<'a, [u8]>),
    /// What a module wrote about itself. It is passed over.
    ModuleAux,
    /// Which keys a slot of a cluster has. It is passed over.
    SlotInfo,
    /// The end, and whether a checksum said that all was as it was written.
    End {
        checked: bool,
    },
}

impl RdbReader {
    /// How many bytes the signature and the version take.
    pub const HEADER_LEN: usize = 9;

    /// A reader for a whole file. `check`: whether a wrong checksum is an error.
    pub fn new(version_check: VersionCheck, check: bool) -> Self {
        let place = Place::Header;
        Self { version_check, check, place, version: None, offset: 0, crc: 0 }
    }

    /// The next item and how many bytes it takes; `None` when it does not end within `input`, and
    /// after the end of the file.
    pub fn next<'a>(&mut self, input: &'a [u8]) -> Result<Option<(RdbItem<'a>, usize)>, RdbError> {
        let mut rest = Input(input);
        let read = match self.place {
            Place::Header => self.header(&mut rest)?,
            Place::Items => match self.item(&mut rest) {
                Ok(item) => Some(item),
                Err(Stop::More) => None,
                Err(stop) => return Err(self.error(stop, input, input.len() - rest.0.len())),
            },
            Place::Over => None,
        };
        Ok(read.map(|item| {
            let used = input.len() - rest.0.len();
            self.offset += used as u64;
            if matches!(item, RdbItem::End { .. }) {
                self.place = Place::Over;
            } else if self.check {
                self.crc = crc64(self.crc, &input[..used]);
            }
            (item, used)
        }))
    }

    /// To be called when there are no more bytes.
    pub fn finish(&self) -> Result<(), RdbError> {
        match self.place {
            Place::Over => Ok(()),
            _ => Err(RdbError::Truncated { offset: self.offset }),
        }
    }

    /// How many bytes were read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the file ended.
    pub fn is_over(&self) -> bool {
        self.place == Place::Over
    }

    fn header<'a>(&mut self, input: &mut Input<'a>) -> Result<Option<RdbItem<'a>>, RdbError> {
        let Some(header) = input.bytes(Self::HEADER_LEN) else {
            let known = [&b"REDIS"[..], b"VALKEY"]
                .iter()
                .any(|name| name.iter().zip(input.0).all(|(name, byte)| name == byte));
            return if known { Ok(None) } else { Err(RdbError::Signature) };
        };
        let (digits, is_valkey) = match (header.strip_prefix(b"REDIS"), header) {
            (Some(digits), _) => (digits, false),
            (None, header) => (header.strip_prefix(b"VALKEY").ok_or(RdbError::Signature)?, true),
        };
        let digits = str::from_utf8(digits).map_err(|_| RdbError::Signature)?;
        let number = digits.parse().map_err(|_| RdbError::Signature)?;
        if !self.version_check.allows_file(number, is_valkey) {
            return Err(RdbError::Version(number));
        }
        self.version = Some(Version { number, is_valkey });
        self.place = Place::Items;
        Ok(Some(RdbItem::Version { number, is_valkey }))
    }

    fn item<'a>(&mut self, input: &mut Input<'a>) -> Skipped<RdbItem<'a>> {
        let start = *input;
        Ok(match skip::byte(input)? {
            AUX => RdbItem::Aux { name: text(input)?, value: text(input)? },
            DATABASE => RdbItem::Database(skip::number(input)?),
            SIZES => RdbItem::Sizes { keys: skip::number(input)?, expiring: skip::number(input)? },
            FUNCTION => RdbItem::Function(text(input)?),
            FUNCTION_BEFORE_RELEASE => {
                return Err(Stop::Damaged("functions in the form of release candidates"));
            }
            MODULE_AUX => {
                skip::module_aux(input)?;
                RdbItem::ModuleAux
            }
            SLOT_INFO => {
                for _ in 0..3 {
                    skip::number(input)?;
                }
                RdbItem::SlotInfo
            }
            END => self.end(input)?,
            first => {
                self.key(first, input)?;
                RdbItem::Key(&start.0[..start.0.len() - input.0.len()])
            }
        })
    }

    /// Passes over a key, what is said about it, and its value.
    fn key(&self, first: u8, input: &mut Input<'_>) -> Skipped {
        let mut byte = first;
        loop {
            match byte {
                EXPIRE_MS => drop(skip::array::<8>(input)?),
                EXPIRE_S => drop(skip::array::<4>(input)?),
                IDLE => drop(skip::number(input)?),
                FREQUENCY => drop(skip::byte(input)?),
                AUX => skip::fact(input)?,
                _ => break,
            }
            byte = skip::byte(input)?;
        }
        let kind = ValueKind::from_byte(byte).filter(|&kind| self.knows(kind));
        let kind = kind.ok_or(Stop::Unknown(byte))?;
        skip::string(input)?;
        skip::value(kind, input)
    }

    /// Whether the type's number means that type in files of this version.
    fn knows(&self, kind: ValueKind) -> bool {
        let is_valkey = self.version.is_some_and(|version| version.is_valkey);
        match kind {
            ValueKind::HashMetadata | ValueKind::HashListpackExpiring => !is_valkey,
            ValueKind::HashExpiring => is_valkey,
            // There are no modules that could read it.
            ValueKind::Module => false,
            _ => true,
        }
    }

    fn end(&self, input: &mut Input<'_>) -> Skipped<RdbItem<'static>> {
        if self.version.is_some_and(|version| version.number < CHECKSUM_VERSION) {
            return Ok(RdbItem::End { checked: false });
        }
        let expected = u64::from_le_bytes(skip::array(input)?);
        let checked = self.check && expected != 0;
        let found = crc64(self.crc, &[END]);
        if checked && expected != found {
            return Err(Stop::Checksum { expected, found });
        }
        Ok(RdbItem::End { checked })
    }

    fn error(&self, stop: Stop, input: &[u8], used: usize) -> RdbError {
        let offset = self.offset + used as u64;
        match stop {
            Stop::Damaged(what) => RdbError::Damaged { what, offset },
            Stop::Unknown(byte) if byte == ValueKind::Module as u8 || byte == MODULE_OLD => {
                let mut rest = Input(&input[used..]);
                let key = text(&mut rest).unwrap_or_default().into_owned();
                RdbError::Unsupported { kind: "module", key, offset: offset - 1 }
            }
            Stop::Unknown(byte) => RdbError::Unknown { byte, offset: offset - 1 },
            Stop::Checksum { expected, found } => RdbError::Checksum { expected, found },
            Stop::More => RdbError::Truncated { offset },
        }
    }
}

/// A short string: its own text, or the place where it is.
fn text<'a>(input: &mut Input<'a>) -> Skipped<Cow<'a, [u8]>> {
    let start = *input;
    skip::string(input)?;
    let mut whole = Input(&start.0[..start.0.len() - input.0.len()]);
    read_string(&mut whole, STRING_LEN_MAX).ok_or(Stop::Damaged("a string"))
}

/// The type of values of modules in release candidates of Redis 4.
const MODULE_OLD: u8 = 6;
/// Since this version there is a checksum.
const CHECKSUM_VERSION: u16 = 5;
