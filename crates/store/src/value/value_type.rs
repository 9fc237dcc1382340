//! The types of values, and their encodings as clients see them.

/// The type of a value, with Redis's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ValueType {
    String = 0,
    List = 1,
    Set = 2,
    SortedSet = 3,
    Hash = 4,
    Stream = 6,
}

impl ValueType {
    pub const ALL: [Self; 6] =
        [Self::String, Self::List, Self::Set, Self::SortedSet, Self::Hash, Self::Stream];

    /// The type with this name, in upper or lower case.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| name.eq_ignore_ascii_case(kind.name().as_bytes()))
    }

    /// The name that TYPE answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::List => "list",
            Self::Set => "set",
            Self::SortedSet => "zset",
            Self::Hash => "hash",
            Self::Stream => "stream",
        }
    }
}

/// Redis's name for how a value is kept. Here it follows from the value itself, and exists because
/// clients see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    Int,
    Embstr,
    Raw,
    Listpack,
    Intset,
    Quicklist,
    Hashtable,
    Skiplist,
    Stream,
}

impl Encoding {
    /// The name that OBJECT ENCODING answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int => "int",
            Self::Embstr => "embstr",
            Self::Raw => "raw",
            Self::Listpack => "listpack",
            Self::Intset => "intset",
            Self::Quicklist => "quicklist",
            Self::Hashtable => "hashtable",
            Self::Skiplist => "skiplist",
            Self::Stream => "stream",
        }
    }
}
