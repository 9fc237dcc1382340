//! CONFIG GET and CONFIG SET, without the protocol around them.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use bobbin_io::error_text;

use super::kind::{OptionKind, OptionValue};
use super::options::{OPTIONS, OptionId};
use super::table::{Flags, OptionRow, Support};
use super::{Config, find, row};
use crate::base::glob;

/// Options that a change must not contain.
#[derive(Clone, Copy, Default)]
pub struct Barred<'a> {
    /// Whether `enable-protected-configs` forbids protected options to this client.
    pub protected: bool,
    /// While a file is loaded: the error for options that must wait until the end of the loading.
    pub loading: Option<&'a str>,
}

/// Why a change was refused: the text of the reply, beginning with its code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub text: String,
}

/// Makes the process follow changed options. It is called once for each changed option, after all
/// values are stored. An error takes back all changes of the command; then it is called again for
/// the options that it has already followed.
///
/// It runs while other changes wait. So it must not wait for a thread that may want to change an
/// option.
pub trait Apply {
    fn apply(&mut self, option: OptionId, config: &Config) -> Result<(), String>;
}

impl<F: FnMut(OptionId, &Config) -> Result<(), String>> Apply for F {
    fn apply(&mut self, option: OptionId, config: &Config) -> Result<(), String> {
        self(option, config)
    }
}

/// The options that CONFIG GET has found so far.
#[derive(Default)]
pub struct Selection(BTreeMap<Vec<u8>, (Vec<u8>, &'static OptionRow)>);

impl Selection {
    /// Adds the options that match a pattern. A name without wildcards is shown as the client wrote
    /// it.
    pub fn add(&mut self, pattern: &[u8]) {
        if !glob::is_pattern(pattern) {
            if let Some((row, name)) = find(pattern) {
                self.0.entry(name.into()).or_insert_with(|| (pattern.to_vec(), row));
            }
            return;
        }
        let pattern = glob::CaselessPattern::new(pattern);
        for row in OPTIONS.iter().filter(|row| !row.flags.contains(Flags::HIDDEN)) {
            for name in std::iter::once(&row.name).chain(row.aliases) {
                if pattern.matches(name.as_bytes()) {
                    self.0.entry((*name).into()).or_insert_with(|| ((*name).into(), row));
                }
            }
        }
    }

    /// The options found, each once, ordered by name, with their values.
    pub fn shown(self, config: &Config) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.0.into_values().map(|(name, row)| (name, config.shown(row))).collect()
    }
}

impl Config {
    /// CONFIG SET: sets all of the pairs, or none. Returns the options whose values changed.
    pub fn set(
        &self,
        pairs: &[(&[u8], &[u8])],
        barred: Barred<'_>,
        apply: &mut dyn Apply,
    ) -> Result<Vec<OptionId>, ConfigError> {
        let options = settable(pairs, barred)?;
        let _one_at_a_time = self.change.lock();
        let mut changed: Vec<(&'static OptionRow, &'static str, OptionValue)> = Vec::new();
        for ((row, name), (_, text)) in options.iter().zip(pairs) {
            let old = self.value(row);
            let kept = parse_for_set(row, text, &old).and_then(|new| {
                let is_new = new != old || row.flags.contains(Flags::VOLATILE);
                self.enter(row, &new).map(|()| is_new)
            });
            match kept {
                Ok(true) => changed.push((row, name, old)),
                Ok(false) => {}
                Err(reason) => {
                    self.restore(&changed);
                    return Err(failed(name, &reason));
                }
            }
        }
        for index in 0..changed.len() {
            let (row, name, _) = changed[index];
            let Err(reason) = apply.apply(row.id, self) else { continue };
            log::error!(
                "Failed applying new configuration. Possibly related to new {name} setting. \
                 Restoring previous settings."
            );
            self.restore(&changed);
            for (row, name, _) in &changed[..=index] {
                if let Err(reason) = apply.apply(row.id, self) {
                    log::error!("Restoring {name} after a failed CONFIG SET also failed: {reason}");
                }
            }
            return Err(failed(name, &reason));
        }
        Ok(changed.into_iter().map(|(row, ..)| row.id).collect())
    }

    /// Sets an option from inside the process, for example to lower `maxclients` to what the system
    /// allows. An invalid text is an error and changes nothing.
    pub fn set_internally(&self, id: OptionId, text: &str) -> Result<(), String> {
        let row = row(id);
        let value = parse_for_set(row, text.as_bytes(), &self.value(row))?;
        self.enter(row, &value)
    }

    /// Stores a value. For a directory, changes the working directory.
    pub(super) fn enter(&self, row: &OptionRow, value: &OptionValue) -> Result<(), String> {
        if let (OptionKind::Directory, OptionValue::Text(path)) = (row.kind, value) {
            let path = std::ffi::OsStr::from_bytes(path);
            return std::env::set_current_dir(path).map_err(|error| error_text(&error));
        }
        self.keep(row, value);
        Ok(())
    }

    fn restore(&self, changed: &[(&'static OptionRow, &'static str, OptionValue)]) {
        for (row, name, old) in changed.iter().rev() {
            if let Err(reason) = self.enter(row, old) {
                log::error!("Restoring {name} after a failed CONFIG SET failed: {reason}");
            }
        }
    }
}

/// Makes a value from words, and checks that this version of Bobbin supports it.
pub(super) fn parse(
    row: &OptionRow,
    words: &[&[u8]],
    current: &OptionValue,
) -> Result<OptionValue, String> {
    let value = read_value(row, words, current)?;
    check_support(row, &value)?;
    Ok(value)
}

/// Makes a value from words, whether or not this version of Bobbin supports it.
pub(super) fn read_value(
    row: &OptionRow,
    words: &[&[u8]],
    current: &OptionValue,
) -> Result<OptionValue, String> {
    let mut value = row.kind.parse(words, current)?;
    if let OptionValue::Number(number) = &mut value {
        *number = match row.id {
            OptionId::hz => (*number).clamp(HZ_MIN, HZ_MAX),
            OptionId::repl_backlog_size => (*number).max(BACKLOG_MIN_BYTES),
            _ => *number,
        };
    }
    Ok(value)
}

/// Checks that this version of Bobbin supports a value.
pub(super) fn check_support(row: &OptionRow, value: &OptionValue) -> Result<(), String> {
    let refused = match row.support {
        Support::NotYet(_) => *value != row.kind.default(),
        Support::Partial { refused, .. } => refused(&row.kind.format(value)),
        Support::Full | Support::Neutral(_) | Support::Dormant(_) => false,
    };
    if refused {
        let shown = row.kind.format(value);
        return Err(unsupported(&format!("{} {}", row.name, String::from_utf8_lossy(&shown))));
    }
    Ok(())
}

/// The error for something that Bobbin knows but does not have.
pub(super) fn unsupported(what: &str) -> String {
    format!("'{what}' is not supported by this version of Bobbin")
}

fn parse_for_set(
    row: &OptionRow,
    text: &[u8],
    current: &OptionValue,
) -> Result<OptionValue, String> {
    if !row.kind.is_multi() {
        return parse(row, &[text], current);
    }
    let words: Vec<&[u8]> = match text {
        b"" => Vec::new(),
        text => text.split(|byte| *byte == b' ').collect(),
    };
    parse(row, &words, current)
}

/// The options that the pairs name, if all of them may be set.
fn settable(
    pairs: &[(&[u8], &[u8])],
    barred: Barred<'_>,
) -> Result<Vec<(&'static OptionRow, &'static str)>, ConfigError> {
    let mut options: Vec<(&'static OptionRow, &'static str)> = Vec::new();
    for (given, _) in pairs {
        let given_text = String::from_utf8_lossy(given);
        let Some((row, name)) = find(given) else {
            return Err(ConfigError::new(&format!(
                "Unknown option or number of arguments for CONFIG SET - '{given_text}'"
            )));
        };
        let is_protected = row.flags.contains(Flags::PROTECTED) && barred.protected;
        let waits = barred.loading.filter(|_| row.flags.contains(Flags::AFTER_LOADING));
        if let Some(text) = waits.filter(|_| !row.is_immutable() && !is_protected) {
            return Err(ConfigError { text: text.to_owned() });
        }
        // An alias and its option may be set together, in order, as in Valkey.
        let reason = match () {
            () if row.is_immutable() => "can't set immutable config",
            () if is_protected => "can't set protected config",
            () if options.iter().any(|(_, known)| *known == name) => "duplicate parameter",
            () => {
                options.push((row, name));
                continue;
            }
        };
        return Err(failed(&given_text, reason));
    }
    Ok(options)
}

fn failed(name: &str, reason: &str) -> ConfigError {
    ConfigError::new(&format!(
        "CONFIG SET failed (possibly related to argument '{name}') - {reason}"
    ))
}

impl ConfigError {
    pub(super) fn new(text: &str) -> Self {
        // The reply must stay on one line.
        Self { text: format!("ERR {}", text.replace(['\r', '\n'], " ")) }
    }
}

/// Makes a value from a text, for tests and for callers that have a `str`.
impl From<&str> for OptionValue {
    fn from(text: &str) -> Self {
        Self::Text(Arc::from(text.as_bytes()))
    }
}

/// Valkey moves values to these bounds instead of refusing them.
const HZ_MIN: i64 = 1;
const HZ_MAX: i64 = 500;
const BACKLOG_MIN_BYTES: i64 = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    type Pairs<'p> = &'p [(&'p str, &'p str)];

    fn set(config: &Config, pairs: Pairs) -> Result<Vec<OptionId>, String> {
        set_with(config, pairs, &mut |_: OptionId, _: &Config| Ok(()))
    }

    fn set_with(
        config: &Config,
        pairs: Pairs,
        apply: &mut dyn Apply,
    ) -> Result<Vec<OptionId>, String> {
        let pairs: Vec<_> =
            pairs.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        config
            .set(&pairs, Barred { protected: true, loading: None }, apply)
            .map_err(|error| error.text)
    }

    fn get(config: &Config, patterns: &[&str]) -> Vec<(String, String)> {
        let mut selection = Selection::default();
        patterns.iter().for_each(|pattern| selection.add(pattern.as_bytes()));
        let text = |bytes| String::from_utf8(bytes).unwrap();
        selection.shown(config).into_iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    fn shown(config: &Config, name: &str) -> String {
        get(config, &[name]).remove(0).1
    }

    /// Each expected text was answered by valkey-server 9.1.2.
    #[test]
    fn refuses_with_valkeys_texts() {
        let config = Config::new();
        for (name, value, reason) in [
            ("maxmemory", "x", "argument must be a memory value"),
            ("maxmemory", "1tb", "argument must be a memory value"),
            ("maxmemory", "-1", "argument must be a memory value"),
            ("maxmemory", "18446744073709551616", "argument must be a memory value"),
            ("maxmemory-clients", "101%", "percentage argument must be less or equal to 100"),
            ("maxmemory-clients", "-1%", "argument must be a memory or percent value"),
            ("maxmemory-clients", "x", "argument must be a memory or percent value"),
            ("save", "1 2 3", "Invalid save parameters"),
            ("save", "1  2", "Invalid save parameters"),
            (
                "client-output-buffer-limit",
                "normal 1 2",
                "Wrong number of arguments in buffer limit configuration.",
            ),
            (
                "client-output-buffer-limit",
                "master 1 2 3",
                "Invalid client class specified in buffer limit configuration.",
            ),
            (
                "client-output-buffer-limit",
                "replica 1kb 2x 3",
                "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
            ),
            (
                "latency-tracking-info-percentiles",
                "50 x",
                "Invalid latency-tracking-info-percentiles parameters",
            ),
            (
                "latency-tracking-info-percentiles",
                "50 101",
                "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]",
            ),
            (
                "oom-score-adj-values",
                "1 2 3000",
                "Invalid oom-score-adj-values, elements must be between -2000 and 2000.",
            ),
            ("oom-score-adj-values", "1 2", "wrong number of arguments"),
            (
                "shutdown-on-sigterm",
                "save nosave",
                "shutdown options SAVE and NOSAVE can't be used simultaneously",
            ),
            (
                "shutdown-on-sigterm",
                "x",
                "argument(s) must be one of the following: default, save, nosave, now, force, safe, \
                 failover",
            ),
            (
                "loglevel",
                "Foo",
                "argument(s) must be one of the following: debug, verbose, notice, warning, nothing",
            ),
            (
                "maxmemory-policy",
                "x",
                "argument(s) must be one of the following: volatile-lru, volatile-lfu, \
                 volatile-random, volatile-ttl, allkeys-lru, allkeys-lfu, allkeys-random, noeviction",
            ),
            ("port", "99999", "argument must be between 0 and 65535 inclusive"),
            (
                "proto-max-bulk-len",
                "1",
                "argument must be between 1048576 and 9223372036854775807 inclusive",
            ),
            ("maxclients", "-1", "argument must be between 1 and 4294967295 inclusive"),
            ("timeout", "+1", "argument couldn't be parsed into an integer"),
            ("timeout", "01", "argument couldn't be parsed into an integer"),
            ("tcp-keepalive", "-5", "argument must be between 0 and 2147483647 inclusive"),
            ("protected-mode", "maybe", "argument must be 'yes' or 'no'"),
            (
                "proc-title-template",
                "{nope}",
                "template format is invalid or contains unknown variables",
            ),
            (
                "proc-title-template",
                "{title} {unixsocket}",
                "template format is invalid or contains unknown variables",
            ),
            ("cluster-announce-ip", "{", "cluster-announce-ip contains invalid character"),
            ("bind", "a b c d e f g h i j k l m n o p q", "Too many bind addresses specified."),
            (
                "notify-keyspace-events",
                "Kq",
                "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.",
            ),
            ("databases", "2", "can't set immutable config"),
            ("dir", "/tmp", "can't set protected config"),
            ("replicaof", "a 1", "can't set immutable config"),
            ("cluster-announce-client-ipv4", "x", "Invalid IPv4 address"),
            ("slot-migration-max-failover-repl-bytes", "x", "argument must be a memory value"),
        ] {
            let expected =
                format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}");
            assert_eq!(set(&config, &[(name, value)]), Err(expected), "{name} {value}");
        }
        assert_eq!(
            set(&config, &[("nope", "x"), ("databases", "1")]),
            Err("ERR Unknown option or number of arguments for CONFIG SET - 'nope'".into())
        );
        assert_eq!(
            set(&config, &[("MAXMEMORY", "1"), ("maxmemory", "2")]),
            Err("ERR CONFIG SET failed (possibly related to argument 'maxmemory') - duplicate parameter"
                .into())
        );
    }

    #[test]
    fn shows_values_as_valkey_does() {
        let config = Config::new();
        for (name, value, expected) in [
            ("maxmemory", "1GB", "1073741824"),
            ("maxmemory", "1k", "1000"),
            ("maxmemory", "", "0"),
            ("maxmemory", "18446744073709551615", "18446744073709551615"),
            ("maxmemory", "999999999999gb", "3830667723772264448"),
            ("maxmemory-clients", "10%", "10%"),
            ("maxmemory-clients", "1mb", "1048576"),
            (
                "client-output-buffer-limit",
                "normal 1mb 2kb 3 pubsub 1 1 1",
                "normal 1048576 2048 3 slave 268435456 67108864 60 pubsub 1 1 1",
            ),
            ("latency-tracking-info-percentiles", "50 99.99 12.3456789", "50 99.99 12.345679"),
            ("latency-tracking-info-percentiles", "", ""),
            ("shutdown-on-sigterm", "nosave now force", "nosave now force"),
            ("loglevel", "VERBOSE", "verbose"),
            ("hz", "1000", "500"),
            ("hz", "0", "1"),
            ("repl-backlog-size", "1", "16384"),
            ("slot-migration-max-failover-repl-bytes", "-1", "-1"),
            ("maxmemory-clients", "18446744073709551615", "1%"),
            ("proc-title-template", "{{x}}", "{{x}}"),
            ("proc-title-template", "a{title}", "a{title}"),
            ("oom-score-adj", "relative", "yes"),
            ("bind", "", ""),
            ("save", "", ""),
            ("io-threads", "4", "4"),
        ] {
            set(&config, &[(name, value)]).unwrap();
            assert_eq!(shown(&config, name), expected, "{name} {value}");
        }
        assert_eq!(config.output_limit(super::super::ClientClass::Pubsub).soft_s, 1);
        assert_eq!(config.worker_count(), 4);
    }

    #[test]
    fn refuses_what_is_not_there_and_accepts_what_cannot_matter() {
        let config = Config::new();
        for (name, value) in [("tls-cluster", "yes"), ("rdma-port", "1")] {
            let expected = format!(
                "ERR CONFIG SET failed (possibly related to argument '{name}') - \
                 '{name} {value}' is not supported by this version of Bobbin"
            );
            assert_eq!(set(&config, &[(name, value)]), Err(expected));
            set(&config, &[(name, &shown(&config, name))]).unwrap();
        }
        assert!(set(&config, &[("shutdown-on-sigterm", "failover")]).is_err());
        set(&config, &[("shutdown-on-sigterm", "save"), ("save", "900 1")]).unwrap();
        set(&config, &[("shutdown-on-sigterm", "now force")]).unwrap();
        set(&config, &[("repl-timeout", "120"), ("hz", "100")]).unwrap();
    }

    #[test]
    fn every_option_takes_its_own_value() {
        let config = Config::new();
        // `replicaof` cannot be set at run time, and its shown value is not "no one".
        for row in OPTIONS.iter().filter(|row| row.id != OptionId::replicaof) {
            let shown = config.shown(row);
            let value = parse_for_set(row, &shown, &row.kind.default());
            assert_eq!(row.kind.format(&value.unwrap()), shown, "{}", row.name);
        }
    }

    #[test]
    fn gets_each_name_once_in_order() {
        let config = Config::new();
        let names = |patterns: &[&str]| -> Vec<String> {
            get(&config, patterns).into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(
            names(&["timeout", "MAXMEMORY", "maxmem*", "timeout", "nope"]),
            [
                "MAXMEMORY",
                "maxmemory-clients",
                "maxmemory-eviction-tenacity",
                "maxmemory-policy",
                "maxmemory-samples",
                "maxmemory-scripts",
                "timeout"
            ]
        );
        assert_eq!(
            names(&["*ziplist-size", "list-max-listpack-size"]),
            ["list-max-listpack-size", "list-max-ziplist-size"]
        );
        assert_eq!(names(&["rdb-key-*"]), [""; 0], "hidden");
        assert_eq!(names(&["rdb-key-save-delay"]), ["rdb-key-save-delay"]);
        assert_eq!(shown(&config, "slowlog-max-len"), "128");
    }

    #[test]
    fn a_failure_takes_everything_back() {
        let config = Config::new();
        let values = "ERR CONFIG SET failed (possibly related to argument 'timeout') - \
                      argument couldn't be parsed into an integer";
        let pairs: Pairs = &[("maxmemory", "1gb"), ("timeout", "x")];
        assert_eq!(set(&config, pairs), Err(values.into()));
        assert_eq!(config.maxmemory(), 0);

        let mut seen = Vec::new();
        let pairs: Pairs = &[("maxmemory", "1gb"), ("timeout", "0"), ("port", "1")];
        let mut apply = |option: OptionId, config: &Config| {
            seen.push((option, config.maxmemory(), config.port()));
            match config.port() {
                1 => Err("Failed to bind to specified addresses.".to_owned()),
                _ => Ok(()),
            }
        };
        let error = set_with(&config, pairs, &mut apply).unwrap_err();
        assert_eq!(
            error,
            "ERR CONFIG SET failed (possibly related to argument 'maxmemory') - \
             Failed to bind to specified addresses."
        );
        assert_eq!(seen, [(OptionId::maxmemory, 1 << 30, 1), (OptionId::maxmemory, 0, 6379)]);

        let changed = set(&config, &[("maxmemory", "5"), ("timeout", "0")]).unwrap();
        assert_eq!(changed, [OptionId::maxmemory], "only what changed");
    }

    #[test]
    fn the_directory_is_entered() {
        let config = Config::new();
        let here = shown(&config, "dir");
        let set = |path: &str| {
            config.set(&[(b"dir", path.as_bytes())], Barred::default(), &mut |_, _: &Config| Ok(()))
        };
        assert_eq!(set(&here), Ok(Vec::new()));
        assert_eq!(
            set("/no/such/folder").unwrap_err().text,
            "ERR CONFIG SET failed (possibly related to argument 'dir') - No such file or directory"
        );
        assert_eq!(shown(&config, "dir"), here);
    }

    #[test]
    fn a_reply_stays_one_line() {
        let error = set(&Config::new(), &[("a\r\nb", "x")]).unwrap_err();
        assert_eq!(error, "ERR Unknown option or number of arguments for CONFIG SET - 'a  b'");
    }
}
