//! Commands after the syntax that COMMAND DOCS tells, and such as are nearly right.

use std::collections::BTreeMap;

use bobbin_testkit::ReplyFrame;
use bobbin_testkit::random::TestRandom;

/// A command, or a subcommand with its container's name.
pub(super) struct ComparedCommand {
    /// `XGROUP CREATE`.
    pub name: String,
    pub group: String,
    arguments: Vec<Argument>,
}

struct Argument {
    name: String,
    kind: String,
    token: Option<String>,
    is_optional: bool,
    is_multiple: bool,
    repeats_token: bool,
    arguments: Vec<Self>,
}

/// All commands of a reply to COMMAND DOCS.
pub(super) fn rows(reply: &ReplyFrame) -> Vec<ComparedCommand> {
    let mut rows = Vec::new();
    for pair in reply.items().chunks_exact(2) {
        let fields = map(&pair[1]);
        let subcommands = fields.get("subcommands").map_or(&[][..], |reply| reply.items());
        if subcommands.is_empty() {
            rows.push(ComparedCommand {
                name: pair[0].text().to_uppercase().replace('|', " "),
                group: fields.get("group").map(|reply| reply.text()).unwrap_or_default(),
                arguments: arguments(&fields),
            });
        }
        rows.extend(
            subcommands
                .chunks_exact(2)
                .flat_map(|pair| self::rows(&ReplyFrame::array(pair.to_vec()))),
        );
    }
    rows
}

fn map(reply: &ReplyFrame) -> BTreeMap<String, &ReplyFrame> {
    reply.items().chunks_exact(2).map(|pair| (pair[0].text(), &pair[1])).collect()
}

fn arguments(fields: &BTreeMap<String, &ReplyFrame>) -> Vec<Argument> {
    let rows = fields.get("arguments").map_or(&[][..], |reply| reply.items());
    rows.iter().map(|row| argument(&map(row))).collect()
}

fn argument(fields: &BTreeMap<String, &ReplyFrame>) -> Argument {
    let text = |name: &str| fields.get(name).map(|reply| reply.text());
    let flags = fields.get("flags").map_or(&[][..], |reply| reply.items());
    let has = |flag: &str| flags.iter().any(|it| it.text() == flag);
    Argument {
        name: text("name").unwrap_or_default(),
        kind: text("type").unwrap_or_default(),
        token: text("token"),
        is_optional: has("optional"),
        is_multiple: has("multiple"),
        repeats_token: has("multiple_token"),
        arguments: arguments(fields),
    }
}

impl ComparedCommand {
    /// A command, mostly nearly right.
    pub(super) fn command(&self, random: &mut TestRandom) -> Vec<Vec<u8>> {
        let mut made = Made { random, words: Vec::new(), counts: Vec::new() };
        for argument in &self.arguments {
            made.append(argument);
        }
        let mut words = made.words;
        for _ in 0..[0, 0, 0, 1, 1, 2][random.below(6)] {
            spoil(&mut words, random);
        }
        let name = self.name.split(' ').map(str::to_owned);
        name.chain(words).map(String::into_bytes).collect()
    }
}

/// Drops, adds, replaces, repeats or moves a word.
fn spoil(words: &mut Vec<String>, random: &mut TestRandom) {
    let at = random.below(words.len() + 1);
    let other = || ODD[0].to_owned();
    match random.below(5) {
        0 if at < words.len() => drop(words.remove(at)),
        1 => words.insert(at, one_of(&ODD, random)),
        2 if at < words.len() => words[at] = one_of(&ODD, random),
        3 if at < words.len() => {
            let word = words.get(at).cloned().unwrap_or_else(other);
            let to = random.below(words.len() + 1);
            words.insert(to, word);
        }
        _ if words.len() > 1 => {
            let to = random.below(words.len());
            words.swap(at % to.max(1), to);
        }
        _ => words.push(one_of(&ODD, random)),
    }
}

struct Made<'a> {
    random: &'a mut TestRandom,
    words: Vec<String>,
    /// Places of the counts whose elements have not come yet.
    counts: Vec<usize>,
}

impl Made<'_> {
    fn append(&mut self, argument: &Argument) {
        if argument.is_optional && self.random.below(2) == 0 {
            return;
        }
        let times = if argument.is_multiple { 1 + self.random.below(3) } else { 1 };
        let counted = self.counts.pop();
        for time in 0..times {
            if time == 0 || argument.repeats_token {
                self.words.extend(argument.token.clone());
            }
            match argument.kind.as_str() {
                "pure-token" => {}
                "oneof" if !argument.arguments.is_empty() => {
                    let chosen = self.random.below(argument.arguments.len());
                    self.append(&argument.arguments[chosen]);
                }
                "oneof" | "block" => argument.arguments.iter().for_each(|it| self.append(it)),
                kind => {
                    let word = value(kind, &argument.name, self.random);
                    self.words.push(word);
                }
            }
        }
        if argument.name.starts_with("num") && !self.words.is_empty() {
            self.counts.push(self.words.len() - 1);
        } else if let Some(at) = counted.filter(|_| self.random.below(6) != 0) {
            self.words[at] = times.to_string();
        }
    }
}

fn value(kind: &str, name: &str, random: &mut TestRandom) -> String {
    let of: &[&str] = match (kind, name) {
        ("key", _) => &KEYS,
        (_, "timeout") => &["0.01", "-1", "x", "0", "1e-3"],
        // None that is over before the next command.
        (_, "milliseconds") => &["100000", "0", "-1", "x", "9223372036854775807", "1.5", ""],
        ("integer", _) => &INTEGERS,
        ("double", _) => &DOUBLES,
        ("unix-time", _) => &TIMES,
        ("pattern", _) => &["*", "k*", "[", "?"],
        (_, "group") => &["g", "g2", "nosuch"],
        (_, "consumer") => &["c", "d"],
        (_, "id" | "lastid" | "last-id" | "max-deleted-id") => {
            &["0", "9-1", "1-1", "$", ">", "1-*", "x", "0-0", "18446744073709551615-1", "2-1"]
        }
        (_, "start" | "end" | "stop" | "threshold") => {
            &["0", "1", "-1", "-", "+", "1-1", "(1-1", "2-1", "x", "5"]
        }
        (_, "min-idle-time") => &["0", "1", "x", "-1"],
        (_, "script") => &["return 1", "return redis.call('GET', KEYS[1])", "x", "return {1,2}"],
        (_, "min" | "max") => &["-inf", "+inf", "-", "+", "(1", "[a", "(a", "0", "9", "x", "(x"],
        (_, "encoding") => &["u8", "i16", "u63", "u64", "i64", "i65", "x8", "u0"],
        (_, "offset") => &["0", "#1", "7", "-1", "#-1", "x", "4294967295"],
        (_, "operation") => &["AND", "OR", "XOR", "NOT", "x"],
        (_, "serialized-value") => &["x", ""],
        (_, "rule") => &[
            "on",
            "off",
            "nopass",
            ">p",
            "+get",
            "-@all",
            "+@read",
            "~k*",
            "%R~x",
            "&c*",
            "allkeys",
            "resetkeys",
            "(+get ~x)",
            "(",
            "+config|get",
            "+nosuch",
            "%x~a",
            "reset",
            "#12",
            "<p",
            "+@nosuch",
            "-config|nosuch",
            "sanitize-payload",
            "allchannels",
            "alldbs",
            "db=1",
            "x",
        ],
        (_, "unit") => &["m", "km", "parsec"],
        (_, "subcommand" | "command") => &["GET", "nosuch", "XADD"],
        (_, "member" | "element" | "pivot" | "member1" | "member2" | "field") => {
            &["a", "b", "c", "f", "g", "", "12", "x"]
        }
        _ => &["v", "7", "a", "f", "x", "", "-1", "1.5", "default", "string"],
    };
    one_of(of, random)
}

fn one_of(words: &[&str], random: &mut TestRandom) -> String {
    words[random.below(words.len())].to_owned()
}

/// The keys that commands name.
pub(super) const KEYS: [&str; 12] = [
    "string", "number", "list", "set", "numbers", "hash", "sorted", "stream", "bits", "none",
    "other", "hll",
];
const INTEGERS: [&str; 19] = [
    "0",
    "1",
    "2",
    "-1",
    "3",
    "10",
    "100000",
    "-2",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "x",
    "",
    "1.5",
    "007",
    "+1",
    " 1",
    "4294967296",
    "-100000",
];
const DOUBLES: [&str; 13] =
    ["0", "1.5", "-1", "15", "37", "inf", "nan", "x", "1e400", "-inf", "", "0x10", "1e3"];
const TIMES: [&str; 5] = ["1900000000", "1900000000000", "1", "-1", "x"];
/// What is put where it does not belong.
const ODD: [&str; 40] = [
    "x",
    "",
    "0",
    "1",
    "-1",
    "9223372036854775807",
    "string",
    "list",
    "hash",
    "none",
    "STORE",
    "COUNT",
    "LIMIT",
    "WITHSCORES",
    "WITHVALUES",
    "NX",
    "XX",
    "GT",
    "LT",
    "CH",
    "INCR",
    "EX",
    "PX",
    "KEEPTTL",
    "GET",
    "PERSIST",
    "BYSCORE",
    "BYLEX",
    "REV",
    "FIELDS",
    "STREAMS",
    "MAXLEN",
    "~",
    "=",
    "BLOCK",
    "NOACK",
    "ANY",
    "ASC",
    "WEIGHTS",
    "AGGREGATE",
];
