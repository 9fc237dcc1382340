//! The runs of memtier_benchmark's options.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use super::{DriveFailure, check_distribution, measure, median, monitor, write_distribution};
use crate::{
    engine::{
        ClassRecord, Greeting, LatencyHistogram, Limit, LoadOutcome, LoadRun, PATIENCE, Pace,
        ServerNode,
    },
    interrupt::{self, INTERRUPT},
    options::{
        memtier::{AccessPattern, MemtierSettings, Requests, SizeRule},
        redis::ReadFrom,
    },
    output::OutputFile,
    report::memtier as report,
    server,
    workload::{
        Content, Numbers, Sizes, Template, TemplateOrder, TemplatePart, ValuePool, Workload,
        WorkloadRandom, Zipf,
    },
};

/// Does what the settings say; memtier_benchmark takes nothing after its options.
pub fn run(settings: &MemtierSettings, rest: &[String]) -> Result<(), DriveFailure> {
    if let Some(word) = rest.first() {
        return Err(DriveFailure(format!(
            "Unexpected argument '{word}'; --help lists the options"
        )));
    }
    check(settings)?;
    let workload = workload(settings)?;
    let mut out_file = settings.out_file.as_deref().map(OutputFile::open).transpose()?;
    let mut json_file = settings.common.json.as_deref().map(OutputFile::open).transpose()?;
    if let Some(prefix) = &settings.common.hdr_prefix {
        check_distribution(&whole_run(prefix, 1))?;
    }
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
    let mut text = introduction(settings);
    let mut runs = Vec::new();
    interrupt::watch_signals()?;
    for number in 1..=settings.runs {
        let title = format!("RUN #{number}");
        let seed = seed.wrapping_add(number.into());
        let job = LoadRun {
            topology: topology.as_ref(),
            ..job(settings, &workload, &nodes, &greeting, seed)
        };
        let started = SystemTime::now();
        let outcome = match measure(&job, &title, settings.common.hide_progress) {
            Err(_) if INTERRUPT.is_raised() && !runs.is_empty() => break,
            measured => measured?,
        };
        if let Some(error) = &outcome.first_error {
            complain!("Error from server: {error} (and {} in all)", outcome.errors());
        }
        write_distributions(settings, &outcome, number, started)?;
        runs.push((outcome, started));
        if INTERRUPT.is_raised() {
            break;
        }
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
    match &mut out_file {
        Some(file) => file.write(&text)?,
        None => say!("{text}"),
    }
    if let Some(file) = &mut json_file {
        file.write(format!("{:#}\n", Value::Object(document)))?;
    }
    Ok(())
}

/// What is above the tables.
fn introduction(settings: &MemtierSettings) -> String {
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
    text
}

/// What is shown: the only run, or the best, the worst and the average of several.
fn sections(
    settings: &MemtierSettings,
    runs: &[(LoadOutcome, SystemTime)],
) -> Vec<(String, LoadOutcome, SystemTime)> {
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
    settings: &'a MemtierSettings,
    workload: &'a Workload,
    nodes: &'a [ServerNode],
    greeting: &'a Greeting,
    seed: u64,
) -> LoadRun<'a> {
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
    LoadRun {
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
        interrupt: &INTERRUPT,
    }
}

fn requests_each(settings: &MemtierSettings) -> u64 {
    let keys = settings.key_maximum - settings.key_minimum + 1;
    let connections = (settings.clients * settings.threads) as u64;
    let in_parts = match settings.commands.first() {
        Some(command) => command.pattern == AccessPattern::Parallel,
        None => settings.key_patterns.0 == AccessPattern::Parallel,
    };
    match settings.requests {
        Requests::Each(each) => each,
        Requests::AllKeys if in_parts => keys.div_ceil(connections),
        Requests::AllKeys => keys,
    }
}

fn check(settings: &MemtierSettings) -> Result<(), DriveFailure> {
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
    Err(DriveFailure(fault.to_owned()))
}

fn workload(settings: &MemtierSettings) -> Result<Workload, DriveFailure> {
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
    let values = ValuePool::new(sizes, content, &mut WorkloadRandom::new(SEED));
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
            u16::try_from(class).map_err(|_| DriveFailure("there are too many commands".into()))?;
        let template = custom_template(settings, command, class, &mut workload)?;
        workload.templates.push(template);
        steps.push((workload.templates.len() - 1, command.ratio));
    }
    workload.order = match steps.len() {
        1 => TemplateOrder::Single,
        _ if sequence.is_random => TemplateOrder::Weighted(steps),
        _ => TemplateOrder::Cycle(steps),
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

fn wait_template(settings: &MemtierSettings, workload: &mut Workload) -> Template {
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
    let arguments = vec![
        vec![TemplatePart::Text(b"WAIT".to_vec())],
        vec![TemplatePart::Decimal(0)],
        vec![TemplatePart::Decimal(1)],
    ];
    Template::new(WAIT as u16, vec![replicas, time], &[arguments])
}

/// SET, or SETEX where keys expire, or SETRANGE.
fn set_template(settings: &MemtierSettings, workload: &mut Workload) -> Template {
    let key = pattern(settings, settings.key_patterns.0);
    let mut slots = vec![add(workload, key)];
    let text = |text: &str| vec![TemplatePart::Text(text.as_bytes().to_vec())];
    let mut arguments = vec![text("SET"), key_argument(settings, 0)];
    if let Some((low, high)) = settings.expiry {
        slots.push(add_free(workload, Numbers::Uniform { low, count: high - low + 1 }));
        arguments[0] = text("SETEX");
        arguments.push(vec![TemplatePart::Decimal(1)]);
    }
    if settings.data_offset > 0 {
        arguments[0] = text("SETRANGE");
        arguments.push(text(&settings.data_offset.to_string()));
    }
    arguments.push(vec![TemplatePart::Value { values: 0, key_slot: Some(0) }]);
    Template::new(SET as u16, slots, &[arguments])
}

/// GET, or MGET of several keys, or GETRANGE.
fn get_template(settings: &MemtierSettings, workload: &mut Workload) -> Template {
    let key = pattern(settings, settings.key_patterns.1);
    let pattern = add(workload, key);
    let count = settings.multi_key_get.max(1);
    let offset = settings.data_offset;
    let name = match settings.multi_key_get {
        0 if offset > 0 => "GETRANGE",
        0 => "GET",
        _ => "MGET",
    };
    let mut arguments = vec![vec![TemplatePart::Text(name.into())]];
    arguments.extend((0..count).map(|slot| key_argument(settings, slot)));
    if let (SizeRule::Fixed(size), 1..) = (&settings.sizes, offset) {
        let number = |number: u64| vec![TemplatePart::Text(number.to_string().into_bytes())];
        arguments.extend([number(offset), number(offset + *size as u64 - 1)]);
    }
    Template::new(GET as u16, vec![pattern; count], &[arguments])
}

fn custom_template(
    settings: &MemtierSettings,
    command: &crate::options::memtier::CustomCommand,
    class: u16,
    workload: &mut Workload,
) -> Result<Template, DriveFailure> {
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
                Some((TemplatePart::Decimal(slots - 1), tail))
            } else {
                rest.strip_prefix(b"__data__").map(|tail| {
                    let key_slot = (slots > 0).then_some(0);
                    (TemplatePart::Value { values: 0, key_slot }, tail)
                })
            };
            match found {
                Some((part, tail)) => {
                    parts.push(TemplatePart::Text(std::mem::take(&mut text)));
                    parts.push(part);
                    rest = tail;
                }
                None => {
                    text.push(*first);
                    rest = tail;
                }
            }
        }
        parts.push(TemplatePart::Text(text));
        let values = parts.iter().filter(|part| matches!(part, TemplatePart::Value { .. })).count();
        if values > 1 {
            return Err(DriveFailure("--command: one argument can hold one __data__".into()));
        }
        arguments.push(parts);
    }
    if slots > crate::workload::SLOTS_MAX {
        return Err(DriveFailure("--command: there are too many __key__".into()));
    }
    Ok(Template::new(class, vec![pattern; slots], &[arguments]))
}

fn key_argument(settings: &MemtierSettings, slot: usize) -> Vec<TemplatePart> {
    vec![TemplatePart::Text(settings.key_prefix.clone().into_bytes()), TemplatePart::Decimal(slot)]
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

fn pattern(settings: &MemtierSettings, pattern: AccessPattern) -> Numbers {
    let low = settings.key_minimum;
    let count = settings.key_maximum - low + 1;
    match pattern {
        AccessPattern::Random => Numbers::Uniform { low, count },
        AccessPattern::Sequential => Numbers::EachConnection { low, count },
        AccessPattern::Parallel => Numbers::Parts { low, count },
        AccessPattern::Zipf => Numbers::Zipf(Zipf::new(low, count, settings.zipf)),
        AccessPattern::Gauss => Numbers::Normal {
            low,
            count,
            median: settings.key_median.unwrap_or(low as f64 + count as f64 / 2.0),
            deviation: settings.key_deviation.unwrap_or(count as f64 / 6.0),
        },
    }
}

fn write_distributions(
    settings: &MemtierSettings,
    outcome: &LoadOutcome,
    run: u32,
    started: SystemTime,
) -> Result<(), DriveFailure> {
    let Some(prefix) = &settings.common.hdr_prefix else { return Ok(()) };
    let write = |name: &str, title: &str, latencies: &LatencyHistogram| {
        write_distribution(name, title, latencies, started, outcome.elapsed)
    };
    write(&whole_run(prefix, run), "All commands", &outcome.latencies())?;
    for class in outcome.classes.iter().filter(|class| class.requests > 0) {
        let ClassRecord { name, latencies, .. } = class;
        let file = super::file_name(&report::command_name(name));
        write(&format!("{prefix}_{file}_command_run_{run}"), name, latencies)?;
    }
    Ok(())
}

/// The name of a run's distribution of all commands.
fn whole_run(prefix: &str, run: u32) -> String {
    format!("{prefix}_FULL_RUN_{run}")
}

fn configuration(settings: &MemtierSettings) -> Value {
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
