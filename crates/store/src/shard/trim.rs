//! Maps that were large for a while give their memory back.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Gives memory back if seven eighths of it are unused. To be called when something was removed:
/// a call that copies comes after as many removals as it copies elements.
pub fn trim<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if map.len() * 8 < map.capacity() {
        map.shrink_to(2 * map.len());
    }
}
