//! SCAN and KEYS: walks over the whole database that do not delay other clients.

use bobbin_resp::{Protocol, Reply};
use bobbin_store::EntryRef;

use super::scan_options::{ScanOptions, Scanned};
use crate::engine::buffers::pieces::Pieces;
use crate::engine::command::job::{Job, Slice};
use crate::engine::command::{Call, Categories, Command, Data, Flags, KeyWalk, Outcome};

fn keys(call: &mut Call<'_>) -> Outcome {
    let search =
        KeySearch::new(KeyWalk::new(call.client.database), ScanOptions::all_of(call.args[1]));
    run(call, search);
    Ok(())
}

fn scan(call: &mut Call<'_>) -> Outcome {
    let cursor = parse_cursor(call.args[1]).ok_or("ERR invalid cursor")?;
    let options = ScanOptions::parse(call, 2, Scanned::Keys)?;
    let mut search = KeySearch::new(KeyWalk::from_cursor(call.client.database, cursor), options);
    search.with_cursor = true;
    run(call, search);
    Ok(())
}

/// Searches at once if that is short, and in slices otherwise.
fn run(call: &mut Call<'_>, mut search: KeySearch) {
    let is_short = |looks: usize| looks <= LOOKS_AT_ONCE_MAX;
    if !call.may_leave_job
        || is_short(search.looks)
        || is_short(call.data.total(call.client.database))
    {
        let is_whole = search.go_on(call.data, &mut || true);
        // SCAN may answer less than it was asked for. KEYS waits for what a script keeps.
        if is_whole || search.with_cursor || !call.may_leave_job {
            search.pieces().iter().for_each(|piece| call.reply.raw(piece));
            search.reply(&mut call.reply);
            return;
        }
    }
    call.leave_job(search);
}

/// SCAN or KEYS in progress.
struct KeySearch {
    walk: KeyWalk,
    options: ScanOptions,
    /// How many keys are still to be examined.
    looks: usize,
    /// SCAN's reply includes the cursor.
    with_cursor: bool,
    /// The found keys, as bulk strings.
    found: Pieces,
    count: usize,
    /// A script or a transaction keeps the next shard.
    is_parked: bool,
}

impl KeySearch {
    fn new(walk: KeyWalk, options: ScanOptions) -> Self {
        Self {
            walk,
            looks: options.count,
            options,
            with_cursor: false,
            found: Pieces::default(),
            count: 0,
            is_parked: false,
        }
    }

    /// Searches while `more()` returns true. Returns whether the search is complete.
    fn go_on(&mut self, data: &mut Data, more: &mut dyn FnMut() -> bool) -> bool {
        loop {
            let (options, count) = (&self.options, &mut self.count);
            let mut bytes = Reply::new(self.found.open(), Protocol::Resp2);
            let show = |entry: EntryRef<'_>| {
                bytes.bulk(entry.key());
                *count += 1;
            };
            let looked =
                self.walk.step(data, self.looks, |entry| options.matches_entry(entry), show);
            self.is_parked = looked.is_none();
            let Some(looked) = looked else { return false };
            self.looks = self.looks.saturating_sub(looked);
            if self.looks == 0 || self.walk.is_done() {
                return true;
            }
            if !more() {
                return false;
            }
        }
    }
}

impl Job for KeySearch {
    fn step(&mut self, slice: &mut Slice<'_>) -> bool {
        self.go_on(slice.data, slice.more)
    }

    fn changes_later(&self) -> bool {
        false
    }

    fn is_parked(&self) -> bool {
        self.is_parked
    }

    fn reply_bytes(&self) -> usize {
        self.found.byte_len()
    }

    fn pieces(&mut self) -> Vec<Vec<u8>> {
        let mut header = Vec::new();
        let mut reply = Reply::new(&mut header, Protocol::Resp2);
        if self.with_cursor {
            reply.array(2);
            reply.bulk(self.walk.cursor().to_string().as_bytes());
        }
        reply.array(self.count);
        self.found.take(header)
    }

    fn reply(&mut self, reply: &mut Reply<'_>) {
        self.found.append_rest(reply);
    }
}

/// Parses a cursor: an unsigned number of 64 bits.
pub(super) fn parse_cursor(text: &[u8]) -> Option<u64> {
    if let Some(cursor) = bobbin_resp::parse_i64(text) {
        return u64::try_from(cursor).ok();
    }
    // A text that is not in Redis's form of a number is parsed as by C's `strtoull`: with leading
    // blanks, signs and zeros, and with negative numbers counted from the end.
    let text =
        str::from_utf8(text).ok()?.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let cursor: u64 = digits.parse().ok().filter(|_| !digits.starts_with('+'))?;
    Some(if text.starts_with('-') { cursor.wrapping_neg() } else { cursor })
}

/// A search that examines more keys than this is done in slices.
const LOOKS_AT_ONCE_MAX: usize = 1000;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("keys", 2, keys)
        .flags(Flags::READONLY.with(Flags::WALKS))
        .categories(Categories::KEYSPACE.with(Categories::DANGEROUS))
        .doc("generic", "1.0.0", "O(N), N: keys of the database", "Answers all keys that match a pattern.")
        .syntax("pattern")
        .tips(&["request_policy:all_shards", "nondeterministic_output_order"]),
    Command::new("scan", -2, scan)
        .flags(Flags::READONLY.with(Flags::WALKS))
        .categories(Categories::KEYSPACE)
        .doc(
            "generic",
            "2.8.0",
            "O(1) per call, O(N) for all of them until the cursor is 0 again, N: keys of the database",
            "Answers some keys, and a cursor to ask for the next with.",
        )
        .syntax("cursor:int [MATCH pattern] [COUNT count:int] [TYPE type @6.0.0]")
        .history(&[("6.0.0", "Takes `TYPE`.")])
        .tips(&["nondeterministic_output", "request_policy:special", "response_policy:special"]),
];

#[cfg(test)]
mod tests {
    use bobbin_store::shard::Expire;
    use bobbin_store::{Gate, Keyspace, NewValue};

    use super::*;

    /// Found keys count for the client's limit before the search is over.
    #[test]
    fn what_is_found_is_seen_at_once() {
        let keyspace: &'static Keyspace = Box::leak(Box::new(Keyspace::new(7)));
        let gate: &'static Gate = Box::leak(Box::default());
        let mut data = Data::new(keyspace, gate, 1).expect("few threads");
        data.enter();
        for name in ["one", "another"] {
            let key = data.key(name.as_bytes());
            assert!(data.hold_one(key.hash.shard()));
            data.set(key, NewValue::string(b"v"), Expire::Clear);
            data.release();
        }
        let mut search = KeySearch::new(KeyWalk::new(0), ScanOptions::all_of(b"*"));
        assert_eq!(search.reply_bytes(), 0);
        assert!(!search.go_on(&mut data, &mut || false));
        assert!(search.reply_bytes() > 0);
        data.leave();
    }

    #[test]
    fn cursors() {
        for (text, cursor) in [
            ("0", Some(0)),
            (" 1", Some(1)),
            ("+1", Some(1)),
            ("01", Some(1)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("-1", None),
            (" -1", Some(u64::MAX)),
            ("-0", Some(0)),
            ("-9223372036854775809", Some(i64::MAX as u64)),
            ("-18446744073709551615", Some(1)),
            ("-18446744073709551616", None),
            ("-+1", None),
            ("", None),
            (" ", None),
            ("1 ", None),
            ("0x1", None),
            ("x", None),
        ] {
            assert_eq!(parse_cursor(text.as_bytes()), cursor, "{text:?}");
        }
    }
}
