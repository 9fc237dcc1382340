//! A replica's connection to its primary: one thread that receives all keys, and then carries out
//! the stream.
//!
//! The thread ends when the server gets another part. Whoever decides that holds the gate, so
//! nothing of the old primary is carried out behind it.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use bobbin_resp::{Limits, Parser, Step};
use bobbin_sync::Mutex;

use super::handshake::{Handshake, Introduction, NextStep};
use super::{FailoverPhase, Replication};
use crate::base::cores::CoreWork;
use crate::base::files::{self, DATA_MODE, disk};
use crate::engine::lazyfree;
use crate::engine::log::append_command;
use crate::engine::log::feed::HistoryId;
use crate::engine::server::{Server, Switch, background};
use crate::persistence::aof::Aof;
use crate::persistence::aof::place::LogPlace;
use crate::persistence::aof::replay::Replay;
use crate::persistence::position::StreamPosition;
use crate::persistence::{Persistence, aof, load};

/// The connection to a primary.
pub struct Link {
    pub host: String,
    pub port: u16,
    /// `LinkState`.
    state: AtomicU8,
    /// The server has another part now.
    is_over: AtomicBool,
    /// What is connected at the moment: so that the thread need not be waited for.
    socket: Mutex<Option<TcpStream>>,
    /// When something came last (Unix ms).
    pub heard_ms: AtomicI64,
    /// Since when the link is down (Unix ms).
    pub down_since_ms: AtomicI64,
}

/// How far the connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum LinkState {
    /// There is none.
    Connect,
    Connecting,
    /// All keys are received.
    Sync,
    Connected,
}

/// What the thread has at hand while it is connected.
struct Session<'a> {
    server: &'static Server,
    link: &'a Link,
    replay: &'a mut Replay,
    socket: TcpStream,
    /// Bytes that came and are not used; `at` of them are.
    input: Vec<u8>,
    at: usize,
    acked: Instant,
    /// Records of our own log, and up to which offset they have the stream: those that are not
    /// known to be on disk, and the last that is.
    logged: VecDeque<(u64, u64)>,
    /// The record of our own log behind which it says how far the stream is.
    remarked: u64,
}

/// How long the thread waits before it tries again.
const RETRY: Duration = Duration::from_secs(1);
/// How often a replica says how far it is.
const ACK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a read waits at most: then the thread looks at the clock.
const READ_WAIT: Duration = Duration::from_millis(100);
/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;
/// Bytes of a line of the handshake, at most.
const LINE_MAX: usize = 64 * 1024;
/// Commands that are carried out while nobody else gets the gate.
const BATCH: usize = 64;
/// Marks of our own log that are kept.
const LOGGED_MAX: usize = 1024;
/// Bytes that mark the end of a copy whose length is not known.
const MARK_BYTES: usize = 40;

impl Link {
    /// Starts the thread that follows this primary.
    pub fn start(
        server: &'static Server,
        host: String,
        port: u16,
        is_merged: Receiver<()>,
    ) -> Result<Arc<Self>, String> {
        let link = Arc::new(Self {
            host,
            port,
            state: AtomicU8::new(LinkState::Connect as u8),
            is_over: AtomicBool::new(false),
            socket: Mutex::new(None),
            heard_ms: AtomicI64::new(0),
            down_since_ms: AtomicI64::new(server.clock.now_ms()),
        });
        let run = Arc::clone(&link);
        background::start("bobbin-replica", CoreWork::Background, move || {
            run.run(server, &is_merged)
        })
        .map_err(|error| format!("Can't start a thread: {error}"))?;
        Ok(link)
    }

    pub fn state(&self) -> LinkState {
        match self.state.load(Ordering::SeqCst) {
            0 => LinkState::Connect,
            1 => LinkState::Connecting,
            2 => LinkState::Sync,
            _ => LinkState::Connected,
        }
    }

    fn set_state(&self, server: &Server, state: LinkState) {
        self.state.store(state as u8, Ordering::SeqCst);
        if !self.is_over() {
            server.switches.set(Switch::LINK_DOWN, state != LinkState::Connected);
        }
    }

    /// Nothing of this primary is carried out any more. The gate is held.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(socket) = &*self.socket.lock() {
            // It may be closed already.
            socket.shutdown(Shutdown::Both).ok();
        }
    }

    /// Breaks the connection, which is made again; whether there was one.
    pub fn cut(&self) -> bool {
        let socket = self.socket.lock();
        let connected = socket.as_ref().filter(|_| self.state() == LinkState::Connected);
        connected.is_some_and(|socket| socket.shutdown(Shutdown::Both).is_ok())
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn run(&self, server: &'static Server, is_merged: &Receiver<()>) {
        // What was changed before belongs to the stream. An error: the server ends.
        if is_merged.recv().is_err() {
            return;
        }
        let mut replay = match Replay::following(server) {
            Ok(replay) => replay,
            Err(error) => return log::warn!("Can't follow a primary: {error}"),
        };
        replay.data.enter();
        replay.data.hold_gate_anyway();
        if !self.is_over() {
            aof::follow_readers(server);
        }
        replay.data.release();
        replay.data.leave();
        while !self.is_over() {
            if let Err(error) = self.follow(server, &mut replay)
                && !self.is_over()
            {
                log::warn!("Connection with primary lost: {error}");
            }
            replay.abandon_transaction();
            *self.socket.lock() = None;
            if self.state() == LinkState::Connected {
                self.down_since_ms.store(server.clock.now_ms(), Ordering::Relaxed);
            }
            self.set_state(server, LinkState::Connect);
            if !self.is_over() {
                std::thread::sleep(RETRY);
            }
        }
    }

    fn follow(&self, server: &'static Server, replay: &mut Replay) -> io::Result<()> {
        self.set_state(server, LinkState::Connecting);
        log::info!("Connecting to PRIMARY {}:{}", self.host, self.port);
        let timeout = Duration::from_secs(server.config.repl_timeout().max(1) as u64);
        let socket = self.connect(timeout)?;
        *self.socket.lock() = Some(socket.try_clone()?);
        if self.is_over() {
            return Ok(());
        }
        let session = Session {
            server,
            link: self,
            replay,
            socket,
            input: Vec::new(),
            at: 0,
            acked: Instant::now(),
            logged: VecDeque::new(),
            remarked: 0,
        };
        session.follow()
    }

    fn connect(&self, timeout: Duration) -> io::Result<TcpStream> {
        let addresses = (self.host.as_str(), self.port).to_socket_addrs()?;
        let mut last = io::Error::other("the name has no address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    socket.set_read_timeout(Some(READ_WAIT))?;
                    socket.set_write_timeout(Some(timeout))?;
                    return Ok(socket);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

impl Session<'_> {
    fn follow(mut self) -> io::Result<()> {
        let server = self.server;
        let replication = Replication::of(server);
        let (mut handshake, first) = Handshake::begin(introduction(server));
        self.say(&first)?;
        loop {
            let line = self.line()?;
            match handshake.answer(&line) {
                NextStep::Say(words) => self.say(&words)?,
                NextStep::Retry(why) | NextStep::Refused(why) => {
                    if handshake.asked_for_stream() {
                        replication.target_answered(server, &mut self.replay.data, false);
                    }
                    return Err(io::Error::other(why));
                }
                NextStep::GoOn { id } => {
                    self.replay.select(server.feed.relayed_database());
                    log::info!("Successful partial resynchronization with primary.");
                    if let Some(id) = id.and_then(|id| HistoryId::parse(id.as_bytes())) {
                        replication.rename(server, id, server.feed.published());
                    }
                    replication.target_answered(server, &mut self.replay.data, true);
                    break;
                }
                NextStep::ReceiveAll { id, offset } => {
                    log::info!("Full resync from primary: {id}:{offset}");
                    replication.target_answered(server, &mut self.replay.data, true);
                    self.link.set_state(server, LinkState::Sync);
                    self.receive_all(&id, offset)?;
                    break;
                }
            }
        }
        self.link.set_state(server, LinkState::Connected);
        self.carry_out()
    }

    /// Receives all keys into a file, and takes them for those that are here.
    fn receive_all(&mut self, id: &str, offset: u64) -> io::Result<()> {
        let path = PathBuf::from(format!("temp-{}-sync.rdb", std::process::id()));
        let received = self.receive_file(&path);
        let loaded = received.and_then(|()| self.load(&path, id, offset));
        if let Err(error) = disk::remove_file(&path) {
            log::debug!("Can't remove {}: {error}", path.display());
        }
        loaded
    }

    fn receive_file(&mut self, path: &std::path::Path) -> io::Result<()> {
        let header = loop {
            let line = self.line()?;
            // Empty lines say that the primary is alive.
            if !line.is_empty() {
                break line;
            }
        };
        let Some(what) = header.strip_prefix(b"$") else {
            let text = String::from_utf8_lossy(&header).into_owned();
            return Err(io::Error::other(format!("no copy of the keys, but: {text}")));
        };
        let mut file = files::create_anew(path, DATA_MODE)?;
        if let Some(mark) = what.strip_prefix(b"EOF:") {
            let mark: [u8; MARK_BYTES] = mark
                .try_into()
                .map_err(|_| io::Error::other("the mark of the copy is too short"))?;
            return self.receive_until(&mark, &mut file);
        }
        let length = std::str::from_utf8(what).ok().and_then(|text| text.parse::<u64>().ok());
        let mut left = length.ok_or_else(|| io::Error::other("the copy has no length"))?;
        while left > 0 {
            self.fill()?;
            let part = &self.input[self.at..];
            let part = &part[..part.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
            file.write_all(part)?;
            left -= part.len() as u64;
            self.at += part.len();
        }
        Ok(())
    }

    /// Receives bytes up to a mark, behind which nothing comes before we answer.
    fn receive_until(&mut self, mark: &[u8], file: &mut files::File) -> io::Result<()> {
        loop {
            let rest = &self.input[self.at..];
            if rest.ends_with(mark) {
                file.write_all(&rest[..rest.len() - mark.len()])?;
                self.at = self.input.len();
                return Ok(());
            }
            // The mark may have begun to arrive.
            let sure = rest.len().saturating_sub(mark.len());
            file.write_all(&rest[..sure])?;
            self.at += sure;
            self.fill_more()?;
        }
    }

    /// Takes the keys of a file for those that are here; clients are told to wait.
    fn load(&mut self, path: &std::path::Path, id: &str, offset: u64) -> io::Result<()> {
        let server = self.server;
        let file = disk::open(path)?;
        let data = &mut self.replay.data;
        data.enter();
        data.hold_gate_anyway();
        if self.link.is_over() {
            data.release();
            data.leave();
            return Ok(());
        }
        load::begin_loading(server, &file);
        let flushed = data.flush_all();
        server.functions.flush();
        server.feed.end();
        data.release();
        data.leave();
        lazyfree::free_databases(flushed);
        // Keys whose time has come die when the primary says so.
        let loaded = load::load_keeping_expired(server, file);
        let outcome = match loaded {
            Ok(loaded) => {
                load::log_loaded(server, loaded);
                let database =
                    Persistence::of(server).loading.stream_database.swap(0, Ordering::Relaxed);
                let data = &mut self.replay.data;
                data.enter();
                data.hold_gate_anyway();
                if !self.link.is_over() {
                    let id = HistoryId::parse(id.as_bytes()).unwrap_or_default();
                    Replication::of(server).take_history(server, id);
                    server.feed.begin(offset);
                    server.feed.relay(true);
                    server.feed.set_relayed_database(database);
                    aof::replace_log(server, data);
                }
                data.release();
                data.leave();
                self.replay.select(database);
                Ok(())
            }
            Err(error) => Err(io::Error::other(error)),
        };
        load::end_loading(server);
        log::info!("PRIMARY <-> REPLICA sync: Finished");
        outcome
    }

    /// Carries out the stream, for as long as there is one.
    fn carry_out(&mut self) -> io::Result<()> {
        let limits = Limits { multibulk_len_max: usize::MAX, ..Limits::new(usize::MAX) };
        let mut parser = Parser::default();
        // The stream begins here.
        self.input.drain(..self.at);
        self.at = 0;
        self.acknowledge()?;
        loop {
            let is_asked = self.carry_out_input(&mut parser, &limits)?;
            if is_asked || self.acked.elapsed() >= ACK_INTERVAL {
                self.acknowledge()?;
            }
            self.fill_more()?;
        }
    }

    /// Carries out what has come of the stream; whether the primary asks how far we are.
    fn carry_out_input(&mut self, parser: &mut Parser, limits: &Limits) -> io::Result<bool> {
        let mut is_asked = false;
        self.replay.look_around();
        loop {
            // While it has entered nobody sees what is carried out and not in the feed.
            self.replay.data.enter();
            let batch = self.carry_out_batch(parser, limits);
            self.replay.data.leave();
            let (more, asks) = batch?;
            is_asked |= asks;
            self.server.publish_feed();
            if !more {
                return Ok(is_asked);
            }
        }
    }

    /// Carries out some commands; whether there may be more, and whether the primary asks.
    fn carry_out_batch(
        &mut self,
        parser: &mut Parser,
        limits: &Limits,
    ) -> io::Result<(bool, bool)> {
        let (mut good, mut is_asked, mut more) = (0, false, true);
        for _ in 0..BATCH {
            let mut args = Vec::new();
            let mut position = self.at;
            let step = parser.next(&self.input, &mut position, limits, &mut args);
            match step.map_err(|error| io::Error::other(format!("{error:?}")))? {
                Step::Incomplete { .. } => {
                    more = false;
                    break;
                }
                Step::Empty => {}
                Step::Complete => {
                    if self.link.is_over() {
                        return Err(io::Error::other("the server has another part"));
                    }
                    is_asked |= is_getack(&args);
                    if !args[0].eq_ignore_ascii_case(b"REPLCONF")
                        && let Err(complaint) = self.replay.run_entered(&args)
                    {
                        let name = String::from_utf8_lossy(args[0]);
                        log::warn!("The primary's {name} was refused here: {complaint}");
                    }
                }
                _ => return Err(io::Error::other("the stream has something else than commands")),
            }
            self.at = position;
            if !self.replay.is_in_transaction() {
                good = position;
            }
        }
        let server = self.server;
        server.feed.set_relayed_database(self.replay.database());
        server.feed.append_relayed(&self.input[..good]);
        self.remark_place();
        if Aof::of(server).is_on() {
            let mark = (server.log.last(), server.feed.end_offset());
            if self.logged.len() == LOGGED_MAX {
                // What is on disk is told a little later, then.
                self.logged.pop_back();
            }
            self.logged.push_back(mark);
        }
        self.input.drain(..good);
        self.at -= good;
        Ok((more, is_asked))
    }

    /// Has our own log say how far the stream is, behind what was carried out. Nobody else gets the
    /// gate meanwhile.
    fn remark_place(&mut self) {
        let (server, last) = (self.server, self.server.log.last());
        if !Aof::of(server).is_on() || last == self.remarked {
            return;
        }
        let (feed, mut line) = (&server.feed, Vec::new());
        let (id, offset, database) = (feed.id(), feed.end_offset(), feed.relayed_database());
        LogPlace::Exactly(StreamPosition { id, offset, database }).append(&mut line);
        self.replay.data.recorder.remark(&line);
        self.remarked = server.log.last();
    }

    /// Says how far the replica is.
    fn acknowledge(&mut self) -> io::Result<()> {
        self.acked = Instant::now();
        let offset = self.server.feed.published().to_string();
        let mut words = vec![b"REPLCONF".to_vec(), b"ACK".to_vec(), offset.into_bytes()];
        if let Some(offset) = self.on_disk() {
            words.extend([b"FACK".to_vec(), offset.to_string().into_bytes()]);
        }
        self.say(&words)
    }

    /// The offset up to which the stream is on our disk, if it goes there.
    fn on_disk(&mut self) -> Option<u64> {
        let aof = Aof::of(self.server);
        if !aof.is_on() {
            self.logged.clear();
            return None;
        }
        let kept = aof.kept()?;
        while self.logged.get(1).is_some_and(|(number, _)| *number <= kept) {
            self.logged.pop_front();
        }
        self.logged.front().filter(|(number, _)| *number <= kept).map(|(_, offset)| *offset)
    }

    fn say(&mut self, words: &[Vec<u8>]) -> io::Result<()> {
        let words: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
        let mut bytes = Vec::new();
        append_command(&mut bytes, &words);
        self.socket.write_all(&bytes)
    }

    /// The next line, without its end.
    fn line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let rest = &self.input[self.at..];
            if let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
                let line = rest[..end].trim_ascii_end().to_vec();
                self.at += end + 1;
                return Ok(line);
            }
            if rest.len() > LINE_MAX {
                return Err(io::Error::other("the primary's line is too long"));
            }
            self.fill_more()?;
        }
    }

    /// Has at least one byte that is not used.
    fn fill(&mut self) -> io::Result<()> {
        if self.at == self.input.len() { self.fill_more() } else { Ok(()) }
    }

    /// Receives more bytes; an error if none come for `repl-timeout`.
    fn fill_more(&mut self) -> io::Result<()> {
        if self.at > 0 && self.at == self.input.len() {
            self.input.clear();
            self.at = 0;
        }
        let started = Instant::now();
        loop {
            if self.link.is_over() {
                return Err(io::Error::other("the server has another primary"));
            }
            let len = self.input.len();
            self.input.resize(len + READ_BYTES, 0);
            let read = self.socket.read(&mut self.input[len..]);
            self.input.truncate(len + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {
                    self.link.heard_ms.store(self.server.clock.advance(), Ordering::Relaxed);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let timeout_s = self.server.config.repl_timeout().max(1) as u64;
                    if started.elapsed() > Duration::from_secs(timeout_s) {
                        return Err(io::Error::other("Timeout: no data nor PING received"));
                    }
                    let connected = self.link.state() == LinkState::Connected;
                    if connected && self.acked.elapsed() >= ACK_INTERVAL {
                        self.acknowledge()?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_getack(args: &[&[u8]]) -> bool {
    matches!(args, [name, word, ..]
        if name.eq_ignore_ascii_case(b"REPLCONF") && word.eq_ignore_ascii_case(b"GETACK"))
}

/// What the server tells its primary of itself.
fn introduction(server: &Server) -> Introduction {
    let config = &server.config;
    let (user, password) = (config.primaryuser(), config.primaryauth());
    let mut credentials = Vec::new();
    if !password.is_empty() {
        if !user.is_empty() {
            credentials.push(user.to_vec());
        }
        credentials.push(password.to_vec());
    }
    let port = match config.replica_announce_port() {
        0 => config.port(),
        port => port,
    };
    Introduction {
        credentials,
        port: port as u16,
        address: config.replica_announce_ip().to_vec(),
        position: Replication::of(server).position(server),
        hands_over: Replication::of(server).failover_phase() == FailoverPhase::InProgress,
    }
}
