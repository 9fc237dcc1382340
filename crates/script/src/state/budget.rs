//! What a script may take: steps between two looks at its host, and bytes of memory.
//!
//! Lua calls the watch's hook after a number of instructions, but one instruction may call a
//! function that works for long, or work on a large value. So each of our functions charges its
//! steps here, and the allocator charges for the bytes it moves. The larger the values of the state
//! are, the sooner the hook is called.

use std::cell::Cell;
use std::sync::Arc;

use super::pool::MemoryPool;
use super::raw::{LUA_MASKCOUNT, Raise, Stack, lua_State};
use super::{Core, watch};
use mlua_sys as lua;

/// The accounts of one state.
pub(crate) struct Budget {
    pool: Arc<MemoryPool>,
    /// Bytes of the pool that the state has leased.
    pub(crate) lease: Cell<usize>,
    /// The most bytes that were used when that was looked at.
    peak: Cell<usize>,
    /// Bytes of buffers of ours that a script has filled.
    scratch: Cell<usize>,
    /// Bytes that the host keeps for the script.
    kept: Cell<usize>,
    /// Steps until the host is asked.
    steps: Cell<usize>,
    /// How many large blocks the state has, by the logarithm of their size.
    large: [Cell<u32>; usize::BITS as usize],
    /// The size that no block exceeds; 0: none is large.
    largest: Cell<usize>,
    /// The state or coroutine that runs.
    running: Cell<*mut lua_State>,
}

/// Steps between two looks at the host: each some ten nanoseconds.
const STEPS: usize = 1 << 11;
/// Steps that a string takes but for its bytes, and a place in a table: each is allocated.
const ALLOCATED_STEPS: usize = 4;
/// Bytes that are copied in a step, or so.
const STEP_BYTES: usize = 64;
/// Blocks of this size and more are charged for, in bytes. Smaller ones are as quick as an
/// instruction.
pub(crate) const CHARGED_BYTES: usize = 4096;
/// Elements of a list that are counted for one step.
pub(crate) const LISTED_PER_STEP: usize = 16;
/// What is smaller is quick to work through, in bytes.
const LARGE_BYTES: usize = 64 * 1024;
/// What an entry of a table takes at most, in bytes.
const ENTRY_BYTES: usize = 40;
/// How many instructions pass between two looks at the host while no value is large.
const INTERVAL: i32 = 5_000;
/// Bytes that the instructions between two looks can read at most, each of them the largest block.
const INTERVAL_BYTES: usize = 256 << 20;

impl Budget {
    pub(crate) fn new(pool: Arc<MemoryPool>) -> Self {
        Self {
            pool,
            lease: Cell::new(0),
            peak: Cell::new(0),
            scratch: Cell::new(0),
            kept: Cell::new(0),
            steps: Cell::new(STEPS),
            large: [const { Cell::new(0) }; usize::BITS as usize],
            largest: Cell::new(0),
            running: Cell::new(std::ptr::null_mut()),
        }
    }

    /// Instructions between two looks.
    pub(crate) fn interval(&self) -> i32 {
        match self.largest.get() {
            0 => INTERVAL,
            largest => (INTERVAL_BYTES / largest).clamp(1, INTERVAL as usize) as i32,
        }
    }

    /// Leases what is used, if the pool has it.
    pub(crate) fn covers(&self, used: usize) -> bool {
        let bytes = used.saturating_add(self.scratch.get()).saturating_add(self.kept.get());
        if bytes <= self.lease.get() {
            self.peak.set(self.peak.get().max(bytes));
            return true;
        }
        match self.pool.extend(self.lease.get(), bytes) {
            Some(lease) => {
                self.lease.set(lease);
                self.peak.set(self.peak.get().max(bytes));
                true
            }
            None => false,
        }
    }

    /// The most that was ever used.
    pub(crate) fn peak(&self) -> usize {
        self.peak.get()
    }

    /// Leases what is used, and no more. The host keeps nothing for a script that is over.
    pub(crate) fn settle(&self, used: usize) {
        self.kept.set(0);
        self.lease.set(self.pool.settle(self.lease.get(), used));
    }

    /// Does so behind a script, but keeps as much again as is used: what the next scripts leave
    /// until it is collected. So a state that is used again and again asks the pool for nothing.
    pub(crate) fn settle_between(&self, used: usize) {
        let enough = used.saturating_mul(2);
        self.settle(used.max(self.lease.get().min(enough)));
    }

    /// Notes that a large block comes or goes; whether the largest is another then.
    fn count_block(&self, old: usize, new: usize) -> bool {
        if old >= LARGE_BYTES {
            let class = &self.large[old.ilog2() as usize];
            class.set(class.get().saturating_sub(1));
        }
        if new >= LARGE_BYTES {
            let class = &self.large[new.ilog2() as usize];
            class.set(class.get() + 1);
        }
        let class = self.large.iter().rposition(|count| count.get() > 0);
        let largest = class.map_or(0, |class| 2usize.saturating_pow(class as u32 + 1));
        largest != self.largest.replace(largest)
    }
}

impl Core {
    /// Charges a script for work, and asks the host from time to time. The caller must raise the
    /// error.
    #[inline(always)]
    pub(crate) fn charge(&self, stack: Stack, steps: usize) -> Result<(), Raise> {
        let left = self.budget.steps.get();
        if steps < left {
            self.budget.steps.set(left - steps);
            return Ok(());
        }
        self.account(stack)
    }

    /// Has the host asked at the next charge.
    #[cold]
    pub(crate) fn end_steps(&self) {
        self.budget.steps.set(0);
    }

    /// Charges a script for work on this many bytes.
    #[inline(always)]
    pub(crate) fn charge_bytes(&self, stack: Stack, bytes: usize) -> Result<(), Raise> {
        self.charge(stack, 1 + bytes / STEP_BYTES)
    }

    /// Charges a script for a string that it makes, and checks that there is memory for it.
    #[inline(always)]
    pub(crate) fn charge_string(&self, stack: Stack, len: usize) -> Result<(), Raise> {
        self.charge(stack, ALLOCATED_STEPS + len / STEP_BYTES)?;
        if len >= CHARGED_BYTES { self.check_room(stack, len) } else { Ok(()) }
    }

    /// Charges a script for an element that it adds to a table of `count` elements. Tables grow to
    /// double their size.
    #[inline(always)]
    pub(crate) fn charge_element(&self, stack: Stack, count: usize) -> Result<(), Raise> {
        self.charge(stack, ALLOCATED_STEPS)?;
        if count >= CHARGED_BYTES && count.is_power_of_two() {
            return self.check_room(stack, 2 * count * ENTRY_BYTES);
        }
        Ok(())
    }

    /// For how many bytes more there is memory, but for what other scripts take meanwhile.
    pub(crate) fn room(&self) -> usize {
        let Budget { pool, lease, kept, .. } = &self.budget;
        let all = lease.get() + pool.limit().saturating_sub(pool.leased());
        all.saturating_sub(self.used.get() + kept.get())
    }

    /// Fails if there is no memory for this many more bytes.
    #[cold]
    fn check_room(&self, stack: Stack, bytes: usize) -> Result<(), Raise> {
        if self.budget.covers(self.used.get().saturating_add(bytes)) {
            return Ok(());
        }
        Err(stack.fail(NO_MEMORY))
    }

    /// Charges a script for work that depends on the size of a table, which Lua does not tell.
    #[inline(always)]
    pub(crate) fn charge_table(&self, stack: Stack) -> Result<(), Raise> {
        self.charge_bytes(stack, self.budget.largest.get())
    }

    /// Asks the host, and whether there is memory for what the script has.
    #[cold]
    pub(crate) fn account(&self, stack: Stack) -> Result<(), Raise> {
        self.budget.steps.set(STEPS);
        self.budget.kept.set(self.host().map_or(0, |host| host.kept_bytes()));
        if !self.budget.covers(self.used.get()) {
            // A script that catches the error must not have commands keep more.
            self.end_steps();
            return Err(stack.fail(NO_MEMORY));
        }
        if self.look(stack) { Ok(()) } else { Err(self.stop(stack, "")) }
    }

    /// Whether the state has values that are large.
    pub(crate) fn has_large(&self) -> bool {
        self.budget.largest.get() > 0
    }

    /// What comparing two values is charged with.
    pub(crate) fn comparison_steps(&self) -> usize {
        4 + self.budget.largest.get() / STEP_BYTES
    }

    /// Charges for a block that Lua allocates, changes or frees. `false`: it must not get it.
    #[cold]
    pub(crate) fn charge_block(&self, old: usize, new: usize) -> bool {
        if new > old {
            let used = self.used.get() + new - old + self.budget.scratch.get();
            self.budget.peak.set(self.budget.peak.get().max(used));
            let left = self.budget.steps.get();
            self.budget.steps.set(left.saturating_sub(1 + new / STEP_BYTES));
            if self.budget.steps.get() == 0 && self.hosted.get() == 0 {
                self.budget.steps.set(STEPS);
                if !self.look(self.main()) {
                    return false;
                }
            }
        }
        if self.budget.count_block(old, new) && !self.is_stopping() {
            self.set_interval(self.running());
        }
        true
    }

    /// Has the hook come as often as the size of values asks for.
    pub(crate) fn set_interval(&self, state: *mut lua_State) {
        let interval = self.budget.interval();
        // SAFETY: callers give a state that is alive, or none: the one that runs (see
        // `Core::caught`). To set the hook begins to count anew, so that it is not done for
        // nothing.
        unsafe {
            if !state.is_null() && lua::lua_gethookcount(state) != interval {
                lua::lua_sethook(state, Some(watch), LUA_MASKCOUNT, interval);
            }
        }
    }

    /// The state or coroutine that runs.
    pub(crate) fn running(&self) -> *mut lua_State {
        self.budget.running.get()
    }

    /// Notes which one runs now.
    pub(crate) fn set_running(&self, state: *mut lua_State) {
        self.budget.running.set(state);
        if !self.is_stopping() {
            self.set_interval(state);
        }
    }
}

/// Bytes that a function of ours writes, charged to the script as they come.
pub(crate) struct Output<'a> {
    pub(crate) stack: Stack,
    core: &'a Core,
    bytes: Vec<u8>,
    /// What of `scratch` is this one's.
    counted: usize,
}

impl<'a> Output<'a> {
    pub(crate) fn new(stack: Stack, core: &'a Core) -> Self {
        Self::reusing(stack, core, Vec::new())
    }

    /// With the memory of another.
    pub(crate) fn reusing(stack: Stack, core: &'a Core, bytes: Vec<u8>) -> Self {
        Self { stack, core, bytes, counted: 0 }
    }

    /// Charges for what comes next: a step, and the bytes that there are by now.
    #[inline(always)]
    pub(crate) fn charge(&mut self, steps: usize) -> Result<(), Raise> {
        self.core.charge(self.stack, steps)?;
        self.count(0)
    }

    pub(crate) fn charge_bytes(&self, bytes: usize) -> Result<(), Raise> {
        self.core.charge_bytes(self.stack, bytes)
    }

    #[inline(always)]
    pub(crate) fn charge_table(&self) -> Result<(), Raise> {
        self.core.charge_table(self.stack)
    }

    /// Makes room for `more` bytes, or fails if there is no memory for them.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, more: usize) -> Result<(), Raise> {
        self.core.charge_bytes(self.stack, more)?;
        self.count(more)
    }

    #[inline(always)]
    pub(crate) fn extend(&mut self, bytes: &[u8]) -> Result<(), Raise> {
        self.reserve(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// To append to what was made room for, or a few bytes.
    #[inline(always)]
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Counts the bytes as the state's, before more come.
    #[inline(always)]
    fn count(&mut self, more: usize) -> Result<(), Raise> {
        if self.bytes.len() + more <= self.bytes.capacity() && self.bytes.capacity() == self.counted
        {
            return Ok(());
        }
        self.grow(more)
    }

    #[cold]
    fn grow(&mut self, more: usize) -> Result<(), Raise> {
        let (capacity, len) = (self.bytes.capacity(), self.bytes.len());
        let wanted = if len + more > capacity {
            (2 * capacity).max(len + more).max(OUTPUT_BYTES)
        } else {
            capacity
        };
        let scratch = &self.core.budget.scratch;
        scratch.set(scratch.get() - self.counted + wanted);
        self.counted = wanted;
        if wanted >= CHARGED_BYTES && !self.core.budget.covers(self.core.used.get()) {
            return Err(self.stack.fail(NO_MEMORY));
        }
        self.bytes.reserve_exact(wanted - len);
        let capacity = self.bytes.capacity();
        scratch.set(scratch.get() - self.counted + capacity);
        self.counted = capacity;
        Ok(())
    }

    /// Pushes the bytes as a string.
    pub(crate) fn push(self) -> Result<(), Raise> {
        self.core.charge_string(self.stack, self.bytes.len())?;
        self.stack.push_bytes(&self.bytes);
        Ok(())
    }

    /// The bytes, which are no more the script's.
    pub(crate) fn take(mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        let scratch = &self.core.budget.scratch;
        scratch.set(scratch.get() - self.counted);
    }
}

/// What an output has at first.
const OUTPUT_BYTES: usize = 64;
/// What a script is told that needs more than it may have.
pub(crate) const NO_MEMORY: &str = "the script needs more memory than maxmemory-scripts allows";
