//! The standard output and the standard error. The program that reads the output may stop doing
//! so, `head` say; this one then ends without a word.

use std::{fmt, io::Write, process};

/// Prints as `print!` does.
macro_rules! say {
    ($($argument:tt)*) => { $crate::output::write(format_args!($($argument)*)) };
}

/// Prints as `println!` does.
macro_rules! say_line {
    () => { $crate::output::write(format_args!("\n")) };
    ($($argument:tt)*) => {{
        $crate::output::write(format_args!($($argument)*));
        $crate::output::write(format_args!("\n"));
    }};
}

/// Prints as `eprintln!` does. That nobody reads it any more changes nothing.
macro_rules! complain {
    ($($argument:tt)*) => { $crate::output::write_error(&format!($($argument)*)) };
}

pub(crate) fn write_error(line: &str) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

pub(crate) fn write(text: fmt::Arguments<'_>) {
    if std::io::stdout().write_fmt(text).is_err() {
        process::exit(1);
    }
}
