//! The disk as the system has it: where data goes, and comes from. Tests may have another disk in
//! its place (`simulation/disk.rs`), so code that writes data asks for nothing else.

use std::fs::OpenOptions;
pub use std::fs::{File, create_dir, read, remove_file, rename};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// The path by which a file is found also when another directory is the working one. Where that
/// cannot be, it is found in the one that is the working one then: below a directory that the
/// process may not search, it alone is within reach.
pub fn here(path: &Path) -> PathBuf {
    match std::env::current_dir() {
        Ok(working) if is_same(&working, Path::new(".")) => working.join(path),
        _ => Path::new(".").join(path),
    }
}

/// Whether two paths lead to one file.
fn is_same(a: &Path, b: &Path) -> bool {
    let place = |path| std::fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    place(a).is_some_and(|file| place(b) == Some(file))
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

/// Makes lasting what happened to names in a directory. Some file systems know no such thing, as
/// they see to it themselves or not at all.
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
