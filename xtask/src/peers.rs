//! Installs the servers that Bobbin is compared with, and their tools.
//!
//! Stable distributions carry old versions, so the programs come from Debian's unstable suite, in
//! a folder tree of its own that debootstrap makes; nothing of it touches the machine's packages.
//! They run by the tree's own loader and libraries, through small scripts in `peers/bin`: no
//! chroot, no root to run them.

use std::path::{Path, PathBuf};
use std::process::Command;

use bobbin_testkit::peers::{cache_folder, peer};

use crate::shell::{self, TaskResult};

/// Makes sure that every program in [`PROGRAMS`] and [`CHECKERS`] is there and runs; says where and
/// which version.
pub(crate) fn install() -> TaskResult {
    if !all_work() {
        let tree = cache_folder().join("peers/sid");
        if !tree.join(MARKER).exists() {
            build_tree(&tree).map_err(|error| format!("cannot install the peers: {error}"))?;
        }
        write_wrappers(&tree)?;
        if let Some(program) = PROGRAMS.iter().find(|program| !works(program)) {
            return Err(format!("{} does not run", peer(program).display()));
        }
    }
    for (server, recorded) in SERVERS {
        let path = peer(server);
        let version = shell::output(Command::new(&path).arg("--version"))?;
        println!("{}: {}", path.display(), version.trim());
        if !version.contains(&format!("v={recorded} ")) {
            println!("note: the transcripts were recorded with {recorded}");
        }
    }
    Ok(())
}

fn all_work() -> bool {
    PROGRAMS.iter().all(works) && CHECKERS.iter().all(|checker| peer(checker).exists())
}

fn works(program: &&str) -> bool {
    shell::works(peer(program), &["--version"])
}

/// Half a minute, once.
fn build_tree(tree: &Path) -> TaskResult {
    let missing: Vec<_> = [
        ("debootstrap", Path::new("/usr/sbin/debootstrap")),
        ("debian-archive-keyring", Path::new(KEYRING)),
    ]
    .into_iter()
    .filter(|(_, file)| !file.exists())
    .map(|(package, _)| package)
    .collect();
    if !missing.is_empty() {
        shell::install_packages(&missing)?;
    }
    let mirror = mirror()?;
    // What an interrupted run left behind.
    shell::run(shell::privileged("rm")?.arg("-rf").arg(tree))?;
    // Packages ask this script before they start a service; 101 forbids it.
    let policy = tree.join("usr/sbin/policy-rc.d");
    shell::create_folder(&tree.join("usr/sbin"))?;
    shell::write(&policy, "#!/bin/sh\nexit 101\n")?;
    shell::run(Command::new("chmod").arg("755").arg(&policy))?;
    shell::run(
        shell::privileged("debootstrap")?
            .args(["--variant=minbase", &format!("--keyring={KEYRING}")])
            .arg(format!("--include={}", PACKAGES.join(",")))
            .arg("sid")
            .arg(tree)
            .arg(mirror),
    )?;
    shell::run(shell::privileged("touch")?.arg(tree.join(MARKER)))
}

/// The archive this machine's own packages come from.
fn mirror() -> Result<String, String> {
    let targets = shell::output(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(REPO_URI) $(CODENAME)",
        "Created-By: Packages",
    ]))?;
    // `bookworm` is the archive itself, `bookworm-security` and such are others.
    let main = targets
        .lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(_, codename)| !codename.contains('-'));
    main.map(|(uri, _)| uri.to_owned())
        .ok_or_else(|| "apt knows no Debian archive on this machine".to_owned())
}

fn write_wrappers(tree: &Path) -> TaskResult {
    let folder = cache_folder().join("peers/bin");
    shell::create_folder(&folder)?;
    let loader = LOADERS
        .iter()
        .map(|loader| tree.join(loader))
        .find(|path| path.exists())
        .ok_or("the tree holds no loader for this machine")?;
    let libraries = LIBRARIES
        .iter()
        .map(|folder| tree.join(folder))
        .filter(|path| path.exists())
        .map(|path| path.display().to_string())
        .collect::<Vec<_>>()
        .join(":");
    for program in PROGRAMS.into_iter().chain(CHECKERS) {
        let binary = inside(tree, &tree.join("usr/bin").join(program));
        let script = format!(
            "#!/bin/sh\nexec '{}' --argv0 {program} --library-path '{libraries}' '{}' \"$@\"\n",
            loader.display(),
            binary.display()
        );
        let path = folder.join(program);
        shell::write(&path, &script)?;
        shell::run(Command::new("chmod").arg("755").arg(&path))?;
    }
    Ok(())
}

/// Follows one absolute link without leaving the tree.
fn inside(tree: &Path, path: &Path) -> PathBuf {
    match std::fs::read_link(path) {
        Ok(target) if target.is_absolute() => {
            tree.join(target.strip_prefix("/").unwrap_or(&target))
        }
        _ => path.to_path_buf(),
    }
}

const MARKER: &str = ".done";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const PACKAGES: [&str; 4] = ["valkey-server", "valkey-tools", "redis-server", "redis-tools"];
const PROGRAMS: [&str; 6] = [
    "valkey-server",
    "valkey-cli",
    "valkey-benchmark",
    "redis-server",
    "redis-cli",
    "redis-benchmark",
];
/// They do not tell their version, so that they are there is all that is looked at.
const CHECKERS: [&str; 1] = ["valkey-check-rdb"];
/// With the version the transcripts were recorded with.
const SERVERS: [(&str, &str); 2] = [("valkey-server", "9.1.2"), ("redis-server", "8.0.6")];
const LOADERS: [&str; 2] = ["lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1"];
const LIBRARIES: [&str; 3] = ["usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib"];
