//! A worker's step for jobs: works on each of them for a slice, until the time of all is over.

use super::{Worker, limits, touch};
use crate::base::clock::ticks;
use crate::engine::buffers::output::Arena;
use crate::engine::client::Client;
use crate::engine::client::connection::Connection;
use crate::engine::command::Data;
use crate::engine::command::job::{Job, LongCommand, Slice};
use crate::engine::server::{Server, Switch};
use crate::engine::telemetry::stats::WorkerStats;

impl Worker {
    /// Whether a long command is under way, be its client there or gone.
    pub(super) fn has_jobs(&self) -> bool {
        !self.slots.jobs.is_empty() || !self.orphans.is_empty()
    }

    /// Does a slice of each long command, and goes on with the clients whose command is done.
    pub(super) fn work_on_jobs(&mut self) {
        if !self.has_jobs() {
            return;
        }
        let deadline = ticks() + self.server.clock.ticks(JOBS_US);
        let mut pass = JobsPass { deadline, reply_bytes: 0, ended: Vec::new() };
        self.data.release();
        self.next.is_parked = self.orphans.iter().all(|orphan| orphan.long.job.is_parked());
        let releases = self.server.scripts.releases();
        let (chosen, waiting) = self.choose_jobs();
        for slot in chosen {
            self.work_on(slot, &mut pass);
        }
        self.slots.jobs.extend(waiting);
        self.work_on_orphans();
        if self.server.scripts.releases() != releases {
            self.serve_behind_reserved(&mut pass);
        }
        for slot in pass.ended {
            match self.connections.get(slot) {
                // The client changed more than its replicas or its trackers have heard of yet, so
                // it has to wait.
                Some(connection) if connection.client.is_postponed() => {
                    self.postponed.add(self.server, slot, &connection.client);
                }
                _ => self.parse_own(slot),
            }
        }
        self.execute();
    }

    /// Serves the clients that wait for something that a script kept and has released. They come
    /// before the script's client, whose next command may be a script as well.
    #[cold]
    fn serve_behind_reserved(&mut self, pass: &mut JobsPass) {
        let is_parked = |slot: &mut u32| {
            let connection = self.connections.get(*slot);
            connection.and_then(job_of).is_some_and(|job| job.is_parked())
        };
        let parked: Vec<u32> = self.slots.jobs.extract_if(.., is_parked).collect();
        for slot in parked {
            self.work_on(slot, pass);
        }
        self.resume_behind_reserved();
    }

    /// Works on a connection's job, if the job may go on now.
    fn work_on(&mut self, slot: u32, pass: &mut JobsPass) {
        let Some(connection) = self.connections.at(slot) else { return };
        let is_busy = self.server.switches.has(Switch::BUSY);
        // If the replies are large, those that began first must end first. Otherwise half of every
        // reply would stay in memory for long. But jobs that `goes_on_while_busy` names have to go
        // on: others wait for what their script or transaction keeps.
        let has_to_wait = is_busy || pass.reply_bytes > REPLIES_MAX;
        if has_to_wait && job_of(connection).is_some_and(|job| !job.goes_on_while_busy()) {
            self.slots.jobs.push(slot);
            return;
        }
        let Some(mut long) = connection.client.long_command.take() else { return };
        if self.step_job(slot, &mut long, pass) {
            self.end_job(slot, *long);
            pass.ended.push(slot);
            return;
        }
        let Some(connection) = self.connections.at(slot) else { return };
        let (bytes, sent) = (long.job.reply_bytes(), long.sent_bytes());
        if !long.job.is_parked() {
            // A parked job may stay so for long, so its bytes do not hold up the others.
            pass.reply_bytes += bytes;
        }
        connection.client.long_command = Some(long);
        if bytes + sent == 0 || self.check_job(slot, bytes, sent) {
            self.slots.jobs.push(slot);
        }
    }

    /// Works on a connection's job for a slice, and queues the parts of its reply that are ready.
    /// Returns whether the job is done.
    fn step_job(&mut self, slot: u32, long: &mut LongCommand, pass: &JobsPass) -> bool {
        let Some(connection) = self.connections.at(slot) else { return true };
        let (server, stats, client) = (self.server, &self.handle.stats, &mut connection.client);
        let more = &mut || ticks() < pass.deadline;
        let done = step_for(server, &mut self.data, stats, long, client, more);
        self.data.take_own(&mut connection.client);
        self.next.is_parked &= !done && long.job.is_parked();
        let ready = long.ready_pieces();
        if !ready.is_empty() || done {
            // The changes that the job logged or read have numbers at or below this.
            connection.client.last_record = self.server.log.until_now();
            connection.queue_replies(&self.arena);
            if ready.is_empty() || !connection.refuses_reply(self.server) {
                ready.into_iter().for_each(|piece| connection.output.push_owned(piece));
            }
            touch(&mut self.slots.touched, connection);
        }
        done
    }

    /// Queues the reply, or its last part, of a job that is done.
    fn end_job(&mut self, slot: u32, long: LongCommand) {
        let Some(connection) = self.connections.at(slot) else { return };
        let (mut pieces, mut rest) = (Vec::new(), Arena::default());
        let waits = connection.client.blocked.is_some();
        if waits {
            long.wait(&mut connection.client);
        } else {
            let (stats, client) = (&self.handle.stats, &connection.client);
            pieces = long.close(self.server, stats, client, &mut rest);
        }
        let behind = std::mem::take(&mut connection.client.behind);
        let has_reply = !pieces.is_empty() || !rest.bytes.is_empty() || !behind.is_empty();
        if !has_reply || !connection.refuses_reply(self.server) {
            pieces.into_iter().for_each(|piece| connection.output.push_owned(piece));
            connection.output.push_arena(rest);
            connection.output.push_owned(behind);
        }
        if connection.client.is_overflowed() {
            limits::drop_replies(
                self.server,
                &self.handle,
                connection,
                self.data.conditions.now_ms,
            );
            connection.closing = true;
        }
        if waits {
            self.note_deadline(slot);
        }
    }
}

/// Works on a client's job for a slice, and then unlocks everything. Returns whether the job is
/// done.
pub(super) fn step_for(
    server: &'static Server,
    data: &mut Data,
    stats: &WorkerStats,
    long: &mut LongCommand,
    client: &mut Client,
    more: &mut dyn FnMut() -> bool,
) -> bool {
    data.follow_client(client);
    data.audience.working_for = client.info.id;
    data.audience.replying_to = client.tracking.as_ref().map_or(0, |tracked| tracked.id);
    data.conditions.sees_dead = server.shows_dead(&client.info);
    let overruns = data.audience.overruns();
    let is_done = long.step(&mut Slice { server, data, stats, client, more });
    if is_done && data.audience.overruns() != overruns && data.audience.is_overrun() {
        client.postpone(true);
    }
    data.release();
    data.audience.working_for = 0;
    data.audience.replying_to = 0;
    data.conditions.sees_dead = false;
    is_done
}

fn job_of(connection: &Connection) -> Option<&dyn Job> {
    connection.client.long_command.as_ref().map(|long| &*long.job)
}

/// One pass of a worker over its jobs.
struct JobsPass {
    /// The tick at which all slices end.
    deadline: u64,
    /// The reply bytes that unfinished jobs hold.
    reply_bytes: usize,
    /// The slots of connections whose jobs are done.
    ended: Vec<u32>,
}

impl Worker {
    /// Returns the jobs that go on now, and those that wait.
    ///
    /// While clients leave at most `UNREAD_MAX` bytes unread, all jobs go on. Beyond that only some
    /// do: the job with the most unread output, which goes on until its client reads or reaches its
    /// limit, and the jobs whose clients have read everything that was sent. Of the latter, those
    /// that already have a large reply, not to be sent before it is complete, go on one at a time,
    /// the largest first. So the memory of all jobs stays little above what one may have. Parked
    /// jobs always get to check whether they may go on, and do not count.
    fn choose_jobs(&mut self) -> (Vec<u32>, Vec<u32>) {
        let all = std::mem::take(&mut self.slots.jobs);
        if all.len() < 2 {
            return (all, Vec::new());
        }
        let job_of = |slot: u32| self.connections.get(slot).and_then(job_of);
        let is_parked = |&slot: &u32| job_of(slot).is_some_and(|job| job.is_parked());
        let (mut chosen, jobs): (Vec<u32>, Vec<u32>) = all.into_iter().partition(is_parked);
        let unread = |slot: u32| self.connections.get(slot).map_or(0, Connection::output_memory);
        let begun = |slot: u32| job_of(slot).map_or(0, |job| job.reply_bytes());
        let total: usize = jobs.iter().map(|&slot| unread(slot) + begun(slot)).sum();
        if total <= UNREAD_MAX {
            chosen.extend(jobs);
            return (chosen, Vec::new());
        }
        let most = jobs.iter().copied().max_by_key(|&slot| unread(slot));
        let has_read = |slot: u32| {
            unread(slot) == 0
                && self.connections.get(slot).is_some_and(|it| bobbin_io::unsent(&it.socket) == 0)
        };
        let has_little = |slot: u32| begun(slot) < BEGUN_MAX;
        let readers = jobs.iter().copied().filter(|&slot| !has_little(slot) && has_read(slot));
        let reader = readers.max_by_key(|&slot| begun(slot));
        let goes_on = |slot: u32| {
            Some(slot) == most
                || Some(slot) == reader
                || job_of(slot).is_none_or(|job| job.goes_on_while_busy())
                || has_little(slot) && has_read(slot)
        };
        let (go_on, wait): (Vec<u32>, Vec<u32>) = jobs.into_iter().partition(|&slot| goes_on(slot));
        chosen.extend(go_on);
        (chosen, wait)
    }

    /// If deferred connections leave much output unread: the one with the most. Its commands go on
    /// until its client reads or reaches its limit. Of the other deferred connections only those go
    /// on whose clients have read everything.
    pub(super) fn goes_on_alone(&self) -> Option<u32> {
        let unread = |&slot: &u32| self.connections.get(slot).map_or(0, Connection::output_memory);
        if self.slots.deferred.iter().map(unread).sum::<usize>() <= UNREAD_MAX {
            return None;
        }
        self.slots.deferred.iter().copied().max_by_key(unread)
    }
}

/// With more unread bytes than this, only some jobs and deferred commands go on.
const UNREAD_MAX: usize = 8 << 20;
/// If a client has read everything and its job holds fewer reply bytes than this, the job goes on.
const BEGUN_MAX: usize = 256 << 10;
/// Once unfinished jobs hold more reply bytes than this, no further job is worked on in the turn.
const REPLIES_MAX: usize = 1 << 20;
/// How long all jobs of a turn may take together, in microseconds. Other clients are served that
/// much later.
const JOBS_US: u64 = 50;
