//! A server process of a test's own: a free port, a folder that goes away, its log kept.

use std::fs::{File, Permissions};
use std::io::{Read, Seek, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::{TestConnection, peers, power, until};

pub mod cluster;
pub mod link;
mod replicas;
pub mod sentinel;
#[cfg(feature = "tls")]
pub mod tls;

/// A running server. It is killed, and its folder removed, when this is dropped; when the test is
/// panicking the end of its log is printed.
#[derive(Debug)]
pub struct TestServer {
    child: Child,
    address: SocketAddr,
    folder: PathBuf,
}

impl TestServer {
    /// Starts `binary` with redis.conf-style flags after those every test uses (port, bind, dir, no
    /// saves), and before them the configuration file that the first argument may be, and waits
    /// until it answers.
    pub fn start(binary: &Path, arguments: &[&str]) -> Result<Self, String> {
        Self::start_by(|| Command::new(binary), arguments)
    }

    /// Starts Bobbin, as built last, under `strace`, which writes down what it does ([`power`]).
    pub fn traced(trace: &Path, arguments: &[&str]) -> Result<Self, String> {
        Self::start_under(|| power::trace::tracer(trace), arguments)
    }

    /// Starts Bobbin under `strace`, which makes a system call fail or take long
    /// ([`power::trace::meddler`]).
    pub fn meddled_with(fault: &str, arguments: &[&str]) -> Result<Self, String> {
        Self::start_under(|| power::trace::meddler(fault), arguments)
    }

    fn start_under(strace: impl Fn() -> Command, arguments: &[&str]) -> Result<Self, String> {
        let begin = || {
            let mut command = strace();
            command.arg(peers::bobbin());
            command
        };
        let hint = |error| format!("{error}\n(this test needs strace, and the right to trace)");
        Self::start_by(begin, arguments).map_err(hint)
    }

    /// Starts a server by a command that lacks only the server's arguments.
    pub fn start_by(begin: impl Fn() -> Command, arguments: &[&str]) -> Result<Self, String> {
        Self::start_in(&std::env::temp_dir(), begin, arguments)
    }

    /// Starts a server whose own folder lies in `base`.
    fn start_in(
        base: &Path,
        begin: impl Fn() -> Command,
        arguments: &[&str],
    ) -> Result<Self, String> {
        let mut last = String::new();
        // Another process may take the port between our look and the server's bind.
        for _ in 0..START_ATTEMPTS {
            match Self::start_once(base, begin(), arguments) {
                Ok(server) => return Ok(server),
                Err(error) if error.to_lowercase().contains("address already in use") => {
                    last = error;
                }
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// A real Valkey of the version the transcripts are recorded with.
    pub fn valkey(arguments: &[&str]) -> Self {
        Self::start_peer("valkey-server", arguments)
    }

    /// A real Valkey whose files lie in memory, if the system has a folder for that: one that
    /// forces a file to disk again and again.
    fn valkey_in_memory(arguments: &[&str]) -> Self {
        let (memory, elsewhere) = (Path::new("/dev/shm"), std::env::temp_dir());
        let base = if memory.is_dir() { memory } else { &elsewhere };
        Self::start_peer_in(base, "valkey-server", arguments)
    }

    /// A real Redis.
    pub fn redis(arguments: &[&str]) -> Self {
        Self::start_peer("redis-server", arguments)
    }

    /// A real server by the name of its program; `None` when that is not at hand.
    pub fn other(program: &str, arguments: &[&str]) -> Option<Self> {
        peers::peer(program).exists().then(|| Self::start_peer(program, arguments))
    }

    /// Bobbin: the server that [`peers::bobbin`] finds.
    pub fn bobbin(arguments: &[&str]) -> Self {
        let binary = peers::bobbin();
        // All threads are to meet, however few the clients and the cores. Which keys share a lock
        // is no matter of chance.
        let own = ["--connections-per-io-thread", "0", "--hash-seed", "testkit"];
        let (file, arguments) = split_file(arguments);
        Self::start(&binary, &[file, &own, arguments].concat())
            .unwrap_or_else(|error| panic!("{}: {error}", binary.display()))
    }

    pub fn connect(&self) -> TestConnection {
        TestConnection::open(self.address)
            .unwrap_or_else(|error| panic!("cannot connect to {}: {error}", self.address))
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// All that the server wrote to stdout and stderr.
    pub fn log(&self) -> String {
        read_log(&self.folder)
    }

    /// Sends a signal by its name: `TERM`.
    ///
    /// # Panics
    /// When it cannot be sent.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "SIG{name} is sent");
    }

    /// Stops all its threads, until SIGCONT. On a busy machine that takes a while from the signal
    /// on.
    ///
    /// # Panics
    /// When it is not running.
    pub fn stop(&self) {
        self.signal("STOP");
        let tasks = format!("/proc/{}/task", self.id());
        let is_stopped = |task: std::fs::DirEntry| {
            let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
            status.contains("State:\tT")
        };
        until(|| std::fs::read_dir(&tasks).expect("it runs").flatten().all(is_stopped));
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for the server to end by itself; `None` when it does not within `limit`.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if Instant::now() > deadline {
                return None;
            }
            std::thread::sleep(POLL);
        }
    }

    /// SIGKILL; whether it is gone then. Its folder stays until this is dropped.
    pub fn kill(&mut self) -> bool {
        self.child.kill().is_ok() && self.child.wait().is_ok()
    }

    /// Physical memory in bytes (`VmRSS` of /proc), 0 when the process is gone.
    pub fn resident_bytes(&self) -> u64 {
        self.status_field("VmRSS:") * 1024
    }

    /// The number of file descriptors the server holds.
    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.id())).map_or(0, Iterator::count)
    }

    /// The most physical memory in bytes that it ever had (`VmHWM`).
    pub fn peak_resident_bytes(&self) -> u64 {
        self.status_field("VmHWM:") * 1024
    }

    /// Starts Bobbin as a user who has no other threads, so that it can be refused more of them;
    /// `None` where that cannot be done. Its files go to `folder`.
    pub fn of_nobody(folder: &Path, arguments: &[&str]) -> Option<Self> {
        let begin = || {
            let mut command = Command::new(peers::bobbin());
            command.uid(NOBODY).gid(NOBODY);
            command
        };
        std::fs::set_permissions(folder, Permissions::from_mode(0o777)).ok()?;
        let own = ["--dir", folder.to_str()?];
        let started = Self::start_by(begin, &[&own[..], arguments].concat());
        started.inspect_err(|error| println!("not tested: {error}")).ok()
    }

    /// Has the system give it no further threads, or again as many as it wants.
    ///
    /// # Panics
    /// When that cannot be said.
    pub fn refuse_threads(&self, refuse: bool) {
        let limit = if refuse { "--nproc=0:" } else { "--nproc=4096:" };
        let id = self.id().to_string();
        // By the same user: not every root may do that to others.
        let mut prlimit = Command::new("prlimit");
        let done = prlimit.uid(NOBODY).gid(NOBODY).args(["--pid", &id, limit]).status();
        assert!(done.is_ok_and(|status| status.success()), "prlimit {limit}");
    }

    fn status_field(&self, name: &str) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    }

    fn start_peer(name: &str, arguments: &[&str]) -> Self {
        Self::start_peer_in(&std::env::temp_dir(), name, arguments)
    }

    fn start_peer_in(base: &Path, name: &str, arguments: &[&str]) -> Self {
        let begin = || Command::new(peers::peer(name));
        Self::start_in(base, begin, arguments).unwrap_or_else(|error| {
            panic!("{name}: {error}\n(`cargo xtask peers` installs what the tests use)")
        })
    }

    fn start_once(base: &Path, mut command: Command, arguments: &[&str]) -> Result<Self, String> {
        let port = match port_among(arguments) {
            Some(port) => port,
            None => free_port().map_err(|error| format!("no free port: {error}"))?,
        };
        let folder = fresh_folder_in(base).map_err(|error| format!("no folder: {error}"))?;
        let log = File::create(folder.join(LOG)).map_err(|error| error.to_string())?;
        let both = log.try_clone().map_err(|error| error.to_string())?;
        let (file, arguments) = split_file(arguments);
        let child = command
            .args(file)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .arg("--dir")
            .arg(&folder)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(both)
            .spawn()
            .map_err(|error| format!("cannot start {:?}: {error}", command.get_program()))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut server = Self { child, address, folder };
        let password = arguments.iter().position(|argument| *argument == "--requirepass");
        server.wait_until_ready(password.and_then(|at| arguments.get(at + 1).copied()))?;
        Ok(server)
    }

    fn wait_until_ready(&mut self, password: Option<&str>) -> Result<(), String> {
        let deadline = Instant::now() + START_LIMIT;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("ended at once ({status}); its log:\n{}", self.log()));
            }
            if let Ok(mut connection) = TestConnection::open(self.address)
                && password.is_none_or(|password| connection.call(&["AUTH", password]).is_ok())
                // Any other answer will do: users may need a name.
                && connection
                    .call(&["PING"])
                    .is_ok_and(|reply| !reply.text().starts_with("LOADING"))
                && connection.finish_sending().is_ok()
            {
                // The server closes it, so no test finds one client more than its own.
                let _ = connection.receive();
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        Err(format!("does not answer after {START_LIMIT:?}; its log:\n{}", self.log()))
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let log = self.log();
        // It says how two threads can wait for each other: whatever the test looked at, it has
        // failed.
        let has_fault = log.contains(LOCK_FAULT);
        if std::thread::panicking() || has_fault {
            let lines: Vec<_> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
            eprintln!("--- the server's log ends:\n{}", tail.join("\n"));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
        assert!(!has_fault || std::thread::panicking(), "the server took locks in two orders");
    }
}

/// The port that the arguments name: of a server that starts again.
fn port_among(arguments: &[&str]) -> Option<u16> {
    let at = arguments.iter().position(|argument| *argument == "--port")?;
    arguments.get(at + 1)?.parse().ok()
}

/// A configuration file, if the first argument is one, and the other arguments.
fn split_file<'a, 'b>(arguments: &'a [&'b str]) -> (&'a [&'b str], &'a [&'b str]) {
    let has_file = arguments.first().is_some_and(|first| !first.starts_with('-'));
    arguments.split_at(usize::from(has_file))
}

fn read_log(folder: &Path) -> String {
    let bytes = std::fs::read(folder.join(LOG)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The user `nobody`, on all systems that there are.
const NOBODY: u32 = 65_534;

/// A port of the loopback interface that no process listens at. The tests of one user share a
/// counter of ports, in a file: none of them gets a port that another one got a moment ago. The
/// ports lie below those that the kernel gives to connections.
pub fn free_port() -> std::io::Result<u16> {
    let folder = peers::cache_folder();
    std::fs::create_dir_all(&folder)?;
    let mut options = File::options();
    options.create(true).truncate(false).read(true).write(true);
    let mut file = options.open(folder.join("test-port"))?;
    file.lock()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let last = text.trim().parse().ok().filter(|last| PORTS.contains(last));
    let mut port = last.unwrap_or(PORTS.start);
    for _ in PORTS {
        port = if port + 1 < PORTS.end { port + 1 } else { PORTS.start };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            file.rewind()?;
            file.set_len(0)?;
            write!(file, "{port}")?;
            return Ok(port);
        }
    }
    Err(std::io::ErrorKind::AddrInUse.into())
}

pub(crate) fn fresh_folder() -> std::io::Result<PathBuf> {
    fresh_folder_in(&std::env::temp_dir())
}

fn fresh_folder_in(base: &Path) -> std::io::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = base.join(format!("bobbin-test-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

const PORTS: std::ops::Range<u16> = 12_000..32_000;
const LOG: &str = "server.log";
/// What a debug build panics with (`bobbin_sync::order`).
const LOCK_FAULT: &str = "order of locks: ";
const LOG_TAIL_LINES: usize = 40;
const START_ATTEMPTS: usize = 5;
const START_LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);
