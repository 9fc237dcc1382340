//! Carrying out the commands of a primary's stream.

use std::time::Duration;

use bobbin_store::Hash;

use super::Link;
use super::machine::{Commands, GiveUp};
use crate::config::PropagationError;
use crate::engine::command::{Flags, KeyShape, Registered};
use crate::engine::server::{Server, Switch};
use crate::persistence::aof::Aof;
use crate::persistence::aof::place::LogPlace;
use crate::persistence::aof::replay::{Hindrance, Replay};
use crate::persistence::position::StreamPosition;

/// A command of the stream, about to be carried out.
struct Prepared<'c> {
    args: &'c [&'c [u8]],
    /// Where it ends in the bytes that it came in.
    end: usize,
    command: Option<&'static Registered>,
    first_hash: Hash,
}

/// Commands whose keys are fetched together.
const WINDOW: usize = 32;
/// After so long a command that waits for a script tries again.
const SCRIPT_PAUSE: Duration = Duration::from_micros(200);

/// Carries out commands of the stream, and gives the bytes of whole units to those that follow this
/// server. Returns how many bytes those are. `remarked`: behind which record our own log says how
/// far the stream is.
pub(super) fn carry_out(
    server: &'static Server,
    link: &Link,
    replay: &mut Replay,
    commands: &Commands<'_>,
    remarked: &mut u64,
) -> Result<usize, GiveUp> {
    replay.look_around();
    // While it has entered nobody sees what is carried out and not in the feed.
    replay.data.enter();
    let carried_out = carry_out_entered(server, link, replay, commands, remarked);
    replay.data.leave();
    if carried_out.is_ok() {
        server.publish_feed();
    }
    carried_out
}

fn carry_out_entered(
    server: &'static Server,
    link: &Link,
    replay: &mut Replay,
    commands: &Commands<'_>,
    remarked: &mut u64,
) -> Result<usize, GiveUp> {
    check_link(link)?;
    let mut units = Units { server, bytes: commands.bytes, good: 0, given: 0 };
    let mut window = Vec::with_capacity(WINDOW);
    let mut rest = commands.iter().peekable();
    let (mut count, mut last) = (0, None);
    while rest.peek().is_some() {
        prepare(server, replay, &mut rest, &mut window);
        for prepared in window.drain(..) {
            (count, last) = (count + 1, prepared.command);
            run(server, link, replay, &prepared, &mut units)?;
        }
    }
    if !replay.is_in_transaction() {
        units.good = commands.len();
    }
    replay.count();
    link.carried_out(count, last, replay.database());
    units.give(replay.database());
    remark_place(server, replay, remarked);
    Ok(units.good)
}

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

/// Whether a command may take the gate. It is somebody else's for a moment then, and whoever has
/// the gate must find in the feed all that was carried out.
fn may_take_gate(command: Option<&'static Registered>) -> bool {
    let takers = Flags::GATE.with(Flags::WALKS).with(Flags::RUNS).with(Flags::EXECUTES);
    command.is_none_or(|command| command.has(takers) || command.row.gate_when.is_some())
}

/// Has our own log say how far the stream is, behind what was carried out. Nobody else gets the
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

/// Fills the window, and has what its commands will touch on its way to the cache.
fn prepare<'c>(
    server: &Server,
    replay: &Replay,
    rest: &mut impl Iterator<Item = (&'c [&'c [u8]], usize)>,
    window: &mut Vec<Prepared<'c>>,
) {
    let (keyspace, database) = (&server.keyspace, replay.database());
    let mut last: Option<(&[u8], Option<&'static Registered>)> = None;
    window.extend(rest.take(WINDOW).map(|(args, end)| {
        // A stream mostly repeats a command, spelt the same way.
        let command = match last {
            Some((name, command)) if name == args[0] => command,
            _ => server.registry.find(args[0]),
        };
        last = Some((args[0], command));
        let has_key = command.is_some_and(|command| command.shape != KeyShape::None);
        let key = args.get(1).filter(|_| has_key);
        let first_hash = key.map_or_else(Hash::default, |key| keyspace.hash(key));
        if has_key {
            keyspace.prefetch_shard(first_hash);
        }
        Prepared { args, end, command, first_hash }
    }));
    let keyed = || window.iter().filter(|prepared| prepared.first_hash != Hash::default());
    if database == 0 {
        keyed().for_each(|prepared| keyspace.prefetch_bucket(prepared.first_hash));
    }
    keyed().for_each(|prepared| keyspace.prefetch_entry(prepared.first_hash, database));
}

fn run(
    server: &'static Server,
    link: &Link,
    replay: &mut Replay,
    prepared: &Prepared<'_>,
    units: &mut Units<'_>,
) -> Result<(), GiveUp> {
    let Prepared { args, command, first_hash, end } = *prepared;
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
    let name = String::from_utf8_lossy(args[0]);
    log::warn!(
        "== CRITICAL == This replica is sending an error to its primary: '{complaint}' after \
         processing the command '{name}'"
    );
    if server.config.propagation_error_behavior() != PropagationError::Ignore {
        end_server("What this replica has is not what its primary has.");
    }
    Ok(())
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
