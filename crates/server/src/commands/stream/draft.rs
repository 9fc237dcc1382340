//! A draft of a consumer group: a long command works on it with nothing locked. In the end the
//! draft replaces the group, if no other client has changed the group meanwhile.

use bobbin_store::value::stream::ConsumerGroup;
use bobbin_store::value::{Collection, Stream};
use bobbin_store::{NewValue, OwnedEntry};

use crate::engine::command::{Data, Failure, Key};

pub(super) struct GroupDraft {
    pub key: Box<[u8]>,
    pub name: Box<[u8]>,
    /// The entries, and the group in its old state.
    pub pinned: Stream,
    /// The group in its new state.
    pub group: ConsumerGroup,
}

impl GroupDraft {
    /// `None`: the stream has no such group.
    pub(super) fn new(key: &[u8], name: &[u8], stream: &Stream) -> Option<Self> {
        let (pinned, group) = (stream.clone(), stream.groups().get(name)?.clone());
        Some(Self { key: key.into(), name: name.into(), pinned, group })
    }

    /// Whether the stream differs from the pinned one at most by new entries, which the draft then
    /// gets. If not, the draft becomes the group's current state. `None`: the group does not exist
    /// now.
    pub(super) fn is_current(&mut self, data: &mut Data) -> Result<Option<bool>, Failure> {
        let now = match data.peek(data.key(&self.key)) {
            Some(entry) => entry.collection::<Stream>().ok_or(Failure::WRONG_TYPE)?.clone(),
            None => return Ok(None),
        };
        let Some(group) = now.groups().get(&self.name) else { return Ok(None) };
        let is_current = now.groups().is_same(self.pinned.groups(), &self.name)
            && now.log().only_grew(self.pinned.log());
        if !is_current {
            self.group = group.clone();
        }
        self.pinned = now;
        Ok(Some(is_current))
    }

    /// Replaces the group by the draft, which must not be used afterwards.
    pub(super) fn put(&mut self, data: &mut Data, key: Key<'_>) -> Result<(), Failure> {
        if let Some(stream) = data.write_as::<Stream>(key)? {
            stream.groups_mut().replace(&self.name, std::mem::take(&mut self.group));
        }
        // Freeing the old group may take long.
        let old = NewValue::Collection(std::mem::take(&mut self.pinned).into_any());
        data.discard(OwnedEntry::new(&[], old, None, 0));
        Ok(())
    }
}
