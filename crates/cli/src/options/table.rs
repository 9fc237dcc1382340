//! Every option, defined once.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::PathBuf, time::Duration};

use bobbin_client::{AddressFamily, ServerAddress, Target};
use bobbin_resp::split_arguments;

use crate::format::ReplyForm;

use super::{Debugging, Mode, Options, ProtocolChoice, Repeat, Shell, StandardInput, cluster};

/// One option.
pub struct CommandLineOption {
    /// As they are typed; the first is the one to show.
    pub names: &'static [&'static str],
    /// What its value is called.
    pub value: Option<&'static str>,
    pub section: OptionSection,
    pub help: &'static str,
    pub apply: OptionEffect,
}

/// What an option does to the options.
#[derive(Clone, Copy)]
pub enum OptionEffect {
    Switch(fn(&mut Options)),
    /// With the value behind it. The error is what to tell the user.
    Value(fn(&mut Options, &[u8]) -> Result<(), String>),
    /// With as many words behind it as it takes.
    Words(fn(&mut Options, &[Vec<u8>]) -> Result<usize, String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionSection {
    Connection,
    Commands,
    Output,
    Latency,
    Keys,
    Data,
    Cluster,
    Tls,
    About,
}

impl OptionSection {
    pub const ALL: [Self; 9] = [
        Self::Connection,
        Self::Commands,
        Self::Output,
        Self::Latency,
        Self::Keys,
        Self::Data,
        Self::Cluster,
        Self::Tls,
        Self::About,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::Connection => "Connection",
            Self::Commands => "Commands",
            Self::Output => "Output",
            Self::Latency => "Latency and load",
            Self::Keys => "Looking at keys",
            Self::Data => "Moving data",
            Self::Cluster => "Managing clusters",
            Self::Tls => "TLS",
            Self::About => "About this program",
        }
    }
}

/// All options, in the order in which they are shown.
pub fn flags() -> impl Iterator<Item = &'static CommandLineOption> {
    FLAGS.iter().chain(cluster::FLAGS)
}

/// The names of all options.
pub fn names() -> impl Iterator<Item = &'static str> {
    flags().flat_map(|flag| flag.names.iter().copied())
}

/// The option of that name.
pub fn find(name: &[u8]) -> Option<&'static CommandLineOption> {
    flags().find(|flag| flag.names.iter().any(|known| known.as_bytes() == name))
}

/// The option of one letter whose value is called by this name: `-p` for `--port`.
pub fn of_value(name: &str) -> Option<&'static str> {
    let value = name.strip_prefix("--")?;
    let is_it = |flag: &&CommandLineOption| flag.value == Some(value) && flag.names[0].len() == 2;
    flags().find(is_it).map(|flag| flag.names[0])
}

pub const fn switch(
    section: OptionSection,
    names: &'static [&'static str],
    help: &'static str,
    apply: fn(&mut Options),
) -> CommandLineOption {
    CommandLineOption { names, value: None, section, help, apply: OptionEffect::Switch(apply) }
}

pub const fn value(
    section: OptionSection,
    names: &'static [&'static str],
    value: &'static str,
    help: &'static str,
    apply: fn(&mut Options, &[u8]) -> Result<(), String>,
) -> CommandLineOption {
    CommandLineOption {
        names,
        value: Some(value),
        section,
        help,
        apply: OptionEffect::Value(apply),
    }
}

/// An option that reads all that follows it, and says how many words it took.
pub const fn words(
    section: OptionSection,
    names: &'static [&'static str],
    value: &'static str,
    help: &'static str,
    apply: fn(&mut Options, &[Vec<u8>]) -> Result<usize, String>,
) -> CommandLineOption {
    CommandLineOption {
        names,
        value: Some(value),
        section,
        help,
        apply: OptionEffect::Words(apply),
    }
}

use OptionSection::{About, Commands, Connection, Data, Keys, Latency, Output, Tls};

/// All but those of [`cluster`].
static FLAGS: &[CommandLineOption] = &[
    value(Connection, &["-h"], "host", "Connect to this host (127.0.0.1).", |options, value| {
        set_host(&mut options.target, text(value)?);
        Ok(())
    }),
    value(Connection, &["-p"], "port", "Connect to this port (6379).", |options, value| {
        let port = number(value).ok().and_then(|port: i64| u16::try_from(port).ok());
        set_port(&mut options.target, port.ok_or("Invalid server port.")?);
        Ok(())
    }),
    value(
        Connection,
        &["-s"],
        "socket",
        "Connect to this Unix socket, whatever host and port say.",
        |options, value| {
            options.target.address = ServerAddress::Unix(path(value));
            Ok(())
        },
    ),
    value(
        Connection,
        &["-u"],
        "uri",
        "Connect to redis://user:password@host:port/database (valkey:// is the same, rediss:// and \
         valkeys:// with TLS, unix:///path?db=0 a socket).",
        |options, value| options.target.take_url(&text(value)?).map_err(|error| error.to_string()),
    ),
    value(
        Connection,
        &["-a", "--pass"],
        "password",
        "Authenticate with this password. The environment's VALKEYCLI_AUTH or REDISCLI_AUTH is \
         safer: others can see the arguments of a process.",
        |options, value| {
            options.target.password = Some(value.to_vec());
            Ok(())
        },
    ),
    value(Connection, &["--user"], "name", "Authenticate as this user.", |options, value| {
        options.target.user = Some(value.to_vec());
        Ok(())
    }),
    switch(Connection, &["--askpass"], "Ask for the password.", |options| {
        options.ask_password = true;
    }),
    switch(
        Connection,
        &["--no-auth-warning"],
        "Do not warn of a password on the command line.",
        |options| options.auth_warning = false,
    ),
    value(Connection, &["-n"], "number", "Use this database.", |options, value| {
        let database = number(value).ok().and_then(|database: i64| u32::try_from(database).ok());
        options.target.database = Some(database.ok_or("Invalid database number for -n.")?);
        Ok(())
    }),
    value(
        Connection,
        &["-t"],
        "seconds",
        "Give up connecting after this time; 0 leaves that to the system.",
        |options, value| {
            let seconds: Option<f64> = number(value).ok();
            let seconds = seconds.filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds));
            let seconds = seconds.ok_or("Invalid connection timeout for -t.")?;
            options.transport.timeout = (seconds > 0.0).then(|| Duration::from_secs_f64(seconds));
            Ok(())
        },
    ),
    switch(Connection, &["-2"], "Speak version 2 of the protocol.", |options| {
        options.protocol = match options.protocol {
            // That they exclude each other is said when all options are known.
            ProtocolChoice::Resp3 => ProtocolChoice::Resp3,
            _ => ProtocolChoice::Resp2,
        };
    }),
    switch(Connection, &["-3"], "Speak version 3 of the protocol.", |options| {
        options.protocol = ProtocolChoice::Resp3;
    }),
    switch(Connection, &["-4"], "Try a host's IPv4 addresses first.", |options| {
        options.transport.family = AddressFamily::Ipv4;
    }),
    switch(Connection, &["-6"], "Try a host's IPv6 addresses first.", |options| {
        options.transport.family = AddressFamily::Ipv6;
    }),
    switch(Connection, &["-c"], "Follow a cluster's MOVED and ASK.", |options| {
        options.cluster = true;
    }),
    switch(Connection, &["--mptcp"], "Connect by multipath TCP.", |options| {
        options.transport.multipath = true;
    }),
    value(
        Commands,
        &["-r"],
        "times",
        "Run the command this many times; a negative number means for ever.",
        |options, value| {
            let times: i64 = number(value).map_err(|()| "Invalid number for -r.")?;
            options.repeat = Some(u64::try_from(times).map_or(Repeat::Forever, Repeat::Times));
            Ok(())
        },
    ),
    value(
        Commands,
        &["-i"],
        "seconds",
        "Wait so long between repetitions, samples, looks of top, or cycles of --scan and --stat \
         (per 100 cycles of --bigkeys and similar modes). Fractions are fine.",
        |options, value| {
            options.interval = Some(seconds(value).ok_or("Invalid interval for -i.")?)
                .filter(|interval| !interval.is_zero());
            Ok(())
        },
    ),
    switch(Commands, &["-x"], "Read the last argument from the standard input.", |options| {
        options.standard_input = match options.standard_input {
            StandardInput::Tag(_) => options.standard_input.clone(),
            _ => StandardInput::LastArgument,
        };
    }),
    value(
        Commands,
        &["-X"],
        "tag",
        "Read the argument that equals the tag from the standard input.",
        |options, value| {
            options.standard_input = StandardInput::Tag(value.to_vec());
            Ok(())
        },
    ),
    switch(
        Commands,
        &["--quoted-input"],
        "Take arguments in double quotes as quoted strings, with \\xHH and the like.",
        |options| options.quoted_input = true,
    ),
    switch(Commands, &["-e"], "End with an error status when a command fails.", |options| {
        options.fail_on_error = true;
    }),
    value(
        Commands,
        &["--eval"],
        "file",
        "Run the Lua script in the file; the arguments are its keys, a comma, and its ARGV.",
        |options, value| {
            options.modes.script = value.to_vec();
            options.choose(Mode::Eval);
            Ok(())
        },
    ),
    switch(
        Commands,
        &["--ldb"],
        "With --eval: debug the script. The server does so in a process of its own, and forgets what \
         the script changed.",
        |options| {
            let debugging = options.modes.debugging;
            options.modes.debugging = Some(debugging.unwrap_or(Debugging::Forked));
        },
    ),
    switch(
        Commands,
        &["--ldb-sync-mode"],
        "The same in the server itself: others wait meanwhile, and changes stay.",
        |options| options.modes.debugging = Some(Debugging::Synchronous),
    ),
    switch(
        Output,
        &["--raw"],
        "Print replies as they are (so it is without a terminal).",
        |options| {
            options.style.form = ReplyForm::Raw;
        },
    ),
    switch(Output, &["--no-raw"], "Print replies for people, without a terminal too.", |options| {
        options.style.form = ReplyForm::Tty;
    }),
    switch(Output, &["--csv"], "Print comma-separated values.", |options| {
        options.style.form = ReplyForm::Csv;
    }),
    switch(
        Output,
        &["--json"],
        "Print JSON. The protocol is version 3 unless -2 says otherwise.",
        |options| {
            choose_json(options, ReplyForm::Json);
        },
    ),
    switch(Output, &["--quoted-json"], "The same in plain ASCII.", |options| {
        choose_json(options, ReplyForm::QuotedJson);
    }),
    value(
        Output,
        &["-d"],
        "delimiter",
        "Between the elements of a reply with --raw (a line feed).",
        |options, value| {
            options.style.element_delimiter = value.to_vec();
            Ok(())
        },
    ),
    value(
        Output,
        &["-D"],
        "delimiter",
        "Behind each reply with --raw (a line feed).",
        |options, value| {
            options.style.reply_delimiter = value.to_vec();
            Ok(())
        },
    ),
    value(
        Output,
        &["--show-pushes"],
        "yes|no",
        "Whether to print pushes of version 3 (on a terminal: yes).",
        |options, value| {
            options.show_pushes = match value.first().map(u8::to_ascii_lowercase) {
                Some(b'y') => true,
                Some(b'n') => false,
                _ => return Err("--show-pushes is 'yes' or 'no'.".to_owned()),
            };
            Ok(())
        },
    ),
    switch(Output, &["--verbose"], "Say more about what is done.", |options| {
        options.verbose = true;
    }),
    switch(
        Latency,
        &["--latency"],
        "Send PING after PING and show the shortest, longest and mean time. Without a terminal, \
         or with --raw or --csv, for one second (or -i) only.",
        |options| options.choose(Mode::Latency),
    ),
    switch(
        Latency,
        &["--latency-history"],
        "As --latency, with a new line every 15 seconds (or -i).",
        |options| {
            options.modes.latency_history = true;
            options.choose(Mode::Latency);
        },
    ),
    switch(
        Latency,
        &["--latency-dist"],
        "Draw the distribution as a spectrum of colours, a line every second (or -i).",
        |options| options.choose(Mode::LatencyDistribution),
    ),
    switch(Latency, &["--mono"], "Draw the spectrum in shades of grey.", |options| {
        options.modes.monochrome = true;
    }),
    value(
        Latency,
        &["--intrinsic-latency"],
        "seconds",
        "Measure for so long how late the system lets a busy process run. No server is needed.",
        |options, value| {
            let seconds = number(value).map_err(|()| "Invalid number for --intrinsic-latency.")?;
            options.modes.intrinsic_seconds = seconds;
            options.choose(Mode::IntrinsicLatency);
            Ok(())
        },
    ),
    value(
        Latency,
        &["--lru-test"],
        "keys",
        "Read and write this many keys, a fifth of them four times out of five, and count the hits.",
        |options, value| {
            let keys: Option<u64> = number(value).ok();
            let keys = keys.filter(|&keys| keys > 0);
            options.modes.lru_keys = keys.ok_or("Invalid number for --lru-test.")?;
            options.choose(Mode::LruTest);
            Ok(())
        },
    ),
    switch(Latency, &["--stat"], "Print a line of figures every second (or -i).", |options| {
        options.choose(Mode::Statistics);
    }),
    switch(Keys, &["--scan"], "List the keys, by SCAN.", |options| options.choose(Mode::Scan)),
    value(
        Keys,
        &["--pattern"],
        "pattern",
        "Only keys that match, with --scan, --bigkeys and similar modes.",
        |options, value| {
            options.modes.pattern = Some(value.to_vec());
            Ok(())
        },
    ),
    value(
        Keys,
        &["--quoted-pattern"],
        "pattern",
        "As --pattern, as a quoted string.",
        |options, value| {
            let pattern = unquote(value).ok_or("Invalid quoted string for --quoted-pattern.")?;
            options.modes.pattern = Some(pattern);
            Ok(())
        },
    ),
    value(Keys, &["--count"], "count", "How much each SCAN looks at (10).", |options, value| {
        options.modes.count = number(value).map_err(|()| "Invalid number for --count.")?;
        Ok(())
    }),
    switch(Keys, &["--bigkeys"], "Find the keys with the most elements of each type.", |options| {
        options.choose(Mode::BigKeys);
    }),
    switch(Keys, &["--memkeys"], "Find the keys that take the most memory.", |options| {
        options.choose(Mode::MemoryKeys);
    }),
    value(
        Keys,
        &["--memkeys-samples"],
        "count",
        "As --memkeys, looking at this many elements of each key (0: all).",
        |options, value| choose_samples(options, value, Mode::MemoryKeys),
    ),
    switch(
        Keys,
        &["--keystats"],
        "Both at once: the largest keys by memory, and how sizes are distributed.",
        |options| options.choose(Mode::KeyStatistics),
    ),
    value(
        Keys,
        &["--keystats-samples"],
        "count",
        "As --keystats, looking at this many elements of each key (0: all).",
        |options, value| choose_samples(options, value, Mode::KeyStatistics),
    ),
    value(
        Keys,
        &["--cursor"],
        "cursor",
        "Where --keystats goes on, as it said when it was interrupted.",
        |options, value| {
            options.modes.cursor = number(value).map_err(|()| "Invalid number for --cursor.")?;
            Ok(())
        },
    ),
    value(Keys, &["--top"], "count", "How many keys --keystats lists (10).", |options, value| {
        options.modes.top = number(value).map_err(|()| "Invalid number for --top.")?;
        Ok(())
    }),
    switch(
        Keys,
        &["--hotkeys"],
        "Find the keys used most: by their counts with an LFU maxmemory-policy, else by HOTKEYS.",
        |options| options.choose(Mode::HotKeys),
    ),
    value(
        Keys,
        &["--hotkeys-count"],
        "count",
        "As --hotkeys, and how many of them to list (16).",
        |options, value| {
            let count: Option<usize> = number(value).ok();
            let count = count.filter(|count| (1..=HOT_KEYS_MAX).contains(count));
            options.modes.hot_keys = count.ok_or("Invalid number for --hotkeys-count.")?;
            options.choose(Mode::HotKeys);
            Ok(())
        },
    ),
    switch(
        Data,
        &["--pipe"],
        "Send the standard input, which is the protocol's own bytes, and count the replies.",
        |options| options.choose(Mode::Pipe),
    ),
    value(
        Data,
        &["--pipe-timeout"],
        "seconds",
        "How long --pipe waits for replies when all has been sent (30; 0: for ever).",
        |options, value| {
            let timeout: u64 = number(value).map_err(|()| "Invalid number for --pipe-timeout.")?;
            options.modes.pipe_timeout = (timeout > 0).then(|| Duration::from_secs(timeout));
            Ok(())
        },
    ),
    value(
        Data,
        &["--rdb"],
        "file",
        "Fetch the data as an RDB file ('-': standard output).",
        |options, value| {
            options.modes.file = value.to_vec();
            options.choose(Mode::Rdb);
            Ok(())
        },
    ),
    value(
        Data,
        &["--functions-rdb"],
        "file",
        "The same with the functions only, without keys.",
        |options, value| {
            options.modes.file = value.to_vec();
            options.choose(Mode::FunctionsRdb);
            Ok(())
        },
    ),
    switch(
        Data,
        &["--replica", "--slave"],
        "Attach as a replica and print the commands that arrive.",
        |options| options.choose(Mode::Replica),
    ),
    switch(Tls, &["--tls"], "Connect with TLS.", |options| options.target.tls = true),
    value(
        Tls,
        &["--sni"],
        "host",
        "The server name to ask for; the certificate must have it.",
        |options, value| {
            options.tls.server_name = Some(text(value)?);
            Ok(())
        },
    ),
    value(
        Tls,
        &["--cacert"],
        "file",
        "Believe the authorities in this PEM file, instead of the system's.",
        |options, value| {
            options.tls.authorities = Some(path(value));
            Ok(())
        },
    ),
    value(Tls, &["--cacertdir"], "folder", "The same for a folder.", |options, value| {
        options.tls.authorities_folder = Some(path(value));
        Ok(())
    }),
    switch(Tls, &["--insecure"], "Believe any certificate.", |options| {
        options.tls.insecure = true;
    }),
    value(Tls, &["--cert"], "file", "Show the certificate in this PEM file.", |options, value| {
        options.tls.certificate = Some(path(value));
        Ok(())
    }),
    value(
        Tls,
        &["--key"],
        "file",
        "Its private key, where it is not in the same file.",
        |options, value| {
            options.tls.key = Some(path(value));
            Ok(())
        },
    ),
    value(
        Tls,
        &["--tls-ciphers"],
        "list",
        "Ciphers of TLS 1.2 by OpenSSL's names, with colons between, the preferred first.",
        |options, value| {
            options.tls.ciphers = Some(text(value)?);
            Ok(())
        },
    ),
    value(Tls, &["--tls-ciphersuites"], "list", "The same for TLS 1.3.", |options, value| {
        options.tls.ciphersuites = Some(text(value)?);
        Ok(())
    }),
    switch(About, &["--help"], "Print this help.", |options| options.choose(Mode::Help)),
    switch(About, &["--version", "-v"], "Print the version.", |options| {
        options.choose(Mode::Version);
    }),
    switch(About, &["--man"], "Print the man page, in roff.", |options| {
        options.choose(Mode::Manual);
    }),
    value(
        About,
        &["--completion"],
        "bash|zsh|fish",
        "Print a completion script for that shell.",
        |options, value| {
            options.modes.shell = match value {
                b"bash" => Shell::Bash,
                b"zsh" => Shell::Zsh,
                b"fish" => Shell::Fish,
                _ => return Err("--completion is 'bash', 'zsh' or 'fish'.".to_owned()),
            };
            options.choose(Mode::Completion);
            Ok(())
        },
    ),
    value(About, &["--test_hint"], "input", "Print the hint for this input.", |options, value| {
        options.modes.hint_input = value.to_vec();
        options.choose(Mode::TestHint);
        Ok(())
    }),
    value(
        About,
        &["--test_hint_file"],
        "file",
        "Check the hints that the file lists, in the form of Valkey's test_cli_hint_suite.",
        |options, value| {
            options.modes.hint_input = value.to_vec();
            options.choose(Mode::TestHintFile);
            Ok(())
        },
    ),
];

/// A thousand years: more is a mistake, and does not fit a clock.
const SECONDS_MAX: f64 = 3.2e10;
const HOT_KEYS_MAX: usize = 10_000;

fn set_host(target: &mut Target, host: String) {
    match &mut target.address {
        ServerAddress::Tcp { host: old, .. } => *old = host,
        // A socket wins over host and port, wherever it stands.
        ServerAddress::Unix(_) => {}
    }
}

fn set_port(target: &mut Target, port: u16) {
    if let ServerAddress::Tcp { port: old, .. } = &mut target.address {
        *old = port;
    }
}

fn choose_json(options: &mut Options, form: ReplyForm) {
    options.style.form = form;
    if options.protocol == ProtocolChoice::Default {
        options.protocol = ProtocolChoice::Resp3IfThere;
    }
}

fn choose_samples(options: &mut Options, value: &[u8], mode: Mode) -> Result<(), String> {
    let samples = number(value).map_err(|()| "Invalid number of samples.")?;
    options.modes.memory_samples = Some(samples);
    options.choose(mode);
    Ok(())
}

pub fn text(value: &[u8]) -> Result<String, String> {
    String::from_utf8(value.to_vec()).map_err(|_| "Not a UTF-8 text.".to_owned())
}

fn path(value: &[u8]) -> PathBuf {
    OsStr::from_bytes(value).into()
}

pub fn number<T: std::str::FromStr>(value: &[u8]) -> Result<T, ()> {
    std::str::from_utf8(value).map_err(|_| ())?.parse().map_err(|_| ())
}

fn seconds(value: &[u8]) -> Option<Duration> {
    let seconds: f64 = number(value).ok()?;
    (0.0..=SECONDS_MAX).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

/// What a value in quotes means, or the value itself where it is not quoted.
pub fn unquote(value: &[u8]) -> Option<Vec<u8>> {
    // The line feed ends the word: a quoted word must not be cut short by the end of the line.
    let mut words = split_arguments(&[value, b"\n"].concat())?;
    let quoted = value.len() > 1 && matches!(value[0], b'"' | b'\'');
    match words.len() {
        1 if quoted || words[0] == value => words.pop(),
        _ if !quoted => Some(value.to_vec()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_described() {
        let mut seen = std::collections::HashSet::new();
        for flag in flags() {
            assert!(flag.help.ends_with('.'), "{}", flag.names[0]);
            let takes_value = matches!(flag.apply, OptionEffect::Value(_) | OptionEffect::Words(_));
            assert_eq!(flag.value.is_some(), takes_value, "{}", flag.names[0]);
            for name in flag.names {
                assert!(name.starts_with('-'));
                assert!(seen.insert(name), "{name} is there twice");
            }
        }
    }

    #[test]
    fn quoted_values() {
        assert_eq!(unquote(br#""\x41\x41""#), Some(b"AA".to_vec()));
        assert_eq!(unquote(br#"plain \x41"#), Some(br#"plain \x41"#.to_vec()));
        assert_eq!(unquote(br#""Unterminated"#), None);
        assert_eq!(unquote(br#""arg1" "arg2""#), None);
    }
}
