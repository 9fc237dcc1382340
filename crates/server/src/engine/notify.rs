//! Keyspace events: what happens to keys, for whoever listens.
//!
//! A handler says what it did (`Data::event`). Without listeners that costs one comparison; with
//! them the events of a command are published before its shards are unlocked, so that they come in
//! the order of the changes.

use std::sync::atomic::Ordering;

use crate::engine::command::flags::bits;
use crate::engine::pubsub::{Kind, Payload, Subscribers};
use crate::engine::server::Server;

bits! {
    /// Classes of events, each with its letter of `notify-keyspace-events`.
    Classes: u32 {
        /// Channels by key: `__keyspace@<db>__:<key>`.
        KEYSPACE = "K",
        /// Channels by event: `__keyevent@<db>__:<event>`.
        KEYEVENT = "E",
        GENERIC = "g",
        STRING = "$",
        LIST = "l",
        SET = "s",
        HASH = "h",
        SORTED_SET = "z",
        EXPIRED = "x",
        EVICTED = "e",
        STREAM = "t",
        MISS = "m",
        MODULE = "d",
        NEW = "n",
    }
}

impl Classes {
    /// Those that `A` stands for.
    pub const ALL: Self = Self::GENERIC
        .with(Self::STRING)
        .with(Self::LIST)
        .with(Self::SET)
        .with(Self::HASH)
        .with(Self::SORTED_SET)
        .with(Self::EXPIRED)
        .with(Self::EVICTED)
        .with(Self::STREAM)
        .with(Self::MODULE);

    /// The value of `notify-keyspace-events`: a letter for each class.
    pub fn parse(text: &[u8]) -> Option<Self> {
        text.iter().try_fold(Self::NONE, |classes, letter| {
            let class = match letter {
                b'A' => Self::ALL,
                letter => {
                    let named = |(_, name): &&(Self, &str)| name.as_bytes() == [*letter];
                    Self::NAMES.iter().find(named)?.0
                }
            };
            Some(classes.with(class))
        })
    }

    /// The letters, as Valkey writes them: `n` is no part of `A`, but not shown with it.
    pub fn text(self) -> String {
        let letters = Self::SHOWN.iter().filter(|(class, _)| self.has(*class));
        if Self::ALL.bits() & !self.bits() != 0 {
            return letters.map(|(_, letter)| *letter).collect();
        }
        let hidden = Self::ALL.with(Self::NEW);
        let rest = letters.filter(|(class, _)| !hidden.has(*class));
        "A".chars().chain(rest.map(|(_, letter)| *letter)).collect()
    }

    /// In the order in which they are shown.
    const SHOWN: [(Self, char); 14] = [
        (Self::GENERIC, 'g'),
        (Self::STRING, '$'),
        (Self::LIST, 'l'),
        (Self::SET, 's'),
        (Self::HASH, 'h'),
        (Self::SORTED_SET, 'z'),
        (Self::EXPIRED, 'x'),
        (Self::EVICTED, 'e'),
        (Self::STREAM, 't'),
        (Self::MODULE, 'd'),
        (Self::NEW, 'n'),
        (Self::KEYSPACE, 'K'),
        (Self::KEYEVENT, 'E'),
        (Self::MISS, 'm'),
    ];
}

impl Server {
    /// Which events somebody may listen to.
    #[inline]
    pub fn event_classes(&self) -> Classes {
        Classes::of_bits(self.event_classes.load(Ordering::Relaxed))
    }
}

/// Publishes an event, by key and by name, as far as that is asked for.
pub fn publish(subscribers: &mut Subscribers, event: &Event, asked: Classes) {
    if !asked.has(event.class) {
        return;
    }
    let (database, name) = (event.database, event.name.as_bytes());
    if asked.has(Classes::KEYSPACE) {
        let mut channel = format!("__keyspace@{database}__:").into_bytes();
        channel.extend_from_slice(&event.key);
        subscribers.publish(Kind::Channel, &channel, Payload::Bytes(name));
    }
    if asked.has(Classes::KEYEVENT) {
        let channel = format!("__keyevent@{database}__:{}", event.name);
        subscribers.publish(Kind::Channel, channel.as_bytes(), Payload::Bytes(&event.key));
    }
}

/// One thing that happened to a key.
#[derive(Debug)]
pub struct Event {
    pub class: Classes,
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
