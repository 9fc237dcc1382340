//! A temporary file without a name, which disappears when it is closed.

use std::io::{self, Read, Write};

use super::save;
use crate::base::files::{self, DATA_MODE, File, disk};

/// Is written from the beginning to the end, and then read in the same order.
pub struct PassingFile {
    writer: File,
    reader: File,
    len: u64,
}

impl PassingFile {
    /// Makes a file in the working directory, where snapshots are written.
    pub fn create() -> io::Result<Self> {
        let path = save::unfinished_path();
        let writer = files::create_anew(&path, DATA_MODE)?;
        let reader = disk::open(&path);
        // Without a name, nothing of the file stays on disk if the process dies.
        disk::remove_file(&path)?;
        Ok(Self { writer, reader: reader?, len: 0 })
    }

    /// How many bytes were written.
    pub fn written(&self) -> u64 {
        self.len
    }
}

impl Write for PassingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.writer.write(bytes)?;
        self.len += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Read for PassingFile {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.reader.read(bytes)
    }
}
