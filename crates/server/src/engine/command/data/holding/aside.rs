//! Shards that a paused script or transaction keeps reserved.

use bobbin_store::{Keyspace, SHARDS, ShardGuard};

use super::{Data, HeldShards};

/// The shards that a paused script or transaction keeps reserved.
pub struct Aside {
    /// The reserved shards, ascending; `None` for every shard.
    pub(super) shards: Option<Vec<usize>>,
    /// The shards that were used in this slice, ascending.
    pub(super) entered: Vec<ShardGuard<'static>>,
}

impl Aside {
    pub(super) fn has(&self, shard: usize) -> bool {
        self.shards.as_ref().is_none_or(|shards| shards.binary_search(&shard).is_ok())
    }

    pub(super) fn last(&self) -> Option<usize> {
        self.shards.as_ref().map_or(Some(SHARDS - 1), |shards| shards.last().copied())
    }

    /// Adds a shard.
    pub(super) fn add(&mut self, guard: ShardGuard<'static>) {
        let shard = guard.index();
        if let Some(shards) = &mut self.shards
            && let Err(at) = shards.binary_search(&shard)
        {
            shards.insert(at, shard);
        }
        let at = self.entered.partition_point(|other| other.index() < shard);
        self.entered.insert(at, guard);
    }

    /// The index of a shard among the entered ones. The shard is entered first if necessary.
    #[cold]
    #[inline(never)]
    pub(super) fn enter(&mut self, keyspace: &'static Keyspace, shard: usize) -> usize {
        self.entered.binary_search_by_key(&shard, ShardGuard::index).unwrap_or_else(|at| {
            assert!(self.has(shard), "shard {shard} is not held");
            self.entered.insert(at, keyspace.enter_reserved(shard));
            at
        })
    }
}

impl Data {
    /// Unlocks everything that is held, and reserves it until it is taken back. Others must not see
    /// a part of the changes, so the effects so far must have been taken out before.
    ///
    /// If the gate is held, `narrow` names the only shards (ascending, without repeats) that are
    /// reserved.
    pub(in crate::engine::command::data) fn set_aside(
        &mut self,
        narrow: Option<Vec<usize>>,
    ) -> Box<Aside> {
        self.unit.check_end();
        let held = std::mem::take(&mut self.unit.held);
        if !matches!(held, HeldShards::Reserved(_)) {
            self.holding.gate.reserve(true);
        }
        let reserve = |guard: ShardGuard<'_>| {
            let shard = guard.index();
            guard.reserve();
            shard
        };
        let shards = match held {
            HeldShards::None => Some(Vec::new()),
            HeldShards::One(guard) => Some(vec![reserve(guard)]),
            HeldShards::Many(guards) => Some(guards.into_iter().map(reserve).collect()),
            HeldShards::All(mut gate) => {
                match &narrow {
                    None => self.holding.keyspace.reserve_all(&mut gate),
                    Some(shards) => shards
                        .iter()
                        .for_each(|&shard| self.holding.keyspace.reserve(&mut gate, shard)),
                }
                self.release_gate(gate);
                narrow
            }
            HeldShards::Reserved(mut aside) => {
                aside.entered.drain(..).for_each(ShardGuard::reserve);
                self.release();
                return aside;
            }
        };
        self.release();
        Box::new(Aside { shards, entered: Vec::new() })
    }

    /// Goes on with the shards that were set aside, and no others, until they are set aside again.
    /// The shards stay reserved, so that others are refused at once instead of waiting. Each shard
    /// is entered when it is first used.
    pub(in crate::engine::command::data) fn enter_aside(&mut self, aside: Box<Aside>) {
        self.release();
        self.unit.held = HeldShards::Reserved(aside);
    }

    /// Holds the shards that were set aside, and no others, as before; if that is every shard, with
    /// the gate.
    pub(in crate::engine::command::data) fn take_back(&mut self, aside: &Aside) {
        match &aside.shards {
            Some(shards) => {
                self.release();
                let take_back = |&shard| self.holding.keyspace.take_back(shard);
                let guards: Vec<_> = shards.iter().map(take_back).collect();
                self.holding.recent = 0;
                self.unit.held =
                    if guards.is_empty() { HeldShards::None } else { HeldShards::Many(guards) };
            }
            None => {
                self.hold_gate_anyway();
                if let HeldShards::All(gate) = &mut self.unit.held {
                    self.holding.keyspace.free_all(gate);
                }
            }
        }
        self.holding.gate.reserve(false);
    }

    /// Takes the gate instead of some shards that were set aside and entered again. Returns
    /// `false`, and changes nothing, if others have something reserved.
    pub fn widen(&mut self) -> bool {
        if self.holds_all() {
            return true;
        }
        let HeldShards::Reserved(mut aside) = std::mem::take(&mut self.unit.held) else {
            unreachable!("only what was set aside is widened")
        };
        if self.holding.gate.reservations() == 1 {
            aside.entered.drain(..).for_each(ShardGuard::reserve);
            self.holding.member.leave();
            self.conditions.waited = true;
            let mut gate = self.holding.gate.take();
            // Another thread may have reserved something while this one waited.
            if self.holding.gate.reservations() == 1 {
                self.holding.keyspace.free_all(&mut gate);
                self.holding.gate.reserve(false);
                self.unit.held = HeldShards::All(gate);
                self.refresh();
                return true;
            }
            drop(gate);
            self.enter();
        }
        self.unit.held = HeldShards::Reserved(aside);
        false
    }
}
