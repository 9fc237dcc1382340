//! The package in a clean Debian: installed, started, configured, upgraded and purged; and the
//! container image. Programs for another architecture run under emulation.
//!
//! The Debian is a folder that `debootstrap` fills. Nothing is installed on this machine.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bobbin_testkit::server::free_port;

use crate::shell::{self, TaskResult, step};
use crate::{dist, emulated, image};

/// Makes what `dist` makes for these targets, or for this machine, and tries it. It must run as
/// root.
pub(crate) fn run(targets: &[&str]) -> TaskResult {
    dist::run(targets)?;
    let scratch = dist::folder().join("check");
    shell::create_folder(&scratch)?;
    let here = std::env::consts::ARCH;
    let architectures: Vec<&str> = targets.iter().map(|name| dist::architecture(name)).collect();
    for other in architectures.iter().filter(|name| **name != here) {
        emulated::check(other, &scratch)?;
    }
    if architectures.is_empty() || architectures.contains(&here) {
        check_here(&scratch)?;
    }
    std::fs::remove_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))
}

/// The package for this machine, and the image.
fn check_here(scratch: &Path) -> TaskResult {
    let tree = scratch.join("debian");
    if !shell::works("debootstrap", &["--version"]) {
        shell::install_packages(&["debootstrap"])?;
    }
    let (suite, mirror) = release()?;
    let mut fill = Command::new("debootstrap");
    fill.args(["--variant=minbase", "--include=adduser", &suite]).arg(&tree).arg(&mirror);
    shell::output(&mut fill)?;
    let root = Root(&tree);
    // The image is made on the system as it is now.
    let archive = scratch.join("debian.tar");
    let mut tar = Command::new("tar");
    shell::run(tar.arg("-cf").arg(&archive).arg("-C").arg(&tree).arg("."))?;
    let package = dist::package()?;
    let copied = tree.join("bobbin.deb");
    std::fs::copy(&package, &copied).map_err(|error| error.to_string())?;
    make_older(&copied, &tree.join("older.deb"), scratch)?;
    root.walk()?;
    image::check(&archive, scratch)
}

/// Makes a package of an older version, which has another default in its configuration.
fn make_older(package: &Path, older: &Path, scratch: &Path) -> TaskResult {
    let tree = scratch.join("older");
    shell::run(Command::new("dpkg-deb").arg("--raw-extract").arg(package).arg(&tree))?;
    let control = tree.join("DEBIAN/control");
    let text = shell::read(&control)?;
    let version = format!("Version: {}", env!("CARGO_PKG_VERSION"));
    if !text.contains(&version) {
        return Err(format!("{} has no {version:?}", control.display()));
    }
    shell::write(&control, &text.replace(&version, "Version: 0.1.0"))?;
    for (file, what) in [("etc/bobbin/bobbin.conf", "# older\n"), ("etc/logrotate.d/bobbin", "")] {
        let file = tree.join(file);
        let text = shell::read(&file)?;
        shell::write(&file, &format!("{what}{text}"))?;
    }
    let mut build = Command::new("dpkg-deb");
    shell::output(build.args(["--root-owner-group", "--build"]).arg(&tree).arg(older)).map(drop)
}

/// The suite and the archive that this machine's own packages come from: the programs were built
/// for its C library.
fn release() -> Result<(String, String), String> {
    let targets = ["indextargets", "--format", "$(CODENAME) $(REPO_URI)", "Created-By: Packages"];
    let targets = shell::output(Command::new("apt-get").args(targets))?;
    let system = shell::read(Path::new("/etc/os-release"))?;
    let suite = system.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let suite = suite.ok_or("/etc/os-release names no release")?;
    let mirror = targets.lines().find_map(|line| line.strip_prefix(suite)?.strip_prefix(' '));
    let mirror = mirror.ok_or_else(|| format!("apt has no source of {suite}"))?;
    Ok((suite.to_owned(), mirror.to_owned()))
}

/// A system in a folder.
struct Root<'a>(&'a Path);

impl Root<'_> {
    fn walk(&self) -> TaskResult {
        step("install an older version", self.run("dpkg -i /older.deb"))?;
        step("its user has the folders", self.says(OWNERS, OWNERS_WANTED))?;
        let version = format!("bobbin-cli {}\n", env!("CARGO_PKG_VERSION"));
        step("the programs run", self.says("bobbin-cli --version", &version))?;
        let configuration = "bobbin-server --check-config /etc/bobbin/bobbin.conf";
        step("its configuration is right", self.run(configuration).map(drop))?;
        step("its service has few rights", self.exposure())?;
        let older = self.run("dpkg-query -W -f '${source:Upstream-Version}' bobbin");
        step("it is the older one", shell::same(&older?, "0.1.0"))?;
        step("serve, and keep a change of the configuration", self.serve(CHANGE))?;
        step("change what else an administrator may", self.run(CHANGES))?;
        // What apt does with the option that never asks.
        let upgrade = "dpkg --force-confdef --force-confold -i /bobbin.deb";
        step("upgrade it", self.run(upgrade))?;
        step("what was changed is kept", self.says(CHANGED, CHANGED_WANTED))?;
        let kept = "grep -c '^maxmemory 123mb' /etc/bobbin/bobbin.conf";
        step("the changed configuration is kept", self.says(kept, "1\n"))?;
        let offered = "grep -c '^# older' /etc/bobbin/bobbin.conf.dpkg-dist || true";
        step("the new one lies beside it", self.says(offered, "0\n"))?;
        step("the data is kept", self.says("ls /var/lib/bobbin", "dump.rdb\n"))?;
        step("serve the data", self.serve(KEPT))?;
        step("install it again", self.run("dpkg --force-confold -i /bobbin.deb"))?;
        step("remove it", self.run("dpkg -r bobbin"))?;
        step("the data is still kept", self.says("ls /var/lib/bobbin", "dump.rdb\n"))?;
        step("purge it", self.run("dpkg -P bobbin"))?;
        let left = "find / -xdev -path /proc -prune -o -path '*bobbin*' -print | sort";
        step("nothing is left", self.says(left, LEFT))
    }

    /// What a line of shell writes.
    fn run(&self, line: &str) -> Result<String, String> {
        let mut command = Command::new("chroot");
        command.arg(self.0).args(["/bin/sh", "-c", line]);
        command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C");
        shell::output(&mut command)
    }

    fn says(&self, line: &str, wanted: &str) -> TaskResult {
        shell::same(&self.run(line)?, wanted).map_err(|error| format!("{line:?}: {error}"))
    }

    /// What systemd says of the service's rights, where this machine has it.
    fn exposure(&self) -> TaskResult {
        if !shell::works("systemd-analyze", &["--version"]) {
            return Ok(());
        }
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["security", "--offline=true", EXPOSURE_MAX]);
        analyze.arg(self.0.join("usr/lib/systemd/system/bobbin.service"));
        shell::output(&mut analyze).map(drop)
    }

    /// Serves as the package's user with the package's configuration.
    /// Each line is what the client is told, and what it must answer.
    fn serve(&self, lines: &[(&str, &str)]) -> TaskResult {
        let port = free_port().map_err(|error| error.to_string())?;
        let mut command = Command::new("chroot");
        command.arg("--userspec=bobbin:bobbin").arg(self.0);
        command.args(["bobbin-server", "/etc/bobbin/bobbin.conf", "--port", &port.to_string()]);
        let server = command.stdin(Stdio::null()).spawn().map_err(|error| error.to_string())?;
        let mut server = Running(server);
        let client = format!("bobbin-cli -p {port}");
        let begun = Instant::now();
        while self.says(&format!("{client} PING"), "PONG\n").is_err() {
            if begun.elapsed() > START_LIMIT {
                return Err("it does not answer".to_owned());
            }
            std::thread::sleep(POLL);
        }
        for (line, wanted) in lines {
            self.says(&format!("{client} {line}"), wanted)?;
        }
        // The reply to SHUTDOWN is the end of the connection.
        let _ = self.run(&format!("{client} SHUTDOWN SAVE"));
        let status = server.0.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(status.to_string()) }
    }
}

/// A server that does not outlive its check.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const CHANGE: &[(&str, &str)] = &[
    ("SET key value", "OK\n"),
    ("CONFIG SET maxmemory 123mb", "OK\n"),
    ("CONFIG REWRITE", "OK\n"),
];
const KEPT: &[(&str, &str)] =
    &[("GET key", "value\n"), ("CONFIG GET maxmemory", "maxmemory\n128974848\n")];
/// A file of secrets, another owner and mode, the rotation of logs, and a part of the service.
const CHANGES: &str = "echo 'user default on nopass ~* &* +@all' > /etc/bobbin/users.acl \
    && chown root:bobbin /etc/bobbin && chmod 0770 /etc/bobbin && chmod 0700 /var/log/bobbin \
    && sed -i 's/weekly/daily/' /etc/logrotate.d/bobbin \
    && mkdir -p /etc/systemd/system/bobbin.service.d \
    && echo '[Service]' > /etc/systemd/system/bobbin.service.d/own.conf";
const CHANGED: &str = "stat -c '%U:%G %a %n' /etc/bobbin /var/log/bobbin /etc/bobbin/bobbin.conf \
    && cat /etc/bobbin/users.acl && grep -c daily /etc/logrotate.d/bobbin \
    && cat /etc/systemd/system/bobbin.service.d/own.conf";
const CHANGED_WANTED: &str = "root:bobbin 770 /etc/bobbin\nbobbin:bobbin 700 /var/log/bobbin\n\
                              bobbin:bobbin 640 /etc/bobbin/bobbin.conf\n\
                              user default on nopass ~* &* +@all\n1\n[Service]\n";
/// What an administrator made stays, with its folder.
const LEFT: &str = "/bobbin.deb\n/etc/bobbin\n/etc/bobbin/users.acl\n\
                    /etc/systemd/system/bobbin.service.d\n\
                    /etc/systemd/system/bobbin.service.d/own.conf\n";
const OWNERS: &str =
    "stat -c '%U %a %n' /var/lib/bobbin /var/log/bobbin /etc/bobbin /etc/bobbin/bobbin.conf";
const OWNERS_WANTED: &str = "bobbin 750 /var/lib/bobbin\nbobbin 750 /var/log/bobbin\n\
                             bobbin 750 /etc/bobbin\nbobbin 640 /etc/bobbin/bobbin.conf\n";
/// In tenths: 0 is no rights, 100 all of them. A service without restrictions has 96.
const EXPOSURE_MAX: &str = "--threshold=20";
const START_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);
