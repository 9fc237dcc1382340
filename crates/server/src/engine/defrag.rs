//! Active defragmentation (`activedefrag`): a thread that moves blocks of memory together.
//!
//! Once a second the thread reads how many bytes are free in runs of small blocks that cannot be
//! given back, because other blocks of the runs are in use. If they are many, it goes over all keys
//! and scripts. It holds a shard while it looks at `STEP_LOOKS` blocks, and rests in between, so it
//! takes only a part of one core. The allocator decides what moves (`Utilization`); the store knows
//! where the blocks are.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bobbin_io::error_text;
use bobbin_store::{DefragCursor, Defragmenter, SHARDS};
use bobbin_sync::Mutex;

use crate::base::allocator::{self, Utilization};
use crate::base::cores::CoreWork;
use crate::config::Config;
use crate::engine::command::Data;
use crate::engine::server::{Server, background};
use crate::engine::telemetry::latency::LatencyEvent;

/// The state of the thread, and its figures since the start or CONFIG RESETSTAT.
#[derive(Default)]
pub struct Defrag {
    runs: AtomicBool,
    /// The percentage of its time that the thread works; 0 while there is nothing to do.
    effort: AtomicU64,
    /// The number of blocks that were moved.
    pub hits: AtomicU64,
    /// The number of blocks that were checked and not moved.
    pub misses: AtomicU64,
    /// The number of keys of which something was moved.
    pub key_hits: AtomicU64,
    /// The number of keys of which nothing was moved.
    pub key_misses: AtomicU64,
    timing: Mutex<Timing>,
}

/// How long there was much to move.
#[derive(Default)]
struct Timing {
    before: Duration,
    since: Option<Instant>,
}

impl Defrag {
    pub fn of(server: &Server) -> &Self {
        server.parts.get()
    }

    /// The percentage of its time that the thread works, within the current limits; 0 while there
    /// is nothing to do.
    pub fn effort(&self, config: &Config) -> u64 {
        let (least, most) = limits(config);
        match self.effort.load(Ordering::Relaxed) {
            0 => 0,
            effort => effort.clamp(least, most),
        }
    }

    /// How long there was much to move: in total, and since this last began.
    pub fn times(&self) -> (Duration, Duration) {
        let timing = self.timing.lock();
        let current = timing.since.map_or(Duration::ZERO, |since| since.elapsed());
        (timing.before + current, current)
    }

    pub fn reset_statistics(&self) {
        for counter in [&self.hits, &self.misses, &self.key_hits, &self.key_misses] {
            counter.store(0, Ordering::Relaxed);
        }
        self.timing.lock().before = Duration::ZERO;
    }

    fn work_at(&self, effort: u64) {
        self.effort.store(effort, Ordering::Relaxed);
        let mut timing = self.timing.lock();
        match (effort > 0, timing.since) {
            (true, None) => timing.since = Some(Instant::now()),
            (false, Some(since)) => {
                timing.before += since.elapsed();
                timing.since = None;
            }
            _ => {}
        }
    }

    fn count(&self, step: &Defragmenter<'_>) {
        let add = |counter: &AtomicU64, count: usize| {
            counter.fetch_add(count as u64, Ordering::Relaxed);
        };
        add(&self.hits, step.moved());
        add(&self.misses, step.looked() - step.moved());
        add(&self.key_hits, step.keys_moved());
        add(&self.key_misses, step.keys() - step.keys_moved());
    }
}

/// Starts the thread if `activedefrag` is on. The thread ends by itself when the option is off.
/// Called at start and by CONFIG SET.
pub fn follow_config(server: &'static Server) -> Result<(), String> {
    if !server.config.activedefrag() || Defrag::of(server).runs.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    let run = move || {
        let outcome = run(server);
        Defrag::of(server).work_at(0);
        Defrag::of(server).runs.store(false, Ordering::Release);
        // The option may have been set again at the last moment.
        if let Err(reason) = outcome.and_then(|()| follow_config(server)) {
            log::warn!("Memory cannot be defragmented: {reason}");
        }
    };
    background::start("bobbin-defrag", CoreWork::Background, run).map_err(|error| {
        Defrag::of(server).runs.store(false, Ordering::Release);
        format!("Can't start the thread that defragments memory: {}", error_text(&error))
    })
}

/// Works until `activedefrag` is off.
fn run(server: &'static Server) -> Result<(), String> {
    allocator::bypass_thread_cache()?;
    let utilization = Utilization::new()?;
    let seed = server.clock.now_ms() as u64;
    let mut data = Data::new(&server.keyspace, &server.gate, seed).ok_or("too many threads")?;
    let defrag = Defrag::of(server);
    let mut idle: Option<IdlePass> = None;
    while server.config.activedefrag() {
        let waste = allocator::small_waste();
        let effort = effort(&server.config, waste);
        if effort > 0 && idle.is_none_or(|idle| idle.is_past(waste)) {
            defrag.work_at(effort);
            let moved = pass(server, &mut data, &utilization);
            let now = Instant::now();
            idle = (!moved).then(|| IdlePass { ended: now, waste: allocator::small_waste() });
        } else {
            defrag.work_at(0);
            std::thread::sleep(LOOK_PAUSE);
        }
    }
    Ok(())
}

/// A pass that moved less than a hundredth of the blocks. Repeating it at once would be useless.
#[derive(Clone, Copy)]
struct IdlePass {
    ended: Instant,
    /// Bytes that were wasted at its end.
    waste: usize,
}

impl IdlePass {
    /// Whether another pass may find more: more memory is wasted now, or some time has passed.
    fn is_past(self, waste: usize) -> bool {
        waste > self.waste + self.waste / 4 || self.ended.elapsed() > IDLE_PASS_PAUSE
    }
}

/// The percentage of its time that the thread should work now. It goes from
/// `active-defrag-cycle-min` to `-max` as the waste goes from `active-defrag-threshold-lower` to
/// `-upper`; below that it is 0.
fn effort(config: &Config, waste: usize) -> u64 {
    let percent = waste as i64 * 100 / allocator::figures().allocated.max(1) as i64;
    let lower = config.active_defrag_threshold_lower();
    if percent < lower || (waste as u64) < config.active_defrag_ignore_bytes() {
        return 0;
    }
    let span = (config.active_defrag_threshold_upper() - lower).max(1);
    let (least, most) = limits(config);
    least + (most - least) * (percent - lower).min(span) as u64 / span as u64
}

/// The least and the highest percentage of its time that the thread works while there is work.
fn limits(config: &Config) -> (u64, u64) {
    let least = config.active_defrag_cycle_min() as u64;
    (least, least.max(config.active_defrag_cycle_max() as u64))
}

/// Goes over all keys and scripts once, as long as that is wanted. Returns whether much was moved.
fn pass(server: &Server, data: &mut Data, utilization: &Utilization) -> bool {
    let mut pass = Pass::new(server, utilization);
    let is_complete = pass.over_keys(data) && pass.over_scripts();
    !is_complete || pass.moved * 100 > pass.looked
}

/// One walk over everything that can be moved.
struct Pass<'a> {
    server: &'a Server,
    utilization: &'a Utilization,
    /// The number of blocks that were checked, and of those that were moved.
    looked: usize,
    moved: usize,
    /// How long the pass has worked since its last rest.
    worked: Duration,
    /// When the pass last read how much is wasted.
    looked_at: Instant,
}

impl<'a> Pass<'a> {
    fn new(server: &'a Server, utilization: &'a Utilization) -> Self {
        let (worked, looked_at) = (Duration::ZERO, Instant::now());
        Self { server, utilization, looked: 0, moved: 0, worked, looked_at }
    }

    /// Goes over all keys. Returns whether it came to the end.
    fn over_keys(&mut self, data: &mut Data) -> bool {
        let server = self.server;
        for shard in 0..SHARDS {
            let (mut number, mut cursor) = (0, DefragCursor::default());
            let mut has_more = true;
            while has_more {
                while server.keyspace.is_being_cut() && server.config.activedefrag() {
                    // Values that are shared with a snapshot would be copied for it.
                    std::thread::sleep(CUT_PAUSE);
                }
                if !self.is_wanted() {
                    return false;
                }
                has_more = self.step(|step| {
                    data.enter();
                    let has_more = data.visit(shard, |shard| {
                        let Some((used, _)) = shard.used_from(number).next() else { return false };
                        if used > number {
                            (number, cursor) = (used, DefragCursor::default());
                        }
                        let database = shard.used_mut(number);
                        if !database.is_some_and(|database| database.defragment(&mut cursor, step))
                        {
                            (number, cursor) = (number + 1, DefragCursor::default());
                        }
                        true
                    });
                    data.leave();
                    has_more
                });
            }
        }
        true
    }

    /// Goes over the scripts. Returns whether it came to the end.
    fn over_scripts(&mut self) -> bool {
        let scripts = &self.server.scripts;
        for some in scripts.names().chunks(STEP_LOOKS) {
            if !self.is_wanted() {
                return false;
            }
            self.step(|step| scripts.defragment(some, step));
        }
        true
    }

    /// Whether there is still much to move. Checks that once a second.
    fn is_wanted(&mut self) -> bool {
        let config = &self.server.config;
        if self.looked_at.elapsed() > LOOK_PAUSE {
            self.looked_at = Instant::now();
            match effort(config, allocator::small_waste()) {
                0 => return false,
                effort => Defrag::of(self.server).work_at(effort),
            }
        }
        config.activedefrag()
    }

    /// Works for a moment, and rests in proportion.
    fn step<T>(&mut self, work: impl FnOnce(&mut Defragmenter<'_>) -> T) -> T {
        let defrag = Defrag::of(self.server);
        let mut wants = |block| self.utilization.wants(block);
        let mut step = Defragmenter::new(STEP_LOOKS, &mut wants);
        let started = Instant::now();
        let outcome = work(&mut step);
        let took = started.elapsed();
        defrag.count(&step);
        self.looked += step.looked();
        self.moved += step.moved();
        note_slow(self.server, took);
        self.worked += took;
        let config = &self.server.config;
        if self.worked.as_micros() as i64 >= config.active_defrag_cycle_us() {
            let effort = defrag.effort(config).clamp(1, 99) as u32;
            std::thread::sleep(self.worked * (100 - effort) / effort);
            self.worked = Duration::ZERO;
        }
        outcome
    }
}

fn note_slow(server: &Server, took: Duration) {
    if took >= SLOW {
        let (latency, us) = (&server.services.latency, took.as_micros() as u64);
        latency.sample(&server.config, LatencyEvent::ActiveDefragCycle, us);
    }
}

/// How often the thread checks how much is wasted.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// How long the thread rests after an idle pass.
const IDLE_PASS_PAUSE: Duration = Duration::from_secs(30);
/// How often the thread checks whether a snapshot is complete.
const CUT_PAUSE: Duration = Duration::from_millis(100);
/// How many blocks are checked while a shard is held, or a few more. Ten take some microseconds, or
/// some ten if they are of several KB and move.
const STEP_LOOKS: usize = 64;
const SLOW: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_pass_is_past_once_more_is_wasted_or_it_is_long_ago() {
        let idle = IdlePass { ended: Instant::now(), waste: 4000 };
        assert!(!idle.is_past(4000) && !idle.is_past(100) && !idle.is_past(5000));
        assert!(idle.is_past(5001));
        let ended = idle.ended.checked_sub(IDLE_PASS_PAUSE + LOOK_PAUSE);
        assert!(ended.is_none_or(|ended| IdlePass { ended, ..idle }.is_past(4000)));
    }
}
