//! Which thread holds which line, and where lines move.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a line.
const LINE_LEN: u64 = 64;

/// Lines of a page: 4 KiB.
const PAGE_LINES: u64 = 64;

/// Pages whose holders a thread finds without a lock.
const RECENT: usize = 256;

/// Locks for the lines that moved; far more than threads.
const PARTS: usize = 1024;

/// Threads that are told apart; further ones share a cache with earlier ones.
const THREADS: u32 = 64;

/// Places that are known for a line: those that move it most, nearly.
const PLACES: usize = 8;

/// An instruction that uses memory, with the lines that it moved and claimed.
pub(crate) struct InstructionMoves {
    pub(crate) address: u64,
    pub(crate) moves: AtomicU64,
    pub(crate) claims: AtomicU64,
}

impl InstructionMoves {
    pub(crate) const fn new(address: u64) -> Self {
        Self { address, moves: AtomicU64::new(0), claims: AtomicU64::new(0) }
    }
}

/// The threads that hold each line of a page, a bit for each.
type Page = [AtomicU64; PAGE_LINES as usize];

/// A line that moved.
#[derive(Clone, Copy, Default)]
pub(crate) struct MovedLine {
    pub(crate) moves: u64,
    /// The addresses of instructions that move it, and how often. When a new one finds no room, all
    /// counts go down instead, so that seldom ones leave.
    pub(crate) places: [(u64, u64); PLACES],
}

impl MovedLine {
    fn count(&mut self, address: u64) {
        self.moves += 1;
        let known = self.places.iter_mut().find(|(place, count)| *place == address || *count == 0);
        match known {
            Some((place, count)) => (*place, *count) = (address, *count + 1),
            None => self.places.iter_mut().for_each(|(_, count)| *count -= 1),
        }
    }
}

type ByNumber<T> = HashMap<u64, T, BuildHasherDefault<NumberHasher>>;

/// The lines of all threads' caches.
pub(crate) struct Caches {
    /// Pages by number. They are never freed: threads remember them.
    pages: Mutex<ByNumber<&'static Page>>,
    /// Lines by number, as far as their moves were counted.
    moved: Vec<Mutex<ByNumber<MovedLine>>>,
}

thread_local! {
    /// Pages by number, each at the remainder of its number.
    static RECENT_PAGES: RefCell<[(u64, Option<&'static Page>); RECENT]> =
        const { RefCell::new([(0, None); RECENT]) };
}

impl Caches {
    pub(crate) fn new() -> Self {
        Self { pages: Mutex::default(), moved: (0..PARTS).map(|_| Mutex::default()).collect() }
    }

    /// A thread uses the line of an address.
    #[inline]
    pub(crate) fn access(
        &self,
        thread: u32,
        address: u64,
        is_store: bool,
        place: &InstructionMoves,
        is_counted: bool,
    ) {
        let (thread, number) = (1 << (thread % THREADS), address / LINE_LEN);
        let holders = &self.page(number / PAGE_LINES)[(number % PAGE_LINES) as usize];
        let before = holders.load(Ordering::Relaxed);
        // Nearly always nothing changes, which takes no locked instruction.
        let before = match is_store {
            true if before == thread => return,
            true => holders.swap(thread, Ordering::Relaxed),
            false if before & thread != 0 => return,
            false => holders.fetch_or(thread, Ordering::Relaxed),
        };
        let (is_held, others_hold) = (before & thread != 0, before & !thread != 0);
        if is_counted && others_hold {
            if !is_held {
                self.part(number).entry(number).or_default().count(place.address);
                place.moves.fetch_add(1, Ordering::Relaxed);
            } else if is_store {
                place.claims.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    #[inline]
    fn page(&self, number: u64) -> &'static Page {
        RECENT_PAGES.with_borrow_mut(|recent| {
            let known = &mut recent[number as usize % RECENT];
            match *known {
                (of, Some(page)) if of == number => page,
                _ => {
                    let page = self.find_page(number);
                    *known = (number, Some(page));
                    page
                }
            }
        })
    }

    #[cold]
    fn find_page(&self, number: u64) -> &'static Page {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Box::leak(Box::new([const { AtomicU64::new(0) }; PAGE_LINES as usize]));
        pages.entry(number).or_insert_with(|| new())
    }

    fn part(&self, number: u64) -> MutexGuard<'_, ByNumber<MovedLine>> {
        let part = &self.moved[number as usize % PARTS];
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lines that move most, with their addresses.
    pub(crate) fn hottest(&self, count: usize) -> Vec<(u64, MovedLine)> {
        let mut all = Vec::new();
        for part in &self.moved {
            let part = part.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(part.iter().map(|(number, line)| (number * LINE_LEN, *line)));
        }
        all.sort_unstable_by_key(|(_, line)| std::cmp::Reverse(line.moves));
        all.truncate(count);
        all
    }
}

/// One multiplication: the numbers of lines and pages need no more.
#[derive(Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("lines and pages have numbers");
    }

    fn write_u64(&mut self, number: u64) {
        // The golden ratio: neighbours go far apart.
        // The upper half of the product is the better one.
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
