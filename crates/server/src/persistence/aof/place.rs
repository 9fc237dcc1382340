//! The position of the replication stream in the log on disk.
//!
//! The log's records are the bytes that replicas get, with two exceptions. Messages and requests to
//! replicas are not written to disk. And a replica passes its primary's bytes on. So remarks
//! between records give the stream's position. Other servers ignore these remarks.
//!
//! - `#REPL:<id>:<offset>`: the stream's offset here. The records that follow are the stream's next
//!   bytes, up to another remark. A reader that counts their bytes knows the offset behind each.
//! - `#REPL:<id>:<offset>:<database>`: the exact position here. The records that follow are not the
//!   stream's bytes, so behind them the offset is unknown.
//! - `#REPL:`: the offset is unknown.
//!
//! While there is no stream, there are no such remarks.

use std::ops::Range;

use crate::engine::log::RecordBytes;
use crate::engine::log::history::{HistoryId, parse_offset};
use crate::engine::server::Server;
use crate::persistence::position::StreamPosition;

/// How a place in the log relates to the replication stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogPlace {
    #[default]
    Unknown,
    /// The next record is the stream's bytes from this offset on.
    Counts(HistoryId, u64),
    /// The stream is at this position, and the next record is not part of it.
    Exactly(StreamPosition),
}

/// The records of a batch: where each piece lies in the file and in the stream.
#[derive(Default)]
pub(super) struct Stretches(Vec<Stretch>);

/// Consecutive records.
struct Stretch {
    what: RecordBytes,
    in_file: Range<usize>,
    in_feed: Range<usize>,
}

const MARK: &[u8] = b"#REPL:";

impl LogPlace {
    /// The position of a primary's stream at this moment. `Unknown`: there is no stream, or it is
    /// made from the log. The caller holds the gate.
    pub fn relayed(server: &Server) -> Self {
        let feed = &server.feed;
        if !feed.is_on() || feed.takes_log() {
            return Self::Unknown;
        }
        let (id, offset, database) = (feed.id(), feed.end_offset(), feed.relayed_database());
        Self::Exactly(StreamPosition { id, offset, database })
    }

    /// Reads a remark. `None`: the remark has another subject.
    pub fn parse(remark: &[u8]) -> Option<Self> {
        let rest = remark.trim_ascii_end().strip_prefix(MARK)?;
        let mut words = rest.split(|&byte| byte == b':');
        let id = words.next().and_then(HistoryId::parse);
        let offset = words.next().and_then(parse_offset);
        let database = words.next().map(|word| std::str::from_utf8(word).ok()?.parse().ok());
        Some(match (id, offset, database) {
            (Some(id), Some(offset), None) => Self::Counts(id, offset),
            (Some(id), Some(offset), Some(Some(database))) => {
                Self::Exactly(StreamPosition { id, offset, database })
            }
            _ => Self::Unknown,
        })
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

    /// Moves the place behind a record of this length.
    pub const fn advance(&mut self, bytes: u64) {
        *self = match *self {
            Self::Counts(id, offset) => Self::Counts(id, offset + bytes),
            Self::Unknown | Self::Exactly(_) => Self::Unknown,
        };
    }

    /// The stream's position. `database` is what the records have selected last.
    pub const fn position(&self, database: u32) -> Option<StreamPosition> {
        match *self {
            Self::Unknown => None,
            Self::Counts(id, offset) => Some(StreamPosition { id, offset, database }),
            Self::Exactly(position) => Some(position),
        }
    }

    /// Inserts the necessary remarks between the records of a batch, which is at the end of
    /// `pending`. `fed`: the history, and the offset at which the stream has the batch. `is_whole`:
    /// nothing before the batch is missing from the file.
    pub(super) fn remark(
        &mut self,
        pending: &mut Vec<u8>,
        batch: &Stretches,
        fed: Option<(HistoryId, u64)>,
        is_whole: bool,
    ) {
        let Some(first) = batch.0.first() else { return };
        if self.is_in_place(batch, fed, is_whole) {
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
                    // The exact position does not matter, because no bytes are counted behind it.
                    *self = Self::Unknown;
                }
                (RecordBytes::Same, Some(here)) => {
                    self.move_to(here, pending);
                    pending.extend_from_slice(bytes);
                    self.advance(stretch.in_feed.len() as u64);
                }
                (_, here) => {
                    // Within these records, and behind them, the file's bytes do not match the
                    // stream's.
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

    /// Whether the batch needs no remark, which is by far the commonest case.
    fn is_in_place(
        &mut self,
        batch: &Stretches,
        fed: Option<(HistoryId, u64)>,
        is_whole: bool,
    ) -> bool {
        if fed.is_none() && is_whole && *self == Self::Unknown {
            return true;
        }
        let [only] = &batch.0[..] else { return false };
        match (only.what, fed, *self) {
            (RecordBytes::Same, Some((id, start)), Self::Counts(counted, offset)) => {
                let is_in_place = is_whole && counted == id && offset == start;
                if is_in_place {
                    self.advance(only.in_feed.len() as u64);
                }
                is_in_place
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

impl Stretches {
    /// Adds a record that was appended.
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

#[cfg(test)]
mod tests {
    use super::super::{AofItem, AofReader};
    use super::*;
    use crate::base::random::Random;
    use crate::engine::log::append_command;

    fn id() -> HistoryId {
        HistoryId::parse(b"0123456789012345678901234567890123456789").expect("it is one")
    }

    #[test]
    fn remarks_are_read_as_they_were_written() {
        let position = StreamPosition { id: id(), offset: 7, database: 3 };
        for place in [LogPlace::Unknown, LogPlace::Counts(id(), 5), LogPlace::Exactly(position)] {
            let mut line = Vec::new();
            place.append(&mut line);
            assert!(line.ends_with(b"\r\n"));
            assert_eq!(LogPlace::parse(&line), Some(place));
        }
        assert_eq!(LogPlace::parse(b"#TS:1"), None);
        for strange in ["#REPL:x:1".to_owned(), "#REPL:".to_owned()].into_iter().chain(
            ["x", "-1", "4611686018427387905", "18446744073709551614:0", "1:x", "1:-1"]
                .map(|place| format!("#REPL:{}:{place}", id())),
        ) {
            assert_eq!(LogPlace::parse(strange.as_bytes()), Some(LogPlace::Unknown), "{strange}");
        }
    }

    /// The position that a file gives behind each of its items, with the length of the file there.
    fn told(file: &[u8]) -> Vec<(u64, LogPlace)> {
        let (mut reader, mut place, mut told) =
            (AofReader::new(file, 0), LogPlace::Unknown, vec![]);
        loop {
            let start = reader.offset();
            match reader.read().expect("it is a log") {
                AofItem::End => return told,
                AofItem::Command => place.advance(reader.offset() - start),
                AofItem::Timestamp(_) => {}
                AofItem::Remark => {
                    place = LogPlace::parse(reader.remark_text()).unwrap_or(place);
                }
            }
            told.push((reader.offset(), place));
        }
    }

    /// A writer of a log and a stream, with their true positions.
    #[derive(Default)]
    struct Model {
        place: LogPlace,
        file: Vec<u8>,
        /// The stream's offset behind its last byte.
        feed_end: u64,
        is_fed: bool,
        is_whole: bool,
        /// The records of the file: the length of the file behind each record, and the stream's
        /// offset there if the stream has all of them.
        records: Vec<(u64, Option<u64>)>,
    }

    impl Model {
        fn write_batch(&mut self, random: &mut Random) {
            let (mut pending, mut feeding) = (Vec::new(), Vec::new());
            let (mut batch, mut ends) = (Stretches::default(), Vec::new());
            for _ in 0..random.below(6) {
                let (file_start, feed_start) = (pending.len(), feeding.len());
                let number = random.below(100_000).to_string();
                let mut record = Vec::new();
                append_command(&mut record, &[b"SET", b"key", number.as_bytes()]);
                let what = match random.below(6) {
                    0 => RecordBytes::Nothing,
                    1 => RecordBytes::Differ,
                    _ => RecordBytes::Same,
                };
                if what != RecordBytes::Same {
                    append_command(&mut feeding, &[b"PUBLISH", b"c", number.as_bytes()]);
                }
                if what != RecordBytes::Nothing {
                    if random.below(4) == 0 {
                        pending.extend_from_slice(b"#TS:1\r\n");
                    }
                    pending.extend_from_slice(&record);
                    feeding.extend_from_slice(&record);
                    ends.push((record, feeding.len() as u64));
                }
                if !self.is_fed {
                    feeding.clear();
                }
                batch.add(what, file_start..pending.len(), feed_start..feeding.len());
            }
            let fed = self.is_fed.then_some((id(), self.feed_end));
            self.place.remark(&mut pending, &batch, fed, self.is_whole);
            // Find the records among the remarks.
            let mut at = 0;
            for (record, feed_end) in ends {
                let found = pending[at..].windows(record.len()).position(|bytes| *bytes == record);
                at += found.expect("it is there") + record.len();
                let behind = fed.map(|(_, start)| start + feed_end);
                self.records.push(((self.file.len() + at) as u64, behind));
            }
            self.file.extend_from_slice(&pending);
            self.feed_end += feeding.len() as u64;
        }

        /// Checks that the file, wherever it is cut off, gives no wrong position.
        fn check(&self) -> usize {
            let mut claims = 0;
            for (bytes, place) in told(&self.file) {
                let Some(claim) = place.position(0) else { continue };
                let records = self.records.iter().rposition(|(end, _)| *end <= bytes);
                // Between this record and the next, the stream's bytes change no data.
                let from = records.and_then(|at| self.records[at].1);
                let next = records.map_or(0, |at| at + 1);
                if let Some(from) = from {
                    assert!(claim.offset >= from, "{claim:?} {from}");
                }
                if let Some(&(_, Some(until))) = self.records.get(next) {
                    assert!(claim.offset < until, "{claim:?} {until}");
                }
                assert!(claim.offset <= self.feed_end);
                claims += 1;
            }
            claims
        }
    }

    #[test]
    fn wherever_a_log_ends_it_says_where_the_stream_is_or_nothing() {
        let mut claims = 0;
        for seed in 1..500 {
            let mut random = Random::new(seed);
            let mut model = Model { is_fed: true, is_whole: true, ..Model::default() };
            for _ in 0..40 {
                match random.below(10) {
                    // The stream gets a request or a ping.
                    0 => model.feed_end += 14,
                    1 => model.is_fed = !model.is_fed,
                    2 => model.is_whole = !model.is_whole,
                    _ => model.write_batch(&mut random),
                }
            }
            claims += model.check();
        }
        assert!(claims > 10_000, "{claims}");
    }

    #[test]
    fn records_that_are_the_streams_need_one_remark() {
        let (mut place, mut pending) = (LogPlace::Unknown, Vec::new());
        let mut offset = 100;
        for _ in 0..5 {
            let start = pending.len();
            let mut batch = Stretches::default();
            for _ in 0..3 {
                let (at, fed) = (pending.len(), pending.len() - start);
                append_command(&mut pending, &[b"DEL", b"k"]);
                batch.add(RecordBytes::Same, at..pending.len(), fed..pending.len() - start);
            }
            let bytes = pending.len() - start;
            place.remark(&mut pending, &batch, Some((id(), offset)), true);
            offset += bytes as u64;
        }
        let text = String::from_utf8(pending).expect("it is text");
        assert_eq!(text.matches("#REPL:").count(), 1);
        assert_eq!(place, LogPlace::Counts(id(), offset));
    }

    #[test]
    fn without_a_stream_nothing_is_remarked() {
        let (mut place, mut pending) = (LogPlace::Unknown, b"record".to_vec());
        let mut batch = Stretches::default();
        batch.add(RecordBytes::Same, 0..6, 0..0);
        place.remark(&mut pending, &batch, None, true);
        assert_eq!(pending, b"record");
    }
}
