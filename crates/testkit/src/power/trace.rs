//! The system calls of a server, as `strace` wrote them down: what each was told, when it began and
//! when it was over.
//!
//! A call is one line, or two when another thread's came between:
//!
//! ```text
//! 71 fsync(9<\x2f\x61> <unfinished ...>
//! 72 write(5<\x2f\x62>, "\x2a\x31", 2) = 2
//! 71 <... fsync resumed>) = 0
//! ```
//! The tracer notes the end of a call before the thread goes on. So if one call made another
//! possible, by whatever way, its end comes before the other's beginning: times are numbers of
//! lines. Only of calls in which their threads were killed the result may be anything.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A call that succeeded, or that never came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemCall {
    pub name: String,
    /// The line on which it began.
    pub began: usize,
    /// The line on which it was over; `usize::MAX` when it never was.
    pub ended: usize,
    /// Its arguments, without the quoted ones' contents and without what descriptors stand for.
    pub words: Vec<String>,
    /// Quoted arguments, those within structures too.
    pub strings: Vec<Vec<u8>>,
    /// What the descriptor that comes first among the arguments stands for.
    pub stands_for: Option<PathBuf>,
    /// What it returned; 0 when it never did.
    pub result: i64,
}

impl SystemCall {
    pub const fn returned(&self) -> bool {
        self.ended != usize::MAX
    }

    /// The descriptor that comes first among the arguments.
    pub fn descriptor(&self) -> Option<i64> {
        self.words.first()?.parse().ok()
    }

    /// The bytes that it was given to write or to send, as far as it did.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.strings.concat();
        if self.returned() {
            bytes.truncate(usize::try_from(self.result).unwrap_or(0));
        }
        bytes
    }

    /// A path among the arguments. Those that are relative are so to `current`.
    pub fn path(&self, index: usize, current: &Path) -> PathBuf {
        let bytes = self.strings.get(index).map_or(&[][..], Vec::as_slice);
        current.join(OsStr::from_bytes(bytes))
    }
}

/// A program that runs another one, whose words come behind, as its own process, and writes down in
/// `file` what it does.
pub fn tracer(file: &Path) -> Command {
    let mut command = Command::new("strace");
    command.args(["-D", "-f", "-y", "-xx", "--seccomp-bpf", "-s", STRING_MAX]);
    command.args(["-e", &format!("trace={}", CALLS.join(","))]).arg("-o").arg(file);
    command
}

/// A program that runs another one, whose words come behind, as its own process, and has a system
/// call fail or take long: `fault` as strace's `inject` wants it, `fdatasync:error=EIO:when=1` say.
pub fn meddler(fault: &str) -> Command {
    let call = fault.split(':').next().unwrap_or_default();
    let mut command = Command::new("strace");
    command.args(["-D", "-f", "--seccomp-bpf", "-e", &format!("trace={call}")]);
    command.args(["-e", &format!("inject={fault}"), "-o", "/dev/null"]);
    command
}

/// Waits until all of a process that has ended is written down, and reads it.
pub fn read(file: &Path, process: u32) -> Result<Vec<SystemCall>, String> {
    let deadline = Instant::now() + END_LIMIT;
    let process = process.to_string();
    loop {
        let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
        let last = text.lines().next_back().unwrap_or_default();
        let words: Vec<_> = last.split_whitespace().take(3).collect();
        let is_over = matches!(words[..], [id, "+++", "exited" | "killed"] if id == process);
        if is_over && text.ends_with('\n') {
            return parse(&text);
        }
        if Instant::now() > deadline {
            return Err(format!("strace has not written the end of {process}, but {last}"));
        }
        std::thread::sleep(POLL);
    }
}

/// The calls of a trace, by when they were over.
pub fn parse(text: &str) -> Result<Vec<SystemCall>, String> {
    let (mut calls, mut unfinished) = (Vec::new(), HashMap::new());
    for (number, line) in text.lines().enumerate() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if rest.starts_with("+++") || rest.starts_with("---") {
            continue;
        }
        if let Some(begin) = rest.strip_suffix(" <unfinished ...>") {
            unfinished.insert(thread, (number, begin));
            continue;
        }
        let resumed = rest.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>"));
        let (began, text) = match resumed {
            None => (number, rest.to_owned()),
            Some((_, end)) => {
                let (began, begin) = unfinished
                    .remove(thread)
                    .ok_or_else(|| format!("line {number} ends what did not begin"))?;
                (began, format!("{begin}{end}"))
            }
        };
        let (call, result) = text
            .rsplit_once(" = ")
            .ok_or_else(|| format!("line {number} has no end: {line:.80}"))?;
        let result = result.split(['<', ' ']).next().and_then(|word| word.parse::<i64>().ok());
        let (result, ended) = match result {
            Some(..0) => continue,
            Some(result) => (result, number),
            // Its thread ended in it.
            None => (0, usize::MAX),
        };
        calls.push(parse_call(call.trim_end(), began, ended, result)?);
    }
    for (began, begin) in unfinished.into_values() {
        calls.push(parse_call(begin, began, usize::MAX, 0)?);
    }
    calls.sort_by_key(|call| (call.ended, call.began));
    Ok(calls)
}

fn parse_call(text: &str, began: usize, ended: usize, result: i64) -> Result<SystemCall, String> {
    let (name, arguments) =
        text.split_once('(').ok_or_else(|| format!("line {began} is no call: {text:.80}"))?;
    let arguments = arguments.strip_suffix(')').unwrap_or(arguments);
    let (mut plain, mut strings, mut stands_for) = (String::new(), Vec::new(), None);
    let mut rest = arguments;
    while let Some(at) = rest.find(['"', '<']) {
        let end = if rest.as_bytes()[at] == b'"' { '"' } else { '>' };
        plain.push_str(&rest[..at]);
        let inner = &rest[at + 1..];
        let (inner, behind) = inner
            .split_once(end)
            .ok_or_else(|| format!("line {began}: {end} is missing: {text:.80}"))?;
        let bytes = unescape(inner).ok_or_else(|| format!("line {began}: {inner:.80}"))?;
        if end == '>' {
            stands_for.get_or_insert_with(|| PathBuf::from(OsStr::from_bytes(&bytes)));
        } else if behind.starts_with("...") {
            return Err(format!("line {began} is cut off"));
        } else {
            strings.push(bytes);
        }
        rest = behind;
    }
    plain.push_str(rest);
    let words = plain.split(", ").map(str::to_owned).collect();
    Ok(SystemCall { name: name.to_owned(), began, ended, words, strings, stands_for, result })
}

/// The bytes of `\x2a\x31`; signs that are not escaped stand for themselves.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4);
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        if first == b'\\' {
            let digits = behind.strip_prefix(b"x")?.first_chunk::<2>()?;
            let digit = |byte: u8| char::from(byte).to_digit(16);
            bytes.push((digit(digits[0])? * 16 + digit(digits[1])?) as u8);
            rest = &behind[3..];
        } else {
            bytes.push(first);
            rest = behind;
        }
    }
    Some(bytes)
}

/// What concerns files, and what may tell a client of it.
const CALLS: &[&str] = &[
    "chdir",
    "openat",
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "ftruncate",
    "truncate",
    "fallocate",
    "rename",
    "renameat",
    "renameat2",
    "link",
    "linkat",
    "unlink",
    "unlinkat",
    "mkdir",
    "mkdirat",
    "rmdir",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "sendto",
    "sendmsg",
];
/// More than any call is given at once.
const STRING_MAX: &str = "16777216";
const END_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_overlap() {
        let text = "71 fsync(9<\\x2f\\x61> <unfinished ...>\n\
                    72 write(5<\\x2f\\x62>, \"\\x2a\\x31\\x32\", 3) = 2\n\
                    71 <... fsync resumed>)              = 0\n\
                    71 unlink(\"\\x61\") = -1 ENOENT (No such file or directory)\n\
                    72 sendmsg(7<\\x73>, {msg_name=NULL, msg_iov=[{iov_base=\"\\x61\", iov_len=1}, {iov_base=\"\\x62\", \
                    iov_len=1}], msg_iovlen=2}, 0) = 2\n\
                    72 rename(\"\\x61\", \"\\x62\" <unfinished ...>\n\
                    71 +++ killed by SIGKILL +++\n";
        let calls = parse(text).unwrap();
        let names: Vec<_> = calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(names, ["write", "fsync", "sendmsg", "rename"]);
        assert_eq!((calls[0].began, calls[0].ended), (1, 1));
        assert_eq!((calls[0].descriptor(), calls[0].bytes()), (Some(5), b"*1".to_vec()));
        assert_eq!((calls[1].began, calls[1].ended), (0, 2));
        assert_eq!(calls[1].stands_for.as_deref(), Some(Path::new("/a")));
        assert_eq!(calls[2].bytes(), b"ab");
        assert_eq!(calls[3].ended, usize::MAX);
        assert_eq!(calls[3].path(1, Path::new("/x")), Path::new("/x/b"));
    }

    #[test]
    fn faults_are_told() {
        for text in ["71 write(1", "71 <... write resumed>) = 1", "71 write(1, \"\\x2\", 1) = 1"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("71 write(1, \"\\x61\"..., 100) = 100").unwrap_err().contains("cut off"));
    }
}
