//! The options of memtier_benchmark.

use std::{path::PathBuf, str::FromStr};

use super::{
    Common, Flag, Grammar, common, connection, number, positive,
    redis::{CLIENTS_MAX, DATA_SIZE_MAX, PIPELINE_MAX, THREADS_MAX},
    set,
};

/// What a command line in the style of memtier_benchmark asks for: a field for each option.
#[derive(Clone, Debug)]
pub struct MemtierSettings {
    pub common: Common,
    pub clients: usize,
    pub threads: usize,
    pub requests: Requests,
    /// Seconds.
    pub test_time: Option<u64>,
    /// Seconds.
    pub warm_up: u64,
    pub ratio: (u64, u64),
    pub pipeline: usize,
    pub reconnect: Option<u64>,
    pub multi_key_get: usize,
    pub rate: Option<f64>,
    pub randomize: bool,
    pub runs: u32,
    pub sizes: SizeRule,
    pub sizes_by_key: bool,
    /// Where in a longer value they are written and read.
    pub data_offset: u64,
    pub random_data: bool,
    pub expiry: Option<(u64, u64)>,
    pub key_prefix: String,
    pub key_minimum: u64,
    pub key_maximum: u64,
    pub key_patterns: (AccessPattern, AccessPattern),
    pub key_deviation: Option<f64>,
    pub key_median: Option<f64>,
    pub zipf: f64,
    /// How many SETs come before how many WAITs.
    pub wait_ratio: Option<(u64, u64)>,
    /// What WAIT waits for, from and to: replicas, and milliseconds.
    pub wait_replicas: (u64, u64),
    pub wait_ms: (u64, u64),
    pub commands: Vec<CustomCommand>,
    /// What MONITOR once said, for commands that name its lines.
    pub monitor_input: Option<PathBuf>,
    pub monitor_at_random: bool,
    pub row_for_each_line: bool,
    pub out_file: Option<PathBuf>,
    pub hide_histogram: bool,
    pub percentiles: Vec<f64>,
    pub print_all_runs: bool,
    pub show_configuration: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// So many on each connection.
    Each(u64),
    /// As many as there are keys.
    AllKeys,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SizeRule {
    Fixed(usize),
    Range(usize, usize),
    Weighted(Vec<(usize, u64)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessPattern {
    Random,
    Gauss,
    Sequential,
    Parallel,
    Zipf,
}

/// A command of `--command`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomCommand {
    pub line: String,
    pub words: Vec<Vec<u8>>,
    pub ratio: u64,
    pub pattern: AccessPattern,
}

impl Default for MemtierSettings {
    fn default() -> Self {
        Self {
            common: Common { continue_after_errors: true, ..Common::default() },
            clients: 50,
            threads: 4,
            requests: Requests::Each(10_000),
            test_time: None,
            warm_up: 0,
            ratio: (1, 10),
            pipeline: 1,
            reconnect: None,
            multi_key_get: 0,
            rate: None,
            randomize: false,
            runs: 1,
            sizes: SizeRule::Fixed(32),
            sizes_by_key: false,
            data_offset: 0,
            random_data: false,
            expiry: None,
            key_prefix: "memtier-".into(),
            key_minimum: 0,
            key_maximum: 10_000_000,
            key_patterns: (AccessPattern::Random, AccessPattern::Random),
            key_deviation: None,
            key_median: None,
            zipf: 1.0,
            wait_ratio: None,
            wait_replicas: (0, 0),
            wait_ms: (0, 0),
            commands: Vec::new(),
            monitor_input: None,
            monitor_at_random: false,
            row_for_each_line: false,
            out_file: None,
            hide_histogram: false,
            percentiles: vec![50.0, 99.0, 99.9],
            print_all_runs: false,
            show_configuration: false,
        }
    }
}

impl MemtierSettings {
    fn last_command(&mut self) -> Result<&mut CustomCommand, String> {
        self.commands.last_mut().ok_or_else(|| "there is no --command before it".into())
    }
}

impl AsMut<Common> for MemtierSettings {
    fn as_mut(&mut self) -> &mut Common {
        &mut self.common
    }
}

impl CustomCommand {
    fn new(line: &str) -> Result<Self, String> {
        let words = bobbin_resp::split_arguments(line.as_bytes()).ok_or("unbalanced quotes")?;
        let words: Vec<Vec<u8>> = words.into_iter().collect();
        if words.is_empty() {
            return Err("the command is empty".into());
        }
        Ok(Self::plain(line.to_owned(), words))
    }

    /// Once in a round.
    pub fn plain(line: String, words: Vec<Vec<u8>>) -> Self {
        Self { line, words, ratio: 1, pattern: AccessPattern::Random }
    }
}

impl FromStr for AccessPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "R" => Self::Random,
            "G" => Self::Gauss,
            "S" => Self::Sequential,
            "P" => Self::Parallel,
            "Z" => Self::Zipf,
            other => return Err(format!("'{other}' is none of R, G, S, P, Z")),
        })
    }
}

pub const GRAMMAR: Grammar<MemtierSettings> = Grammar {
    program: "bobbin-benchmark --memtier",
    about: "Measures a server of the Redis protocol with the options of memtier_benchmark.",
    usage: "bobbin-benchmark --memtier [OPTIONS]",
    notes: "",
    connection: connection::MEMTIER,
    flags: FLAGS,
    shared: &[connection::TRANSPORT, common::LOAD, common::FILES],
    attached_values: true,
};

/// Two numbers with a colon between them, not both 0.
fn pair(value: &str) -> Result<(u64, u64), String> {
    let (first, second) = value.split_once(':').ok_or("not of the form 1:10")?;
    match (number(first, ..)?, number(second, ..)?) {
        (0, 0) => Err("both are 0".into()),
        pair => Ok(pair),
    }
}

/// Two numbers with a dash between them, the smaller one first.
fn range(value: &str) -> Result<(u64, u64), String> {
    let (low, high) = value.split_once('-').ok_or("not of the form 10-20")?;
    let (low, high) = (number(low, 1..=RANGE_MAX)?, number(high, 1..=RANGE_MAX)?);
    if low > high { Err(format!("{low} is above {high}")) } else { Ok((low, high)) }
}

fn weighted(value: &str) -> Result<Vec<(usize, u64)>, String> {
    let item = |item: &str| {
        let (size, weight) =
            item.split_once(':').ok_or_else(|| format!("'{item}' is not of the form 100:1"))?;
        Ok((number(size, 1..=DATA_SIZE_MAX)?, number(weight, 1..=WEIGHT_MAX)?))
    };
    value.split(',').map(item).collect()
}

const FLAGS: &[Flag<MemtierSettings>] = &[
    Flag {
        names: &["-P", "--protocol"],
        value: "name",
        help: "redis (default), resp2 or resp3.",
        apply: |settings, value| {
            settings.common.protocol = match value {
                "redis" => 0,
                "resp2" => 2,
                "resp3" => 3,
                "memcache_text" | "memcache_binary" => {
                    return Err("only Redis's protocol is supported".into());
                }
                other => return Err(format!("'{other}' is none of redis, resp2, resp3")),
            };
            Ok(())
        },
    },
    Flag {
        names: &["-c", "--clients"],
        value: "clients",
        help: "Connections of each thread (default 50).",
        apply: |settings, value| set(&mut settings.clients, number(value, 1..=CLIENTS_MAX)?),
    },
    Flag {
        names: &["-t", "--threads"],
        value: "threads",
        help: "Threads (default 4).",
        apply: |settings, value| set(&mut settings.threads, number(value, 1..=THREADS_MAX)?),
    },
    Flag {
        names: &["-n", "--requests"],
        value: "requests",
        help: "Requests of each connection (default 10000), or allkeys for as many as there are \
               keys.",
        apply: |settings, value| {
            settings.requests = match value {
                "allkeys" => Requests::AllKeys,
                number => Requests::Each(super::number(number, 1..)?),
            };
            Ok(())
        },
    },
    Flag {
        names: &["--test-time"],
        value: "seconds",
        help: "Run for so long, instead of -n.",
        apply: |settings, value| {
            set(&mut settings.test_time, Some(number(value, 1..=SECONDS_MAX)?))
        },
    },
    Flag {
        names: &["--warmup"],
        value: "seconds",
        help: "Send for so long before anything is counted.",
        apply: |settings, value| set(&mut settings.warm_up, number(value, 0..=SECONDS_MAX)?),
    },
    Flag {
        names: &["--ratio"],
        value: "set:get",
        help: "How many SETs come before how many GETs (default 1:10).",
        apply: |settings, value| set(&mut settings.ratio, pair(value)?),
    },
    Flag {
        names: &["--pipeline"],
        value: "requests",
        help: "Requests sent at once, which wait for all their replies (default 1).",
        apply: |settings, value| set(&mut settings.pipeline, number(value, 1..=PIPELINE_MAX)?),
    },
    Flag {
        names: &["--reconnect-interval"],
        value: "requests",
        help: "Open a connection anew after this many requests.",
        apply: |settings, value| set(&mut settings.reconnect, Some(number(value, 1..)?)),
    },
    Flag {
        names: &["--multi-key-get"],
        value: "keys",
        help: "Send MGET of this many keys instead of GET.",
        apply: |settings, value| set(&mut settings.multi_key_get, number(value, 0..=1000)?),
    },
    Flag {
        names: &["--rate-limiting"],
        value: "rate",
        help: "Requests a second on each connection, at most.",
        apply: |settings, value| set(&mut settings.rate, Some(positive(value)?)),
    },
    Flag {
        names: &["--distinct-client-seed"],
        value: "",
        help: "Each connection draws other numbers, which is always so here.",
        apply: |_, _| Ok(()),
    },
    Flag {
        names: &["--randomize"],
        value: "",
        help: "Draw other numbers in each run of the program.",
        apply: |settings, _| set(&mut settings.randomize, true),
    },
    Flag {
        names: &["-x", "--run-count"],
        value: "runs",
        help: "Do it all so often, and show the best, the worst and the average run.",
        apply: |settings, value| set(&mut settings.runs, number(value, 1..=1000)?),
    },
    Flag {
        names: &["-d", "--data-size"],
        value: "bytes",
        help: "Size of the values (default 32).",
        apply: |settings, value| {
            set(&mut settings.sizes, SizeRule::Fixed(number(value, 1..=DATA_SIZE_MAX)?))
        },
    },
    Flag {
        names: &["--data-size-range"],
        value: "min-max",
        help: "Sizes between these.",
        apply: |settings, value| {
            let (min, max) = range(value)?;
            if max > DATA_SIZE_MAX {
                return Err(format!("{max} is more than {DATA_SIZE_MAX}"));
            }
            settings.sizes = SizeRule::Range(min as usize, max as usize);
            Ok(())
        },
    },
    Flag {
        names: &["--data-size-list"],
        value: "size:weight,...",
        help: "Sizes with weights.",
        apply: |settings, value| set(&mut settings.sizes, SizeRule::Weighted(weighted(value)?)),
    },
    Flag {
        names: &["--data-size-pattern"],
        value: "R|S",
        help: "Sizes of --data-size-range at random (R, default) or growing with the key (S).",
        apply: |settings, value| {
            settings.sizes_by_key = match value {
                "R" => false,
                "S" => true,
                other => return Err(format!("'{other}' is neither R nor S")),
            };
            Ok(())
        },
    },
    Flag {
        names: &["--data-offset"],
        value: "bytes",
        help: "Write values into longer ones behind this many bytes by SETRANGE, and read them by \
               GETRANGE.",
        apply: |settings, value| set(&mut settings.data_offset, number(value, 0..=DATA_SIZE_MAX)?),
    },
    Flag {
        names: &["-R", "--random-data"],
        value: "",
        help: "Values of random bytes.",
        apply: |settings, _| set(&mut settings.random_data, true),
    },
    Flag {
        names: &["--expiry-range"],
        value: "min-max",
        help: "Let keys expire after this many seconds.",
        apply: |settings, value| set(&mut settings.expiry, Some(range(value)?)),
    },
    Flag {
        names: &["--key-prefix"],
        value: "prefix",
        help: "What keys begin with (default memtier-).",
        apply: |settings, value| set(&mut settings.key_prefix, value.into()),
    },
    Flag {
        names: &["--key-minimum"],
        value: "number",
        help: "The first key's number (default 0).",
        apply: |settings, value| set(&mut settings.key_minimum, number(value, ..)?),
    },
    Flag {
        names: &["--key-maximum"],
        value: "number",
        help: "The last key's number (default 10000000).",
        apply: |settings, value| set(&mut settings.key_maximum, number(value, ..=KEY_MAX)?),
    },
    Flag {
        names: &["--key-pattern"],
        value: "set:get",
        help: "Which key comes next: R at random, G as Gauss has it, S one after the other, P \
               the same in a part of each connection's own, Z as Zipf has it (default R:R).",
        apply: |settings, value| {
            let (set, get) = value.split_once(':').ok_or("not of the form R:R")?;
            settings.key_patterns = (set.parse()?, get.parse()?);
            Ok(())
        },
    },
    Flag {
        names: &["--key-stddev"],
        value: "number",
        help: "The deviation of pattern G (default: a sixth of the keys).",
        apply: |settings, value| set(&mut settings.key_deviation, Some(positive(value)?)),
    },
    Flag {
        names: &["--key-median"],
        value: "number",
        help: "The median of pattern G (default: the middle key).",
        apply: |settings, value| set(&mut settings.key_median, Some(positive(value)?)),
    },
    Flag {
        names: &["--key-zipf-exp"],
        value: "exponent",
        help: "The exponent of pattern Z (default 1).",
        apply: |settings, value| {
            let exponent = positive(value)?;
            if exponent >= 5.0 {
                return Err(format!("{exponent} is not below 5"));
            }
            settings.zipf = exponent;
            Ok(())
        },
    },
    Flag {
        names: &["--wait-ratio"],
        value: "set:wait",
        help: "Send WAITs after SETs, in this ratio.",
        apply: |settings, value| {
            let (sets, waits) = pair(value)?;
            if sets == 0 || sets > WAIT_RATIO_MAX || waits > WAIT_RATIO_MAX {
                return Err(format!(
                    "'{value}' is not of the form 1:0, with numbers up to {WAIT_RATIO_MAX}"
                ));
            }
            settings.wait_ratio = (waits > 0).then_some((sets, waits));
            Ok(())
        },
    },
    Flag {
        names: &["--num-slaves"],
        value: "min-max",
        help: "Replicas that WAIT waits for (default: none).",
        apply: |settings, value| set(&mut settings.wait_replicas, range(value)?),
    },
    Flag {
        names: &["--wait-timeout"],
        value: "min-max",
        help: "Milliseconds that WAIT waits at most, mostly the middle of these (default 0: for ever).",
        apply: |settings, value| set(&mut settings.wait_ms, range(value)?),
    },
    Flag {
        names: &["--command"],
        value: "command",
        help: "Send this command instead of SET and GET; __key__ and __data__ in it are \
               replaced. May be given more than once.",
        apply: |settings, value| {
            settings.commands.push(CustomCommand::new(value)?);
            Ok(())
        },
    },
    Flag {
        names: &["--command-ratio"],
        value: "number",
        help: "How often the command before is sent before the next one comes (default 1).",
        apply: |settings, value| {
            let ratio = number(value, 1..)?;
            settings.last_command()?.ratio = ratio;
            Ok(())
        },
    },
    Flag {
        names: &["--command-key-pattern"],
        value: "pattern",
        help: "The key pattern of the command before (default R).",
        apply: |settings, value| {
            let pattern = value.parse()?;
            settings.last_command()?.pattern = pattern;
            Ok(())
        },
    },
    Flag {
        names: &["--monitor-input"],
        value: "file",
        help: "Commands out of MONITOR's output: --command \"__monitor_line1__\" is the first one, \
               \"__monitor_line@__\" all of them.",
        apply: |settings, value| set(&mut settings.monitor_input, Some(value.into())),
    },
    Flag {
        names: &["--monitor-pattern"],
        value: "S|R",
        help: "__monitor_line@__ goes through them in order (S, default) or draws one (R).",
        apply: |settings, value| {
            settings.monitor_at_random = match value {
                "S" => false,
                "R" => true,
                other => return Err(format!("'{other}' is neither S nor R")),
            };
            Ok(())
        },
    },
    Flag {
        names: &["--command-stats-breakdown"],
        value: "command|line",
        help: "One row of the table for commands of one name (default), or for each.",
        apply: |settings, value| {
            settings.row_for_each_line = match value {
                "command" => false,
                "line" => true,
                other => return Err(format!("'{other}' is neither command nor line")),
            };
            Ok(())
        },
    },
    Flag {
        names: &["-o", "--out-file"],
        value: "file",
        help: "Write the results there instead of to the standard output.",
        apply: |settings, value| set(&mut settings.out_file, Some(value.into())),
    },
    Flag {
        names: &["--hide-histogram"],
        value: "",
        help: "Show only the table.",
        apply: |settings, _| set(&mut settings.hide_histogram, true),
    },
    Flag {
        names: &["--print-percentiles"],
        value: "list",
        help: "Percentiles in the table (default 50,99,99.9).",
        apply: |settings, value| {
            settings.percentiles = value
                .split(',')
                .map(|percentile| match percentile.parse::<f64>() {
                    Ok(number) if (0.0..=100.0).contains(&number) => Ok(number),
                    _ => Err(format!("'{percentile}' is not a percentile")),
                })
                .collect::<Result<_, _>>()?;
            Ok(())
        },
    },
    Flag {
        names: &["--print-all-runs"],
        value: "",
        help: "Show the table of every run.",
        apply: |settings, _| set(&mut settings.print_all_runs, true),
    },
    Flag {
        names: &["--show-config"],
        value: "",
        help: "Show the settings first.",
        apply: |settings, _| set(&mut settings.show_configuration, true),
    },
    Flag {
        names: &["--cluster-mode"],
        value: "",
        help: "Spread the connections over the nodes of the cluster that the server belongs to; \
               each sends the keys that are its node's.",
        apply: |settings, _| set(&mut settings.common.cluster, true),
    },
];

const RANGE_MAX: u64 = 1 << 40;
const WAIT_RATIO_MAX: u64 = 1000;
const KEY_MAX: u64 = 1 << 62;
const SECONDS_MAX: u64 = 10_000_000;
const WEIGHT_MAX: u64 = 1_000_000_000;
