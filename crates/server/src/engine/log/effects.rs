//! What units add to the log.
//!
//! The effects of one unit (a command, a transaction, a script, the serving of one blocked client)
//! are gathered in [`Effects`]. The thread's [`Recorder`] makes them one record with one number. By
//! default, the effect of a command that changed something is the command itself. A handler whose
//! command would not do the same when repeated gives another command instead.

use bobbin_store::log::{Appended, Lane};

/// The effects of a unit that are not in the log yet.
#[derive(Default)]
pub struct Effects {
    /// A byte of `RecordKind`, the time if there is one, then each effect behind its database and
    /// length.
    bytes: Vec<u8>,
    commands: usize,
    /// Whether the current command has chosen its effects itself.
    is_explicit: bool,
}

/// Writes a thread's units to the log.
#[derive(Default)]
pub struct Recorder {
    lane: Option<Lane>,
    is_on: bool,
    is_muted: bool,
    /// The time to write into records, in Unix seconds; 0 for none.
    stamp_s: i64,
    /// Whether the lane holds too many bytes for this thread to go on writing.
    far_ahead: bool,
    /// Whether there are records that the log's reader was not told of.
    unannounced: bool,
}

/// How the effects of a record belong together.
pub(super) struct RecordKind;
impl RecordKind {
    /// They happened one after the other.
    pub(super) const SEQUENCE: u8 = 0;
    /// They happened at once: MULTI and EXEC go around them.
    pub(super) const GROUP: u8 = 1;
    /// Not an effect, but a line for the file only.
    pub(super) const REMARK: u8 = 2;
    /// A flag: the record has the second in which it was made.
    pub(super) const STAMPED: u8 = 1 << 7;
}

/// A flag in an effect's database: only replicas get the effect. It changes no key, so it has no
/// database.
pub(super) const FOR_REPLICAS: u32 = 1 << 31;

/// Bytes of the time.
pub(super) const STAMP_BYTES: usize = size_of::<i64>();

/// Bytes before each effect: database and length.
pub(super) const DATABASE_BYTES: usize = size_of::<u32>();
pub(super) const LENGTH_BYTES: usize = size_of::<u64>();
const EFFECT_BYTES: usize = DATABASE_BYTES + LENGTH_BYTES;
/// Bytes of the kind, before the first effect.
const KIND_BYTES: usize = 1;
/// Commands of fewer bytes are written directly into the lane. Longer ones go through `Effects`,
/// whose buffer becomes the record.
const IN_PLACE_MAX: usize = 32 * 1024;
/// With more bytes than this in its lane, a thread stops writing: a disk that is slow for long must
/// not fill the memory.
const AHEAD_MAX: usize = 32 << 20;
/// Larger buffers are freed.
const KEPT_MAX: usize = 64 * 1024;

impl Effects {
    /// Begins a command, whose effect is itself unless it chooses another.
    #[inline(always)]
    pub const fn begin_command(&mut self) {
        self.is_explicit = false;
    }

    /// Notes that the command itself is not an effect.
    pub const fn be_explicit(&mut self) {
        self.is_explicit = true;
    }

    /// Whether the current command has chosen its effects itself.
    #[inline(always)]
    pub const fn is_explicit(&self) -> bool {
        self.is_explicit
    }

    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.commands == 0
    }

    /// Drops all effects, when logging ends.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.commands = 0;
    }
}

impl Recorder {
    /// For a thread that changes keys. A recorder without a lane records nothing.
    pub fn new(lane: Lane) -> Self {
        let mut recorder = Self { lane: Some(lane), ..Self::default() };
        recorder.refresh();
        recorder
    }

    /// Reads whether the log is on. That changes with the gate held, so this must be called
    /// whenever another thread may have had the gate.
    #[inline]
    pub fn refresh(&mut self) {
        self.is_on = !self.is_muted && self.logs_what_goes();
    }

    /// Begins or ends that commands are kept out of the log, whatever they change.
    pub fn mute(&mut self, is_muted: bool) {
        self.is_muted = is_muted;
        self.refresh();
    }

    /// Whether the expiry of keys is logged. Nothing mutes it.
    pub fn logs_what_goes(&self) -> bool {
        self.lane.as_ref().is_some_and(Lane::is_on)
    }

    /// Writes this time (Unix seconds) into the next records; 0 for none.
    #[inline]
    pub const fn stamp(&mut self, seconds: i64) {
        self.stamp_s = seconds;
    }

    /// Whether the last record showed that the log's reader is too far behind. Clears that.
    #[inline]
    pub const fn take_far_ahead(&mut self) -> bool {
        std::mem::replace(&mut self.far_ahead, false)
    }

    /// Whether the effects of commands are logged.
    #[inline(always)]
    pub const fn is_on(&self) -> bool {
        self.is_on
    }

    /// Adds an effect to those of a unit.
    pub fn add(&self, effects: &mut Effects, database: u32, args: &[&[u8]]) {
        let len = command_len(args);
        self.begin_effects(effects, 1, database, len);
        append_sized(&mut effects.bytes, args, len);
    }

    /// Adds several effects, whose commands lie one behind the other.
    pub fn add_commands(
        &self,
        effects: &mut Effects,
        count: usize,
        database: u32,
        commands: &[u8],
    ) {
        self.begin_effects(effects, count, database, commands.len());
        effects.bytes.extend_from_slice(commands);
    }

    fn begin_effects(&self, effects: &mut Effects, count: usize, database: u32, len: usize) {
        if effects.commands == 0 {
            effects.bytes.clear();
            if self.stamp_s == 0 {
                effects.bytes.push(RecordKind::SEQUENCE);
            } else {
                effects.bytes.push(RecordKind::SEQUENCE | RecordKind::STAMPED);
                effects.bytes.extend_from_slice(&self.stamp_s.to_le_bytes());
            }
        }
        effects.commands += count;
        effects.bytes.extend_from_slice(&effect_header(database, len));
    }

    /// Adds an effect that only replicas get: a message.
    pub fn add_for_replicas(&self, effects: &mut Effects, args: &[&[u8]]) {
        self.add(effects, FOR_REPLICAS, args);
    }

    /// Records an effect that is a unit by itself and returns its number. Returns `None` if the
    /// effect is too large or needs the time; then it must go through `Effects`. `wire` is the same
    /// command as an array of bulk strings, or empty. The shards that it changed are still held.
    #[inline]
    pub fn record_alone(&mut self, database: u32, args: &[&[u8]], wire: &[u8]) -> Option<u64> {
        let lane = self.lane.as_ref().filter(|_| self.stamp_s == 0)?;
        if wire.is_empty() || wire.len() >= IN_PLACE_MAX {
            return self.record_args(database, args);
        }
        let appended = lane.append_with(|record| {
            record.extend_from_slice(&lone_header(database, wire.len()));
            record.extend_from_slice(wire);
        });
        Some(self.appended(appended))
    }

    /// Records such an effect from its arguments: there are no bytes to copy, or too many.
    #[inline(never)]
    fn record_args(&mut self, database: u32, args: &[&[u8]]) -> Option<u64> {
        let len = command_len(args);
        let lane = self.lane.as_ref().filter(|_| len < IN_PLACE_MAX)?;
        let appended = lane.append_with(|record| {
            record.extend_from_slice(&lone_header(database, len));
            append_sized(record, args, len);
        });
        Some(self.appended(appended))
    }

    /// Records the effects of a unit, which happened at once, and returns their number, if there
    /// are any. The shards that they changed are still held.
    pub fn record_unit(&mut self, effects: &mut Effects) -> Option<u64> {
        if effects.commands > 1 {
            effects.bytes[0] |= RecordKind::GROUP;
        }
        self.record_separate(effects)
    }

    /// Records effects that do not belong together under one number, as `record_unit` does.
    pub fn record_separate(&mut self, effects: &mut Effects) -> Option<u64> {
        if effects.is_empty() {
            return None;
        }
        let appended = self.lane.as_ref().map(|lane| lane.append_from(&mut effects.bytes));
        let number = appended.map(|appended| self.appended(appended));
        effects.commands = 0;
        if effects.bytes.capacity() > KEPT_MAX {
            effects.bytes = Vec::new();
        }
        number
    }

    /// Adds a remark for the file behind the records so far: a line that begins with `#`.
    pub fn remark(&mut self, line: &[u8]) {
        let Some(lane) = self.lane.as_ref().filter(|_| self.is_on) else { return };
        let appended = lane.append_with(|record| {
            record.push(RecordKind::REMARK);
            record.extend_from_slice(line);
        });
        self.appended(appended);
    }

    /// Notes that a record was appended, and returns its number.
    #[inline]
    const fn appended(&mut self, appended: Appended) -> u64 {
        self.far_ahead = appended.waiting_bytes > AHEAD_MAX;
        self.unannounced = true;
        appended.number
    }

    /// Tells the log's reader of new records. Nothing is held.
    #[inline(always)]
    pub fn announce(&mut self) {
        if self.take_unannounced() {
            self.lane.iter().for_each(Lane::ring);
        }
    }

    /// Whether there are records that the log's reader was not told of. The caller then tells it.
    #[inline(always)]
    pub const fn take_unannounced(&mut self) -> bool {
        std::mem::replace(&mut self.unannounced, false)
    }
}

/// Appends a command as an array of bulk strings.
pub fn append_command(out: &mut Vec<u8>, args: &[&[u8]]) {
    append_sized(out, args, command_len(args));
}

/// Bytes of a command as an array of bulk strings.
fn command_len(args: &[&[u8]]) -> usize {
    let of_arg = |arg: &&[u8]| header_len(arg.len()) + arg.len() + LINE_END.len();
    header_len(args.len()) + args.iter().map(of_arg).sum::<usize>()
}

/// Bytes of a line with a kind and a number.
#[inline]
fn header_len(number: usize) -> usize {
    let digits = if number < 10 { 1 } else { number.ilog10() as usize + 1 };
    1 + digits + LINE_END.len()
}

/// The bytes before the command in a record with one effect.
#[inline]
fn lone_header(database: u32, len: usize) -> [u8; KIND_BYTES + EFFECT_BYTES] {
    let mut header = [0; KIND_BYTES + EFFECT_BYTES];
    header[0] = RecordKind::SEQUENCE;
    header[KIND_BYTES..].copy_from_slice(&effect_header(database, len));
    header
}

/// The bytes before each effect.
#[inline]
fn effect_header(database: u32, len: usize) -> [u8; EFFECT_BYTES] {
    let mut header = [0; EFFECT_BYTES];
    header[..DATABASE_BYTES].copy_from_slice(&database.to_le_bytes());
    header[DATABASE_BYTES..].copy_from_slice(&(len as u64).to_le_bytes());
    header
}

/// Appends a command of `len` bytes.
#[inline]
fn append_sized(out: &mut Vec<u8>, args: &[&[u8]], len: usize) {
    let start = out.len();
    out.resize(start + len, 0);
    let room = &mut ReservedBytes(&mut out[start..]);
    room.put_header(b'*', args.len());
    for arg in args {
        room.put_header(b'$', arg.len());
        room.put(arg);
        room.put(LINE_END);
    }
}

/// Bytes that must be written in order, and completely.
struct ReservedBytes<'a>(&'a mut [u8]);

impl ReservedBytes<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let (to, rest) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        to.copy_from_slice(bytes);
        self.0 = rest;
    }

    #[inline]
    fn put_header(&mut self, kind: u8, number: usize) {
        let digit = |value: usize| b'0' + (value % 10) as u8;
        match number {
            0..10 => self.put(&[kind, digit(number), b'\r', b'\n']),
            10..100 => self.put(&[kind, digit(number / 10), digit(number), b'\r', b'\n']),
            _ => {
                self.put(&[kind]);
                self.put(itoa::Buffer::new().format(number).as_bytes());
                self.put(LINE_END);
            }
        }
    }
}

const LINE_END: &[u8] = b"\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_take_the_bytes_that_were_counted() {
        let long = vec![b'x'; 100_000];
        for len in [0, 1, 9, 10, 11, 99, 100, 101, 999, 1000, 9_999, 10_000, 100_000] {
            let arg = &long[..len];
            for count in [1, 9, 10, 11, 99, 100, 101] {
                let mut expected = format!("*{count}\r\n").into_bytes();
                for _ in 0..count {
                    expected.extend_from_slice(format!("${len}\r\n").as_bytes());
                    expected.extend_from_slice(arg);
                    expected.extend_from_slice(b"\r\n");
                }
                let mut written = b"before".to_vec();
                append_command(&mut written, &vec![arg; count]);
                assert!(written.strip_prefix(b"before") == Some(&expected[..]), "{len} {count}");
            }
        }
    }
}
