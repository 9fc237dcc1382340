//! The position of the replication stream at which a snapshot was taken. A server that loads the
//! snapshot continues the stream from there.
//!
//! A snapshot has a position only if it is exact: the snapshot holds every change in the stream up
//! to the offset, and no other.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::aof;
use crate::engine::command::Data;
use crate::engine::log::history::HistoryId;
use crate::engine::server::Server;

/// A position in a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamPosition {
    pub id: HistoryId,
    /// The offset behind the last byte.
    pub offset: u64,
    /// The database that the stream has selected there.
    pub database: u32,
}

/// The position at a cut.
pub enum CutPosition {
    Known(Option<StreamPosition>),
    /// The log's thread sends the offset once the stream has everything up to the cut.
    Awaited(HistoryId, Receiver<u64>),
}

impl CutPosition {
    /// There is none.
    pub const NONE: Self = Self::Known(None);

    /// The position at this moment. There is none if the current unit of `data`, which holds the
    /// gate, has made changes that are not in the log yet.
    pub fn of(server: &'static Server, data: &Data) -> Self {
        let feed = &server.feed;
        if !feed.is_on() || data.has_effects() {
            return Self::NONE;
        }
        let id = feed.id();
        if !feed.takes_log() {
            // The stream is a primary's: it holds exactly what was executed.
            let (offset, database) = (feed.end_offset(), feed.relayed_database());
            return Self::Known(Some(StreamPosition { id, offset, database }));
        }
        let (tell, offset) = channel();
        // The log's next record selects its database again, so 0 is right as the database. Sending
        // fails only if nobody waits for the offset any more.
        let told = aof::splice_feed(server, move |offset| {
            tell.send(offset).ok();
        });
        match told {
            Ok(()) => Self::Awaited(id, offset),
            Err(error) => {
                log::warn!("A snapshot will not say where the stream was: {error}");
                Self::NONE
            }
        }
    }

    /// Waits for the position. `None`: there is none, or the log's thread waits for a disk.
    pub fn wait(self) -> Option<StreamPosition> {
        match self {
            Self::Known(position) => position,
            Self::Awaited(id, offset) => {
                #[cfg(test)]
                crate::simulation::waits::begin();
                let offset = offset.recv_timeout(PATIENCE).ok()?;
                Some(StreamPosition { id, offset, database: 0 })
            }
        }
    }
}

/// How long to wait for the log's thread.
const PATIENCE: Duration = Duration::from_secs(5);
