//! The log as one stream of bytes: the records by number, with the commands that this order needs
//! (SELECT, MULTI and EXEC).

use bobbin_store::log::{Log, Merger};

use super::effects::{
    DATABASE_BYTES, FOR_REPLICAS, LENGTH_BYTES, RecordKind, STAMP_BYTES, append_command,
};

/// Where the bytes of records go. Both get the same bytes, except for effects that only replicas
/// get, and remarks that only the file gets.
#[derive(Default)]
pub struct StreamOutput<'a> {
    pub file: Option<&'a mut Vec<u8>>,
    pub feed: Option<&'a mut Vec<u8>>,
}

/// How the bytes of a record in the file compare to those in the feed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RecordBytes {
    /// The file has none.
    #[default]
    Nothing,
    Same,
    Differ,
    /// A remark, which only the file has.
    Remark,
}

/// The records of all threads, in the order of their numbers.
#[derive(Default)]
pub struct RecordStream {
    merger: Merger,
    /// The database that the last command of the stream was for.
    selected: Option<u32>,
    /// The last time in the stream (Unix seconds).
    told_s: i64,
    /// `RecordBytes` of the last record.
    last: RecordBytes,
}

impl RecordStream {
    /// Collects the records that the threads have appended; `next` yields them.
    pub fn collect(&mut self, log: &Log) {
        self.merger.collect(log);
    }

    /// Whether there is room left of earlier records that `give_back` may free.
    pub fn has_room(&self) -> bool {
        self.merger.has_room()
    }

    /// Frees room that the records since the last call did not need.
    pub fn give_back(&mut self) {
        self.merger.give_back();
    }

    /// Appends the next record, if there is one with at most this number. Returns whether there
    /// was.
    pub fn next(&mut self, number_max: u64, output: &mut StreamOutput<'_>) -> bool {
        let Some(record) = self.merger.take_next(number_max) else { return false };
        self.last = RecordBytes::Nothing;
        let Some((&kind, mut effects)) = record.split_first() else { return true };
        if kind == RecordKind::REMARK {
            if let Some(file) = &mut output.file {
                file.extend_from_slice(effects);
                self.last = RecordBytes::Remark;
            }
            return true;
        }
        if kind & RecordKind::STAMPED != 0
            && let Some((stamp, rest)) = effects.split_first_chunk::<STAMP_BYTES>()
        {
            effects = rest;
            // Threads read the clock at different times, but the time in the file never goes back.
            let seconds = i64::from_le_bytes(*stamp);
            if seconds > self.told_s
                && let Some(file) = &mut output.file
            {
                self.told_s = seconds;
                append_timestamp(file, seconds);
            }
        }
        let (Some(out), mut feed, is_file) = (match output {
            StreamOutput { file: Some(file), feed } => (Some(file), feed.as_mut(), true),
            StreamOutput { file: None, feed } => (feed.as_mut(), None, false),
        }) else {
            return true;
        };
        let start = out.len();
        // The feed has the record up to `fed`.
        let (mut fed, mut is_empty, mut differs) = (start, true, false);
        let grouped = kind & RecordKind::GROUP != 0;
        if grouped {
            append_command(out, &[b"MULTI"]);
        }
        while let Some((database, command, rest)) = split(effects) {
            effects = rest;
            if database & FOR_REPLICAS != 0 && is_file {
                if let Some(feed) = &mut feed {
                    feed.extend_from_slice(&out[fed..]);
                    feed.extend_from_slice(command);
                }
                fed = out.len();
                differs = true;
                continue;
            }
            is_empty = false;
            if database & FOR_REPLICAS == 0 && self.selected != Some(database) {
                self.selected = Some(database);
                append_select(out, database);
            }
            out.extend_from_slice(command);
        }
        if grouped {
            append_command(out, &[b"EXEC"]);
        }
        if let Some(feed) = feed {
            feed.extend_from_slice(&out[fed..]);
        }
        if is_empty {
            // The file gets nothing of this record.
            out.truncate(start);
        } else {
            self.last = if differs { RecordBytes::Differ } else { RecordBytes::Same };
        }
        true
    }

    /// How the last record in the file compares to that in the feed.
    pub const fn last(&self) -> RecordBytes {
        self.last
    }

    /// The database that the stream is at.
    pub const fn database(&self) -> u32 {
        match self.selected {
            Some(database) => database,
            None => 0,
        }
    }

    /// Skips all records up to a number. Returns whether all of them were there.
    pub fn skip(&mut self, number_max: u64) -> bool {
        while self.merger.take_next(number_max).is_some() {}
        self.merger.done() >= number_max
    }

    /// Begins a stream whose reader does not know the earlier bytes.
    pub const fn begin_anew(&mut self) {
        self.selected = None;
        self.told_s = 0;
    }

    /// The number of the last record that was yielded.
    pub const fn done(&self) -> u64 {
        self.merger.done()
    }
}

/// Splits off the first effect: its database, its command, and the rest.
fn split(effects: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let (database, rest) = effects.split_first_chunk::<DATABASE_BYTES>()?;
    let (length, rest) = rest.split_first_chunk::<LENGTH_BYTES>()?;
    let (command, rest) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
    Some((u32::from_le_bytes(*database), command, rest))
}

/// Appends a remark with the time of what follows.
pub fn append_timestamp(out: &mut Vec<u8>, seconds: i64) {
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(b"#TS:");
    out.extend_from_slice(digits.format(seconds).as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn append_select(out: &mut Vec<u8>, database: u32) {
    let mut digits = itoa::Buffer::new();
    append_command(out, &[b"SELECT", digits.format(database).as_bytes()]);
}

#[cfg(test)]
mod tests {
    use super::super::{Effects, Recorder};
    use super::*;

    #[test]
    fn databases_are_selected_and_groups_kept_together() {
        let log = Log::default();
        log.switch(true);
        let (mut one, mut two) = (Recorder::new(log.lane()), Recorder::new(log.lane()));
        let (mut of_one, mut of_two) = (Effects::default(), Effects::default());
        one.add(&mut of_one, 0, &[b"SET", b"k", b"v"]);
        one.record_unit(&mut of_one);
        two.add(&mut of_two, 0, &[b"DEL", b"k"]);
        two.add(&mut of_two, 9, &[b"INCR", b"n"]);
        two.record_unit(&mut of_two);
        one.add(&mut of_one, 9, &[b"DEL", b"a"]);
        one.add(&mut of_one, 9, &[b"DEL", b"b"]);
        one.record_separate(&mut of_one);
        let (mut stream, mut out) = (RecordStream::default(), Vec::new());
        stream.collect(&log);
        let mut output = StreamOutput { file: Some(&mut out), feed: None };
        let mut next = |stream: &mut RecordStream, number| stream.next(number, &mut output);
        assert!(next(&mut stream, 2) && next(&mut stream, 2) && !next(&mut stream, 2));
        assert_eq!(stream.done(), 2);
        stream.begin_anew();
        while next(&mut stream, u64::MAX) {}
        let words = String::from_utf8(out).unwrap();
        let words: Vec<_> = words.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
        let expected = "SELECT 0 SET k v MULTI DEL k SELECT 9 INCR n EXEC SELECT 9 DEL a DEL b";
        assert_eq!(words.join(" "), expected);
    }

    #[test]
    fn messages_are_for_replicas_alone() {
        let log = Log::default();
        log.switch(true);
        let (mut recorder, mut effects) = (Recorder::new(log.lane()), Effects::default());
        recorder.add_for_replicas(&mut effects, &[b"PUBLISH", b"c", b"1"]);
        recorder.record_unit(&mut effects);
        recorder.add(&mut effects, 3, &[b"DEL", b"a"]);
        recorder.add_for_replicas(&mut effects, &[b"PUBLISH", b"c", b"2"]);
        recorder.add(&mut effects, 3, &[b"DEL", b"b"]);
        recorder.record_unit(&mut effects);
        recorder.add_for_replicas(&mut effects, &[b"PUBLISH", b"c", b"3"]);
        recorder.add_for_replicas(&mut effects, &[b"PUBLISH", b"c", b"4"]);
        recorder.record_unit(&mut effects);
        let words = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).unwrap();
            let words: Vec<_> = text.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
            words.join(" ")
        };
        let (mut stream, mut out, mut feed) = (RecordStream::default(), Vec::new(), Vec::new());
        stream.collect(&log);
        let mut output = StreamOutput { file: Some(&mut out), feed: Some(&mut feed) };
        while stream.next(u64::MAX, &mut output) {}
        assert_eq!(words(out), "MULTI SELECT 3 DEL a DEL b EXEC");
        let expected = "PUBLISH c 1 MULTI SELECT 3 DEL a PUBLISH c 2 DEL b EXEC \
                        MULTI PUBLISH c 3 PUBLISH c 4 EXEC";
        assert_eq!(words(feed), expected);
    }

    #[test]
    fn each_second_is_told_once_and_they_never_go_back() {
        let log = Log::default();
        log.switch(true);
        let (mut recorder, mut effects) = (Recorder::new(log.lane()), Effects::default());
        for (second, name) in [(0, b"a"), (5, b"b"), (5, b"c"), (4, b"d"), (6, b"e")] {
            recorder.stamp(second);
            recorder.add(&mut effects, 0, &[b"DEL", name]);
            recorder.add(&mut effects, 0, &[b"DEL", name]);
            match name {
                b"e" => recorder.record_unit(&mut effects),
                _ => recorder.record_separate(&mut effects),
            };
        }
        let (mut stream, mut out, mut feed) = (RecordStream::default(), Vec::new(), Vec::new());
        stream.collect(&log);
        let mut output = StreamOutput { file: Some(&mut out), feed: Some(&mut feed) };
        while stream.next(4, &mut output) {}
        stream.begin_anew();
        while stream.next(u64::MAX, &mut output) {}
        let words = String::from_utf8(out).unwrap();
        let words: Vec<_> = words.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
        let expected = "SELECT 0 DEL a DEL a #TS:5 DEL b DEL b DEL c DEL c DEL d DEL d \
                        #TS:6 MULTI SELECT 0 DEL e DEL e EXEC";
        assert_eq!(words.join(" "), expected);
        let words = String::from_utf8(feed).unwrap();
        let words: Vec<_> = words.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
        let plain = expected.replace("#TS:5 ", "").replace("#TS:6 ", "");
        assert_eq!(words.join(" "), plain, "replicas are not told the time");
    }
}
