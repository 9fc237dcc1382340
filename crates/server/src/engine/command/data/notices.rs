//! Telling others what happened to keys: the clients that listen to events, and those that keep
//! copies of keys.

use bobbin_store::{SHARDS, Shard};

use super::{Data, Key};
use crate::engine::client::Client;
use crate::engine::pubsub::Subscribers;
use crate::engine::pubsub::notify::{self, Classes};
use crate::engine::tracking::{AtWork, Notice, Tracker};

/// The clients that hear of what a thread does to keys.
#[derive(Default)]
pub struct Audience {
    /// Which events clients listen to.
    pub event_classes: Classes,
    /// What this worker's clients listen to; `None`: there are no clients.
    pub subscribers: Option<Box<Subscribers>>,
    /// Telling clients that keep copies of keys; `None`: there are no clients.
    pub tracker: Option<Box<Tracker>>,
    /// Some of them want to be told of all changes.
    pub(super) broadcasts: bool,
    /// The client whose job is at work, by number; 0: none.
    pub working_for: u64,
    /// The client that keys are evicted for, if it keeps copies; 0: none.
    pub evicting_for: u64,
}

impl Audience {
    /// Whether clients want to be told of all changes.
    pub const fn broadcasts(&self) -> bool {
        self.broadcasts
    }
}

impl Data {
    /// Publishes what happened to keys. To be called while their shards are held. What concerns the
    /// client at work follows its reply.
    #[cold]
    pub fn publish_notices(&mut self, client: Option<&Client>) {
        let tracks = client.and_then(|client| client.tracking.as_ref()).map(|tracked| tracked.id);
        let by = match client {
            Some(client) => tracks.unwrap_or(client.info.id),
            None => self.audience.working_for,
        };
        let at_work = match client {
            Some(_) => tracks.unwrap_or(0),
            None => self.audience.evicting_for,
        };
        self.publish_notices_of(by, at_work);
    }

    /// Publishes what serving a blocked client, by number, did to keys: it is that client's change,
    /// and not of the client at work.
    #[inline]
    pub fn publish_served(&mut self, waiting: u64) {
        if !self.unit.notices.is_empty() {
            self.publish_notices_of(waiting, 0);
        }
    }

    /// `by`: the client whose changes they are, by number. `at_work`: the client whose reply is not
    /// complete yet. 0: none.
    #[cold]
    fn publish_notices_of(&mut self, by: u64, at_work: u64) {
        let mut notices = std::mem::take(&mut self.unit.notices);
        if let Some(subscribers) = &mut self.audience.subscribers {
            for notice in &notices {
                match notice {
                    Notice::Event(event) => {
                        notify::publish(subscribers, event, self.audience.event_classes);
                    }
                    Notice::Message(publication) => subscribers.publish_late(publication),
                    _ => {
                        if let Some(tracker) = &mut self.audience.tracker {
                            let mut at_work = AtWork::new(at_work, subscribers.set_aside());
                            tracker.publish(notice, by, &mut at_work);
                        }
                    }
                }
            }
        }
        notices.clear();
        self.unit.settled = 0;
        self.unit.notices = notices;
    }

    /// Has what was sent to the client at work follow the reply of its job.
    pub fn take_own(&mut self, client: &mut Client) {
        if let Some(subscribers) = &mut self.audience.subscribers {
            let own = subscribers.own(client);
            client.behind.append(own);
        }
    }

    /// Notes which clients a key's change concerns. `by_client`: the client at work changed the
    /// key; otherwise the key went by itself.
    #[inline(never)]
    pub(super) fn tell_changed(&mut self, database: u32, key: Key<'_>, by_client: bool) {
        let shard = self.shard(key.hash.shard());
        let concerned = shard.key_changed(database, key.bytes, key.hash);
        if concerned.waiters {
            self.unit.ready.push_back((database, key.bytes.into()));
        }
        if let Some(readers) = concerned.readers {
            self.unit.notices.push(Notice::Invalid { key: key.bytes.into(), readers, by_client });
        }
        if self.audience.broadcasts {
            self.unit.notices.push(Notice::Changed { key: key.bytes.into(), by_client });
        }
    }

    /// A client, by number, keeps a copy of the key from now on.
    pub fn track(&mut self, key: Key<'_>, reader: u64) {
        let Some(mut tracker) = self.audience.tracker.take() else { return };
        let shard = self.shard(key.hash.shard());
        if shard.track(key.bytes, key.hash, reader, |other| tracker.is_there(other)) {
            tracker.count_added();
        }
        self.audience.tracker = Some(tracker);
    }

    /// Tells clients that want to be told of all changes, at the end of a turn, what changed in it.
    #[inline]
    pub fn broadcast(&mut self) {
        if let Some(tracker) = &mut self.audience.tracker {
            tracker.broadcast();
        }
    }

    /// No copy of any key is right any more; the gate is held.
    pub fn all_changed(&mut self) {
        for index in 0..SHARDS {
            self.visit(index, Shard::untrack_all);
        }
        self.unit.notices.push(Notice::AllInvalid);
    }
}
