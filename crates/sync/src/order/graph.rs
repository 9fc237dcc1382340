//! Remembers what each thread holds, and which lock was ever waited for while which was held.
//!
//! It does not use the locks that it checks.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

// Under shuttle several of its threads run in one thread of the system.
#[cfg(shuttle)]
use shuttle::thread_local;

use crate::OwnLine;

type Place = &'static Location<'static>;

/// A lock that a thread has or wants.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    pub(super) class: u32,
    pub(super) rank: u32,
    pub(super) at: Place,
}

/// The order, as far as it is known. Its edges never form a cycle.
struct Graph {
    /// Where the locks of each class are made and what they guard. The classes are numbered from 1.
    classes: Vec<(Place, &'static str)>,
    /// The keys are the class of what was held and the class of what was waited for.
    edges: BTreeMap<(u32, u32), Edge>,
}

/// Where it first happened that one lock was waited for while another was held.
#[derive(Clone, Copy)]
struct Edge {
    held_at: Place,
    wanted_at: Place,
}

/// The number of a class, from 1.
pub(super) fn number(made_at: Place, guards: &'static str) -> u32 {
    let mut graph = graph();
    let known = graph.classes.iter().position(|class| *class == (made_at, guards));
    let at = known.unwrap_or_else(|| {
        graph.classes.push((made_at, guards));
        graph.classes.len() - 1
    });
    assert!(at + 1 < CLASSES_MAX, "more classes of locks than CLASSES_MAX says");
    at as u32 + 1
}

/// Panics if the thread may not wait for `wanted`, given what it holds.
pub(super) fn wait_for(wanted: Taken) {
    // The thread is reporting a panic, and that takes locks.
    if std::thread::panicking() {
        return;
    }
    let fault = with_held(|held| {
        // A thread may hold the locks of all shards. Of several locks of another class, it is
        // enough to check the first.
        let mut last = 0;
        let tells = |held: &&Taken| match held.class == wanted.class {
            true => held.rank >= wanted.rank,
            false => std::mem::replace(&mut last, held.class) != held.class,
        };
        held.iter().filter(tells).find_map(|held| fault(*held, wanted))
    });
    if let Some(fault) = fault {
        panic!("order of locks: {fault}");
    }
}

pub(super) fn hold(taken: Taken) {
    with_held(|held| held.push(taken));
}

pub(super) fn release(taken: Taken) {
    with_held(|held| {
        let is_it = |held: &Taken| (held.class, held.rank) == (taken.class, taken.rank);
        // Mostly it is the last one. A thread that has all shards releases the first one first.
        if held.last().is_some_and(is_it) {
            held.pop();
        } else if let Some(at) = held.iter().position(is_it) {
            held.remove(at);
        }
    });
}

/// Calls `f` with what this thread holds. A thread that ends may use locks after its list was
/// dropped; those are not checked.
fn with_held<R: Default>(f: impl FnOnce(&mut Vec<Taken>) -> R) -> R {
    HELD.try_with(|held| f(&mut held.borrow_mut())).unwrap_or_default()
}

/// Why the thread may not wait for `wanted` while it holds `held`.
fn fault(held: Taken, wanted: Taken) -> Option<String> {
    if held.class == wanted.class {
        return (held.rank >= wanted.rank).then(|| {
            format!(
                "{} is wanted at {} (rank {}) with one of them held since {} (rank {})",
                graph().name(wanted.class),
                wanted.at,
                wanted.rank,
                held.at,
                held.rank,
            )
        });
    }
    let at = held.class as usize * CLASSES_MAX + wanted.class as usize;
    let (word, bit) = (&SEEN[at / 64], 1 << (at % 64));
    if word.load(Ordering::Relaxed) & bit != 0 {
        return None;
    }
    let fault = graph().add(held, wanted);
    if fault.is_none() {
        word.fetch_or(bit, Ordering::Relaxed);
    }
    fault
}

impl Graph {
    /// Adds that `wanted` was waited for while `held` was held. If that is against the order,
    /// returns why.
    fn add(&mut self, held: Taken, wanted: Taken) -> Option<String> {
        let Some(way) = self.way(wanted.class, held.class) else {
            let edge = Edge { held_at: held.at, wanted_at: wanted.at };
            self.edges.entry((held.class, wanted.class)).or_insert(edge);
            return None;
        };
        let mut text = format!(
            "{} is wanted at {} with {} held since {}; it was the other way round before:",
            self.name(wanted.class),
            wanted.at,
            self.name(held.class),
            held.at,
        );
        for step in way.windows(2) {
            let (from, to) = (step[0], step[1]);
            let Edge { held_at, wanted_at } = self.edges[&(from, to)];
            let (from, to) = (self.name(from), self.name(to));
            let _ = write!(text, "\n  {to} at {wanted_at} with {from} held since {held_at}");
        }
        Some(text)
    }

    /// The shortest path along the edges.
    fn way(&self, from: u32, to: u32) -> Option<Vec<u32>> {
        let mut came_from = BTreeMap::from([(from, from)]);
        let mut next = VecDeque::from([from]);
        while let Some(at) = next.pop_front() {
            if at == to {
                let back =
                    std::iter::successors(Some(to), |at| (*at != from).then(|| came_from[at]));
                let mut way: Vec<u32> = back.collect();
                way.reverse();
                return Some(way);
            }
            for &(_, neighbour) in self.edges.range((at, 0)..=(at, u32::MAX)).map(|(key, _)| key) {
                came_from.entry(neighbour).or_insert_with(|| {
                    next.push_back(neighbour);
                    at
                });
            }
        }
        None
    }

    fn name(&self, class: u32) -> String {
        let (made_at, guards) = self.classes[class as usize - 1];
        format!("the lock of {guards} ({made_at})")
    }
}

fn graph() -> MutexGuard<'static, Graph> {
    GRAPH.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The whole server has about sixty.
const CLASSES_MAX: usize = 256;

/// Not on the same cache line as what every lock reads.
static GRAPH: OwnLine<Mutex<Graph>> =
    OwnLine(Mutex::new(Graph { classes: Vec::new(), edges: BTreeMap::new() }));

/// One bit for each edge of the graph, so that most checks take no lock.
static SEEN: [AtomicU64; CLASSES_MAX * CLASSES_MAX / 64] =
    [const { AtomicU64::new(0) }; CLASSES_MAX * CLASSES_MAX / 64];

thread_local! {
    static HELD: RefCell<Vec<Taken>> = const { RefCell::new(Vec::new()) };
}

#[cfg(all(test, not(shuttle)))]
mod tests;
