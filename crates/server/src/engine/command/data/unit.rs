//! A unit: what a command, a transaction, a script or a change in the background does at one
//! moment, as others see it.

use std::collections::VecDeque;
#[cfg(debug_assertions)]
use std::panic::Location;

use super::Data;
use super::holding::{Aside, HeldShards};
use crate::engine::blocking;
use crate::engine::client::Client;
use crate::engine::log::Effects;
use crate::engine::server::Server;
use crate::engine::tracking::Notice;

/// What a thread holds, and what it did there that no other thread has seen yet.
///
/// It ends in one order (`Data::end_unit`, `Data::release`): its effects get their number in the
/// log, the clients that they concern are told, and then the shards are unlocked. Nothing else
/// unlocks them.
#[derive(Default)]
pub struct Unit {
    pub(super) held: HeldShards,
    pub(super) effects: Effects,
    /// What others hear of it at its end.
    pub notices: Vec<Notice>,
    /// How many of them it was decided for whether its own client gets them: the first ones.
    pub(super) settled: usize,
    /// Keys (and their databases) that it changed while blocked clients wait for them.
    pub ready: VecDeque<(u32, Box<[u8]>)>,
    #[cfg(debug_assertions)]
    proof: Proof,
}

/// What debug builds know of a unit, so that it cannot be torn unnoticed.
#[cfg(debug_assertions)]
#[derive(Default)]
struct Proof {
    /// Where a key was changed by a command whose effect is not there yet.
    unlogged: Option<&'static Location<'static>>,
    /// A transaction or a script is in its midst.
    is_in_midst: bool,
}

/// A unit in its midst, which others must not see. What it held is reserved.
pub struct Suspended {
    aside: Box<Aside>,
    effects: Effects,
    notices: Vec<Notice>,
    settled: usize,
    ready: VecDeque<(u32, Box<[u8]>)>,
}

/// What becomes of a unit that goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// It is suspended again: others are refused meanwhile.
    Suspended,
    /// It ends: others wait for it.
    Ended,
}

impl Unit {
    /// Whether there is anything to be done at its end but unlocking.
    #[inline(always)]
    pub fn has_done_something(&self) -> bool {
        !self.effects.is_empty() || !self.notices.is_empty() || !self.ready.is_empty()
    }

    /// What others will hear of since this was asked last.
    pub fn unsettled(&mut self) -> &mut [Notice] {
        let from = std::mem::replace(&mut self.settled, self.notices.len());
        &mut self.notices[from..]
    }

    /// A command begins.
    #[inline(always)]
    pub const fn begin_command(&mut self) {
        self.effects.begin_command();
    }

    /// A transaction or a script begins (or goes on): until `leave_midst` nothing may be unlocked.
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

    /// A key was changed, which the log has to tell.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn note_change(&mut self) {
        #[cfg(debug_assertions)]
        {
            self.proof.unlogged.get_or_insert(Location::caller());
        }
    }

    /// The effects of the command at hand are all there.
    #[inline(always)]
    pub(super) fn note_logged(&mut self) {
        #[cfg(debug_assertions)]
        {
            self.proof.unlogged = None;
        }
    }

    /// What serves a client that waited has said what its effects are, before or after the change.
    #[inline(always)]
    pub fn note_served(&mut self) {
        #[cfg(debug_assertions)]
        if let Some(place) = self.proof.unlogged.take() {
            assert!(!self.effects.is_empty(), "the change of {place} is not logged");
        }
    }

    /// To be called before shards are unlocked.
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
        debug_assert!(self.effects.is_empty(), "unlocked before what changed has its number");
        debug_assert!(self.notices.is_empty(), "unlocked before others heard of it");
    }
}

impl Data {
    /// Gives what the unit did its number in the log; `None`: nothing of it is logged. `grouped`:
    /// if these are several effects, they happened at once.
    #[inline]
    pub fn number_unit(&mut self, grouped: bool) -> Option<u64> {
        if self.unit.effects.is_empty() {
            return None;
        }
        self.recorder.record(&mut self.unit.effects, grouped)
    }

    /// Has others see what the unit did: numbers it, tells them, and serves those that wait for its
    /// keys. Returns its number in the log. What is held stays so, for the next unit or until
    /// `release`; serving a client may have had it unlocked.
    pub fn end_unit(&mut self, server: &Server, client: Option<&Client>) -> Option<u64> {
        self.unit.leave_midst();
        let number = self.number_unit(true);
        if !self.unit.notices.is_empty() {
            self.publish_notices(client);
        }
        if !self.unit.ready.is_empty() {
            blocking::serve_ready(server, self);
        }
        number
    }

    /// Ends a unit on shards that another thread lends, which does the rest: it numbers the
    /// effects, if there are any, and tells others. No blocked client waits for the keys.
    pub fn take_effects(&mut self) -> Option<Effects> {
        self.unit.ready.clear();
        (!self.unit.effects.is_empty()).then(|| std::mem::take(&mut self.unit.effects))
    }

    /// Numbers a unit whose effects another thread gathered, on shards that this one lent.
    pub fn number_effects(&mut self, mut effects: Effects) -> Option<u64> {
        self.recorder.record(&mut effects, true)
    }

    /// The log ends here: what the unit did so far is in its last state, or in nothing.
    pub fn forget_effects(&mut self) {
        self.unit.effects.clear();
    }

    /// Takes the unit out in its midst, so that others can have the thread. Its shards stay
    /// reserved.
    pub fn suspend_unit(&mut self) -> Suspended {
        self.suspend_unit_on(None)
    }

    /// Likewise. `narrow`: of everything that is held, only these shards (ascending, without
    /// repeats) stay reserved, as it has looked at no others.
    pub fn suspend_unit_on(&mut self, narrow: Option<Vec<usize>>) -> Suspended {
        self.unit.leave_midst();
        let effects = std::mem::take(&mut self.unit.effects);
        let notices = std::mem::take(&mut self.unit.notices);
        let settled = std::mem::take(&mut self.unit.settled);
        let ready = std::mem::take(&mut self.unit.ready);
        Suspended { effects, notices, settled, ready, aside: self.set_aside(narrow) }
    }

    /// Goes on with a unit, on this or another thread, and holds its shards again. `then`: whether
    /// it is suspended once more.
    pub fn resume_unit(&mut self, unit: Suspended, then: Then) {
        let Suspended { aside, effects, notices, settled, mut ready } = unit;
        match then {
            Then::Suspended => self.enter_aside(aside),
            Then::Ended => self.take_back(&aside),
        }
        // This thread may have others to serve.
        ready.append(&mut self.unit.ready);
        (self.unit.effects, self.unit.notices, self.unit.ready) = (effects, notices, ready);
        self.unit.settled = settled;
        self.unit.enter_midst();
    }

    /// Holds by itself again what a unit that goes on kept reserved, if it did.
    pub fn end_aside(&mut self) {
        if self.is_aside() {
            let unit = self.suspend_unit();
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

    /// Has a thread with a log change a key.
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

    /// Wherever they lie, and however many they are.
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
                // What is not held is not found, and does no harm.
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
