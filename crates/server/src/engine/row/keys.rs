//! Which arguments of a command are keys, and what the command does with them.

use crate::base::bits::bits;

bits! {
    /// What a command does with a key, with the names of COMMAND INFO's key specifications.
    KeyUse: u32 {
        READ_ONLY = "RO",
        READ_WRITE = "RW",
        OVERWRITE = "OW",
        REMOVE = "RM",
        ACCESS = "access",
        UPDATE = "update",
        INSERT = "insert",
        DELETE = "delete",
        NOT_KEY = "not_key",
        INCOMPLETE = "incomplete",
        VARIABLE = "variable_flags",
    }
}

/// Where the first key of a specification is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begin {
    /// At this argument.
    Index(usize),
    /// Behind this word, which is searched from this argument on (negative: backwards from the
    /// end).
    Keyword(&'static str, i32),
    Unknown,
}

/// Where the other keys are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Find {
    /// Every `step`th argument until `last`, counted from the first key (negative: from the end).
    /// With a `limit` of n > 1, only the first n-th part of the arguments.
    Range {
        last: i32,
        step: usize,
        limit: usize,
    },
    /// An argument has the number of keys. The fields count from where the specification begins.
    Count {
        count_at: usize,
        first: usize,
        step: usize,
    },
    Unknown,
}

/// Calls a function with the index of each argument that names a database.
pub type Finder = fn(&[&[u8]], &mut dyn FnMut(usize));

/// Which arguments of a command are channels that it subscribes or publishes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChannelArguments {
    None,
    First,
    All,
    /// All arguments, as patterns.
    Patterns,
}

/// Which databases a command uses.
#[derive(Clone, Copy)]
pub enum DatabaseUse {
    /// The selected one, if the command uses keys at all.
    Selected,
    /// Those that arguments name, and the selected one if the command has keys in it.
    Named(Finder),
    Every,
}

/// A key specification. A command has one for each kind of use.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    pub begin: Begin,
    pub find: Find,
    pub usage: KeyUse,
    /// A remark for COMMAND DOCS.
    pub notes: &'static str,
}

impl KeySpec {
    /// One key at this argument.
    pub const fn at(index: usize, usage: KeyUse) -> Self {
        Self::range(index, 0, 1, usage)
    }

    /// Every `step`th argument from `index` until `last` (counted from `index`; negative: from the
    /// end).
    pub const fn range(index: usize, last: i32, step: usize, usage: KeyUse) -> Self {
        let find = Find::Range { last, step, limit: 0 };
        Self { begin: Begin::Index(index), find, usage, notes: "" }
    }

    /// The argument at `index` has the number of keys, which follow it.
    pub const fn counted(index: usize, usage: KeyUse) -> Self {
        let find = Find::Count { count_at: 0, first: 1, step: 1 };
        Self { begin: Begin::Index(index), find, usage, notes: "" }
    }

    /// One key behind a word.
    pub const fn keyword(word: &'static str, from: i32, usage: KeyUse) -> Self {
        let find = Find::Range { last: 0, step: 1, limit: 0 };
        Self { begin: Begin::Keyword(word, from), find, usage, notes: "" }
    }

    /// Keys behind a word, until the end.
    pub const fn keyword_range(word: &'static str, from: i32, usage: KeyUse) -> Self {
        let find = Find::Range { last: -1, step: 1, limit: 0 };
        Self { begin: Begin::Keyword(word, from), find, usage, notes: "" }
    }

    pub const fn notes(mut self, notes: &'static str) -> Self {
        self.notes = notes;
        self
    }

    /// Calls `f` with the index of each key of these arguments. Returns `false` if the arguments do
    /// not fit the specification.
    #[inline(always)]
    pub fn positions(&self, args: &[&[u8]], mut f: impl FnMut(usize)) -> bool {
        let begin = match self.begin {
            Begin::Index(index) => index,
            Begin::Keyword(word, from) => match keyword(word, from, args) {
                Some(index) => index,
                None => return true,
            },
            Begin::Unknown => return false,
        };
        let (first, last, step) = match self.find {
            Find::Range { last, step, limit } => {
                let last = if last >= 0 {
                    begin as i64 + i64::from(last)
                } else if limit <= 1 {
                    args.len() as i64 + i64::from(last)
                } else {
                    begin as i64 + ((args.len() - begin) / limit) as i64 + i64::from(last)
                };
                (begin, last, step)
            }
            Find::Count { count_at, first, step } => {
                let count = args.get(begin + count_at).and_then(|arg| bobbin_resp::parse_i64(arg));
                let Some(count) = count.filter(|count| *count >= 0) else { return false };
                let Ok(count) = usize::try_from(count) else { return false };
                let first = begin + first;
                match count.checked_mul(step).and_then(|n| first.checked_add(n)) {
                    Some(end) if end <= args.len() => (first, end as i64 - 1, step),
                    _ => return false,
                }
            }
            Find::Unknown => return false,
        };
        if last >= args.len() as i64 {
            return false;
        }
        let mut at = first;
        while (at as i64) <= last {
            f(at);
            at += step;
        }
        true
    }
}

fn keyword(word: &str, from: i32, args: &[&[u8]]) -> Option<usize> {
    let is = |arg: &&[u8]| arg.eq_ignore_ascii_case(word.as_bytes());
    if from >= 0 {
        let from = from as usize;
        args.iter().skip(from).position(is).map(|i| from + i + 1)
    } else {
        let end = args.len().checked_sub(from.unsigned_abs() as usize)? + 1;
        args.get(..end)?.iter().rposition(is).map(|i| i + 1)
    }
    .filter(|&index| index < args.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(spec: KeySpec, line: &str) -> Option<Vec<usize>> {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let mut found = Vec::new();
        spec.positions(&args, |at| found.push(at)).then_some(found)
    }

    #[test]
    fn ranges_counts_and_words() {
        let usage = KeyUse::READ_ONLY;
        assert_eq!(positions(KeySpec::at(1, usage), "get a"), Some(vec![1]));
        assert_eq!(positions(KeySpec::range(1, -1, 1, usage), "del a b c"), Some(vec![1, 2, 3]));
        assert_eq!(positions(KeySpec::range(1, -1, 2, usage), "mset a 1 b 2"), Some(vec![1, 3]));
        assert_eq!(positions(KeySpec::counted(1, usage), "msetex 2 a b"), Some(vec![2, 3]));
        assert_eq!(positions(KeySpec::counted(1, usage), "msetex 3 a b"), None);
        assert_eq!(positions(KeySpec::counted(1, usage), "msetex x a b"), None);
        let store = KeySpec::keyword("store", 2, usage);
        assert_eq!(positions(store, "sort a by b STORE c"), Some(vec![5]));
        assert_eq!(positions(store, "sort a by b"), Some(vec![]));
    }
}
