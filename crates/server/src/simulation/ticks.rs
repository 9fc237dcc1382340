//! The counter that measures commands, as the calling thread's processes have it: a nanosecond
//! each. It moves on by a microsecond whenever it is read, and by more now and then if a test wants
//! that: then what has its time by this counter (a script in its worker, a slice of expiry or of
//! eviction) comes to its end anywhere, and the same seed has it end there again.

use std::cell::RefCell;
use std::sync::Arc;

use bobbin_sync::Mutex;

use crate::base::random::Random;

const PER_US: u64 = crate::base::clock::SIMULATED_PER_US as u64;

/// The counter, and what it jumps by.
pub type SharedTicks = Arc<Mutex<Ticks>>;

#[derive(Default)]
pub struct Ticks {
    now: u64,
    /// How many reads come to one that jumps, and by how many microseconds at most.
    jumps: Option<(Random, u32, u32)>,
}

thread_local! {
    static TICKS: RefCell<Option<SharedTicks>> = const { RefCell::new(None) };
}

/// Has the calling thread's processes measure by this.
pub fn begin() {
    TICKS.with_borrow_mut(|ticks| {
        ticks.get_or_insert_default();
    });
}

/// What the calling thread measures by, for another one that works for it.
pub fn shared() -> Option<SharedTicks> {
    TICKS.with_borrow(Clone::clone)
}

pub fn adopt(ticks: Option<SharedTicks>) {
    TICKS.set(ticks);
}

/// Has one read of `one_in` move the counter on by up to `us`; `None`: none does.
pub fn jump(jumps: Option<(Random, u32, u32)>) {
    let ticks = shared().expect("the calling thread drives a process");
    ticks.lock().jumps = jumps;
}

/// Has so much time go by.
pub fn pass(us: u64) {
    shared().expect("the calling thread drives a process").lock().now += us * PER_US;
}

/// The counter; `None`: the calling thread drives no process.
#[inline]
pub fn read() -> Option<u64> {
    // A thread that ends may still measure.
    let measured =
        |ticks: &RefCell<Option<SharedTicks>>| Some(ticks.borrow().as_ref()?.lock().read());
    TICKS.try_with(measured).ok().flatten()
}

impl Ticks {
    pub fn read(&mut self) -> u64 {
        let jump_us = match &mut self.jumps {
            Some((random, one_in, us)) => match random.below(*one_in) {
                0 => random.below(*us),
                _ => 0,
            },
            None => 0,
        };
        self.now += PER_US * (1 + u64::from(jump_us));
        self.now
    }
}
