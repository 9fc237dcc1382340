//! What the user likes: `:set hints`, `:set timing` and others, typed or in ~/.valkeyclirc. With
//! `no` before its name a preference is off.

use bobbin_resp::split_arguments;

use super::history::dot_file;

#[derive(Clone, Debug)]
pub struct Preferences {
    pub hints: bool,
    /// Say of each command how long it took.
    pub timing: bool,
    /// Show values that hold JSON and the like decoded.
    pub pretty: bool,
    /// Show replies that are longer than the screen in a pager.
    pub pager: bool,
}

impl Default for Preferences {
    fn default() -> Self {
        Self { hints: true, timing: false, pretty: false, pager: false }
    }
}

impl Preferences {
    /// The defaults, and what the file changes. The strings are complaints about lines of it.
    pub fn load() -> (Self, Vec<String>) {
        let mut preferences = Self::default();
        let mut complaints = Vec::new();
        let file = dot_file(["VALKEYCLI_RCFILE", "REDISCLI_RCFILE"], ".valkeyclirc");
        let text = file.and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
        for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
            match split_arguments(line.as_bytes()) {
                Some(words) if words.is_empty() => {}
                Some(words) => complaints.extend(preferences.set(&words).err()),
                None => complaints.push(format!("unbalanced quotes: {line}")),
            }
        }
        (preferences, complaints)
    }

    /// Follows a line that starts with a colon.
    pub fn set(&mut self, words: &[Vec<u8>]) -> Result<(), String> {
        let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        match words {
            [command, name, ..] if command.eq_ignore_ascii_case(b":set") => {
                let lower = name.to_ascii_lowercase();
                let (name, wanted) = match lower.strip_prefix(b"no") {
                    Some(name) => (name, false),
                    None => (&lower[..], true),
                };
                let preference = match name {
                    b"hints" => &mut self.hints,
                    b"timing" => &mut self.timing,
                    b"pretty" => &mut self.pretty,
                    b"pager" => &mut self.pager,
                    _ => return Err(format!("unknown preference '{}'", text(&lower))),
                };
                *preference = wanted;
                Ok(())
            }
            [command, ..] => Err(format!("unknown internal command '{}'", text(command))),
            [] => Ok(()),
        }
    }
}
