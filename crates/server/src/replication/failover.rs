//! FAILOVER: the primary hands its part to a replica.
//!
//! Writes pause, a replica that has the whole stream is waited for, the primary becomes its replica
//! and asks it to lead. No clock, no socket and no lock are here: whoever drives it says what the
//! time is, where the replicas are and what the target answered, and does what comes back.

use crate::engine::command::Failure;

/// What FAILOVER asks for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FailoverRequest {
    /// The replica that takes over; `None`: the first that has everything.
    pub target: Option<Target>,
    /// When the time is over the target takes over all the same.
    pub is_forced: bool,
    /// How long to wait for the replica.
    pub timeout_ms: Option<i64>,
}

/// Where a replica serves clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub host: String,
    pub port: u16,
}

/// What is known of a replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaPosition {
    pub address: Target,
    /// It has its copy, and gets the stream.
    pub is_online: bool,
    /// The offset up to which it has the stream.
    pub acked: u64,
}

/// The failover that goes on, if any.
#[derive(Default, Debug)]
pub struct Failover {
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    target: Option<Target>,
    is_forced: bool,
    deadline_ms: Option<i64>,
    /// The server has become a replica of the target, which has not answered.
    is_handed_over: bool,
}

/// How far a failover is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailoverPhase {
    None,
    WaitingForSync,
    InProgress,
}

/// What to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FailoverStep {
    /// Nothing.
    Wait,
    /// Become a replica of this one, and ask it to lead.
    HandOver(Target),
    /// It is over: writes go on. `leads_again`: the server had become a replica already.
    GiveUp { leads_again: bool },
    /// The target leads: clients go on as those of a replica.
    Done,
}

/// Why a failover came to nothing, for the log.
pub const BY_HAND: &str = "Failover manually aborted";
pub const REJECTED: &str = "Failover target rejected psync request";
const TOO_LATE: &str = "Replica never caught up before timeout";

impl FailoverPhase {
    /// Its name in INFO.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "no-failover",
            Self::WaitingForSync => "waiting-for-sync",
            Self::InProgress => "failover-in-progress",
        }
    }
}

impl Failover {
    /// Begins one: from now on writes have to wait.
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
                let replica = replica.ok_or("ERR FAILOVER target HOST and PORT is not a replica.")?;
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

    /// What is to be done now. `end`: the offset at which the stream stands still; `None`: not all
    /// that was changed is in it yet.
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
        // Without the end of the stream the server could not say what it asks the target for.
        let Some(end) = end else { return FailoverStep::Wait };
        if let Some(target) = current.target.clone().filter(|_| is_late) {
            let Target { host, port } = &target;
            log::info!("FAILOVER to {host}:{port} time out exceeded, failing over.");
            return current.hand_over(target);
        }
        let has_all = |replica: &&ReplicaPosition| {
            let is_meant = current.target.as_ref().is_none_or(|target| replica.address == *target);
            is_meant && replica.is_online && replica.acked == end
        };
        let Some(replica) = replicas.iter().find(has_all) else { return FailoverStep::Wait };
        let Target { host, port } = &replica.address;
        log::info!("Failover target {host}:{port} is synced, failing over.");
        current.hand_over(replica.address.clone())
    }

    /// Ends it; `None`: there is none.
    pub fn abort(&mut self, why: &str) -> Option<FailoverStep> {
        let current = self.current.take()?;
        match &current.target {
            Some(Target { host, port }) => log::info!("FAILOVER to {host}:{port} aborted: {why}"),
            None => log::info!("FAILOVER to any replica aborted: {why}"),
        }
        Some(FailoverStep::GiveUp { leads_again: current.is_handed_over })
    }

    /// The target answered whether it leads.
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
    fn hand_over(&mut self, target: Target) -> FailoverStep {
        self.is_handed_over = true;
        self.target = Some(target.clone());
        FailoverStep::HandOver(target)
    }
}

const NEEDS_BOTH: Failure = Failure::new(
    "ERR FAILOVER with force option requires both a timeout and target HOST and IP.",
);
