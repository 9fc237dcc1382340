//! Rights end to end: no command gets by the check, on no worker, and files of users outlive the
//! server.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;

use bobbin_testkit::{ReplyFrame, TestConnection, TestServer};

use crate::common::on_both;

/// With `local` DEBUG is for clients of this machine, not for those that come by an address of the
/// network. There is none to try that with on a machine without a network.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn debugging_is_for_local_clients() {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    // It sends nothing: the system only chooses the address to send from.
    let outer = socket.connect("198.51.100.1:9").and_then(|()| socket.local_addr()).ok();
    let outer = outer.map(|address| address.ip()).filter(|address| !address.is_loopback());
    for (value, is_local_allowed, is_outer_allowed) in
        [("no", false, false), ("local", true, false), ("yes", true, true)]
    {
        let arguments =
            ["--enable-debug-command", value, "--bind", "0.0.0.0", "--protected-mode", "no"];
        on_both(&arguments, |name, server| {
            let ask = |address: IpAddr, is_allowed: bool| {
                let address = SocketAddr::new(address, server.address().port());
                let mut client = TestConnection::open(address).expect("it listens");
                let reply = client.say("DEBUG PROTOCOL integer").text();
                let is_refused = reply.starts_with("ERR DEBUG command not allowed.");
                assert_eq!((reply == "12345", is_refused), (is_allowed, !is_allowed), "{name}");
            };
            ask(server.address().ip(), is_local_allowed);
            if let Some(outer) = outer {
                ask(outer, is_outer_allowed);
            }
        });
    }
}

/// Every command in the registry, as users without rights: plainly, within MULTI, and from a
/// script. All are refused but those that every user needs to say who he is.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_user_without_rights_may_run_nothing() {
    // Where these commands are off, Valkey says that first.
    let all = ["--enable-debug-command", "yes", "--enable-module-command", "yes"];
    on_both(&all, |name, server| {
        let mut admin = server.connect();
        admin.say("ACL SETUSER nobody on nopass");
        admin.say("ACL SETUSER queuer on nopass +multi");
        admin.say("ACL SETUSER scripter on nopass +eval +fcall ~*");
        let library = "#!lua name=library\nserver.register_function('call', function(keys, args) \
                       return server.call(unpack(args)) end)";
        assert_eq!(
            admin.call(&["FUNCTION", "LOAD", library]).expect("an answer").text(),
            "library"
        );
        let mut commands = commands(&mut admin);
        for (name, arity) in ABSENT {
            if !commands.iter().any(|(words, _)| words == &[name]) {
                commands.push((vec![name.to_owned()], arity));
            }
        }
        assert!(commands.len() > 200, "{name}: {}", commands.len());
        let log_in = |user: &str| {
            let mut client = server.connect();
            assert_eq!(client.call(&["AUTH", user, "x"]).expect("an answer").text(), "OK");
            client
        };
        let mut nobody = log_in("nobody");
        let mut scripter = log_in("scripter");
        for (words, arity) in commands {
            let mut args = words.clone();
            args.resize(args.len().max(arity.unsigned_abs() as usize), "1".into());
            let refusal = format!("has no permissions to run the '{}' command", words.join("|"));
            let is_free = FREE.contains(&&*words[0]);
            let reply = nobody.call(&args).expect("an answer").text();
            assert_eq!(reply.contains(&refusal), !is_free, "{name}: {words:?}: {reply}");
            if is_free {
                nobody = log_in("nobody");
            }
            if !is_free && words != ["multi"] {
                let mut queuer = log_in("queuer");
                queuer.say("MULTI");
                let reply = queuer.call(&args).expect("an answer").text();
                let is_barred = reply.contains("not allowed inside a transaction");
                assert!(reply.contains(&refusal) || is_barred, "{name}: {words:?}: {reply}");
            }
            for caller in
                [&["EVAL", "return redis.call(unpack(ARGV))", "0"], &["FCALL", "call", "0"]]
            {
                let caller = caller.map(str::to_owned);
                let reply =
                    scripter.call(&[&caller, &args[..]].concat()).expect("an answer").text();
                let is_barred = reply.contains("not allowed from script");
                assert!(reply.contains(&refusal) || is_barred, "{name}: {words:?}: {reply}");
            }
        }
        // Nothing of it had an effect.
        assert_eq!(admin.say("DBSIZE").as_integer(), Some(0), "{name}");
    });
}

/// What the configuration forbids to all is said before what the user may not; but not to a client
/// that has said nothing yet.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn what_is_off_is_told_before_rights() {
    on_both(&[], |name, server| {
        let mut admin = server.connect();
        admin.say("ACL SETUSER nobody on nopass");
        let mut nobody = server.connect();
        nobody.say("AUTH nobody x");
        for (command, start) in [
            ("DEBUG OBJECT k", "ERR DEBUG command not allowed."),
            ("DEBUG", "ERR wrong number of arguments for 'debug' command"),
            (
                "CONFIG GET x",
                "NOPERM User nobody has no permissions to run the 'config|get' command",
            ),
        ] {
            let answer = nobody.say(command).text();
            assert!(answer.starts_with(start), "{name}: {command}: {answer}");
        }
        admin.say("ACL SETUSER default resetpass");
        let answer = server.connect().say("DEBUG OBJECT k").text();
        assert_eq!(answer, "NOAUTH Authentication required.", "{name}");
    });
}

/// Commands and subcommands (which their containers do not stand for), and their arities.
fn commands(admin: &mut TestConnection) -> Vec<(Vec<String>, i64)> {
    let text = |reply: &ReplyFrame| {
        String::from_utf8_lossy(reply.bytes().unwrap_or_default()).into_owned()
    };
    let mut found = Vec::new();
    for command in admin.say("COMMAND").items() {
        let fields = command.items();
        let (arity, subcommands) = (fields[1].as_integer().unwrap_or_default(), fields[9].items());
        if subcommands.is_empty() || arity == -1 {
            found.push((vec![text(&fields[0])], arity));
        }
        for subcommand in subcommands {
            let fields = subcommand.items();
            let name = text(&fields[0]);
            let words = name.split('|').map(str::to_owned).collect();
            found.push((words, fields[1].as_integer().unwrap_or_default()));
        }
    }
    found
}

/// A change of rules, told to one connection, holds for what any other connection sends after that.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_change_holds_on_all_workers_at_once() {
    let server = TestServer::bobbin(&["--io-threads", "4"]);
    let mut admin = server.connect();
    admin.say("ACL SETUSER u on nopass +@all ~*");
    let mut clients: Vec<_> = (0..8).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| assert!(!client.say("AUTH u x").is_error()));
    for round in 0..200 {
        let allowed = round % 2 == 0;
        let rule = if allowed { "+incr" } else { "-incr" };
        assert_eq!(admin.call(&["ACL", "SETUSER", "u", rule]).expect("an answer").text(), "OK");
        for client in &mut clients {
            let reply = client.say("INCR counter");
            assert_eq!(reply.is_error(), !allowed, "round {round}: {}", reply.text());
        }
    }
    assert_eq!(admin.say("GET counter").text(), "800");
}

/// Users that come and go while their clients work: no client gets by, nothing falls over.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn users_come_and_go_beside_traffic() {
    let server = TestServer::bobbin(&["--io-threads", "4"]);
    let address = server.address();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let mut client = TestConnection::open(address).expect("there is a server");
                    if client.call(&["AUTH", "guest", "x"]).map_or(true, |reply| reply.is_error()) {
                        continue;
                    }
                    for key in ["mine:1", "others:1", "mine:2"] {
                        // It may be ended at any time; but what it is told is right.
                        let Ok(reply) = client.call(&["SET", key, "v"]) else { break };
                        let refused = reply.is_error();
                        assert!(refused || key.starts_with("mine:"), "{}", reply.text());
                    }
                }
            });
        }
        scope.spawn(move || {
            let mut admin = TestConnection::open(address).expect("there is a server");
            for _ in 0..ROUNDS {
                let made = admin.say("ACL SETUSER guest on nopass +set ~mine:*");
                assert_eq!(made.text(), "OK");
                admin.say("ACL DELUSER guest");
            }
        });
    });
    assert_eq!(server.connect().say("EXISTS others:1").as_integer(), Some(0));
}

/// A client that listens to what it may not any more is ended; others are not.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn listeners_that_lose_a_channel_are_ended() {
    on_both(&[], |name, server| {
        let mut admin = server.connect();
        admin.say("ACL SETUSER u on nopass +@all ~* &a* &b");
        let listen = |command: &str| {
            let mut client = server.connect();
            client.say("AUTH u x");
            let reply = client.say(command);
            assert!(!reply.is_error(), "{name}: {}", reply.text());
            client
        };
        let (mut kept, mut lost) = (listen("SUBSCRIBE a1"), listen("SUBSCRIBE b"));
        let (mut pattern, mut shard) = (listen("PSUBSCRIBE a*"), listen("SSUBSCRIBE b"));
        admin.say("ACL SETUSER u &c");
        assert_eq!(admin.say("PUBLISH b x").as_integer(), Some(1), "{name}: more is not less");
        assert_eq!(lost.receive().map(|reply| reply.items().len()).ok(), Some(3));
        admin.say("ACL SETUSER u resetchannels &a*");
        assert!(lost.receive().is_err() && shard.receive().is_err(), "{name}");
        assert_eq!(admin.say("PUBLISH a1 x").as_integer(), Some(2), "{name}");
        assert!(kept.receive().is_ok() && pattern.receive().is_ok(), "{name}");
        admin.say("ACL SETUSER u resetchannels &a1");
        assert!(pattern.receive().is_err(), "{name}: patterns count as themselves");
        assert_eq!(admin.say("PUBLISH a1 y").as_integer(), Some(1), "{name}");
        assert!(kept.receive().is_ok(), "{name}");
    });
}

/// A blocked command is checked again when it is served.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_blocked_command_is_checked_when_it_is_served() {
    on_both(&[], |name, server| {
        let mut admin = server.connect();
        admin.say("ACL SETUSER u on nopass +@all ~*");
        for (rule, expected) in [
            ("~*", "list x"),
            ("-blpop", "NOPERM User u has no permissions to run the 'blpop' command"),
            ("resetkeys", "NOPERM No permissions to access a key"),
        ] {
            admin.say("ACL SETUSER u reset on nopass +@all ~*");
            admin.say("DEL list");
            let mut client = server.connect();
            client.say("AUTH u x");
            client.send(&["BLPOP", "list", "0"]).expect("it is sent");
            while !admin.say("CLIENT LIST").text().contains("cmd=blpop") {
                std::thread::yield_now();
            }
            admin.call(&["ACL", "SETUSER", "u", rule]).expect("an answer");
            admin.say("RPUSH list x");
            let reply = client.receive().expect("an answer");
            let shown = match reply.items() {
                [] => reply.text(),
                items => items.iter().map(ReplyFrame::text).collect::<Vec<_>>().join(" "),
            };
            assert_eq!(shown, expected, "{name} {rule}");
            let left = admin.say("LLEN list").as_integer();
            assert_eq!(left, Some(i64::from(reply.is_error())), "{name} {rule}");
        }
    });
}

/// `aclfile`: read at start and by ACL LOAD, written by ACL SAVE.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_file_of_users_outlives_the_server() {
    let start: [fn(&[&str]) -> TestServer; 2] = [TestServer::valkey, TestServer::bobbin];
    for start in start {
        let folder = tempfile();
        let path = folder.join("users.acl");
        let shown = path.to_str().expect("a plain path");
        std::fs::write(&path, "user alice on >p ~a* +get\nuser bob off\n").expect("it is written");
        let server = start(&["--aclfile", shown]);
        let mut admin = server.connect();
        assert_eq!(admin.say("ACL USERS").items().len(), 3);
        let mut alice = server.connect();
        assert_eq!(alice.say("AUTH alice p").text(), "OK");
        let mut bob = server.connect();
        admin.say("ACL SETUSER bob on nopass +@all ~*");
        assert_eq!(bob.say("AUTH bob x").text(), "OK");
        admin.say("ACL SETUSER carol on >secret +@read ~c (+set ~d) db=0,3");
        assert_eq!(admin.say("ACL SAVE").text(), "OK");
        let saved = std::fs::read_to_string(&path).expect("it is there");
        assert_eq!(saved.lines().count(), 4);
        assert!(!saved.contains("secret") && saved.contains("db=0,3"), "{saved}");
        let mode = mode_of(&path);
        assert_eq!(mode & 0o022, 0, "nobody else may write it");
        let list = admin.say("ACL LIST");
        drop(server);

        let server = start(&["--aclfile", shown]);
        let mut admin = server.connect();
        assert_eq!(admin.say("ACL LIST"), list);
        let mut alice = server.connect();
        alice.say("AUTH alice p");
        let mut bob = server.connect();
        bob.say("AUTH bob x");
        // A broken file changes nothing.
        std::fs::write(&path, "user alice on >p ~b* +get\nuser bob +nope\n")
            .expect("it is written");
        assert!(admin.say("ACL LOAD").is_error());
        assert_eq!(admin.say("ACL LIST"), list);
        // Bob goes, alice stays, with other rights.
        std::fs::write(&path, "user alice on >p ~b* +get\n").expect("it is written");
        assert_eq!(admin.say("ACL LOAD").text(), "OK");
        assert!(bob.call(&["PING"]).is_err());
        assert!(alice.say("GET b").is_null());
        assert!(alice.say("GET a").is_error());
        std::fs::remove_dir_all(&folder).expect("it is removed");
    }
}

/// Files of users that one server wrote are read by the other, and mean the same.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn files_of_users_are_exchanged() {
    let folder = tempfile();
    let path = folder.join("users.acl");
    let shown = path.to_str().expect("a plain path");
    let start: [fn(&[&str]) -> TestServer; 2] = [TestServer::valkey, TestServer::bobbin];
    for [from, to] in [start, [start[1], start[0]]] {
        std::fs::write(&path, "").expect("it is written");
        let server = from(&["--aclfile", shown]);
        let mut admin = server.connect();
        for rules in USERS {
            assert_eq!(admin.say(&format!("ACL SETUSER {rules}")).text(), "OK", "{rules}");
        }
        assert_eq!(admin.say("ACL SAVE").text(), "OK");
        let list = admin.say("ACL LIST");
        let written = sorted_lines(&path);
        drop(server);
        // At the start, by ACL LOAD, and back into a file.
        let server = to(&["--aclfile", shown]);
        let mut admin = server.connect();
        assert_eq!(admin.say("ACL LIST"), list);
        assert_eq!(admin.say("ACL LOAD").text(), "OK");
        assert_eq!(admin.say("ACL LIST"), list);
        assert_eq!(admin.say("ACL SAVE").text(), "OK");
        assert_eq!(sorted_lines(&path), written);
    }
    std::fs::remove_dir_all(&folder).expect("it is removed");
}

/// Every command of a category is one of it in both, but for those that only Bobbin has.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn categories_are_those_of_the_reference() {
    let words = |reply: ReplyFrame| {
        let names = reply.items().iter().map(ReplyFrame::text);
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let (valkey, bobbin) = (TestServer::valkey(&[]), TestServer::bobbin(&[]));
    let (mut valkey, mut bobbin) = (valkey.connect(), bobbin.connect());
    let categories = words(valkey.say("ACL CAT"));
    assert_eq!(words(bobbin.say("ACL CAT")), categories);
    for category in categories {
        let question = format!("ACL CAT {category}");
        let (theirs, mut ours) = (words(valkey.say(&question)), words(bobbin.say(&question)));
        ours.retain(|name| !name.starts_with("hotkeys"));
        assert_eq!(ours, theirs, "{category}");
    }
}

/// The log, SLOWLOG, MONITOR and ACL LOG tell no password, by whatever command it came.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn passwords_are_told_nowhere() {
    let server = TestServer::bobbin(&["--loglevel", "debug", "--slowlog-log-slower-than", "0"]);
    let (mut client, mut monitor) = (server.connect(), server.connect());
    assert_eq!(monitor.say("MONITOR").text(), "OK");
    for line in [
        "AUTH unspeakable",
        "AUTH nobody unspeakable",
        "HELLO 2 AUTH nobody unspeakable",
        "HELLO 2 AUTH default unspeakable SETNAME x",
        "ACL SETUSER somebody on >unspeakable ~* +@all",
        "ACL SETUSER somebody <unspeakable nonsense",
        "CONFIG SET primaryauth unspeakable",
        "CONFIG SET masterauth unspeakable hz 12",
        "CONFIG SET tls-key-file-pass unspeakable",
        "MIGRATE 127.0.0.1 1 k 0 10 AUTH unspeakable",
        "MIGRATE 127.0.0.1 1 k 0 10 AUTH2 nobody unspeakable",
        "CONFIG SET requirepass unspeakable",
        "CONFIG SET no-such-option unspeakable requirepass unspeakable",
    ] {
        client.say(line);
    }
    assert_eq!(client.say("ECHO over").text(), "over");
    let mut shown = String::new();
    while !shown.contains("over") {
        shown += &monitor.receive().expect("it is shown").text();
        shown += "\n";
    }
    for question in ["SLOWLOG GET -1", "ACL LOG"] {
        let reply = format!("{:?}", client.say(question));
        assert!(reply.len() > 1000, "{question}: {reply}");
        shown += &reply;
    }
    shown += &server.log();
    assert!(!shown.contains("unspeakable"), "{shown}");
}

/// `user` lines of the configuration file, and CONFIG REWRITE.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn users_of_the_configuration_are_rewritten() {
    let start: [fn(&[&str]) -> TestServer; 2] = [TestServer::valkey, TestServer::bobbin];
    for start in start {
        let folder = tempfile();
        let path = folder.join("server.conf");
        let shown = path.to_str().expect("a plain path");
        let text = "# kept\nuser alice on >p ~a* +get\nuser bob on nopass (+get ~x) +ping\n";
        std::fs::write(&path, text).expect("it is written");
        let server = start(&[shown]);
        let mut admin = server.connect();
        assert_eq!(admin.say("ACL USERS").items().len(), 3);
        admin.say("ACL SETUSER alice +set");
        admin.say("ACL DELUSER bob");
        admin.say("ACL SETUSER carol on >secret &c");
        assert_eq!(admin.say("CONFIG REWRITE").text(), "OK");
        let list = admin.say("ACL LIST");
        let written = std::fs::read_to_string(&path).expect("it is there");
        assert!(written.starts_with("# kept\nuser "), "{written}");
        assert!(!written.contains("user bob") && !written.contains("secret"), "{written}");
        drop(server);
        // That server's folder is gone.
        let lines = written.lines().filter(|line| !line.starts_with("dir "));
        std::fs::write(&path, lines.collect::<Vec<_>>().join("\n")).expect("it is written");
        let server = start(&[shown]);
        assert_eq!(server.connect().say("ACL LIST"), list);
        std::fs::remove_dir_all(&folder).expect("it is removed");
    }
}

/// What a server does not start with.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn a_server_does_not_start_with_users_that_are_none() {
    let folder = tempfile();
    let path = folder.join("users.acl");
    std::fs::write(&path, "user a on +nope\n").expect("it is written");
    let shown = path.to_str().expect("a plain path");
    for (arguments, reason) in [
        (vec!["--user", "foo", "--user", "foo"], "Duplicate user"),
        (vec!["--user", "foo", "on", "bar"], "Syntax error"),
        (vec!["--user", "foo", "(+get"], "Unmatched parenthesis"),
        (vec!["--aclfile", shown], "Unknown command or category name"),
        (vec!["--aclfile", "/nope"], "No such file"),
        (vec!["--aclfile", shown, "--user", "foo"], "aclfile"),
    ] {
        let program = bobbin_testkit::peers::bobbin();
        let output = std::process::Command::new(program)
            .args(["--port", "0", "--unixsocket", folder.join("s").to_str().expect("plain")])
            .args(&arguments)
            .output()
            .expect("it runs");
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(!output.status.success() && text.contains(reason), "{arguments:?}: {text}");
    }
    std::fs::remove_dir_all(&folder).expect("it is removed");
}

/// Commands that Bobbin knows by name only, and does not list; and their arities.
const ABSENT: [(&str, i64); 3] = [("sync", 1), ("psync", -3), ("replconf", -1)];
/// Commands that are told who comes in, and so are for all users.
const FREE: [&str; 4] = ["auth", "hello", "quit", "reset"];
const ROUNDS: usize = 100;
/// All kinds of rules.
const USERS: [&str; 9] = [
    "replica on >x +psync +replconf +ping",
    "sentinel on >x allchannels +multi +slaveof +ping +exec +subscribe +config|rewrite +role +publish +info \
     +client|setname +client|kill +script|kill +replicaof +failover",
    "worker on >one >two ~queue:* %R~config:* %W~out:* &events +@read +@write -flushall db=0,3",
    "admin on nopass ~* &* +@all -@dangerous +config|get -debug",
    "cache off resetchannels +@all -@scripting (~cache:* +get +mget) (%R~all* +@read -keys db=1)",
    "first on nopass -@all +select|0 +select|1 +client -client|kill alldbs",
    "cluster on nopass +cluster|keyslot +cluster|info +clusterscan -cluster|failover",
    "nobody reset",
    "default -sync -psync -replconf",
];

/// An empty folder of the test's own.
fn tempfile() -> std::path::PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder =
        std::env::temp_dir().join(format!("bobbin-acl-test-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("there is room");
    folder
}

fn sorted_lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("it is there");
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn mode_of(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().expect("it is there").permissions().mode()
}

/// A user that may only write learns nothing of what is there, not even whether it guessed right.
#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn who_may_only_write_learns_no_value() {
    let server = TestServer::bobbin(&[]);
    let mut admin = server.connect();
    admin.say("ACL SETUSER w on nopass +@all %W~*");
    admin.say("ACL SETUSER rw on nopass +@all ~*");
    admin.say("SET k secret");
    admin.say("ZADD z 5 m");
    let (mut writer, mut other) = (server.connect(), server.connect());
    writer.say("AUTH w x");
    other.say("AUTH rw x");
    for command in [
        "SET k new IFEQ secret",
        "SET k new ifeq guess",
        "SET k new EX 10 IFEQ guess",
        "SET k new IFEQ guess GET",
        "SET k new GET",
        "DELIFEQ k guess",
        "GETSET k new",
        "GETDEL k",
        "INCRBY k 0",
        "ZADD z INCR 0 m",
        "ZADD z XX ch GT 4 m",
        "ZADD z lt 6 m",
        "ZINCRBY z 0 m",
    ] {
        let reply = writer.say(command);
        assert_eq!(reply.text(), "NOPERM No permissions to access a key", "{command}");
    }
    assert_eq!(admin.say("GET k").text(), "secret");
    assert_eq!(admin.say("ZSCORE z m").text(), "5");
    for command in ["SET k v", "SET k v NX", "SET k v XX EX 100", "ZADD z 7 m", "ZADD z XX CH 8 m"]
    {
        assert!(!writer.say(command).is_error(), "{command}");
    }
    for command in ["SET k w IFEQ v", "ZADD z INCR 1 m", "ZADD z GT 1 m", "DELIFEQ k w"] {
        assert!(!other.say(command).is_error(), "{command}");
    }
}
