//! One connection to a primary: provides the socket and the clock for a [`LinkMachine`], and
//! carries out its events.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bobbin_io::error_text;

use super::apply::Applier;
use super::machine::{GiveUp, LinkEvent, LinkLimits, LinkMachine};
use super::parts::Helpers;
use super::wire::{self, LinkWire, READ_WAIT, is_pause};
use super::{Link, LinkState, introduction};
use crate::config::ClientClass;
use crate::engine::log::history::HistoryId;
use crate::engine::server::{Server, Switch};
use crate::persistence::aof::Aof;
use crate::persistence::aof::replay::Replay;
use crate::replication::Replication;

/// The state of the thread while it is connected.
pub(super) struct LinkSession<'a> {
    pub server: &'static Server,
    pub link: &'a Link,
    pub replay: &'a mut Replay,
    helpers: &'a mut Helpers,
    pub machine: LinkMachine,
    wire: LinkWire,
    /// The separate connection for a copy, if there is one.
    copy_wire: Option<LinkWire>,
    /// As much of the stream is kept as may be.
    is_full: bool,
    begun: Instant,
    /// Records of our own log, with the offset up to which each has the stream: those that may not
    /// be on disk, and the last that is.
    logged: VecDeque<(u64, u64)>,
    /// The record of our own log behind which the log last gave the stream's position.
    remarked: u64,
}

/// How many bytes are read at once.
const READ_BYTES: usize = 64 * 1024;
/// The most reads in a row while a copy is being loaded.
const READS_MAX: usize = 16;
/// If commands took longer than this, fewer of them are executed at once.
const SLOW: Duration = Duration::from_millis(5);
/// How long a link that may neither execute nor receive sleeps before it looks again.
const HELD_WAIT: Duration = Duration::from_millis(10);
/// How long a session waits for bytes while the primary waits to hear what is on disk.
const OWED_WAIT: Duration = Duration::from_millis(5);
/// The most records that are noted in `logged`.
const LOGGED_MAX: usize = 1024;

impl<'a> LinkSession<'a> {
    pub fn new(
        server: &'static Server,
        link: &'a Link,
        (replay, helpers): (&'a mut Replay, &'a mut Helpers),
        wire: LinkWire,
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

    /// Follows the primary until the connection ends.
    pub fn follow(mut self) -> Result<(), GiveUp> {
        let (server, replication) = (self.server, Replication::of(self.server));
        loop {
            self.wait_until_writable()?;
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
                    self.replay
                        .select(server.feed.relayed_database())
                        .map_err(|why| GiveUp { why, is_damage: true })?;
                    log::info!("Successful partial resynchronization with primary.");
                    if let Some(id) = id.and_then(|id| HistoryId::parse(id.as_bytes())) {
                        self.with_gate(|_| replication.follow_name(server, id))?;
                    }
                    replication.target_answered(server, &mut self.replay.data, true);
                    self.begin_stream();
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
                    self.begin_stream();
                }
                // `take_copy` handles these when the copy begins.
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

    /// From now on the primary's commands are executed.
    fn begin_stream(&mut self) {
        self.note_log();
        self.link.set_state(self.server, LinkState::Connected);
        if let Some(primary) = self.link.client() {
            self.replay.speak_for(&primary);
        }
    }

    /// While clients may not write, the stream is not executed either. In a pause it is received,
    /// and kept up to a limit. While the log's disk is slow it is not even received, so that it
    /// waits in the primary, which has its own limits.
    fn wait_until_writable(&mut self) -> Result<(), GiveUp> {
        let mut has_waited = false;
        while self.machine.streams() {
            let is_paused = is_paused(self.server);
            if !is_paused && !self.server.holds_up_stream() {
                break;
            }
            has_waited = true;
            self.acknowledge_in_time();
            if is_paused && self.machine.has_room(true) {
                self.receive()?;
            } else {
                self.check_part()?;
                self.send()?;
                std::thread::sleep(HELD_WAIT);
            }
            self.link.held_bytes.store(self.machine.kept_bytes(), Ordering::Relaxed);
        }
        if has_waited {
            self.link.held_bytes.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The time of the machine's clock, in ms.
    pub fn now_ms(&self) -> i64 {
        self.begun.elapsed().as_millis() as i64
    }

    /// Sends the output, and waits for a short time for bytes to come.
    pub fn receive(&mut self) -> Result<(), GiveUp> {
        self.send()?;
        self.check_part()?;
        if self.machine.copy_channel().is_some() {
            return self.receive_both();
        }
        self.copy_wire = None;
        let came = if self.machine.owes_ack() {
            wire::wait([Some(&self.wire), None], OWED_WAIT).map_err(|error| lost(&error))?[0]
        } else {
            true
        };
        if came && self.read_main()? {
            return Ok(());
        }
        self.machine.check_time(self.now_ms(), self.timeout_ms())
    }

    /// Fails if the server does not follow this primary any more.
    fn check_part(&self) -> Result<(), GiveUp> {
        if self.link.is_over() {
            return Err(GiveUp::because("the server has another part now".to_owned()));
        }
        Ok(())
    }

    /// Waits for a short time for bytes on either connection.
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

    /// Receives what has come of the stream while a copy from a separate connection is loaded. A
    /// broken connection is noticed once the copy is loaded.
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

    /// Reads from the main connection. Returns whether something came.
    fn read_main(&mut self) -> Result<bool, GiveUp> {
        let most = self.machine.received_len_max();
        let room = self.machine.room(READ_BYTES.min(most));
        let len = room.len().min(most);
        match self.wire.read(&mut room[..len]) {
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

    /// Reads from the copy's connection. The primary closes it when it has sent everything. The
    /// machine checks whether the copy is complete then.
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

    /// Opens a second connection, for a copy.
    fn open_channel(&mut self) -> Result<(), GiveUp> {
        log::info!("Dual channel replication: PSYNC is not possible, initialize RDB channel.");
        let wire = LinkWire::connect(self.server, &self.link.host, self.link.port);
        self.fetch_by(wire.map_err(|error| lost(&error))?);
        Ok(())
    }

    /// Begins to receive a copy on this connection.
    pub(super) fn fetch_by(&mut self, wire: LinkWire) {
        self.copy_wire = Some(wire);
        self.machine.channel_opened(self.now_ms());
    }

    /// Updates how much of the stream is kept. As in Valkey, the link counts as being in its
    /// handshake until the stream comes.
    fn note_gathered(&mut self) {
        if self.machine.gathers() && self.link.state() == LinkState::Handshake {
            self.link.set_state(self.server, LinkState::Sync);
        }
        self.link.sync.gathered(self.machine.gathered_bytes());
        let is_full = !self.machine.has_room(false);
        if is_full && !self.is_full {
            log::info!(
                "Dual channel replication: Replication buffer limit reached ({} bytes), stopping \
                 buffering. Further accumulation may occur on primary side.",
                self.machine.gathered_len_max()
            );
        }
        self.is_full = is_full;
    }

    fn timeout_ms(&self) -> i64 {
        self.server.config.repl_timeout().max(1) * 1000
    }

    /// Sends the machine's output.
    pub fn send(&mut self) -> Result<(), GiveUp> {
        if self.server.switches.has(Switch::STOPS_BEFORE_STREAM) {
            self.stop_before_stream();
        }
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

    /// Stops the process, for DEBUG PAUSE-AFTER-FORK, until it is sent SIGCONT.
    #[cold]
    fn stop_before_stream(&mut self) {
        if self.machine.asks_behind_copy() && !self.machine.output().is_empty() {
            // SAFETY: the system call takes a number.
            unsafe { libc::raise(libc::SIGSTOP) };
        }
    }

    /// Reports the replica's offset if it is time.
    fn acknowledge_in_time(&mut self) {
        let (on_disk, now_ms) = (self.on_disk(), self.now_ms());
        if self.machine.wants_ack(on_disk, now_ms) {
            self.machine.acknowledge(self.server.feed.published(), on_disk, now_ms);
        }
    }

    /// Notes which record of our own log has the stream up to now. Once that record is on disk, the
    /// primary is told.
    fn note_log(&mut self) {
        let server = self.server;
        if Aof::of(server).is_on() {
            if self.logged.len() == LOGGED_MAX {
                // Then the primary learns a little later what is on disk.
                self.logged.pop_back();
            }
            self.logged.push_back((server.log.last(), server.feed.end_offset()));
        }
    }

    /// The offset up to which the stream is on our disk, if we keep a log.
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
    server.switches.has(Switch::PAUSED) && server.paused(server.clock.advance()).is_some()
}

fn say(wire: &mut LinkWire, output: &mut Vec<u8>) -> Result<(), GiveUp> {
    if !output.is_empty() {
        let sent = wire.write_all(output).and_then(|()| wire.flush());
        sent.map_err(|error| lost(&error))?;
        output.clear();
    }
    Ok(())
}

pub(super) fn lost(error: &io::Error) -> GiveUp {
    GiveUp::because(error_text(error))
}

/// How much a primary can make us keep. Its own limits are unknown, so we accept at least what our
/// limits let clients send.
fn limits(server: &Server) -> LinkLimits {
    let config = &server.config;
    let argument = usize::try_from(config.proto_max_bulk_len()).unwrap_or(usize::MAX);
    let command = usize::try_from(config.client_query_buffer_limit()).unwrap_or(usize::MAX);
    let command_len_max = argument.max(command).max(COMMAND_LEN_MIN);
    // The same limit as a primary's for a replica's output.
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

/// The size of a command that is always accepted: the most that Redis allows by default.
const COMMAND_LEN_MIN: usize = 1 << 30;
/// A script may change more at once than a client can send.
const TRANSACTION_FACTOR: usize = 16;
