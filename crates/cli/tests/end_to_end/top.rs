//! `bobbin-cli top`: as text, and on a terminal of the test's own.

use crate::common::{eventually, finish, program, run};
use crate::shell::Terminal;
use bobbin_testkit::server::{free_port, link::Proxy};
use bobbin_testkit::{Endless, TestServer};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    os::unix::fs::PermissionsExt,
    process::{Child, Stdio},
};

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_look_as_text() {
    let server = TestServer::bobbin(&[]);
    let text = run(&server, &["-i", "0.1", "top"]).ok();
    assert!(text.starts_with("bobbin "), "{text}");
    for words in ["\nLoad\n  commands/s  ", "\n  worker 0 ", "\n  ping ", "bobbin-cli-top"] {
        assert!(text.contains(words), "{words:?} in {text}");
    }
    let text = run(&server, &["-i", "0.1", "-r", "2", "top"]).ok();
    assert_eq!(text.matches("\nLoad\n").count(), 2, "{text}");
    let mut nowhere = program();
    nowhere.args(["-p", &free_port().unwrap().to_string(), "top"]);
    let error = finish(nowhere, b"").failed();
    assert!(error.starts_with("Could not connect to 127.0.0.1:"), "{error}");
}

/// Other servers are shown as far as they tell of themselves.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn other_servers_are_shown() {
    let servers = [TestServer::valkey(&[]), TestServer::redis(&[])];
    for (server, name) in servers.iter().zip(["valkey ", "redis "]) {
        let mut client = server.connect();
        client.say("CLIENT SETNAME nuisance");
        client.say("SET key value");
        let text = run(server, &["-i", "0.1", "top"]).ok();
        assert!(text.starts_with(name), "{text}");
        for words in ["\nLoad\n  commands/s  ", "\n  main ", "\n  ping ", " nuisance "] {
            assert!(text.contains(words), "{words:?} in {text}");
        }
        let mut terminal = Terminal::open(server, &["-i", "0.1", "top"], None);
        terminal.sees("Busiest");
        terminal.keys("4");
        terminal.sees("nuisance");
        terminal.keys("/nuisance\rk");
        terminal.sees("Disconnect");
        terminal.keys("y");
        eventually("the client is disconnected", || client.call(&["PING"]).is_err());
        terminal.keys("6");
        terminal.sees("does not have it");
    }
}

/// A user sees what the rights allow, and is told of the rest.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn rights_that_are_missing_are_told() {
    let server = TestServer::bobbin(&[]);
    let mut client = server.connect();
    client.say("ACL SETUSER some on >secret +info +ping");
    client.say("ACL SETUSER none on >secret +@read");
    let top = |user| ["--user", user, "--pass", "secret", "-i", "0.1", "top"];
    let mut terminal = Terminal::open(&server, &top("some"), None);
    terminal.sees("Busiest");
    // Of a line that was there before only what is new is drawn.
    for (view, words) in [("4", "to run the 'client|list'"), ("5", "LATENCY: NOPERM")] {
        terminal.keys(view);
        terminal.sees(words);
    }
    let mut terminal = Terminal::open(&server, &top("none"), None);
    terminal.sees("to run the 'info' command");
    client.say("ACL SETUSER none +info");
    terminal.sees("Busiest");
}

/// The last figures stay while the server does not answer, and go on when it does.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_server_that_stands_still_goes_on() {
    let server = TestServer::bobbin(&[]);
    let mut terminal = Terminal::open(&server, &["-i", "0.1", "top"], None);
    terminal.sees("Busiest");
    server.signal("STOP");
    terminal.sees("no answer for ");
    server.signal("CONT");
    // The end of the line is overwritten with that.
    terminal.sees("live");
    terminal.keys("q");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_client_is_disconnected_by_hand() {
    let server = TestServer::bobbin(&[]);
    let mut client = server.connect();
    assert!(!client.say("CLIENT SETNAME nuisance").is_error());
    let mut terminal = Terminal::open(&server, &["-i", "0.1", "top"], None);
    // The whole screen is another one, which the first sample fills.
    terminal.sees("\x1b[?1049h");
    terminal.sees("Busiest");
    terminal.keys("4");
    terminal.sees("nuisance");
    terminal.keys("/nuisance\rk");
    terminal.sees("Disconnect");
    terminal.keys("n");
    terminal.sees("Nobody");
    assert!(!client.say("PING").is_error());
    terminal.keys("k");
    terminal.sees("Disconnect");
    terminal.keys("y");
    eventually("the client is disconnected", || client.call(&["PING"]).is_err());
    terminal.keys("q");
    terminal.sees("\x1b[?1049l");
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_was_recorded_is_shown_again() {
    let server = TestServer::bobbin(&[]);
    let file = server.folder().join("recording");
    let file = file.to_str().unwrap();
    let record =
        |arguments: &[&str]| run(&server, &[&["-i", "0.05", "record"], arguments].concat());
    let told = run(&server, &["-i", "0.05", "-r", "4", "record", file]).ok();
    assert!(told.contains("Recorded 4 looks in ") && !told.contains("limit"), "{told}");
    let lines = std::fs::read_to_string(file).unwrap();
    assert_eq!(lines.lines().count(), 5, "{lines}");
    assert!(lines.starts_with("{\"format\":\"bobbin-cli recording\""), "{lines}");
    for words in ["round_trip_us", "CLIENT LIST", "bobbin_version", "SLOWLOG", "HOTKEYS"] {
        assert!(lines.contains(words), "{words:?} in {lines}");
    }
    // One look may be asked for as well; the limit is there in case nobody counts it.
    let single = server.folder().join("single");
    let told = run(&server, &["-r", "1", "record", single.to_str().unwrap(), "30kb"]).ok();
    assert!(told.contains("Recorded 1 look in "), "{told}");
    let error = record(&[file]).failed();
    assert!(error.contains("exists already"), "{error}");
    let small = server.folder().join("small");
    let told = record(&[small.to_str().unwrap(), "30kb"]).ok();
    assert!(told.contains("The file has its limit."), "{told}");
    assert!(small.metadata().unwrap().len() <= 30 << 10);
    let mut nowhere = program();
    nowhere.args(["-p", &free_port().unwrap().to_string(), "record", "nowhere-recorded"]);
    let error = finish(nowhere, b"").failed();
    assert!(error.starts_with("Could not connect to 127.0.0.1:"), "{error}");
    assert!(!std::path::Path::new("nowhere-recorded").exists());

    let replay = |arguments: &[&str]| {
        let mut command = program();
        command.args(arguments);
        finish(command, b"")
    };
    let text = replay(&["-r", "-1", "top", "--replay", file]).ok();
    assert_eq!(text.matches("\nLoad\n").count(), 3, "{text}");
    assert!(text.contains("bobbin-cli-top") && text.contains("\n  ping "), "{text}");
    let error = replay(&["top", "--replay", file, "0"]).failed();
    assert!(error.contains("The speed is"), "{error}");
    let error = replay(&["top", "-p", "7000"]).failed();
    assert_eq!(error, "usage: bobbin-cli [options] top [--replay file [speed]]\n");
    let error = replay(&["top", "--replay", "/nowhere"]).failed();
    assert!(error.contains("No such file"), "{error}");

    let mut terminal = Terminal::open(&server, &["top", "--replay", file, "100"], None);
    terminal.sees("\x1b[?1049h");
    terminal.sees("recorded");
    terminal.sees("ends here");
    terminal.keys("4");
    terminal.sees("bobbin-cli-top");
    terminal.keys("q");
    terminal.sees("\x1b[?1049l");
    assert_eq!(terminal.ends(), Some(0));
}

/// A connection that is lost is made again; the recording says when there was none.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn gaps_are_recorded() {
    let server = TestServer::bobbin(&[]);
    let proxy = Proxy::to(server.address(), 1);
    let path = server.folder().join("recording");
    let mut record = program();
    record.args(["-p", &proxy.port().to_string(), "-i", "0.05", "record"]).arg(&path);
    record.stdin(Stdio::null()).stdout(Stdio::null());
    let child: Child = record.spawn().unwrap();
    let mut recording = Endless(child);
    let lines = || -> Vec<String> {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    let looks = |lines: &[String]| lines.iter().filter(|line| line.contains("replies")).count();
    eventually("two looks", || looks(&lines()) >= 2);
    proxy.reset();
    let is_lost = |line: &String| line.contains("\"lost\":");
    eventually("a gap, and a look behind it", || {
        let lines = lines();
        let gap = lines.iter().position(is_lost);
        gap.is_some_and(|gap| looks(&lines[gap..]) > 0)
    });
    let mode = path.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it is for its owner only");
    // Ctrl-C ends it in good order.
    kill_process(Pid::from_child(&recording.0), Signal::INT).unwrap();
    assert_eq!(recording.0.wait().unwrap().code(), Some(0));
    let mut replay = program();
    replay.args(["-r", "-1", "top", "--replay"]).arg(&path);
    assert!(finish(replay, b"").ok().contains("\nLoad\n"));
}
