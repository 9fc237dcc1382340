//! The section of replication.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::InfoUnit::{Bytes, Number};
use super::{InfoValue, Lines, Section, SectionShown, Snapshot, counter, gauge, label, line};
use crate::replication::Replication;
use crate::replication::link::LinkState;
use crate::replication::replica::{Replica, ReplicaState};

pub(super) const REPLICATION: Section = Section {
    name: "replication",
    title: "Replication",
    shown: SectionShown::Default,
    lines: Lines::Several(&[
        Lines::Fields(&[label("role", |s| {
            if Replication::of(s.server).link().is_some() { "slave" } else { "master" }.into()
        })]),
        Lines::Written(link),
        Lines::Fields(&[gauge("connected_slaves", Number, "Replicas.", |s| {
            replicas(s).len().into()
        })]),
        Lines::Written(good_replicas),
        Lines::Written(each_replica),
        Lines::Fields(&[
            gauge("replicas_waiting_psync", Number, "Main connections that are awaited.", |s| {
                Replication::of(s.server).awaited.count().into()
            }),
            label("master_failover_state", |s| {
                Replication::of(s.server).failover_phase().name().into()
            }),
            label("master_replid", |s| s.server.feed.id().as_str().into()),
            label("master_replid2", |s| match s.server.feed.history().earlier {
                Some((id, _)) => id.as_str().into(),
                None => "0".repeat(40).into(),
            }),
            counter("master_repl_offset", Number, "Bytes of the replication stream.", |s| {
                Replication::settled_offset(s.server).into()
            }),
            label("second_repl_offset", |s| {
                let earlier = s.server.feed.history().earlier;
                InfoValue::Signed(earlier.map_or(-1, |(_, end)| end as i64 + 1))
            }),
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
        ]),
    ]),
};

fn replicas(snapshot: &Snapshot<'_>) -> Vec<Arc<Replica>> {
    Replication::of(snapshot.server).replicas()
}

/// How many replicas count for `min-replicas-to-write`, if that is set.
fn good_replicas(snapshot: &Snapshot<'_>, text: &mut String) {
    let config = &snapshot.server.config;
    if config.min_replicas_to_write() > 0 && config.min_replicas_max_lag() > 0 {
        let good = Replication::of(snapshot.server).good(snapshot.server);
        line(text, format_args!("min_slaves_good_slaves:{good}"));
    }
}

/// A line for each replica.
fn each_replica(snapshot: &Snapshot<'_>, text: &mut String) {
    let now_ms = snapshot.server.clock.now_ms();
    for (index, replica) in replicas(snapshot).iter().enumerate() {
        let state = replica.state().name();
        let lag_s = match replica.state() {
            ReplicaState::Online => (now_ms - replica.acked_ms()).max(0) / 1000,
            _ => 0,
        };
        line(
            text,
            format_args!(
                "slave{index}:ip={},port={},state={state},offset={},lag={lag_s},type={}",
                replica.host(),
                replica.port(),
                replica.acked(),
                replica.channel_name(),
            ),
        );
    }
}

/// Fields of a replica about its primary and itself.
fn link(snapshot: &Snapshot<'_>, text: &mut String) {
    let server = snapshot.server;
    let Some(link) = Replication::of(server).link() else { return };
    let (config, now_ms) = (&server.config, server.clock.now_ms());
    let (is_up, is_syncing) =
        (link.state() == LinkState::Connected, link.state() == LinkState::Sync);
    let since_s = |ms: i64| (now_ms - ms).max(0) / 1000;
    let offset = server.feed.published();
    line(text, format_args!("master_host:{}", link.host));
    line(text, format_args!("master_port:{}", link.port));
    line(text, format_args!("master_link_status:{}", if is_up { "up" } else { "down" }));
    let heard_s = if is_up { since_s(link.heard_ms.load(Relaxed)) } else { -1 };
    line(text, format_args!("master_last_io_seconds_ago:{heard_s}"));
    line(text, format_args!("master_sync_in_progress:{}", u8::from(is_syncing)));
    let read = offset + link.held_bytes.load(Relaxed) as u64;
    line(text, format_args!("slave_read_repl_offset:{read}"));
    line(text, format_args!("slave_repl_offset:{offset}"));
    let (kept, peak) = link.sync.kept_bytes();
    line(text, format_args!("replicas_repl_buffer_size:{kept}"));
    line(text, format_args!("replicas_repl_buffer_peak:{peak}"));
    line(text, format_args!("replica_helped_commands:{}", link.helped_commands.load(Relaxed)));
    if is_syncing {
        let (total, read) = link.sync.bytes();
        let percent = if total > 0 { read as f64 * 100.0 / total as f64 } else { 0.0 };
        let heard_s = since_s(link.heard_ms.load(Relaxed));
        line(text, format_args!("master_sync_total_bytes:{total}"));
        line(text, format_args!("master_sync_read_bytes:{read}"));
        line(text, format_args!("master_sync_left_bytes:{}", total as i64 - read as i64));
        line(text, format_args!("master_sync_perc:{percent:.2}"));
        line(text, format_args!("master_sync_last_io_seconds_ago:{heard_s}"));
    }
    if !is_up {
        let down_since_ms = link.down_since_ms.load(Relaxed);
        let down_s = if down_since_ms == 0 { -1 } else { since_s(down_since_ms) };
        line(text, format_args!("master_link_down_since_seconds:{down_s}"));
    }
    line(text, format_args!("slave_priority:{}", config.replica_priority()));
    line(text, format_args!("slave_read_only:{}", u8::from(config.replica_read_only())));
    line(text, format_args!("replica_announced:{}", u8::from(config.replica_announced())));
}
