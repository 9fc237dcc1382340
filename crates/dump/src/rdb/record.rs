//! A key with its value, as they lie in a file.

use std::borrow::Cow;

use bobbin_store::value::AnyCollection;

use super::{AUX, EXPIRE_MS, EXPIRE_S, FREQUENCY, IDLE, RdbError, skip};
use crate::error::PayloadError;
use crate::input::Input;
use crate::kind::ValueKind;
use crate::length::Length;
use crate::options::DumpOptions;
use crate::value::string::read_string;
use crate::value::{CollectionTarget, SerializedCollection};

/// What [`super::Item::Key`] stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdbRecord<'a> {
    pub key: Cow<'a, [u8]>,
    /// Unix time.
    pub expire_ms: Option<i64>,
    pub idle_seconds: Option<u64>,
    pub frequency: Option<u8>,
    pub kind: ValueKind,
    value: &'a [u8],
}

/// A value that was read.
pub enum RdbValue<'a> {
    String(Cow<'a, [u8]>),
    Collection(AnyCollection),
    /// A collection without elements, which no key could hold.
    Empty,
}

impl<'a> RdbRecord<'a> {
    /// Reads all but the value from bytes that the reader gave; an error if they are others.
    pub fn parse(bytes: &'a [u8], options: &DumpOptions) -> Result<Self, RdbError> {
        Self::read(bytes, options)
            .ok_or(RdbError::Damaged { what: "a key that cannot be read", offset: 0 })
    }

    fn read(bytes: &'a [u8], options: &DumpOptions) -> Option<Self> {
        let mut input = Input(bytes);
        let (mut expire_ms, mut idle_seconds, mut frequency) = (None, None, None);
        let kind = loop {
            match input.byte()? {
                EXPIRE_MS => expire_ms = Some(i64::from_le_bytes(input.array()?)),
                EXPIRE_S => {
                    expire_ms = Some(i64::from(i32::from_le_bytes(input.array()?)) * 1000);
                }
                IDLE => idle_seconds = Some(Length::read_plain(&mut input)? as u64),
                FREQUENCY => frequency = Some(input.byte()?),
                AUX => skip::fact(&mut input).ok()?,
                kind => break ValueKind::from_byte(kind)?,
            }
        };
        let key = read_string(&mut input, options.element_len_max())?;
        // Valkey's way to say that a key does not expire.
        let expire_ms = expire_ms.filter(|&ms| ms != -1);
        Some(Self { key, expire_ms, idle_seconds, frequency, kind, value: input.0 })
    }

    /// Reads the value.
    pub fn value(
        &self,
        options: &DumpOptions,
        target: CollectionTarget<'_>,
    ) -> Result<RdbValue<'a>, PayloadError> {
        if self.kind == ValueKind::String {
            let string = read_string(&mut Input(self.value), options.string_len_max);
            return string.map(RdbValue::String).ok_or(PayloadError::BadFormat);
        }
        let serialized = SerializedCollection { kind: self.kind, bytes: self.value };
        match serialized.read(options, target) {
            Ok(collection) => Ok(RdbValue::Collection(collection)),
            Err(_) if self.is_empty(options) => Ok(RdbValue::Empty),
            Err(error) => Err(error),
        }
    }

    /// Whether the value is a sound collection without elements. Streams may be that, others were
    /// never meant to be.
    fn is_empty(&self, options: &DumpOptions) -> bool {
        let mut input = Input(self.value);
        let packed = |input: &mut Input<'_>, is_empty: fn(&[u8]) -> bool| {
            read_string(input, options.string_len_max).is_some_and(|pack| is_empty(&pack))
        };
        match self.kind {
            ValueKind::ListZiplist | ValueKind::SortedSetZiplist | ValueKind::HashZiplist => {
                packed(&mut input, |pack| pack.get(8..10) == Some(&[0, 0]))
            }
            ValueKind::HashListpack | ValueKind::SortedSetListpack | ValueKind::SetListpack => {
                packed(&mut input, |pack| pack.get(4..6) == Some(&[0, 0]))
            }
            ValueKind::SetIntset => packed(&mut input, |pack| pack.get(4..8) == Some(&[0; 4])),
            ValueKind::HashZipmap => packed(&mut input, |pack| pack.first() == Some(&0)),
            ValueKind::ListQuicklist | ValueKind::ListQuicklist2 => {
                let Some(nodes) = Length::read_plain(&mut input) else { return false };
                (0..nodes).all(|_| match self.kind {
                    ValueKind::ListQuicklist => {
                        packed(&mut input, |pack| pack.get(8..10) == Some(&[0, 0]))
                    }
                    _ => {
                        Length::read_plain(&mut input).is_some()
                            && packed(&mut input, |pack| pack.get(4..6) == Some(&[0, 0]))
                    }
                })
            }
            ValueKind::List | ValueKind::Set | ValueKind::SortedSet | ValueKind::SortedSet2 => {
                Length::read_plain(&mut input) == Some(0)
            }
            ValueKind::Hash | ValueKind::HashExpiring => Length::read_plain(&mut input) == Some(0),
            _ => false,
        }
    }
}
