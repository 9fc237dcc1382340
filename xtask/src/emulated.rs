//! The programs for another architecture, run by QEMU: what they do, not how fast.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bobbin_testkit::server::free_port;

use crate::dist;
use crate::shell::{self, TaskResult, same, step};

/// Unpacks the archive for the architecture, and tries its programs.
pub(crate) fn check(architecture: &str, scratch: &Path) -> TaskResult {
    prepare(architecture)?;
    let archive = dist::archive(architecture);
    shell::run(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(scratch))?;
    let name = archive.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let programs = scratch.join(name.trim_end_matches(".tar.gz"));
    let machine = Machine { architecture, programs, folder: scratch.to_owned() };
    machine.walk()
}

/// Sees to it that programs for the architecture can be run.
pub(crate) fn prepare(architecture: &str) -> TaskResult {
    if !shell::works(emulator(architecture), &["--version"]) {
        shell::install_packages(&["qemu-user"])?;
    }
    if !system(architecture).join("lib").exists() {
        let debian = dist::debian_name(architecture);
        shell::install_packages(&[&format!("libc6-{debian}-cross")])?;
    }
    Ok(())
}

/// A command that runs a program for the architecture.
pub(crate) fn command(architecture: &str, program: &Path) -> Command {
    let mut command = Command::new(emulator(architecture));
    command.arg("-L").arg(system(architecture)).arg(program);
    command
}

fn emulator(architecture: &str) -> String {
    format!("qemu-{architecture}")
}

/// Where the C library of the architecture is.
fn system(architecture: &str) -> PathBuf {
    PathBuf::from(format!("/usr/{architecture}-linux-gnu"))
}

struct Machine<'a> {
    architecture: &'a str,
    programs: PathBuf,
    /// Certificates and data.
    folder: PathBuf,
}

impl Machine<'_> {
    fn walk(&self) -> TaskResult {
        let architecture = self.architecture;
        make_certificate(&self.folder)?;
        let benchmark = format!("bobbin-benchmark {}\n", env!("CARGO_PKG_VERSION"));
        let said = shell::output(self.command("bobbin-benchmark").arg("--version"))?;
        step(&format!("{architecture}: programs run"), same(&said, &benchmark))?;
        let (plain, encrypted) = (port()?, port()?);
        let server = self.start(plain, encrypted)?;
        step(&format!("{architecture}: data and scripts"), self.says_all(plain, FIRST))?;
        let tls = ["--tls", "--cacert", "server.crt", "-p", &encrypted.to_string(), "PING"];
        let said = shell::output(self.command("bobbin-cli").args(tls));
        step(&format!("{architecture}: TLS"), said.and_then(|said| same(&said, "PONG\n")))?;
        server.stop()?;
        let server = self.start(plain, encrypted)?;
        step(&format!("{architecture}: data after a restart"), self.says_all(plain, SECOND))?;
        server.stop()
    }

    fn start(&self, plain: u16, encrypted: u16) -> Result<Running, String> {
        let mut command = self.command("bobbin-server");
        command.args(["--port", &plain.to_string(), "--tls-port", &encrypted.to_string()]);
        command.args(["--tls-cert-file", "server.crt", "--tls-key-file", "server.key"]);
        command.args(["--tls-auth-clients", "no", "--logfile", "server.log"]);
        let server = command.stdin(Stdio::null()).spawn().map_err(|error| error.to_string())?;
        let server = Running(server);
        let begun = Instant::now();
        while let Err(error) = self.says(plain, &["PING"], "PONG\n") {
            if begun.elapsed() > START_LIMIT {
                let log = shell::read(&self.folder.join("server.log")).unwrap_or_default();
                return Err(format!("it does not answer: {error}\n{log}"));
            }
            std::thread::sleep(POLL);
        }
        Ok(server)
    }

    fn says_all(&self, port: u16, lines: &[(&[&str], &str)]) -> TaskResult {
        lines.iter().try_for_each(|(words, wanted)| self.says(port, words, wanted))
    }

    fn says(&self, port: u16, words: &[&str], wanted: &str) -> TaskResult {
        let mut client = self.command("bobbin-cli");
        let said = shell::output(client.args(["-p", &port.to_string()]).args(words))?;
        same(&said, wanted).map_err(|error| format!("{words:?}: {error}"))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = command(self.architecture, &self.programs.join(program));
        command.current_dir(&self.folder);
        command
    }
}

/// A server that does not outlive its check.
struct Running(Child);

impl Running {
    fn stop(mut self) -> TaskResult {
        shell::run(Command::new("kill").args(["-TERM", &self.0.id().to_string()]))?;
        let status = self.0.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(status.to_string()) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn make_certificate(folder: &Path) -> TaskResult {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]);
    openssl.args(["-subj", "/CN=bobbin", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]);
    // The client takes no certificate of an authority as a server's.
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    openssl.args(["-keyout", "server.key", "-out", "server.crt"]).current_dir(folder);
    shell::output(&mut openssl).map(drop)
}

fn port() -> Result<u16, String> {
    free_port().map_err(|error| error.to_string())
}

type Lines = &'static [(&'static [&'static str], &'static str)];

/// Numbers, text, compact and large values, a script with its libraries, and a snapshot.
const FIRST: Lines = &[
    (&["SET", "key", "value"], "OK\n"),
    (&["GET", "key"], "value\n"),
    (&["INCRBYFLOAT", "number", "3.14"], "3.14\n"),
    (&["ZADD", "scores", "1.5", "a", "2.5", "b"], "2\n"),
    (&["EVAL", SCRIPT, "1", "list"], "1000\n"),
    (
        &["EVAL", "return cjson.encode({cmsgpack.unpack(cmsgpack.pack(7, 'x'))})", "0"],
        "[7,\"x\"]\n",
    ),
    (&["PFADD", "sketch", "a", "b", "c"], "1\n"),
    (&["SAVE"], "OK\n"),
];
const SCRIPT: &str = "for i = 1, 1000 do redis.call('RPUSH', KEYS[1], i) end \
                      return redis.call('LLEN', KEYS[1])";
const SECOND: Lines = &[
    (&["GET", "key"], "value\n"),
    (&["GET", "number"], "3.14\n"),
    (&["ZRANGE", "scores", "0", "-1", "WITHSCORES"], "a\n1.5\nb\n2.5\n"),
    (&["LINDEX", "list", "-1"], "1000\n"),
    (&["PFCOUNT", "sketch"], "3\n"),
];
const START_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(200);
