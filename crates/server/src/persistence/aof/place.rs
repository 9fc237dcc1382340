//! Where the stream of replication is, in the log on disk.
//!
//! The log's records are the bytes that replicas get, but for messages and questions, which are no
//! matter of the disk, and on a replica, which passes its primary's bytes on. So remarks between
//! records say where the stream is. Other servers pass over them.
//!
//! - `#REPL:<id>:<offset>`: so far. The records that follow are the stream's next bytes, up to
//!   another remark: a reader that counts them knows the offset at the end of each.
//! - `#REPL:<id>:<offset>:<database>`: so far, and no record is counted. With one behind it the
//!   offset is not known.
//! - `#REPL:`: the offset is not known.
//!
//! While there is no stream nothing is remarked.

use std::ops::Range;

use crate::engine::log::RecordBytes;
use crate::engine::log::feed::HistoryId;
use crate::engine::server::Server;
use crate::persistence::position::StreamPosition;

/// How a part of a log stands to the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogPlace {
    #[default]
    Unknown,
    /// The next record is the stream's from this offset on.
    Counts(HistoryId, u64),
    /// The stream is here, and the next record is none of it.
    Exactly(StreamPosition),
}

/// What a batch of records was for the file and the stream.
#[derive(Default)]
pub(super) struct Batch(Vec<Stretch>);

/// Records one behind the other.
struct Stretch {
    what: RecordBytes,
    in_file: Range<usize>,
    in_feed: Range<usize>,
}

const MARK: &[u8] = b"#REPL:";

impl LogPlace {
    /// Where a primary's stream is at this moment; `Unknown`: there is none, or it is the log's. The
    /// gate is held.
    pub fn relayed(server: &Server) -> Self {
        let feed = &server.feed;
        if !feed.is_on() || feed.takes_log() {
            return Self::Unknown;
        }
        let (id, offset, database) = (feed.id(), feed.end_offset(), feed.relayed_database());
        Self::Exactly(StreamPosition { id, offset, database })
    }

    /// Reads a remark; `None`: it is about something else.
    pub fn parse(remark: &[u8]) -> Option<Self> {
        let rest = remark.trim_ascii_end().strip_prefix(MARK)?;
        let mut words = rest.split(|&byte| byte == b':');
        let id = words.next().and_then(HistoryId::parse);
        let mut number = || {
            let word = words.next().map(|word| std::str::from_utf8(word).ok()?.parse().ok());
            word.unwrap_or(Some(u64::MAX))
        };
        let place = match (id, number(), number()) {
            (Some(id), Some(offset), Some(u64::MAX)) if offset != u64::MAX => {
                Self::Counts(id, offset)
            }
            (Some(id), Some(offset), Some(database)) if database <= u64::from(u32::MAX) => {
                Self::Exactly(StreamPosition { id, offset, database: database as u32 })
            }
            _ => Self::Unknown,
        };
        Some(place)
    }

    pub fn append(&self, out: &mut Vec<u8>) {
        let text = match self {
            Self::Unknown => String::new(),
            Self::Counts(id, offset) => format!("{id}:{offset}"),
            Self::Exactly(StreamPosition { id, offset, database }) => {
                format!("{id}:{offset}:{database}")
            }
        };
        out.extend_from_slice(MARK);
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(b"\r\n");
    }

    /// A record of so many bytes follows.
    pub const fn advance(&mut self, bytes: u64) {
        *self = match *self {
            Self::Counts(id, offset) => Self::Counts(id, offset + bytes),
            Self::Unknown | Self::Exactly(_) => Self::Unknown,
        };
    }

    /// Where the stream is; `database`: what the records were about last.
    pub const fn position(&self, database: u32) -> Option<StreamPosition> {
        match *self {
            Self::Unknown => None,
            Self::Counts(id, offset) => Some(StreamPosition { id, offset, database }),
            Self::Exactly(position) => Some(position),
        }
    }

    /// Puts the remarks that are needed between the records of a batch, with which `pending` ends.
    /// `fed`: where the stream has the batch. `is_whole`: what the file had before is not lost.
    pub(super) fn remark(
        &mut self,
        pending: &mut Vec<u8>,
        batch: &Batch,
        fed: Option<(HistoryId, u64)>,
        is_whole: bool,
    ) {
        let Some(first) = batch.0.first() else { return };
        if self.holds(batch, fed, is_whole) {
            return;
        }
        let records = pending.split_off(first.in_file.start);
        for stretch in &batch.0 {
            let range = |range: &Range<usize>| {
                range.start - first.in_file.start..range.end - first.in_file.start
            };
            let bytes = &records[range(&stretch.in_file)];
            let here = |at: usize| fed.map(|(id, start)| Self::Counts(id, start + at as u64));
            match (stretch.what, here(stretch.in_feed.start).filter(|_| is_whole)) {
                (RecordBytes::Nothing, _) => {}
                (RecordBytes::Remark, _) if !is_whole => {}
                (RecordBytes::Remark, _) => {
                    pending.extend_from_slice(bytes);
                    // What exactly it says is no matter: nothing is counted behind it.
                    *self = Self::Unknown;
                }
                (RecordBytes::Same, Some(here)) => {
                    self.move_to(here, pending);
                    pending.extend_from_slice(bytes);
                    self.advance(stretch.in_feed.len() as u64);
                }
                (_, here) => {
                    // In its midst, and behind it, no offset is the right one.
                    self.move_to(Self::Unknown, pending);
                    pending.extend_from_slice(bytes);
                    if let (Some(_), Some((id, start))) = (here, fed) {
                        let behind = Self::Counts(id, start + stretch.in_feed.end as u64);
                        self.move_to(behind, pending);
                    }
                }
            }
        }
    }

    /// Whether the batch needs no remark: by far the most do not.
    fn holds(&mut self, batch: &Batch, fed: Option<(HistoryId, u64)>, is_whole: bool) -> bool {
        if fed.is_none() && is_whole && *self == Self::Unknown {
            return true;
        }
        let [only] = &batch.0[..] else { return false };
        match (only.what, fed, *self) {
            (RecordBytes::Same, Some((id, start)), Self::Counts(counted, offset)) => {
                let holds = is_whole && counted == id && offset == start;
                if holds {
                    self.advance(only.in_feed.len() as u64);
                }
                holds
            }
            _ => false,
        }
    }

    fn move_to(&mut self, place: Self, out: &mut Vec<u8>) {
        if *self != place {
            place.append(out);
            *self = place;
        }
    }
}

impl Batch {
    /// A record was appended.
    pub fn add(&mut self, what: RecordBytes, in_file: Range<usize>, in_feed: Range<usize>) {
        match self.0.last_mut() {
            Some(last) if last.what == what && what == RecordBytes::Same => {
                last.in_file.end = in_file.end;
                last.in_feed.end = in_feed.end;
            }
            _ => self.0.push(Stretch { what, in_file, in_feed }),
        }
    }
}
