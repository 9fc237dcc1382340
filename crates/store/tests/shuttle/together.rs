//! A thread follows a stream and has helpers. It takes the shards of a window, lends them out with
//! the parts of the window, and unlocks them when all parts are done. Meanwhile a reader holds one
//! shard at a time.

use bobbin_sync::crew::Crew;
use bobbin_sync::{AtomicU32, Ordering, RawLock};
use shuttle::thread;

use super::{assert_caught, explore};

/// A window has one command for each shard, and the last shard's comes first. Number `n` is written
/// to one shard.
const SHARDS: u32 = 3;
const WINDOWS: u32 = 2;

#[test]
fn nobody_sees_a_part_of_a_window_without_the_others() {
    explore(|| window_storm(1, Lock::Window));
    explore(|| window_storm(2, Lock::Window));
}

/// The canary: each shard is locked with its part.
#[test]
fn parts_that_lock_their_own_shards_are_caught() {
    assert_caught("what came before it is missing", || window_storm(1, Lock::Part));
}

/// When shards are locked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lock {
    /// All are locked before the first part begins, and unlocked when the last part is done.
    Window,
    /// Each is locked with its part.
    Part,
}

/// A number for the shard to which the part belongs.
struct Part {
    shard: usize,
    number: u32,
}

struct World {
    locks: [RawLock; SHARDS as usize],
    crew: Crew<Part>,
    numbers: [AtomicU32; SHARDS as usize],
    lock: Lock,
}

impl World {
    fn carry_out(&self, part: Part) -> Part {
        let own = self.locks.get(part.shard).filter(|_| self.lock == Lock::Part);
        own.into_iter().for_each(lock);
        thread::yield_now();
        self.numbers[part.shard].store(part.number, Ordering::Relaxed);
        own.into_iter().for_each(RawLock::unlock);
        part
    }

    fn lead(&self) {
        for window in 0..WINDOWS {
            self.crew.call();
            let all = || self.locks.iter().filter(|_| self.lock == Lock::Window);
            all().for_each(lock);
            let part =
                |at| Part { shard: (SHARDS - 1 - at) as usize, number: window * SHARDS + at + 1 };
            let mut parts: Vec<_> = (0..SHARDS).map(part).collect();
            self.crew.hand_out(&mut parts);
            while let Some(part) = self.crew.take() {
                self.crew.finish(self.carry_out(part));
            }
            self.crew.gather(&mut parts);
            assert_eq!(parts.len(), SHARDS as usize, "each part comes back");
            let newest = self.numbers[0].load(Ordering::Relaxed);
            assert_eq!(newest, (window + 1) * SHARDS, "a part is not done");
            all().for_each(RawLock::unlock);
        }
        self.crew.dismiss();
    }

    fn help(&self) {
        let mut finished = None;
        while let Some(part) = self.crew.next(finished.take()) {
            finished = Some(self.carry_out(part));
        }
    }

    /// The newest number that was seen tells what the other shards must have.
    fn read(&self) {
        let mut newest = 0;
        for shard in (0..SHARDS as usize).chain(0..SHARDS as usize) {
            lock(&self.locks[shard]);
            let number = self.numbers[shard].load(Ordering::Relaxed);
            self.locks[shard].unlock();
            let first = SHARDS - shard as u32;
            let least = match newest.cmp(&first) {
                std::cmp::Ordering::Less => 0,
                _ => newest - (newest - first) % SHARDS,
            };
            assert!(number >= least, "what came before it is missing");
            newest = newest.max(number);
        }
    }
}

fn lock(lock: &RawLock) {
    assert!(lock.lock_unless_reserved(), "nobody reserves anything");
}

fn window_storm(helpers: usize, lock: Lock) {
    let (locks, crew, numbers) = Default::default();
    let world = World { locks, crew, numbers, lock };
    thread::scope(|scope| {
        for _ in 0..helpers {
            scope.spawn(|| world.help());
        }
        scope.spawn(|| world.read());
        world.lead();
    });
}
