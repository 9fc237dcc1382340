//! Classes of keyspace events: `notify-keyspace-events`.

use crate::base::bits::bits;

bits! {
    /// Classes of events, each with its letter of `notify-keyspace-events`.
    Classes: u32 {
        /// Events go to channels named by key: `__keyspace@<db>__:<key>`.
        KEYSPACE = "K",
        /// Events go to channels named by event: `__keyevent@<db>__:<event>`.
        KEYEVENT = "E",
        GENERIC = "g",
        STRING = "$",
        LIST = "l",
        SET = "s",
        HASH = "h",
        SORTED_SET = "z",
        EXPIRED = "x",
        EVICTED = "e",
        STREAM = "t",
        MISS = "m",
        MODULE = "d",
        NEW = "n",
    }
}

impl Classes {
    /// The classes that the letter `A` stands for.
    pub const ALL: Self = Self::GENERIC
        .with(Self::STRING)
        .with(Self::LIST)
        .with(Self::SET)
        .with(Self::HASH)
        .with(Self::SORTED_SET)
        .with(Self::EXPIRED)
        .with(Self::EVICTED)
        .with(Self::STREAM)
        .with(Self::MODULE);

    /// Parses the value of `notify-keyspace-events`: one letter for each class.
    pub fn parse(text: &[u8]) -> Option<Self> {
        text.iter().try_fold(Self::NONE, |classes, letter| {
            let class = match letter {
                b'A' => Self::ALL,
                letter => {
                    let named = |(_, name): &&(Self, &str)| name.as_bytes() == [*letter];
                    Self::NAMES.iter().find(named)?.0
                }
            };
            Some(classes.with(class))
        })
    }

    /// The letters, as Valkey shows them: `n` is not a part of `A`, but is not shown beside it.
    pub fn text(self) -> String {
        let letters = Self::SHOWN.iter().filter(|(class, _)| self.has(*class));
        if Self::ALL.bits() & !self.bits() != 0 {
            return letters.map(|(_, letter)| *letter).collect();
        }
        let hidden = Self::ALL.with(Self::NEW);
        let rest = letters.filter(|(class, _)| !hidden.has(*class));
        "A".chars().chain(rest.map(|(_, letter)| *letter)).collect()
    }

    /// The letters in the order in which they are shown.
    const SHOWN: [(Self, char); 14] = [
        (Self::GENERIC, 'g'),
        (Self::STRING, '$'),
        (Self::LIST, 'l'),
        (Self::SET, 's'),
        (Self::HASH, 'h'),
        (Self::SORTED_SET, 'z'),
        (Self::EXPIRED, 'x'),
        (Self::EVICTED, 'e'),
        (Self::STREAM, 't'),
        (Self::MODULE, 'd'),
        (Self::NEW, 'n'),
        (Self::KEYSPACE, 'K'),
        (Self::KEYEVENT, 'E'),
        (Self::MISS, 'm'),
    ];
}
