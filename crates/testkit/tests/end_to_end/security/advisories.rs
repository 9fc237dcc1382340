//! What advisories about Redis and Valkey tell of configuration, rights, files and connections,
//! tried on Bobbin. The name of a test has the number of its advisory. Those about types, payloads
//! and scripts are in the tests of these.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use bobbin_testkit::disk::Folder;
use bobbin_testkit::{TestConnection, TestServer, peers};

const SECRET: [&str; 2] = ["--requirepass", "secret"];
/// How long something may take on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Counts and lengths that a stranger only promises take no memory.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn cve_2021_32675_promises_of_strangers_cost_nothing() {
    let server = TestServer::bobbin(&SECRET);
    let before = server.resident_bytes();
    let mut open = Vec::new();
    for _ in 0..200 {
        for head in [
            "*1048576\r\n",
            "*2147483647\r\n",
            "*2\r\n$536870912\r\n",
            "*10\r\n$16384\r\n",
            "*2\r\n$4\r\nAUTH\r\n$512000000\r\n",
        ] {
            let mut stream = TcpStream::connect(server.address()).expect("it accepts");
            stream.write_all(head.as_bytes()).expect("sent");
            open.push(stream);
        }
    }
    assert_sound(&server);
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 48 << 20, "{grown} bytes for a thousand promises");
}

/// Lengths beyond what a size can be, after `proto-max-bulk-len` was set as high as it goes.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn cve_2021_21309_and_41099_sizes_do_not_wrap_around() {
    let server = TestServer::bobbin(&[]);
    let mut client = server.connect();
    assert_eq!(client.say("CONFIG SET proto-max-bulk-len 9223372036854775807").text(), "OK");
    assert_eq!(client.say("CONFIG SET client-query-buffer-limit 9223372036854775807").text(), "OK");
    let before = server.resident_bytes();
    let mut open = Vec::new();
    for length in [
        "4294967296",
        "4294967295",
        "9223372036854775807",
        "9223372036854775806",
        "18446744073709551615",
    ] {
        let mut stream = TcpStream::connect(server.address()).expect("it accepts");
        stream.write_all(format!("*2\r\n$3\r\nGET\r\n${length}\r\nabc").as_bytes()).expect("sent");
        open.push(stream);
    }
    for command in ["SETRANGE k 9223372036854775806 x", "SETBIT k 9223372036854775807 1"] {
        assert!(client.say(command).is_error(), "{command}");
    }
    assert_sound(&server);
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes for lengths that were only said");
}

/// Patterns that make a matcher go back again and again, or call itself again and again.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn cve_2022_36021_and_2024_31228_patterns_take_neither_time_nor_stack() {
    let server = TestServer::bobbin(&[]);
    let mut client = server.connect();
    let name = "a".repeat(10_000);
    client.call(&["SET", &name, "v"]).expect("an answer");
    for pattern in [
        "a*".repeat(5000) + "b",
        "*a".repeat(5000) + "?b",
        "*".repeat(100_000) + "b",
        "[a".repeat(50_000),
        "\\".repeat(99_999),
    ] {
        for command in [
            &["KEYS"][..],
            &["SCAN", "0", "COUNT", "100", "MATCH"],
            &["CONFIG", "GET"],
            &["COMMAND", "LIST", "FILTERBY", "PATTERN"],
            &["FUNCTION", "LIST", "LIBRARYNAME"],
            &["PUBSUB", "CHANNELS"],
        ] {
            let words = [command, &[&pattern]].concat();
            client.call(&words).unwrap_or_else(|error| panic!("{command:?}: {error}"));
        }
        let (keys, channels) = (format!("~{pattern}"), format!("&{pattern}"));
        client
            .call(&["ACL", "SETUSER", "u", "reset", "on", "nopass", "+@all", &keys, &channels])
            .expect("an answer");
        client.call(&["ACL", "DRYRUN", "u", "GET", &name]).expect("an answer");
        let mut user = server.connect();
        user.say("AUTH u x");
        user.call(&["GET", &name]).expect("an answer");
        user.call(&["PUBLISH", &name, "m"]).expect("an answer");
        user.call(&["PSUBSCRIBE", &pattern]).expect("an answer");
        client.call(&["PUBLISH", &name, "m"]).expect("an answer");
    }
    assert_sound(&server);
}

/// Selectors and key permissions that are no rules, or only half of one, are errors and leave the
/// user as it was.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn cve_2024_31227_and_51741_malformed_selectors_are_refused() {
    let server = TestServer::bobbin(&[]);
    let mut client = server.connect();
    assert_eq!(client.say("ACL SETUSER u on nopass ~a +get").text(), "OK");
    let before = client.say("ACL GETUSER u");
    for rules in [
        &["%~"][..],
        &["%"],
        &["%~x"],
        &["%RWR~x"],
        &["%X~x"],
        &["(%~)"],
        &["(%~x +get)"],
        &["(%"],
        &["(%)"],
        &["(%~x", "+get)"],
        &["(", ")", "x"],
        &["(+get", "~a"],
        &["(((+get)))"],
        &["(on)"],
        &["(+get\0)"],
        &["~a\0b"],
        &["+get|"],
        &["+config|get|x"],
        &["db=99999999999"],
        &["#00"],
    ] {
        let words = [&["ACL", "SETUSER", "u"][..], rules].concat();
        let reply = client.call(&words).expect("an answer");
        assert!(reply.is_error(), "{rules:?}: {}", reply.text());
        assert_eq!(client.say("ACL GETUSER u"), before, "{rules:?}");
        // The advisory's server fell over later, when the user's rules were looked at.
        let mut user = server.connect();
        user.say("AUTH u x");
        assert!(user.say("GET b").is_error() && !user.say("GET a").is_error());
        client.call(&["ACL", "DRYRUN", "u", "GET", "%"]).expect("an answer");
    }
    assert_sound(&server);
}

/// The socket has its permissions before any client can connect, whatever the umask.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn cve_2023_45145_a_unix_socket_is_never_open_to_more() {
    let folder = Folder::new();
    for (umask, permission) in [(0o000, 0o700), (0o022, 0o777), (0o077, 0o770), (0o000, 0o600)] {
        let socket = folder.path().join(format!("{umask:o}-{permission:o}"));
        let mut command = Command::new(peers::bobbin());
        command.args(["--port", "0", "--save", "", "--unixsocketperm", &format!("{permission:o}")]);
        command.arg("--unixsocket").arg(&socket).arg("--dir").arg(folder.path());
        command.arg("--logfile").arg(folder.path().join("log"));
        // SAFETY: umask is a system call that touches nothing of the process's memory.
        unsafe {
            command.pre_exec(move || {
                set_umask(umask);
                Ok(())
            })
        };
        let mut child = command.spawn().expect("started");
        // From the moment the file exists, it permits no more than it will in the end.
        let mut stream = None;
        while stream.is_none() {
            assert!(matches!(child.try_wait(), Ok(None)), "it runs");
            stream = std::os::unix::net::UnixStream::connect(&socket).ok();
            if let Ok(metadata) = std::fs::metadata(&socket) {
                let mode = metadata.mode() & 0o777;
                assert_eq!(mode & !permission, 0, "{mode:o} of {permission:o}");
                assert!(stream.is_none() || mode == permission, "{mode:o} is not {permission:o}");
            }
        }
        let _ = child.kill();
        child.wait().expect("gone");
    }
}

/// What a stranger calls forth and does not read ends the stranger's connection, not the server's
/// memory.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn cve_2025_21605_unread_errors_of_strangers_are_bounded() {
    let server = TestServer::bobbin(&SECRET);
    let before = server.resident_bytes();
    let mut open = Vec::new();
    for _ in 0..50 {
        let mut stranger = TcpStream::connect(server.address()).expect("it accepts");
        let pipeline = b"GET k\r\n".repeat(10_000);
        while stranger.write_all(&pipeline).is_ok() {}
        open.push(stranger);
    }
    assert_sound(&server);
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 48 << 20, "{grown} bytes for what nobody reads");
}

/// Strangers whose connections break in every way keep no other client from being served.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn cve_2025_48367_protocol_errors_starve_nobody() {
    let server = TestServer::bobbin(&SECRET);
    let address = server.address();
    let mut client = server.connect();
    assert_eq!(client.say("AUTH secret").text(), "OK");
    std::thread::scope(|scope| {
        for kind in 0..4 {
            scope.spawn(move || {
                for _ in 0..500 {
                    let Ok(mut stream) = TcpStream::connect(address) else { continue };
                    let _ = match kind {
                        0 => stream.write_all(b"*1\r\n$99999999\r\n"),
                        1 => stream.write_all(b"*\r\n\x16\x03\x01"),
                        // What is unread makes the close a reset.
                        2 => stream.write_all(b"PING\r\nPING\r\n*x\r\n"),
                        _ => stream.shutdown(Shutdown::Write),
                    };
                }
            });
        }
        for number in 0..2000 {
            assert_eq!(client.say(&format!("SET k {number}")).text(), "OK");
        }
    });
    // A new one is let in as well.
    assert_eq!(server.connect().say("AUTH secret").text(), "OK");
    assert_sound(&server);
}

/// The tools that look through files take names of any length.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn cve_2025_27151_long_names_of_files_are_errors() {
    let folder = Folder::new();
    let long = format!("{}/{}", folder.text(), "x/".repeat(8000));
    // What a manifest says is checked as well.
    let manifest = folder.path().join("a.manifest");
    let name = "y".repeat(900);
    std::fs::write(&manifest, format!("file {name} seq 1 type b\n")).expect("written");
    for arguments in [
        vec!["--check-aof", &long],
        vec!["--check-aof", manifest.to_str().expect("a path")],
        vec!["--check-rdb", &long],
    ] {
        let output = Command::new(peers::bobbin()).args(&arguments).output().expect("run");
        let text =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code().is_some_and(|code| code != 0), "{}: {text}", output.status);
    }
}

/// A request of no words leaves nothing behind that the next one could stumble over.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn cve_2026_27623_empty_requests_leave_no_trace() {
    let empty: [&[u8]; 6] = [b"*0\r\n", b"*-1\r\n", b"\r\n", b"*-7\r\n", b"\n", b"  \r\n"];
    let full: [(&[u8], &[u8]); 4] = [
        (b"PING\r\n", b"+PONG\r\n"),
        (b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n"),
        (b"*2\r\n$4\r\nECHO\r\n$3\r\nabc\r\n", b"$3\r\nabc\r\n"),
        (b"ECHO \"a b\"\r\n", b"$3\r\na b\r\n"),
    ];
    let server = TestServer::bobbin(&[]);
    for first in empty {
        for second in empty {
            for (request, reply) in full {
                let bytes = [first, second, request].concat();
                // In one packet, and in two that are cut anywhere.
                for cut in 0..bytes.len() {
                    let mut stream = TcpStream::connect(server.address()).expect("it accepts");
                    stream.set_nodelay(true).expect("a socket");
                    stream.write_all(&bytes[..cut]).expect("sent");
                    stream.write_all(&bytes[cut..]).expect("sent");
                    stream.shutdown(Shutdown::Write).expect("sent");
                    let mut answer = Vec::new();
                    stream.read_to_end(&mut answer).expect("answered");
                    assert_eq!(answer, reply, "{} cut at {cut}", bytes.escape_ascii());
                }
            }
        }
    }
    assert_sound(&server);
}

/// Words that come back in an error do not end its line: no client makes the server say what
/// another one then reads as an answer.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn cve_2025_67733_errors_are_one_line() {
    const SPLIT: &str = "x\r\n+OK\r\n:1\r\n\n-ERR \0y";
    let server = TestServer::bobbin(&["--enable-debug-command", "yes"]);
    let mut client = server.connect();
    client.say("ACL SETUSER u on nopass +@all -get ~a");
    for words in [
        &[SPLIT][..],
        &[SPLIT, SPLIT, SPLIT],
        &["CONFIG", SPLIT],
        &["CONFIG", "SET", SPLIT, SPLIT],
        &["CONFIG", "SET", "maxmemory", SPLIT],
        &["CONFIG", "SET", "bind", SPLIT],
        &["CONFIG", "SET", "save", SPLIT],
        &["CONFIG", "SET", "loglevel", SPLIT],
        &["CONFIG", "SET", "dir", SPLIT],
        &["ACL", SPLIT],
        &["ACL", "SETUSER", SPLIT],
        &["ACL", "SETUSER", "v", SPLIT],
        &["ACL", "SETUSER", "v", &format!("({SPLIT}")],
        &["ACL", "SETUSER", "v", &format!("+{SPLIT}")],
        &["ACL", "GETUSER", SPLIT],
        &["ACL", "CAT", SPLIT],
        &["ACL", "DRYRUN", SPLIT, "GET", "k"],
        &["ACL", "DRYRUN", "u", SPLIT],
        &["ACL", "DRYRUN", "u", "SET", SPLIT, "v"],
        &["AUTH", SPLIT, SPLIT],
        &["HELLO", "3", SPLIT],
        &["HELLO", SPLIT],
        &["CLIENT", "KILL", SPLIT, SPLIT],
        &["CLIENT", "SETNAME", SPLIT],
        &["CLIENT", "SETINFO", "lib-name", SPLIT],
        &["CLIENT", "NO-EVICT", SPLIT],
        &["DEBUG", SPLIT],
        &["COMMAND", "GETKEYS", SPLIT],
        &["LATENCY", SPLIT],
        &["OBJECT", SPLIT],
    ] {
        client.call(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        let reply = client.call(&["ECHO", "in step"]).expect("an answer");
        assert_eq!(reply.text(), "in step", "{words:?}");
        if words[0] == "HELLO" {
            client.say("RESET");
        }
    }
    // The refusals of a user name what was refused.
    let mut user = server.connect();
    user.say("AUTH u x");
    for words in [&["GET", SPLIT][..], &["SET", SPLIT, SPLIT], &["PUBLISH", SPLIT, SPLIT]] {
        assert!(user.call(words).expect("an answer").is_error(), "{words:?}");
        assert_eq!(user.call(&["ECHO", "in step"]).expect("an answer").text(), "in step");
    }
}

/// Keys that an option names, or that the value names, are asked about before they are read.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn cve_2023_41053_and_36824_no_option_reads_past_the_rights() {
    let server = TestServer::bobbin(&[]);
    let mut client = server.connect();
    client.say("ACL SETUSER u on nopass +@all ~mine*");
    client.say("RPUSH mine 1 2");
    client.say("SET secret1 hidden");
    client.say("SET secret2 hidden");
    let mut user = server.connect();
    user.say("AUTH u x");
    for command in [
        "SORT_RO mine GET secret*",
        "SORT_RO mine BY secret*",
        "SORT mine GET secret*",
        "SORT mine BY secret* STORE mine2",
        "SORT mine STORE secret1",
        "SORT mine STORE mine2 STORE secret1",
    ] {
        let reply = user.say(command);
        assert!(
            reply.text().starts_with("NOPERM") || reply.text().starts_with("ERR"),
            "{command}: {}",
            reply.text()
        );
        assert!(!reply.items().iter().any(|item| item.text().contains("hidden")), "{command}");
    }
    assert_eq!(client.say("GET secret1").text(), "hidden");
    for words in [
        &["EVAL", "return 1", "9223372036854775807", "k"][..],
        &["ZUNION", "4294967297", "k"],
        &["MSETEX", "9223372036854775807", "k", "v"],
        &["LMPOP", "-1", "k", "LEFT"],
        &["XREAD", "STREAMS"],
        &["SORT", "k", "STORE"],
        &["GEORADIUS", "k", "0", "0", "1", "m", "STORE"],
        &["MIGRATE", "h", "1", "", "0", "1", "KEYS"],
    ] {
        for subcommand in ["GETKEYS", "GETKEYSANDFLAGS"] {
            let words = [&["COMMAND", subcommand], words].concat();
            client.call(&words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        }
        client
            .call(&[&["ACL", "DRYRUN", "u"], words].concat())
            .unwrap_or_else(|error| panic!("{words:?}: {error}"));
    }
    assert_sound(&server);
}

/// Clients that are evicted for their memory while what they wait for arrives.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn cve_2026_23479_evicted_clients_may_wait() {
    let server = TestServer::bobbin(&["--io-threads", "2"]);
    let mut client = server.connect();
    assert_eq!(client.say("CLIENT NO-EVICT on").text(), "OK");
    let value = "v".repeat(100_000);
    for round in 0..20 {
        assert_eq!(client.say("CONFIG SET maxmemory-clients 0").text(), "OK");
        let mut waiting: Vec<TestConnection> = (0..10).map(|_| server.connect()).collect();
        for (number, other) in waiting.iter_mut().enumerate() {
            let own = format!("own{number}");
            other.send(&["BLPOP", "list", &own, &value, "0"]).expect("sent");
        }
        // All wait before the memory is taken from them.
        loop {
            let info = client.say("INFO clients").text();
            if info.contains("blocked_clients:10\r\n") {
                break;
            }
        }
        client.send_raw(b"CONFIG SET maxmemory-clients 200kb\r\n").expect("sent");
        let mut push = vec!["RPUSH", "list"];
        push.extend(std::iter::repeat_n(&*value, 20));
        client.send(&push).expect("sent");
        assert_eq!(client.receive().expect("an answer").text(), "OK", "round {round}");
        assert!(client.receive().expect("an answer").as_integer().is_some(), "round {round}");
        drop(waiting);
        assert_eq!(client.say("CONFIG SET maxmemory-clients 0").text(), "OK");
        assert_eq!(client.say("FLUSHALL").text(), "OK");
    }
    assert_sound(&server);
}

/// Buffers that shrink while an argument is half there, and grow again when the rest comes.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn cve_2023_41056_buffers_that_shrink_lose_nothing() {
    let server = TestServer::bobbin(&["--io-threads", "1"]);
    let value: Vec<u8> = (0..300_000u32).map(|number| (number % 251) as u8).collect();
    let mut request = Vec::new();
    bobbin_testkit::connection::encode_command(&[&b"SET"[..], b"k", &value], &mut request);
    let mut clients: Vec<TestConnection> = (0..8).map(|_| server.connect()).collect();
    let cut = |number: usize| request.len() * (number + 1) / 9;
    for (number, client) in clients.iter_mut().enumerate() {
        client.send_raw(&request[..cut(number)]).expect("sent");
    }
    // Idle for longer than such a buffer is kept whole.
    let mut admin = server.connect();
    let has_shrunk = |line: &str| {
        let free = line.split(' ').find_map(|field| field.strip_prefix("qbuf-free="));
        free.and_then(|free| free.parse().ok()).is_some_and(|free: u64| free < 1000)
    };
    let deadline = Instant::now() + PATIENCE;
    while !admin.say("CLIENT LIST").text().lines().all(has_shrunk) {
        assert!(Instant::now() < deadline, "a buffer is kept whole");
        std::thread::sleep(Duration::from_millis(50));
    }
    for (number, client) in clients.iter_mut().enumerate() {
        client.send_raw(&request[cut(number)..]).expect("sent");
        assert_eq!(client.receive().expect("an answer").text(), "OK");
        assert_eq!(client.say("GET k").bytes(), Some(&value[..]));
    }
    assert_sound(&server);
}

/// ACL LOAD that takes rights or the user itself from clients that are at work, the caller among
/// them.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn users_that_are_gone_after_acl_load_end_no_more_than_their_clients() {
    let folder = Folder::new();
    let users = folder.path().join("users.acl");
    let rich = "user default on nopass ~* &* +@all\nuser u on nopass ~* &* +@all\n";
    std::fs::write(&users, rich).expect("written");
    let server = TestServer::bobbin(&["--aclfile", users.to_str().expect("a path")]);
    for poor in [
        "user default on nopass ~* &* +@all\nuser u on nopass ~* resetchannels +@all\n",
        "user default on nopass ~* &* +@all\n",
        "user default on nopass ~* &* +@all\nuser u off\n",
    ] {
        let mut listener = server.connect();
        listener.say("AUTH u x");
        listener.say("SUBSCRIBE news");
        let mut caller = server.connect();
        caller.say("AUTH u x");
        caller.send(&["MULTI"]).expect("sent");
        caller.send(&["SET", "k", "v"]).expect("sent");
        let mut subject = server.connect();
        subject.say("AUTH u x");
        std::fs::write(&users, poor).expect("written");
        // Its own user may be gone with the answer.
        let _ = subject.call(&["ACL", "LOAD"]);
        let _ = caller.call(&["EXEC"]);
        let _ = listener.receive_within(Duration::from_millis(1));
        let mut admin = server.connect();
        admin.say("PUBLISH news x");
        std::fs::write(&users, rich).expect("written");
        assert_eq!(admin.say("ACL LOAD").text(), "OK", "{poor}");
    }
    assert_sound(&server);
}

fn set_umask(mask: u32) {
    unsafe extern "C" {
        fn umask(mask: u32) -> u32;
    }
    // SAFETY: it takes a number and returns one.
    unsafe { umask(mask) };
}

/// The server goes on, and serves.
fn assert_sound(server: &TestServer) {
    let mut client = server.connect();
    let reply = client.say("PING");
    assert!(
        ["PONG", "NOAUTH Authentication required."].contains(&reply.text().as_str()),
        "{}",
        reply.text()
    );
    assert!(!server.log().contains("crashed"), "{}", server.log());
}
