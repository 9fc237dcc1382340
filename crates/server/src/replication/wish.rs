//! What a replica asks for when it asks for a copy, and which formats it can read.

use bobbin_dump::rdb::Format;

use crate::config::words;

/// The required properties of a copy. Replicas with the same wish share one copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wish {
    pub parts: CopyParts,
    pub dialect: Dialect,
}

/// The parts of the data that a copy has (REPLCONF rdb-filter-only).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyParts {
    pub keys: bool,
    pub functions: bool,
}

/// The kind of a replica, which decides the formats that it can read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Dialect {
    /// Valkey 9 or later, Bobbin, and tools that keep a copy for such a server.
    #[default]
    Valkey9,
    /// Valkey 8.
    Valkey8,
    /// Redis 8 or later.
    Redis8,
    /// Unknown: the replica gives no version. It may be Redis 6.2 to 7.4, or Valkey 7.2.
    Silent,
    /// As `Silent`, but the replica went away without a word after a copy in Redis 7.0's format.
    SilentAndOld,
}

impl Default for CopyParts {
    fn default() -> Self {
        Self { keys: true, functions: true }
    }
}

impl CopyParts {
    /// Whether some part is left out.
    pub fn is_filtered(self) -> bool {
        self != Self::default()
    }

    /// Reads the names of the wanted parts. No name: no part is wanted.
    pub fn parse(names: &[u8]) -> Result<Self, String> {
        let names = words::split(names).ok_or("Missing rdb-filter-only values")?;
        let mut parts = Self { keys: false, functions: false };
        for name in names {
            if !name.eq_ignore_ascii_case(b"functions") {
                let name = String::from_utf8_lossy(&name);
                return Err(format!("Unsupported rdb-filter-only option: {name}"));
            }
            parts.functions = true;
        }
        Ok(parts)
    }
}

impl Dialect {
    /// The dialect of a replica. `version` is `0x00MMmmpp`, or 0 if the replica gave none; only
    /// Valkey gives it. `knows_redis_channel`: it knows Redis 8's channel for copies.
    pub const fn of(version: u32, knows_redis_channel: bool) -> Self {
        match version {
            0 if knows_redis_channel => Self::Redis8,
            0 => Self::Silent,
            1..VALKEY_9 => Self::Valkey8,
            VALKEY_9.. => Self::Valkey9,
        }
    }

    /// The format of a copy with these contents, or what prevents it.
    pub const fn format(self, field_expiry: bool, functions: bool) -> Result<Format, Obstacle> {
        let (plain, expiring) = match self {
            Self::Valkey9 => (Format::Shared, Some(Format::Valkey)),
            Self::Valkey8 => (Format::Shared, None),
            Self::Redis8 => (Format::Shared, Some(Format::Redis8)),
            // Redis 7.4 reads expiring fields, but gives no version, just as older ones.
            Self::Silent => (Format::Redis7, Some(Format::Redis8)),
            Self::SilentAndOld => (Format::Oldest, None),
        };
        let format = match (field_expiry, expiring) {
            (false, _) => plain,
            (true, Some(expiring)) => expiring,
            (true, None) => return Err(Obstacle::FieldExpiry),
        };
        if functions && !format.has_functions() {
            return Err(Obstacle::Functions);
        }
        Ok(format)
    }
}

/// What a replica cannot read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Obstacle {
    FieldExpiry,
    Functions,
}

impl Obstacle {
    /// The text for the replica and for the log.
    pub const fn text(self) -> &'static str {
        match self {
            Self::FieldExpiry => {
                "the replica's version can't hold hashes with fields that expire, and there may \
                 be some"
            }
            Self::Functions => {
                "the replica's version can't hold functions (FUNCTION LOAD), and there are some"
            }
        }
    }
}

const VALKEY_9: u32 = 0x0009_0000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_alone_can_be_asked_for_or_nothing() {
        let functions = CopyParts { keys: false, functions: true };
        for names in ["functions", " Functions  functions ", "\"functions\""] {
            assert_eq!(CopyParts::parse(names.as_bytes()), Ok(functions));
        }
        assert_eq!(CopyParts::parse(b""), Ok(CopyParts { keys: false, functions: false }));
        let unknown = "Unsupported rdb-filter-only option: keys";
        assert_eq!(CopyParts::parse(b"functions keys"), Err(unknown.to_owned()));
        let missing = "Missing rdb-filter-only values";
        assert_eq!(CopyParts::parse(b"\"functions"), Err(missing.to_owned()));
    }

    #[test]
    fn a_copy_has_the_oldest_format_that_holds_everything_for_those_that_say_nothing() {
        let dialects = [(0x0009_0102, false), (0x0008_0100, false), (0, true), (0, false)]
            .map(|(version, channel)| Dialect::of(version, channel));
        let [valkey9, valkey8, redis8, silent] = dialects;
        let old = Dialect::SilentAndOld;
        for (dialect, plain, expiring) in [
            (valkey9, Format::Shared, Ok(Format::Valkey)),
            (valkey8, Format::Shared, Err(Obstacle::FieldExpiry)),
            (redis8, Format::Shared, Ok(Format::Redis8)),
            (silent, Format::Redis7, Ok(Format::Redis8)),
            (old, Format::Oldest, Err(Obstacle::FieldExpiry)),
        ] {
            assert_eq!(dialect.format(false, false), Ok(plain));
            assert_eq!(dialect.format(true, false), expiring);
        }
        assert_eq!(silent.format(false, true), Ok(Format::Redis7));
        assert_eq!(old.format(false, true), Err(Obstacle::Functions));
    }
}
