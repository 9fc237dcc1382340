//! What was typed, kept in a file, except what holds a password.

use std::{env, path::PathBuf};

use bobbin_resp::split_arguments;

/// The file of the history, or `None` if no history is kept.
pub fn file() -> Option<PathBuf> {
    dot_file(["VALKEYCLI_HISTFILE", "REDISCLI_HISTFILE"], ".valkeycli_history")
}

/// A file that the environment names, else one in the home folder; `/dev/null` is none.
pub fn dot_file(variables: [&str; 2], name: &str) -> Option<PathBuf> {
    let set = |variable: &str| env::var_os(variable).filter(|value| !value.is_empty());
    if let Some(path) = variables.into_iter().find_map(set) {
        return (path != "/dev/null").then(|| path.into());
    }
    Some(PathBuf::from(set("HOME")?).join(name))
}

/// Whether the line holds a password, or names who has which. Its quotes may lack their pairs: who
/// mistypes a password has typed most of it.
pub fn is_secret(line: &[u8]) -> bool {
    let words = split_arguments(line).map_or_else(
        || {
            let without = line.iter().copied().filter(|byte| !b"\"'".contains(byte));
            let text: Vec<u8> = without.collect();
            text.split(u8::is_ascii_whitespace).map(<[u8]>::to_vec).collect()
        },
        |words| words.into_iter().collect::<Vec<_>>(),
    );
    let words = words.iter().map(|word| word.to_ascii_lowercase());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    is_secret_command(&words)
}

/// Whether valkey-cli leaves the command out of its history; also behind what repeats a command.
fn is_secret_command(words: &[&[u8]]) -> bool {
    match words {
        [b":watch", rest @ ..] => is_secret_command(rest),
        [number, rest @ ..] if is_number(number) => is_secret_command(rest),
        [b"auth", ..] | [b"acl", b"deluser" | b"setuser" | b"getuser", ..] => true,
        [b"config", b"set", pairs @ ..] => {
            pairs.iter().step_by(2).any(|name| SECRET_OPTIONS.contains(name))
        }
        [b"hello", _, options @ ..] => hello_has_password(options),
        [b"migrate", _, _, _, _, _, options @ ..] => migrate_has_password(options),
        [b"sentinel", b"config", b"set", b"sentinel-pass" | b"sentinel-user", _, ..]
        | [b"sentinel", b"set", _, b"auth-pass" | b"auth-user", _, ..] => true,
        _ => false,
    }
}

fn is_number(word: &[u8]) -> bool {
    std::str::from_utf8(word).is_ok_and(|word| word.parse::<f64>().is_ok())
}

/// `[AUTH user password] [SETNAME name]`
fn hello_has_password(mut options: &[&[u8]]) -> bool {
    while let [b"setname", _, rest @ ..] = options {
        options = rest;
    }
    matches!(options, [b"auth", _, _, ..])
}

/// `[COPY] [REPLACE] [AUTH password | AUTH2 user password] [KEYS key ...]`
fn migrate_has_password(options: &[&[u8]]) -> bool {
    let own = options.split(|option| *option == b"keys").next().unwrap_or_default();
    own.windows(2).any(|pair| pair[0] == b"auth") || own.windows(3).any(|all| all[0] == b"auth2")
}

/// Options of the configuration that are passwords, or names that go with them.
pub const SECRET_OPTIONS: [&[u8]; 7] = [
    b"masterauth",
    b"masteruser",
    b"primaryauth",
    b"primaryuser",
    b"requirepass",
    b"tls-key-file-pass",
    b"tls-client-key-file-pass",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_secret() {
        for (line, secret) in [
            ("AUTH pw", true),
            ("acl SETUSER alice >pw", true),
            ("ACL LIST", false),
            ("CONFIG SET maxmemory 1 requirepass pw", true),
            ("CONFIG SET requirepass-like 1", false),
            ("HELLO 3 AUTH user pw", true),
            ("HELLO 3 SETNAME me AUTH user pw", true),
            ("HELLO 3 SETNAME auth", false),
            ("MIGRATE h 1 k 0 5 AUTH pw", true),
            ("MIGRATE h 1 k 0 5 COPY AUTH2 user pw", true),
            ("MIGRATE h 1 k 0 5 KEYS auth x", false),
            ("SENTINEL SET primary auth-pass pw", true),
            ("SET auth pw", false),
            (":watch AUTH pw", true),
            (":watch 0.5 auth pw", true),
            (":watch 1 GET auth", false),
            ("5 auth pw", true),
            ("auth \"pw", true),
            ("'auth' 'pw", true),
            (":watch 1 config set requirepass \"p w", true),
            ("get \"auth", false),
            ("5", false),
        ] {
            assert_eq!(is_secret(line.as_bytes()), secret, "{line}");
        }
    }
}
