//! The first line of a script, `#!lua flags=no-writes`: which engine it is for, and what it says of
//! itself.

use bobbin_resp::split_arguments;

/// What a script's first line says. A script without one has the default.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Shebang {
    pub is_there: bool,
    /// The engine's name, in capitals or not.
    pub engine: Vec<u8>,
    pub flags: ScriptFlags,
    /// Of a function library, which always has one.
    pub name: Option<Vec<u8>>,
    /// Where the code begins: at the end of the first line, so that lines keep their numbers.
    pub code: usize,
}

/// The promises and wishes of a script, by Redis's names.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ScriptFlags(u8);

impl ScriptFlags {
    pub const NO_WRITES: Self = Self(1);
    pub const ALLOW_OOM: Self = Self(2);
    pub const ALLOW_STALE: Self = Self(4);
    pub const NO_CLUSTER: Self = Self(8);
    pub const ALLOW_CROSS_SLOT_KEYS: Self = Self(16);

    const NAMES: [(&'static str, Self); 5] = [
        ("no-writes", Self::NO_WRITES),
        ("allow-oom", Self::ALLOW_OOM),
        ("allow-stale", Self::ALLOW_STALE),
        ("no-cluster", Self::NO_CLUSTER),
        ("allow-cross-slot-keys", Self::ALLOW_CROSS_SLOT_KEYS),
    ];

    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn named(name: &[u8]) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, flag)| *flag)
    }

    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().filter(move |(_, flag)| self.has(*flag)).map(|(name, _)| *name)
    }
}

/// What is wrong with a first line.
#[derive(Debug, PartialEq, Eq)]
pub enum ShebangError {
    /// It has no end.
    Endless,
    /// A quote in it has none.
    Quote,
    Engine(Vec<u8>),
    Option(Vec<u8>),
    Flag(Vec<u8>),
    /// A library with two names, and one without.
    Double,
    Nameless,
    /// The library's name holds more than letters, digits and underscores, or nothing.
    Name,
}

impl Shebang {
    /// Reads the first line of a library if it is `named`, else of a script. Its words may be
    /// quoted. What it says besides is looked at before the engine, which is Lua.
    pub fn parse(source: &[u8], named: bool) -> Result<Self, ShebangError> {
        let shebang = Self::of_any_engine(source, named)?;
        if shebang.is_there && !shebang.engine.eq_ignore_ascii_case(b"lua") {
            return Err(ShebangError::Engine(shebang.engine));
        }
        Ok(shebang)
    }

    /// Reads the first line, as `parse` does, whatever the engine is.
    pub fn of_any_engine(source: &[u8], named: bool) -> Result<Self, ShebangError> {
        if !source.starts_with(MARK) {
            return Ok(Self::default());
        }
        let end = source.iter().position(|&byte| byte == b'\n').ok_or(ShebangError::Endless)?;
        let mut words = split_arguments(&source[..end]).ok_or(ShebangError::Quote)?.into_iter();
        let engine = words.next().unwrap_or_default().split_off(MARK.len());
        let mut shebang = Self { is_there: true, engine, code: end, ..Self::default() };
        for word in words {
            if let Some(flags) = word.strip_prefix(b"flags=").filter(|_| !named) {
                // No flags at all are none; an empty one among others is one that is not there.
                let names = flags.split(|&byte| byte == b',').filter(|_| !flags.is_empty());
                for name in names {
                    let flag = ScriptFlags::named(name);
                    let flag = flag.ok_or_else(|| ShebangError::Flag(name.to_vec()))?;
                    shebang.flags = shebang.flags.with(flag);
                }
            } else if let Some(name) = library_name(&word).filter(|_| named) {
                if shebang.name.replace(name.to_vec()).is_some() {
                    return Err(ShebangError::Double);
                }
            } else {
                return Err(ShebangError::Option(word));
            }
        }
        if named && !is_name(shebang.name.as_ref().ok_or(ShebangError::Nameless)?) {
            return Err(ShebangError::Name);
        }
        Ok(shebang)
    }
}

const MARK: &[u8] = b"#!";

/// What stands behind `name=`, in capitals or not.
fn library_name(word: &[u8]) -> Option<&[u8]> {
    let (key, name) = word.split_at_checked(b"name=".len())?;
    key.eq_ignore_ascii_case(b"name=").then_some(name)
}

/// Whether a library or a function may be called so.
pub fn is_name(name: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    !name.is_empty() && name.iter().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines() {
        let parse = |source| Shebang::parse(source, false);
        assert_eq!(parse(b"return 1"), Ok(Shebang::default()));
        let found = parse(b"#!lua flags=no-writes,allow-oom\nreturn 1").unwrap();
        assert!(found.flags.has(ScriptFlags::NO_WRITES) && found.flags.has(ScriptFlags::ALLOW_OOM));
        assert!(!found.flags.has(ScriptFlags::ALLOW_STALE) && found.code == 31);
        assert!(parse(b"#!lua flags=\nreturn 1").is_ok());
        for source in [&b"#!lua flags=,\nreturn 1"[..], b"#!lua flags=no-writes,\nreturn 1"] {
            assert_eq!(parse(source), Err(ShebangError::Flag(Vec::new())));
        }
        assert_eq!(parse(b"#!lua"), Err(ShebangError::Endless));
        assert_eq!(parse(b"#!js\n"), Err(ShebangError::Engine(b"js".to_vec())));
        assert_eq!(parse(b"#!lua name=x\n"), Err(ShebangError::Option(b"name=x".to_vec())));
        assert_eq!(parse(b"#!lua flags=x\n"), Err(ShebangError::Flag(b"x".to_vec())));
        let name = |source| Shebang::parse(source, true).map(|shebang| shebang.name);
        assert_eq!(name(b"#!lua name=x\n"), Ok(Some(b"x".to_vec())));
        assert_eq!(name(b"#!lua Name=\"x\\x79\"\n"), Ok(Some(b"xy".to_vec())));
        assert_eq!(name(b"#!lua name='x\n"), Err(ShebangError::Quote));
        assert_eq!(name(b"#!js\n"), Err(ShebangError::Nameless));
        assert_eq!(name(b"#! name=x\n"), Err(ShebangError::Engine(Vec::new())));
        assert_eq!(name(b"#!js name=x-y\n"), Err(ShebangError::Name));
        assert_eq!(name(b"#!lua name=\n"), Err(ShebangError::Name));
    }
}
