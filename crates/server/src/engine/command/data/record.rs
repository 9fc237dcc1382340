//! What a command leaves in the log.

use super::{Data, Key};
use crate::engine::log::append_restore;

impl Data {
    /// Whether changes are logged.
    #[inline(always)]
    pub const fn is_logged(&self) -> bool {
        self.recorder.is_on()
    }

    /// Logs this command instead of the one that the client sent.
    #[inline(always)]
    pub fn propagate(&mut self, args: &[&[u8]]) {
        self.unit.work.effects.be_explicit();
        self.log(args);
    }

    /// Logs the value that a key has now instead of the command that the client sent, as not every
    /// peer knows that, or makes the same value with it. `payload` is the value's, from
    /// `payload_of`; `words` are further options of RESTORE.
    pub fn propagate_value(&mut self, key: Key<'_>, payload: &[u8], words: &[&[u8]]) {
        self.unit.work.effects.be_explicit();
        if !self.recorder.is_on() {
            return;
        }
        // It may have been given a time that has passed, where nothing expires by itself.
        let number = self.database;
        let Some(database) = self.shard(key.hash.shard()).database(number) else { return };
        let Some(place) = database.find(key.hash, key.bytes) else { return };
        let mut commands = Vec::new();
        let count = append_restore(&mut commands, database.entry(place), payload, words);
        self.unit.note_logged();
        self.recorder.add_commands(&mut self.unit.work.effects, count, number, &commands);
    }

    /// Sends replicas this command instead of the one that the client sent. The log on disk gets
    /// neither.
    pub fn propagate_to_replicas(&mut self, args: &[&[u8]]) {
        self.unit.work.effects.be_explicit();
        if self.recorder.is_on() {
            self.unit.note_logged();
            self.recorder.add_for_replicas(&mut self.unit.work.effects, args);
        }
    }

    /// Logs that the command gave a key an expiry that has passed already.
    pub fn propagate_expired(&mut self, key: Key<'_>) {
        let command = self.conditions.deletes.expired;
        self.propagate(&[command, key.bytes]);
    }

    /// Keeps the command that the client sent out of the log, whatever it changed.
    #[inline(always)]
    pub fn propagate_nothing(&mut self) {
        self.unit.work.effects.be_explicit();
    }

    /// Logs a command that is done, if it changed something and did not choose another effect to
    /// log. `wire`: the bytes of the command, if they lie in one piece. `alone`: the command is a
    /// unit; returns its number if it has one already.
    pub fn log_command(
        &mut self,
        args: &[&[u8]],
        wire: &[u8],
        changed: bool,
        alone: bool,
    ) -> Option<u64> {
        self.unit.note_logged();
        if !changed || self.unit.work.effects.is_explicit() {
            return None;
        }
        if alone && self.unit.work.effects.is_empty() {
            let number = self.recorder.record_alone(self.database, args, wire);
            if number.is_some() {
                return number;
            }
        }
        self.recorder.add(&mut self.unit.work.effects, self.database, args);
        None
    }

    /// Logs a command in addition to the current one.
    pub fn log(&mut self, args: &[&[u8]]) {
        self.log_in(self.database, args);
    }

    /// Logs a command of any database in addition to the current one.
    pub(super) fn log_in(&mut self, database: u32, args: &[&[u8]]) {
        if self.recorder.is_on() {
            self.unit.note_logged();
            self.recorder.add(&mut self.unit.work.effects, database, args);
        }
    }

    /// Logs the deletion of a key that has expired.
    #[cold]
    pub(super) fn log_expired(&mut self, database: u32, key: &[u8]) {
        if self.recorder.logs_what_goes() {
            self.unit.note_logged();
            let args = [self.conditions.deletes.expired, key];
            self.recorder.add(&mut self.unit.work.effects, database, &args);
        }
    }
}
