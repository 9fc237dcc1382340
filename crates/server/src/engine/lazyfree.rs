//! Frees large values in a thread of its own.
//!
//! Giving a large block back may cost the kernel milliseconds. A thread that unlinks such a value
//! sends it here and goes on.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bobbin_io::error_text;
use bobbin_store::shard::{Flushed, FlushedEntries};
use bobbin_store::trim::{Trim, kept_max};
use bobbin_store::{OwnedEntry, ValueType};
use bobbin_sync::{Mutex, OwnLine};

use crate::base::clock::ticks;
use crate::base::cores::{self, CoreWork};
use crate::base::{allocator, memory};

/// What can be freed in the background.
pub enum Garbage {
    Entry(OwnedEntry),
    /// A thread waits until the token is dropped.
    Awaited(OwnedEntry, Arc<()>),
    /// What is in `FLUSHED`.
    Flushed,
    /// The allocator's free pages, which it would keep for later allocations.
    Pages,
    /// A holder of pinned values, which may hold the last reference to them.
    Pins(Box<dyn Send>),
}

static QUEUE: OnceLock<Sender<(Garbage, usize)>> = OnceLock::new();
/// The keys of whole databases, each shard's apart, in several lists. A thread that frees some
/// takes a shard's keys out for as long. It passes over lists that are locked, as the one that
/// locked a list may be the thread that leaves the cores to the workers.
static FLUSHED: [Mutex<Vec<FlushedEntries>>; FLUSHED_LISTS] =
    [const { Mutex::new(Vec::new()) }; FLUSHED_LISTS];
/// How many keys there are in them. Workers read it in every turn.
static FLUSHED_OBJECTS: OwnLine<AtomicUsize> = OwnLine(AtomicUsize::new(0));
static PENDING_OBJECTS: AtomicUsize = AtomicUsize::new(0);
static PENDING_BYTES: AtomicUsize = AtomicUsize::new(0);
static FREED_OBJECTS: AtomicU64 = AtomicU64::new(0);

/// Frees an entry: at once if that is quick, otherwise in the background. Returns whether it was
/// quick.
pub fn free(entry: OwnedEntry) -> bool {
    let value = entry.as_ref();
    let is_quick =
        value.is_light() || value.value_type() == ValueType::String && value.memory() < LARGE_BYTES;
    if is_quick {
        drop(entry);
    } else {
        let bytes = entry.as_ref().memory();
        send(Garbage::Entry(entry), 1, bytes);
    }
    is_quick
}

/// Frees an entry in the background, and then drops the token.
pub fn free_awaited(entry: OwnedEntry, token: Arc<()>) {
    let bytes = entry.as_ref().memory();
    send(Garbage::Awaited(entry, token), 1, bytes);
}

/// Makes the allocator give back free pages soon: many megabytes were freed that are not needed
/// again soon.
pub fn give_back_soon() {
    send(Garbage::Pages, 0, 0);
}

/// Frees whole databases in the background.
pub fn free_databases(flushed: Vec<Flushed>) {
    let objects: usize = flushed.iter().map(Flushed::len).sum();
    if objects == 0 {
        return;
    }
    FLUSHED_OBJECTS.0.fetch_add(objects, Ordering::Relaxed);
    let used = flushed.into_iter().filter(|keys| !keys.is_empty());
    for (number, keys) in used.enumerate() {
        FLUSHED[number % FLUSHED_LISTS].lock().push(keys.into_entries());
    }
    send(Garbage::Flushed, 0, 0);
}

/// Frees as many keys of databases that wait to be freed as a turn has changed, or somewhat more,
/// but not for long: until `deadline`, in ticks. The thread leaves the cores to the workers:
/// without this, busy workers could make new keys faster than the thread frees the old ones.
pub fn free_flushed_beside(changes: u64, deadline: u64) {
    let mut wanted = changes;
    while wanted > 0
        && let Some(freed) = free_flushed()
        && ticks() < deadline
    {
        wanted = wanted.saturating_sub(freed as u64);
    }
}

/// Frees as many keys of databases that wait to be freed as were loaded, or somewhat more. A thread
/// that loads keys calls this for each few of them, while it holds nothing. It serves no clients,
/// so it also frees large values itself: it makes such values faster than one thread in the
/// background frees them.
pub fn free_flushed_for_loaded(keys: usize) {
    let mut wanted = keys;
    while wanted > 0
        && let Some(freed) = free_flushed_by(|entry| {
            drop(entry);
            true
        })
    {
        wanted = wanted.saturating_sub(freed);
    }
}

/// Frees a few keys of databases that wait to be freed. Returns how many; `None`: none wait.
/// Workers that need memory call this before they evict keys.
pub fn free_flushed() -> Option<usize> {
    free_flushed_by(free)
}

/// Frees a few keys by `free`, which returns whether the key is freed already.
fn free_flushed_by(free: impl FnMut(OwnedEntry) -> bool) -> Option<usize> {
    let left = FLUSHED_OBJECTS.0.load(Ordering::Relaxed);
    if left == 0 {
        return None;
    }
    // Which list comes first changes, so all of them keep some.
    let (last, first) = FLUSHED.split_at(left % FLUSHED_LISTS);
    let mut lists = first.iter().chain(last);
    let take = |list: &Mutex<Vec<_>>| {
        let mut list = list.try_lock()?;
        let taken = list.pop();
        list.trim(kept_max::<FlushedEntries>());
        taken
    };
    let mut entries = lists.clone().find_map(take)?;
    let before = entries.len();
    let freed = entries.by_ref().take(FLUSHED_AT_ONCE).map(free).filter(|quick| *quick).count();
    let taken = before - entries.len();
    // An empty one would stay: nobody looks for it once all keys are gone.
    if entries.len() > 0 {
        let list = lists.find_map(Mutex::try_lock);
        list.unwrap_or_else(|| FLUSHED[0].lock()).push(entries);
    }
    FLUSHED_OBJECTS.0.fetch_sub(taken, Ordering::Relaxed);
    FREED_OBJECTS.fetch_add(freed as u64, Ordering::Relaxed);
    Some(taken)
}

/// Frees the holder of pinned values in the background, for example a job, together with its pins.
pub fn free_pins(holder: Box<dyn Send>) {
    send(Garbage::Pins(holder), 0, 0);
}

fn send(garbage: Garbage, objects: usize, bytes: usize) {
    let Some(queue) = QUEUE.get().or_else(start) else {
        dispose(garbage);
        FREED_OBJECTS.fetch_add(objects as u64, Ordering::Relaxed);
        return;
    };
    PENDING_OBJECTS.fetch_add(objects, Ordering::Relaxed);
    PENDING_BYTES.fetch_add(bytes, Ordering::Relaxed);
    // The thread never ends, so it takes everything.
    drop(queue.send((garbage, objects)));
}

/// Starts the thread, unless that has failed a moment ago. Without it, values are freed in place.
#[cold]
fn start() -> Option<&'static Sender<(Garbage, usize)>> {
    static FAILED: Mutex<Option<Instant>> = Mutex::new(None);
    let mut failed = FAILED.lock();
    if QUEUE.get().is_some() || failed.is_some_and(|at| at.elapsed() < RETRY_PAUSE) {
        return QUEUE.get();
    }
    let (sender, receiver) = channel();
    let run = move || free_all(&receiver);
    match std::thread::Builder::new().name("bobbin-lazyfree".into()).spawn(run) {
        Ok(_) => Some(QUEUE.get_or_init(|| sender)),
        Err(error) => {
            if failed.replace(Instant::now()).is_none() {
                log::warn!(
                    "Cannot start the lazy free thread, values are freed in place: {}",
                    error_text(&error)
                );
            }
            None
        }
    }
}

/// The thread: frees what comes, for ever.
fn free_all(receiver: &Receiver<(Garbage, usize)>) {
    cores::step_aside();
    cores::go_to(CoreWork::Background);
    memory::give_way_while_freeing();
    let mut pages_at: Option<Instant> = None;
    loop {
        let received = match pages_at {
            Some(at) => receiver.recv_timeout(at.saturating_duration_since(Instant::now())),
            None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let (garbage, objects) = match received {
            Ok(received) => received,
            Err(RecvTimeoutError::Timeout) => {
                allocator::purge();
                pages_at = None;
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let bytes = match &garbage {
            Garbage::Entry(entry) | Garbage::Awaited(entry, _) => entry.as_ref().memory(),
            Garbage::Flushed | Garbage::Pins(_) => 0,
            Garbage::Pages => {
                pages_at.get_or_insert_with(|| Instant::now() + PAGES_PAUSE);
                0
            }
        };
        dispose(garbage);
        // The memory in use must be up to date before the value stops counting as pending.
        memory::settle();
        PENDING_OBJECTS.fetch_sub(objects, Ordering::Relaxed);
        PENDING_BYTES.fetch_sub(bytes, Ordering::Relaxed);
        FREED_OBJECTS.fetch_add(objects as u64, Ordering::Relaxed);
    }
}

fn dispose(garbage: Garbage) {
    if let Garbage::Flushed = garbage {
        while FLUSHED_OBJECTS.0.load(Ordering::Relaxed) > 0 {
            if free_flushed().is_none() {
                cores::give_way();
            }
        }
    }
}

/// Holds up the thread that frees until the sender is dropped.
#[cfg(test)]
pub fn hold_up() -> Sender<()> {
    struct WaitsWhenDropped(Receiver<()>);
    impl Drop for WaitsWhenDropped {
        fn drop(&mut self) {
            self.0.recv().ok();
        }
    }
    let (goes_on, waits) = channel();
    free_pins(Box::new(WaitsWhenDropped(waits)));
    goes_on
}

/// Takes out all keys that wait to be freed. Returns how many of them begin with `prefix`.
#[cfg(test)]
pub fn take_flushed(prefix: &[u8]) -> usize {
    let lists: Vec<_> = FLUSHED.iter().map(|list| std::mem::take(&mut *list.lock())).collect();
    let (mut taken, mut found) = (0, 0);
    for entry in lists.into_iter().flatten().flatten() {
        taken += 1;
        found += usize::from(entry.as_ref().key().starts_with(prefix));
    }
    FLUSHED_OBJECTS.0.fetch_sub(taken, Ordering::Relaxed);
    found
}

/// The number of objects that wait to be freed.
pub fn pending_objects() -> usize {
    PENDING_OBJECTS.load(Ordering::Relaxed) + FLUSHED_OBJECTS.0.load(Ordering::Relaxed)
}

/// Bytes of the values that wait to be freed, as far as they are known.
pub fn pending_bytes() -> usize {
    PENDING_BYTES.load(Ordering::Relaxed)
}

/// The number of objects freed in the background since the start or CONFIG RESETSTAT.
pub fn freed_objects() -> u64 {
    FREED_OBJECTS.load(Ordering::Relaxed)
}

pub fn reset_freed_objects() {
    FREED_OBJECTS.store(0, Ordering::Relaxed);
}

/// How long to wait before the thread is tried again, if it could not be started.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How long to wait for more garbage before pages are given back.
const PAGES_PAUSE: Duration = Duration::from_millis(100);
/// How many keys of a database are freed before the time is looked at: some ten microseconds.
pub const FLUSHED_AT_ONCE: usize = 64;
const FLUSHED_LISTS: usize = 16;
/// Strings of this many bytes are freed in the background, and other values of many blocks.
const LARGE_BYTES: usize = 64 * 1024;
