//! Every option against a running server. They run on a real Valkey, which has all commands.

use std::process::Command;

use bobbin_client::Value;
use bobbin_testkit::TestServer;

use crate::common::{
    ask, bench, client, eventually, failure, finish, integer, memtier, program, run_with, scratch,
    start, start_on, text_of,
};

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn all_tests_in_all_reports() {
    let server = TestServer::valkey(&[]);
    let csv = bench(&server, "--csv -n 200 -c 5");
    let mut lines = csv.lines();
    assert_eq!(
        lines.next(),
        Some(
            "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\
             \"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\""
        )
    );
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines.len(), 24, "{csv}");
    assert!(lines.iter().all(|line| line.matches("\",\"").count() == 7), "{csv}");
    let names = bench(&server, "-t list");
    let all = names.lines().collect::<Vec<_>>().join(",");
    let quiet = bench(&server, &format!("-q -n 200 -r 100 -t {all}"));
    assert!(quiet.lines().filter(|line| line.contains("requests per second, p50=")).count() > 24);
    let long = bench(&server, "-t get -n 200 --precision 1 --threads 2 -d 100 --show-cpu");
    for part in [
        "====== GET ======\n  200 requests completed in ",
        "  50 parallel clients\n  100 bytes payload\n  keep alive: 1\n",
        "  host configuration \"save\": \n  host configuration \"appendonly\": no\n",
        "  multi-thread: yes\n  threads: 2\n\nLatency by percentile distribution:\n",
        "(cumulative count 200)\n\nCumulative distribution of latencies:\n",
        "\nSummary:\n  throughput summary: ",
        "avg       min       p50       p95       p99       max\n",
        "  generator: ",
    ] {
        assert!(long.contains(part), "{part:?} is not in\n{long}");
    }
    let asked = bench(&server, "-t get -n 200 --percentiles");
    assert!(asked.contains("\nCumulative distribution of latencies:\n"), "{asked}");
    // What is not asked for is short, and keeps the lines that programs look for.
    let short = bench(&server, "-t get -n 200 -P 4 --runs 3");
    for part in [
        "====== GET ======\n  200 requests completed in ",
        "  50 clients, pipeline 4, 3 bytes payload\n\n  throughput summary: ",
        " requests per second\n  latency summary (msec):\n",
        "avg       min       p50       p95       p99       max\n",
        "█",
        "^p50",
        "  median of 3 runs; slowest ",
        "  mean ",
        "(Student's t over the runs)\n",
    ] {
        assert!(short.contains(part), "{part:?} is not in\n{short}");
    }
    assert!(!short.contains("Cumulative") && short.lines().count() < 22, "{short}");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn functions() {
    for server in [TestServer::valkey(&[]), TestServer::bobbin(&[])] {
        ask(&server, "CONFIG SET commandlog-execution-slower-than 0");
        bench(&server, "-q -t function_load -n 20 --num-functions 3");
        let call = |name: &str| ask(&server, &format!("FCALL {name} 1 key"));
        assert!(!matches!(call("foo3"), Value::Error(_)), "the third function is there");
        assert!(matches!(call("foo4"), Value::Error(_)), "and no fourth");
        bench(&server, "-q -t fcall -n 20 --num-keys-in-fcall 2");
        let log = format!("{:?}", ask(&server, "COMMANDLOG GET 128 slow"));
        let words = ["FCALL", "foo1", "2"].map(|word| format!("{:?}", Value::Bulk(word.into())));
        assert_eq!(log.matches(&words.join(", ")).count(), 20, "{log}");
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn keys_and_values() {
    let server = TestServer::valkey(&[]);
    bench(&server, "-q -t set -n 500 -r 500 --sequential -P 7 --threads 2 -d 64");
    assert_eq!(integer(&server, "DBSIZE"), 500);
    assert_eq!(integer(&server, "STRLEN key:000000000499"), 64);
    bench(&server, "-q -t set -n 100 --dbnum 3");
    let mut other = client(&server);
    other.line("SELECT 3").unwrap();
    assert_eq!(other.line("EXISTS key:__rand_int__").unwrap(), Value::Integer(1));
    bench(&server, "-q -n 300 -r 10 --hot-keys 1:1 INCR hot:__rand_int__");
    assert_eq!(ask(&server, "GET hot:000000000000"), Value::Bulk(b"300".to_vec()));
    bench(&server, "-q -n 300 -r 1000 --zipf 3 --seed 5 INCR zipf:__rand_int__");
    // With this exponent most requests go to the first number.
    let counted = ask(&server, "INCRBY zipf:000000000000 0").as_integer().unwrap();
    assert!((200..300).contains(&counted), "{counted}");
    bench(&server, "-q -n 8 -c 1 -- MULTI ; 2 INCR counter ; EXEC");
    assert_eq!(ask(&server, "GET counter"), Value::Bulk(b"4".to_vec()));
    let file = scratch(&server, "commands");
    std::fs::write(&file, "# mixed\n1 SET mixed '__data__'\n\n3 INCR weighted\n").unwrap();
    bench(&server, &format!("-q -n 400 --command-file {}", file.display()));
    assert_eq!(integer(&server, "STRLEN mixed"), 3);
    assert_eq!(integer(&server, "EXISTS weighted"), 1);
    std::fs::write(&file, format!("{max} PING\n{max} PING\n", max = u64::MAX)).unwrap();
    let error = failure(&server, &format!("-q --command-file {}", file.display()));
    assert!(error.ends_with("the weights are too large"), "{error}");
    // A command is more than the tests that are named, as in valkey-benchmark.
    let text = bench(&server, "-q -n 10 -t set INCR beside");
    assert!(text.contains("INCR beside: "), "{text}");
    assert_eq!(integer(&server, "EXISTS beside"), 1);
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn ways_to_connect() {
    let folder = std::env::temp_dir().join(format!("bobbin-bench-test-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let socket = folder.join("socket");
    let server = TestServer::valkey(&["--unixsocket", socket.to_str().unwrap()]);
    bench(&server, &format!("-q -t ping -n 100 -s {}", socket.display()));
    bench(&server, "-q -t ping -n 100 -h localhost -3 --enable-tracking");
    bench(&server, "-q -t get -n 100 -k 0 -c 3 -P 2");
    let port = server.address().port();
    bench(&server, &format!("-q -t ping -n 100 -u redis://127.0.0.1:{port}/2"));
    ask(&server, "ACL SETUSER me on >secret +@all ~* &*");
    bench(&server, "-q -t ping -n 100 --user me -a secret");
    memtier(&server, "-a me:secret -n 10 -t 1 -c 1 --hide-histogram -P resp3 --select-db 1");
    memtier(&server, &format!("-S {} -n 10 -t 1 -c 1 --hide-histogram", socket.display()));
    assert!(failure(&server, "-q -t ping --user me -a wrong").contains("WRONGPASS"));
    bench(&server, "-q -t ping -n 100 --mptcp");
    // Of a server that stands alone all nodes are that one, and no time means that requests count.
    bench(&server, "-q -t ping -n 100 --rfr all --duration 0");
    memtier(&server, "-n 10 -t 1 -c 1 --hide-histogram -h localhost -4 --mptcp");
    let no_address = run_with(&["--memtier"], &server, "-n 1 -h 127.0.0.1 -6");
    assert!(String::from_utf8_lossy(&no_address.stderr).contains("no such address"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn times_rates_and_files() {
    let server = TestServer::valkey(&[]);
    let (json, prefix) = (scratch(&server, "a.json"), scratch(&server, "hdr-"));
    let json_b = scratch(&server, "b.json");
    bench(&server, "-q -t get --duration 0.2 --warmup 0.1");
    bench(&server, "-q -t get -n 200 --rps 2000 --no-progress");
    bench(&server, "-q -t get -n 200 --open-loop 2000 --arrivals even");
    for json in [&json, &json_b] {
        let text = bench(
            &server,
            &format!(
                "-q -t get,set -n 2000 --runs 3 --json-out-file {} --hdr-file-prefix {}",
                json.display(),
                prefix.display()
            ),
        );
        assert_eq!(text.matches("median of 3 runs").count(), 2, "{text}");
    }
    let document = std::fs::read_to_string(&json).unwrap();
    for part in ["\"program\": \"bobbin-benchmark\"", "\"p99.9\"", "\"requests\": 2000"] {
        assert!(document.contains(part), "{part} is not in\n{document}");
    }
    let log = std::fs::read_to_string(scratch(&server, "hdr-GET.hgrm")).unwrap();
    assert!(log.starts_with("#GET\n") && log.contains(",HISTF"), "{log}");
    let distribution = std::fs::read_to_string(scratch(&server, "hdr-GET.txt")).unwrap();
    assert!(distribution.contains("Total count    =         2000"), "{distribution}");
    let html = scratch(&server, "compare.html");
    let compared = Command::new(env!("CARGO_BIN_EXE_bobbin-benchmark"))
        .arg("compare")
        .args(["--html".as_ref(), html.as_os_str(), json.as_os_str(), json_b.as_os_str()])
        .output()
        .unwrap();
    let text = text_of("compare", compared);
    assert!(text.contains("GET") && text.contains("95% interval"), "{text}");
    assert!(std::fs::read_to_string(html).unwrap().contains("<table>"));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn the_options_of_memtier() {
    let server = TestServer::valkey(&[]);
    let json = scratch(&server, "memtier.json");
    let text = memtier(
        &server,
        &format!(
            "-t 2 -c3 --requests=100 --ratio 1:3 -d 10 --key-maximum 50 --key-minimum 1 \
             --key-prefix k- --key-pattern P:G --pipeline 4 --run-count 2 --print-all-runs \
             --print-percentiles 50,100 --json-out-file {} --show-config",
            json.display()
        ),
    );
    for part in [
        "2         Threads\n3         Connections per thread\n100       Requests per client\n",
        "BEST RUN RESULTS\n",
        "AGGREGATED AVERAGE RESULTS (2 runs)\n",
        "Type         Ops/sec     Hits/sec   Misses/sec    Avg. Latency     p50 Latency    \
         p100 Latency       KB/sec \n",
        "\nSets  ",
        "\nGets  ",
        "\nTotals",
        "Type     <= msec         Percent\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert_eq!(integer(&server, "DBSIZE"), 50);
    assert_eq!(integer(&server, "STRLEN k-50"), 10);
    assert!(std::fs::read_to_string(&json).unwrap().contains("\"Ops/sec\""));
    for line in [
        "-n 20 --data-size-range 5-9 --data-size-pattern S --key-pattern S:S --random-data",
        "-n 20 --data-size-list 10:1,20:3 -R --key-pattern Z:R --key-zipf-exp 2",
        "-n 20 --key-pattern G:G --key-median 25 --key-stddev 3 --key-maximum 50",
        "-n 20 --expiry-range 10-20 --multi-key-get 3 --reconnect-interval 5",
        "-n 20 --rate-limiting 1000 --distinct-client-seed --randomize",
        "-n 20 --command SET~__key__~__data__ --command-ratio 2 --command-key-pattern P \
         --command GET~__key__ --command-stats-breakdown line",
        "--test-time 1 --open-loop 1000 --warmup 1",
        "-n allkeys --key-maximum 30 --key-pattern P:P --ratio 1:0 --seed 4",
        "-n 40 --ratio 3:1 --wait-ratio 2:1 --num-slaves 1-2 --wait-timeout 1-3",
        "-n 20 --data-offset 100 -d 10 --key-prefix range- --key-maximum 5",
    ] {
        let text = memtier(&server, &format!("-t 1 -c 2 --hide-histogram {line}"));
        assert!(text.contains("ALL STATS\n") && !text.contains("<= msec"), "{line}: {text}");
    }
    assert_eq!(integer(&server, "STRLEN range-1"), 110);
    let waits = memtier(&server, "-t 1 -c 1 -n 8 --ratio 1:0 --wait-ratio 1:1 --hide-histogram");
    assert!(waits.contains("\nWaits "), "{waits}");
    monitored(&server);
    let prefix = scratch(&server, "m");
    memtier(&server, &format!("-t 1 -c 1 -n 50 --hdr-file-prefix {}", prefix.display()));
    for name in ["m_FULL_RUN_1", "m_SET_command_run_1", "m_GET_command_run_1"] {
        for ending in ["txt", "hgrm"] {
            let file = scratch(&server, &format!("{name}.{ending}"));
            assert!(file.metadata().unwrap().len() > 0, "{}", file.display());
        }
    }
    let output = scratch(&server, "out.txt");
    let line = format!("-t 1 -c 1 -n 5 -o {}", output.display());
    assert_eq!(memtier(&server, &line), "");
    assert!(std::fs::read_to_string(output).unwrap().contains("ALL STATS"));
}

/// What MONITOR once said is sent again.
fn monitored(server: &TestServer) {
    let file = scratch(server, "monitor");
    let lines = "OK\n1.5 [0 127.0.0.1:1] \"INCR\" \"m\"\n1.6 [0 lua] \"APPEND\" \"t\" \"a \\\"\\x41\"\n\
                 1.7 [0 127.0.0.1:1] \"INCRBY\" \"m\" \"10\"\n";
    std::fs::write(&file, lines).unwrap();
    let replay = |line: &str| {
        let file = file.display();
        let line = format!(
            "-t 1 -c 1 --hide-histogram --monitor-input {file} --command __monitor_line{line}"
        );
        memtier(server, &line)
    };
    let text = replay("@__ -n 6");
    for row in ["\nIncrs ", "\nAppends ", "\nIncrbys "] {
        assert!(text.contains(row), "{row:?} is not in {text}");
    }
    assert_eq!((integer(server, "INCRBY m 0"), integer(server, "STRLEN t")), (22, 8));
    // Two of them, then a command of its own, and on with the third.
    replay("@__ --command-ratio 2 --command INCR~own -n 9");
    assert_eq!((integer(server, "INCRBY m 0"), integer(server, "INCRBY own 0")), (44, 3));
    replay("3__ -n 4");
    assert_eq!(integer(server, "INCRBY m 0"), 84);
    replay("@__ --monitor-pattern R -n 60");
    assert!(integer(server, "INCRBY m 0") > 84 && integer(server, "STRLEN t") > 16);
    for (line, text) in [
        ("--monitor-input /nowhere --command __monitor_line@__", "--monitor-input '/nowhere'"),
        ("--command __monitor_line1__", "needs --monitor-input"),
        ("--monitor-input /nowhere", "--monitor-input needs --command"),
    ] {
        let output = run_with(&["--memtier"], server, line);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(text), "{line}: {error}");
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn expiry_and_limits() {
    let server = TestServer::valkey(&[]);
    let text = text_of("expire", run_with(&["expire"], &server, "-n 2000 --csv"));
    assert_eq!(text.lines().count(), 9, "{text}");
    assert_eq!(integer(&server, "DBSIZE"), 0);
    ask(&server, "CONFIG SET requirepass secret");
    let refused = run_with(&["expire"], &server, "-n 2000");
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused, "Error from server: NOAUTH Authentication required.\n");
    let mut client = client(&server);
    client.command(&["AUTH", "secret"]).unwrap();
    client.command(&["CONFIG", "SET", "requirepass", ""]).unwrap();
    let text = text_of("limits", run_with(&["limits"], &server, "--seconds 0.1 -c 5"));
    for part in [
        "TCP round trip",
        "memory copied",
        "null server",
        "in the kernel",
        "PING, pipeline",
        "ECHO, there and back",
        "times the limit",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    // The null server may run elsewhere.
    let port = bobbin_testkit::server::free_port().unwrap().to_string();
    let null = start(&["limits", "--serve", &port]);
    eventually("the null server listens", || {
        std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_ok()
    });
    let line = format!("--seconds 0.1 -c 5 --null 127.0.0.1:{port}");
    let text = text_of("limits", run_with(&["limits"], &server, &line));
    assert!(text.contains(&format!("The null server at 127.0.0.1:{port}")), "{text}");
    drop(null);
    let only = run_with(&["limits"], &server, "--machine-only --seconds 0.05");
    assert!(!text_of("limits", only).contains("The server at"));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn standard_input_and_endless_runs() {
    let server = TestServer::valkey(&[]);
    let set = program(&["-q", "-x", "-n", "5", "SET", "key"], &server);
    text_of("-x", finish(set, b"a b\n"));
    assert_eq!(ask(&server, "GET key"), Value::Bulk(b"a b\n".to_vec()));
    assert_eq!(failure(&server, "-x"), "-x needs a command");

    let idle = start_on(&server, &["-I", "-c", "7"]);
    eventually("the connections stand", || {
        ask(&server, "CLIENT LIST").as_bytes().unwrap().split(|byte| *byte == b'\n').count() > 8
    });
    drop(idle);
    ask(&server, "CONFIG SET maxclients 5");
    let refused = failure(&server, "-I -c 10");
    assert!(refused.ends_with(": ERR max number of clients reached"), "{refused}");
    let refused = failure(&server, "-q -t ping -c 10");
    assert!(refused.ends_with(": ERR max number of clients reached"), "{refused}");
    ask(&server, "CONFIG SET maxclients 1000");

    let endless = start_on(&server, &["-l", "-q", "-t", "ping_inline", "-n", "20"]);
    let requests = || {
        let reply = ask(&server, "INFO commandstats");
        let text = String::from_utf8_lossy(reply.as_bytes().unwrap()).into_owned();
        let calls = text.split("cmdstat_ping:calls=").nth(1)?.split(',').next()?.to_owned();
        calls.parse::<u64>().ok()
    };
    eventually("it begins again", || requests().is_some_and(|count| count >= 60));
    drop(endless);
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn faults_are_one_line() {
    let server = TestServer::valkey(&[]);
    for (line, error) in [
        ("--bogus", "Unknown option '--bogus'; --help lists the options"),
        ("-t nosuch", "There is no test 'nosuch'; '-t list' shows them"),
        ("-n 5 --duration 1", "-n and --duration exclude each other"),
        ("--tls --cacert /nowhere", "/nowhere: No such file or directory"),
        ("--sequential -t set", "--sequential, --zipf and --hot-keys need -r"),
        (
            "-q -n 5 NOSUCH",
            "Error from server: ERR unknown command 'NOSUCH', with args beginning with: ",
        ),
        ("-q GET a ;", "a command is missing beside ';' or after its number"),
        ("-q -t ping --command-file /nonexistent", "-t and --command-file exclude each other"),
        ("-q --command-file /nonexistent", "Cannot read /nonexistent: No such file or directory"),
    ] {
        assert_eq!(failure(&server, line), error.trim_end(), "{line}");
    }
    let counted = run_with(&[], &server, "-q -e -n 5 NOSUCH");
    assert!(counted.status.success());
    assert!(String::from_utf8_lossy(&counted.stderr).contains("and 5 in all"));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_sweep_writes_its_three_files() {
    let server = TestServer::valkey(&[]);
    let output = scratch(&server, "sweep");
    let valkey = bobbin_testkit::peers::peer("valkey-server");
    let port = bobbin_testkit::server::free_port().unwrap();
    let swept = Command::new(env!("CARGO_BIN_EXE_bobbin-benchmark"))
        .args(["sweep", "--io-threads", "1,2", "--tests", "get,lrange_100", "--seconds", "0.1"])
        .args(["--rounds", "2", "--expire", "500", "-r", "2000"])
        .args(["-d", "3", "-P", "1,4", "-c", "5", "--threads", "1", "--port", &port.to_string()])
        .args(["--server".as_ref(), valkey.as_os_str(), "--output".as_ref(), output.as_os_str()])
        .output()
        .unwrap();
    let text = text_of("sweep", swept);
    assert!(text.lines().count() > 1 + 2 * 2 * 2, "{text}");
    assert!(text.contains("\nBeside 1 I/O thread: "), "{text}");
    let read = |end: &str| std::fs::read_to_string(format!("{}{end}", output.display())).unwrap();
    let csv = read(".csv");
    assert_eq!(csv.lines().count(), 1 + 8 + 8, "{csv}");
    assert!(csv.contains("valkey-server,,\"SET in MULTI\",,,1,"), "{csv}");
    let json = read(".json");
    // What GET asks for was written before.
    assert!(json.contains("\"nulls\": 0,") && !json.contains("\"nulls\": 1"), "{json}");
    for part in ["\"server_cpu_us\"", "\"kernel\"", "\"command\"", "\"other_client_max_ms\""] {
        assert!(json.contains(part), "{part}");
    }
    let page = read(".html");
    for part in [
        "<svg",
        "LRANGE_100",
        "<dt>Kernel</dt>",
        "class=\"bar\"",
        "By Student",
        "pipeline: 2 I/O",
        "all 2000 keys",
    ] {
        let found = page.to_lowercase().contains(&part.to_lowercase());
        assert!(found, "{part}");
    }
    assert!(page.contains("SET NX EX 100 in MULTI") && !page.contains("http"));
    // A file is no faster than itself, and the advice follows from how its rounds scatter.
    let file = format!("{}.json", output.display());
    let mut compare = Command::new(env!("CARGO_BIN_EXE_bobbin-benchmark"));
    compare.args(["compare", "--difference", "50"]);
    compare.args(["--html", &format!("{}-compare.html", output.display()), &file, &file]);
    let text = text_of("compare", compare.output().unwrap());
    assert!(text.contains("is faster in 0 and slower in 0"), "{text}");
    assert!(text.contains("a difference of 50% in every test"), "{text}");
    assert!(read("-compare.html").contains("<dt>Kernel</dt>"));
}

/// How often a server is asked anew that repeats arguments in its errors.
const ATTEMPTS: u32 = 5;

/// Servers live, and answer what chance sends.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn random_commands() {
    // Redis 8.0.6 dies of some of what several blocked clients do to each other.
    for (server, modes, connections, attempts) in [
        (TestServer::bobbin(&[]), "malformed-commands", 3, 1),
        (TestServer::valkey(&[]), "malformed-commands,config-commands", 1, ATTEMPTS),
        (TestServer::redis(&[]), "malformed-commands", 1, ATTEMPTS),
    ] {
        let right = bench(&server, &format!("--fuzz -n 3000 -c {connections} --seed 7"));
        assert!(right.contains(&format!("\n{connections} succeeded, 0 failed.\n")), "{right}");
        assert!(right.contains("\nTotal commands sent: 3000\n"), "{right}");
        // Most of them are right.
        let errors = right.split("Error replies: ").nth(1).unwrap().lines().next().unwrap();
        assert!(errors.parse::<u32>().unwrap() < 1500, "{right}");
        let wrong = (0..attempts).find_map(|attempt| {
            let options = format!("-n 2000 --fuzz-loglevel debug --seed {}", 7 + attempt);
            let line = format!("--fuzz --fuzz-mode {modes} -c {connections} {options}");
            let output = run_with(&[], &server, &line);
            let error = String::from_utf8_lossy(&output.stderr);
            // Both repeat arguments in some errors as they are, with ends of lines.
            let is_last = attempt + 1 == attempts;
            (is_last || !error.contains("a malformed reply")).then(|| text_of(&line, output))
        });
        let wrong = wrong.expect("there is a last attempt");
        let all_succeeded = wrong.contains(&format!("\n{connections} succeeded, 0 failed.\n"));
        assert!(wrong.contains(" -> ERR ") && all_succeeded, "{wrong}");
        let silent = bench(&server, "--fuzz -n 100 -c 1 --seed 7 --fuzz-loglevel none");
        assert_eq!(silent.lines().count(), 1, "{silent}");
    }
    let server = TestServer::valkey(&[]);
    assert_eq!(failure(&server, "--fuzz GET a"), "--fuzz makes its own commands");
    assert_eq!(
        failure(&server, "--fuzz --fuzz-mode x"),
        "Option '--fuzz-mode': 'x' is neither malformed-commands nor config-commands"
    );
}
