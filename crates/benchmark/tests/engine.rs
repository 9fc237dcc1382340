//! The engine against servers that do exactly what a test wants.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    sync::{Arc, Mutex},
    time::Duration,
};

use bobbin_benchmark::{
    engine::{
        Arrivals, Endpoint, EngineError, Greeting, Limit, LoadOutcome, LoadProgress, LoadRun, Pace,
        Second, ServerNode, run,
    },
    interrupt::Interrupt,
    workload::{Template, TemplateOrder, Workload},
};

/// A server that reads lines; `answer` gets a connection's number, the number of the line over all
/// connections, and says what to reply. An empty reply closes the connection.
fn serve(
    answer: impl Fn(u64, u64) -> Vec<u8> + Send + Sync + 'static,
) -> (ServerNode, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::tcp("127.0.0.1", listener.local_addr().unwrap().port()).unwrap();
    let connections = Arc::new(AtomicU64::new(0));
    let count = connections.clone();
    let lines = Arc::new(AtomicU64::new(0));
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            let number = count.fetch_add(1, SeqCst);
            let (lines, answer) = (lines.clone(), answer.clone());
            std::thread::spawn(move || converse(stream, |line| answer(number, line), &lines));
        }
    });
    (ServerNode { endpoint, tags: [].into() }, connections)
}

fn converse(mut stream: TcpStream, answer: impl Fn(u64) -> Vec<u8>, lines: &AtomicU64) {
    let mut buffer = [0; 65536];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let mut replies = Vec::new();
        for _ in buffer[..count].iter().filter(|&&byte| byte == b'\n') {
            let reply = answer(lines.fetch_add(1, SeqCst));
            if reply.is_empty() {
                return;
            }
            replies.extend(reply);
        }
        if stream.write_all(&replies).is_err() {
            return;
        }
    }
}

fn ping() -> Workload {
    Workload::single("PING", Template::raw(0, b"PING\r\n"), Vec::new())
}

fn job<'a>(workload: &'a Workload, nodes: &'a [ServerNode], greeting: &'a Greeting) -> LoadRun<'a> {
    LoadRun {
        workload,
        nodes,
        topology: None,
        connections: 3,
        threads: 2,
        pipeline: 4,
        limit: Limit::Total(101),
        pace: Pace::Closed,
        warm_up: Duration::ZERO,
        greeting,
        reconnect_after: None,
        stop_on_error: true,
        seed: 1,
        series: false,
        patience: Duration::from_secs(10),
        interrupt: &NEVER,
    }
}

static NEVER: Interrupt = Interrupt::new();

/// Runs what `change` makes of the usual job.
fn outcome(
    node: ServerNode,
    change: impl for<'a> FnOnce(&mut LoadRun<'a>),
) -> Result<LoadOutcome, EngineError> {
    let (workload, nodes, greeting) = (ping(), [node], Greeting::default());
    let mut job = job(&workload, &nodes, &greeting);
    change(&mut job);
    run(&job, None)
}

#[test]
fn as_many_requests_as_asked_for() {
    let (node, connections) = serve(|_, _| b"+PONG\r\n".to_vec());
    let total = outcome(node.clone(), |_| {}).unwrap();
    assert_eq!((total.requests(), total.errors()), (101, 0));
    assert_eq!(total.classes[0].sent_bytes, 101 * 6);
    assert_eq!(total.classes[0].received_bytes, 101 * 7);
    assert_eq!(total.latencies().len(), 101);
    assert_eq!(connections.load(SeqCst), 3);
    let each = outcome(node.clone(), |job| job.limit = Limit::Each(10)).unwrap();
    assert_eq!(each.requests(), 30);
    let limited = outcome(node.clone(), |job| job.pace = Pace::Limited { per_second: 1e5 });
    assert_eq!(limited.unwrap().requests(), 101);
    for arrivals in [Arrivals::Even, Arrivals::Poisson] {
        let pace = Pace::Open { per_second: 1e5, arrivals };
        let open = outcome(node.clone(), |job| job.pace = pace).unwrap();
        assert_eq!((open.requests(), open.unanswered), (101, 0));
    }
    let time = outcome(node, |job| {
        job.limit = Limit::Time(Duration::from_millis(200));
        job.warm_up = Duration::from_millis(50);
    });
    assert!(time.unwrap().requests() > 0);
}

#[test]
fn connections_are_opened_anew() {
    let (node, connections) = serve(|_, _| b"+PONG\r\n".to_vec());
    let outcome = outcome(node, |job| {
        job.connections = 1;
        job.limit = Limit::Total(20);
        job.reconnect_after = Some(4);
    });
    assert_eq!(outcome.unwrap().requests(), 20);
    assert_eq!(connections.load(SeqCst), 5);
}

#[test]
fn error_replies_end_the_run_or_are_counted() {
    let answer = |_, line| match line % 10 {
        9 => b"-ERR no\r\n".to_vec(),
        5 => b"$-1\r\n".to_vec(),
        _ => b"+PONG\r\n".to_vec(),
    };
    let (node, _) = serve(answer);
    assert_eq!(outcome(node, |_| {}).unwrap_err(), EngineError::Reply("ERR no".into()));
    let (node, _) = serve(answer);
    let counted = outcome(node, |job| {
        job.stop_on_error = false;
        job.limit = Limit::Total(100);
    })
    .unwrap();
    assert_eq!((counted.requests(), counted.errors()), (100, 10));
    assert_eq!((counted.classes[0].nulls, counted.classes[0].found), (10, 80));
    assert_eq!(counted.first_error.as_deref(), Some("ERR no"));
}

#[test]
fn what_goes_wrong_is_said() {
    let (node, _) = serve(|_, line| if line < 50 { b"+PONG\r\n".to_vec() } else { Vec::new() });
    let lost = outcome(node, |_| {}).unwrap_err();
    assert!(matches!(lost, EngineError::Lost(_)), "{lost:?}");
    let (node, _) = serve(|_, _| b"hello\r\n".to_vec());
    let protocol = outcome(node, |_| {}).unwrap_err();
    assert!(matches!(protocol, EngineError::Protocol(_)), "{protocol:?}");
    let (node, _) = serve(|_, _| b"+A\r\n+B\r\n".to_vec());
    let unasked = outcome(node, |job| job.pipeline = 1).unwrap_err();
    assert!(matches!(unasked, EngineError::Protocol(_)), "{unasked:?}");
    let port = bobbin_testkit::server::free_port().unwrap();
    let endpoint = Endpoint::tcp("127.0.0.1", port).unwrap();
    let refused = outcome(ServerNode { endpoint, tags: [].into() }, |_| {}).unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("Could not connect to server at 127.0.0.1:{port}: Connection refused")
    );
}

#[test]
fn a_greeting_comes_first_and_may_be_refused() {
    let workload = ping();
    let mut greeting = Greeting::default();
    greeting.bytes.extend_from_slice(b"AUTH x\r\n");
    greeting.replies = 1;
    let (node, _) = serve(|_, _| b"+OK\r\n".to_vec());
    let nodes = [node];
    let outcome = run(&job(&workload, &nodes, &greeting), None).unwrap();
    assert_eq!((outcome.requests(), outcome.latencies().len()), (101, 101));
    let (node, _) = serve(|_, _| b"-WRONGPASS no\r\n".to_vec());
    let nodes = [node];
    let error = run(&job(&workload, &nodes, &greeting), None).unwrap_err();
    assert_eq!(error, EngineError::Greeting("WRONGPASS no".into()));
}

/// A server that stands still for 100 ms once: the closed loop sends nothing meanwhile and shows
/// one slow request on each connection, the open loop shows all that were due.
#[test]
fn the_open_loop_sees_a_stall() {
    const STALL: Duration = Duration::from_millis(100);
    let stalling = || {
        let lock = Mutex::new(());
        serve(move |_, line| {
            let _held = lock.lock().unwrap();
            if line == 500 {
                std::thread::sleep(STALL);
            }
            b"+PONG\r\n".to_vec()
        })
        .0
    };
    // More than half of the stall.
    let slow = |outcome: &LoadOutcome| outcome.latencies().count_between(50_000_000, u64::MAX);
    let closed = outcome(stalling(), |job| {
        job.pipeline = 1;
        job.limit = Limit::Total(2000);
    });
    let open = outcome(stalling(), |job| {
        job.pipeline = 1;
        job.limit = Limit::Total(2000);
        job.pace = Pace::Open { per_second: 2000.0, arrivals: Arrivals::Even };
    });
    let (closed, open) = (closed.unwrap(), open.unwrap());
    // 200 requests were due in the stall, and the first half of them waited for more than half.
    assert!(slow(&open) >= 90, "{}", slow(&open));
    assert!(open.latencies().max() >= STALL.as_nanos() as u64);
    assert!(slow(&closed) >= 1);
    assert!(slow(&closed) < slow(&open), "{} {}", slow(&closed), slow(&open));
}

/// A server that says nothing from its 100th request on: what was planned is what the rate is
/// divided by, and each request without reply took at least as long as it waited.
#[test]
fn a_server_that_stops_is_seen() {
    let silent = || {
        serve(|_, line| {
            if line >= 100 {
                std::thread::sleep(Duration::from_secs(60));
            }
            b"+PONG\r\n".to_vec()
        })
        .0
    };
    let open = outcome(silent(), |job| {
        (job.connections, job.threads, job.pipeline) = (1, 1, 1);
        job.limit = Limit::Time(Duration::from_secs(1));
        job.pace = Pace::Open { per_second: 1000.0, arrivals: Arrivals::Even };
        job.patience = Duration::from_millis(200);
    })
    .unwrap();
    assert!(open.requests() <= 100 && open.elapsed >= Duration::from_secs(1), "{open:?}");
    assert!((990..=1001).contains(&(open.requests() + open.unanswered)), "{}", open.unanswered);
    assert_eq!(open.latencies().len(), open.requests() + open.unanswered);
    // The first of them was due at 0.1 s, and waited until the end.
    assert!(open.latencies().max() >= 1_000_000_000, "{}", open.latencies().max());
    let total = outcome(silent(), |job| {
        (job.connections, job.threads, job.pipeline) = (1, 1, 1);
        job.limit = Limit::Total(300);
        job.pace = Pace::Open { per_second: 1000.0, arrivals: Arrivals::Even };
        job.patience = Duration::from_millis(200);
    })
    .unwrap();
    assert_eq!(total.requests() + total.unanswered, 300);
    assert!(total.elapsed >= Duration::from_millis(299), "{:?}", total.elapsed);
    let closed = outcome(silent(), |job| {
        (job.connections, job.threads, job.pipeline) = (1, 1, 1);
        job.limit = Limit::Time(Duration::from_millis(500));
    })
    .unwrap();
    assert!(closed.unanswered <= 1 && closed.requests() <= 100);
    assert_eq!(closed.latencies().len(), closed.requests() + closed.unanswered);
}

#[test]
fn progress_is_told() {
    let (node, _) = serve(|_, _| b"+PONG\r\n".to_vec());
    let (workload, nodes, greeting) = (ping(), [node], Greeting::default());
    let mut job = job(&workload, &nodes, &greeting);
    job.limit = Limit::Time(Duration::from_millis(1600));
    job.series = true;
    let mut reports: Vec<LoadProgress> = Vec::new();
    let outcome = run(&job, Some(&mut |progress| reports.push(progress.clone()))).unwrap();
    assert!(!reports.is_empty());
    assert!(reports.windows(2).all(|pair| pair[0].requests <= pair[1].requests));
    assert!(reports.iter().all(|report| (0.0..=1.0).contains(&report.done)));
    assert!(reports.iter().any(|report| !report.latencies.is_empty()));
    assert_eq!(outcome.seconds.len(), 1);
    assert!(outcome.seconds[0].rate > 0.0);
}

/// Commands are counted, whatever share of the requests has several of them.
#[test]
fn as_many_commands_as_asked_for() {
    let (node, _) = serve(|_, _| b"+PONG\r\n".to_vec());
    let template = |count: usize| {
        let mut template = Template::raw(0, &b"PING\r\n".repeat(count));
        template.replies = count as u32;
        template
    };
    let mut workload = Workload::single("PING", template(1), Vec::new());
    workload.templates.push(template(50));
    let (nodes, greeting) = ([node], Greeting::default());
    for (weights, order) in [
        ([999, 1], TemplateOrder::Weighted as fn(_) -> _),
        ([1, 1], TemplateOrder::Weighted),
        ([20, 3], TemplateOrder::Cycle),
    ] {
        workload.order = order(weights.into_iter().enumerate().collect());
        for pace in [
            Pace::Closed,
            Pace::Limited { per_second: 1e6 },
            Pace::Open { per_second: 1e5, arrivals: Arrivals::Even },
        ] {
            let mut job = job(&workload, &nodes, &greeting);
            (job.limit, job.pace) = (Limit::Total(3000), pace);
            let sent = run(&job, None).unwrap().requests();
            assert!((3000..3050).contains(&sent), "{weights:?}, {pace:?}: {sent}");
        }
    }
    workload.templates.remove(0);
    workload.order = TemplateOrder::Single;
    let mut job = job(&workload, &nodes, &greeting);
    job.limit = Limit::Total(101);
    assert_eq!(run(&job, None).unwrap().requests(), 150, "three requests of 50 commands");
}

/// A run that is interrupted ends as though its time were up, and keeps what it has.
#[test]
fn an_interrupted_run_has_an_outcome() {
    let paces = [
        Pace::Closed,
        Pace::Limited { per_second: 1e4 },
        Pace::Open { per_second: 1e4, arrivals: Arrivals::Even },
        // Nothing more is due before the end.
        Pace::Open { per_second: 1e-3, arrivals: Arrivals::Even },
    ];
    for (pace, limit) in paces.into_iter().flat_map(|pace| {
        let day = Duration::from_secs(86400);
        [(pace, Limit::Total(u64::MAX)), (pace, Limit::Time(day)), (pace, Limit::Each(u64::MAX))]
    }) {
        let interrupt: &'static Interrupt = Box::leak(Box::default());
        let (node, _) = serve(move |_, line| {
            if line == 20 {
                interrupt.raise(2);
            }
            b"+PONG\r\n".to_vec()
        });
        let is_slow = matches!(pace, Pace::Open { per_second, .. } if per_second < 1.0);
        let (workload, nodes, greeting) = (ping(), [node], Greeting::default());
        let mut job = job(&workload, &nodes, &greeting);
        (job.pace, job.limit, job.interrupt) = (pace, limit, interrupt);
        let outcome = run(
            &job,
            Some(&mut |_| {
                interrupt.raise(15);
            }),
        );
        let context = format!("{pace:?}, {limit:?}");
        let outcome = outcome.unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(outcome.is_interrupted, "{context}");
        assert_eq!(outcome.requests() > 0, !is_slow, "{context}");
        assert!(outcome.elapsed < Duration::from_secs(3600), "{context}: {:?}", outcome.elapsed);
    }
}

#[test]
fn an_interruption_before_the_connections_stand() {
    let interrupt: &'static Interrupt = Box::leak(Box::default());
    assert!(interrupt.raise(2) && !interrupt.raise(15), "the first signal counts");
    assert_eq!(interrupt.signal(), Some(2));
    let (node, _) = serve(|_, _| b"+PONG\r\n".to_vec());
    let none = outcome(node, |job| job.interrupt = interrupt);
    assert_eq!(none.unwrap_err(), EngineError::Interrupted);
}

/// A run that ends between two looks at it has its last second all the same.
#[test]
fn the_last_second_is_kept() {
    let (node, _) = serve(|_, _| b"+PONG\r\n".to_vec());
    let short = outcome(node, |job| {
        // The looks are a quarter of a second apart.
        job.limit = Limit::Time(Duration::from_millis(900));
        job.series = true;
    })
    .unwrap();
    assert_eq!(short.seconds.len(), 1, "{:?}", short.seconds);
    let Second { at, rate, max_ns, .. } = &short.seconds[0];
    assert_eq!(*at, Duration::from_millis(900));
    assert!((rate * 0.9 - short.requests() as f64).abs() < 1.0, "{rate} {}", short.requests());
    assert!(*max_ns > 0, "its latencies are there");
}

/// A request of several commands is done when all its replies are there.
#[test]
fn progress_of_requests_with_several_replies() {
    let (node, _) = serve(|_, _| {
        std::thread::sleep(Duration::from_millis(1));
        b"+PONG\r\n".to_vec()
    });
    let template = |count: usize| {
        let mut template = Template::raw(0, &b"PING\r\n".repeat(count));
        template.replies = count as u32;
        template
    };
    let mut workload = Workload::single("PING", template(4), Vec::new());
    assert_eq!(workload.replies_per_request(), 4.0);
    let (nodes, greeting) = ([node], Greeting::default());
    let mut job = job(&workload, &nodes, &greeting);
    (job.connections, job.threads, job.pipeline) = (1, 1, 1);
    job.limit = Limit::Total(800);
    let mut reports: Vec<LoadProgress> = Vec::new();
    run(&job, Some(&mut |progress| reports.push(progress.clone()))).unwrap();
    let is_right =
        |report: &LoadProgress| (report.done - report.requests as f64 / 800.0).abs() < 0.01;
    assert!(!reports.is_empty() && reports.iter().all(is_right), "{reports:?}");
    workload.templates.push(template(1));
    workload.order = TemplateOrder::Weighted(vec![(0, 1), (1, 2)]);
    assert_eq!(workload.replies_per_request(), 2.0);
}

/// A second in which nothing counted would make a rate of 0, which has no logarithm.
#[test]
fn the_warm_up_has_no_seconds() {
    let (node, _) = serve(|_, _| b"+PONG\r\n".to_vec());
    let warmed = outcome(node, |job| {
        job.limit = Limit::Time(Duration::from_millis(1600));
        job.warm_up = Duration::from_millis(1300);
        job.series = true;
    })
    .unwrap();
    let is_counted = |second: &Second| second.rate > 0.0 && second.at <= Duration::from_secs(2);
    assert!(warmed.seconds.iter().all(is_counted), "{:?}", warmed.seconds);
}

/// A request takes microseconds of processor time, and the warm-up before it most of a second.
#[test]
fn the_warm_up_takes_no_processor_time() {
    let (node, _) = serve(|_, _| b"+PONG\r\n".to_vec());
    let warmed = outcome(node, |job| {
        job.limit = Limit::Total(1);
        job.warm_up = Duration::from_secs(1);
    })
    .unwrap();
    assert_eq!(warmed.requests(), 1);
    assert!(warmed.cpu < Duration::from_millis(100), "{:?}", warmed.cpu);
}

/// What a server with known delays is said to take is, at each percentile, no less than what it saw
/// itself, to the histogram's three figures. How much more it is depends on the machine.
#[test]
fn latencies_are_those_of_the_server() {
    let delays = [2, 2, 2, 2, 2, 2, 2, 2, 5, 20].map(Duration::from_millis);
    let slept = Arc::new(Mutex::new(Vec::new()));
    let seen = slept.clone();
    let (node, _) = serve(move |_, line| {
        let start = std::time::Instant::now();
        std::thread::sleep(delays[line as usize % delays.len()]);
        seen.lock().unwrap().push(start.elapsed());
        b"+PONG\r\n".to_vec()
    });
    let outcome = outcome(node, |job| {
        (job.connections, job.threads, job.pipeline) = (1, 1, 1);
        job.limit = Limit::Total(200);
    })
    .unwrap();
    let mut slept = slept.lock().unwrap().clone();
    slept.sort_unstable();
    let latencies = outcome.latencies();
    for (percent, delay_ms) in [(50.0, 2), (79.0, 2), (85.0, 5), (89.0, 5), (95.0, 20), (99.0, 20)]
    {
        let rank = (percent / 100.0 * 200.0_f64 - 1e-6).ceil() as usize - 1;
        let server = slept[rank].as_nanos() as f64;
        let said = latencies.value_at_percentile(percent) as f64;
        assert!(said >= server * 0.999, "p{percent}: {said} ns, the server slept {server}");
        assert!(said >= f64::from(delay_ms) * 1e6 * 0.999, "p{percent}: {said} ns");
    }
}

#[test]
fn an_argument_that_is_no_text_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bobbin-benchmark"));
    let output = command.arg(std::ffi::OsStr::from_bytes(b"\xff")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.starts_with("The argument '\u{fffd}' is not UTF-8"), "{error}");
}

/// The reader of the errors may have ended. What fails then still fails with its own status.
#[test]
fn errors_that_nobody_reads() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bobbin-benchmark"));
    let status = command.arg("--bogus").stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

/// A full disk is a reason to fail, which is said. A reader that ended is none to say anything.
#[test]
fn an_output_that_cannot_be_written() {
    for arguments in [&["--help"][..], &["--memtier", "--help"], &["generate", "man"]] {
        let run = |output: std::process::Stdio| {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bobbin-benchmark"));
            let output = command.args(arguments).stdout(output).output().unwrap();
            assert_eq!(output.status.code(), Some(1), "{arguments:?}");
            String::from_utf8(output.stderr).unwrap()
        };
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let expected = "Cannot write the standard output: No space left on device\n";
        assert_eq!(run(full.into()), expected, "{arguments:?}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert_eq!(run(writer.into()), "", "{arguments:?}");
    }
}

/// Files that cannot be written are found before anything is measured, or a server started.
#[test]
fn files_are_opened_before_the_run() {
    let (node, connections) = serve(|_, _| b"+PONG\r\n".to_vec());
    let port = node.endpoint.to_string().rsplit(':').next().unwrap().to_owned();
    let ways: [&[&str]; 6] = [
        &["-t", "ping_inline", "--json-out-file", "/not there/x"],
        &["-t", "ping_inline", "--hdr-file-prefix", "/not there/x"],
        &["--memtier", "--json-out-file", "/not there/x"],
        &["--memtier", "--out-file", "/not there/x"],
        &["expire", "--json-out-file", "/not there/x"],
        &["sweep", "--server", "/not there/server", "--output", "/not there/x"],
    ];
    for way in ways {
        let is_named = ["--memtier", "expire", "sweep"].contains(&way[0]);
        let (name, rest) = way.split_at(usize::from(is_named));
        let option = if name == ["sweep"] { "--port" } else { "-p" };
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bobbin-benchmark"));
        let output = command.args(name).args([option, &port]).args(rest).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{way:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.starts_with("Cannot write /not there/x"), "{way:?}: {error}");
    }
    assert_eq!(connections.load(SeqCst), 0);
}
