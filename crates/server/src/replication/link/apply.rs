//! Carrying out the commands of a primary's stream.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bobbin_store::Hash;

use super::Link;
use super::machine::{Commands, GiveUp};
use super::parts::{Helpers, may_run_in_part};
use crate::base::clock::ticks;
use crate::config::PropagationError;
use crate::engine::command::{Classes, Flags, Registered};
use crate::engine::server::{Server, Switch};
use crate::persistence::aof::Aof;
use crate::persistence::aof::place::LogPlace;
use crate::persistence::aof::replay::{Hindrance, Replay};
use crate::persistence::position::StreamPosition;

/// A command of the stream, about to be carried out.
pub(super) struct Prepared<'c> {
    pub(super) args: &'c [&'c [u8]],
    /// Where it ends in the bytes that it came in.
    end: usize,
    pub(super) command: Option<&'static Registered>,
    pub(super) first_hash: Hash,
    /// Other threads may carry it out.
    may_run_in_part: bool,
}

/// Commands whose keys are fetched together.
const WINDOW: usize = 32;
/// Commands that are carried out one by one before others may have the gate.
const STAY: usize = 64;
/// After so long a command that waits for a script tries again.
const SCRIPT_PAUSE: Duration = Duration::from_micros(200);

/// What carries out a stream.
pub(super) struct Applier<'a> {
    pub(super) server: &'static Server,
    pub(super) link: &'a Link,
    pub(super) replay: &'a mut Replay,
    pub(super) helpers: &'a mut Helpers,
    /// Behind which record our own log says how far the stream is.
    pub(super) remarked: &'a mut u64,
}

impl Applier<'_> {
    /// Carries out commands of the stream, and gives the bytes of whole units to those that follow
    /// this server. Returns how many bytes those are.
    pub(super) fn carry_out(&mut self, commands: &Commands<'_>) -> Result<usize, GiveUp> {
        let server = self.server;
        let mut units = Units { server, bytes: commands.bytes, good: 0, given: 0 };
        let prepared = prepare(server, commands.iter());
        let mut rest = &prepared[..];
        // What has come may be empty lines alone.
        loop {
            self.replay.look_around();
            // While it has entered no other thread sees what is carried out and not in the feed.
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

    /// Carries out some of the commands; how many those were. `have_come`: with those before them
    /// that came at once. `replay` has entered.
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

    /// How many of the commands, from the first on, several threads may carry out together.
    fn together(&self, commands: &[Prepared<'_>]) -> usize {
        // Clients that listen to events, or monitor, see them in the order of the stream.
        let audience = &self.replay.data.audience;
        if self.replay.is_in_transaction()
            || self.replay.data.is_something_reserved()
            || self.server.switches.load() & ALONE != 0
            || audience.event_classes != Classes::default()
            || audience.broadcasts()
        {
            return 0;
        }
        let alone = |prepared: &Prepared<'_>| !prepared.may_run_in_part;
        commands.iter().position(alone).unwrap_or(commands.len())
    }
}

/// While one of these is on one thread carries out everything.
const ALONE: u32 = Switch::DISK_FAILED | Switch::MONITORED | Switch::SIZED;

/// How far the units of some bytes are carried out, and given to the feed.
struct Units<'a> {
    server: &'static Server,
    bytes: &'a [u8],
    good: usize,
    given: usize,
}

impl Units<'_> {
    /// Gives the feed what is carried out. `database`: what the stream is about behind it.
    fn give(&mut self, database: u32) {
        self.server.feed.set_relayed_database(database);
        self.server.feed.append_relayed(&self.bytes[self.given..self.good]);
        self.given = self.good;
    }
}

/// Whether a command may take the gate. It is another thread's for a moment then, and the thread
/// that has the gate must find in the feed all that was carried out.
fn may_take_gate(command: Option<&'static Registered>) -> bool {
    let takers = Flags::GATE.with(Flags::WALKS).with(Flags::RUNS).with(Flags::EXECUTES);
    command.is_none_or(|command| command.has(takers) || command.row.gate_when.is_some())
}

/// Has our own log say how far the stream is, behind what was carried out. No other thread gets the
/// gate meanwhile. `remarked`: the record behind which it said that last.
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

/// Looks up the commands and hashes their keys, and has their shards on their way to the cache.
fn prepare<'c>(
    server: &Server,
    commands: impl Iterator<Item = (&'c [&'c [u8]], usize)>,
) -> Vec<Prepared<'c>> {
    let keyspace = &server.keyspace;
    let mut last: Option<(&[u8], Option<&'static Registered>)> = None;
    let prepare = |(args, end): (&'c [&'c [u8]], usize)| {
        // A stream mostly repeats a command, spelt the same way.
        let named = match last {
            Some((name, command)) if name == args[0] => command,
            _ => server.registry.find(args[0]),
        };
        last = Some((args[0], named));
        // An unknown subcommand is refused where the command is carried out.
        let command = named.map(|command| command.of_words(args).unwrap_or(command));
        let has_key = command.is_some_and(|command| command.first_is_key);
        let key = args.get(1).filter(|_| has_key);
        let first_hash = key.map_or_else(Hash::default, |key| keyspace.hash(key));
        if has_key {
            keyspace.prefetch_shard(first_hash);
        }
        let may_run_in_part = command.is_some_and(|command| may_run_in_part(command, args));
        Prepared { args, end, command, first_hash, may_run_in_part }
    };
    commands.map(prepare).collect()
}

/// Has what the commands will touch on its way to the cache.
fn prefetch(server: &Server, database: u32, window: &[Prepared<'_>]) {
    let keyspace = &server.keyspace;
    let keyed = || window.iter().filter(|prepared| prepared.first_hash != Hash::default());
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
    if server.switches.load() & Switch::DISK_FAILED != 0
        && command.is_some_and(|command| command.has(Flags::WRITE))
        && let Some(failure) = server.disk_failure()
        && !server.config.replica_ignore_disk_write_errors()
    {
        log::error!("{}", failure.text());
        end_server("Replica was unable to write command to disk.");
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
                step_aside(server, link, replay)?;
            }
        }
    };
    complain(server, args, &complaint);
    Ok(())
}

/// A command that the primary carried out has failed here.
#[cold]
fn complain(server: &Server, args: &[&[u8]], complaint: &str) {
    let name = String::from_utf8_lossy(args[0]);
    log::warn!(
        "== CRITICAL == This replica is sending an error to its primary: '{complaint}' after \
         processing the command '{name}'"
    );
    if server.config.propagation_error_behavior() != PropagationError::Ignore {
        end_server("What this replica has is not what its primary has.");
    }
}

/// Lets others go on, such as a script that has to end first. What was carried out is in the feed,
/// so they may take the gate.
fn step_aside(server: &Server, link: &Link, replay: &mut Replay) -> Result<(), GiveUp> {
    replay.data.leave();
    server.publish_feed();
    std::thread::sleep(SCRIPT_PAUSE);
    replay.look_around();
    replay.data.enter();
    check_link(link)
}

/// Gives up if the server has another part, so that nothing of this link is carried out any more.
fn check_link(link: &Link) -> Result<(), GiveUp> {
    if link.is_over() {
        return Err(GiveUp::because("the server has another part now".to_owned()));
    }
    Ok(())
}

/// The configuration has a replica end rather than differ from its primary.
fn end_server(why: &str) -> ! {
    log::error!("{why} Exiting.");
    std::process::exit(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// Otherwise another thread could get the gate while the feed lacks what was carried out.
    #[test]
    fn each_command_of_a_stream_is_known_by_its_own_row() {
        let server = crate::process::create(Config::new(), &[]).expect("a server can be made");
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
