//! A fixed number of commands through a worker without sockets, for counting instructions:
//! `instructions LOAD[@USERS] COMMANDS`. `cargo xtask instructions` runs it under callgrind. With
//! `@many` there are a hundred users beside the default one, which sends the commands; with
//! `@limited` one of those sends them.

use bobbin_server::config::{Config, OptionId};
use bobbin_server::embedded::{Embedded, Session};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, load, commands] = arguments.as_slice() else { usage() };
    let Ok(commands) = commands.parse::<usize>() else { usage() };
    let config = Config::new();
    for (option, value) in [(OptionId::io_driver, "epoll"), (OptionId::disable_thp, "no")] {
        config.set_internally(option, value).expect("the option takes this value");
    }
    let mut embedded = Embedded::new(config, 1).expect("a server can be made");
    let mut session = embedded.connect();
    let (load, users) = load.split_once('@').unwrap_or((load, "none"));
    let pipelines = pipelines(load);
    fill(&mut embedded, &mut session);
    make_users(&mut embedded, &mut session, users);
    // Another client keeps copies, or this one does.
    let mut other = embedded.connect();
    match load.rsplit_once('-') {
        Some((_, "beside")) => {
            embedded.feed(&mut other, &encode(&["CLIENT", "TRACKING", "ON"]));
        }
        Some((_, "logged")) => embedded.log(),
        Some((_, "tracked")) => {
            embedded.feed(&mut session, &encode(&["CLIENT", "TRACKING", "ON"]));
        }
        _ => {}
    }
    for pipeline in pipelines.iter().cycle().take(commands.div_ceil(PIPELINE)) {
        let replies = embedded.feed(&mut session, pipeline);
        assert!(!replies.is_empty() && replies[0] != b'-', "{}", replies.escape_ascii());
    }
}

fn make_users(embedded: &mut Embedded, session: &mut Session, users: &str) {
    if users == "none" {
        return;
    }
    for number in 0..USERS {
        let name = format!("user{number}");
        let rules =
            ["on", "nopass", "~other:*", "~key:*", "~count:*", "&*", "+@all", "-@dangerous"];
        let made =
            embedded.feed(session, &encode(&[&["ACL", "SETUSER", &name], &rules[..]].concat()));
        assert_eq!(made, b"+OK\r\n");
    }
    match users {
        "many" => {}
        "limited" => _ = embedded.feed(session, &encode(&["AUTH", "user7", "x"])),
        _ => usage(),
    }
}

/// What is sent, again and again.
fn pipelines(load: &str) -> Vec<Vec<u8>> {
    let starts = (0..KEYS).step_by(PIPELINE);
    starts.map(|start| (start..start + PIPELINE).flat_map(|k| command(load, k)).collect()).collect()
}

fn command(load: &str, number: usize) -> Vec<u8> {
    let (key, other, value) = (key_of(number), key_of(number + 1), "v".repeat(VALUE_LEN));
    match load.split('-').next().unwrap_or_default() {
        "get" => encode(&["GET", &key]),
        "set" => encode(&["SET", &key, &value]),
        "incr" => encode(&["INCR", &format!("count:{number}")]),
        "mget" => encode(&["MGET", &key, &other]),
        "mset10" => {
            let keys: Vec<String> = (number..number + 10).map(key_of).collect();
            let pairs = keys.iter().flat_map(|key| [key.as_str(), value.as_str()]);
            encode(&std::iter::once("MSET").chain(pairs).collect::<Vec<_>>())
        }
        "expire" => encode(&["EXPIRE", &key, "1000"]),
        "eval" => encode(&["EVAL", SCRIPT, "2", &key, &other, &value]),
        _ => usage(),
    }
}

fn fill(embedded: &mut Embedded, session: &mut Session) {
    embedded.set_time(1_000_000);
    for number in 0..=KEYS {
        embedded.feed(session, &command("set", number));
        embedded.feed(session, &command("incr", number));
    }
}

fn key_of(number: usize) -> String {
    format!("key:{number:012}")
}

fn encode(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| bytes.push_str(&format!("${}\r\n{word}\r\n", word.len())));
    bytes.into_bytes()
}

fn usage() -> ! {
    eprintln!(
        "usage: instructions (get|set|incr|mget|mset10|expire|eval)[-beside|-tracked|-logged][@many|@limited] COMMANDS"
    );
    std::process::exit(2);
}

const SCRIPT: &str =
    "local v = redis.call('GET', KEYS[1]) redis.call('SET', KEYS[2], ARGV[1]) return v";
/// A multiple of `PIPELINE`.
const KEYS: usize = 4096;
const PIPELINE: usize = 16;
const USERS: usize = 100;
const VALUE_LEN: usize = 32;
