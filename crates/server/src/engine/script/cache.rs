//! The scripts that the server knows, by the SHA-1 of their source.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bobbin_script::{ScriptFlags, Shebang, ShebangError};
use bobbin_store::Defragmenter;
use bobbin_sync::{Mutex, OwnLine, RwLock};
use sha1::{Digest, Sha1};

use super::wish::Waits;
use super::{Busy, StateSource};
use crate::config::Config;
use crate::engine::row::Failure;
use crate::engine::server::{Server, Switch, Switches};

/// A SHA-1 as 40 lower-case hexadecimal digits.
pub type Sha = [u8; 40];

/// A script, and what the server has learned about it.
pub struct Script {
    pub sha: Sha,
    pub source: Box<[u8]>,
    pub flags: ScriptFlags,
    /// Whether the script declares its flags in its first line. Then they are enforced.
    pub is_strict: bool,
    /// The offset of the code in the source.
    code: usize,
    pub learned: Arc<Learned>,
    /// Whether a copy has taken its place, so that its memory can be given back.
    is_replaced: AtomicBool,
}

/// Which keys the runs of a script have used so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Habits {
    Unknown,
    /// Only the keys that the script declares.
    Declared,
    /// Other keys too.
    Stray,
}

/// What the runs of a script have shown, for all workers and all copies of the script.
#[derive(Default)]
pub struct Learned {
    habits: AtomicU8,
    /// Whether a run has paused.
    takes_long: AtomicBool,
    /// Whether the script may be forgotten to make room for others: only EVAL has brought it, never
    /// SCRIPT LOAD.
    is_evictable: AtomicBool,
    is_evicted: AtomicBool,
    /// How many scripts had come when this one was last used.
    used_at: AtomicU64,
}

impl Learned {
    pub fn habits(&self) -> Habits {
        match self.habits.load(Ordering::Relaxed) {
            0 => Habits::Unknown,
            1 => Habits::Declared,
            _ => Habits::Stray,
        }
    }

    /// Remembers which keys a run has used. A script that strayed once is not trusted again.
    pub fn note(&self, habits: Habits) {
        if self.habits() != habits {
            self.habits.fetch_max(habits as u8, Ordering::Relaxed);
        }
    }

    /// Whether a run has paused.
    pub fn takes_long(&self) -> bool {
        self.takes_long.load(Ordering::Relaxed)
    }

    /// Remembers that a run pauses.
    pub fn note_pause(&self) {
        if !self.takes_long() {
            self.takes_long.store(true, Ordering::Relaxed);
        }
    }
}

/// All known scripts, and the scripts that are running in slices.
pub struct Scripts {
    known: RwLock<KnownScripts>,
    /// Counts the calls of SCRIPT FLUSH.
    generation: AtomicU64,
    /// Counts the scripts that copies have replaced while a thread may have had them compiled.
    replaced: AtomicU64,
    /// The scripts that go on in slices.
    busy: Mutex<Vec<Arc<Busy>>>,
    /// Counts how often scripts have released something, or become slow: each time, the clients
    /// that wait for a script should try again.
    releases: AtomicU64,
    /// Whether a client waits for a script. If so, workers have to be woken when `releases`
    /// increases.
    has_waiters: AtomicBool,
    /// The number of `GateWish`es.
    wishes: AtomicUsize,
    pub(super) waits: Waits,
    evicted: AtomicU64,
    /// How many scripts have come.
    came: AtomicU64,
    /// The memory of the workers' Lua states in bytes. Each worker writes its own cells.
    states: Mutex<Vec<Weak<OwnLine<AtomicUsize>>>>,
    /// What all Lua states, including those of libraries, are made with.
    state_source: Arc<StateSource>,
}

impl Default for Scripts {
    fn default() -> Self {
        Self {
            known: RwLock::default(),
            generation: AtomicU64::new(0),
            replaced: AtomicU64::new(0),
            busy: Mutex::default(),
            releases: AtomicU64::new(0),
            has_waiters: AtomicBool::new(false),
            wishes: AtomicUsize::new(0),
            waits: Waits::default(),
            evicted: AtomicU64::new(0),
            came: AtomicU64::new(0),
            states: Mutex::default(),
            state_source: Arc::new(StateSource::new(STATES_LEAST as usize)),
        }
    }
}

#[derive(Default)]
struct KnownScripts {
    by_sha: HashMap<Sha, Arc<Script>>,
    /// Scripts that may be forgotten, in the order in which they came.
    evictable: Vec<Arc<Script>>,
    bytes: usize,
}

impl KnownScripts {
    /// Takes out the script that has not been used for the longest time, by the scripts that have
    /// come since.
    fn next_to_go(&mut self) -> Option<Arc<Script>> {
        let used_at = |script: &Arc<Script>| script.learned.used_at.load(Ordering::Relaxed);
        let (at, _) = self.evictable.iter().enumerate().min_by_key(|(_, it)| used_at(it))?;
        Some(self.evictable.remove(at))
    }
}

/// The least limit for the memory of all Lua states, in bytes.
const STATES_LEAST: u64 = 16 << 20;
/// The most scripts that are kept if only EVAL brought them.
const EVICTABLE_MAX: usize = 500;

impl Script {
    /// Reads the script's first line. The code is not compiled yet.
    pub fn parse(source: &[u8]) -> Result<Self, Failure> {
        let shebang = Shebang::parse(source, false).map_err(describe)?;
        Ok(Self {
            sha: sha_of(source),
            source: source.into(),
            flags: shebang.flags,
            is_strict: shebang.is_there,
            code: shebang.code,
            learned: Arc::default(),
            is_replaced: AtomicBool::new(false),
        })
    }

    /// A copy in memory of its own. What runs have shown belongs to both.
    fn copy(&self) -> Self {
        Self {
            source: self.source.clone(),
            learned: Arc::clone(&self.learned),
            is_replaced: AtomicBool::new(false),
            ..*self
        }
    }

    pub fn code(&self) -> &[u8] {
        &self.source[self.code..]
    }

    /// Whether the script was forgotten to make room for others.
    pub fn is_evicted(&self) -> bool {
        self.learned.is_evicted.load(Ordering::Relaxed)
    }

    /// Whether a copy has taken its place.
    pub fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::Relaxed)
    }

    /// Notes that the script is used.
    #[inline]
    pub fn note_use(&self, scripts: &Scripts) {
        let came = scripts.came.load(Ordering::Relaxed);
        // All workers read this, so it is written only when it changes: while no new scripts come,
        // it does not.
        if self.learned.used_at.load(Ordering::Relaxed) != came {
            self.learned.used_at.store(came, Ordering::Relaxed);
        }
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.source.len()
    }
}

impl Scripts {
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Finds a script by its SHA-1, in upper or lower case.
    pub fn find(&self, sha: &[u8]) -> Option<Arc<Script>> {
        let sha: Sha = sha.to_ascii_lowercase().try_into().ok()?;
        self.known.read().by_sha.get(&sha).cloned()
    }

    /// Adds a script and returns it, or the script with the same SHA-1 that was there before. With
    /// `keep` it is never forgotten to make room for others.
    pub fn add(&self, script: Script, keep: bool) -> Arc<Script> {
        let mut known = self.known.write();
        if let Some(found) = known.by_sha.get(&script.sha) {
            let found = Arc::clone(found);
            if keep && found.learned.is_evictable.swap(false, Ordering::Relaxed) {
                known.evictable.retain(|script| !Arc::ptr_eq(script, &found));
            }
            found.note_use(self);
            return found;
        }
        let script = Arc::new(script);
        self.came.fetch_add(1, Ordering::Relaxed);
        script.note_use(self);
        if !keep {
            script.learned.is_evictable.store(true, Ordering::Relaxed);
            if known.evictable.len() >= EVICTABLE_MAX
                && let Some(gone) = known.next_to_go()
            {
                known.by_sha.remove(&gone.sha);
                gone.learned.is_evicted.store(true, Ordering::Relaxed);
                known.bytes -= gone.memory();
                self.evicted.fetch_add(1, Ordering::Relaxed);
            }
            known.evictable.push(Arc::clone(&script));
        }
        known.bytes += script.memory();
        known.by_sha.insert(script.sha, Arc::clone(&script));
        script
    }

    /// SCRIPT FLUSH.
    pub fn flush(&self) {
        let mut known = self.known.write();
        self.generation.fetch_add(1, Ordering::Release);
        *known = KnownScripts::default();
    }

    /// The slow script that makes the server busy; the first of them if there are more.
    pub fn busy(&self) -> Option<Arc<Busy>> {
        self.busy.lock().iter().find(|busy| busy.is_slow()).cloned()
    }

    /// The first script that goes on in slices, slow or not.
    pub fn running(&self) -> Option<Arc<Busy>> {
        self.busy.lock().first().cloned()
    }

    /// The error for clients that send other commands while a script is slow.
    pub fn busy_failure(&self, config: &Config) -> Failure {
        let function = self.busy().is_some_and(|busy| busy.function.is_some());
        Busy::failure_of(function, config)
    }

    /// SCRIPT KILL and FUNCTION KILL.
    pub fn kill(&self, function: bool, config: &Config) -> Result<(), Failure> {
        let all = self.busy.lock();
        let first = all.first().ok_or("NOTBUSY No scripts in execution right now.")?;
        // If the first script cannot be killed, the error says so, even if the client asked for the
        // other kind.
        let mut outcome = first.check_killable().and_then(|()| Err(first.failure(config)));
        for busy in all.iter().filter(|busy| busy.function.is_some() == function) {
            let killed = busy.kill();
            if outcome.is_err() {
                outcome = killed;
            }
        }
        outcome
    }

    /// The number of scripts that go on in slices.
    pub fn paused(&self) -> usize {
        self.busy.lock().len()
    }

    /// Notes that a script begins to go on in slices.
    pub fn begin_slices(&self, busy: &Arc<Busy>) {
        self.busy.lock().push(Arc::clone(busy));
    }

    /// Notes that a script is over. Clients that wait for its shards try again when `serve_waiters`
    /// is called.
    pub fn end_slices(&self, switches: &Switches, busy: &Arc<Busy>) {
        let mut all = self.busy.lock();
        all.retain(|other| !Arc::ptr_eq(other, busy));
        switches.set(Switch::BUSY, all.iter().any(|busy| busy.is_slow()));
    }

    /// Marks a script as slow and logs that, once. From then on clients are told that the server is
    /// busy. `ticks`: how long the script has taken so far.
    pub fn announce(&self, server: &Server, busy: &Busy, ticks: u64) {
        let all = self.busy.lock();
        if busy.is_slow() {
            return;
        }
        busy.become_slow();
        server.switches.set(Switch::BUSY, true);
        drop(all);
        log::warn!(
            "Slow script detected: still in execution after {:.0} milliseconds. You can try killing the script using \
             the {} KILL command.",
            server.clock.us(ticks) / 1000.0,
            if busy.function.is_some() { "FUNCTION" } else { "SCRIPT" },
        );
        self.serve_waiters(server);
    }

    /// Makes the clients that wait for a script try again. Either some shards are no longer
    /// reserved, or the clients must be told that a script is slow.
    pub fn serve_waiters(&self, server: &Server) {
        self.releases.fetch_add(1, Ordering::SeqCst);
        if self.has_waiters.swap(false, Ordering::SeqCst) {
            server.workers.wake();
        }
    }

    /// Notes that a worker has a client that waits. Before it sleeps, the worker looks at
    /// `releases` once more. So either the worker sees that a script has ended, or the thread that
    /// ends the script sees that a client waits.
    pub fn note_waiter(&self) {
        self.has_waiters.store(true, Ordering::SeqCst);
    }

    /// Whether a thread or a client wishes for the gate.
    pub fn is_gate_wished(&self) -> bool {
        self.wishes.load(Ordering::SeqCst) > 0
    }

    pub fn add_wish(&self) {
        self.wishes.fetch_add(1, Ordering::SeqCst);
    }

    /// Removes a wish. Returns whether it was the last one.
    pub fn remove_wish(&self) -> bool {
        self.wishes.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// A number that changes whenever clients that wait for a script should try again. A client
    /// that was refused before the change and tries after it has missed nothing.
    pub fn releases(&self) -> u64 {
        self.releases.load(Ordering::SeqCst)
    }

    pub fn len(&self) -> usize {
        self.known.read().by_sha.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory of the scripts and their sources.
    pub fn memory(&self) -> usize {
        self.known.read().bytes
    }

    /// The SHA-1s of all known scripts.
    pub fn names(&self) -> Vec<Sha> {
        self.known.read().by_sha.keys().copied().collect()
    }

    /// How often copies have replaced scripts that threads may have compiled.
    pub fn replaced(&self) -> u64 {
        self.replaced.load(Ordering::Acquire)
    }

    /// Replaces those of these scripts by copies that lie in sparse memory. Threads that have
    /// compiled one give up the old one when they are idle.
    pub fn defragment(&self, names: &[Sha], step: &mut Defragmenter<'_>) {
        let mut known = self.known.write();
        let KnownScripts { by_sha, evictable, .. } = &mut *known;
        for name in names {
            let Some(script) = by_sha.get_mut(name) else { continue };
            let is_sparse = step.wants(NonNull::from(&**script).cast());
            // An empty source has no block of memory.
            let has_sparse =
                !script.source.is_empty() && step.wants(NonNull::from(&*script.source).cast());
            if !is_sparse && !has_sparse {
                continue;
            }
            let copy = Arc::new(script.copy());
            if script.learned.is_evictable.load(Ordering::Relaxed)
                && let Some(there) = evictable.iter_mut().find(|there| Arc::ptr_eq(there, script))
            {
                *there = Arc::clone(&copy);
            }
            let old = std::mem::replace(script, copy);
            if Arc::strong_count(&old) > 1 {
                old.is_replaced.store(true, Ordering::Relaxed);
                self.replaced.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// Returns a cell for the memory of a Lua state in bytes. The cell counts until it is dropped.
    pub fn add_state(&self) -> Arc<OwnLine<AtomicUsize>> {
        let cell = Arc::new(OwnLine(AtomicUsize::new(0)));
        let mut states = self.states.lock();
        states.retain(|state| state.strong_count() > 0);
        states.push(Arc::downgrade(&cell));
        cell
    }

    /// What all Lua states are made with.
    pub fn state_source(&self) -> &Arc<StateSource> {
        &self.state_source
    }

    /// Sets whether scripts may change the environments of functions. If that changes, all scripts
    /// are forgotten, as in Valkey; libraries stay as they were loaded.
    pub fn allow_insecure(&self, is_insecure: bool) {
        if self.state_source.allow_insecure(is_insecure) {
            self.flush();
        }
    }

    /// Limits the memory of all Lua states to `configured` bytes and to half of `maxmemory` (0: no
    /// limit), but to no less than `STATES_LEAST`.
    pub fn limit_states(&self, configured: u64, maxmemory: u64) {
        let half = if maxmemory == 0 { u64::MAX } else { maxmemory / 2 };
        let bytes = configured.min(half).max(STATES_LEAST);
        self.state_source.memory.set_limit(usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    /// The memory of the workers' Lua states, in bytes.
    pub fn state_memory(&self) -> usize {
        let states = self.states.lock();
        states.iter().filter_map(|state| Some(state.upgrade()?.0.load(Ordering::Relaxed))).sum()
    }

    /// The number of scripts that were forgotten to make room for others, since the start or CONFIG
    /// RESETSTAT.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// CONFIG RESETSTAT.
    pub fn reset_statistics(&self) {
        self.evicted.store(0, Ordering::Relaxed);
    }
}

/// The SHA-1 of a source, which names the script.
pub fn sha_of(source: &[u8]) -> Sha {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digest = Sha1::digest(source);
    std::array::from_fn(|at| {
        let byte = digest[at / 2];
        DIGITS[usize::from(if at % 2 == 0 { byte >> 4 } else { byte & 15 })]
    })
}

/// The error for a script's first line.
fn describe(error: ShebangError) -> Failure {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Failure::format(match error {
        ShebangError::Endless
        | ShebangError::Double
        | ShebangError::Nameless
        | ShebangError::Name => "ERR Invalid script shebang".to_owned(),
        ShebangError::Quote => "ERR Invalid engine in script shebang".to_owned(),
        ShebangError::Engine(name) => {
            format!("ERR Could not find scripting engine '{}'", text(&name))
        }
        ShebangError::Option(option) => {
            format!("ERR Unknown lua shebang option: {}", text(&option))
        }
        ShebangError::Flag(flag) => {
            format!("ERR Unexpected flag in script shebang: {}", text(&flag))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_digests() {
        assert_eq!(&sha_of(b"return 7"), b"59b6ab2fbe0ee4b25733de0f62e6cda4899ef8e9");
    }

    #[test]
    fn what_only_eval_brought_is_forgotten_in_time() {
        let scripts = Scripts::default();
        let add = |number: usize, keep| {
            let script = Script::parse(format!("return {number}").as_bytes()).expect("it is right");
            scripts.add(script, keep)
        };
        let (first, second) = (add(0, false), add(1, false));
        add(0, true);
        (2..=EVICTABLE_MAX + 1).for_each(|number| _ = add(number, false));
        assert!(!first.is_evicted() && second.is_evicted());
        assert!(scripts.find(&first.sha.to_ascii_uppercase()).is_some());
        assert!(scripts.find(&second.sha).is_none());
        assert_eq!((scripts.len(), scripts.evicted()), (EVICTABLE_MAX + 1, 1));
        scripts.flush();
        assert_eq!((scripts.len(), scripts.memory(), scripts.generation()), (0, 0, 1));
    }

    #[test]
    fn a_copy_takes_the_place_of_a_script_in_sparse_memory() {
        let scripts = Scripts::default();
        let add =
            |source: &[u8], keep| scripts.add(Script::parse(source).expect("it is right"), keep);
        let used = add(b"return 1", false);
        used.learned.note(Habits::Stray);
        let (unused, empty) = (add(b"return 2", true).sha, add(b"", true).sha);
        let address = |sha: &Sha| scripts.find(sha).expect("it is known").source.as_ptr();
        let before = [address(&used.sha), address(&unused)];
        let bytes = scripts.memory();
        let empty_at = Arc::as_ptr(&scripts.find(&empty).expect("it is known")).addr();
        let sparse = [before[0].addr(), before[1].addr(), empty_at];
        let mut is_sparse = |block: NonNull<u8>| sparse.contains(&block.addr().get());
        let mut step = Defragmenter::new(64, &mut is_sparse);
        let gone = sha_of(b"return 3");
        scripts.defragment(&[used.sha, unused, empty, gone], &mut step);
        // Those of the two sources, and that of the script without a source.
        assert_eq!((step.looked(), step.moved()), (5, 3));
        // A thread that has the one has to give it up.
        assert_eq!((used.is_replaced(), scripts.replaced()), (true, 1));
        assert_ne!(address(&used.sha), before[0]);
        assert_ne!(address(&unused), before[1]);
        assert_eq!(scripts.find(&unused).expect("it is known").code(), b"return 2");
        let copy = scripts.find(&used.sha).expect("it is known");
        assert!(copy.learned.habits() == Habits::Stray && !copy.is_replaced());
        // Both are forgotten as one script.
        (0..EVICTABLE_MAX)
            .for_each(|number| _ = add(format!("return -{number}").as_bytes(), false));
        assert!(copy.is_evicted() && used.is_evicted() && scripts.find(&used.sha).is_none());
        drop((used, copy));
        assert_eq!(scripts.len(), 2 + EVICTABLE_MAX);
        assert!(scripts.memory() > bytes);
    }

    #[test]
    fn who_strayed_is_not_trusted_again() {
        let script = Script::parse(b"return 1").expect("it is right");
        script.learned.note(Habits::Declared);
        script.learned.note(Habits::Stray);
        script.learned.note(Habits::Declared);
        assert_eq!(script.learned.habits(), Habits::Stray);
    }
}
