//! Keyspace events: they tell clients that listen what happens to keys.
//!
//! A handler reports what it did (`Data::event`). Without listeners this costs one comparison.
//! Otherwise the events of a command are published before its shards are unlocked, so they come in
//! the order of the changes.

use std::sync::atomic::Ordering;

pub use crate::config::Classes;
use crate::engine::server::Server;

impl Server {
    /// The classes of events that clients may listen to.
    #[inline]
    pub fn event_classes(&self) -> Classes {
        Classes::of_bits(self.event_classes.load(Ordering::Relaxed))
    }
}

/// Calls `f` with the channels and messages of an event: by key and by name, as far as `classes`
/// ask for them.
pub fn each_message(
    classes: Classes,
    name: &str,
    database: u32,
    key: &[u8],
    mut f: impl FnMut(&[u8], &[u8]),
) {
    if classes.has(Classes::KEYSPACE) {
        let mut channel = format!("__keyspace@{database}__:").into_bytes();
        channel.extend_from_slice(key);
        f(&channel, name.as_bytes());
    }
    if classes.has(Classes::KEYEVENT) {
        f(format!("__keyevent@{database}__:{name}").as_bytes(), key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // As valkey-server 9.1.2 answers CONFIG GET.
    #[test]
    fn letters() {
        for (given, shown) in [
            ("", ""),
            ("A", "A"),
            ("KEAn", "AKE"),
            ("K", "K"),
            ("KEA", "AKE"),
            ("KEAmn", "AKEm"),
            ("g$lszhxetdmn", "Am"),
            ("gx$", "g$x"),
            ("Kg$lshzxet", "g$lshzxetK"),
            ("nmdt", "tdnm"),
            ("Eln", "lnE"),
        ] {
            assert_eq!(Classes::parse(given.as_bytes()).map(Classes::text).as_deref(), Some(shown));
        }
        assert_eq!(Classes::parse(b"KEq"), None);
        assert!(!Classes::parse(b"A").unwrap().has(Classes::NEW.with(Classes::MISS)));
    }
}
