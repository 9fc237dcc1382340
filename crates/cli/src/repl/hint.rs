//! Hints: what may follow the words that were typed.
//!
//! The words are matched against the tree of arguments that COMMAND DOCS describes, and what has
//! not been matched is shown as the documentation would show it. What Valkey's
//! test_cli_hint_suite.txt lists decides what is right: optional arguments come in any order, one
//! that has been begun is shown first and without brackets, and a word that fits nothing ends all
//! hints.

use bobbin_resp::split_arguments;

use super::docs::{ArgumentType, Docs, DocumentedArgument, is_word};

/// The hint for a line; `None` where it begins with no known command. A word counts once there is a
/// blank behind it.
pub fn hint(docs: &Docs, line: &str) -> Option<String> {
    let mut words = split_arguments(line.as_bytes())?;
    if !line.ends_with(|c: char| c.is_ascii_whitespace()) {
        words.pop();
    }
    let command = docs.find(&words)?;
    let words = &words[command.words.len()..];
    let mut matches = Match::none(&command.arguments);
    if match_all(&command.arguments, &mut matches, words) != words.len() {
        return Some(String::new());
    }
    Some(show_all(&command.arguments, &mut matches, " "))
}

/// The syntax of a command: the hint when nothing has been typed.
pub fn syntax(arguments: &[DocumentedArgument]) -> String {
    show_all(arguments, &mut Match::none(arguments), " ")
}

/// What the next word may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    pub tokens: Vec<String>,
    pub is_key: bool,
}

/// What may follow these words of a command's arguments. `None` where they do not fit.
pub fn expected(arguments: &[DocumentedArgument], words: &[Vec<u8>]) -> Option<Expected> {
    let mut matches = Match::none(arguments);
    if match_all(arguments, &mut matches, words) != words.len() {
        return None;
    }
    let mut expected = Expected::default();
    expect_all(arguments, &matches, &mut expected);
    Some(expected)
}

/// Collects up to the first argument that must come before all behind it.
fn expect_all(arguments: &[DocumentedArgument], matches: &[Match], expected: &mut Expected) {
    for (argument, state) in arguments.iter().zip(matches) {
        if state.whole {
            continue;
        }
        let again = argument.multiple && (state.name || is_filled(state));
        if again {
            expect(argument, &Match::nothing(argument), expected);
            continue;
        }
        expect(argument, state, expected);
        if !argument.optional || state.is_begun() {
            return;
        }
    }
}

fn expect(argument: &DocumentedArgument, state: &Match, expected: &mut Expected) {
    if let Some(token) = argument.token.as_ref().filter(|_| !state.token) {
        expected.tokens.push(token.clone());
        return;
    }
    match argument.kind {
        ArgumentType::Block => expect_all(&argument.arguments, &state.inner, expected),
        ArgumentType::OneOf => {
            let is_begun = state.is_begun();
            let choices = argument.arguments.iter().zip(&state.inner);
            for (choice, inner) in choices.filter(|(_, inner)| !is_begun || inner.is_begun()) {
                expect(choice, inner, expected);
            }
        }
        _ => expected.is_key |= argument.is_key,
    }
}

/// Whether all parts of a block have come.
fn is_filled(state: &Match) -> bool {
    !state.inner.is_empty() && state.inner.iter().all(|inner| inner.whole)
}

/// How far an argument has been matched.
#[derive(Clone, Default)]
struct Match {
    /// Words, roughly: what counts is whether there are any.
    words: usize,
    token: bool,
    name: bool,
    /// Nothing is missing.
    whole: bool,
    inner: Vec<Self>,
}

impl Match {
    fn none(arguments: &[DocumentedArgument]) -> Vec<Self> {
        arguments.iter().map(Self::nothing).collect()
    }

    fn nothing(argument: &DocumentedArgument) -> Self {
        Self { inner: Self::none(&argument.arguments), ..Self::default() }
    }

    fn is_begun(&self) -> bool {
        self.words > 0
    }
}

/// Matches as many words as the arguments take, and says how many that were; 0 when a required
/// argument does not fit.
fn match_all(arguments: &[DocumentedArgument], matches: &mut [Match], words: &[Vec<u8>]) -> usize {
    let mut taken = 0;
    let mut next = 0;
    while taken < words.len() && next < arguments.len() {
        let rest = &words[taken..];
        let group = optional_count(&arguments[next..]);
        if group > 0 {
            let range = next..next + group;
            taken += match_optional(&arguments[range.clone()], &mut matches[range], rest);
            next += group;
        } else {
            match match_one(&arguments[next], &mut matches[next], rest) {
                0 => return 0,
                count => taken += count,
            }
            next += 1;
        }
    }
    taken
}

/// Matches neighbours that are all optional, in whatever order they come.
fn match_optional(
    arguments: &[DocumentedArgument],
    matches: &mut [Match],
    words: &[Vec<u8>],
) -> usize {
    let mut taken = 0;
    let mut previous: Option<usize> = None;
    while taken < words.len() {
        let fitting = (0..arguments.len()).find_map(|index| {
            if matches[index].is_begun() {
                return None;
            }
            let count = match_one(&arguments[index], &mut matches[index], &words[taken..]);
            (count > 0).then_some((index, count))
        });
        let Some((index, count)) = fitting else { break };
        // Words that begin another argument finish the one before.
        if let Some(previous) = previous.replace(index) {
            matches[previous].whole = true;
        }
        taken += count;
    }
    taken
}

/// Matches one argument, as often as it comes.
fn match_one(argument: &DocumentedArgument, state: &mut Match, words: &[Vec<u8>]) -> usize {
    let mut taken = match_once(argument, state, words);
    if !argument.multiple {
        return taken;
    }
    while state.whole && taken < words.len() {
        *state = Match::nothing(argument);
        let rest = &words[taken..];
        taken += if argument.token.is_some() && !argument.multiple_token {
            // The token came with the first.
            let count = match_body(argument, state, rest);
            state.token = state.is_begun();
            count
        } else {
            match_once(argument, state, rest)
        };
    }
    state.whole = false; // There may always be more.
    taken
}

fn match_once(argument: &DocumentedArgument, state: &mut Match, words: &[Vec<u8>]) -> usize {
    let Some(token) = &argument.token else { return match_body(argument, state, words) };
    if !is_word(token, &words[0]) {
        return 0;
    }
    state.token = true;
    state.words = 1;
    if argument.kind == ArgumentType::Token {
        state.whole = true;
        return 1;
    }
    if words.len() == 1 { 1 } else { match_body(argument, state, &words[1..]) }
}

/// Matches what follows the token, at least one word being there.
fn match_body(argument: &DocumentedArgument, state: &mut Match, words: &[Vec<u8>]) -> usize {
    let fits = match argument.kind {
        ArgumentType::Block => {
            state.words += match_all(&argument.arguments, &mut state.inner, words);
            state.whole = state.inner.iter().all(|inner| inner.whole);
            return state.words;
        }
        ArgumentType::OneOf => {
            let choices = argument.arguments.iter().zip(&mut state.inner);
            for (choice, inner) in choices {
                if match_one(choice, inner, words) > 0 {
                    state.words += inner.words;
                    state.whole = inner.whole;
                    break;
                }
            }
            return state.words;
        }
        ArgumentType::Integer => starts_as_integer(&words[0]),
        ArgumentType::Double => starts_as_double(&words[0]),
        ArgumentType::Text | ArgumentType::Token => true,
    };
    state.name = fits;
    if fits {
        state.words += 1;
        state.whole = true;
    } else {
        state.words = 0;
    }
    state.words
}

/// What is missing of the arguments, with `separator` between them.
fn show_all(arguments: &[DocumentedArgument], matches: &mut [Match], separator: &str) -> String {
    let mut parts = Vec::new();
    let mut next = 0;
    while next < arguments.len() {
        let group = optional_count(&arguments[next..]);
        if group == 0 {
            parts.push(show(&arguments[next], &mut matches[next]));
            next += 1;
            continue;
        }
        let end = next + group;
        // What has been begun comes first; what has not only as long as nothing behind it has.
        let begun = (next..end).rfind(|&index| matches[index].is_begun() && !matches[index].whole);
        let open = end == arguments.len() || !matches[end].is_begun();
        if let Some(index) = begun {
            parts.push(show(&arguments[index], &mut matches[index]));
        }
        for index in (next..end).filter(|&index| open && Some(index) != begun) {
            parts.push(show(&arguments[index], &mut matches[index]));
        }
        next = end;
    }
    parts.retain(|part| !part.is_empty());
    parts.join(separator)
}

/// What is missing of one argument.
fn show(argument: &DocumentedArgument, state: &mut Match) -> String {
    if state.whole {
        return String::new();
    }
    let mut parts = Vec::new();
    let bracket = argument.optional && !state.is_begun();
    if let Some(token) = argument.token.as_deref().filter(|_| !state.token) {
        parts.push(shown(token));
    }
    parts.push(match argument.kind {
        ArgumentType::OneOf if state.is_begun() => {
            let choices = argument.arguments.iter().zip(&mut state.inner);
            let begun = choices.filter(|(_, inner)| inner.is_begun());
            begun.map(|(choice, inner)| show(choice, inner)).collect()
        }
        ArgumentType::OneOf => show_all(&argument.arguments, &mut state.inner, "|"),
        ArgumentType::Block => show_all(&argument.arguments, &mut state.inner, " "),
        ArgumentType::Token => String::new(),
        _ if state.name => String::new(),
        _ => shown(&argument.name),
    });
    if argument.multiple {
        parts.push(show_repetition(argument));
    }
    parts.retain(|part| !part.is_empty());
    let text = parts.join(" ");
    // Valkey's suite wants the closing bracket of what may be repeated even where the opening one
    // is gone, and calls that a fault of its own.
    let closes = bracket || argument.optional && argument.multiple;
    format!("{}{text}{}", if bracket { "[" } else { "" }, if closes { "]" } else { "" })
}

/// `[name ...]`: the whole of the argument, whatever has been matched of it.
fn show_repetition(argument: &DocumentedArgument) -> String {
    let mut inner = Match::none(&argument.arguments);
    let mut parts = Vec::new();
    if argument.multiple_token {
        parts.extend(argument.token.as_deref().map(shown));
    }
    parts.push(match argument.kind {
        ArgumentType::OneOf => show_all(&argument.arguments, &mut inner, "|"),
        ArgumentType::Block => show_all(&argument.arguments, &mut inner, " "),
        ArgumentType::Token => String::new(),
        _ => shown(&argument.name),
    });
    parts.retain(|part| !part.is_empty());
    format!("[{} ...]", parts.join(" "))
}

fn shown(word: &str) -> String {
    if word.is_empty() { "\"\"".to_owned() } else { word.to_owned() }
}

/// How many arguments at the beginning are optional.
fn optional_count(arguments: &[DocumentedArgument]) -> usize {
    arguments.iter().take_while(|argument| argument.optional).count()
}

/// As C's scanf takes it: digits, whatever follows.
fn starts_as_integer(word: &[u8]) -> bool {
    unsigned(word).first().is_some_and(u8::is_ascii_digit)
}

fn starts_as_double(word: &[u8]) -> bool {
    let word = unsigned(word).to_ascii_lowercase();
    match word.as_slice() {
        [b'.', digit, ..] | [digit, ..] if digit.is_ascii_digit() => true,
        word => word.starts_with(b"inf") || word.starts_with(b"nan"),
    }
}

fn unsigned(word: &[u8]) -> &[u8] {
    let word = word.trim_ascii_start();
    word.strip_prefix(b"-").or_else(|| word.strip_prefix(b"+")).unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argument(name: &str, kind: ArgumentType) -> DocumentedArgument {
        DocumentedArgument { name: name.to_owned(), kind, ..DocumentedArgument::default() }
    }

    fn token(token: &str) -> DocumentedArgument {
        DocumentedArgument { token: Some(token.to_owned()), ..argument(token, ArgumentType::Token) }
    }

    fn group(kind: ArgumentType, arguments: Vec<DocumentedArgument>) -> DocumentedArgument {
        DocumentedArgument { kind, arguments, ..DocumentedArgument::default() }
    }

    fn optional(argument: DocumentedArgument) -> DocumentedArgument {
        DocumentedArgument { optional: true, ..argument }
    }

    /// `PUT key score member [score member ...] [NX | XX] [LIMIT offset count]`, with the optional
    /// ones before the scores.
    fn put() -> Vec<DocumentedArgument> {
        let range = vec![
            argument("offset", ArgumentType::Integer),
            argument("count", ArgumentType::Integer),
        ];
        let limit = DocumentedArgument {
            token: Some("LIMIT".to_owned()),
            ..group(ArgumentType::Block, range)
        };
        let pair =
            vec![argument("score", ArgumentType::Double), argument("member", ArgumentType::Text)];
        vec![
            argument("key", ArgumentType::Text),
            optional(group(ArgumentType::OneOf, vec![token("NX"), token("XX")])),
            optional(limit),
            DocumentedArgument { multiple: true, ..group(ArgumentType::Block, pair) },
        ]
    }

    fn hint_for(arguments: &[DocumentedArgument], line: &str) -> String {
        let words = split_arguments(line.as_bytes()).unwrap();
        let mut matches = Match::none(arguments);
        if match_all(arguments, &mut matches, &words) != words.len() {
            return String::new();
        }
        show_all(arguments, &mut matches, " ")
    }

    #[test]
    fn what_is_missing() {
        let put = put();
        let pairs = "score member [score member ...]";
        assert_eq!(syntax(&put), format!("key [NX|XX] [LIMIT offset count] {pairs}"));
        for (line, hint) in [
            ("k", format!("[NX|XX] [LIMIT offset count] {pairs}")),
            ("k nx", format!("[LIMIT offset count] {pairs}")),
            ("k limit", format!("offset count [NX|XX] {pairs}")),
            ("k limit 1", format!("count [NX|XX] {pairs}")),
            ("k limit 1 2 xx", pairs.to_owned()),
            ("k 1.5", "member [score member ...]".to_owned()),
            ("k 1.5 m", "[score member ...]".to_owned()),
            ("k 1.5 m 2", "member [score member ...]".to_owned()),
            ("k limit x", String::new()),
            ("k what", String::new()),
        ] {
            assert_eq!(hint_for(&put, line), hint, "{line}");
        }
    }

    #[test]
    fn numbers_are_as_scanf_takes_them() {
        for word in ["1", "-1", "+1", "1x"] {
            assert!(
                starts_as_integer(word.as_bytes()) && starts_as_double(word.as_bytes()),
                "{word}"
            );
        }
        for word in ["inf", "-INF", "nan", ".5"] {
            assert!(
                !starts_as_integer(word.as_bytes()) && starts_as_double(word.as_bytes()),
                "{word}"
            );
        }
        for word in ["", "-", "x1", "."] {
            assert!(!starts_as_double(word.as_bytes()), "{word}");
        }
    }
}
