//! FAILOVER: the primary hands its role over to a replica.
//!
//! Writes are paused until a replica has the whole stream. Then the primary becomes its replica and
//! asks it to lead. This module has no clock, no socket and no lock: the caller gives it the time,
//! the replicas' positions and the target's answer, and carries out the steps that it returns.

use crate::engine::command::Failure;

/// The arguments of FAILOVER.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FailoverRequest {
    /// The replica that takes over; `None`: the first one that has everything.
    pub target: Option<FailoverTarget>,
    /// After the timeout the target takes over even if it lacks changes.
    pub is_forced: bool,
    /// How long to wait for the replica.
    pub timeout_ms: Option<i64>,
}

/// The address where a replica serves clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailoverTarget {
    pub host: String,
    pub port: u16,
}

/// The state of a replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaPosition {
    pub address: FailoverTarget,
    /// The replica was sent its copy. It may still load it.
    pub is_online: bool,
    /// The offset up to which it has acknowledged the stream. It is `None` while the replica loads
    /// its copy.
    pub acked: Option<u64>,
}

/// The failover in progress, if there is one.
#[derive(Default, Debug)]
pub struct Failover {
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    target: Option<FailoverTarget>,
    is_forced: bool,
    deadline_ms: Option<i64>,
    /// The server has become a replica of the target, and the target has not answered yet.
    is_handed_over: bool,
}

/// The phase of a failover.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailoverPhase {
    None,
    WaitingForSync,
    InProgress,
}

/// What the caller has to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FailoverStep {
    /// Nothing.
    Wait,
    /// Become a replica of this one, and ask it to lead.
    HandOver(FailoverTarget),
    /// End the failover and let writes continue. `leads_again`: the server had become a replica
    /// already.
    GiveUp { leads_again: bool },
    /// The target leads, so our clients are now clients of a replica.
    Done,
}

/// Why a failover had no result, for the log.
pub const BY_HAND: &str = "Failover manually aborted";
pub const REJECTED: &str = "Failover target rejected psync request";
const TOO_LATE: &str = "Replica never caught up before timeout";

impl FailoverPhase {
    /// The phase's name in INFO.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "no-failover",
            Self::WaitingForSync => "waiting-for-sync",
            Self::InProgress => "failover-in-progress",
        }
    }
}

impl Failover {
    /// Begins a failover. From now on writes have to wait.
    pub fn begin(
        &mut self,
        request: FailoverRequest,
        now_ms: i64,
        is_replica: bool,
        replicas: &[ReplicaPosition],
    ) -> Result<(), Failure> {
        let FailoverRequest { target, is_forced, timeout_ms } = request;
        if self.current.is_some() {
            return Err("ERR FAILOVER already in progress.".into());
        }
        if is_replica {
            return Err("ERR FAILOVER is not valid when server is a replica.".into());
        }
        if replicas.is_empty() {
            return Err("ERR FAILOVER requires connected replicas.".into());
        }
        if is_forced && (timeout_ms.is_none() || target.is_none()) {
            return Err(NEEDS_BOTH);
        }
        match &target {
            Some(target) => {
                let replica = replicas.iter().find(|replica| replica.address == *target);
                let replica =
                    replica.ok_or("ERR FAILOVER target HOST and PORT is not a replica.")?;
                if !replica.is_online {
                    return Err("ERR FAILOVER target replica is not online.".into());
                }
                log::info!("FAILOVER requested to {}:{}.", target.host, target.port);
            }
            None => log::info!("FAILOVER requested to any replica."),
        }
        let deadline_ms = timeout_ms.map(|timeout_ms| now_ms.saturating_add(timeout_ms));
        self.current = Some(Current { target, is_forced, deadline_ms, is_handed_over: false });
        Ok(())
    }

    /// Decides what to do now. `end` is the offset at which the paused stream ends. It is `None`
    /// while the stream lacks some changes.
    pub fn look(
        &mut self,
        now_ms: i64,
        end: Option<u64>,
        replicas: &[ReplicaPosition],
    ) -> FailoverStep {
        let Some(current) = self.current.as_mut().filter(|current| !current.is_handed_over) else {
            return FailoverStep::Wait;
        };
        let is_late = current.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms);
        if is_late && !current.is_forced {
            return self.abort(TOO_LATE).unwrap_or(FailoverStep::Wait);
        }
        // Without the stream's end the server could not tell the target where to take over.
        let Some(end) = end else { return FailoverStep::Wait };
        if let Some(target) = current.target.clone().filter(|_| is_late) {
            let FailoverTarget { host, port } = &target;
            log::info!("FAILOVER to {host}:{port} time out exceeded, failing over.");
            return current.hand_over(target);
        }
        let has_all = |replica: &&ReplicaPosition| {
            let is_meant = current.target.as_ref().is_none_or(|target| replica.address == *target);
            is_meant && replica.acked == Some(end)
        };
        let Some(replica) = replicas.iter().find(has_all) else { return FailoverStep::Wait };
        let FailoverTarget { host, port } = &replica.address;
        log::info!("Failover target {host}:{port} is synced, failing over.");
        current.hand_over(replica.address.clone())
    }

    /// Aborts the failover. `None`: there is none.
    pub fn abort(&mut self, why: &str) -> Option<FailoverStep> {
        let current = self.current.take()?;
        match &current.target {
            Some(FailoverTarget { host, port }) => {
                log::info!("FAILOVER to {host}:{port} aborted: {why}");
            }
            None => log::info!("FAILOVER to any replica aborted: {why}"),
        }
        Some(FailoverStep::GiveUp { leads_again: current.is_handed_over })
    }

    /// Handles the target's answer: whether it leads.
    pub fn answered(&mut self, leads: bool) -> FailoverStep {
        if self.phase() != FailoverPhase::InProgress {
            return FailoverStep::Wait;
        }
        if leads {
            self.current = None;
            return FailoverStep::Done;
        }
        self.abort(REJECTED).unwrap_or(FailoverStep::Wait)
    }

    pub fn phase(&self) -> FailoverPhase {
        match &self.current {
            None => FailoverPhase::None,
            Some(current) if current.is_handed_over => FailoverPhase::InProgress,
            Some(_) => FailoverPhase::WaitingForSync,
        }
    }
}

impl Current {
    fn hand_over(&mut self, target: FailoverTarget) -> FailoverStep {
        self.is_handed_over = true;
        self.target = Some(target.clone());
        FailoverStep::HandOver(target)
    }
}

const NEEDS_BOTH: Failure =
    Failure::new(&"ERR FAILOVER with force option requires both a timeout and target HOST and IP.");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;

    fn at(port: u16) -> FailoverTarget {
        FailoverTarget { host: "here".into(), port }
    }

    fn replica(port: u16, acked: u64) -> ReplicaPosition {
        ReplicaPosition { address: at(port), is_online: true, acked: Some(acked) }
    }

    fn begun(request: FailoverRequest) -> Failover {
        let mut failover = Failover::default();
        failover.begin(request, 1000, false, &[replica(1, 0), replica(2, 0)]).expect("it begins");
        failover
    }

    #[test]
    fn the_replica_that_has_everything_takes_over() {
        let mut failover = begun(FailoverRequest::default());
        assert_eq!(failover.phase(), FailoverPhase::WaitingForSync);
        let late = [replica(1, 9), replica(2, 8)];
        assert_eq!(failover.look(1001, Some(10), &late), FailoverStep::Wait);
        let ready = [replica(1, 9), replica(2, 10)];
        assert_eq!(failover.look(1002, None, &ready), FailoverStep::Wait, "no end is known");
        let copies = [ReplicaPosition { acked: None, ..replica(2, 10) }];
        assert_eq!(failover.look(1002, Some(10), &copies), FailoverStep::Wait);
        assert_eq!(failover.look(1003, Some(10), &ready), FailoverStep::HandOver(at(2)));
        assert_eq!(failover.look(1004, Some(10), &ready), FailoverStep::Wait, "once");
        assert_eq!(failover.phase(), FailoverPhase::InProgress);
        assert_eq!(failover.answered(true), FailoverStep::Done);
        assert_eq!(failover.phase(), FailoverPhase::None);
    }

    #[test]
    fn only_the_target_that_was_named_takes_over() {
        let request = FailoverRequest { target: Some(at(1)), ..FailoverRequest::default() };
        let mut failover = begun(request);
        assert_eq!(failover.look(1001, Some(10), &[replica(2, 10)]), FailoverStep::Wait);
        let ready = [replica(2, 10), replica(1, 10)];
        assert_eq!(failover.look(1002, Some(10), &ready), FailoverStep::HandOver(at(1)));
        let step = FailoverStep::GiveUp { leads_again: true };
        assert_eq!(failover.answered(false), step);
        assert_eq!(failover.answered(true), FailoverStep::Wait, "it was over");
    }

    #[test]
    fn what_takes_too_long_is_given_up_or_forced() {
        let request =
            FailoverRequest { target: Some(at(1)), is_forced: false, timeout_ms: Some(50) };
        let mut failover = begun(request.clone());
        assert_eq!(failover.look(1049, Some(10), &[]), FailoverStep::Wait);
        let step = FailoverStep::GiveUp { leads_again: false };
        assert_eq!(failover.look(1050, None, &[replica(1, 10)]), step);
        let mut failover = begun(FailoverRequest { is_forced: true, ..request });
        assert_eq!(failover.look(1050, None, &[]), FailoverStep::Wait, "no end is known");
        assert_eq!(failover.look(1051, Some(10), &[]), FailoverStep::HandOver(at(1)));
        let step = FailoverStep::GiveUp { leads_again: true };
        assert_eq!(failover.abort(BY_HAND), Some(step));
        assert_eq!(failover.abort(BY_HAND), None);
    }

    /// A server that follows the steps while random events happen.
    #[derive(Default)]
    struct Model {
        failover: Failover,
        /// Clients can write only while this is false.
        is_paused: bool,
        is_replica: bool,
        /// The offset of the stream's end.
        end: u64,
        request: FailoverRequest,
        deadline_ms: Option<i64>,
    }

    impl Model {
        fn take(&mut self, step: FailoverStep, now_ms: i64, replicas: &[ReplicaPosition]) {
            match step {
                FailoverStep::Wait => {}
                FailoverStep::HandOver(target) => {
                    assert!(self.is_paused && !self.is_replica);
                    assert!(self.request.target.as_ref().is_none_or(|meant| *meant == target));
                    let has_all = |replica: &ReplicaPosition| {
                        replica.address == target && replica.acked == Some(self.end)
                    };
                    let is_late = self.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms);
                    assert!(replicas.iter().any(has_all) || self.request.is_forced && is_late);
                    self.is_replica = true;
                }
                FailoverStep::GiveUp { leads_again } => {
                    assert_eq!(leads_again, self.is_replica);
                    (self.is_replica, self.is_paused) = (false, false);
                }
                FailoverStep::Done => {
                    assert!(self.is_replica);
                    self.is_paused = false;
                }
            }
            let is_none = self.failover.phase() == FailoverPhase::None;
            assert_eq!(is_none, !self.is_paused, "a pause outlives the failover, or ends before");
        }
    }

    #[test]
    fn whatever_happens_writes_pause_exactly_as_long_as_it_goes_on() {
        for seed in 1..2000 {
            let mut random = Random::new(seed);
            let mut below = |bound: usize| random.below(bound as u32) as usize;
            let (mut model, mut now_ms) = (Model::default(), 1000);
            let mut replicas: Vec<ReplicaPosition> = Vec::new();
            for _ in 0..200 {
                now_ms += below(20) as i64;
                let step = match below(12) {
                    0 => {
                        replicas.push(replica(below(3) as u16, 0));
                        FailoverStep::Wait
                    }
                    1 if !replicas.is_empty() => {
                        replicas.remove(below(replicas.len()));
                        FailoverStep::Wait
                    }
                    2 | 3 if !model.is_paused && !model.is_replica => {
                        model.end += 1;
                        FailoverStep::Wait
                    }
                    4..=6 if !replicas.is_empty() => {
                        let at = below(replicas.len());
                        replicas[at].acked =
                            replicas[at].acked.map(|acked| (acked + 2).min(model.end));
                        FailoverStep::Wait
                    }
                    7 => {
                        let is_aimed = below(2) == 0;
                        let request = FailoverRequest {
                            target: is_aimed.then(|| at(below(3) as u16)),
                            is_forced: below(2) == 0,
                            timeout_ms: (below(2) == 0).then(|| below(60) as i64),
                        };
                        let was = model.failover.phase();
                        let (failover, is_replica) = (&mut model.failover, model.is_replica);
                        let begun = failover.begin(request.clone(), now_ms, is_replica, &replicas);
                        if begun.is_ok() {
                            assert_eq!(was, FailoverPhase::None);
                            model.is_paused = true;
                            model.deadline_ms = request.timeout_ms.map(|ms| now_ms + ms);
                            model.request = request;
                        }
                        FailoverStep::Wait
                    }
                    8 => model.failover.abort(BY_HAND).unwrap_or(FailoverStep::Wait),
                    9 => model.failover.answered(below(2) == 0),
                    10 if model.is_replica && !model.is_paused => {
                        // REPLICAOF NO ONE.
                        model.is_replica = false;
                        FailoverStep::Wait
                    }
                    _ => {
                        let end = (below(4) != 0).then_some(model.end);
                        model.failover.look(now_ms, end, &replicas)
                    }
                };
                model.take(step, now_ms, &replicas);
            }
        }
    }
}
