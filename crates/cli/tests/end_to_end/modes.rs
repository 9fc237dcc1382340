//! The tools that options start, on a running server.

use std::{
    io::{BufRead, BufReader, Read},
    net::TcpListener,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::Instant,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{eventually, finish, program, run, run_with};
use bobbin_testkit::{
    Endless, ReplyFrame, TestConnection, TestServer, peers, server::cluster::TestCluster,
};

fn fill(connection: &mut TestConnection) {
    for command in [
        &["SET", "string", "hello"][..],
        &["SET", "long\nname", &"x".repeat(1000)],
        &["RPUSH", "list", "a", "b", "c"],
        &["HSET", "hash", "f", "v"],
        &["SADD", "set", "1", "2"],
        &["ZADD", "zset", "1", "a"],
        &["XADD", "stream", "*", "a", "b"],
    ] {
        connection.call(command).expect("the server answers");
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn pipe_counts_replies_and_errors() {
    let server = TestServer::bobbin(&[]);
    let mut input = Vec::new();
    for index in 0..5000 {
        input.extend(format!("*3\r\n$3\r\nSET\r\n$4\r\n{index:04}\r\n$1\r\nv\r\n").bytes());
    }
    let ran = run_with(&server, &["--pipe"], &input, &[]);
    assert_eq!(ran.output.lines().last(), Some("errors: 0, replies: 5000"), "{ran:?}");
    assert_eq!(ran.status, Some(0));
    assert_eq!(run(&server, &["DBSIZE"]).ok(), "5000\n");
    let wrong = run_with(&server, &["--pipe"], b"PING\r\nINCR\r\n", &[]);
    assert_eq!(wrong.output.lines().last(), Some("errors: 1, replies: 2"), "{wrong:?}");
    assert!(wrong.errors.starts_with("ERR wrong number of arguments"), "{wrong:?}");
    assert_eq!(wrong.status, Some(1));
    // A command cut short swallows the last one: no reply ever comes.
    let cut =
        run_with(&server, &["--pipe", "--pipe-timeout", "1"], b"*2\r\n$4\r\nECHO\r\n$99\r\nx", &[]);
    assert_eq!(cut.status, Some(1));
    assert!(cut.errors.contains("No replies for 1 seconds"), "{cut:?}");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn scan_lists_keys() {
    let server = TestServer::bobbin(&[]);
    fill(&mut server.connect());
    let sorted = |text: String| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(
        sorted(run(&server, &["--scan", "--pattern", "s*"]).ok()),
        ["set", "stream", "string"]
    );
    assert_eq!(
        run(&server, &["--scan", "--quoted-pattern", r#""*\x0an*""#, "--no-raw"]).ok(),
        "\"long\\nname\"\n"
    );
    assert_eq!(sorted(run(&server, &["--scan", "--count", "1", "-i", "0.001"]).ok()).len(), 8);
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn big_keys_and_their_like() {
    let server = TestServer::bobbin(&["--maxmemory-policy", "allkeys-lfu"]);
    fill(&mut server.connect());
    let report = run(&server, &["--bigkeys"]).ok();
    for line in [
        "] Biggest list   found so far '\"list\"' with 3 items\n",
        "\n-------- Summary --------\n\nSampled 7 keys in the keyspace!\n",
        "Total key length in bytes is 36 (avg len 5.14)\n",
        "\nBiggest string found '\"long\\nname\"' has 1000 bytes\n",
        "\nBiggest   hash found '\"hash\"' has 1 fields\n",
        "\n2 strings with 1005 bytes (28.57% of keys, avg size 502.50)\n",
    ] {
        assert!(report.contains(line), "{line:?} is not in\n{report}");
    }
    let report = run(&server, &["--bigkeys", "--pattern", "h*"]).ok();
    assert!(report.contains("Sampled 1 keys in the keyspace!"), "{report}");
    for arguments in [&["--memkeys"][..], &["--memkeys-samples", "0"]] {
        let report = run(&server, arguments).ok();
        assert!(report.contains("\nBiggest string found '\"long\\nname\"' has 1"), "{report}");
    }
    for arguments in [&["--keystats"][..], &["--keystats-samples", "3", "--top", "2"]] {
        let report = run(&server, arguments).ok();
        assert!(report.contains("100.00% keys scanned\nKeys sampled: 7\n"), "{report}");
        assert!(report.contains("string     long\\nname has 1000B\n"), "{report}");
        assert_eq!(report.contains("\n  3 "), arguments.len() == 1, "{report}");
    }
    for _ in 0..200 {
        run(&server, &["-r", "20", "GET", "string"]).ok();
        if run(&server, &["OBJECT", "FREQ", "string"]).ok().trim() > "5" {
            break;
        }
    }
    let report = run(&server, &["--hotkeys-count", "1"]).ok();
    assert!(
        report.contains("Sampled 7 keys in the keyspace!\nhot key found with counter: "),
        "{report}"
    );
    assert_eq!(report.matches("keyname: ").count(), 1);
}

/// Without counts the server watches for a while.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn hot_keys_of_any_policy() {
    let server = TestServer::bobbin(&[]);
    let (watching, mut lines) = start(&server, &["--hotkeys", "-i", "600"]);
    read_until(&mut lines, "Watching for 600 seconds");
    run(&server, &["-r", "50", "SET", "busy", "v"]).ok();
    // Another one has no session of its own, and ends nobody's.
    for _ in 0..2 {
        let report = run(&server, &["--hotkeys", "-i", "0.1"]).ok();
        assert!(report.contains("Somebody else had the server watch already"), "{report}");
        for found in ["hot key found with time: ", "hot key found with traffic: ", "large key"] {
            assert!(report.contains(found), "{report}");
        }
        assert_eq!(report.matches("keyname: \"busy\"\n").count(), 3, "{report}");
    }
    drop(watching);
    run(&server, &["HOTKEYS", "STOP"]).ok();
    let report = run(&server, &["--hotkeys", "-i", "0.1"]).ok();
    assert!(report.ends_with("--\n\nNo keys were used.\n"), "{report}");
    // What the server found is not kept.
    assert_eq!(run(&server, &["HOTKEYS", "GET"]).ok(), "\n");
    // A server without HOTKEYS says what its policy lacks.
    let old = TestServer::bobbin(&["--rename-command", "HOTKEYS", ""]);
    run(&old, &["SET", "k", "v"]).ok();
    assert!(run(&old, &["--hotkeys"]).failed().contains("LFU"));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn latencies() {
    let server = TestServer::bobbin(&[]);
    let line = run(&server, &["--latency", "-i", "0.1"]).ok();
    assert_eq!(line.split(' ').count(), 4, "{line}");
    assert_eq!(run(&server, &["--latency", "--csv", "-i", "0.1"]).ok().split(',').count(), 4);
    assert!(run(&server, &["--latency", "--json", "-i", "0.1"]).ok().starts_with("{\"min\": "));
    let text = run(&server, &["--intrinsic-latency", "1"]).ok();
    assert!(text.starts_with("Max latency so far: ") && text.contains(" total runs "), "{text}");
    let (history, mut lines) = start(&server, &["--latency-history", "-i", "0.1", "--no-raw"]);
    assert!(read_until(&mut lines, "seconds range\n").contains("samples) -- 0.1"));
    drop(history);
    let (spectrum, mut lines) = start(&server, &["--latency-dist", "-i", "0.1"]);
    assert!(read_until(&mut lines, "?\x1b[0m\n").contains("From 0 to 100%: \x1b[48;5;0m "));
    drop(spectrum);
    let (greys, mut lines) = start(&server, &["--latency-dist", "--mono", "-i", "0.1"]);
    assert!(read_until(&mut lines, "?\x1b[0m\n").contains("\x1b[48;5;253m"));
    drop(greys);
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn figures_and_load() {
    let server = TestServer::bobbin(&[]);
    let (statistics, mut lines) = start(&server, &["--stat", "-i", "0.05"]);
    let text = read_until(&mut lines, " (+1)");
    assert!(text.contains("keys       mem      clients blocked requests            connections"));
    drop(statistics);
    let (load, mut lines) = start(&server, &["--lru-test", "100"]);
    let text = read_until(&mut lines, "%)\n");
    assert!(text.contains(" Gets/sec | Hits: "), "{text}");
    drop(load);
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn scripts() {
    for server in [TestServer::bobbin(&[]), TestServer::valkey(&[]), TestServer::redis(&[])] {
        let write = |name: &str, script: &str| {
            let file = server.folder().join(name);
            std::fs::write(&file, script).unwrap();
            file.to_str().unwrap().to_owned()
        };
        let file = write("script.lua", "return {KEYS[1], KEYS[2], ARGV[1]}");
        assert_eq!(run(&server, &["--eval", &file, "a", "b", ",", "c"]).ok(), "a\nb\nc\n");
        assert_eq!(run(&server, &["--eval", &file]).ok(), "\n");
        assert_eq!(run(&server, &["-3", "--json", "--eval", &file, "a"]).ok(), "[\"a\"]\n");
        assert!(run(&server, &["--eval", "/nowhere.lua"]).failed().starts_with("Can't open file"));
        let change = write("change.lua", "return redis.call('incrby', KEYS[1], ARGV[1])");
        assert_eq!(
            run(&server, &["-r", "3", "--eval", &change, "n", ",", "7"]).ok(),
            "7\n14\n21\n"
        );
        let wrong = write("wrong.lua", "return redis.call('nonsense')");
        assert!(run(&server, &["--eval", &wrong]).ok().starts_with("ERR Unknown"));
        assert!(run(&server, &["-e", "--eval", &wrong]).failed().starts_with("ERR Unknown"));
    }
}

/// What needs more than Bobbin has is said by it.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_bobbin_lacks_is_said() {
    let server = TestServer::bobbin(&[]);
    let script = server.folder().join("script.lua");
    std::fs::write(&script, "return 1").unwrap();
    for option in ["--ldb", "--ldb-sync-mode"] {
        let errors = run(&server, &[option, "--eval", script.to_str().unwrap()]).failed();
        assert!(errors.starts_with("ERR SCRIPT DEBUG is not supported"), "{errors}");
    }
    let errors = run(&server, &["--cluster", "info", &server.address().to_string()]);
    assert!(errors.output.contains("is not configured as a cluster node."), "{errors:?}");
}

/// What is typed at the debugger gives what valkey-cli gives, colours and all.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn scripts_are_debugged() {
    let server = TestServer::valkey(&[]);
    let file = server.folder().join("script.lua");
    let script = "local a = 1\nlocal b = redis.call('incr', KEYS[1])\nreturn {a, b, ARGV[1]}\n";
    std::fs::write(&file, script).unwrap();
    let bad = server.folder().join("bad.lua");
    std::fs::write(&bad, "local x = = 1").unwrap();
    let name = |file: &Path| file.to_str().unwrap().to_owned();
    let (file, bad) = (name(&file), name(&bad));
    let port = server.address().port().to_string();
    for (options, input) in [
        (
            &["--ldb", "--eval", &file, "k", ",", "v"][..],
            "help\nstep\nprint\nbreak 3\nlist\nc\nc\n",
        ),
        (
            &["--ldb", "--eval", &file, "k", ",", "v"],
            "eval \"a b\" .. 'c'\ne 1+\nredis incr x\nnonsense\n",
        ),
        (&["--ldb", "--eval", &file, "k", ",", "v"], "print \"a\n\nn\nrestart\ns\nquit\nPING\n"),
        (&["--ldb", "--eval", &file, "k"], "abort\nPING\n"),
        (&["--ldb", "--eval", &bad], "s\n"),
        (&["--ldb-sync-mode", "--eval", &file, "kept"], "c\nGET kept\nnosuch\n"),
    ] {
        let debug = |mut command: Command| {
            command.args(["-p", &port]).args(options);
            let ran = finish(command, input.as_bytes());
            (ran.output, ran.status)
        };
        let theirs = debug(Command::new(peers::peer("valkey-cli")));
        run(&server, &["DEL", "kept"]).ok();
        assert_eq!(debug(program()), theirs, "{options:?} {input:?}");
    }
    assert_eq!(run(&server, &["EXISTS", "k"]).ok(), "0\n");
    let missing = run(&server, &["--ldb", "PING"]).failed();
    assert_eq!(missing, "Options --ldb and --ldb-sync-mode require --eval.\n");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn rdb_files_and_replicas() {
    let start_server: [fn(&[&str]) -> TestServer; 3] =
        [TestServer::bobbin, TestServer::valkey, TestServer::redis];
    for (start_server, diskless) in
        start_server.into_iter().flat_map(|start| [(start, "no"), (start, "yes")])
    {
        let server =
            start_server(&["--repl-diskless-sync", diskless, "--repl-diskless-sync-delay", "0"]);
        run(&server, &["SET", "precious", &"v".repeat(10_000)]).ok();
        let library = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
        run(&server, &["FUNCTION", "LOAD", library]).ok();
        let file = server.folder().join("copy.rdb");
        let name = file.to_str().unwrap();
        let ran = run(&server, &["--rdb", name]);
        assert!(ran.errors.contains("Transfer finished with success"), "{ran:?}");
        let bytes = std::fs::read(&file).unwrap();
        assert!(bytes.starts_with(b"VALKEY") || bytes.starts_with(b"REDIS"), "{diskless}");
        assert_eq!(bytes[bytes.len() - 9], 0xff, "the end of the file, before its checksum");
        assert!(contains(&bytes, b"precious") && contains(&bytes, b"register_function"));
        assert_loads(start_server, &file, 1);
        run(&server, &["--functions-rdb", name]).ok();
        let functions = std::fs::read(&file).unwrap();
        assert!(!contains(&functions, b"precious") && contains(&functions, b"register_function"));
        assert_loads(start_server, &file, 0);
        let to_output = run(&server, &["--rdb", "-"]);
        assert!(contains(&to_output.bytes, b"register_function"), "{diskless}");
        let made = server.info("sync_full");
        assert_ne!(made, "0");
        assert!(run(&server, &["--rdb", "/nowhere/x.rdb"]).failed().contains("Error opening"));
        assert_eq!(server.info("sync_full"), made, "nothing was asked for");

        let (mut replica, mut lines) = start(&server, &["--replica"]);
        eventually("the replica is online", || {
            run(&server, &["INFO", "replication"]).ok().contains("state=online")
        });
        run(&server, &["SET", "news", "1"]).ok();
        assert!(read_until(&mut lines, "\"news\",\"1\"\n").contains("\"SET\""));
        run(&server, &["CLIENT", "KILL", "TYPE", "replica"]).ok();
        assert_eq!(replica.0.wait().unwrap().code(), Some(1));
        let mut errors = String::new();
        replica.0.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        // A last acknowledgement may have been left unread.
        let ends = ["Server closed the connection\n", "Connection reset by peer\n"];
        assert!(ends.iter().any(|end| errors.ends_with(end)), "{errors}");
    }
}

/// The tools of Valkey and Redis get from Bobbin what they get from their own servers.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn other_tools_copy_from_bobbin() {
    let server = TestServer::bobbin(&["--repl-diskless-sync-delay", "0"]);
    run(&server, &["SET", "precious", "1"]).ok();
    let library = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    run(&server, &["FUNCTION", "LOAD", library]).ok();
    let (file, port) = (server.folder().join("copy.rdb"), server.address().port().to_string());
    for (tool, start_server) in [
        ("valkey-cli", TestServer::valkey as fn(&[&str]) -> TestServer),
        ("redis-cli", TestServer::redis),
    ] {
        for (option, keys) in [("--rdb", 1), ("--functions-rdb", 0)] {
            let mut command = Command::new(peers::peer(tool));
            command.args(["-p", &port, option]).arg(&file);
            let ran = finish(command, b"");
            assert_eq!(ran.status, Some(0), "{ran:?}");
            assert_loads(start_server, &file, keys);
        }
        let mut command = Command::new(peers::peer(tool));
        command.args(["-p", &port, "--replica"]).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
        let _child = Endless(child);
        eventually("the replica is online", || {
            run(&server, &["INFO", "replication"]).ok().contains("state=online")
        });
        // It takes the first command for the reply to its acknowledgement.
        run(&server, &["-n", "1", "SET", "news", "1"]).ok();
        run(&server, &["-n", "1", "SET", "news", "2"]).ok();
        assert!(read_until(&mut lines, "\"SET\",\"news\",\"2\"\n").contains("news"));
    }
}

/// The server starts from a file with this many keys and a library, and so does Bobbin.
fn assert_loads(start_server: fn(&[&str]) -> TestServer, file: &Path, keys: u32) {
    let (folder, name) = (file.parent().unwrap(), file.file_name().unwrap());
    let folder = folder.to_str().unwrap();
    let arguments = ["--dir", folder, "--dbfilename", name.to_str().unwrap(), "--save", ""];
    for start_server in [start_server, TestServer::bobbin] {
        let server = start_server(&arguments);
        let mut connection = server.connect();
        assert_eq!(connection.say("DBSIZE"), ReplyFrame::integer(keys.into()));
        assert_eq!(connection.say("FCALL f 0"), ReplyFrame::integer(1));
    }
}

/// What a tool needs and the server lacks is told in the server's words, and no file is left
/// behind.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_a_server_lacks_is_said() {
    let server =
        TestServer::valkey(&["--rename-command", "SYNC", "", "--rename-command", "SCRIPT", ""]);
    let file = server.folder().join("copy.rdb");
    for arguments in [&["--rdb", file.to_str().unwrap()][..], &["--replica"]] {
        let errors = run(&server, arguments).failed();
        assert!(errors.starts_with("SYNC with primary failed: ERR unknown command"), "{errors}");
    }
    assert!(!file.exists());
    let script = server.folder().join("script.lua");
    std::fs::write(&script, "return 1").unwrap();
    let errors = run(&server, &["--ldb", "--eval", script.to_str().unwrap()]).failed();
    assert!(errors.starts_with("ERR unknown command 'SCRIPT'"), "{errors}");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_cluster_of_three() {
    let cluster = TestCluster::valkey(3);
    let [first, second, third] = [&cluster.nodes[0], &cluster.nodes[1], &cluster.nodes[2]];
    // foo is in slot 12182, bar in 5061.
    assert!(run(first, &["SET", "foo", "1"]).ok().starts_with("MOVED 12182 "));
    assert_eq!(run(first, &["-c", "SET", "foo", "1"]).ok(), "OK\n");
    assert_eq!(run(second, &["-c", "SET", "bar", "2"]).ok(), "OK\n");
    let lines = run_with(first, &["-c"], b"GET foo\nGET bar\n", &[]).ok();
    let address = |server: &TestServer| server.address().to_string();
    assert_eq!(
        lines,
        format!(
            "-> Redirected to slot [12182] located at {}\n1\n-> Redirected to slot [5061] located \
             at {}\n2\n",
            address(third),
            address(first)
        )
    );
    // Half way through moving a slot a node says ASK for what it has not.
    let id = |server: &TestServer| run(server, &["CLUSTER", "MYID"]).ok().trim().to_owned();
    run(second, &["CLUSTER", "SETSLOT", "5061", "IMPORTING", &id(first)]).ok();
    run(first, &["CLUSTER", "SETSLOT", "5061", "MIGRATING", &id(second)]).ok();
    assert_eq!(run(first, &["-c", "SET", "{bar}2", "3"]).ok(), "OK\n");
    assert!(run(first, &["GET", "{bar}2"]).ok().starts_with("ASK 5061 "));
    assert_eq!(run(first, &["-c", "GET", "{bar}2"]).ok(), "3\n");
    // A slot that has moved is found, and so is one that moves while the shell is there.
    cluster.give(0..10, 2);
    assert_eq!(run(first, &["-c", "CLUSTER", "COUNTKEYSINSLOT", "0"]).ok(), "0\n");
    let tag = run_with(first, &["-c"], b"SET {06S}x 1\nGET {06S}x\n", &[]);
    assert!(tag.output.ends_with("OK\n1\n"), "{tag:?}");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn doctor_looks_at_both() {
    let server = TestServer::bobbin(&["--slowlog-log-slower-than", "0"]);
    let report = run(&server, &["doctor"]).ok();
    assert!(report.starts_with("This machine\n"), "{report}");
    for part in [
        "open files: ",
        "The server at 127.0.0.1:",
        "slow log: ",
        "maxmemory: no limit",
        "persistence: ",
    ] {
        assert!(report.contains(part), "{part:?} is not in\n{report}");
    }
    let mut nobody = program();
    nobody.args(["-p", "1", "doctor"]);
    assert_eq!(finish(nobody, b"").status, Some(1));
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn start(server: &TestServer, arguments: &[&str]) -> (Endless, BufReader<ChildStdout>) {
    let port = server.address().port().to_string();
    let mut command: Command = program();
    command.args(["-p", &port]).args(arguments);
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let output = child.stdout.take().expect("it is piped");
    (Endless(child), BufReader::new(output))
}

/// Reads until the text has come, which must be soon.
fn read_until(lines: &mut BufReader<ChildStdout>, text: &str) -> String {
    let mut read = Vec::new();
    for _ in 0..10_000 {
        let len = lines.read_until(b'\n', &mut read).expect("the program writes");
        let so_far = String::from_utf8_lossy(&read);
        if so_far.contains(text) {
            return so_far.into_owned();
        }
        assert!(len > 0, "the program ended after {so_far}");
    }
    panic!("no {text:?} in {}", String::from_utf8_lossy(&read));
}

/// A server that takes connections and closes them is asked once more at once, then each second.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_server_that_hangs_up_is_not_stormed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let start = Instant::now();
    let mut command = program();
    command.args(["-p", &port, "--stat"]).stdout(Stdio::null()).stderr(Stdio::null());
    let _endless = Endless(command.spawn().unwrap());
    for accepted in 1..=4 {
        drop(listener.accept().unwrap());
        let seconds = start.elapsed().as_secs();
        assert!(accepted <= 2 + seconds, "{accepted} connections in {seconds} s");
    }
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

/// Ctrl-C ends a pause, and what was found is kept.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_pause_can_be_interrupted() {
    let server = TestServer::bobbin(&[]);
    let mut connection = server.connect();
    for key in 0..1000 {
        connection.call(&["SET", &key.to_string(), "v"]).unwrap();
    }
    let port = server.address().port().to_string();
    let mut command = program();
    command.args(["-p", &port, "--scan", "--count", "500", "-i", "3600"]).stdout(Stdio::piped());
    let mut scan = Endless(command.spawn().unwrap());
    let mut output = BufReader::new(scan.0.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    interrupt(&scan.0);
    let mut status = None;
    eventually("the scan ends", || {
        status = scan.0.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(0));
}

/// A second Ctrl-C ends what waits for a server that says nothing.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_silent_server_can_be_left() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    for mode in ["--scan", "--bigkeys", "--keystats"] {
        let mut command = program();
        command.args(["-p", &port, mode]).stdout(Stdio::null());
        let mut child = Endless(command.spawn().unwrap());
        let (stream, _) = listener.accept().unwrap();
        stream.peek(&mut [0]).unwrap();
        let mut status = None;
        eventually("the program ends", || {
            interrupt(&child.0);
            status = child.0.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(status.unwrap().code(), Some(1), "{mode}");
    }
}
