//! Spelling of what people read: documents, comments, names, texts of the programs.
//!
//! `typos` knows misspellings, not words: it finds fewer faults than a dictionary would, and hardly
//! ever complains of a technical term. A dictionary (hunspell, aspell) would want a list of
//! thousands of names and terms here. `typos.toml` has the exceptions.

use std::process::Command;

use bobbin_testkit::peers::{cache_folder, repository};

use crate::python;
use crate::shell::{self, TaskResult};

/// Looks at every file of the checkout that git does not ignore; installs what it uses.
pub(crate) fn check() -> TaskResult {
    let folder = cache_folder().join("typos");
    python::install(&folder, TYPOS)?;
    shell::run(
        Command::new(folder.join("bin/typos"))
            .args(["--format", "brief", "--config", "typos.toml"])
            .current_dir(repository()),
    )
    .map_err(|_| "misspelt words; exceptions stand in typos.toml".to_owned())
}

const TYPOS: &str = "typos==1.52.0\n";
