//! DUMP and RESTORE: values as bytes that other servers understand.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bobbin_dump::rdb::Format;
use bobbin_dump::{
    CollectionTarget, DumpOptions, Payload, VersionCheck, append_collection_payload,
    append_string_payload, parse_payload_with,
};
use bobbin_resp::Reply;
use bobbin_store::entry::{INLINE_MAX, SharedString};
use bobbin_store::value::{AnyCollection, StringRef};
use bobbin_store::{NewValue, OwnedEntry, ValueRef};

use super::string::PinnedString;
use crate::config::RdbVersionCheck;
use crate::engine::command::job::{Job, Slice};
use crate::engine::command::{
    Call, Categories, Classes, Command, Data, Failure, Flags, Key, Outcome,
};
use crate::engine::execution::elsewhere::Elsewhere;
use crate::engine::execution::slices::{SlicedChange, change_in_slices};
use crate::engine::log::payload_of;
use crate::engine::row::keys::{KeySpec, KeyUse};
use crate::engine::server::Server;

fn dump(call: &mut Call<'_>) -> Outcome {
    let compress = call.server.config.rdbcompression();
    let Some(entry) = call.data.read(call.key(1)?) else {
        call.reply.null();
        return Ok(());
    };
    let mut payload = Vec::new();
    if let ValueRef::Bytes(bytes) = entry.value() {
        append_string_payload(StringRef::Flat(bytes), Format::Valkey, compress, &mut payload);
    } else {
        let is_large = entry.memory() >= LARGE_BYTES;
        let pinned = Arc::new(PinnedValue::new(entry.value()));
        // Compressing takes long, so other clients need not wait for it.
        call.end_reading();
        if is_large
            && call.may_leave_job
            && let Some(dumping) = Dumping::start(&pinned, compress)
        {
            call.leave_job(dumping);
            return Ok(());
        }
        pinned.append_payload(compress, &mut payload);
    }
    call.reply.bulk(&payload);
    Ok(())
}

/// DUMP of a large value. Another thread makes the payload.
struct Dumping {
    elsewhere: Elsewhere<Vec<u8>>,
    payload: Vec<u8>,
}

impl Dumping {
    fn start(pinned: &Arc<PinnedValue>, compress: bool) -> Option<Self> {
        let pinned = Arc::clone(pinned);
        let elsewhere = Elsewhere::start("bobbin-dump", move || {
            let mut payload = Vec::new();
            pinned.append_payload(compress, &mut payload);
            payload
        });
        Some(Self { elsewhere: elsewhere?, payload: Vec::new() })
    }
}

impl Job for Dumping {
    fn step(&mut self, _: &mut Slice<'_>) -> bool {
        let result = self.elsewhere.result();
        let is_done = result.is_some();
        self.payload = result.unwrap_or_default();
        is_done
    }

    fn changes_later(&self) -> bool {
        false
    }

    fn is_parked(&self) -> bool {
        true
    }

    fn pieces(&mut self) -> Vec<Vec<u8>> {
        let header = format!("${}\r\n", self.payload.len()).into_bytes();
        vec![header, std::mem::take(&mut self.payload)]
    }

    fn reply(&mut self, reply: &mut Reply<'_>) {
        reply.raw(b"\r\n");
    }
}

/// Values of this many bytes take milliseconds.
const LARGE_BYTES: usize = 512 * 1024;

/// The settings for which values are made.
pub(crate) fn target(server: &Server) -> CollectionTarget<'_> {
    CollectionTarget {
        hasher: server.keyspace.hasher(),
        hash: super::hash::limits(server),
        set: super::set::limits(server),
        list: super::list::limits(server),
        sorted_set: super::sorted_set::limits(server),
    }
}

/// The option `rdb-version-check`.
pub(crate) fn version_check(server: &Server) -> VersionCheck {
    match server.config.rdb_version_check() {
        RdbVersionCheck::Strict => VersionCheck::Strict,
        RdbVersionCheck::Relaxed => VersionCheck::Relaxed,
    }
}

/// A pinned value, which can be used without its shard.
pub(crate) enum PinnedValue {
    Bytes(Box<[u8]>),
    Long(PinnedString),
    Collection(AnyCollection),
}

impl PinnedValue {
    pub(crate) fn new(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Bytes(bytes) => Self::Bytes(bytes.into()),
            ValueRef::Shared(shared) => {
                Self::Long(PinnedString::Shared(SharedString::clone(shared)))
            }
            ValueRef::Chunked(chunked) => Self::Long(PinnedString::Chunked(chunked.clone())),
            ValueRef::Collection(collection) => Self::Collection(collection.cloned()),
        }
    }

    /// Appends the value's payload for DUMP.
    pub(crate) fn append_payload(&self, compress: bool, payload: &mut Vec<u8>) {
        let string = match self {
            Self::Bytes(bytes) => StringRef::Flat(bytes),
            Self::Long(string) => string.as_ref(),
            Self::Collection(collection) => {
                append_collection_payload(collection.as_ref(), Format::Valkey, compress, payload);
                return;
            }
        };
        append_string_payload(string, Format::Valkey, compress, payload);
    }
}

fn restore(call: &mut Call<'_>) -> Outcome {
    let options = RestoreOptions::parse(call)?;
    let key = call.key(1)?;
    options.check(call.data, key)?;
    let ttl_ms = call.integer(2)?;
    if ttl_ms < 0 {
        return Err("ERR Invalid TTL value, must be >= 0".into());
    }
    let (server, payload) = (call.server, call.args[3]);
    if payload.len() >= LARGE_BYTES && call.may_leave_job {
        let payload = call.data.shared(payload);
        let logged = call.data.is_logged();
        let reading =
            Elsewhere::start("bobbin-restore", move || Restored::read(&payload, server, logged));
        if let Some(elsewhere) = reading {
            let restoring = Restoring { options, ttl_ms, elsewhere, value: None, server };
            return change_in_slices(call, [1].into_iter(), restoring);
        }
    }
    let value = Restored::read(payload, server, call.data.is_logged())?;
    options.put(server, call.data, key, value, ttl_ms, call.args);
    call.reply.ok();
    Ok(())
}

/// What a payload holds.
struct Restored {
    value: RestoredValue,
    /// The payload for the log, if it is needed.
    logged: Option<Vec<u8>>,
}

enum RestoredValue {
    String(Vec<u8>),
    Collection(AnyCollection),
}

impl Restored {
    fn read(payload: &[u8], server: &Server, is_logged: bool) -> Result<Self, Failure> {
        let value = RestoredValue::read(payload, server)?;
        let logged = is_logged.then(|| value.payload(server));
        Ok(Self { value, logged })
    }
}

impl RestoredValue {
    fn read(payload: &[u8], server: &Server) -> Result<Self, Failure> {
        let trusted = server.services.skip_checksums.load(Ordering::Relaxed);
        let options =
            DumpOptions { version_check: version_check(server), trusted, ..DumpOptions::default() };
        match parse_payload_with(payload, &options).map_err(|error| damaged(&error))? {
            Payload::String(string) => Ok(Self::String(string.into_owned())),
            Payload::Collection(serialized) => {
                let collection = serialized.read(&options, target(server));
                collection.map(Self::Collection).map_err(|error| damaged(&error))
            }
        }
    }

    /// The value's payload for the log, which not all of its readers could read as it came.
    fn payload(&self, server: &Server) -> Vec<u8> {
        let value = match self {
            Self::String(bytes) => ValueRef::Bytes(bytes),
            Self::Collection(collection) => ValueRef::Collection(collection.as_ref()),
        };
        payload_of(value, server.config.rdbcompression())
    }

    fn into_entry(self, key: Key<'_>, expire_ms: Option<i64>, access: u32) -> OwnedEntry {
        let new = |value| OwnedEntry::new(key.bytes, value, expire_ms, access);
        match self {
            Self::String(bytes) if bytes.len() <= INLINE_MAX => new(NewValue::Inline(&bytes)),
            Self::String(bytes) => new(NewValue::Shared(SharedString::new(bytes))),
            Self::Collection(collection) => new(NewValue::Collection(collection)),
        }
    }
}

/// RESTORE of a large payload. Another thread parses it.
struct Restoring {
    options: RestoreOptions,
    ttl_ms: i64,
    elsewhere: Elsewhere<Result<Restored, Failure>>,
    value: Option<Result<Restored, Failure>>,
    server: &'static Server,
}

impl SlicedChange for Restoring {
    fn step(&mut self, _: &mut Data) -> bool {
        if self.value.is_none() {
            self.value = self.elsewhere.result();
        }
        self.value.is_none()
    }

    fn is_elsewhere(&self) -> bool {
        self.value.is_none()
    }

    fn is_current(&mut self, _: &mut Data) -> Result<bool, Failure> {
        Ok(true)
    }

    fn finish(&mut self, data: &mut Data, args: &[&[u8]], reply: &mut Reply<'_>) -> Outcome {
        let key = data.key(args[1]);
        self.options.check(data, key)?;
        if let Some(value) = self.value.take() {
            self.options.put(self.server, data, key, value?, self.ttl_ms, args);
        }
        reply.ok();
        Ok(())
    }
}

fn damaged(error: &dyn std::fmt::Display) -> Failure {
    log::debug!("RESTORE refuses a payload, its integrity check failed: {error}");
    Failure::format(format!("ERR {error}"))
}

#[derive(Default)]
struct RestoreOptions {
    replace: bool,
    /// The time to live is a Unix time.
    absolute: bool,
    idle_seconds: Option<i64>,
    frequency: Option<u8>,
}

impl RestoreOptions {
    fn parse(call: &Call<'_>) -> Result<Self, Failure> {
        let mut options = Self::default();
        let mut at = 4;
        while at < call.args.len() {
            let has_value = at + 1 < call.args.len();
            if call.word_is(at, "replace") {
                options.replace = true;
            } else if call.word_is(at, "absttl") {
                options.absolute = true;
            } else if call.word_is(at, "idletime") && has_value && options.frequency.is_none() {
                at += 1;
                let seconds = call.integer(at)?;
                if seconds < 0 {
                    return Err("ERR Invalid IDLETIME value, must be >= 0".into());
                }
                options.idle_seconds = Some(seconds);
            } else if call.word_is(at, "freq") && has_value && options.idle_seconds.is_none() {
                at += 1;
                let frequency = u8::try_from(call.integer(at)?);
                let invalid = "ERR Invalid FREQ value, must be >= 0 and <= 255";
                options.frequency = Some(frequency.map_err(|_| invalid)?);
            } else {
                return Err(Failure::SYNTAX);
            }
            at += 1;
        }
        Ok(options)
    }

    /// Checks whether the key may get a value.
    fn check(&self, data: &mut Data, key: Key<'_>) -> Outcome {
        let is_there = data.write(key).is_some();
        if is_there && !self.replace { Err(BUSY_KEY) } else { Ok(()) }
    }

    /// Stores the value for `ttl_ms`, or until that time; 0: for ever. `args` are the command's.
    fn put(
        &self,
        server: &Server,
        data: &mut Data,
        key: Key<'_>,
        value: Restored,
        ttl_ms: i64,
        args: &[&[u8]],
    ) {
        let expire_ms = match ttl_ms {
            0 => None,
            _ if self.absolute => Some(ttl_ms),
            // As in Redis, an overflow wraps around, so the time has passed.
            _ => Some(ttl_ms.wrapping_add(data.conditions.now_ms)),
        };
        if expire_ms.is_some_and(|ms| data.is_past(ms)) {
            if data.remove(key) {
                // The new value replaced it: that it has expired already is no reason to tell.
                let command = data.conditions.deletes.emptied;
                data.propagate(&[command, key.bytes]);
                data.event(Classes::GENERIC, "del", key);
            }
            return;
        }
        let access = self.access(server, data);
        // The log may have been turned on meanwhile.
        let is_logged = data.is_logged();
        let Restored { value, logged } = value;
        let payload = logged.or_else(|| is_logged.then(|| value.payload(server)));
        data.install(key, value.into_entry(key, expire_ms, access));
        if let Some(payload) = payload {
            data.propagate_value(key, &payload, &args[4..]);
        }
        data.event(Classes::GENERIC, "restore", key);
    }

    /// The access bits of the new key. Values that the current policy does not use are ignored.
    fn access(&self, server: &Server, data: &Data) -> u32 {
        let clock = &data.conditions.clock;
        let is_lfu = server.config.maxmemory_policy().is_lfu();
        match (self.frequency, self.idle_seconds) {
            (Some(frequency), _) if is_lfu => clock.with_frequency(frequency),
            // Only the low bits are kept.
            (_, Some(seconds)) if !is_lfu => clock.idle_since(seconds as u32),
            _ => clock.fresh(),
        }
    }
}

const BUSY_KEY: Failure = Failure::new(&"BUSYKEY Target key name already exists.");

const RESTORE_SYNTAX: &str = "key ttl:int serialized-value [REPLACE @3.0.0] [ABSTTL @5.0.0] \
                              [IDLETIME seconds:int @5.0.0] [FREQ frequency:int @5.0.0]";
const RESTORE_HISTORY: &[(&str, &str)] = &[
    ("3.0.0", "Takes `REPLACE`."),
    ("5.0.0", "Takes `ABSTTL`."),
    ("5.0.0", "Takes `IDLETIME` and `FREQ`."),
];

pub(super) const COMMANDS: &[Command] = &[
    Command::new("dump", 2, dump)
        .flags(Flags::READONLY)
        .categories(Categories::KEYSPACE)
        .keys(&[KeySpec::at(1, KeyUse::READ_ONLY.with(KeyUse::ACCESS))])
        .doc(
            "generic",
            "2.6.0",
            "O(N), N: bytes of the value",
            "Answers a value as bytes for RESTORE.",
        )
        .syntax("key")
        .tips(&["nondeterministic_output"]),
    Command::new("restore", -4, restore)
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .categories(Categories::KEYSPACE.with(Categories::DANGEROUS))
        .keys(&[KeySpec::at(1, KeyUse::OVERWRITE.with(KeyUse::UPDATE))])
        .doc(
            "generic",
            "2.6.0",
            "O(N), N: bytes of the value; for a sorted set O(N*log(N)), N: members",
            "Makes a key hold a value that DUMP gave.",
        )
        .syntax(RESTORE_SYNTAX)
        .history(RESTORE_HISTORY),
    Command::new("restore-asking", -4, restore)
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::ASKING))
        .categories(Categories::KEYSPACE.with(Categories::DANGEROUS))
        .keys(&[KeySpec::at(1, KeyUse::OVERWRITE.with(KeyUse::UPDATE))])
        .doc(
            "server",
            "3.0.0",
            "O(N), N: bytes of the value; for a sorted set O(N*log(N)), N: members",
            "RESTORE, for a node of a cluster that the key is on its way to.",
        )
        .syntax(RESTORE_SYNTAX)
        .history(RESTORE_HISTORY),
];

#[cfg(test)]
mod tests {
    use bobbin_store::value::{HashLimits, ListLimits, SetLimits, SortedSetLimits};

    use crate::config::Config;

    #[test]
    fn the_limits_of_values_are_the_options_defaults() {
        let config = Config::new();
        let hash = HashLimits::default();
        assert_eq!(config.hash_max_listpack_entries() as usize, hash.packed_entries);
        assert_eq!(config.hash_max_listpack_value() as usize, hash.packed_value_len);
        let set = SetLimits::default();
        assert_eq!(config.set_max_intset_entries() as usize, set.intset_entries);
        assert_eq!(config.set_max_listpack_entries() as usize, set.packed_entries);
        assert_eq!(config.set_max_listpack_value() as usize, set.packed_value_len);
        let sorted_set = SortedSetLimits::default();
        assert_eq!(config.zset_max_listpack_entries() as usize, sorted_set.packed_entries);
        assert_eq!(config.zset_max_listpack_value() as usize, sorted_set.packed_value_len);
        assert_eq!(ListLimits::new(config.list_max_listpack_size()), ListLimits::default());
    }
}
