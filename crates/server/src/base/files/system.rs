//! The disk, as the system provides it. Tests may put another disk in its place
//! (`simulation/disk.rs`), so code that writes data uses only these functions.

use std::fs::OpenOptions;
pub use std::fs::{File, create_dir, read, remove_file, rename};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// The absolute path of a file, which stays right if the working directory changes.
pub fn here(path: &Path) -> PathBuf {
    // It fails if the working directory no longer exists; then the file cannot be found either way.
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Creates a file for appending. Fails if there is a file or link of that name.
pub fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create_new(true).mode(mode);
    options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path)
}

/// Whether a name belongs to a regular file or a link; `None` if nothing has the name.
pub fn is_plain(path: &Path) -> io::Result<Option<bool>> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata.is_file() || metadata.is_symlink())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a file for appending, and creates it if there is none.
pub fn append_to(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(mode).open(path)
}

/// Truncates a file to `len` bytes and forces the change to disk.
pub fn truncate(path: &Path, len: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(len)?;
    file.sync_all()
}

pub fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// The length of a file in bytes.
pub fn length(file: &File) -> io::Result<u64> {
    file.metadata().map(|metadata| metadata.len())
}

/// Makes changes of names in a directory durable.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
