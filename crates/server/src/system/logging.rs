//! The log: a backend of the `log` crate that writes Redis's lines.
//!
//! Redis's four levels are, from the most to the least important, warning `#`, notice `*`, verbose
//! `-` and debug `.`; they are written as `log::error!` or `warn!`, `info!`, `debug!` and `trace!`.
//!
//! Local time comes from the C library (`libc::localtime_r`, in our tree anyhow): it knows the
//! machine's time zone and its changes, for which a date crate would bring a parser of the zone
//! files.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bobbin_sync::Mutex;
use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::base::json;
use crate::config::{Config, LogFormat, LogLevel, LogTimestampFormat, SyslogFacility};

static LOGGER: Logger = Logger::new();

/// Starts logging, to the standard output at level notice. Before anything else; a second call does
/// nothing.
pub fn install() {
    if log::set_logger(&LOGGER).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

/// Logs as the configuration says from here on. At start, after [`install`] and after becoming a
/// daemon. The error is that of opening `logfile`.
pub fn configure(config: &Config) -> io::Result<()> {
    let name = config.logfile();
    let target = match &name[..] {
        [] => LogTarget::Stdout,
        name => LogTarget::File(LogFile::open(Path::new(OsStr::from_bytes(name)))?),
    };
    let syslog = config.syslog_enabled().then(|| {
        let ident = String::from_utf8_lossy(&config.syslog_ident()).into_owned();
        Syslog::new(Path::new(SYSLOG_SOCKET), ident, config.syslog_facility())
    });
    LOGGER.descriptor.store(target.descriptor(), Ordering::Relaxed);
    *LOGGER.outputs.lock() = Outputs { target, syslog };
    show_replica(config.names_primary());
    follow(config);
    Ok(())
}

/// Takes up `loglevel`, `log-format` and `log-timestamp-format` as they are now; for CONFIG SET.
pub fn follow(config: &Config) {
    LOGGER.format.store(config.log_format() as u8, Ordering::Relaxed);
    LOGGER.timestamp.store(config.log_timestamp_format() as u8, Ordering::Relaxed);
    log::set_max_level(match config.loglevel() {
        LogLevel::Debug => LevelFilter::Trace,
        LogLevel::Verbose => LevelFilter::Debug,
        LogLevel::Notice => LevelFilter::Info,
        LogLevel::Warning => LevelFilter::Warn,
        LogLevel::Nothing => LevelFilter::Off,
    });
}

/// Opens the file of the log anew, after something moved it away; for SIGHUP. Without a file
/// nothing happens. On an error the log stays where it was.
pub fn reopen() -> io::Result<()> {
    if let LogTarget::File(file) = &mut LOGGER.outputs.lock().target {
        *file = LogFile::open(&file.path)?;
        LOGGER.descriptor.store(file.file.as_raw_fd(), Ordering::Relaxed);
    }
    Ok(())
}

/// The descriptor that lines are written to, for code that must not lock anything.
pub fn descriptor() -> i32 {
    LOGGER.descriptor.load(Ordering::Relaxed)
}

/// Shows this process as a replica (`S`) or as a primary (`M`).
pub fn show_replica(is_replica: bool) {
    LOGGER.is_replica.store(is_replica, Ordering::Relaxed);
}

/// The last lines at level notice and above, the newest first.
pub fn recent() -> Vec<LoggedEvent> {
    LOGGER.recent.lock().iter().cloned().collect()
}

/// A line of the log as others than its readers see it.
#[derive(Clone, Debug)]
pub struct LoggedEvent {
    /// Unix time.
    pub time_ms: i64,
    /// As the log's formats name it.
    pub level: &'static str,
    pub text: String,
}

struct Logger {
    /// Numbers of `LogFormat` and `LogTimestampFormat`.
    format: AtomicU8,
    timestamp: AtomicU8,
    is_replica: AtomicBool,
    descriptor: AtomicI32,
    outputs: Mutex<Outputs>,
    /// Apart from the outputs: these may wait for a disk.
    recent: Mutex<VecDeque<LoggedEvent>>,
}

struct Outputs {
    target: LogTarget,
    syslog: Option<Syslog>,
}

enum LogTarget {
    Stdout,
    File(LogFile),
}

/// A file that is appended to, and found again by its name when it was moved away.
struct LogFile {
    path: PathBuf,
    file: File,
    checked: Instant,
}

/// The system's log by its socket, in the format of RFC 3164.
struct Syslog {
    path: PathBuf,
    socket: Option<UnixDatagram>,
    ident: String,
    facility: u8,
}

impl LogTarget {
    fn descriptor(&self) -> i32 {
        match self {
            Self::Stdout => STDOUT,
            Self::File(file) => file.file.as_raw_fd(),
        }
    }
}

/// Lines that are remembered, and letters of each.
const RECENT_MAX: usize = 32;
const RECENT_LETTERS_MAX: usize = 300;
/// The standard output's descriptor.
const STDOUT: i32 = 1;

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let now = SystemTime::now();
        let message = record.args().to_string();
        if record.level() <= Level::Info {
            self.remember(record.level(), now, &message);
        }
        let line = LogLine {
            pid: std::process::id(),
            is_replica: self.is_replica.load(Ordering::Relaxed),
            level: record.level(),
            message: &message,
        };
        let text = line.format(
            self.format.load(Ordering::Relaxed),
            &timestamp(self.timestamp.load(Ordering::Relaxed), now),
        );
        let mut outputs = self.outputs.lock();
        // Nobody can be told when the log itself fails.
        let written = match &mut outputs.target {
            LogTarget::Stdout => io::stdout().write_all(text.as_bytes()),
            LogTarget::File(file) => {
                let written = file.write(text.as_bytes());
                // It may have been opened anew.
                self.descriptor.store(file.file.as_raw_fd(), Ordering::Relaxed);
                written
            }
        };
        drop(written);
        if let Some(syslog) = &mut outputs.syslog {
            syslog.send(&line, now);
        }
    }

    fn flush(&self) {
        // Nobody can be told here either.
        drop(io::stdout().flush());
    }
}

impl Logger {
    const fn new() -> Self {
        Self {
            format: AtomicU8::new(LogFormat::Legacy as u8),
            timestamp: AtomicU8::new(LogTimestampFormat::Legacy as u8),
            is_replica: AtomicBool::new(false),
            descriptor: AtomicI32::new(STDOUT),
            outputs: Mutex::new(Outputs { target: LogTarget::Stdout, syslog: None }),
            recent: Mutex::new(VecDeque::new()),
        }
    }

    fn remember(&self, level: Level, now: SystemTime, message: &str) {
        let time_ms = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
        let text = message.chars().take(RECENT_LETTERS_MAX).collect();
        let mut recent = self.recent.lock();
        recent.truncate(RECENT_MAX - 1);
        recent.push_front(LoggedEvent { time_ms, level: sign_and_name(level).1, text });
    }
}

impl LogFile {
    fn open(path: &Path) -> io::Result<Self> {
        // Later a relative path could mean another file: the directory is an option.
        let path = std::path::absolute(path)?;
        let file = OpenOptions::new().append(true).create(true).open(&path)?;
        Ok(Self { path, file, checked: Instant::now() })
    }

    /// Redis opens its log for each line, so that tools which move it need no signal. A look at the
    /// name now and then comes to the same.
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        if self.checked.elapsed() >= MOVED_CHECK_INTERVAL {
            self.checked = Instant::now();
            if self.was_moved()
                && let Ok(new) = Self::open(&self.path)
            {
                *self = new;
            }
        }
        self.file.write_all(text)
    }

    fn was_moved(&self) -> bool {
        let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        let named = std::fs::metadata(&self.path).map(identity).ok();
        named.is_none() || named != self.file.metadata().map(identity).ok()
    }
}

impl Syslog {
    fn new(path: &Path, ident: String, facility: SyslogFacility) -> Self {
        const USER: u8 = 1;
        const LOCAL0: u8 = 16;
        let facility = match facility {
            SyslogFacility::User => USER,
            local => LOCAL0 + (local as u8 - SyslogFacility::Local0 as u8),
        };
        Self { path: path.to_owned(), socket: None, ident, facility }
    }

    /// Sends a line. It is dropped when the system's log does not listen or is behind: no thread
    /// waits for it.
    fn send(&mut self, line: &LogLine<'_>, now: SystemTime) {
        let severity = match line.level {
            Level::Error | Level::Warn => 4,
            Level::Info => 5,
            Level::Debug => 6,
            Level::Trace => 7,
        };
        let priority = self.facility << 3 | severity;
        let time = LocalTime::at(now);
        let text = format!(
            "<{priority}>{} {:2} {:02}:{:02}:{:02} {}[{}]: {}",
            MONTHS[time.month],
            time.day,
            time.hour,
            time.minute,
            time.second,
            self.ident,
            line.pid,
            on_one_line(line.message)
        );
        if !self.try_send(text.as_bytes()) {
            // The system's log may have been started anew.
            self.socket = None;
            self.try_send(text.as_bytes());
        }
    }

    fn try_send(&mut self, text: &[u8]) -> bool {
        if self.socket.is_none() {
            let connect = || -> io::Result<UnixDatagram> {
                let socket = UnixDatagram::unbound()?;
                socket.connect(&self.path)?;
                socket.set_nonblocking(true)?;
                Ok(socket)
            };
            self.socket = connect().ok();
        }
        self.socket.as_ref().is_some_and(|socket| match socket.send(text) {
            Ok(_) => true,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        })
    }
}

/// What a line says, but for its time.
struct LogLine<'m> {
    pid: u32,
    is_replica: bool,
    level: Level,
    message: &'m str,
}

impl LogLine<'_> {
    fn format(&self, format: u8, time: &str) -> String {
        let pid = self.pid;
        let (sign, level) = sign_and_name(self.level);
        let (letter, role) = if self.is_replica { ('S', "replica") } else { ('M', "primary") };
        if format == LogFormat::Logfmt as u8 {
            // As Valkey does: what would end the value is replaced, not escaped.
            let message = self.message.replace('"', "'").replace(['\r', '\n'], " ");
            format!(
                "pid={pid} role={role} timestamp=\"{time}\" level={level} message=\"{message}\"\n"
            )
        } else if format == LogFormat::Json as u8 {
            let message = json::escaped(self.message);
            format!(
                "{{\"pid\":{pid},\"role\":\"{role}\",\"timestamp\":\"{time}\",\"level\":\"{level}\",\
                 \"message\":\"{message}\"}}\n"
            )
        } else {
            format!("{pid}:{letter} {time} {sign} {}\n", on_one_line(self.message))
        }
    }
}

const fn sign_and_name(level: Level) -> (char, &'static str) {
    match level {
        Level::Error | Level::Warn => ('#', "warning"),
        Level::Info => ('*', "notice"),
        Level::Debug => ('-', "verbose"),
        Level::Trace => ('.', "debug"),
    }
}

/// A message without what would begin another line or command the terminal that shows it: scripts
/// and files can bring in any text.
fn on_one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if character.is_control() && character != '\t' {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

fn timestamp(format: u8, now: SystemTime) -> String {
    let millis = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    if format == LogTimestampFormat::Milliseconds as u8 {
        return millis.to_string();
    }
    let LocalTime { year, month, day, hour, minute, second, offset_s } = LocalTime::at(now);
    let milli = millis % 1000;
    if format == LogTimestampFormat::Iso8601 as u8 {
        let sign = if offset_s < 0 { '-' } else { '+' };
        let (offset_h, offset_m) = (offset_s.abs() / 3600, offset_s.abs() / 60 % 60);
        let month = month + 1;
        return format!(
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}\
             {sign}{offset_h:02}:{offset_m:02}"
        );
    }
    let month = MONTHS[month];
    format!("{day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02}.{milli:03}")
}

/// A moment in the machine's time zone.
#[derive(Debug, PartialEq, Eq)]
struct LocalTime {
    year: i64,
    /// From 0.
    month: usize,
    day: i32,
    hour: i32,
    minute: i32,
    second: i32,
    /// Seconds east of Greenwich.
    offset_s: i64,
}

impl LocalTime {
    fn at(now: SystemTime) -> Self {
        let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let seconds = seconds as libc::time_t;
        // SAFETY: `tm` is plain numbers and a pointer, for which all bits zero are a value.
        let mut parts: libc::tm = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to live variables of the right types. The function reads the
        // environment's TZ, which this process never writes.
        let filled = unsafe { libc::localtime_r(&raw const seconds, &raw mut parts) };
        if filled.is_null() {
            // A year beyond what the library can say.
            return Self {
                year: 1970,
                month: 0,
                day: 1,
                hour: 0,
                minute: 0,
                second: 0,
                offset_s: 0,
            };
        }
        Self {
            year: i64::from(parts.tm_year) + 1900,
            month: parts.tm_mon.clamp(0, 11) as usize,
            day: parts.tm_mday,
            hour: parts.tm_hour,
            minute: parts.tm_min,
            second: parts.tm_sec,
            offset_s: parts.tm_gmtoff,
        }
    }
}

const SYSLOG_SOCKET: &str = "/dev/log";
/// Time between looks whether the log's file was moved away.
const MOVED_CHECK_INTERVAL: Duration = Duration::from_secs(1);
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

#[cfg(test)]
mod tests {
    use super::*;

    fn line(message: &str) -> LogLine<'_> {
        LogLine { pid: 566, is_replica: false, level: Level::Info, message }
    }

    fn temporary(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("bobbin-log-{}-{name}", std::process::id()))
    }

    /// The expected lines are valkey-server 9.1.2's.
    #[test]
    fn the_last_lines_are_remembered() {
        let logger = Logger::new();
        for number in 0..RECENT_MAX + 3 {
            logger.remember(
                Level::Info,
                UNIX_EPOCH + Duration::from_millis(7),
                &number.to_string(),
            );
        }
        logger.remember(Level::Warn, UNIX_EPOCH, &"é".repeat(RECENT_LETTERS_MAX + 1));
        let recent = logger.recent.lock();
        assert_eq!(recent.len(), RECENT_MAX);
        assert_eq!((recent[0].level, recent[0].time_ms), ("warning", 0));
        assert_eq!(recent[0].text, "é".repeat(RECENT_LETTERS_MAX));
        assert_eq!((&*recent[1].text, recent[1].level, recent[1].time_ms), ("34", "notice", 7));
        assert_eq!(recent[RECENT_MAX - 1].text, "4");
    }

    #[test]
    fn writes_valkeys_lines() {
        let time = "21 Nov 2026 09:35:31.753";
        let quoted = line("a \"b\" c\\d");
        assert_eq!(
            line("Server initialized").format(LogFormat::Legacy as u8, time),
            "566:M 21 Nov 2026 09:35:31.753 * Server initialized\n"
        );
        assert_eq!(
            quoted.format(LogFormat::Logfmt as u8, time),
            "pid=566 role=primary timestamp=\"21 Nov 2026 09:35:31.753\" level=notice \
             message=\"a 'b' c\\d\"\n"
        );
        assert_eq!(
            quoted.format(LogFormat::Json as u8, time),
            "{\"pid\":566,\"role\":\"primary\",\"timestamp\":\"21 Nov 2026 09:35:31.753\",\
             \"level\":\"notice\",\"message\":\"a \\\"b\\\" c\\\\d\"}\n"
        );
        let replica = LogLine { is_replica: true, level: Level::Error, ..line("x") };
        assert_eq!(replica.format(LogFormat::Legacy as u8, "T"), "566:S T # x\n");
        let debug = LogLine { level: Level::Trace, ..line("x") };
        assert_eq!(debug.format(LogFormat::Legacy as u8, "T"), "566:M T . x\n");
    }

    #[test]
    fn a_message_is_one_line_without_commands_for_terminals() {
        let message = "a\n1:M 21 Nov 2026 09:35:31.753 * b\r\x1b[2J\u{9b}2J\tc\0";
        let legacy = line(message).format(LogFormat::Legacy as u8, "T");
        let wanted = r"a\n1:M 21 Nov 2026 09:35:31.753 * b\r\u{1b}[2J\u{9b}2J	c\u{0}";
        assert_eq!(legacy, format!("566:M T * {wanted}\n"));
    }

    #[test]
    fn writes_times_in_three_forms() {
        let now = UNIX_EPOCH + Duration::from_millis(1_795_253_733_043);
        assert_eq!(timestamp(LogTimestampFormat::Milliseconds as u8, now), "1795253733043");
        let local = LocalTime::at(now);
        // The zone is the machine's; what is local minus its offset is not.
        let seconds_of_day = i64::from(local.hour * 3600 + local.minute * 60 + local.second);
        assert_eq!((seconds_of_day - local.offset_s).rem_euclid(86400), 9 * 3600 + 35 * 60 + 33);
        let legacy = timestamp(LogTimestampFormat::Legacy as u8, now);
        assert!(legacy.contains(" Nov 2026 ") && legacy.ends_with(":33.043"), "{legacy}");
        let iso = timestamp(LogTimestampFormat::Iso8601 as u8, now);
        assert!(iso.starts_with("2026-11-2") && iso.contains(":33.043"), "{iso}");
        if local.offset_s == 0 {
            assert_eq!(legacy, "21 Nov 2026 09:35:33.043");
            assert_eq!(iso, "2026-11-21T09:35:33.043+00:00");
        }
    }

    #[test]
    fn finds_its_file_again() {
        let (path, moved) = (temporary("file"), temporary("moved"));
        let mut log = LogFile::open(&path).unwrap();
        log.write(b"one\n").unwrap();
        std::fs::rename(&path, &moved).unwrap();
        assert!(log.was_moved());
        log.checked -= MOVED_CHECK_INTERVAL;
        log.write(b"two\n").unwrap();
        assert!(!log.was_moved());
        assert_eq!(std::fs::read(&moved).unwrap(), b"one\n");
        assert_eq!(std::fs::read(&path).unwrap(), b"two\n");
        drop(LogFile::open(&path).map(|mut log| log.write(b"three\n")));
        assert_eq!(std::fs::read(&path).unwrap(), b"two\nthree\n", "appends");
        std::fs::remove_file(path).unwrap();
        std::fs::remove_file(moved).unwrap();
    }

    #[test]
    fn sends_to_the_systems_log_and_survives_its_absence() {
        let path = temporary("syslog");
        let mut syslog = Syslog::new(&path, "bobbin".into(), SyslogFacility::Local3);
        syslog.send(&line("lost"), SystemTime::now());

        let mut buffer = [0; 256];
        for _ in 0..2 {
            let listener = UnixDatagram::bind(&path).unwrap();
            syslog.send(&line("hello"), SystemTime::now());
            let length = listener.recv(&mut buffer).unwrap();
            let text = std::str::from_utf8(&buffer[..length]).unwrap();
            // Facility 19 (local3), severity 5 (notice).
            assert!(text.starts_with("<157>") && text.ends_with(" bobbin[566]: hello"), "{text}");
            drop(listener);
            std::fs::remove_file(&path).unwrap();
        }
    }
}
