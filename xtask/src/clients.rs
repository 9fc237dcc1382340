//! Installs the client libraries that the end-to-end tests use: redis-py, Jedis, and go-redis where
//! Go is.

use std::path::Path;
use std::process::Command;

use bobbin_testkit::peers::{
    cache_folder, go_redis_failover, jedis_libraries, python as python_program, repository,
};

use crate::python;
use crate::shell::{self, TaskResult};

/// redis-py, in a virtual environment of its own.
pub(crate) fn install_python() -> TaskResult {
    let wanted = shell::read(&repository().join("tests/clients/requirements.txt"))?;
    let folder = cache_folder().join("python");
    if !shell::works(python_program(), &["-c", "import redis"]) {
        let _ = std::fs::remove_file(folder.join("installed.txt"));
    }
    python::install(&folder, &wanted)?;
    println!("{}: {}", python_program().display(), wanted.trim());
    Ok(())
}

/// Jedis and what it needs, as jars in one folder.
pub(crate) fn install_jedis() -> TaskResult {
    let project = repository().join("tests/clients/jedis/pom.xml");
    let wanted = shell::read(&project)?;
    let folder = jedis_libraries();
    let marker = folder.join("installed.xml");
    let mut missing = Vec::new();
    if !shell::works("javac", &["-version"]) {
        missing.push("default-jdk-headless");
    }
    if !is_current(&marker, &wanted) && !shell::works("mvn", &["--version"]) {
        missing.push("maven");
    }
    if !missing.is_empty() {
        shell::install_packages(&missing)?;
    }
    if !is_current(&marker, &wanted) {
        let _ = std::fs::remove_dir_all(&folder);
        shell::create_folder(&folder)?;
        shell::run(
            Command::new("mvn")
                .args(["--batch-mode", "--quiet", "--file"])
                .arg(&project)
                .arg("dependency:copy-dependencies")
                .arg(format!("-DoutputDirectory={}", folder.display())),
        )
        .map_err(|error| format!("cannot install Jedis: {error}"))?;
        shell::write(&marker, &wanted)?;
    }
    println!("{}: Jedis", folder.display());
    Ok(())
}

/// The program that uses go-redis, where there is a Go toolchain: its tests are passed over
/// otherwise.
pub(crate) fn build_go() -> TaskResult {
    if !shell::works("go", &["version"]) {
        println!("no go: go-redis is not tested");
        return Ok(());
    }
    let program = go_redis_failover();
    shell::run(
        Command::new("go")
            .args(["build", "-o"])
            .arg(&program)
            .arg(".")
            .current_dir(repository().join("tests/clients/go-redis")),
    )
    .map_err(|error| format!("cannot build what uses go-redis: {error}"))?;
    println!("{}: go-redis", program.display());
    Ok(())
}

/// The marker repeats what was asked for, so that a new version is installed anew.
fn is_current(marker: &Path, wanted: &str) -> bool {
    std::fs::read_to_string(marker).is_ok_and(|installed| installed == wanted)
}
