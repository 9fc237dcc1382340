//! Executes consecutive commands of a stream on several threads.
//!
//! The link's thread locks the shards of all their keys before the first command runs, and unlocks
//! them when all are done. So a client that sees one of the commands sees all of them, and the
//! order of commands on different shards does not matter. The thread splits the commands by shard
//! into parts. A part goes, with its shards, to whichever thread has time. All commands on one
//! shard are in one part, in their order. Afterwards the results, such as records for the log, are
//! collected in the stream's order.

use std::sync::Arc;

use bobbin_store::{KeyHash, SHARDS, ShardGuard};
use bobbin_sync::crew::Crew;

use super::apply::Prepared;
use crate::base::clock::ticks;
use crate::base::cores::{self, CoreWork};
use crate::engine::clients::ClientInfo;
use crate::engine::command::Registered;
use crate::engine::command::data::Notices;
use crate::engine::log::Effects;
use crate::engine::server::{Server, background};
use crate::persistence::aof::replay::Replay;

/// Fewer commands than this are executed by one thread.
const COMMANDS_MIN: usize = 32;
/// One thread does not keep up if at least this many commands have come at once.
const BEHIND_MIN: usize = 256;
/// After this many commands the other way is measured again.
const MEASURED_EVERY: usize = 64 * 1024;
/// A mean covers about this many measurements.
const MEASUREMENTS: u64 = 4;
/// The most bytes of arguments that are executed together.
const BYTES_MAX: usize = 128 * 1024;
/// A longer command, in bytes, has its value made before its shard is locked.
const COMMAND_BYTES_MAX: usize = bobbin_store::entry::INLINE_MAX;
/// The most threads that execute a stream, including the link's own.
const THREADS_MAX: usize = 8;
/// How many parts there are for each thread, so that a thread that finishes early takes another.
const PARTS_EACH: usize = 3;
/// The fewest commands of a part, about.
const PART_COMMANDS_MIN: usize = 16;
/// How many commands have their entries prefetched together.
const WINDOW: usize = 32;

/// The threads that help the link's thread, and the memory of parts.
pub(super) struct Helpers {
    crew: Arc<Crew<WindowPart>>,
    threads: usize,
    parts: Vec<WindowPart>,
    spare: Vec<WindowPart>,
    /// How long a command takes on one thread, and how long on several.
    alone: CommandPace,
    together: CommandPace,
    /// Commands since the slower way was measured.
    since_measured: usize,
    /// How many commands other threads have executed.
    pub(super) helped: u64,
}

/// A part of the commands that are executed together, with its results.
#[derive(Default)]
struct WindowPart {
    database: u32,
    /// The primary, as the link's thread shows it.
    client: Option<Arc<ClientInfo>>,
    commands: Vec<PartCommand>,
    /// The arguments of all commands, one behind the other, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// The shards of the keys, and perhaps others, in ascending order.
    shards: Vec<ShardGuard<'static>>,
    effects: Vec<(usize, Effects)>,
    complaints: Vec<(usize, String)>,
    notices: Notices,
    /// A thread other than the link's executed it.
    was_taken: bool,
}

struct PartCommand {
    command: &'static Registered,
    /// The command's index among those that are executed together.
    number: usize,
    /// Where its arguments end: an index into `WindowPart::ends`.
    args_end: usize,
    hash: KeyHash,
}

/// Whether another thread may execute the command, while the commands behind it run too.
pub(super) fn may_run_in_part(command: &Registered, args: &[&[u8]]) -> bool {
    command.changes_one_key_at_once(args) && bytes_of(args) <= COMMAND_BYTES_MAX
}

fn bytes_of(args: &[&[u8]]) -> usize {
    args.iter().map(|arg| arg.len()).sum()
}

impl Helpers {
    /// Starts as many threads as there are workers, but no more than there are cores.
    pub(super) fn start(server: &'static Server) -> Self {
        let wanted = server.workers.serving().min(cores::cores()).clamp(1, THREADS_MAX);
        let crew = Arc::<Crew<WindowPart>>::default();
        let mut threads = 1;
        for _ in 1..wanted {
            let own = Arc::clone(&crew);
            let run = move || help(server, &own);
            if let Err(error) = background::start("bobbin-apply", CoreWork::Background, run) {
                log::warn!("Can't start a thread that carries out a primary's commands: {error}");
                break;
            }
            threads += 1;
        }
        Self {
            crew,
            threads,
            parts: Vec::new(),
            spare: Vec::new(),
            alone: CommandPace::default(),
            together: CommandPace { ticks: u64::MAX },
            // Several threads are tried as soon as many commands come at once.
            since_measured: MEASURED_EVERY,
            helped: 0,
        }
    }

    /// Whether several threads should execute the next commands, `have_come` of which are here.
    /// They should if one thread does not keep up, and several were clearly quicker lately. Several
    /// are not quicker if commands are cheap, or if no core is free. Debug builds always use
    /// several threads, so that tests cover this.
    pub(super) fn pay_off(&mut self, commands: usize, have_come: usize) -> bool {
        if self.threads == 1 || commands < COMMANDS_MIN {
            return false;
        }
        if cfg!(debug_assertions) {
            return true;
        }
        if have_come < BEHIND_MIN {
            return false;
        }
        let are_quicker = self.together.ticks < self.alone.ticks - self.alone.ticks / 8;
        self.since_measured += commands;
        if self.since_measured < MEASURED_EVERY {
            return are_quicker;
        }
        self.since_measured = 0;
        !are_quicker
    }

    /// Notes how long one thread took for commands that several could have executed.
    pub(super) fn note_alone(&mut self, commands: usize, ticks: u64) {
        self.alone.note(commands, ticks);
    }

    /// Executes as many of the commands, from the first on, as belong together. Returns how many
    /// these were, and the errors of those that failed. `replay` is a member of the gate, and holds
    /// nothing afterwards.
    pub(super) fn carry_out(
        &mut self,
        replay: &mut Replay,
        commands: &[Prepared<'_>],
    ) -> (usize, Vec<(usize, String)>) {
        let begun = ticks();
        self.crew.call();
        let commands = &commands[..within_bytes(commands)];
        let mut shards = [0_u64; SHARDS / 64];
        for prepared in commands {
            let shard = prepared.first_hash.shard();
            shards[shard / 64] |= 1 << (shard % 64);
        }
        if !replay.data.hold_many(ones(&shards)) {
            return (0, Vec::new());
        }
        // If a client is blocked on a key, it must be served before the key changes again.
        let hashes = commands.iter().map(|prepared| prepared.first_hash);
        let len = replay.data.first_awaited(hashes).unwrap_or(commands.len());
        if len < COMMANDS_MIN {
            replay.data.release();
            self.together.ticks = self.alone.ticks.saturating_mul(2);
            return (0, Vec::new());
        }
        self.split(replay, &commands[..len]);
        self.crew.hand_out(&mut self.parts);
        while let Some(mut part) = self.crew.take() {
            part.carry_out(replay);
            self.crew.finish(part);
        }
        self.crew.gather(&mut self.parts);
        let complaints = self.join(replay);
        self.together.note(len, ticks() - begun);
        (len, complaints)
    }

    /// Splits the commands into parts. The locked shards go with them.
    fn split(&mut self, replay: &mut Replay, commands: &[Prepared<'_>]) {
        let count = (commands.len() / PART_COMMANDS_MIN).clamp(1, self.threads * PARTS_EACH);
        let Self { parts, spare, .. } = self;
        parts.extend((0..count).map(|_| spare.pop().unwrap_or_default()));
        for part in parts.iter_mut() {
            part.database = replay.database();
            part.client = Some(Arc::clone(replay.speaks_for()));
        }
        let keyspace = replay.data.keyspace();
        for (number, prepared) in commands.iter().enumerate() {
            if replay.database() == 0 {
                keyspace.prefetch_bucket(prepared.first_hash);
            }
            parts[prepared.first_hash.shard() % count].add(number, prepared);
        }
        replay.data.lend(|guard| parts[guard.index() % count].shards.push(guard));
    }

    /// Ends all units in the order of the stream, and unlocks their shards.
    fn join(&mut self, replay: &mut Replay) -> Vec<(usize, String)> {
        let (mut effects, mut complaints) = (Vec::new(), Vec::new());
        for part in &mut self.parts {
            effects.append(&mut part.effects);
            complaints.append(&mut part.complaints);
            self.helped += if part.was_taken { part.commands.len() as u64 } else { 0 };
            replay.data.unit.work.notices.append(&mut part.notices);
        }
        effects.sort_unstable_by_key(|(number, _)| *number);
        complaints.sort_unstable_by_key(|(number, _)| *number);
        replay.end_borrowed(effects.into_iter().map(|(_, effects)| effects));
        for mut part in self.parts.drain(..) {
            part.shards.clear();
            part.commands.clear();
            part.bytes.clear();
            part.ends.clear();
            part.was_taken = false;
            self.spare.push(part);
        }
        complaints
    }
}

/// How many ticks a command took lately.
#[derive(Default)]
struct CommandPace {
    ticks: u64,
}

impl CommandPace {
    fn note(&mut self, commands: usize, ticks: u64) {
        let measured = ticks / commands.max(1) as u64;
        self.ticks = match self.ticks {
            0 | u64::MAX => measured,
            // An outlier counts as twice the mean: the thread may have waited for its core.
            mean => (mean * (MEASUREMENTS - 1) + measured.min(2 * mean)).div_ceil(MEASUREMENTS),
        };
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        self.crew.dismiss();
    }
}

/// How many of the commands are short enough, together, to be executed at once.
fn within_bytes(commands: &[Prepared<'_>]) -> usize {
    let mut bytes = 0;
    let is_beyond = |prepared: &Prepared<'_>| {
        bytes += bytes_of(prepared.args);
        bytes > BYTES_MAX
    };
    commands.iter().position(is_beyond).unwrap_or(commands.len())
}

/// The indices of the bits that are set, in ascending order.
fn ones(words: &[u64]) -> impl Iterator<Item = usize> {
    words.iter().enumerate().flat_map(|(at, &word)| {
        let rest = |word: &u64| Some(word & (word - 1)).filter(|rest| *rest != 0);
        let words = std::iter::successors(Some(word).filter(|word| *word != 0), rest);
        words.map(move |word| at * 64 + word.trailing_zeros() as usize)
    })
}

/// Executes parts until the link ends.
fn help(server: &'static Server, crew: &Crew<WindowPart>) {
    let mut replay = match Replay::assisting(server) {
        Ok(replay) => replay,
        // The other threads go on without this one.
        Err(error) => return log::warn!("Can't help to follow a primary: {error}"),
    };
    let mut finished = None;
    // The link's thread is a member of the gate for all helpers.
    while let Some(mut part) = crew.next(finished.take()) {
        part.carry_out(&mut replay);
        part.was_taken = true;
        replay.count();
        finished = Some(part);
    }
}

impl WindowPart {
    fn add(&mut self, number: usize, prepared: &Prepared<'_>) {
        // Commands without a row never get into a part.
        let Some(command) = prepared.command else { return };
        for arg in prepared.args {
            self.bytes.extend_from_slice(arg);
            self.ends.push(self.bytes.len());
        }
        let (args_end, hash) = (self.ends.len(), prepared.first_hash);
        self.commands.push(PartCommand { command, number, args_end, hash });
    }

    fn carry_out(&mut self, replay: &mut Replay) {
        let shards = std::mem::take(&mut self.shards);
        replay.borrow(self.database, shards, self.client.as_deref());
        replay.look_around();
        let Self { commands, bytes, ends, effects, complaints, .. } = self;
        let (mut args, mut at, mut start) = (Vec::new(), 0, 0);
        for window in commands.chunks(WINDOW) {
            window.iter().for_each(|it| replay.data.prefetch(self.database, it.hash, true));
            for PartCommand { command, number, args_end, hash } in window {
                args.clear();
                for &end in &ends[at..*args_end] {
                    args.push(&bytes[start..end]);
                    start = end;
                }
                at = *args_end;
                let (logged, outcome) = replay.run_borrowed(&args, command, *hash);
                effects.extend(logged.map(|logged| (*number, logged)));
                complaints.extend(outcome.err().map(|complaint| (*number, complaint)));
            }
        }
        self.notices.append(&mut replay.data.unit.work.notices);
        self.shards = replay.give_back();
    }
}
