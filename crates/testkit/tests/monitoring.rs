//! The alert rules and the Grafana dashboard in `contrib` ask for metrics that there are, in
//! expressions that Prometheus understands.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use bobbin_testkit::disk::Folder;
use bobbin_testkit::server::free_port;
use bobbin_testkit::{Server, peers};
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

fn contrib(file: &str) -> PathBuf {
    peers::repository().join("contrib").join(file)
}

fn read(file: &str) -> String {
    std::fs::read_to_string(contrib(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The expressions of the Grafana dashboard, with its variables filled in.
fn expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("grafana/bobbin.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let all = targets.map(|target| target["expr"].as_str().expect("an expression"));
    all.map(|expr| expr.replace("$__rate_interval", "5m").replace("$instance", ".*")).collect()
}

/// The metrics that a text names.
fn metrics_in(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("bobbin_"))
}

fn scrape(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("sent");
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
    let _server = Server::bobbin(&arguments);
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
    let server = Server::bobbin(&arguments);
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
    // What is not followed is not told.
    connection.call(&["CONFIG", "SET", "latency-tracking", "no"]).expect("a reply");
    connection.call(&["CONFIG", "RESETSTAT"]).expect("a reply");
    connection.call(&["INCR", "n"]).expect("a reply");
    assert!(!scrape(port).contains("duration_seconds_bucket"));
}

fn piped(command: &mut Command, input: &str) -> std::io::Result<Output> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().expect("it is piped").write_all(input.as_bytes())?;
    child.wait_with_output()
}
