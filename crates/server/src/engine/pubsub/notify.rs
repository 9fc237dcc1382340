//! Keyspace events: they tell clients that listen what happens to keys.
//!
//! A handler reports what it did (`Data::event`). Without listeners this costs one comparison.
//! Otherwise the events of a command are published before its shards are unlocked, so they come in
//! the order of the changes.

use std::sync::atomic::Ordering;

pub use crate::config::Classes;
use crate::engine::pubsub::{ChannelKind, MessagePayload, Subscribers};
use crate::engine::server::Server;

impl Server {
    /// The classes of events that clients may listen to.
    #[inline]
    pub fn event_classes(&self) -> Classes {
        Classes::of_bits(self.event_classes.load(Ordering::Relaxed))
    }
}

/// Publishes an event by key and by name, as far as the configuration asked for it when it
/// happened.
pub fn publish(subscribers: &mut Subscribers, event: &KeyspaceEvent) {
    let (asked, database, name) = (event.asked, event.database, event.name.as_bytes());
    if asked.has(Classes::KEYSPACE) {
        let mut channel = format!("__keyspace@{database}__:").into_bytes();
        channel.extend_from_slice(&event.key);
        subscribers.publish(ChannelKind::Channel, &channel, MessagePayload::Bytes(name));
    }
    if asked.has(Classes::KEYEVENT) {
        let channel = format!("__keyevent@{database}__:{}", event.name);
        subscribers.publish(
            ChannelKind::Channel,
            channel.as_bytes(),
            MessagePayload::Bytes(&event.key),
        );
    }
}

/// An event of a key.
#[derive(Debug)]
pub struct KeyspaceEvent {
    /// The classes that were asked for when it happened. A transaction may change them before its
    /// events are published.
    pub asked: Classes,
    pub name: &'static str,
    pub database: u32,
    pub key: Box<[u8]>,
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
