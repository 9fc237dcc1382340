//! Java programs of the repository.

use std::process::Command;

use super::{jedis_libraries, repository};
use crate::disk::Folder;

/// A program that uses Jedis, compiled.
#[derive(Debug)]
pub struct Java {
    name: &'static str,
    classes: Folder,
}

impl Java {
    /// Compiles a class of `tests/clients/jedis`.
    ///
    /// # Panics
    /// When that fails.
    pub fn compile(name: &'static str) -> Self {
        let classes = Folder::new();
        let source = repository().join(format!("tests/clients/jedis/{name}.java"));
        let compiled = Command::new("javac")
            .args(["-cp", &libraries(), "-d"])
            .arg(classes.path())
            .arg(&source)
            .output()
            .unwrap_or_else(|error| panic!("javac: {error} (`cargo xtask peers` installs it)"));
        let errors = String::from_utf8_lossy(&compiled.stderr);
        assert!(compiled.status.success(), "javac: {errors}");
        Self { name, classes }
    }

    /// Runs it.
    pub fn command(&self) -> Command {
        let class_path = format!("{}:{}", self.classes.text(), libraries());
        let mut command = Command::new("java");
        command.args(["-cp", &class_path, self.name]);
        command
    }
}

fn libraries() -> String {
    format!("{}/*", jedis_libraries().display())
}
