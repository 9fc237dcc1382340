//! How many cores this process may use.

use std::num::NonZero;
use std::sync::OnceLock;
use std::thread::available_parallelism;

/// As the system says at the first call (affinity and control groups included); asking reads several files.
pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| available_parallelism().map_or(1, NonZero::get))
}
