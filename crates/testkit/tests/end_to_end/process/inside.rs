//! Seeing inside: the metrics endpoint, HOTKEYS, the watchdog and the crash report.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bobbin_testkit::server::free_port;
use bobbin_testkit::{TestConnection, TestServer, until};

/// How long something may take that is to come soon.
const SOON: Duration = Duration::from_secs(20);

/// A family of metrics, as the text says.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    /// By name and labels.
    samples: BTreeMap<(String, Vec<(String, String)>), f64>,
}

/// Reads the text format 0.0.4, and panics at whatever is not as it says.
fn read_metrics(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let (mut helped, mut current) = (BTreeSet::new(), String::new());
    assert!(text.ends_with('\n'), "the last line has no end");
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a name and a text");
            assert!(is_name(name) && !help.is_empty(), "{line}");
            assert!(helped.insert(name.to_owned()), "{name} is described twice");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a type");
            assert!(["counter", "gauge", "histogram", "summary"].contains(&kind), "{line}");
            assert!(helped.contains(name), "{name} has no HELP before its TYPE");
            let family = Family { kind: kind.to_owned(), ..Family::default() };
            assert!(families.insert(name.to_owned(), family).is_none(), "{name} is there twice");
            current = name.to_owned();
        } else {
            let (name, labels, value) = read_sample(line);
            let family = families.get_mut(&current).expect("a TYPE before");
            let end = name.strip_prefix(&current).unwrap_or_else(|| panic!("{line} in {current}"));
            let has_quantile = labels.iter().any(|(label, _)| label == "quantile");
            match family.kind.as_str() {
                "summary" if end.is_empty() => assert!(has_quantile, "{line}"),
                "histogram" if end == "_bucket" => {
                    assert!(labels.iter().any(|(label, _)| label == "le"), "{line}");
                }
                "summary" | "histogram" => assert!(["_sum", "_count"].contains(&end), "{line}"),
                "counter" => assert!(end.is_empty() && name.ends_with("_total") && value >= 0.0),
                _ => assert!(end.is_empty(), "{line} in {current}"),
            }
            assert!(family.samples.insert((name, labels), value).is_none(), "{line} comes twice");
        }
    }
    families
}

/// A line `name{label="text",...} value`.
fn read_sample(line: &str) -> (String, Vec<(String, String)>, f64) {
    let end = line.find(['{', ' ']).expect("something behind the name");
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").expect("a label");
            assert!(is_name(label), "{line}");
            let (mut text, mut chars) = (String::new(), after.char_indices());
            let end = loop {
                match chars.next().expect("a closing quote") {
                    (at, '"') => break at,
                    (_, '\\') => match chars.next().expect("an escaped letter").1 {
                        'n' => text.push('\n'),
                        escaped => {
                            assert!("\\\"".contains(escaped), "{line}");
                            text.push(escaped);
                        }
                    },
                    (_, letter) => text.push(letter),
                }
            };
            labels.push((label.to_owned(), text));
            rest = &after[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').unwrap_or_else(|| panic!("no closing brace: {line}"));
    }
    let value = rest.strip_prefix(' ').expect("one space").parse().expect("a number");
    (name.to_owned(), labels, value)
}

fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// The head and the body of a response.
fn get(port: u16, request: &str) -> (String, String) {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&address, SOON).expect("it listens");
    stream.set_read_timeout(Some(SOON)).expect("a socket");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response, and an end");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

fn scrape(port: u16) -> BTreeMap<String, Family> {
    let (head, body) = get(port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    read_metrics(&body)
}

/// The value of a sample with this label, or of the one without any.
fn value(families: &BTreeMap<String, Family>, name: &str, label: Option<(&str, &str)>) -> f64 {
    let family = families.get(name).unwrap_or_else(|| panic!("there is no {name}"));
    let has = |labels: &[(String, String)]| match label {
        None => labels.is_empty(),
        Some((label, text)) => labels.iter().any(|(l, t)| l == label && t == text),
    };
    let found = family.samples.iter().find(|((sample, labels), _)| sample == name && has(labels));
    *found.unwrap_or_else(|| panic!("{name} has no {label:?}")).1
}

/// How many calls of SET the histogram counts, after its buckets are checked: each one counts
/// those below it too, and the last, without an end, counts every call.
fn buckets_of_set(histogram: &Family) -> f64 {
    assert_eq!(histogram.kind, "histogram");
    let is_of_set = |labels: &[(String, String)]| labels.contains(&("cmd".into(), "set".into()));
    let (mut buckets, mut count) = (Vec::new(), None);
    for ((name, labels), &value) in &histogram.samples {
        if !is_of_set(labels) {
            continue;
        }
        match labels.iter().find(|(label, _)| label == "le") {
            Some((_, end)) => buckets.push((end.parse::<f64>().expect("a number"), value)),
            None if name.ends_with("_count") => count = Some(value),
            None => assert!(name.ends_with("_sum") && value > 0.0, "{name} is {value}"),
        }
    }
    buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
    assert!(buckets.len() > 2 && buckets.is_sorted_by_key(|bucket| bucket.1), "{buckets:?}");
    let last = buckets.last().copied().expect("a bucket");
    assert_eq!(Some(last), count.map(|count| (f64::INFINITY, count)));
    last.1
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn metrics_are_those_of_info() {
    let port = free_port().expect("a port");
    let server = TestServer::bobbin(&["--io-threads", "2", "--metrics-port", &port.to_string()]);
    let mut client = server.connect();
    for number in 0..100 {
        client.say(&format!("SET k{number} v"));
    }
    client.say("SELECT 3");
    client.say("SET other v EX 100");
    client.say("INCR other");
    client.say("GET none");
    let families = scrape(port);
    assert_eq!(value(&families, "bobbin_db_keys", Some(("db", "db0"))), 100.0);
    assert_eq!(value(&families, "bobbin_db_keys", Some(("db", "db3"))), 1.0);
    assert_eq!(value(&families, "bobbin_db_keys_expiring", Some(("db", "db3"))), 1.0);
    assert_eq!(value(&families, "bobbin_commands_total", Some(("cmd", "set"))), 101.0);
    assert_eq!(value(&families, "bobbin_commands_failed_calls_total", Some(("cmd", "incr"))), 1.0);
    assert_eq!(value(&families, "bobbin_errors_total", Some(("err", "ERR"))), 1.0);
    assert_eq!(value(&families, "bobbin_keyspace_misses_total", None), 1.0);
    assert_eq!(value(&families, "bobbin_connected_clients", None), 1.0);
    assert_eq!(families["bobbin_worker_connections"].samples.len(), 2);
    assert_eq!(families["bobbin_commands_latency_seconds"].kind, "summary");
    assert_eq!(buckets_of_set(&families["bobbin_command_duration_seconds"]), 101.0);
    assert!(value(&families, "bobbin_used_memory_bytes", None) > 1e5);
    assert_eq!(value(&families, "bobbin_info", Some(("role", "master"))), 1.0);
    for (request, status) in [
        ("GET /none HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("HEAD /metrics HTTP/1.0\r\n\r\n", "200"),
        ("GET /metrics HTTP/1.1\r\nHost: rebound.example:9121\r\n\r\n", "403"),
    ] {
        let (head, _) = get(port, request);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {head}");
    }
    client.say("CONFIG SET metrics-hosts db.internal");
    for (host, status) in [("db.internal:9121", "200"), ("DB.internal", "200"), ("other", "403")] {
        let (head, _) = get(port, &format!("HEAD /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{host}: {head}");
    }
}

/// Peers that say nothing do not keep others waiting, nor does a worker that is stuck with
/// everything held.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn metrics_wait_for_nobody() {
    let port = free_port().expect("a port");
    let port_text = port.to_string();
    let arguments = ["--metrics-port", &port_text, "--enable-debug-command", "yes"];
    let server = TestServer::bobbin(&arguments);
    server.connect().say("SET k v");
    scrape(port);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let silent: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect_timeout(&address, SOON).expect("connected")).collect();
    for mut slow in silent.iter().step_by(2) {
        // A connection that has made room by now may be told so.
        let _ = slow.write_all(b"GET /metrics HTTP/1.1\r\nX: ");
    }
    let mut stuck = server.connect();
    stuck.send(&["DEBUG", "SLEEP", "5"]).expect("sent");
    std::thread::sleep(Duration::from_millis(200));
    let started = Instant::now();
    let families = scrape(port);
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    assert_eq!(value(&families, "bobbin_db_keys", Some(("db", "db0"))), 1.0);
    assert!(value(&families, "bobbin_keyspace_figures_age_seconds", None) > 0.0);
    assert_eq!(stuck.receive().expect("a reply").text(), "OK");
    drop(silent);
}

/// Pairs of an array as a map.
fn pairs(reply: &bobbin_testkit::ReplyFrame) -> BTreeMap<String, bobbin_testkit::ReplyFrame> {
    let pairs = reply.items().chunks(2);
    pairs.map(|pair| (pair[0].text(), pair[1].clone())).collect()
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn hot_keys_are_found() {
    let server = TestServer::bobbin(&["--io-threads", "2"]);
    let mut client = server.connect();
    assert!(client.say("HOTKEYS GET").is_null());
    for (command, error) in [
        ("HOTKEYS START", "ERR METRICS parameter is required"),
        ("HOTKEYS START METRICS 0", "ERR METRICS count must be > 0 and <= 3"),
        ("HOTKEYS START METRICS 0 CPU", "ERR METRICS count must be > 0 and <= 3"),
        ("HOTKEYS START METRICS 4 CPU NET", "ERR METRICS count must be > 0 and <= 3"),
        (
            "HOTKEYS START METRICS 2 CPU",
            "ERR METRICS count does not match number of metric types provided",
        ),
        ("HOTKEYS START METRICS 1 CPU NET", "ERR syntax error"),
        (
            "HOTKEYS START METRICS 1 GPU",
            "ERR METRICS no valid metrics passed. Supported: CPU|NET|SIZE",
        ),
        ("HOTKEYS START METRICS 2 CPU CPU", "ERR METRICS CPU defined more than once!"),
        ("HOTKEYS START METRICS 1 CPU COUNT 0", "ERR COUNT must be between 1 and 64"),
        ("HOTKEYS START METRICS 1 CPU SAMPLE 0", "ERR SAMPLE ratio must be positive"),
        (
            "HOTKEYS START METRICS 1 CPU SLOTS 1 0",
            "ERR SLOTS parameter cannot be used in non-cluster mode",
        ),
    ] {
        assert_eq!(client.say(command).text(), error, "{command}");
    }
    for sample in [1, 10] {
        let start = format!("HOTKEYS START METRICS 2 CPU NET COUNT 5 SAMPLE {sample}");
        assert_eq!(client.say(&start).text(), "OK");
        let again = client.say("HOTKEYS START METRICS 1 CPU").text();
        assert_eq!(again, "ERR hotkey tracking session already in progress");
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| load(&mut server.connect()));
            }
        });
        let refused = client.say("HOTKEYS RESET").text();
        assert_eq!(refused, "ERR hotkey tracking session in progress, stop tracking first");
        assert_eq!(client.say("HOTKEYS STOP").text(), "OK");
        assert!(client.say("HOTKEYS STOP").is_null());
        let report = pairs(&client.say("HOTKEYS GET").items()[0]);
        assert_eq!(report["tracking-active"].as_integer(), Some(0));
        assert_eq!(report["sample-ratio"].as_integer(), Some(sample));
        assert!(report["all-commands-all-slots-us"].as_integer() > Some(0));
        let by_bytes = report["by-net-bytes"].items();
        assert_eq!(by_bytes.len(), 10);
        assert_eq!(by_bytes[0].text(), "large");
        assert!(by_bytes[1].as_integer() > by_bytes[3].as_integer());
        let by_time: Vec<String> =
            report["by-cpu-time-us"].items().iter().step_by(2).map(|key| key.text()).collect();
        assert!(by_time.contains(&"hot".to_owned()), "{by_time:?}");
        assert_eq!(client.say("HOTKEYS RESET").text(), "OK");
    }
    assert!(client.say("HOTKEYS GET").is_null());
}

/// Sizes are found as keys are used, also within transactions and by scripts, and forgotten with
/// the keys.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn large_keys_are_found_while_serving() {
    let server = TestServer::bobbin(&["--io-threads", "1"]);
    let mut client = server.connect();
    client.say("SET unused 1");
    assert_eq!(client.say("HOTKEYS START METRICS 1 SIZE COUNT 3").text(), "OK");
    for at in 0..200 {
        client.say(&format!("SET small:{at} value"));
    }
    client.call(&["SET", "gone", &"x".repeat(50_000)]).expect("an answer");
    client.call(&["SET", "text", &"x".repeat(30_000)]).expect("an answer");
    client.say("MULTI");
    client.call(&["RPUSH", "list", &"x".repeat(20_000)]).expect("an answer");
    client.say("EXEC");
    let script = "return redis.call('setrange', KEYS[1], 10000, 'x')";
    client.call(&["EVAL", script, "1", "scripted"]).expect("an answer");
    let largest = |client: &mut TestConnection| -> Vec<String> {
        let report = pairs(&client.say("HOTKEYS GET").items()[0]);
        let keys = report["by-size-bytes"].items();
        assert!(keys.iter().skip(1).step_by(2).all(|size| size.as_integer() > Some(10_000)));
        keys.iter().step_by(2).map(|key| key.text()).collect()
    };
    assert_eq!(largest(&mut client), ["gone", "text", "list"]);
    client.say("DEL gone");
    assert_eq!(largest(&mut client), ["text", "list", "scripted"]);
    client.say("HOTKEYS STOP");
    client.call(&["SET", "late", &"x".repeat(90_000)]).expect("an answer");
    assert_eq!(largest(&mut client), ["text", "list", "scripted"]);
}

fn load(client: &mut TestConnection) {
    let large = "x".repeat(10_000);
    for round in 0..3000 {
        client.say("INCR hot");
        client.say(&format!("SET cold{round} v"));
        if round % 10 == 0 {
            client.call(&["SET", "large", &large]).expect("a reply");
        }
    }
}

/// Waits until the log holds a text; all that it holds then.
fn wait_for_log(server: &TestServer, text: &str) -> String {
    let started = Instant::now();
    loop {
        let log = server.log();
        if log.contains(text) {
            return log;
        }
        assert!(started.elapsed() < SOON, "no {text:?} in {log}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn has_thread(server: &TestServer, name: &str) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.id())).expect("it runs");
    // One may end meanwhile.
    let names = tasks.flatten().flat_map(|task| std::fs::read_to_string(task.path().join("comm")));
    names.into_iter().any(|comm| comm.trim() == name)
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn the_watchdog_tells_of_a_stuck_worker() {
    let server = TestServer::bobbin(&["--enable-debug-command", "yes", "--io-threads", "2"]);
    let mut client = server.connect();
    client.say("CLIENT SETNAME culprit");
    client.say("DEBUG SLEEP 0.5");
    assert!(!server.log().contains("WATCHDOG"));
    assert_eq!(client.say("CONFIG SET watchdog-period 200").text(), "OK");
    client.say("DEBUG SLEEP 1");
    // It may tell of the other worker first, which waits for the gate.
    let log = wait_for_log(&server, "------ ITS COMMAND ------\ndebug, 3 words\n");
    let tells = |line: &str| line.contains("WATCHDOG: worker") && line.contains("name=culprit;");
    let line = log.lines().find(|line| tells(line)).expect("a line");
    assert!(line.ends_with("its command is debug."), "{line}");
    assert!(log.contains("------ STACK OF THAT THREAD ------\n0x"), "{log}");
    wait_for_log(&server, "goes on");
    client.say("CONFIG SET watchdog-period 0");
    // Until its thread has ended it may still tell that a worker goes on.
    until(|| !has_thread(&server, "bobbin-watchdog"));
    let before = server.log().matches("WATCHDOG").count();
    client.say("DEBUG SLEEP 0.6");
    assert_eq!(server.log().matches("WATCHDOG").count(), before);
    // And when it is asked, which does it no harm.
    client.send(&["DEBUG", "SLEEP", "1"]).expect("is sent");
    std::thread::sleep(Duration::from_millis(100));
    server.signal("ALRM");
    let log = wait_for_log(&server, "Received SIGALRM");
    wait_for_log(&server, "name=culprit; its command is debug");
    assert_eq!(client.receive().expect("it lives").text(), "OK", "{log}");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_crash_is_reported() {
    for (how, signal) in [("SEGFAULT", 11), ("ASSERT", 6), ("OOM", 6), ("PANIC", 6)] {
        let shown = ["--hide-user-data-from-log", "no", "--debug-context", "night run"];
        let arguments = [&["--enable-debug-command", "yes"][..], &shown].concat();
        let mut server = TestServer::bobbin(&arguments);
        let mut client = server.connect();
        client.say("CLIENT SETNAME culprit");
        let _ = client.call(&["DEBUG", how]);
        let status = server.wait(SOON).expect("it ends");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(signal), "{how}");
        let log = server.log();
        for text in [
            &format!("crashed by signal: {signal} "),
            "------ REGISTERS ------\n",
            "------ STACK TRACE ------\n0x",
            "------ CURRENT COMMAND ------\ndebug, 2 words\nargv[0]: DEBUG\n",
            &format!("argv[1]: {how}\n"),
            " name=culprit ",
            "------ INFO OUTPUT ------\n# Server\n",
            "\ndebug-context night run\n",
            "=== BOBBIN BUG REPORT END.",
        ] {
            assert!(log.contains(text), "{how}: no {text:?} in {log}");
        }
    }
    // What nobody should read is left out, and all of it if that is wished.
    for (argument, shown) in [("no", true), ("yes", false)] {
        let arguments = ["--enable-debug-command", "yes", "--hide-user-data-from-log", argument];
        let mut server = TestServer::bobbin(&arguments);
        let _ = server.connect().call(&["DEBUG", "SEGFAULT"]);
        server.wait(SOON).expect("it ends");
        assert_eq!(server.log().contains("argv[1]: SEGFAULT"), shown);
    }
    let mut server =
        TestServer::bobbin(&["--enable-debug-command", "yes", "--crash-log-enabled", "no"]);
    let _ = server.connect().call(&["DEBUG", "SEGFAULT"]);
    server.wait(SOON).expect("it ends");
    assert!(!server.log().contains("BUG REPORT"));
}
