//! Programs for Node.js, with what they import, each in a folder of its own in the cache.

use std::path::Path;
use std::process::Command;

use crate::shell::{self, TaskResult};

/// Installs what the folder's `package.json` asks for. There is no lock file: those name a
/// registry's host.
pub(crate) fn install(folder: &Path) -> TaskResult {
    if !shell::works("npm", &["--version"]) {
        shell::install_packages(&["nodejs", "npm"])?;
    }
    shell::run(
        Command::new("npm")
            .args(["install", "--silent", "--no-audit", "--no-fund", "--no-package-lock"])
            .current_dir(folder),
    )
}
