//! A worker's step for jobs: each goes on for a slice, until the time for all of them is over.

use super::{Worker, limits, touch};
use crate::base::clock::ticks;
use crate::engine::buffers::output::Arena;
use crate::engine::client::Client;
use crate::engine::client::connection::Connection;
use crate::engine::command::Data;
use crate::engine::command::job::{Job, Slice};
use crate::engine::lazyfree;
use crate::engine::server::{Server, Switch};
use crate::engine::telemetry::stats::WorkerStats;

impl Worker {
    pub(super) fn has_jobs(&self) -> bool {
        !self.slots.jobs.is_empty() || !self.orphans.is_empty()
    }

    pub(super) fn work_on_jobs(&mut self) {
        if !self.has_jobs() {
            return;
        }
        let clock = ticks();
        let mut pass = Pass {
            clock,
            deadline: clock + self.server.clock.ticks(JOBS_US),
            reply_bytes: 0,
            ended: Vec::new(),
        };
        self.data.release();
        self.next.is_parked = self.orphans.iter().all(|orphan| orphan.job.is_parked());
        let turns = self.server.scripts.turns();
        let (chosen, waiting) = self.choose_jobs();
        for slot in chosen {
            self.work_on(slot, &mut pass);
        }
        self.slots.jobs.extend(waiting);
        self.work_on_orphans();
        if self.server.scripts.turns() != turns {
            self.serve_behind_reserved(&mut pass);
        }
        for slot in pass.ended {
            match self.connections.get(slot) {
                // What it did was more than others have heard of yet.
                Some(connection) if connection.client.is_postponed() => {
                    self.postponed.add(self.server, slot, &connection.client);
                }
                _ => self.parse_own(slot),
            }
        }
        self.execute();
    }

    /// Something that a script kept is free: those that wait for it come before what the script's
    /// client sends next, which may be a script as well.
    #[cold]
    fn serve_behind_reserved(&mut self, pass: &mut Pass) {
        let is_parked = |slot: &mut u32| {
            let connection = self.connections.get(*slot);
            connection.and_then(|it| it.client.job.as_ref()).is_some_and(|job| job.is_parked())
        };
        let parked: Vec<u32> = self.slots.jobs.extract_if(.., is_parked).collect();
        for slot in parked {
            self.work_on(slot, pass);
        }
        self.resume_behind_reserved();
    }

    /// Works on a connection's job, if it is its turn.
    fn work_on(&mut self, slot: u32, pass: &mut Pass) {
        let Some(connection) = self.connections.at(slot) else { return };
        let is_busy = self.server.switches.load() & Switch::BUSY != 0;
        // Where replies are much, those that came first must end first; otherwise half of each
        // would be kept for long. But they may wait for what a script or a transaction keeps.
        let has_to_wait = is_busy || pass.reply_bytes > REPLIES_MAX;
        if has_to_wait && connection.client.job.as_ref().is_some_and(|it| !it.goes_on_while_busy())
        {
            self.slots.jobs.push(slot);
            return;
        }
        let Some(mut job) = connection.client.job.take() else { return };
        if self.step_job(slot, &mut *job, pass) {
            self.end_job(slot, job);
            pass.ended.push(slot);
            return;
        }
        let Some(connection) = self.connections.at(slot) else { return };
        let bytes = job.reply_bytes();
        let sent = connection.client.account.as_ref().map_or(0, |it| it.reply_bytes());
        if !job.is_parked() {
            // One that is parked may be so for long, whatever the others do.
            pass.reply_bytes += bytes;
        }
        connection.client.job = Some(job);
        if bytes + sent == 0 || self.check_job(slot, bytes, sent) {
            self.slots.jobs.push(slot);
        }
    }

    /// Works on a connection's job for a slice, and sends what is ready of its reply; whether the
    /// job is done.
    fn step_job(&mut self, slot: u32, job: &mut dyn Job, pass: &mut Pass) -> bool {
        let Pass { clock, deadline, .. } = pass;
        let Some(connection) = self.connections.at(slot) else { return true };
        let (server, stats, client) = (self.server, &self.handle.stats, &mut connection.client);
        let more = &mut || ticks() < *deadline;
        let done = step_for(server, &mut self.data, stats, job, client, more);
        self.data.take_own(&mut connection.client);
        let started = std::mem::replace(clock, ticks());
        if let Some(account) = &mut connection.client.account {
            account.add(*clock - started);
        }
        self.next.is_parked &= !done && job.is_parked();
        let account = connection.client.account.as_mut();
        let ready = account.map_or_else(Vec::new, |it| it.ready_pieces(job));
        if !ready.is_empty() || done {
            // What it logged, or read, is before this.
            connection.client.last_record = self.server.log.until_now();
            if let Some(range) = connection.replies.take() {
                connection.output.push_replies(&self.arena, range, 0);
            }
            ready.into_iter().for_each(|piece| connection.output.push_owned(piece));
            touch(&mut self.slots.touched, connection);
        }
        done
    }

    /// Sends the reply, or the rest of it, of a job that is done.
    fn end_job(&mut self, slot: u32, mut job: Box<dyn Job>) {
        let Some(connection) = self.connections.at(slot) else { return };
        let (mut pieces, mut rest) = (Vec::new(), Arena::default());
        let waits = connection.client.blocked.is_some();
        let account = connection.client.account.take();
        if waits {
            account.into_iter().for_each(|account| account.suspend(&mut connection.client));
        } else if let Some(account) = account {
            let (stats, client) = (&self.handle.stats, &connection.client);
            pieces = account.close(&mut *job, self.server, stats, client, &mut rest);
        }
        lazyfree::free_pins(job);
        pieces.into_iter().for_each(|piece| connection.output.push_owned(piece));
        connection.output.push_arena(rest);
        connection.output.push_owned(std::mem::take(&mut connection.client.behind));
        if connection.client.is_overflowed() {
            limits::drop_replies(self.server, &self.handle, connection, self.data.turn.now_ms);
            connection.closing = true;
        }
        if waits {
            self.blocked(slot);
        }
    }
}

/// Works on a client's job for a slice, with nothing held; whether the job is done.
pub(super) fn step_for(
    server: &'static Server,
    data: &mut Data,
    stats: &WorkerStats,
    job: &mut dyn Job,
    client: &mut Client,
    more: &mut dyn FnMut() -> bool,
) -> bool {
    data.follow_client(client);
    data.audience.working_for = client.info.id;
    data.turn.sees_dead = server.shows_dead(&client.info);
    let is_done = job.step(&mut Slice { server, data, stats, client, more });
    data.release();
    data.audience.working_for = 0;
    data.turn.sees_dead = false;
    is_done
}

/// A worker's pass over its jobs.
struct Pass {
    /// The tick at which the next slice begins.
    clock: u64,
    /// The tick at which all slices end.
    deadline: u64,
    /// Of replies that are begun.
    reply_bytes: usize,
    /// Those whose jobs are done.
    ended: Vec<u32>,
}

impl Worker {
    /// Which jobs have their turn, and which wait. If the clients of jobs leave much unread, only
    /// one of those goes on, and they whose clients read: the first gets read, or reaches its
    /// limit, and the memory of all together stays little more than what one may have. One reads if
    /// its peer has taken all that was sent; of these, should there be much of a reply that cannot
    /// be sent before it is complete, the one with most of it goes on. Jobs that are parked look
    /// whether they may go on, and count for nothing.
    fn choose_jobs(&mut self) -> (Vec<u32>, Vec<u32>) {
        let all = std::mem::take(&mut self.slots.jobs);
        if all.len() < 2 {
            return (all, Vec::new());
        }
        let job_of = |slot: u32| self.connections.get(slot).and_then(|it| it.client.job.as_ref());
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

    /// The connection whose deferred commands go on alone, besides those of clients that read, if
    /// all together leave much unread. It gets read, or reaches its limit, and then the next goes
    /// on.
    pub(super) fn goes_on_alone(&self) -> Option<u32> {
        let unread = |&slot: &u32| self.connections.get(slot).map_or(0, Connection::output_memory);
        if self.slots.deferred.iter().map(unread).sum::<usize>() <= UNREAD_MAX {
            return None;
        }
        self.slots.deferred.iter().copied().max_by_key(unread)
    }
}

/// With more unread bytes than this for clients that have jobs, or deferred commands, few of these
/// go on.
const UNREAD_MAX: usize = 8 << 20;
/// With fewer bytes of its reply than this a job whose client reads goes on.
const BEGUN_MAX: usize = 256 << 10;
/// With more bytes of replies than this, which jobs have begun, no further job is worked on.
const REPLIES_MAX: usize = 1 << 20;
/// How long the jobs of a turn may take together, in microseconds: so much later the others are
/// served.
const JOBS_US: u64 = 50;
