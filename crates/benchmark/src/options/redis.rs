//! The options of redis-benchmark and valkey-benchmark, and what we add to them.

use std::{path::PathBuf, time::Duration};

use super::{Common, Flag, Grammar, common, connection, number, positive, set};

/// What a command line in the style of redis-benchmark asks for: a field for each option.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    pub common: Common,
    pub clients: usize,
    pub requests: Option<u64>,
    pub duration: Option<Duration>,
    pub warm_up: Duration,
    pub data_size: usize,
    pub threads: usize,
    pub keep_alive: bool,
    pub keyspace: Option<u64>,
    pub sequential: bool,
    pub pipeline: usize,
    pub quiet: bool,
    /// Digits of the whole distribution; that is shown where they are given.
    pub precision: Option<u8>,
    pub percentiles: bool,
    pub csv: bool,
    pub for_ever: bool,
    pub tests: Option<String>,
    pub idle: bool,
    pub last_from_stdin: bool,
    pub rate: Option<f64>,
    pub tracking: bool,
    pub read_from: ReadFrom,
    pub functions: usize,
    pub fcall_keys: usize,
    pub zipf: Option<f64>,
    pub hot: Option<(u64, f64)>,
    pub command_file: Option<PathBuf>,
    pub runs: u32,
    pub fuzz: FuzzSettings,
}

#[derive(Clone, Copy, Debug)]
pub struct FuzzSettings {
    pub is_wanted: bool,
    pub is_malformed: bool,
    pub sets_options: bool,
    pub log: FuzzLog,
}

/// How much is said, from little to much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FuzzLog {
    None,
    Error,
    Info,
    Debug,
}

/// Which nodes of a cluster connections go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    Primaries,
    Replicas,
    All,
}

impl Default for RedisSettings {
    fn default() -> Self {
        Self {
            common: Common::default(),
            clients: 50,
            requests: None,
            duration: None,
            warm_up: Duration::ZERO,
            data_size: 3,
            threads: 0,
            keep_alive: true,
            keyspace: None,
            sequential: false,
            pipeline: 1,
            quiet: false,
            precision: None,
            percentiles: false,
            csv: false,
            for_ever: false,
            tests: None,
            idle: false,
            last_from_stdin: false,
            rate: None,
            tracking: false,
            read_from: ReadFrom::Primaries,
            functions: 10,
            fcall_keys: 1,
            zipf: None,
            hot: None,
            command_file: None,
            runs: 1,
            fuzz: FuzzSettings {
                is_wanted: false,
                is_malformed: false,
                sets_options: false,
                log: FuzzLog::Info,
            },
        }
    }
}

impl AsMut<Common> for RedisSettings {
    fn as_mut(&mut self) -> &mut Common {
        &mut self.common
    }
}

pub const GRAMMAR: Grammar<RedisSettings> = Grammar {
    program: "bobbin-benchmark",
    about: "Measures a server of the Redis protocol. Without a command it runs the tests that -t \
            names, or all of them.",
    usage: "bobbin-benchmark [OPTIONS] [--] [COMMAND ARGS...]",
    notes: NOTES,
    connection: connection::REDIS,
    flags: FLAGS,
    shared: &[connection::TRANSPORT, common::LOAD, common::FILES],
    attached_values: false,
};

const NOTES: &str = "\
In a command, several of which are separated by ';' (a number before one repeats it):
 __rand_int__    a number below that of -r, as 12 digits, another one each time
 __rand_1st__    the same number wherever it stands in one request; also __rand_2nd__,
                 __rand_3rd__ and __rand_4th__ to __rand_9th__
 __data__        as many bytes as -d says
 {tag}           leads the key to the connection's node of a cluster

Other ways to call it:
 bobbin-benchmark --memtier ...      the options of memtier_benchmark (also by that name)
 bobbin-benchmark expire ...         what expiry costs, in eight measurements
 bobbin-benchmark sweep ...          several servers and thread counts, with a page of charts
 bobbin-benchmark limits ...         what this machine allows, and how far a server is from it
 bobbin-benchmark compare A B        two results, and whether they differ
 bobbin-benchmark generate WHAT      man page or shell completion
";

const FLAGS: &[Flag<RedisSettings>] = &[
    Flag {
        names: &["-c"],
        value: "clients",
        help: "Connections that send at the same time (default 50).",
        apply: |settings, value| {
            // 0 is 1, as in valkey-benchmark.
            settings.clients = number::<usize>(value, 0..=CLIENTS_MAX)?.max(1);
            Ok(())
        },
    },
    Flag {
        names: &["-n"],
        value: "requests",
        help: "Requests in each test (default 100000). One of several commands, with ';' between, \
               counts as each of them.",
        apply: |settings, value| set(&mut settings.requests, Some(number(value, 1..)?)),
    },
    Flag {
        names: &["--duration"],
        value: "seconds",
        help: "Run each test for so long, instead of -n (0: by -n).",
        apply: |settings, value| {
            settings.duration = if value == "0" { None } else { Some(seconds(value)?) };
            Ok(())
        },
    },
    Flag {
        names: &["--warmup"],
        value: "seconds",
        help: "Send for so long before anything is counted.",
        apply: |settings, value| {
            settings.warm_up = if value == "0" { Duration::ZERO } else { seconds(value)? };
            Ok(())
        },
    },
    Flag {
        names: &["-d"],
        value: "bytes",
        help: "Size of the values that are written (default 3).",
        apply: |settings, value| {
            // 0 is 1, as in valkey-benchmark.
            settings.data_size = number::<usize>(value, 0..=DATA_SIZE_MAX)?.max(1);
            Ok(())
        },
    },
    Flag {
        names: &["-3"],
        value: "",
        help: "Speak RESP3.",
        apply: |settings, _| set(&mut settings.common.protocol, 3),
    },
    Flag {
        names: &["--threads"],
        value: "threads",
        help: "Threads that share the connections (default 1).",
        apply: |settings, value| {
            let threads: u64 = number(value, 0..)?;
            if threads > THREADS_MAX {
                complain!("Warning: {threads} threads are too many, {THREADS_MAX} are used");
            }
            settings.threads = threads.min(THREADS_MAX) as usize;
            Ok(())
        },
    },
    Flag {
        names: &["--cluster"],
        value: "",
        help: "Spread the connections over the nodes of the cluster that the server belongs to. \
               Keys of commands then need {tag}.",
        apply: |settings, _| set(&mut settings.common.cluster, true),
    },
    Flag {
        names: &["--rfr"],
        value: "mode",
        help: "With --cluster: connect to primaries (no, the default), replicas (yes) or all nodes \
               (all). Replicas only answer reads.",
        apply: |settings, value| {
            settings.read_from = match value {
                "no" => ReadFrom::Primaries,
                "yes" => ReadFrom::Replicas,
                "all" => ReadFrom::All,
                other => return Err(format!("'{other}' is none of no, yes, all")),
            };
            Ok(())
        },
    },
    Flag {
        names: &["--enable-tracking"],
        value: "",
        help: "Send CLIENT TRACKING on first.",
        apply: |settings, _| set(&mut settings.tracking, true),
    },
    Flag {
        names: &["-k"],
        value: "0|1",
        help: "1 keeps connections (default), 0 opens a new one for each pipeline.",
        apply: |settings, value| {
            // Any number but 0 is 1, as in valkey-benchmark.
            settings.keep_alive = number::<u64>(value, ..)? != 0;
            Ok(())
        },
    },
    Flag {
        names: &["-r"],
        value: "keys",
        help: "Replace __rand_int__ and similar words by numbers below this one. Without it all requests \
               have the same key.",
        apply: |settings, value| {
            // Of 0 keys there is the first, as in valkey-benchmark.
            settings.keyspace = Some(number::<u64>(value, 0..=KEYSPACE_MAX)?.max(1));
            Ok(())
        },
    },
    Flag {
        names: &["--sequential"],
        value: "",
        help: "Take the numbers of -r one after the other instead of at random.",
        apply: |settings, _| set(&mut settings.sequential, true),
    },
    Flag {
        names: &["--zipf"],
        value: "exponent",
        help: "Draw the numbers of -r by Zipf's law: small ones often, the i-th in proportion to \
               1/i^exponent.",
        apply: |settings, value| set(&mut settings.zipf, Some(positive(value)?)),
    },
    Flag {
        names: &["--hot-keys"],
        value: "keys:share",
        help: "Send this share (0 to 1) of the requests to this many of the lowest numbers of -r.",
        apply: |settings, value| {
            let (keys, share) = value.split_once(':').ok_or("not of the form 10:0.9")?;
            let share: f64 = share.parse().map_err(|_| format!("'{share}' is not a share"))?;
            if !(0.0..=1.0).contains(&share) {
                return Err(format!("{share} is not between 0 and 1"));
            }
            settings.hot = Some((number(keys, 1..)?, share));
            Ok(())
        },
    },
    Flag {
        names: &["-P"],
        value: "requests",
        help: "Send this many requests at once and wait for all their replies (default 1).",
        apply: |settings, value| {
            // 0 is 1, as in valkey-benchmark.
            settings.pipeline = number::<usize>(value, 0..=PIPELINE_MAX)?.max(1);
            Ok(())
        },
    },
    Flag {
        names: &["-q"],
        value: "",
        help: "One line for each test.",
        apply: |settings, _| set(&mut settings.quiet, true),
    },
    Flag {
        names: &["--precision"],
        value: "digits",
        help: "Show the whole distribution, with this number of significant digits \
               (0 to 3; 0 is as 1). Latencies are measured to 3.",
        apply: |settings, value| {
            let digits: u64 = number(value, 0..)?;
            if digits > PRECISION_MAX {
                complain!("Warning: latencies are measured to {PRECISION_MAX} digits");
            }
            settings.precision = Some(digits.min(PRECISION_MAX) as u8);
            Ok(())
        },
    },
    Flag {
        names: &["--percentiles"],
        value: "",
        help: "Show the whole distribution by percentiles, as redis-benchmark does, instead of the \
               short summary with its chart.",
        apply: |settings, _| set(&mut settings.percentiles, true),
    },
    Flag {
        names: &["--csv"],
        value: "",
        help: "One line of comma-separated values for each test.",
        apply: |settings, _| set(&mut settings.csv, true),
    },
    Flag {
        names: &["-l"],
        value: "",
        help: "Begin again when all tests are done, for ever.",
        apply: |settings, _| set(&mut settings.for_ever, true),
    },
    Flag {
        names: &["-t"],
        value: "tests",
        help: "Only these tests, separated by commas; '-t list' shows them.",
        apply: |settings, value| set(&mut settings.tests, Some(value.into())),
    },
    Flag {
        names: &["-I"],
        value: "",
        help: "Only open the connections and wait for ever.",
        apply: |settings, _| set(&mut settings.idle, true),
    },
    Flag {
        names: &["-x"],
        value: "",
        help: "Read the command's last argument from the standard input.",
        apply: |settings, _| set(&mut settings.last_from_stdin, true),
    },
    Flag {
        names: &["-e"],
        value: "",
        help: "Show the first error reply of a test, and how many there were, and go on (without this \
               the first ends the run).",
        apply: |settings, _| set(&mut settings.common.continue_after_errors, true),
    },
    Flag {
        names: &["--rps"],
        value: "rate",
        help: "Requests a second over all connections, at most (0: no limit). One of several \
               commands, with ';' between, counts once.",
        apply: |settings, value| {
            settings.rate = if value == "0" { None } else { Some(positive(value)?) };
            Ok(())
        },
    },
    Flag {
        names: &["--num-functions"],
        value: "functions",
        help: "Functions in the library that the test function_load loads (default 10).",
        apply: |settings, value| set(&mut settings.functions, number(value, 1..=1000)?),
    },
    Flag {
        names: &["--num-keys-in-fcall"],
        value: "keys",
        help: "Keys that the test fcall passes (default 1).",
        apply: |settings, value| set(&mut settings.fcall_keys, number(value, 0..=1000)?),
    },
    Flag {
        names: &["--command-file"],
        value: "file",
        help: "Send the commands of this file, one in a line, drawn by the weight that each line \
               begins with.",
        apply: |settings, value| set(&mut settings.command_file, Some(value.into())),
    },
    Flag {
        names: &["--runs"],
        value: "runs",
        help: "Run each test so often, report the run with the median rate, and how far the others \
               are from it.",
        apply: |settings, value| set(&mut settings.runs, number(value, 1..=1000)?),
    },
    Flag {
        names: &["--fuzz"],
        value: "",
        help: "Send -n random commands, made from the server's COMMAND DOCS, over -c connections and \
               see whether it lives. Never do this to a server whose data you want to keep.",
        apply: |settings, _| set(&mut settings.fuzz.is_wanted, true),
    },
    Flag {
        names: &["--fuzz-mode"],
        value: "modes",
        help: "Beside right commands also: malformed-commands, config-commands (which set options to \
               what they are); with a comma between.",
        apply: |settings, value| {
            for mode in value.split(',') {
                match mode {
                    "malformed-commands" => settings.fuzz.is_malformed = true,
                    "config-commands" => settings.fuzz.sets_options = true,
                    other => {
                        return Err(format!(
                            "'{other}' is neither malformed-commands nor config-commands"
                        ));
                    }
                }
            }
            Ok(())
        },
    },
    Flag {
        names: &["--fuzz-loglevel"],
        value: "level",
        help: "none, error, info (a summary; the default) or debug (each error reply too).",
        apply: |settings, value| {
            settings.fuzz.log = match value {
                "none" => FuzzLog::None,
                "error" => FuzzLog::Error,
                "info" => FuzzLog::Info,
                "debug" => FuzzLog::Debug,
                other => return Err(format!("'{other}' is none of none, error, info, debug")),
            };
            Ok(())
        },
    },
];

fn seconds(value: &str) -> Result<Duration, String> {
    let seconds = positive(value)?;
    if seconds > SECONDS_MAX {
        return Err(format!("'{value}' is more than {SECONDS_MAX} seconds"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

pub(crate) const CLIENTS_MAX: u64 = 1_000_000;
pub(crate) const THREADS_MAX: u64 = 500;
pub(crate) const PIPELINE_MAX: u64 = 1_000_000;
pub(crate) const DATA_SIZE_MAX: u64 = 1 << 30;
/// Numbers of 12 digits.
const KEYSPACE_MAX: u64 = 1_000_000_000_000;
const SECONDS_MAX: f64 = 1e7;
/// Significant digits of the histogram that latencies are kept in.
const PRECISION_MAX: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> RedisSettings {
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let mut settings = RedisSettings::default();
        GRAMMAR.parse(&arguments, &mut settings).unwrap_or_else(|stop| panic!("{line}: {stop:?}"));
        settings
    }

    #[test]
    fn what_valkey_benchmark_takes_as_something_else() {
        assert_eq!(parse("--threads 0").threads, 0);
        assert_eq!(parse("--threads 501").threads, 500);
        assert_eq!(parse("--precision 5").precision, Some(3));
        assert_eq!((parse("-c 0").clients, parse("-P 0").pipeline), (1, 1));
        assert!(parse("-k 2").keep_alive && !parse("-k 0").keep_alive);
        assert_eq!(parse("--user me").common.password, None);
        assert_eq!(parse("--duration 1 --duration 0").duration, None);
    }
}
