//! How a row of [`super::options`] becomes an option: its description, its place in
//! [`super::Config`], and its typed reader.

use super::kind::OptionKind;
use super::options::OptionId;

/// One option as the table describes it.
pub struct OptionRow {
    pub id: OptionId,
    /// As it is written, in lower case with dashes.
    pub name: &'static str,
    /// Older names that mean the same.
    pub aliases: &'static [&'static str],
    pub section: &'static str,
    pub kind: OptionKind,
    pub support: Support,
    pub flags: Flags,
    pub effect: Effect,
    /// Sentences in our own words, one element for each line of the row's comment.
    pub doc: &'static [&'static str],
}

/// How far this version of Bobbin follows an option.
#[derive(Clone, Copy)]
pub enum Support {
    Full,
    /// Accepted with every value, and without effect by design. Says why.
    Neutral(&'static str),
    /// Accepted and kept, but it only tunes a feature that is not there yet (and whose own switch
    /// is refused).
    Dormant(&'static str),
    /// Part of a feature that is not there yet: every value but the default is refused.
    NotYet(&'static str),
    /// Some values (by the text CONFIG GET would show) are refused.
    Partial {
        refused: fn(&[u8]) -> bool,
        remark: &'static str,
    },
}

/// What follows at once when CONFIG SET changes an option. `admin/config.rs` does it, as it has to
/// do with all layers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing: the option is read where it is used.
    None,
    /// The size of the slow log and the like.
    CommandLog,
    /// Addresses are listened on, for TLS and without.
    Listen,
    /// `Listen`, for the port without TLS alone.
    ListenTcp,
    /// `Listen`, for the port with TLS alone.
    ListenTls,
    /// The log of changes is turned on or off.
    Log,
    /// Old files of the log of changes may go.
    LogHistory,
    /// Replies wait for the log of changes, or do not.
    LogSync,
    /// The thread that moves blocks of memory together.
    Defrag,
    /// The server's own log.
    Logging,
    /// Memory in use is compared with the limit.
    Maxmemory,
    /// Writes are refused while there are too few replicas, or are not.
    MinReplicas,
    /// The system is asked for the necessary file descriptors.
    OpenFiles,
    OomScore,
    /// The default user's password.
    Password,
    /// Sockets of connections.
    Keepalive,
    /// What is told by a bit or a number of the server; see `Server::follow_config`.
    Switches,
    Title,
    /// What new connections begin with.
    Tls,
    TlsReload,
    Watchdog,
    Workers,
}

/// What else is special about an option; combined with `|` in the table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    pub const NONE: Self = Self(0);
    /// Not settable at run time.
    pub const IMMUTABLE: Self = Self(1);
    /// Its value is a secret: not shown in logs, MONITOR and the slow log.
    pub const SENSITIVE: Self = Self(2);
    /// Settable at run time only where `enable-protected-configs` allows it.
    pub const PROTECTED: Self = Self(4);
    /// Answers CONFIG GET only to its exact name.
    pub const HIDDEN: Self = Self(8);
    /// Names a file: set to the same name again, what is in it is taken up anew.
    pub const VOLATILE: Self = Self(16);
    /// Not settable while a file is loaded.
    pub const AFTER_LOADING: Self = Self(32);
    /// Where this version cannot follow it, no data is lost and nobody gets access by that:
    /// `unsupported-directives warn` passes over it.
    pub const IGNORABLE: Self = Self(64);

    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(super) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl OptionRow {
    pub fn is_immutable(&self) -> bool {
        self.flags.contains(Flags::IMMUTABLE)
    }

    pub fn is_sensitive(&self) -> bool {
        self.flags.contains(Flags::SENSITIVE)
    }
}

/// `name` with dashes for underscores; `N` is its length.
pub(super) const fn dashed<const N: usize>(name: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let mut index = 0;
    while index < N {
        let byte = name.as_bytes()[index];
        bytes[index] = if byte == b'_' { b'-' } else { byte };
        index += 1;
    }
    bytes
}

/// Declares the options: `OptionId`, `OPTIONS` (in the order of the rows) and a reader for each on
/// `Config`.
///
/// A row is: its comment (the documentation), `name = kind(..) => Support`, then, if any, `aliases
/// "..", ".."`, `flags IMMUTABLE, ..` and `then Effect`. The name is written with underscores and
/// used with dashes.
macro_rules! options {
    ($(
        section $section:literal {$(
            $(#[doc = $doc:literal])+
            $name:ident = $kind:ident($($argument:tt)*) => $support:expr
                $(, aliases $($alias:literal)+)?
                $(, flags $($flag:ident)+)?
                $(, then $effect:ident)?;
        )*}
    )*) => {
        /// Names an option; as a number it is the option's place in `OPTIONS`.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(usize)]
        pub enum OptionId { $($($name,)*)* }

        /// How many options there are.
        pub(super) const COUNT: usize = [$($(stringify!($name)),*),*].len();

        /// Every option, by section.
        pub static OPTIONS: &[OptionRow] = &[$($(
            OptionRow {
                id: OptionId::$name,
                name: {
                    const BYTES: [u8; stringify!($name).len()] = dashed(stringify!($name));
                    match std::str::from_utf8(&BYTES) {
                        Ok(name) => name,
                        Err(_) => panic!("an identifier is UTF-8"),
                    }
                },
                aliases: &[$($($alias),+)?],
                section: $section,
                kind: kind!($kind($($argument)*)),
                support: $support,
                flags: Flags::NONE$($(.with(Flags::$flag))+)?,
                effect: [$(Effect::$effect,)? Effect::None][0],
                doc: &[$($doc),+],
            },
        )*)*];

        impl Config {$($(
            $(#[doc = $doc])+
            #[inline]
            pub fn $name(&self) -> value_type!($kind($($argument)*)) {
                read!(self, $name, $kind($($argument)*))
            }
        )*)*}
    };
}

macro_rules! kind {
    (yes_no($default:expr)) => {
        OptionKind::YesNo { default: $default }
    };
    (integer($min:expr, $max:expr, $default:expr)) => {
        OptionKind::Integer { min: $min, max: $max, default: $default }
    };
    (integer_or_auto($min:expr, $max:expr)) => {
        OptionKind::IntegerOrAuto { min: $min, max: $max }
    };
    (memory($min:expr, $max:expr, $default:expr)) => {
        OptionKind::Memory { min: $min, max: $max, default: $default }
    };
    (signed_memory($min:expr, $max:expr, $default:expr)) => {
        OptionKind::SignedMemory { min: $min, max: $max, default: $default }
    };
    (memory_or_percent($default:expr)) => {
        OptionKind::MemoryOrPercent { default: $default }
    };
    (octal($max:expr, $default:expr)) => {
        OptionKind::Octal { max: $max, default: $default }
    };
    (choice($type:ident, $variant:ident)) => {
        OptionKind::Choice { words: $type::WORDS, default: $type::$variant as i64 }
    };
    (flags($type:ident, $check:expr)) => {
        OptionKind::Flags { words: $type::WORDS, default: 0, check: $check }
    };
    (text($default:expr)) => {
        OptionKind::Text { default: $default, check: any }
    };
    (text($default:expr, $check:expr)) => {
        OptionKind::Text { default: $default, check: $check }
    };
    (words($default:expr, $parse:expr)) => {
        OptionKind::Words { default: $default, parse: $parse }
    };
    (letters($parse:expr, $format:expr)) => {
        OptionKind::Letters { parse: $parse, format: $format }
    };
    (directory()) => {
        OptionKind::Directory
    };
}

macro_rules! value_type {
    (yes_no($($_:tt)*)) => { bool };
    (memory($($_:tt)*)) => { u64 };
    (choice($type:ident, $variant:ident)) => { $type };
    (flags($type:ident, $check:expr)) => { $type };
    (text($($_:tt)*)) => { Arc<[u8]> };
    (words($($_:tt)*)) => { Arc<[u8]> };
    (directory()) => { Arc<[u8]> };
    ($number:ident($($_:tt)*)) => { i64 };
}

macro_rules! read {
    ($config:expr, $name:ident, yes_no($($_:tt)*)) => {
        $config.number(OptionId::$name) != 0
    };
    ($config:expr, $name:ident, memory($($_:tt)*)) => {
        $config.number(OptionId::$name) as u64
    };
    ($config:expr, $name:ident, choice($type:ident, $variant:ident)) => {
        $type::from_number($config.number(OptionId::$name))
    };
    ($config:expr, $name:ident, flags($type:ident, $check:expr)) => {
        $type::from_number($config.number(OptionId::$name))
    };
    ($config:expr, $name:ident, text($($_:tt)*)) => {
        $config.text(OptionId::$name)
    };
    ($config:expr, $name:ident, words($($_:tt)*)) => {
        $config.text(OptionId::$name)
    };
    ($config:expr, $name:ident, directory()) => {
        super::working_directory()
    };
    ($config:expr, $name:ident, $number:ident($($_:tt)*)) => {
        $config.number(OptionId::$name)
    };
}

pub(super) use kind;
pub(super) use options;
pub(super) use read;
pub(super) use value_type;
