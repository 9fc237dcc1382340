//! The standard streams: writing to them, and what they are connected to.

use std::io::{self, ErrorKind, IsTerminal, Write};

use signal_hook::{consts::SIGPIPE, low_level};

/// Writes to the standard output at once, so that whoever reads it sees each reply as it comes.
pub fn write(bytes: &[u8]) {
    let mut output = io::stdout().lock();
    if let Err(error) = output.write_all(bytes).and_then(|()| output.flush()) {
        if error.kind() == ErrorKind::BrokenPipe {
            // As programs end that never heard of it: `bobbin-cli --scan | head` is no error.
            let _ = low_level::emulate_default_handler(SIGPIPE);
        }
        std::process::exit(1);
    }
}

/// `print!`, by [`write`].
#[macro_export]
macro_rules! out {
    ($($arguments:tt)*) => {
        $crate::terminal::write(format!($($arguments)*).as_bytes())
    };
}

/// Whether replies are for a person. Tests pretend so with `FAKETTY`, as with valkey-cli.
pub fn is_for_people() -> bool {
    io::stdout().is_terminal() || std::env::var_os("FAKETTY").is_some()
}

/// Whether the standard output is a terminal indeed: colours in a file are in the way.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether somebody types.
pub fn is_typed() -> bool {
    io::stdin().is_terminal()
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

/// An I/O error without the number that Rust puts behind it.
pub fn describe(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
