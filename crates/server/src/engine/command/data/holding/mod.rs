//! Which shards a thread holds.
//!
//! A script that pauses within a change *reserves* its shards, or all shards. Their locks then
//! refuse every other thread: the script may take as long as it likes, so no thread that serves
//! clients waits for it. Only work that a half-made change cannot harm (`visit`,
//! `hold_gate_anyway`) passes.

mod aside;
mod turns;

use bobbin_store::shard::Database;
use bobbin_store::{
    Cut, Gate, GateGuard, KeyHash, Keyspace, Member, SHARDS, Shard, ShardGuard, next_in_bits,
};

pub use self::aside::Aside;
use super::Data;
use crate::engine::script::GateWish;
use crate::engine::server::Server;

/// The shards that a thread holds.
#[derive(Default)]
pub enum HeldShards {
    #[default]
    None,
    One(ShardGuard<'static>),
    /// Several shards, ascending.
    Many(Vec<ShardGuard<'static>>),
    /// A paused script goes on. Its shards stay reserved, and it enters those that it uses. The
    /// thread does not hold the gate.
    Reserved(Box<Aside>),
    /// The gate, and with it all shards.
    All(GateGuard<'static>),
}

/// What can be held, and caches that make holding quick.
pub(super) struct Holding {
    pub(super) keyspace: &'static Keyspace,
    gate: &'static Gate,
    member: Member<'static>,
    /// The memory of released guards, for the next ones.
    guards: Vec<ShardGuard<'static>>,
    /// The index of the guard that was used last, if several are held.
    recent: usize,
    /// The shards that were used while the gate was held.
    looked_at: SeenShards,
    /// Whether the gate was refused because something is reserved.
    is_gate_refused: bool,
}

impl Holding {
    pub(super) fn new(
        keyspace: &'static Keyspace,
        gate: &'static Gate,
        member: Member<'static>,
    ) -> Self {
        let (guards, looked_at) = (Vec::new(), SeenShards::default());
        Self { keyspace, gate, member, guards, recent: 0, looked_at, is_gate_refused: false }
    }
}

/// A set of shards, one bit each.
struct SeenShards([u64; SHARDS / 64]);

impl Data {
    /// Holds one shard and no other. If it is held already, it stays so. Returns `false`, with
    /// nothing held, if the shard is reserved.
    #[inline(always)]
    #[must_use]
    pub fn hold_one(&mut self, shard: usize) -> bool {
        if let HeldShards::One(guard) = &self.unit.held
            && guard.index() == shard
        {
            return true;
        }
        self.release();
        match self.lock(shard) {
            Some(guard) => {
                // Nothing was held, so there is nothing to drop.
                std::mem::forget(std::mem::replace(&mut self.unit.held, HeldShards::One(guard)));
                true
            }
            None => false,
        }
    }

    /// Locks a shard, with a wait if necessary. Returns `None` if it is reserved.
    #[inline(always)]
    fn lock(&mut self, shard: usize) -> Option<ShardGuard<'static>> {
        match self.holding.keyspace.try_lock_in_order(shard) {
            Some(guard) => Some(guard),
            None => self.wait_for(shard),
        }
    }

    #[cold]
    #[inline(never)]
    fn wait_for(&mut self, shard: usize) -> Option<ShardGuard<'static>> {
        self.conditions.waited = true;
        #[cfg(test)]
        crate::simulation::waits::begin();
        self.holding.keyspace.lock_unless_reserved(shard)
    }

    /// Holds these shards (ascending, without repeats) and no other. Returns `false`, with nothing
    /// held, if one of them is reserved.
    #[must_use]
    pub fn hold_many(&mut self, shards: impl Iterator<Item = usize>) -> bool {
        self.release();
        let mut guards = std::mem::take(&mut self.holding.guards);
        for shard in shards {
            let Some(guard) = self.lock(shard) else {
                guards.clear();
                self.holding.guards = guards;
                return false;
            };
            guards.push(guard);
        }
        self.holding.recent = 0;
        self.unit.held = HeldShards::Many(guards);
        true
    }

    #[inline]
    pub fn holds(&self, shard: usize) -> bool {
        match &self.unit.held {
            HeldShards::None => false,
            HeldShards::One(guard) => guard.index() == shard,
            HeldShards::Many(guards) => {
                guards.binary_search_by_key(&shard, ShardGuard::index).is_ok()
            }
            HeldShards::Reserved(aside) => aside.has(shard),
            HeldShards::All(_) => true,
        }
    }

    /// Finds, among many held shards, the one that the next command needs. For thousands of shards
    /// this is quicker than the bisection in `shard`; for few it is slower.
    pub fn find_next(&mut self, shard: usize) {
        if let HeldShards::Many(guards) = &self.unit.held
            && let Some(at) = position(guards, shard)
        {
            self.holding.recent = at;
        }
    }

    /// Holds one shard in addition, if it is free.
    pub fn try_hold_also(&mut self, shard: usize) -> bool {
        if self.holds(shard) {
            return true;
        }
        let Some(guard) = self.holding.keyspace.try_lock(shard) else { return false };
        self.hold_guard(guard);
        true
    }

    /// Holds one shard in addition. It waits for the shard if that is above all held ones;
    /// otherwise it takes the shard only if it is free.
    pub fn hold_beyond(&mut self, shard: usize) -> bool {
        let is_above = match &self.unit.held {
            HeldShards::None => true,
            HeldShards::One(guard) => guard.index() < shard,
            HeldShards::Many(guards) => guards.last().is_none_or(|guard| guard.index() < shard),
            HeldShards::Reserved(aside) => aside.last().is_none_or(|last| last < shard),
            HeldShards::All(_) => return true,
        };
        if !is_above {
            return self.try_hold_also(shard);
        }
        let Some(guard) = self.lock(shard) else { return false };
        self.hold_guard(guard);
        true
    }

    fn hold_guard(&mut self, guard: ShardGuard<'static>) {
        if let HeldShards::Reserved(aside) = &mut self.unit.held {
            aside.add(guard);
            return;
        }
        let mut guards = match std::mem::replace(&mut self.unit.held, HeldShards::None) {
            HeldShards::None => Vec::new(),
            HeldShards::Reserved(..) | HeldShards::All(_) => {
                unreachable!("no shard is added one by one behind the gate or a reservation")
            }
            HeldShards::One(other) => vec![other],
            HeldShards::Many(guards) => guards,
        };
        let at = guards.partition_point(|other| other.index() < guard.index());
        guards.insert(at, guard);
        self.holding.recent = 0;
        self.unit.held = HeldShards::Many(guards);
    }

    /// Prefetches the entry of a key whose shard is held, for reading or writing.
    pub fn prefetch(&mut self, database: u32, hash: KeyHash, writes: bool) {
        if let Some(database) = self.shard(hash.shard()).database(database) {
            database.table().prefetch_entry(hash, writes);
        }
    }

    /// Takes the gate, which waits for all other threads. Returns `false`, with nothing held, if
    /// something is reserved.
    #[must_use]
    pub fn hold_gate(&mut self) -> bool {
        if self.holds_all() {
            return true;
        }
        // If something is reserved, the other threads need not be stopped.
        if self.is_refused_everything() {
            self.release();
            return false;
        }
        self.hold_gate_anyway();
        // Another thread may have reserved something while this one waited.
        if self.is_refused_everything() {
            self.release();
            return false;
        }
        true
    }

    /// Whether the gate or a walk over all keys was refused since the last call.
    pub fn take_refusal(&mut self) -> bool {
        std::mem::take(&mut self.holding.is_gate_refused)
    }

    /// Takes the gate even if something is reserved and changes may be half made. The caller has
    /// made the reservation itself, or looks at no keys.
    pub fn hold_gate_anyway(&mut self) {
        if !self.holds_all() {
            self.release();
            self.holding.member.leave();
            // Even without a wait: other threads may have had the gate in between.
            self.conditions.waited = true;
            #[cfg(test)]
            crate::simulation::waits::begin();
            self.unit.held = HeldShards::All(self.holding.gate.take());
            self.refresh();
        }
    }

    /// Lends the held shards to other threads. This thread waits until it has all of them back, and
    /// then unlocks them.
    pub fn lend(&mut self, give: impl FnMut(ShardGuard<'static>)) {
        if let HeldShards::Many(mut guards) = std::mem::take(&mut self.unit.held) {
            guards.drain(..).for_each(give);
            self.holding.guards = guards;
        }
    }

    /// Holds shards (ascending) that another thread lends. Nothing else may be held or released
    /// until they are given back.
    pub fn borrow(&mut self, guards: Vec<ShardGuard<'static>>) {
        debug_assert!(matches!(self.unit.held, HeldShards::None), "something else is held");
        self.holding.recent = 0;
        self.unit.held = HeldShards::Many(guards);
        self.refresh();
    }

    /// Gives the borrowed shards back.
    pub fn give_back(&mut self) -> Vec<ShardGuard<'static>> {
        match std::mem::take(&mut self.unit.held) {
            HeldShards::Many(guards) => guards,
            _ => unreachable!("shards were borrowed"),
        }
    }

    /// The index of the first hash in whose shard blocked clients wait for keys. Several shards are
    /// held.
    pub fn first_awaited(&mut self, hashes: impl Iterator<Item = KeyHash>) -> Option<usize> {
        let HeldShards::Many(guards) = &self.unit.held else { return None };
        if !guards.iter().any(|shard| shard.has_waiters()) {
            return None;
        }
        let mut hashes = hashes;
        hashes.position(|hash| self.shard(hash.shard()).has_waiters())
    }

    /// Begins a cut of all keys and holds the gate. There must be no other cut.
    pub fn begin_cut(&mut self) -> Cut {
        self.hold_gate_anyway();
        match &mut self.unit.held {
            HeldShards::All(gate) => Cut::begin(self.holding.keyspace, gate),
            _ => unreachable!("the gate is held"),
        }
    }

    /// Unlocks everything, and frees entries that waited for the unlock.
    #[inline(always)]
    pub fn release(&mut self) {
        self.number_separate();
        if !self.unit.work.notices.is_empty() {
            self.publish_notices(None);
        }
        self.unit.check_end();
        match std::mem::replace(&mut self.unit.held, HeldShards::None) {
            HeldShards::None => {}
            HeldShards::One(guard) => drop(guard),
            HeldShards::Many(guards) => self.release_many(guards),
            HeldShards::Reserved(..) => unreachable!("what is reserved is set aside again"),
            HeldShards::All(gate) => self.release_gate(gate),
        }
        if !self.garbage.is_empty() {
            self.dispose();
        }
    }

    /// Whether a paused script or transaction has any shard reserved.
    pub fn is_something_reserved(&self) -> bool {
        self.holding.gate.is_reserved()
    }

    /// Whether anything is reserved, for work that must then wait. `take_refusal` reports it later.
    pub fn is_refused_everything(&mut self) -> bool {
        let is_refused = self.is_something_reserved();
        self.holding.is_gate_refused |= is_refused;
        is_refused
    }

    /// Whether the thread holds the gate, and not only all shards.
    pub const fn has_gate(&self) -> bool {
        matches!(self.unit.held, HeldShards::All(_))
    }

    /// Whether every shard is held, or reserved for this thread.
    #[inline(always)]
    pub fn holds_all(&self) -> bool {
        match &self.unit.held {
            HeldShards::All(_) => true,
            HeldShards::Reserved(aside) => aside.shards.is_none(),
            HeldShards::None | HeldShards::One(_) | HeldShards::Many(_) => false,
        }
    }

    /// Whether the held shards are reserved ones, which are entered when they are used.
    pub(super) const fn is_aside(&self) -> bool {
        matches!(self.unit.held, HeldShards::Reserved(_))
    }

    fn release_many(&mut self, mut guards: Vec<ShardGuard<'static>>) {
        guards.clear();
        self.holding.guards = guards;
    }

    #[cold]
    fn release_gate(&mut self, mut gate: GateGuard<'static>) {
        self.holding.looked_at.drain(|shard| self.holding.keyspace.refresh_hint(&mut gate, shard));
        drop(gate);
        self.enter();
        // Other threads may have had the gate in between, and may have begun a pause.
        self.conditions.waited = true;
    }

    /// Begins a turn: from now on this thread may hold shards.
    #[inline]
    pub fn enter(&mut self) {
        self.holding.member.enter();
        self.refresh();
    }

    /// Begins a turn of a thread that serves no clients. Waits until nothing is reserved.
    pub fn enter_unreserved(&mut self, server: &'static Server) {
        let mut wish = None;
        loop {
            self.enter();
            if !self.holding.gate.is_reserved() {
                return;
            }
            self.holding.member.leave();
            wish.get_or_insert_with(|| GateWish::new(server));
            std::thread::sleep(RESERVED_PAUSE);
        }
    }

    /// Applies what may have changed while another thread held the gate.
    #[inline]
    fn refresh(&mut self) {
        self.recorder.refresh();
        self.audience.broadcasts =
            self.audience.tracker.as_ref().is_some_and(|tracker| tracker.broadcasts());
    }

    /// Ends a turn, and unlocks everything.
    #[inline]
    pub fn leave(&mut self) {
        self.release();
        self.broadcast();
        self.recorder.announce();
        self.holding.member.leave();
    }

    #[inline(always)]
    pub(super) fn shard(&mut self, index: usize) -> &mut Shard {
        match &mut self.unit.held {
            HeldShards::One(guard) => {
                assert!(guard.index() == index, "shard {index} is not held");
                guard
            }
            HeldShards::Many(guards) => {
                if guards[self.holding.recent].index() != index {
                    let at = guards.binary_search_by_key(&index, ShardGuard::index);
                    self.holding.recent = at.expect("every shard of the plan is held");
                }
                &mut guards[self.holding.recent]
            }
            held => {
                let (recent, looked_at) = (&mut self.holding.recent, &mut self.holding.looked_at);
                shard_of_all(held, self.holding.keyspace, recent, looked_at, index)
            }
        }
    }

    #[inline(always)]
    pub(super) fn database_of(&mut self, hash: KeyHash) -> &mut Database {
        let database = self.database;
        self.shard(hash.shard()).database_mut(database)
    }

    /// Calls `f` with a shard. If the shard is not held, it is locked during the call, even if it
    /// is reserved.
    pub fn visit<R>(&mut self, index: usize, f: impl FnOnce(&mut Shard) -> R) -> R {
        self.visit_with(index, |shard, _| f(shard))
    }

    /// The first shard from `index` on that may have keys; `SHARDS` if there is none. A key that
    /// another thread adds at this moment may be missing.
    pub fn next_used(&self, index: usize) -> usize {
        let Holding { keyspace, looked_at, .. } = &self.holding;
        match self.unit.held {
            HeldShards::None => keyspace.next_used(index),
            HeldShards::All(_) => keyspace.next_used(index).min(looked_at.next(index)),
            // What the unit itself has added is not known yet.
            _ => index,
        }
    }

    /// Calls `f` with each shard that may have keys.
    pub fn each_used(&mut self, mut f: impl FnMut(&mut Self, usize)) {
        self.find_used(|data, index| {
            f(data, index);
            false
        });
    }

    /// The first shard that may have keys and of which `f` says so.
    pub fn find_used(&mut self, mut f: impl FnMut(&mut Self, usize) -> bool) -> Option<usize> {
        let mut index = self.next_used(0);
        while index < SHARDS {
            if f(self, index) {
                return Some(index);
            }
            index = self.next_used(index + 1);
        }
        None
    }

    /// As `visit`, but tells `f` whether another thread has the shard reserved.
    pub fn visit_with<R>(&mut self, index: usize, f: impl FnOnce(&mut Shard, bool) -> R) -> R {
        match &mut self.unit.held {
            HeldShards::None => self.holding.keyspace.visit_with(index, f),
            HeldShards::Reserved(aside) if aside.last().is_none() => {
                self.holding.keyspace.visit_with(index, f)
            }
            _ => f(self.shard(index), false),
        }
    }
}

/// The index of a shard among many guards, which are ascending. As keys are spread evenly over
/// shards, it is near its place among evenly spread shards; if all shards are held it is exactly
/// there. Bisecting thousands of guards takes longer.
fn position(guards: &[ShardGuard<'static>], index: usize) -> Option<usize> {
    let mut at = index * guards.len() / SHARDS;
    while guards.get(at)?.index() > index {
        at = at.checked_sub(1)?;
    }
    while guards.get(at)?.index() < index {
        at += 1;
    }
    (guards[at].index() == index).then_some(at)
}

/// A shard, where all shards may be held. `recent` and `looked_at` are those of [`Holding`].
#[inline(never)]
fn shard_of_all<'h>(
    held: &'h mut HeldShards,
    keyspace: &'static Keyspace,
    recent: &mut usize,
    looked_at: &mut SeenShards,
    index: usize,
) -> &'h mut Shard {
    match held {
        HeldShards::Reserved(aside) => {
            if aside.entered.get(*recent).is_none_or(|guard| guard.index() != index) {
                *recent = aside.enter(keyspace, index);
            }
            &mut aside.entered[*recent]
        }
        HeldShards::All(gate) => {
            looked_at.note(index);
            keyspace.exclusive(gate, index)
        }
        _ => unreachable!("a handler needs its keys' shards held"),
    }
}

impl SeenShards {
    #[inline(always)]
    fn note(&mut self, shard: usize) {
        self.0[shard / 64] |= 1 << (shard % 64);
    }

    /// The first shard of the set from one on; `SHARDS` if there is none.
    fn next(&self, shard: usize) -> usize {
        let words = self.0.get(shard / 64..).unwrap_or_default();
        next_in_bits(words.iter().copied(), shard)
    }

    /// Calls `f` with each shard of the set, and empties the set.
    fn drain(&mut self, mut f: impl FnMut(usize)) {
        for (at, word) in self.0.iter_mut().enumerate() {
            while *word != 0 {
                f(at * 64 + word.trailing_zeros() as usize);
                *word &= *word - 1;
            }
        }
    }
}

impl Default for SeenShards {
    fn default() -> Self {
        Self([0; SHARDS / 64])
    }
}

/// How long a thread sleeps before it looks again whether something is reserved.
const RESERVED_PAUSE: std::time::Duration = std::time::Duration::from_millis(1);
