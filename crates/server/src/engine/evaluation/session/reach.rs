//! How a script gets the shards that its commands need.

use bobbin_store::KeyHash;

use super::{KeyAccess, ScriptSession, Unreached};
use crate::base::clock::ticks;
use crate::engine::command::plan::lone_key;
use crate::engine::command::{Flags, Registered};
use crate::engine::row::KeyShape;
use crate::engine::script::{GateWish, WaitRight};

impl ScriptSession {
    /// Locks the shards that the command needs. The hashes of its keys go to `lone` if it has one
    /// key, else to `hashes`.
    pub(super) fn reach(
        &mut self,
        command: &'static Registered,
        args: &[&[u8]],
        lone: &mut [KeyHash; 2],
        hashes: &mut Vec<KeyHash>,
    ) -> Result<(), Unreached> {
        let needs_all = command.has(Flags::GATE.with(Flags::WALKS))
            || command.row.gate_when.is_some_and(|condition| condition(args));
        if needs_all {
            self.reach_all(command)?;
        }
        if command.shape == KeyShape::First {
            *lone = lone_key(self.data().key(args[1]).hash);
            return self.reach_shard(lone[1].shard());
        }
        if command.shape == KeyShape::None {
            return Ok(());
        }
        *hashes = self.data().shard_set.take_hashes();
        hashes.clear();
        hashes.resize(args.len(), KeyHash::default());
        let mut reached = Ok(());
        command.key_positions(args, |at| {
            if reached.is_ok() {
                hashes[at] = self.data().key(args[at]).hash;
                reached = self.reach_shard(hashes[at].shard());
            }
        });
        reached
    }

    #[inline(always)]
    fn reach_shard(&mut self, shard: usize) -> Result<(), Unreached> {
        if self.declared.is_none() && self.data().holds(shard) {
            return Ok(());
        }
        self.reach_beyond(shard)
    }

    #[cold]
    fn reach_beyond(&mut self, shard: usize) -> Result<(), Unreached> {
        if self.declared.as_ref().is_some_and(|declared| !declared.contains(&shard)) {
            self.way = KeyAccess::Strayed;
        }
        if self.data().holds(shard) {
            return Ok(());
        }
        self.way = KeyAccess::Strayed;
        if self.data().hold_beyond(shard) {
            self.end_wait();
            return Ok(());
        }
        if self.is_narrow {
            return self.widen();
        }
        self.begin_anew()?;
        Err(self.wait(Some(shard)))
    }

    #[cold]
    fn reach_all(&mut self, command: &Registered) -> Result<(), Unreached> {
        self.way = KeyAccess::Strayed;
        if self.busy.is_some() && command.has(Flags::NOSCRIPT) {
            // Such a command may need the gate for more than keys.
            return Err(Unreached::Failed);
        }
        if self.data().holds_all() {
            return Ok(());
        }
        if !self.is_narrow {
            self.begin_anew()?;
            let wait = self.wait(None);
            if self.wait_right.is_none() || self.busy.is_none() {
                // A script that has the right to wait pauses first.
                return Err(wait);
            }
        }
        self.widen()
    }

    /// Locks everything for a paused script that may wait. The script waits while other units have
    /// shards reserved. None of those units waits for the shards of this script.
    fn widen(&mut self) -> Result<(), Unreached> {
        if self.data().widen() {
            self.is_narrow = false;
            self.end_wait();
            return Ok(());
        }
        let server = self.server;
        if self.wait_right.is_none() {
            self.wait_right = WaitRight::claim(server);
        }
        if self.wait_right.is_none() && self.has_no_patience() {
            // A script that began with everything held goes before the script that has the right
            // now.
            self.wait_right = Some(WaitRight::take(server));
        }
        if let Some(right) = &self.wait_right {
            right.wait_for(None);
        }
        self.gate_wish.get_or_insert_with(|| GateWish::new(server));
        self.waits_since.get_or_insert_with(ticks);
        Err(Unreached::Postponed)
    }

    /// The result of a command that needs a shard that others keep, or needs everything, in a
    /// script that cannot begin anew. Those others may wait for shards that this script keeps. So
    /// the script waits without a limit only if it has the right to wait, or if it does not keep
    /// the shard that the script with the right waits for.
    fn wait(&mut self, shard: Option<usize>) -> Unreached {
        let server = self.server;
        self.waits_since.get_or_insert_with(ticks);
        if self.wait_right.as_ref().is_some_and(|right| !right.is_valid()) {
            return Unreached::Failed;
        }
        if self.wait_right.is_none() && !self.stays {
            self.wait_right = WaitRight::claim(server);
        }
        if let Some(right) = &self.wait_right {
            right.wait_for(shard);
            return Unreached::Postponed;
        }
        let keeps =
            WaitRight::waited_for(server).is_none_or(|waited_for| self.data().holds(waited_for));
        if !self.stays && shard.is_some() && !keeps {
            return Unreached::Postponed;
        }
        if self.has_no_patience() { Unreached::Failed } else { Unreached::Postponed }
    }

    /// Whether the script has waited for `PATIENCE_US`.
    fn has_no_patience(&mut self) -> bool {
        let (now, server) = (ticks(), self.server);
        now >= *self.patience_until.get_or_insert_with(|| now + server.clock.ticks(PATIENCE_US))
    }

    /// Ends a wait: the script has the shards that it needed, or its command was refused. The time
    /// that it waited does not make the script slow, as nobody waited for its work.
    pub(super) fn end_wait(&mut self) {
        (self.gate_wish, self.wait_right, self.patience_until) = (None, None, None);
        if let Some(since) = self.waits_since.take() {
            self.leave_out(ticks() - since);
        }
    }

    /// Ends the run so that it begins anew with everything held, unless the script has changed
    /// something.
    fn begin_anew(&mut self) -> Result<(), Unreached> {
        if self.changed || !self.can_restart {
            return Ok(());
        }
        self.way = KeyAccess::Blocked;
        Err(Unreached::BeginAnew)
    }
}

/// How long a command waits for shards that others keep, in microseconds, if its script has no
/// right to wait longer.
const PATIENCE_US: u64 = 10_000;
