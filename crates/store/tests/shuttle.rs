//! Interleavings of the lock, the gate, the inbox, the log and the cut, chosen by shuttle's
//! schedulers. Shuttle does not simulate weak memory. So fences and memory orderings are tested by
//! Miri, which runs `tests/threads.rs`.
//!
//! `cargo xtask shuttle` runs these tests, always with the same schedules. `SHUTTLE_SEED` gives
//! other schedules, `SHUTTLE_ITERATIONS` more of them.

#![cfg(shuttle)]

#[path = "shuttle/holders.rs"]
mod holders;
#[path = "shuttle/together.rs"]
mod together;

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bobbin_store::gate::Member;
use bobbin_store::log::{Log, Merger};
use bobbin_store::shard::Expire;
use bobbin_store::{AccessClock, AccessPolicy, Cut, Gate, Keyspace, NewValue, Shard};
use bobbin_sync::inbox::{Bell, Inbox};
use bobbin_sync::{AtomicU32, AtomicU64, Condvar, Futex, Mutex, Ordering, RawLock, Visit};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::thread;
use shuttle::{Config, FailurePersistence, Runner};

#[test]
fn a_lock_excludes_and_wakes() {
    explore(|| lock_storm::<RawLock>(3, 2));
}

/// The canaries: shuttle finds the errors that a lock may have.
#[test]
fn a_lock_that_forgets_its_sleepers_is_caught() {
    assert_caught("deadlock", || lock_storm::<Forgetful>(3, 2));
}

#[test]
fn a_lock_that_looks_before_it_takes_is_caught() {
    assert_caught("two at a time", || lock_storm::<Hasty>(3, 1));
}

/// Members come and go, and there are two takers. No member is busy while a taker has the gate.
#[test]
fn a_reserved_lock_refuses_all_but_visitors() {
    explore(reservation_storm);
}

#[test]
fn the_gate_keeps_members_out() {
    explore(|| gate_storm(2, 2, 2, |member| member.enter()));
}

/// A member that waits while the gate is closed has its turn before the gate closes again.
#[test]
fn a_member_that_was_shut_out_goes_before_later_takers() {
    explore(|| {
        let gate = Arc::new(Gate::new(1));
        let turns = Arc::new(AtomicU32::new(0));
        let closed = gate.take();
        let member = thread::spawn({
            let (gate, turns) = (Arc::clone(&gate), Arc::clone(&turns));
            move || {
                let member = gate.join().expect("there are flags for all");
                member.enter();
                assert_eq!(turns.fetch_add(1, Ordering::SeqCst), 0, "a taker had its turn before");
                member.leave();
            }
        });
        while gate.shut_out() == 0 {
            thread::yield_now();
        }
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let (gate, turns) = (Arc::clone(&gate), Arc::clone(&turns));
                thread::spawn(move || {
                    let _guard = gate.take();
                    turns.fetch_add(1, Ordering::SeqCst);
                })
            })
            .collect();
        drop(closed);
        member.join().expect("the member goes first");
        takers.into_iter().for_each(|taker| taker.join().expect("a taker has its turn"));
    });
}

#[test]
fn the_gate_lets_all_members_in_again() {
    explore(|| gate_storm(3, 1, 3, |member| member.enter()));
}

/// The canary: a member that does not raise its flag.
#[test]
fn a_member_that_does_not_enter_is_caught() {
    assert_caught("has the gate", || gate_storm(2, 1, 2, |_| {}));
}

/// A member leaves before it takes the gate, as workers do. So two of them may want it at the same
/// time.
#[test]
fn members_take_the_gate_themselves() {
    explore(|| {
        let world = Arc::new(World::new(3));
        spawn_and_join(3, move |number| {
            let member = world.gate.join().expect("there are flags for all");
            member.enter();
            world.work();
            if number > 0 {
                member.leave();
                world.take();
                member.enter();
            }
            world.work();
            member.leave();
        });
    });
}

/// Flags pass from thread to thread while the gate is taken.
#[test]
fn members_join_and_leave_for_good() {
    explore(|| {
        let world = Arc::new(World::new(2));
        let shared = Arc::clone(&world);
        spawn_and_join(4, move |number| {
            if number == 3 {
                shared.take();
                shared.take();
                return;
            }
            for _ in 0..2 {
                // There are fewer flags than threads.
                if let Some(member) = shared.gate.join() {
                    member.enter();
                    shared.work();
                    // Dropping the member leaves the gate.
                }
            }
        });
        let members: Vec<_> = (0..2).map(|_| world.gate.join()).collect();
        assert!(members.iter().all(Option::is_some), "a flag was not given back");
        assert!(world.gate.join().is_none());
    });
}

/// The owner of an inbox sleeps whenever the inbox is empty. It still gets every post, in order.
#[test]
fn no_post_is_left_while_the_owner_sleeps() {
    explore(|| inbox_storm(Inbox::sleep));
}

/// The canary: an owner that looks before it announces that it will sleep.
#[test]
fn an_owner_that_announces_its_sleep_too_late_is_caught() {
    assert_caught("deadlock", || {
        inbox_storm(|inbox| {
            let idle = inbox.sleep();
            inbox.awake();
            idle && {
                // It sleeps, whatever this returns.
                inbox.sleep();
                true
            }
        });
    });
}

/// Every post is either taken once or given back, no matter when the inbox closes.
#[test]
fn a_closing_inbox_loses_no_post() {
    explore(|| {
        let inbox = Arc::new(Inbox::new(0, EventBell::default()));
        let posters: Vec<_> = (0..2)
            .map(|poster| {
                let inbox = Arc::clone(&inbox);
                thread::spawn(move || {
                    (0..3).filter(|number| inbox.post(poster * 10 + number).is_err()).count()
                })
            })
            .collect();
        if inbox.sleep() {
            inbox.bell().wait();
        }
        inbox.awake();
        let taken = inbox.take().len() + inbox.close().len();
        let back: usize = posters.into_iter().map(|poster| poster.join().expect("it ends")).sum();
        assert_eq!(taken + back, 6);
        assert!(inbox.take().is_empty());
    });
}

/// The owner ends when its inbox is empty. Every post is taken or given back.
#[test]
fn an_inbox_that_closes_when_it_is_empty_loses_no_post() {
    explore(|| {
        let inbox = Arc::new(Inbox::new(0, EventBell::default()));
        let poster = {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || (0..3).filter(|&number| inbox.post(number).is_err()).count())
        };
        let mut taken = 0;
        while !inbox.close_if_empty() {
            taken += inbox.take().len();
        }
        let back = poster.join().expect("it ends");
        assert_eq!(taken + back, 3);
        assert!(inbox.is_empty());
    });
}

/// Posts for something that moves to another inbox come behind it there.
#[test]
fn nothing_is_ahead_of_what_changes_its_inbox() {
    explore(|| moving_storm(true));
}

/// The canary: the new place is announced before it has arrived there.
#[test]
fn telling_of_a_move_too_early_is_caught() {
    assert_caught("ahead of what moves", || moving_storm(false));
}

/// Three threads change two things, one or both at a time. The merged log has exactly the changes
/// that happened, in an order that is possible. None of it is left while the reader sleeps.
#[test]
fn the_log_has_every_change_in_an_order_that_explains_it() {
    explore(|| log_storm(Log::default(), true));
}

/// A clock numbers the records as correctly as the counter.
#[test]
fn the_log_by_the_clock_has_every_change_in_an_order_that_explains_it() {
    explore(|| log_storm(clocked_log(0), true));
}

/// The canary: a number is taken when others can already see the change.
#[test]
fn a_number_that_is_taken_too_late_is_caught() {
    assert_caught("out of order", || log_storm(Log::default(), false));
    assert_caught("out of order", || log_storm(clocked_log(0), false));
}

/// The canary: a clock that shows one thread less than it showed another thread before.
#[test]
fn a_clock_that_goes_back_is_caught() {
    assert_caught("out of order", || log_storm(clocked_log(4), true));
}

/// If a reader sees a change, the log has it at or below the number that was last given out after
/// the reader looked. So its reply may be sent when everything up to that number is on disk.
#[test]
fn what_a_reader_saw_is_in_the_log_up_to_its_number() {
    explore(|| reading_storm(Log::default(), true));
    explore(|| reading_storm(clocked_log(0), true));
}

/// The canary: a reader that asks for the number before it looks.
#[test]
fn a_reply_that_waits_for_too_little_is_caught() {
    assert_caught("missing in the log", || reading_storm(Log::default(), false));
    assert_caught("missing in the log", || reading_storm(clocked_log(0), false));
}

// The scenarios.

/// Something moves from one inbox to another. Meanwhile other threads leave posts for it where they
/// are told that it is.
fn moving_storm(tells_behind: bool) {
    const MOVED: u32 = 99;
    let inboxes: Arc<[_; 2]> = Arc::new([0, 1].map(|rank| Inbox::new(rank, EventBell::default())));
    let place = Arc::new(AtomicU32::new(0));
    let posters: Vec<_> = (0..2)
        .map(|number| {
            let (inboxes, place) = (Arc::clone(&inboxes), Arc::clone(&place));
            thread::spawn(move || {
                let at = place.load(Ordering::Acquire) as usize;
                inboxes[at].post(number).expect("it is open");
            })
        })
        .collect();
    let tell = || place.store(1, Ordering::Release);
    if tells_behind {
        inboxes[1].post_and(MOVED, tell).expect("it is open");
    } else {
        tell();
        inboxes[1].post(MOVED).expect("it is open");
    }
    posters.into_iter().for_each(|poster| poster.join().expect("it ends"));
    assert_eq!(inboxes[1].take().first(), Some(&MOVED), "something is ahead of what moves");
}

/// A lock, correct or faulty.
trait Lock: Default + Send + Sync + 'static {
    fn lock(&self);
    fn unlock(&self);
}

impl Lock for RawLock {
    fn lock(&self) {
        assert!(self.lock_unless_reserved());
    }
    fn unlock(&self) {
        self.unlock();
    }
}

/// A faulty lock: a thread that has slept takes it as if no other thread slept.
#[derive(Default)]
struct Forgetful {
    state: Futex,
}

impl Lock for Forgetful {
    fn lock(&self) {
        let state = self.state.word();
        while state.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            if state.compare_exchange(1, 2, Ordering::Relaxed, Ordering::Relaxed) != Err(0) {
                self.state.wait(2);
            }
        }
    }
    fn unlock(&self) {
        if self.state.word().swap(0, Ordering::Release) == 2 {
            self.state.wake(1);
        }
    }
}

/// A faulty lock: it looks and takes in two steps.
#[derive(Default)]
struct Hasty {
    state: Futex,
}

impl Lock for Hasty {
    fn lock(&self) {
        while self.state.word().load(Ordering::Acquire) != 0 {
            thread::yield_now();
        }
        self.state.word().store(1, Ordering::Relaxed);
    }
    fn unlock(&self) {
        self.state.word().store(0, Ordering::Release);
    }
}

/// A count under a lock. It is not atomic.
struct Counted<L> {
    lock: L,
    inside: AtomicU32,
    count: UnsafeCell<u32>,
}

// SAFETY: `count` is only used while the lock is held, and `inside` detects a lock that two threads
// hold. Shuttle runs one thread at a time, so even then there is no data race.
unsafe impl<L: Lock> Sync for Counted<L> {}

/// One thread makes a change in two steps and leaves the lock reserved between them. Others lock or
/// visit it.
fn reservation_storm() {
    let things = Arc::new((RawLock::default(), AtomicU32::new(0), AtomicU32::new(0)));
    spawn_and_join(3, move |thread| {
        let (lock, first, second) = &*things;
        let add = |to: &AtomicU32| to.store(to.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        match thread {
            0 => {
                assert!(lock.lock_unless_reserved());
                add(first);
                lock.reserve();
                // In between it stays reserved, as between the slices of a script.
                lock.enter();
                add(first);
                add(second);
                lock.reserve();
                lock.take_back();
                add(second);
                lock.unlock();
            }
            1 => {
                for _ in 0..2 {
                    if lock.lock_unless_reserved() {
                        let seen = first.load(Ordering::Relaxed);
                        assert_eq!(seen, second.load(Ordering::Relaxed));
                        lock.unlock();
                    }
                }
            }
            _ => {
                let visit = lock.visit();
                let seen = first.load(Ordering::Relaxed);
                let whole = seen == second.load(Ordering::Relaxed);
                assert!(whole || visit == Visit::Reserved);
                lock.end_visit(visit);
            }
        }
    });
}

fn lock_storm<L: Lock>(threads: u32, rounds: u32) {
    let (lock, inside, count) = (L::default(), AtomicU32::new(0), UnsafeCell::new(0));
    let counted = Arc::new(Counted { lock, inside, count });
    let shared = Arc::clone(&counted);
    spawn_and_join(threads, move |_| {
        for _ in 0..rounds {
            shared.lock.lock();
            assert_eq!(shared.inside.swap(1, Ordering::SeqCst), 0, "two at a time");
            // SAFETY: the lock is held.
            unsafe { *shared.count.get() += 1 };
            shared.inside.store(0, Ordering::SeqCst);
            shared.lock.unlock();
        }
    });
    // SAFETY: all other threads have ended.
    assert_eq!(unsafe { *counted.count.get() }, threads * rounds);
}

/// A gate, and what must hold for it.
struct World {
    gate: Gate,
    busy: AtomicU32,
    taken: AtomicU32,
}

impl World {
    fn new(members: usize) -> Self {
        Self { gate: Gate::new(members), busy: AtomicU32::new(0), taken: AtomicU32::new(0) }
    }

    /// What a member does while it is busy.
    fn work(&self) {
        self.busy.fetch_add(1, Ordering::SeqCst);
        assert_eq!(self.taken.load(Ordering::SeqCst), 0, "somebody has the gate");
        self.busy.fetch_sub(1, Ordering::SeqCst);
    }

    fn take(&self) {
        let guard = self.gate.take();
        assert_eq!(self.taken.fetch_add(1, Ordering::SeqCst), 0, "somebody else has the gate");
        assert_eq!(self.busy.load(Ordering::SeqCst), 0, "a member is busy, and who has the gate");
        self.taken.fetch_sub(1, Ordering::SeqCst);
        drop(guard);
    }
}

fn gate_storm(members: u32, takers: u32, rounds: usize, enter: fn(&Member<'_>)) {
    let world = World::new(members as usize);
    spawn_and_join(members + takers, move |number| {
        if number >= members {
            return world.take();
        }
        let member = world.gate.join().expect("there are flags for all");
        for _ in 0..rounds {
            enter(&member);
            world.work();
            member.leave();
        }
    });
}

/// Does what an eventfd does: a ring is remembered until a thread waits.
#[derive(Default)]
struct EventBell {
    rung: Mutex<bool>,
    change: Condvar,
}

impl Bell for EventBell {
    fn ring(&self) {
        *self.rung.lock() = true;
        self.change.notify_one();
    }
}

impl EventBell {
    fn wait(&self) {
        let mut rung = self.rung.lock();
        while !*rung {
            rung = self.change.wait(rung);
        }
        *rung = false;
    }
}

/// Two threads post. The owner takes posts until it has all of them.
fn inbox_storm(sleep: fn(&Inbox<u32, EventBell>) -> bool) {
    const POSTERS: u32 = 2;
    const POSTS: u32 = 2;
    let inbox = Inbox::new(0, EventBell::default());
    spawn_and_join(POSTERS + 1, move |number| {
        if number < POSTERS {
            (0..POSTS).for_each(|post| inbox.post(number * POSTS + post).expect("it is open"));
            return;
        }
        let mut taken = Vec::new();
        while taken.len() < (POSTERS * POSTS) as usize {
            if sleep(&inbox) {
                inbox.bell().wait();
            }
            inbox.awake();
            taken.extend(inbox.take());
        }
        for poster in 0..POSTERS {
            let of_one = taken.iter().copied().filter(|post| post / POSTS == poster);
            assert!(of_one.eq(poster * POSTS..(poster + 1) * POSTS), "out of order: {taken:?}");
        }
    });
}

/// Things that are changed under their locks, and how often each was changed.
#[derive(Default)]
struct Things {
    locks: [RawLock; 2],
    versions: [AtomicU32; 2],
    /// The highest number of all records whose changes were acknowledged.
    acknowledged: AtomicU64,
}

/// A log whose numbers come from a clock. Every second time the clock shows `skew` less.
fn clocked_log(skew: u64) -> Log {
    let time = AtomicU64::new(skew);
    let log = Log::with_clock(Box::new(move || {
        let now = time.fetch_add(1, Ordering::SeqCst) + 1;
        if now % 2 == 1 { now - skew } else { now }
    }));
    log.number_by_clock(true);
    assert!(log.is_by_clock());
    log
}

/// A record has the version of each thing that the change made (0: not changed), and the highest
/// number that was acknowledged before the change began.
fn log_storm(log: Log, number_is_taken_before_unlocking: bool) {
    const WRITERS: u32 = 3;
    const CHANGES: u32 = 2;
    let things = Things::default();
    spawn_and_join(WRITERS + 1, move |number| {
        if number == WRITERS {
            return read_log(&log, WRITERS * CHANGES);
        }
        let lane = log.lane();
        for round in 0..CHANGES {
            let which = [number != 0, (number + round) % 2 == 0 || number == 0];
            let seen = things.acknowledged.load(Ordering::SeqCst);
            let chosen = || (0..2).filter(|&at| which[at]);
            chosen().for_each(|at| assert!(things.locks[at].lock_unless_reserved()));
            let mut record = Vec::new();
            for (version, changes) in things.versions.iter().zip(which) {
                let version = if changes { version.fetch_add(1, Ordering::SeqCst) + 1 } else { 0 };
                record.push(version as u8);
            }
            record.push(seen as u8);
            let unlock = || chosen().for_each(|at| things.locks[at].unlock());
            let number;
            if number_is_taken_before_unlocking {
                number = lane.append(&record).number;
                unlock();
            } else {
                unlock();
                number = lane.append(&record).number;
            }
            things.acknowledged.fetch_max(number, Ordering::SeqCst);
            lane.ring();
        }
    });
}

/// Reads `records` records, and checks that they can have happened in their order.
fn read_log(log: &Log, records: u32) {
    let (mut merger, mut versions) = (Merger::default(), [0, 0]);
    for _ in 0..records {
        let mut done = merger.done();
        while merger.take_next(u64::MAX).is_none_or(|record| {
            for at in 0..2 {
                if record[at] != 0 {
                    versions[at] += 1;
                    assert_eq!(record[at], versions[at], "out of order");
                }
            }
            assert!(u64::from(record[2]) <= done, "before what it was acknowledged after");
            false
        }) {
            log.sleep(None);
            merger.collect(log);
            done = merger.done();
        }
    }
}

/// Writers change a thing, and readers look at it. A record is the version that the change made.
fn reading_storm(log: Log, number_is_asked_for_last: bool) {
    const WRITERS: u32 = 2;
    const READERS: u32 = 2;
    const ROUNDS: u32 = 2;
    let (log, things) = (Arc::new(log), Things::default());
    // For each reply: the number that it waits for, and the version that it shows.
    let replies = Arc::<Mutex<Vec<(u64, u32)>>>::default();
    let (shared, told) = (Arc::clone(&log), Arc::clone(&replies));
    spawn_and_join(WRITERS + READERS, move |number| {
        let lane = (number < WRITERS).then(|| shared.lane());
        for _ in 0..ROUNDS {
            let before = shared.last();
            assert!(things.locks[0].lock_unless_reserved());
            let version = things.versions[0].load(Ordering::SeqCst);
            if let Some(lane) = &lane {
                things.versions[0].store(version + 1, Ordering::SeqCst);
                lane.append(&[version as u8 + 1]);
            }
            things.locks[0].unlock();
            if lane.is_none() {
                let number = if number_is_asked_for_last { shared.last() } else { before };
                told.lock().push((number, version));
            }
        }
    });
    let mut merger = Merger::default();
    merger.collect(&log);
    let mut logged = Vec::new();
    while let Some(record) = merger.take_next(u64::MAX) {
        let version = u32::from(record[0]);
        logged.push((merger.done(), version));
    }
    assert_eq!(logged.len() as u32, WRITERS * ROUNDS);
    for &(number, version) in &*replies.lock() {
        let before = logged.iter().take_while(|(logged, _)| *logged <= number);
        assert!(version <= before.count() as u32, "missing in the log");
    }
}

// The cut.

/// A cut shows the keys of all shards as they were at one moment, no matter which threads change
/// them meanwhile.
#[test]
fn a_cut_is_one_moment() {
    explore(|| cut_storm(true));
}

/// The canary: a writer that the gate does not keep out, and that holds a shard meanwhile.
#[test]
fn a_writer_that_does_not_enter_is_caught() {
    assert_caught("is held by somebody, and so is the gate", || cut_storm(false));
}

/// Accounts between which writers move money. The sum is always the same.
struct Bank {
    keyspace: Keyspace,
    gate: Gate,
    accounts: Vec<Vec<u8>>,
}

const ACCOUNTS: usize = 3;
const BALANCE: u32 = 10;
const TRANSFERS: usize = 2;

fn cut_storm(enters: bool) {
    let bank = Arc::new(Bank::new(3));
    spawn_and_join(3, move |number| {
        let member = bank.gate.join().expect("there are flags for all");
        if number == 2 {
            bank.audit(&member);
            return;
        }
        for round in 0..TRANSFERS {
            if enters {
                member.enter();
            }
            let from = (number as usize + round) % ACCOUNTS;
            bank.transfer(from, (from + 1) % ACCOUNTS, round == 0);
            if enters {
                member.leave();
            }
        }
    });
}

impl Bank {
    fn new(members: usize) -> Self {
        let keyspace = Keyspace::new(7);
        // Each account is in a different shard.
        let in_shard = |wanted| {
            let mut names = (0..1000).map(|number| format!("account {number}").into_bytes());
            names.find(|name| keyspace.hash(name).shard() == wanted).expect("there is one")
        };
        let accounts = (0..ACCOUNTS).map(in_shard).collect();
        let bank = Self { keyspace, gate: Gate::new(members), accounts };
        for account in &bank.accounts {
            let mut shard = bank.keyspace.lock(bank.keyspace.hash(account).shard());
            bank.put(&mut shard, account, BALANCE);
        }
        bank
    }

    fn put(&self, shard: &mut Shard, account: &[u8], balance: u32) {
        let (hash, hasher) = (self.keyspace.hash(account), self.keyspace.hasher());
        let clock = AccessClock::new(AccessPolicy::Lru, 0);
        let database = shard.database_mut(0);
        let found = database.find(hash, account);
        let text = balance.to_string();
        let value = NewValue::string(text.as_bytes());
        database.set(hash, account, found, value, Expire::Keep, &clock, hasher);
    }

    fn take(&self, shard: &mut Shard, account: &[u8], delete: bool) -> u32 {
        let database = shard.database_mut(0);
        let place = database.find(self.keyspace.hash(account), account).expect("it is there");
        let balance = parse(&database.entry(place).string().joined());
        if delete {
            drop(database.remove(place, self.keyspace.hasher()));
        }
        balance
    }

    /// Moves 1 while both accounts are held. If `anew` is true, the entries are deleted and made
    /// again.
    fn transfer(&self, from: usize, to: usize, anew: bool) {
        let accounts = [from.min(to), from.max(to)].map(|at| &self.accounts[at]);
        let mut shards =
            accounts.map(|account| self.keyspace.lock(self.keyspace.hash(account).shard()));
        for (at, account) in accounts.iter().enumerate() {
            let gets = (at == 0) == (to < from);
            let balance = self.take(&mut shards[at], account, anew);
            let balance = if gets { balance + 1 } else { balance - 1 };
            self.put(&mut shards[at], account, balance);
            // Other threads run in between, unless they are kept out.
            thread::yield_now();
        }
    }

    fn audit(&self, member: &Member<'_>) {
        let mut cut = Cut::begin(&self.keyspace, &mut self.gate.take());
        let (mut pieces, mut sum, mut seen) = (Vec::new(), 0, 0);
        loop {
            member.enter();
            let visit = |at, walk: &mut dyn FnMut(&mut Shard)| walk(&mut self.keyspace.lock(at));
            let more = cut.step(self.keyspace.hasher(), visit, 1, &mut pieces);
            member.leave();
            for piece in pieces.drain(..) {
                sum += parse(&piece.entry.as_ref().string().joined());
                seen += 1;
            }
            if !more {
                break;
            }
        }
        let expected = (ACCOUNTS, BALANCE * ACCOUNTS as u32);
        assert_eq!((seen, sum), expected, "accounts and money in all");
    }
}

fn parse(text: &[u8]) -> u32 {
    str::from_utf8(text).ok().and_then(|text| text.parse().ok()).expect("a balance")
}

// The schedules.

/// How many schedules each scheduler tries.
const ITERATIONS: usize = 10_000;
const SEED: u64 = 1009;
/// How many changes of priority PCT makes. Most errors need fewer.
const DEPTH: usize = 4;

/// Runs `work` under many schedules, both random ones and those of PCT. They are always the same,
/// unless `SHUTTLE_SEED` is set.
fn explore(work: impl Fn() + Send + Sync + 'static) {
    let seed = number("SHUTTLE_SEED").unwrap_or(SEED);
    let iterations = number("SHUTTLE_ITERATIONS").map_or(ITERATIONS, |count| count as usize);
    println!("SHUTTLE_SEED={seed} SHUTTLE_ITERATIONS={iterations}");
    let work = Arc::new(work);
    let again = Arc::clone(&work);
    run(RandomScheduler::new_from_seed(seed, iterations), move || work());
    run(PctScheduler::new_from_seed(seed, DEPTH, iterations), move || again());
}

/// Checks that shuttle finds this to fail, and with this message.
fn assert_caught(how: &str, work: impl Fn() + Send + Sync + 'static) {
    let caught = catch_unwind(AssertUnwindSafe(|| {
        run(RandomScheduler::new_from_seed(0, ITERATIONS), work);
    }));
    let payload = caught.expect_err("a broken thing was not caught");
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or_default();
    assert!(text.contains(how), "caught for another reason: {text}");
}

fn run(scheduler: impl Scheduler + 'static, work: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.silence_warnings = true;
    config.failure_persistence = FailurePersistence::Print;
    Runner::new(scheduler, config).run(work);
}

/// Runs `work` on `threads` threads, each with its number, and waits for all.
fn spawn_and_join(threads: u32, work: impl Fn(u32) + Send + Sync + 'static) {
    let work = Arc::new(work);
    let spawn = |number| {
        let work = Arc::clone(&work);
        thread::spawn(move || work(number))
    };
    let threads: Vec<_> = (0..threads).map(spawn).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
