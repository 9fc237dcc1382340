//! What users install: a Debian package, and an archive with the programs and all that belongs to
//! them; their checksums, and a list of what they are made of.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use bobbin_testkit::peers::repository;
use serde_json::{Value, json};

use crate::shell::{self, Outcome};

/// Makes everything in `target/dist`.
pub(crate) fn run() -> Outcome {
    if !shell::works("cargo", &["deb", "--version"]) {
        return Err("cargo-deb is missing; `cargo install --locked cargo-deb` installs it".into());
    }
    let mut build = cargo(&["build", "--locked", "--release", "--bins"]);
    shell::run(build.args(PROGRAMS.iter().flat_map(|program| ["--package", program])))?;
    let folder = folder();
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|error| error.to_string())?;
    }
    make_parts(&folder.join("parts"))?;
    let package = package()?;
    let mut deb =
        cargo(&["deb", "--package", "bobbin-server", "--no-build", "--no-strip", "--quiet"]);
    shell::run(deb.arg("--output").arg(&package))?;
    let archive = make_archive(&folder)?;
    let list = folder.join("bobbin.cdx.json");
    shell::write(&list, &components()?)?;
    let sums = shell::output(
        Command::new("sha256sum")
            .args([&package, &archive, &list].iter().filter_map(|path| path.file_name()))
            .current_dir(&folder),
    )?;
    shell::write(&folder.join("SHA256SUMS"), &sums)?;
    print!("{}\n{sums}", folder.display());
    Ok(())
}

/// The pages and scripts that the programs write about themselves, and the configuration with the
/// folders of a system.
fn make_parts(parts: &Path) -> Outcome {
    let of = |program: &str, words: &[&str]| {
        shell::output(Command::new(repository().join("target/release").join(program)).args(words))
    };
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

/// An archive that can be unpacked anywhere.
fn make_archive(folder: &Path) -> Result<PathBuf, String> {
    let name = format!("bobbin-{VERSION}-{}-linux", std::env::consts::ARCH);
    let tree = folder.join(&name);
    shell::create_folder(&tree)?;
    let mut copy = Command::new("cp");
    copy.args(PROGRAMS.map(|program| format!("target/release/{program}")));
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
    let archive = folder.join(format!("{name}.tar.gz"));
    // The same files give the same archive.
    let options = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"];
    let mut tar = Command::new("tar");
    tar.args(options).arg("-czf").arg(&archive).arg(&name).current_dir(folder);
    shell::run(&mut tar)?;
    std::fs::remove_dir_all(tree).map_err(|error| error.to_string())?;
    Ok(archive)
}

/// The crates that are built into the programs, as CycloneDX lists components.
fn components() -> Result<String, String> {
    let host = shell::output(Command::new("rustc").args(["--print", "host-tuple"]))?;
    let mut metadata = cargo(&["metadata", "--locked", "--format-version", "1"]);
    let text = shell::output(metadata.args(["--filter-platform", host.trim()]))?;
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

/// Where the Debian package is.
pub(crate) fn package() -> Result<PathBuf, String> {
    let architecture = shell::output(Command::new("dpkg").arg("--print-architecture"))?;
    Ok(folder().join(format!("bobbin_{VERSION}_{}.deb", architecture.trim())))
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
const PROGRAMS: [&str; 3] = ["bobbin-server", "bobbin-cli", "bobbin-benchmark"];
/// Options of a service of the system, which serves this machine alone until it is told otherwise.
const INSTALLED: [(&str, &str); 4] = [
    ("bind", "127.0.0.1 -::1"),
    ("supervised", "auto"),
    ("logfile", "/var/log/bobbin/bobbin-server.log"),
    ("dir", "/var/lib/bobbin"),
];
