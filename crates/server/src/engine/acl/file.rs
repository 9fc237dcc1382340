//! Users in files: `user` lines of the configuration, and the file of `aclfile`, which has only
//! users.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use bobbin_io::error_text;

use super::rules::{RuleError, RuleGrammar, has_spaces, join_selectors};
use super::user::User;
use crate::base::files::{self, Secrecy};
use crate::config;

/// Users by name.
pub type Users = BTreeMap<Arc<[u8]>, Arc<User>>;

/// Makes a user from the words behind `user`: a name, then rules. The error is a text for people.
pub fn read_user(
    words: &[&[u8]],
    identity: u64,
    grammar: &RuleGrammar<'_>,
) -> Result<User, String> {
    let (name, rules) = words.split_first().ok_or("A user without a name")?;
    if has_spaces(name) {
        return Err("Spaces not allowed in ACL usernames".into());
    }
    let rules = join_selectors(rules).map_err(unmatched)?;
    let mut user = User::new(name, identity, grammar.commands, grammar.all_channels);
    for rule in rules {
        user.apply(&rule, grammar).map_err(|error| {
            let (rule, user) = (shown(&rule), String::from_utf8_lossy(name));
            format!("Error in user declaration '{user}', rule '{rule}': {}", error.text())
        })?;
    }
    user.settle(grammar.commands);
    Ok(user)
}

/// The error for a selector that is not closed.
pub fn unmatched(first: &[u8]) -> String {
    let first = String::from_utf8_lossy(first);
    format!("Unmatched parenthesis in acl selector starting at '{first}'.")
}

/// A rule that can be shown: passwords are hidden.
fn shown(rule: &[u8]) -> String {
    match rule.first() {
        Some(sign @ (b'>' | b'<' | b'#' | b'!')) => format!("{}(redacted)", char::from(*sign)),
        _ => String::from_utf8_lossy(rule).into_owned(),
    }
}

/// The line of a user for a configuration file, where quotes have a meaning.
pub fn configuration_line(user: &User) -> Vec<u8> {
    let name: Vec<u8> = user.name.to_vec();
    let description = user.describe();
    let rules = description.split(|byte| *byte == b' ');
    let quoted = std::iter::once(&name[..]).chain(rules).map(config::word);
    std::iter::once(b"user".to_vec()).chain(quoted).collect::<Vec<_>>().join(&b' ')
}

/// Reads a whole file. The error lists everything that is wrong with it. `identity` gives the
/// identity for a user's name.
pub fn load(
    path: &[u8],
    grammar: &RuleGrammar<'_>,
    identity: &mut dyn FnMut(&[u8]) -> u64,
) -> Result<Users, String> {
    let shown_path = String::from_utf8_lossy(path);
    let text = std::fs::read(Path::new(OsStr::from_bytes(path))).map_err(|error| {
        let why = error_text(&error);
        format!("Error loading ACLs, opening file '{shown_path}': {why}")
    })?;
    parse(config::without_mark(&text), &shown_path, grammar, identity)
}

/// Reads the text of a file. `path` is for error messages.
pub fn parse(
    text: &[u8],
    path: &str,
    grammar: &RuleGrammar<'_>,
    identity: &mut dyn FnMut(&[u8]) -> u64,
) -> Result<Users, String> {
    let mut reader = AclFileReader { path, grammar, errors: String::new() };
    let mut users = Users::new();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        if let Some(user) = reader.line(index + 1, line.trim_ascii(), identity) {
            let name = String::from_utf8_lossy(&user.name).into_owned();
            if users.insert(Arc::clone(&user.name), Arc::new(user)).is_some() {
                let number = index + 1;
                let error = format!("WARNING: Duplicate user '{name}' found on line {number}. ");
                reader.errors.push_str(&error);
            }
        }
    }
    if reader.errors.is_empty() {
        return Ok(users);
    }
    Err(reader.errors
        + "WARNING: ACL errors detected, no change to the previously active ACL rules was performed")
}

struct AclFileReader<'a> {
    path: &'a str,
    grammar: &'a RuleGrammar<'a>,
    /// Sentences, one after the other.
    errors: String,
}

impl AclFileReader<'_> {
    /// Reads a line. It is empty, or `user name rules...` with single spaces and without quotes.
    fn line(
        &mut self,
        number: usize,
        line: &[u8],
        identity: &mut dyn FnMut(&[u8]) -> u64,
    ) -> Option<User> {
        let at = format!("{}:{number}", self.path);
        if line.is_empty() {
            return None;
        }
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let [b"user", name, rules @ ..] = &words[..] else {
            let error = format!("{at} should start with user keyword followed by the username. ");
            self.errors.push_str(&error);
            return None;
        };
        if has_spaces(name) {
            let name = String::from_utf8_lossy(name);
            let error = format!("'{at}: username '{name}' contains invalid characters. ");
            self.errors.push_str(&error);
            return None;
        }
        let Ok(rules) = join_selectors(rules) else {
            let error = format!("{at}: Unmatched parenthesis in selector definition.");
            self.errors.push_str(&error);
            return None;
        };
        let RuleGrammar { commands, all_channels } = *self.grammar;
        let mut user = User::new(name, identity(name), commands, all_channels);
        let mut is_sound = true;
        for rule in rules {
            let rule = rule.trim_ascii();
            let Err(error) = user.apply(rule, self.grammar) else { continue };
            if error == RuleError::Unknown {
                // Commands are not secret, and if several are wrong, the administrator wants to see
                // all.
                let (rule, why) = (shown(rule), error.text());
                let error = format!("{at}: Error in applying operation '{rule}': {why}. ");
                self.errors.push_str(&error);
            } else if std::mem::replace(&mut is_sound, false) {
                self.errors.push_str(&format!("{at}: {}. ", error.text()));
            }
        }
        user.settle(commands);
        Some(user)
    }
}

/// Replaces the file. Readers find the old or the new one as a whole, even after a crash.
pub fn save(path: &[u8], users: &[Arc<User>]) -> std::io::Result<()> {
    let lines: Vec<u8> =
        users.iter().flat_map(|user| [user.line(), b"\n".to_vec()].concat()).collect();
    files::replace(Path::new(OsStr::from_bytes(path)), &lines, Secrecy::Secret)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::command::Registry;

    #[test]
    fn a_line_of_the_configuration_reads_back() {
        let registry = Registry::new(&crate::process::families(), &[]).unwrap();
        let grammar = RuleGrammar { commands: registry.facts(), all_channels: false };
        let words: [&[u8]; 5] = [b"", b"on", b"~a\"b", b"&'x", b"(~y +get)"];
        let user = read_user(&words, 1, &grammar).unwrap();
        let line = configuration_line(&user);
        let words = config::split(&line).unwrap();
        let words: Vec<&[u8]> = words.iter().skip(1).map(Vec::as_slice).collect();
        assert_eq!(read_user(&words, 1, &grammar).unwrap().describe(), user.describe());
    }

    #[test]
    fn a_mark_of_utf8_before_a_file_is_passed_over() {
        let registry = Registry::new(&crate::process::families(), &[]).unwrap();
        let grammar = RuleGrammar { commands: registry.facts(), all_channels: false };
        let name = format!("bobbin-marked-{}.acl", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "\u{feff}user alice on ~* +get\n").unwrap();
        let users = load(path.as_os_str().as_bytes(), &grammar, &mut |_| 1).unwrap();
        assert!(users.contains_key(&b"alice"[..]));
        std::fs::remove_file(path).unwrap();
    }

    /// Both kinds of files read back as the same users, whatever names, patterns and passwords ACL
    /// SETUSER accepts.
    #[test]
    fn random_users_read_back_from_both_files() {
        const ROUNDS: u32 = 2000;
        const HOSTILE: &[u8] = b"\n\r\t \x0b\x0c\0\"'\\#()~&%|=\x01\x85\xa0\xff";
        const SIGNS: [&[u8]; 14] = [
            b">",
            b"~",
            b"&",
            b"%R~",
            b"%W~",
            b"%RW~",
            b"+select|",
            b"(~",
            b"(&",
            b"(+get|",
            b"#",
            b"<",
            b"db=",
            b"+",
        ];
        let registry = Registry::new(&crate::process::families(), &[]).unwrap();
        let grammar = RuleGrammar { commands: registry.facts(), all_channels: false };
        let path = std::env::temp_dir().join(format!("bobbin-users-{}", std::process::id()));
        let path = path.as_os_str().as_bytes();
        let mut random = crate::base::random::Random::new(17);
        let word = |random: &mut crate::base::random::Random| {
            let mut word = Vec::new();
            for _ in 0..random.below(6) {
                word.push(match random.below(3) {
                    0 => HOSTILE[random.below(HOSTILE.len() as u32) as usize],
                    1 => b"abcuser on"[random.below(10) as usize],
                    _ => random.below(256) as u8,
                });
            }
            word
        };
        let mut users = Users::new();
        for round in 0..ROUNDS {
            let name = word(&mut random);
            if has_spaces(&name) {
                continue;
            }
            let mut user = User::new(&name, 7, registry.facts(), false);
            for _ in 0..1 + random.below(6) {
                let sign = SIGNS[random.below(SIGNS.len() as u32) as usize];
                let mut rule = [sign, &word(&mut random)].concat();
                if sign.starts_with(b"(") {
                    rule.push(b')');
                }
                let before = user.clone();
                if user.apply(&rule, &grammar).is_err() {
                    user = before;
                }
            }
            user.settle(registry.facts());
            let line = configuration_line(&user);
            assert!(!line.contains(&b'\n'), "round {round}");
            let words = config::split(&line).unwrap();
            let words: Vec<&[u8]> = words.iter().skip(1).map(Vec::as_slice).collect();
            let again = read_user(&words, 7, &grammar).unwrap();
            assert_eq!(
                (&again.name, again.describe()),
                (&user.name, user.describe()),
                "round {round}"
            );
            users.insert(Arc::clone(&user.name), Arc::new(user));
        }
        assert!(users.len() > 200);
        let saved: Vec<_> = users.values().cloned().collect();
        save(path, &saved).unwrap();
        let again = load(path, &grammar, &mut |_| 7).unwrap();
        assert_eq!(again.len(), users.len());
        for (user, again) in users.values().zip(again.values()) {
            assert_eq!(
                again.line().escape_ascii().to_string(),
                user.line().escape_ascii().to_string()
            );
        }
        std::fs::remove_file(OsStr::from_bytes(path)).unwrap();
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told_line_by_line() {
        let registry = Registry::new(&crate::process::families(), &[]).unwrap();
        let grammar = RuleGrammar { commands: registry.facts(), all_channels: false };
        let path = std::env::temp_dir().join(format!("bobbin-acl-{}", std::process::id()));
        let path = path.as_os_str().as_bytes();
        let load = |text: &str| {
            std::fs::write(OsStr::from_bytes(path), text).unwrap();
            load(path, &grammar, &mut |_| 7)
                .map_err(|errors| errors.replace(std::str::from_utf8(path).unwrap(), "FILE"))
        };
        let users = load("\nuser a on  nopass ~* \r\nuser b +get (+set ~x)\n").unwrap();
        let lines: Vec<_> = users.values().map(|user| user.line()).collect();
        assert_eq!(lines[0], b"user a on nopass ~* resetchannels -@all");
        assert_eq!(users.len(), 2);
        let errors = load("user a on\nuser a off\nfoo\nuser b +foo bar baz (\nuser c +foo bar +fo")
            .unwrap_err();
        assert_eq!(
            errors,
            "WARNING: Duplicate user 'a' found on line 2. FILE:3 should start with user keyword followed by the \
             username. FILE:4: Unmatched parenthesis in selector definition.FILE:5: Error in applying operation \
             '+foo': Unknown command or category name in ACL. FILE:5: Syntax error. FILE:5: Error in applying \
             operation '+fo': Unknown command or category name in ACL. WARNING: ACL errors detected, no change to the \
             previously active ACL rules was performed"
        );
        let saved: Vec<_> = users.values().cloned().collect();
        save(path, &saved).unwrap();
        let again = super::load(path, &grammar, &mut |_| 7).unwrap();
        assert!(again.values().map(|user| user.line()).eq(users.values().map(|user| user.line())));
        std::fs::remove_file(OsStr::from_bytes(path)).unwrap();
    }
}
