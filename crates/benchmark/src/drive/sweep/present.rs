//! A sweep's results as text, CSV, JSON and a page.

use serde_json::{Value, json};

use super::{
    SweepSettings,
    headline::headline,
    measure::{
        ExpiryMeasurement, FILLED_KEYS_MAX, LoadShape, Results, SweepCell, reads_keys, shapes,
        threads_title,
    },
};
use crate::{
    drive::table,
    page::{Axis, Bar, BarGroup, Bars, Chart, ChartLine, DOUBT, ERRORS, HtmlPage, percent, short},
    provenance::Provenance,
    report::{json as document, redis::csv_text},
    statistics::{self, SPREAD_MAX},
};

/// For the terminal: what came out, and a row for each measurement.
pub(super) fn text(settings: &SweepSettings, results: &Results) -> String {
    let mut text = String::new();
    let several = settings.data_sizes.len() * settings.pipelines.len() * settings.clients.len() > 1;
    let mut head = vec!["server", "threads", "test"];
    if several {
        head.extend(["bytes", "pipeline", "clients"]);
    }
    head.extend(["rps", "95%", "p50 ms", "p99 ms", "max ms", "cpu us", "MiB"]);
    let rows: Vec<Vec<String>> = results
        .measured()
        .map(|cell| {
            let mut row =
                vec![results.servers[cell.server].name.clone(), cell.io_threads.to_string()];
            row.push(cell.title());
            if several {
                let LoadShape { data_size, pipeline, clients } = cell.shape;
                row.extend([data_size, pipeline, clients].map(|number| number.to_string()));
            }
            let mark = error_mark(cell);
            row.extend([format!("{:.0}{mark}", rate(cell)), uncertainty(&cell.rates)]);
            row.extend([0.5, 0.99, 1.0].map(|quantile| format!("{:.3}", cell.ms(quantile))));
            row.push(format!("{:.3}", statistics::mean(&cell.server_cpu_us)));
            row.push(format!("{:.1}", mebibytes(cell)));
            row
        })
        .collect();
    let head: Vec<String> = head.into_iter().map(str::to_owned).collect();
    if !rows.is_empty() {
        text += &table(&head, &rows);
        text.push('\n');
    }
    if !results.expiry.is_empty() {
        let (head, rows) = expiry_table(results);
        text += &table(&head, &rows);
        text.push('\n');
    }
    let headline = headline(settings, results);
    text += &format!("{}\n", headline.sentence);
    for detail in headline.details {
        text += &format!("{detail}\n");
    }
    if let Some(warning) = warning(settings, results) {
        text += &format!("{warning}\n");
    }
    text
}

pub(super) fn csv(settings: &SweepSettings, results: &Results) -> String {
    let mut text = "server,io-threads,test,bytes,pipeline,clients,rps,rps_low,rps_high,rps_min,\
                    rps_max,p50_ms,p99_ms,p99.9_ms,max_ms,server_cpu_us,client_cpu_us,rss_mib,\
                    other_client_max_ms,unanswered,errors\n"
        .to_owned();
    for cell in results.measured() {
        let LoadShape { data_size, pipeline, clients } = cell.shape;
        let client_cpu_us = cell.outcome.as_ref().map_or(0.0, |o| o.cpu_us_per_request());
        let mut row = vec![results.servers[cell.server].name.clone(), cell.io_threads.to_string()];
        row.push(cell.title());
        row.extend([data_size, pipeline, clients].map(|number| number.to_string()));
        row.extend(rate_cells(&cell.rates));
        row.extend([0.5, 0.99, 0.999, 1.0].map(|quantile| format!("{:.3}", cell.ms(quantile))));
        row.push(format!("{:.3}", statistics::mean(&cell.server_cpu_us)));
        row.push(format!("{client_cpu_us:.3}"));
        row.extend([format!("{:.1}", mebibytes(cell)), String::new()]);
        row.extend([unanswered(cell), cell.errors].map(|count| count.to_string()));
        text += &format!("{}\n", row.join(","));
    }
    for expiry in results.expiry.iter().filter(|expiry| expiry.is_measured()) {
        let rates: Vec<f64> = rates(settings, expiry).collect();
        let waited_ms = expiry.waited_ms.iter().copied().reduce(f64::max);
        let mut row = vec![results.servers[expiry.server].name.clone(), String::new()];
        row.push(csv_text(expiry.title));
        row.extend(["", "", "1"].map(str::to_owned));
        row.extend(rate_cells(&rates));
        row.extend([""; 7].map(str::to_owned));
        row.push(waited_ms.map_or_else(String::new, |ms| format!("{ms:.3}")));
        row.extend([""; 2].map(str::to_owned));
        text += &format!("{}\n", row.join(","));
    }
    text
}

/// What CSV tells of the rates of the rounds: mean, interval, least and greatest.
fn rate_cells(rates: &[f64]) -> [String; 5] {
    let interval = statistics::interval(rates);
    let rounds = || rates.iter().copied();
    [
        Some(statistics::mean(rates)),
        interval.map(|i| i.low),
        interval.map(|i| i.high),
        rounds().reduce(f64::min),
        rounds().reduce(f64::max),
    ]
    .map(|rate| rate.map_or_else(String::new, |rate| format!("{rate:.0}")))
}

/// Operations a second of each round.
fn rates(settings: &SweepSettings, expiry: &ExpiryMeasurement) -> impl Iterator<Item = f64> {
    expiry.seconds.iter().map(|seconds| settings.expiry_operations as f64 / seconds)
}

pub(super) fn json(settings: &SweepSettings, provenance: &Provenance, results: &Results) -> Value {
    let cells = results.cells.iter().filter_map(|cell| {
        let name = &results.servers[cell.server].name;
        let title = format!(
            "{name}, {}, {}, {}",
            threads_title(cell.io_threads),
            cell.title(),
            cell.shape.title()
        );
        let mut value = document::test(&title, cell.outcome.as_ref()?, &cell.rates);
        value["errors"] = json!(cell.errors);
        value["server"] = json!(name);
        value["io_threads"] = json!(cell.io_threads);
        value["command"] = json!(cell.title());
        value["data_size"] = json!(cell.shape.data_size);
        value["pipeline"] = json!(cell.shape.pipeline);
        value["clients"] = json!(cell.shape.clients);
        value["server_cpu_us"] = json!(document::round(statistics::mean(&cell.server_cpu_us)));
        value["resident_bytes"] = json!(statistics::mean(&cell.resident_bytes).round());
        Some(value)
    });
    let expiry = results.expiry.iter().filter(|expiry| expiry.is_measured()).map(|expiry| {
        let name = &results.servers[expiry.server].name;
        let rates: Vec<f64> = rates(settings, expiry).map(document::round).collect();
        json!({
            "test": format!("{name}, {}", expiry.title),
            "server": name,
            "requests": settings.expiry_operations,
            "rate": document::round(statistics::mean(&rates)),
            "rates": rates,
            "other_client_max_ms": expiry.waited_ms,
        })
    });
    let tests = cells.chain(expiry).collect();
    let servers: Vec<Value> = results
        .servers
        .iter()
        .map(|server| {
            json!({
                "server": server.name,
                "version": server.version,
                "commands": server.commands,
            })
        })
        .collect();
    let configuration =
        json!({ "seconds": settings.seconds, "rounds": settings.rounds, "servers": servers });
    document::document(provenance, configuration, tests, results.interrupted.is_some())
}

pub(super) fn page(settings: &SweepSettings, provenance: &Provenance, results: &Results) -> String {
    let headline = headline(settings, results);
    let mut page = HtmlPage::new("Servers by I/O threads", &headline.sentence);
    for detail in &headline.details {
        page.text(detail);
    }
    if let Some(warning) = warning(settings, results) {
        page.warning(&warning);
    }
    page.text(&method(settings));
    for shape in shapes(settings).filter(|_| !settings.tests.is_empty()) {
        page.heading(&format!("Requests a second: {}", shape.title()));
        charts(settings, results, shape, "requests a second", |cell| &cell.rates, &mut page);
        let (head, rows) = table_by_threads(settings, results, shape);
        page.table(&head, &rows);
    }
    by_dimension(settings, results, &mut page);
    if !results.expiry.is_empty() {
        expiry(settings, results, &mut page);
    }
    for shape in shapes(settings).filter(|_| !settings.tests.is_empty()) {
        page.begin_details(&format!("Processor time, latency and all numbers: {}", shape.title()));
        page.heading("The server's processor time for a request");
        charts(settings, results, shape, "microseconds", |cell| &cell.server_cpu_us, &mut page);
        latencies(settings, results, shape, &mut page);
        page.heading("All numbers");
        let (head, rows) = all_numbers(results, shape);
        page.table(&head, &rows);
        page.end_details();
    }
    page.heading("Where this comes from");
    let mut lines = provenance.lines();
    for (number, server) in results.servers.iter().enumerate() {
        let title = results.title(number).to_owned();
        let version = server.version.as_ref().filter(|version| **version != title);
        let version = version.map_or_else(String::new, |version| format!("{version}: "));
        lines.push((title, version + &server.commands.join("; ")));
    }
    page.definitions(&lines);
    page.finish()
}

/// How it was measured and what the signs mean.
fn method(settings: &SweepSettings) -> String {
    let SweepSettings { rounds, seconds, threads, .. } = settings;
    let generator = match threads {
        1 => "one thread".to_owned(),
        count => format!("{count} threads"),
    };
    let each = match rounds {
        1 => format!("Each number comes from one round of {seconds} s"),
        _ => format!("Each number is the mean of {rounds} rounds of {seconds} s"),
    };
    let interval = match rounds {
        1 => "",
        _ => {
            " What follows ± and the thin line are the 95% interval of the mean, by Student's t \
             over the rounds."
        }
    };
    format!(
        "{each}. A round starts every server anew and measures each test once, and each round \
         begins with another server. The load generator has {generator} on the same machine as \
         the servers.{}{interval}",
        filling(settings)
    )
}

/// Which keys the tests that read find.
fn filling(settings: &SweepSettings) -> String {
    let reading: Vec<_> = settings.tests.iter().filter(|name| reads_keys(name)).collect();
    if reading.is_empty() {
        return String::new();
    }
    let names = reading.iter().map(|name| name.to_uppercase()).collect::<Vec<_>>().join(" and ");
    let keys = settings.keyspace.min(FILLED_KEYS_MAX);
    let mut text = format!(" Before {names} all {keys} keys that it draws from are written");
    if keys < settings.keyspace {
        text += &format!("; the other tests draw from {}", settings.keyspace);
    }
    text + "."
}

/// Where replies are errors or missing, or rounds disagree, the reader should know before anything
/// else.
fn warning(settings: &SweepSettings, results: &Results) -> Option<String> {
    let failed: Vec<&SweepCell> = results.cells.iter().filter(|cell| cell.errors > 0).collect();
    let errors = failed.first().map(|cell| {
        let first = cell.outcome.as_ref().and_then(|outcome| outcome.first_error.as_ref());
        format!(
            "In {} of {} measurements replies were errors (marked{ERRORS}), {} in all{}: an error \
             may be quicker than what was asked for.",
            failed.len(),
            results.measured().count(),
            failed.iter().map(|cell| cell.errors).sum::<u64>(),
            first.map_or_else(String::new, |first| format!(", such as '{first}'"))
        )
    });
    let stalled = results.cells.iter().filter(|cell| unanswered(cell) > 0).count();
    let stalls = (stalled > 0).then(|| {
        format!(
            "In {stalled} of {} measurements requests had waited for long and had no reply at \
             the end: the server may stand still, or not keep up.",
            results.measured().count()
        )
    });
    let interrupted = results.interrupted.map(|(made, asked)| {
        format!("The sweep was interrupted when {made} of {asked} measurements were made.")
    });
    let warnings: Vec<_> =
        [interrupted, errors, stalls, scatter(settings, results)].into_iter().flatten().collect();
    (!warnings.is_empty()).then(|| warnings.join(" "))
}

fn scatter(settings: &SweepSettings, results: &Results) -> Option<String> {
    if settings.rounds == 1 {
        return Some("There was one round, so nothing says how far the numbers scatter.".into());
    }
    let (doubtful, all) = results.doubts();
    (doubtful > 0).then(|| {
        format!(
            "In {doubtful} of {all} measurements the rounds disagree (marked{DOUBT}): the fastest \
             and the slowest are more than {:.0}% of the median apart. Measure more rounds, or on \
             a machine with less other work, before you read anything into those.",
            SPREAD_MAX * 100.0
        )
    })
}

/// A chart of bars for each test, grouped by threads; of very many, lines.
fn charts(
    settings: &SweepSettings,
    results: &Results,
    shape: LoadShape,
    unit: &str,
    samples: fn(&SweepCell) -> &Vec<f64>,
    page: &mut HtmlPage,
) {
    page.begin_charts();
    for test in &settings.tests {
        let here = || results.measured().filter(|c| c.shape == shape && c.test == *test);
        if settings.io_threads.len() * results.servers.len() > BARS_MAX {
            page.chart(&lines(settings, results, &test.to_uppercase(), unit, here(), samples));
            continue;
        }
        let groups = settings.io_threads.iter().map(|&threads| {
            let cells = here().filter(|cell| cell.io_threads == threads);
            group(results, threads_title(threads), cells, samples)
        });
        let bars =
            Bars { title: test.to_uppercase(), unit: unit.to_owned(), groups: groups.collect() };
        page.bars(&bars);
    }
    page.end_charts();
}

fn group<'a>(
    results: &Results,
    name: String,
    cells: impl Iterator<Item = &'a SweepCell>,
    samples: fn(&SweepCell) -> &Vec<f64>,
) -> BarGroup {
    let bar = |cell: &SweepCell| Bar {
        has_errors: cell.errors > 0,
        ..bar(results.title(cell.server), cell.server, samples(cell))
    };
    BarGroup { name, bars: cells.map(bar).collect() }
}

fn bar(name: &str, series: usize, samples: &[f64]) -> Bar {
    Bar {
        name: name.to_owned(),
        series,
        value: statistics::mean(samples),
        interval: statistics::interval(samples),
        is_doubtful: statistics::disagree(samples),
        has_errors: false,
    }
}

fn lines<'a>(
    settings: &SweepSettings,
    results: &Results,
    title: &str,
    unit: &str,
    cells: impl Iterator<Item = &'a SweepCell>,
    samples: fn(&SweepCell) -> &Vec<f64>,
) -> Chart {
    let mut lines: Vec<ChartLine> = (0..results.servers.len())
        .map(|server| ChartLine { name: results.title(server).to_owned(), points: Vec::new() })
        .collect();
    for cell in cells {
        let point = (cell.io_threads as f64, statistics::mean(samples(cell)));
        lines[cell.server].points.push(point);
    }
    for line in &mut lines {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let ticks = settings.io_threads.iter().map(|&threads| threads as f64).collect();
    Chart {
        title: title.to_owned(),
        x: Axis { title: "I/O threads".into(), is_logarithmic: false, ticks },
        y: Axis { title: unit.to_owned(), is_logarithmic: false, ticks: Vec::new() },
        lines,
    }
}

/// As such measurements are published: a row for each number of threads, a column for each test.
fn table_by_threads(
    settings: &SweepSettings,
    results: &Results,
    shape: LoadShape,
) -> (Vec<String>, Vec<Vec<String>>) {
    let mut head = vec!["Server, I/O threads".to_owned()];
    head.extend(settings.tests.iter().map(|test| test.to_uppercase()));
    let mut rows = Vec::new();
    for server in 0..results.servers.len() {
        for &threads in &settings.io_threads {
            let here = results.cells.iter().filter(|cell| {
                cell.server == server && cell.io_threads == threads && cell.shape == shape
            });
            let mut row = vec![format!("{}, {threads}", results.title(server))];
            row.extend(here.map(marked));
            rows.push(row);
        }
    }
    (head, rows)
}

/// Requests by size of value, by pipeline and by clients, as far as several were measured, with
/// the most threads.
fn by_dimension(settings: &SweepSettings, results: &Results, page: &mut HtmlPage) {
    type Of = fn(&LoadShape) -> usize;
    // The unit is that of one, and of more.
    let dimensions: [(&str, [&str; 2], &[usize], Of); 3] = [
        ("size of value", ["byte", "bytes"], &settings.data_sizes, |shape| shape.data_size),
        ("pipeline", ["request", "requests at once"], &settings.pipelines, |shape| shape.pipeline),
        ("clients", ["client", "clients"], &settings.clients, |shape| shape.clients),
    ];
    let most = settings.io_threads.iter().copied().max().unwrap_or(1);
    for (number, (title, units, values, of)) in dimensions.into_iter().enumerate() {
        if values.len() < 2 || settings.tests.is_empty() {
            continue;
        }
        let others: Vec<Of> =
            dimensions.iter().enumerate().filter(|(n, _)| *n != number).map(|(_, d)| d.3).collect();
        let alike = |a: &LoadShape, b: &LoadShape| others.iter().all(|of| of(a) == of(b));
        for shape in shapes(settings).filter(|shape| of(shape) == values[0]) {
            let fixed = dimensions.iter().enumerate().filter(|(n, _)| *n != number);
            let fixed: Vec<String> =
                fixed.map(|(_, (title, _, _, of))| format!("{title} {}", of(&shape))).collect();
            page.heading(&format!(
                "Requests a second by {title}: {}, {}",
                threads_title(most),
                fixed.join(", ")
            ));
            page.begin_charts();
            for test in &settings.tests {
                let groups = values.iter().map(|&value| {
                    let cells = results.measured().filter(|cell| {
                        cell.io_threads == most
                            && cell.test == *test
                            && of(&cell.shape) == value
                            && alike(&cell.shape, &shape)
                    });
                    let unit = units[usize::from(value != 1)];
                    group(results, format!("{value} {unit}"), cells, |cell| &cell.rates)
                });
                let title = test.to_uppercase();
                let unit = "requests a second".to_owned();
                page.bars(&Bars { title, unit, groups: groups.collect() });
            }
            page.end_charts();
        }
    }
}

fn expiry(settings: &SweepSettings, results: &Results, page: &mut HtmlPage) {
    page.heading(&format!(
        "What expiry costs: {} operations over one connection",
        settings.expiry_operations
    ));
    type Of = fn(&ExpiryMeasurement) -> &Vec<f64>;
    let charts: [(&str, &str, Of); 2] = [
        ("Time", "seconds; less is better", |expiry| &expiry.seconds),
        ("Another client waited at most", "milliseconds; less is better", |expiry| {
            &expiry.waited_ms
        }),
    ];
    page.begin_charts();
    for (title, unit, samples) in charts {
        let first = results.expiry.iter().filter(|expiry| expiry.server == 0);
        let groups = first.map(|first| {
            let same = results.expiry.iter().filter(|expiry| expiry.title == first.title);
            let same = same.filter(|expiry| expiry.is_measured());
            let bar = |expiry: &ExpiryMeasurement| {
                let mut bar = bar(results.title(expiry.server), expiry.server, samples(expiry));
                // The worst of a round is not expected to repeat itself.
                bar.is_doubtful &= title == "Time";
                bar
            };
            BarGroup { name: first.title.to_owned(), bars: same.map(bar).collect() }
        });
        page.bars(&Bars { title: title.into(), unit: unit.into(), groups: groups.collect() });
    }
    page.end_charts();
    let (head, rows) = expiry_table(results);
    page.table(&head, &rows);
}

/// Seconds, and the worst wait of another client, by server.
fn expiry_table(results: &Results) -> (Vec<String>, Vec<Vec<String>>) {
    let mut head = vec!["Operation".to_owned()];
    for server in 0..results.servers.len() {
        let title = results.title(server);
        head.extend([format!("{title}, s"), "others waited, ms".to_owned()]);
    }
    let first = results.expiry.iter().filter(|expiry| expiry.server == 0);
    let rows = first.map(|first| {
        let mut row = vec![first.title.to_owned()];
        for expiry in results.expiry.iter().filter(|expiry| expiry.title == first.title) {
            if !expiry.is_measured() {
                row.extend(["-", "-"].map(str::to_owned));
                continue;
            }
            let worst = expiry.waited_ms.iter().copied().fold(0.0, f64::max);
            let seconds = statistics::mean(&expiry.seconds);
            let doubt = if statistics::disagree(&expiry.seconds) { DOUBT } else { "" };
            row.extend([format!("{seconds:.3}{doubt}"), format!("{worst:.1}")]);
        }
        row
    });
    (head, rows.collect())
}

/// Latencies as bars of percentiles and as lines of the whole distribution.
fn latencies(settings: &SweepSettings, results: &Results, shape: LoadShape, page: &mut HtmlPage) {
    let most = settings.io_threads.iter().copied().max().unwrap_or(1);
    page.heading(&format!("Latency with {}", threads_title(most)));
    page.begin_charts();
    for test in &settings.tests {
        let here = results
            .measured()
            .filter(|cell| cell.shape == shape && cell.test == *test && cell.io_threads == most);
        let lines = here.map(|cell| ChartLine {
            name: results.title(cell.server).to_owned(),
            points: cell.distribution(),
        });
        page.chart(&Chart {
            title: test.to_uppercase(),
            x: Axis { title: "milliseconds".into(), is_logarithmic: true, ticks: Vec::new() },
            y: Axis {
                title: "% of requests that took no longer".into(),
                is_logarithmic: false,
                ticks: Vec::new(),
            },
            lines: lines.collect(),
        });
    }
    page.end_charts();
}

fn all_numbers(results: &Results, shape: LoadShape) -> (Vec<String>, Vec<Vec<String>>) {
    let head = [
        "Server, threads, test",
        "Requests/s",
        "95%",
        "Slowest round",
        "Fastest",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "Max ms",
        "CPU us",
        "MiB",
        "Errors",
    ];
    let rows = results.measured().filter(|cell| cell.shape == shape).map(|cell| {
        let title = results.title(cell.server);
        let mut row = vec![format!("{title}, {}, {}", cell.io_threads, cell.title())];
        row.extend([short(rate(cell)), uncertainty(&cell.rates)]);
        row.push(short(cell.rates.iter().copied().fold(f64::INFINITY, f64::min)));
        row.push(short(cell.rates.iter().copied().fold(0.0, f64::max)));
        row.extend([0.5, 0.99, 0.999, 1.0].map(|quantile| format!("{:.3}", cell.ms(quantile))));
        row.push(format!("{:.3}", statistics::mean(&cell.server_cpu_us)));
        row.extend([format!("{:.1}", mebibytes(cell)), cell.errors.to_string()]);
        row
    });
    (head.map(str::to_owned).into(), rows.collect())
}

fn rate(cell: &SweepCell) -> f64 {
    statistics::mean(&cell.rates)
}

fn unanswered(cell: &SweepCell) -> u64 {
    cell.outcome.as_ref().map_or(0, |outcome| outcome.unanswered)
}

fn mebibytes(cell: &SweepCell) -> f64 {
    statistics::mean(&cell.resident_bytes) / f64::from(1 << 20)
}

fn marked(cell: &SweepCell) -> String {
    if !cell.is_measured() {
        return "-".into();
    }
    bar("", 0, &cell.rates).text() + error_mark(cell)
}

fn error_mark(cell: &SweepCell) -> &'static str {
    if cell.errors > 0 { ERRORS } else { "" }
}

/// `±3.1%`, and a mark where the rounds disagree.
fn uncertainty(samples: &[f64]) -> String {
    let interval = statistics::interval(samples);
    let mut text =
        interval.map_or_else(|| "-".into(), |i| format!("±{}%", percent(i.relative_half())));
    if statistics::disagree(samples) {
        text += DOUBT;
    }
    text
}

impl SweepCell {
    /// A quantile of the latencies of all rounds.
    fn ms(&self, quantile: f64) -> f64 {
        let latencies = self.outcome.as_ref().map(|outcome| outcome.latencies());
        latencies.map_or(0.0, |latencies| crate::report::quantile_ms(&latencies, quantile))
    }

    /// Milliseconds, and the percentage of requests that took no longer.
    fn distribution(&self) -> Vec<(f64, f64)> {
        let Some(outcome) = &self.outcome else { return Vec::new() };
        let histogram = document::histogram(&outcome.latencies());
        let points = histogram.as_array().map(Vec::as_slice).unwrap_or_default();
        let point = |point: &Value| Some((point[0].as_f64()?, point[1].as_f64()? * 100.0));
        points.iter().filter_map(point).collect()
    }
}

/// More bars than this in one chart are drawn as lines.
const BARS_MAX: usize = 24;
