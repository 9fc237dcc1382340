//! The section of replication.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::InfoUnit::{Bytes, Number};
use super::{InfoValue, Lines, Section, SectionShown, Snapshot, counter, gauge, label, line};
use crate::replication::Replication;
use crate::replication::replica::{Replica, ReplicaState};

pub(super) const REPLICATION: Section = Section {
    name: "replication",
    title: "Replication",
    shown: SectionShown::Default,
    lines: Lines::Around(
        &[
            label("role", |s| {
                if Replication::of(s.server).link().is_some() { "slave" } else { "master" }.into()
            }),
            gauge("connected_slaves", Number, "Replicas.", |s| replicas(s).len().into()),
        ],
        each_replica,
        &[
            gauge("replicas_waiting_psync", Number, "Replicas that wait for a full copy.", |s| {
                replicas(s).iter().filter(|r| r.state() == ReplicaState::Waiting).count().into()
            }),
            label("master_failover_state", |_| "no-failover".into()),
            label("master_replid", |s| (*Replication::of(s.server).id()).into()),
            label("master_replid2", |_| "0".repeat(40).into()),
            counter("master_repl_offset", Number, "Bytes of the replication stream.", |s| {
                s.server.feed.published().into()
            }),
            label("second_repl_offset", |_| InfoValue::Signed(-1)),
            gauge("repl_backlog_active", Number, "Whether there is a backlog (1).", |s| {
                s.server.feed.is_on().into()
            }),
            label("repl_backlog_size", |s| s.server.config.repl_backlog_size().into()),
            label("repl_backlog_first_byte_offset", |s| {
                let feed = &s.server.feed;
                if feed.is_on() { (feed.start_offset() + 1).into() } else { InfoValue::Unsigned(0) }
            }),
            gauge("repl_backlog_histlen", Bytes, "Bytes of the backlog.", |s| {
                let feed = &s.server.feed;
                feed.published().saturating_sub(feed.start_offset()).into()
            }),
        ],
    ),
};

fn replicas(snapshot: &Snapshot<'_>) -> Vec<Arc<Replica>> {
    Replication::of(snapshot.server).replicas()
}

/// A line for each replica.
fn each_replica(snapshot: &Snapshot<'_>, text: &mut String) {
    let now_ms = snapshot.server.clock.now_ms();
    for (index, replica) in replicas(snapshot).iter().enumerate() {
        let state = match replica.state() {
            ReplicaState::Greets | ReplicaState::Waiting => "wait_bgsave",
            ReplicaState::Receives => "send_bulk",
            ReplicaState::Online => "online",
        };
        let lag_s = match replica.state() {
            ReplicaState::Online => (now_ms - replica.acked_ms()).max(0) / 1000,
            _ => 0,
        };
        line(
            text,
            format_args!(
                "slave{index}:ip={},port={},state={state},offset={},lag={lag_s},type=replica",
                replica.host(),
                replica.port.load(Relaxed),
                replica.acked(),
            ),
        );
    }
}
