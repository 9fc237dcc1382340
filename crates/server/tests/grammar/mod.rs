//! Commands from any bytes, made after the syntax that their rows declare, and what a user with few
//! keys can do with them. Shared by `tests/planned_keys.rs` and the fuzz target `planned_keys`.
//!
//! The user may use the keys that begin with `open:`. Two servers hold the same data under those
//! names and different data under all others. Whatever the user asks, both must give the same
//! answer, and the data under other names must not change. So this finds any command that reads or
//! writes a key which its plan does not name, whatever the command does with that key.

use bobbin_server::config::{Config, OptionId};
use bobbin_server::embedded::{Embedded, EmbeddedSession};
use bobbin_server::engine::command::Command;
use bobbin_server::engine::row::syntax::{self, Argument, ArgumentKind};
use bobbin_server::engine::row::{Flags, KeyUse};
use bobbin_server::process::families;

type Words = Vec<Vec<u8>>;

/// A command that clients send, with its first words.
pub struct GrammarRow {
    pub name: String,
    words: Words,
    arguments: Vec<Argument>,
    pub has_keys: bool,
    blocks: bool,
    pub is_script: bool,
}

/// All commands but those that are about the process or every key, end the session, or need another
/// server.
pub fn rows() -> Vec<GrammarRow> {
    let mut rows = Vec::new();
    for command in families().into_iter().flatten() {
        if NOT_FOR_KEYS.contains(&command.row.name) || command.row.is_absent {
            continue;
        }
        if command.subcommands.is_empty() {
            rows.push(GrammarRow::new(command, &[command.row.name]));
        }
        for sub in command.subcommands.iter().filter(|sub| !sub.row.is_absent) {
            rows.push(GrammarRow::new(sub, &[command.row.name, sub.row.name]));
        }
    }
    rows
}

impl GrammarRow {
    fn new(command: &Command, words: &[&str]) -> Self {
        let row = &command.row;
        Self {
            name: words.join(" "),
            words: words.iter().map(|word| word.as_bytes().to_vec()).collect(),
            arguments: syntax::arguments(row.syntax, row.keys.len()),
            has_keys: row.keys.iter().any(|spec| !spec.usage.has(KeyUse::NOT_KEY)),
            blocks: row.flags.has(Flags::BLOCKING),
            is_script: row.flags.has(Flags::RUNS_SCRIPT),
        }
    }

    /// A command of this row; its keys are `open` or not.
    pub fn command(&self, choices: &mut Choices<'_>, keys: KeyNames) -> Words {
        let mut words = self.words.clone();
        let mut counts = Vec::new();
        for argument in &self.arguments {
            append(argument, choices, keys, &mut words, &mut counts);
        }
        words
    }
}

/// Which names are given to keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyNames {
    Open,
    Closed,
    Both,
}

impl KeyNames {
    fn name(self, choices: &mut Choices<'_>) -> Vec<u8> {
        let is_open = match self {
            Self::Open => true,
            Self::Closed => false,
            Self::Both => choices.one_in(2),
        };
        let what = choices.one_of(&HELD);
        format!("{}:{what}", if is_open { "open" } else { "closed" }).into_bytes()
    }
}

/// Appends an argument. `counts`: the places of the counts whose elements have not come yet.
fn append(
    argument: &Argument,
    choices: &mut Choices<'_>,
    keys: KeyNames,
    words: &mut Words,
    counts: &mut Vec<usize>,
) {
    if argument.optional && choices.one_in(2) {
        return;
    }
    let token = argument.token.as_ref().map(|token| token.trim_matches('"').as_bytes().to_vec());
    let times = if argument.multiple { 1 + choices.below(3) } else { 1 };
    let counted = counts.pop();
    for time in 0..times {
        if time == 0 || argument.multiple_token {
            words.extend(token.clone());
        }
        match argument.kind {
            ArgumentKind::PureToken => {}
            ArgumentKind::OneOf => {
                let chosen = &argument.arguments[choices.below(argument.arguments.len())];
                append(chosen, choices, keys, words, counts);
            }
            ArgumentKind::Block => {
                for inner in &argument.arguments {
                    append(inner, choices, keys, words, counts);
                }
            }
            ArgumentKind::Key => words.push(keys.name(choices)),
            ArgumentKind::Integer => words.push(choices.one_of(&INTEGERS).into()),
            ArgumentKind::Double => words.push(choices.one_of(&DOUBLES).into()),
            ArgumentKind::UnixTime => words.push(choices.one_of(&TIMES).into()),
            ArgumentKind::Pattern => words.push(b"*".to_vec()),
            ArgumentKind::String => words.push(value(&argument.name, choices)),
        }
    }
    if argument.name.starts_with("num") {
        counts.push(words.len() - 1);
    } else if let Some(at) = counted.filter(|_| !choices.one_in(8)) {
        words[at] = times.to_string().into_bytes();
    }
}

/// A value for an argument of this name.
fn value(name: &str, choices: &mut Choices<'_>) -> Vec<u8> {
    let of: &[&str] = match name {
        "group" => &["g", "STREAMS", "GROUP"],
        "consumer" => &["c", "STREAMS", "COUNT"],
        "id" | "lastid" | "last-id" | "max-deleted-id" => &["0", "9-1", "1-1", "$", ">", "*"],
        "start" | "end" | "stop" | "threshold" => &["0", "1", "-", "+", "1-1", "(1-1", "2-*"],
        "min-idle-time" => &["0", "1"],
        "script" => &["return 1"],
        "min" | "max" => &["-inf", "+inf", "-", "+", "(1", "[a", "0", "9"],
        "encoding" => &["u8", "i16", "u63"],
        "offset" => &["0", "#1", "7"],
        "operation" => &["AND", "OR", "XOR", "NOT"],
        "serialized-value" => return RESTORED.to_vec(),
        "key-selector" => &["", "open:string"],
        "unit" => &["m", "km"],
        "member" | "element" | "pivot" | "member1" | "member2" => &["a", "b", "c", "open:string"],
        "field" => &["f", "g", "open:string"],
        _ => &["v", "7", "open:hash", "closed:hash", "STREAMS", "STORE", "KEYS", "a"],
    };
    choices.one_of(of).into()
}

/// Random choices.
pub struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    /// When the bytes are used up every choice is the first.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub fn below(&mut self, limit: usize) -> usize {
        let [first, rest @ ..] = self.bytes else { return 0 };
        self.bytes = rest;
        usize::from(*first) % limit
    }

    pub fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 1
    }

    fn one_of<'b>(&mut self, words: &[&'b str]) -> &'b str {
        words[self.below(words.len())]
    }
}

/// How a command is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendWay {
    Alone,
    Exec,
    Script,
}

pub const WAYS: [SendWay; 3] = [SendWay::Alone, SendWay::Exec, SendWay::Script];

/// The two servers.
pub struct Walls {
    sides: [Side; 2],
}

struct Side {
    embedded: Embedded,
    owner: EmbeddedSession,
    /// What DEBUG DIGEST-VALUE says of the keys that are closed.
    closed: Vec<u8>,
}

impl Walls {
    pub fn new() -> Self {
        Self { sides: [true, false].map(Side::new) }
    }

    /// Has the user send a command; whether it succeeded. Panics if it reads or writes what is
    /// closed.
    pub fn send(&mut self, row: &GrammarRow, words: &[Vec<u8>], way: SendWay) -> bool {
        // The user would wait until another client comes.
        let way = if row.blocks && way == SendWay::Alone { SendWay::Exec } else { way };
        let way = if row.is_script { SendWay::Alone } else { way };
        let shown: Vec<_> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
        let shown = format!("{way:?}: {}", shown.join(" "));
        let [first, second] = self.sides.each_mut().map(|side| side.send(words, way, &shown));
        if row.has_keys {
            assert!(
                first == second,
                "{shown}\nwith something behind the wall {}\nwith something else {}",
                first.escape_ascii(),
                second.escape_ascii(),
            );
        }
        let answer = first.strip_prefix(b"+OK\r\n+QUEUED\r\n*1\r\n").unwrap_or(&first);
        let is_refused = way == SendWay::Exec && answer.len() == first.len();
        !answer.starts_with(b"-") && !is_refused
    }
}

impl Side {
    fn new(is_first: bool) -> Self {
        let config = Config::new();
        for (option, value) in [
            (OptionId::io_driver, "epoll"),
            (OptionId::enable_debug_command, "yes"),
            // Nothing here is to take long or much.
            (OptionId::proto_max_bulk_len, "1mb"),
        ] {
            config.set_internally(option, value).expect("it is an option");
        }
        let mut embedded = Embedded::new(config, 1).expect("a server can be made");
        embedded.set_time(NOW_MS);
        let mut owner = embedded.connect();
        ask(&mut embedded, &mut owner, "ACL SETUSER user on nopass ~open:* &open:* +@all");
        let mut side = Self { embedded, owner, closed: Vec::new() };
        side.fill(if is_first { "closed" } else { "" });
        if !is_first {
            // Other kinds of values, and fewer.
            for line in ["RPUSH closed:string x y", "SET closed:list 5", "SET closed:stream z"] {
                ask(&mut side.embedded, &mut side.owner, line);
            }
        }
        side.fill("open");
        side.closed = side.digest();
        side
    }

    /// Puts the values under names that begin so; under none if that is empty.
    fn fill(&mut self, prefix: &str) {
        if prefix.is_empty() {
            return;
        }
        for line in VALUES {
            let secret = if prefix == "open" { "public" } else { "sEcReT" };
            let line = line.replace("NAME", prefix).replace("VALUE", secret);
            let reply = ask(&mut self.embedded, &mut self.owner, &line);
            assert!(!reply.starts_with(b"-"), "{line}: {}", reply.escape_ascii());
        }
    }

    fn digest(&mut self) -> Vec<u8> {
        let names = HELD.map(|what| format!("closed:{what}")).join(" ");
        let asked = format!("DEBUG DIGEST-VALUE {names}");
        let digest = ask(&mut self.embedded, &mut self.owner, &asked);
        assert!(digest.starts_with(b"*8\r\n+"), "{}", digest.escape_ascii());
        digest
    }

    fn send(&mut self, words: &[Vec<u8>], way: SendWay, shown: &str) -> Vec<u8> {
        // A command about all keys draws other numbers on each side.
        self.embedded.set_random(1);
        let mut session = self.embedded.connect();
        let mut sent = Vec::new();
        let script: Words = match way {
            SendWay::Alone | SendWay::Exec => words.to_vec(),
            SendWay::Script => {
                let eval = [&b"EVAL"[..], b"return redis.pcall(unpack(ARGV))", b"0"];
                eval.into_iter().map(<[u8]>::to_vec).chain(words.iter().cloned()).collect()
            }
        };
        encode(&[b"AUTH".to_vec(), b"user".to_vec(), b"x".to_vec()], &mut sent);
        if way == SendWay::Exec {
            encode(&[b"MULTI".to_vec()], &mut sent);
        }
        encode(&script, &mut sent);
        if way == SendWay::Exec {
            encode(&[b"EXEC".to_vec()], &mut sent);
        }
        let reply = self.embedded.feed(&mut session, &sent).to_vec();
        self.embedded.disconnect(session);
        assert!(reply.starts_with(b"+OK\r\n"), "{shown}: {}", reply.escape_ascii());
        assert!(!contains(&reply, b"internal error"), "{shown}: {}", reply.escape_ascii());
        assert!(!contains(&reply, SECRET), "{shown}: {}", reply.escape_ascii());
        assert!(self.digest() == self.closed, "{shown} changed what is closed");
        // What is open is as it was before, for the next command.
        let names = HELD.map(|what| format!("open:{what}")).join(" ");
        ask(&mut self.embedded, &mut self.owner, &format!("DEL {names}"));
        self.fill("open");
        reply[b"+OK\r\n".len()..].to_vec()
    }
}

fn ask(embedded: &mut Embedded, session: &mut EmbeddedSession, line: &str) -> Vec<u8> {
    let mut sent = Vec::new();
    let words: Words = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    encode(&words, &mut sent);
    embedded.feed(session, &sent).to_vec()
}

fn encode(command: &[Vec<u8>], output: &mut Vec<u8>) {
    output.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
    for word in command {
        output.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        output.extend_from_slice(word);
        output.extend_from_slice(b"\r\n");
    }
}

/// Compares several bytes at few places: a fuzzer follows each comparison.
fn contains(text: &[u8], part: &[u8]) -> bool {
    (0..text.len()).any(|at| text[at] == part[0] && text[at..].starts_with(part))
}

const NOW_MS: i64 = 1_700_000_000_000;
const SECRET: &[u8] = b"sEcReT";
/// Of the values below, and one that is not there.
const HELD: [&str; 8] = ["string", "number", "list", "set", "hash", "sorted", "stream", "none"];
const VALUES: [&str; 9] = [
    "SET NAME:string VALUE",
    "SET NAME:number 42",
    "RPUSH NAME:list a VALUE b",
    "SADD NAME:set a VALUE b",
    "HSET NAME:hash f VALUE g 7",
    "GEOADD NAME:sorted 13.3 38.1 a 15 37 VALUE 2 3 b",
    "XADD NAME:stream 1-1 f VALUE",
    "XADD NAME:stream 2-1 f v",
    "XGROUP CREATE NAME:stream g 0",
];
const INTEGERS: [&str; 8] =
    ["0", "1", "2", "-1", "3", "100", "9223372036854775807", "-9223372036854775808"];
const DOUBLES: [&str; 7] = ["0", "1.5", "-1", "15", "37", "inf", "nan"];
const TIMES: [&str; 3] = ["1700000100", "1700000100000", "1"];
/// What DUMP gives of the string `7`.
const RESTORED: &[u8] = b"\x00\xc0\x07\x50\x00\xbb\xe7\x81\x33\x1d\xf9\xa9\x66";
/// Commands that are about the process, all keys, users or the session, or need another server or a
/// terminal.
const NOT_FOR_KEYS: [&str; 34] = [
    "acl",
    "asking",
    "auth",
    "bgrewriteaof",
    "bgsave",
    "client",
    "cluster",
    "config",
    "debug",
    "discard",
    "exec",
    "failover",
    "flushall",
    "flushdb",
    "function",
    "hello",
    "hotkeys",
    "info",
    "latency",
    "migrate",
    "module",
    "monitor",
    "multi",
    "psync",
    "quit",
    "readonly",
    "replicaof",
    "reset",
    "save",
    "script",
    "shutdown",
    "slaveof",
    "swapdb",
    "sync",
];
