//! What is known of keys and fields that may go by themselves: with time, or for want of memory.
//!
//! A *cell* is a key, or a field of a hash, that one client alone writes, so that its versions have
//! an order. Version `n` is written by `SET` or `INCRBY` with bit `n - 1`: what a cell holds tells
//! its version by the highest bit, and since when the cell has been there by the lowest. So it
//! shows if a log tells of what came behind an expiry and not of the expiry.
//!
//! A client that has heard of a cell knows that it had at least some version at some time
//! (`Told::written`), and up to which it was there no more (`Told::gone`). What is seen later, by
//! another client or behind a crash, must agree:
//!
//! - It is no older than what was told, and nothing that was gone before.
//! - It is there, unless something told it may have gone since: a deadline was reached, or memory
//!   was short.
//! - It holds each increment that was acknowledged since it came to be, and none that was refused.
//! - It did not begin anew, unless the version before may have gone.
//!
//! What is not checked: that a field's end is in the log, as all commands log what fields hold
//! then, and nothing can be seen of it; that something is gone after its deadline, or is evicted at
//! all; which keys are evicted first.

use std::fmt::Write as _;

/// All cells of a seed.
#[derive(Default)]
pub struct Cells {
    cells: Vec<Cell>,
    memory: Memory,
}

/// When memory was short, and what goes then.
#[derive(Clone, Copy, Default)]
struct Memory {
    /// Every key, and not just those with a deadline.
    takes_all: bool,
    is_short: bool,
    /// How many versions had been sent when memory was short for the last time.
    short_until: usize,
    /// How many versions were sent.
    sent: usize,
}

#[derive(Default)]
struct Cell {
    /// Of a hash; else the cell is a key.
    is_field: bool,
    versions: Vec<Version>,
    /// By any client.
    told: Told,
    /// By a client that was promised that it is on disk.
    promised: Told,
}

struct Version {
    state: State,
    /// It does not depend on what was there.
    is_set: bool,
    /// It may be gone from then on.
    dies_ms: i64,
    /// How many versions of all cells had been sent.
    at: usize,
    /// What the cell held with it, as soon as that is known.
    value: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Sent,
    Acknowledged,
    Refused,
}

/// What a client knows of a cell. Versions are numbers from 1; 0 says that nothing is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    written: usize,
    gone: usize,
}

/// A cell that something was sent about, and what was known of it then.
#[derive(Clone, Copy)]
pub struct CellRequest {
    pub cell: usize,
    /// What is written; `None`: it is read.
    version: Option<usize>,
    known: Told,
}

/// A write of a cell that a client may send.
pub struct Writing {
    pub asked: CellRequest,
    pub value: u64,
    pub is_set: bool,
}

/// How many versions a cell has at most: each has a bit of a number that commands can add to.
const VERSIONS_MAX: usize = 60;
pub const NEVER_MS: i64 = i64::MAX;

impl Told {
    fn and(self, other: Self) -> Self {
        Self { written: self.written.max(other.written), gone: self.gone.max(other.gone) }
    }
}

impl Cells {
    /// Where eviction takes all keys, or those with a deadline.
    pub fn new(takes_all: bool) -> Self {
        let memory = Memory { takes_all, ..Memory::default() };
        Self { cells: Vec::new(), memory }
    }

    pub fn len(&self) -> usize {
        self.cells.len()
    }

    pub fn add(&mut self, is_field: bool) -> usize {
        self.cells.push(Cell { is_field, ..Cell::default() });
        self.cells.len() - 1
    }

    pub fn is_field(&self, cell: usize) -> bool {
        self.cells[cell].is_field
    }

    /// Memory is short from now on, or is not.
    pub fn set_short(&mut self, is_short: bool) {
        self.memory.note();
        self.memory.is_short = is_short;
        self.memory.note();
    }

    pub fn is_memory_short(&self) -> bool {
        self.memory.is_short
    }

    /// A client asks for what a cell holds.
    pub fn read(&self, cell: usize) -> CellRequest {
        CellRequest { cell, version: None, known: self.cells[cell].told }
    }

    /// The next version of a cell. It is gone in so long at the earliest, if it says so; else it is
    /// left as it was (`None`).
    pub fn write(&mut self, cell: usize, is_set: bool, dies_ms: Option<i64>) -> Option<Writing> {
        self.memory.sent += 1;
        self.memory.note();
        let at = self.memory.sent;
        let it = &mut self.cells[cell];
        if it.versions.len() == VERSIONS_MAX {
            return None;
        }
        let before_ms = it.dies_ms();
        let dies_ms = dies_ms.unwrap_or(if is_set { NEVER_MS } else { before_ms });
        let value = 1 << it.versions.len();
        let known = is_set.then_some(value);
        it.versions.push(Version { state: State::Sent, is_set, dies_ms, at, value: known });
        let asked = CellRequest { cell, version: Some(it.versions.len()), known: it.told };
        Some(Writing { asked, value, is_set })
    }

    /// What was asked for was refused.
    pub fn refused(&mut self, asked: CellRequest) {
        if let Some(version) = asked.version {
            self.cells[asked.cell].versions[version - 1].state = State::Refused;
        }
    }

    /// A client is told what a cell holds; `always`: under a promise.
    pub fn told(
        &mut self,
        asked: CellRequest,
        seen: Option<u64>,
        now_ms: i64,
        always: bool,
    ) -> Result<(), String> {
        let CellRequest { cell, version, known } = asked;
        let memory = self.memory;
        let it = &mut self.cells[cell];
        if let Some(version) = version {
            it.versions[version - 1].state = State::Acknowledged;
        }
        it.check(seen, known, now_ms, memory).map_err(|fault| it.fault(cell, &fault))?;
        let told = match seen {
            Some(value) => Told { written: version_of(value), gone: 0 },
            None => Told { written: 0, gone: known.written },
        };
        if let Some(value) = seen {
            let at = version_of(value) - 1;
            it.versions[at].value = Some(value);
            if version.is_some_and(|version| version != at + 1) {
                return Err(
                    it.fault(cell, &format!("{version:?} was written, and {value:#b} is there"))
                );
            }
        }
        it.told = it.told.and(told);
        if always {
            it.promised = it.promised.and(told);
        }
        Ok(())
    }

    /// A listener is told that a cell is gone. If it had one version only, it was that.
    pub fn heard_gone(&mut self, cell: usize, always: bool) -> bool {
        let it = &mut self.cells[cell];
        let gone = Told { written: 0, gone: it.versions.len() };
        let is_certain = it.versions.len() == 1;
        if is_certain {
            it.told = it.told.and(gone);
            it.promised = if always { it.promised.and(gone) } else { it.promised };
        }
        is_certain && always
    }

    /// What a client knows of cells that are its own, to be promised later.
    pub fn written(&self, cells: &[usize]) -> Vec<(usize, Told)> {
        let told = |&cell: &usize| (cell, Told { gone: 0, ..self.cells[cell].told });
        cells.iter().map(told).collect()
    }

    pub fn promise(&mut self, told: &[(usize, Told)]) {
        for &(cell, told) in told {
            let it = &mut self.cells[cell];
            it.promised = it.promised.and(told);
        }
    }

    /// All that any client was told is promised from now on.
    pub fn promise_all(&mut self) {
        self.cells.iter_mut().for_each(|cell| cell.promised = cell.promised.and(cell.told));
    }

    /// A crash leaves this of a cell.
    pub fn left(&self, cell: usize, seen: Option<u64>, now_ms: i64) -> Result<(), String> {
        let it = &self.cells[cell];
        it.check(seen, it.promised, now_ms, self.memory).map_err(|fault| it.fault(cell, &fault))
    }
}

impl Memory {
    fn note(&mut self) {
        if self.is_short {
            self.short_until = self.sent;
        }
    }
}

/// The version that a value is of.
const fn version_of(value: u64) -> usize {
    (u64::BITS - value.leading_zeros()) as usize
}

impl Cell {
    fn check(
        &self,
        seen: Option<u64>,
        known: Told,
        now_ms: i64,
        memory: Memory,
    ) -> Result<(), String> {
        let Some(value) = seen else {
            let may_be_gone = known.written == 0
                || known.gone >= known.written
                || self.may_go(known.written, self.versions.len(), now_ms, memory);
            return may_be_gone.then_some(()).ok_or_else(|| "it is gone".into());
        };
        let (version, first) = (version_of(value), value.trailing_zeros() as usize + 1);
        let Some(last) = version.checked_sub(1).and_then(|at| self.versions.get(at)) else {
            return Err(format!("{value:#b} was never written"));
        };
        if version < known.written {
            return Err(format!("{value:#b} is older than what was told"));
        }
        if version <= known.gone {
            return Err(format!("{value:#b} was gone before"));
        }
        if last.value.is_some_and(|known| known != value) {
            return Err(format!("it was {:#b} and is {value:#b}", last.value.unwrap_or_default()));
        }
        for (at, of) in self.versions[..version].iter().enumerate().skip(first - 1) {
            let is_there = value >> at & 1 != 0;
            if is_there == (of.state == State::Refused) && of.state != State::Sent {
                return Err(format!("{value:#b} is wrong about {}", at + 1));
            }
            if is_there && of.is_set && at + 1 > first {
                return Err(format!("{value:#b} has what {} did away with", at + 1));
            }
        }
        let before =
            self.versions[..first - 1].iter().rposition(|of| of.state == State::Acknowledged);
        match before {
            Some(at)
                if !self.versions[first - 1].is_set
                    && !self.may_go(at + 1, first - 1, now_ms, memory) =>
            {
                Err(format!("{value:#b} began anew"))
            }
            _ => Ok(()),
        }
    }

    /// When the cell may be gone at the earliest. What was only sent may yet be refused, so that
    /// what was before it counts, too.
    fn dies_ms(&self) -> i64 {
        let mut dies_ms = NEVER_MS;
        for version in self.versions.iter().rev().filter(|of| of.state != State::Refused) {
            dies_ms = dies_ms.min(version.dies_ms);
            if version.state == State::Acknowledged {
                break;
            }
        }
        dies_ms
    }

    /// Whether one of these versions may have gone by itself.
    fn may_go(&self, from: usize, to: usize, now_ms: i64, memory: Memory) -> bool {
        self.versions[from - 1..to].iter().filter(|of| of.state != State::Refused).any(|of| {
            let is_volatile = of.dies_ms < NEVER_MS && !self.is_field;
            let is_evicted = of.at <= memory.short_until && (memory.takes_all || is_volatile);
            of.dies_ms <= now_ms || is_evicted
        })
    }

    fn fault(&self, cell: usize, what: &str) -> String {
        let mut text =
            format!("cell {cell}: {what}; told {:?}, promised {:?}:", self.told, self.promised);
        for (at, of) in self.versions.iter().enumerate() {
            let state = match of.state {
                State::Sent => "sent",
                State::Acknowledged => "acknowledged",
                State::Refused => "refused",
            };
            let verb = if of.is_set { "set" } else { "add" };
            // Writing to a String does not fail.
            write!(text, "\n  {}: {verb}, {state}, until {}, {:?}", at + 1, of.dies_ms, of.value)
                .ok();
        }
        text
    }
}
