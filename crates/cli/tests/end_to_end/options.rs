//! What each option of the command line does, on a running server.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{finish, program, run, run_with};
use bobbin_testkit::{TestServer, shell};

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn an_output_that_is_full_is_said() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let ended = program().arg("--version").stdout(full).output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(said, "Error writing to the standard output: No space left on device\n");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn where_to_connect() {
    let server = TestServer::bobbin(&[]);
    let address = server.address();
    let run_anywhere = |arguments: &[&str]| {
        let mut command = program();
        command.args(arguments);
        finish(command, b"")
    };
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    assert_eq!(run_anywhere(&["-h", &host, "-p", &port, "PING"]).ok(), "PONG\n");
    assert_eq!(run_anywhere(&["-h", "localhost", "-4", "-p", &port, "PING"]).ok(), "PONG\n");
    assert_eq!(run_anywhere(&["-h", "localhost", "-6", "-p", &port, "PING"]).ok(), "PONG\n");
    assert_eq!(run_anywhere(&["-t", "5", "-p", &port, "PING"]).ok(), "PONG\n");
    for timeout in ["0", "5"] {
        assert_eq!(run_anywhere(&["--mptcp", "-t", timeout, "-p", &port, "PING"]).ok(), "PONG\n");
    }
    for scheme in ["redis", "valkey"] {
        let url = format!("{scheme}://{host}:{port}/3");
        assert!(run_anywhere(&["-u", &url, "CLIENT", "INFO"]).ok().contains(" db=3 "));
    }
    assert!(run(&server, &["-n", "2", "CLIENT", "INFO"]).ok().contains(" db=2 "));

    let socket = server.folder().join("server.sock");
    let socket = socket.to_str().unwrap();
    let on_socket = TestServer::bobbin(&["--unixsocket", socket]);
    assert_eq!(run_anywhere(&["-s", socket, "PING"]).ok(), "PONG\n");
    assert_eq!(run_anywhere(&["-u", &format!("unix://{socket}"), "PING"]).ok(), "PONG\n");
    drop(on_socket);

    let closed = bobbin_testkit::server::free_port().unwrap().to_string();
    let errors = run_anywhere(&["-p", &closed, "PING"]).failed();
    assert_eq!(errors, format!("Could not connect to 127.0.0.1:{closed}: Connection refused\n"));
    let errors = run_anywhere(&["-s", "/nowhere/server.sock", "PING"]).failed();
    assert_eq!(errors, "Could not connect to /nowhere/server.sock: No such file or directory\n");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn passwords() {
    let server = TestServer::bobbin(&["--requirepass", "secret"]);
    let with = run(&server, &["-a", "secret", "PING"]);
    assert_eq!((with.output.as_str(), with.status), ("PONG\n", Some(0)));
    assert!(with.errors.starts_with("Warning: "), "{}", with.errors);
    let quiet =
        run(&server, &["--no-auth-warning", "--pass", "secret", "--user", "default", "PING"]);
    assert_eq!((quiet.output.as_str(), quiet.errors.as_str()), ("PONG\n", ""));
    for variable in ["VALKEYCLI_AUTH", "REDISCLI_AUTH"] {
        let ran = run_with(&server, &["PING"], b"", &[(variable, "secret")]);
        assert_eq!((ran.output.as_str(), ran.errors.as_str()), ("PONG\n", ""));
    }
    let asked = run_with(&server, &["--askpass", "PING"], b"secret\n", &[]);
    assert_eq!(asked.ok(), "PONG\n");
    let wrong = run(&server, &["--no-auth-warning", "-a", "wrong", "PING"]);
    assert!(wrong.errors.starts_with("AUTH failed: WRONGPASS"), "{}", wrong.errors);
    assert_eq!(wrong.output, "NOAUTH Authentication required.\n\n");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn protocols_and_pushes() {
    let server = TestServer::bobbin(&["--enable-debug-command", "yes"]);
    assert_eq!(run(&server, &["-3", "--no-raw", "DEBUG", "PROTOCOL", "TRUE"]).ok(), "(true)\n");
    assert_eq!(
        run(&server, &["-2", "--no-raw", "DEBUG", "PROTOCOL", "TRUE"]).ok(),
        "(integer) 1\n"
    );
    let server = TestServer::valkey(&[]);
    let lines = b"CLIENT TRACKING ON\nGET k\nSET k v\nPING\n";
    let shown = run_with(&server, &["-3", "--show-pushes", "yes"], lines, &[]).ok();
    assert_eq!(shown, "OK\n\nOK\ninvalidate\nk\nPONG\n");
    let people = [("FAKETTY", "1")];
    let shown = run_with(&server, &["-3"], lines, &people).ok();
    assert_eq!(shown, "OK\n\"v\"\nOK\n-> invalidate: 'k'\nPONG\n");
    let hidden = run_with(&server, &["-3", "--show-pushes", "no"], lines, &people).ok();
    assert_eq!(hidden, "OK\n\"v\"\nOK\nPONG\n");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn repetition_and_input() {
    let server = TestServer::bobbin(&[]);
    assert_eq!(run(&server, &["-r", "3", "INCR", "n"]).ok(), "1\n2\n3\n");
    assert_eq!(run(&server, &["-r", "2", "-i", "0.01", "INCR", "n"]).ok(), "4\n5\n");
    assert_eq!(run_with(&server, &["-x", "SET", "k"], b"a\0b\n", &[]).ok(), "OK\n");
    assert_eq!(run(&server, &["GET", "k"]).ok(), "a\0b\n\n");
    let tagged = run_with(&server, &["-X", "tag", "SET", "k", "tag", "EX", "100"], b"x", &[]);
    assert_eq!(tagged.ok(), "OK\n");
    assert_eq!(run(&server, &["GET", "k"]).ok(), "x\n");
    let wrong = run_with(&server, &["-X", "tag", "SET", "k", "other"], b"x", &[]).failed();
    assert!(wrong.contains("tag not match"), "{wrong}");
    assert_eq!(run(&server, &["--quoted-input", "SET", r#""\x41\x00""#, "v"]).ok(), "OK\n");
    assert_eq!(run(&server, &["--no-raw", "KEYS", "A*"]).ok(), "1) \"A\\x00\"\n");
    assert_eq!(run(&server, &["--quoted-input", "GET", r#""Open"#]).status, Some(1));
    // Without a command, lines of the standard input are commands.
    let lines = run_with(&server, &[], b"PING\n\n3 INCR m\nget \"k\nGET k\n", &[]);
    assert_eq!(lines.ok(), "PONG\n1\n2\n3\nInvalid argument(s)\nx\n");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn errors_and_statuses() {
    let server = TestServer::bobbin(&[]);
    let error = run(&server, &["NOSUCH"]);
    assert_eq!(error.status, Some(0));
    assert!(error.output.starts_with("ERR unknown command"), "{error:?}");
    let error = run(&server, &["-e", "NOSUCH"]);
    assert_eq!((error.status, error.output.as_str()), (Some(1), ""));
    assert!(error.errors.starts_with("ERR unknown command"), "{error:?}");
    for (arguments, text) in [
        (&["--nonsense"][..], "Unrecognized option or bad number of arguments for: '--nonsense'\n"),
        (&["-r"], "Unrecognized option or bad number of arguments for: '-r'\n"),
        (&["-x", "-X", "t", "PING"], "Options -x and -X are mutually exclusive.\n"),
        (&["--tls", "--key", "/k", "PING"], "A private key needs its certificate\n"),
        (
            &["--cluster", "PING"],
            "Unknown --cluster subcommand 'PING'; '--cluster help' shows all.\n",
        ),
    ] {
        assert_eq!(run(&server, arguments).failed(), text);
    }
    let gone = run(&server, &["SHUTDOWN", "NOSAVE"]);
    assert_eq!((gone.output.as_str(), gone.errors.as_str(), gone.status), ("", "", Some(0)));
}

/// A node that sends `-c` from place to place does not do so for ever.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn redirections_have_an_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answered = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&answered);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut input = BufReader::new(stream.unwrap());
            let mut line = String::new();
            while input.read_line(&mut line).is_ok_and(|len| len > 0) {
                if line.trim_end() == "GET" {
                    count.fetch_add(1, Ordering::SeqCst);
                    let moved = format!("-MOVED 1 127.0.0.1:{port}\r\n");
                    input.get_mut().write_all(moved.as_bytes()).unwrap();
                }
                line.clear();
            }
        }
    });
    let mut command = program();
    command.args(["-c", "-p", &port.to_string(), "GET", "k"]);
    let ran = finish(command, b"");
    assert!(ran.errors.contains("more than 64 redirections"), "{ran:?}");
    assert_eq!(answered.load(Ordering::SeqCst), 64);
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn about_the_program() {
    let server = TestServer::bobbin(&[]);
    let help = run(&server, &["--help"]).ok();
    assert!(
        help.starts_with("Usage: bobbin-cli ") && help.contains("--intrinsic-latency <seconds>")
    );
    assert_eq!(run(&server, &["-h"]).ok(), help);
    assert!(run(&server, &["--version"]).ok().starts_with("bobbin-cli "));
    assert!(run(&server, &["--man"]).ok().starts_with(".TH BOBBIN\\-CLI 1"));
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&server, &["--completion", shell]).ok();
        assert!(script.contains("intrinsic-latency") && script.contains("bobbin-cli"), "{script}");
    }
    let about = run(&server, &["help", "get"]).ok();
    assert!(about.contains("\n  GET key\n  summary: "), "{about}");
    assert!(run(&server, &["help", "@string"]).ok().contains("\n  INCR key\n"));
    assert!(run(&server, &["help", "nothing"]).ok().contains("nothing called 'nothing'"));
    assert!(run(&server, &["help"]).ok().contains(":set nohints"));
}

/// The scripts are read by the shells that are there, which then know the options.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn completions_and_man_page() {
    let server = TestServer::bobbin(&[]);
    let file = |option: &[&str], name: &str| {
        let path = server.folder().join(name);
        std::fs::write(&path, run(&server, option).ok()).unwrap();
        path.display().to_string()
    };
    let bash = file(&["--completion", "bash"], "bash");
    let words = |words: &str| {
        let script = format!(
            "source {bash}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _bobbin_cli; echo ${{COMPREPLY[@]}}"
        );
        shell::run("bash", &script).expect("bash is here")
    };
    assert_eq!(words("bobbin-cli --intr"), "--intrinsic-latency\n");
    assert_eq!(words("bobbin-cli --show-pushes y"), "yes\n");
    let fish = file(&["--completion", "fish"], "fish");
    let ask_fish =
        |typed: &str| shell::run("fish", &format!("source {fish}; complete -C '{typed}'"));
    if let Some(words) = ask_fish("bobbin-cli --intr") {
        assert!(words.starts_with("--intrinsic-latency\tMeasure"), "{words}");
        assert!(ask_fish("bobbin-cli --completion z").unwrap().starts_with("zsh\t"));
    }
    let zsh = file(&["--completion", "zsh"], "zsh");
    shell::run("zsh", &format!("zsh -n {zsh}"));
    let page = file(&["--man"], "page");
    let typeset = format!("! command -v groff > /dev/null || groff -man -Tascii -ww {page}");
    if let Some(text) = shell::run("sh", &typeset).filter(|text| !text.is_empty()) {
        assert!(text.contains("BOBBIN-CLI(1)"), "{text}");
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn hints_come_from_the_server() {
    for server in [TestServer::bobbin(&[]), TestServer::valkey(&[])] {
        for (input, hint) in [
            ("GET ", "key"),
            ("GET k ", ""),
            ("LPOP k ", "[count]"),
            ("CONFIG SET a ", "value [parameter value ...]"),
            ("MGET k ", "[key ...]"),
            ("SCAN 2 COUNT ", "count [MATCH pattern] [TYPE type]"),
            ("ZRANGE k 1 2 bylex rev ", "[LIMIT offset count] [WITHSCORES]"),
            ("ZADD key 0 ", "member [score member ...]"),
            ("ZRANDMEMBER k cnt ", ""),
        ] {
            let ran = run(&server, &["--test_hint", input]).ok();
            assert_eq!(ran.trim_end_matches('\n'), hint, "{input}");
        }
        let file = server.folder().join("hints.txt");
        std::fs::write(&file, "# a comment\n\n\"GET \" \"key\"\n\"GET k \" \"wrong\"\n").unwrap();
        let checked = run(&server, &["--verbose", "--test_hint_file", file.to_str().unwrap()]);
        assert_eq!(checked.status, Some(1));
        assert!(checked.output.ends_with("FAILURE: 1/2 passed\n"), "{checked:?}");
    }
    let mut nobody = program();
    nobody.args(["-p", "1", "--test_hint", "GET "]);
    assert!(finish(nobody, b"").failed().contains("there are no hints"));
}
