//! The orders that the writer gets, and how it carries them out.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use bobbin_io::error_text;

use super::{AofWriter, CHUNK_BYTES};
use crate::base::files::{self, DATA_MODE};
use crate::persistence::aof::place::LogPlace;
use crate::persistence::aof::{self, AofDirectory};
use crate::persistence::position::StreamPosition;

/// An order. It is carried out once everything up to a record is written.
pub(in crate::persistence::aof) enum WriterOrder {
    /// From the record behind `after` on, append to a new increment in this directory. `place` is
    /// the position of a primary's stream there.
    Rotate {
        after: u64,
        place: LogPlace,
        directory: AofDirectory,
        done: Sender<io::Result<Rotated>>,
    },
    /// Do not write the records behind `after`.
    Stop { after: u64 },
    /// Sync everything up to a record, behind which no more will follow, and report that.
    Settle { number: u64, done: Sender<()> },
    /// Call `then` with the feed's offset behind a record. `begins`: a new reader of the feed
    /// starts there.
    Feed { after: u64, then: Box<dyn FnOnce(u64) + Send>, begins: bool },
}

/// Where the log continues.
pub(in crate::persistence::aof) enum Rotated {
    /// In this increment, which the manifest names.
    Increment(String),
    /// In a temporary file, which becomes an increment once there is a base.
    Temporary,
    /// Nowhere.
    None,
}

impl WriterOrder {
    /// The record behind which the order is carried out.
    pub(super) const fn after(&self) -> u64 {
        match self {
            Self::Rotate { after, .. } | Self::Stop { after } | Self::Feed { after, .. } => *after,
            Self::Settle { number, .. } => *number,
        }
    }

    /// Whether the records behind that one are written elsewhere.
    pub(super) const fn is_boundary(&self) -> bool {
        !matches!(self, Self::Settle { .. } | Self::Feed { begins: false, .. })
    }
}

impl AofWriter {
    pub(super) fn settles(&self) -> bool {
        self.orders.iter().any(|order| matches!(order, WriterOrder::Settle { .. }))
    }

    /// Carries out the first order if its time has come. Returns whether it did.
    pub(super) fn obey(&mut self) -> bool {
        let Some(first) = self.orders.first() else { return false };
        let after = first.after();
        let is_about_feed = matches!(first, WriterOrder::Feed { .. });
        // A rewrite may wait for the disk, unless another order waits behind it: a thread that
        // turns the log off or ends the server waits for that one. The feed needs no disk.
        let may_wait = matches!(first, WriterOrder::Rotate { .. }) && self.orders.len() == 1;
        let gives_up = self.failed && !may_wait && !is_about_feed;
        // Nothing can be written while the disk fails, so merge everything the feed needs. There is
        // little of it, because writes are refused.
        let must_merge = is_about_feed && self.failed;
        while must_merge && self.merge_up_to(after, usize::MAX) {}
        let is_fed = is_about_feed && self.merged >= after;
        if self.written < after && !gives_up && !is_fed {
            return false;
        }
        match self.orders.remove(0) {
            WriterOrder::Rotate { done, .. } if self.written < after => {
                let what = "the disk does not take what comes before";
                drop(done.send(Err(io::Error::other(what))));
            }
            WriterOrder::Rotate { done, place, directory, .. } => {
                let had_gap = self.aof.has_gap();
                self.sync_now();
                let rotated = match self.aof.has_gap() && !had_gap {
                    // A new file might survive although bytes before it were lost.
                    true => Err(io::Error::other("the disk did not keep what comes before")),
                    false => self.rotate(&directory),
                };
                if rotated.is_ok() {
                    self.remark_beginning(place);
                }
                if let Err(error) = &rotated {
                    log::warn!("Can't open a new AOF incr file: {}", error_text(error));
                }
                // The thread that rewrites waits for this.
                drop(done.send(rotated));
            }
            WriterOrder::Stop { after } => self.stop(after),
            WriterOrder::Feed { then, begins, .. } => {
                if begins {
                    self.stream.begin_anew();
                }
                then(self.server.feed.end_offset());
            }
            WriterOrder::Settle { number, done } => {
                self.remark_end();
                self.sync_now();
                if self.written < number {
                    self.tell_loss(number);
                }
                // The receiver may be gone: its thread need not wait.
                done.send(()).ok();
            }
        }
        true
    }

    /// Continues in a new increment. On an error the old one stays.
    fn rotate(&mut self, directory: &AofDirectory) -> io::Result<Rotated> {
        let aof = self.aof;
        directory.create()?;
        // An increment behind a gap would hold changes made after the lost ones. It becomes part of
        // the log once a base covers the gap.
        let rotated = if aof.needs_base() {
            let path = directory.temporary_increment();
            let file = files::create_anew(&path, DATA_MODE)?;
            log::info!(
                "Creating AOF incr file temp-{}.incr on background rewrite",
                directory.prefix()
            );
            self.file = Some(Arc::new(file));
            Rotated::Temporary
        } else {
            let mut manifest = aof.manifest.lock();
            let mut new = manifest.clone();
            let name = new.add_increment(directory.prefix());
            log::info!("Creating AOF incr file {name} on background rewrite");
            // As in `rewrite::publish`: the manifest may be on disk although this fails.
            manifest.pass_over(&new);
            let opened = directory.open(&name, true);
            let file = match opened.and_then(|file| directory.persist(&new).map(|()| file)) {
                Ok(file) => file,
                Err(error) => {
                    directory.give_up(&new, &mut manifest);
                    return Err(error);
                }
            };
            *manifest = new;
            self.file = Some(Arc::new(file));
            Rotated::Increment(name)
        };
        aof.figures.increment_size.store(0, Ordering::Relaxed);
        self.stream.begin_anew();
        Ok(rotated)
    }

    /// Writes the stream's position at the start of a new increment. `relayed` is the position of a
    /// primary's stream, if there is one.
    fn remark_beginning(&mut self, relayed: LogPlace) {
        let feed = &self.server.feed;
        let place = match relayed {
            // There is no base yet that covers the gap.
            _ if self.has_gap => LogPlace::Unknown,
            LogPlace::Unknown if feed.takes_log() && self.merged >= feed.log_from() => {
                LogPlace::Counts(feed.id(), feed.end_offset())
            }
            place => place,
        };
        if place != LogPlace::Unknown || self.place != LogPlace::Unknown {
            place.append(&mut self.pending);
            self.place = place;
            self.write();
        }
    }

    /// Writes the stream's position at the end of the log, if the records alone do not give it.
    /// Does nothing if the file is incomplete.
    fn remark_end(&mut self) {
        let feed = &self.server.feed;
        let is_ours = feed.takes_log() && self.merged >= feed.log_from();
        if !is_ours || self.has_gap || self.file.is_none() || !self.pending.is_empty() {
            return;
        }
        let (id, offset, database) = (feed.id(), feed.end_offset(), self.stream.database());
        let place = LogPlace::Exactly(StreamPosition { id, offset, database });
        if self.place != place {
            place.append(&mut self.pending);
            self.place = place;
            self.write();
        }
    }

    /// Says how much of what clients were told of goes with the process.
    fn tell_loss(&mut self, last: u64) {
        while self.merge_up_to(last, usize::MAX) {}
        let bytes = self.pending.len();
        log::error!(
            "The disk did not take the last {bytes} bytes of the AOF: their changes are lost"
        );
    }

    /// Ends the log behind a record.
    fn stop(&mut self, after: u64) {
        self.sync_now();
        self.file = None;
        self.pending = Vec::new();
        self.noted = 0;
        self.failed = false;
        self.has_gap = false;
        let aof = self.aof;
        aof.mended_gaps.store(aof.gaps.load(Ordering::SeqCst), Ordering::SeqCst);
        aof::note_log_outcome(self.server, &Ok(()));
        while self.merge_up_to(after, CHUNK_BYTES) {}
        self.written = self.merged;
        self.now_durable(self.written);
    }
}
