//! How a row of [`super::options`] becomes an option: its description, its slot in
//! [`super::Config`], and its typed reader.

use super::kind::OptionKind;
use super::options::OptionId;

/// An option, as the table describes it.
pub struct OptionRow {
    pub id: OptionId,
    /// The name in lower case, with dashes.
    pub name: &'static str,
    /// Older names of the option.
    pub aliases: &'static [&'static str],
    pub section: &'static str,
    pub kind: OptionKind,
    pub support: Support,
    pub flags: Flags,
    pub effect: Effect,
    /// The documentation: one element for each line of the row's comment.
    pub doc: &'static [&'static str],
}

/// How far this version of Bobbin follows an option.
#[derive(Clone, Copy)]
pub enum Support {
    Full,
    /// Every value is accepted and has no effect, by design. The text says why.
    Neutral(&'static str),
    /// Every value is accepted and stored, but the option only tunes a feature that Bobbin does not
    /// have yet, and whose own switch is refused.
    Dormant(&'static str),
    /// The option belongs to a feature that Bobbin does not have yet. Only the default is accepted.
    NotYet(&'static str),
    /// Some values, given by the text that CONFIG GET would show, are refused.
    Partial {
        refused: fn(&[u8]) -> bool,
        remark: &'static str,
    },
}

/// What CONFIG SET must do at once after it has changed an option. `admin/config.rs` does it, as it
/// concerns all layers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing: the option is read where it is used.
    None,
    /// How much of the replication stream is kept.
    Backlog,
    /// The limits and lengths of the command log.
    CommandLog,
    /// The addresses to listen on, with and without TLS.
    Listen,
    /// As `Listen`, only for the port without TLS.
    ListenTcp,
    /// As `Listen`, only for the port with TLS.
    ListenTls,
    /// Whether the AOF is written.
    Log,
    /// Whether old files of the AOF are kept.
    LogHistory,
    /// Whether replies wait for the AOF.
    LogSync,
    /// The thread that moves blocks of memory together.
    Defrag,
    /// The server's own log of messages.
    Logging,
    /// The limit that the memory in use is compared with.
    Maxmemory,
    /// Whether writes are refused because there are too few replicas.
    MinReplicas,
    /// The number of file descriptors that the system must provide.
    OpenFiles,
    OomScore,
    /// The password of the default user.
    Password,
    /// The keepalive of connections' sockets.
    Keepalive,
    /// Bits and numbers that are derived from options; see `Server::follow_config`.
    Switches,
    Title,
    /// The settings that new TLS connections begin with.
    Tls,
    TlsReload,
    Watchdog,
    Workers,
}

/// Further properties of an option, combined with `|`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    pub const NONE: Self = Self(0);
    /// The option cannot be set at run time.
    pub const IMMUTABLE: Self = Self(1);
    /// The value is a secret: logs, MONITOR and the slow log do not show it.
    pub const SENSITIVE: Self = Self(2);
    /// The option can be set at run time only if `enable-protected-configs` allows it.
    pub const PROTECTED: Self = Self(4);
    /// CONFIG GET shows the option only for its exact name.
    pub const HIDDEN: Self = Self(8);
    /// The option names a file. Setting the same name again reads the file again.
    pub const VOLATILE: Self = Self(16);
    /// The option cannot be set while a file is loaded.
    pub const AFTER_LOADING: Self = Self(32);
    /// If this version does not support the value, no data is lost and nobody gets access because
    /// of that. So `unsupported-directives warn` skips the directive.
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

/// `name` with dashes in place of underscores. `N` is its length.
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

/// Declares the options: `OptionId`, `OPTIONS` (in the order of the rows), and a reader for each
/// option on `Config`.
///
/// A row is: its comment (the documentation), `name = kind(..) => Support`, then optionally
/// `aliases "..", ".."`, `flags IMMUTABLE, ..` and `then Effect`. The name is written with
/// underscores here, and with dashes everywhere else.
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
        /// The id of an option. Its number is the option's index in `OPTIONS`.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(usize)]
        pub enum OptionId { $($($name,)*)* }

        /// The number of options.
        pub(super) const COUNT: usize = [$($(stringify!($name)),*),*].len();

        /// All options, by section.
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
