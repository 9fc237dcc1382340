//! Clients that send commands of all kinds and go without waiting: what they sent comes to its end,
//! and nothing is left of them.

use std::io::Write;
use std::net::{Shutdown, TcpStream};

use bobbin_testkit::random::{self, TestRandom};
use bobbin_testkit::{TestConnection, TestServer, encode_command, on_each_driver, until};

/// Clients of one server, one after the other.
const CLIENTS: usize = 200;
/// Clients that are there at once, at most.
const PRESENT: usize = 60;
/// Commands of a client, at most.
const COMMANDS: usize = 11;

#[test]
#[ignore = "end to end: run by `cargo xtask test`"]
fn nothing_is_left_of_clients_that_go() {
    on_each_driver(&["--io-threads", "2"], come_and_go);
    let always = ["--io-threads", "2", "--appendonly", "yes", "--appendfsync", "always"];
    come_and_go(&TestServer::bobbin(&always));
}

fn come_and_go(server: &TestServer) {
    let mut client = server.connect();
    fill(&mut client);
    let mut random = TestRandom::new(random::seed());
    let mut present = Vec::new();
    for _ in 0..CLIENTS {
        let mut stream = TcpStream::connect(server.address()).expect("it listens");
        stream.set_nonblocking(true).expect("it can be");
        let mut commands = Vec::new();
        (0..=random.below(COMMANDS)).for_each(|_| append(&mut random, &mut commands));
        // What the socket does not take at once is not sent.
        stream.write_all(&commands).ok();
        match random.below(4) {
            // Replies that it has not read make this a reset.
            0 | 1 => continue,
            2 => drop(stream.shutdown(Shutdown::Write)),
            _ => {}
        }
        present.push(stream);
        if present.len() > PRESENT {
            present.swap_remove(random.below(PRESENT));
        }
    }
    drop(present);
    until(|| client.say("CLIENT LIST").text().lines().count() == 1);
    assert!(client.say("SCRIPT KILL").is_error(), "a script goes on");
}

/// Two sets and a list that take a while, and many keys.
fn fill(client: &mut TestConnection) {
    for set in ["one", "two"] {
        let members = (0..30_000).map(|number| format!("{set}:{number}"));
        let words: Vec<_> = ["SADD", set].map(str::to_owned).into_iter().chain(members).collect();
        client.call(&words).expect("it is answered");
    }
    let items = (0..50_000).map(|number| format!("item:{number}"));
    let words: Vec<_> = ["RPUSH", "list"].map(str::to_owned).into_iter().chain(items).collect();
    client.call(&words).expect("it is answered");
    let pairs = (0..20_000).flat_map(|number| [format!("key:{number}"), "value".to_owned()]);
    let words: Vec<_> = ["MSET".to_owned()].into_iter().chain(pairs).collect();
    client.call(&words).expect("it is answered");
}

/// Appends a command, or some that belong together.
fn append(random: &mut TestRandom, commands: &mut Vec<u8>) {
    let mut say = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        encode_command(&words, commands);
    };
    let loops = [10, 300_000][random.below(2)];
    let number = random.below(5);
    match random.below(18) {
        0 => say(&format!("SUNIONSTORE stored:{number} one two")),
        1 => say("SORT list ALPHA STORE sorted"),
        2 => say("KEYS *"),
        3 => say("LRANGE list 0 -1"),
        4 => say("SUNION one two"),
        5 | 6 => {
            let source = "for i = 1, ARGV[1] do end return redis.call('incr', KEYS[1])";
            encode_command(
                &["EVAL", source, "1", &format!("counter:{number}"), &loops.to_string()],
                commands,
            );
        }
        7 | 8 => {
            // It strays from what it declares.
            let source = "for i = 1, ARGV[1] do end return redis.call('get', ARGV[2])";
            encode_command(
                &["EVAL", source, "0", &loops.to_string(), &format!("key:{number}")],
                commands,
            );
        }
        9 => ["MULTI", "KEYS *", "SUNIONSTORE x one two", "INCR count", "EXEC"]
            .into_iter()
            .for_each(say),
        10 => ["WATCH key:1", "MULTI", "SET key:1 v", "EXEC"].into_iter().for_each(say),
        11 => say(["BLPOP nolist 0", "BLPOP nolist 1", "SUBSCRIBE channel"][number % 3]),
        12 => say(&format!("PUBLISH channel {}", "x".repeat([10, 30_000][number % 2]))),
        13 => say(&format!("CONFIG SET maxmemory-samples {}", 3 + number)),
        14 => say(&format!("SET large {}", "y".repeat(400_000))),
        15 => say(["CLIENT PAUSE 1 WRITE", "CLIENT PAUSE 30 WRITE", "MONITOR"][number % 3]),
        16 => ["HELLO 3", "CLIENT TRACKING ON", "GET key:1"].into_iter().for_each(say),
        _ => ["CLIENT REPLY SKIP", "KEYS *", "SCAN 0 COUNT 10000"].into_iter().for_each(say),
    }
}
