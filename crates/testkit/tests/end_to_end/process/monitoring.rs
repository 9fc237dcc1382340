//! The alert rules and the Grafana dashboard in `contrib` ask for metrics that there are, in
//! expressions that Prometheus understands. Where Debian's prometheus and prometheus-redis-exporter
//! are installed (`cargo xtask monitoring` does it), both read a server.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use bobbin_testkit::disk::Folder;
use bobbin_testkit::server::free_port;
use bobbin_testkit::{TestServer, peers};
use serde_json::Value;

/// What the dashboards ask for that Debian's prometheus-redis-exporter 1.45 has among its examples.
const KNOWN_FOR_REDIS: [&str; 17] = [
    "redis_blocked_clients",
    "redis_commands_duration_seconds_total",
    "redis_commands_processed_total",
    "redis_commands_total",
    "redis_connected_clients",
    "redis_db_keys",
    "redis_db_keys_expiring",
    "redis_evicted_keys_total",
    "redis_expired_keys_total",
    "redis_keyspace_hits_total",
    "redis_keyspace_misses_total",
    "redis_memory_max_bytes",
    "redis_memory_used_bytes",
    "redis_net_input_bytes_total",
    "redis_net_output_bytes_total",
    "redis_up",
    "redis_uptime_in_seconds",
];

/// How long what is to come may take.
const SOON: Duration = Duration::from_secs(90);
/// The dashboard among the examples of Debian's prometheus-redis-exporter.
const EXPORTER_DASHBOARD: &str = "/usr/share/doc/prometheus-redis-exporter/examples/\
                                  grafana_prometheus_redis_dashboard.json";

fn contrib(file: &str) -> PathBuf {
    peers::repository().join("contrib").join(file)
}

fn read(file: &str) -> String {
    std::fs::read_to_string(contrib(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The expressions of our own dashboard for Grafana, with its variables filled in.
fn expressions() -> Vec<String> {
    expressions_of(&read("grafana/bobbin.json"), ".*")
}

/// The expressions of a dashboard for Grafana, with its variables filled in.
fn expressions_of(dashboard: &str, instance: &str) -> Vec<String> {
    let dashboard: Value = serde_json::from_str(dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let all = targets.map(|target| target["expr"].as_str().expect("an expression"));
    let filled = all.map(|expr| {
        let expr = expr.replace("$__rate_interval", "5m").replace("$__interval", "5m");
        expr.replace("$instance", instance)
    });
    filled.collect()
}

/// The metrics that a text names.
fn metrics_in(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("bobbin_"))
}

fn scrape(port: u16) -> String {
    scrape_as(port, "*/*")
}

fn scrape_as(port: u16, accept: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    write!(stream, "GET /metrics HTTP/1.0\r\nAccept: {accept}\r\n\r\n").expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    response.split_once("\r\n\r\n").expect("a body").1.to_owned()
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_is_asked_for_is_there() {
    let port = free_port().expect("a port");
    // A replica, since only these tell of a link. Nothing listens on its primary's port.
    let arguments = ["--metrics-port", &port.to_string(), "--replicaof", "127.0.0.1 1"];
    let _server = TestServer::bobbin(&arguments);
    let text = scrape(port);
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let there: BTreeSet<&str> = types.filter_map(|rest| rest.split(' ').next()).collect();
    for metric in KNOWN_FOR_REDIS {
        assert!(there.contains(metric), "there is no {metric}: {text}");
    }
    assert!(text.contains("\nbobbin_master_link_up 0\n"), "{text}");
    assert!(text.contains("\nbobbin_rdb_last_bgsave_ok 1\n"), "{text}");
    let rules = read("prometheus/bobbin.rules.yml");
    let tests = read("prometheus/bobbin.rules.test.yml");
    let panels = expressions();
    let mut count = 0;
    for text in panels.iter().chain([&rules, &tests]) {
        for metric in metrics_in(text) {
            // A histogram's samples.
            let metric = metric.strip_suffix("_bucket").unwrap_or(metric);
            assert!(there.contains(metric), "there is no {metric}: {text}");
            count += 1;
        }
    }
    assert!(count > 50, "only {count} metrics are named");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn prometheus_understands_it() {
    let promtool = |arguments: &[&str], file: &Path| {
        let output = Command::new("promtool").args(arguments).arg(file).output().ok()?;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{}: {said}", file.display());
        Some(said)
    };
    let rules = contrib("prometheus/bobbin.rules.yml");
    if promtool(&["check", "rules"], &rules).is_none() {
        return eprintln!("skipped: there is no promtool on this machine");
    }
    promtool(&["test", "rules"], &contrib("prometheus/bobbin.rules.test.yml"));
    let folder = Folder::new();
    let panels = folder.path().join("panels.yml");
    let mut text = "groups:\n  - name: panels\n    rules:\n".to_owned();
    for (number, expr) in expressions().iter().enumerate() {
        text.push_str(&format!("      - record: panel_{number}\n        expr: '{expr}'\n"));
    }
    std::fs::write(&panels, text).expect("it is written");
    promtool(&["check", "rules"], &panels);
}

/// Each command that was called has a histogram, whose numbers rise to the number of its calls.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn calls_by_their_time() {
    let port = free_port().expect("a port");
    let port_text = port.to_string();
    let arguments = ["--metrics-port", &port_text, "--enable-debug-command", "yes"];
    let server = TestServer::bobbin(&arguments);
    let mut connection = server.connect();
    for _ in 0..20 {
        connection.call(&["INCR", "n"]).expect("a reply");
    }
    connection.call(&["DEBUG", "SLEEP", "0.05"]).expect("a reply");
    let text = scrape(port);
    let buckets = |command: &str| -> Vec<(String, u64)> {
        let start = format!("bobbin_command_duration_seconds_bucket{{cmd=\"{command}\",le=\"");
        let lines = text.lines().filter_map(|line| line.strip_prefix(&*start)?.split_once("\"} "));
        lines.map(|(bound, calls)| (bound.to_owned(), calls.parse().expect("calls"))).collect()
    };
    let of_incr = buckets("incr");
    assert_eq!(of_incr.len(), 16, "{text}");
    assert!(of_incr.is_sorted_by_key(|(_, calls)| *calls), "{of_incr:?}");
    assert_eq!(of_incr.last(), Some(&("+Inf".to_owned(), 20)));
    let of_sleep = buckets("debug");
    let at_most = |bound: &str| of_sleep.iter().find(|(found, _)| found == bound).map(|it| it.1);
    assert_eq!((at_most("0.03"), at_most("+Inf")), (Some(0), Some(1)), "{of_sleep:?}");
    assert!(text.contains("\nbobbin_command_duration_seconds_count{cmd=\"incr\"} 20\n"), "{text}");
    assert!(text.contains("\nbobbin_command_duration_seconds_sum{cmd=\"incr\"} "), "{text}");
    assert!(buckets("decr").is_empty(), "{text}");
    let mut check = Command::new("promtool");
    match piped(check.args(["check", "metrics"]), &text) {
        // 3: it would give other names to some fields of INFO.
        Ok(said) => {
            assert!(matches!(said.status.code(), Some(0 | 3)), "{said:?}");
            let said = String::from_utf8_lossy(&said.stderr).into_owned();
            assert!(!said.contains("command_duration"), "{said}");
        }
        Err(_) => eprintln!("not checked: there is no promtool on this machine"),
    }
    // What is not followed is not told, nor what was followed before.
    connection.call(&["CONFIG", "SET", "latency-tracking", "no"]).expect("a reply");
    connection.call(&["INCR", "n"]).expect("a reply");
    let text = scrape(port);
    for end in ["duration_seconds_bucket", "commands_latency_seconds{"] {
        assert!(!text.contains(end), "{end}: {text}");
    }
}

/// What a scraper gets that asks for OpenMetrics: the same samples, in families that are named and
/// ended as that form has it.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn both_forms_tell_the_same() {
    let port = free_port().expect("a port");
    let server = TestServer::bobbin(&["--metrics-port", &port.to_string()]);
    server.connect().call(&["INCR", "n"]).expect("a reply");
    let (plain, open) = (scrape(port), scrape_as(port, "application/openmetrics-text"));
    let samples = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.rsplit_once(' ').expect("a value").0.to_owned()).collect()
    };
    assert_eq!(samples(&plain), samples(&open));
    assert!(open.ends_with("\n# EOF\n") && open.matches("# EOF").count() == 1, "{open}");
    assert!(!plain.contains("# EOF") && !plain.contains("# UNIT"), "{plain}");
    let mut families = BTreeSet::new();
    let mut counters = 0;
    let mut family = ("", "");
    for line in open.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split_once(' ').expect("a type");
            assert!(families.insert(family.0), "{} is there twice", family.0);
            counters += usize::from(family.1 == "counter");
        } else if let Some(rest) = line.strip_prefix("# UNIT ") {
            let (name, unit) = rest.split_once(' ').expect("a unit");
            assert!(name == family.0 && name.ends_with(&format!("_{unit}")), "{line}");
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().expect("a name");
            let ends: &[&str] = match family.1 {
                "counter" => &["_total"],
                "histogram" => &["_bucket", "_sum", "_count"],
                "summary" => &["", "_sum", "_count"],
                _ => &[""],
            };
            assert!(ends.iter().any(|end| name == format!("{}{end}", family.0)), "{line}");
        }
    }
    assert!(counters > 50, "{open}");
}

/// Prometheus itself scrapes a server, and the exporter that is mostly used with Redis, which asks
/// the same server. All panels of our dashboard, and those of the exporter's, have something to
/// show, and all rules can be evaluated.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn prometheus_and_the_exporter_read_it() {
    let ports = || free_port().expect("a port");
    let (own, exporter, api) = (ports(), ports(), ports());
    let server = TestServer::bobbin(&["--metrics-port", &own.to_string(), "--maxmemory", "1gb"]);
    let folder = Folder::new();
    let Some(_prometheus) = start_prometheus(folder.path(), api, own, exporter) else {
        return eprintln!("skipped: there is no prometheus on this machine");
    };
    let mut panels = expressions_of(&read("grafana/bobbin.json"), &format!("127.0.0.1:{own}"));
    let dashboard = std::fs::read_to_string(EXPORTER_DASHBOARD);
    let _exporter = dashboard.ok().and_then(|dashboard| {
        let address = format!("redis://{}", server.address());
        let listen = format!("127.0.0.1:{exporter}");
        let mut command = Command::new("prometheus-redis-exporter");
        command.args(["--redis.addr", &address, "--web.listen-address", &listen]);
        let program = Program::start(&mut command)?;
        for port in [own, exporter] {
            panels.extend(expressions_of(&dashboard, &format!("127.0.0.1:{port}")));
        }
        Some(program)
    });
    if _exporter.is_none() {
        eprintln!("not asked: there is no prometheus-redis-exporter on this machine");
    }
    let mut client = server.connect();
    let started = Instant::now();
    let mut empty = panels;
    while !empty.is_empty() {
        assert!(started.elapsed() < SOON, "nothing is shown by {empty:#?}");
        for command in ["SET k v EX 100", "GET k", "GET none", "LPUSH k x"] {
            client.say(command);
        }
        std::thread::sleep(Duration::from_millis(100));
        empty.retain(|expr| {
            asked(api, "query", expr)["result"].as_array().is_none_or(Vec::is_empty)
        });
    }
    // Families are named as OpenMetrics names them: without what a counter's name ends with.
    let told = asked(api, "targets/metadata", "");
    let told: BTreeSet<&str> =
        told.as_array().expect("a list").iter().filter_map(|one| one["metric"].as_str()).collect();
    for family in ["bobbin_commands_processed", "redis_commands_processed"] {
        assert!(told.contains(family), "{told:?}");
    }
    loop {
        let rules = asked(api, "rules", "");
        let groups = rules["groups"].as_array().expect("a list").iter();
        let rules: Vec<&Value> =
            groups.flat_map(|group| group["rules"].as_array().expect("a list")).collect();
        assert!(rules.len() > 10, "{rules:?}");
        let is_wrong = |rule: &&&Value| rule["health"] == "err" || rule["state"] == "firing";
        assert_eq!(rules.iter().find(is_wrong), None);
        if rules.iter().all(|rule| rule["health"] == "ok") {
            break;
        }
        assert!(started.elapsed() < SOON, "{rules:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Prometheus, which listens on a port and scrapes two others; none if it is not installed.
fn start_prometheus(folder: &Path, api: u16, own: u16, exporter: u16) -> Option<Program> {
    let configuration = folder.join("prometheus.yml");
    let rules = contrib("prometheus/bobbin.rules.yml");
    let text = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
         rule_files: [\"{}\"]\n\
         scrape_configs:\n  \
           - job_name: bobbin\n    \
             static_configs: [{{ targets: [\"127.0.0.1:{own}\"] }}]\n  \
           - job_name: exporter\n    \
             static_configs: [{{ targets: [\"127.0.0.1:{exporter}\"] }}]\n",
        rules.display()
    );
    std::fs::write(&configuration, text).expect("it is written");
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", configuration.display()));
    command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
    command.arg(format!("--web.listen-address=127.0.0.1:{api}"));
    Program::start(&mut command)
}

/// What Prometheus answers at a path of its API; nothing yet where it does not listen.
fn asked(port: u16, path: &str, query: &str) -> Value {
    let query: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        write!(stream, "GET /api/v1/{path}?query={query} HTTP/1.0\r\n\r\n")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    };
    let Ok(response) = ask() else { return Value::Null };
    let body = response.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let answer: Value = serde_json::from_str(body).unwrap_or_default();
    assert_ne!(answer["status"], "error", "{answer}");
    answer["data"].clone()
}

/// A program that ends with the test.
struct Program(Child);

impl Program {
    /// `None` where it is not installed.
    fn start(command: &mut Command) -> Option<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().ok().map(Self)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn piped(command: &mut Command, input: &str) -> std::io::Result<Output> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().expect("it is piped").write_all(input.as_bytes())?;
    child.wait_with_output()
}
