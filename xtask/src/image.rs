//! The container image: built by podman from `packaging/Containerfile`, and started.
//!
//! No registry is asked. The images that it is made from are replaced: the base by a clean Debian,
//! the builder by the same with a C compiler and this machine's Rust.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bobbin_testkit::peers::repository;

use crate::shell::{self, TaskResult, same, step};

/// Builds the image on the Debian in an archive, and tries it. It must run as root.
pub(crate) fn check(debian: &Path, scratch: &Path) -> TaskResult {
    if !shell::works("podman", &["--version"]) || !shell::works("runc", &["--version"]) {
        shell::install_packages(&["podman", "runc", "conmon"])?;
    }
    let podman = Podman { storage: scratch.join("images") };
    let outcome = podman.build(debian, scratch).and_then(|()| podman.walk(scratch));
    podman.clean()?;
    outcome
}

/// podman with a storage of its own, so that it leaves the machine's images alone.
struct Podman {
    storage: PathBuf,
}

impl Podman {
    fn build(&self, debian: &Path, scratch: &Path) -> TaskResult {
        self.run(&["import", "--quiet", &debian.to_string_lossy(), BASE])?;
        let builder = scratch.join("Containerfile.builder");
        shell::write(&builder, BUILDER_FILE)?;
        let mut build = self.build_command();
        build.args(["--tag", BUILDER, "--file"]).arg(&builder).arg(scratch);
        shell::run(&mut build)?;
        let rust = shell::output(Command::new("rustc").args(["--print", "sysroot"]))?;
        let mut build = self.build_command();
        build.args(["--build-arg", &format!("BUILDER={BUILDER}")]);
        build.args(["--build-arg", &format!("BASE={BASE}"), "--build-arg", "PROFILE=quick"]);
        build.args(["--volume", &format!("{}:/rust:ro", rust.trim())]);
        // What this machine has downloaded need not be downloaded again.
        let crates = cargo_home()?.join("registry");
        build.args(["--volume", &format!("{}:/cargo/registry", crates.display())]);
        build.args(["--tag", IMAGE, "--file", "packaging/Containerfile", "."]);
        step("build the image", shell::run(build.current_dir(repository())))
    }

    fn walk(&self, scratch: &Path) -> TaskResult {
        let said = self.run(&["image", "inspect", "--format", PROMISES, IMAGE])?;
        step("the image says what it is", same(&said, PROMISES_WANTED))?;
        step("a volume outlives its container", self.keeps())?;
        step("options, files and other commands", self.commands(scratch))?;
        step("the health check tells", self.health())?;
        step("without root, with a file system that cannot be written", self.restricted(scratch))
    }

    /// The data of one container is there in the next, which runs with few rights.
    fn keeps(&self) -> TaskResult {
        let volume = ["--volume", "bobbin-data:/data"];
        // As another user's snapshot would lie there.
        self.once(&[&volume[..], &[IMAGE, "sh", "-c", "touch other; chown 1234 other"]].concat())?;
        let first = self.start(&[&volume[..], &[IMAGE, "--appendonly", "yes"]].concat())?;
        first.says(&["bobbin-cli", "SET", "key", "value"], "OK\n")?;
        first.says(&["stat", "-c", "%U %G", ".", "other"], "bobbin bobbin\nbobbin bobbin\n")?;
        let rights = first.run(&["cat", "/proc/1/status"])?;
        for wanted in [
            "Uid:\t999\t999\t999\t999",
            "Gid:\t999\t999\t999\t999",
            "Groups:\t \n",
            "NoNewPrivs:\t1",
            "CapEff:\t0000000000000000",
            "Umask:\t0077",
        ] {
            if !rights.contains(wanted) {
                return Err(format!("{wanted:?} is not in\n{rights}"));
            }
        }
        first.stop()?;
        // Under the name that a compose file for Redis has.
        let words = [IMAGE, "redis-server", "--appendonly", "yes"];
        let second = self.start(&[&volume[..], &words].concat())?;
        second.says(&["redis-cli", "GET", "key"], "value\n")?;
        second.stop()
    }

    fn commands(&self, scratch: &Path) -> TaskResult {
        let version = format!("bobbin-cli {}\n", env!("CARGO_PKG_VERSION"));
        same(&self.once(&[IMAGE, "bobbin-cli", "--version"])?, &version)?;
        same(&self.once(&[IMAGE, "sh", "-c", "id -un"])?, "root\n")?;
        let said = self.once(&[IMAGE, "--version"])?;
        if !said.starts_with("Bobbin server v=") {
            return Err(format!("--version says {said:?}"));
        }
        let protected = ["bobbin-cli", "CONFIG", "GET", "protected-mode"];
        for (configuration, options, wanted) in [
            ("maxmemory 123mb\n", &[][..], "no"),
            ("maxmemory 123mb\nprotected-mode yes\n", &[][..], "yes"),
            ("maxmemory 123mb\n", &["--protected-mode", "yes"][..], "yes"),
        ] {
            let file = scratch.join("bobbin.conf");
            shell::write(&file, configuration)?;
            let mount = format!("{}:/etc/bobbin.conf:ro", file.display());
            let words = ["--volume", &mount, IMAGE, "/etc/bobbin.conf"];
            let server = self.start(&[&words[..], options].concat())?;
            server.says(&protected, &format!("protected-mode\n{wanted}\n"))?;
            let memory = ["bobbin-cli", "CONFIG", "GET", "maxmemory"];
            server.says(&memory, "maxmemory\n128974848\n")?;
            server.stop()?;
        }
        Ok(())
    }

    fn health(&self) -> TaskResult {
        let server = self.start(&[IMAGE, "--requirepass", "secret"])?;
        self.run(&["healthcheck", "run", &server.id])?;
        server.stop()?;
        // It asks another port than the server's.
        let options = ["--env", "HEALTHCHECK_OPTIONS=-p 7000", IMAGE];
        let server = self.start(&options)?;
        if self.run(&["healthcheck", "run", &server.id]).is_ok() {
            return Err("a server that does not answer is said to be healthy".to_owned());
        }
        server.stop()
    }

    /// With the rights and the configuration that `packaging/kubernetes` gives it.
    fn restricted(&self, scratch: &Path) -> TaskResult {
        let example = shell::read(&repository().join("packaging/kubernetes/bobbin.yaml"))?;
        let (_, block) = example.split_once("bobbin.conf: |\n").ok_or("it has no bobbin.conf")?;
        let lines = block.lines().map_while(|line| line.strip_prefix("    "));
        let configuration = lines.collect::<Vec<_>>().join("\n");
        let (file, password) = (scratch.join("kubernetes.conf"), scratch.join("password.conf"));
        shell::write(&file, &configuration)?;
        shell::write(&password, "requirepass secret\n")?;
        let file = format!("{}:/etc/bobbin/bobbin.conf:ro", file.display());
        let password = format!("{}:/etc/bobbin/secret/password.conf:ro", password.display());
        let rights = ["--user", "999:999", "--read-only", "--read-only-tmpfs=false"];
        let more = ["--cap-drop", "all", "--security-opt", "no-new-privileges"];
        let files = ["--volume", &file, "--volume", &password];
        let last = ["--env", "REDISCLI_AUTH=secret", IMAGE, "/etc/bobbin/bobbin.conf"];
        let server = self.start(&[&rights[..], &more, &files, &last].concat())?;
        server.says(&["bobbin-cli", "SET", "key", "value"], "OK\n")?;
        server.says(&["bobbin-cli", "SAVE"], "OK\n")?;
        server.says(&["stat", "-c", "%u %a", "dump.rdb"], "999 600\n")?;
        server.says(&["ls", MANIFEST], &format!("{MANIFEST}\n"))?;
        self.run(&["healthcheck", "run", &server.id])?;
        server.stop()
    }

    /// Starts a server in the background, and waits until it answers.
    fn start(&self, words: &[&str]) -> Result<Container<'_>, String> {
        let id = self.run(&[&["run", "--detach"], &LIMITS[..], words].concat())?;
        let container = Container { podman: self, id: id.trim().to_owned() };
        let begun = Instant::now();
        loop {
            // With a password it says that it wants one.
            match container.run(&["bobbin-cli", "PING"]) {
                Ok(answer) if answer.contains("PONG") || answer.contains("NOAUTH") => break,
                said if begun.elapsed() > START_LIMIT => {
                    let log = self.run(&["logs", &container.id]);
                    return Err(format!("it does not answer: {said:?}\n{log:?}"));
                }
                _ => std::thread::sleep(POLL),
            }
        }
        Ok(container)
    }

    /// Runs a command in a container to its end.
    fn once(&self, words: &[&str]) -> Result<String, String> {
        self.run(&[&["run", "--rm"], &LIMITS[..], words].concat())
    }

    fn run(&self, words: &[&str]) -> Result<String, String> {
        shell::output(self.command().args(words))
    }

    /// Removes what it made, and lets go of its folder. `podman system reset` would also remove
    /// what others have on this machine.
    fn clean(&self) -> TaskResult {
        self.run(&["rm", "--all", "--force", "--time", "0"])?;
        self.run(&["rmi", "--all", "--force"])?;
        let _ = shell::output(Command::new("umount").arg(self.storage.join("overlay")));
        Ok(())
    }

    fn build_command(&self) -> Command {
        let mut command = self.command();
        // In a chroot and with the machine's network a build needs nothing of the kernel.
        command.args(["build", "--isolation", "chroot", "--network", "host", "--format", "docker"]);
        command.stdin(Stdio::null());
        command
    }

    fn command(&self) -> Command {
        let mut command = Command::new("podman");
        command.arg("--root").arg(&self.storage);
        command.arg("--runroot").arg(self.storage.join("run"));
        command.arg("--tmpdir").arg(self.storage.join("tmp"));
        // runc works with old and new control groups, and these need no systemd.
        command.args(["--runtime", "runc", "--cgroup-manager", "cgroupfs"]);
        command.args(["--storage-driver", "overlay", "--events-backend", "file"]);
        command
    }
}

struct Container<'a> {
    podman: &'a Podman,
    id: String,
}

impl Container<'_> {
    fn run(&self, words: &[&str]) -> Result<String, String> {
        self.podman.run(&[&["exec", &self.id], words].concat())
    }

    fn says(&self, words: &[&str], wanted: &str) -> TaskResult {
        same(&self.run(words)?, wanted)
    }

    /// SIGTERM ends it in good order, long before podman would kill it.
    fn stop(self) -> TaskResult {
        self.podman.run(&["stop", "--time", "30", &self.id])?;
        let status = ["inspect", "--format", "{{.State.ExitCode}}", &self.id];
        same(&self.podman.run(&status)?, "0\n")?;
        self.podman.run(&["rm", &self.id]).map(drop)
    }
}

/// Where Cargo keeps what it downloads.
fn cargo_home() -> Result<PathBuf, String> {
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    let home = std::env::home_dir().ok_or("there is no home folder")?;
    Ok(home.join(".cargo"))
}

const BASE: &str = "localhost/bobbin-base";
const BUILDER: &str = "localhost/bobbin-builder";
const IMAGE: &str = "localhost/bobbin";
/// What the official image of Rust has and a clean Debian has not.
const BUILDER_FILE: &str = "\
FROM localhost/bobbin-base
RUN apt-get update -q \\
    && apt-get install -y -q --no-install-recommends ca-certificates gcc libc6-dev make
ENV CARGO_HOME=/cargo PATH=/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin
";
const PROMISES: &str = "{{.Config.Entrypoint}} {{.Config.Cmd}} {{.Config.WorkingDir}} \
                        {{.Config.ExposedPorts}} {{.Config.Volumes}} {{.HealthCheck.Test}}";
const PROMISES_WANTED: &str = "[bobbin-entrypoint] [bobbin-server] /data map[6379/tcp:{}] \
                               map[/data:{}] [CMD bobbin-healthcheck]\n";
const MANIFEST: &str = "appendonlydir/appendonly.aof.manifest";
/// No network but its own loopback, so that its port is free; limits that any machine allows.
const LIMITS: [&str; 6] =
    ["--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"];
const START_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(100);
