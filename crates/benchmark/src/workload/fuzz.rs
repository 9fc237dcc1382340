//! Random commands, made from what a server says about its own: the reply of COMMAND DOCS.
//!
//! Most of them are right, for most keys are of the type that their command wants, and few enough
//! to be met again. Left out is what would end the server or the conversation, or makes sense only
//! with bytes that chance does not find.

use bobbin_client::Value;

use super::WorkloadRandom;

/// All commands of a server that may be tried.
#[derive(Clone, Debug)]
pub struct Fuzz {
    commands: Vec<Command>,
    /// What may be set, if anything may.
    options: ServerOptions,
}

/// Options of the server with the values that they have.
pub type ServerOptions = Vec<(Vec<u8>, Vec<u8>)>;

/// A command, with the name of a subcommand.
#[derive(Clone, Debug)]
struct Command {
    words: Vec<Vec<u8>>,
    /// What keys of its type are called.
    group: &'static str,
    arguments: Vec<Argument>,
}

#[derive(Clone, Debug)]
struct Argument {
    name: String,
    token: Option<Vec<u8>>,
    kind: Kind,
    is_optional: bool,
    is_multiple: bool,
    repeats_token: bool,
}

#[derive(Clone, Debug)]
enum Kind {
    Key,
    Integer,
    Double,
    Time,
    Text,
    /// The token is all there is.
    Token,
    OneOf(Vec<Argument>),
    Block(Vec<Argument>),
}

impl Fuzz {
    /// Reads the reply of COMMAND DOCS. `options` are set now and then, to what they are.
    pub fn read(docs: &Value, options: ServerOptions) -> Result<Self, String> {
        let mut commands = Vec::new();
        for (name, about) in pairs(docs) {
            add_commands(&mut commands, &[], &name, about);
        }
        if commands.is_empty() {
            return Err("The server says nothing about its commands (COMMAND DOCS)".to_owned());
        }
        Ok(Self { commands, options })
    }

    /// The words of one command. Where `is_malformed`, something is wrong with them.
    pub fn draw(&self, random: &mut WorkloadRandom, is_malformed: bool) -> Vec<Vec<u8>> {
        if !self.options.is_empty() && one_in(random, OPTIONS_ONE_IN) {
            let (name, value) = pick(random, &self.options);
            return vec![b"CONFIG".to_vec(), b"SET".to_vec(), name.clone(), value.clone()];
        }
        let command = pick(random, &self.commands);
        let mut words = command.words.clone();
        sequence(random, &command.arguments, command.group, &mut words);
        if is_malformed {
            spoil(random, &mut words);
        }
        words
    }
}

fn add_commands(commands: &mut Vec<Command>, before: &[Vec<u8>], name: &[u8], about: &Value) {
    // Subcommands are called `client|list`.
    let name = name.rsplit(|&byte| byte == b'|').next().unwrap_or_default();
    let words = [before, &[name.to_ascii_uppercase()]].concat();
    let full = words.join(&b' ');
    if LEFT_OUT.iter().any(|left| is_under(&full, left.as_bytes())) {
        return;
    }
    if let Some(subcommands) = field(about, "subcommands") {
        for (name, about) in pairs(subcommands) {
            add_commands(commands, &words, &name, about);
        }
        return;
    }
    let group = field(about, "group").and_then(Value::as_bytes).unwrap_or_default();
    let group = GROUPS.iter().find(|(known, _)| known.as_bytes() == group);
    commands.push(Command {
        words,
        group: group.map_or("any", |(_, keys)| keys),
        arguments: arguments(about),
    });
}

/// Whether a command is one of those that `left` names: it, or all its subcommands.
fn is_under(full: &[u8], left: &[u8]) -> bool {
    full == left || full.strip_prefix(left).is_some_and(|rest| rest.starts_with(b" "))
}

fn arguments(about: &Value) -> Vec<Argument> {
    let list = field(about, "arguments").and_then(Value::as_elements).unwrap_or_default();
    list.iter().map(argument).collect()
}

fn argument(about: &Value) -> Argument {
    let text = |name| {
        let value = field(about, name).and_then(Value::as_bytes).unwrap_or_default();
        String::from_utf8_lossy(value).into_owned()
    };
    let flags: Vec<_> = field(about, "flags")
        .and_then(Value::as_elements)
        .unwrap_or_default()
        .iter()
        .filter_map(Value::as_bytes)
        .collect();
    Argument {
        name: text("name").to_ascii_lowercase(),
        token: field(about, "token").and_then(Value::as_bytes).map(<[u8]>::to_vec),
        kind: match text("type").as_str() {
            "key" => Kind::Key,
            "integer" => Kind::Integer,
            "double" => Kind::Double,
            "unix-time" => Kind::Time,
            "pure-token" => Kind::Token,
            "oneof" => Kind::OneOf(arguments(about)),
            "block" => Kind::Block(arguments(about)),
            _ => Kind::Text,
        },
        is_optional: flags.contains(&&b"optional"[..]),
        is_multiple: flags.contains(&&b"multiple"[..]),
        repeats_token: flags.contains(&&b"multiple_token"[..]),
    }
}

/// Names and values of a map, in either version of the protocol.
fn pairs(value: &Value) -> Vec<(Vec<u8>, &Value)> {
    let name = |value: &Value| value.as_bytes().unwrap_or_default().to_vec();
    match value {
        Value::Map(pairs) => pairs.iter().map(|(key, value)| (name(key), value)).collect(),
        other => other
            .as_elements()
            .unwrap_or_default()
            .chunks_exact(2)
            .map(|pair| (name(&pair[0]), &pair[1]))
            .collect(),
    }
}

fn field<'a>(value: &'a Value, wanted: &str) -> Option<&'a Value> {
    pairs(value).into_iter().find(|(name, _)| name == wanted.as_bytes()).map(|(_, value)| value)
}

fn sequence(random: &mut WorkloadRandom, list: &[Argument], group: &str, words: &mut Vec<Vec<u8>>) {
    let mut at = 0;
    while let Some(argument) = list.get(at) {
        at += 1;
        let next = list.get(at).filter(|next| next.is_multiple && argument.name == "numkeys");
        // A number of keys is that of the keys behind it.
        if let Some(keys) = next {
            let count = 1 + random.below(REPEATS_MAX);
            words.extend(argument.token.clone());
            words.push(count.to_string().into_bytes());
            for _ in 0..count {
                once(random, keys, group, words);
            }
            at += 1;
        } else if !argument.is_optional || one_in(random, OPTIONAL_ONE_IN) {
            write(random, argument, group, words);
        }
    }
}

fn write(random: &mut WorkloadRandom, argument: &Argument, group: &str, words: &mut Vec<Vec<u8>>) {
    let count = if argument.is_multiple { 1 + random.below(REPEATS_MAX) } else { 1 };
    for number in 0..count {
        if number == 0 || argument.repeats_token {
            words.extend(argument.token.clone());
        }
        once(random, argument, group, words);
    }
}

fn once(random: &mut WorkloadRandom, argument: &Argument, group: &str, words: &mut Vec<Vec<u8>>) {
    let word = match &argument.kind {
        Kind::Token => return,
        Kind::OneOf(choices) if choices.is_empty() => return,
        Kind::OneOf(choices) => {
            let choice = pick(random, choices);
            return write(random, choice, group, words);
        }
        Kind::Block(parts) => return sequence(random, parts, group, words),
        Kind::Key => {
            let stray = one_in(random, STRAY_KEY_ONE_IN) || group == "any";
            let group = if stray { pick(random, &GROUPS).1 } else { group };
            format!("fuzz:{group}:{}", random.below(KEYS))
        }
        // Nobody wants to wait for long.
        Kind::Integer | Kind::Double if WAITS.iter().any(|wait| argument.name.contains(wait)) => {
            if matches!(argument.kind, Kind::Double) { "0.01".into() } else { "1".into() }
        }
        Kind::Integer if argument.name == "cursor" => "0".into(),
        Kind::Integer => match random.below(20) {
            0 => format!("-{}", random.below(100)),
            1 => random.below(1 << 20).to_string(),
            _ => random.below(100).to_string(),
        },
        Kind::Double => format!("{}.{}", random.below(100), random.below(100)),
        Kind::Time => (UNIX_TIME + random.below(1 << 30)).to_string(),
        Kind::Text => text(random, &argument.name),
    };
    words.push(word.into_bytes());
}

/// A word for an argument of that name.
fn text(random: &mut WorkloadRandom, name: &str) -> String {
    match name {
        "id" | "start" | "end" | "lastid" | "min-idle-time" if one_in(random, 2) => {
            ["*", "0", "$", "-", "+", "1-1", "0-0"][random.below(7) as usize].into()
        }
        "min" | "max" => {
            ["-inf", "+inf", "0", "(5", "[a", "-", "+", "(z"][random.below(8) as usize].into()
        }
        "pattern" => ["*", "fuzz:*", "m?mber*", "[a-f]*"][random.below(4) as usize].into(),
        "encoding" => format!("{}{}", ["u", "i"][random.below(2) as usize], 1 + random.below(63)),
        _ => match random.below(4) {
            0 => random.below(1000).to_string(),
            1 => format!("value:{}", "x".repeat(random.below(200) as usize)),
            _ => format!("member:{}", random.below(30)),
        },
    }
}

/// Makes a command wrong in one of several ways; it may happen to stay right.
fn spoil(random: &mut WorkloadRandom, words: &mut Vec<Vec<u8>>) {
    let at = random.below(words.len() as u64) as usize;
    match random.below(6) {
        0 => words.truncate(at.max(1)),
        1 => words.insert(at + 1, b"surplus".to_vec()),
        2 => words[at] = Vec::new(),
        3 => words[at] = (0..random.below(300)).map(|_| random.below(256) as u8).collect(),
        4 => words[at] = pick(random, &EXTREMES).as_bytes().to_vec(),
        _ => words.swap(at, 0),
    }
}

fn pick<'a, T>(random: &mut WorkloadRandom, from: &'a [T]) -> &'a T {
    &from[random.below(from.len() as u64) as usize]
}

fn one_in(random: &mut WorkloadRandom, count: u64) -> bool {
    random.below(count) == 0
}

/// Groups of commands and what keys of their type are called.
const GROUPS: [(&str, &str); 9] = [
    ("string", "string"),
    ("bitmap", "bitmap"),
    ("list", "list"),
    ("set", "set"),
    ("sorted-set", "zset"),
    ("hash", "hash"),
    ("stream", "stream"),
    ("hyperloglog", "hll"),
    ("geo", "geo"),
];

/// Commands that end the server or the conversation, hold all clients up, need bytes that chance
/// does not find, or reach other machines.
const LEFT_OUT: [&str; 43] = [
    "ACL DELUSER",
    "ACL LOAD",
    "ACL SAVE",
    "ACL SETUSER",
    "AUTH",
    "BGREWRITEAOF",
    "BGSAVE",
    "CLIENT KILL",
    "CLIENT NO-EVICT",
    "CLIENT PAUSE",
    "CLIENT REPLY",
    "CLIENT TRACKING",
    "CLUSTER",
    "CONFIG REWRITE",
    "CONFIG SET",
    "DEBUG",
    "FAILOVER",
    "FUNCTION KILL",
    "FUNCTION RESTORE",
    "HELLO",
    "LATENCY HISTOGRAM",
    "MIGRATE",
    "MODULE",
    "MONITOR",
    "PSUBSCRIBE",
    "PSYNC",
    "QUIT",
    "READONLY",
    "REPLCONF",
    "REPLICAOF",
    "RESET",
    "RESTORE",
    "RESTORE-ASKING",
    "SAVE",
    "SCRIPT DEBUG",
    "SCRIPT KILL",
    "SHUTDOWN",
    "SLAVEOF",
    "SSUBSCRIBE",
    "SUBSCRIBE",
    "SYNC",
    "WAIT",
    "WAITAOF",
];

const WAITS: [&str; 3] = ["timeout", "milliseconds", "block"];
const EXTREMES: [&str; 8] = [
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "1e999",
    "nan",
    "-inf",
    "0x10",
    "3.0e-320",
];
const KEYS: u64 = 8;
const REPEATS_MAX: u64 = 3;
const OPTIONAL_ONE_IN: u64 = 3;
const STRAY_KEY_ONE_IN: u64 = 30;
const OPTIONS_ONE_IN: u64 = 20;
/// Somewhen in 2033: what expires then does not expire in a run.
const UNIX_TIME: u64 = 2_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    fn map(pairs: Vec<(&str, Value)>) -> Value {
        Value::Array(pairs.into_iter().flat_map(|(name, value)| [bulk(name), value]).collect())
    }

    fn documented() -> Fuzz {
        let key = || map(vec![("name", bulk("key")), ("type", bulk("key"))]);
        let keys = map(vec![
            ("name", bulk("key")),
            ("type", bulk("key")),
            ("flags", Value::Array(vec![bulk("multiple")])),
        ]);
        let count = map(vec![("name", bulk("numkeys")), ("type", bulk("integer"))]);
        let limit =
            map(vec![("name", bulk("limit")), ("type", bulk("integer")), ("token", bulk("LIMIT"))]);
        let about = |group: &str, arguments: Vec<Value>| {
            map(vec![("group", bulk(group)), ("arguments", Value::Array(arguments))])
        };
        let client = map(vec![(
            "subcommands",
            map(vec![
                ("client|kill", about("connection", vec![])),
                ("client|id", about("connection", vec![])),
            ]),
        )]);
        let docs = map(vec![
            ("get", about("string", vec![key()])),
            ("sintercard", about("set", vec![count, keys, limit])),
            ("client", client),
            ("shutdown", about("server", vec![])),
        ]);
        Fuzz::read(&docs, Vec::new()).unwrap()
    }

    #[test]
    fn commands_are_as_documented() {
        let fuzz = documented();
        let mut random = WorkloadRandom::new(1);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..500 {
            let words = fuzz.draw(&mut random, false);
            seen.insert(String::from_utf8_lossy(&words[0]).into_owned());
            match words[0].as_slice() {
                b"GET" => assert!(words.len() == 2 && words[1].starts_with(b"fuzz:")),
                b"SINTERCARD" => {
                    let count: usize = String::from_utf8_lossy(&words[1]).parse().unwrap();
                    assert_eq!(words[2 + count], b"LIMIT", "{words:?}");
                }
                b"CLIENT" => assert_eq!(words[1], b"ID"),
                other => panic!("{}", other.escape_ascii()),
            }
        }
        assert_eq!(seen.len(), 3);
        for _ in 0..500 {
            assert!(!fuzz.draw(&mut random, true).is_empty());
        }
        assert!(Fuzz::read(&Value::Array(Vec::new()), Vec::new()).is_err());
    }
}
