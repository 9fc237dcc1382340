//! What users install: a Debian package, and an archive with the programs and all that belongs to
//! them; their checksums, and a list of what they are made of.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use bobbin_testkit::peers::repository;
use serde_json::{Value, json};

use crate::emulated;
use crate::shell::{self, TaskResult};

/// Makes everything in `target/dist`: for this machine, or for the targets that are named.
pub(crate) fn run(targets: &[&str]) -> TaskResult {
    installed_or("deb", "cargo-deb")?;
    if !targets.is_empty() {
        installed_or("zigbuild", "cargo-zigbuild")?;
    }
    let mut builds: Vec<Build> = targets.iter().map(|target| Build::of(target)).collect();
    if builds.is_empty() {
        builds.push(Build { target: None, architecture: std::env::consts::ARCH });
    }
    let folder = folder();
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|error| error.to_string())?;
    }
    for build in &builds {
        build.compile()?;
    }
    let here = builds.iter().find(|build| build.is_for_here());
    make_parts(&folder.join("parts"), here.unwrap_or(&builds[0]))?;
    let mut files = Vec::new();
    for build in &builds {
        files.push(build.make_package()?);
        files.push(build.make_archive(&folder)?);
        files.push(build.make_components(&folder)?);
    }
    let sums = shell::output(
        Command::new("sha256sum")
            .args(files.iter().filter_map(|path| path.file_name()))
            .current_dir(&folder),
    )?;
    shell::write(&folder.join("SHA256SUMS"), &sums)?;
    print!("{}\n{sums}", folder.display());
    Ok(())
}

fn installed_or(subcommand: &str, package: &str) -> TaskResult {
    if shell::works("cargo", &[subcommand, "--help"]) {
        return Ok(());
    }
    Err(format!("{package} is missing; `cargo install --locked {package}` installs it"))
}

/// The programs for one kind of machine.
struct Build<'a> {
    /// Named: for every system with this architecture and `GLIBC` or later. None: for this one.
    target: Option<&'a str>,
    architecture: &'a str,
}

impl<'a> Build<'a> {
    fn of(target: &'a str) -> Self {
        Self { target: Some(target), architecture: architecture(target) }
    }

    fn compile(&self) -> TaskResult {
        let mut command = match self.target {
            None => cargo(&["build"]),
            Some(target) => cargo(&["zigbuild", "--target", &format!("{target}.{GLIBC}")]),
        };
        if self.architecture == "aarch64" {
            // The kernel decides how large a page is, and jemalloc must know the largest.
            command.env("JEMALLOC_SYS_WITH_LG_PAGE", "16");
        }
        command.args(["--locked", "--release", "--bins"]);
        command.args(PROGRAMS.iter().flat_map(|program| ["--package", program]));
        shell::run(&mut command)
    }

    fn is_for_here(&self) -> bool {
        self.architecture == std::env::consts::ARCH
    }

    /// A command that runs one of the programs, under emulation if need be.
    fn program(&self, name: &str) -> Result<Command, String> {
        let program = self.folder().join(name);
        if self.is_for_here() {
            return Ok(Command::new(program));
        }
        emulated::prepare(self.architecture)?;
        Ok(emulated::command(self.architecture, &program))
    }

    /// Where Cargo puts the programs.
    fn folder(&self) -> PathBuf {
        let target = repository().join("target");
        self.target.map_or_else(|| target.join("release"), |name| target.join(name).join("release"))
    }

    fn make_package(&self) -> Result<PathBuf, String> {
        let package =
            folder().join(format!("bobbin_{VERSION}_{}.deb", debian_name(self.architecture)));
        let mut deb =
            cargo(&["deb", "--package", "bobbin-server", "--no-build", "--no-strip", "--quiet"]);
        if let Some(target) = self.target {
            deb.args(["--target", target, "--variant", "portable"]);
        }
        shell::run(deb.arg("--output").arg(&package))?;
        Ok(package)
    }

    /// An archive that can be unpacked anywhere.
    fn make_archive(&self, folder: &Path) -> Result<PathBuf, String> {
        let name = archive_name(self.architecture);
        let tree = folder.join(&name);
        shell::create_folder(&tree)?;
        let mut copy = Command::new("cp");
        copy.args(PROGRAMS.map(|program| self.folder().join(program)));
        copy.args(["bobbin.conf", "LICENSE", "README.md", "COMPAT.md", "CHANGELOG.md"]);
        copy.args(["packaging/bobbin.service", "-r", "docs"]).arg(&tree);
        shell::run(copy.current_dir(repository()))?;
        for part in ["bash", "zsh", "fish"] {
            let to = tree.join("completions");
            shell::create_folder(&to)?;
            shell::run(Command::new("cp").arg("-r").arg(folder.join("parts").join(part)).arg(to))?;
        }
        let to = tree.join("man");
        shell::create_folder(&to)?;
        for program in PROGRAMS {
            let page = format!("{program}.1");
            shell::run(Command::new("cp").arg(folder.join("parts").join(&page)).arg(&to))?;
        }
        let archive = archive(self.architecture);
        // The same files give the same archive.
        let options = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"];
        let mut tar = Command::new("tar");
        tar.args(options).arg("-czf").arg(&archive).arg(&name).current_dir(folder);
        shell::run(&mut tar)?;
        std::fs::remove_dir_all(tree).map_err(|error| error.to_string())?;
        Ok(archive)
    }

    /// The list of what the programs are made of.
    fn make_components(&self, folder: &Path) -> Result<PathBuf, String> {
        let target = match self.target {
            Some(target) => target.to_owned(),
            None => shell::output(Command::new("rustc").args(["--print", "host-tuple"]))?,
        };
        let list = folder.join(format!("bobbin-{VERSION}-{}.cdx.json", self.architecture));
        shell::write(&list, &components(target.trim())?)?;
        Ok(list)
    }
}

/// The pages and scripts that the programs write about themselves, and the configuration with the
/// folders of a system.
fn make_parts(parts: &Path, build: &Build) -> TaskResult {
    let of = |program: &str, words: &[&str]| shell::output(build.program(program)?.args(words));
    shell::create_folder(parts)?;
    let manual = shell::read(&repository().join("packaging/bobbin-server.1"))?;
    shell::write(&parts.join("bobbin-server.1"), &manual)?;
    shell::write(&parts.join("bobbin-cli.1"), &of("bobbin-cli", &["--man"])?)?;
    let manual = of("bobbin-benchmark", &["generate", "man"])?;
    shell::write(&parts.join("bobbin-benchmark.1"), &manual)?;
    for shell_name in ["bash", "zsh", "fish"] {
        let folder = parts.join(shell_name);
        shell::create_folder(&folder)?;
        for (program, words) in [
            ("bobbin-cli", ["--completion", shell_name]),
            ("bobbin-benchmark", ["generate", shell_name]),
        ] {
            let name = match shell_name {
                "bash" => program.to_owned(),
                "zsh" => format!("_{program}"),
                _ => format!("{program}.fish"),
            };
            shell::write(&folder.join(name), &of(program, &words)?)?;
        }
    }
    let configuration = shell::read(&repository().join("bobbin.conf"))?;
    shell::write(&parts.join("bobbin.conf"), &installed(&configuration)?)
}

/// The configuration with the options set that a service needs. Each is in it with its default,
/// commented out.
fn installed(configuration: &str) -> Result<String, String> {
    let mut lines: Vec<String> = configuration.lines().map(str::to_owned).collect();
    for (name, value) in INSTALLED {
        let start = format!("# {name} ");
        let line = lines.iter_mut().find(|line| line.starts_with(&start));
        *line.ok_or_else(|| format!("bobbin.conf does not have {name}"))? =
            format!("{name} {value}");
    }
    Ok(lines.join("\n") + "\n")
}

/// The crates that are built into the programs, as CycloneDX lists components.
fn components(target: &str) -> Result<String, String> {
    let mut metadata = cargo(&["metadata", "--locked", "--format-version", "1"]);
    let text = shell::output(metadata.args(["--filter-platform", target]))?;
    let metadata: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text_of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let by_id = |values: Vec<Value>| -> HashMap<String, Value> {
        values.into_iter().map(|value| (text_of(&value["id"]), value)).collect()
    };
    let packages = by_id(list(&metadata["packages"]));
    let nodes = by_id(list(&metadata["resolve"]["nodes"]));
    // A macro runs in the compiler, as do all crates that it uses.
    let is_macro = |id: &str| {
        let targets = list(&packages[id]["targets"]);
        targets.iter().any(|target| list(&target["kind"]).iter().any(|kind| kind == "proc-macro"))
    };
    let is_program = |package: &Value| PROGRAMS.iter().any(|name| package["name"] == *name);
    let mut open: Vec<String> = packages
        .iter()
        .filter(|(_, package)| is_program(package))
        .map(|(id, _)| id.clone())
        .collect();
    let mut found = BTreeSet::new();
    while let Some(id) = open.pop() {
        for dependency in list(&nodes[&id]["deps"]) {
            // Not what only tests or build scripts need.
            let kinds = list(&dependency["dep_kinds"]);
            let used = text_of(&dependency["pkg"]);
            let is_built_in = kinds.iter().any(|kind| kind["kind"].is_null()) && !is_macro(&used);
            if is_built_in && !found.contains(&used) {
                open.push(used);
            }
        }
        found.insert(id);
    }
    let component = |id: &String| {
        let package = &packages[id];
        let (name, version) = (text_of(&package["name"]), text_of(&package["version"]));
        // Old manifests have a slash for `OR`.
        let license = text_of(&package["license"]).replace('/', " OR ");
        let mut component = json!({
            "type": "library",
            "name": name,
            "version": version,
            "licenses": [{ "expression": license }],
        });
        // Only what others publish has such an address.
        if !package["source"].is_null() {
            component["purl"] = format!("pkg:cargo/{name}@{version}").into();
        }
        component
    };
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": { "type": "application", "name": "bobbin", "version": VERSION },
        },
        "components": found.iter().map(component).collect::<Vec<_>>(),
    });
    serde_json::to_string_pretty(&bill).map(|text| text + "\n").map_err(|error| error.to_string())
}

/// Where the Debian package for this machine is.
pub(crate) fn package() -> Result<PathBuf, String> {
    let architecture = shell::output(Command::new("dpkg").arg("--print-architecture"))?;
    Ok(folder().join(format!("bobbin_{VERSION}_{}.deb", architecture.trim())))
}

/// Where the archive for an architecture is.
pub(crate) fn archive(architecture: &str) -> PathBuf {
    folder().join(format!("{}.tar.gz", archive_name(architecture)))
}

/// The name of an archive's folder.
fn archive_name(architecture: &str) -> String {
    format!("bobbin-{VERSION}-{architecture}-linux")
}

/// What Debian calls an architecture.
pub(crate) fn debian_name(architecture: &str) -> &str {
    match architecture {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The architecture that a target begins with.
pub(crate) fn architecture(target: &str) -> &str {
    target.split_once('-').map_or(target, |(first, _)| first)
}

/// Where all that is made is.
pub(crate) fn folder() -> PathBuf {
    repository().join("target/dist")
}

/// With the target folder that the package's description names.
fn cargo(arguments: &[&str]) -> Command {
    let mut command = shell::cargo(arguments);
    command.env("CARGO_TARGET_DIR", "target");
    command
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What programs for other machines than this need of the system: Debian 10, Ubuntu 20.04, Red Hat
/// 8 and later have it. The package's variant in crates/server/Cargo.toml names it, too.
const GLIBC: &str = "2.28";
const PROGRAMS: [&str; 3] = ["bobbin-server", "bobbin-cli", "bobbin-benchmark"];
/// Options of a service of the system, which serves this machine alone until it is told otherwise.
const INSTALLED: [(&str, &str); 4] = [
    ("bind", "127.0.0.1 -::1"),
    ("supervised", "auto"),
    ("logfile", "/var/log/bobbin/bobbin-server.log"),
    ("dir", "/var/lib/bobbin"),
];
