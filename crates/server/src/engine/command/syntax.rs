//! From a row's syntax to the tree of arguments that COMMAND DOCS shows.
//!
//! A syntax is written as on a command's page: `key [NX | XX] [EX seconds] [GET pattern [GET
//! pattern ...]]`. Words in capitals (and signs such as `*`) are tokens that are typed as they
//! stand, others are names of values. `[ ]` is optional, `< >` groups, `|` separates alternatives,
//! and a bracket that repeats what stands before it and ends in `...` says that this may come
//! again; so does `...` behind a group: `<A | B> ...`. A token and the group behind it are one
//! argument: `STREAMS <key [key ...] id [id ...]>`. What a value is follows from its name, by the
//! tables at the end.
//!
//! Notes behind an argument say what cannot be seen: `:name` how it is called, if otherwise than it
//! is written, `@6.2.0` since which version it is there, `@..2.8.12` since when it should not be
//! used, `#1` which key specification it belongs to.

/// One argument.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Argument {
    pub name: String,
    /// As it is shown; empty for choices and blocks.
    pub display: String,
    pub kind: Kind,
    /// The word that comes before the value, or is all there is.
    pub token: Option<String>,
    pub optional: bool,
    pub multiple: bool,
    /// The token is repeated with each value.
    pub multiple_token: bool,
    /// The version that brought it, and the one since which it should not be used.
    pub since: Option<String>,
    pub deprecated: Option<String>,
    /// Of a key: which of the command's key specifications finds it.
    pub key_spec: Option<usize>,
    /// Of a choice the alternatives, of a block its parts.
    pub arguments: Vec<Self>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Kind {
    #[default]
    String,
    Integer,
    Double,
    Key,
    Pattern,
    UnixTime,
    PureToken,
    OneOf,
    Block,
}

impl Kind {
    /// As COMMAND DOCS writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Double => "double",
            Self::Key => "key",
            Self::Pattern => "pattern",
            Self::UnixTime => "unix-time",
            Self::PureToken => "pure-token",
            Self::OneOf => "oneof",
            Self::Block => "block",
        }
    }
}

/// A syntax for people: without notes.
pub fn plain(syntax: &str) -> String {
    let words = syntax.split_whitespace().filter_map(|word| {
        let text = word.trim_end_matches([']', '>']);
        match Note::parse(text) {
            None => Some(word),
            // The brackets that it ends in are not part of it.
            Some(_) => Some(&word[text.len()..]).filter(|brackets| !brackets.is_empty()),
        }
    });
    let mut plain = String::with_capacity(syntax.len());
    for word in words {
        if !plain.is_empty() && !word.starts_with([']', '>']) {
            plain.push(' ');
        }
        plain.push_str(word);
    }
    plain
}

/// The arguments of a command. `key_specs`: how many key specifications it has. Nothing when the
/// syntax is not well formed; a test sees to it that every row's is.
pub fn arguments(command: &str, syntax: &str, key_specs: usize) -> Vec<Argument> {
    let Some(sequence) = parse(syntax) else { return Vec::new() };
    let mut arguments = convert(&sequence);
    let mut next_key = 0;
    for argument in &mut arguments {
        finish(argument, command, key_specs, &mut next_key);
    }
    arguments
}

// Reading.

/// A word, a bracketed group, or a note about what stands before it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Word(String),
    Note(Note),
    Group {
        optional: bool,
        alternatives: Vec<Vec<Self>>,
        /// `...` came last: the group repeats what stands before it.
        repeats: bool,
    },
}

/// What the syntax says about an argument beside its type.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Note {
    Name(String),
    Since(String),
    Deprecated(String),
    KeySpec(usize),
}

impl Note {
    fn parse(word: &str) -> Option<Self> {
        let (sign, text) = word.split_at_checked(1).filter(|(_, text)| !text.is_empty())?;
        match (sign, text.strip_prefix("..")) {
            (":", _) => Some(Self::Name(text.to_owned())),
            ("@", Some(version)) => Some(Self::Deprecated(version.to_owned())),
            ("@", None) => Some(Self::Since(text.to_owned())),
            ("#", _) => text.parse().ok().map(Self::KeySpec),
            _ => None,
        }
    }

    fn apply(&self, argument: &mut Argument) {
        match self {
            // Until all is named, that is how it is displayed.
            Self::Name(name) => argument.display.clone_from(name),
            Self::Since(version) => argument.since = Some(version.clone()),
            Self::Deprecated(version) => argument.deprecated = Some(version.clone()),
            Self::KeySpec(number) => argument.key_spec = Some(*number),
        }
    }
}

fn parse(syntax: &str) -> Option<Vec<Part>> {
    let spaced: String = syntax
        .chars()
        .flat_map(|c| match c {
            '[' | ']' | '<' | '>' | '|' => vec![' ', c, ' '],
            _ => vec![c],
        })
        .collect();
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let group = group(&words, &mut at, None)?;
    let Part::Group { mut alternatives, .. } = group else { return None };
    (at == words.len() && alternatives.len() == 1).then(|| alternatives.remove(0))
}

/// Reads until the closing bracket, or to the end.
fn group(words: &[&str], at: &mut usize, close: Option<&str>) -> Option<Part> {
    let mut alternatives = vec![Vec::new()];
    let mut repeats = false;
    loop {
        let word = words.get(*at).copied();
        *at += usize::from(word.is_some());
        let parts = alternatives.last_mut()?;
        match word {
            None | Some("]" | ">") => {
                if word != close {
                    return None;
                }
                let optional = close == Some("]");
                return Some(Part::Group { optional, alternatives, repeats });
            }
            Some("|") => alternatives.push(Vec::new()),
            Some("...") if words.get(*at) == Some(&"]") => repeats = true,
            Some("...") => {
                let alternatives = vec![vec![parts.last()?.clone()]];
                parts.push(Part::Group { optional: true, alternatives, repeats: true });
            }
            Some("[") => parts.push(group(words, at, Some("]"))?),
            Some("<") => parts.push(group(words, at, Some(">"))?),
            Some(word) => {
                let note = Note::parse(word).map(Part::Note);
                parts.push(note.unwrap_or_else(|| Part::Word(word.to_owned())));
            }
        }
    }
}

// Understanding.

/// The arguments of a sequence.
fn convert(parts: &[Part]) -> Vec<Argument> {
    let mut arguments: Vec<Argument> = Vec::new();
    // For each argument so far, where its parts begin.
    let mut starts: Vec<usize> = Vec::new();
    let mut at = 0;
    while at < parts.len() {
        let start = at;
        let part = &parts[at];
        at += 1;
        let argument = match part {
            Part::Group { alternatives, repeats: true, .. } => {
                // What it repeats has been read: take it back, and mark it.
                let repeated = alternatives[0].len();
                let from = start.saturating_sub(repeated);
                let token = Some(from).filter(|from| *from > 0).and_then(|from| {
                    let begins = starts.iter().position(|start| *start == from - 1)?;
                    let has_token = arguments[begins].token.is_some();
                    (has_token && is_token(&parts[from - 1])).then_some(begins)
                });
                match token {
                    // `ID client-id [client-id ...]`: the token comes once.
                    Some(begins) => {
                        starts.truncate(begins + 1);
                        let token = arguments.swap_remove(begins).token;
                        arguments.truncate(begins);
                        let mut argument = one(convert(&alternatives[0]));
                        argument.multiple = true;
                        if argument.kind == Kind::Block {
                            argument = Argument { token, ..argument };
                        } else {
                            argument.token = token;
                        }
                        arguments.push(argument);
                        continue;
                    }
                    None => {
                        let keep = starts.iter().take_while(|start| **start < from).count();
                        arguments.truncate(keep);
                        starts.truncate(keep);
                        let mut argument = one(convert(&alternatives[0]));
                        argument.multiple = true;
                        argument.multiple_token = argument.token.is_some();
                        starts.push(from);
                        arguments.push(argument);
                        continue;
                    }
                }
            }
            Part::Group { optional, alternatives, .. } => {
                let mut argument = choice(alternatives);
                argument.optional = *optional;
                argument
            }
            Part::Word(word) if is_token(part) => {
                let token = Some(word.clone());
                match parts.get(at) {
                    // `AUTH username password`, when that is all of it, is one block.
                    Some(Part::Word(_)) if start == 0 && is_block(parts) => {
                        let inner = convert(&parts[1..]);
                        at = parts.len();
                        Argument { kind: Kind::Block, token, ..block(inner) }
                    }
                    Some(Part::Word(name)) if !is_token(&parts[at]) => {
                        at += 1;
                        Argument { name: name.clone(), token, ..Argument::default() }
                    }
                    Some(Part::Group { optional: false, alternatives, .. }) => {
                        at += 1;
                        Argument { token, ..choice(alternatives) }
                    }
                    _ => Argument { kind: Kind::PureToken, token, ..Argument::default() },
                }
            }
            Part::Word(name) => Argument { name: name.clone(), ..Argument::default() },
            Part::Note(note) => {
                arguments.iter_mut().next_back().into_iter().for_each(|last| note.apply(last));
                continue;
            }
        };
        starts.push(start);
        arguments.push(argument);
    }
    arguments
}

/// Whether a token and all that follows it are names, at least two of them, perhaps the last ones
/// repeated.
fn is_block(parts: &[Part]) -> bool {
    let is_name = |part: &Part| matches!(part, Part::Word(_)) && !is_token(part);
    let names = parts[1..].iter().take_while(|part| is_name(part)).count();
    match &parts[1 + names..] {
        [] => names >= 2,
        [Part::Group { repeats: true, alternatives, .. }] => names > alternatives[0].len(),
        _ => false,
    }
}

/// A group's argument, without saying whether it is optional.
fn choice(alternatives: &[Vec<Part>]) -> Argument {
    match alternatives {
        [parts] => one(convert(parts)),
        _ => Argument {
            kind: Kind::OneOf,
            arguments: alternatives.iter().map(|parts| one(convert(parts))).collect(),
            ..Argument::default()
        },
    }
}

/// Several arguments as one.
fn one(mut arguments: Vec<Argument>) -> Argument {
    if arguments.len() == 1 { arguments.remove(0) } else { block(arguments) }
}

fn block(arguments: Vec<Argument>) -> Argument {
    Argument { kind: Kind::Block, arguments, ..Argument::default() }
}

/// Capitals, or signs that stand for themselves.
fn is_token(part: &Part) -> bool {
    let Part::Word(word) = part else { return false };
    !word.chars().any(|c| c.is_ascii_lowercase())
}

// Naming.

/// Names what has no name yet, and says what its values are.
fn finish(argument: &mut Argument, command: &str, key_specs: usize, next_key: &mut usize) {
    for inner in &mut argument.arguments {
        finish(inner, command, key_specs, next_key);
    }
    let noted = Some(std::mem::take(&mut argument.display)).filter(|name| !name.is_empty());
    match argument.kind {
        Kind::PureToken | Kind::OneOf | Kind::Block => {
            argument.name = noted.unwrap_or_else(|| group_name(argument));
            if argument.kind == Kind::PureToken {
                argument.display.clone_from(&argument.name);
            }
        }
        _ => {
            argument.kind = value_kind(&argument.name, command);
            if argument.kind == Kind::Key && key_specs == 0 {
                argument.kind = Kind::String;
            }
            if argument.kind == Kind::Key {
                let next = (*next_key).min(key_specs - 1);
                argument.key_spec = argument.key_spec.or(Some(next));
                *next_key += 1;
            }
            argument.display.clone_from(&argument.name);
            if let Some(name) = noted {
                argument.name = name;
            }
        }
    }
    // As it is typed: nothing.
    if argument.token.as_deref() == Some("\"\"") {
        argument.token = Some(String::new());
    }
}

/// The name of a choice or a block: its token's, or what its alternatives have in common.
fn group_name(argument: &Argument) -> String {
    if argument.kind == Kind::Block
        && let Some((_, name)) =
            BLOCKS.iter().find(|(first, _)| argument.arguments[0].name == *first)
    {
        return (*name).to_owned();
    }
    if let Some(token) = &argument.token {
        let name = match token.as_str() {
            "*" => "auto-id",
            "$" => "new-id",
            "=" => "equal",
            "~" => "approximately",
            "\"\"" => "empty-string",
            token => return token.to_ascii_lowercase(),
        };
        return name.to_owned();
    }
    if argument.kind == Kind::Block {
        let first = &argument.arguments[0];
        return if argument.multiple { "data".into() } else { first.name.clone() + "-block" };
    }
    let first =
        argument.arguments.iter().find_map(|part| part.token.as_deref()).unwrap_or_default();
    let known = CHOICES.iter().find(|(token, _)| *token == first);
    known.map_or("option", |(_, name)| name).to_owned()
}

/// What the value of a name is. The same name can be different things for different commands.
fn value_kind(name: &str, command: &str) -> Kind {
    let exception = EXCEPTIONS.iter().find(|(commands, known, _)| {
        *known == name && commands.split(' ').any(|known| known == command)
    });
    if let Some((_, _, kind)) = exception {
        return *kind;
    }
    let is = |names: &[&str]| names.contains(&name);
    match () {
        () if is(KEYS) => Kind::Key,
        () if is(INTEGERS) => Kind::Integer,
        () if is(DOUBLES) => Kind::Double,
        () if is(PATTERNS) => Kind::Pattern,
        () if is(UNIX_TIMES) => Kind::UnixTime,
        () => Kind::String,
    }
}

const KEYS: &[&str] = &[
    "key",
    "newkey",
    "key1",
    "key2",
    "destkey",
    "sourcekey",
    "source",
    "destination",
    "src",
    "dst",
];
const INTEGERS: &[&str] = &[
    "bit",
    "bits",
    "client-id",
    "cluster-bus-port",
    "config-epoch",
    "count",
    "cursor",
    "db",
    "decrement",
    "destination-db",
    "end",
    "end-slot",
    "entries-added",
    "entries-read",
    "frequency",
    "idle",
    "increment",
    "index",
    "index1",
    "index2",
    "len",
    "limit",
    "maxage",
    "milliseconds",
    "min-match-len",
    "ms",
    "not-client-id",
    "not-db",
    "num-matches",
    "num-vertices",
    "numfields",
    "numkeys",
    "numlocal",
    "numreplicas",
    "offset",
    "port",
    "protover",
    "rank",
    "seconds",
    "slot",
    "start",
    "start-slot",
    "stop",
    "timeout",
    "ttl",
    "version",
    "weight",
];
const DOUBLES: &[&str] = &["height", "latitude", "longitude", "radius", "score", "width"];
const PATTERNS: &[&str] = &["pattern", "match-pattern"];
const UNIX_TIMES: &[&str] = &["unix-time-seconds", "unix-time-milliseconds"];

/// (commands, name, what it is there).
const EXCEPTIONS: &[(&str, &str, Kind)] = &[
    ("setbit bitfield", "value", Kind::Integer),
    ("hincrbyfloat incrbyfloat", "increment", Kind::Double),
    ("blmove blmpop blpop brpop brpoplpush bzmpop bzpopmax bzpopmin", "timeout", Kind::Double),
    ("xrange xrevrange xpending zrange zrangestore xautoclaim", "start", Kind::String),
    ("xrange xrevrange xpending", "end", Kind::String),
    ("zrange", "stop", Kind::String),
    ("zcount zrangebyscore zremrangebyscore zrevrangebyscore", "min", Kind::Double),
    ("zcount zrangebyscore zremrangebyscore zrevrangebyscore", "max", Kind::Double),
    ("hexpireat", "unix-time-seconds", Kind::Integer),
    ("hpexpireat", "unix-time-milliseconds", Kind::Integer),
    ("xpending", "min-idle-time", Kind::Integer),
    ("clusterscan", "cursor", Kind::String),
];

/// (first part's name, the block's name).
const BLOCKS: &[(&str, &str)] =
    &[("group", "group-block"), ("min-idle-time", "filters"), ("strategy", "trim")];

/// (first alternative's token, the choice's name).
const CHOICES: &[(&str, &str)] = &[
    ("$", "id-selector"),
    ("*", "id-selector"),
    ("=", "operator"),
    ("ABSTTL", "options"),
    ("AFTER", "where"),
    ("AND", "operation"),
    ("ASC", "order"),
    ("ASYNC", "flush-type"),
    ("AUTH", "authentication"),
    ("BEFORE", "where"),
    ("BYTE", "unit"),
    ("BYSCORE", "sortby"),
    ("EX", "expiration"),
    ("FLUSH", "policy"),
    ("FNX", "fields-condition"),
    ("GT", "comparison"),
    ("HARD", "reset-type"),
    ("LEFT", "where"),
    ("LIB-NAME", "attr"),
    ("M", "unit"),
    ("MAXLEN", "strategy"),
    ("MIN", "where"),
    ("NOSAVE", "save-selector"),
    ("NX", "condition"),
    ("ON", "enabled"),
    ("STORE", "store"),
    ("TIMEOUT", "unblock-type"),
    ("WRITE", "mode"),
    ("YES", "mode"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// `name:kind`, with the token before it, and `?`, `*` and `*T` for what it may be.
    fn shown(arguments: &[Argument]) -> String {
        let one = |argument: &Argument| {
            let token =
                argument.token.as_ref().map(|token| format!("{token} ")).unwrap_or_default();
            let mark = |on, mark| if on { mark } else { "" };
            let key = argument.key_spec.map(|spec| format!("#{spec}")).unwrap_or_default();
            let inner = match argument.arguments.is_empty() {
                true => String::new(),
                false => format!("({})", shown(&argument.arguments)),
            };
            let other = match argument.display == argument.name || argument.display.is_empty() {
                true => String::new(),
                false => format!("={}", argument.display),
            };
            let since = argument.since.as_ref().map(|since| format!("@{since}"));
            let until = argument.deprecated.as_ref().map(|until| format!("@..{until}"));
            format!(
                "{token}{}{other}:{}{key}{}{}{}{}{}{inner}",
                argument.name,
                argument.kind.name(),
                mark(argument.optional, "?"),
                mark(argument.multiple, "*"),
                mark(argument.multiple_token, "T"),
                since.unwrap_or_default(),
                until.unwrap_or_default(),
            )
        };
        arguments.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    #[track_caller]
    fn check(syntax: &str, expected: &str) {
        assert_eq!(shown(&arguments("x", syntax, 2)), expected);
    }

    #[test]
    fn values_and_tokens() {
        check("key value", "key:key#0, value:string");
        check("[message]", "message:string?");
        check(
            "key [LEN] [MINMATCHLEN min-match-len]",
            "key:key#0, LEN len:pure-token?, MINMATCHLEN min-match-len:integer?",
        );
        check(
            "source destination [DB destination-db]",
            "source:key#0, destination:key#1, DB destination-db:integer?",
        );
    }

    #[test]
    fn choices() {
        let order = "order:oneof?(ASC asc:pure-token, DESC desc:pure-token)";
        check("[<ASC | DESC>]", order);
        check("[ASC | DESC]", order);
        check("<BYTE | BIT>", "unit:oneof(BYTE byte:pure-token, BIT bit:pure-token)");
        check(
            "[EX seconds | PERSIST]",
            "expiration:oneof?(EX seconds:integer, PERSIST persist:pure-token)",
        );
        check("SKIPME <YES | NO>", "SKIPME skipme:oneof(YES yes:pure-token, NO no:pure-token)");
    }

    #[test]
    fn blocks() {
        check("[LIMIT offset count]", "LIMIT limit:block?(offset:integer, count:integer)");
        check("[start end]", "start-block:block?(start:integer, end:integer)");
        check(
            "[COUNT count [ANY]]",
            "count-block:block?(COUNT count:integer, ANY any:pure-token?)",
        );
    }

    #[test]
    fn repetition() {
        check("key [key ...]", "key:key#0*");
        check("key value [key value ...]", "data:block*(key:key#0, value:string)");
        check("[GET pattern [GET pattern ...]]", "GET pattern:pattern?*T");
        check("[ID client-id [client-id ...]] [X]", "ID client-id:integer?*, X x:pure-token?");
        check("numkeys key [key ...] [X]", "numkeys:integer, key:key#0*, X x:pure-token?");
        check("<A | B value> ...", "option:oneof*(A a:pure-token, B value:string)");
        check(
            "STREAMS <key [key ...] id [id ...]>",
            "STREAMS streams:block(key:key#0*, id:string*)",
        );
        check(
            "FIELDS numfields field [field ...]",
            "FIELDS fields:block(numfields:integer, field:string*)",
        );
    }

    #[test]
    fn notes() {
        check("[count @6.2.0]", "count:integer?@6.2.0");
        check("key pattern :by-pattern #1", "key:key#0, by-pattern=pattern:pattern#1");
        check(
            "<A | B b> :where @1.0.0 [CH :change @2.0.0]",
            "where:oneof@1.0.0(A a:pure-token, B b:string), CH change:pure-token?@2.0.0",
        );
        check("[KEYS key [key ...] :keys @3.0.6]", "KEYS keys=key:key#0?*@3.0.6");
        check(
            "<ip:port :old-format @..2.8.12 | <X x @1.0.0> :new>",
            "option:oneof(old-format=ip:port:string@..2.8.12, X new=x:string@1.0.0)",
        );
        assert_eq!(
            plain("key :k [count @6.2.0] <a:b :c @..1.0.0 | [D #1]> :e"),
            "key [count] <a:b | [D]>"
        );
    }

    #[test]
    fn every_row_has_a_well_formed_syntax() {
        let rows = crate::process::families().into_iter().flatten();
        for row in rows.flat_map(|row| std::iter::once(row).chain(row.subcommands)) {
            assert!(parse(row.syntax).is_some(), "{}: {}", row.name, row.syntax);
        }
    }

    #[test]
    fn malformed() {
        for syntax in ["[a", "a]", "<a]", "a | b"] {
            assert_eq!(arguments("x", syntax, 0), [], "{syntax}");
        }
    }
}
