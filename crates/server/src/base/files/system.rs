//! The disk, as the system provides it. Tests may put another disk in its place
//! (`simulation/disk.rs`), so code that writes data uses only these functions.

use std::ffi::OsString;
use std::fs::OpenOptions;
pub use std::fs::{File, create_dir, read, remove_file, rename};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// A path of a file that stays right if the working directory changes. The process may not be
/// allowed to search a directory above the working directory; then the path stays relative.
pub fn here(path: &Path) -> PathBuf {
    match std::env::current_dir() {
        Ok(working) if is_same(&working, Path::new(".")) => working.join(path),
        _ => Path::new(".").join(path),
    }
}

/// Whether two paths lead to the same file.
fn is_same(a: &Path, b: &Path) -> bool {
    let place = |path| std::fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    place(a).is_some_and(|file| place(b) == Some(file))
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

/// The names in a directory, sorted.
pub fn names(directory: &Path) -> io::Result<Vec<OsString>> {
    let mut names: Vec<_> = std::fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<io::Result<_>>()?;
    names.sort();
    Ok(names)
}

/// The length of a file in bytes.
pub fn length(file: &File) -> io::Result<u64> {
    file.metadata().map(|metadata| metadata.len())
}

/// Makes changes of names in a directory durable, as far as the file system can: some file systems
/// have no `fsync` of a directory.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    let is_unknown = |error: &io::Error| {
        Errno::from_io_error(error)
            .is_some_and(|errno| errno == Errno::INVAL || errno == Errno::BADF)
    };
    match File::open(path)?.sync_all() {
        Err(error) if is_unknown(&error) => Ok(()),
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_synced_is_as_good_as_it_gets() {
        let proc = Path::new("/proc");
        let error = File::open(proc).unwrap().sync_all().unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::INVAL), "it is such a one");
        sync_directory(proc).unwrap();
        assert!(sync_directory(Path::new("/proc/none")).is_err());
    }
}
