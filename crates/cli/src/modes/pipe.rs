//! `--pipe`: the standard input, which is RESP, goes to the server as it is; replies are counted.
//!
//! One thread writes and one reads, so that neither side waits for the other. How one knows that
//! all replies have come: the last command is an ECHO of random bytes, whose reply is the last.

use std::{
    io::{self, Read, Write},
    process::{self, ExitCode},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bobbin_client::{ClientError, RawWriter, RespClient, Value, error_text};

use super::progress::Progress;
use crate::session::{Session, explain};

/// Sends all, and ends with a count. The status is 1 when there were errors.
pub fn run(session: &mut Session) -> ExitCode {
    let timeout = session.options.modes.pipe_timeout;
    let client = session.connect_or_exit();
    let writer = match client.raw_writer() {
        Ok(writer) => writer,
        Err(error) => {
            complain!("Error: {}", error_text(&error));
            return ExitCode::FAILURE;
        }
    };
    let shared =
        Arc::new(Shared { sent: AtomicBool::new(false), progress: Progress::counter("replies") });
    let mark = mark();
    let sender = Arc::clone(&shared);
    // It is not joined: a standard input that never ends must not keep us.
    thread::spawn(move || send(writer, &mark, &sender));
    let counts = receive(client, &mark, &shared, timeout);
    out!("errors: {}, replies: {}\n", counts.errors, counts.replies);
    if counts.errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

struct Shared {
    /// All has been sent.
    sent: AtomicBool,
    /// Whatever is printed must pass it by.
    progress: Progress,
}

#[derive(Default)]
struct Counts {
    errors: u64,
    replies: u64,
}

fn send(mut writer: RawWriter, mark: &[u8; MARK_LEN], shared: &Shared) {
    let mut input = io::stdin().lock();
    let mut buffer = vec![0; BUFFER_LEN];
    loop {
        let len = match input.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => fail("Error reading from stdin", &error),
        };
        if let Err(error) = writer.write_all(&buffer[..len]) {
            fail("Error writing to the server", &error);
        }
    }
    // What was sent may have ended in the middle of a line; an empty line does no harm.
    let mut last = format!("\r\n*2\r\n$4\r\nECHO\r\n${MARK_LEN}\r\n").into_bytes();
    last.extend_from_slice(mark);
    last.extend_from_slice(b"\r\n");
    shared.sent.store(true, Ordering::Release);
    shared.progress.print("All data transferred. Waiting for the last reply...\n");
    if let Err(error) = writer.write_all(&last) {
        fail("Error writing to the server", &error);
    }
}

fn receive(
    client: &mut RespClient,
    mark: &[u8; MARK_LEN],
    shared: &Shared,
    timeout: Option<Duration>,
) -> Counts {
    let mut counts = Counts::default();
    let mut last_reply = Instant::now();
    let progress = &shared.progress;
    if let Err(error) = client.set_read_timeout(Some(POLL)) {
        fail("Error reading replies from server", &error);
    }
    loop {
        match client.receive() {
            Ok(Value::Bulk(text)) if text == mark => {
                progress.finish();
                out!("Last reply received from server.\n");
                return counts;
            }
            Ok(reply) => {
                counts.replies += 1;
                if let Some(text) = reply.as_error() {
                    counts.errors += 1;
                    progress.print_error(&String::from_utf8_lossy(text));
                }
                last_reply = Instant::now();
                progress.set(counts.replies);
            }
            Err(error) if error.is_timeout() => {
                let waits = shared.sent.load(Ordering::Acquire);
                if !waits {
                    last_reply = Instant::now();
                } else if timeout.is_some_and(|timeout| last_reply.elapsed() > timeout) {
                    progress.finish();
                    let seconds = timeout.unwrap_or_default().as_secs();
                    complain!("No replies for {seconds} seconds: exiting.");
                    counts.errors += 1;
                    return counts;
                }
            }
            Err(error) => {
                progress.finish();
                complain!("Error reading replies from server: {}", cause(&error));
                process::exit(1);
            }
        }
    }
}

fn cause(error: &ClientError) -> String {
    explain(error)
}

fn fail(what: &str, error: &io::Error) -> ! {
    complain!("{what}: {}", error_text(error));
    process::exit(1);
}

/// Bytes that no reply will have by chance.
fn mark() -> [u8; MARK_LEN] {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let mut mark = [0; MARK_LEN];
    for (index, part) in mark.chunks_mut(8).enumerate() {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_usize(index);
        part.copy_from_slice(&hasher.finish().to_ne_bytes()[..part.len()]);
    }
    mark
}

const MARK_LEN: usize = 20;
const BUFFER_LEN: usize = 64 * 1024;
/// How often a silent wait looks at the clock.
const POLL: Duration = Duration::from_millis(250);
