//! The section of threads: what each worker does. Bobbin's own.

use super::{Lines, Section, Shown, Snapshot, gauge, label, line};

pub(super) const THREADS: Section = Section {
    name: "threads",
    title: "Threads",
    shown: Shown::Default,
    lines: Lines::Both(
        &[
            gauge("worker_threads", |s| s.server.workers.len().into()),
            label("worker_threads_wanted", |s| s.server.config.worker_count().into()),
        ],
        write,
    ),
};

/// `busy_us` is the time between waits: the worker's share of a core, if it is divided by the uptime.
fn write(snapshot: &Snapshot<'_>, text: &mut String) {
    for (at, worker) in snapshot.server.workers.all().iter().enumerate() {
        let totals = &worker.stats.totals;
        let connections = snapshot.clients().by_worker.get(&worker.id).copied().unwrap_or(0);
        line(
            text,
            format_args!(
                "worker_{at}:id={},driver={},connections={connections},commands={},turns={},busy_us={}",
                worker.id,
                worker.driver,
                totals.commands.get(),
                totals.turns.get(),
                snapshot.us(totals.busy_ticks.get())
            ),
        );
    }
}
