//! Shells, for what is written for them: completions.

use std::process::{Command, Stdio};

/// What the script prints; `None`, with a remark, when the shell is not on this machine.
///
/// # Panics
/// When the script fails or complains.
pub fn run(shell: &str, script: &str) -> Option<String> {
    let output = Command::new(shell).args(["-c", script]).stdin(Stdio::null()).output();
    let Ok(output) = output else {
        eprintln!("{shell} is not here");
        return None;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{shell}: {errors}");
    Some(String::from_utf8(output.stdout).expect("a script prints text"))
}
