//! Figures that need a walk over the shards. A thread of their own gathers them, because it may
//! have to wait for shards.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bobbin_io::error_text;
use bobbin_store::SHARDS;
use bobbin_sync::{Condvar, Mutex};

use super::keys::KeySample;
use crate::admin::info::{KeyspaceFigures, KeyspaceSum};
use crate::engine::command::Data;
use crate::engine::server::Server;

/// The gathered figures.
#[derive(Clone, Default)]
pub(super) struct MetricFigures {
    pub keyspace: KeyspaceFigures,
    /// How many keys clients keep copies of, and the number of copies.
    pub tracked: (usize, usize),
    /// A sample of keys, for those that ask for it.
    pub keys: Arc<KeySample>,
    /// When the figures were gathered. `None`: not yet.
    pub at: Option<Instant>,
}

impl MetricFigures {
    /// Looks through the shards. The thread has no turn.
    fn gather(data: &mut Data, keys: &KeySample) -> Self {
        let (mut keyspace, mut tracked) = (KeyspaceSum::default(), (0, 0));
        data.each_in_turns(0..SHARDS, |data, index| {
            keyspace.add(data, index);
            let (keys, copies) = data.visit(index, |shard| shard.tracked());
            tracked = (tracked.0 + keys, tracked.1 + copies);
        });
        Self {
            keyspace: keyspace.into_figures(),
            tracked,
            keys: Arc::new(keys.clone()),
            at: Some(Instant::now()),
        }
    }
}

/// The thread that gathers figures from the shards.
pub(super) struct Gatherer(Arc<SharedFigures>);

#[derive(Default)]
struct SharedFigures {
    state: Mutex<GatherState>,
    changed: Condvar,
}

#[derive(Default)]
struct GatherState {
    figures: MetricFigures,
    /// How many times a thread has asked, and how many times it was answered.
    asked: u64,
    answered: u64,
    /// Whether a thread has asked for a sample of keys too.
    wants_keys: bool,
}

/// How long to wait for new figures.
const PATIENCE: Duration = Duration::from_millis(100);

impl Gatherer {
    pub(super) fn start(server: &'static Server) -> Result<Self, String> {
        let shared = Arc::new(SharedFigures::default());
        let seed = server.clock.now_ms() as u64;
        let (own, keyspace, gate) = (Arc::clone(&shared), &server.keyspace, &server.gate);
        let run = move || {
            let Some(mut data) = Data::new(keyspace, gate, seed) else {
                log::warn!("There are too many threads for one that counts keys for the metrics");
                return;
            };
            let mut keys = KeySample::default();
            loop {
                own.answer(|wants_keys| {
                    data.conditions.now_ms = server.clock.now_ms();
                    if wants_keys {
                        keys.look(&mut data);
                    }
                    MetricFigures::gather(&mut data, &keys)
                });
            }
        };
        let spawned = std::thread::Builder::new().name("bobbin-figures".into()).spawn(run);
        spawned.map_err(|error| {
            format!("Can't start the thread of figures: {}", error_text(&error))
        })?;
        Ok(Self(shared))
    }

    /// Figures that are not older than `age_max`, or older ones if new ones take too long.
    pub(super) fn figures(&self, age_max: Duration) -> MetricFigures {
        self.ask(age_max, false)
    }

    /// Like [`Self::figures`], with a sample of keys that is not older either.
    pub(super) fn figures_with_keys(&self, age_max: Duration) -> MetricFigures {
        self.ask(age_max, true)
    }

    fn ask(&self, age_max: Duration, wants_keys: bool) -> MetricFigures {
        let mut state = self.0.state.lock();
        let is_new = |at: Option<Instant>| at.is_some_and(|at| at.elapsed() < age_max);
        if is_new(state.figures.at) && (!wants_keys || is_new(state.figures.keys.at)) {
            return state.figures.clone();
        }
        state.wants_keys |= wants_keys;
        state.asked += 1;
        let asked = state.asked;
        self.0.changed.notify_all();
        let waiting = |state: &mut GatherState| state.answered < asked;
        let waited = self.0.changed.wait_timeout_while(state, PATIENCE, waiting);
        let (state, _) = waited;
        state.figures.clone()
    }
}

impl SharedFigures {
    /// Waits until a thread asks, and answers it.
    fn answer(&self, gather: impl FnOnce(bool) -> MetricFigures) {
        let state = self.state.lock();
        let idle = |state: &mut GatherState| state.asked == state.answered;
        let mut state = self.changed.wait_while(state, idle);
        let (asked, wants_keys) = (state.asked, std::mem::take(&mut state.wants_keys));
        drop(state);
        let figures = gather(wants_keys);
        let mut state = self.state.lock();
        (state.figures, state.answered) = (figures, asked);
        self.changed.notify_all();
    }
}
