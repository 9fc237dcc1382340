//! The standard streams: writing to them, and what they are connected to.

use std::borrow::Cow;
use std::io::{self, ErrorKind, IsTerminal, Write};

use bobbin_client::error_text;
use signal_hook::{consts::SIGPIPE, low_level};

/// Writes to the standard output at once, so that its reader sees each reply as it comes.
pub fn write(bytes: &[u8]) {
    let mut output = io::stdout().lock();
    if let Err(error) = output.write_all(bytes).and_then(|()| output.flush()) {
        if error.kind() == ErrorKind::BrokenPipe {
            // As programs end that never heard of it: `bobbin-cli --scan | head` is no error.
            let _ = low_level::emulate_default_handler(SIGPIPE);
        }
        let text = format!("Error writing to the standard output: {}", error_text(&error));
        write_error(text.as_bytes());
        std::process::exit(1);
    }
}

/// Commands the terminal: to move within the line, to erase. Only constants can be given: nothing
/// that a server or another client wrote is ever among them.
pub fn command(command: &'static str) {
    write(command.as_bytes());
}

/// `print!`, by [`write()`], for terminals. What commands them more than to colour is not for here
/// but for [`command()`].
#[macro_export]
macro_rules! out {
    ($($arguments:tt)*) => {
        $crate::terminal::write(&$crate::terminal::harmless(format!($($arguments)*).as_bytes()))
    };
}

/// `eprintln!`, for terminals. Nobody may read it any more: that is no reason to end otherwise.
#[macro_export]
macro_rules! complain {
    ($($arguments:tt)*) => {{
        let text = format!($($arguments)*);
        $crate::terminal::write_error(&$crate::terminal::harmless(text.as_bytes()));
    }};
}

/// Writes a line to the standard error, as far as somebody reads it.
pub fn write_error(line: &[u8]) {
    let _ = io::stderr().write_all(&[line, b"\n"].concat());
}

/// What a terminal may be shown. Texts come from servers, and keys from other clients: of what
/// commands a terminal only colours, tabulators and the ends of lines stay as they are. The rest
/// is shown as `\x1b`: it could erase what is shown already, or write over it.
pub fn harmless(bytes: &[u8]) -> Cow<'_, [u8]> {
    let is_suspicious = |byte: &u8| byte.is_ascii_control() && !b"\n\t".contains(byte);
    // Control characters of two bytes begin with 0xc2.
    if !bytes.iter().any(|byte| is_suspicious(byte) || *byte == 0xc2) {
        return Cow::Borrowed(bytes);
    }
    let mut shown = Vec::with_capacity(bytes.len() + 16);
    let mut rest = bytes;
    while let Some((byte, behind)) = rest.split_first() {
        let length = match rest {
            [0x1b, b'[', parameters @ ..] => {
                let is_parameter = |byte: &&u8| b"0123456789;:".contains(byte);
                let count = parameters.iter().take_while(is_parameter).count();
                if parameters.get(count) == Some(&b'm') { count + 3 } else { 0 }
            }
            [b'\r', b'\n', ..] => 2,
            [0xc2, 0x80..=0x9f, ..] => 0,
            _ => usize::from(!is_suspicious(byte)),
        };
        if length == 0 {
            shown.extend(format!("\\x{byte:02x}").bytes());
            rest = behind;
        } else {
            shown.extend_from_slice(&rest[..length]);
            rest = &rest[length..];
        }
    }
    Cow::Owned(shown)
}

/// Whether replies are for a person. Tests pretend so with `FAKETTY`, as with valkey-cli.
pub fn is_for_people() -> bool {
    io::stdout().is_terminal() || std::env::var_os("FAKETTY").is_some()
}

/// Whether the standard output is a terminal indeed: colours in a file are in the way.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether there is a screen to draw on, and a keyboard.
pub fn has_screen() -> bool {
    is_terminal() && is_typed() && std::env::var_os("TERM").is_some_and(|name| name != "dumb")
}

/// Whether somebody types.
pub fn is_typed() -> bool {
    io::stdin().is_terminal()
}

/// Whether the terminal can show a line as it is edited; the line editor passes over others.
pub fn can_edit() -> bool {
    let terminal = std::env::var("TERM").unwrap_or_default().to_ascii_lowercase();
    !["dumb", "cons25", "emacs"].contains(&terminal.as_str())
}

/// Whether there is a terminal for progress bars: never for files and pipes.
pub fn shows_progress() -> bool {
    io::stderr().is_terminal() && io::stdout().is_terminal()
}

/// Whether the terminal understands colours and the user wants them.
pub fn has_colours() -> bool {
    let terminal = std::env::var("TERM").unwrap_or_default();
    std::env::var_os("NO_COLOR").is_none() && terminal != "dumb" && !terminal.is_empty()
}

/// To the start of the line, which is erased.
pub const CLEAR_LINE: &str = "\r\x1b[0K";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_commands_the_terminal_is_not_shown() {
        let shown = |text: &[u8]| String::from_utf8_lossy(&harmless(text)).into_owned();
        for text in ["a\r\n\tb", "\x1b[1;31mred\x1b[0m\r\n", "\u{a0}\u{e4}\u{4e16}"] {
            assert_eq!(shown(text.as_bytes()), text);
        }
        for (text, expected) in [
            ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
            ("\x1b[2J\x1b[1;31", r"\x1b[2J\x1b[1;31"),
            ("\x1b\x1b[m", "\\x1b\x1b[m"),
            ("a\x08\x7f\0", r"a\x08\x7f\x00"),
            ("denied\x1b[2K\x1b[1GOK", r"denied\x1b[2K\x1b[1GOK"),
            ("denied\rOK", r"denied\x0dOK"),
            ("denied\r\r\nOK\r", "denied\\x0d\r\nOK\\x0d"),
        ] {
            assert_eq!(shown(text.as_bytes()), expected);
        }
        assert_eq!(harmless("\u{9b}2J".as_bytes()), &b"\\xc2\x9b2J"[..]);
    }
}
