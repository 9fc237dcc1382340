//! What the server says about its commands: COMMAND DOCS, read into a tree of arguments. Help,
//! completion and hints come from it; nothing is known of commands beside it.

use bobbin_client::{RespClient, Value, nearest};

/// All commands and their subcommands, by name.
#[derive(Clone, Debug, Default)]
pub struct Docs {
    commands: Vec<DocumentedCommand>,
    groups: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct DocumentedCommand {
    /// In capitals: `CONFIG SET` is two words.
    pub words: Vec<String>,
    pub summary: String,
    pub since: Option<String>,
    pub group: String,
    pub arguments: Vec<DocumentedArgument>,
}

/// One argument of a command, or a group of such.
#[derive(Clone, Debug, Default)]
pub struct DocumentedArgument {
    /// How it is shown.
    pub name: String,
    /// A word that announces it, `COUNT` say.
    pub token: Option<String>,
    pub kind: ArgumentType,
    /// It is the name of a key.
    pub is_key: bool,
    pub optional: bool,
    pub multiple: bool,
    /// The token is repeated with each of several.
    pub multiple_token: bool,
    pub arguments: Vec<Self>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArgumentType {
    #[default]
    Text,
    Integer,
    Double,
    /// Only the token.
    Token,
    OneOf,
    Block,
}

impl Docs {
    /// Asks the server. `None` where it cannot or will not say.
    pub fn ask(client: &mut RespClient) -> Option<Self> {
        let reply = client.command(&["COMMAND", "DOCS"]).ok()?;
        if reply.is_error() {
            return None;
        }
        Some(Self::read(&reply))
    }

    fn read(reply: &Value) -> Self {
        let mut docs = Self::default();
        for (name, specification) in fields(reply) {
            docs.read_command(&[name], specification);
        }
        Self::of(docs.commands)
    }

    /// These commands.
    pub fn of(commands: Vec<DocumentedCommand>) -> Self {
        let mut docs = Self { commands, groups: Vec::new() };
        docs.commands.sort_by_cached_key(DocumentedCommand::name);
        docs.groups = docs.commands.iter().map(|command| command.group.clone()).collect();
        docs.groups.sort();
        docs.groups.dedup();
        docs.groups.retain(|group| !group.is_empty());
        docs
    }

    pub fn commands(&self) -> &[DocumentedCommand] {
        &self.commands
    }

    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    /// The command with the most words that a line of these words begins with.
    pub fn find(&self, words: &[Vec<u8>]) -> Option<&DocumentedCommand> {
        let begins = |command: &&DocumentedCommand| {
            command.words.len() <= words.len()
                && command.words.iter().zip(words).all(|(name, word)| is_word(name, word))
        };
        self.commands.iter().filter(begins).max_by_key(|command| command.words.len())
    }

    /// The command that a line most likely means which begins with words of none.
    pub fn nearest(&self, words: &[Vec<u8>]) -> Option<String> {
        let word = |at: usize| Some(std::str::from_utf8(words.get(at)?).ok()?.to_uppercase());
        let names_at = |at: usize| self.commands.iter().filter_map(move |it| it.words.get(at));
        let first = word(0)?;
        if !names_at(0).any(|name| *name == first) {
            return nearest(&first, names_at(0).map(String::as_str)).map(str::to_owned);
        }
        let second = word(1)?;
        let commands = self.commands.iter().filter(|command| command.words[0] == first);
        let seconds: Vec<&str> =
            commands.filter_map(|command| command.words.get(1)).map(String::as_str).collect();
        if seconds.contains(&&*second) {
            return None;
        }
        nearest(&second, seconds).map(|second| format!("{first} {second}"))
    }

    fn read_command(&mut self, words: &[&str], specification: &Value) {
        let mut command = DocumentedCommand {
            words: words.iter().map(|word| word.to_uppercase()).collect(),
            ..DocumentedCommand::default()
        };
        let mut subcommands = None;
        for (field, value) in fields(specification) {
            match field {
                "summary" => command.summary = text(value),
                "since" => command.since = Some(text(value)),
                "group" => command.group = text(value),
                "arguments" => command.arguments = read_arguments(value),
                "subcommands" => subcommands = Some(value),
                _ => {}
            }
        }
        self.commands.push(command);
        for (name, specification) in subcommands.map(fields).unwrap_or_default() {
            // It is called `config|set` there.
            let name = name.split_once('|').map_or(name, |(_, name)| name);
            if words.len() < COMMAND_WORDS_MAX {
                self.read_command(&[words, &[name]].concat(), specification);
            }
        }
    }
}

impl DocumentedCommand {
    pub fn name(&self) -> String {
        self.words.join(" ")
    }
}

pub fn is_word(name: &str, word: &[u8]) -> bool {
    name.as_bytes().eq_ignore_ascii_case(word)
}

fn read_arguments(value: &Value) -> Vec<DocumentedArgument> {
    value.as_elements().unwrap_or_default().iter().map(read_argument).collect()
}

fn read_argument(value: &Value) -> DocumentedArgument {
    let mut argument = DocumentedArgument::default();
    let mut shown = None;
    for (field, value) in fields(value) {
        match field {
            "name" => argument.name = text(value),
            "display_text" => shown = Some(text(value)),
            "token" => argument.token = Some(text(value)),
            "type" => {
                let name = text(value);
                argument.is_key = name == "key";
                argument.kind = read_kind(&name);
            }
            "arguments" => argument.arguments = read_arguments(value),
            "flags" => {
                for flag in value.as_elements().unwrap_or_default() {
                    match flag.as_bytes() {
                        Some(b"optional") => argument.optional = true,
                        Some(b"multiple") => argument.multiple = true,
                        Some(b"multiple_token") => argument.multiple_token = true,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    argument.name = shown.unwrap_or(argument.name);
    argument
}

fn read_kind(name: &str) -> ArgumentType {
    match name {
        "integer" | "unix-time" => ArgumentType::Integer,
        "double" => ArgumentType::Double,
        "pure-token" => ArgumentType::Token,
        "oneof" => ArgumentType::OneOf,
        "block" => ArgumentType::Block,
        _ => ArgumentType::Text,
    }
}

/// The pairs of a map, which version 2 of the protocol sends as one list.
pub fn fields(value: &Value) -> Vec<(&str, &Value)> {
    let pairs: Vec<(&Value, &Value)> = match value {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| (name, value)).collect(),
        _ => {
            let pairs = value.as_elements().unwrap_or_default().chunks_exact(2);
            pairs.map(|pair| (&pair[0], &pair[1])).collect()
        }
    };
    let named = pairs.into_iter().filter_map(|(name, value)| {
        let name = std::str::from_utf8(name.as_bytes()?).ok()?;
        (!name.contains(char::is_control)).then_some((name, value))
    });
    named.collect()
}

fn text(value: &Value) -> String {
    let text = value.as_bytes().map(String::from_utf8_lossy).unwrap_or_default();
    // It is shown as a hint, too.
    text.chars().filter(|character| !character.is_control()).collect()
}

/// A command, its subcommand, and room for one more level than there is.
const COMMAND_WORDS_MAX: usize = 3;
