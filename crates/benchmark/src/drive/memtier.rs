//! The runs of memtier_benchmark's options.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use super::{Failure, measure, median, monitor, write_distribution, write_file};
use crate::{
    engine::{ClassRecord, Greeting, Job, Latencies, Limit, Node, Outcome, PATIENCE, Pace},
    options::{
        memtier::{KeyPattern, Requests, Settings, SizeRule},
        redis::ReadFrom,
    },
    report::memtier as report,
    server,
    workload::{Content, Numbers, Order, Part, Random, Sizes, Template, Values, Workload, Zipf},
};

/// Does what the settings say; memtier_benchmark takes nothing after its options.
pub fn run(settings: &Settings, rest: &[String]) -> Result<(), Failure> {
    if let Some(word) = rest.first() {
        return Err(Failure(format!("Unexpected argument '{word}'; --help lists the options")));
    }
    check(settings)?;
    let workload = workload(settings)?;
    let nodes = server::nodes(&settings.common, ReadFrom::Primaries)?;
    let topology = server::topology(&settings.common, ReadFrom::Primaries);
    let greeting = server::greeting(&settings.common, false);
    let seed = match (settings.common.seed, settings.randomize) {
        (Some(seed), _) => seed,
        (None, true) => SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |now| now.as_nanos() as u64),
        (None, false) => SEED,
    };
    let mut text = String::new();
    if settings.show_configuration {
        text += &format!("{settings:#?}\n");
    }
    text += &format!("{:<9} Threads\n", settings.threads);
    text += &format!("{:<9} Connections per thread\n", settings.clients);
    text += &match settings.test_time {
        Some(seconds) => format!("{seconds:<9} Seconds\n\n\n"),
        None => format!("{:<9} Requests per client\n\n\n", requests_each(settings)),
    };
    let mut runs = Vec::new();
    for number in 1..=settings.runs {
        let title = format!("RUN #{number}");
        let seed = seed.wrapping_add(number.into());
        let job = Job {
            topology: topology.as_ref(),
            ..job(settings, &workload, &nodes, &greeting, seed)
        };
        let started = SystemTime::now();
        let outcome = measure(&job, &title, settings.common.hide_progress)?;
        if let Some(error) = &outcome.first_error {
            complain!("Error from server: {error} (and {} in all)", outcome.errors());
        }
        write_distributions(settings, &outcome, number, started)?;
        runs.push((outcome, started));
    }
    let mut document = Map::new();
    document.insert("configuration".into(), configuration(settings));
    document.insert(
        "run information".into(),
        json!({
            "Threads": settings.threads,
            "Connections per thread": settings.clients,
            "Requests per client": requests_each(settings),
            "Format version": 2,
        }),
    );
    for (title, outcome, started) in sections(settings, &runs) {
        text += &report::text(settings, &title, &outcome);
        document.insert(title, report::json(settings, &outcome, started));
    }
    if settings.common.show_cpu {
        let outcome = &runs[0].0;
        text += &format!(
            "generator: {:.3} microseconds of processor time per request\n",
            outcome.cpu_us_per_request()
        );
    }
    match &settings.out_file {
        Some(path) => write_file(path, &text)?,
        None => say!("{text}"),
    }
    if let Some(path) = &settings.common.json {
        write_file(path, format!("{:#}\n", Value::Object(document)))?;
    }
    Ok(())
}

/// What is shown: the only run, or the best, the worst and the average of several.
fn sections(
    settings: &Settings,
    runs: &[(Outcome, SystemTime)],
) -> Vec<(String, Outcome, SystemTime)> {
    if let [(outcome, started)] = runs {
        return vec![("ALL STATS".into(), outcome.clone(), *started)];
    }
    let mut sections = Vec::new();
    if settings.print_all_runs {
        for (number, (outcome, started)) in runs.iter().enumerate() {
            sections.push((format!("RUN #{} RESULTS", number + 1), outcome.clone(), *started));
        }
    }
    let rates: Vec<f64> = runs.iter().map(|(outcome, _)| outcome.rate()).collect();
    let index = |wanted: f64| rates.iter().position(|&rate| rate == wanted).unwrap_or(0);
    let best = index(rates.iter().copied().fold(0.0, f64::max));
    let worst = index(rates.iter().copied().fold(f64::INFINITY, f64::min));
    for (title, index) in [
        ("BEST RUN RESULTS", best),
        ("WORST RUN RESULTS", worst),
        ("MEDIAN RUN RESULTS", median(&rates)),
    ] {
        let (outcome, started) = &runs[index];
        sections.push((title.into(), outcome.clone(), *started));
    }
    let mut whole = runs[0].0.clone();
    for (outcome, _) in &runs[1..] {
        whole.add(outcome);
    }
    sections.push((format!("AGGREGATED AVERAGE RESULTS ({} runs)", runs.len()), whole, runs[0].1));
    sections
}

fn job<'a>(
    settings: &'a Settings,
    workload: &'a Workload,
    nodes: &'a [Node],
    greeting: &'a Greeting,
    seed: u64,
) -> Job<'a> {
    let connections = settings.clients * settings.threads;
    let limit = match settings.test_time {
        Some(seconds) => Limit::Time(Duration::from_secs(seconds)),
        None => Limit::Each(requests_each(settings)),
    };
    let pace = match (settings.common.open_loop, settings.rate) {
        (Some(per_second), _) => Pace::Open { per_second, arrivals: settings.common.arrivals },
        (None, Some(rate)) => Pace::Limited { per_second: rate * connections as f64 },
        (None, None) => Pace::Closed,
    };
    Job {
        workload,
        nodes,
        topology: None,
        connections,
        threads: settings.threads,
        pipeline: settings.pipeline,
        limit,
        pace,
        warm_up: Duration::from_secs(settings.warm_up),
        greeting,
        reconnect_after: settings.reconnect,
        stop_on_error: false,
        seed,
        series: settings.common.json.is_some(),
        patience: PATIENCE,
    }
}

fn requests_each(settings: &Settings) -> u64 {
    let keys = settings.key_maximum - settings.key_minimum + 1;
    let connections = (settings.clients * settings.threads) as u64;
    let in_parts = match settings.commands.first() {
        Some(command) => command.pattern == KeyPattern::Parallel,
        None => settings.key_patterns.0 == KeyPattern::Parallel,
    };
    match settings.requests {
        Requests::Each(each) => each,
        Requests::AllKeys if in_parts => keys.div_ceil(connections),
        Requests::AllKeys => keys,
    }
}

fn check(settings: &Settings) -> Result<(), Failure> {
    let fault = if settings.key_minimum > settings.key_maximum {
        "--key-minimum is above --key-maximum"
    } else if settings.common.open_loop.is_some() && settings.rate.is_some() {
        "--open-loop and --rate-limiting exclude each other"
    } else if settings.common.open_loop.is_some() && settings.reconnect.is_some() {
        "--open-loop and --reconnect-interval exclude each other"
    } else if settings.common.open_loop.is_some() && settings.test_time.is_none() {
        "--open-loop needs --test-time"
    } else if settings.sizes_by_key && !matches!(settings.sizes, SizeRule::Range(..)) {
        "--data-size-pattern S needs --data-size-range"
    } else if settings.data_offset > 0
        && (!matches!(settings.sizes, SizeRule::Fixed(_))
            || settings.expiry.is_some()
            || settings.multi_key_get > 0)
    {
        "--data-offset goes with --data-size only"
    } else if settings.wait_ratio.is_some() && !settings.commands.is_empty() {
        "--wait-ratio and --command exclude each other"
    } else {
        return Ok(());
    };
    Err(Failure(fault.to_owned()))
}

fn workload(settings: &Settings) -> Result<Workload, Failure> {
    let keys = settings.key_maximum - settings.key_minimum + 1;
    let sizes = match settings.sizes.clone() {
        SizeRule::Fixed(size) => Sizes::Fixed(size),
        SizeRule::Range(min, max) if settings.sizes_by_key => {
            Sizes::ByKey { min, max, low: settings.key_minimum, count: keys }
        }
        SizeRule::Range(min, max) => Sizes::Range { min, max },
        SizeRule::Weighted(sizes) => Sizes::Weighted(sizes),
    };
    let content = if settings.random_data { Content::Random } else { Content::Letter };
    let values = Values::new(sizes, content, &mut Random::new(SEED));
    let mut workload = Workload { values: vec![values], ..Workload::default() };
    if settings.common.cluster {
        workload.key_prefix = Some(settings.key_prefix.clone().into_bytes());
    }
    let mut steps = Vec::new();
    if settings.commands.is_empty() {
        let (sets, gets) = settings.ratio;
        for name in ["Sets", "Gets"] {
            workload.classes.push(name.into());
        }
        let set = set_template(settings, &mut workload);
        workload.templates.push(set);
        let get = get_template(settings, &mut workload);
        workload.templates.push(get);
        if settings.wait_ratio.is_some() {
            workload.classes.push("Waits".into());
            let wait = wait_template(settings, &mut workload);
            workload.templates.push(wait);
        }
        steps = mixed_steps(sets, gets, settings.wait_ratio);
    }
    let sequence = monitor::expand(settings)?;
    for command in &sequence.commands {
        let row = if settings.row_for_each_line {
            command.line.clone()
        } else {
            report::row_name(&command.words[0])
        };
        let class = workload.classes.iter().position(|class| *class == row).unwrap_or_else(|| {
            workload.classes.push(row);
            workload.classes.len() - 1
        });
        let class =
            u16::try_from(class).map_err(|_| Failure("there are too many commands".into()))?;
        let template = custom_template(settings, command, class, &mut workload)?;
        workload.templates.push(template);
        steps.push((workload.templates.len() - 1, command.ratio));
    }
    workload.order = match steps.len() {
        1 => Order::Single,
        _ if sequence.is_random => Order::Weighted(steps),
        _ => Order::Cycle(steps),
    };
    Ok(workload)
}

/// SETs, GETs and WAITs in their ratios: which template how often, until it begins again.
fn mixed_steps(sets: u64, gets: u64, wait: Option<(u64, u64)>) -> Vec<(usize, u64)> {
    let Some((every, waits)) = wait.filter(|_| sets > 0) else {
        return vec![(SET, sets), (GET, gets)];
    };
    let mut steps = Vec::new();
    let mut since = 0;
    loop {
        let mut left = sets;
        while left > 0 {
            let run = left.min(every - since);
            steps.push((SET, run));
            left -= run;
            since += run;
            if since == every {
                steps.push((WAIT, waits));
                since = 0;
            }
        }
        steps.push((GET, gets));
        if since == 0 || steps.len() > STEPS_MAX {
            return steps;
        }
    }
}

fn wait_template(settings: &Settings, workload: &mut Workload) -> Template {
    let (low, high) = settings.wait_replicas;
    let replicas = add_free(workload, Numbers::Uniform { low, count: high - low + 1 });
    let (low, high) = settings.wait_ms;
    let time = Numbers::Normal {
        low,
        count: high - low + 1,
        median: (low + high) as f64 / 2.0,
        deviation: (high - low) as f64 / 6.0,
    };
    let time = add_free(workload, time);
    let arguments =
        vec![vec![Part::Text(b"WAIT".to_vec())], vec![Part::Decimal(0)], vec![Part::Decimal(1)]];
    Template::new(WAIT as u16, vec![replicas, time], &[arguments])
}

/// SET, or SETEX where keys expire, or SETRANGE.
fn set_template(settings: &Settings, workload: &mut Workload) -> Template {
    let key = pattern(settings, settings.key_patterns.0);
    let mut slots = vec![add(workload, key)];
    let text = |text: &str| vec![Part::Text(text.as_bytes().to_vec())];
    let mut arguments = vec![text("SET"), key_argument(settings, 0)];
    if let Some((low, high)) = settings.expiry {
        slots.push(add_free(workload, Numbers::Uniform { low, count: high - low + 1 }));
        arguments[0] = text("SETEX");
        arguments.push(vec![Part::Decimal(1)]);
    }
    if settings.data_offset > 0 {
        arguments[0] = text("SETRANGE");
        arguments.push(text(&settings.data_offset.to_string()));
    }
    arguments.push(vec![Part::Value { values: 0, key_slot: Some(0) }]);
    Template::new(SET as u16, slots, &[arguments])
}

/// GET, or MGET of several keys, or GETRANGE.
fn get_template(settings: &Settings, workload: &mut Workload) -> Template {
    let key = pattern(settings, settings.key_patterns.1);
    let pattern = add(workload, key);
    let count = settings.multi_key_get.max(1);
    let offset = settings.data_offset;
    let name = match settings.multi_key_get {
        0 if offset > 0 => "GETRANGE",
        0 => "GET",
        _ => "MGET",
    };
    let mut arguments = vec![vec![Part::Text(name.into())]];
    arguments.extend((0..count).map(|slot| key_argument(settings, slot)));
    if let (SizeRule::Fixed(size), 1..) = (&settings.sizes, offset) {
        let number = |number: u64| vec![Part::Text(number.to_string().into_bytes())];
        arguments.extend([number(offset), number(offset + *size as u64 - 1)]);
    }
    Template::new(GET as u16, vec![pattern; count], &[arguments])
}

fn custom_template(
    settings: &Settings,
    command: &crate::options::memtier::CustomCommand,
    class: u16,
    workload: &mut Workload,
) -> Result<Template, Failure> {
    let key = pattern(settings, command.pattern);
    let pattern = add(workload, key);
    let mut slots = 0;
    let mut arguments = Vec::new();
    for word in &command.words {
        let mut parts = Vec::new();
        let mut rest = word.as_slice();
        let mut text = Vec::new();
        while let [first, tail @ ..] = rest {
            let found = if let Some(tail) = rest.strip_prefix(b"__key__") {
                text.extend_from_slice(settings.key_prefix.as_bytes());
                slots += 1;
                Some((Part::Decimal(slots - 1), tail))
            } else {
                rest.strip_prefix(b"__data__").map(|tail| {
                    let key_slot = (slots > 0).then_some(0);
                    (Part::Value { values: 0, key_slot }, tail)
                })
            };
            match found {
                Some((part, tail)) => {
                    parts.push(Part::Text(std::mem::take(&mut text)));
                    parts.push(part);
                    rest = tail;
                }
                None => {
                    text.push(*first);
                    rest = tail;
                }
            }
        }
        parts.push(Part::Text(text));
        let values = parts.iter().filter(|part| matches!(part, Part::Value { .. })).count();
        if values > 1 {
            return Err(Failure("--command: one argument can hold one __data__".into()));
        }
        arguments.push(parts);
    }
    if slots > crate::workload::SLOTS_MAX {
        return Err(Failure("--command: there are too many __key__".into()));
    }
    Ok(Template::new(class, vec![pattern; slots], &[arguments]))
}

fn key_argument(settings: &Settings, slot: usize) -> Vec<Part> {
    vec![Part::Text(settings.key_prefix.clone().into_bytes()), Part::Decimal(slot)]
}

fn add(workload: &mut Workload, numbers: Numbers) -> usize {
    workload.patterns.push(numbers);
    workload.patterns.len() - 1
}

/// Adds a pattern of numbers that are in no key.
fn add_free(workload: &mut Workload, numbers: Numbers) -> usize {
    let pattern = add(workload, numbers);
    workload.free_patterns.push(pattern);
    pattern
}

fn pattern(settings: &Settings, pattern: KeyPattern) -> Numbers {
    let low = settings.key_minimum;
    let count = settings.key_maximum - low + 1;
    match pattern {
        KeyPattern::Random => Numbers::Uniform { low, count },
        KeyPattern::Sequential => Numbers::EachConnection { low, count },
        KeyPattern::Parallel => Numbers::Parts { low, count },
        KeyPattern::Zipf => Numbers::Zipf(Zipf::new(low, count, settings.zipf)),
        KeyPattern::Gauss => Numbers::Normal {
            low,
            count,
            median: settings.key_median.unwrap_or(low as f64 + count as f64 / 2.0),
            deviation: settings.key_deviation.unwrap_or(count as f64 / 6.0),
        },
    }
}

fn write_distributions(
    settings: &Settings,
    outcome: &Outcome,
    run: u32,
    started: SystemTime,
) -> Result<(), Failure> {
    let Some(prefix) = &settings.common.hdr_prefix else { return Ok(()) };
    let write = |name: &str, title: &str, latencies: &Latencies| {
        write_distribution(name, title, latencies, started, outcome.elapsed)
    };
    write(&format!("{prefix}_FULL_RUN_{run}"), "All commands", &outcome.latencies())?;
    for class in outcome.classes.iter().filter(|class| class.requests > 0) {
        let ClassRecord { name, latencies, .. } = class;
        let file = super::file_name(&report::command_name(name));
        write(&format!("{prefix}_{file}_command_run_{run}"), name, latencies)?;
    }
    Ok(())
}

fn configuration(settings: &Settings) -> Value {
    let (set, get) = settings.ratio;
    json!({
        "server": settings.common.host,
        "port": settings.common.port,
        "unix socket": settings.common.socket,
        "run_count": settings.runs,
        "requests": requests_each(settings),
        "rate_limit": settings.rate.unwrap_or(0.0),
        "clients": settings.clients,
        "threads": settings.threads,
        "test_time": settings.test_time.unwrap_or(0),
        "ratio": format!("{set}:{get}"),
        "pipeline": settings.pipeline,
        "data_size": match settings.sizes { SizeRule::Fixed(size) => size, _ => 0 },
        "random_data": settings.random_data,
        "key_prefix": settings.key_prefix,
        "key_minimum": settings.key_minimum,
        "key_maximum": settings.key_maximum,
        "reconnect_interval": settings.reconnect.unwrap_or(0),
        "multi_key_get": settings.multi_key_get,
        "select-db": settings.common.database,
        "open_loop": settings.common.open_loop,
    })
}

/// The rows and templates of the load that is no command of one's own.
const SET: usize = 0;
const GET: usize = 1;
const WAIT: usize = 2;
/// Ratios that fit so badly that they would need more steps begin again in the middle.
const STEPS_MAX: usize = 10_000;
/// The default seed: random numbers are the same in every run, unless the user gives another seed.
const SEED: u64 = 0xb0bb_1234;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_kept() {
        assert_eq!(mixed_steps(1, 10, None), [(SET, 1), (GET, 10)]);
        assert_eq!(mixed_steps(0, 1, Some((1, 1))), [(SET, 0), (GET, 1)]);
        assert_eq!(
            mixed_steps(3, 1, Some((2, 1))),
            [
                (SET, 2),
                (WAIT, 1),
                (SET, 1),
                (GET, 1),
                (SET, 1),
                (WAIT, 1),
                (SET, 2),
                (WAIT, 1),
                (GET, 1)
            ]
        );
        // A thousand rounds of a SET (twice when a WAIT comes between), a GET and, all but three
        // times, a WAIT.
        assert!(mixed_steps(997, 1, Some((1000, 1))).len() < 4 * 1000);
    }
}
