//! `bobbin-benchmark`: which of its ways it was called, and nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_default();
    bobbin_benchmark::main(&program.to_string_lossy(), arguments)
}
