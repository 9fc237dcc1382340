//! The types of value that a payload can announce in its first byte.

/// A value's type together with its serialised form. The numbers are those of RDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ValueKind {
    String = 0,
    List = 1,
    Set = 2,
    SortedSet = 3,
    Hash = 4,
    SortedSet2 = 5,
    Module = 7,
    HashZipmap = 9,
    ListZiplist = 10,
    SetIntset = 11,
    SortedSetZiplist = 12,
    HashZiplist = 13,
    ListQuicklist = 14,
    Stream = 15,
    HashListpack = 16,
    SortedSetListpack = 17,
    ListQuicklist2 = 18,
    Stream2 = 19,
    SetListpack = 20,
    Stream3 = 21,
    HashExpiring = 22,
    /// Redis's own, since 7.4; the numbers mean nothing to Valkey.
    HashMetadata = 24,
    /// As above.
    HashListpackExpiring = 25,
}

impl ValueKind {
    pub fn from_byte(byte: u8) -> Option<Self> {
        ALL.iter().copied().find(|&kind| kind as u8 == byte)
    }

    /// The type's name as TYPE gives it, and the form where there are several.
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::List => "list",
            Self::Set => "set",
            Self::SortedSet | Self::SortedSet2 => "zset",
            Self::Hash => "hash",
            Self::Module => "module",
            Self::HashZipmap => "hash (zipmap)",
            Self::ListZiplist => "list (ziplist)",
            Self::SetIntset => "set (intset)",
            Self::SortedSetZiplist => "zset (ziplist)",
            Self::HashZiplist => "hash (ziplist)",
            Self::ListQuicklist | Self::ListQuicklist2 => "list (quicklist)",
            Self::Stream | Self::Stream2 | Self::Stream3 => "stream",
            Self::HashListpack => "hash (listpack)",
            Self::SortedSetListpack => "zset (listpack)",
            Self::SetListpack => "set (listpack)",
            Self::HashExpiring | Self::HashMetadata | Self::HashListpackExpiring => {
                "hash (with field expiry)"
            }
        }
    }
}

const ALL: [ValueKind; 23] = [
    ValueKind::String,
    ValueKind::List,
    ValueKind::Set,
    ValueKind::SortedSet,
    ValueKind::Hash,
    ValueKind::SortedSet2,
    ValueKind::Module,
    ValueKind::HashZipmap,
    ValueKind::ListZiplist,
    ValueKind::SetIntset,
    ValueKind::SortedSetZiplist,
    ValueKind::HashZiplist,
    ValueKind::ListQuicklist,
    ValueKind::Stream,
    ValueKind::HashListpack,
    ValueKind::SortedSetListpack,
    ValueKind::ListQuicklist2,
    ValueKind::Stream2,
    ValueKind::SetListpack,
    ValueKind::Stream3,
    ValueKind::HashExpiring,
    ValueKind::HashMetadata,
    ValueKind::HashListpackExpiring,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_kinds() {
        let known = (0..=255).filter(|&byte| ValueKind::from_byte(byte).is_some());
        assert!(known.eq((0..=25).filter(|byte| ![6, 8, 23].contains(byte))));
        assert!(ALL.iter().all(|&kind| ValueKind::from_byte(kind as u8) == Some(kind)));
    }
}
