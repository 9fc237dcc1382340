//! Commands whose record in the log has other words than the command, in odd corners: a replay
//! gives what was there.

use super::disk::Disk;
use crate::config::{Config, OptionId};
use crate::embedded::{Embedded, EmbeddedProcess, EmbeddedSession};

struct Asked {
    embedded: Embedded,
    session: EmbeddedSession,
}

impl Asked {
    fn new(process: EmbeddedProcess) -> Self {
        let mut embedded = process.worker(1).expect("there are threads for all");
        embedded.set_time(1_000_000);
        let session = embedded.connect();
        Self { embedded, session }
    }

    fn ask(&mut self, line: &str) -> String {
        let line = format!("{line}\r\n");
        let reply = self.embedded.feed(&mut self.session, line.as_bytes());
        String::from_utf8_lossy(reply).into_owned()
    }
}

/// Has a server carry out commands, and another one what the log has of them; both must then answer
/// the questions alike. The answers. `wait 5`: five milliseconds have gone by since the beginning.
fn replay(commands: &[&str], questions: &[&str]) -> Vec<String> {
    replay_under(&[], commands, questions)
}

/// As [`replay`], where the other server is configured otherwise.
fn replay_under(
    options: &[(OptionId, &str)],
    commands: &[&str],
    questions: &[&str],
) -> Vec<String> {
    let process = |options: &[(OptionId, &str)]| {
        let config = Config::new();
        let own = [
            (OptionId::io_threads, "1"),
            (OptionId::stream_node_max_entries, "5"),
            (OptionId::enable_debug_command, "yes"),
        ];
        for &(option, value) in own.iter().chain(options) {
            config.set_internally(option, value).expect("it is an option");
        }
        EmbeddedProcess::new(config).expect("a server can be made")
    };
    let (first, second) = (process(&[]), process(options));
    first.log(true);
    let mut asked = Asked::new(first);
    for command in commands {
        if let Some(ms) = command.strip_prefix("wait ") {
            let ms: i64 = ms.parse().expect("a number");
            asked.embedded.set_time(1_000_000 + ms);
            continue;
        }
        let reply = asked.ask(command);
        assert!(!reply.starts_with('-'), "{command}: {reply}");
    }
    let (mut log, mut records) = (Vec::new(), first.records());
    while records.next(&mut log).is_some() {}
    let mut start = second.start().expect("there are threads for all");
    start.begin(None).expect("it is empty");
    assert_eq!(start.carry_out(&log), Ok(false), "{}", String::from_utf8_lossy(&log));
    let mut replayed = Asked::new(second);
    let ask = |asked: &mut Asked| questions.iter().map(|line| asked.ask(line)).collect::<Vec<_>>();
    let answers = ask(&mut asked);
    assert_eq!(answers, ask(&mut replayed), "{commands:?}");
    answers
}

#[test]
fn a_trim_that_was_limited_is_exact_in_the_log_wherever_its_options_stand() {
    let adds: Vec<String> = (1..=100).map(|at| format!("XADD s 1-{at} f v")).collect();
    for (trim, left) in [
        ("XTRIM s LIMIT 50 MAXLEN ~ 1", 50),
        ("XTRIM s MAXLEN ~ 1 LIMIT 50", 50),
        ("XTRIM s LIMIT 20 MINID ~ 1-90", 80),
    ] {
        let mut commands: Vec<&str> = adds.iter().map(String::as_str).collect();
        commands.push(trim);
        assert_eq!(replay(&commands, &["XLEN s"]), [format!(":{left}\r\n")], "{trim}");
    }
}

#[test]
fn a_lower_limit_of_strings_cuts_nothing_off() {
    let low = [(OptionId::proto_max_bulk_len, "1mb")];
    let append = format!("APPEND k {}", "x".repeat(40_000));
    let mut longer = vec![&append[..]; 30];
    longer.extend([
        "SETRANGE range 3000000 z",
        "SETBIT bit 30000000 1",
        "BITFIELD field SET u8 #2000000 7",
    ]);
    let questions = ["STRLEN k", "STRLEN range", "STRLEN bit", "STRLEN field"];
    let answers = replay_under(&low, &longer, &questions);
    assert_eq!(answers, [":1200000\r\n", ":3000001\r\n", ":3750001\r\n", ":2000001\r\n"]);
}

#[test]
fn what_expires_while_a_script_keeps_its_changes_from_the_log_is_logged() {
    let dead = ["SET k old PX 5", "HSET h f old g w", "HPEXPIRE h 5 FIELDS 1 f", "wait 10"];
    let quiet = "redis.set_repl(redis.REPL_NONE) redis.call('set', 'none', 1)";
    for look in
        ["'get', KEYS[1]", "'exists', KEYS[1]", "'del', KEYS[1]", "'scan', 0", "'keys', '*'"]
    {
        let script = format!("EVAL \"{quiet} return redis.call({look})\" 1 k");
        let commands = [&dead[..], &[&script, "APPEND k x", "HINCRBY h f 1"]].concat();
        let answers = replay(&commands, &["GET k", "HGET h f"]);
        assert_eq!(answers, ["$1\r\nx\r\n", "$1\r\n1\r\n"], "{look}");
    }
}

#[test]
fn counters_beyond_what_a_command_takes_are_written_as_the_largest() {
    let claimed = replay(
        &[
            "XADD s 1-1 f v",
            "XGROUP CREATE s g 0",
            "XREADGROUP GROUP g c STREAMS s >",
            "XCLAIM s g d 0 1-1 RETRYCOUNT 9223372036854775807",
            "XCLAIM s g e 0 1-1",
        ],
        &["XPENDING s g"],
    );
    assert!(claimed[0].contains("$1\r\ne\r\n"), "{}", claimed[0]);
    replay(
        &[
            "XADD s 1-1 f v",
            "XSETID s 1-1 ENTRIESADDED 9223372036854775807",
            "XGROUP CREATE s g 1-1 ENTRIESREAD 9223372036854775807",
            "XADD s 1-2 f v",
            "XREADGROUP GROUP g c NOACK STREAMS s >",
        ],
        &["XREADGROUP GROUP g c STREAMS s >"],
    );
}

#[test]
fn a_bitfield_that_only_lengthens_a_string_is_logged() {
    for len in [10, 5_000, 300_000] {
        let set = format!("SETRANGE k {len} x");
        let bits = "BITFIELD k OVERFLOW FAIL INCRBY u8 4000000 256";
        assert_eq!(replay(&[&set, bits], &["STRLEN k"]), [":500001\r\n"]);
    }
}

/// A log made by hand: no server logs what waits.
#[test]
fn what_would_wait_in_a_log_takes_nothing_later() {
    let process = EmbeddedProcess::new(Config::new()).expect("a server can be made");
    let mut log = Vec::new();
    let commands = [
        "XADD streams 1-1 f v",
        "XGROUP CREATE streams g $",
        "BLPOP list 0",
        "BLMPOP 0 1 list LEFT",
        "BLMOVE list other LEFT RIGHT 0",
        "BZPOPMIN zset 0",
        "BZMPOP 0 1 zset MIN",
        "XREAD BLOCK 0 STREAMS streams $",
        "XREADGROUP GROUP g c BLOCK 0 STREAMS streams >",
        "WAIT 1 0",
    ];
    for command in commands {
        let words: Vec<_> = command.split(' ').collect();
        log.extend(format!("*{}\r\n", words.len()).bytes());
        for word in words {
            log.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
        }
    }
    let mut start = process.start().expect("there are threads for all");
    start.begin(None).expect("it is empty");
    assert_eq!(start.carry_out(&log), Ok(false));
    let mut asked = Asked::new(process);
    for (command, answer) in [
        ("RPUSH list v", ":1\r\n"),
        ("LLEN list", ":1\r\n"),
        ("ZADD zset 1 v", ":1\r\n"),
        ("ZCARD zset", ":1\r\n"),
        ("XADD streams 1-2 f v", "$3\r\n1-2\r\n"),
        ("XPENDING streams g", "*4\r\n:0\r\n$-1\r\n$-1\r\n*-1\r\n"),
        ("EXISTS other", ":0\r\n"),
    ] {
        assert_eq!(asked.ask(command), answer, "{command}");
    }
}

#[test]
fn what_has_expired_when_a_snapshot_is_reloaded_is_deleted_in_the_log() {
    let dead = ["SET k 5 PX 5", "HSET h f 5 g w", "HPEXPIRE h 5 FIELDS 1 f", "wait 10"];
    for reload in ["DEBUG RELOAD", "DEBUG RELOAD MERGE", "DEBUG RELOAD NOFLUSH MERGE"] {
        Disk::put_in(Some(Disk::default()));
        let commands = [&dead[..], &[reload, "INCR k", "HINCRBY h f 1"]].concat();
        let answers = replay(&commands, &["GET k", "PTTL k", "HGET h f", "HLEN h"]);
        Disk::put_in(None);
        assert_eq!(answers, ["$1\r\n1\r\n", ":-1\r\n", "$1\r\n1\r\n", ":2\r\n"], "{reload}");
    }
}
