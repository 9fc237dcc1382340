//! The section of threads, which only Bobbin has: the work of each worker.

use std::sync::atomic::Ordering;

use super::InfoUnit::Number;
use super::{Lines, Section, SectionShown, Snapshot, gauge, label, line};

pub(super) const THREADS: Section = Section {
    name: "threads",
    title: "Threads",
    shown: SectionShown::Default,
    lines: Lines::Both(
        &[
            gauge(
                "worker_threads",
                Number,
                "Threads that serve clients, as listed, also those that are too many.",
                |s| s.server.workers.all().len().into(),
            ),
            label("worker_threads_wanted", |s| s.server.config.worker_count().into()),
        ],
        write,
    ),
};

/// Writes a line for each worker. There are more workers than configured while clients listen on a
/// worker that is to end. `busy_us` is the time between waits, and `busy_perc` its share of the
/// uptime. `cpu_user` and `cpu_sys` are the thread's processor time in seconds. `posts` is the
/// number of posts in its mailbox, and `backlog_bytes` the size of the messages there.
fn write(snapshot: &Snapshot<'_>, text: &mut String) {
    for (at, worker) in snapshot.server.workers.all().iter().enumerate() {
        let totals = &worker.stats.totals;
        let connections = snapshot.clients().by_worker.get(&worker.id).copied().unwrap_or(0);
        let busy_us = snapshot.us(totals.busy_ticks.get());
        let busy = busy_us as f64 * 100.0 / snapshot.server.clock.monotonic_us().max(1) as f64;
        let cpu = worker.cpu_time();
        line(
            text,
            format_args!(
                "worker_{at}:id={},driver={},connections={connections},commands={},turns={},\
                 busy_us={busy_us},busy_perc={busy:.2},cpu_user={:.2},cpu_sys={:.2},posts={},\
                 backlog_bytes={}",
                worker.id,
                worker.driver,
                totals.commands.get(),
                totals.turns.get(),
                cpu.user_s,
                cpu.system_s,
                worker.mailbox.len(),
                worker.backlog_bytes.load(Ordering::Relaxed),
            ),
        );
    }
}
