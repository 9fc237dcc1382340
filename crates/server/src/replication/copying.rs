//! The thread that makes the bytes of a copy, from a cut that it walks.
//!
//! The bytes go to the replicas directly, or into a file first. A file is needed if the copy's
//! length must be sent first, or if slow replicas would delay the walk and so the clients that
//! write.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bobbin_dump::rdb::Format;

use super::transfer::{CopyForm, OfferOutcome, Transfer};
use crate::base::cores::CoreWork;
use crate::engine::script::Library;
use crate::persistence::Persistence;
use crate::persistence::passing::PassingFile;
use crate::persistence::snapshot::{self, Contents, Purpose};
use crate::persistence::walk::{self, Beside};

/// Starts a thread that will walk the cut.
pub(super) fn beside() -> io::Result<Beside> {
    Beside::start("bobbin-sync", CoreWork::Saving)
}

/// What the copy contains.
pub(super) enum Copied {
    All(Contents),
    Libraries(Vec<Arc<Library>>),
}

/// Receives the bytes of the copy.
struct Sink<'a> {
    transfer: &'a Transfer,
    /// Holds the bytes that are offered to the readers later.
    file: Option<PassingFile>,
}

/// How many bytes are read from the file at once.
const READ_BYTES: usize = 256 * 1024;

impl Transfer {
    /// Makes the copy. `database` is the one that the stream has selected behind the copy, if the
    /// stream does not select one itself.
    pub(super) fn run(self: Arc<Self>, copied: Copied, database: Option<u32>) {
        let copies = &Persistence::of(self.server()).copies;
        copies.fetch_add(1, Ordering::Relaxed);
        let written = self.write(copied, database);
        // Before the replicas hear of the end, so that none of them still sees the copy in
        // progress.
        copies.fetch_sub(1, Ordering::Relaxed);
        let outcome = written.and_then(|file| file.map_or(Ok(()), |file| self.pass_on(file)));
        let readers = self.reader_count();
        let is_sized = *self.form() == CopyForm::Sized;
        // These are Valkey's words.
        match &outcome {
            Ok(()) if is_sized => log::info!("The copy went through a file to {readers} replicas"),
            Ok(()) => log::info!(
                "Diskless rdb transfer, done reading from pipe, {readers} replicas still up"
            ),
            Err(_) if readers == 0 && !is_sized => {
                log::warn!("Diskless rdb transfer, last replica dropped, killing fork child");
            }
            Err(_) if readers == 0 => log::warn!("No replica is left for the copy"),
            Err(error) => log::warn!("SYNC failed. BGSAVE child returned an error: {error}"),
        }
        self.end(outcome.is_ok());
    }

    /// Writes the whole copy. Returns the file if the bytes still have to be passed on.
    fn write(&self, copied: Copied, database: Option<u32>) -> io::Result<Option<PassingFile>> {
        let server = self.server();
        let has_expiring_fields = match &copied {
            Copied::All(contents) => contents.keys.census().has_expiring_fields(),
            Copied::Libraries(_) => false,
        };
        // Obstacles were ruled out before.
        let format =
            self.wish().dialect.format(has_expiring_fields, false).unwrap_or(Format::Shared);
        let purpose = Purpose::Copy { database, format };
        let mut sink = Sink { transfer: self, file: None };
        let mut is_ready = Ok(());
        if *self.form() == CopyForm::Sized {
            is_ready = PassingFile::create().map(|file| sink.file = Some(file));
        }
        match copied {
            Copied::Libraries(libraries) => {
                is_ready?;
                snapshot::write_without_keys(server, &libraries, purpose, &mut sink)?;
            }
            Copied::All(contents) => {
                let (mut walker, keys) = (walk::walker(server), AtomicU64::new(0));
                if is_ready.is_err() {
                    contents.keys.handle().abort();
                }
                self.walks(contents.keys.handle());
                let written =
                    snapshot::write(server, &mut walker, contents, purpose, &keys, &mut sink);
                server.end_cut();
                is_ready.and(written)?;
            }
        }
        if *self.form() == CopyForm::Sized
            && let Some(file) = &sink.file
        {
            self.tell_len(file.written());
        }
        Ok(sink.file)
    }

    /// Offers the bytes of a file to the readers. Nobody else waits for this.
    fn pass_on(&self, mut file: PassingFile) -> io::Result<()> {
        let mut bytes = vec![0; READ_BYTES];
        loop {
            let count = file.read(&mut bytes)?;
            if count == 0 {
                return Ok(());
            }
            match self.offer(&bytes[..count], || false) {
                OfferOutcome::Taken => {}
                OfferOutcome::Refused | OfferOutcome::Useless => return Err(no_reader()),
            }
        }
    }
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.file.is_none() {
            match self.transfer.offer(bytes, || self.transfer.server().keeps_too_much()) {
                OfferOutcome::Taken => return Ok(bytes.len()),
                OfferOutcome::Useless => return Err(no_reader()),
                OfferOutcome::Refused => {
                    log::info!(
                        "Replicas take their copy slowly: the rest of it goes through a file"
                    );
                    self.file = Some(PassingFile::create()?);
                }
            }
        }
        if self.transfer.reader_count() == 0 {
            return Err(no_reader());
        }
        self.file.as_mut().map_or_else(|| Err(no_reader()), |file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn no_reader() -> io::Error {
    io::Error::other("no replica is left")
}
