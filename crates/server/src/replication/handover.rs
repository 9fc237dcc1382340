//! Carries out the steps of a failover: pauses writes, reads the replicas' positions, and changes
//! the server's role.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Replication;
use super::failover::{
    BY_HAND, FailoverPhase, FailoverRequest, FailoverStep, FailoverTarget, ReplicaPosition,
};
use super::replica::{Replica, ReplicaState};
use crate::engine::blocking;
use crate::engine::command::{Data, Failure};
use crate::engine::server::Server;
use crate::engine::server::pause::PauseReason;
use crate::persistence::aof;

impl Replication {
    /// Begins a failover. The caller holds the gate.
    pub(super) fn begin_failover(
        &self,
        server: &'static Server,
        data: &mut Data,
        request: FailoverRequest,
    ) -> Result<(), Failure> {
        let (is_replica, positions) = (self.link().is_some(), self.positions());
        self.failover.lock().begin(request, data.conditions.now_ms, is_replica, &positions)?;
        server.pause_clients(PauseReason::Failover, i64::MAX, false, data.conditions.now_ms);
        data.conditions.may_expire = false;
        self.ask_replicas(server, server.log.last());
        self.look_soon();
        Ok(())
    }

    /// Aborts the failover. The caller holds the gate.
    pub(super) fn abort_failover(
        &self,
        server: &'static Server,
        data: &mut Data,
    ) -> Result<(), Failure> {
        let step = self.failover.lock().abort(BY_HAND);
        self.carry_on(server, data, step.ok_or("ERR No failover in progress.")?);
        Ok(())
    }

    /// Checks whether the failover can continue. The caller holds no lock.
    pub(super) fn look_at_failover(&self, server: &'static Server, data: &mut Data) {
        // The failover cannot continue while a paused script keeps the gate from this thread.
        if self.failover_phase() != FailoverPhase::WaitingForSync || !data.hold_gate() {
            return;
        }
        let end = self.settled_end(server);
        let step = self.failover.lock().look(data.conditions.now_ms, end, &self.positions());
        self.carry_on(server, data, step);
        data.release();
    }

    /// Handles the answer of the target. `data` is not a member of the gate.
    pub(super) fn target_answered(&self, server: &'static Server, data: &mut Data, leads: bool) {
        if self.failover_phase() != FailoverPhase::InProgress {
            return;
        }
        data.enter();
        data.hold_gate_anyway();
        let step = self.failover.lock().answered(leads);
        self.carry_on(server, data, step);
        data.release();
        data.leave();
    }

    /// Carries out a step of the failover. The caller holds the gate.
    fn carry_on(&self, server: &'static Server, data: &mut Data, step: FailoverStep) {
        match step {
            FailoverStep::Wait => return,
            FailoverStep::HandOver(FailoverTarget { host, port }) => {
                if let Err(error) = self.follow(server, host, port) {
                    // The server is still the primary.
                    let step = self.failover.lock().abort(&error);
                    step.into_iter().for_each(|_| server.unpause_clients(PauseReason::Failover));
                }
            }
            FailoverStep::GiveUp { leads_again } => {
                if leads_again {
                    self.lead(server);
                }
                server.unpause_clients(PauseReason::Failover);
            }
            FailoverStep::Done => {
                blocking::dismiss_all(server);
                server.unpause_clients(PauseReason::Failover);
            }
        }
        data.recorder.refresh();
        data.conditions.may_expire = server.may_expire(data.conditions.now_ms);
    }

    pub fn failover_phase(&self) -> FailoverPhase {
        self.failover.lock().phase()
    }

    /// Whether all replicas have the whole stream. `None`: its end is not known yet.
    pub fn all_have(&self, server: &'static Server) -> Option<bool> {
        let end = self.settled_end(server)?;
        Some(self.replicas.lock().iter().all(|replica| replica.acked() == end))
    }

    /// The offset behind all changes and messages. `None`: some of them are not in the stream yet.
    pub fn settled_end(&self, server: &'static Server) -> Option<u64> {
        let last = server.log.last();
        if !server.feed.takes_log() || self.fed.load(Ordering::SeqCst) >= last {
            return Some(server.feed.end_offset());
        }
        let note = move |_| {
            Self::of(server).fed.fetch_max(last, Ordering::SeqCst);
        };
        if let Err(error) = aof::reach_in_feed(server, last, note) {
            log::warn!("Can't tell how far the stream is: {error}");
        }
        None
    }

    /// Asks replicas for their offsets, once the stream has this record.
    pub fn ask_replicas(&self, server: &'static Server, number: u64) {
        let ask = move |_| {
            Self::of(server).fed.fetch_max(number, Ordering::SeqCst);
            server.feed.insert(&[b"REPLCONF", b"GETACK", b"*"]);
        };
        if let Err(error) = aof::reach_in_feed(server, number, ask) {
            log::warn!("Can't ask replicas how far they are: {error}");
        }
    }

    fn positions(&self) -> Vec<ReplicaPosition> {
        let position = |replica: &Arc<Replica>| {
            let state = replica.state();
            ReplicaPosition {
                address: FailoverTarget { host: replica.host(), port: replica.port() as u16 },
                is_online: state.is_online(),
                acked: (state == ReplicaState::Online).then(|| replica.acked()),
            }
        };
        self.replicas.lock().iter().map(position).collect()
    }
}
