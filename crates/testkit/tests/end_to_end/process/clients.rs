//! Real clients and load generators, unchanged.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use bobbin_testkit::connection::encode_command;
use bobbin_testkit::peers::java::Java;
use bobbin_testkit::{TestServer, peers};

use crate::common::on_both;

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn redis_py() {
    let script = peers::repository().join("tests/clients/redis_py_smoke.py");
    on_both(&[], |name, server| {
        let output = output(Command::new(peers::python()).arg(&script).arg(port(server)));
        assert_success(name, "redis-py", &output);
    });
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn jedis() {
    let program = Java::compile("Smoke");
    on_both(&[], |name, server| {
        let output = output(program.command().arg(port(server)));
        assert_success(name, "Jedis", &output);
    });
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn benchmarks() {
    let loads: [&[&str]; 4] = [
        &["-t", "set,get,incr,mset,ping", "-n", "10000", "-P", "16", "-q"],
        &["-t", "set,get", "-n", "10000", "-r", "1000", "-c", "100", "-q"],
        &["-n", "10000", "-r", "1000", "-P", "4", "-q", "SET", "key:__rand_int__", "v", "EX", "9"],
        &["-t", "set,get", "-n", "10000", "-d", "20000", "-c", "20", "-q", "--threads", "2"],
    ];
    on_both(&[], |name, server| {
        for program in ["redis-benchmark", "valkey-benchmark"] {
            for load in loads {
                let output = output(
                    Command::new(peers::peer(program)).args(["-p", &port(server)]).args(load),
                );
                assert_success(name, program, &output);
                let text = String::from_utf8_lossy(&output.stdout);
                assert!(text.contains("requests per second"), "{name}: {program}: {text}");
                assert!(!text.contains("rror"), "{name}: {program} {load:?}: {text}");
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(errors.is_empty(), "{name}: {program} {load:?}: {errors}");
            }
        }
    });
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn command_line_shells() {
    on_both(&["--requirepass", "secret"], |name, server| {
        for program in ["redis-cli", "valkey-cli"] {
            let run = |arguments: &[&str]| {
                let output = output(
                    Command::new(peers::peer(program))
                        .args(["-p", &port(server), "-a", "secret", "--no-auth-warning"])
                        .args(arguments),
                );
                assert_success(name, program, &output);
                String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
            };
            assert_eq!(run(&["PING"]), "PONG", "{name}: {program}");
            assert_eq!(run(&["-3", "SET", "k", "v"]), "OK", "{name}: {program}");
            assert_eq!(run(&["-n", "3", "SET", "other", "1"]), "OK", "{name}: {program}");
            assert_eq!(run(&["-n", "3", "DBSIZE"]), "1", "{name}: {program}");
            assert_eq!(run(&["--scan", "--pattern", "k*"]), "k", "{name}: {program}");
            assert_eq!(run(&["-r", "3", "INCR", "counter"]), "1\n2\n3", "{name}: {program}");
            assert!(run(&["INFO"]).contains("tcp_port:"), "{name}: {program}");
            assert!(run(&["--bigkeys"]).contains("strings with"), "{name}: {program}");
            assert!(run(&["CLIENT", "LIST"]).contains("addr="), "{name}: {program}");
            server_cleared(server);
        }
    });
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn mass_insertion_through_a_pipe() {
    on_both(&[], |name, server| {
        for program in ["redis-cli", "valkey-cli"] {
            let mut input = Vec::new();
            for number in 0..20_000 {
                encode_command(&["SET", &format!("key:{number}"), "value"], &mut input);
            }
            encode_command(&["INCR", "key:1"], &mut input);
            let mut child = Command::new(peers::peer(program))
                .args(["-p", &port(server), "--pipe"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the shell starts");
            let mut stdin = child.stdin.take().expect("stdin is a pipe");
            stdin.write_all(&input).expect("the shell reads");
            drop(stdin);
            let output = child.wait_with_output().expect("the shell ends");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("errors: 1, replies: 20001"), "{name}: {program}: {text}");
            let size = server.connect().say("DBSIZE").as_integer();
            assert_eq!(size, Some(20_000), "{name}: {program}");
            assert_eq!(server.connect().say("FLUSHALL").text(), "OK", "{name}");
        }
    });
}

fn server_cleared(server: &TestServer) {
    let mut connection = server.connect();
    connection.say("AUTH secret");
    connection.say("FLUSHALL");
}

fn port(server: &TestServer) -> String {
    server.address().port().to_string()
}

fn output(command: &mut Command) -> Output {
    let program = Path::new(command.get_program()).display().to_string();
    let output = command.stdin(Stdio::null()).output();
    output.unwrap_or_else(|error| panic!("{program}: {error} (`cargo xtask peers` installs it)"))
}

fn assert_success(name: &str, what: &str, output: &Output) {
    assert!(
        output.status.success(),
        "{name}: {what}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
