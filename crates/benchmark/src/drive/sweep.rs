//! `bobbin-benchmark sweep`: servers, numbers of I/O threads and tests, all with all, as a table,
//! CSV, JSON and a page of charts.

use std::{path::PathBuf, time::Duration};

use serde_json::{Value, json};

use super::{
    Failure, median,
    process::{self, Process},
    redis::{Bench, loads},
    write_file,
};
use crate::{
    engine::Outcome,
    options::{Common, Flag, Grammar, common, connection, number, positive, redis},
    page::{Axis, Chart, Line, Page},
    report::json as document,
    server,
};

#[derive(Clone, Debug)]
pub struct Settings {
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
    pub runs: u32,
    pub output: PathBuf,
}

impl Default for Settings {
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
            runs: 1,
            output: "bobbin-sweep".into(),
        };
        settings.take(&MATRICES[0]);
        settings
    }
}

impl AsMut<Common> for Settings {
    fn as_mut(&mut self) -> &mut Common {
        &mut self.common
    }
}

impl Settings {
    fn take(&mut self, matrix: &Matrix) {
        self.tests = matrix.tests.iter().map(|&test| test.to_owned()).collect();
        self.data_sizes = matrix.data_sizes.to_vec();
        self.pipelines = matrix.pipelines.to_vec();
        self.clients = matrix.clients.to_vec();
        self.keyspace = matrix.keyspace;
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
}

const MATRICES: [Matrix; 3] = [
    Matrix {
        name: "a",
        tests: &["get", "set", "mset", "sadd", "zadd_random", "hset_random", "lpush", "lrange_300"],
        data_sizes: &[3],
        pipelines: &[16],
        clients: &[50],
        keyspace: 1_000_000,
    },
    Matrix {
        name: "b",
        tests: &["set", "get"],
        data_sizes: &[128, 512, 1024],
        pipelines: &[1],
        clients: &[256, 2000],
        keyspace: 100_000_000,
    },
    Matrix {
        name: "d",
        tests: &["set", "get", "mset", "hset", "lrange_100", "xadd_1", "xadd_5", "xadd_10"],
        data_sizes: &[3, 100, 1000],
        pipelines: &[1, 5, 10],
        clients: &[512],
        keyspace: 1_000_000,
    },
];

pub const GRAMMAR: Grammar<Settings> = Grammar {
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
                settings.servers = value.split(',').map(str::to_owned).collect();
                Ok(())
            },
        },
        Flag {
            names: &["--io-threads"],
            value: "list",
            help: "Numbers of I/O threads (default 1,2,4,6).",
            apply: |settings, value| {
                settings.io_threads = list(value, 1, 1024)?;
                Ok(())
            },
        },
        Flag {
            names: &["--matrix"],
            value: "name",
            help: "Tests, sizes, pipelines and clients as in published measurements: a (eight \
                   commands, pipeline 16; the default), b (SET and GET of three sizes with 256 and \
                   2000 clients) or d (eight commands, three sizes, three pipelines, 512 clients).",
            apply: |settings, value| {
                let matrix = MATRICES.iter().find(|matrix| matrix.name == value);
                settings.take(matrix.ok_or_else(|| format!("'{value}' is none of a, b, d"))?);
                Ok(())
            },
        },
        Flag {
            names: &["--tests", "-t"],
            value: "list",
            help: "Tests, as for -t without sweep.",
            apply: |settings, value| {
                crate::workload::Test::select(Some(value))?;
                settings.tests = value.split(',').map(str::to_owned).collect();
                Ok(())
            },
        },
        Flag {
            names: &["-d"],
            value: "list",
            help: "Sizes of values in bytes.",
            apply: |settings, value| {
                settings.data_sizes = list(value, 1, 1 << 30)?;
                Ok(())
            },
        },
        Flag {
            names: &["-P"],
            value: "list",
            help: "Pipelines.",
            apply: |settings, value| {
                settings.pipelines = list(value, 1, 100_000)?;
                Ok(())
            },
        },
        Flag {
            names: &["-c"],
            value: "list",
            help: "Numbers of clients.",
            apply: |settings, value| {
                settings.clients = list(value, 1, 100_000)?;
                Ok(())
            },
        },
        Flag {
            names: &["-r"],
            value: "keys",
            help: "Random keys.",
            apply: |settings, value| {
                settings.keyspace = number(value, 1..=1_000_000_000_000)?;
                Ok(())
            },
        },
        Flag {
            names: &["--threads"],
            value: "threads",
            help: "Threads that send (default: as many as there are processors).",
            apply: |settings, value| {
                settings.threads = number(value, 1..=500)?;
                Ok(())
            },
        },
        Flag {
            names: &["--seconds"],
            value: "seconds",
            help: "Duration of each measurement (default 2).",
            apply: |settings, value| {
                settings.seconds = positive(value)?.min(1e6);
                Ok(())
            },
        },
        Flag {
            names: &["--runs"],
            value: "runs",
            help: "Measure so often and take the median (default 1).",
            apply: |settings, value| {
                settings.runs = number(value, 1..=1000)?;
                Ok(())
            },
        },
        Flag {
            names: &["--output"],
            value: "prefix",
            help: "Where to write: prefix.csv, prefix.json and prefix.html (default bobbin-sweep).",
            apply: |settings, value| {
                settings.output = value.into();
                Ok(())
            },
        },
    ],
    attached_values: false,
};

fn list(value: &str, low: u64, high: u64) -> Result<Vec<usize>, String> {
    value.split(',').map(|item| number(item, low..=high)).collect()
}

/// One measurement and where in the matrix it is.
struct Cell {
    server: String,
    io_threads: usize,
    test: String,
    shape: Shape,
    outcome: Outcome,
    rates: Vec<f64>,
    server_cpu_us: f64,
    resident_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    data_size: usize,
    pipeline: usize,
    clients: usize,
}

impl Shape {
    fn title(self) -> String {
        let Self { data_size, pipeline, clients } = self;
        format!("{data_size} bytes, pipeline {pipeline}, {clients} clients")
    }
}

/// Does it all.
pub fn run(settings: &Settings, rest: &[String]) -> Result<(), Failure> {
    if let Some(word) = rest.first() {
        return Err(Failure(format!("Unexpected argument '{word}'; --help lists the options")));
    }
    let mut cells = Vec::new();
    say_line!("{}", HEAD.join("\t"));
    for name in &settings.servers {
        for &io_threads in &settings.io_threads {
            measure_server(settings, name, io_threads, &mut cells)?;
        }
    }
    let with = |extension: &str| {
        let mut path = settings.output.clone().into_os_string();
        path.push(extension);
        PathBuf::from(path)
    };
    let lines: Vec<String> = cells.iter().map(|cell| row(cell).join(",") + "\n").collect();
    write_file(&with(".csv"), format!("{}\n{}", HEAD.join(","), lines.concat()))?;
    let tests = cells.iter().map(to_json).collect();
    let configuration = json!({ "seconds": settings.seconds, "runs": settings.runs });
    let text = format!("{:#}\n", document::document(configuration, tests));
    write_file(&with(".json"), &text)?;
    write_file(&with(".html"), page(settings, &cells))?;
    eprintln!(
        "Wrote {}",
        [".csv", ".json", ".html"].map(|e| with(e).display().to_string()).join(", ")
    );
    Ok(())
}

fn measure_server(
    settings: &Settings,
    name: &str,
    io_threads: usize,
    cells: &mut Vec<Cell>,
) -> Result<(), Failure> {
    let mut arguments = vec!["--io-threads".to_owned(), io_threads.to_string()];
    if name.contains("redis") {
        arguments.extend(["--io-threads-do-reads".to_owned(), "yes".to_owned()]);
    }
    let process = Process::start(&process::program(name), &arguments, &settings.common)?;
    for &data_size in &settings.data_sizes {
        for &pipeline in &settings.pipelines {
            for &clients in &settings.clients {
                let shape = Shape { data_size, pipeline, clients };
                server::call(&mut server::connect(&settings.common)?, &["FLUSHALL"])?;
                for test in &settings.tests {
                    let cell = measure(settings, name, io_threads, shape, test, &process)?;
                    say_line!("{}", row(&cell).join("\t"));
                    cells.push(cell);
                }
            }
        }
    }
    Ok(())
}

fn measure(
    settings: &Settings,
    name: &str,
    io_threads: usize,
    shape: Shape,
    test: &str,
    process: &Process,
) -> Result<Cell, Failure> {
    let mut bench_settings = redis::Settings {
        common: settings.common.clone(),
        clients: shape.clients,
        threads: settings.threads,
        data_size: shape.data_size,
        keyspace: Some(settings.keyspace),
        pipeline: shape.pipeline,
        tests: Some(test.to_owned()),
        runs: 1,
        ..redis::Settings::default()
    };
    let mut loads = loads(&bench_settings, &[])?;
    let load = loads.pop().ok_or_else(|| Failure(format!("there is no test '{test}'")))?;
    // What the test needs to find is sent before it, and not measured.
    bench_settings.requests = Some(PREPARING_REQUESTS);
    for preparing in &loads {
        Bench::new(&bench_settings)?.measure(preparing)?;
    }
    bench_settings.requests = None;
    bench_settings.duration = Some(Duration::from_secs_f64(settings.seconds));
    bench_settings.warm_up = Duration::from_secs_f64(settings.seconds * WARM_UP_SHARE);
    bench_settings.runs = settings.runs;
    let cpu = |process: &Process| process::cpu_time(process.id()).unwrap_or_default();
    let bench = Bench::new(&bench_settings)?;
    let before = cpu(process);
    let mut outcomes = bench.measure(&load)?;
    let used = cpu(process).saturating_sub(before);
    // What was sent to warm up took time too.
    let requests: u64 = outcomes.iter().map(Outcome::requests).sum();
    let requests = requests as f64 * (1.0 + WARM_UP_SHARE);
    let rates: Vec<f64> = outcomes.iter().map(Outcome::rate).collect();
    let outcome = outcomes.swap_remove(median(&rates));
    Ok(Cell {
        server: name.rsplit('/').next().unwrap_or(name).to_owned(),
        io_threads,
        test: test.to_uppercase(),
        shape,
        outcome,
        rates,
        server_cpu_us: used.as_secs_f64() * 1e6 / requests.max(1.0),
        resident_bytes: process::resident_bytes(process.id()).unwrap_or(0),
    })
}

const HEAD: [&str; 14] = [
    "server",
    "io-threads",
    "test",
    "bytes",
    "pipeline",
    "clients",
    "rps",
    "p50_ms",
    "p99_ms",
    "p99.9_ms",
    "max_ms",
    "server_cpu_us",
    "client_cpu_us",
    "rss_mib",
];

fn row(cell: &Cell) -> Vec<String> {
    let latencies = cell.outcome.latencies();
    let ms = |quantile| format!("{:.3}", latencies.value_at_quantile(quantile) as f64 / 1e6);
    vec![
        cell.server.clone(),
        cell.io_threads.to_string(),
        cell.test.clone(),
        cell.shape.data_size.to_string(),
        cell.shape.pipeline.to_string(),
        cell.shape.clients.to_string(),
        format!("{:.0}", cell.outcome.rate()),
        ms(0.5),
        ms(0.99),
        ms(0.999),
        ms(1.0),
        format!("{:.3}", cell.server_cpu_us),
        format!("{:.3}", cell.outcome.cpu_us_per_request()),
        format!("{:.1}", cell.resident_bytes as f64 / f64::from(1 << 20)),
    ]
}

fn to_json(cell: &Cell) -> Value {
    let title = format!(
        "{}, {} I/O threads, {}, {}",
        cell.server,
        cell.io_threads,
        cell.test,
        cell.shape.title()
    );
    let mut value = document::test(&title, &cell.outcome, &cell.rates);
    value["server"] = json!(cell.server);
    value["io_threads"] = json!(cell.io_threads);
    value["command"] = json!(cell.test);
    value["data_size"] = json!(cell.shape.data_size);
    value["pipeline"] = json!(cell.shape.pipeline);
    value["clients"] = json!(cell.shape.clients);
    value["server_cpu_us"] = json!(document::round(cell.server_cpu_us));
    value["resident_bytes"] = json!(cell.resident_bytes);
    value
}

fn page(settings: &Settings, cells: &[Cell]) -> String {
    let about = format!(
        "Measured for {} seconds each, runs: {}, threads of the load generator, on the same machine as \
         the servers: {}.",
        settings.seconds, settings.runs, settings.threads
    );
    let mut page = Page::new("Servers by I/O threads", &about);
    let mut shapes: Vec<Shape> = Vec::new();
    for cell in cells {
        if !shapes.contains(&cell.shape) {
            shapes.push(cell.shape);
        }
    }
    type Measure = fn(&Cell) -> f64;
    let charts: [(&str, &str, Measure); 3] = [
        ("Throughput", "requests per second", |cell| cell.outcome.rate()),
        ("Server's CPU per operation", "microseconds", |cell| cell.server_cpu_us),
        ("Memory", "MiB resident", |cell| cell.resident_bytes as f64 / f64::from(1 << 20)),
    ];
    for (title, unit, value) in charts {
        for &shape in &shapes {
            page.heading(&format!("{title}: {}", shape.title()));
            page.begin_charts();
            for test in &settings.tests {
                let test = test.to_uppercase();
                let here = |cell: &&Cell| cell.shape == shape && cell.test == test;
                page.chart(&Chart {
                    title: test.clone(),
                    x: Axis { title: "I/O threads".into(), is_logarithmic: false },
                    y: Axis { title: unit.into(), is_logarithmic: false },
                    lines: lines(cells, here, value),
                });
            }
            page.end_charts();
        }
    }
    let most = settings.io_threads.iter().copied().max().unwrap_or(1);
    for &shape in &shapes {
        page.heading(&format!("Latency with {most} I/O threads: {}", shape.title()));
        page.begin_charts();
        for test in &settings.tests {
            let test = test.to_uppercase();
            let of_test =
                cells.iter().filter(|c| c.shape == shape && c.test == test && c.io_threads == most);
            let lines = of_test.map(|cell| Line {
                name: cell.server.clone(),
                points: distribution(&cell.outcome),
            });
            page.chart(&Chart {
                title: test.clone(),
                x: Axis { title: "milliseconds".into(), is_logarithmic: true },
                y: Axis {
                    title: "% of requests that took no longer".into(),
                    is_logarithmic: false,
                },
                lines: lines.collect(),
            });
        }
        page.end_charts();
    }
    page.heading("All numbers");
    let rows: Vec<_> = cells.iter().map(row).collect();
    page.table(&HEAD.map(str::to_owned), &rows);
    page.finish()
}

/// A line for each server.
fn lines(cells: &[Cell], here: impl Fn(&&Cell) -> bool, value: impl Fn(&Cell) -> f64) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for cell in cells.iter().filter(here) {
        let point = (cell.io_threads as f64, value(cell));
        match lines.iter_mut().find(|line| line.name == cell.server) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { name: cell.server.clone(), points: vec![point] }),
        }
    }
    for line in &mut lines {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    lines
}

/// Milliseconds, and the percentage of requests that took no longer.
fn distribution(outcome: &Outcome) -> Vec<(f64, f64)> {
    let histogram = document::histogram(&outcome.latencies());
    let points = histogram.as_array().map(Vec::as_slice).unwrap_or_default();
    let point = |point: &Value| Some((point[0].as_f64()?, point[1].as_f64()? * 100.0));
    points.iter().filter_map(point).collect()
}

const PREPARING_REQUESTS: u64 = 10_000;
/// The part of each measurement that comes before it without being counted.
const WARM_UP_SHARE: f64 = 0.1;
