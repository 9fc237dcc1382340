//! Freeing large values on a thread of its own.
//!
//! Giving a large block back may cost the kernel milliseconds. A thread that unlinks such a value
//! sends it here and goes on.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bobbin_store::shard::Database;
use bobbin_store::{Kind, OwnedEntry};

use crate::base::cores::{self, CoreWork};
use crate::base::{allocator, memory};

/// What can be freed in the background.
pub enum Garbage {
    Entry(OwnedEntry),
    /// A thread waits until the token is dropped.
    Awaited(OwnedEntry, Arc<()>),
    Databases(Vec<Database>),
    /// The allocator must give back what it keeps for later allocations.
    Pages,
    /// What pinned values, and may be the last to hold one of them.
    Pins(Box<dyn Send>),
}

static QUEUE: OnceLock<Sender<(Garbage, usize)>> = OnceLock::new();
static PENDING_OBJECTS: AtomicUsize = AtomicUsize::new(0);
static PENDING_BYTES: AtomicUsize = AtomicUsize::new(0);
static FREED_OBJECTS: AtomicU64 = AtomicU64::new(0);

/// Frees an entry: at once when that is quick, else in the background.
pub fn free(entry: OwnedEntry) {
    let value = entry.as_ref();
    if value.is_light() || value.kind() == Kind::String && value.memory() < LARGE_BYTES {
        drop(entry);
    } else {
        let bytes = entry.as_ref().memory();
        send(Garbage::Entry(entry), 1, bytes);
    }
}

/// Frees an entry in the background, and then drops the token.
pub fn free_awaited(entry: OwnedEntry, token: Arc<()>) {
    let bytes = entry.as_ref().memory();
    send(Garbage::Awaited(entry, token), 1, bytes);
}

/// Has the allocator give back what it keeps: many megabytes were freed that no thread needs so
/// soon again.
pub fn give_back_soon() {
    send(Garbage::Pages, 0, 0);
}

/// Frees whole databases in the background. `bytes` is a guess of their memory.
pub fn free_databases(databases: Vec<Database>) {
    let objects = databases.iter().map(Database::len).sum();
    if objects > 0 {
        send(Garbage::Databases(databases), objects, 0);
    }
}

/// Frees what is done with values that it pinned, a job say, and with it those values.
pub fn free_pins(holder: Box<dyn Send>) {
    send(Garbage::Pins(holder), 0, 0);
}

fn send(garbage: Garbage, objects: usize, bytes: usize) {
    PENDING_OBJECTS.fetch_add(objects, Ordering::Relaxed);
    PENDING_BYTES.fetch_add(bytes, Ordering::Relaxed);
    let queue = QUEUE.get_or_init(|| {
        let (sender, receiver) = channel::<(Garbage, usize)>();
        let run = move || {
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
                    Garbage::Databases(_) | Garbage::Pins(_) => 0,
                    Garbage::Pages => {
                        pages_at.get_or_insert_with(|| Instant::now() + PAGES_PAUSE);
                        0
                    }
                };
                drop(garbage);
                // What is no longer pending must not be taken for what is in use.
                memory::settle();
                PENDING_OBJECTS.fetch_sub(objects, Ordering::Relaxed);
                PENDING_BYTES.fetch_sub(bytes, Ordering::Relaxed);
                FREED_OBJECTS.fetch_add(objects as u64, Ordering::Relaxed);
            }
        };
        let spawned = std::thread::Builder::new().name("bobbin-lazyfree".into()).spawn(run);
        if let Err(error) = spawned {
            log::warn!("Cannot start the lazy free thread, values are freed in place: {error}");
        }
        sender
    });
    // Without the thread the value comes back in the error, and is freed here.
    drop(queue.send((garbage, objects)));
}

/// Objects that wait to be freed.
pub fn pending_objects() -> usize {
    PENDING_OBJECTS.load(Ordering::Relaxed)
}

/// Bytes that wait to be freed, as far as they are known.
pub fn pending_bytes() -> usize {
    PENDING_BYTES.load(Ordering::Relaxed)
}

/// Objects freed in the background since the start, or since CONFIG RESETSTAT.
pub fn freed_objects() -> u64 {
    FREED_OBJECTS.load(Ordering::Relaxed)
}

pub fn reset_freed_objects() {
    FREED_OBJECTS.store(0, Ordering::Relaxed);
}

/// How long it is waited for more that is freed before pages are given back.
const PAGES_PAUSE: Duration = Duration::from_millis(100);
/// Strings of this many bytes are freed in the background; of other values those of many blocks.
const LARGE_BYTES: usize = 64 * 1024;
