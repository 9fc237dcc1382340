//! The rules that make a user: `on`, `>password`, `~key*`, `+@read`, `-config|set`, `(+get
//! ~other*)` and so on.

use std::borrow::Cow;
use std::num::{IntErrorKind, ParseIntError};

use super::pattern::Pattern;
use super::selector::{ChannelRules, CommandSet, Databases, KeyPattern, KeyRules, Selector};
use super::user::{PasswordHash, User, hash_password};
use crate::config::split;
use crate::engine::row::Facts;
use crate::engine::row::flags::Categories;

/// What rules are parsed with.
#[derive(Clone, Copy)]
pub struct RuleGrammar<'a> {
    /// All commands, by id.
    pub commands: &'a [&'a Facts],
    /// `acl-pubsub-default allchannels`.
    pub all_channels: bool,
}

/// Why a rule is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleError {
    Unknown,
    Syntax,
    AllKeysAlready,
    AllChannelsAlready,
    NoSuchPassword,
    NotAHash,
    FirstArgOfSubcommand,
    DatabaseOutOfRange,
}

impl RuleError {
    /// The text of the reply. Clients and people know these texts, so they are Valkey's.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown command or category name in ACL",
            Self::Syntax => "Syntax error",
            Self::AllKeysAlready => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any \
                 effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            Self::AllChannelsAlready => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any \
                 effect. Try 'resetchannels' to start with an empty list of channels"
            }
            Self::NoSuchPassword => {
                "The password you are trying to remove from the user does not exist"
            }
            Self::NotAHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
            Self::FirstArgOfSubcommand => "Allowing first-arg of a subcommand is not supported",
            Self::DatabaseOutOfRange => "The provided database ID is out of range",
        }
    }
}

/// Joins the words of selectors that were written as several words: `(+get`, `~a)`. The error is
/// the first word of a selector that is not closed.
pub fn join_selectors<'a>(words: &[&'a [u8]]) -> Result<Vec<Cow<'a, [u8]>>, &'a [u8]> {
    let mut joined = Vec::with_capacity(words.len());
    let mut open: Option<(&[u8], Vec<u8>)> = None;
    for &word in words {
        let closes = word.last() == Some(&b')');
        match &mut open {
            None if word.first() == Some(&b'(') && !closes => open = Some((word, word.to_vec())),
            None => joined.push(Cow::Borrowed(word)),
            Some((_, text)) => {
                text.push(b' ');
                text.extend_from_slice(word);
                if closes {
                    joined.extend(open.take().map(|(_, text)| Cow::Owned(text)));
                }
            }
        }
    }
    match open {
        Some((first, _)) => Err(first),
        None => Ok(joined),
    }
}

impl User {
    /// Applies a rule to the user. After an error the user must be thrown away.
    pub fn apply(&mut self, rule: &[u8], grammar: &RuleGrammar<'_>) -> Result<(), RuleError> {
        let word = rule.to_ascii_lowercase();
        match (&*word, rule) {
            (b"", _) => {}
            (b"on", _) => self.enabled = true,
            (b"off", _) => self.enabled = false,
            // Payloads of RESTORE are always checked, so these rules change nothing.
            (b"sanitize-payload" | b"skip-sanitize-payload", _) => {}
            (b"nopass", _) => {
                self.no_password = true;
                self.passwords.clear();
            }
            (b"resetpass", _) => {
                self.no_password = false;
                self.passwords.clear();
            }
            (_, [b'>', password @ ..]) => self.add_password(hash_password(password)),
            (_, [b'#', hash @ ..]) => self.add_password(parse_hash(hash)?),
            (_, [b'<', password @ ..]) => self.remove_password(&hash_password(password))?,
            (_, [b'!', hash @ ..]) => self.remove_password(&parse_hash(hash)?)?,
            (_, [b'(', rules @ .., b')']) => self.selectors.push(parse_selector(rules, grammar)?),
            (b"clearselectors", _) => self.selectors.clear(),
            (b"reset", _) => {
                let RuleGrammar { commands, all_channels } = *grammar;
                *self = Self::new(&self.name, self.identity, commands, all_channels);
            }
            _ => self.root.apply(rule, &word, grammar)?,
        }
        Ok(())
    }

    fn add_password(&mut self, hash: PasswordHash) {
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
        self.no_password = false;
    }

    fn remove_password(&mut self, hash: &PasswordHash) -> Result<(), RuleError> {
        let at = self.passwords.iter().position(|known| known == hash);
        self.passwords.remove(at.ok_or(RuleError::NoSuchPassword)?);
        Ok(())
    }
}

fn parse_hash(text: &[u8]) -> Result<PasswordHash, RuleError> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut hash = PasswordHash::default();
    if text.len() != hash.len() * 2 {
        return Err(RuleError::NotAHash);
    }
    for (byte, digits) in hash.iter_mut().zip(text.chunks_exact(2)) {
        let (Some(high), Some(low)) = (digit(digits[0]), digit(digits[1])) else {
            return Err(RuleError::NotAHash);
        };
        *byte = high << 4 | low;
    }
    Ok(hash)
}

fn parse_selector(rules: &[u8], grammar: &RuleGrammar<'_>) -> Result<Selector, RuleError> {
    // Valkey would ignore what is behind a zero byte.
    if rules.contains(&0) {
        return Err(RuleError::Syntax);
    }
    let mut selector = Selector::new(grammar.commands, grammar.all_channels);
    for rule in split(rules).ok_or(RuleError::Syntax)? {
        // Otherwise the description of the selector would not read back as the same selector.
        if rule.iter().any(|byte| b"\"')".contains(byte)) {
            return Err(RuleError::Syntax);
        }
        selector.apply(&rule, &rule.to_ascii_lowercase(), grammar)?;
    }
    Ok(selector)
}

impl Selector {
    /// Applies a rule. `word` is the rule in lower case.
    fn apply(
        &mut self,
        rule: &[u8],
        word: &[u8],
        grammar: &RuleGrammar<'_>,
    ) -> Result<(), RuleError> {
        match (word, rule) {
            (b"allkeys" | b"~*", _) => self.keys = KeyRules::All,
            (b"resetkeys", _) => self.keys = KeyRules::These(Vec::new()),
            (b"allchannels" | b"&*", _) => self.channels = ChannelRules::All,
            (b"resetchannels", _) => self.channels = ChannelRules::These(Vec::new()),
            (b"alldbs", _) => self.databases = Databases::All,
            (b"resetdbs", _) => self.databases = Databases::These(Vec::new()),
            (b"allcommands" | b"+@all", _) => self.set_all_commands(grammar.commands, true),
            (b"nocommands" | b"-@all", _) => self.set_all_commands(grammar.commands, false),
            (_, [b'~' | b'%', ..]) => self.add_keys(rule)?,
            (_, [b'&', pattern @ ..]) => self.add_channels(pattern)?,
            ([b'd', b'b', b'=', numbers @ ..], _) => self.databases = parse_databases(numbers)?,
            ([b'+', b'@', name @ ..], _) => self.set_category(name, true, grammar.commands)?,
            ([b'-', b'@', name @ ..], _) => self.set_category(name, false, grammar.commands)?,
            ([b'+', name @ ..], _) => self.allow_command(name, grammar.commands)?,
            ([b'-', name @ ..], _) => {
                let command = find(grammar.commands, name)?;
                self.set_command(command, false);
                self.note_rule(false, command.full_name.as_bytes());
            }
            _ => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    fn add_keys(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let KeyRules::These(patterns) = &mut self.keys else {
            return Err(RuleError::AllKeysAlready);
        };
        let added = parse_keys(rule)?;
        match patterns.iter_mut().find(|known| known.pattern == added.pattern) {
            Some(known) => {
                known.reads |= added.reads;
                known.writes |= added.writes;
            }
            None => patterns.push(added),
        }
        Ok(())
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        let ChannelRules::These(patterns) = &mut self.channels else {
            return Err(RuleError::AllChannelsAlready);
        };
        if has_spaces(pattern) {
            return Err(RuleError::Syntax);
        }
        let pattern = Pattern::new(pattern);
        if !patterns.contains(&pattern) {
            patterns.push(pattern);
        }
        Ok(())
    }

    fn set_all_commands(&mut self, commands: &[&Facts], allowed: bool) {
        self.commands = CommandSet::none(commands);
        self.commands.set_all(commands, allowed);
        self.begins_with_all = allowed;
        self.first_args.clear();
        self.rules.clear();
    }

    fn set_category(
        &mut self,
        name: &[u8],
        allowed: bool,
        commands: &[&Facts],
    ) -> Result<(), RuleError> {
        let category = category(name).ok_or(RuleError::Unknown)?;
        for command in commands.iter().filter(|command| is_of(command, category)) {
            self.set_command(command, allowed);
        }
        self.note_rule(allowed, &[b"@", name].concat());
        Ok(())
    }

    /// Allows `get`, `config|get`, or `select|0`: a command without subcommands, with this first
    /// argument.
    fn allow_command(&mut self, name: &[u8], commands: &[&Facts]) -> Result<(), RuleError> {
        let Some(bar) = name.iter().rposition(|byte| *byte == b'|') else {
            let command = find(commands, name)?;
            self.set_command(command, true);
            self.note_rule(true, command.full_name.as_bytes());
            return Ok(());
        };
        let (command, argument) = (find(commands, &name[..bar])?, &name[bar + 1..]);
        if command.parent.is_some() {
            return Err(RuleError::FirstArgOfSubcommand);
        }
        // The rule must stay one word wherever it is written.
        if argument.is_empty() || has_spaces(argument) {
            return Err(RuleError::Syntax);
        }
        if command.subcommands.is_empty() {
            let allowed = (command.id, Box::from(argument));
            // The list has the order of the rules; of two equal rules the later one is kept.
            self.first_args.retain(|known| *known != allowed);
            self.first_args.push(allowed);
        } else {
            self.set_command(find(commands, name)?, true);
        }
        self.note_rule(true, name);
        Ok(())
    }

    /// Allows or forbids a command and its subcommands.
    fn set_command(&mut self, command: &Facts, allowed: bool) {
        self.commands.set(command.id, allowed);
        self.first_args.retain(|(id, _)| *id != command.id);
        for id in command.subcommands.clone() {
            self.commands.set(id, allowed);
        }
    }

    /// Remembers a rule. It replaces earlier rules about the same command and about its
    /// subcommands.
    fn note_rule(&mut self, allowed: bool, name: &[u8]) {
        self.rules.retain(|rule| match rule[1..].strip_prefix(name) {
            Some(rest) => !(rest.is_empty() || rest[0] == b'|'),
            None => true,
        });
        let sign: &[u8] = if allowed { b"+" } else { b"-" };
        self.rules.push([sign, name].concat().into());
    }
}

/// `~pattern`, `%R~pattern`, `%W~pattern`, `%RW~pattern`.
fn parse_keys(rule: &[u8]) -> Result<KeyPattern, RuleError> {
    let (mut reads, mut writes) = (rule[0] == b'~', rule[0] == b'~');
    let mut rest = &rule[1..];
    if rule[0] == b'%' {
        loop {
            match rest {
                [b'R' | b'r', after @ ..] if !reads => (reads, rest) = (true, after),
                [b'W' | b'w', after @ ..] if !writes => (writes, rest) = (true, after),
                [b'~', after @ ..] if reads || writes => {
                    rest = after;
                    break;
                }
                // Valkey accepts `%R` for `%R~`.
                [] if reads || writes => break,
                _ => return Err(RuleError::Syntax),
            }
        }
    }
    if has_spaces(rest) {
        return Err(RuleError::Syntax);
    }
    Ok(KeyPattern { reads, writes, pattern: Pattern::new(rest) })
}

/// `0,1,15`
fn parse_databases(text: &[u8]) -> Result<Databases, RuleError> {
    let mut numbers = Vec::new();
    for number in text.split(|byte| *byte == b',') {
        // Numbers are read as C does: white space and a plus may be before them, and leading zeros.
        let number = str::from_utf8(number).map_err(|_| RuleError::Syntax)?.trim_ascii_start();
        let number: i64 = number.parse().map_err(|error: ParseIntError| match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => RuleError::DatabaseOutOfRange,
            _ => RuleError::Syntax,
        })?;
        let number = i32::try_from(number).map_err(|_| RuleError::DatabaseOutOfRange)?;
        numbers.push(u32::try_from(number).map_err(|_| RuleError::DatabaseOutOfRange)?);
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(Databases::These(numbers))
}

/// Finds a command or subcommand by the name in its row, so that rules stay valid whatever
/// `rename-command` says.
fn find<'a>(commands: &[&'a Facts], name: &[u8]) -> Result<&'a Facts, RuleError> {
    let mut all = commands.iter().copied();
    let found = all.find(|command| command.full_name.as_bytes().eq_ignore_ascii_case(name));
    found.ok_or(RuleError::Unknown)
}

/// Finds a category by its name, in upper or lower case.
pub fn category(name: &[u8]) -> Option<Categories> {
    let is = |(_, known): &&(Categories, &str)| known.as_bytes().eq_ignore_ascii_case(name);
    Categories::NAMES.iter().find(is).map(|(category, _)| *category)
}

pub fn is_of(command: &Facts, category: Categories) -> bool {
    command.row.categories.complete(command.row.flags).has(category)
}

/// Whether a text has white space or a zero byte, so that it would not stay one word.
pub fn has_spaces(text: &[u8]) -> bool {
    text.iter().any(|byte| byte.is_ascii_whitespace() || matches!(byte, 0x0b | 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::command::Registry;

    fn registry() -> Registry {
        Registry::new(&crate::process::families(), &[]).unwrap()
    }

    fn make(rules: &str) -> Result<String, RuleError> {
        let registry = registry();
        let grammar = RuleGrammar { commands: registry.facts(), all_channels: false };
        let mut user = User::new(b"u", 1, registry.facts(), false);
        let words: Vec<&[u8]> = rules.split(' ').map(str::as_bytes).collect();
        for rule in join_selectors(&words).map_err(|_| RuleError::Syntax)? {
            user.apply(&rule, &grammar)?;
        }
        // The description makes the same user.
        let mut again = User::new(b"u", 1, registry.facts(), false);
        let description = user.describe();
        let words: Vec<&[u8]> = description.split(|byte| *byte == b' ').collect();
        for rule in join_selectors(&words).unwrap() {
            again.apply(&rule, &grammar).unwrap();
        }
        assert_eq!(again.root, user.root);
        assert_eq!(again.selectors, user.selectors);
        Ok(String::from_utf8(description).unwrap())
    }

    /// As valkey-server 9.1.2 describes them.
    #[test]
    fn users_are_described_by_the_rules_that_made_them() {
        for (rules, described) in [
            ("", "off resetchannels -@all"),
            ("on nopass ~* &* +@all", "on nopass ~* &* +@all"),
            ("%rw~x %W~x %R~y ~y", "off ~x ~y resetchannels -@all"),
            ("%R~a %W~b", "off %R~a %W~b resetchannels -@all"),
            (
                "+@all -config|get -config +config|set",
                "off resetchannels +@all -config +config|set",
            ),
            ("+@all -@all +get -get +GET", "off resetchannels -@all +get"),
            (
                "+select|0 +select|1 +Select|A",
                "off resetchannels -@all +select|0 +select|1 +select|a",
            ),
            ("+select|0 -select", "off resetchannels -@all -select"),
            ("db=1,0,1 +get", "off resetchannels db=0,1 -@all +get"),
            ("db=1 db=2", "off resetchannels db=2 -@all"),
            ("DB=+1,01,00", "off resetchannels db=0,1 -@all"),
            ("resetdbs", "off resetchannels resetdbs -@all"),
            (
                "(+get ~a) (-@all ~b db=3)",
                "off resetchannels -@all (~a resetchannels -@all +get) (~b resetchannels db=3 -@all)",
            ),
            ("on +get db=2 reset", "off resetchannels -@all"),
        ] {
            assert_eq!(make(rules).as_deref(), Ok(described), "{rules}");
        }
    }

    /// Here Valkey's description could not be read again: it has `~*` for the first pattern.
    #[test]
    fn a_pattern_for_all_keys_may_have_others_behind_it() {
        for rules in ["%RW~* ~foo", "%R~* %W~* ~foo"] {
            let described = make(rules).unwrap();
            assert_eq!(described, "off %RW~* ~foo resetchannels -@all");
            assert_eq!(make(&described), Ok(described));
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for (rule, error) in [
            ("foo", RuleError::Syntax),
            ("+foo", RuleError::Unknown),
            ("+@foo", RuleError::Unknown),
            ("+get|x|y", RuleError::Unknown),
            ("+config|foo", RuleError::Unknown),
            ("+config|get|x", RuleError::FirstArgOfSubcommand),
            ("-get|x", RuleError::Unknown),
            ("+config|", RuleError::Syntax),
            ("+get|", RuleError::Syntax),
            ("+", RuleError::Unknown),
            ("~* ~x", RuleError::AllKeysAlready),
            ("~* %X~x", RuleError::AllKeysAlready),
            ("&* &x", RuleError::AllChannelsAlready),
            ("%~x", RuleError::Syntax),
            ("%RR~x", RuleError::Syntax),
            ("%", RuleError::Syntax),
            ("#abc", RuleError::NotAHash),
            ("<nope", RuleError::NoSuchPassword),
            (")", RuleError::Syntax),
            ("(on)", RuleError::Syntax),
            ("(+get (x))", RuleError::Syntax),
            ("(+get\0)", RuleError::Syntax),
            ("db=", RuleError::Syntax),
            ("db=1,,2", RuleError::Syntax),
            ("db=-1", RuleError::DatabaseOutOfRange),
        ] {
            assert_eq!(make(rule), Err(error), "{rule}");
        }
        assert_eq!(join_selectors(&[b"(+get", b"~a"]), Err(&b"(+get"[..]));
    }

    #[test]
    fn categories_take_in_subcommands() {
        let registry = registry();
        let grammar = RuleGrammar { commands: registry.facts(), all_channels: false };
        let mut user = User::new(b"u", 1, registry.facts(), false);
        user.apply(b"+@admin", &grammar).unwrap();
        let has = |user: &User, name: &[u8]| {
            user.root.commands.has(find(registry.facts(), name).unwrap())
        };
        assert!(has(&user, b"config|set") && !has(&user, b"config|help") && !has(&user, b"get"));
        user.apply(b"-config", &grammar).unwrap();
        assert!(!has(&user, b"config|set") && has(&user, b"acl|setuser"));
    }
}
