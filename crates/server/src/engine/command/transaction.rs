//! What MULTI queues and what WATCH guards.

use std::ops::Range;
use std::sync::atomic::Ordering;

use bobbin_store::KeyHash;
use bobbin_store::entry::SharedString;

use super::call::Request;
use super::{Flags, Registered};
use crate::engine::clients::ClientInfo;
use crate::engine::row::words::Words;

/// A transaction that is being queued.
#[derive(Default)]
pub struct Transaction {
    pub queue: Vec<Queued>,
    /// The words of all queued commands.
    pub words: Words,
    /// Whether a command was refused. Then EXEC will be refused too.
    pub spoiled: bool,
    /// The flags that at least one queued command or its script has.
    pub flags: Flags,
    /// The flags that at least one queued command or its script lacks.
    pub missing: Flags,
    /// Whether memory was full when EXEC came, and nothing could be evicted.
    pub is_oom: bool,
    /// The database that a queued SELECT will select.
    pub database: Option<u32>,
}

/// A queued command, and the range of its words among the transaction's.
pub struct Queued {
    pub command: &'static Registered,
    pub args: Range<usize>,
    /// The hash of the first key. It is meaningful only if that is argument 1.
    pub first_hash: KeyHash,
}

/// A key that a client watches.
pub struct WatchedKey {
    pub database: u32,
    pub key: Box<[u8]>,
    pub version: u64,
    /// Whether the key had already expired. Then its removal is no change.
    pub stale: bool,
}

impl Transaction {
    /// Whether a queued command has one of these flags.
    pub fn has(&self, flags: Flags) -> bool {
        self.flags.has(flags)
    }

    /// The database that the queued commands select; `None` if they select none.
    pub const fn database(&self) -> Option<u32> {
        self.database
    }

    /// Bytes of the arguments, as `client-query-buffer-limit` counts them.
    pub const fn argument_bytes(&self) -> usize {
        self.words.byte_len() + self.words.count() * ARGUMENT_BYTES
    }

    /// Notes that EXEC will refuse the transaction, and forgets what was queued.
    pub fn spoil(&mut self, info: &ClientInfo) {
        *self = Self { spoiled: true, ..Self::default() };
        info.queued.store(0, Ordering::Relaxed);
        info.queued_bytes.store(0, Ordering::Relaxed);
    }

    /// Queues a command, unless the transaction is spoiled. `flags` are the command's own, or
    /// follow from the flags of its script.
    pub fn queue(
        &mut self,
        request: &Request<'_>,
        command: &'static Registered,
        flags: Flags,
        info: &ClientInfo,
    ) {
        if self.spoiled {
            // EXEC will refuse it.
            return;
        }
        let first = self.words.count();
        for arg in request.args {
            self.words.push(arg, |arg| SharedString::new(arg.to_vec()));
        }
        self.flags = self.flags.with(flags);
        self.missing = self.missing.with(Flags::of_bits(!flags.bits()));
        if command.has(Flags::SELECTS) {
            let number = request.args.get(1).and_then(|word| bobbin_resp::parse_i64(word));
            self.database = number.and_then(|number| u32::try_from(number).ok()).or(self.database);
        }
        let (args, first_hash) = (first..self.words.count(), request.first_hash);
        self.queue.push(Queued { command, args, first_hash });
        info.queued.store(self.queue.len() as i64, Ordering::Relaxed);
        info.queued_bytes.store(self.memory(), Ordering::Relaxed);
    }

    fn memory(&self) -> usize {
        self.words.memory() + self.queue.capacity() * size_of::<Queued>()
    }
}

/// What Redis counts for each argument beside its bytes: a pointer.
const ARGUMENT_BYTES: usize = 8;
