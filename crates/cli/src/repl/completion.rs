//! What Tab offers: names of commands, words of their syntax, options of the configuration,
//! categories of ACL and keys, each with a few words about it.
//!
//! What only the server knows is asked over a connection of its own, opened when Tab is first
//! pressed where it is needed: the shell's may be in a transaction or subscribed.

use std::{cell::RefCell, rc::Rc, time::Duration};

use bobbin_client::{RespClient, Target, Transport, Value};
use bobbin_resp::split_arguments;
use rustix::termios::tcgetwinsize;
use rustyline::completion::Candidate;

use super::{
    docs::{self, Docs},
    hint, history,
};
use crate::format::quoted;

/// What may be inserted, and how it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    replacement: String,
    display: String,
}

impl Suggestion {
    /// One that says nothing about itself.
    pub fn of(text: &str) -> Self {
        Self { replacement: text.to_owned(), display: text.to_owned() }
    }

    /// As it is listed, in so few columns that two more fit into a line.
    pub fn row(&self) -> &str {
        let most = width().saturating_sub(3);
        let end = self.display.char_indices().nth(most).map_or(self.display.len(), |(at, _)| at);
        self.display[..end].trim_end()
    }
}

impl Candidate for Suggestion {
    fn display(&self) -> &str {
        &self.display
    }

    fn replacement(&self) -> &str {
        &self.replacement
    }
}

/// Where the completed text starts, and what it may be.
pub fn suggestions(
    docs: &Docs,
    lookups: &RefCell<ServerLookups>,
    typed: &str,
) -> (usize, Vec<Suggestion>) {
    let (start, pairs) = pairs(docs, &mut *lookups.borrow_mut(), typed);
    (start, listed(pairs))
}

/// What may be inserted, and what is said about it.
type Pairs = Vec<(String, String)>;

fn pairs(docs: &Docs, lookups: &mut dyn Ask, typed: &str) -> (usize, Pairs) {
    let (start, names) = names(docs, typed);
    if !names.is_empty() {
        return (start, names);
    }
    let start = typed.rfind(|c: char| c.is_ascii_whitespace()).map_or(0, |at| at + 1);
    let (before, begun) = typed.split_at(start);
    // Inside quotes a blank does not end a word.
    let nothing = (start, Vec::new());
    let Some(words) = split_arguments(before.as_bytes()) else { return nothing };
    if begun.contains(['"', '\'']) {
        return nothing;
    }
    let Some(command) = docs.find(&words) else { return nothing };
    let arguments = &words[command.words.len()..];
    let name = command.name();
    let fits = |(word, _): &(String, String)| {
        word.get(..begun.len()).is_some_and(|start| start.eq_ignore_ascii_case(begun))
    };
    let pairs = match name.as_str() {
        "CONFIG GET" => lookups.options(begun),
        "CONFIG SET" if arguments.len().is_multiple_of(2) => lookups.options(begun),
        "ACL CAT" if arguments.is_empty() => lookups.categories(""),
        "ACL SETUSER" if begun.starts_with("+@") => lookups.categories("+@"),
        "ACL SETUSER" if begun.starts_with("-@") => lookups.categories("-@"),
        _ => {
            let Some(expected) = hint::expected(&command.arguments, arguments) else {
                return nothing;
            };
            let tokens = expected.tokens.into_iter().map(|token| (token, String::new()));
            let mut pairs: Pairs = tokens.filter(fits).collect();
            if expected.is_key {
                // The server has chosen them; in quotes they do not begin as they were typed.
                pairs.extend(lookups.keys(begun));
            }
            return (start, pairs);
        }
    };
    (start, pairs.into_iter().filter(fits).take(SUGGESTIONS_MAX).collect())
}

/// Names of commands with their summaries; after `help` of groups too.
fn names(docs: &Docs, typed: &str) -> (usize, Pairs) {
    let about = typed.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("help "));
    let start = match about {
        true => typed.len() - typed[5..].trim_start().len(),
        false => 0,
    };
    let begun = &typed[start..];
    let fits = |(name, _): &(String, String)| {
        name.get(..begun.len()).is_some_and(|start| start.eq_ignore_ascii_case(begun))
    };
    let commands = docs.commands().iter().map(|command| (command.name(), command.summary.clone()));
    let groups = docs.groups().iter().filter(|_| about);
    let groups = groups.map(|group| (format!("@{group}"), "a group of commands".to_owned()));
    (start, commands.chain(groups).filter(fits).collect())
}

/// In two columns that fit into a line.
fn listed(pairs: Pairs) -> Vec<Suggestion> {
    let width = width();
    let first = pairs.iter().map(|(word, _)| word.chars().count()).max().unwrap_or(0);
    let first = first.min(FIRST_COLUMN_MAX);
    let suggestion = |(replacement, about): (String, String)| {
        let display: String = match about.as_str() {
            "" => replacement.chars().take(width.saturating_sub(1)).collect(),
            // One line for each, whatever the terminal's width.
            about => format!("{replacement:first$}  {about}")
                .chars()
                .chain(std::iter::repeat(' '))
                .take(width.saturating_sub(2))
                .collect(),
        };
        Suggestion { replacement, display }
    };
    pairs.into_iter().map(suggestion).collect()
}

/// Of the terminal, in columns.
pub fn width() -> usize {
    let width = tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    if width == 0 { WIDTH } else { width }
}

/// What only the server knows.
trait Ask {
    /// Options of the configuration that begin so, with their values.
    fn options(&mut self, begun: &str) -> Pairs;
    /// Categories of commands, each behind this.
    fn categories(&mut self, prefix: &str) -> Pairs;
    /// Keys that begin so, as they are typed, with their types.
    fn keys(&mut self, begun: &str) -> Pairs;
}

/// A connection for what only the server knows.
#[derive(Default)]
pub struct ServerLookups {
    place: Option<Rc<(Target, Transport)>>,
    client: Option<RespClient>,
}

impl ServerLookups {
    /// Where the shell is now, and in which database.
    pub fn go_to(&mut self, target: Target, transport: Transport) {
        let is_same = self.place.as_ref().is_some_and(|place| {
            let (before, now) = (&place.0, &target);
            (&before.address, before.database, &before.user, &before.password)
                == (&now.address, now.database, &now.user, &now.password)
        });
        if !is_same {
            self.place = Some(Rc::new((target, transport)));
            self.client = None;
        }
    }

    /// The reply to a command; nothing where there is none, or an error.
    fn ask(&mut self, words: &[&[u8]]) -> Option<Value> {
        if self.client.is_none() {
            self.client = self.open();
        }
        let reply = self.client.as_mut()?.command(words);
        if reply.is_err() {
            self.client = None;
        }
        reply.ok().filter(|reply| !reply.is_error())
    }

    fn open(&self) -> Option<RespClient> {
        let place = self.place.as_ref()?;
        let (target, transport) = &**place;
        let mut client = RespClient::connect_to(&target.address, transport).ok()?;
        client.limit_replies(REPLY_LEN_MAX);
        client.set_read_timeout(Some(PATIENCE)).ok()?;
        if let Some(password) = &target.password {
            let user = target.user.as_deref();
            let words: Vec<&[u8]> =
                [&b"AUTH"[..]].into_iter().chain(user).chain([&password[..]]).collect();
            client.command(&words).ok()?;
        }
        client.command(&["CLIENT", "SETNAME", NAME]).ok()?;
        if let Some(database) = target.database {
            let reply = client.command(&["SELECT", &database.to_string()]).ok()?;
            return (!reply.is_error()).then_some(client);
        }
        Some(client)
    }
}

impl Ask for ServerLookups {
    fn options(&mut self, begun: &str) -> Pairs {
        let pattern = [escaped(&begun.to_ascii_lowercase()), "*".into()].concat();
        let reply = self.ask(&[b"CONFIG", b"GET", pattern.as_bytes()]);
        let reply = reply.unwrap_or(Value::Null);
        let mut pairs: Pairs = docs::fields(&reply)
            .into_iter()
            .map(|(name, value)| {
                let is_secret = history::SECRET_OPTIONS.contains(&name.as_bytes());
                let value = value.as_bytes().unwrap_or_default();
                let value = if is_secret || value.is_empty() { "".into() } else { quoted(value) };
                (name.to_owned(), value)
            })
            .collect();
        pairs.sort();
        pairs
    }

    fn categories(&mut self, prefix: &str) -> Pairs {
        let reply = self.ask(&[b"ACL", b"CAT"]).unwrap_or(Value::Null);
        let names = reply.as_elements().unwrap_or_default().iter().filter_map(|name| {
            let name = std::str::from_utf8(name.as_bytes()?).ok()?;
            (!name.contains(char::is_control)).then(|| format!("{prefix}{name}"))
        });
        let mut pairs: Pairs = names.map(|name| (name, String::new())).collect();
        pairs.sort();
        pairs
    }

    fn keys(&mut self, begun: &str) -> Pairs {
        let pattern = [escaped(begun), "*".into()].concat();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut cursor = b"0".to_vec();
        for _ in 0..SCANS_MAX {
            let words: [&[u8]; 6] =
                [b"SCAN", &cursor, b"MATCH", pattern.as_bytes(), b"COUNT", SCAN_COUNT];
            let Some(reply) = self.ask(&words) else { break };
            let Some([next, found]) = reply.as_elements() else { break };
            let found = found.as_elements().unwrap_or_default().iter();
            keys.extend(found.filter_map(|key| key.as_bytes().map(<[u8]>::to_vec)));
            cursor = next.as_bytes().unwrap_or(b"0").to_vec();
            if cursor == b"0" || keys.len() >= SUGGESTIONS_MAX {
                break;
            }
        }
        keys.sort();
        keys.dedup();
        keys.truncate(SUGGESTIONS_MAX);
        let mut pairs = Vec::new();
        for key in keys {
            let kind = self.ask(&[b"TYPE", &key]);
            let kind = kind.as_ref().and_then(Value::as_bytes).unwrap_or_default();
            pairs
                .push((typed_as(&key), String::from_utf8_lossy(kind).escape_default().to_string()));
        }
        pairs
    }
}

/// A key as it is typed: in quotes where it needs them.
fn typed_as(key: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"'\\".contains(byte);
    match std::str::from_utf8(key) {
        Ok(text) if !text.is_empty() && key.iter().all(is_plain) => text.to_owned(),
        _ => quoted(key),
    }
}

/// A pattern that means only itself.
fn escaped(text: &str) -> String {
    let mut pattern = String::new();
    for letter in text.chars() {
        if "*?[]\\^".contains(letter) {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}

/// More are not read by anybody.
const SUGGESTIONS_MAX: usize = 100;
/// How much of the keyspace is looked at for one Tab.
const SCANS_MAX: usize = 20;
const SCAN_COUNT: &[u8] = b"1000";
const REPLY_LEN_MAX: usize = 4 << 20;
/// For how long Tab may hold up a user who types.
const PATIENCE: Duration = Duration::from_secs(1);
const NAME: &str = "bobbin-cli-completion";
const WIDTH: usize = 80;
const FIRST_COLUMN_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::super::docs::{ArgumentType, DocumentedArgument, DocumentedCommand};
    use super::*;

    /// A server that knows a few things.
    struct Known;

    impl Ask for Known {
        fn options(&mut self, _begun: &str) -> Pairs {
            vec![("maxmemory".into(), "\"0\"".into()), ("maxclients".into(), "\"9\"".into())]
        }

        fn categories(&mut self, prefix: &str) -> Pairs {
            vec![
                (format!("{prefix}read"), String::new()),
                (format!("{prefix}write"), String::new()),
            ]
        }

        fn keys(&mut self, begun: &str) -> Pairs {
            let keys = ["user:1", "visits"].into_iter().filter(|key| key.starts_with(begun));
            keys.map(|key| (key.to_owned(), "string".into())).collect()
        }
    }

    fn argument(name: &str, is_key: bool) -> DocumentedArgument {
        DocumentedArgument { name: name.into(), is_key, ..DocumentedArgument::default() }
    }

    fn token(word: &str) -> DocumentedArgument {
        let token = Some(word.to_owned());
        DocumentedArgument {
            token,
            kind: ArgumentType::Token,
            optional: true,
            ..argument(word, false)
        }
    }

    fn docs() -> Docs {
        let command = |name: &str, arguments: Vec<DocumentedArgument>| DocumentedCommand {
            words: name.split(' ').map(str::to_owned).collect(),
            summary: format!("About {name}."),
            group: "g".into(),
            arguments,
            ..DocumentedCommand::default()
        };
        let key = || argument("key", true);
        let keys = DocumentedArgument { multiple: true, ..key() };
        Docs::of(vec![
            command("ACL CAT", Vec::new()),
            command("ACL SETUSER", vec![argument("user", false)]),
            command("CONFIG GET", Vec::new()),
            command("CONFIG SET", Vec::new()),
            command("DEL", vec![keys]),
            command("SET", vec![key(), argument("value", false), token("NX"), token("GET")]),
        ])
    }

    fn words(typed: &str) -> (usize, Vec<String>) {
        let (start, pairs) = pairs(&docs(), &mut Known, typed);
        (start, pairs.into_iter().map(|(word, _)| word).collect())
    }

    #[test]
    fn what_is_offered_where() {
        assert_eq!(words("s"), (0, vec!["SET".into()]));
        assert_eq!(words("config "), (0, vec!["CONFIG GET".into(), "CONFIG SET".into()]));
        assert_eq!(words("help @"), (5, vec!["@g".into()]));
        assert_eq!(words("config set maxm"), (11, vec!["maxmemory".into()]));
        assert_eq!(words("config set maxmemory 1 maxc"), (23, vec!["maxclients".into()]));
        // A value is none of the options.
        assert_eq!(words("config set maxmemory m").1, [""; 0]);
        assert_eq!(words("acl cat r"), (8, vec!["read".into()]));
        assert_eq!(words("acl setuser me +@w"), (15, vec!["+@write".into()]));
        assert_eq!(words("set u"), (4, vec!["user:1".into()]));
        assert_eq!(words("del user:1 v"), (11, vec!["visits".into()]));
        assert_eq!(words("set k u").1, [""; 0]);
        assert_eq!(words("set k v "), (8, vec!["NX".into(), "GET".into()]));
        assert_eq!(words("set k v nx "), (11, vec!["GET".into()]));
        for nothing in ["nosuch ", "set \"u", "set 'a b", "set k v what "] {
            assert_eq!(words(nothing).1, [""; 0], "{nothing}");
        }
    }

    #[test]
    fn keys_as_they_are_typed() {
        assert_eq!(typed_as(b"user:1"), "user:1");
        assert_eq!(typed_as(b"a b"), "\"a b\"");
        assert_eq!(typed_as(b"\x1b[2J"), "\"\\x1b[2J\"");
        assert_eq!(typed_as(b""), "\"\"");
        assert_eq!(escaped("a*[b]"), "a\\*\\[b\\]");
    }

    #[test]
    fn a_line_for_each() {
        let pairs = vec![("GET".into(), "Long ".repeat(99)), ("GETRANGE".into(), "Short.".into())];
        let listed = listed(pairs);
        assert!(listed[0].display.starts_with("GET       Long "), "{:?}", listed[0]);
        assert!(listed[1].display.starts_with("GETRANGE  Short."), "{:?}", listed[1]);
        assert_eq!(listed[0].display.chars().count(), listed[1].display.chars().count());
    }
}
