//! A replica and its primary's connection: how a copy of all keys is taken, what a primary that
//! breaks off, lies or is very old leaves behind. Some primaries are played by the test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use bobbin_testkit::{ReplyFrame, TestServer, until};

fn start(arguments: &[&str]) -> TestServer {
    const ARGUMENTS: [&str; 4] =
        ["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"];
    TestServer::bobbin(&[&ARGUMENTS, arguments].concat())
}

/// Waits until both have the same keys. What was written last may not be in the stream at once.
fn same(primary: &TestServer, replica: &TestServer) {
    until(|| primary.digest() == replica.digest());
}

/// A primary that the test plays.
struct Played {
    listener: TcpListener,
}

/// A replica that is connected with it.
struct Guest {
    input: BufReader<TcpStream>,
}

const ID: &str = "0123456789abcdef0123456789abcdef01234567";

impl Played {
    fn new() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").expect("a port is free") }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().expect("it is bound").port()
    }

    /// The next replica, and what it asks for behind its introduction.
    fn accept(&self) -> (Guest, Vec<String>) {
        let (socket, _) = self.listener.accept().expect("it connects");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket has a time limit");
        let mut guest = Guest { input: BufReader::new(socket) };
        loop {
            let words = guest.command();
            match words[0].as_str() {
                "PSYNC" | "SYNC" => return (guest, words),
                "PING" => guest.send(b"+PONG\r\n"),
                // As an old server, which knows none of them.
                _ => guest.send(b"-ERR Unrecognized REPLCONF option\r\n"),
            }
        }
    }
}

impl Guest {
    fn send(&mut self, bytes: &[u8]) {
        self.input.get_mut().write_all(bytes).expect("it is sent");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.input.read_line(&mut line).expect("it says something");
        line.trim_end().to_owned()
    }

    fn command(&mut self) -> Vec<String> {
        let mut head = self.line();
        while head.is_empty() {
            head = self.line();
        }
        let Some(count) = head.strip_prefix('*') else {
            return head.split(' ').map(str::to_owned).collect();
        };
        let argument = |_| {
            let len: usize = self.line()[1..].parse().expect("a length");
            let mut bytes = vec![0; len + 2];
            self.input.read_exact(&mut bytes).expect("an argument");
            String::from_utf8_lossy(&bytes[..len]).into_owned()
        };
        (0..count.parse::<usize>().expect("a number")).map(argument).collect()
    }

    /// What the replica says about its offset first.
    fn ack(&mut self) -> u64 {
        loop {
            let words = self.command();
            if let [_, word, offset] = &words[..]
                && word == "ACK"
            {
                return offset.parse().expect("a number");
            }
        }
    }
}

/// The file of a server that has these.
fn snapshot(lines: &[&str]) -> Vec<u8> {
    let server = start(&[]);
    let mut client = server.connect();
    for line in lines {
        client.say(line);
    }
    assert_eq!(client.say("SAVE"), ReplyFrame::simple("OK"));
    std::fs::read(server.folder().join("dump.rdb")).expect("it is written")
}

const MODES: [&str; 4] = ["disabled", "on-empty-db", "flush-before-load", "swapdb"];
const FUNCTION: &str = "#!lua name=NAME\nredis.register_function{function_name='NAME', \
    callback=function() return 'here' end, flags={'no-writes'}}";

fn copies_are_taken(primary: &TestServer, modes: &[&str]) {
    let mut client = primary.connect();
    client.call(&["FUNCTION", "LOAD", &FUNCTION.replace("NAME", "mine")]).expect("it answers");
    for key in 0..300 {
        client.say(&format!("SET key:{key} {key}"));
        client.say(&format!("RPUSH list:{} a b c {key}", key % 10));
    }
    client.say("SELECT 5");
    client.say("SET other 1 PX 10000000");
    for mode in modes {
        let replica = start(&["--repl-diskless-load", mode, "--appendonly", "yes"]);
        let mut before = replica.connect();
        before.say("SET before 1");
        before.call(&["FUNCTION", "LOAD", &FUNCTION.replace("NAME", "old")]).expect("it answers");
        before.send(&["BLPOP", "list:1", "0"]).expect("it is sent");
        until(|| replica.info("blocked_clients") == "1");
        replica.follow(primary.address().port());
        let ended = before.receive().expect("it is told").text();
        assert!(ended.starts_with("UNBLOCKED force unblock"), "{ended}");
        client.say("SET later 1");
        primary.settle(&[&replica]);
        same(primary, &replica);
        assert_eq!(replica.connect().say("FCALL_RO mine 0"), ReplyFrame::bulk("here"));
        assert!(replica.connect().say("FCALL_RO old 0").text().contains("not found"));
        assert_eq!(replica.info("loading") + &replica.info("async_loading"), "00");
        // What came as a copy is in the replica's own log as well.
        until(|| replica.info("aof_rewrite_in_progress") == "0");
        until(|| replica.info("aof_rewrite_scheduled") == "0");
        client.say(&format!("SET last:{mode} 1"));
        primary.settle(&[&replica]);
        same(primary, &replica);
        let expected = replica.digest();
        until(|| {
            replica.connect().say("INFO persistence").text().contains("aof_pending_rewrite:0")
        });
        assert_eq!(replica.connect().say("DEBUG LOADAOF"), ReplyFrame::simple("OK"));
        assert_eq!(replica.digest(), expected, "{mode}");
    }
}

/// Each line of a server's log says which role the server has: a primary's `M`, a replica's `S`.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn each_line_of_the_log_says_which_role_its_server_has() {
    let (primary, replica) = (start(&[]), start(&[]));
    let roles = |server: &TestServer| {
        let log = server.log();
        let roles = log.lines().filter_map(|line| line.split(' ').next()?.split_once(':'));
        let mut roles: Vec<_> = roles.map(|(_, role)| role.to_owned()).collect();
        roles.dedup();
        roles
    };
    let port = primary.address().port().to_string();
    let mut client = replica.connect();
    client.say(&format!("REPLICAOF 127.0.0.1 {port}"));
    until(|| replica.info("master_link_status") == "up");
    assert_eq!(roles(&replica), ["M", "S"]);
    assert_eq!(client.say("REPLICAOF NO ONE"), ReplyFrame::simple("OK"));
    until(|| roles(&replica) == ["M", "S", "M"]);
    assert_eq!(roles(&primary), ["M"]);
    let configured = start(&["--replicaof", "127.0.0.1", &port]);
    until(|| configured.info("master_link_status") == "up");
    assert_eq!(roles(&configured), ["S"]);
}

/// A replica follows as the user that `primaryuser` and `primaryauth` name; it needs few rights.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_replica_follows_as_its_user() {
    for lead in [TestServer::bobbin, TestServer::valkey] {
        let primary = lead(&["--repl-diskless-sync-delay", "0"]);
        let mut client = primary.connect();
        client.say("SET k v");
        assert_eq!(client.say("ACL SETUSER copier on >secret +psync +replconf +ping").text(), "OK");
        client.say("ACL SETUSER default resetpass >other");
        let port = primary.address().port().to_string();
        let own = ["--primaryuser", "copier", "--primaryauth", "secret"];
        let replica = start(&[&["--replicaof", "127.0.0.1", &port][..], &own].concat());
        let mut reader = replica.connect();
        until(|| reader.say("GET k") == ReplyFrame::bulk("v"));
        // That the primary wants the password first is no refusal.
        assert!(!replica.log().contains("does not understand REPLCONF"), "{}", replica.log());
    }
}

/// The stream is kept for `repl-backlog-ttl` seconds after the last replica has left.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn the_stream_goes_when_nobody_follows_any_more() {
    let primary = start(&["--repl-backlog-ttl", "1"]);
    let port = primary.address().port().to_string();
    let replica = start(&["--replicaof", "127.0.0.1", &port]);
    until(|| primary.info("repl_backlog_active") == "1");
    until(|| primary.info("connected_slaves") == "1");
    drop(replica);
    until(|| primary.info("repl_backlog_active") == "0");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_copy_is_taken_in_each_way() {
    copies_are_taken(&start(&[]), &MODES);
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_copy_of_valkey_is_taken_in_each_way() {
    let arguments = ["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"];
    copies_are_taken(&TestServer::valkey(&arguments), &["flush-before-load", "swapdb"]);
    let by_file = [&arguments[..], &["--repl-diskless-sync", "no"]].concat();
    copies_are_taken(&TestServer::valkey(&by_file), &["disabled", "swapdb"]);
}

/// A copy breaks off in the middle, and comes again.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_copy_that_breaks_off_leaves_what_its_way_says() {
    let (first, second) = (snapshot(&["SET key first"]), snapshot(&["SET key second"]));
    std::thread::scope(|scope| {
        for mode in MODES {
            let (first, second) = (&first, &second);
            scope.spawn(move || breaks_off(mode, first, second));
        }
    });
}

fn breaks_off(mode: &str, first: &[u8], second: &[u8]) {
    let (primary, replica) = (Played::new(), start(&["--repl-diskless-load", mode]));
    replica.follow(primary.port());
    let (mut guest, words) = primary.accept();
    assert_eq!(words[0], "PSYNC");
    let head = format!("+FULLRESYNC {ID} 100\r\n\n${}\r\n", first.len());
    guest.send(&[head.as_bytes(), first].concat());
    assert_eq!(guest.ack(), 100);
    guest.send(b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n");
    until(|| replica.info("slave_repl_offset") == "150");
    assert_eq!(replica.connect().say("GET key"), ReplyFrame::bulk("first"));
    drop(guest);

    let (mut guest, words) = primary.accept();
    assert_eq!(words, ["PSYNC", ID, "151"]);
    let mark = "m".repeat(40);
    let head = format!("+FULLRESYNC {ID} 200\r\n\n$EOF:{mark}\r\n");
    guest.send(head.as_bytes());
    guest.send(&second[..second.len() / 2]);
    until(|| replica.info("master_sync_in_progress") == "1");
    let mut client = replica.connect();
    until(|| replica.info("master_sync_read_bytes") != "0");
    match mode {
        "flush-before-load" => {
            until(|| replica.info("loading") == "1");
            let loading = ReplyFrame::error("LOADING Bobbin is loading the dataset in memory");
            assert_eq!(client.say("GET key"), loading);
        }
        "swapdb" => {
            assert_eq!(replica.info("async_loading"), "1");
            assert_eq!(replica.info("loading"), "0");
            for line in [
                "REPLICAOF NO ONE",
                "CONFIG SET appendonly no",
                "CONFIG SET repl-diskless-load disabled",
            ] {
                let refused = client.say(line).text();
                assert!(refused.starts_with("LOADING"), "{line}: {refused}");
            }
            assert_eq!(client.say("GET key"), ReplyFrame::bulk("first"));
        }
        _ => assert_eq!(client.say("GET key"), ReplyFrame::bulk("first")),
    }
    drop(guest);
    let (mut guest, words) = primary.accept();
    let keeps = mode != "flush-before-load";
    assert_eq!(words[1] == ID, keeps, "{mode} {words:?}");
    let found = client.say("GET key");
    assert!(if keeps { found == ReplyFrame::bulk("first") } else { found.is_null() }, "{mode}");

    guest.send(head.as_bytes());
    guest.send(second);
    guest.send(mark.as_bytes());
    assert_eq!(guest.ack(), 200);
    assert_eq!(client.say("GET key"), ReplyFrame::bulk("second"));
    assert!(client.say("GET a").is_null());
    assert_eq!(replica.info("async_loading") + &replica.info("loading"), "00");
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_primary_that_lies_is_left_and_tried_again() {
    let file = snapshot(&["SET key value"]);
    let (primary, replica) = (Played::new(), start(&[]));
    replica.follow(primary.port());
    let full = format!("+FULLRESYNC {ID} 100\r\n");
    let whole = [format!("{full}${}\r\n", file.len()).as_bytes(), &file].concat();
    let (mut guest, _) = primary.accept();
    guest.send(&whole);
    assert_eq!(guest.ack(), 100);
    drop(guest);
    for lie in [&b"-LOADING later\r\n"[..], &[full.as_bytes(), b"$EOF:short\r\n"].concat()] {
        let (mut guest, words) = primary.accept();
        assert_eq!(words, ["PSYNC", ID, "101"]);
        guest.send(lie);
        assert_eq!(guest.line(), "", "it leaves");
        assert_eq!(replica.connect().say("GET key"), ReplyFrame::bulk("value"));
    }
    // The stream is damaged: from the same byte it would be so again.
    let (mut guest, _) = primary.accept();
    guest.send(b"+CONTINUE\r\n*1\r\n$9223372036854775807\r\n");
    let (mut guest, words) = primary.accept();
    assert_eq!(words, ["PSYNC", "?", "-1"]);
    // What begins as no copy does takes nothing away, though in Valkey it does.
    guest.send(format!("{full}$4\r\nlies").as_bytes());
    let (mut guest, _) = primary.accept();
    assert_eq!(replica.connect().say("GET key"), ReplyFrame::bulk("value"));
    // What begins as one and goes on otherwise takes away what was there.
    let cut = &file[..file.len() / 2];
    guest.send(&[format!("{full}${}\r\n", cut.len()).as_bytes(), cut].concat());
    let (mut guest, _) = primary.accept();
    assert!(replica.connect().say("GET key").is_null());
    guest.send(&whole);
    assert_eq!(guest.ack(), 100);
    assert_eq!(replica.connect().say("GET key"), ReplyFrame::bulk("value"));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_primary_without_psync_is_followed() {
    let file = snapshot(&["SET key value"]);
    let (primary, replica) = (Played::new(), start(&[]));
    replica.follow(primary.port());
    let (mut guest, _) = primary.accept();
    guest.send(b"-ERR unknown command 'PSYNC'\r\n");
    assert_eq!(guest.command(), ["SYNC"]);
    guest.send(&[format!("\n\n${}\r\n", file.len()).as_bytes(), &file].concat());
    guest.send(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n");
    until(|| replica.connect().say("GET a") == ReplyFrame::bulk("1"));
    assert_eq!(replica.connect().say("GET key"), ReplyFrame::bulk("value"));
    assert_eq!(replica.info("master_link_status"), "up");
}

/// Replicas of a replica have what it has after a copy, too.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_replica_of_a_replica_follows_through_a_copy() {
    for mode in ["disabled", "swapdb"] {
        let (first, second) = (start(&[]), start(&[]));
        first.connect().say("SET key first");
        second.connect().say("SET key second");
        let middle = start(&["--repl-diskless-load", mode]);
        let last = start(&["--repl-diskless-load", mode]);
        middle.follow(first.address().port());
        last.follow(middle.address().port());
        first.settle(&[&last]);
        assert_eq!(last.connect().say("GET key"), ReplyFrame::bulk("first"));
        middle.follow(second.address().port());
        for round in 0..5 {
            second.connect().say(&format!("SET round {round}"));
        }
        second.settle(&[&last]);
        same(&second, &last);
    }
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_stream_about_a_database_that_is_not_there_is_about_the_first() {
    let (file, fact) = (snapshot(&["SET key value"]), b"\xfa\x0erepl-stream-db\x0a4000000000");
    // Behind the nine bytes of its head; a sum of zero is none.
    let (head, rest) = file.split_at(9);
    let file = [head, fact, &rest[..rest.len() - 8], &[0; 8]].concat();
    let (primary, replica) = (Played::new(), start(&[]));
    replica.follow(primary.port());
    let (mut guest, _) = primary.accept();
    guest.send(&[format!("+FULLRESYNC {ID} 0\r\n${}\r\n", file.len()).as_bytes(), &file].concat());
    guest.send(SET);
    until(|| replica.connect().say("GET a") == ReplyFrame::bulk("1"));
    assert_eq!(replica.connect().say("GET key"), ReplyFrame::bulk("value"));
}

/// A replica that has the keys of a played primary, whose stream begins.
fn guest_of(primary: &Played, arguments: &[&str]) -> (TestServer, Guest) {
    let replica = start(arguments);
    let file = snapshot(&["SET key value"]);
    replica.connect().say("SET before 1");
    replica.follow(primary.port());
    let (mut guest, _) = primary.accept();
    guest.send(&[format!("+FULLRESYNC {ID} 0\r\n${}\r\n", file.len()).as_bytes(), &file].concat());
    assert_eq!(guest.ack(), 0);
    (replica, guest)
}

const SET: &[u8] = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n";

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_command_that_fails_is_told_or_ends_the_replica() {
    // The key is a string.
    let wrong = b"*3\r\n$5\r\nLPUSH\r\n$3\r\nkey\r\n$1\r\nx\r\n";
    let primary = Played::new();
    let ends = ["--propagation-error-behavior", "panic"];
    let is_written = ["--propagation-error-behavior", "panic", "--replica-read-only", "no"];
    for stays in [&[][..], &is_written] {
        let (replica, mut guest) = guest_of(&primary, stays);
        guest.send(&[&wrong[..], SET].concat());
        until(|| replica.connect().say("GET a") == ReplyFrame::bulk("1"));
        assert!(replica.log().contains("is sending an error to its primary: 'WRONGTYPE"));
    }
    let (mut replica, mut guest) = guest_of(&primary, &ends);
    guest.send(SET);
    until(|| replica.connect().say("GET a") == ReplyFrame::bulk("1"));
    guest.send(wrong);
    until(|| !replica.is_running());
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_replica_without_a_disk_ends_unless_it_may_go_on() {
    for ignores in ["yes", "no"] {
        let primary = Played::new();
        let options = ["--save", "3600 100000", "--replica-ignore-disk-write-errors", ignores];
        let (mut replica, mut guest) = guest_of(&primary, &options);
        std::fs::create_dir(replica.folder().join("dump.rdb")).expect("the folder can be written");
        replica.connect().say("BGSAVE");
        until(|| replica.info("rdb_last_bgsave_status") == "err");
        guest.send(b"*1\r\n$4\r\nPING\r\n");
        until(|| replica.info("slave_repl_offset") == "14");
        guest.send(SET);
        if ignores == "yes" {
            until(|| replica.connect().say("GET a") == ReplyFrame::bulk("1"));
        } else {
            until(|| !replica.is_running());
        }
    }
}

/// Each of the keys takes a second.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_replica_that_loads_slowly_can_be_ended() {
    let lines: Vec<String> = (0..200).map(|key| format!("SET key:{key} value")).collect();
    let file = snapshot(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let primary = Played::new();
    let mut replica = start(&["--key-load-delay", "1000000"]);
    replica.follow(primary.port());
    let (mut guest, _) = primary.accept();
    guest.send(&[format!("+FULLRESYNC {ID} 0\r\n${}\r\n", file.len()).as_bytes(), &file].concat());
    until(|| replica.info("loading") == "1");
    replica.signal("TERM");
    assert!(replica.wait(Duration::from_secs(60)).expect("it ends").success());
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_was_there_is_freed_as_the_option_says() {
    for (lazily, freed) in [("yes", "1"), ("no", "0")] {
        let (replica, _guest) = guest_of(&Played::new(), &["--replica-lazy-flush", lazily]);
        until(|| replica.info("lazyfreed_objects") == freed);
        assert_eq!(replica.info("master_link_status"), "up");
    }
}

/// What clients write on a replica stays there.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn writes_on_a_replica_are_its_own() {
    let primary = start(&[]);
    let middle = start(&["--replica-read-only", "no"]);
    let last = start(&[]);
    middle.follow(primary.address().port());
    primary.settle(&[&middle]);
    last.follow(middle.address().port());
    primary.settle(&[&last]);
    let mut client = middle.connect();
    client.say("SET own value PX 30");
    client.say("INCR counter");
    primary.connect().say("INCR counter");
    primary.settle(&[&last]);
    assert!(last.connect().say("GET own").is_null());
    until(|| last.connect().say("GET counter") == ReplyFrame::bulk("1"));
    until(|| client.say("GET counter") == ReplyFrame::bulk("2"));
    until(|| client.say("GET own").is_null());
    assert_eq!(client.say("EXISTS own"), ReplyFrame::integer(0));
}

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_replica_connects_from_where_it_is_told_to() {
    let primary = start(&[]);
    // Not every kernel has it.
    let enabled = std::fs::read_to_string("/proc/sys/net/mptcp/enabled");
    let has_mptcp = enabled.is_ok_and(|enabled| enabled.trim() == "1");
    let mptcp = if has_mptcp { "yes" } else { "no" };
    let replica = start(&["--bind-source-addr", "127.0.0.9", "--repl-mptcp", mptcp]);
    replica.follow(primary.address().port());
    primary.settle(&[&replica]);
    let listed = primary.info("slave0");
    assert!(listed.starts_with("ip=127.0.0.9,"), "{listed}");
    // Packets to replicas are gathered or not while they are connected.
    assert_eq!(
        primary.connect().say("CONFIG SET repl-disable-tcp-nodelay yes"),
        ReplyFrame::simple("OK")
    );
    primary.connect().say("SET key value");
    primary.settle(&[&replica]);
}
