//! Threads hold many shards. One of them, a slow script, keeps some or all of them while it is
//! away. Meanwhile other threads take the gate, visit shards, or only try to lock them, as eviction
//! does.

use std::sync::Arc;

use bobbin_store::gate::Member;
use bobbin_store::{Gate, GateGuard, Keyspace, SHARDS, ShardGuard};
use bobbin_sync::{AtomicU32, Ordering, RawLock};
use shuttle::thread;

use super::{assert_caught, explore, spawn_and_join};

/// Threads hold different sets of shards and lock them in ascending order. Another thread tries to
/// lock them in descending order.
#[test]
fn many_shards_are_held_by_one_at_a_time() {
    explore(|| {
        const SETS: [&[usize]; 3] = [&[0, 1, 2], &[1, 3], &[0, 2, 3]];
        let ledger = Arc::new(Ledger::new(5));
        let shared = Arc::clone(&ledger);
        spawn_and_join(5, move |number| match number {
            3 => shared.evict(),
            4 => shared.audit(Look::BeforeAndAfter),
            _ => {
                let set = SETS[number as usize];
                for _ in 0..2 {
                    assert!(shared.transfer(set), "nobody reserves anything");
                }
            }
        });
        ledger.assert_balanced();
    });
}

/// The canary: a thread that locks in another order than the others.
#[test]
fn locks_in_any_order_are_caught() {
    assert_caught("deadlock", || {
        let locks: Arc<[RawLock; 2]> = Arc::default();
        spawn_and_join(2, move |number| {
            let [first, second] = [0, 1].map(|at| &locks[at ^ number as usize]);
            assert!(first.lock_unless_reserved() && second.lock_unless_reserved());
            second.unlock();
            first.unlock();
        });
    });
}

/// Several threads sleep on a lock. One of them is woken and then refused. The others must not go
/// on sleeping.
#[test]
fn nobody_sleeps_on_a_lock_that_was_reserved_after_all() {
    explore(|| {
        let lock = Arc::new(RawLock::default());
        spawn_and_join(4, move |number| {
            for round in 0..3 {
                if !lock.lock_unless_reserved() {
                    continue;
                }
                thread::yield_now();
                if number == 0 && round > 0 {
                    lock.reserve();
                    thread::yield_now();
                    lock.take_back();
                }
                lock.unlock();
            }
        });
    });
}

/// A script keeps some shards while it is away.
#[test]
fn a_slow_script_keeps_its_shards() {
    explore(|| script_storm(Way::Shards, Look::BeforeAndAfter));
}

/// A script keeps everything, and has the gate when it returns the last time.
#[test]
fn a_slow_script_keeps_everything() {
    explore(|| script_storm(Way::Everything, Look::BeforeAndAfter));
}

/// A script releases all shards but one and then takes everything again, while another script runs.
#[test]
fn a_slow_script_gets_everything_again() {
    explore(|| widening_storm(true));
}

#[test]
fn a_script_that_gets_everything_beside_another_is_caught() {
    assert_caught("taken back that is not reserved", || widening_storm(false));
}

/// The canaries: the errors that a script, or a thread that takes the gate meanwhile, may make.
#[test]
fn a_script_that_lets_go_of_its_shards_is_caught() {
    assert_caught("half a change", || script_storm(Way::LettingGo, Look::BeforeAndAfter));
}

#[test]
fn a_script_that_does_not_keep_the_gate_closed_is_caught() {
    assert_caught("half a change", || script_storm(Way::GateOpen, Look::BeforeAndAfter));
}

#[test]
fn a_taker_of_the_gate_that_looks_too_early_is_caught() {
    assert_caught("half a change", || script_storm(Way::Shards, Look::Before));
}

/// The canary: a script ends and leaves its shards reserved. A thread that waits for one of them
/// waits for ever.
#[test]
fn a_script_that_frees_nothing_is_caught() {
    assert_caught("exceeded max_steps bound", || {
        let ledger = Arc::new(Ledger::new(2));
        spawn_and_join(2, move |number| {
            let member = ledger.gate.join().expect("there are flags for all");
            member.enter();
            if number == 0 {
                if let Some(guard) = ledger.keyspace.lock_unless_reserved(0) {
                    guard.reserve();
                }
            } else {
                drop(ledger.keyspace.lock(0));
            }
            member.leave();
        });
    });
}

/// What the script does with its shards while it is away.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Shards,
    Everything,
    /// It unlocks them.
    LettingGo,
    /// It keeps the shards, but others may take the gate.
    GateOpen,
}

/// When a thread that takes the gate looks whether a change is half done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Before,
    BeforeAndAfter,
}

/// A number for each shard. Their sum is zero, unless a thread is making a change.
struct Ledger {
    keyspace: Keyspace,
    gate: Gate,
    numbers: [AtomicU32; SHARDS],
    /// Whether a thread is using the number.
    inside: [AtomicU32; SHARDS],
}

impl Ledger {
    fn new(members: usize) -> Self {
        let (numbers, inside) = Default::default();
        Self { keyspace: Keyspace::new(7), gate: Gate::new(members), numbers, inside }
    }

    /// Adds to a number whose shard is held, in two steps.
    fn add(&self, shard: usize, amount: u32) {
        assert_eq!(self.inside[shard].swap(1, Ordering::SeqCst), 0, "two at a time");
        let before = self.numbers[shard].load(Ordering::SeqCst);
        self.numbers[shard].store(before.wrapping_add(amount), Ordering::SeqCst);
        self.inside[shard].store(0, Ordering::SeqCst);
    }

    /// Holds these shards as workers do. Returns `None` if one is reserved.
    fn hold(&self, shards: &[usize]) -> Option<Vec<ShardGuard<'_>>> {
        let mut guards = Vec::new();
        for &shard in shards {
            let guard = self.keyspace.try_lock_in_order(shard);
            guards.push(guard.or_else(|| self.keyspace.lock_unless_reserved(shard))?);
        }
        Some(guards)
    }

    /// Moves 1 from the first of these shards to the last. Returns false if it was refused.
    fn transfer(&self, shards: &[usize]) -> bool {
        let member = self.gate.join().expect("there are flags for all");
        member.enter();
        let guards = self.hold(shards);
        if guards.is_some() {
            self.add(shards[0], u32::MAX);
            thread::yield_now();
            self.add(shards[shards.len() - 1], 1);
        }
        let done = guards.is_some();
        drop(guards);
        member.leave();
        done
    }

    /// Reads all numbers one by one while everything is held. Does nothing if something is
    /// reserved.
    fn read(&self) {
        let member = self.gate.join().expect("there are flags for all");
        member.enter();
        if let Some(guards) = self.hold(&[0, 1, 2, 3]) {
            self.assert_balanced();
            drop(guards);
        }
        member.leave();
    }

    /// Reads all numbers while the gate is held.
    fn audit(&self, look: Look) {
        for _ in 0..2 {
            if self.gate.is_reserved() {
                thread::yield_now();
                continue;
            }
            let gate = self.gate.take();
            if look == Look::BeforeAndAfter && self.gate.is_reserved() {
                continue;
            }
            self.inside.iter().for_each(|inside| {
                assert_eq!(
                    inside.load(Ordering::SeqCst),
                    0,
                    "a member is at it, and who has the gate"
                );
            });
            self.assert_balanced();
            drop(gate);
        }
    }

    /// Tries to lock all shards, from the last on, while it holds one.
    fn evict(&self) {
        let member = self.gate.join().expect("there are flags for all");
        member.enter();
        let own = self.keyspace.try_lock(SHARDS - 1);
        for shard in (0..SHARDS - 1).rev() {
            if let Some(guard) = self.keyspace.try_lock(shard) {
                self.add(shard, 0);
                drop(guard);
            }
        }
        drop(own);
        member.leave();
    }

    /// Looks at shards that may be reserved.
    fn visit(&self) {
        let member = self.gate.join().expect("there are flags for all");
        for shard in [0, 2, 0] {
            member.enter();
            self.keyspace.visit(shard, |_| self.add(shard, 0));
            member.leave();
        }
    }

    fn assert_balanced(&self) {
        let sum = self.numbers.iter().map(|number| number.load(Ordering::SeqCst));
        assert_eq!(sum.fold(0, u32::wrapping_add), 0, "half a change");
    }
}

/// A script is away twice, while other threads want what it holds.
fn script_storm(way: Way, look: Look) {
    let ledger = Arc::new(Ledger::new(5));
    let shared = Arc::clone(&ledger);
    spawn_and_join(5, move |number| match number {
        0 if way == Way::Everything => script_of_everything(&shared),
        0 => script_of_shards(&shared, way),
        1 => {
            shared.transfer(&[1, 2]);
            shared.read();
        }
        2 => shared.visit(),
        3 => shared.audit(look),
        _ => {
            shared.evict();
            shared.read();
        }
    });
    ledger.assert_balanced();
    // Nothing stays reserved.
    assert!(!ledger.gate.is_reserved());
    drop(ledger.hold(&[0, 1, 2, 3]).expect("nothing is reserved"));
}

const KEPT: [usize; 2] = [0, 2];

fn script_of_shards(ledger: &Ledger, way: Way) {
    let member = ledger.gate.join().expect("there are flags for all");
    member.enter();
    let guards = ledger.hold(&KEPT).expect("nobody else reserves anything");
    ledger.add(0, 1);
    let keep = |guards: Vec<ShardGuard<'_>>| {
        if way != Way::GateOpen {
            ledger.gate.reserve(true);
        }
        for guard in guards {
            if way == Way::LettingGo { drop(guard) } else { guard.reserve() }
        }
        member.leave();
    };
    let take_back = || -> Vec<ShardGuard<'_>> {
        member.enter();
        let guards = if way == Way::LettingGo {
            ledger.hold(&KEPT).expect("nothing is reserved")
        } else {
            KEPT.map(|shard| ledger.keyspace.take_back(shard)).into()
        };
        if way != Way::GateOpen {
            ledger.gate.reserve(false);
        }
        guards
    };
    keep(guards);
    let guards = take_back();
    ledger.add(2, 1);
    keep(guards);
    let guards = take_back();
    ledger.add(0, u32::MAX);
    ledger.add(2, u32::MAX);
    drop(guards);
    member.leave();
}

fn script_of_everything(ledger: &Ledger) {
    let member = ledger.gate.join().expect("there are flags for all");
    let mut gate = ledger.gate.take();
    ledger.add(0, 1);
    ledger.gate.reserve(true);
    ledger.keyspace.reserve_all(&mut gate);
    drop(gate);
    // A slice with the gate open.
    member.enter();
    let guards: Vec<_> = (0..SHARDS).map(|shard| ledger.keyspace.take_back(shard)).collect();
    ledger.gate.reserve(false);
    ledger.add(3, 1);
    ledger.gate.reserve(true);
    guards.into_iter().for_each(ShardGuard::reserve);
    // The last slice, with the gate.
    let gate = come_back(ledger, &member);
    ledger.add(0, u32::MAX);
    ledger.add(3, u32::MAX);
    drop(gate);
}

fn widening_storm(waits: bool) {
    let ledger = Arc::new(Ledger::new(4));
    let shared = Arc::clone(&ledger);
    spawn_and_join(4, move |number| match number {
        0 => script_that_strays(&shared, waits),
        1 => script_of_shards(&shared, Way::Shards),
        2 => {
            shared.transfer(&[1, 2]);
            shared.read();
        }
        _ => shared.audit(Look::BeforeAndAfter),
    });
    ledger.assert_balanced();
    assert!(!ledger.gate.is_reserved());
    drop(ledger.hold(&[0, 1, 2, 3]).expect("nothing is reserved"));
}

/// If `waits` is true, it waits until no other script has something reserved.
fn script_that_strays(ledger: &Ledger, waits: bool) {
    let member = ledger.gate.join().expect("there are flags for all");
    let mut gate = ledger.gate.take();
    if ledger.gate.is_reserved() {
        return;
    }
    ledger.add(1, 1);
    ledger.gate.reserve(true);
    ledger.keyspace.reserve(&mut gate, 1);
    drop(gate);
    // A slice with the gate open.
    member.enter();
    let guard = ledger.keyspace.enter_reserved(1);
    ledger.add(1, 1);
    guard.reserve();
    member.leave();
    let mut gate = loop {
        if !waits || ledger.gate.reservations() == 1 {
            let gate = ledger.gate.take();
            if !waits || ledger.gate.reservations() == 1 {
                break gate;
            }
        }
        thread::yield_now();
    };
    ledger.keyspace.free_all(&mut gate);
    ledger.gate.reserve(false);
    ledger.add(3, u32::MAX);
    ledger.add(1, u32::MAX);
    drop(gate);
}

fn come_back<'a>(ledger: &'a Ledger, member: &Member<'_>) -> GateGuard<'a> {
    member.leave();
    let mut gate = ledger.gate.take();
    ledger.keyspace.free_all(&mut gate);
    ledger.gate.reserve(false);
    gate
}
