//! An entry of a listpack, as it is read or written.

use super::super::integer::{self, IntegerText};

/// One entry. `Item::from` makes one of a string. The listpack decides whether a string is kept as
/// an integer, so `Bytes(b"1")` may be pushed and comes back as `Integer(1)`.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    Integer(i64),
    Bytes(&'a [u8]),
}

impl<'a> Item<'a> {
    /// The length of its text in bytes.
    pub fn len(self) -> usize {
        match self {
            Item::Integer(value) => integer::text_len(value),
            Item::Bytes(bytes) => bytes.len(),
        }
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The integer, if the entry is one.
    pub fn as_integer(self) -> Option<i64> {
        match self {
            Item::Integer(value) => Some(value),
            Item::Bytes(bytes) => integer::parse(bytes),
        }
    }

    /// Its text, formatted into `room` if necessary.
    pub fn text<'b>(self, room: &'b mut IntegerText) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            Item::Integer(value) => {
                *room = IntegerText::new(value);
                room.as_bytes()
            }
            Item::Bytes(bytes) => bytes,
        }
    }

    pub fn to_vec(self) -> Vec<u8> {
        match self {
            Item::Integer(value) => IntegerText::new(value).as_bytes().to_vec(),
            Item::Bytes(bytes) => bytes.to_vec(),
        }
    }
}

impl<'a> From<&'a [u8]> for Item<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Item::Bytes(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Item<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Item::Bytes(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for Item<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Item::Bytes(bytes)
    }
}

impl From<i64> for Item<'_> {
    fn from(value: i64) -> Self {
        Item::Integer(value)
    }
}

impl PartialEq for Item<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Item::Bytes(one), Item::Bytes(other)) => one == other,
            _ => self.as_integer().is_some() && self.as_integer() == other.as_integer(),
        }
    }
}

impl Eq for Item<'_> {}

impl PartialEq<[u8]> for Item<'_> {
    fn eq(&self, other: &[u8]) -> bool {
        *self == Item::Bytes(other)
    }
}

impl PartialEq<&[u8]> for Item<'_> {
    fn eq(&self, other: &&[u8]) -> bool {
        *self == **other
    }
}
