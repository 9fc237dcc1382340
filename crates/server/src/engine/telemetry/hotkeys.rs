//! HOTKEYS: which keys take most of the time, of the network and of the memory, found while
//! serving.
//!
//! While nobody looks, nothing is done: the limits of the command log, which each command is
//! compared with anyway, say that none is worth a look. While somebody does, they say that every
//! command is, and what was measured of a sampled command is added to its keys' sums. Of each kind
//! of sum a bounded number is kept, by the rule of space saving (Metwally and others, 2005): a key
//! that has no place takes that of the smallest sum, and its sum. So no key with a large share is
//! missed, and sums are too high by no more than the smallest. Each thread adds to a part of its
//! own.
//!
//! Sizes are looked at behind a command's handler, while its keys are held, and of those met the
//! largest are kept: a key that no command uses is not found.

mod ranked;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bobbin_sync::{Mutex, RwLock};

use crate::base::clock::system_ms;
use crate::base::random::Random;
use crate::base::usage::ProcessorUsage;
use crate::engine::row::{Facts, KeyShape};
use crate::engine::telemetry::slowlog::Measured;
use ranked::Ranked;

/// What a session is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotkeysRequest {
    /// Time of keys.
    pub cpu: bool,
    /// Bytes of requests and replies.
    pub net: bool,
    /// Bytes of memory.
    pub size: bool,
    /// Keys to tell of.
    pub count: usize,
    /// How long, in milliseconds; 0: until it is stopped.
    pub duration_ms: i64,
    /// One of this many commands is sampled.
    pub sample: u32,
}

/// A look at keys, at work or ended.
pub struct HotkeysSession {
    pub wanted: HotkeysRequest,
    pub started_ms: i64,
    ended: OnceLock<HotkeysEnd>,
    parts: [Mutex<HotkeysPart>; PARTS],
    /// Processor time of the process at the start, in milliseconds: its own, and the kernel's for
    /// it.
    cpu_ms: (u64, u64),
}

/// The end of a session.
#[derive(Clone, Copy, Debug)]
struct HotkeysEnd {
    ms: i64,
    /// As at the start.
    cpu_ms: (u64, u64),
}

/// All that happened, and the keys that had most of it.
#[derive(Debug, Default)]
pub struct Report {
    pub is_active: bool,
    pub duration_ms: i64,
    /// Of all commands with keys, looked at or not.
    pub us: u64,
    pub bytes: u64,
    /// Processor time of the process meanwhile.
    pub cpu_user_ms: u64,
    pub cpu_system_ms: u64,
    /// Keys with microseconds, and keys with bytes; the most first.
    pub by_us: Vec<(Box<[u8]>, u64)>,
    pub by_bytes: Vec<(Box<[u8]>, u64)>,
    /// With the memory that each took when it was last met.
    pub by_size: Vec<(Box<[u8]>, u64)>,
}

/// The sampling of HOTKEYS, and what it has found.
#[derive(Default)]
pub struct HotKeys {
    is_active: AtomicBool,
    session: RwLock<Option<HotkeysSession>>,
}

#[derive(Default)]
struct HotkeysPart {
    random: u64,
    /// Many commands take less than a microsecond.
    ns: u64,
    bytes: u64,
    by_ns: Top,
    by_bytes: Top,
    by_size: Largest,
}

/// Sums by key, of a limited number of keys. When there are that many, a new key replaces the one
/// with the smallest sum and inherits that sum. So the sums are estimates.
#[derive(Default)]
struct Top {
    sums: Ranked,
}

/// The largest figures by key. Each is the last that was told of the key.
#[derive(Default)]
struct Largest {
    figures: Ranked,
}

/// The number of parts. Up to this many threads add at a time without waiting for each other.
const PARTS: usize = 16;
/// Sums that a part keeps for each key that is asked for.
const KEPT_PER_KEY: usize = 20;
/// Longer keys are not told of. Of each key that is kept there is a copy, whether it exists or not.
const KEY_BYTES_MAX: usize = 1024;

impl HotKeys {
    #[inline]
    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// Begins a session; whether there was none at work.
    pub fn start(&self, wanted: HotkeysRequest) -> bool {
        let mut session = self.session.write();
        if session.as_ref().is_some_and(HotkeysSession::is_active) {
            return false;
        }
        *session = Some(HotkeysSession::new(wanted));
        self.is_active.store(true, Ordering::Relaxed);
        true
    }

    /// Ends the session; whether there was one at work.
    pub fn stop(&self) -> bool {
        self.read(|session| {
            let stopped = session.is_some_and(|session| session.end(system_ms()));
            self.is_active.store(false, Ordering::Relaxed);
            stopped
        })
    }

    /// Forgets the session that has ended; whether none is at work.
    pub fn reset(&self) -> bool {
        let mut session = self.session.write();
        if session.as_ref().is_some_and(HotkeysSession::is_active) {
            return false;
        }
        *session = None;
        true
    }

    /// What the session found so far; `None`: there was none.
    pub fn report(&self) -> Option<(HotkeysRequest, i64, Report)> {
        self.read(|session| {
            session.map(|session| (session.wanted, session.started_ms, session.report()))
        })
    }

    /// Adds a command that was executed. `false`: the session is over.
    #[cold]
    #[must_use]
    pub fn note(&self, command: &Facts, args: &[&[u8]], measured: &Measured, ns: u64) -> bool {
        self.with_session(|session| session.note(command, args, measured, ns))
    }

    /// Takes the sizes of a command's keys, which `sizes` calls a function with. `false`: the
    /// session is over.
    #[must_use]
    pub fn note_sizes(&self, sizes: impl FnOnce(&mut dyn FnMut(&[u8], u64))) -> bool {
        self.with_session(|session| session.note_sizes(sizes))
    }

    /// Calls `f` with whether a session is at work, which stays so for as long as that takes.
    pub fn while_steady<R>(&self, f: impl FnOnce(bool) -> R) -> R {
        self.read(|session| f(session.is_some_and(HotkeysSession::is_active)))
    }

    /// Calls `f` with the session at work; `false`: it is over.
    fn with_session(&self, f: impl FnOnce(&HotkeysSession)) -> bool {
        self.read(|session| match session.filter(|session| session.is_active()) {
            Some(session) => {
                f(session);
                true
            }
            None => {
                self.is_active.store(false, Ordering::Relaxed);
                false
            }
        })
    }

    fn read<R>(&self, f: impl FnOnce(Option<&HotkeysSession>) -> R) -> R {
        f(self.session.read().as_ref())
    }
}

impl HotkeysSession {
    fn new(wanted: HotkeysRequest) -> Self {
        let part = |at| Mutex::new(HotkeysPart { random: at as u64, ..HotkeysPart::default() });
        Self {
            wanted,
            started_ms: system_ms(),
            ended: OnceLock::new(),
            parts: std::array::from_fn(part),
            cpu_ms: cpu_ms(),
        }
    }

    fn is_active(&self) -> bool {
        if self.ended.get().is_some() {
            return false;
        }
        let until_ms = self.started_ms.saturating_add(self.wanted.duration_ms);
        if self.wanted.duration_ms > 0 && system_ms() >= until_ms {
            self.end(until_ms);
            return false;
        }
        true
    }

    /// Whether that was the end.
    fn end(&self, now_ms: i64) -> bool {
        self.ended.set(HotkeysEnd { ms: now_ms, cpu_ms: cpu_ms() }).is_ok()
    }

    fn note(&self, command: &Facts, args: &[&[u8]], measured: &Measured, ns: u64) {
        let mut keys = Vec::new();
        match command.shape {
            KeyShape::None => {}
            KeyShape::First => keys.extend(args.get(1)),
            KeyShape::Specified => _ = command.key_positions(args, |at| keys.push(&args[at])),
        }
        if keys.is_empty() {
            return;
        }
        let bytes = (measured.request_bytes + measured.reply_bytes) as u64;
        let mut part = self.parts[own_part()].lock();
        part.ns += ns;
        part.bytes += bytes;
        if !part.draw(self.wanted.sample) {
            return;
        }
        let (kept, count) = (self.wanted.count * KEPT_PER_KEY, keys.len() as u64);
        for key in keys.into_iter().filter(|key| key.len() <= KEY_BYTES_MAX) {
            if self.wanted.cpu {
                part.by_ns.add(key, ns / count, kept);
            }
            if self.wanted.net {
                part.by_bytes.add(key, bytes / count, kept);
            }
        }
    }

    fn note_sizes(&self, sizes: impl FnOnce(&mut dyn FnMut(&[u8], u64))) {
        let mut part = self.parts[own_part()].lock();
        if !part.draw(self.wanted.sample) {
            return;
        }
        let kept = self.wanted.count * KEPT_PER_KEY;
        sizes(&mut |key, size| {
            if key.len() <= KEY_BYTES_MAX {
                part.by_size.set(key, size, kept);
            }
        });
    }

    fn report(&self) -> Report {
        let is_active = self.is_active();
        let now = || HotkeysEnd { ms: system_ms(), cpu_ms: cpu_ms() };
        let HotkeysEnd { ms: until_ms, cpu_ms: (user_ms, system_ms) } =
            self.ended.get().copied().unwrap_or_else(now);
        let mut report = Report {
            is_active,
            duration_ms: until_ms - self.started_ms,
            cpu_user_ms: user_ms - self.cpu_ms.0,
            cpu_system_ms: system_ms - self.cpu_ms.1,
            ..Report::default()
        };
        let (mut ns, mut by_ns, mut by_bytes, mut by_size) =
            (0, HashMap::new(), HashMap::new(), HashMap::<Box<[u8]>, u64>::new());
        for part in &self.parts {
            let part = part.lock();
            for (key, size) in part.by_size.figures.iter() {
                let largest = by_size.entry(key.into()).or_default();
                *largest = size.max(*largest);
            }
            ns += part.ns;
            report.bytes += part.bytes;
            for (sums, all) in [(&part.by_ns, &mut by_ns), (&part.by_bytes, &mut by_bytes)] {
                for (key, sum) in sums.sums.iter() {
                    *all.entry(key.into()).or_insert(0) += sum;
                }
            }
        }
        report.us = ns / 1000;
        report.by_us = most(by_ns, self.wanted.count);
        report.by_us.iter_mut().for_each(|(_, time)| *time = time.div_ceil(1000));
        report.by_bytes = most(by_bytes, self.wanted.count);
        report.by_size = most(by_size, self.wanted.count);
        report
    }
}

impl HotkeysPart {
    /// Whether this command is looked at: one of `sample`.
    fn draw(&mut self, sample: u32) -> bool {
        if sample <= 1 {
            return true;
        }
        self.random = self.random.wrapping_add(GOLDEN);
        Random::new(self.random).below(sample) == 0
    }
}

impl Largest {
    /// 0: the key is no more.
    fn set(&mut self, key: &[u8], figure: u64, kept: usize) {
        if let Some(known) = self.figures.find(key) {
            match figure {
                0 => self.figures.remove(known),
                _ => self.figures.change(known, figure),
            }
            return;
        }
        // The smallest of those that are in the way: 0 while there is room.
        let crowding = self.figures.smallest().filter(|_| self.figures.len() >= kept);
        if figure > crowding.map_or(0, |smallest| self.figures.figure(smallest)) {
            if let Some(smallest) = crowding {
                self.figures.remove(smallest);
            }
            self.figures.insert(key, figure);
        }
    }
}

impl Top {
    fn add(&mut self, key: &[u8], amount: u64, kept: usize) {
        if let Some(known) = self.sums.find(key) {
            self.sums.change(known, self.sums.figure(known) + amount);
            return;
        }
        let mut inherited = 0;
        if let Some(smallest) = self.sums.smallest().filter(|_| self.sums.len() >= kept) {
            inherited = self.sums.figure(smallest);
            self.sums.remove(smallest);
        }
        self.sums.insert(key, inherited + amount);
    }
}

/// The largest sums, the largest first.
fn most(sums: HashMap<Box<[u8]>, u64>, count: usize) -> Vec<(Box<[u8]>, u64)> {
    let mut sums: Vec<_> = sums.into_iter().filter(|(_, sum)| *sum > 0).collect();
    sums.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    sums.truncate(count);
    sums
}

/// The calling thread's part.
fn own_part() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % PARTS);
    }
    OWN.get()
}

/// Processor time of the process in milliseconds: its own, and the kernel's for it.
fn cpu_ms() -> (u64, u64) {
    let usage = ProcessorUsage::now();
    ((usage.user_s * 1e3) as u64, (usage.system_s * 1e3) as u64)
}

/// Spreads the seeds of one draw after the other.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(ranked: &Ranked) -> HashMap<Box<[u8]>, u64> {
        ranked.iter().map(|(key, figure)| (key.into(), figure)).collect()
    }

    #[test]
    fn large_sums_survive_many_small_ones() {
        let mut top = Top::default();
        for round in 0..1000u64 {
            top.add(b"hot", 10, 20);
            top.add(format!("cold {round}").as_bytes(), 1, 20);
        }
        assert_eq!(top.sums.len(), 20);
        let most = most(all(&top.sums), 1);
        assert_eq!(&*most[0].0, b"hot");
        assert!((10_000..11_000).contains(&most[0].1), "{most:?}");
    }

    #[test]
    fn very_long_keys_are_not_kept() {
        let wanted = HotkeysRequest {
            cpu: true,
            net: true,
            size: false,
            count: 3,
            duration_ms: 0,
            sample: 1,
        };
        let (keys, registry) = (HotKeys::default(), registry());
        assert!(keys.start(wanted));
        let (get, long) = (registry.find(b"get").unwrap(), vec![b'k'; KEY_BYTES_MAX + 1]);
        let measured = Measured { ticks: 1, request_bytes: 5, reply_bytes: 5 };
        for key in [&long[..], &long[..KEY_BYTES_MAX]] {
            assert!(keys.note(get, &[b"get", key], &measured, 7_000));
        }
        let (_, _, report) = keys.report().unwrap();
        assert_eq!((report.us, report.bytes), (14, 20));
        let told: [Vec<usize>; 2] = [&report.by_us, &report.by_bytes]
            .map(|keys| keys.iter().map(|(key, _)| key.len()).collect());
        assert_eq!(told, [vec![KEY_BYTES_MAX], vec![KEY_BYTES_MAX]]);
    }

    fn registry() -> crate::engine::command::Registry {
        crate::engine::command::Registry::new(&crate::process::families(), &[]).unwrap()
    }

    #[test]
    fn one_session_at_a_time() {
        let wanted = HotkeysRequest {
            cpu: true,
            net: false,
            size: false,
            count: 3,
            duration_ms: 0,
            sample: 1,
        };
        let keys = HotKeys::default();
        assert!(keys.report().is_none() && !keys.stop());
        assert!(keys.start(wanted) && !keys.start(wanted) && !keys.reset());
        assert!(keys.is_active());
        assert!(keys.stop() && !keys.stop() && !keys.is_active());
        assert!(keys.report().is_some_and(|(_, _, report)| !report.is_active));
        // Processor time after the end is not the session's.
        let used_ms = || keys.report().map(|(_, _, report)| report.cpu_user_ms);
        let (at_end, until_ms) = (used_ms(), cpu_ms().0 + 5);
        while cpu_ms().0 < until_ms {}
        assert_eq!(used_ms(), at_end);
        assert!(keys.reset() && keys.report().is_none());
        let short = HotkeysRequest { duration_ms: 1, ..wanted };
        assert!(keys.start(short));
        std::thread::sleep(std::time::Duration::from_millis(5));
        let (_, _, report) = keys.report().expect("a session");
        assert!(!report.is_active && report.duration_ms == 1);
        assert!(keys.is_active(), "nobody has looked");
        assert!(!keys.while_steady(|is_active| is_active) && !keys.with_session(|_| {}));
        assert!(!keys.is_active());
    }

    #[test]
    fn the_largest_are_kept_as_they_were_last() {
        let mut largest = Largest::default();
        for figure in 1..=1000 {
            largest.set(format!("key {figure}").as_bytes(), figure, 20);
        }
        let kept = |largest: &Largest| most(all(&largest.figures), 99);
        assert_eq!(kept(&largest).len(), 20);
        assert!(kept(&largest).iter().all(|(_, figure)| *figure > 980));
        // What shrinks makes room, and what is deleted goes.
        largest.set(b"key 1000", 5, 20);
        largest.set(b"key 999", 0, 20);
        largest.set(b"new", 3, 20);
        largest.set(b"newer", 50, 20);
        let kept = kept(&largest);
        assert_eq!((&*kept[0].0, kept[0].1), (&b"key 998"[..], 998));
        assert_eq!((&*kept[18].0, kept[18].1), (&b"newer"[..], 50));
        assert_eq!((&*kept[19].0, kept[19].1), (&b"key 1000"[..], 5));
        assert_eq!(kept.len(), 20);
    }
}
