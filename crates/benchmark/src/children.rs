//! Server processes that this program started, and their folders: they end with it, whichever way
//! it ends.

use std::{
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// A process and its folder, which both go when this is dropped.
#[derive(Debug)]
struct OwnServer {
    child: Child,
    folder: PathBuf,
}

static RUNNING: Mutex<Vec<OwnServer>> = Mutex::new(Vec::new());

/// Makes the folder and starts the process, whose number is returned.
pub(crate) fn start(command: &mut Command, folder: &Path) -> io::Result<u32> {
    let mut running = running();
    std::fs::create_dir_all(folder)?;
    // A key of the terminal that interrupts this program ends no server before its time.
    let child = command.process_group(0).spawn().inspect_err(|_| {
        std::fs::remove_dir_all(folder).ok();
    })?;
    let id = child.id();
    running.push(OwnServer { child, folder: folder.to_owned() });
    Ok(id)
}

/// How a process ended, if it did.
pub(crate) fn ended(id: u32) -> Option<ExitStatus> {
    let mut running = running();
    let own = running.iter_mut().find(|own| own.child.id() == id)?;
    own.child.try_wait().ok()?
}

pub(crate) fn end(id: u32) {
    running().retain(|own| own.child.id() != id);
}

/// Ends the program at once, and the servers that it started.
pub(crate) fn exit(status: i32) -> ! {
    // While this is held no other server starts.
    let mut running = running();
    running.clear();
    std::process::exit(status)
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).ok();
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// What is behind the lock is whole at every moment, also after a panic.
fn running() -> MutexGuard<'static, Vec<OwnServer>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}
