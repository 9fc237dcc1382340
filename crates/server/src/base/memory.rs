//! The process's allocator: jemalloc, with a count of the bytes in use.
//!
//! Every thread counts in a cell of its own, on a cache line of its own; `used` adds up the cells.
//! A cell may be negative, as threads free blocks that other threads have allocated. A thread that
//! ends leaves its cell and the count in it to the next thread, so there are only as many cells as
//! there were threads at the same time.
//!
//! Each write asks whether memory is over the limit, and must not read the cells of all threads for
//! that. So there is also a sum, which the threads update now and then: each when its own count has
//! changed by `UNSETTLED_MAX` bytes, and one thread for all of them, each millisecond.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use bobbin_sync::OwnLine;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::base::clock::Interval;
use crate::base::cores;

// ThreadSanitizer learns only from the C library's allocator that a block has a new owner.
#[cfg(thread_sanitizer)]
use std::alloc::System as Underlying;
#[cfg(not(thread_sanitizer))]
use tikv_jemallocator::Jemalloc as Underlying;

/// An allocator that counts the bytes it takes from jemalloc.
pub struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Threads beyond this number share the last cell with the threads that free in the background.
const CELLS: usize = 256;

static COUNTS: Counts = Counts::new();
/// Which cells belong to a thread, one bit each.
static TAKEN: [AtomicU64; CELLS / CELLS_PER_WORD] =
    [const { AtomicU64::new(0) }; CELLS / CELLS_PER_WORD];
const CELLS_PER_WORD: usize = u64::BITS as usize;
/// The number of cells, from the first on, that ever belonged to a thread.
static CELLS_USED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The index of the thread's cell; `CELLS` while it has none.
    static CELL: Cell<usize> = const { Cell::new(CELLS) };
    /// Passes the cell on to the next thread when this one ends.
    static LEAVE: Leave = const { Leave };
    /// How many blocks the thread may still free before it gives way; `None` if it never does.
    static TURN: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The counts of all threads.
struct Counts {
    cells: [Count; CELLS],
    sum: OwnLine<Sum>,
}

/// The bytes that one thread has allocated, minus those that it has freed.
#[repr(align(128))]
struct Count {
    bytes: AtomicI64,
    /// The part of `bytes` that is in the sum.
    settled: AtomicI64,
}

struct Sum {
    bytes: AtomicI64,
    /// The settling of all cells.
    settling: Interval,
}

/// How far a cell may be from its part of the sum before its thread settles it.
const UNSETTLED_MAX: u64 = 64 << 10;

impl Counts {
    const fn new() -> Self {
        Self {
            cells: [const { Count { bytes: AtomicI64::new(0), settled: AtomicI64::new(0) } };
                CELLS],
            sum: OwnLine(Sum { bytes: AtomicI64::new(0), settling: Interval::new() }),
        }
    }

    /// Adds the unsettled part of a cell to the sum. Any thread may do so for any cell, even
    /// several at once: each adds the difference of two values of `settled`.
    fn settle(&self, cell: usize) {
        let Count { bytes, settled } = &self.cells[cell];
        let now = bytes.load(Ordering::Relaxed);
        let before = settled.swap(now, Ordering::Relaxed);
        self.sum.0.bytes.fetch_add(now - before, Ordering::Relaxed);
    }

    /// Settles the first `cells` cells, and the shared one.
    fn settle_all(&self, cells: usize) {
        for cell in (0..cells).chain([CELLS - 1]) {
            let Count { bytes, settled } = &self.cells[cell];
            if bytes.load(Ordering::Relaxed) != settled.load(Ordering::Relaxed) {
                self.settle(cell);
            }
        }
    }

    /// The sum, plus the unsettled part of one cell. The first call in a new millisecond settles
    /// `cells` cells.
    #[inline]
    fn about(&self, cell: usize, cells: &AtomicUsize, now_ms: i64) -> i64 {
        if self.sum.0.settling.claim(now_ms, 1) {
            self.settle_all(cells.load(Ordering::Relaxed));
        }
        let Count { bytes, settled } = &self.cells[cell];
        let unsettled = bytes.load(Ordering::Relaxed) - settled.load(Ordering::Relaxed);
        if unsettled.unsigned_abs() > UNSETTLED_MAX {
            self.settle(cell);
            return self.sum.0.bytes.load(Ordering::Relaxed);
        }
        self.sum.0.bytes.load(Ordering::Relaxed) + unsettled
    }
}

struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        // From here on, the thread's blocks are counted in the last cell.
        let cell = CELL.replace(CELLS - 1);
        if cell < CELLS - 1 {
            let (word, bit) = place(cell);
            TAKEN[word].fetch_and(!bit, Ordering::Release);
        }
    }
}

/// The place of a cell's bit.
const fn place(cell: usize) -> (usize, u64) {
    (cell / CELLS_PER_WORD, 1 << (cell % CELLS_PER_WORD))
}

/// Takes the lowest free cell for the calling thread.
fn take_cell() -> usize {
    for (at, word) in TAKEN.iter().enumerate() {
        let mut taken = word.load(Ordering::Relaxed);
        while taken != u64::MAX {
            let cell = at * CELLS_PER_WORD + taken.trailing_ones() as usize;
            if cell == CELLS - 1 {
                break;
            }
            let with_it = taken | place(cell).1;
            // Acquire, to see the count that the previous thread left.
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
    COUNTS.settle_all(CELLS_USED.load(Ordering::Relaxed));
    let used = COUNTS.sum.0.bytes.load(Ordering::Relaxed).max(0) as usize;
    if used > PEAK.load(Ordering::Relaxed) {
        PEAK.fetch_max(used, Ordering::Relaxed);
    }
    used
}

/// Bytes in use, approximately. Included is what the calling thread has allocated and freed.
/// Missing are at most [`UNSETTLED_MAX`] bytes of each other thread that calls this, and what the
/// remaining threads did since `now_ms` began.
#[inline]
pub fn used_about(now_ms: i64) -> usize {
    COUNTS.about(CELL.get().min(CELLS - 1), &CELLS_USED, now_ms).max(0) as usize
}

/// Adds the calling thread's count to the sum, for others to see.
pub fn settle() {
    COUNTS.settle(CELL.get().min(CELLS - 1));
}

/// The highest result of `used` so far.
pub fn peak() -> usize {
    used();
    PEAK.load(Ordering::Relaxed)
}

/// Whether the system would provide this many bytes at once. It asks the system directly, because
/// an allocation that fails would be counted.
pub fn is_available(bytes: usize) -> bool {
    let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: without an address, the new mapping replaces no other one; and nothing refers to it
    // when it is unmapped.
    unsafe {
        mmap_anonymous(std::ptr::null_mut(), bytes, access, kind)
            .and_then(|start| munmap(start, bytes))
            .is_ok()
    }
}

/// Resets the peak, for CONFIG RESETSTAT.
pub fn reset_peak() {
    PEAK.store(0, Ordering::Relaxed);
    used();
}

/// Starts jemalloc's own threads, which give freed memory back to the system so that no worker has
/// to. To be called after the process has become a daemon, as the threads would not survive that.
pub fn start_background_threads() {
    // The threads inherit the priority of the thread that starts them.
    let start = || {
        cores::step_aside();
        // With one thread for all arenas, that thread never starts another one. If it could not, it
        // would try again and again, and write a line each time.
        tikv_jemalloc_ctl::max_background_threads::write(1)?;
        tikv_jemalloc_ctl::background_thread::write(true)
    };
    let started = std::thread::Builder::new().spawn(start).map(JoinHandle::join);
    if !matches!(started, Ok(Ok(Ok(())))) {
        log::debug!("jemalloc runs without threads of its own: {started:?}");
    }
}

/// Makes the calling thread give way again and again while it frees memory. For threads that free
/// values of millions of blocks; the destructors need not know of it.
pub fn give_way_while_freeing() {
    TURN.set(Some(TURN_BLOCKS));
    // The threads of the last cell count by the slow way, which checks the turn.
    drop(Leave);
}

#[inline(always)]
fn count(bytes: i64) {
    let cell = CELL.try_with(Cell::get).unwrap_or(CELLS - 1);
    if cell < CELLS - 1 {
        // The cell has one writer, so a load and a store are enough.
        let count = &COUNTS.cells[cell].bytes;
        count.store(count.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    } else {
        count_shared(bytes);
    }
}

#[cold]
fn count_shared(bytes: i64) {
    let cell = CELL.try_with(|cell| {
        if cell.get() == CELLS {
            // Registering the destructor of `LEAVE` may itself allocate memory.
            cell.set(CELLS - 1);
            if LEAVE.try_with(|_| ()).is_ok() {
                cell.set(take_cell());
            }
        }
        cell.get()
    });
    COUNTS.cells[cell.unwrap_or(CELLS - 1)].bytes.fetch_add(bytes, Ordering::Relaxed);
    if bytes < 0 {
        // A thread that is ending has no turn.
        TURN.try_with(give_way_in_turn).ok();
    }
}

fn give_way_in_turn(turn: &Cell<Option<u32>>) {
    match turn.get() {
        Some(0) => {
            turn.set(Some(TURN_BLOCKS));
            settle();
            cores::give_way();
        }
        Some(left) => turn.set(Some(left - 1)),
        None => {}
    }
}

/// This takes some thirty microseconds if none of the blocks is in a cache.
const TURN_BLOCKS: u32 = 200;

/// The size of the block that jemalloc gives for this many bytes, with a quantum of 8: multiples of
/// 8 up to 64, then four classes for each power of two.
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

/// Bytes of the block that an allocation of this size gets.
pub const fn block_bytes(size: usize) -> usize {
    if size == 0 { 0 } else { usable(size) as usize }
}

/// The layout to request from jemalloc. With a quantum of 8 its blocks are aligned to 8, though its
/// Rust binding assumes 16. Blocks of a multiple of 16 bytes are aligned to 16. The binding passes
/// larger alignments on.
#[inline(always)]
const fn aligned(layout: Layout) -> Layout {
    if layout.align() > 8 { layout.pad_to_align() } else { layout }
}

// SAFETY: all calls are passed on to jemalloc, possibly with a larger size, but always the same
// size for one block; counting allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let layout = aligned(layout);
        count(usable(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { Underlying.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let layout = aligned(layout);
        count(usable(layout.size()));
        // SAFETY: as above.
        unsafe { Underlying.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let layout = aligned(layout);
        count(-usable(layout.size()));
        // SAFETY: as above.
        unsafe { Underlying.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let size = if layout.align() > 8 { size.next_multiple_of(layout.align()) } else { size };
        let layout = aligned(layout);
        count(usable(size) - usable(layout.size()));
        // SAFETY: as above. A size so near the end of the address space that it cannot be rounded
        // up is not valid for any layout.
        unsafe { Underlying.realloc(pointer, layout, size) }
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
            // 1,000 blocks and the list of them.
            assert_eq!(TURN.get(), Some(TURN_BLOCKS - 1001 % (TURN_BLOCKS + 1)));
        };
        std::thread::spawn(free).join().expect("it ends");
        assert_eq!(TURN.get(), None);
    }

    #[test]
    fn threads_that_end_leave_their_cells_to_others() {
        // Other tests have threads too, but fewer at a time.
        for round in 0..CELLS * 4 {
            let block = std::thread::spawn(|| vec![1_u8; 10_000]).join().expect("it ends");
            drop(block);
            let cells = CELLS_USED.load(Ordering::Relaxed);
            assert!(cells < CELLS / 2, "{cells} cells after {round} threads, one at a time");
        }
    }

    /// Held by tests that would mistake each other's memory for their own.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn what_others_allocate_is_seen_soon() {
        const LEN: usize = 3_000_000_000;
        let _alone = ALONE.lock();
        let about = |used: usize| used >= LEN / 4 * 3;
        let before = used_about(0);
        let block = std::thread::spawn(|| Vec::<u8>::with_capacity(LEN)).join().expect("it ends");
        used();
        assert!(about(used_about(0).saturating_sub(before)), "all cells were settled");
        drop(block);
        assert!(!about(used_about(0).saturating_sub(before)), "its own is seen at once");
        let allocate = || {
            let block = Vec::<u8>::with_capacity(LEN);
            used_about(0);
            block
        };
        let block = std::thread::spawn(allocate).join().expect("it ends");
        assert!(about(used_about(0).saturating_sub(before)), "it was much");
        drop(block);
    }

    #[test]
    fn a_thread_settles_for_all_once_a_millisecond() {
        let (counts, cells) = (Counts::new(), AtomicUsize::new(2));
        let estimates = |bytes: i64, times_ms: [i64; 4]| {
            counts.cells[1].bytes.fetch_add(bytes, Ordering::Relaxed);
            times_ms.map(|now_ms| counts.about(0, &cells, now_ms))
        };
        assert_eq!(estimates(100, [5, 5, 6, 6]), [100; 4]);
        assert_eq!(estimates(10, [6, 5, 6, 7]), [100, 100, 100, 110]);
    }

    #[test]
    fn estimates_are_off_by_what_is_not_settled_at_most() {
        const THREADS: usize = 16;
        let (counts, cells) = (Counts::new(), AtomicUsize::new(THREADS));
        let mut random = crate::base::random::Random::new(1);
        let (mut real, mut worst) = (0, 0);
        for _ in 0..100_000 {
            let cell = random.below(THREADS as u32) as usize;
            let bytes = i64::from(random.below(40_000)) - 19_000;
            counts.cells[cell].bytes.fetch_add(bytes, Ordering::Relaxed);
            real += bytes;
            let estimate = counts.about(cell, &cells, 0);
            worst = worst.max(estimate.abs_diff(real));
        }
        let slack = (THREADS as u64 - 1) * UNSETTLED_MAX;
        assert!((slack / 10..=slack).contains(&worst), "off by {worst}");
        counts.settle_all(THREADS);
        assert_eq!(counts.about(0, &cells, 0), real);
    }

    #[test]
    fn several_threads_may_settle_a_cell_at_once() {
        const CHANGES: i64 = 20_000;
        let (counts, cells) = (Counts::new(), AtomicUsize::new(2));
        let run = |cell: usize| {
            for change in 1..=CHANGES {
                counts.cells[cell].bytes.fetch_add(change, Ordering::Relaxed);
                counts.about(cell, &cells, change);
                if change % 7 == 0 {
                    counts.settle_all(2);
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| run(0));
            run(1);
        });
        counts.settle_all(2);
        assert_eq!(counts.about(0, &cells, 0), CHANGES * (CHANGES + 1));
    }

    #[test]
    fn what_is_allocated_is_counted() {
        // The block is never touched, and is far larger than what other tests use meanwhile.
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
