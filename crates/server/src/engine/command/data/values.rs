//! Values on their way in: large arguments are copied before the shards of their command are
//! locked.

use bobbin_store::entry::{INLINE_MAX, Shared};

use super::super::Values;
use super::Data;

/// Values that were made before the shards of their command are locked.
#[derive(Default)]
pub(super) struct IncomingValues {
    /// Large arguments of the command at hand, by their places, ascending; `None`: taken.
    prepared: Vec<(usize, Option<Shared>)>,
    /// Large arguments that were received as what they may become: values.
    offered: Vec<Shared>,
}

impl Data {
    /// Copies those of the arguments that become values and are too long to lie in an entry.
    /// Nothing is held meanwhile: a large copy takes the kernel's time as well.
    #[inline(always)]
    pub fn prepare(&mut self, values: Values, args: &[&[u8]]) {
        let long = |at: usize| args.get(at).is_some_and(|arg| arg.len() > INLINE_MAX);
        if values.step == 0 {
            if long(values.first) {
                self.prepare_one(values.first, args[values.first]);
            }
            return;
        }
        for at in (values.first..args.len()).step_by(values.step) {
            if long(at) {
                self.prepare_one(at, args[at]);
            }
        }
    }

    #[cold]
    fn prepare_one(&mut self, at: usize, argument: &[u8]) {
        self.release();
        let shared = self.shared(argument);
        self.values.prepared.push((at, Some(shared)));
    }

    /// The argument, if it is one that need not be copied.
    pub fn offered(&self, argument: &[u8]) -> Option<Shared> {
        let same = |offered: &&Shared| std::ptr::eq(offered.as_slice(), argument);
        self.values.offered.iter().find(same).map(Shared::clone)
    }

    /// The argument as bytes that outlive the command.
    pub fn shared(&self, argument: &[u8]) -> Shared {
        self.offered(argument).unwrap_or_else(|| Shared::new(argument.to_vec()))
    }

    /// Arguments of the commands to come that need not be copied. They may be shared for as long as
    /// any slice of them is in use.
    pub fn offer<'a>(&mut self, arguments: impl Iterator<Item = &'a Shared>) {
        self.values.offered.clear();
        self.values.offered.extend(arguments.cloned());
    }

    /// The copy of the argument at `at`, if one was prepared.
    pub fn take_prepared(&mut self, at: usize) -> Option<Shared> {
        let prepared = &mut self.values.prepared;
        let found = prepared.binary_search_by_key(&at, |(index, _)| *index).ok()?;
        prepared[found].1.take()
    }

    /// Drops what the command did not take.
    #[inline(always)]
    pub fn end_prepared(&mut self) {
        if !self.values.prepared.is_empty() {
            self.values.prepared.clear();
        }
    }
}
