//! The disk as the system has it: where data goes, and comes from. Tests may have another disk in
//! its place (`simulation/disk.rs`), so code that writes data asks for nothing else.

use std::fs::OpenOptions;
pub use std::fs::{File, create_dir, read, remove_file, rename};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// The path by which a file is found also when another directory is the working one.
pub fn here(path: &Path) -> PathBuf {
    // An error: there is no working directory any more, and so nothing to be found either way.
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Creates a file for appending; there is none of that name, and no link.
pub fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create_new(true).mode(mode);
    options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path)
}

/// Whether what has a name is a regular file or a link; `None`: nothing has it.
pub fn is_plain(path: &Path) -> io::Result<Option<bool>> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata.is_file() || metadata.is_symlink())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a file for appending, and makes it if there is none.
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

/// The bytes of a file.
pub fn length(file: &File) -> io::Result<u64> {
    file.metadata().map(|metadata| metadata.len())
}

/// Makes lasting what happened to names in a directory.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
