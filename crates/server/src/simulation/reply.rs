//! Replies as clients see them.

/// A reply of RESP2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedReply {
    Text(String),
    Error(String),
    Integer(i64),
    Nil,
    Array(Vec<Self>),
}

impl ParsedReply {
    /// Takes the first reply off what came, if it is whole.
    pub fn take(bytes: &mut Vec<u8>) -> Option<Self> {
        let (reply, rest) = Self::parse(bytes)?;
        let consumed = bytes.len() - rest.len();
        bytes.drain(..consumed);
        Some(reply)
    }

    fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
        let (line, rest) = (&bytes[..end], &bytes[end + 2..]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let number = || text(&line[1..]).parse::<i64>().expect("it is a number");
        Some(match line[0] {
            b'+' => (Self::Text(text(&line[1..])), rest),
            b'-' => (Self::Error(text(&line[1..])), rest),
            b':' => (Self::Integer(number()), rest),
            b'$' | b'*' if number() < 0 => (Self::Nil, rest),
            b'$' => {
                let length = number() as usize;
                (Self::Text(text(rest.get(..length)?)), rest.get(length + 2..)?)
            }
            b'*' => {
                let (mut items, mut rest) = (Vec::new(), rest);
                for _ in 0..number() {
                    let (item, behind) = Self::parse(rest)?;
                    items.push(item);
                    rest = behind;
                }
                (Self::Array(items), rest)
            }
            kind => panic!("no reply begins with {}", kind.escape_ascii()),
        })
    }

    /// All texts and whole numbers of it, those of arrays within it included.
    pub fn leaves(&self) -> Vec<&Self> {
        match self {
            Self::Array(items) => items.iter().flat_map(Self::leaves).collect(),
            leaf => vec![leaf],
        }
    }
}
