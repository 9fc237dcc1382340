//! Who holds which line, and where lines move.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Bytes of a line.
const LINE_LEN: u64 = 64;

/// Locks for the lines; far more than threads.
const PARTS: usize = 1024;

/// Threads that are told apart; further ones share a cache with earlier ones.
const THREADS: u32 = 64;

/// Places that are known for a line: those that move it most, nearly.
const PLACES: usize = 8;

/// An instruction that uses memory, with the lines that it moved and claimed.
pub(crate) struct Place {
    pub(crate) address: u64,
    pub(crate) moves: AtomicU64,
    pub(crate) claims: AtomicU64,
}

impl Place {
    pub(crate) const fn new(address: u64) -> Self {
        Self { address, moves: AtomicU64::new(0), claims: AtomicU64::new(0) }
    }
}

/// What a thread's use of a line is to others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Unnoticed,
    Move,
    Claim,
}

/// One line.
#[derive(Clone, Copy, Default)]
pub(crate) struct Line {
    /// The threads that hold it, a bit for each.
    holders: u64,
    pub(crate) moves: u64,
    /// The addresses of instructions that move it, and how often. When a new one finds no room, all
    /// counts go down instead, so that seldom ones leave.
    pub(crate) places: [(u64, u64); PLACES],
}

impl Line {
    /// This thread uses the line.
    const fn r#use(&mut self, thread: u64, is_store: bool) -> Use {
        let (is_held, others_hold) = (self.holders & thread != 0, self.holders & !thread != 0);
        self.holders = if is_store { thread } else { self.holders | thread };
        match (is_held, others_hold) {
            (false, true) => Use::Move,
            (true, true) if is_store => Use::Claim,
            _ => Use::Unnoticed,
        }
    }

    fn count(&mut self, address: u64) {
        self.moves += 1;
        let known = self.places.iter_mut().find(|(place, count)| *place == address || *count == 0);
        match known {
            Some((place, count)) => (*place, *count) = (address, *count + 1),
            None => self.places.iter_mut().for_each(|(_, count)| *count -= 1),
        }
    }
}

/// The lines of all threads' caches.
pub(crate) struct Caches {
    parts: Vec<Mutex<HashMap<u64, Line, BuildHasherDefault<LineHasher>>>>,
}

impl Caches {
    pub(crate) fn new() -> Self {
        Self { parts: (0..PARTS).map(|_| Mutex::default()).collect() }
    }

    /// A thread uses the line of an address.
    pub(crate) fn access(
        &self,
        thread: u32,
        address: u64,
        is_store: bool,
        place: &Place,
        is_counted: bool,
    ) {
        let (thread, line) = (1 << (thread % THREADS), address / LINE_LEN);
        let part = &self.parts[line as usize % PARTS];
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        let line = part.entry(line).or_default();
        match line.r#use(thread, is_store) {
            Use::Move if is_counted => {
                line.count(place.address);
                place.moves.fetch_add(1, Ordering::Relaxed);
            }
            Use::Claim if is_counted => _ = place.claims.fetch_add(1, Ordering::Relaxed),
            _ => {}
        }
    }

    /// The lines that move most, with their addresses.
    pub(crate) fn hottest(&self, count: usize) -> Vec<(u64, Line)> {
        let mut all = Vec::new();
        for part in &self.parts {
            let part = part.lock().unwrap_or_else(PoisonError::into_inner);
            let moved = part.iter().filter(|(_, line)| line.moves > 0);
            all.extend(moved.map(|(number, line)| (number * LINE_LEN, *line)));
        }
        all.sort_unstable_by_key(|(_, line)| std::cmp::Reverse(line.moves));
        all.truncate(count);
        all
    }
}

/// One multiplication: the numbers of lines need no more.
#[derive(Default)]
struct LineHasher(u64);

impl Hasher for LineHasher {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("lines have numbers");
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
