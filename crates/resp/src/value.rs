//! A reply as a client sees it.

/// One reply of either protocol version. It owns its bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `+text`
    Simple(Vec<u8>),
    /// `-CODE text`, without the minus sign.
    Error(Vec<u8>),
    /// `:n`
    Integer(i64),
    /// `$n`
    Bulk(Vec<u8>),
    /// `$-1` or `_`
    Null,
    /// `*-1`
    NullArray,
    /// `*n`
    Array(Vec<Self>),
    /// `%n`, in the order sent
    Map(Vec<(Self, Self)>),
    /// `~n`, in the order sent
    Set(Vec<Self>),
    /// `,1.5`: the number, and its text as it came
    Double { value: f64, text: Vec<u8> },
    /// `#t` or `#f`
    Boolean(bool),
    /// `(digits`
    BigNumber(Vec<u8>),
    /// `!n`, an error that may contain any bytes
    BulkError(Vec<u8>),
    /// `=n`, text with a format of three letters such as `txt` or `mkd`
    Verbatim { format: [u8; 3], text: Vec<u8> },
    /// `>n`, which is not a reply: it may come between replies at any time
    Push(Vec<Self>),
    /// `|n`, additional information about the value that follows
    Attribute { attributes: Vec<(Self, Self)>, value: Box<Self> },
}

impl Value {
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null | Self::NullArray)
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_) | Self::BulkError(_))
    }

    /// The text of an error, with its code.
    pub fn as_error(&self) -> Option<&[u8]> {
        match self {
            Self::Error(text) | Self::BulkError(text) => Some(text),
            _ => None,
        }
    }

    /// The bytes of a string of any kind, unless it is an error.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Simple(text)
            | Self::Bulk(text)
            | Self::BigNumber(text)
            | Self::Verbatim { text, .. } => Some(text),
            _ => None,
        }
    }

    pub fn as_integer(&self) -> Option<i64> {
        match *self {
            Self::Integer(integer) => Some(integer),
            _ => None,
        }
    }

    /// The elements of an array, a set or a push.
    pub fn as_elements(&self) -> Option<&[Self]> {
        match self {
            Self::Array(elements) | Self::Set(elements) | Self::Push(elements) => Some(elements),
            _ => None,
        }
    }
}
