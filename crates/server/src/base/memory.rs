//! The process's allocator: jemalloc, with a count of what is in use.
//!
//! Every thread counts in a cell of its own, on a cache line of its own; `used` sums them up. One
//! thread's count may be negative, as blocks are freed by other threads than made them. A thread
//! that ends leaves its cell, and the count in it, to the next one: there are as many cells as
//! there were threads at the same time.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use tikv_jemallocator::Jemalloc;

use crate::base::cores;

/// Counts what it takes from jemalloc.
pub struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Threads beyond this many share the last cell, with those that free in the background.
const CELLS: usize = 256;

#[repr(align(128))]
struct Count(AtomicI64);

static COUNTS: [Count; CELLS] = [const { Count(AtomicI64::new(0)) }; CELLS];
/// Which cells belong to a thread, by bits.
static TAKEN: [AtomicU64; CELLS / CELLS_PER_WORD] =
    [const { AtomicU64::new(0) }; CELLS / CELLS_PER_WORD];
const CELLS_PER_WORD: usize = u64::BITS as usize;
/// How many cells, from the first on, ever belonged to a thread.
static CELLS_USED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The thread's cell; `CELLS` while it has none.
    static CELL: Cell<usize> = const { Cell::new(CELLS) };
    /// Gives the cell to the next thread when this one ends.
    static LEAVE: Leave = const { Leave };
    /// Blocks that the thread may still free before it gives way; none if it does not.
    static TURN: Cell<Option<u32>> = const { Cell::new(None) };
    /// What the cells of others held when the thread looked last, and how often it may use that.
    static OTHERS: Cell<(i64, u32)> = const { Cell::new((0, 0)) };
}

struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        // What is allocated and freed from here on is counted in the last cell.
        let cell = CELL.replace(CELLS - 1);
        if cell < CELLS - 1 {
            let (word, bit) = place(cell);
            TAKEN[word].fetch_and(!bit, Ordering::Release);
        }
    }
}

/// Where a cell's bit is.
const fn place(cell: usize) -> (usize, u64) {
    (cell / CELLS_PER_WORD, 1 << (cell % CELLS_PER_WORD))
}

/// A cell for the calling thread, the lowest that nobody has.
fn take_cell() -> usize {
    for (at, word) in TAKEN.iter().enumerate() {
        let mut taken = word.load(Ordering::Relaxed);
        while taken != u64::MAX {
            let cell = at * CELLS_PER_WORD + taken.trailing_ones() as usize;
            if cell == CELLS - 1 {
                break;
            }
            let with_it = taken | place(cell).1;
            // Acquire: the count that the thread before left is seen.
            match word.compare_exchange_weak(taken, with_it, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    CELLS_USED.fetch_max(cell + 1, Ordering::Relaxed);
                    return cell;
                }
                Err(now) => taken = now,
            }
        }
    }
    CELLS - 1
}

/// Bytes in use, in the sizes that the allocator really gives.
pub fn used() -> usize {
    let own = CELLS_USED.load(Ordering::Relaxed);
    let counts = COUNTS[..own].iter().chain(&COUNTS[CELLS - 1..]);
    let sum: i64 = counts.map(|count| count.0.load(Ordering::Relaxed)).sum();
    let used = sum.max(0) as usize;
    if used > PEAK.load(Ordering::Relaxed) {
        PEAK.fetch_max(used, Ordering::Relaxed);
    }
    used
}

/// Bytes in use, approximately. What the thread itself allocated and freed is included. What other
/// threads did since its last [`look_at_others`], or in its last few calls of this, is not.
#[inline]
pub fn used_about() -> usize {
    let own = COUNTS[CELL.get().min(CELLS - 1)].0.load(Ordering::Relaxed);
    let (others, uses) = OTHERS.get();
    if uses == 0 {
        let used = used();
        OTHERS.set((used as i64 - own, USES_MAX));
        return used;
    }
    OTHERS.set((others, uses - 1));
    (others + own).max(0) as usize
}

/// Has the next [`used_about`] of the thread look what others have allocated: a worker does so each
/// turn.
#[inline]
pub fn look_at_others() {
    OTHERS.set((0, 0));
}

/// As often a thread may go by what it saw of others.
const USES_MAX: u32 = 64;

/// The most that `used` ever saw.
pub fn peak() -> usize {
    used();
    PEAK.load(Ordering::Relaxed)
}

/// Whether the system would give this many bytes at once. It asks the system directly, because an
/// allocation that fails would be counted.
pub fn is_available(bytes: usize) -> bool {
    let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: where no address is asked for, nothing that there is is mapped over; and nobody knows
    // what goes again.
    unsafe {
        mmap_anonymous(std::ptr::null_mut(), bytes, access, kind)
            .and_then(|start| munmap(start, bytes))
            .is_ok()
    }
}

/// Forgets the peak: CONFIG RESETSTAT.
pub fn reset_peak() {
    PEAK.store(0, Ordering::Relaxed);
    used();
}

/// Has threads of jemalloc's own give freed memory back to the system, so that no worker does. To
/// be called once the process has become a daemon: the threads would not survive that.
pub fn start_background_threads() {
    // They inherit from who starts them how urgent they are.
    let start = || {
        cores::step_aside();
        tikv_jemalloc_ctl::background_thread::write(true)
    };
    let started = std::thread::scope(|scope| scope.spawn(start).join());
    if !matches!(started, Ok(Ok(()))) {
        log::debug!("jemalloc runs without threads of its own: {started:?}");
    }
}

/// Has the calling thread give way to others again and again while it frees memory. For threads
/// that free values of millions of blocks: no destructor has to know of it.
pub fn give_way_while_freeing() {
    TURN.set(Some(TURN_BLOCKS));
    // The last cell's threads count by the slow way, which looks at the turn.
    drop(Leave);
}

#[inline(always)]
fn count(bytes: i64) {
    let cell = CELL.try_with(Cell::get).unwrap_or(CELLS - 1);
    if cell < CELLS - 1 {
        // One writer: a load and a store do.
        let count = &COUNTS[cell].0;
        count.store(count.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    } else {
        count_shared(bytes);
    }
}

#[cold]
fn count_shared(bytes: i64) {
    let cell = CELL.try_with(|cell| {
        if cell.get() == CELLS {
            // In case that it takes memory to have `LEAVE` dropped.
            cell.set(CELLS - 1);
            if LEAVE.try_with(|_| ()).is_ok() {
                cell.set(take_cell());
            }
        }
        cell.get()
    });
    COUNTS[cell.unwrap_or(CELLS - 1)].0.fetch_add(bytes, Ordering::Relaxed);
    if bytes < 0 {
        // A thread that is at its end has no turn any more.
        TURN.try_with(give_way_in_turn).ok();
    }
}

fn give_way_in_turn(turn: &Cell<Option<u32>>) {
    match turn.get() {
        Some(0) => {
            turn.set(Some(TURN_BLOCKS));
            cores::give_way();
        }
        Some(left) => turn.set(Some(left - 1)),
        None => {}
    }
}

/// Takes some thirty microseconds, where nothing of the blocks is in a cache.
const TURN_BLOCKS: u32 = 200;

/// The block that jemalloc gives for this many bytes, when its quantum is 8: multiples of 8 up to
/// 64, then four classes for each power of two.
#[inline(always)]
const fn usable(size: usize) -> i64 {
    let size = if size < 8 { 8 } else { size };
    let step = if size <= 64 {
        8
    } else {
        let bits = usize::BITS - (size - 1).leading_zeros();
        1usize << (bits - 3)
    };
    size.next_multiple_of(step) as i64
}

/// The layout to ask jemalloc for. With a quantum of 8 its blocks are aligned to no more, though
/// its Rust binding takes them to be aligned to 16; those of a multiple of 16 bytes are. Alignments
/// beyond that it is told of.
#[inline(always)]
const fn aligned(layout: Layout) -> Layout {
    if layout.align() > 8 { layout.pad_to_align() } else { layout }
}

// SAFETY: all is passed to jemalloc, if need be larger than it came, and for one block always the
// same; counting allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let layout = aligned(layout);
        count(usable(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { Jemalloc.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let layout = aligned(layout);
        count(usable(layout.size()));
        // SAFETY: as above.
        unsafe { Jemalloc.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let layout = aligned(layout);
        count(-usable(layout.size()));
        // SAFETY: as above.
        unsafe { Jemalloc.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let size = if layout.align() > 8 { size.next_multiple_of(layout.align()) } else { size };
        let layout = aligned(layout);
        count(usable(size) - usable(layout.size()));
        // SAFETY: as above. A size near the end of the address space, which cannot be rounded up,
        // is none that a layout may have.
        unsafe { Jemalloc.realloc(pointer, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use bobbin_sync::Mutex;

    use super::*;

    #[test]
    fn sizes_are_jemallocs() {
        for (size, class) in [
            (1, 8),
            (56, 56),
            (64, 64),
            (65, 80),
            (81, 96),
            (129, 160),
            (4097, 5120),
            (20_000, 20_480),
        ] {
            assert_eq!(usable(size), class, "{size}");
        }
    }

    #[test]
    fn blocks_are_aligned_as_asked_for() {
        let mut blocks = Vec::new();
        for align in [1, 8, 16, 32, 64] {
            for size in (1..200).chain([1000, 5000, 20_001]) {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: the sizes are not zero; the blocks are freed with the layouts they got.
                unsafe {
                    let pointer = std::alloc::alloc(layout);
                    let grown = std::alloc::realloc(pointer, layout, size + 8);
                    let layout = Layout::from_size_align(size + 8, align).unwrap();
                    assert!(grown.addr().is_multiple_of(align), "{grown:?} for {layout:?}");
                    blocks.push((grown, layout));
                }
            }
        }
        for (pointer, layout) in blocks {
            // SAFETY: as above.
            unsafe { std::alloc::dealloc(pointer, layout) };
        }
    }

    #[test]
    fn what_the_system_has_not_is_not_available() {
        assert!(is_available(1 << 30));
        assert!(!is_available(1 << 62) && !is_available(usize::MAX));
    }

    #[test]
    fn who_frees_much_gives_way() {
        let many = vec![vec![1_u8; 100]; 1000];
        let free = move || {
            give_way_while_freeing();
            assert_eq!((TURN.get(), CELL.get()), (Some(TURN_BLOCKS), CELLS - 1));
            drop(many);
            // Of 1,000 blocks and the list of them.
            assert_eq!(TURN.get(), Some(TURN_BLOCKS - 1001 % (TURN_BLOCKS + 1)));
        };
        std::thread::spawn(free).join().expect("it ends");
        assert_eq!(TURN.get(), None);
    }

    #[test]
    fn threads_that_end_leave_their_cells_to_others() {
        // Other tests have threads as well, but fewer at a time.
        for round in 0..CELLS * 4 {
            let block = std::thread::spawn(|| vec![1_u8; 10_000]).join().expect("it ends");
            drop(block);
            let cells = CELLS_USED.load(Ordering::Relaxed);
            assert!(cells < CELLS / 2, "{cells} cells after {round} threads, one at a time");
        }
    }

    /// Held by tests that would take each other's memory for their own.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn what_others_allocate_is_seen_soon() {
        const LEN: usize = 3_000_000_000;
        let _alone = ALONE.lock();
        let about = |bytes: usize| move |used: usize| used >= bytes / 4 * 3;
        look_at_others();
        let before = used_about();
        let block = std::thread::spawn(|| Vec::<u8>::with_capacity(LEN)).join().expect("it ends");
        // Within a turn or, where there are no turns, within some uses.
        look_at_others();
        assert!(about(LEN)(used_about().saturating_sub(before)));
        drop(block);
        assert!(!about(LEN)(used_about().saturating_sub(before)), "its own is seen at once");
        let block = std::thread::spawn(|| Vec::<u8>::with_capacity(LEN)).join().expect("it ends");
        let seen = (0..=USES_MAX).any(|_| about(LEN)(used_about().saturating_sub(before)));
        assert!(seen);
        drop(block);
    }

    #[test]
    fn what_is_allocated_is_counted() {
        // Never touched, and far more than the other tests have meanwhile.
        let _alone = ALONE.lock();
        let (before, len) = (used(), 2_000_000_000);
        let block = Vec::<u8>::with_capacity(len);
        assert!(used() >= before + len / 4 * 3);
        let free = move || {
            give_way_while_freeing();
            drop(block);
        };
        std::thread::spawn(free).join().expect("it ends");
        assert!(used() < before + len / 4);
    }
}
