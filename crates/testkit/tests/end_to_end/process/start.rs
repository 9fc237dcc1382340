//! How the server starts: with configuration files as they are shipped with other servers, what it
//! says of itself, and what it says when it cannot start.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use bobbin_testkit::disk::Folder;
use bobbin_testkit::{ReplyFrame, TestServer, peers, until};

/// The directives of such files, under a heading for each.
const SHIPPED: &str = include_str!("shipped/directives.txt");

/// Paths and ports are the test's own; whatever else those files say is followed.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn shipped_configurations_start_it() {
    let folder = Folder::new();
    let mut count = 0;
    for section in SHIPPED.split("\n== ").skip(1) {
        let (title, directives) = section.split_once('\n').expect("a heading");
        let own = |line: &&str| {
            let name = line.split(' ').next().unwrap_or_default();
            !["port", "bind", "dir", "pidfile", "logfile", "include", "daemonize"].contains(&name)
        };
        let lines: Vec<_> = directives.lines().filter(own).collect();
        assert!(lines.len() > 60, "{title}");
        let file = folder.path().join("shipped.conf");
        std::fs::write(&file, lines.join("\n")).expect("it is written");
        let file = file.to_str().expect("a name");
        let server = TestServer::bobbin(&[file]);
        let mut client = server.connect();
        assert_eq!(client.say("SET key value"), ReplyFrame::simple("OK"), "{title}");
        for line in &lines {
            let (name, value) = line.split_once(' ').expect("a value");
            let shown = client.say(&format!("CONFIG GET {name}"));
            assert_eq!(shown.items().len(), 2, "{title}: {name}");
            let is_plain = value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            let is_amount = value.ends_with("mb") || value.ends_with('k');
            if is_plain && !is_amount {
                assert_eq!(shown.items()[1].text(), value, "{title}: {name}");
            }
        }
        count += 1;
    }
    assert_eq!(count, 8);
}

/// One block says where it listens, with what it works, what it keeps, and what it was told.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn it_says_at_start_what_it_does() {
    let metrics = bobbin_testkit::server::free_port().expect("a port").to_string();
    let server = TestServer::bobbin(&["--appendonly", "yes", "--metrics-port", &metrics]);
    let address = server.address();
    let expected = [
        format!("Listening on: {address}"),
        "Threads: ".to_owned(),
        "Persistence: no snapshots by themselves, append-only file in appendonlydir (appendfsync \
         everysec); folder "
            .to_owned(),
        "Configuration: defaults, no file".to_owned(),
        format!("Metrics: http://127.0.0.1:{metrics}/metrics"),
    ];
    let log = server.log();
    let mut rest = log.as_str();
    for line in &expected {
        let at = rest.find(line.as_str()).unwrap_or_else(|| panic!("no '{line}' in {log}"));
        rest = &rest[at..];
    }
    assert!(rest.contains("Ready to accept connections tcp"), "{log}");
}

/// Directives that are passed over are named in the log, with their places.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn it_names_what_it_passes_over() {
    let server = TestServer::bobbin(&["--rdma-port", "1", "--unsupported-directives", "warn"]);
    let log = server.log();
    assert!(log.contains("command line: 'rdma-port \"1\"' is passed over"), "{log}");
}

/// `rename-command` may name a command by what an earlier line calls it, and by nothing else.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_renamed_command_can_be_renamed_again() {
    let twice = ["--rename-command", "ECHO", "Rain", "--rename-command", "rain", "SNOW"];
    let server = TestServer::bobbin(&twice);
    let mut client = server.connect();
    assert_eq!(client.say("snow flakes"), ReplyFrame::bulk("flakes"));
    for gone in ["ECHO flakes", "RAIN flakes"] {
        assert!(client.say(gone).is_error(), "{gone}");
    }
    let line = ["--rename-command", "ECHO", "Rain", "--rename-command", "ECHO", "Hail"];
    let output = Command::new(peers::bobbin()).args(line).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("No such command in rename-command"), "{said}");
}

/// With `loglevel verbose` the log shows what a client sent that is no command, unless users' data
/// stays out of it.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn it_tells_of_a_client_that_sends_no_commands() {
    for (hides, shown) in [("yes", "*redacted*"), ("no", "*2\\r\\n$3\\r\\nGET\\r\\n$secret\\r\\n")]
    {
        let options = ["--loglevel", "verbose", "--hide-user-data-from-log", hides];
        let server = TestServer::bobbin(&options);
        let mut client = server.connect();
        client.send_raw(b"*2\r\n$3\r\nGET\r\n$secret\r\n").expect("it is sent");
        let expected = ReplyFrame::error("ERR Protocol error: invalid bulk length");
        assert_eq!(client.receive().expect("the error"), expected);
        let log = server.log();
        let line = log.lines().find(|line| line.contains("Protocol error: invalid bulk length"));
        let line = line.unwrap_or_else(|| panic!("no line of the error in {log}"));
        assert!(line.contains(" addr=127.0.0.1:"), "{line}");
        assert!(line.ends_with(&format!(" Query buffer: {shown}")), "{line}");
    }
}

/// A start that fails, as another server has the port, leaves that one's pid file as it is. As a
/// daemon it says why and fails, too.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_start_that_fails_leaves_the_running_server_alone() {
    let folder = Folder::new();
    let pid_file = folder.path().join("server.pid");
    let port = bobbin_testkit::server::free_port().expect("a port").to_string();
    let own = ["--port", &port, "--pidfile", pid_file.to_str().expect("a name")];
    let server = TestServer::bobbin(&own);
    let pid = std::fs::read_to_string(&pid_file).expect("it is written");
    for more in [&[][..], &["--daemonize", "yes"]] {
        let mut second = Command::new(peers::bobbin());
        let ended = second.args(own).args(more).current_dir(folder.path()).output();
        let ended = ended.expect("it can be run");
        assert_eq!(ended.status.code(), Some(1));
        let said = [ended.stdout, ended.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains(&format!("Failed listening on port {port} (tcp)")), "{said}");
        assert_eq!(std::fs::read_to_string(&pid_file).expect("it is there"), pid);
    }
    drop(server);
}

/// A last snapshot that cannot be written keeps the server alive, and the log says how to end it.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn it_says_how_to_end_it_without_a_snapshot() {
    let mut server = TestServer::bobbin(&["--save", "3600 1000"]);
    let mut client = server.connect();
    client.say("SET key value");
    // A folder stands where the file should be.
    std::fs::create_dir_all(server.folder().join("dump.rdb/full")).expect("it is made");
    server.signal("TERM");
    until(|| server.log().contains("say SHUTDOWN NOSAVE or SHUTDOWN FORCE"));
    assert_eq!(client.say("GET key"), ReplyFrame::bulk("value"));
    assert_eq!(client.say("CONFIG SET shutdown-on-sigterm nosave"), ReplyFrame::simple("OK"));
    server.signal("TERM");
    assert!(server.wait(bobbin_testkit::PATIENCE).is_some_and(|status| status.success()));
}

/// SORT ALPHA orders texts as Valkey does by the same locale, which is compiled here.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn texts_are_sorted_by_a_locale() {
    let folder = Folder::new();
    let locale = folder.path().join("de_DE.UTF-8");
    // Warnings about its sources make it fail, though all is written.
    let mut compiler = Command::new("localedef");
    compiler.args(["-i", "de_DE", "-f", "UTF-8"]).arg(&locale);
    if compiler.output().is_err() || !locale.join("LC_COLLATE").exists() {
        return eprintln!("skipped: this machine cannot compile a locale");
    }
    let with_locale = |program: &Path| {
        let script = folder.path().join("server");
        let text =
            format!("#!/bin/sh\nLOCPATH={} exec {} \"$@\"\n", folder.text(), program.display());
        std::fs::write(&script, text).expect("it is written");
        std::fs::set_permissions(&script, Permissions::from_mode(0o755)).expect("it may be run");
        TestServer::start(&script, &["--locale-collate", "de_DE.UTF-8"]).expect("it starts")
    };
    let mut orders = Vec::new();
    for program in [peers::peer("valkey-server"), peers::bobbin()] {
        let server = with_locale(&program);
        let mut client = server.connect();
        for word in ["zebra", "Äpfel", "apfel", "Zebra", "äpfel", "Apfel", "öl", "ol", "a-b", "ab"]
        {
            client.say(&format!("RPUSH words {word}"));
            client.say(&format!("SET weight_{word} {word}"));
        }
        let order = ["SORT words ALPHA", "SORT words BY weight_* ALPHA DESC"]
            .map(|sort| client.say(sort).items().iter().map(ReplyFrame::text).collect::<Vec<_>>());
        orders.push(order);
    }
    assert_eq!(orders[0], orders[1]);
    assert_ne!(orders[1][0][0], "Apfel", "not by bytes");
}

/// It raises its limit of open files as far as it may, has as many clients as that allows, and
/// wants no huge pages for itself.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn it_takes_of_the_machine_what_it_needs() {
    for (limits, clients) in [("ulimit -Sn 64", "10000"), ("ulimit -n 64", "24")] {
        let begin = || {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("{limits}; exec \"$@\""), "sh"]).arg(peers::bobbin());
            shell
        };
        let server = TestServer::start_by(begin, &[]).expect("it starts");
        let found = server.connect().say("CONFIG GET maxclients").items()[1].text();
        assert_eq!(found, clients, "{limits}: {}", server.log());
        let told = server.log().contains("maxclients has been reduced to 24");
        assert_eq!(told, clients == "24", "{limits}: {}", server.log());
    }
    for (option, wants_them) in [("yes", "0"), ("no", "1")] {
        let server = TestServer::bobbin(&["--disable-thp", option]);
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.id()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("THP_enabled:"));
        // Old kernels do not tell.
        assert!(line.is_none_or(|found| found.trim() == wants_them), "{option}: {line:?}");
    }
}

/// `--check-system` says what it found, and `--test-memory` what to use instead of it.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn checks_of_the_machine() {
    let run = |arguments: &[&str]| {
        let output = Command::new(peers::bobbin()).args(arguments).output().expect("it runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    let (is_fit, text) = run(&["--check-system"]);
    assert_eq!(is_fit, text == "Nothing should be changed on this machine.\n", "{text}");
    assert!(is_fit || text.lines().all(|line| line.starts_with("WARNING ")), "{text}");
    let (is_fit, text) = run(&["--test-memory", "100"]);
    assert!(!is_fit && text.contains("memtester"), "{text}");
}
