//! What a reader lets through, and the versions of RDB.

/// What is let through.
#[derive(Clone, Copy, Debug)]
pub struct DumpOptions {
    pub version_check: VersionCheck,
    /// The longest string that is taken as a value.
    pub string_len_max: usize,
    /// The checksum is not looked at.
    pub trusted: bool,
}

impl Default for DumpOptions {
    fn default() -> Self {
        Self { version_check: VersionCheck::Strict, string_len_max: STRING_LEN_MAX, trusted: false }
    }
}

impl DumpOptions {
    /// The longest key that is taken, and the longest element of a collection.
    pub(crate) fn element_len_max(&self) -> usize {
        self.string_len_max.min(bobbin_store::KEY_LEN_MAX)
    }
}

/// The option `rdb-version-check`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VersionCheck {
    /// Only versions whose format is known: 1 to 12, and 80. (valkey-server 9.1.2 refuses 12, which
    /// is what redis-server 8.0 writes.)
    #[default]
    Strict,
    /// Any version but 0; of files those that their family has: Valkey's begin with 80.
    Relaxed,
}

impl VersionCheck {
    /// Whether a file of this version may be loaded. The headers of files tell two families of
    /// versions apart.
    pub(crate) fn allows_file(self, version: u16, is_valkey: bool) -> bool {
        match self {
            Self::Strict if is_valkey => version == RDB_VERSION,
            Self::Strict => matches!(version, 1..=REDIS_VERSION_MAX),
            Self::Relaxed => version >= 1 && is_valkey == (version >= RDB_VERSION),
        }
    }

    /// Whether a payload of this version may be read.
    pub(crate) fn allows(self, version: u16) -> bool {
        match self {
            Self::Strict => matches!(version, 1..=REDIS_VERSION_MAX | RDB_VERSION),
            Self::Relaxed => version >= 1,
        }
    }
}

/// The version that is written, as valkey 9.1 does.
pub const RDB_VERSION: u16 = 80;
/// The longest string that is read unless told otherwise: whatever is there, as what is not there
/// is refused before room is made for it.
pub const STRING_LEN_MAX: usize = usize::MAX;

/// The last version that Redis and Valkey share. What Redis numbered after it are its own forms of
/// hashes; all others are as before.
pub(crate) const RDB_VERSION_SHARED_MAX: u16 = 11;
/// The version of redis-server 7.4 to 8.0.
pub(crate) const REDIS_VERSION_MAX: u16 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_may_be_longer_than_keys_and_elements() {
        let options = DumpOptions::default();
        assert!(options.string_len_max > 1 << 40);
        assert_eq!(options.element_len_max(), bobbin_store::KEY_LEN_MAX);
        assert_eq!(DumpOptions { string_len_max: 7, ..options }.element_len_max(), 7);
    }

    /// What valkey-server 9.1.2 loads with `rdb-version-check relaxed`.
    #[test]
    fn a_relaxed_check_still_tells_two_families_apart() {
        let allows = |version, is_valkey| VersionCheck::Relaxed.allows_file(version, is_valkey);
        assert!([1, 12, 20, 79].iter().all(|&version| allows(version, false)));
        assert!([0, 80, 99, 999].iter().all(|&version| !allows(version, false)));
        assert!([80, 81, 999].iter().all(|&version| allows(version, true)));
        assert!([0, 11, 79].iter().all(|&version| !allows(version, true)));
    }
}
