//! Where the stream of replication was when a snapshot was taken, so that a server that loads it
//! can go on with the stream from there.
//!
//! A snapshot says it only if that is exactly known: all that is in the stream up to the offset,
//! and nothing else, is in the snapshot.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::aof;
use crate::engine::log::history::HistoryId;
use crate::engine::server::Server;

/// A place in a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamPosition {
    pub id: HistoryId,
    /// The offset behind the last byte.
    pub offset: u64,
    /// The database that the stream is about there.
    pub database: u32,
}

/// The place at a cut.
pub enum CutPosition {
    Known(Option<StreamPosition>),
    /// The log's thread tells the offset once the stream has all up to the cut.
    Awaited(HistoryId, Receiver<u64>),
}

impl CutPosition {
    /// Of this moment. The gate is held.
    pub fn of(server: &'static Server) -> Self {
        let feed = &server.feed;
        if !feed.is_on() {
            return Self::Known(None);
        }
        let id = feed.id();
        if !feed.takes_log() {
            // All that is carried out is in the stream, and nothing else.
            let (offset, database) = (feed.end_offset(), feed.relayed_database());
            return Self::Known(Some(StreamPosition { id, offset, database }));
        }
        let (tell, offset) = channel();
        // What follows in the stream says which database it is about. It is no matter if the
        // receiver is gone.
        let told = aof::splice_feed(server, move |offset| {
            tell.send(offset).ok();
        });
        match told {
            Ok(()) => Self::Awaited(id, offset),
            Err(error) => {
                log::warn!("A snapshot will not say where the stream was: {error}");
                Self::Known(None)
            }
        }
    }

    /// The place, once it is known; `None`: there is none, or the log's thread waits for a disk.
    pub fn wait(self) -> Option<StreamPosition> {
        match self {
            Self::Known(position) => position,
            Self::Awaited(id, offset) => {
                let offset = offset.recv_timeout(PATIENCE).ok()?;
                Some(StreamPosition { id, offset, database: 0 })
            }
        }
    }
}

/// How long the log's thread is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
