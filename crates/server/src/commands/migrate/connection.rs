//! Connections to the servers that keys move to. As in Redis, a good connection is kept for ten
//! seconds.
//!
//! The timeout applies to each step of a certain size. So a server that reads or writes a byte now
//! and then makes no progress that counts.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use bobbin_sync::Mutex;

use super::MigrateTarget;
use crate::engine::command::Failure;

/// A connection to a target server.
pub(super) struct TargetConnection {
    reader: BufReader<Timed>,
    writer: BufWriter<Timed>,
    host: String,
    port: u16,
    /// The database that is selected there.
    database: Option<i64>,
    used: Instant,
}

/// Why there is no reply.
pub(super) enum Broken {
    Connecting,
    Writing { timed_out: bool },
    Reading { timed_out: bool },
}

impl Broken {
    /// Whether a new connection may work.
    pub(super) fn may_retry(&self) -> bool {
        matches!(self, Self::Writing { timed_out: false } | Self::Reading { timed_out: false })
    }

    pub(super) fn failure(self) -> Failure {
        Failure::from(match self {
            Self::Connecting => "IOERR error or timeout connecting to the client",
            Self::Writing { .. } => "IOERR error or timeout writing to target instance",
            Self::Reading { .. } => "IOERR error or timeout reading to target instance",
        })
    }

    fn writing(error: io::Error) -> Self {
        Self::Writing { timed_out: is_timeout(&error) }
    }

    fn reading(error: io::Error) -> Self {
        Self::Reading { timed_out: is_timeout(&error) }
    }
}

impl TargetConnection {
    /// Opens a connection, or takes one that was kept.
    pub(super) fn open(target: &MigrateTarget) -> Result<Self, Broken> {
        let mut idle = IDLE.lock();
        close_old(&mut idle);
        let same = |kept: &Self| kept.host == target.host && kept.port == target.port;
        let kept = idle.iter().position(same).map(|at| idle.swap_remove(at));
        drop(idle);
        let mut connection = match kept {
            Some(connection) => connection,
            None => Self::connect(target)?,
        };
        connection.reader.get_mut().timeout = target.timeout;
        connection.writer.get_mut().timeout = target.timeout;
        Ok(connection)
    }

    fn connect(target: &MigrateTarget) -> Result<Self, Broken> {
        let address = (target.host.as_str(), target.port)
            .to_socket_addrs()
            .ok()
            .and_then(|mut addresses| addresses.next())
            .ok_or(Broken::Connecting)?;
        let stream = match TcpStream::connect_timeout(&address, target.timeout) {
            Ok(stream) => stream,
            Err(error) if is_timeout(&error) => return Err(Broken::Connecting),
            // Redis notices this only when it writes.
            Err(error) => return Err(Broken::writing(error)),
        };
        let ready = stream.set_nodelay(true).and_then(|()| stream.try_clone());
        let writer = Timed::new(ready.map_err(Broken::writing)?);
        Ok(Self {
            reader: BufReader::new(Timed::new(stream)),
            writer: BufWriter::with_capacity(STEP, writer),
            host: target.host.clone(),
            port: target.port,
            database: None,
            used: Instant::now(),
        })
    }

    /// Keeps the connection for the next migration to this server.
    pub(super) fn keep(mut self, database: i64) {
        self.database = Some(database);
        self.used = Instant::now();
        let mut idle = IDLE.lock();
        close_old(&mut idle);
        if idle.len() < IDLE_MAX {
            idle.push(self);
        }
    }

    pub(super) fn database(&self) -> Option<i64> {
        self.database
    }

    /// Writes a command.
    pub(super) fn write<'a>(
        &mut self,
        words: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Result<(), Broken> {
        self.writer.get_mut().begin();
        let write = |writer: &mut BufWriter<Timed>| {
            write!(writer, "*{}\r\n", words.clone().count())?;
            for word in words {
                write!(writer, "${}\r\n", word.len())?;
                writer.write_all(word)?;
                writer.write_all(b"\r\n")?;
            }
            Ok(())
        };
        write(&mut self.writer).map_err(Broken::writing)
    }

    pub(super) fn flush(&mut self) -> Result<(), Broken> {
        self.writer.get_mut().begin();
        self.writer.flush().map_err(Broken::writing)
    }

    pub(super) fn read_error(&mut self) -> Result<Option<String>, Broken> {
        self.reader.get_mut().begin();
        read_target_reply(&mut self.reader)
            .map_err(Broken::reading)?
            .ok_or(Broken::Reading { timed_out: false })
    }
}

/// A socket with a deadline for each step. A step transfers at most `STEP` bytes.
struct Timed {
    stream: TcpStream,
    timeout: Duration,
    deadline: Instant,
    /// How many bytes are left of the step.
    left: usize,
}

impl Timed {
    fn new(stream: TcpStream) -> Self {
        Self { stream, timeout: Duration::ZERO, deadline: Instant::now(), left: 0 }
    }

    /// Begins a new step.
    fn begin(&mut self) {
        self.left = 0;
    }

    /// How many of these bytes the step may still transfer, and how much time it has left.
    fn step(&mut self, len: usize) -> io::Result<(usize, Duration)> {
        if self.left == 0 {
            (self.left, self.deadline) = (STEP, Instant::now() + self.timeout);
        }
        match self.deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            time => Ok((len.min(self.left), time)),
        }
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (len, time) = self.step(buffer.len())?;
        self.stream.set_read_timeout(Some(time))?;
        let done = self.stream.read(&mut buffer[..len])?;
        self.left -= done;
        Ok(done)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (len, time) = self.step(bytes.len())?;
        self.stream.set_write_timeout(Some(time))?;
        let done = self.stream.write(&bytes[..len])?;
        self.left -= done;
        Ok(done)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads a reply of one line: the text of an error, or `None`. A line that is neither a status nor
/// a number is no valid reply. An incomplete line is none either.
pub fn read_target_reply(reader: &mut impl BufRead) -> io::Result<Option<Option<String>>> {
    let mut line = Vec::new();
    reader.take(LINE_MAX).read_until(b'\n', &mut line)?;
    if !line.ends_with(b"\n") {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&line);
    Ok(Some(match text.split_at_checked(1) {
        Some(("+" | ":", _)) => None,
        Some(("-", error)) => Some(error.trim_end().to_owned()),
        _ => Some("it is no server of this protocol".to_owned()),
    }))
}

/// How many connections are kept now.
pub fn idle_connections() -> usize {
    let mut idle = IDLE.lock();
    close_old(&mut idle);
    idle.len()
}

fn close_old(idle: &mut Vec<TargetConnection>) {
    idle.retain(|connection| connection.used.elapsed() < IDLE_TIME);
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

static IDLE: Mutex<Vec<TargetConnection>> = Mutex::new(Vec::new());

/// The most connections that are kept.
const IDLE_MAX: usize = 64;
/// How long a connection is kept.
const IDLE_TIME: Duration = Duration::from_secs(10);
/// How many bytes of a command are collected before they are sent. As in Redis, each step of this
/// size has its own timeout.
const STEP: usize = 64 * 1024;
/// The longest reply. Expected are `+OK` and errors.
const LINE_MAX: u64 = 1024;
