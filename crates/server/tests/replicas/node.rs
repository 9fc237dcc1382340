//! A node: what it has, and what it does as a primary and as a replica.

use bobbin_resp::{Limits, ParseStep, Parser, SharedSlice};
use bobbin_server::engine::log::Feed;
use bobbin_server::engine::log::feed::FeedReader;
use bobbin_server::engine::log::history::{History, HistoryId};
use bobbin_server::replication::awaited::AwaitedStreams;
use bobbin_server::replication::link::handshake::Introduction;
use bobbin_server::replication::link::machine::{GiveUp, LinkEvent, LinkLimits, LinkMachine};

use crate::network::{Arrival, CALLED, CALLER, ReplicaNetwork};

/// Silence after which a connection is given up.
pub const TIMEOUT_MS: i64 = 5_000;
/// How often a primary says that it is there.
const PING_MS: i64 = 1_000;
/// When a replica connects again.
const RETRY_MS: i64 = 300;
/// Bytes of the stream that are kept for replicas that come again.
const BACKLOG: u64 = 500;
const LIMITS: LinkLimits = LinkLimits {
    bulk_len_max: 1000,
    command_len_max: 2000,
    transaction_len_max: 5000,
    gathered_len_max: 300,
};

pub struct ReplicaNode {
    pub at: usize,
    /// All that was carried out since the beginning: the data set.
    pub data: Vec<u8>,
    pub history: History,
    pub feed: Feed,
    /// The primary that it follows.
    pub uplink: Option<Uplink>,
    pub replicas: Vec<NodeReplica>,
    /// Streams behind copies, for main connections that have not come.
    awaited: AwaitedStreams,
    /// Counts the parts that it was given.
    pub part: u64,
    ping_ms: i64,
    record: u64,
    /// How often it took a copy, how often by a connection of its own, and went on without one.
    pub copies: u64,
    pub copies_apart: u64,
    pub resumptions: u64,
}

/// A replica's side.
pub struct Uplink {
    pub primary: usize,
    session: Option<Session>,
    retry_ms: i64,
}

struct Session {
    connection: u32,
    /// The connection that a copy comes by, if it is another one.
    copy_connection: Option<u32>,
    wants_channel: bool,
    machine: LinkMachine,
    history: Option<(String, u64)>,
    copy: Vec<u8>,
    in_transaction: bool,
    is_up: bool,
}

/// By what a primary has a copy fetched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CopyWay {
    /// The connection of the stream.
    Main,
    /// One of its own, as with Valkey.
    Valkey,
    /// One of its own, as with Redis.
    Redis,
}

/// A primary's side.
pub struct NodeReplica {
    /// It can take a copy by a connection of its own.
    is_capable: bool,
    /// It is such a connection.
    is_copy_channel: bool,
    /// The connection that its copy goes by.
    copy_client: Option<u32>,
    /// The connection that the stream behind this copy goes by, unasked.
    main_client: Option<u64>,
    /// It gets the stream unasked.
    awaits_stream: bool,
    /// Which node it is, and in which of its parts.
    pub node: (usize, u64),
    connection: u32,
    input: Vec<u8>,
    source: Source,
    /// Bytes behind the stream that it has, as it said.
    pub acked: u64,
    acked_ms: i64,
    /// A chunk of the feed that somebody has is not appended to: so it is with real sockets.
    held: Vec<SharedSlice>,
    has_acked: bool,
}

enum Source {
    Nothing,
    /// `stream`: it is the main connection, too.
    Copy {
        bytes: Vec<u8>,
        stream: Option<FeedReader>,
    },
    Stream(FeedReader),
    End,
}

/// What a node did to what it has.
pub enum Deed {
    /// Carried out the last bytes of `data`.
    Appended(usize),
    /// Took a copy of everything.
    Copied,
    /// Goes on with a history.
    Resumed,
}

impl ReplicaNode {
    pub fn new(at: usize, id: HistoryId) -> Self {
        let feed = Feed::default();
        feed.begin(0);
        Self {
            at,
            data: Vec::new(),
            history: History::new(id),
            feed,
            uplink: None,
            replicas: Vec::new(),
            awaited: AwaitedStreams::default(),
            part: 0,
            ping_ms: 0,
            record: 0,
            copies: 0,
            copies_apart: 0,
            resumptions: 0,
        }
    }

    pub fn offset(&self) -> u64 {
        self.feed.published()
    }

    /// Whether it has all that its primary told it is.
    pub fn is_up(&self) -> bool {
        let session = self.uplink.as_ref().and_then(|uplink| uplink.session.as_ref());
        self.uplink.is_none() || session.is_some_and(|session| session.is_up)
    }

    /// Carries out a command of a client.
    pub fn write(&mut self, bytes: &[u8]) {
        assert!(self.uplink.is_none());
        self.record += 1;
        self.data.extend_from_slice(bytes);
        self.feed.append(self.record, bytes);
        self.feed.publish(BACKLOG, u64::MAX, |_| {});
    }

    /// Becomes a primary; the history goes on under this name.
    pub fn lead(&mut self, network: &mut ReplicaNetwork, id: HistoryId) {
        self.leave(network);
        self.part += 1;
        self.uplink = None;
        self.history.rename(id, self.offset());
        self.dismiss(network);
    }

    /// Becomes a replica.
    pub fn follow(&mut self, network: &mut ReplicaNetwork, primary: usize) {
        self.leave(network);
        self.part += 1;
        self.uplink = Some(Uplink { primary, session: None, retry_ms: 0 });
        self.dismiss(network);
    }

    /// Ends, and starts with what it had on disk: everything, or nothing.
    pub fn restart(&mut self, network: &mut ReplicaNetwork, id: HistoryId, keeps: bool) {
        self.leave(network);
        self.dismiss(network);
        let offset = self.offset();
        if !keeps {
            let uplink = self.uplink.take();
            *self = Self { uplink, part: self.part + 1, ..Self::new(self.at, id) };
        } else if self.uplink.is_some() {
            self.history = History::new(self.history.id);
            self.feed.begin(offset);
        } else {
            // What it had beyond its disk its replicas may have: the name must be another.
            self.history = History::new(self.history.id);
            self.history.rename(id, offset);
            self.feed.begin(offset);
        }
    }

    fn leave(&mut self, network: &mut ReplicaNetwork) {
        if let Some(uplink) = &mut self.uplink
            && let Some(session) = uplink.session.take()
        {
            network.close(session.connection, CALLER);
            session.copy_connection.into_iter().for_each(|id| network.close(id, CALLER));
        }
    }

    fn dismiss(&mut self, network: &mut ReplicaNetwork) {
        for replica in self.replicas.drain(..) {
            network.close(replica.connection, CALLED);
        }
    }

    pub fn accept(&mut self, node: (usize, u64), connection: u32, now_ms: i64) {
        self.replicas.push(NodeReplica {
            is_capable: false,
            is_copy_channel: false,
            main_client: None,
            awaits_stream: false,
            copy_client: None,
            node,
            connection,
            input: Vec::new(),
            source: Source::Nothing,
            acked: 0,
            acked_ms: now_ms,
            held: Vec::new(),
            has_acked: false,
        });
    }

    /// Whether the stream must tell replicas that the primary is alive.
    pub fn pings(&mut self, now_ms: i64) -> bool {
        let pings = self.uplink.is_none() && now_ms >= self.ping_ms && !self.replicas.is_empty();
        if pings {
            self.ping_ms = now_ms + PING_MS;
        }
        pings
    }

    /// Does what is due. Returns the primary that it wants to be connected with.
    pub fn tick(&mut self, network: &mut ReplicaNetwork, now_ms: i64) -> Option<usize> {
        self.excuse(now_ms);
        self.awaited.look(now_ms);
        let timed_out = |replica: &NodeReplica| now_ms - replica.acked_ms > TIMEOUT_MS;
        for replica in self.replicas.extract_if(.., |replica| timed_out(replica)) {
            network.close(replica.connection, CALLED);
            self.awaited.copy_client_went(replica.connection.into(), now_ms);
        }
        self.feed_replicas(network, now_ms);
        let offset = self.offset();
        let uplink = self.uplink.as_mut()?;
        let Some(session) = &mut uplink.session else {
            return (now_ms >= uplink.retry_ms).then_some(uplink.primary);
        };
        if session.wants_channel {
            return Some(uplink.primary);
        }
        if session.machine.wants_ack(None, now_ms) {
            session.machine.acknowledge(offset, None, now_ms);
        }
        session.send(network);
        if session.machine.check_time(now_ms, TIMEOUT_MS).is_err() {
            self.lose(network, now_ms);
        }
        None
    }

    /// Replicas need not say anything as long as copies go to them.
    fn excuse(&mut self, now_ms: i64) {
        let copied_to: Vec<_> = self.replicas.iter().map(|replica| replica.connection).collect();
        for replica in &mut self.replicas {
            if !replica.has_acked && replica.copy_client.is_some_and(|id| copied_to.contains(&id)) {
                replica.acked_ms = now_ms;
            }
        }
    }

    fn lose(&mut self, network: &mut ReplicaNetwork, now_ms: i64) {
        self.leave(network);
        if let Some(uplink) = &mut self.uplink {
            uplink.retry_ms = now_ms + RETRY_MS;
        }
    }

    /// It is connected with its primary.
    pub fn connected(&mut self, connection: u32, now_ms: i64) {
        let position = Some((self.history.id.to_string(), self.offset()));
        let introduction =
            Introduction { position, takes_dual_channel: true, ..Introduction::default() };
        let uplink = self.uplink.as_mut().expect("it is a replica");
        if let Some(session) = &mut uplink.session {
            session.copy_connection = Some(connection);
            session.wants_channel = false;
            session.machine.channel_opened(now_ms);
            return;
        }
        uplink.session = Some(Session {
            connection,
            copy_connection: None,
            wants_channel: false,
            machine: LinkMachine::new(introduction, LIMITS, now_ms),
            history: None,
            copy: Vec::new(),
            in_transaction: false,
            is_up: false,
        });
    }

    /// Whether it takes what arrives by a connection.
    pub fn takes(&self, connection: u32) -> bool {
        let session = self.uplink.as_ref().and_then(|uplink| uplink.session.as_ref());
        session.is_none_or(|it| it.connection != connection || it.machine.has_room(false))
    }

    /// Something arrives from the primary.
    pub fn hear_primary(
        &mut self,
        network: &mut ReplicaNetwork,
        connection: u32,
        arrival: Arrival,
        now_ms: i64,
    ) -> Vec<Deed> {
        let mut deeds = Vec::new();
        let Some(uplink) = &mut self.uplink else { return deeds };
        let is_its = |session: &mut Session| {
            session.connection == connection || session.copy_connection == Some(connection)
        };
        let Some(mut session) = uplink.session.take_if(is_its) else {
            return deeds;
        };
        let Arrival::Bytes(bytes) = arrival else {
            // A copy that is whole may end.
            let is_over =
                session.connection != connection && session.machine.copy_channel().is_none();
            uplink.session = Some(session);
            if !is_over {
                self.lose(network, now_ms);
            }
            return deeds;
        };
        if session.connection == connection {
            session.machine.room(bytes.len())[..bytes.len()].copy_from_slice(&bytes);
            session.machine.received(bytes.len(), now_ms);
        } else if let Some(channel) = session.machine.copy_channel() {
            channel.room(bytes.len())[..bytes.len()].copy_from_slice(&bytes);
            channel.received(bytes.len(), now_ms);
        }
        let looked = self.look(network, &mut session, &mut deeds, now_ms);
        if session.machine.wants_ack(None, now_ms) {
            session.machine.acknowledge(self.offset(), None, now_ms);
        }
        session.send(network);
        if let Some(uplink) = &mut self.uplink {
            uplink.session = Some(session);
        }
        if let Err(end) = looked {
            assert!(!end.is_damage, "an honest primary: {}", end.why);
            self.lose(network, now_ms);
        }
        deeds
    }

    fn look(
        &mut self,
        network: &mut ReplicaNetwork,
        session: &mut Session,
        deeds: &mut Vec<Deed>,
        now_ms: i64,
    ) -> Result<(), GiveUp> {
        loop {
            match session.machine.next_event()? {
                LinkEvent::Nothing => return Ok(()),
                LinkEvent::WillCopy => {}
                LinkEvent::WantsChannel => session.wants_channel = true,
                LinkEvent::GoesOn { id } => {
                    if let Some(id) = id
                        && self.history.rename(parse(&id), self.offset())
                    {
                        self.dismiss(network);
                    }
                    session.is_up = true;
                    self.resumptions += 1;
                    deeds.push(Deed::Resumed);
                }
                LinkEvent::CopyBegins { history, .. } => session.history = history,
                LinkEvent::Copy(bytes) => session.copy.extend_from_slice(bytes),
                LinkEvent::CopyEnds => {
                    let (id, offset) = session.history.take().expect("the primary told it");
                    self.data = std::mem::take(&mut session.copy);
                    self.dismiss(network);
                    self.history.take(parse(&id));
                    self.feed.end();
                    self.feed.begin(offset);
                    session.machine.loaded(now_ms);
                    session.is_up = true;
                    self.copies += 1;
                    if let Some(connection) = session.copy_connection.take() {
                        network.close(connection, CALLER);
                        self.copies_apart += 1;
                    }
                    deeds.push(Deed::Copied);
                }
                LinkEvent::Commands(commands) => {
                    let mut good = 0;
                    for (args, end) in commands.iter() {
                        match args[0] {
                            b"MULTI" => session.in_transaction = true,
                            b"EXEC" => session.in_transaction = false,
                            _ => {}
                        }
                        if !session.in_transaction {
                            good = end;
                        }
                    }
                    self.data.extend_from_slice(&commands.bytes[..good]);
                    self.feed.append_relayed(&commands.bytes[..good]);
                    self.feed.publish(BACKLOG, u64::MAX, |_| {});
                    session.machine.applied(good)?;
                    deeds.push(Deed::Appended(good));
                }
            }
        }
    }

    /// Something arrives from a replica.
    pub fn hear_replica(
        &mut self,
        network: &mut ReplicaNetwork,
        connection: u32,
        arrival: Arrival,
        now_ms: i64,
        mark: Option<String>,
        way: CopyWay,
    ) {
        let Some(at) = self.replicas.iter().position(|r| r.connection == connection) else {
            return;
        };
        let Arrival::Bytes(bytes) = arrival else {
            network.close(connection, CALLED);
            self.replicas.remove(at);
            self.awaited.copy_client_went(connection.into(), now_ms);
            return;
        };
        self.replicas[at].input.extend_from_slice(&bytes);
        while let Some(words) = next_command(&mut self.replicas[at].input) {
            let answer = self.answer(at, &words, now_ms, mark.as_deref(), way);
            network.send(connection, CALLED, &answer);
        }
        self.feed_replicas(network, now_ms);
    }

    fn answer(
        &mut self,
        at: usize,
        words: &[String],
        now_ms: i64,
        mark: Option<&str>,
        way: CopyWay,
    ) -> Vec<u8> {
        let replica = &mut self.replicas[at];
        replica.acked_ms = now_ms;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words[..] {
            ["PING"] => return b"+PONG\r\n".to_vec(),
            ["REPLCONF", "ACK", offset, ..] => {
                replica.acked = replica.acked.max(offset.parse().expect("a number"));
                replica.has_acked = true;
                return Vec::new();
            }
            ["REPLCONF", "set-rdb-client-id", client] => {
                let client: u32 = client.parse().expect("a number");
                if !self.awaited.has(client.into()) {
                    return b"-ERR Unrecognized RDB client id\r\n".to_vec();
                }
                replica.copy_client = Some(client);
                return b"+OK\r\n".to_vec();
            }
            ["REPLCONF", ref options @ ..] => {
                replica.is_capable |= options.contains(&"dual-channel");
                replica.is_copy_channel |= options.contains(&"rdb-channel");
                let main = options.chunks_exact(2).find(|pair| pair[0] == "main-ch-client-id");
                if let Some([_, main]) = main {
                    replica.main_client = Some(main.parse().expect("a number"));
                }
                return b"+OK\r\n".to_vec();
            }
            ["PSYNC", id, first] => {
                let offset = first.parse::<i64>().expect("a number").max(1) as u64 - 1;
                let is_ours = self.history.holds(id.as_bytes(), offset);
                let stream = is_ours.then(|| self.feed.reader(offset, None)).flatten();
                if let Some(stream) = stream {
                    replica.source = Source::Stream(stream);
                    let client = replica.copy_client;
                    replica.has_acked = !client.is_some_and(|id| self.awaited.came(id.into()));
                    return format!("+CONTINUE {}\r\n", self.history.id).into_bytes();
                }
                match way {
                    CopyWay::Valkey if replica.is_capable => {
                        return b"+DUALCHANNELSYNC\r\n".to_vec();
                    }
                    CopyWay::Redis if replica.is_capable => {
                        replica.awaits_stream = true;
                        return format!("+RDBCHANNELSYNC {}\r\n", replica.connection).into_bytes();
                    }
                    _ => {}
                }
            }
            ["SYNC"] => {}
            _ => panic!("{words:?}"),
        }
        let offset = self.feed.end_offset();
        let mut stream = self.feed.reader(offset, None);
        let (id, connection) = (self.history.id, replica.connection);
        if replica.is_copy_channel {
            let stream = stream.take().expect("the stream is there");
            self.awaited.keep(connection.into(), replica.main_client, stream);
        }
        let head = if replica.is_copy_channel && replica.main_client.is_none() {
            format!("$ENDOFF:{offset} {id} -1 {connection}")
        } else {
            format!("+FULLRESYNC {id} {offset}")
        };
        let header = match mark {
            Some(mark) => format!("$EOF:{mark}"),
            None => format!("${}", self.data.len()),
        };
        let head = format!("\n{head}\r\n\n{header}\r\n");
        let bytes = [head.as_bytes(), &self.data, mark.unwrap_or("").as_bytes()].concat();
        replica.source = Source::Copy { bytes, stream };
        Vec::new()
    }

    /// Sends replicas what there is room for.
    pub fn feed_replicas(&mut self, network: &mut ReplicaNetwork, now_ms: i64) {
        for replica in &mut self.replicas {
            let room = network.room(replica.connection, CALLED);
            if replica.awaits_stream
                && let Some((_, stream)) = self.awaited.take(replica.connection.into())
            {
                replica.awaits_stream = false;
                replica.source = Source::Stream(stream);
            }
            replica.source = match std::mem::replace(&mut replica.source, Source::Nothing) {
                Source::Nothing => Source::Nothing,
                Source::Copy { mut bytes, stream } => {
                    let len = room.min(bytes.len());
                    network.send(replica.connection, CALLED, &bytes[..len]);
                    bytes.drain(..len);
                    match stream {
                        None if bytes.is_empty() => Source::End,
                        Some(stream) if bytes.is_empty() && replica.has_acked => {
                            Source::Stream(stream)
                        }
                        stream => Source::Copy { bytes, stream },
                    }
                }
                Source::Stream(stream) => {
                    if room > 0 {
                        replica.held.clear();
                        self.feed.read(&stream, room as u64, |slice| replica.held.push(slice));
                        for slice in &replica.held {
                            network.send(replica.connection, CALLED, slice);
                        }
                    }
                    Source::Stream(stream)
                }
                Source::End => Source::End,
            };
        }
        let is_over = |replica: &mut NodeReplica| matches!(replica.source, Source::End);
        for replica in self.replicas.extract_if(.., is_over) {
            network.close(replica.connection, CALLED);
            self.awaited.copy_client_went(replica.connection.into(), now_ms);
        }
    }

    /// The nodes that have acknowledged an offset.
    pub fn acknowledged(&self, offset: u64) -> Vec<(usize, u64)> {
        let has = |replica: &&NodeReplica| {
            matches!(replica.source, Source::Stream(_)) && replica.acked >= offset
        };
        self.replicas.iter().filter(has).map(|replica| replica.node).collect()
    }
}

impl Session {
    fn send(&mut self, network: &mut ReplicaNetwork) {
        network.send(self.connection, CALLER, self.machine.output());
        self.machine.output().clear();
        if let (Some(connection), Some(channel)) =
            (self.copy_connection, self.machine.copy_channel())
        {
            network.send(connection, CALLER, channel.output());
            channel.output().clear();
        }
    }
}

fn parse(id: &str) -> HistoryId {
    HistoryId::parse(id.as_bytes()).expect("the machine looks at names")
}

fn next_command(input: &mut Vec<u8>) -> Option<Vec<String>> {
    while input.first() == Some(&b'\n') {
        input.remove(0);
    }
    let (mut position, mut args) = (0, Vec::new());
    let step = Parser::default().next(input, &mut position, &Limits::new(1000), &mut args);
    if !matches!(step, Ok(ParseStep::Complete)) {
        return None;
    }
    let words = args.iter().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect();
    input.drain(..position);
    Some(words)
}
