//! Signals: what was measured is reported, and servers of the program's own end.

use std::{
    net::TcpStream,
    process::{Child, Command, Output, Stdio},
};

use bobbin_client::RespClient;
use bobbin_testkit::TestServer;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{eventually, integer, program, scratch};

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn an_interrupted_load_is_reported() {
    let server = TestServer::valkey(&[]);
    let file = scratch(&server, "interrupted.json");
    let file = file.to_str().unwrap();
    let interrupted = |signal, line: &str| {
        integer(&server, "DEL key:000000000000");
        let words: Vec<&str> = line.split(' ').chain(["--json-out-file", file]).collect();
        let child = spawn(program(&words, &server));
        eventually("something is sent", || integer(&server, "EXISTS key:000000000000") == 1);
        let output = end(child, signal);
        let document: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), document)
    };
    let line = "-t set,get -r 1 -n 1000000000000";
    let (status, text, document) = interrupted(Signal::INT, line);
    assert_eq!(status, Some(130));
    assert!(text.contains("\n  interrupted before its end\n"), "{text}");
    assert_eq!(document["interrupted"], true);
    let tests = document["tests"].as_array().unwrap();
    assert_eq!(tests.len(), 1, "the second was not begun");
    assert!(tests[0]["interrupted"] == true && tests[0]["requests"].as_u64() > Some(0));
    let line = "-t set -r 1 --duration 100000 --open-loop 1000 -q";
    let (status, text, _) = interrupted(Signal::TERM, line);
    assert!(status == Some(143) && text.ends_with(", interrupted\n\n"), "{text}");
    let line = "--memtier --test-time 100000 --key-maximum 1 --key-prefix key:00000000000 \
                --key-minimum 0 --ratio 1:0";
    let (status, text, document) = interrupted(Signal::INT, line);
    assert!(status == Some(130) && text.contains("\nInterrupted before its end\n"), "{text}");
    let stats = &document["ALL STATS"];
    assert_eq!(stats["Runtime"]["Interrupted"], "true");
    assert!(stats["Totals"]["Count"].as_u64() > Some(0), "{stats}");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn an_interrupted_sweep_ends_its_server() {
    let beside = TestServer::valkey(&[]);
    let output = scratch(&beside, "interrupted");
    // The second of two signals ends the program at once.
    for (signals, status) in
        [(&[Signal::INT][..], 130), (&[Signal::TERM], 143), (&[Signal::INT, Signal::TERM], 143)]
    {
        let port = bobbin_testkit::server::free_port().unwrap();
        let mut sweep = Command::new(env!("CARGO_BIN_EXE_bobbin-benchmark"));
        sweep.args(["sweep", "--io-threads", "1", "--tests", "set", "--seconds", "100000"]);
        sweep.args(["-c", "2", "-P", "1", "--threads", "1", "--port", &port.to_string()]);
        sweep.arg("--server").arg(bobbin_testkit::peers::peer("valkey-server"));
        sweep.arg("--output").arg(&output);
        let child = spawn(sweep);
        let folder = format!("bobbin-benchmark-{}-{port}", child.id());
        let folder = std::env::temp_dir().join(folder);
        let address = format!("127.0.0.1:{port}");
        eventually("something is sent", || {
            let client = RespClient::connect(&address).ok();
            client.and_then(|mut client| client.line("DBSIZE").ok()?.as_integer()) > Some(0)
        });
        assert!(folder.exists());
        let (last, first) = signals.split_last().unwrap();
        for signal in first {
            kill_process(Pid::from_child(&child), *signal).unwrap();
        }
        let ended = end(child, *last);
        let error = String::from_utf8_lossy(&ended.stderr);
        if signals.len() == 1 {
            assert_eq!(ended.status.code(), Some(status), "{error}");
            assert!(error.ends_with("\nInterrupted before anything was measured\n"), "{error}");
        } else {
            // The first may have been enough.
            assert!([Some(130), Some(status)].contains(&ended.status.code()), "{error}");
        }
        assert!(!folder.exists() && TcpStream::connect(&address).is_err());
    }
}

/// A sweep of which a round is done has that round to show.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn an_interrupted_sweep_is_reported() {
    let beside = TestServer::valkey(&[]);
    let output = scratch(&beside, "partly");
    let port = bobbin_testkit::server::free_port().unwrap();
    let mut sweep = Command::new(env!("CARGO_BIN_EXE_bobbin-benchmark"));
    sweep.args(["sweep", "--io-threads", "1,2", "--tests", "set", "--seconds", "0.1"]);
    sweep.args(["--rounds", "1000", "-c", "2", "-P", "1", "--threads", "1"]);
    sweep.args(["--port", &port.to_string(), "--server"]);
    sweep.arg(bobbin_testkit::peers::peer("valkey-server")).arg("--output").arg(&output);
    let mut child = spawn(sweep);
    // What the program says of its rounds is read until the third begins.
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    assert!(lines.any(|line| line.unwrap().starts_with("Round 3 of 1000: ")));
    let rest = std::thread::spawn(move || lines.count());
    let ended = end(child, Signal::TERM);
    assert_eq!((ended.status.code(), rest.join().unwrap() > 0), (Some(143), true));
    let text = String::from_utf8(ended.stdout).unwrap();
    assert!(text.contains("\nThe sweep was interrupted when "), "{text}");
    let read = |end: &str| std::fs::read_to_string(format!("{}{end}", output.display())).unwrap();
    let document: Value = serde_json::from_str(&read(".json")).unwrap();
    assert_eq!(document["interrupted"], true);
    for test in document["tests"].as_array().unwrap() {
        assert!(test["rates"].as_array().unwrap().len() >= 2, "{test}");
    }
    assert_eq!(read(".csv").lines().count(), 1 + 2);
    assert!(read(".html").contains("The sweep was interrupted when "));
}

fn spawn(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn end(child: Child, signal: Signal) -> Output {
    kill_process(Pid::from_child(&child), signal).unwrap();
    child.wait_with_output().unwrap()
}
