//! A worker without sockets: it takes bytes and returns replies, at times that the caller sets.
//! Otherwise it runs the worker's own code. Tests, fuzzing and the count of instructions use it.

pub mod records;
mod replicas;

use std::sync::Arc;

use bobbin_io::Waker;
use bobbin_resp::{Limits, Parser, Protocol};
use bobbin_store::{AccessClock, SHARDS};

use self::records::{BaseInProgress, LogRecords, Start};
use crate::base::clock::ticks;
use crate::base::random::Random;
use crate::config::{Config, OptionId};
use crate::engine::acl::Rights;
use crate::engine::blocking::{self, WaiterEnd};
use crate::engine::buffers::output::{Arena, ConnectionOutput};
use crate::engine::client::Client;
use crate::engine::client::connection::PARSED_MAX;
use crate::engine::clients::ClientInfo;
use crate::engine::command::Data;
use crate::engine::command::job::Slice;
use crate::engine::execution::transaction;
use crate::engine::log::Recorder;
use crate::engine::pubsub::Subscribers;
use crate::engine::server::mailbox::Post;
use crate::engine::server::{Server, WorkerHandle};
use crate::engine::telemetry::stats::WorkerStats;
use crate::engine::tracking::{self, Tracker};
use crate::persistence::aof::Aof;
use crate::worker::batch::Batch;
use crate::worker::executor::Executor;
use crate::worker::limits::ReplyLimit;

/// A process for workers without sockets. It is never freed, so make few.
#[derive(Clone, Copy)]
pub struct EmbeddedProcess(&'static Server);

/// A worker without sockets.
pub struct Embedded {
    server: &'static Server,
    aof: &'static Aof,
    data: Data,
    stats: WorkerStats,
    batch: Batch,
    replies: Arena,
    /// Long commands are interrupted after each slice.
    in_slices: bool,
    /// `Scripts::releases` when clients that wait for a script were last served.
    releases: u64,
}

/// A client of an [`Embedded`].
pub struct EmbeddedSession {
    client: Client,
    parser: Parser,
    /// Bytes of an incomplete command.
    input: Vec<u8>,
    /// Output for a replica that waits to be taken.
    output: ConnectionOutput,
}

impl EmbeddedProcess {
    pub fn new(config: Config) -> Result<Self, String> {
        // Nothing may be saved automatically.
        config.set_internally(OptionId::save, "")?;
        let server = crate::process::create(config, &[])?;
        server.follow_config();
        Ok(Self(server))
    }

    #[cfg(test)]
    pub(crate) const fn of(server: &'static Server) -> Self {
        Self(server)
    }

    /// Another worker of the process. `seed` decides everything random, such as evictions.
    pub fn worker(self, seed: u64) -> Result<Embedded, String> {
        let server = self.0;
        let mut data = Data::new(&server.keyspace, &server.gate, seed).ok_or("too many threads")?;
        let stats = WorkerStats::new(server.registry.all().len());
        let waker = Waker::new().map_err(|error| error.to_string())?;
        let handle =
            WorkerHandle::new(server.workers.next_id(), waker, "none", server.registry.all().len());
        data.audience.subscribers =
            Some(Box::new(Subscribers::new(&server.pubsub, Arc::new(handle))));
        data.audience.tracker = Some(Box::new(Tracker::new(server)));
        data.recorder = Recorder::new(server.log.lane());
        let (batch, replies) = (Batch::default(), Arena::default());
        let mut embedded = Embedded {
            server,
            aof: Aof::of(server),
            data,
            stats,
            batch,
            replies,
            in_slices: false,
            releases: 0,
        };
        embedded.set_time(server.clock.now_ms());
        Ok(embedded)
    }

    /// Turns the log on or off. No worker may be executing anything.
    pub fn log(self, on: bool) {
        let gate = self.0.gate.take();
        self.0.log.switch(on);
        drop(gate);
    }

    pub fn records(self) -> LogRecords {
        LogRecords::new(self.0)
    }

    /// What a start of this process would load.
    pub fn start(self) -> Result<Start, String> {
        Start::new(self.0)
    }
}

impl Embedded {
    /// The only worker of a new process.
    pub fn new(config: Config, seed: u64) -> Result<Self, String> {
        config.set_internally(OptionId::io_threads, "1")?;
        let mut embedded = EmbeddedProcess::new(config)?.worker(seed)?;
        embedded.set_time(0);
        Ok(embedded)
    }

    /// Sets the clock (Unix ms). It should not go back.
    pub fn set_time(&mut self, now_ms: i64) {
        self.server.clock.fix(now_ms);
        self.data.conditions.now_ms = now_ms;
        self.data.conditions.clock = AccessClock::new(self.server.access_policy(), now_ms);
        self.server.end_pause_in_time(now_ms);
        self.data.follow_config(self.server);
    }

    /// Decides everything random from now on, as the seed of a new worker does.
    pub const fn set_random(&mut self, seed: u64) {
        self.data.random = Random::new(seed);
    }

    /// Turns the log on. Nothing reads it.
    pub fn log(&mut self) {
        EmbeddedProcess(self.server).log(true);
        self.data.recorder.refresh();
    }

    #[cfg(test)]
    pub(crate) const fn server(&self) -> &'static Server {
        self.server
    }

    /// The keys, for tests of the layers below commands.
    #[cfg(test)]
    pub(crate) fn data(&mut self) -> &mut Data {
        &mut self.data
    }

    /// Interrupts long commands after each slice. `step` continues them.
    pub const fn work_in_slices(&mut self) {
        self.in_slices = true;
    }

    /// A digest of all keys, values and times of expiry.
    pub fn digest(&mut self) -> [u8; 20] {
        records::digest_of(&mut self.data)
    }

    /// Begins a base. Also returns the number of the last record that it holds.
    pub fn begin_base(&mut self) -> (BaseInProgress, u64) {
        BaseInProgress::begin(self.server, &mut self.data)
    }

    /// Adds a few keys to a base. Returns whether there are more.
    pub fn step_base(&mut self, base: &mut BaseInProgress) -> bool {
        base.step(&mut self.data)
    }

    pub fn connect(&mut self) -> EmbeddedSession {
        let (id, now_ms) = (self.server.clients.next_id(), self.data.conditions.now_ms);
        let info = ClientInfo::new(id, -1, "embedded".into(), "embedded".into(), true, now_ms);
        let client = Client::new(Arc::new(info), Rights::new(&self.server.acl));
        EmbeddedSession {
            client,
            parser: Parser::default(),
            input: Vec::new(),
            output: ConnectionOutput::default(),
        }
    }

    /// Ends a session as if its connection was closed.
    pub fn disconnect(&mut self, mut session: EmbeddedSession) {
        self.data.enter();
        if let Some(waiter) = session.client.blocked.take() {
            waiter.unlink(self.server, &mut self.data);
        }
        if let Some(long) = session.client.long_command.take() {
            long.abandon(self.server, &mut self.data);
        }
        transaction::forget(&mut session.client, &mut self.data);
        if let Some(subscribers) = &mut self.data.audience.subscribers {
            subscribers.forget(&mut session.client);
        }
        tracking::disable(self.server, &mut session.client);
        self.data.leave();
    }

    /// Executes the commands that the bytes complete, and returns the replies. Executes nothing
    /// more for a session that was told to end (`is_closed`), or that waits for the end of a pause.
    pub fn feed(&mut self, session: &mut EmbeddedSession, bytes: &[u8]) -> &[u8] {
        self.replies.clear(usize::MAX);
        self.data.enter();
        self.serve_behind_reserved();
        if session.input.is_empty() {
            let consumed = self.execute(session, bytes);
            session.input.extend_from_slice(&bytes[consumed..]);
        } else {
            let mut input = std::mem::take(&mut session.input);
            input.extend_from_slice(bytes);
            let consumed = self.execute(session, &input);
            input.drain(..consumed);
            session.input = input;
        }
        self.data.leave();
        self.drop_posts();
        self.replies.join()
    }

    /// Serves the clients that wait for a script, if it has released something.
    fn serve_behind_reserved(&mut self) {
        let releases = self.server.scripts.releases();
        if std::mem::replace(&mut self.releases, releases) != releases {
            blocking::serve_behind_reserved(self.server, &mut self.data);
        }
    }

    /// Continues a session's long command, and executes what the session sent behind it. Returns
    /// the replies.
    pub fn step(&mut self, session: &mut EmbeddedSession) -> &[u8] {
        self.replies.clear(usize::MAX);
        self.data.enter();
        self.serve_behind_reserved();
        if self.work(&mut session.client) {
            let mut input = std::mem::take(&mut session.input);
            let consumed = self.execute(session, &input);
            input.drain(..consumed);
            session.input = input;
        }
        self.data.leave();
        self.drop_posts();
        self.replies.join()
    }

    /// Ends the wait of a session whose command was served by another one. Returns the reply.
    pub fn end_wait(&mut self, session: &mut EmbeddedSession) -> Option<Vec<u8>> {
        let waiter = session.client.blocked.clone()?;
        let mut reply = Vec::new();
        if let WaiterEnd::Not = waiter.ended(&mut reply) {
            return None;
        }
        session.client.blocked = None;
        self.data.enter();
        waiter.unlink(self.server, &mut self.data);
        self.data.leave();
        Some(reply)
    }

    /// Messages from other workers to clients that listen here, in RESP2. This worker's own
    /// messages are dropped after each command.
    pub fn messages(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let Some(subscribers) = &mut self.data.audience.subscribers else { return bytes };
        subscribers.take_mailbox();
        while let Some((_, post)) = subscribers.pop() {
            let Post::Message { message, .. } = &post else { continue };
            for (pattern, recipients) in subscribers.recipients(message) {
                for _ in recipients {
                    message.append(pattern, Protocol::Resp2, &mut bytes, None);
                }
            }
            subscribers.done(message);
        }
        bytes
    }

    /// Removes all expired keys, as workers do regularly.
    pub fn expire(&mut self) {
        self.data.enter();
        for shard in 0..SHARDS {
            while self.server.keyspace.due_ms(shard) <= self.data.conditions.over_ms()
                && self.data.conditions.may_expire
            {
                self.data.expire_shard(shard, usize::MAX);
            }
        }
        self.data.leave();
    }

    /// Drops posts: a session gets its own messages, and there is no way to other workers.
    fn drop_posts(&mut self) {
        let Some(subscribers) = &mut self.data.audience.subscribers else { return };
        subscribers.take_mailbox();
        while let Some((_, post)) = subscribers.pop() {
            if let Post::Message { message, .. } = &post {
                subscribers.done(message);
            }
        }
    }

    /// Executes the commands in these bytes. Returns how many bytes they took.
    fn execute(&mut self, session: &mut EmbeddedSession, input: &[u8]) -> usize {
        let (server, mut consumed) = (self.server, 0);
        let bulk_len_max = server.config.proto_max_bulk_len() as usize;
        loop {
            if session.client.is_postponed()
                && !session.client.waits_for_reserved
                && server.paused(self.data.conditions.now_ms).is_none()
            {
                // The session published more than may wait, but here no client has to wait for
                // that.
                self.drop_posts();
                session.client.postpone(false);
            }
            let client = &mut session.client;
            let waits = client.long_command.is_some() || client.blocked.is_some();
            if client.is_closing() || client.is_postponed() || waits {
                return consumed;
            }
            let limits = if client.rights.authenticated {
                Limits::new(bulk_len_max)
            } else {
                Limits::unauthenticated(bulk_len_max)
            };
            let rest = &input[consumed..];
            // SAFETY: the batch is cleared before these bytes are dropped.
            let found = unsafe {
                let parser = &mut session.parser;
                self.batch.parse(rest, PARSED_MAX.into(), parser, &limits, server, &[])
            };
            let mut executor = Executor {
                server,
                aof: self.aof,
                data: &mut self.data,
                stats: &self.stats,
                arena: &mut self.replies,
                replies_max: usize::MAX,
                clock: &mut ticks(),
            };
            let done = executor.run(client, &self.batch, &found, &ReplyLimit::NONE);
            let replies = &mut self.replies.bytes;
            self.batch.clear();
            self.stats.totals.commands.add(done.executed);
            if !done.halted && found.is_cut {
                consumed += found.consumed;
                continue;
            }
            if !done.halted {
                if let Some(error) = found.error {
                    error.append_reply(replies);
                    client.close();
                }
                return consumed + found.consumed;
            }
            session.parser = Parser::default();
            consumed += done.end;
            if client.long_command.is_some() && !self.work(client) {
                return consumed;
            }
        }
    }

    /// Works on a client's long command, for a slice or to its end. Returns whether it is done.
    fn work(&mut self, client: &mut Client) -> bool {
        let Some(mut long) = client.long_command.take() else { return true };
        self.data.release();
        self.data.follow_client(client);
        while !long.step(&mut Slice {
            server: self.server,
            data: &mut self.data,
            stats: &self.stats,
            client,
            more: &mut || !self.in_slices,
        }) {
            if self.in_slices {
                client.long_command = Some(long);
                return false;
            }
        }
        if client.blocked.is_some() {
            long.wait(client);
            return true;
        }
        let mut rest = Arena::default();
        let pieces = long.close(self.server, &self.stats, client, &mut rest);
        let replies = &mut self.replies.bytes;
        pieces.iter().for_each(|piece| replies.extend_from_slice(piece));
        replies.extend_from_slice(rest.join());
        true
    }
}

impl EmbeddedSession {
    /// Whether the connection would be closed now.
    pub fn is_closed(&self) -> bool {
        self.client.is_closing()
    }

    /// Whether a long command of the session is unfinished.
    pub fn is_working(&self) -> bool {
        self.client.long_command.is_some()
    }

    /// Whether a script or a transaction of the session has paused.
    pub fn has_paused(&self) -> bool {
        self.client.long_command.as_ref().is_some_and(|long| long.job.goes_on_while_busy())
    }

    /// Whether a command of the session is blocked.
    pub fn is_waiting(&self) -> bool {
        self.client.blocked.is_some()
    }

    /// Whether the session has sent commands that are not executed yet.
    pub const fn is_behind(&self) -> bool {
        !self.input.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn embedded() -> Embedded {
        Embedded::new(Config::new(), 1).unwrap()
    }

    #[test]
    fn commands_may_come_in_pieces_and_time_is_what_it_is_said_to_be() {
        let mut embedded = embedded();
        let mut session = embedded.connect();
        embedded.set_time(1000);
        assert_eq!(embedded.feed(&mut session, b"SET k v PX 10\r\nGE"), b"+OK\r\n");
        assert_eq!(embedded.feed(&mut session, b"T k\r\n"), b"$1\r\nv\r\n");
        embedded.set_time(1009);
        assert_eq!(embedded.feed(&mut session, b"PTTL k\r\nDBSIZE\r\n"), b":1\r\n:1\r\n");
        embedded.set_time(1010 + 100);
        embedded.expire();
        assert_eq!(embedded.feed(&mut session, b"DBSIZE\r\nGET k\r\n"), b":0\r\n$-1\r\n");
    }

    #[test]
    fn a_command_that_goes_on_in_slices_is_counted_and_silenced_like_any_other() {
        let mut embedded = embedded();
        let mut session = embedded.connect();
        embedded.feed(&mut session, b"CONFIG SET slowlog-log-slower-than 0\r\n");
        for i in 0..2000 {
            embedded.feed(&mut session, format!("SET {i} v\r\n").as_bytes());
        }
        let asked = b"CLIENT REPLY SKIP\r\nKEYS *\r\nPING\r\n";
        assert_eq!(embedded.feed(&mut session, asked), b"+PONG\r\n");
        let asked = b"CLIENT REPLY OFF\r\nKEYS *\r\nCLIENT REPLY ON\r\nKEYS 7\r\n";
        assert_eq!(embedded.feed(&mut session, asked), b"+OK\r\n*1\r\n$1\r\n7\r\n");
        let keys = embedded.server.registry.find(b"keys").unwrap();
        let stats = &embedded.stats.commands[keys.id];
        assert_eq!(stats.calls.get(), 3);
        assert!(stats.ticks.get() > 0);
        let log = embedded.feed(&mut session, b"SLOWLOG GET 1\r\n");
        let log = String::from_utf8_lossy(log);
        assert!(log.contains("KEYS\r\n$1\r\n7\r\n"), "{log}");
    }

    #[test]
    fn a_transaction_shares_its_large_words_with_the_keys() {
        const COUNT: usize = 300;
        let mut embedded = embedded();
        let mut session = embedded.connect();
        for key in 0..2000 {
            embedded.feed(&mut session, format!("SET {key} v\r\n").as_bytes());
        }
        embedded.work_in_slices();
        embedded.feed(&mut session, b"MULTI\r\n");
        let value = |key: usize| format!("{key:05000}");
        for key in 0..COUNT {
            let set = format!("SET large{key} {}\r\nKEYS none\r\n", value(key));
            embedded.feed(&mut session, set.as_bytes());
        }
        let words = &session.client.transaction.as_ref().expect("it is queued").words;
        let words: Vec<_> = words.large().cloned().collect();
        let mut replies = embedded.feed(&mut session, b"EXEC\r\n").to_vec();
        while session.client.long_command.is_some() {
            replies.extend_from_slice(embedded.step(&mut session));
        }
        assert_eq!(
            replies,
            format!("*{}\r\n{}", 2 * COUNT, "+OK\r\n*0\r\n".repeat(COUNT)).as_bytes()
        );
        // The key and this test own the value; the transaction releases it in the background.
        while words.iter().any(|word| Arc::strong_count(word) > 2) {
            std::thread::yield_now();
        }
        let counts: Vec<_> = words.iter().map(Arc::strong_count).collect();
        assert_eq!(counts, [2; COUNT]);
        let last = embedded.feed(&mut session, format!("GET large{}\r\n", COUNT - 1).as_bytes());
        assert_eq!(last, format!("$5000\r\n{}\r\n", value(COUNT - 1)).as_bytes());
    }

    #[test]
    fn a_scan_of_a_value_reads_its_key_once() {
        let mut embedded = embedded();
        let mut session = embedded.connect();
        embedded.feed(&mut session, b"HSET h f v\r\nSADD s m\r\nZADD z 1 m\r\n");
        for scan in ["HSCAN h 0", "SSCAN s 0", "ZSCAN z 0"] {
            let before = embedded.data().counters.hits;
            embedded.feed(&mut session, format!("{scan}\r\n").as_bytes());
            assert_eq!(embedded.data().counters.hits, before + 1, "{scan}");
        }
    }

    #[test]
    fn what_is_missing_or_gone_takes_no_memory_in_other_databases() {
        let mut embedded = embedded();
        let mut session = embedded.connect();
        embedded.set_time(1000);
        embedded.feed(&mut session, b"SELECT 9\r\n");
        let shards_used = |embedded: &mut Embedded| {
            embedded.data.enter();
            let used = |shard| embedded.data.visit(shard, |shard| shard.used().count() > 1);
            let count = (0..SHARDS).map(used).filter(|&used| used).count();
            embedded.data.leave();
            count
        };
        for i in 0..200 {
            let asked = format!("GET {i}\r\nDEL {i}\r\nEXPIRE {i} 7\r\nEXISTS {i}\r\n");
            embedded.feed(&mut session, asked.as_bytes());
        }
        assert_eq!(shards_used(&mut embedded), 0);
        for i in 0..200 {
            embedded.feed(&mut session, format!("SET {i} v PX 10\r\n").as_bytes());
        }
        assert!(shards_used(&mut embedded) > 100);
        embedded.set_time(2000);
        embedded.expire();
        assert_eq!(shards_used(&mut embedded), 0);
    }

    #[test]
    fn sessions_see_each_other_and_end() {
        let mut embedded = embedded();
        let (mut one, mut two) = (embedded.connect(), embedded.connect());
        embedded.feed(&mut one, b"WATCH k\r\nMULTI\r\nGET k\r\n");
        embedded.feed(&mut two, b"SET k v\r\n");
        assert_eq!(embedded.feed(&mut one, b"EXEC\r\n"), b"*-1\r\n");
        assert_eq!(
            embedded.feed(&mut one, b"KEYS *\r\nQUIT\r\nPING\r\n"),
            b"*1\r\n$1\r\nk\r\n+OK\r\n"
        );
        assert!(one.is_closed());
        embedded.disconnect(one);
        assert_eq!(
            embedded.feed(&mut two, b"*1\r\n!\r\n"),
            b"-ERR Protocol error: expected '$', got '!'\r\n"
        );
        assert!(two.is_closed());
    }
}
