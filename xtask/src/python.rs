//! Programs and libraries of Python, in virtual environments of their own in the cache.

use std::path::Path;
use std::process::Command;

use crate::shell::{self, TaskResult};

/// Makes sure that an environment has what a text of requirements asks for, as pip reads it.
pub(crate) fn install(folder: &Path, wanted: &str) -> TaskResult {
    let marker = folder.join("installed.txt");
    // The marker repeats what was asked for, so that a new version is installed anew.
    if std::fs::read_to_string(&marker).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    create(folder)?;
    let requirements = folder.join("requirements.txt");
    shell::write(&requirements, wanted)?;
    shell::run(
        Command::new(folder.join("bin/python3"))
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .arg("--requirement")
            .arg(&requirements),
    )
    .map_err(|error| format!("cannot install {}: {error}", wanted.trim()))?;
    shell::write(&marker, wanted)
}

fn create(folder: &Path) -> TaskResult {
    let create = || shell::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder));
    if let Some(parent) = folder.parent() {
        shell::create_folder(parent)?;
    }
    create().or_else(|_| {
        shell::install_packages(&["python3", "python3-venv"])?;
        create()
    })
}
