//! The copy of all keys that a primary sends: its forms, and what becomes of replicas that do not
//! take it. The replicas are clients of the test's own.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use bobbin_testkit::disk::Folder;
use bobbin_testkit::load::disturb_for_good;
use bobbin_testkit::{ReplyFrame, TestConnection, TestServer, until};

const ARGUMENTS: [&str; 6] =
    ["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes", "--save", ""];

fn start(arguments: &[&str]) -> TestServer {
    TestServer::bobbin(&[&ARGUMENTS, arguments].concat())
}

/// A client that asks for a copy.
struct Replica {
    connection: TestConnection,
    /// What has come and was not read yet.
    bytes: Vec<u8>,
}

impl Replica {
    /// Says some lines, each answered by OK, and asks.
    fn ask(server: &TestServer, lines: &[&str], request: &[u8]) -> Self {
        let mut connection = server.connect();
        for line in lines {
            assert_eq!(connection.say(line), ReplyFrame::simple("OK"), "{line}");
        }
        let stream = connection.stream();
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket has a limit");
        stream.write_all(request).expect("it is sent");
        Self { connection, bytes: Vec::new() }
    }

    fn psync(server: &TestServer, lines: &[&str]) -> Self {
        let mut replica = Self::ask(server, lines, b"*3\r\n$5\r\nPSYNC\r\n$1\r\n?\r\n$2\r\n-1\r\n");
        assert!(replica.line().starts_with("+FULLRESYNC "));
        replica
    }

    fn say(&mut self, bytes: &[u8]) {
        self.connection.stream().write_all(bytes).expect("it is sent");
    }

    /// Whether more came; otherwise the primary has gone.
    fn receive(&mut self) -> bool {
        let mut block = [0; 64 * 1024];
        let count = match self.connection.stream().read(&mut block) {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            count => count.expect("more comes, or the end"),
        };
        self.bytes.extend_from_slice(&block[..count]);
        count > 0
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        while self.bytes.len() < count {
            assert!(self.receive(), "{} of {count}", self.bytes.len());
        }
        self.bytes.drain(..count).collect()
    }

    /// The next line that is not empty.
    fn line(&mut self) -> String {
        let mut line = Vec::new();
        loop {
            match self.take(1)[0] {
                b'\n' if line.is_empty() => {}
                b'\n' => break,
                byte => line.push(byte),
            }
        }
        String::from_utf8(line).expect("a line is text").trim_end().to_owned()
    }

    /// A copy that says how long it is.
    fn sized_copy(&mut self) -> Vec<u8> {
        let line = self.line();
        let len = line.strip_prefix('$').and_then(|len| len.parse().ok());
        let copy = self.take(len.unwrap_or_else(|| panic!("no length: {line}")));
        assert!(copy.starts_with(b"REDIS0010") && copy[copy.len() - 9] == 0xff);
        copy
    }

    /// A copy that ends by a mark.
    fn marked_copy(&mut self) -> Vec<u8> {
        let line = self.line();
        let mark = line.strip_prefix("$EOF:").unwrap_or_else(|| panic!("no mark: {line}"));
        while !self.bytes.ends_with(mark.as_bytes()) {
            assert!(self.receive(), "{} bytes came", self.bytes.len());
        }
        let mut copy = std::mem::take(&mut self.bytes);
        copy.truncate(copy.len() - mark.len());
        assert!(copy.starts_with(b"REDIS0010") && copy[copy.len() - 9] == 0xff);
        copy
    }

    /// All that comes up to some bytes, these included.
    fn stream_until(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.bytes.windows(end.len()).position(|part| part == end) {
                return self.take(at + end.len());
            }
            assert!(self.receive(), "{} bytes came", self.bytes.len());
        }
    }

    /// Whether the primary has ended the connection, whatever came before that.
    fn has_ended(&mut self) -> bool {
        while self.receive() {}
        self.bytes.clear();
        true
    }

    fn expect_commands(&mut self, expected: &str) {
        let len = expected.len();
        let bytes = self.take(len);
        assert_eq!(String::from_utf8_lossy(&bytes), expected);
    }
}

fn info(server: &TestServer, field: &str) -> String {
    let reply = server.connect().say("INFO everything");
    let text = String::from_utf8_lossy(reply.bytes().expect("it has bytes")).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.map(str::to_owned).unwrap_or_default()
}

/// Fills the server with bytes that do not become fewer by compression.
fn fill(server: &TestServer, mib: usize) {
    let mut client = server.connect();
    client.say("CONFIG SET rdbcompression no");
    let keys = mib * 16;
    assert_eq!(client.say(&format!("DEBUG POPULATE {keys} big 65536")), ReplyFrame::simple("OK"));
}

const SELECT: &str = "*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n";

fn set(key: &str, value: &str) -> String {
    let (keys, values) = (key.len(), value.len());
    format!("*3\r\n$3\r\nSET\r\n${keys}\r\n{key}\r\n${values}\r\n{value}\r\n")
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_copy_says_how_long_it_is_to_those_that_know_no_mark() {
    let server = start(&["--repl-ping-replica-period", "1000"]);
    let mut client = server.connect();
    client.say("SET key value");
    let mut replica = Replica::ask(&server, &[], b"SYNC\r\n");
    assert!(replica.sized_copy().windows(3).any(|part| part == b"key"));
    // It need not say that it has it.
    client.say("SET a 1");
    replica.expect_commands(&[SELECT, &set("a", "1")].concat());
    assert!(info(&server, "slave0").contains("state=online"));
    let line = client.say("CLIENT LIST TYPE replica");
    let line = String::from_utf8_lossy(line.bytes().expect("text")).into_owned();
    assert!(line.contains(" flags=S ") && line.contains(" cmd=sync "), "{line}");
    drop(replica);

    let mut replica = Replica::psync(&server, &["REPLCONF capa psync2"]);
    replica.sized_copy();
    client.say("SET a 2");
    replica.expect_commands(&[SELECT, &set("a", "2")].concat());
    drop(replica);

    client.say("CONFIG SET repl-diskless-sync no");
    let mut replica = Replica::psync(&server, &["REPLCONF capa eof", "REPLCONF capa psync2"]);
    replica.sized_copy();
    client.say("SET a 3");
    replica.expect_commands(&[SELECT, &set("a", "3")].concat());
    let files = std::fs::read_dir(server.folder()).expect("it has a folder").flatten();
    let names: Vec<_> = files.map(|file| file.file_name()).collect();
    let is_snapshot = |name: &std::ffi::OsString| name.to_string_lossy().ends_with(".rdb");
    assert!(!names.iter().any(is_snapshot), "{names:?}");
    assert!(server.log().contains("Starting BGSAVE for SYNC with target: disk"));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn one_that_wants_a_length_is_not_kept_waiting_and_others_come_along() {
    let server = start(&["--repl-diskless-sync-delay", "1000"]);
    let ask = |lines: &[&str]| Replica::ask(&server, lines, b"PSYNC ? -1\r\n");
    let mut first = ask(&["REPLCONF capa eof"]);
    until(|| info(&server, "slave0").contains("state=wait_bgsave"));
    let mut second = ask(&[]);
    for replica in [&mut first, &mut second] {
        assert!(replica.line().starts_with("+FULLRESYNC "));
        replica.sized_copy();
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_copy_that_cannot_be_written_is_told() {
    let server = start(&[]);
    std::fs::remove_dir_all(server.folder()).expect("the folder goes");
    let mut replica = Replica::ask(&server, &[], b"SYNC\r\n");
    assert!(replica.has_ended());
    // Others need no file.
    Replica::psync(&server, &["REPLCONF capa eof"]).marked_copy();
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn one_that_does_not_take_its_copy_is_dropped_and_others_have_it() {
    for lines in [&["REPLCONF capa eof"][..], &[]] {
        let server = start(&["--repl-timeout", "1", "--repl-diskless-sync-max-replicas", "2"]);
        server.connect().say("CONFIG SET repl-diskless-sync-delay 1000");
        fill(&server, 48);
        let mut slow = Replica::ask(&server, lines, b"PSYNC ? -1\r\n");
        let mut quick = Replica::ask(&server, lines, b"PSYNC ? -1\r\n");
        assert!(quick.line().starts_with("+FULLRESYNC "));
        let copy = if lines.is_empty() { quick.sized_copy() } else { quick.marked_copy() };
        assert!(copy.len() > 48 << 20);
        until(|| server.log().contains("Disconnecting timedout replica (full sync)"));
        assert!(slow.has_ended());
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn one_that_has_its_copy_and_is_silent_is_dropped() {
    let server = start(&["--repl-timeout", "2", "--repl-ping-replica-period", "3600"]);
    let mut loading = Replica::psync(&server, &["REPLCONF capa eof"]);
    loading.marked_copy();
    // Empty lines tell that it loads.
    for _ in 0..12 {
        std::thread::sleep(Duration::from_millis(200));
        loading.say(b"\n");
    }
    loading.say(b"REPLCONF ACK 0\r\n");
    server.connect().say("SET a 1");
    loading.expect_commands(SELECT);
    assert!(loading.has_ended(), "it is silent again");
    let log = server.log();
    assert!(log.contains("Disconnecting timedout replica (streaming sync)"), "{log}");
    let mut silent = Replica::psync(&server, &["REPLCONF capa eof"]);
    silent.marked_copy();
    assert!(silent.has_ended());
    // One of old need say nothing.
    let mut plain = Replica::ask(&server, &[], b"SYNC\r\n");
    plain.sized_copy();
    std::thread::sleep(Duration::from_millis(2200));
    server.connect().say("SET a 1");
    plain.expect_commands(SELECT);
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn one_that_leaves_too_much_waiting_is_dropped() {
    let hard = "CONFIG SET client-output-buffer-limit replica-2mb-0-0";
    let soft = "CONFIG SET client-output-buffer-limit replica-0-2mb-1";
    for limit in [hard, soft] {
        let server = start(&["--repl-backlog-size", "16kb"]);
        let mut client = server.connect();
        let [order, option, name, value] = &limit.split(' ').collect::<Vec<_>>()[..] else {
            unreachable!("four words")
        };
        let value = value.replace('-', " ");
        let reply = client.call(&[order, option, name, value.as_str()]).expect("it answers");
        assert_eq!(reply, ReplyFrame::simple("OK"));
        // One loads, one gets its copy, and one reads nothing of the stream.
        let mut loading = Replica::psync(&server, &["REPLCONF capa eof"]);
        loading.marked_copy();
        let mut online = Replica::psync(&server, &["REPLCONF capa eof"]);
        online.marked_copy();
        online.say(b"REPLCONF ACK 0\r\n");
        fill(&server, 32);
        let mut receiving = Replica::psync(&server, &["REPLCONF capa eof"]);
        until(|| info(&server, "slave2").contains("state=wait_bgsave"));
        let value = "x".repeat(1 << 20);
        for _ in 0..16 {
            client.call(&["SET", "value", &value]).expect("it answers");
        }
        until(|| info(&server, "connected_slaves") == "0");
        for replica in [&mut loading, &mut online, &mut receiving] {
            assert!(replica.has_ended(), "{limit}");
        }
        let dropped = info(&server, "client_output_buffer_limit_disconnections");
        assert_eq!(dropped, "3", "{limit}");
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_copy_does_not_count_to_the_output_limit() {
    let server = start(&["--repl-backlog-size", "16kb"]);
    let mut client = server.connect();
    let limit = ["CONFIG", "SET", "client-output-buffer-limit", "replica 100000 0 0"];
    assert_eq!(client.call(&limit).expect("it answers"), ReplyFrame::simple("OK"));
    fill(&server, 32);
    let mut replica = Replica::psync(&server, &["REPLCONF capa eof"]);
    // It reads nothing yet, and the sockets are full.
    until(|| {
        let line = client.say("CLIENT LIST TYPE replica").text();
        let waiting = line.split(' ').find_map(|part| part.strip_prefix("omem="));
        waiting.is_some_and(|bytes| bytes.parse::<u64>().is_ok_and(|bytes| bytes > 100_000))
    });
    assert!(replica.marked_copy().len() > 32 << 20);
    replica.say(b"REPLCONF ACK 0\r\n");
    client.say("SET a 1");
    replica.expect_commands(SELECT);
    assert_eq!(info(&server, "client_output_buffer_limit_disconnections"), "0");
}

/// So a replica that is slow holds up no client.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_changes_much_during_a_slow_copy_goes_through_a_file() {
    let server = start(&[]);
    fill(&server, 48);
    let mut slow = Replica::psync(&server, &["REPLCONF capa eof"]);
    let mut client = server.connect();
    let value = "y".repeat(65536);
    let mut key = 0;
    until(|| {
        for _ in 0..32 {
            let name = format!("big:{}", key % (48 * 16));
            client.call(&["SET", &name, &value]).expect("it answers");
            key += 1;
        }
        server.log().contains("the rest of it goes through a file")
    });
    until(|| info(&server, "rdb_bgsave_in_progress") == "0");
    let copy = slow.marked_copy();
    assert!(copy.len() > 48 << 20);
    assert!(!copy.windows(100).any(|part| part == &value.as_bytes()[..100]), "it is of before");
}

/// As tools that move data do: they speak as replicas do, and replay what they get elsewhere.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn ten_that_come_together_share_one_copy() {
    const TOOLS: usize = 10;
    let server = start(&[
        "--repl-diskless-sync-max-replicas",
        &TOOLS.to_string(),
        "--repl-ping-replica-period",
        "1000",
    ]);
    let mut client = server.connect();
    client.say("CONFIG SET repl-diskless-sync-delay 1000");
    disturb_for_good(&mut client, 1, 500);
    let ask = |port: usize| {
        let port = format!("REPLCONF listening-port {port}");
        Replica::ask(&server, &[&port, "REPLCONF capa eof"], b"PSYNC ? -1\r\n")
    };
    let tools: Vec<_> = (10_000..).take(TOOLS).map(ask).collect();
    let end = set("end", "1");
    let taken: Vec<_> = std::thread::scope(|scope| {
        let take = |mut tool: Replica| {
            let line = tool.line();
            let offset = line.split(' ').nth(2).expect("an offset").to_owned();
            let copy = tool.marked_copy();
            tool.say(format!("REPLCONF ACK {offset}\r\n").as_bytes());
            (line, copy, tool.stream_until(end.as_bytes()))
        };
        let taking: Vec<_> =
            tools.into_iter().map(|tool| scope.spawn(move || take(tool))).collect();
        disturb_for_good(&mut client, 2, 500);
        client.say("SELECT 0");
        client.say("SET end 1");
        taking.into_iter().map(|tool| tool.join().expect("it gets all")).collect()
    });
    assert!(taken.iter().all(|one| *one == taken[0]), "all get the same bytes");
    assert_eq!(info(&server, "sync_full"), TOOLS.to_string());
    assert_eq!(server.log().matches("Starting BGSAVE for SYNC").count(), 1);

    let (_, copy, stream) = &taken[0];
    let folder = Folder::new();
    std::fs::write(folder.path().join("dump.rdb"), copy).expect("it can be written");
    let other = start(&["--dir", folder.text()]);
    let (mut client, mut rest) = (other.connect(), &stream[..]);
    while let Some((command, len)) = ReplyFrame::parse(rest).expect("they are commands") {
        rest = &rest[len..];
        let words: Vec<_> =
            command.items().iter().map(|word| word.bytes().expect("a word")).collect();
        let reply = client.call(&words).expect("it answers");
        assert!(!reply.is_error(), "{command:?}: {reply:?}");
    }
    assert_eq!(server.digest(), other.digest());
}
