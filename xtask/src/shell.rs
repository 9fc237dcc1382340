//! Running other programs.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use bobbin_testkit::peers::repository;

/// Success, or what went wrong in words.
pub(crate) type TaskResult = Result<(), String>;

/// Runs a command to its end with our terminal; an exit code other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> TaskResult {
    let status = command.status().map_err(|error| format!("{}: {error}", shown(command)))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", shown(command))) }
}

/// Runs a command and returns what it wrote to stdout.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{}: {error}", shown(command)))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}\n{errors}", shown(command), output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Shows how a step of a check went.
pub(crate) fn step<T>(what: &str, outcome: Result<T, String>) -> TaskResult {
    match outcome {
        Ok(_) => {
            println!("ok      {what}");
            Ok(())
        }
        Err(error) => Err(format!("FAILED  {what}: {error}")),
    }
}

/// An error that shows both unless they are equal.
pub(crate) fn same(said: &str, wanted: &str) -> TaskResult {
    if said == wanted { Ok(()) } else { Err(format!("{said:?} instead of {wanted:?}")) }
}

/// Cargo, in the repository. An argument such as `+nightly` names another toolchain.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    // The name and not `CARGO`: that would be one toolchain's, which knows no other.
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(repository());
    if arguments.first().is_some_and(|first| first.starts_with('+')) {
        command.env_remove("RUSTUP_TOOLCHAIN");
    }
    command
}

/// Whether the program can be run with these arguments and says it is fine.
pub(crate) fn works(program: impl AsRef<OsStr>, arguments: &[&str]) -> bool {
    let status = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// A command that runs as root: directly, or by sudo without a password.
pub(crate) fn privileged(program: &str) -> Result<Command, String> {
    if output(Command::new("id").arg("-u"))?.trim() == "0" {
        return Ok(Command::new(program));
    }
    if works("sudo", &["-n", "true"]) {
        let mut command = Command::new("sudo");
        command.args(["-n", program]);
        return Ok(command);
    }
    Err(format!(
        "{program} must run as root: be root, or allow sudo without a password, or pass \
         --without-peers to leave out the tests that need it"
    ))
}

/// Installs packages of the machine's own distribution.
pub(crate) fn install_packages(packages: &[&str]) -> TaskResult {
    let install = || -> TaskResult {
        run(privileged("env")?
            .args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-q"])
            .arg("--no-install-recommends")
            .args(packages))
    };
    // The package lists of a fresh machine may be missing or old.
    install().or_else(|_| {
        run(privileged("apt-get")?.args(["update", "-q"]))?;
        install()
    })
}

pub(crate) fn create_folder(folder: &Path) -> TaskResult {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// Copies the files of a folder of the repository, which are texts, to another folder.
pub(crate) fn copy_files(source: &str, folder: &Path) -> TaskResult {
    create_folder(folder)?;
    let source = repository().join(source);
    let unread = |error: std::io::Error| format!("{}: {error}", source.display());
    for entry in std::fs::read_dir(&source).map_err(unread)? {
        let entry = entry.map_err(unread)?;
        write(&folder.join(entry.file_name()), &read(&entry.path())?)?;
    }
    Ok(())
}

pub(crate) fn write(path: &Path, text: &str) -> TaskResult {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

pub(crate) fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
