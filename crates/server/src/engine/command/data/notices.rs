//! Tells clients what happened to keys: those that listen to events, and those that keep copies of
//! keys.

use bobbin_store::{SHARDS, Shard};

use super::{Data, Key};
use crate::engine::client::Client;
use crate::engine::pubsub::notify::{self, Classes};
use crate::engine::pubsub::{ChannelKind, MessagePayload, Publication, Subscribers};
use crate::engine::tracking::{AtWork, ChangedBy, Notice, Tracker};

/// The clients that are told what a thread does to keys.
#[derive(Default)]
pub struct Audience {
    /// The classes of events that clients listen to.
    pub event_classes: Classes,
    /// The subscriptions of this worker's clients; `None` for a thread without clients.
    pub subscribers: Option<Box<Subscribers>>,
    /// Tells clients that keep copies of keys; `None` for a thread without clients.
    pub tracker: Option<Box<Tracker>>,
    /// Whether some of them want to be told of all changes.
    pub(super) broadcasts: bool,
    /// The number of the client whose job is being worked on; 0 if there is none.
    pub working_for: u64,
    /// The number of the client whose reply follows or is being made, if that client keeps copies;
    /// otherwise 0.
    pub replying_to: u64,
}

impl Audience {
    /// Whether some clients want to be told of all changes.
    pub const fn broadcasts(&self) -> bool {
        self.broadcasts
    }

    /// Whether another worker has to catch up with the messages that this worker's clients cause.
    pub fn is_overrun(&mut self) -> bool {
        self.subscribers.as_mut().is_some_and(|subscribers| subscribers.is_overrun())
    }

    /// A number that grows with each message that overruns a worker.
    pub fn overruns(&self) -> u64 {
        self.subscribers.as_ref().map_or(0, |subscribers| subscribers.overruns())
    }
}

impl Data {
    /// Notes an event of a key, if clients may listen to its class.
    #[inline(always)]
    pub(super) fn note_event(
        &mut self,
        class: Classes,
        name: &'static str,
        database: u32,
        key: &[u8],
    ) {
        if self.audience.event_classes.has(class) {
            self.push_event(name, database, key);
        }
    }

    #[cold]
    fn push_event(&mut self, name: &'static str, database: u32, key: &[u8]) {
        let Some(subscribers) = &self.audience.subscribers else { return };
        if subscribers.is_silent(ChannelKind::Channel) {
            return;
        }
        let (classes, notices) = (self.audience.event_classes, &mut self.unit.work.notices);
        notify::each_message(classes, name, database, key, |channel, payload| {
            // A client that begins to listen before the unit ends does so after the event.
            if subscribers.count(ChannelKind::Channel, channel) > 0 {
                let payload = MessagePayload::Bytes(payload);
                let publication = Publication::new(ChannelKind::Channel, channel, payload);
                notices.push(Notice::Message(publication));
            }
        });
    }

    /// Publishes what happened to keys. To be called while their shards are held. Messages for the
    /// current client follow its reply.
    #[cold]
    pub fn publish_notices(&mut self, client: Option<&Client>) {
        let tracks = client.and_then(|client| client.tracking.as_ref()).map(|tracked| tracked.id);
        let by = match client {
            Some(client) => tracks.unwrap_or(client.info.id),
            None => self.audience.working_for,
        };
        let at_work = match client {
            Some(_) => tracks.unwrap_or(0),
            None => self.audience.replying_to,
        };
        self.publish_notices_of(by, at_work);
    }

    /// Publishes what serving a blocked client did to keys. The change counts as that client's,
    /// whose number is `waiting`, and not as the current client's.
    #[inline]
    pub fn publish_served(&mut self, waiting: u64) {
        if !self.unit.work.notices.is_empty() {
            self.publish_notices_of(waiting, 0);
        }
    }

    /// `by`: the number of the client that made the changes. `at_work`: the number of the client
    /// whose reply is not complete yet. 0 if there is none.
    #[cold]
    fn publish_notices_of(&mut self, by: u64, at_work: u64) {
        let notices = self.unit.work.notices.take();
        if let Some(subscribers) = &mut self.audience.subscribers {
            for notice in &notices {
                match notice {
                    Notice::Message(publication) => subscribers.publish_late(publication),
                    _ => {
                        if let Some(tracker) = &mut self.audience.tracker {
                            let mut at_work = AtWork::new(at_work, subscribers.invalid_aside());
                            tracker.publish(notice, by, &mut at_work);
                            let overrun = at_work.overrun;
                            subscribers.note_overrun(overrun);
                        }
                    }
                }
            }
        }
        self.unit.work.notices.put_back(notices);
    }

    /// Puts messages that were sent to the current client behind the reply of its job.
    pub fn take_own(&mut self, client: &mut Client) {
        if let Some(subscribers) = &mut self.audience.subscribers {
            let own = subscribers.own(client);
            client.behind.append(own);
        }
    }

    /// Notes which clients a change of the key concerns.
    #[inline(never)]
    pub(super) fn tell_changed(&mut self, database: u32, key: Key<'_>, by: ChangedBy) {
        let shard = self.shard(key.hash.shard());
        let concerned = shard.key_changed(database, key.bytes, key.hash);
        if concerned.waiters {
            self.unit.work.ready.push((database, key.bytes.into()));
        }
        if let Some(readers) = concerned.readers {
            self.unit.work.notices.push(Notice::Invalid { key: key.bytes.into(), readers, by });
        }
        if self.audience.broadcasts {
            self.unit.work.notices.push(Notice::Changed { key: key.bytes.into(), by });
        }
    }

    /// Notes that a client, given by its number, keeps a copy of the key.
    pub fn track(&mut self, key: Key<'_>, reader: u64) {
        let Some(mut tracker) = self.audience.tracker.take() else { return };
        let shard = self.shard(key.hash.shard());
        if shard.track(key.bytes, key.hash, reader, |other| tracker.is_there(other)) {
            tracker.count_added();
        }
        self.audience.tracker = Some(tracker);
    }

    /// At the end of a turn: tells the clients that want to know of all changes.
    #[inline]
    pub fn broadcast(&mut self) {
        if let Some(tracker) = &mut self.audience.tracker
            && let overrun @ Some(_) = tracker.broadcast()
            && let Some(subscribers) = &mut self.audience.subscribers
        {
            subscribers.note_overrun(overrun);
        }
    }

    /// Declares all copies of all keys invalid; the gate is held.
    pub fn all_changed(&mut self) {
        if self.audience.tracker.as_ref().is_some_and(|tracker| tracker.is_new()) {
            return;
        }
        for index in 0..SHARDS {
            self.visit(index, Shard::untrack_all);
        }
        self.unit.work.notices.push(Notice::AllInvalid);
    }
}
