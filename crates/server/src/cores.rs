//! How many cores this process may use.

use std::num::NonZero;
use std::sync::OnceLock;
use std::thread::available_parallelism;

/// As the system says at the first call (affinity and control groups included); asking reads several files.
pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| available_parallelism().map_or(1, NonZero::get))
}

/// Lets another thread have the core, if one waits for it. To be called again and again by whoever has long work to do
/// and never sleeps: who is woken meanwhile, a worker with a small command say, would wait until the time of the
/// calling thread is used up, milliseconds.
pub fn give_way() {
    std::thread::yield_now();
}
