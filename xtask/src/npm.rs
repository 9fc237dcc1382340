//! Programs for Node.js, with what they import, each in a folder of its own in the cache.

use std::path::Path;
use std::process::Command;

use bobbin_testkit::peers::repository;

use crate::shell::{self, Outcome};

/// Copies a folder of the repository, and installs what its `package.json` asks for. There is no
/// lock file: those name a registry's host.
pub(crate) fn install(folder: &Path, source: &str) -> Outcome {
    if !shell::works("npm", &["--version"]) {
        shell::install_packages(&["nodejs", "npm"])?;
    }
    shell::create_folder(folder)?;
    let source = repository().join(source);
    for entry in std::fs::read_dir(&source).map_err(|error| error.to_string())? {
        let entry = entry.map_err(|error| error.to_string())?;
        shell::write(&folder.join(entry.file_name()), &shell::read(&entry.path())?)?;
    }
    shell::run(
        Command::new("npm")
            .args(["install", "--silent", "--no-audit", "--no-fund", "--no-package-lock"])
            .current_dir(folder),
    )
    .map_err(|error| format!("cannot install what {} asks for: {error}", source.display()))
}
