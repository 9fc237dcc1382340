//! Feeds a replica's connection: first its copy, then the stream.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Replica, ReplicaState};
use crate::base::clock::{has_come, has_passed};
use crate::engine::buffers::output::ConnectionOutput;
use crate::engine::client::feeder::{Feeder, Feeding};
use crate::engine::clients::{ClientFlag, ClientInfo};
use crate::engine::log::feed::FeedReader;
use crate::engine::server::Server;
use crate::replication::Replication;
use crate::replication::refusals::{DELAY_MS, Refusal};
use crate::replication::transfer::{CopyForm, StreamPlace, Transfer, TransferState};

/// Feeds a replica's connection.
pub struct ReplicaFeeder {
    server: &'static Server,
    pub replica: Arc<Replica>,
    source: FeedSource,
    /// The replica asked by SYNC. It is not told the history and the offset, and need not
    /// acknowledge.
    is_plain: bool,
    /// How many bytes waited to be sent when the feeder was last called.
    left: usize,
    /// How many bytes of memory the output took after the feeder last filled it.
    filled: usize,
    /// When the replica last took bytes, or none waited (Unix ms).
    moved_ms: i64,
    /// How many bytes the replica has sent.
    heard: u64,
    /// The whole copy was sent, and the replica has not acknowledged since: how many
    /// acknowledgements it had sent before.
    untold: Option<u64>,
    /// When the replica last got an empty line (Unix ms).
    kept_alive_ms: i64,
}

/// Where the next bytes come from.
enum FeedSource {
    Nothing,
    /// The copy from this byte on, and then the stream.
    Copy {
        transfer: Arc<Transfer>,
        has_header: bool,
        sent: u64,
        /// `None`: the replica wants only the copy.
        stream: Option<FeedReader>,
    },
    /// The whole copy was sent, and the replica has not confirmed it. `acks` is how many
    /// acknowledgements it had sent before.
    Loads {
        stream: FeedReader,
        acks: u64,
    },
    Stream(FeedReader),
    /// The replica has everything that it wants once its output is sent.
    End,
}

impl ReplicaFeeder {
    pub fn new(server: &'static Server, client: &Arc<ClientInfo>, now_ms: i64) -> Self {
        let replica = Arc::new(Replica::new(Arc::clone(client), now_ms));
        Self {
            server,
            replica,
            source: FeedSource::Nothing,
            is_plain: false,
            left: 0,
            filled: 0,
            moved_ms: now_ms,
            heard: 0,
            untold: None,
            kept_alive_ms: now_ms,
        }
    }

    /// Makes the client a replica that waits for a copy.
    pub fn wait_for_copy(&mut self, now_ms: i64, is_plain: bool) {
        self.is_plain = is_plain;
        self.become_replica(now_ms, ReplicaState::Waiting);
    }

    /// Makes the client a replica that opens another connection for its copy, and gets the stream
    /// without asking.
    pub fn wait_for_channel(&mut self, now_ms: i64) {
        self.become_replica(now_ms, ReplicaState::OpensChannel);
    }

    /// Makes the client a replica that gets the stream from its own position on, or from the end of
    /// the copy that it gets on another connection.
    pub fn go_on(&mut self, stream: FeedReader, now_ms: i64) {
        let copy_client = self.replica.copy_client.load(Ordering::Relaxed);
        let state = if copy_client != 0 && self.replication().awaited.came(copy_client) {
            ReplicaState::Gathers
        } else {
            self.replica.acked.store(stream.offset(), Ordering::SeqCst);
            ReplicaState::Online
        };
        self.source = FeedSource::Stream(stream);
        self.become_replica(now_ms, state);
    }

    /// The stream from an offset of a history on. There is none for a replica that would be dropped
    /// at once because too much waits for it, and would ask again for ever.
    pub(in crate::replication) fn stream_from(&self, id: &[u8], offset: u64) -> Option<FeedReader> {
        let (feed, config) = (&self.server.feed, &self.server.config);
        // What is kept only because its last connection has just ended does not count.
        self.server.trim_feed();
        let waiting = feed.published().saturating_sub(offset);
        let goes_on = feed.history().holds(id, offset) && waiting < config.replica_bytes_max();
        goes_on.then(|| feed.reader(offset, Some(Arc::clone(&self.replica.client)))).flatten()
    }

    fn replication(&self) -> &'static Replication {
        Replication::of(self.server)
    }

    fn become_replica(&self, now_ms: i64, state: ReplicaState) {
        let replica = &self.replica;
        replica.since_ms.store(now_ms, Ordering::Relaxed);
        replica.acked_ms.store(now_ms, Ordering::Relaxed);
        replica.set_state(state);
        replica.client.flag(ClientFlag::REPLICA, true);
        self.replication().add(self.server, replica);
    }

    /// Sends empty lines to a waiting replica, to show that its primary is alive.
    fn keep_alive(&mut self, now_ms: i64, output: &mut ConnectionOutput) {
        let period_ms = self.server.config.repl_ping_replica_period() * 1000;
        if has_passed(now_ms, self.kept_alive_ms, period_ms) {
            self.kept_alive_ms = now_ms;
            output.push(b"\n");
        }
    }

    /// Takes the stream behind the copy on another connection, once it is available.
    fn begin_to_gather(&mut self) {
        let (replica, replication) = (&self.replica, self.replication());
        if let Some((copy_client, kept)) = replication.awaited.take(replica.client.id) {
            // From now on this client is woken when there is more. If the kept reader gets nothing
            // more, there is no new one; that is noticed next.
            let stream = self.server.feed.reader_from(&kept, &replica.client).unwrap_or(kept);
            replica.copy_client.store(copy_client, Ordering::Relaxed);
            replica.set_state(ReplicaState::Gathers);
            self.source = FeedSource::Stream(stream);
        }
    }

    /// Begins the copy that was assigned to this replica, if it has begun to be made.
    fn begin_copy(&mut self, now_ms: i64, output: &mut ConnectionOutput) -> Feeding {
        let refusal = *self.replica.refusal.lock();
        if let Some(Refusal { reason, due_ms, .. }) = refusal {
            if !has_come(now_ms, due_ms, DELAY_MS) {
                return Feeding::GoesOn;
            }
            output.push(format!("-ERR {reason}\r\n").as_bytes());
            self.source = FeedSource::End;
            return Feeding::GoesOn;
        }
        let Some(transfer) = self.replica.transfer.lock().clone() else {
            self.keep_alive(now_ms, output);
            return Feeding::GoesOn;
        };
        if transfer.has_failed() {
            return Feeding::Ends;
        }
        let Some((place, stream)) = transfer.take_stream(&self.replica.client) else {
            return Feeding::GoesOn;
        };
        // The replica came too late: the feed does not have the stream behind the copy any more.
        let Some(stream) = stream else { return Feeding::Overcome };
        let client = self.replica.client.id;
        let mut stream = Some(stream);
        if self.replica.is_copy_channel() {
            let main_client = self.replica.main_client();
            let kept = stream.take().into_iter();
            kept.for_each(|it| self.replication().awaited.keep(client, main_client, it));
            match main_client {
                Some(main_client) => self.replication().wake(self.server, main_client),
                None => self.tell_end_offset(place, transfer.database(), output),
            }
        }
        if !self.is_plain {
            let StreamPlace { id, offset } = place;
            output.push(format!("+FULLRESYNC {id} {offset}\r\n").as_bytes());
        }
        stream.take_if(|_| self.replica.copy_only.load(Ordering::Relaxed));
        self.source = FeedSource::Copy { transfer, has_header: false, sent: 0, stream };
        Feeding::GoesOn
    }

    /// Sends the stream's offset behind the copy, and the client id by which the main connection
    /// asks for it.
    fn tell_end_offset(
        &self,
        place: StreamPlace,
        database: Option<u32>,
        output: &mut ConnectionOutput,
    ) {
        let (StreamPlace { id, offset }, client) = (place, self.replica.client.id);
        log::info!(
            "Dual channel replication: Sending to replica {} RDB end offset {offset} and client-id \
             {client}",
            self.replica.name()
        );
        // As in Valkey, -1 means that the stream itself selects a database.
        let database = database.map_or(-1, i64::from);
        output.push(format!("$ENDOFF:{offset} {id} {database} {client}\r\n").as_bytes());
    }

    /// Sends the line before the copy, once it is known. Returns whether it was sent.
    fn send_header(
        &mut self,
        transfer: &Transfer,
        now_ms: i64,
        output: &mut ConnectionOutput,
    ) -> bool {
        let Some(header) = transfer.header() else {
            self.keep_alive(now_ms, output);
            return false;
        };
        output.push(header.as_bytes());
        if *transfer.form() == CopyForm::Sized {
            self.replica.set_state(ReplicaState::ReceivesFile);
        }
        true
    }

    /// Ends the copy, and returns what comes behind it.
    fn end_copy(
        &mut self,
        transfer: &Transfer,
        stream: Option<FeedReader>,
        now_ms: i64,
        output: &mut ConnectionOutput,
    ) -> FeedSource {
        output.push(transfer.trailer());
        *self.replica.transfer.lock() = None;
        self.replica.acked_ms.store(now_ms, Ordering::Relaxed);
        let acks = self.replica.acks();
        let name = self.replica.name();
        let Some(stream) = stream else {
            log::info!(
                "RDB transfer completed, rdb only replica ({name}) should be disconnected asap"
            );
            return FeedSource::End;
        };
        self.untold = Some(acks);
        if *transfer.form() == CopyForm::Sized {
            return self.begin_stream(stream);
        }
        log::info!(
            "Streamed RDB transfer with replica {name} succeeded (socket). Waiting for REPLCONF ACK \
             from replica to enable streaming"
        );
        self.replica.set_state(ReplicaState::Loads);
        FeedSource::Loads { stream, acks }
    }

    fn begin_stream(&self, stream: FeedReader) -> FeedSource {
        log::info!("Synchronization with replica {} succeeded", self.replica.name());
        self.replica.set_state(ReplicaState::Online);
        FeedSource::Stream(stream)
    }

    fn send_next(
        &mut self,
        now_ms: i64,
        bytes_max: usize,
        output: &mut ConnectionOutput,
    ) -> Feeding {
        if self.replica.state() == ReplicaState::OpensChannel {
            self.begin_to_gather();
        } else if matches!(self.source, FeedSource::Nothing)
            && let ended @ (Feeding::Ends | Feeding::Overcome) = self.begin_copy(now_ms, output)
        {
            return ended;
        }
        self.source = match std::mem::replace(&mut self.source, FeedSource::Nothing) {
            FeedSource::Nothing => FeedSource::Nothing,
            FeedSource::End if output.is_empty() => return Feeding::Finishes,
            FeedSource::End => FeedSource::End,
            FeedSource::Copy { transfer, has_header, mut sent, stream } => {
                let has_header = has_header || self.send_header(&transfer, now_ms, output);
                let room = if has_header { bytes_max } else { 0 };
                let take = |bytes| output.push_shared(bytes);
                match transfer.read(&self.replica.client, &mut sent, room, take) {
                    TransferState::Failed => return Feeding::Ends,
                    TransferState::Done if has_header => {
                        self.end_copy(&transfer, stream, now_ms, output)
                    }
                    TransferState::Done | TransferState::GoesOn => {
                        FeedSource::Copy { transfer, has_header, sent, stream }
                    }
                }
            }
            FeedSource::Loads { stream, acks } if self.replica.acks() == acks => {
                FeedSource::Loads { stream, acks }
            }
            FeedSource::Loads { stream, .. } => self.begin_stream(stream),
            FeedSource::Stream(stream) => FeedSource::Stream(stream),
        };
        if self.untold.is_some_and(|acks| self.replica.acks() != acks) {
            self.untold = None;
            self.replication().reception.was_taken(&self.replica);
        }
        if let FeedSource::Stream(stream) = &self.source {
            self.server.feed.read(stream, bytes_max as u64, |bytes| output.push_shared(bytes));
        }
        Feeding::GoesOn
    }

    /// Notes when the replica last sent something; while it loads it sends empty lines.
    /// `is_excused`: it need not send anything now.
    fn note_heard(&mut self, now_ms: i64, is_excused: bool) {
        let heard = self.replica.client.net_input_bytes.get();
        if is_excused || heard != self.heard {
            self.heard = heard;
            self.replica.acked_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Whether the stream is over that the replica gets, or would get behind its copy.
    fn is_stream_over(&self) -> bool {
        match &self.source {
            FeedSource::Copy { stream: Some(stream), .. }
            | FeedSource::Loads { stream, .. }
            | FeedSource::Stream(stream) => stream.is_over(),
            FeedSource::Nothing | FeedSource::End | FeedSource::Copy { stream: None, .. } => false,
        }
    }

    /// How many bytes of the stream wait for the replica. `None`: they were too many, and are not
    /// kept.
    fn behind(&self) -> Option<u64> {
        let end = self.server.feed.published();
        match &self.source {
            FeedSource::Copy { stream: None, .. } | FeedSource::End
                if self.replica.is_copy_channel() =>
            {
                self.replication().awaited.waiting_bytes(self.replica.client.id, end)
            }
            FeedSource::Nothing | FeedSource::End | FeedSource::Copy { stream: None, .. } => {
                Some(0)
            }
            FeedSource::Copy { stream: Some(stream), .. }
            | FeedSource::Loads { stream, .. }
            | FeedSource::Stream(stream) => stream.waiting_bytes(end),
        }
    }

    /// Whether the replica has taken nothing, or sent nothing, for too long.
    fn is_over_time(&mut self, now_ms: i64) -> bool {
        // If the system's clock was set back, the time begins anew.
        self.moved_ms = self.moved_ms.min(now_ms);
        self.replica.begin_anew_by(now_ms);
        let (since_ms, what) = match self.source {
            FeedSource::Stream(_) | FeedSource::Loads { .. } if self.is_plain => {
                (self.moved_ms, "streaming sync")
            }
            FeedSource::Stream(_) => {
                if self.replica.state() == ReplicaState::Gathers {
                    // Before it has its copy it need not send or take anything.
                    let copy_client = self.replica.copy_client.load(Ordering::Relaxed);
                    self.note_heard(now_ms, self.replication().is_fed(copy_client));
                }
                (self.replica.acked_ms(), "streaming sync")
            }
            FeedSource::Loads { .. } => {
                self.note_heard(now_ms, false);
                (self.replica.acked_ms(), "streaming sync")
            }
            FeedSource::Nothing if self.replica.state() == ReplicaState::OpensChannel => {
                if self.replication().has_channel_of(self.replica.client.id) {
                    self.replica.since_ms.store(now_ms, Ordering::Relaxed);
                }
                (self.replica.since_ms(), "full sync")
            }
            FeedSource::Nothing | FeedSource::Copy { .. } | FeedSource::End => {
                (self.moved_ms, "full sync")
            }
        };
        let is_over = now_ms - since_ms > self.server.config.repl_timeout() * 1000;
        if is_over {
            let name = self.replica.name();
            log::warn!("Disconnecting timedout replica ({what}): {name}");
        }
        is_over
    }
}

impl Feeder for ReplicaFeeder {
    fn fill(&mut self, now_ms: i64, bytes_max: usize, output: &mut ConnectionOutput) -> Feeding {
        if output.is_empty() || output.len() < self.left {
            self.moved_ms = now_ms;
        }
        if self.replica.state() == ReplicaState::Greets {
            return Feeding::GoesOn;
        }
        if self.is_over_time(now_ms) || self.is_stream_over() {
            return Feeding::Ends;
        }
        if self.behind().is_none() {
            return Feeding::Overcome;
        }
        let feeding = if bytes_max == 0 {
            Feeding::GoesOn
        } else {
            let before = output.len();
            let feeding = self.send_next(now_ms, bytes_max, output);
            self.server.services.replication_traffic.add_sent(output.len() - before);
            self.filled = output.memory();
            feeding
        };
        self.left = output.len();
        feeding
    }

    fn waiting_bytes(&self, output_bytes: usize) -> u64 {
        let replies = output_bytes.saturating_sub(self.filled) as u64;
        replies.saturating_add(self.behind().unwrap_or(u64::MAX))
    }
}

impl Drop for ReplicaFeeder {
    fn drop(&mut self) {
        let replica = &self.replica;
        if let Some(transfer) = replica.transfer.lock().take() {
            transfer.leave(&replica.client);
        }
        if self.untold.is_some_and(|acks| acks == replica.acks()) && !self.is_plain {
            let now_ms = self.server.clock.now_ms();
            self.replication().reception.was_in_vain(replica, now_ms);
        }
        if replica.is_copy_channel() {
            let now_ms = self.server.clock.now_ms();
            self.replication().awaited.copy_client_went(replica.client.id, now_ms);
        }
        if replica.state() != ReplicaState::Greets {
            let (name, is_copy_channel) = (replica.name(), replica.is_copy_channel());
            if is_copy_channel {
                log::info!("Dual channel replication: Replica {name} rdb channel disconnected.");
            } else {
                let level = self.replication().level_of(replica, self.server.clock.now_ms());
                log::log!(level, "Connection with replica {name} lost.");
            }
            // Once nobody sees the replica any more, nothing is kept for it either.
            self.source = FeedSource::Nothing;
            self.server.trim_feed();
            self.replication().remove(self.server, &self.replica);
        }
    }
}
