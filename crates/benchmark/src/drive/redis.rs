//! The tests and commands of redis-benchmark's options.

use std::{
    io::Read,
    time::{Duration, SystemTime},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use serde_json::{Value, json};

use super::{
    DriveFailure, check_distribution, file_name, measure, median, unreadable, write_distribution,
};
use crate::{
    engine::{Greeting, Limit, LoadOutcome, LoadRun, PATIENCE, Pace, ServerNode, Topology},
    interrupt::{self, INTERRUPT},
    options::{Common, redis::RedisSettings},
    output::{self, OutputFile},
    provenance::{self, Provenance},
    report::{json, redis as report},
    server,
    statistics::{self, ConfidenceInterval},
    workload::{
        KeyOrder, KeyRange, Placeholders, SuiteRequest, SuiteShape, Template, TemplateOrder, Test,
        ValuePool, Workload, WorkloadRandom, sequence,
    },
};

/// Does what the settings say; `command` is what followed the options.
pub fn run(settings: &RedisSettings, command: &[String]) -> Result<(), DriveFailure> {
    check(settings, command)?;
    if settings.tests.as_deref() == Some("list") {
        say_line!("{}", Test::names().join("\n"));
        return Ok(());
    }
    if settings.fuzz.is_wanted {
        return super::fuzz::run(settings);
    }
    if settings.tests.is_some() && !command.is_empty() {
        complain!("Warning: the tests of -t are passed over, there is a command");
    }
    let mut loads = loads(settings, command)?;
    let mut file = settings.common.json.as_deref().map(OutputFile::open).transpose()?;
    for load in &loads {
        load.distribution(&settings.common).as_deref().map_or(Ok(()), check_distribution)?;
    }
    let provenance = Provenance::now();
    let bench = Bench::new(settings)?;
    if settings.idle {
        return bench.idle();
    }
    if settings.csv {
        let is_open = settings.common.open_loop.is_some();
        say!("{}", report::csv_header(is_open, settings.common.cluster));
    }
    interrupt::watch_signals()?;
    loop {
        let mut results = Vec::new();
        for load in &mut loads {
            match bench.run(load) {
                Ok(result) => results.extend(result),
                Err(DriveFailure(error)) if INTERRUPT.is_raised() => complain!("{error}"),
                Err(failure) => return Err(failure),
            }
            if INTERRUPT.is_raised() {
                break;
            }
        }
        if !settings.csv && command.is_empty() && settings.command_file.is_none() {
            say_line!();
        }
        if let Some(file) = &mut file {
            let is_interrupted = INTERRUPT.is_raised();
            let document =
                json::document(&provenance, bench.configuration(), results, is_interrupted);
            file.write(format!("{document:#}\n"))?;
        }
        if !settings.for_ever || INTERRUPT.is_raised() {
            return Ok(());
        }
    }
}

/// Something to measure.
pub(super) struct Load {
    pub(super) title: String,
    workload: Workload,
    payload_bytes: usize,
    preparation: Option<Vec<Vec<u8>>>,
    /// A test that nobody named may be left out when the server lacks its command.
    is_optional: bool,
}

impl Load {
    /// What its distribution is called, where that is wanted.
    fn distribution(&self, common: &Common) -> Option<String> {
        let prefix = common.hdr_prefix.as_ref()?;
        Some(format!("{prefix}{}", file_name(&self.title)))
    }
}

/// What all tests of one call have in common.
pub(super) struct Bench<'a> {
    settings: &'a RedisSettings,
    nodes: Vec<ServerNode>,
    topology: Option<Topology>,
    greeting: Greeting,
    /// The server's options save and appendonly.
    server: Option<(String, String)>,
    version: Option<String>,
    seed: u64,
}

impl<'a> Bench<'a> {
    pub(super) fn new(settings: &'a RedisSettings) -> Result<Self, DriveFailure> {
        let common = &settings.common;
        let nodes = server::nodes(common, settings.read_from)?;
        if common.cluster {
            if settings.clients < nodes.len() {
                return Err(DriveFailure(format!(
                    "The cluster has {} nodes, so -c must be at least that",
                    nodes.len()
                )));
            }
            if !settings.csv && !settings.quiet {
                say_line!("Cluster of {} nodes:", nodes.len());
                for node in &nodes {
                    say_line!("  {} with {} slots", node.endpoint, node.tags.len());
                }
                say_line!();
            }
        }
        let mut client = server::connect(common)?;
        let mut option = |name| server::option(&mut client, name);
        let server = option("save").zip(option("appendonly"));
        let is_wanted = common.json.is_some();
        let version = if is_wanted { provenance::version(&mut client) } else { None };
        let mut greeting = server::greeting(common, settings.tracking);
        if common.cluster && settings.read_from != crate::options::redis::ReadFrom::Primaries {
            greeting.push(&["READONLY"]);
        }
        let seed = seed(common);
        let topology = server::topology(common, settings.read_from);
        Ok(Self { settings, nodes, topology, greeting, server, version, seed })
    }

    /// Measures one load as often as it was asked for, reports it, and returns it for the file.
    fn run(&self, load: &Load) -> Result<Option<Value>, DriveFailure> {
        let settings = self.settings;
        let outcomes = match self.measure(load) {
            Ok(outcomes) => outcomes,
            // A server without the command of a test that nobody asked for by name is no failure.
            Err(DriveFailure(error)) if load.is_optional && error.contains("unknown command") => {
                complain!("{}: left out, for the server does not know its command", load.title);
                return Ok(None);
            }
            Err(failure) => return Err(failure),
        };
        let rates: Vec<f64> = outcomes.iter().map(LoadOutcome::rate).collect();
        let mut outcome = outcomes[median(&rates)].clone();
        outcome.is_interrupted |= outcomes.len() < settings.runs as usize;
        self.report(load, &outcome, &rates)?;
        Ok(settings.common.json.is_some().then(|| json::test(&load.title, &outcome, &rates)))
    }

    /// Measures one load as often as it was asked for, but not after an interruption. A run that
    /// was interrupted is there only if no other is.
    pub(super) fn measure(&self, load: &Load) -> Result<Vec<LoadOutcome>, DriveFailure> {
        let settings = self.settings;
        if let Some(command) = &load.preparation {
            for mut client in server::connect_to_primaries(&settings.common)? {
                server::call(&mut client, command)?;
            }
        }
        let job = self.job(load);
        let hidden = settings.common.hide_progress || settings.csv;
        let mut outcomes = Vec::new();
        for _ in 0..settings.runs {
            match measure(&job, &load.title, hidden) {
                Err(_) if INTERRUPT.is_raised() && !outcomes.is_empty() => break,
                Ok(outcome) if outcome.is_interrupted && !outcomes.is_empty() => break,
                measured => outcomes.push(measured?),
            }
            if INTERRUPT.is_raised() {
                break;
            }
        }
        Ok(outcomes)
    }

    fn job<'b>(&'b self, load: &'b Load) -> LoadRun<'b> {
        let settings = self.settings;
        let limit = match settings.duration {
            Some(duration) => Limit::Time(duration),
            // A request of several commands counts as each of them.
            None => Limit::Total(settings.requests.unwrap_or(REQUESTS)),
        };
        let pace = match (settings.common.open_loop, settings.rate) {
            (Some(per_second), _) => Pace::Open { per_second, arrivals: settings.common.arrivals },
            (None, Some(per_second)) => Pace::Limited { per_second },
            (None, None) => Pace::Closed,
        };
        LoadRun {
            workload: &load.workload,
            nodes: &self.nodes,
            topology: self.topology.as_ref(),
            connections: settings.clients,
            threads: settings.threads.max(1),
            pipeline: settings.pipeline,
            limit,
            pace,
            warm_up: settings.warm_up,
            greeting: &self.greeting,
            reconnect_after: (!settings.keep_alive).then_some(settings.pipeline as u64),
            stop_on_error: !settings.common.continue_after_errors,
            seed: self.seed,
            series: settings.common.json.is_some(),
            patience: PATIENCE,
            interrupt: &INTERRUPT,
        }
    }

    fn report(
        &self,
        load: &Load,
        outcome: &LoadOutcome,
        rates: &[f64],
    ) -> Result<(), DriveFailure> {
        let settings = self.settings;
        let header = report::ReportHeader {
            title: load.title.clone(),
            clients: settings.clients,
            payload_bytes: load.payload_bytes,
            pipeline: settings.pipeline,
            keep_alive: settings.keep_alive,
            threads: settings.threads,
            cluster_nodes: settings.common.cluster.then_some(self.nodes.len()),
            server: self.server.clone(),
            digits: settings.precision.unwrap_or(DIGITS),
            is_open: settings.common.open_loop.is_some(),
        };
        let mut text = if settings.csv {
            report::csv(&header, outcome)
        } else if settings.quiet {
            report::short(&header, outcome)
        } else if settings.percentiles || settings.precision.is_some() {
            report::text(&header, outcome)
        } else {
            report::summary(&header, outcome)
        };
        if !settings.csv {
            text += &extras(outcome, rates, settings.common.show_cpu);
            if !settings.quiet {
                text.push('\n');
            }
        }
        say!("{text}");
        output::flush();
        if settings.csv && !header.is_open && outcome.unanswered > 0 {
            complain!("{}: {} without reply at the end", load.title, outcome.unanswered);
        }
        if settings.csv && outcome.is_interrupted {
            complain!("{}: interrupted before its end", load.title);
        }
        if let Some(error) = &outcome.first_error {
            complain!("Error from server: {error} (and {} in all)", outcome.errors());
        }
        if let Some(name) = load.distribution(&settings.common) {
            let started = SystemTime::now() - outcome.elapsed;
            write_distribution(&name, &load.title, &outcome.latencies(), started, outcome.elapsed)?;
        }
        Ok(())
    }

    fn configuration(&self) -> Value {
        let settings = self.settings;
        json!({
            "server": server::place(&settings.common),
            "server_version": self.version,
            "clients": settings.clients,
            "threads": settings.threads.max(1),
            "pipeline": settings.pipeline,
            "data_size": settings.data_size,
            "keyspace": settings.keyspace,
            "runs": settings.runs,
            "open_loop": settings.common.open_loop,
        })
    }

    /// Keeps connections open until somebody ends the program, or the server one of them.
    fn idle(&self) -> Result<(), DriveFailure> {
        say_line!(
            "Opening {} idle connections and waiting for ever (end with Ctrl-C)",
            self.settings.clients
        );
        let mut clients = Vec::new();
        for _ in 0..self.settings.clients {
            let mut client = server::connect(&self.settings.common)?;
            client.set_read_timeout(Some(IDLE_READ_TIME_MAX))?;
            clients.push(client);
        }
        loop {
            let mut ready: Vec<_> =
                clients.iter().map(|client| PollFd::new(client, PollFlags::IN)).collect();
            match poll(&mut ready, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let ready: Vec<_> = ready.iter().map(|fd| !fd.revents().is_empty()).collect();
            for (client, _) in clients.iter_mut().zip(ready).filter(|(_, is_ready)| *is_ready) {
                match client.receive_any() {
                    Ok(reply) => match reply.as_error() {
                        Some(text) => {
                            let text = String::from_utf8_lossy(text);
                            return Err(DriveFailure(format!("Error from server: {text}")));
                        }
                        None => continue,
                    },
                    // What came was TLS's own.
                    Err(error) if error.is_timeout() => continue,
                    Err(error) => return Err(DriveFailure(format!("Error: {error}"))),
                }
            }
        }
    }
}

/// What no option of another program says.
fn extras(outcome: &LoadOutcome, rates: &[f64], show_cpu: bool) -> String {
    let mut text = String::new();
    if rates.len() > 1 {
        let low = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let high = rates.iter().copied().fold(0.0, f64::max);
        text += &format!(
            "  median of {} runs; slowest {low:.2}, fastest {high:.2}, spread {:.1}%\n",
            rates.len(),
            statistics::spread(rates) * 100.0
        );
        if let Some(ConfidenceInterval { low, high }) = statistics::interval(rates) {
            text += &format!(
                "  mean {:.2}, 95% interval {low:.2} to {high:.2} (Student's t over the runs)\n",
                statistics::mean(rates)
            );
        }
        if statistics::disagree(rates) {
            text += &format!(
                "  warning: the runs disagree, they are spread by more than {:.0}%\n",
                statistics::SPREAD_MAX * 100.0
            );
        }
    }
    if outcome.redirections() > 0 {
        text += &format!(
            "  redirections: {}, of requests for slots that other nodes have\n",
            outcome.redirections()
        );
    }
    if show_cpu {
        text += &format!(
            "  generator: {:.3} microseconds of processor time per request\n",
            outcome.cpu_us_per_request()
        );
    }
    text
}

/// What cannot go together.
fn check(settings: &RedisSettings, command: &[String]) -> Result<(), DriveFailure> {
    let common = &settings.common;
    let fault = if settings.requests.is_some() && settings.duration.is_some() {
        "-n and --duration exclude each other"
    } else if common.open_loop.is_some() && settings.rate.is_some() {
        "--open-loop and --rps exclude each other"
    } else if common.open_loop.is_some() && !settings.keep_alive {
        "--open-loop needs connections that stay (-k 1)"
    } else if settings.fuzz.is_wanted && (!command.is_empty() || settings.tests.is_some()) {
        "--fuzz makes its own commands"
    } else if settings.last_from_stdin && command.is_empty() {
        "-x needs a command"
    } else if settings.command_file.is_some() && !command.is_empty() {
        "--command-file and a command exclude each other"
    } else if settings.tests.is_some() && settings.command_file.is_some() {
        "-t and --command-file exclude each other"
    } else if settings.keyspace.is_none()
        && (settings.sequential || settings.zipf.is_some() || settings.hot.is_some())
    {
        "--sequential, --zipf and --hot-keys need -r"
    } else if [settings.sequential, settings.zipf.is_some(), settings.hot.is_some()]
        .iter()
        .filter(|&&is_set| is_set)
        .count()
        > 1
    {
        "--sequential, --zipf and --hot-keys exclude each other"
    } else {
        return Ok(());
    };
    Err(DriveFailure(fault.to_owned()))
}

pub(super) fn loads(
    settings: &RedisSettings,
    command: &[String],
) -> Result<Vec<Load>, DriveFailure> {
    let mut random = WorkloadRandom::new(settings.common.seed.unwrap_or(0x5eed));
    let placeholders = Placeholders {
        keyspace: settings.keyspace.map(|count| KeyRange { count, order: key_order(settings) }),
        data: ValuePool::printable(settings.data_size, &mut random),
        cluster: settings.common.cluster,
    };
    if let Some(path) = &settings.command_file {
        let text = std::fs::read_to_string(path)
            .map_err(|error| unreadable(&path.display().to_string(), &error))?;
        return Ok(vec![from_file(&text, &path.display().to_string(), &placeholders)?]);
    }
    if !command.is_empty() {
        let mut words: Vec<Vec<u8>> = command.iter().map(|word| word.as_bytes().to_vec()).collect();
        if settings.last_from_stdin {
            let mut last = Vec::new();
            std::io::stdin().read_to_end(&mut last)?;
            words.push(last);
        }
        let title = command.join(" ");
        let mut workload = Workload { classes: vec![title.clone()], ..Workload::default() };
        placeholders.add(&mut workload, 0, &sequence(&words)?)?;
        let payload_bytes = words.iter().map(Vec::len).sum();
        return Ok(vec![Load {
            title,
            workload,
            payload_bytes,
            preparation: None,
            is_optional: false,
        }]);
    }
    let shape = SuiteShape {
        cluster: settings.common.cluster,
        random_keys: settings.keyspace.is_some(),
        functions: settings.functions,
        fcall_keys: settings.fcall_keys,
    };
    let mut loads = Vec::new();
    for test in Test::select(settings.tests.as_deref())? {
        let mut workload = Workload { classes: vec![test.title.into()], ..Workload::default() };
        match test.request {
            SuiteRequest::Inline(text) => {
                let line = format!("{text}\r\n");
                workload.templates.push(Template::raw(0, line.as_bytes()));
            }
            _ => placeholders.add(&mut workload, 0, &test.request.commands(shape))?,
        }
        loads.push(Load {
            title: test.title.into(),
            workload,
            payload_bytes: settings.data_size,
            preparation: test.request.preparation(),
            is_optional: settings.tests.is_none(),
        });
    }
    Ok(loads)
}

fn key_order(settings: &RedisSettings) -> KeyOrder {
    if settings.sequential {
        KeyOrder::Sequential
    } else if let Some(exponent) = settings.zipf {
        KeyOrder::Zipf(exponent)
    } else if let Some((keys, share)) = settings.hot {
        KeyOrder::Hot { keys, share }
    } else {
        KeyOrder::Uniform
    }
}

/// The commands of a file: in each line a weight and a command, quoted as in redis-cli; empty lines
/// and those that begin with # say nothing.
fn from_file(text: &str, name: &str, placeholders: &Placeholders) -> Result<Load, DriveFailure> {
    let mut workload = Workload::default();
    let mut weights = Vec::new();
    let mut payload_bytes = 0;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fault = |what: &str| DriveFailure(format!("{name}, line {}: {what}", number + 1));
        let (weight, command) =
            line.split_once(' ').ok_or_else(|| fault("a weight and a command are needed"))?;
        let weight: u64 = weight.parse().map_err(|_| fault("the weight is not a number"))?;
        let words = bobbin_resp::split_arguments(command.as_bytes())
            .ok_or_else(|| fault("unbalanced quotes"))?;
        let words: Vec<Vec<u8>> = words.into_iter().collect();
        let commands = sequence(&words).map_err(|error| fault(&error))?;
        let class = u16::try_from(workload.classes.len())
            .map_err(|_| fault("there are too many commands"))?;
        workload.classes.push(command.to_owned());
        placeholders.add(&mut workload, class, &commands).map_err(|error| fault(&error))?;
        weights.push((workload.templates.len() - 1, weight));
        payload_bytes = payload_bytes.max(words.iter().map(Vec::len).sum());
    }
    workload.order = TemplateOrder::Weighted(weights);
    workload.check().map_err(|error| DriveFailure(format!("{name}: {error}")))?;
    let title = name.to_owned();
    Ok(Load { title, workload, payload_bytes, preparation: None, is_optional: false })
}

/// The seed of the random numbers, another one each time unless somebody asked for one.
pub(super) fn seed(common: &Common) -> u64 {
    common.seed.unwrap_or_else(|| u64::from(std::process::id()) ^ now_ns())
}

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos() as u64)
}

/// What an idle connection has to say comes at once.
const IDLE_READ_TIME_MAX: Duration = Duration::from_millis(100);
/// Significant digits of the distribution when nobody says how many.
const DIGITS: u8 = 3;
/// Requests of a test when nobody says how many.
const REQUESTS: u64 = 100_000;
