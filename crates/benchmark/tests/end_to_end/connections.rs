//! TLS, clusters and terminals.

use std::{
    fs::File,
    io::Read,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use bobbin_testkit::server::{cluster::TestCluster, tls::TlsServer};
use bobbin_testkit::{TestServer, shell};
use rustix::{
    fs::{Mode, OFlags, open},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use crate::common::{ask, bench, failure, integer, memtier, program, run_with, scratch, text_of};

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn loads_over_tls() {
    for start in [TestServer::valkey, TestServer::redis] {
        let TlsServer { server, port, certificates } =
            &TlsServer::start(start, "server", &["--tls-auth-clients", "optional"]);
        let authority = certificates.path("ca.crt");
        let tls = format!("-p {port} --tls --cacert {authority}");
        bench(server, &format!("-q {tls} -t set,get,lrange_600 -n 2000 -r 500 -P 16 --threads 2"));
        assert!(integer(server, "DBSIZE") > 400);
        bench(server, &format!("-q {tls} -t set -n 20 -c 1 -d 3000000 -P 3"));
        bench(server, &format!("-q {tls} -t get -n 100 -c 3 -k 0 -P 5"));
        bench(server, &format!("-q {tls} -t get -n 300 --open-loop 3000 -3"));
        let own = format!(
            "--cert {} --key {} --sni localhost --tls-ciphersuites TLS_AES_128_GCM_SHA256",
            certificates.path("client.crt"),
            certificates.path("client.key")
        );
        bench(server, &format!("-q {tls} -t ping_mbulk -n 100 {own}"));
        let url = format!("-u rediss://localhost:{port} --insecure --tls-protocols TLSv1.2");
        bench(server, &format!("-q {url} --tls-ciphers ECDHE-ECDSA-AES256-GCM-SHA384 -n 9 PING"));
        let text = memtier(
            server,
            &format!("{tls} -t 2 -c 2 -n 100 --pipeline 7 --tls-protocols TLSv1.3"),
        );
        assert!(text.contains("ALL STATS"), "{text}");
        memtier(server, &format!("-p {port} --tls --tls-skip-verify -n 5 --reconnect-interval 2"));
        run_with(&["expire"], server, &format!("{tls} -n 1000 --csv"));
        run_with(&["limits"], server, &format!("{tls} --seconds 0.05"));

        let place = format!("Could not connect to server at 127.0.0.1:{port}: ");
        let stranger = failure(server, &format!("-p {port} --tls -q -t ping"));
        assert!(stranger.starts_with(&place), "{stranger}");
        assert!(stranger.contains("UnknownIssuer"), "{stranger}");
        let named = failure(server, &format!("{tls} --sni other.test -q -t ping"));
        assert!(named.contains("not valid for name"), "{named}");
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_cluster_whose_slots_move() {
    let cluster = TestCluster::valkey(3);
    let first = &cluster.nodes[0];
    let text = bench(first, "--cluster -t set,get,mset -n 600 -r 100 -P 3");
    assert!(text.contains("  cluster mode: yes (3 primaries)"), "{text}");
    assert!(!text.contains("redirections"), "{text}");
    assert!(cluster.nodes.iter().all(|node| integer(node, "DBSIZE") > 0));
    bench(first, "-q --cluster --rfr all -n 50 -r 100 GET k:{tag}:__rand_int__");
    let text =
        memtier(first, "--cluster-mode -t 1 -c 3 -n 200 --hide-histogram --key-maximum 1000");
    assert!(text.contains("   MOVED/sec      ASK/sec "), "{text}");
    assert_eq!(
        bench(first, "-q --cluster -n 60 -c 9 -t fcall").matches("requests per second").count(),
        1,
        "the library is on all nodes"
    );
    assert_eq!(
        failure(first, "--cluster -c 2 -t ping"),
        "The cluster has 3 nodes, so -c must be at least that"
    );
    // One key is on one node, and two thirds of the connections are to others.
    let file = scratch(first, "redirected.json");
    let line = "--cluster -c 9 -n 900 --json-out-file ";
    let csv = bench(first, &format!("--csv {line}{} GET one", file.display()));
    assert!(csv.lines().next().unwrap().ends_with(",\"redirections\""), "{csv}");
    let said = csv.trim_end().rsplit('"').nth(1).unwrap().parse::<u64>().unwrap();
    let document: serde_json::Value =
        serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let test = &document["tests"][0];
    assert!((1..900).contains(&said) && test["moved"] == said, "{csv} {test}");
    assert_eq!((&test["requests"], &test["errors"]), (&900.into(), &0.into()));
    for node in &cluster.nodes {
        ask(node, "FLUSHALL");
    }
    // Slots of the first node go to the others while it is asked for keys in them.
    let line = ["--cluster", "--duration", "4", "-c", "9", "-r", "100", "--threads", "2"];
    let command = [&line[..], &["GET", "k:{tag}:__rand_int__"]].concat();
    let running = program(&command, first).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let running = running.unwrap();
    std::thread::sleep(Duration::from_millis(700));
    cluster.give(0..2700, 1);
    cluster.give(2700..5461, 2);
    let output = running.wait_with_output().unwrap();
    let text = text_of("--cluster", output);
    assert!(text.contains("  redirections: "), "{text}");
    // A client that asks the first node now learns of two nodes that have slots.
    let text = bench(first, "--cluster -n 100 -r 100 GET k:{tag}:__rand_int__");
    assert!(text.contains("  cluster mode: yes (2 primaries)"), "{text}");
    assert!(!text.contains("redirections"), "{text}");
}

/// On a terminal there is a line that is written over and over, cut to the terminal's width, and
/// wiped at the end.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn the_live_line_on_a_terminal() {
    let server = TestServer::valkey(&[]);
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let size = Winsize { ws_row: 24, ws_col: 90, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&controller, size).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let show = |arguments: &[&str]| {
        let terminal =
            File::from(open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap());
        let mut command = program(arguments, &server);
        command.stdin(Stdio::null()).stdout(terminal).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        drop(command);
        let mut screen = String::new();
        let mut output = File::from(controller.try_clone().unwrap());
        let mut buffer = [0; 4096];
        // The last program that has the terminal open ends with an error here.
        while let Ok(len @ 1..) = output.read(&mut buffer) {
            screen += &String::from_utf8_lossy(&buffer[..len]);
        }
        assert!(child.wait().unwrap().success(), "{screen}");
        screen
    };
    let screen = show(&["-t", "get", "-q", "--duration", "1.2"]);
    let lines: Vec<_> = screen.split('\r').filter(|line| line.starts_with("GET: [")).collect();
    assert!(lines.len() >= 2, "{screen:?}");
    for line in &lines {
        assert!(line.contains("/s (overall ") && line.contains("p50="), "{line:?}");
        assert!(line.chars().count() <= 89, "{line:?}");
    }
    assert!(lines[0].contains("..]") && lines.iter().any(|line| line.contains('#')), "{lines:?}");
    let end = screen.rsplit("\r\x1b[K").next().unwrap();
    assert!(end.starts_with("GET: ") && end.contains(" requests per second, p50="), "{end:?}");
    let hidden = show(&["-t", "get", "-q", "--duration", "0.6", "--no-progress"]);
    assert!(!hidden.contains('['), "{hidden:?}");
    let piped = bench(&server, "-t get -q --duration 0.6");
    assert!(!piped.contains('\r'), "{piped:?}");
}

/// The scripts are read by the shells that are there, which then know the options.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn completions_and_man_page() {
    let folder = std::env::temp_dir().join(format!("bobbin-completion-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let generate = |what: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bobbin-benchmark"));
        let output = command.args(["generate", what]).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{what}");
        let path = folder.join(what);
        std::fs::write(&path, output.stdout).unwrap();
        path.display().to_string()
    };
    let bash = generate("bash");
    let words = shell::run(
        "bash",
        &format!(
            "source {bash}; COMP_WORDS=(bobbin-benchmark --arr); COMP_CWORD=1; \
             _bobbin_benchmark; echo ${{COMPREPLY[@]}}"
        ),
    );
    assert_eq!(words.as_deref(), Some("--arrivals\n"));
    let fish = generate("fish");
    let ask_fish =
        |typed: &str| shell::run("fish", &format!("source {fish}; complete -C '{typed}'"));
    if let Some(words) = ask_fish("bobbin-benchmark --arr") {
        assert!(words.starts_with("--arrivals\tHow the open loop"), "{words}");
        assert!(ask_fish("bobbin-benchmark sw").unwrap().starts_with("sweep"));
    }
    let zsh = generate("zsh");
    shell::run("zsh", &format!("zsh -n {zsh}"));
    let page = generate("man");
    let typeset = format!("! command -v groff > /dev/null || groff -man -Tascii -ww {page}");
    if let Some(text) = shell::run("sh", &typeset).filter(|text| !text.is_empty()) {
        assert!(text.contains("BOBBIN-BENCHMARK(1)"), "{text}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A server that goes away is one line and a failure, and it is noticed soon.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_lost_server_is_one_line() {
    let server = TestServer::valkey(&[]);
    let running = program(&["-q", "-t", "get", "--duration", "60"], &server)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let started = Instant::now();
    drop(server);
    let output = running.wait_with_output().unwrap();
    assert!(started.elapsed() < Duration::from_secs(30));
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("Error: "), "{text}");
}
