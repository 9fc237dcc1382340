//! What the user likes: `:set hints` or `:set timing`, typed or in ~/.valkeyclirc.

use bobbin_resp::split_arguments;

use super::history::dot_file;

#[derive(Clone, Debug)]
pub struct Preferences {
    pub hints: bool,
    /// Say of each command how long it took.
    pub timing: bool,
}

impl Default for Preferences {
    fn default() -> Self {
        Self { hints: true, timing: false }
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
                match name.to_ascii_lowercase().as_slice() {
                    b"hints" => self.hints = true,
                    b"nohints" => self.hints = false,
                    b"timing" => self.timing = true,
                    b"notiming" => self.timing = false,
                    _ => return Err(format!("unknown preference '{}'", text(name))),
                }
                Ok(())
            }
            [command, ..] => Err(format!("unknown internal command '{}'", text(command))),
            [] => Ok(()),
        }
    }
}
