//! The dashboard: its page, the document that the page asks for, and what is kept from
//! others.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bobbin_testkit::server::free_port;
use bobbin_testkit::{ReplyFrame, TestConnection, TestServer, until};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// How long something may take that is to come soon.
const SOON: Duration = Duration::from_secs(20);
/// What the page may come to, in bytes.
const PAGE_BYTES_MAX: usize = 100_000;
/// A client's name that would be HTML in a page that takes it for some.
const HOSTILE_NAME: &str = "</script><img/src=x/onerror=alert(1)>";
/// Such a key, also with bytes that are no text and some that would end a JSON string or a line.
const HOSTILE_KEY: &[u8] = b"</script><img src=x onerror=alert(1)>\"\\\r\n\0\xff";

/// A Bobbin with a dashboard, and the port of that.
fn serve(arguments: &[&str]) -> (TestServer, u16) {
    let port = free_port().expect("a port");
    let port_text = port.to_string();
    let arguments = [&["--metrics-port", &port_text, "--io-threads", "2"], arguments].concat();
    (TestServer::bobbin(&arguments), port)
}

/// The head and the body of a response.
fn get(port: u16, path: &str, fields: &str) -> (String, String) {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&address, SOON).expect("it listens");
    stream.set_read_timeout(Some(SOON)).expect("a socket");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response, and an end");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

fn status(port: u16) -> Value {
    let (head, body) = get(port, "/status.json", "Sec-Fetch-Site: same-origin\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Type: application/json\r\n"), "{head}");
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

/// The entry of a list whose field has this value.
fn entry<'a>(list: &'a Value, field: &str, wanted: &str) -> &'a Value {
    let entries = list.as_array().expect("a list");
    let found = entries.iter().find(|entry| entry[field] == wanted);
    found.unwrap_or_else(|| panic!("no {field} {wanted} in {list}"))
}

/// What stands behind an element's first tag, which is there once, and before its last one.
fn inside<'a>(page: &'a str, tag: &str) -> &'a str {
    assert_eq!(page.matches(tag).count(), 1, "{tag}");
    let (_, rest) = page.split_once(tag).expect("it is there");
    rest.split_once("</").expect("it ends").0
}

/// The figures that the page brings with it.
fn first_figures(page: &str) -> Value {
    let text = inside(page, "<script id=\"first-figures\" type=\"application/json\">");
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    let letters = bits.as_bytes().chunks(6).map(|six| {
        let digits = std::str::from_utf8(six).expect("zeros and ones");
        let number = u8::from_str_radix(&format!("{digits:0<6}"), 2).expect("a number");
        char::from(LETTERS[usize::from(number)])
    });
    let mut text: String = letters.collect();
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn the_page_is_whole_and_runs_its_own_script_alone() {
    let (_server, port) = serve(&[]);
    let (head, page) = get(port, "/", "Sec-Fetch-Site: none\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", page.len())), "{head}");
    assert!(page.len() <= PAGE_BYTES_MAX, "{} bytes", page.len());
    for field in [
        "Content-Type: text/html; charset=utf-8",
        "X-Content-Type-Options: nosniff",
        "Referrer-Policy: no-referrer",
        "X-Frame-Options: DENY",
        "Cross-Origin-Resource-Policy: same-origin",
    ] {
        assert!(head.lines().any(|line| line == field), "no '{field}' in {head}");
    }
    assert!(!head.to_lowercase().contains("access-control"), "{head}");
    let policy = head.lines().find_map(|line| line.strip_prefix("Content-Security-Policy: "));
    let policy = policy.expect("a policy");
    for (tag, directive) in [("<script>", "script-src"), ("<style>", "style-src")] {
        let hash = base64(&Sha256::digest(inside(&page, tag)));
        let expected = format!("{directive} 'sha256-{hash}'");
        assert!(policy.split("; ").any(|found| found == expected), "{expected}: {policy}");
    }
    for directive in ["default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'"] {
        assert!(policy.split("; ").any(|found| found == directive), "{directive}: {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn other_sites_get_nothing() {
    let (_server, port) = serve(&[]);
    for path in ["/", "/status.json", "/metrics"] {
        for (field, expected) in [
            (String::new(), "200"),
            (format!("Origin: http://localhost:{port}\r\n"), "200"),
            ("Origin: http://evil.example\r\n".into(), "403"),
            ("Origin: null\r\n".into(), "403"),
            ("Sec-Fetch-Site: cross-site\r\n".into(), "403"),
            ("Sec-Fetch-Site: same-site\r\n".into(), "403"),
            ("Host: rebound.example\r\n".into(), "403"),
        ] {
            let (head, body) = get(port, path, &field);
            assert!(head.starts_with(&format!("HTTP/1.1 {expected} ")), "{path} {field}: {head}");
            assert!(expected == "200" || body.len() < 200, "{body}");
        }
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_the_page_shows_is_so() {
    let (server, port) = serve(&["--slowlog-log-slower-than", "-1"]);
    let mut client = server.connect();
    for number in 0..100 {
        client.say(&format!("SET k{number} v"));
    }
    client.say("INCR k1");
    client.say("SELECT 3");
    client.say("SET other v EX 100");
    let status = status(port);
    let info = &status["info"];
    assert_eq!(info["connected_clients"], "1");
    assert_eq!(info["role"], "master");
    assert_eq!(info["errorstat_ERR"], "count=1");
    assert!(info["db0"].as_str().is_some_and(|text| text.starts_with("keys=100,")), "{info}");
    assert!(info["db3"].as_str().is_some_and(|text| text.starts_with("keys=1,expires=1,")));
    assert!(info["worker_1"].as_str().is_some_and(|text| text.contains("busy_us=")), "{info}");
    assert!(info.get("config_file").is_none() && info.get("executable").is_none());
    let set = entry(&status["commands"], "name", "set");
    assert_eq!(set["calls"], 101);
    let buckets = set["buckets"].as_array().expect("a list");
    assert_eq!(buckets.last().expect("some")[1], 101, "{set}");
    assert_eq!(entry(&status["commands"], "name", "incr")["failed"], 1);
    assert_eq!(status["clients"].as_array().map(Vec::len), Some(1));
    assert_eq!(status["clients"][0]["database"], 3);
    assert_eq!(status["slow_us"], -1);
    let lines = status["log"].as_array().expect("a list");
    let is_start = |line: &Value| line["text"] == "Ready to accept connections tcp";
    assert!(lines.iter().any(is_start), "{lines:?}");
    let first = first_figures(&get(port, "/", "").1);
    for field in ["run_id", "db0", "total_commands_processed"] {
        assert_eq!(first["info"][field], info[field]);
    }
    assert!(first["time_ms"].as_u64() >= status["time_ms"].as_u64());
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_clients_say_stays_data() {
    let (server, port) = serve(&["--slowlog-log-slower-than", "0"]);
    let mut client = server.connect();
    client.call(&["CLIENT", "SETNAME", HOSTILE_NAME]).expect("a reply");
    client.call(&[b"GET", HOSTILE_KEY]).expect("a reply");
    client.call(&["EVAL", "return redis.error_reply('<b> x')", "0"]).expect("a reply");
    let (_, text) = get(port, "/status.json", "");
    let status: Value = serde_json::from_str(&text).expect("a document");
    assert!(text.bytes().all(|byte| byte >= b' '), "{text}");
    let slow = status["slow"].as_array().expect("a list");
    let found = slow.iter().find(|entry| entry["words"][0] == "GET").expect("it was slow");
    let expected = String::from_utf8_lossy(HOSTILE_KEY);
    assert_eq!(found["words"][1], *expected, "{found}");
    assert_eq!(found["name"], HOSTILE_NAME);
    assert_eq!(status["clients"][0]["name"], HOSTILE_NAME);
    assert_eq!(status["info"]["errorstat_<b>"], "count=1");
    // The page has no more of what they say than the kinds of errors.
    let (_, page) = get(port, "/", "");
    assert!(!page.contains("onerror") && !page.contains("<b>"), "{page}");
    assert_eq!(first_figures(&page)["info"]["errorstat_<b>"], "count=1");
}

/// Types and large keys by a sample, which a few keys are in as a whole; hot keys by HOTKEYS.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn keys_by_type_size_and_use() {
    let (server, port) = serve(&[]);
    let mut client = server.connect();
    assert_eq!(status(port)["hot_keys"], serde_json::json!({ "known": false }));
    client.say("HOTKEYS START METRICS 2 CPU NET");
    for number in 0..30 {
        client.say(&format!("SET string:{number} {number}"));
    }
    client.call(&["SELECT", "2"]).expect("a reply");
    client.call(&["RPUSH", "large", &"x".repeat(100_000)]).expect("a reply");
    // The page of before is shown for five seconds.
    let mut of = Value::Null;
    let started = Instant::now();
    while of["keys"]["largest"][0]["key"] != "large" {
        assert!(started.elapsed() < SOON, "{of}");
        std::thread::sleep(Duration::from_millis(200));
        of = status(port);
    }
    assert_eq!(entry(&of["keys"]["kinds"], "type", "string")["keys"], 30);
    assert_eq!(entry(&of["keys"]["kinds"], "type", "list")["keys"], 1);
    let large = &of["keys"]["largest"][0];
    assert_eq!((&large["database"], &large["type"]), (&2.into(), &"list".into()));
    assert!(large["bytes"].as_u64().is_some_and(|bytes| bytes > 100_000), "{large}");
    assert!(of["keys"]["largest"].as_array().is_some_and(|list| list.len() <= 10));
    assert_eq!(of["hot_keys"]["active"], true);
    assert_eq!(of["hot_keys"]["by_bytes"][0][0], "large");
    // Names of keys are for those that may read them.
    client.say("CONFIG SET requirepass secret");
    let of = status(port);
    assert_eq!(of["keys"]["largest"], serde_json::json!([]));
    assert_eq!(of["hot_keys"]["by_bytes"], serde_json::json!([]));
    assert!(!of["keys"]["kinds"].as_array().expect("a list").is_empty());
}

/// A server with a password does not tell others what its clients say.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn without_a_password_it_tells_figures_alone() {
    let (server, port) = serve(&["--requirepass", "secret", "--slowlog-log-slower-than", "0"]);
    let mut client = server.connect();
    client.say("AUTH secret");
    client.say("CLIENT SETNAME confidential");
    client.say("SET confidential:key confidential");
    let (_, text) = get(port, "/status.json", "");
    let (_, page) = get(port, "/", "");
    assert!(!text.contains("confidential") && !page.contains("confidential"), "{text}");
    let status: Value = serde_json::from_str(&text).expect("a document");
    assert_eq!(status["details"], false);
    assert_eq!(status["left_out"]["clients"], 1);
    assert_eq!(status["slow"][0]["words"], serde_json::json!(["SET"]));
    for list in ["clients", "log"] {
        assert_eq!(status[list], serde_json::json!([]));
    }
    assert_eq!(entry(&status["commands"], "name", "set")["calls"], 1);
    // So does one whose default user may not do everything.
    client.say("ACL SETUSER default nopass -client");
    assert_eq!(self::status(port)["details"], false);
    client.say("ACL SETUSER default +@all");
    assert_eq!(self::status(port)["details"], true);
}

/// A user with all rights and a password sees what the server withholds from others.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn users_sign_in() {
    let (server, port) = serve(&["--requirepass", "secret"]);
    let mut client = server.connect();
    client.say("AUTH secret");
    client.say("CLIENT SETNAME confidential");
    client.say("ACL SETUSER ada on >lovelace ~* &* +@all");
    client.say("ACL SETUSER reader on >lovelace ~* &* +@read");
    client.say("ACL SETUSER gone off >lovelace ~* &* +@all");
    client.say("ACL SETUSER open on nopass ~* &* +@all");
    let field = |user: &str, password: &str| {
        format!("Authorization: Basic {}\r\n", base64(format!("{user}:{password}").as_bytes()))
    };
    for (user, password, is_right) in [
        ("ada", "lovelace", true),
        ("default", "secret", true),
        ("ada", "Lovelace", false),
        ("ada", "", false),
        ("nobody", "lovelace", false),
        ("reader", "lovelace", false),
        ("gone", "lovelace", false),
        ("open", "lovelace", false),
    ] {
        let field = field(user, password);
        let (_, text) = get(port, "/status.json", &field);
        let status: Value = serde_json::from_str(&text).expect("a document");
        assert_eq!(
            (&status["details"], &status["signed_in"]),
            (&is_right.into(), &is_right.into())
        );
        assert_eq!(text.contains("confidential"), is_right, "{user}: {text}");
        let (head, _) = get(port, "/sign-in", &field);
        let expected = if is_right { "HTTP/1.1 303 " } else { "HTTP/1.1 401 " };
        assert!(head.starts_with(expected), "{user}: {head}");
        let foreign = format!("{field}Sec-Fetch-Site: cross-site\r\n");
        assert!(get(port, "/status.json", &foreign).0.starts_with("HTTP/1.1 403 "));
    }
    // A user who guesses is seen.
    let denied = client.say("ACL LOG").items().len();
    assert_eq!(denied, 5, "each user that was refused, with or without a right password");
    // Rights that are gone open nothing any more.
    client.say("ACL SETUSER ada -config");
    assert!(!get(port, "/status.json", &field("ada", "lovelace")).1.contains("confidential"));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn lists_are_limited_and_stuck_workers_not_awaited() {
    let (server, port) = serve(&["--enable-debug-command", "yes"]);
    let clients: Vec<TestConnection> = (0..150).map(|_| server.connect()).collect();
    let mut stuck = server.connect();
    stuck.say("SET k v");
    let of = status(port);
    assert_eq!(of["clients"].as_array().map(Vec::len), Some(100));
    assert_eq!(of["left_out"]["clients"], 51);
    stuck.send(&["DEBUG", "SLEEP", "5"]).expect("sent");
    std::thread::sleep(Duration::from_millis(200));
    let started = Instant::now();
    let of = status(port);
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    assert_eq!(of["left_out"]["clients"], 51);
    assert_eq!(stuck.receive().expect("a reply").text(), "OK");
    drop(clients);
}

/// What there may be much of, the page is told of in part, and of how much is left out.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn long_lists_are_told_in_part() {
    let (server, port) =
        serve(&["--slowlog-log-slower-than", "0", "--enable-debug-command", "yes"]);
    let mut client = server.connect();
    client.say("DEBUG POPULATE 40000");
    for number in 0..40 {
        client.say(&format!("DEBUG LOG line-{number}"));
    }
    // More than 64 commands, most of which are refused for want of arguments.
    let names = client.say("COMMAND LIST FILTERBY ACLCAT read");
    let names: Vec<String> = names.items().iter().map(ReplyFrame::text).collect();
    assert!(names.len() > 70, "{names:?}");
    for name in &names {
        client.say(name);
    }
    let mut of = status(port);
    let len = |list: &Value| list.as_array().map(Vec::len);
    for (list, shown) in [("commands", 64), ("slow", 32), ("log", 32)] {
        assert_eq!(len(&of[list]), Some(shown), "{list}");
    }
    for list in ["commands", "slow"] {
        assert!(of["left_out"][list].as_u64() > Some(0), "{list}: {}", of["left_out"]);
    }
    let newest = &of["log"][0]["text"];
    assert!(newest.as_str().is_some_and(|text| text.ends_with("line-39")), "{newest}");
    let sampled = |of: &Value| -> u64 {
        let kinds = of["keys"]["kinds"].as_array().expect("a list");
        kinds.iter().filter_map(|kind| kind["keys"].as_u64()).sum()
    };
    let started = Instant::now();
    while sampled(&of) == 0 {
        assert!(started.elapsed() < SOON, "{of}");
        std::thread::sleep(Duration::from_millis(200));
        of = status(port);
    }
    assert!(sampled(&of) <= 16_384, "{}", of["keys"]["kinds"]);
    assert_eq!(len(&of["keys"]["largest"]), Some(10));
}

/// One request for a connection, which is closed as well when none comes for some seconds.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn connections_end_with_their_request() {
    let (_server, port) = serve(&[]);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let connect = || {
        let stream = TcpStream::connect_timeout(&address, SOON).expect("it listens");
        stream.set_read_timeout(Some(SOON)).expect("a socket");
        stream
    };
    let mut silent = connect();
    let mut double = connect();
    let request = format!("HEAD /metrics HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n");
    double.write_all(request.repeat(2).as_bytes()).expect("sent");
    let mut heard = Vec::new();
    // What was not read resets the connection.
    let _ = double.read_to_end(&mut heard);
    let heard = String::from_utf8_lossy(&heard);
    assert!(heard.matches("HTTP/1.1 ").count() <= 1, "{heard}");
    let head = get(port, "/metrics", "").0;
    assert!(head.contains("\r\nConnection: close"), "{head}");
    assert_eq!(silent.read(&mut [0; 16]).expect("an end"), 0);
}

/// Of connections that say nothing there are 16 at most: the oldest goes when another one comes.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn silent_connections_keep_nobody_out() {
    let (_server, port) = serve(&[]);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let connect = || TcpStream::connect_timeout(&address, SOON).expect("it listens");
    let read = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(SOON)).expect("a socket");
        stream.read(&mut [0; 16]).unwrap_or(0)
    };
    // On a machine that stood still for a while the second's time is over as well.
    until(|| {
        let mut silent: Vec<TcpStream> = (0..16).map(|_| connect()).collect();
        silent.push(connect());
        assert_eq!(read(&mut silent[0]), 0, "it was closed");
        silent[1].write_all(b"GET /metrics HTTP/1.0\r\n\r\n").is_ok() && read(&mut silent[1]) > 0
    });
}
