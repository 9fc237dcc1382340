//! How a run of a script gets at the shards that its commands need.

use bobbin_store::Hash;

use super::{PATIENCE, PAUSE, ScriptSession, Unreached, Way};
use crate::engine::command::plan::lone_key;
use crate::engine::command::{Flags, Registered};
use crate::engine::row::KeyShape;
use crate::engine::script::GateWish;

impl ScriptSession {
    /// Holds what the command needs; its plan goes to `lone`, or to `hashes` if it may have several
    /// keys.
    pub(super) fn reach(
        &mut self,
        command: &'static Registered,
        args: &[&[u8]],
        lone: &mut [Hash; 2],
        hashes: &mut Vec<Hash>,
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
        hashes.resize(args.len(), Hash::default());
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
            self.way = Way::Strayed;
        }
        if self.data().holds(shard) {
            return Ok(());
        }
        self.way = Way::Strayed;
        if self.data().hold_beyond(shard) {
            return Ok(());
        }
        self.widen()?;
        if self.data().holds(shard) {
            return Ok(());
        }
        self.begin_anew()?;
        // The thread that holds it may wait for what is held here, so that waiting must have an
        // end.
        for _ in 0..PATIENCE {
            std::thread::sleep(PAUSE);
            if self.data().hold_beyond(shard) {
                return Ok(());
            }
        }
        Err(Unreached::Failed)
    }

    #[cold]
    fn reach_all(&mut self, command: &Registered) -> Result<(), Unreached> {
        self.way = Way::Strayed;
        if self.busy.is_some() && command.has(Flags::NOSCRIPT) {
            // It may need the gate for more than keys.
            return Err(Unreached::Failed);
        }
        self.widen()?;
        if self.data().holds_all() {
            return Ok(());
        }
        self.begin_anew()?;
        Err(Unreached::Failed)
    }

    /// Holds everything, if the script did before. It waits while others have something reserved:
    /// none of them waits for what it holds.
    fn widen(&mut self) -> Result<(), Unreached> {
        if !self.is_narrow {
            return Ok(());
        }
        if self.data().widen() {
            self.is_narrow = false;
            self.gate_wish = None;
            return Ok(());
        }
        let server = self.server;
        self.gate_wish.get_or_insert_with(|| GateWish::new(server));
        Err(Unreached::Postponed)
    }

    /// Ends the run, so that it begins anew with everything held; unless it has changed something.
    fn begin_anew(&mut self) -> Result<(), Unreached> {
        if self.changed || !self.can_restart {
            return Ok(());
        }
        self.way = Way::Blocked;
        Err(Unreached::BeginAnew)
    }
}
