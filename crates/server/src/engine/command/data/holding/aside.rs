//! Shards that a paused script keeps reserved.

use bobbin_store::{Keyspace, SHARDS, ShardGuard};

use super::{Data, HeldShards};

/// The shards that a paused script keeps reserved.
pub struct Aside {
    /// Ascending; `None`: every shard.
    pub(super) shards: Option<Vec<usize>>,
    /// Those that it has looked at in this slice, ascending.
    pub(super) entered: Vec<ShardGuard<'static>>,
}

impl Aside {
    pub(super) fn has(&self, shard: usize) -> bool {
        self.shards.as_ref().is_none_or(|shards| shards.binary_search(&shard).is_ok())
    }

    pub(super) fn last(&self) -> Option<usize> {
        self.shards.as_ref().map_or(Some(SHARDS - 1), |shards| shards.last().copied())
    }

    /// One shard more.
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

    /// Where the shard is among those that were entered. It is entered if it is not.
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
    /// Releases everything, but reserves what was held until it is taken back. Others must see what
    /// was changed together with what comes after that, so the effects so far must have been taken
    /// out.
    ///
    /// `narrow`: of everything, only these shards (ascending, without repeats) are reserved.
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

    /// Goes on with what was set aside, and nothing else, until it is set aside again. The shards
    /// stay reserved, so that others are refused at once instead of waiting; each is entered when
    /// it is looked at first.
    pub(in crate::engine::command::data) fn enter_aside(&mut self, aside: Box<Aside>) {
        self.release();
        self.unit.held = HeldShards::Reserved(aside);
    }

    /// Holds what was set aside, and no other, as it was before: with the gate, where that is every
    /// shard.
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

    /// Holds everything, with the gate, instead of some shards that were set aside and entered
    /// again. `false`: others have something reserved, and what was held still is.
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
            self.turn.waited = true;
            let mut gate = self.holding.gate.take();
            // Only now: a thread that was busy before may have reserved something at last.
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
