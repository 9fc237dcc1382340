//! HOTKEYS: finds the keys that take most of the time, the network traffic and the memory, while
//! the server runs.
//!
//! Without a session it costs nothing: the limits of the command log, which each command is
//! compared with anyway, say that no command needs attention. During a session they say that every
//! command does, and the measurements of a sampled command are added to the sums of its keys. A
//! bounded number of sums of each kind is kept, by the space-saving algorithm (Metwally and others,
//! 2005): a new key takes the place of the smallest sum, and inherits that sum. So no key with a
//! large share is missed, and a sum is too high by at most the smallest sum. Each thread adds to a
//! part of its own.
//!
//! Sizes are read after a command's handler, while its keys' shards are held. The largest of those
//! are kept, so a key that no command uses is not found.

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

/// The parameters of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotkeysRequest {
    /// Measure the time of keys.
    pub cpu: bool,
    /// Measure the bytes of requests and replies.
    pub net: bool,
    /// Measure the bytes of memory.
    pub size: bool,
    /// The number of keys to report.
    pub count: usize,
    /// How long the session lasts, in milliseconds; 0 for until it is stopped.
    pub duration_ms: i64,
    /// One of this many commands is sampled.
    pub sample: u32,
}

/// A session, active or ended.
pub struct HotkeysSession {
    pub wanted: HotkeysRequest,
    pub started_ms: i64,
    ended: OnceLock<HotkeysEnd>,
    parts: [Mutex<HotkeysPart>; PARTS],
    /// Processor time at the start in milliseconds: that of the process, and that of the kernel for
    /// it.
    cpu_ms: (u64, u64),
}

/// The end of a session.
#[derive(Clone, Copy, Debug)]
struct HotkeysEnd {
    ms: i64,
    /// As in the session's `cpu_ms`.
    cpu_ms: (u64, u64),
}

/// The totals, and the keys with the largest shares.
#[derive(Debug, Default)]
pub struct Report {
    pub is_active: bool,
    pub duration_ms: i64,
    /// The time of all commands with keys, sampled or not, in microseconds.
    pub us: u64,
    pub bytes: u64,
    /// Processor time of the process during the session.
    pub cpu_user_ms: u64,
    pub cpu_system_ms: u64,
    /// Keys with microseconds, and keys with bytes; the largest first.
    pub by_us: Vec<(Box<[u8]>, u64)>,
    pub by_bytes: Vec<(Box<[u8]>, u64)>,
    /// Keys with the memory that each took when it was last used.
    pub by_size: Vec<(Box<[u8]>, u64)>,
}

/// The sampling of HOTKEYS, and its results.
#[derive(Default)]
pub struct HotKeys {
    is_active: AtomicBool,
    session: RwLock<Option<HotkeysSession>>,
}

#[derive(Default)]
struct HotkeysPart {
    random: u64,
    /// Time in nanoseconds, as many commands take less than a microsecond.
    ns: u64,
    bytes: u64,
    by_ns: Top,
    by_bytes: Top,
    by_size: Largest,
}

/// Sums by key, for a limited number of keys. When there is no more room, a new key replaces the
/// one with the smallest sum and inherits that sum. So the sums are estimates.
#[derive(Default)]
struct Top {
    sums: Ranked,
}

/// The largest figures by key. The figure of a key is the last one noted.
#[derive(Default)]
struct Largest {
    figures: Ranked,
}

/// The number of parts. This many threads can add at the same time without waiting for each other.
const PARTS: usize = 16;
/// How many sums a part keeps for each key to report.
const KEPT_PER_KEY: usize = 20;
/// Longer keys are not reported. A copy of each kept key is in memory, whether or not the key
/// exists.
const KEY_BYTES_MAX: usize = 1024;

impl HotKeys {
    #[inline]
    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// Begins a session. Returns `false` if one is active.
    pub fn start(&self, wanted: HotkeysRequest) -> bool {
        let mut session = self.session.write();
        if session.as_ref().is_some_and(HotkeysSession::is_active) {
            return false;
        }
        *session = Some(HotkeysSession::new(wanted));
        self.is_active.store(true, Ordering::Relaxed);
        true
    }

    /// Ends the session. Returns whether one was active.
    pub fn stop(&self) -> bool {
        self.read(|session| {
            let stopped = session.is_some_and(|session| session.end(system_ms()));
            self.is_active.store(false, Ordering::Relaxed);
            stopped
        })
    }

    /// Forgets a session that has ended. Returns `false` if one is active.
    pub fn reset(&self) -> bool {
        let mut session = self.session.write();
        if session.as_ref().is_some_and(HotkeysSession::is_active) {
            return false;
        }
        *session = None;
        true
    }

    /// Whether the session is active; `None` if there is none.
    pub fn state(&self) -> Option<bool> {
        self.read(|session| session.map(HotkeysSession::is_active))
    }

    /// The results of the session so far; `None` if there was none.
    pub fn report(&self) -> Option<(HotkeysRequest, i64, Report)> {
        self.read(|session| {
            session.map(|session| (session.wanted, session.started_ms, session.report()))
        })
    }

    /// Adds a command that was executed. Returns `false` if the session is over.
    #[cold]
    #[must_use]
    pub fn note(&self, command: &Facts, args: &[&[u8]], measured: &Measured, ns: u64) -> bool {
        self.with_session(|session| session.note(command, args, measured, ns))
    }

    /// Adds the sizes of a command's keys: `sizes` calls its argument with each. Returns `false` if
    /// the session is over.
    #[must_use]
    pub fn note_sizes(&self, sizes: impl FnOnce(&mut dyn FnMut(&[u8], u64))) -> bool {
        self.with_session(|session| session.note_sizes(sizes))
    }

    /// Calls `f` with whether a session is active. No session begins or is removed during the call.
    pub fn while_steady<R>(&self, f: impl FnOnce(bool) -> R) -> R {
        self.read(|session| f(session.is_some_and(HotkeysSession::is_active)))
    }

    /// Calls `f` with the active session. Returns `false` if the session is over.
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

    /// Ends the session; returns whether this call did.
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
    /// Whether this command is sampled: one of `sample`.
    fn draw(&mut self, sample: u32) -> bool {
        if sample <= 1 {
            return true;
        }
        self.random = self.random.wrapping_add(GOLDEN);
        Random::new(self.random).below(sample) == 0
    }
}

impl Largest {
    /// Sets the figure of a key; 0 if the key no longer exists.
    fn set(&mut self, key: &[u8], figure: u64, kept: usize) {
        if let Some(known) = self.figures.find(key) {
            match figure {
                0 => self.figures.remove(known),
                _ => self.figures.change(known, figure),
            }
            return;
        }
        // The smallest figure, if there is no room for another.
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

/// The `count` largest sums, the largest first.
fn most(sums: HashMap<Box<[u8]>, u64>, count: usize) -> Vec<(Box<[u8]>, u64)> {
    let mut sums: Vec<_> = sums.into_iter().filter(|(_, sum)| *sum > 0).collect();
    sums.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    sums.truncate(count);
    sums
}

/// The index of the calling thread's part.
fn own_part() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % PARTS);
    }
    OWN.get()
}

/// Processor time in milliseconds: that of the process, and that of the kernel for it.
fn cpu_ms() -> (u64, u64) {
    let usage = ProcessorUsage::now();
    ((usage.user_s * 1e3) as u64, (usage.system_s * 1e3) as u64)
}

/// Spreads the seeds of successive draws.
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
        // Processor time after the end does not count for the session.
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
        // A key that shrinks makes room for others, and a deleted key disappears.
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
