//! The languages of the workloads: how what they need is installed, and how they are run.

use std::path::Path;
use std::process::Command;

use crate::shell::{self, TaskResult};
use crate::{npm, python};

/// What runs a workload.
#[derive(Clone, Copy, Debug)]
pub(super) enum Runtime {
    /// `go.mod`, `go.sum` and `run.go`.
    Go,
    /// `pom.xml` and `Run.java`.
    Java,
    /// `package.json` and `run.js`.
    Node,
    /// `packages.txt` with packages of Debian, and `run.php`.
    Php,
    /// `requirements.txt` and `run.py`.
    Python,
    /// `packages.txt` with packages of Debian, and `run.rb`.
    Ruby,
}

impl Runtime {
    /// Makes sure that a folder with the workload and its manifest has what they ask for.
    pub(super) fn install(self, folder: &Path) -> TaskResult {
        match self {
            Self::Go => {
                if !shell::works("go", &["version"]) {
                    return Err("it needs Go, which is not there".to_owned());
                }
                shell::run(Command::new("go").args(["build", "-o", "run", "."]).current_dir(folder))
            }
            Self::Java => install_jars(folder),
            Self::Node => npm::install(folder),
            Self::Php | Self::Ruby => install_debian(folder),
            Self::Python => {
                let wanted = shell::read(&folder.join("requirements.txt"))?;
                python::install(&folder.join("environment"), &wanted)
            }
        }
    }

    /// The workload, which wants only the port of a server, in that folder.
    pub(super) fn workload(self, folder: &Path) -> Command {
        let (program, arguments): (_, &[&str]) = match self {
            Self::Go => (folder.join("run"), &[]),
            Self::Java => ("java".into(), &["-cp", "libraries/*", "Run.java"]),
            Self::Node => ("node".into(), &["run.js"]),
            Self::Php => ("php".into(), &["run.php"]),
            Self::Python => (folder.join("environment/bin/python3"), &["run.py"]),
            Self::Ruby => ("ruby".into(), &["run.rb"]),
        };
        let mut command = Command::new(program);
        command.args(arguments);
        command
    }
}

/// The jars that `pom.xml` asks for, in the folder `libraries`.
fn install_jars(folder: &Path) -> TaskResult {
    let wanted = shell::read(&folder.join("pom.xml"))?;
    let marker = folder.join("installed.xml");
    ensure("javac", &["-version"], &["default-jdk-headless"])?;
    if shell::read(&marker).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    ensure("mvn", &["--version"], &["maven"])?;
    let libraries = folder.join("libraries");
    let _ = std::fs::remove_dir_all(&libraries);
    shell::run(
        Command::new("mvn")
            .args([
                "--batch-mode",
                "--quiet",
                "-Dstyle.color=never",
                "dependency:copy-dependencies",
            ])
            .arg(format!("-DoutputDirectory={}", libraries.display()))
            .current_dir(folder),
    )?;
    shell::write(&marker, &wanted)
}

/// The packages that `packages.txt` names, one in each line, some of them with a version
/// (`php-redis=5.3.7+4.3.0-3`).
fn install_debian(folder: &Path) -> TaskResult {
    let wanted = shell::read(&folder.join("packages.txt"))?;
    let is_there = |package: &&str| {
        let (name, version) = package.split_once('=').unwrap_or((package, ""));
        let query = ["--show", "--showformat=${db:Status-Status} ${Version}", name];
        shell::output(Command::new("dpkg-query").args(query))
            .is_ok_and(|said| said.starts_with("installed ") && said.ends_with(version))
    };
    let missing: Vec<&str> = wanted.lines().filter(|package| !is_there(package)).collect();
    if missing.is_empty() { Ok(()) } else { shell::install_packages(&missing) }
}

/// Installs packages of the system unless a program is there.
fn ensure(program: &str, arguments: &[&str], packages: &[&str]) -> TaskResult {
    if shell::works(program, arguments) { Ok(()) } else { shell::install_packages(packages) }
}
