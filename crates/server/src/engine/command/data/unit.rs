//! A unit: what a command, a transaction, a script or a background change does at one moment, as
//! others see it.

#[cfg(debug_assertions)]
use std::panic::Location;

use super::Data;
use super::conditions::UnitTime;
use super::gathered::{Notices, ReadyKeys};
use super::holding::{Aside, HeldShards};
use crate::engine::blocking;
use crate::engine::client::Client;
use crate::engine::log::Effects;
use crate::engine::server::Server;

/// What a thread holds, and what it has done that no other thread has seen yet.
///
/// A unit ends in one order (`Data::end_unit`, `Data::release`): its effects get their number in
/// the log, the clients that they concern are told, and then the shards are unlocked. Nothing else
/// unlocks them.
#[derive(Default)]
pub struct Unit {
    pub(super) held: HeldShards,
    pub work: UnitWork,
    #[cfg(debug_assertions)]
    proof: Proof,
}

/// What a unit has done that no other thread has seen yet.
#[derive(Default)]
pub struct UnitWork {
    pub(super) effects: Effects,
    /// What other clients are told when the unit ends.
    pub notices: Notices,
    /// The keys (with their databases) that the unit changed and that blocked clients wait for.
    pub ready: ReadyKeys,
}

/// What debug builds remember to find errors in the order of a unit's end.
#[cfg(debug_assertions)]
#[derive(Default)]
struct Proof {
    /// Where a key was changed by a command that has not logged its effect yet.
    unlogged: Option<&'static Location<'static>>,
    /// Whether a transaction or a script is half done.
    is_in_midst: bool,
}

/// A unit that is half done and that others must not see. Its shards are reserved.
pub struct Suspended {
    aside: Box<Aside>,
    work: UnitWork,
    time: UnitTime,
}

/// How far a resumed unit goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// The unit is suspended again. Others are refused its shards meanwhile.
    Suspended,
    /// The unit ends. Others wait for its shards.
    Ended,
}

impl UnitWork {
    /// Bytes that are kept for other clients until the unit ends.
    pub const fn bytes_for_others(&self) -> usize {
        self.notices.bytes() + self.ready.bytes()
    }
}

impl Unit {
    /// Whether the end of the unit has more to do than to unlock.
    #[inline(always)]
    pub fn has_done_something(&self) -> bool {
        !self.work.effects.is_empty()
            || !self.work.notices.is_empty()
            || !self.work.ready.is_empty()
    }

    /// Marks the beginning of a command.
    #[inline(always)]
    pub const fn begin_command(&mut self) {
        self.work.effects.begin_command();
    }

    /// Marks that a transaction or a script begins or goes on. Until `leave_midst` nothing may be
    /// unlocked.
    #[inline(always)]
    pub fn enter_midst(&mut self) {
        #[cfg(debug_assertions)]
        {
            self.proof.is_in_midst = true;
        }
    }

    #[inline(always)]
    pub fn leave_midst(&mut self) {
        #[cfg(debug_assertions)]
        {
            self.proof.is_in_midst = false;
        }
    }

    /// Notes that a key was changed, and that the log needs an effect for it.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn note_change(&mut self) {
        #[cfg(debug_assertions)]
        {
            self.proof.unlogged.get_or_insert(Location::caller());
        }
    }

    /// Notes that all effects of the current command are there.
    #[inline(always)]
    pub(super) fn note_logged(&mut self) {
        #[cfg(debug_assertions)]
        {
            self.proof.unlogged = None;
        }
    }

    /// Checks that the change that served a blocked client has an effect, before or after it.
    #[inline(always)]
    pub fn note_served(&mut self) {
        #[cfg(debug_assertions)]
        if let Some(place) = self.proof.unlogged.take() {
            assert!(!self.work.effects.is_empty(), "the change of {place} is not logged");
        }
    }

    /// Checks that shards may be unlocked now.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn check_end(&self) {
        #[cfg(debug_assertions)]
        {
            if let Some(place) = self.proof.unlogged {
                panic!("unlocked before the change of {place} has its number");
            }
            assert!(!self.proof.is_in_midst, "unlocked in the midst of a unit");
        }
        debug_assert!(self.work.effects.is_empty(), "unlocked before what changed has its number");
        debug_assert!(self.work.notices.is_empty(), "unlocked before others heard of it");
    }
}

impl Data {
    /// Gives the unit's effects, which happened at once, their number in the log. Returns `None` if
    /// nothing is logged.
    #[inline]
    pub fn number_unit(&mut self) -> Option<u64> {
        if self.unit.work.effects.is_empty() {
            return None;
        }
        self.recorder.record_unit(&mut self.unit.work.effects)
    }

    /// Gives effects that do not belong together, such as those of expiry, a number in the log.
    #[inline]
    pub(super) fn number_separate(&mut self) {
        if !self.unit.work.effects.is_empty() {
            self.recorder.record_separate(&mut self.unit.work.effects);
        }
    }

    /// Ends the unit so that others see it: numbers its effects, tells the clients that they
    /// concern, and serves those that wait for its keys. Returns the unit's number in the log. The
    /// shards stay locked, for the next unit or until `release`, unless serving a client has
    /// unlocked them.
    pub fn end_unit(&mut self, server: &Server, client: Option<&Client>) -> Option<u64> {
        self.unit.leave_midst();
        let number = self.number_unit();
        if !self.unit.work.notices.is_empty() {
            self.publish_notices(client);
        }
        if !self.unit.work.ready.is_empty() {
            blocking::serve_ready(server, self);
        }
        number
    }

    /// Ends a unit on shards that another thread lends, and returns its effects. The lending thread
    /// numbers them and tells others. No blocked client waits for the keys.
    pub fn take_effects(&mut self) -> Option<Effects> {
        self.unit.work.ready.clear();
        (!self.unit.work.effects.is_empty()).then(|| std::mem::take(&mut self.unit.work.effects))
    }

    /// Whether the current unit has effects that have no number yet.
    pub const fn has_effects(&self) -> bool {
        !self.unit.work.effects.is_empty()
    }

    /// Numbers the effects of another thread, which worked on shards that this thread lent.
    pub fn number_effects(&mut self, mut effects: Effects) -> Option<u64> {
        self.recorder.record_unit(&mut effects)
    }

    /// Drops the effects so far, when logging ends: the last state of the log has them, or nothing
    /// has.
    pub fn forget_effects(&mut self) {
        self.unit.work.effects.clear();
    }

    /// Takes the unit out half done, so that the thread can do other work, at its own time. The
    /// unit's shards stay reserved.
    pub fn suspend_unit(&mut self, server: &Server) -> Suspended {
        self.suspend_unit_on(server, None)
    }

    /// Takes the unit out half done. If it holds everything, `narrow` names the only shards
    /// (ascending, without repeats) that stay reserved; the unit has used no others.
    pub fn suspend_unit_on(&mut self, server: &Server, narrow: Option<Vec<usize>>) -> Suspended {
        self.unit.leave_midst();
        let (work, time) = (std::mem::take(&mut self.unit.work), self.conditions.unit_time());
        let aside = self.set_aside(narrow);
        self.conditions.return_to_own_time(server);
        Suspended { aside, work, time }
    }

    /// Goes on with a unit, on this or another thread: holds its shards again, and takes over its
    /// time. `then` says whether the unit ends or is suspended once more.
    pub fn resume_unit(&mut self, unit: Suspended, then: Then) {
        let Suspended { aside, mut work, time } = unit;
        match then {
            Then::Suspended => self.enter_aside(aside),
            Then::Ended => self.take_back(&aside),
        }
        // This thread may have noted keys of its own.
        work.ready.append(&mut self.unit.work.ready);
        self.unit.work = work;
        self.conditions.go_to_time(time);
        self.unit.enter_midst();
    }

    /// Ends a resumed unit and unlocks its shards. The thread works at its own time again.
    pub fn end_resumed(&mut self, server: &Server) {
        self.end_unit(server, None);
        self.release();
        self.conditions.return_to_own_time(server);
    }

    /// Locks again the shards that the resumed unit has reserved, if there are any.
    pub fn end_aside(&mut self, server: &Server) {
        if self.is_aside() {
            let unit = self.suspend_unit(server);
            self.resume_unit(unit, Then::Ended);
        }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use bobbin_store::shard::Expire;
    use bobbin_store::{NewValue, SHARDS};

    use crate::config::Config;
    use crate::embedded::Embedded;
    use crate::engine::command::Data;

    /// Has a thread that logs change a key.
    fn change(then: impl FnOnce(&mut Data)) {
        let mut embedded = Embedded::new(Config::new(), 1).expect("it starts");
        embedded.log();
        let data = embedded.data();
        data.enter();
        let key = data.key(b"k");
        assert!(data.hold_one(key.hash.shard()));
        data.set(key, NewValue::Inline(b"v"), Expire::Clear);
        then(data);
        data.release();
    }

    /// Whatever their places and their number.
    #[test]
    fn what_is_held_is_found() {
        let mut embedded = Embedded::new(Config::new(), 1).expect("it starts");
        let data = embedded.data();
        data.enter();
        let first = |shard: &usize| *shard < 100;
        let sets: [&dyn Fn(&usize) -> bool; 5] = [
            &|_| true,
            &first,
            &|shard| *shard >= SHARDS - 100,
            &|shard| shard % 3 == 1,
            &|shard| [0, 7, SHARDS - 1].contains(shard),
        ];
        for held in sets {
            assert!(data.hold_many((0..SHARDS).filter(held)));
            for shard in 0..SHARDS {
                assert_eq!(data.holds(shard), held(&shard), "{shard}");
                // A shard that is not held is not found, and looking for it does no harm.
                data.find_next(shard);
                if held(&shard) {
                    let found = std::ptr::from_mut(data.shard(shard));
                    data.find_next((shard * 7919) % SHARDS);
                    assert_eq!(found, std::ptr::from_mut(data.shard(shard)), "{shard}");
                }
            }
            data.release();
        }
        data.leave();
    }

    #[test]
    fn a_logged_change_may_be_unlocked() {
        change(|data| data.log(&[b"SET", b"k", b"v"]));
        change(|data| assert!(data.log_command(&[b"SET", b"k", b"v"], b"", true, true).is_some()));
    }

    #[test]
    #[should_panic(expected = "before the change of")]
    fn a_change_without_an_effect_may_not() {
        change(|_| ());
    }

    #[test]
    #[should_panic(expected = "in the midst of a unit")]
    fn half_a_transaction_may_not() {
        change(|data| {
            data.unit.enter_midst();
            data.log(&[b"SET", b"k", b"v"]);
        });
    }
}
