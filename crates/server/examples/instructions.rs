//! A fixed number of commands through workers without sockets: `instructions LOAD[@USERS] COMMANDS
//! [WORKERS]`. With `@many` there are a hundred users beside the default one, which sends the
//! commands; with `@limited` one of those sends them.
//!
//! `cargo xtask instructions` runs it under callgrind, with one worker. With a number of workers
//! each has a thread, executes as many commands and goes through the same keys; what a command
//! took is printed. The load then is one without additions. More time with two workers than with
//! one is what they wait for each other, or for each other's cache lines.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use bobbin_server::config::{Config, OptionId};
use bobbin_server::embedded::{Embedded, EmbeddedProcess, EmbeddedSession};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (load, commands, workers) = match arguments.as_slice() {
        [_, load, commands] => (load, commands, None),
        [_, load, commands, workers] => (load, commands, Some(workers)),
        _ => usage(),
    };
    let Ok(commands) = commands.parse::<usize>() else { usage() };
    let config = Config::new();
    for (option, value) in [(OptionId::io_driver, "epoll"), (OptionId::disable_thp, "no")] {
        config.set_internally(option, value).expect("the option takes this value");
    }
    if let Some(workers) = workers {
        config.set_internally(OptionId::io_threads, workers).expect("it takes a number");
        let Ok(workers) = workers.parse::<usize>() else { usage() };
        if load.contains(['-', '@']) {
            usage();
        }
        return run_threads(config, load, commands, workers);
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

/// All workers at once, from different keys on.
fn run_threads(config: Config, load: &str, commands: usize, workers: usize) {
    let process = EmbeddedProcess::new(config).expect("a server can be made");
    let mut first = process.worker(0).expect("a worker can be made");
    let mut session = first.connect();
    fill(&mut first, &mut session);
    let pipelines = pipelines(load);
    let begin = Barrier::new(workers);
    let work = &|number: usize| {
        let mut embedded = process.worker(number as u64 + 1).expect("a worker can be made");
        let mut session = embedded.connect();
        let offset = pipelines.len() * number / workers;
        begin.wait();
        let start = Instant::now();
        for pipeline in pipelines.iter().cycle().skip(offset).take(commands.div_ceil(PIPELINE)) {
            let replies = embedded.feed(&mut session, pipeline);
            assert!(!replies.is_empty() && replies[0] != b'-', "{}", replies.escape_ascii());
        }
        start.elapsed()
    };
    let took: Duration = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..workers).map(|number| scope.spawn(move || work(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a worker does not panic")).sum()
    });
    println!("{:.1} ns", took.as_nanos() as f64 / (commands * workers) as f64);
}

fn make_users(embedded: &mut Embedded, session: &mut EmbeddedSession, users: &str) {
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

fn fill(embedded: &mut Embedded, session: &mut EmbeddedSession) {
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
        "usage: instructions (get|set|incr|mget|mset10|expire|eval)[-beside|-tracked|-logged][@many|@limited] COMMANDS \
         [WORKERS]"
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
