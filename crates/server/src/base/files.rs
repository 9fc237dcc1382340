//! Creates files: every file that the server creates, or puts in another file's place, is opened
//! here.
//!
//! A file is created exclusively, and never through a link. Another file or link of that name is
//! unlinked first, so that nothing that somebody has put there is followed or written.

#[cfg_attr(test, allow(dead_code, reason = "see `simulation/disk.rs`"))]
pub mod system;

use std::fs::Metadata;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, Uid};

#[cfg(test)]
pub use crate::simulation::disk;
pub use disk::File;
#[cfg(not(test))]
pub use system as disk;

/// The mode of data files, before the umask: another user may make backups.
pub const DATA_MODE: u32 = 0o644;
/// The mode of files that only the server's user may read.
const PRIVATE_MODE: u32 = 0o600;
/// The bits of a mode that a replacing file takes over.
const KEPT_BITS: u32 = 0o777;
const GROUP_BITS: u32 = 0o070;
const OTHERS_BITS: u32 = 0o007;
/// A growing file is synced each time this many bytes are written.
const STEP_BYTES: usize = 4 << 20;
/// How often a name is freed. More than one attempt is needed only if somebody keeps taking the
/// name.
const ATTEMPTS_MAX: u32 = 8;

/// A new file that is written from its beginning to its end, and may be synced as it grows, so that
/// little is left for the last sync.
pub struct GrowingFile {
    pub file: File,
    /// Its length.
    pub bytes: u64,
    /// Bytes since the last sync. `None`: the file is synced only at the end.
    unsynced: Option<usize>,
}

impl GrowingFile {
    /// `file` is empty. `in_steps`: it is synced as it grows.
    pub fn new(file: File, in_steps: bool) -> Self {
        Self { file, bytes: 0, unsynced: in_steps.then_some(0) }
    }
}

impl Write for GrowingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.bytes += count as u64;
        if let Some(unsynced) = &mut self.unsynced {
            *unsynced += count;
            if *unsynced >= STEP_BYTES {
                *unsynced = 0;
                self.file.sync_data()?;
            }
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Whether a file has passwords or hashes of passwords.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Secrecy {
    Open,
    Secret,
}

/// Creates a file for appending. A regular file or a link of that name is unlinked first. Anything
/// else of that name stays, and is an error.
pub fn create_anew(path: &Path, mode: u32) -> io::Result<File> {
    let mut attempts = 0;
    loop {
        match disk::create_new(path, mode) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && attempts < ATTEMPTS_MAX => {
                attempts += 1;
                unlink_plain(path)?;
            }
            opened => return opened,
        }
    }
}

/// Replaces the file at `path`. Readers see the old file or the new one, even after a crash.
///
/// The new file gets the owner, group and mode of the old one, as far as the process may set them.
/// If there was no file, only the process's user may read the new one. Other users lose their
/// rights to a secret file. A link is replaced by a file; the file that it leads to stays as it is.
pub fn replace(path: &Path, text: &[u8], secrecy: Secrecy) -> io::Result<()> {
    let old = match std::fs::metadata(path) {
        Ok(old) if !old.is_file() => return Err(io::Error::other("it is no regular file")),
        Ok(old) => Some(old),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let mut file = create_anew(&temporary, PRIVATE_MODE)?;
    let written = file
        .write_all(text)
        .and_then(|()| old.as_ref().map_or(Ok(()), |old| hand_on(&file, old, secrecy)))
        .and_then(|()| publish(&file, &temporary, path));
    if written.is_err() {
        // The error of the writing is returned, not one of this removal.
        drop(std::fs::remove_file(&temporary));
    }
    written
}

/// Gives a written file its name, durably.
pub fn publish(file: &File, temporary: &Path, path: &Path) -> io::Result<()> {
    publish_by(file, path, || disk::rename(temporary, path))
}

/// As [`publish`], where `name` gives the file its name, or says why it gets none.
pub fn publish_by(
    file: &File,
    path: &Path,
    name: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    file.sync_all()?;
    name()?;
    sync_directory_of(path)
}

/// Makes changes of names in the directory of `path` durable.
pub fn sync_directory_of(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    disk::sync_directory(directory.unwrap_or_else(|| Path::new(".")))
}

/// Gives `file` the owner and mode of the old file.
fn hand_on(file: &File, old: &Metadata, secrecy: Secrecy) -> io::Result<()> {
    let new = file.metadata()?;
    let mut mode = old.mode() & KEPT_BITS;
    if secrecy == Secrecy::Secret {
        mode &= !OTHERS_BITS;
    }
    // The group comes first: a process that has given the file to another owner may not change it
    // any more.
    if new.gid() != old.gid()
        && rustix::fs::fchown(file, None, Some(Gid::from_raw(old.gid()))).is_err()
    {
        // The rights of the old group are not for another group.
        mode &= !GROUP_BITS;
    }
    file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    if new.uid() != old.uid() {
        // Only root may do this. Otherwise the file belongs to the process's user from now on.
        rustix::fs::fchown(file, Some(Uid::from_raw(old.uid())), None).ok();
    }
    Ok(())
}

/// Unlinks the regular file or link of a name.
fn unlink_plain(path: &Path) -> io::Result<()> {
    match disk::is_plain(path)? {
        None => return Ok(()),
        Some(true) => {}
        Some(false) => return Err(ErrorKind::AlreadyExists.into()),
    }
    match disk::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A new folder for a test.
    fn folder() -> PathBuf {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("bobbin-files-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_replaced_file_keeps_its_mode_but_shows_no_secret() {
        let folder = folder();
        let path = folder.join("a.conf");
        replace(&path, b"new", Secrecy::Open).unwrap();
        assert_eq!(mode(&path), 0o600, "one that there was not");
        for (old, secrecy, new) in [
            (0o600, Secrecy::Open, 0o600),
            (0o640, Secrecy::Secret, 0o640),
            (0o644, Secrecy::Open, 0o644),
            (0o644, Secrecy::Secret, 0o640),
            (0o4777, Secrecy::Secret, 0o770),
        ] {
            set_mode(&path, old);
            replace(&path, b"newer", secrecy).unwrap();
            assert_eq!(mode(&path), new, "of {old:o}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"newer");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing is left over");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_replaced_file_keeps_its_owner_where_that_may_be_given() {
        const SOMEBODY: u32 = 12_345;
        let folder = folder();
        let path = folder.join("a.conf");
        std::fs::write(&path, "old").unwrap();
        set_mode(&path, 0o640);
        let given = std::os::unix::fs::chown(&path, Some(SOMEBODY), Some(SOMEBODY)).is_ok();
        replace(&path, b"new", Secrecy::Secret).unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        if given {
            assert_eq!((metadata.uid(), metadata.gid()), (SOMEBODY, SOMEBODY));
        }
        assert_eq!(metadata.mode() & 0o777, 0o640);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn links_are_replaced_and_not_written_through() {
        let folder = folder();
        let (path, other) = (folder.join("a.conf"), folder.join("other"));
        std::fs::write(&other, "theirs").unwrap();
        let temporary = folder.join(format!("a.conf.{}.tmp", std::process::id()));
        for link in [&path, &temporary] {
            symlink(&other, link).unwrap();
            replace(&path, b"ours", Secrecy::Secret).unwrap();
            assert!(std::fs::symlink_metadata(&path).unwrap().is_file());
            assert_eq!(std::fs::read(&path).unwrap(), b"ours");
            assert_eq!(std::fs::read(&other).unwrap(), b"theirs");
            std::fs::remove_file(&path).unwrap();
        }
        // Following a dangling link would create the file elsewhere.
        symlink(folder.join("elsewhere"), &path).unwrap();
        create_anew(&path, DATA_MODE).unwrap();
        assert!(std::fs::symlink_metadata(&path).unwrap().is_file());
        assert!(!folder.join("elsewhere").exists());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_no_file_is_neither_replaced_nor_unlinked() {
        let folder = folder();
        let socket = folder.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(replace(&socket, b"x", Secrecy::Open).is_err());
        assert!(create_anew(&socket, DATA_MODE).is_err());
        assert!(create_anew(&folder, DATA_MODE).is_err());
        assert!(socket.exists());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
