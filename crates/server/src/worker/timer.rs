//! A worker's periodic work, above all expiring the keys of its share of the shards, in slices.

use std::time::Duration;

use bobbin_store::SHARDS;

use super::Worker;
use crate::base::clock::{has_come, ticks};
use crate::engine::command::data::evictor::Room;
use crate::engine::eviction;
use crate::engine::script::{GateWish, Lua};
use crate::engine::server::{Switch, WorkerPlace};
use crate::engine::telemetry::latency::LatencyEvent;
use crate::persistence::Persistence;
use crate::persistence::aof::{Aof, rewrite};
use crate::replication::Replication;

/// How often a worker looks for expired keys while there are keys that expire.
const EXPIRE_MS: i64 = 10;
/// While one of these is set, workers expire no keys: each expiry is logged, and the log must not
/// grow then.
const NO_EXPIRE: u32 = Switch::NO_ACTIVE_EXPIRE
    | Switch::CRON_PAUSED
    | Switch::LOADING
    | Switch::REPLICA
    | Switch::IMPORT
    | Switch::LOG_FAILED
    | Switch::LOG_BEHIND;
/// How often a worker wakes when there is nothing to do.
const IDLE_MS: i64 = 100;
/// How long a task that was refused the gate goes on asking for it. A task that is tried again
/// within this time will get the gate.
const WISH_MS: i64 = 2 * IDLE_MS;
/// How long one turn expires keys, at most.
const EXPIRE_US: u64 = 300;
/// An expiry slice that takes this long goes to the latency monitor.
const EXPIRE_SLOW_US: u64 = 1000;
/// How many entries of a shard's index are looked at before another shard, or a client, has its
/// turn.
const EXPIRE_LOOKS: usize = 64;

/// The state of a worker's periodic work.
#[derive(Default)]
pub struct Timer {
    now_ms: i64,
    /// When to look for expired keys again.
    expire_at_ms: i64,
    /// When to look at idle clients again.
    pub(super) clients_at_ms: i64,
    /// The shard to continue with.
    shard: usize,
    /// Which share of the shards this worker expires.
    place: WorkerPlace,
    /// Set while a due task that was refused the gate asks for it; and when that ends (Unix ms).
    gate_wish: Option<(GateWish, i64)>,
}

impl Timer {
    pub fn until_next(&self) -> Duration {
        let until_ms = (self.expire_at_ms - self.now_ms).clamp(0, IDLE_MS);
        Duration::from_millis(until_ms as u64)
    }
}

impl Worker {
    pub(super) fn timer_slices(&mut self) {
        self.timer.now_ms = self.data.conditions.now_ms;
        self.server.note_rates(self.data.conditions.now_ms);
        self.begin_what_is_due();
        if self.server.switches.has(Switch::MAXMEMORY)
            && eviction::make_room(self.server, &mut self.data) == Room::Soon
        {
            self.timer.expire_at_ms = self.data.conditions.now_ms;
        }
        self.server.bound_tracked(&mut self.data);
        self.share_out();
        self.look_at_clients();
        if has_come(self.data.conditions.now_ms, self.timer.expire_at_ms, IDLE_MS) {
            // Freeing a Lua state may take long, so the last command's shards are unlocked first.
            self.data.release();
            self.data.rest();
            Lua::tidy(self.server, &mut self.data);
            if Aof::of(self.server).is_stuck(self.data.conditions.now_ms) {
                self.server.put_off_writers_for_log();
            }
            if !self.server.switches.has(NO_EXPIRE) {
                let started = ticks();
                self.expire();
                let spent = ticks() - started;
                self.handle.stats.totals.timer_ticks.add(spent);
                let us = self.server.clock.us(spent) as u64;
                if us >= EXPIRE_SLOW_US {
                    self.server.services.latency.sample(
                        &self.server.config,
                        LatencyEvent::ExpireCycle,
                        us,
                    );
                }
            } else {
                self.timer.expire_at_ms = self.data.conditions.now_ms + IDLE_MS;
            }
        }
    }

    /// Begins scheduled tasks that need the gate for a moment: rewrites, snapshots and copies.
    fn begin_what_is_due(&mut self) {
        self.data.take_refusal();
        rewrite::begin_scheduled_rewrite(self.server, &mut self.data);
        Persistence::tick(self.server, &mut self.data);
        Replication::tick(self.server, &mut self.data);
        let now_ms = self.data.conditions.now_ms;
        if self.data.take_refusal() {
            self.timer.gate_wish = Some((GateWish::new(self.server), now_ms + WISH_MS));
        } else if self
            .timer
            .gate_wish
            .as_ref()
            .is_some_and(|(_, until_ms)| has_come(now_ms, *until_ms, WISH_MS))
        {
            self.timer.gate_wish = None;
        }
    }

    /// Removes expired keys from this worker's share of the shards, for a limited time.
    fn expire(&mut self) {
        let (now_ms, over_ms) = (self.data.conditions.now_ms, self.data.conditions.over_ms());
        self.server.workers.update_place(self.handle.id, &mut self.timer.place);
        let Some((position, count)) = self.timer.place.among else { return };
        let share = SHARDS * position / count..SHARDS * (position + 1) / count;
        let deadline = ticks() + self.server.clock.ticks(EXPIRE_US);
        let mut next_due_ms = i64::MAX;
        if !share.contains(&self.timer.shard) {
            self.timer.shard = share.start;
        }
        for _ in 0..share.len() {
            let shard = self.timer.shard;
            if self.server.keyspace.due_ms(shard) <= over_ms {
                self.data.expire_shard(shard, EXPIRE_LOOKS);
                if ticks() >= deadline {
                    self.handle.stats.totals.expire_slices_cut.add(1);
                    // More keys are due, so the next turn looks again at once.
                    self.timer.expire_at_ms = now_ms;
                    return;
                }
            }
            let due_ms = self.server.keyspace.due_ms(shard);
            next_due_ms = next_due_ms.min(due_ms);
            if due_ms > over_ms {
                self.timer.shard = if shard + 1 == share.end { share.start } else { shard + 1 };
            }
        }
        let pause_ms = if next_due_ms == i64::MAX { IDLE_MS } else { EXPIRE_MS };
        self.timer.expire_at_ms = now_ms + pause_ms;
    }
}
