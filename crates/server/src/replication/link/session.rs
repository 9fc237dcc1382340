//! One connection to a primary: the socket and the clock that a [`LinkMachine`] needs, and what its
//! events do to the server.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::apply::Applier;
use super::machine::{GiveUp, LinkEvent, LinkLimits, LinkMachine};
use super::parts::Helpers;
use super::wire::{self, READ_WAIT, Wire, is_pause};
use super::{Link, LinkState, introduction};
use crate::config::ClientClass;
use crate::engine::log::history::HistoryId;
use crate::engine::server::{Server, Switch};
use crate::persistence::aof::Aof;
use crate::persistence::aof::replay::Replay;
use crate::replication::Replication;

/// What the thread has at hand while it is connected.
pub(super) struct Session<'a> {
    pub server: &'static Server,
    pub link: &'a Link,
    pub replay: &'a mut Replay,
    helpers: &'a mut Helpers,
    pub machine: LinkMachine,
    wire: Wire,
    /// The connection that a copy comes by, where that is not the same.
    copy_wire: Option<Wire>,
    /// As much of the stream was gathered as is kept.
    is_full: bool,
    begun: Instant,
    /// Records of our own log, and up to which offset they have the stream: those that are not
    /// known to be on disk, and the last that is.
    logged: VecDeque<(u64, u64)>,
    /// The record of our own log behind which it says how far the stream is.
    remarked: u64,
}

/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;
/// So often it is read at most while a copy is loaded, before that goes on.
const READS_MAX: usize = 16;
/// After commands that took longer than this fewer are carried out at once.
const SLOW: Duration = Duration::from_millis(5);
/// Marks of our own log that are kept.
const LOGGED_MAX: usize = 1024;

impl<'a> Session<'a> {
    pub fn new(
        server: &'static Server,
        link: &'a Link,
        (replay, helpers): (&'a mut Replay, &'a mut Helpers),
        wire: Wire,
        asks_for_all: bool,
    ) -> Self {
        let mut introduction = introduction(server);
        if asks_for_all {
            introduction.position = None;
        }
        let machine = LinkMachine::new(introduction, limits(server), 0);
        let begun = Instant::now();
        Self {
            server,
            link,
            replay,
            helpers,
            machine,
            wire,
            copy_wire: None,
            is_full: false,
            begun,
            logged: VecDeque::new(),
            remarked: 0,
        }
    }

    /// Follows the primary until something ends that.
    pub fn follow(mut self) -> Result<(), GiveUp> {
        let (server, replication) = (self.server, Replication::of(self.server));
        loop {
            self.wait_in_pause()?;
            let event = match self.machine.next_event() {
                Ok(event) => event,
                Err(end) => {
                    if self.machine.asked_for_stream() {
                        replication.target_answered(server, &mut self.replay.data, false);
                    }
                    return Err(end);
                }
            };
            match event {
                LinkEvent::Nothing => {
                    self.acknowledge_in_time();
                    self.receive()?;
                }
                LinkEvent::GoesOn { id } => {
                    self.replay.select(server.feed.relayed_database());
                    log::info!("Successful partial resynchronization with primary.");
                    if let Some(id) = id.and_then(|id| HistoryId::parse(id.as_bytes())) {
                        self.with_gate(|_| replication.follow_name(server, id))?;
                    }
                    replication.target_answered(server, &mut self.replay.data, true);
                    self.note_log();
                    self.link.set_state(server, LinkState::Connected);
                }
                LinkEvent::WillCopy => {
                    self.link.sync.begin();
                    self.link.set_state(server, LinkState::Sync);
                    replication.target_answered(server, &mut self.replay.data, true);
                }
                LinkEvent::WantsChannel => {
                    self.link.sync.begin();
                    replication.target_answered(server, &mut self.replay.data, true);
                    self.open_channel()?;
                }
                LinkEvent::CopyBegins { history, database, length } => {
                    self.take_copy(history, database, length)?;
                    self.machine.loaded(self.now_ms());
                    self.note_log();
                    self.link.set_state(server, LinkState::Connected);
                }
                // All of a copy is taken where it begins.
                LinkEvent::Copy(_) | LinkEvent::CopyEnds => {}
                LinkEvent::Commands(commands) => {
                    let mut applier = Applier {
                        server,
                        link: self.link,
                        replay: self.replay,
                        helpers: self.helpers,
                        remarked: &mut self.remarked,
                    };
                    let begun = Instant::now();
                    let carried_out = applier.carry_out(&commands)?;
                    self.machine.applied(carried_out)?;
                    self.machine.note_slow(begun.elapsed() > SLOW);
                    self.link.sync.gathered(self.machine.gathered_bytes());
                    self.note_log();
                    self.acknowledge_in_time();
                }
            }
        }
    }

    /// As long as clients may not write nothing of the stream is carried out either.
    fn wait_in_pause(&mut self) -> Result<(), GiveUp> {
        let mut has_waited = false;
        while self.machine.streams() && is_paused(self.server) {
            has_waited = true;
            self.acknowledge_in_time();
            if self.machine.has_room(true) {
                self.receive()?;
            } else {
                self.check_part()?;
                self.send()?;
                std::thread::sleep(READ_WAIT);
            }
            self.link.held_bytes.store(self.machine.kept_bytes(), Ordering::Relaxed);
        }
        if has_waited {
            self.link.held_bytes.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Milliseconds of the machine's clock.
    pub fn now_ms(&self) -> i64 {
        self.begun.elapsed().as_millis() as i64
    }

    /// Sends what there is, and waits for a moment for bytes to come.
    pub fn receive(&mut self) -> Result<(), GiveUp> {
        self.send()?;
        self.check_part()?;
        if self.machine.copy_channel().is_some() {
            return self.receive_both();
        }
        self.copy_wire = None;
        if self.read_main()? {
            return Ok(());
        }
        self.machine.check_time(self.now_ms(), self.timeout_ms())
    }

    /// Whether the server is to follow the primary still.
    fn check_part(&self) -> Result<(), GiveUp> {
        if self.link.is_over() {
            return Err(GiveUp::because("the server has another part now".to_owned()));
        }
        Ok(())
    }

    /// Waits for a moment for bytes to come by either connection.
    fn receive_both(&mut self) -> Result<(), GiveUp> {
        let main = Some(&self.wire).filter(|_| self.machine.has_room(false));
        let ready = wire::wait([main, self.copy_wire.as_ref()], READ_WAIT);
        let [main, copy] = ready.map_err(|error| lost(&error))?;
        if main {
            self.read_main()?;
        }
        if copy {
            self.read_copy();
        }
        self.note_gathered();
        self.machine.check_time(self.now_ms(), self.timeout_ms())
    }

    /// Takes what has come of the stream while a copy is loaded that came by a connection of its
    /// own. If it breaks, that is seen when the copy is in its place.
    pub fn gather(&mut self) {
        self.copy_wire = None;
        for _ in 0..READS_MAX {
            if !self.machine.gathers() || !self.machine.has_room(false) {
                break;
            }
            let ready = wire::wait([Some(&self.wire), None], Duration::ZERO);
            if !ready.is_ok_and(|[main, _]| main) || !self.read_main().is_ok_and(|came| came) {
                break;
            }
        }
        self.note_gathered();
    }

    /// Reads what comes from the primary; whether something came.
    fn read_main(&mut self) -> Result<bool, GiveUp> {
        match self.wire.read(self.machine.room(READ_BYTES)) {
            Ok(0) => Err(lost(&io::ErrorKind::UnexpectedEof.into())),
            Ok(len) => {
                self.machine.received(len, self.now_ms());
                self.link.heard(self.server.clock.advance(), len);
                self.server.services.replication_traffic.add_received(len);
                Ok(true)
            }
            Err(error) if is_pause(&error) => Ok(false),
            Err(error) => Err(lost(&error)),
        }
    }

    /// Reads what comes of the copy. The primary closes that connection once all is sent: whether
    /// all has come then is seen by the machine.
    fn read_copy(&mut self) {
        let now_ms = self.now_ms();
        let (Some(wire), Some(channel)) = (&mut self.copy_wire, self.machine.copy_channel()) else {
            return;
        };
        let end = match wire.read(channel.room(READ_BYTES)) {
            Ok(0) => io::ErrorKind::UnexpectedEof.into(),
            Ok(len) => {
                channel.received(len, now_ms);
                self.server.services.replication_traffic.add_received(len);
                self.link.heard_ms.store(self.server.clock.advance(), Ordering::Relaxed);
                return;
            }
            Err(error) if is_pause(&error) => return,
            Err(error) => error,
        };
        channel.ended(lost(&end));
        self.copy_wire = None;
    }

    /// Connects once more, for a copy.
    fn open_channel(&mut self) -> Result<(), GiveUp> {
        log::info!("Dual channel replication: PSYNC is not possible, initialize RDB channel.");
        let wire = Wire::connect(self.server, &self.link.host, self.link.port);
        self.fetch_by(wire.map_err(|error| lost(&error))?);
        Ok(())
    }

    /// A copy comes by this connection.
    pub(super) fn fetch_by(&mut self, wire: Wire) {
        self.copy_wire = Some(wire);
        self.machine.channel_opened(self.now_ms());
    }

    /// Tells how much of the stream is kept, and that it is. As in Valkey the link is in its
    /// handshake before that.
    fn note_gathered(&mut self) {
        if self.machine.gathers() && self.link.state() == LinkState::Handshake {
            self.link.set_state(self.server, LinkState::Sync);
        }
        self.link.sync.gathered(self.machine.gathered_bytes());
        let is_full = !self.machine.has_room(false);
        if is_full && !self.is_full {
            log::info!(
                "Dual channel replication: Replication buffer limit reached, stopping buffering. \
                 Further accumulation may occur on primary side."
            );
        }
        self.is_full = is_full;
    }

    fn timeout_ms(&self) -> i64 {
        self.server.config.repl_timeout().max(1) * 1000
    }

    /// Sends what the machine has to say.
    pub fn send(&mut self) -> Result<(), GiveUp> {
        let output = self.machine.output();
        if !output.is_empty()
            && let Some(client) = self.link.client()
        {
            client.net_output_bytes.add(output.len() as u64);
        }
        say(&mut self.wire, output)?;
        if let (Some(wire), Some(channel)) = (&mut self.copy_wire, self.machine.copy_channel()) {
            say(wire, channel.output())?;
        }
        Ok(())
    }

    /// Says how far the replica is, if it is time.
    fn acknowledge_in_time(&mut self) {
        let now_ms = self.now_ms();
        if self.machine.wants_ack(now_ms) {
            let on_disk = self.on_disk();
            self.machine.acknowledge(self.server.feed.published(), on_disk, now_ms);
        }
    }

    /// Notes which record of our own log has the stream so far, so that the primary is told once it
    /// is on disk.
    fn note_log(&mut self) {
        let server = self.server;
        if Aof::of(server).is_on() {
            if self.logged.len() == LOGGED_MAX {
                // What is on disk is told a little later, then.
                self.logged.pop_back();
            }
            self.logged.push_back((server.log.last(), server.feed.end_offset()));
        }
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
}

fn is_paused(server: &Server) -> bool {
    server.switches.load() & Switch::PAUSED != 0 && server.paused(server.clock.advance()).is_some()
}

fn say(wire: &mut Wire, output: &mut Vec<u8>) -> Result<(), GiveUp> {
    if !output.is_empty() {
        let sent = wire.write_all(output).and_then(|()| wire.flush());
        sent.map_err(|error| lost(&error))?;
        output.clear();
    }
    Ok(())
}

pub(super) fn lost(error: &io::Error) -> GiveUp {
    GiveUp::because(error.to_string())
}

/// What a primary may have us keep. Its own limits are not known here: what ours let clients send
/// is taken from it in any case.
fn limits(server: &Server) -> LinkLimits {
    let config = &server.config;
    let argument = usize::try_from(config.proto_max_bulk_len()).unwrap_or(usize::MAX);
    let command = usize::try_from(config.client_query_buffer_limit()).unwrap_or(usize::MAX);
    let command_len_max = argument.max(command).max(COMMAND_LEN_MIN);
    // As a primary would keep for a replica.
    let gathered_len_max = match config.output_limit(ClientClass::Replica).hard_bytes {
        0 => usize::MAX,
        hard => usize::try_from(hard).unwrap_or(usize::MAX),
    };
    LinkLimits {
        bulk_len_max: command_len_max,
        command_len_max,
        transaction_len_max: command_len_max.saturating_mul(TRANSACTION_FACTOR),
        gathered_len_max,
    }
}

/// What one command of a primary may have in any case: as much as by the defaults of Redis.
const COMMAND_LEN_MIN: usize = 1 << 30;
/// A script may change more at once than a client can send.
const TRANSACTION_FACTOR: usize = 16;
