//! Turns the syntax of a row into the tree of arguments that COMMAND DOCS shows.
//!
//! A syntax is written as on a command's page: `key [NX | XX] [EX seconds:int] [GET pattern [GET
//! pattern ...]]`. Words in capitals, and signs such as `*`, are tokens, which are typed as they
//! are. Other words are names of values. `[ ]` is optional, `< >` groups, `|` separates
//! alternatives. A bracket that repeats what is before it and ends in `...` says that this may be
//! repeated; so does `...` behind a group: `<A | B> ...`. A token and the group behind it are one
//! argument: `STREAMS <key [key ...] id [id ...]>`.
//!
//! The type of a value is written behind its name: `count:int`, `score:double`, `newkey:key`,
//! `glob:pattern`, `at:time`. A value without a type is a string, unless its name is a type: `key`
//! is a key. A bracket that repeats values leaves out their types: `client-id:int [client-id ...]`.
//!
//! Notes behind an argument add what is not visible: `:name` is the argument's name, if it is not
//! the written one; `@6.2.0` is the version that introduced it, `@..2.8.12` the version that
//! deprecated it, and `#1` the key specification that it belongs to.

/// One argument.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Argument {
    pub name: String,
    /// The shown text; empty for choices and blocks.
    pub display: String,
    pub kind: ArgumentKind,
    /// The word before the value, or the whole argument.
    pub token: Option<String>,
    pub optional: bool,
    pub multiple: bool,
    /// Whether the token is repeated with each value.
    pub multiple_token: bool,
    /// The version that introduced the argument, and the version that deprecated it.
    pub since: Option<String>,
    pub deprecated: Option<String>,
    /// For a key: the index of the key specification that finds it.
    pub key_spec: Option<usize>,
    /// The alternatives of a choice, or the parts of a block.
    pub arguments: Vec<Self>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ArgumentKind {
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

impl ArgumentKind {
    /// The kind by its word in a row, behind a value's name.
    fn of_value(word: &str) -> Option<Self> {
        Some(match word {
            "string" => Self::String,
            "int" => Self::Integer,
            "double" => Self::Double,
            "key" => Self::Key,
            "pattern" => Self::Pattern,
            "time" => Self::UnixTime,
            _ => return None,
        })
    }

    /// The kind's word in COMMAND DOCS.
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

/// A syntax without types and notes, to be read by people.
pub fn plain(syntax: &str) -> String {
    let mut plain = String::with_capacity(syntax.len());
    for word in syntax.split_whitespace() {
        // The closing brackets behind a word are not a part of it.
        let text = word.trim_end_matches([']', '>']);
        let brackets = &word[text.len()..];
        let shown = match ArgumentNote::parse(text) {
            Some(_) => "",
            None => typed(text).map_or(text, |(name, _)| name),
        };
        if !plain.is_empty() && !shown.is_empty() {
            plain.push(' ');
        }
        plain.push_str(shown);
        plain.push_str(brackets);
    }
    plain
}

/// The arguments of a command. `key_specs`: the number of its key specifications. Returns nothing
/// if the syntax is not well formed; a test checks that of every row.
pub fn arguments(syntax: &str, key_specs: usize) -> Vec<Argument> {
    let Some(sequence) = parse(syntax) else { return Vec::new() };
    let mut arguments = convert(&sequence);
    let mut next_key = 0;
    for argument in &mut arguments {
        finish(argument, key_specs, &mut next_key);
    }
    arguments
}

// Reading.

/// A word, a group in brackets, or a note on the part before it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SyntaxPart {
    /// A word in capitals, or a sign.
    Token(String),
    /// The name of a value, and its type.
    Value(String, ArgumentKind),
    Note(ArgumentNote),
    Group {
        optional: bool,
        alternatives: Vec<Vec<Self>>,
        /// Whether `...` came last: the group repeats what is before it.
        repeats: bool,
    },
}

/// What the syntax says of an argument beside its type.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ArgumentNote {
    Name(String),
    Since(String),
    Deprecated(String),
    KeySpec(usize),
}

impl ArgumentNote {
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
            // The note's name is kept in `display` until `finish` names all arguments.
            Self::Name(name) => argument.display.clone_from(name),
            Self::Since(version) => argument.since = Some(version.clone()),
            Self::Deprecated(version) => argument.deprecated = Some(version.clone()),
            Self::KeySpec(number) => argument.key_spec = Some(*number),
        }
    }
}

impl SyntaxPart {
    /// Returns `None` if the type is unknown.
    fn of_word(word: &str) -> Option<Self> {
        if let Some(note) = ArgumentNote::parse(word) {
            return Some(Self::Note(note));
        }
        if !word.chars().any(|c| c.is_ascii_lowercase()) {
            return Some(Self::Token(word.to_owned()));
        }
        typed(word).map(|(name, kind)| Self::Value(name.to_owned(), kind))
    }

    /// Whether `again` is equal, apart from types.
    fn is_repeated_by(&self, again: &Self) -> bool {
        match (self, again) {
            (Self::Value(name, _), Self::Value(again, _)) => name == again,
            _ => self == again,
        }
    }
}

/// The name and type of a value.
fn typed(word: &str) -> Option<(&str, ArgumentKind)> {
    match word.rsplit_once(':') {
        Some((name, kind)) => Some((name, ArgumentKind::of_value(kind)?)),
        None => Some((word, ArgumentKind::of_value(word).unwrap_or_default())),
    }
}

fn parse(syntax: &str) -> Option<Vec<SyntaxPart>> {
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
    let SyntaxPart::Group { mut alternatives, .. } = group else { return None };
    (at == words.len() && alternatives.len() == 1).then(|| alternatives.remove(0))
}

/// Reads until the closing bracket, or to the end.
fn group(words: &[&str], at: &mut usize, close: Option<&str>) -> Option<SyntaxPart> {
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
                return Some(SyntaxPart::Group { optional, alternatives, repeats });
            }
            Some("|") => alternatives.push(Vec::new()),
            Some("...") if words.get(*at) == Some(&"]") => repeats = true,
            Some("...") => {
                let alternatives = vec![vec![parts.last()?.clone()]];
                parts.push(SyntaxPart::Group { optional: true, alternatives, repeats: true });
            }
            Some("[") => {
                let group = group(words, at, Some("]"))?;
                if let SyntaxPart::Group { alternatives, repeats: true, .. } = &group {
                    let from = parts.len().checked_sub(alternatives[0].len())?;
                    let mut pairs = parts[from..].iter().zip(&alternatives[0]);
                    if !pairs.all(|(part, again)| part.is_repeated_by(again)) {
                        return None;
                    }
                }
                parts.push(group);
            }
            Some("<") => parts.push(group(words, at, Some(">"))?),
            Some(word) => parts.push(SyntaxPart::of_word(word)?),
        }
    }
}

// Understanding.

/// The arguments of a sequence of parts.
fn convert(parts: &[SyntaxPart]) -> Vec<Argument> {
    let mut arguments: Vec<Argument> = Vec::new();
    // For each argument so far, the index of its first part.
    let mut starts: Vec<usize> = Vec::new();
    let mut at = 0;
    while at < parts.len() {
        let start = at;
        let part = &parts[at];
        at += 1;
        let argument = match part {
            SyntaxPart::Group { alternatives, repeats: true, .. } => {
                // The repeated parts were read before: take their argument back, and mark it.
                let from = start.saturating_sub(alternatives[0].len());
                let repeated = &parts[from..start];
                let token = Some(from).filter(|from| *from > 0).and_then(|from| {
                    let begins = starts.iter().position(|start| *start == from - 1)?;
                    let has_token = arguments[begins].token.is_some();
                    (has_token && matches!(parts[from - 1], SyntaxPart::Token(_))).then_some(begins)
                });
                match token {
                    // `ID client-id [client-id ...]`: the token comes only once.
                    Some(begins) => {
                        starts.truncate(begins + 1);
                        let token = arguments.swap_remove(begins).token;
                        arguments.truncate(begins);
                        let mut argument = one(convert(repeated));
                        argument.multiple = true;
                        if argument.kind == ArgumentKind::Block {
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
                        let mut argument = one(convert(repeated));
                        argument.multiple = true;
                        argument.multiple_token = argument.token.is_some();
                        starts.push(from);
                        arguments.push(argument);
                        continue;
                    }
                }
            }
            SyntaxPart::Group { optional, alternatives, .. } => {
                let mut argument = choice(alternatives);
                argument.optional = *optional;
                argument
            }
            SyntaxPart::Token(word) => {
                let (argument, used) = with_token(word, parts, start);
                at += used;
                argument
            }
            SyntaxPart::Value(name, kind) => value(name, *kind),
            SyntaxPart::Note(note) => {
                arguments.iter_mut().next_back().into_iter().for_each(|last| note.apply(last));
                continue;
            }
        };
        starts.push(start);
        arguments.push(argument);
    }
    arguments
}

/// The argument that begins with the token at `start`, and the number of parts behind the token
/// that belong to it.
fn with_token(word: &str, parts: &[SyntaxPart], start: usize) -> (Argument, usize) {
    let token = Some(word.to_owned());
    let behind = &parts[start + 1..];
    match behind.first() {
        // `AUTH username password`, if nothing else follows, is one block.
        Some(SyntaxPart::Value(..)) if start == 0 && is_block(parts) => {
            let inner = convert(behind);
            (Argument { kind: ArgumentKind::Block, token, ..block(inner) }, behind.len())
        }
        Some(SyntaxPart::Value(name, kind)) => (Argument { token, ..value(name, *kind) }, 1),
        Some(SyntaxPart::Group { optional: false, alternatives, .. }) => {
            (Argument { token, ..choice(alternatives) }, 1)
        }
        _ => (Argument { kind: ArgumentKind::PureToken, token, ..Argument::default() }, 0),
    }
}

/// Whether only names follow the token, at least two of them; the last ones may be repeated.
fn is_block(parts: &[SyntaxPart]) -> bool {
    let is_value = |part: &&SyntaxPart| matches!(part, SyntaxPart::Value(..));
    let names = parts[1..].iter().take_while(is_value).count();
    match &parts[1 + names..] {
        [] => names >= 2,
        [SyntaxPart::Group { repeats: true, alternatives, .. }] => names > alternatives[0].len(),
        _ => false,
    }
}

/// The argument of a group, without the mark for optional ones.
fn choice(alternatives: &[Vec<SyntaxPart>]) -> Argument {
    match alternatives {
        [parts] => one(convert(parts)),
        _ => Argument {
            kind: ArgumentKind::OneOf,
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
    Argument { kind: ArgumentKind::Block, arguments, ..Argument::default() }
}

fn value(name: &str, kind: ArgumentKind) -> Argument {
    Argument { name: name.to_owned(), kind, ..Argument::default() }
}

// Naming.

/// Names the arguments that have no name yet, and sets which key specifications find their keys.
fn finish(argument: &mut Argument, key_specs: usize, next_key: &mut usize) {
    for inner in &mut argument.arguments {
        finish(inner, key_specs, next_key);
    }
    let noted = Some(std::mem::take(&mut argument.display)).filter(|name| !name.is_empty());
    match argument.kind {
        ArgumentKind::PureToken | ArgumentKind::OneOf | ArgumentKind::Block => {
            argument.name = noted.unwrap_or_else(|| group_name(argument));
            if argument.kind == ArgumentKind::PureToken {
                argument.display.clone_from(&argument.name);
            }
        }
        _ => {
            if argument.kind == ArgumentKind::Key {
                let next = key_specs.checked_sub(1).map(|last| last.min(*next_key));
                argument.key_spec = argument.key_spec.or(next);
                *next_key += 1;
            }
            argument.display.clone_from(&argument.name);
            if let Some(name) = noted {
                argument.name = name;
            }
        }
    }
    // This token is typed as an empty word.
    if argument.token.as_deref() == Some("\"\"") {
        argument.token = Some(String::new());
    }
}

/// The name of a choice or a block: from a table, or from its tokens.
fn group_name(argument: &Argument) -> String {
    if argument.kind == ArgumentKind::Block
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
    if argument.kind == ArgumentKind::Block {
        let first = &argument.arguments[0];
        return if argument.multiple { "data".into() } else { first.name.clone() + "-block" };
    }
    let first =
        argument.arguments.iter().find_map(|part| part.token.as_deref()).unwrap_or_default();
    let known = CHOICES.iter().find(|(token, _)| *token == first);
    known.map_or("option", |(_, name)| name).to_owned()
}

/// (name of the block's first part, name of the block).
const BLOCKS: &[(&str, &str)] =
    &[("group", "group-block"), ("min-idle-time", "filters"), ("strategy", "trim")];

/// (token of the choice's first alternative, name of the choice).
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
mod tests;
