//! The machine around the server: checks at start that say what to change, the limit on open files,
//! and the ways of being a service (process id file, supervision, readiness to be killed).

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bobbin_io::error_text;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::base::files::{self, DATA_MODE};
use crate::config::{Config, OomScoreAdj, OptionId, Supervised};

/// Descriptors kept for the server itself, as Redis reserves them.
const RESERVED_DESCRIPTORS: u64 = 32;
/// Descriptors that each worker takes.
const DESCRIPTORS_PER_WORKER: u64 = 4;
const PIDFILE_DEFAULT: &str = "/var/run/bobbin.pid";

/// Where the kernel says how it is set up.
pub struct HostFiles {
    pub huge_pages: PathBuf,
    pub overcommit: PathBuf,
    pub somaxconn: PathBuf,
    pub clock_source: PathBuf,
    pub clock_sources: PathBuf,
}

impl Default for HostFiles {
    fn default() -> Self {
        let clock = Path::new("/sys/devices/system/clocksource/clocksource0");
        Self {
            huge_pages: "/sys/kernel/mm/transparent_hugepage/enabled".into(),
            overcommit: "/proc/sys/vm/overcommit_memory".into(),
            somaxconn: "/proc/sys/net/core/somaxconn".into(),
            clock_source: clock.join("current_clocksource"),
            clock_sources: clock.join("available_clocksource"),
        }
    }
}

impl HostFiles {
    /// What should be changed on this machine, one sentence or two for each. Files that cannot be
    /// read are passed over. `huge_pages_off`: this process does not use them whatever the machine
    /// says (see [`disable_huge_pages`]).
    pub fn warnings(&self, config: &Config, huge_pages_off: bool) -> Vec<String> {
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let huge_pages = match huge_pages_off {
            true => None,
            false => check_huge_pages(&read(&self.huge_pages)),
        };
        let checks = [
            check_overcommit(&read(&self.overcommit)),
            huge_pages,
            check_backlog(&read(&self.somaxconn), config.tcp_backlog()),
            check_clock(&read(&self.clock_source), &read(&self.clock_sources)),
        ];
        checks.into_iter().flatten().collect()
    }
}

/// `enabled` is a line such as `always [madvise] never`, the choice in brackets.
pub fn check_huge_pages(enabled: &str) -> Option<String> {
    enabled.contains("[always]").then(|| {
        "WARNING Transparent huge pages are set to 'always'. They make memory grow and writes stall. Run \
         'echo madvise > /sys/kernel/mm/transparent_hugepage/enabled' as root and at each boot, or leave \
         'disable-thp yes' in the configuration."
            .into()
    })
}

/// `mode`: 0 guesses, 1 always grants memory, 2 never more than there is.
pub fn check_overcommit(mode: &str) -> Option<String> {
    let risk = match mode.trim() {
        "0" => "a large allocation may be refused although memory is free",
        "2" => {
            "allocations are refused once all processes together have asked for as much as there is"
        }
        _ => return None,
    };
    Some(format!(
        "WARNING vm.overcommit_memory is {}: {risk}. Set it to 1: 'sysctl vm.overcommit_memory=1' as root for now, \
         'vm.overcommit_memory = 1' in /etc/sysctl.conf for each boot.",
        mode.trim()
    ))
}

pub fn check_backlog(somaxconn: &str, backlog: i64) -> Option<String> {
    let limit: i64 = somaxconn.trim().parse().ok()?;
    (limit > 0 && limit < backlog).then(|| {
        format!(
            "WARNING: The TCP backlog setting of {backlog} cannot be enforced because \
             /proc/sys/net/core/somaxconn is set to the lower value of {limit}. Raise it: 'sysctl \
             net.core.somaxconn={backlog}' as root, or lower tcp-backlog."
        )
    })
}

/// Sources that are read without entering the kernel pass.
pub fn check_clock(current: &str, available: &str) -> Option<String> {
    const QUICK: [&str; 5] =
        ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "timebase"];
    let (current, available) = (current.trim(), available.trim());
    if current.is_empty() || QUICK.contains(&current) {
        return None;
    }
    let mut text = format!("WARNING The clock source '{current}' is slow to read. ");
    let better = available.split_whitespace().find(|source| QUICK.contains(source));
    text += &match better {
        Some(source) => format!(
            "Run 'echo {source} > /sys/devices/system/clocksource/clocksource0/current_clocksource' as root, and \
             boot with 'clocksource={source}'."
        ),
        None => format!("The machine offers no better one ({available})."),
    };
    Some(text)
}

/// Gives up transparent huge pages for this process. Says whether that is so now.
pub fn disable_huge_pages() -> bool {
    match rustix::thread::disable_transparent_huge_pages(true) {
        Ok(()) => true,
        Err(error) => {
            log::warn!("Can't give up transparent huge pages (disable-thp): {error}");
            false
        }
    }
}

/// How many clients the limit on open files has room for.
#[derive(Debug, PartialEq, Eq)]
pub enum OpenFiles {
    /// As many as were asked for.
    Enough,
    /// `limit` open files are allowed, which is enough for `clients` clients. All of them would
    /// take `needed`.
    Only { clients: u64, limit: u64, needed: u64 },
}

/// Raises the limit on open files to what `clients` clients need, plus what the server itself needs
/// with `workers` workers. If the system does not allow that, warnings say so.
pub fn raise_open_files(clients: u64, workers: usize) -> OpenFiles {
    let reserved = RESERVED_DESCRIPTORS + workers as u64 * DESCRIPTORS_PER_WORKER;
    let needed = clients.saturating_add(reserved);
    let before = getrlimit(Resource::Nofile);
    let mut error = None;
    for limit in limits_to_try(before, needed) {
        match setrlimit(Resource::Nofile, limit) {
            Ok(()) => break,
            Err(failed) => error = Some(failed),
        }
    }
    let now = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let old = before.current.unwrap_or(u64::MAX);
    let open_files = room(clients, reserved, now);
    if open_files != OpenFiles::Enough {
        log::warn!(
            "You requested maxclients of {clients} requiring at least {needed} max file descriptors."
        );
        if let Some(error) = error {
            let reason = error_text(&error.into());
            log::warn!(
                "Server can't set maximum open files to {needed} because of OS error: {reason}."
            );
        }
    } else if old < needed {
        log::info!(
            "Increased maximum number of open files to {needed} (it was originally set to {old})."
        );
    }
    open_files
}

/// What to ask for, best first: all that is needed (which may take privileges), then all that needs
/// none.
fn limits_to_try(before: Rlimit, needed: u64) -> Vec<Rlimit> {
    let current = before.current.unwrap_or(u64::MAX);
    let maximum = before.maximum.unwrap_or(u64::MAX);
    if current >= needed {
        return Vec::new();
    }
    let full = Rlimit {
        current: Some(needed),
        maximum: before.maximum.map(|maximum| maximum.max(needed)),
    };
    let mut limits = vec![full];
    if maximum < needed && maximum > current {
        limits.push(Rlimit { current: Some(maximum), maximum: before.maximum });
    }
    limits
}

fn room(clients: u64, reserved: u64, limit: u64) -> OpenFiles {
    match limit.saturating_sub(reserved) {
        room if room >= clients => OpenFiles::Enough,
        room => OpenFiles::Only { clients: room, limit, needed: clients.saturating_add(reserved) },
    }
}

/// The file that holds the process id while the server runs. It goes with this value.
pub struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes the file if the configuration or being a daemon asks for one. Failing to is a
    /// warning. The caller listens already: a server that cannot start must not overwrite the file
    /// of the one that has its port.
    pub fn write(config: &Config, is_daemon: bool) -> Option<Self> {
        let name = config.pidfile();
        let path = match &name[..] {
            [] if is_daemon => PathBuf::from(PIDFILE_DEFAULT),
            [] => return None,
            name => PathBuf::from(OsStr::from_bytes(name)),
        };
        // It is removed from where it is now, even if the directory changes.
        let path = std::path::absolute(&path).unwrap_or(path);
        let text = format!("{}\n", std::process::id());
        let written = files::create_anew(&path, DATA_MODE)
            .and_then(|mut file| file.write_all(text.as_bytes()));
        match written {
            Ok(()) => Some(Self { path }),
            Err(error) => {
                log::warn!("Failed to write PID file {}: {}", path.display(), error_text(&error));
                None
            }
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        if text.trim_end() != std::process::id().to_string() {
            // Another server has written its own.
            return;
        }
        log::info!("Removing the pid file.");
        if let Err(error) = std::fs::remove_file(&self.path) {
            log::debug!("Can't remove the pid file: {error}");
        }
    }
}

/// The program that watches over the process.
#[derive(Debug, PartialEq, Eq)]
pub enum Supervisor {
    None,
    /// Stops the process by a signal once it is ready, as Upstart's `expect stop` wants.
    Upstart,
    Systemd(PathBuf),
}

impl Supervisor {
    /// By the configuration and the variables UPSTART_JOB and NOTIFY_SOCKET.
    pub fn find(
        supervised: Supervised,
        variable: impl Fn(&str) -> Option<std::ffi::OsString>,
    ) -> Self {
        let upstart = variable("UPSTART_JOB").is_some();
        let socket = variable("NOTIFY_SOCKET").map(PathBuf::from);
        match (supervised, socket) {
            (Supervised::Upstart, _) if upstart => Self::Upstart,
            (Supervised::Auto, _) if upstart => Self::Upstart,
            (Supervised::Systemd | Supervised::Auto, Some(socket)) => Self::Systemd(socket),
            (Supervised::Upstart, _) => {
                log::warn!("Upstart supervision requested, but UPSTART_JOB not found!");
                Self::None
            }
            (Supervised::Systemd, None) => {
                log::warn!("systemd supervision requested, but NOTIFY_SOCKET not found!");
                Self::None
            }
            (Supervised::Auto | Supervised::No, _) => Self::None,
        }
    }

    /// Whether a program watches.
    pub fn is_some(&self) -> bool {
        *self != Self::None
    }

    /// Says that the server accepts connections.
    pub fn ready(&self) {
        self.going_on();
        if *self == Self::Upstart {
            let stop = rustix::process::Signal::STOP;
            if let Err(error) = rustix::process::kill_process(rustix::process::getpid(), stop) {
                log::warn!("Can't stop for Upstart: {error}");
            }
        }
    }

    /// Says that the server serves, perhaps after an end that came to nothing.
    pub fn going_on(&self) {
        self.tell("STATUS=Ready to accept connections\nREADY=1\n");
    }

    /// Says that the server is about to end.
    pub fn stopping(&self) {
        self.tell("STATUS=Shutting down\nSTOPPING=1\n");
    }

    fn tell(&self, message: &str) {
        let Self::Systemd(socket) = self else { return };
        if let Err(error) = notify(socket, message.as_bytes()) {
            log::warn!("systemd supervision error: {error}");
        }
    }
}

/// How long a message waits for room in the socket of a supervisor that does not read.
const NOTIFY_LIMIT: Duration = Duration::from_secs(1);

/// One datagram to systemd's socket; a path that begins with `@` is an abstract name.
fn notify(socket: &Path, message: &[u8]) -> io::Result<()> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let address = match socket.as_os_str().as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    sender.set_write_timeout(Some(NOTIFY_LIMIT))?;
    sender.send_to_addr(message, &address).map(|_| ())
}

/// The process's readiness to be killed when memory runs out, and what it was before.
pub struct OomScore {
    path: PathBuf,
    before: Option<i64>,
}

impl Default for OomScore {
    fn default() -> Self {
        Self::at("/proc/self/oom_score_adj".into())
    }
}

impl OomScore {
    fn at(path: PathBuf) -> Self {
        Self { path, before: None }
    }

    /// Does what `oom-score-adj` and `oom-score-adj-values` say now: of these the first for a
    /// primary, and the second for a replica. The error is for CONFIG SET.
    pub fn apply(&mut self, config: &Config, is_replica: bool) -> Result<(), String> {
        const LIMIT: i64 = 1000;
        let failed = |doing: &str, error: io::Error| {
            log::warn!("Unable to {doing} oom_score_adj: {error}");
            "Failed to set current oom_score_adj. Check server logs.".to_owned()
        };
        let mode = config.oom_score_adj();
        if self.before.is_none() && mode != OomScoreAdj::No {
            let text =
                std::fs::read_to_string(&self.path).map_err(|error| failed("read", error))?;
            self.before = Some(text.trim().parse().unwrap_or(0));
        }
        let Some(before) = self.before else { return Ok(()) };
        let values = config.words_of(OptionId::oom_score_adj_values);
        let wanted =
            values.get(usize::from(is_replica)).and_then(|value| value.parse().ok()).unwrap_or(0);
        let value: i64 = match mode {
            OomScoreAdj::No => before,
            OomScoreAdj::Relative => before + wanted,
            OomScoreAdj::Absolute => wanted,
        };
        let text = format!("{}\n", value.clamp(-LIMIT, LIMIT));
        std::fs::write(&self.path, text).map_err(|error| failed("write", error))?;
        if mode == OomScoreAdj::No {
            self.before = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("bobbin-host-{}-{name}", std::process::id()))
    }

    #[test]
    fn says_what_to_change_on_a_machine() {
        let folder = temporary("machine");
        std::fs::create_dir_all(&folder).unwrap();
        let files = HostFiles {
            huge_pages: folder.join("thp"),
            overcommit: folder.join("overcommit"),
            somaxconn: folder.join("somaxconn"),
            clock_source: folder.join("clock"),
            clock_sources: folder.join("clocks"),
        };
        let config = Config::new();
        assert_eq!(files.warnings(&config, false), [""; 0], "files that are not there");

        let write = |path: &PathBuf, text: &str| std::fs::write(path, text).unwrap();
        write(&files.huge_pages, "[always] madvise never\n");
        write(&files.overcommit, "0\n");
        write(&files.somaxconn, "128\n");
        write(&files.clock_source, "hpet\n");
        write(&files.clock_sources, "tsc hpet acpi_pm \n");
        let warnings = files.warnings(&config, false);
        assert_eq!(warnings.len(), 4);
        assert!(warnings[0].contains("sysctl vm.overcommit_memory=1"));
        assert!(warnings[1].contains("echo madvise > "));
        assert!(
            warnings[2].contains("setting of 511") && warnings[2].contains("lower value of 128")
        );
        assert!(warnings[3].contains("echo tsc > "));
        assert_eq!(files.warnings(&config, true).len(), 3);

        write(&files.huge_pages, "always [madvise] never\n");
        write(&files.overcommit, "1\n");
        write(&files.somaxconn, "4096\n");
        write(&files.clock_source, "tsc\n");
        assert_eq!(files.warnings(&config, false), [""; 0]);
        std::fs::remove_dir_all(folder).unwrap();

        assert!(check_overcommit("2").unwrap().contains("is 2:"));
        assert!(check_clock("xen", "xen").unwrap().ends_with("no better one (xen)."));
        assert_eq!(check_backlog("junk", 511), None);
    }

    #[test]
    fn plans_the_limit_on_open_files() {
        let limit = |current, maximum| Rlimit { current, maximum };
        let before = limit(Some(1024), Some(4096));
        assert_eq!(limits_to_try(before, 1000), []);
        assert_eq!(limits_to_try(before, 2000), [limit(Some(2000), Some(4096))]);
        assert_eq!(
            limits_to_try(before, 10_032),
            [limit(Some(10_032), Some(10_032)), limit(Some(4096), Some(4096))]
        );
        assert_eq!(limits_to_try(limit(Some(64), None), 100), [limit(Some(100), None)]);
        assert_eq!(limits_to_try(limit(None, None), 100), []);

        assert_eq!(room(10_000, 32, 10_032), OpenFiles::Enough);
        let only = |clients, limit| OpenFiles::Only { clients, limit, needed: 10_032 };
        assert_eq!(room(10_000, 32, 100), only(68, 100));
        assert_eq!(room(10_000, 32, 30), only(0, 30));
        assert_eq!(raise_open_files(1, 1), OpenFiles::Enough);
    }

    #[test]
    fn writes_and_removes_the_process_id() {
        let path = temporary("pid");
        let config = Config::new();
        assert!(PidFile::write(&config, false).is_none());
        let line = crate::config::CommandLine {
            options: format!("pidfile {}", path.display()).into_bytes(),
            ..Default::default()
        };
        let config = Config::load(&line, &mut &b""[..], "1", &mut NoDirectives).unwrap();
        let file = PidFile::write(&config, false).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        drop(file);
        assert!(!path.exists());
        let file = PidFile::write(&config, false).unwrap();
        std::fs::write(&path, "1\n").unwrap();
        drop(file);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n", "it is of another server");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn tells_systemd() {
        let find = |supervised, name: &'static str, value: &'static str| {
            Supervisor::find(supervised, move |wanted| (wanted == name).then(|| value.into()))
        };
        assert_eq!(find(Supervised::No, "NOTIFY_SOCKET", "/x"), Supervisor::None);
        assert_eq!(find(Supervised::Systemd, "UPSTART_JOB", "x"), Supervisor::None);
        assert_eq!(find(Supervised::Auto, "UPSTART_JOB", "x"), Supervisor::Upstart);
        assert_eq!(find(Supervised::Auto, "NOTIFY_SOCKET", "/x"), Supervisor::Systemd("/x".into()));

        let path = temporary("notify");
        let listener = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        Supervisor::Systemd(path.clone()).ready();
        let mut buffer = [0; 128];
        let length = listener.recv(&mut buffer).unwrap();
        assert!(buffer[..length].ends_with(b"\nREADY=1\n"));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn adjusts_and_restores_the_score() {
        let path = temporary("oom");
        std::fs::write(&path, "10\n").unwrap();
        let config = Config::new();
        let mut score = OomScore::at(path.clone());
        let mut expect = |values: &str, mode: &str, expected: &str, as_replica: &str| {
            config.set_internally(OptionId::oom_score_adj_values, values).unwrap();
            config.set_internally(OptionId::oom_score_adj, mode).unwrap();
            for (is_replica, expected) in [(true, as_replica), (false, expected)] {
                score.apply(&config, is_replica).unwrap();
                assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
            }
        };
        expect("5 6 7", "no", "10\n", "10\n");
        expect("5 6 7", "relative", "15\n", "16\n");
        expect("5 6 7", "absolute", "5\n", "6\n");
        expect("2000 2000 2000", "yes", "1000\n", "1000\n");
        expect("5 6 7", "no", "10\n", "10\n");
        std::fs::remove_file(path).unwrap();

        let mut missing = OomScore::at("/no/such/file".into());
        config.set_internally(OptionId::oom_score_adj, "yes").unwrap();
        assert!(missing.apply(&config, false).is_err());
    }

    struct NoDirectives;

    impl crate::config::Directives for NoDirectives {
        fn user(&mut self, _: &[&[u8]]) -> Result<(), String> {
            Ok(())
        }

        fn rename_command(&mut self, _: &[u8], _: &[u8]) -> Result<(), String> {
            Ok(())
        }
    }
}
