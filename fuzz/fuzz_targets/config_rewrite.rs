//! Options set to words of any bytes, by CONFIG SET and by lines of a file: what CONFIG REWRITE
//! writes of them reads back as the same configuration, and no word becomes a directive.

#![no_main]

use bobbin_server::config::{
    Barred, CommandLine, Config, Directives, LoadError, OPTIONS, OptionId, quote,
};
use libfuzzer_sys::fuzz_target;

/// Refuses every directive that is no option.
struct Nothing;

impl Directives for Nothing {
    fn rename_command(&mut self, _: &[u8], _: &[u8]) -> Result<(), String> {
        Err("a word became a directive".into())
    }

    fn user(&mut self, _: &[&[u8]]) -> Result<(), String> {
        Err("a word became a user".into())
    }
}

fn load(text: &[u8]) -> Result<Config, LoadError> {
    let line = CommandLine { from_stdin: true, ..CommandLine::default() };
    Config::load(&line, &mut &*text, "1", &mut Nothing)
}

// Each entry: a byte that names an option, one for the way, and a word up to a byte that seldom
// means anything.
fuzz_target!(|data: &[u8]| {
    const END: u8 = 0xfe;
    let config = Config::new();
    let mut lines = Vec::new();
    for entry in data.split(|byte| *byte == END) {
        let [option, way, word @ ..] = entry else { continue };
        let row = &OPTIONS[usize::from(*option) % OPTIONS.len()];
        // They would be entered, and opened.
        if matches!(row.id, OptionId::dir | OptionId::logfile) {
            continue;
        }
        if way % 2 == 0 {
            let pairs = [(row.name.as_bytes(), word)];
            let _ = config.set(&pairs, Barred::default(), &mut |_: OptionId, _: &Config| Ok(()));
        } else {
            let line = [row.name.as_bytes(), b" ", &quote(word), b"\n"].concat();
            if load(&line).is_ok() {
                lines.extend(line);
            }
        }
    }
    let set = config.rewritten(b"", &[], data.len() % 2 == 0);
    check(&config, &set);
    if let Ok(config) = load(&lines) {
        let text = config.rewritten(&lines, &[], false);
        check(&config, &text);
    }
});

fn check(config: &Config, text: &[u8]) {
    let again = load(text).unwrap_or_else(|error| panic!("{error:?}: {}", text.escape_ascii()));
    for row in OPTIONS {
        assert_eq!(config.shown(row), again.shown(row), "{}: {}", row.name, text.escape_ascii());
    }
    assert_eq!(again.rewritten(text, &[], false), text, "twice is once");
}
