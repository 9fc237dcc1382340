//! Executes the commands of a primary's stream.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bobbin_store::KeyHash;

use super::Link;
use super::machine::{Commands, GiveUp};
use super::parts::{Helpers, may_run_in_part};
use crate::base::clock::ticks;
use crate::config::PropagationError;
use crate::engine::command::data::evictor::Room;
use crate::engine::command::{Classes, Flags, Registered};
use crate::engine::eviction;
use crate::engine::server::{Server, Switch};
use crate::persistence::aof::Aof;
use crate::persistence::aof::place::LogPlace;
use crate::persistence::aof::replay::{Hindrance, Replay};
use crate::persistence::position::StreamPosition;

/// A command of the stream that is about to be executed.
pub(super) struct Prepared<'c> {
    pub(super) args: &'c [&'c [u8]],
    /// Where the command ends in the bytes that it came in.
    end: usize,
    pub(super) command: Option<&'static Registered>,
    pub(super) first_hash: KeyHash,
    /// Other threads may execute it.
    may_run_in_part: bool,
}

/// How many commands have their keys prefetched together.
const WINDOW: usize = 32;
/// How many commands are executed one by one before other threads may have the gate.
const STAY: usize = 64;
/// How long a command that waits for a script pauses before it tries again.
const SCRIPT_PAUSE: Duration = Duration::from_micros(200);

/// Executes a stream.
pub(super) struct Applier<'a> {
    pub(super) server: &'static Server,
    pub(super) link: &'a Link,
    pub(super) replay: &'a mut Replay,
    pub(super) helpers: &'a mut Helpers,
    /// The record of our own log behind which the log last gave the stream's position.
    pub(super) remarked: &'a mut u64,
}

impl Applier<'_> {
    /// Executes commands of the stream, and passes the bytes of complete units on to our own
    /// replicas. Returns how many bytes those are.
    pub(super) fn carry_out(&mut self, commands: &Commands<'_>) -> Result<usize, GiveUp> {
        let server = self.server;
        let mut units = Units { server, bytes: commands.bytes, good: 0, given: 0 };
        let prepared = prepare(server, commands.iter());
        let mut rest = &prepared[..];
        // Run once even without commands: empty lines alone may have come.
        loop {
            self.replay.look_around();
            self.make_room();
            // As a member of the gate: nobody may see changes before their bytes are in the feed.
            self.replay.data.enter();
            let carried_out = self.carry_out_some(rest, prepared.len(), &mut units);
            if carried_out.as_ref().is_ok_and(|count| *count == rest.len())
                && !self.replay.is_in_transaction()
            {
                units.good = commands.len();
            }
            if let Ok(count) = carried_out {
                let last = rest[..count].last().and_then(|prepared| prepared.command);
                self.link.carried_out(count as u64, last, self.replay.database());
                units.give(self.replay.database());
                remark_place(server, self.replay, self.remarked);
            }
            self.replay.data.leave();
            rest = &rest[carried_out?..];
            server.publish_feed();
            if rest.is_empty() {
                break;
            }
        }
        self.replay.count();
        Ok(units.good)
    }

    /// Does before some commands what clients' commands do each for itself, where they are held to
    /// memory: waits for a cut that keeps too much, and evicts keys if the server minds
    /// `maxmemory`. As in Valkey, only our own log is told of these keys: our replicas evict for
    /// themselves. A command is executed even if there is no room, because the primary had room.
    fn make_room(&mut self) {
        let server = self.server;
        server.wait_for_cut();
        while server.minds_maxmemory() && !self.link.is_over() {
            self.replay.data.enter();
            let room = eviction::make_room(server, &mut self.replay.data);
            self.replay.data.leave();
            if room != Room::Soon {
                break;
            }
        }
    }

    /// Executes some of the commands, and returns how many. `have_come` also counts those that came
    /// with them and are executed already. `replay` is a member of the gate.
    fn carry_out_some(
        &mut self,
        commands: &[Prepared<'_>],
        have_come: usize,
        units: &mut Units<'_>,
    ) -> Result<usize, GiveUp> {
        check_link(self.link)?;
        let len = self.together(commands);
        if self.helpers.pay_off(len, have_come) {
            let (done, complaints) = self.helpers.carry_out(self.replay, &commands[..len]);
            if done > 0 {
                units.good = commands[done - 1].end;
                self.link.helped_commands.store(self.helpers.helped, Ordering::Relaxed);
                for (at, complaint) in complaints {
                    complain(self.server, commands[at].args, &complaint);
                }
                return Ok(done);
            }
        }
        let commands = &commands[..commands.len().min(STAY)];
        let begun = ticks();
        for window in commands.chunks(WINDOW) {
            prefetch(self.server, self.replay.database(), window);
            for prepared in window {
                run(self.server, self.link, self.replay, prepared, units)?;
            }
        }
        if len > 0 && len >= commands.len() {
            self.helpers.note_alone(commands.len(), ticks() - begun);
        }
        Ok(commands.len())
    }

    /// How many of the commands, from the first on, several threads may execute together.
    fn together(&self, commands: &[Prepared<'_>]) -> usize {
        // Clients that listen to events or monitor see them in the order of the stream.
        let audience = &self.replay.data.audience;
        if self.replay.is_in_transaction()
            || self.replay.data.is_something_reserved()
            || self.server.switches.has(ALONE)
            || audience.event_classes != Classes::default()
            || audience.broadcasts()
        {
            return 0;
        }
        let alone = |prepared: &Prepared<'_>| !prepared.may_run_in_part;
        commands.iter().position(alone).unwrap_or(commands.len())
    }
}

/// While one of these is set, one thread executes everything.
const ALONE: u32 = Switch::DISK_FAILED | Switch::MONITORED | Switch::SIZED;

/// The units in some received bytes: up to where they were executed, and up to where they were
/// given to the feed.
struct Units<'a> {
    server: &'static Server,
    bytes: &'a [u8],
    good: usize,
    given: usize,
}

impl Units<'_> {
    /// Gives the feed what was executed. `database` is the one that is selected behind it.
    fn give(&mut self, database: u32) {
        self.server.feed.set_relayed_database(database);
        self.server.feed.append_relayed(&self.bytes[self.given..self.good]);
        self.given = self.good;
    }
}

/// Whether a command may take the gate. Another thread may have the gate before it, and that thread
/// must find everything that was executed in the feed.
fn may_take_gate(command: Option<&'static Registered>) -> bool {
    let takers =
        Flags::GATE.with(Flags::WALKS).with(Flags::RUNS_SCRIPT).with(Flags::RUNS_TRANSACTION);
    command.is_none_or(|command| command.has(takers) || command.row.gate_when.is_some())
}

/// Has our own log give the stream's position behind what was executed. No other thread gets the
/// gate meanwhile. `remarked` is the record behind which the log gave it last.
fn remark_place(server: &Server, replay: &mut Replay, remarked: &mut u64) {
    if !Aof::of(server).is_on() || server.log.last() == *remarked {
        return;
    }
    let (feed, mut line) = (&server.feed, Vec::new());
    let (id, offset, database) = (feed.id(), feed.end_offset(), feed.relayed_database());
    LogPlace::Exactly(StreamPosition { id, offset, database }).append(&mut line);
    replay.data.recorder.remark(&line);
    *remarked = server.log.last();
}

/// Looks up the commands, hashes their keys, and prefetches their shards.
fn prepare<'c>(
    server: &Server,
    commands: impl Iterator<Item = (&'c [&'c [u8]], usize)>,
) -> Vec<Prepared<'c>> {
    let keyspace = &server.keyspace;
    let mut last: Option<(&[u8], Option<&'static Registered>)> = None;
    let prepare = |(args, end): (&'c [&'c [u8]], usize)| {
        // A stream mostly repeats one command, in the same spelling.
        let named = match last {
            Some((name, command)) if name == args[0] => command,
            _ => server.registry.find_logged(args[0]),
        };
        last = Some((args[0], named));
        // An unknown subcommand is refused when the command is executed.
        let command = named.map(|command| command.of_words(args).unwrap_or(command));
        let has_key = command.is_some_and(|command| command.first_is_key);
        let key = args.get(1).filter(|_| has_key);
        let first_hash = key.map_or_else(KeyHash::default, |key| keyspace.hash(key));
        if has_key {
            keyspace.prefetch_shard(first_hash);
        }
        let may_run_in_part = command.is_some_and(|command| may_run_in_part(command, args));
        Prepared { args, end, command, first_hash, may_run_in_part }
    };
    commands.map(prepare).collect()
}

/// Prefetches the buckets and entries of the commands.
fn prefetch(server: &Server, database: u32, window: &[Prepared<'_>]) {
    let keyspace = &server.keyspace;
    let keyed = || window.iter().filter(|prepared| prepared.first_hash != KeyHash::default());
    if database == 0 {
        keyed().for_each(|prepared| keyspace.prefetch_bucket(prepared.first_hash));
    }
    keyed().for_each(|prepared| keyspace.prefetch_entry(prepared.first_hash, database, true));
}

fn run(
    server: &'static Server,
    link: &Link,
    replay: &mut Replay,
    prepared: &Prepared<'_>,
    units: &mut Units<'_>,
) -> Result<(), GiveUp> {
    let Prepared { args, command, first_hash, end, .. } = *prepared;
    if args[0].eq_ignore_ascii_case(b"REPLCONF") {
        if !replay.is_in_transaction() {
            units.good = end;
        }
        return Ok(());
    }
    if server.switches.has(Switch::DISK_FAILED)
        && command.is_some_and(|command| command.has(Flags::WRITE))
        && let Some(failure) = server.disk_failure()
        && !server.config.replica_ignore_disk_write_errors()
    {
        log::error!("{}", failure.text());
        end_server("Replica was unable to write command to disk.");
    }
    // What follows would change another database.
    if let Err(why) = replay.check_databases(command, args) {
        units.give(replay.database());
        return Err(GiveUp::because(why));
    }
    let takes_gate = may_take_gate(command);
    if takes_gate {
        units.give(replay.database());
    }
    let complaint = loop {
        let before_release = |in_transaction: bool, database| {
            if !in_transaction {
                units.good = end;
                if takes_gate {
                    units.give(database);
                }
            }
        };
        match replay.run_relayed(args, command, first_hash, before_release) {
            Ok(()) => return Ok(()),
            Err(Hindrance::Failure(complaint)) => break complaint,
            Err(Hindrance::Wait) => {
                check_link(link)?;
                units.give(replay.database());
                step_aside(server, link, replay, SCRIPT_PAUSE)?;
            }
            Err(Hindrance::Gate) => {
                units.give(replay.database());
                step_aside(server, link, replay, Duration::ZERO)?;
            }
        }
    };
    complain(server, args, &complaint);
    Ok(())
}

/// Handles the failure of a command that succeeded on the primary.
#[cold]
fn complain(server: &Server, args: &[&[u8]], complaint: &str) {
    let name = String::from_utf8_lossy(args[0]);
    log::warn!(
        "== CRITICAL == This replica is sending an error to its primary: '{complaint}' after \
         processing the command '{name}'"
    );
    // Where clients may write, differences are expected.
    if server.config.propagation_error_behavior() != PropagationError::Ignore
        && server.config.replica_read_only()
    {
        end_server("What this replica has is not what its primary has.");
    }
}

/// Lets other threads go on, such as a script that has to end first, for `pause` at least. The feed
/// has everything that was executed, so they may take the gate.
fn step_aside(
    server: &Server,
    link: &Link,
    replay: &mut Replay,
    pause: Duration,
) -> Result<(), GiveUp> {
    replay.data.leave();
    server.publish_feed();
    std::thread::sleep(pause);
    replay.look_around();
    replay.data.enter();
    check_link(link)
}

/// Fails if the server's role has changed, so that no more commands of this link are executed.
fn check_link(link: &Link) -> Result<(), GiveUp> {
    if link.is_over() {
        return Err(GiveUp::because("the server has another part now".to_owned()));
    }
    Ok(())
}

/// Ends the server, because the configuration prefers that to data that differs from the primary's.
fn end_server(why: &str) -> ! {
    log::error!("{why} Exiting.");
    std::process::exit(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::persistence::aof::replay::tests::hidden;

    /// Otherwise another thread could get the gate while the feed lacks executed commands. What
    /// clients call the commands does not matter.
    #[test]
    fn each_command_of_a_stream_is_known_by_its_own_row() {
        for renamed in [Vec::new(), hidden()] {
            let server = crate::process::create(Config::new(), &renamed).expect("can be made");
            let name = server.registry.all().iter().map(|command| &command.full_name);
            let words: Vec<Vec<&[u8]>> =
                name.map(|name| name.split('|').map(str::as_bytes).collect()).collect();
            let prepared = prepare(server, words.iter().map(|args| (&args[..], 0)));
            assert_eq!(prepared.len(), server.registry.all().len());
            for (prepared, command) in prepared.iter().zip(server.registry.all()) {
                let name = &command.full_name;
                assert!(prepared.command == Some(*command), "{name}");
                if command.has(Flags::GATE) || command.row.gate_when.is_some() {
                    assert!(may_take_gate(prepared.command), "{name}");
                }
            }
        }
    }
}
