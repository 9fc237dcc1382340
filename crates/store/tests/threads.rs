//! Real threads use the lock, the gate, the inbox and a keyspace. Miri runs these tests too. It
//! delays stores as weak memory may do, and it reports two accesses that nothing orders.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use bobbin_store::shard::Expire;
use bobbin_store::{AccessClock, AccessPolicy, Gate, Keyspace, NewValue};
use bobbin_sync::inbox::{Bell, Inbox};
use bobbin_sync::{Condvar, Mutex, RawLock};

const ROUNDS: u64 = if cfg!(miri) { 8 } else { 5_000 };
const THREADS: u64 = 3;

/// A number that is not atomic. So accesses to it must be ordered by what is tested.
#[derive(Default)]
struct Plain(UnsafeCell<u64>);

// SAFETY: the tests use it only while they hold what they test.
unsafe impl Sync for Plain {}

impl Plain {
    fn add_one(&self) {
        // SAFETY: only the caller has access now.
        unsafe { *self.0.get() += 1 };
    }

    fn read(&self) -> u64 {
        // SAFETY: because of what the caller holds, no thread writes it meanwhile.
        unsafe { *self.0.get() }
    }
}

#[test]
fn a_lock_orders_what_is_done_with_it_held() {
    let (lock, count) = (RawLock::default(), Plain::default());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (lock, count) = (&lock, &count);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    if (round + thread).is_multiple_of(4) {
                        while !lock.try_lock() {
                            thread::yield_now();
                        }
                    } else {
                        assert!(lock.lock_unless_reserved());
                    }
                    count.add_one();
                    lock.unlock();
                }
            });
        }
    });
    assert_eq!(count.read(), THREADS * ROUNDS);
}

/// The thread that has the gate writes what members only read, and it reads what each member writes
/// for itself.
#[test]
fn the_gate_orders_members_and_takers() {
    let (gate, common) = (Gate::new(THREADS as usize), Plain::default());
    let own: Vec<Plain> = (0..THREADS).map(|_| Plain::default()).collect();
    let running = AtomicU64::new(THREADS);
    thread::scope(|scope| {
        for mine in &own {
            let (gate, common, running) = (&gate, &common, &running);
            scope.spawn(move || {
                let member = gate.join().expect("there are flags for all");
                let mut seen = 0;
                for _ in 0..ROUNDS {
                    member.enter();
                    mine.add_one();
                    let now = common.read();
                    assert!(now >= seen);
                    seen = now;
                    member.leave();
                }
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                while running.load(Ordering::Relaxed) > 0 {
                    let guard = gate.take();
                    common.add_one();
                    assert!(own.iter().map(Plain::read).sum::<u64>() <= THREADS * ROUNDS);
                    drop(guard);
                    thread::yield_now();
                }
            });
        }
    });
    assert_eq!(own.iter().map(Plain::read).sum::<u64>(), THREADS * ROUNDS);
}

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

/// The owner sleeps without a time limit. If a post did not wake it, the test would hang.
#[test]
fn an_inbox_wakes_its_owner() {
    let inbox = Inbox::new(0, EventBell::default());
    thread::scope(|scope| {
        for poster in 0..THREADS {
            let inbox = &inbox;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    inbox.post(Box::new((poster, round))).expect("it is open");
                }
            });
        }
        let mut next = [0; THREADS as usize];
        while next.iter().sum::<u64>() < THREADS * ROUNDS {
            if inbox.sleep() {
                let mut rung = inbox.bell().rung.lock();
                while !std::mem::take(&mut *rung) {
                    rung = inbox.bell().change.wait(rung);
                }
            }
            inbox.awake();
            for post in inbox.take() {
                let (poster, round) = *post;
                assert_eq!(round, next[poster as usize]);
                next[poster as usize] += 1;
            }
        }
    });
    assert!(inbox.close().is_empty());
    assert!(inbox.post(Box::new((0, 0))).is_err());
}

/// Threads set, read and prefetch keys of one keyspace. Sometimes one thread has all of it.
#[test]
fn a_keyspace_is_shared_by_lock_and_by_gate() {
    const CLOCK: AccessClock = AccessClock::new(AccessPolicy::Lru, 1000);
    let (keyspace, gate) = (Keyspace::new(7), Gate::new(THREADS as usize));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|number| {
                let (keyspace, gate) = (&keyspace, &gate);
                scope.spawn(move || {
                    let member = gate.join().expect("there are flags for all");
                    for round in 0..ROUNDS {
                        let key = format!("key {}", (round + number) % 5).into_bytes();
                        let value = format!("{number} {round}").into_bytes();
                        let hash = keyspace.hash(&key);
                        member.enter();
                        keyspace.prefetch_shard(hash);
                        keyspace.prefetch_bucket(hash);
                        keyspace.prefetch_entry(hash, 0, false);
                        let mut shard = keyspace.lock(hash.shard());
                        let database = shard.database_mut(0);
                        let found = database.find(hash, &key);
                        let value = NewValue::string(&value);
                        let hasher = keyspace.hasher();
                        database.set(hash, &key, found, value, Expire::Clear, &CLOCK, hasher);
                        drop(shard);
                        member.leave();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let mut guard = gate.take();
                let shard = keyspace.hash(b"key 1").shard();
                drop(keyspace.exclusive(&mut guard, shard).flush(0, keyspace.hasher()));
                keyspace.refresh_hint(&mut guard, shard);
                assert_eq!(keyspace.len_hint(shard), 0);
                drop(guard);
                thread::yield_now();
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    let hash = keyspace.hash(b"key 2");
    let shard = keyspace.lock(hash.shard());
    let database = shard.database(0).unwrap();
    assert!(database.find(hash, b"key 2").is_some());
}
