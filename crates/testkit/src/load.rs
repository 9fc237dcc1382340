//! Random load of all kinds, on keys of all types.

use crate::TestConnection;
use crate::random::TestRandom;

/// Sends commands of all kinds: alone, in transactions, by scripts.
///
/// # Panics
/// When the server does not answer.
pub fn disturb(client: &mut TestConnection, seed: u64, count: usize) {
    disturb_by(client, seed, count, random_command);
}

/// As [`disturb`], but nothing has a deadline: what follows from it is the same at any time.
///
/// # Panics
/// When the server does not answer.
pub fn disturb_for_good(client: &mut TestConnection, seed: u64, count: usize) {
    let has_deadline = |words: &[String]| {
        words.iter().any(|word| ["PX", "PEXPIRE", "HPEXPIRE"].contains(&word.as_str()))
    };
    disturb_by(client, seed, count, |random| {
        loop {
            let words = random_command(random);
            if !has_deadline(&words) {
                return words;
            }
        }
    });
}

fn disturb_by(
    client: &mut TestConnection,
    seed: u64,
    count: usize,
    command: impl Fn(&mut TestRandom) -> Vec<String>,
) {
    let random = &mut TestRandom::new(seed);
    for at in 0..count {
        match random.below(20) {
            0 => {
                client.say("MULTI");
                client.say(&format!("SELECT {}", random.below(3)));
                for _ in 0..random.below(6) {
                    client.call(&command(random)).expect("it answers");
                }
                client.say("EXEC");
            }
            1 => {
                let script = "redis.call('INCR', KEYS[1]) redis.call('LPUSH', KEYS[2], ARGV[1])";
                let at = at.to_string();
                client.call(&["EVAL", script, "2", "n:1", "l:1", &at]).expect("it answers");
            }
            _ => {
                client.call(&command(random)).expect("it answers");
            }
        }
    }
}

/// A command of any kind, on a few keys.
fn random_command(random: &mut TestRandom) -> Vec<String> {
    let key = |random: &mut TestRandom, kind: &str| format!("{kind}:{}", random.below(20));
    let kinds = ["s", "l", "h", "z", "x", "t"];
    let any = {
        let kind = kinds[random.below(kinds.len())];
        key(random, kind)
    };
    let (s, l, h) = (key(random, "s"), key(random, "l"), key(random, "h"));
    let (z, x, t, n) = (key(random, "z"), key(random, "x"), key(random, "t"), random.below(100));
    let line = match random.below(24) {
        0 => format!("SET {s} {n}"),
        1 => format!("SET {s} {n} PX {}", 1 + random.below(50)),
        2 => format!("APPEND {s} {n}"),
        3 => format!("SETRANGE {s} {n} abc"),
        4 => format!("RPUSH {l} a b {n}"),
        5 => format!("LPOP {l} {}", 1 + n % 3),
        6 => format!("LMOVE {l} {} LEFT RIGHT", key(random, "l")),
        7 => format!("HSET {h} f{n} {n}"),
        8 => format!("HDEL {h} f{n}"),
        9 => format!("HPEXPIRE {h} {} FIELDS 1 f{n}", 1 + random.below(50)),
        10 => format!("ZADD {z} {n} m{n}"),
        11 => format!("ZPOPMIN {z}"),
        12 => format!("XADD {x} MAXLEN 50 * f {n}"),
        13 => format!("XTRIM {x} MAXLEN {n}"),
        14 => format!("SADD {t} {n} a b c"),
        15 => format!("SPOP {t} 2"),
        16 => format!("SUNIONSTORE {t} {} {}", key(random, "t"), key(random, "t")),
        17 => format!("PEXPIRE {any} {}", 1 + random.below(100)),
        18 => format!("DEL {any}"),
        19 => format!("COPY {s} {} REPLACE", key(random, "s")),
        20 => format!("RENAME {s} {}", key(random, "s")),
        21 => format!("PFADD p:{} {n}", n % 5),
        22 => format!("SETBIT b:{} {n} 1", n % 5),
        _ => format!("GETDEL {s}"),
    };
    line.split(' ').map(str::to_owned).collect()
}
