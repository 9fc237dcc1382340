//! `:set pager`: replies that are longer than the screen, in `$PAGER` or in `less`.

use std::{
    env,
    ffi::OsString,
    io::Write,
    process::{Command, Stdio},
};

use rustix::termios::tcgetwinsize;

use crate::{interrupt, terminal};

/// Writes the text, by way of a pager if it is long and there is one.
pub fn write(text: &[u8]) {
    let size = tcgetwinsize(std::io::stdout());
    let (rows, columns) = size.map_or((0, 0), |size| (size.ws_row.into(), size.ws_col.into()));
    // The prompt takes a row too.
    let is_long = columns > 0 && rows_of(text, columns) >= rows;
    if !is_long || !terminal::has_screen() || !page(text) {
        terminal::write(text);
    }
}

/// Shows the text in the pager. False: there is none, and nothing has been shown.
fn page(text: &[u8]) -> bool {
    let Some(mut command) = pager() else { return false };
    // Ctrl-C is the pager's, which shares the terminal.
    let ignore = interrupt::ignore();
    let Ok(mut child) = command.stdin(Stdio::piped()).spawn() else { return false };
    if let Some(mut input) = child.stdin.take() {
        // A user who has seen enough leaves before the end.
        let _ = input.write_all(text);
    }
    let status = child.wait();
    drop(ignore);
    // So a shell says that there is no such program.
    status.is_ok_and(|status| status.code() != Some(NOT_FOUND))
}

/// The user's pager, which may be a command with arguments, or `less`. `cat` and nothing are none.
fn pager() -> Option<Command> {
    let mut command = match env::var_os("PAGER") {
        Some(pager) if pager.is_empty() || pager == "cat" => return None,
        Some(pager) => {
            let mut command = Command::new("sh");
            command.args([OsString::from("-c"), pager]);
            command
        }
        None => Command::new("less"),
    };
    // As git has it: short texts need no key, colours are colours, the text stays on the screen.
    if env::var_os("LESS").is_none() {
        command.env("LESS", "FRX");
    }
    Some(command)
}

/// How many rows the text takes on a screen, as far as it matters: colours take no room, other
/// characters one column.
fn rows_of(text: &[u8], columns: usize) -> usize {
    let rows = |line: &[u8]| {
        let mut width = 0;
        let mut in_colour = false;
        for &byte in line {
            match byte {
                0x1b => in_colour = true,
                b'm' if in_colour => in_colour = false,
                // Only the first byte of a character counts.
                0x80..=0xbf => {}
                _ if in_colour => {}
                _ => width += 1,
            }
        }
        width.max(1_usize).div_ceil(columns)
    };
    text.strip_suffix(b"\n").unwrap_or(text).split(|byte| *byte == b'\n').map(rows).sum()
}

const NOT_FOUND: i32 = 127;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_on_a_screen() {
        assert_eq!(rows_of(b"a\nb\n", 80), 2);
        assert_eq!(rows_of(b"a\n\nb", 80), 3);
        assert_eq!(rows_of(&[b'a'; 81], 80), 2);
        assert_eq!(rows_of(&[b'a'; 80], 80), 1);
        assert_eq!(rows_of("\x1b[32m\u{e4}\u{e4}\x1b[0m".as_bytes(), 2), 1);
        assert_eq!(rows_of(b"", 80), 1);
    }
}
