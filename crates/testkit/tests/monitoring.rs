//! The alert rules and the Grafana dashboard in `contrib` ask for metrics that there are, in
//! expressions that Prometheus understands.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

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

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_is_asked_for_is_there() {
    let port = free_port().expect("a port");
    // A replica, since only these tell of a link. Nothing listens on its primary's port.
    let arguments = ["--metrics-port", &port.to_string(), "--replicaof", "127.0.0.1 1"];
    let _server = Server::bobbin(&arguments);
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a response");
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
