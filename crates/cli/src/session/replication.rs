//! SYNC, seen from a replica: a line that says how long the RDB file is, and the file.
//!
//! The line is `$<length>`, or `$EOF:<forty bytes>` for a file that ends with these bytes. PSYNC
//! puts `+FULLRESYNC` or `+CONTINUE` before it. Empty lines before it keep the connection alive.
//! From Redis's replication protocol.

use bobbin_client::{ClientError, RespClient};

use super::explain;

/// What follows.
#[derive(Debug, PartialEq, Eq)]
pub enum SyncPayload {
    /// A file of this many bytes.
    Length(u64),
    /// A file that ends before these bytes.
    Mark([u8; MARK_LEN]),
    /// Commands: a PSYNC that goes on where it was.
    Nothing,
}

/// Asks for something with REPLCONF. An old server may refuse; that is said, and the answer.
pub fn configure(client: &mut RespClient, name: &str, value: &str) -> bool {
    match client.command(&["REPLCONF", name, value]) {
        Ok(reply) => match reply.as_error() {
            Some(text) => {
                complain!("REPLCONF {name} error: {}", String::from_utf8_lossy(text));
                false
            }
            None => true,
        },
        Err(error) => fail("Error talking to the primary", &error),
    }
}

/// Reads what the primary answers to SYNC or PSYNC, which has been queued.
pub fn begin(client: &mut RespClient) -> SyncPayload {
    let mut line = read_line(client);
    if line.starts_with(b"+FULLRESYNC") || line.starts_with(b"+CONTINUE") {
        complain!("PSYNC replied {}", String::from_utf8_lossy(&line));
        if line.starts_with(b"+CONTINUE") {
            return SyncPayload::Nothing;
        }
        line = read_line(client);
    }
    if let Some(text) = line.strip_prefix(b"-") {
        complain!("SYNC with primary failed: {}", String::from_utf8_lossy(text));
        std::process::exit(1);
    }
    read_payload(&line).unwrap_or_else(|| {
        complain!("The primary answered no RDB file: {}", line.escape_ascii());
        std::process::exit(1);
    })
}

/// Hands the bytes of the file to `take`, in pieces, and gives their number.
pub fn receive(client: &mut RespClient, payload: &SyncPayload, mut take: impl FnMut(&[u8])) -> u64 {
    match payload {
        SyncPayload::Nothing => 0,
        SyncPayload::Length(len) => {
            let mut left = *len;
            while left > 0 {
                let bytes = read(client, usize::try_from(left).unwrap_or(usize::MAX));
                left -= bytes.len() as u64;
                take(&bytes);
            }
            *len
        }
        SyncPayload::Mark(mark) => receive_to(client, mark, take),
    }
}

/// The mark ends a piece: the primary sends nothing behind it before we answer.
fn receive_to(client: &mut RespClient, mark: &[u8; MARK_LEN], mut take: impl FnMut(&[u8])) -> u64 {
    let mut total = 0;
    let mut held = Vec::new();
    loop {
        held.extend(read(client, READ_LEN_MAX));
        if let Some(file) = held.strip_suffix(mark) {
            take(file);
            return total + file.len() as u64;
        }
        let sure = held.len().saturating_sub(MARK_LEN);
        take(&held[..sure]);
        total += sure as u64;
        held.drain(..sure);
    }
}

fn read_payload(line: &[u8]) -> Option<SyncPayload> {
    let text = line.strip_prefix(b"$")?;
    if let Some(mark) = text.strip_prefix(b"EOF:") {
        return Some(SyncPayload::Mark(mark.get(..MARK_LEN)?.try_into().ok()?));
    }
    std::str::from_utf8(text).ok()?.parse().ok().map(SyncPayload::Length)
}

/// The next line that is not empty.
fn read_line(client: &mut RespClient) -> Vec<u8> {
    let mut line = Vec::new();
    loop {
        match read(client, 1).as_slice() {
            b"\n" if line.is_empty() => {}
            b"\n" => {
                line.pop_if(|byte| *byte == b'\r');
                return line;
            }
            byte => line.extend_from_slice(byte),
        }
        if line.len() > LINE_LEN_MAX {
            complain!("The primary answered an endless line.");
            std::process::exit(1);
        }
    }
}

fn read(client: &mut RespClient, len_max: usize) -> Vec<u8> {
    match client.receive_bytes(len_max.min(READ_LEN_MAX)) {
        Ok(bytes) if bytes.is_empty() => {
            fail("Error reading from the primary", &ClientError::Closed)
        }
        Ok(bytes) => bytes,
        Err(error) => fail("Error reading from the primary", &error),
    }
}

pub fn fail(what: &str, error: &ClientError) -> ! {
    complain!("{what}: {}", explain(error));
    std::process::exit(1);
}

pub const MARK_LEN: usize = 40;
const READ_LEN_MAX: usize = 64 * 1024;
const LINE_LEN_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads() {
        assert_eq!(read_payload(b"$12"), Some(SyncPayload::Length(12)));
        let mark = [b'a'; MARK_LEN];
        assert_eq!(read_payload(&[&b"$EOF:"[..], &mark].concat()), Some(SyncPayload::Mark(mark)));
        assert_eq!(read_payload(b"$EOF:short"), None);
        assert_eq!(read_payload(b"+OK"), None);
    }
}
