//! The power goes: what a server's folder may hold then.
//!
//! A server that is killed loses nothing that it gave to the kernel, so a kill does not tell
//! whether anything was forced to disk. Here a server runs under `strace`, which writes down its
//! system calls ([`trace`]); a model of a disk ([`disk`]) says for any moment what may be left of
//! the folder; and the replies that the server had sent by then say what it had promised
//! ([`replies`]).

pub mod disk;
pub mod trace;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use self::disk::{Before, DiskTrace, FileTree};
use self::trace::SystemCall;
use crate::ReplyFrame;

/// What a server did until it was killed.
#[derive(Debug)]
pub struct PowerRecording {
    pub calls: Vec<SystemCall>,
    pub disk: DiskTrace,
    folder: PathBuf,
    before: Before,
    /// For each client that introduced itself, the lines at which its replies began to be sent.
    pub replies: HashMap<String, Vec<usize>>,
}

impl PowerRecording {
    /// Reads what was written down of a process that has ended. `before`: what its folder held.
    pub fn read(file: &Path, process: u32, folder: &Path, before: &Before) -> Result<Self, String> {
        let calls = trace::read(file, process)?;
        let disk = DiskTrace::new(folder, before, &calls)?;
        let replies = replies(&calls)?;
        let (folder, before) = (folder.to_owned(), before.clone());
        Ok(Self { calls, disk, folder, before, replies })
    }

    /// As if things had never been forced to disk: those that are meant by their paths within the
    /// folder.
    pub fn without_syncs(&mut self, is_meant: impl Fn(&str) -> bool) -> Result<(), String> {
        let is_sync = |call: &SystemCall| matches!(call.name.as_str(), "fsync" | "fdatasync");
        self.calls.retain(|call| {
            let path =
                call.stands_for.as_deref().and_then(|path| path.strip_prefix(&self.folder).ok());
            !path.is_some_and(|path| is_sync(call) && is_meant(&path.to_string_lossy()))
        });
        self.disk = DiskTrace::new(&self.folder, &self.before, &self.calls)?;
        Ok(())
    }
}

/// When each client was sent its replies. A client introduces itself by what its first command has
/// echoed, [`INTRODUCTION`] and a name; those that do not are left out.
pub fn replies(calls: &[SystemCall]) -> Result<HashMap<String, Vec<usize>>, String> {
    let mut sockets: HashMap<&Path, Socket> = HashMap::new();
    let sends = ["sendto", "sendmsg", "write", "writev"];
    for call in calls.iter().filter(|call| sends.contains(&call.name.as_str())) {
        let Some(path) = call.stands_for.as_deref() else { continue };
        if path.to_string_lossy().starts_with("socket:") {
            let socket = sockets.entry(path).or_default();
            socket.bytes.extend(call.bytes());
            socket.take_replies(call.began)?;
        }
    }
    let named = sockets.into_values().filter_map(|socket| Some((socket.name?, socket.lines)));
    Ok(named.collect())
}

/// What was sent to one client.
#[derive(Default)]
struct Socket {
    bytes: Vec<u8>,
    name: Option<String>,
    lines: Vec<usize>,
    is_stranger: bool,
}

impl Socket {
    fn take_replies(&mut self, line: usize) -> Result<(), String> {
        while !self.is_stranger
            && let Some((reply, length)) =
                ReplyFrame::parse(&self.bytes).map_err(|e| e.to_string())?
        {
            self.bytes.drain(..length);
            if self.name.is_some() {
                self.lines.push(line);
            } else {
                self.name = reply.text().strip_prefix(INTRODUCTION).map(str::to_owned);
                self.is_stranger = self.name.is_none();
            }
        }
        Ok(())
    }
}

/// Makes a folder hold this and nothing else.
pub fn plant(tree: &FileTree, folder: &Path) -> io::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir(folder)?;
    for (name, bytes) in tree {
        match bytes {
            None => fs::create_dir(folder.join(name))?,
            Some(bytes) => fs::write(folder.join(name), bytes)?,
        }
    }
    Ok(())
}

/// What a client has echoed first, with its name behind.
pub const INTRODUCTION: &str = "this is ";
