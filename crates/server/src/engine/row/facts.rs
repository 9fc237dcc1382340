//! The facts that follow from a command's row.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bobbin_resp::{Protocol, Reply};

use super::keys::{Begin, Find};
use super::{Categories, DatabaseUse, Flags, KeySpec, KeyUse, Row};

/// A command's row, and the facts that are derived from it once at start.
pub struct Facts {
    pub row: &'static Row,
    /// `get`, `client|list`.
    pub full_name: String,
    /// A number from 0 on, over commands and subcommands. It indexes the statistics.
    pub id: usize,
    pub shape: KeyShape,
    /// Whether argument 1 is a key.
    pub first_is_key: bool,
    /// Whether the command uses the selected database.
    pub uses_selected_database: bool,
    /// The ids of a container's subcommands.
    pub subcommands: Range<usize>,
    pub parent: Option<usize>,
    /// The reply of COMMAND INFO about this command.
    pub info: Described,
    /// The reply of COMMAND DOCS about this command.
    pub docs: Described,
}

/// A reply that is always the same. It is made when it is first asked for, once for each protocol,
/// and shared by all later replies. A single request may ask for it a million times.
#[derive(Default)]
pub struct Described([OnceLock<Arc<Vec<u8>>>; 2]);

impl Described {
    /// Appends the reply; `make` makes it if it does not exist yet.
    pub fn append(&self, reply: &mut Reply<'_>, make: impl FnOnce(&mut Reply<'_>)) {
        let protocol = reply.protocol();
        let whole = self.0[usize::from(protocol == Protocol::Resp3)].get_or_init(|| {
            let mut bytes = Vec::new();
            make(&mut Reply::new(&mut bytes, protocol));
            Arc::new(bytes)
        });
        reply.whole_shared(whole);
    }
}

/// Where the keys of common commands are, without reading specifications.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyShape {
    None,
    /// One key, at argument 1.
    First,
    /// The keys that the specifications name.
    Specified,
}

/// Commands that find out by themselves what to lock, or that wait for something.
const NOT_AT_ONCE: Flags = Flags::GATE
    .with(Flags::WALKS)
    .with(Flags::RUNS_SCRIPT)
    .with(Flags::RUNS_TRANSACTION)
    .with(Flags::NOT_QUEUED)
    .with(Flags::BLOCKING)
    .with(Flags::MAY_REPLICATE);

impl Facts {
    pub fn new(
        row: &'static Row,
        full_name: String,
        id: usize,
        subcommands: Range<usize>,
        parent: Option<usize>,
    ) -> Self {
        let shape = match row.keys {
            [] => KeyShape::None,
            keys if keys.iter().all(|spec| spec.usage.has(KeyUse::NOT_KEY)) => KeyShape::None,
            [KeySpec { begin: Begin::Index(1), find: Find::Range { last: 0, .. }, .. }] => {
                KeyShape::First
            }
            _ => KeyShape::Specified,
        };
        let first_is_key = row.keys.iter().any(|spec| {
            let begins_there = matches!(spec.begin, Begin::Index(1));
            begins_there && matches!(spec.find, Find::Range { .. }) && shape != KeyShape::None
        });
        let has_keys = row.keys.iter().any(|spec| !spec.usage.has(KeyUse::NOT_KEY));
        let about_keys = Categories::KEYSPACE.with(Categories::READ).with(Categories::WRITE);
        let uses_selected_database = has_keys
            || matches!(row.databases, DatabaseUse::Selected)
                && row.categories.complete(row.flags).has(about_keys);
        let (info, docs) = Default::default();
        Self {
            row,
            full_name,
            id,
            shape,
            first_is_key,
            uses_selected_database,
            subcommands,
            parent,
            info,
            docs,
        }
    }

    #[inline(always)]
    pub fn has(&self, flags: Flags) -> bool {
        self.row.flags.has(flags)
    }

    /// Whether the command may have this many words.
    #[inline(always)]
    pub fn accepts(&self, words: usize) -> bool {
        let words = words as i64;
        let arity = i64::from(self.row.arity);
        if arity >= 0 { words == arity } else { words >= -arity }
    }

    /// Whether the command only changes one key, its first argument, and does so at once.
    pub fn changes_one_key_at_once(&self, args: &[&[u8]]) -> bool {
        self.has(Flags::WRITE)
            && self.has(Flags::FAST.with(Flags::BRIEF))
            && !self.has(NOT_AT_ONCE)
            && !(self.has(Flags::COUNTED) && args.len() > 2)
            && self.row.gate_when.is_none()
            && self.subcommands.is_empty()
            && self.accepts(args.len())
            && (self.shape == KeyShape::First || self.has_lone_key(args))
    }

    fn has_lone_key(&self, args: &[&[u8]]) -> bool {
        let (mut keys, mut is_first) = (0, false);
        let fits = self.key_positions(args, |at| {
            keys += 1;
            is_first = at == 1;
        });
        fits && keys == 1 && is_first
    }

    /// Calls `f` with the index of each key, and what the command does with the key. Returns
    /// `false` if the arguments do not fit the command. Then it passes the keys that are there: the
    /// handler answers with an error before it looks at a key.
    pub fn key_uses(&self, args: &[&[u8]], mut f: impl FnMut(usize, KeyUse)) -> bool {
        if let Some(finder) = self.row.key_finder {
            finder(args, &mut f);
            return true;
        }
        let mut fits = true;
        for spec in self.row.keys.iter().filter(|spec| !spec.usage.has(KeyUse::NOT_KEY)) {
            fits &= spec.positions(args, |at| f(at, spec.usage));
        }
        fits
    }

    /// Whether the command may read keys that its arguments do not name, as SORT's BY does.
    pub fn reads_undeclared_keys(&self) -> bool {
        let is_incomplete =
            |spec: &KeySpec| spec.begin == Begin::Unknown || spec.usage.has(KeyUse::INCOMPLETE);
        self.row.keys.iter().any(is_incomplete)
    }

    /// Calls `f` with the index of each key. Returns `false` if the arguments do not fit the
    /// command.
    #[inline(always)]
    pub fn key_positions(&self, args: &[&[u8]], mut f: impl FnMut(usize)) -> bool {
        match self.shape {
            KeyShape::None => true,
            KeyShape::First => {
                f(1);
                true
            }
            KeyShape::Specified => {
                if let Some(finder) = self.row.key_finder {
                    finder(args, &mut |at, _| f(at));
                    return true;
                }
                let mut fits = true;
                for spec in self.row.keys.iter().filter(|s| !s.usage.has(KeyUse::NOT_KEY)) {
                    fits &= spec.positions(args, &mut f);
                }
                fits
            }
        }
    }
}
