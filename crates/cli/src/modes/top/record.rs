//! `bobbin-cli record FILE`: what `top` asks, kept in a file that `top --replay` shows.

use std::{
    fs::{File, OpenOptions},
    io::{ErrorKind, Write},
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::Path,
    process::ExitCode,
    sync::mpsc::RecvTimeoutError,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bobbin_client::error_text;

use super::{
    INTERVAL,
    recording::{RecordingHeader, lost_line, sample_line},
    sample::Question,
    sampler::{News, Sampler},
    text,
};
use crate::{interrupt, options::Repeat, session::Session};

/// Whether a command line is meant for this: no server has such a command.
pub fn is_meant(command: &[Vec<u8>]) -> bool {
    command.first().is_some_and(|name| name.eq_ignore_ascii_case(b"record"))
}

/// Records until Ctrl-C, until the file has its limit, or until there are as many looks as `-r`
/// says.
pub fn run(session: &Session, command: &[Vec<u8>]) -> ExitCode {
    match record(session, command) {
        Ok(words) => {
            out!("{words}\n");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            complain!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn record(session: &Session, command: &[Vec<u8>]) -> Result<String, String> {
    let (path, limit) = match command {
        [_, path] => (path, LIMIT),
        [_, path, limit] => {
            let limit = bytes(limit).ok_or("The limit is a size of 1kb or more, such as 500mb.")?;
            (path, limit)
        }
        _ => return Err("record takes a file, and perhaps a limit of its size.".into()),
    };
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    let shown = path.display().to_string();
    let interval = session.options.interval.unwrap_or(INTERVAL);
    let started = Instant::now();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let header = RecordingHeader {
        server: session.address.to_string(),
        started_unix_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
    };
    let hold = interrupt::hold();
    let also = [Question::Clients, Question::HotKeys];
    let sampler = Sampler::start_keeping(session, started, interval, &also);
    let mut recorder = Recorder { file: create(path)?, len: 0, limit, looks: 0 };
    recorder.write(&header.line())?;
    out!("Recording {} into {shown}, every {interval:?}. Ctrl-C ends it.\n", header.server);
    let wanted = match session.options.repeat {
        None | Some(Repeat::Forever) => u64::MAX,
        Some(Repeat::Times(times)) => times,
    };
    let reason = loop {
        if hold.is_pressed() {
            break "";
        }
        if recorder.looks >= wanted {
            break "";
        }
        let line = match sampler.news.recv_timeout(MOMENT) {
            Ok(News::Sample(sample)) => sample_line(&sample),
            // No server was there from the beginning on: that is a mistake of the user.
            Ok(News::Lost(reason)) if recorder.looks == 0 => {
                let _ = std::fs::remove_file(path);
                return Err(reason);
            }
            Ok(News::Lost(reason)) => lost_line(started.elapsed(), &reason),
            Ok(News::Notice(_)) | Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Err("Nobody asks the server.".into()),
        };
        if !recorder.write(&line)? {
            break " The file has its limit.";
        }
        recorder.looks += 1;
    };
    let looks = recorder.looks;
    let time = text::duration(started.elapsed().as_secs());
    let size = text::bytes(recorder.len as f64);
    let noun = if looks == 1 { "look" } else { "looks" };
    Ok(format!("Recorded {looks} {noun} in {time} into {shown}, {size}.{reason}"))
}

/// Only for its owner: slow commands are recorded with their arguments.
fn create(path: &Path) -> Result<File, String> {
    let mut open = OpenOptions::new();
    open.write(true).create_new(true).mode(0o600).open(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            format!("{} exists already; it is not written over.", path.display())
        }
        _ => format!("{}: {}", path.display(), error_text(&error)),
    })
}

struct Recorder {
    file: File,
    len: u64,
    limit: u64,
    looks: u64,
}

impl Recorder {
    /// Writes a line, unless the file would become larger than its limit.
    fn write(&mut self, line: &str) -> Result<bool, String> {
        let len = self.len + line.len() as u64;
        if len > self.limit {
            return Ok(false);
        }
        let written = self.file.write_all(line.as_bytes());
        written.map_err(|error| format!("The recording fails: {}", error_text(&error)))?;
        self.len = len;
        Ok(true)
    }
}

/// `500mb`, as sizes are written in the configuration.
fn bytes(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.to_ascii_lowercase();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "b" => 1,
        "k" | "kb" => 1 << 10,
        "m" | "mb" => 1 << 20,
        "g" | "gb" => 1 << 30,
        _ => return None,
    };
    let limit = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    (limit >= LIMIT_MIN).then_some(limit)
}

/// How soon Ctrl-C is noticed.
const MOMENT: Duration = Duration::from_millis(100);
const LIMIT: u64 = 1 << 30;
const LIMIT_MIN: u64 = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, size) in [
            ("1024", Some(1024)),
            ("5kb", Some(5 << 10)),
            ("5MB", Some(5 << 20)),
            ("2g", Some(2 << 30)),
            ("1023", None),
            ("", None),
            ("mb", None),
            ("5x", None),
            ("-5mb", None),
            ("99999999999999gb", None),
        ] {
            assert_eq!(bytes(text.as_bytes()), size, "{text}");
        }
    }
}
