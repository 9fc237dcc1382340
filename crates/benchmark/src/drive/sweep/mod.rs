//! `bobbin-benchmark sweep`: servers, numbers of I/O threads and tests, all with all, as a table,
//! CSV, JSON and a page of charts.
//!
//! The measurements are made in rounds: each round starts every server anew and measures each test
//! once. What changes with time, such as what else the machine does, so meets all servers alike,
//! and how the rounds scatter says how far a mean can be trusted.

mod headline;
mod measure;
mod present;

use std::path::PathBuf;

use self::measure::Results;
use super::{DriveFailure, expire};
use crate::{
    interrupt::{self, TOO_EARLY},
    options::{Common, Flag, Grammar, common, connection, number, positive, set},
    output::OutputFile,
    provenance::Provenance,
    workload::Test,
};

#[derive(Clone, Debug)]
pub struct SweepSettings {
    pub common: Common,
    pub servers: Vec<String>,
    pub io_threads: Vec<usize>,
    pub tests: Vec<String>,
    pub data_sizes: Vec<usize>,
    pub pipelines: Vec<usize>,
    pub clients: Vec<usize>,
    pub keyspace: u64,
    pub threads: usize,
    pub seconds: f64,
    pub rounds: u32,
    /// Operations of each measurement of expiry; 0 for none.
    pub expiry_operations: u64,
    pub output: PathBuf,
}

impl Default for SweepSettings {
    fn default() -> Self {
        let mut settings = Self {
            common: Common { port: 7399, ..Common::default() },
            servers: vec!["bobbin".into()],
            io_threads: vec![1, 2, 4, 6],
            tests: Vec::new(),
            data_sizes: Vec::new(),
            pipelines: Vec::new(),
            clients: Vec::new(),
            keyspace: 0,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            seconds: 2.0,
            rounds: 3,
            expiry_operations: 0,
            output: "bobbin-sweep".into(),
        };
        settings.take(&MATRICES[0]);
        settings
    }
}

impl AsMut<Common> for SweepSettings {
    fn as_mut(&mut self) -> &mut Common {
        &mut self.common
    }
}

impl SweepSettings {
    fn take(&mut self, matrix: &Matrix) {
        self.tests = matrix.tests.iter().map(|&test| test.to_owned()).collect();
        self.data_sizes = matrix.data_sizes.to_vec();
        self.pipelines = matrix.pipelines.to_vec();
        self.clients = matrix.clients.to_vec();
        self.keyspace = matrix.keyspace;
        self.expiry_operations = if matrix.has_expiry { expire::OPERATIONS } else { 0 };
    }
}

/// Measurements that somebody published.
struct Matrix {
    name: &'static str,
    tests: &'static [&'static str],
    data_sizes: &'static [usize],
    pipelines: &'static [usize],
    clients: &'static [usize],
    keyspace: u64,
    has_expiry: bool,
}

const MATRICES: [Matrix; 4] = [
    Matrix {
        name: "a",
        tests: &["get", "set", "mset", "sadd", "zadd_random", "hset_random", "lpush", "lrange_300"],
        data_sizes: &[3],
        pipelines: &[16],
        clients: &[50],
        keyspace: 1_000_000,
        has_expiry: false,
    },
    Matrix {
        name: "b",
        tests: &["set", "get"],
        data_sizes: &[128, 512, 1024],
        pipelines: &[1],
        clients: &[256, 2000],
        keyspace: 100_000_000,
        has_expiry: false,
    },
    Matrix {
        name: "c",
        tests: &[],
        data_sizes: &[3],
        pipelines: &[1],
        clients: &[50],
        keyspace: 1_000_000,
        has_expiry: true,
    },
    Matrix {
        name: "d",
        tests: &["set", "get", "mset", "hset", "lrange_100", "xadd_1", "xadd_5", "xadd_10"],
        data_sizes: &[3, 100, 1000],
        pipelines: &[1, 5, 10],
        clients: &[512],
        keyspace: 1_000_000,
        has_expiry: false,
    },
];

pub const GRAMMAR: Grammar<SweepSettings> = Grammar {
    program: "bobbin-benchmark sweep",
    about: "Starts each server with each number of I/O threads, runs the tests on it, and writes a \
            table, CSV, JSON and a page of charts.",
    usage: "bobbin-benchmark sweep [OPTIONS]",
    notes: "",
    connection: connection::LISTEN,
    shared: &[common::LOAD],
    flags: &[
        Flag {
            names: &["--server"],
            value: "list",
            help: "Servers, separated by commas: bobbin, names of programs in PATH, or paths \
                   (default bobbin).",
            apply: |settings, value| {
                set(&mut settings.servers, value.split(',').map(str::to_owned).collect())
            },
        },
        Flag {
            names: &["--io-threads"],
            value: "list",
            help: "Numbers of I/O threads (default 1,2,4,6).",
            apply: |settings, value| set(&mut settings.io_threads, list(value, 1, 1024)?),
        },
        Flag {
            names: &["--matrix"],
            value: "name",
            help: "Tests, sizes, pipelines and clients as in published measurements: a (eight \
                   commands, pipeline 16; the default), b (SET and GET of three sizes with 256 and \
                   2000 clients), c (what expiry costs, as 'expire' measures it) or d (eight \
                   commands, three sizes, three pipelines, 512 clients).",
            apply: |settings, value| {
                let matrix = MATRICES.iter().find(|matrix| matrix.name == value);
                settings.take(matrix.ok_or_else(|| format!("'{value}' is none of a, b, c, d"))?);
                Ok(())
            },
        },
        Flag {
            names: &["--tests", "-t"],
            value: "list",
            help: "Tests, as for -t without sweep. Of a group (ping, lrange) each is measured.",
            apply: |settings, value| {
                Test::select(Some(value))?;
                settings.tests.clear();
                for test in value.split(',').flat_map(Test::members) {
                    if !settings.tests.iter().any(|known| known == test) {
                        settings.tests.push(test.to_owned());
                    }
                }
                Ok(())
            },
        },
        Flag {
            names: &["-d"],
            value: "list",
            help: "Sizes of values in bytes.",
            apply: |settings, value| set(&mut settings.data_sizes, list(value, 1, 1 << 30)?),
        },
        Flag {
            names: &["-P"],
            value: "list",
            help: "Pipelines.",
            apply: |settings, value| set(&mut settings.pipelines, list(value, 1, 100_000)?),
        },
        Flag {
            names: &["-c"],
            value: "list",
            help: "Numbers of clients.",
            apply: |settings, value| set(&mut settings.clients, list(value, 1, 100_000)?),
        },
        Flag {
            names: &["-r"],
            value: "keys",
            help: "Random keys. Before a test that reads, all keys that it draws from are written: at \
                   most a million of them.",
            apply: |settings, value| {
                set(&mut settings.keyspace, number(value, 1..=1_000_000_000_000)?)
            },
        },
        Flag {
            names: &["--threads"],
            value: "threads",
            help: "Threads that send (default: as many as there are processors).",
            apply: |settings, value| set(&mut settings.threads, number(value, 1..=500)?),
        },
        Flag {
            names: &["--seconds"],
            value: "seconds",
            help: "Duration of each measurement of a round (default 2).",
            apply: |settings, value| set(&mut settings.seconds, positive(value)?.min(1e6)),
        },
        Flag {
            names: &["--expire"],
            value: "operations",
            help: "Measure what expiry costs too, with this many operations (300000 in matrix c).",
            apply: |settings, value| {
                set(&mut settings.expiry_operations, number(value, 1..=EXPIRY_OPERATIONS_MAX)?)
            },
        },
        Flag {
            names: &["--rounds", "--runs"],
            value: "rounds",
            help: "Measure everything so often, round by round (default 3). Intervals need two.",
            apply: |settings, value| set(&mut settings.rounds, number(value, 1..=1000)?),
        },
        Flag {
            names: &["--output"],
            value: "prefix",
            help: "Where to write: prefix.csv, prefix.json and prefix.html (default bobbin-sweep).",
            apply: |settings, value| set(&mut settings.output, value.into()),
        },
    ],
    attached_values: false,
};

const EXPIRY_OPERATIONS_MAX: u64 = 100_000_000;

fn list(value: &str, low: u64, high: u64) -> Result<Vec<usize>, String> {
    value.split(',').map(|item| number(item, low..=high)).collect()
}

/// Does it all.
pub fn run(settings: &SweepSettings, rest: &[String]) -> Result<(), DriveFailure> {
    if let Some(word) = rest.first() {
        return Err(DriveFailure(format!(
            "Unexpected argument '{word}'; --help lists the options"
        )));
    }
    let with = |extension: &str| {
        let mut path = settings.output.clone().into_os_string();
        path.push(extension);
        PathBuf::from(path)
    };
    let paths = [".csv", ".json", ".html"].map(with);
    let mut csv = OutputFile::open(&paths[0])?;
    let mut json = OutputFile::open(&paths[1])?;
    let mut html = OutputFile::open(&paths[2])?;
    let provenance = Provenance::now();
    let mut results = Results::new(settings);
    interrupt::watch_signals()?;
    results.measure(settings)?;
    if results.interrupted.is_some() && results.rounds() == 0 {
        return Err(DriveFailure(TOO_EARLY.into()));
    }
    // Fewer than asked for where the sweep was interrupted.
    let settings = &SweepSettings { rounds: results.rounds() as u32, ..settings.clone() };
    say!("{}", present::text(settings, &results));
    csv.write(present::csv(settings, &results))?;
    json.write(format!("{:#}\n", present::json(settings, &provenance, &results)))?;
    html.write(present::page(settings, &provenance, &results))?;
    complain!("Wrote {}", paths.map(|path| path.display().to_string()).join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_tests_are_measured_one_by_one() {
        let arguments = ["--tests", "set,PING,lrange_100,lrange"].map(str::to_owned);
        let mut settings = SweepSettings::default();
        GRAMMAR.parse(&arguments, &mut settings).unwrap();
        assert_eq!(
            settings.tests.join(" "),
            "set ping_inline ping_mbulk lrange_100 lrange_300 lrange_500 lrange_600"
        );
    }
}
