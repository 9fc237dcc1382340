//! Parts of a file, passed from the thread that reads to the threads that make values.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

use bobbin_dump::rdb::{RdbError, RdbItem, RdbReader};

use super::Loaded;

/// A part of the file, and the byte ranges of the keys in it with their databases.
#[derive(Default)]
pub(super) struct FileBlock {
    pub(super) bytes: Vec<u8>,
    pub(super) records: Vec<(u32, Range<usize>)>,
}

impl FileBlock {
    /// Finds the complete items in the block. Returns how many bytes they take.
    pub(super) fn split(
        &mut self,
        reader: &mut RdbReader,
        mut take: impl FnMut(u64, RdbItem<'_>) -> Result<u32, RdbError>,
    ) -> Result<usize, RdbError> {
        let mut at = 0;
        loop {
            let place = reader.offset();
            let Some((item, used)) = reader.next(&self.bytes[at..])? else { return Ok(at) };
            let is_key = matches!(item, RdbItem::Key(_));
            let database = take(place, item)?;
            if is_key {
                self.records.push((database, at..at + used));
            }
            at += used;
        }
    }

    /// Reads up to `room` more bytes. Returns how many it read.
    pub(super) fn fill(&mut self, file: &mut impl Read, room: usize) -> io::Result<usize> {
        let before = self.bytes.len();
        file.take(room as u64).read_to_end(&mut self.bytes)?;
        Ok(self.bytes.len() - before)
    }
}

/// Sends a block to the loading threads. `false`: no thread takes it.
pub(super) fn send(sender: &SyncSender<FileBlock>, block: FileBlock, failed: &AtomicBool) -> bool {
    !failed.load(Ordering::Relaxed) && sender.send(block).is_ok()
}

/// Counts of what all loading threads have loaded.
#[derive(Default)]
pub(super) struct LoadedCounts {
    keys: AtomicU64,
    expiring: AtomicU64,
    expired: AtomicU64,
    empty: AtomicU64,
    all_fields_expired: AtomicU64,
}

impl LoadedCounts {
    pub(super) fn add(&self, loaded: &Loaded) {
        self.keys.fetch_add(loaded.keys, Ordering::Relaxed);
        self.expiring.fetch_add(loaded.expiring, Ordering::Relaxed);
        self.expired.fetch_add(loaded.expired, Ordering::Relaxed);
        self.empty.fetch_add(loaded.empty, Ordering::Relaxed);
        self.all_fields_expired.fetch_add(loaded.all_fields_expired, Ordering::Relaxed);
    }

    pub(super) fn loaded(&self, bytes: u64) -> Loaded {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Loaded {
            keys: value(&self.keys),
            expiring: value(&self.expiring),
            expired: value(&self.expired),
            empty: value(&self.empty),
            all_fields_expired: value(&self.all_fields_expired),
            bytes,
        }
    }
}

/// How many blocks may wait in the queue, and how many buffers are kept for reuse.
pub(super) const BLOCKS_MAX: usize = 4;
